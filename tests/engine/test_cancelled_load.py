"""A load that is cancelled and keeps its memory is worse than one that cannot be cancelled.

A real model is loaded on a simulated card, and the load is ended at each of its reports in turn.
"""

import gc
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from stratadesk.engine.commands import EngineSettings, LoadModel
from stratadesk.engine.events import LoadProgress
from stratadesk.engine.runtime import open_runtime
from stratadesk.engine.vram.arena import Arena
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.units import KIB, MIB
from tests.tiny_models import tiny_model

CARD = EngineSettings(
    plan=PlanSettings(reserve=64 * KIB, block_bytes=64 * KIB),
    machine=MachineFacts(card=4 * MIB, desktop=0, context=0),
)
LOADED = LoadProgress("Loaded", 0, 0, "")


class Ended(Exception):
    """Stands for what the engine raises."""


def ended_after(reports: int, model: Path) -> list[LoadProgress]:
    """What was told of a load that is ended after so many reports, if it does not end before."""
    told: list[LoadProgress] = []

    def progress(event: LoadProgress) -> None:
        told.append(event)
        if len(told) == reports:
            raise Ended

    with suppress(Ended):
        open_runtime(LoadModel(model, CARD), progress).close()
        told.append(LOADED)
    return told


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")
def test_whenever_a_load_ends_early_its_file_and_its_arena_are_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model.gguf"
    tiny_model("qwen3moe").write(model)
    arenas: list[Arena] = []
    made = Arena.__init__

    def noticed(arena: Arena, *arguments: object, **named: object) -> None:
        made(arena, *arguments, **named)  # type: ignore[arg-type]
        arenas.append(arena)

    monkeypatch.setattr(Arena, "__init__", noticed)
    stages = set()
    for reports in count(1):
        told = ended_after(reports, model)
        assert [arena.end for arena in arenas] == [0] * len(arenas), told[-1]
        arenas.clear()
        gc.collect()
        assert str(model) not in Path("/proc/self/maps").read_text("utf-8"), told[-1]
        if told[-1] is LOADED:
            break
        stages.add(told[-1].stage)
    assert {"Planning the memory", "Copying dense weights", "Building the tokenizer"} <= stages
