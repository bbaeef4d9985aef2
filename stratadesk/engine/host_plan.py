"""The plan of a model on the host: for a simulated card, or for as much memory as it needs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import psutil

from stratadesk.engine.commands import KvFormat
from stratadesk.engine.fit import fitting_shape
from stratadesk.engine.vram.buffers import HOST_RULE
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.plan import VramPlan, make_plan
from stratadesk.engine.vram.plan_settings import STAGING_ONLY, HeadAlias, Layout, PlanSettings
from stratadesk.errors import MemoryShortageError, UsageError
from stratadesk.units import MIB, mib

if TYPE_CHECKING:
    from stratadesk.engine.commands import EngineSettings
    from stratadesk.engine.gguf_file import GgufFile

BLOCK_BYTES = 2 * MIB
"""What is mapped at once where no card is simulated."""

DEFAULT_CHUNK = 512


def plan_for_host(gguf: GgufFile, settings: EngineSettings) -> VramPlan:
    """Plan the model in `gguf`.

    Without a card to simulate, everything but the experts gets memory of its own and experts are
    read where they are mapped: no slots, no loans. RAM is checked either way.

    Raises:
        GgufError, UnsupportedModelError: the file cannot be used; see `fitting_shape`.
        UsageError: settings that cannot work with this model.
        MemoryShortageError: less RAM available than the arena needs.
    """
    mtp = settings.mtp or (settings.plan is not None and settings.plan.mtp)
    shape = fitting_shape(gguf, mtp=mtp)
    wanted = settings.plan or PlanSettings(
        reserve=0,
        expert_cache=STAGING_ONLY if any(shape.experts(settings.mtp)) else None,
        alias=HeadAlias.OFF,
        prefill=DEFAULT_CHUNK,
        prefill_layout=Layout.FIXED,
        short_read=HOST_RULE.decode_window,
        block_bytes=BLOCK_BYTES,
    )
    wanted = replace(
        wanted,
        max_context=settings.max_context or wanted.max_context,
        kv_format=settings.kv_format,
        prefill=settings.chunk or wanted.prefill,
        mtp=mtp,
    )
    if wanted.drafts:
        raise UsageError("This version does not write answers from drafts.", "Leave out --spec.")
    memory = psutil.virtual_memory()
    machine = settings.machine or MachineFacts(
        card=memory.total, desktop=0, context=0, ram=memory.total
    )
    plan = make_plan(shape, machine, wanted, HOST_RULE)
    if plan.mapped_bytes > memory.available:
        smaller = "" if shape.broken_row(KvFormat.Q8_0, wanted.mtp) else " --kv q8_0,"
        raise MemoryShortageError(
            f"The model needs {mib(plan.mapped_bytes):,.0f} MiB of RAM besides its mapped file, "
            f"{mib(memory.available):,.0f} MiB are available.",
            f"Use a smaller --max-context,{smaller} or close other programs.",
        )
    return plan
