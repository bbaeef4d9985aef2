"""What does not fit, in plain words, with the smallest change of one setting that would (B8)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from stratadesk.engine.commands import KvFormat
from stratadesk.engine.vram.buffers import CHUNK_STEP, HOST_RULE, LARGEST_CHUNK
from stratadesk.engine.vram.geometry import aligned
from stratadesk.engine.vram.host_memory import HostMemory
from stratadesk.engine.vram.layouts import ArenaPlanner, whole_steps
from stratadesk.engine.vram.machine_facts import MachineFacts, System
from stratadesk.engine.vram.plan_inputs import PlanInputs
from stratadesk.engine.vram.plan_settings import (
    PIN_ALL,
    STAGING_ONLY,
    HeadAlias,
    Layout,
    PlanSettings,
)
from stratadesk.engine.vram.shape import KV_VALUE_BYTES, ModelShape
from stratadesk.errors import UsageError
from stratadesk.units import GIB, MIB, format_bytes

CONTEXT_STEP = 1_024
"""A smaller context is proposed in multiples of this many tokens."""

LEAST_PAGE_FILE = 4 * GIB

SIMULATED = "These are the simulated card's figures; stratadesk plan --device host shows them all."


@dataclass(frozen=True, slots=True)
class Problem:
    """One sentence and what to do; a `fatal` one refuses the plan unless it is forced."""

    sentence: str
    remedy: str = ""
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.sentence} {self.remedy}".rstrip()


def check_settings(shape: ModelShape, settings: PlanSettings) -> None:
    """Raise UsageError, one sentence, for settings that cannot work with this model."""
    if settings.alias is HeadAlias.ON and shape.tied:
        raise UsageError(
            f"{shape.name} has no output head of its own: it is the embedding and is never lent.",
            "Leave out --prefill-head-alias on.",
        )
    if settings.mtp and not shape.draft:
        raise UsageError(f"{shape.name} has no block that drafts tokens.", "Leave out --mtp.")
    if settings.drafts and not settings.mtp:
        raise UsageError("--spec drafts tokens with the MTP block.", "Add --mtp.")
    _check_cache(shape, settings)
    if not any(shape.experts(settings.mtp)):
        _check_dense(shape, settings)


def _check_cache(shape: ModelShape, settings: PlanSettings) -> None:
    kv = settings.kv_format
    row = shape.broken_row(kv, settings.mtp)
    if row:
        raise UsageError(
            f"A KV cache in {kv.upper()} needs rows of whole blocks of {KV_VALUE_BYTES[kv][1]} "
            f"values, this model's rows have {row}.",
            "Use --kv f16 or --kv f32.",
        )


def _check_dense(shape: ModelShape, settings: PlanSettings) -> None:
    if settings.expert_cache is not None:
        raise UsageError(f"{shape.name} has no experts to cache.", "Leave out --expert-cache.")
    if settings.prefill_layout is Layout.LOAN:
        raise UsageError(
            f"{shape.name} has no experts, so there are no slots to lend.",
            "Leave out --prefill-layout loan.",
        )


class ShortageFinder:
    """Finds how much the card lacks for a plan, and which single settings would do."""

    def __init__(self, inputs: PlanInputs) -> None:
        self._inputs = inputs
        self._settings = inputs.settings

    def problem(self) -> Problem | None:
        """The shortage of VRAM, or None when the plan fits."""
        short = self._short(self._settings)
        if short <= 0:
            return None
        changes = list(self._changes(short))
        if changes:
            simulated = self._inputs.rule is HOST_RULE
            return Problem(
                f"{-(-short // MIB):,} MiB short: {', or '.join(changes)}.",
                SIMULATED if simulated else "",
            )
        return self._hopeless(short)

    def _short(self, settings: PlanSettings) -> int:
        """Bytes that are missing with these settings; 0 or less when they fit."""
        planner = ArenaPlanner(replace(self._inputs, settings=settings))
        buffers = 0
        if settings.prefill_layout is Layout.FIXED and settings.prefill is not None:
            chunk = min(planner.limit, whole_steps(settings.prefill))
            buffers = aligned(planner.buffers(chunk))
        return planner.needed + buffers - planner.room

    def _fits(self, **changed: object) -> bool:
        return self._short(replace(self._settings, **changed)) <= 0  # type: ignore[arg-type]

    def _changes(self, short: int) -> Iterator[str]:
        """Single changes, each enough by itself, those that cost least first."""
        settings = self._settings
        yield from self._kv_formats()
        context = self._largest(
            lambda steps: self._fits(max_context=steps * CONTEXT_STEP),
            (self._inputs.context - 1) // CONTEXT_STEP,
        )
        if context:
            yield f"--max-context {context * CONTEXT_STEP}"
        if settings.mtp and self._fits(mtp=False, drafts=0):
            yield "--no-mtp"
        if settings.expert_cache not in (None, STAGING_ONLY):
            yield from self._smaller_cache(settings.expert_cache or 0)
        if settings.prefill_layout is Layout.FIXED and settings.prefill is not None:
            chunk = CHUNK_STEP * self._largest(
                lambda steps: self._fits(prefill=CHUNK_STEP * steps), LARGEST_CHUNK // CHUNK_STEP
            )
            if chunk:
                yield f"--prefill {chunk}"
        reserve = (settings.reserve - short) // MIB
        if reserve >= 0 and self._fits(reserve=reserve * MIB):
            yield f"--vram-reserve-mib {reserve}"

    def _kv_formats(self) -> Iterator[str]:
        fitting = (kv for kv in self._smaller_kv_formats() if self._fits(kv_format=kv))
        yield from (f"--kv {kv}" for kv in list(fitting)[:1])

    def _smaller_kv_formats(self) -> list[KvFormat]:
        """Those that this model's rows can be kept in, the smallest last."""
        shape, settings = self._inputs.shape, self._settings
        return [
            kv
            for kv in (KvFormat.F16, KvFormat.Q8_0)
            if _value_bytes(kv) < _value_bytes(settings.kv_format)
            and not shape.broken_row(kv, settings.mtp)
        ]

    def _smaller_cache(self, asked: int) -> Iterator[str]:
        slots = self._largest(lambda count: self._fits(expert_cache=count), asked - 1)
        if slots:
            yield f"--expert-cache {slots}"

    @staticmethod
    def _largest(fits: Callable[[int], bool], most: int) -> int:
        """The largest number from 1 to `most` that fits (less always fits better), else 0."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(middle) else (low, middle - 1)
        return low

    def _hopeless(self, short: int) -> Problem:
        least = replace(
            self._settings,
            max_context=min(CONTEXT_STEP, self._inputs.context),
            kv_format=(self._settings.kv_format, *self._smaller_kv_formats())[-1],
            expert_cache=None,
            mtp=False,
            drafts=0,
            prefill=None,
        )
        still = self._short(least)
        flags = f"--max-context {least.max_context} --kv {least.kv_format}"
        if still <= 0:
            return Problem(
                f"{-(-short // MIB):,} MiB short: no single setting is enough; {flags} with an "
                "automatic expert cache would fit."
            )
        return Problem(
            f"{-(-short // MIB):,} MiB short: no setting is enough; even {flags} leaves "
            f"{-(-still // MIB):,} MiB short.",
            more_room(self._inputs),
        )


def more_room(inputs: PlanInputs) -> str:
    """Say how a card gets room where no setting of the model is enough.

    Other programs can be closed only where it was read, or said, what they hold.
    """
    machine, reserve = inputs.machine, inputs.settings.reserve
    if machine.free is None and machine.desktop + machine.context:
        kept = f", and {_mib(reserve)} stay free (--vram-reserve-mib)" if reserve else ""
        return (
            f"{_mib(machine.desktop)} for other programs and {_mib(machine.context)} for a CUDA "
            f"context are assumed{kept}: say what is free with --free-mib, name a larger card "
            "with --vram-mib, or choose a smaller model."
        )
    if inputs.rule is HOST_RULE and (reserve or machine.free is not None):
        less = f", keep less than {_mib(reserve)} free with --vram-reserve-mib" if reserve else ""
        return (
            f"The card is simulated: give it more with --free-mib or --vram-mib{less}, or choose "
            "a smaller model."
        )
    return "Free VRAM of other programs, or choose a smaller model."


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / MIB:,.0f} MiB"


def _value_bytes(kv: KvFormat) -> float:
    n_bytes, per = KV_VALUE_BYTES[kv]
    return n_bytes / per


def chunk_problem(planner: ArenaPlanner, settings: PlanSettings, most: int) -> Problem | None:
    """Tell when the chunk asked for fits no layout that the arena has; `most` is the largest."""
    chunk = settings.prefill
    if chunk is None or min(chunk, planner.limit) <= most:
        return None
    needs = format_bytes(planner.buffers(chunk))
    instead = f"--prefill {most}" if most else "leave out --prefill"
    return Problem(
        f"A prompt chunk of {chunk:,} tokens needs {needs}, and no layout here holds more than "
        f"{most:,} tokens: {instead}."
    )


def context_problem(shape: ModelShape, settings: PlanSettings) -> Problem | None:
    """Tell when the context is longer than the model was made for."""
    words = context_words(settings.max_context, shape.context)
    return Problem(words, fatal=False) if words else None


def context_words(context: int, own: int) -> str:
    """Warn of more tokens than the `own` of the model; empty where there is nothing to warn of."""
    if context <= own:
        return ""
    return (
        f"A context of {context:,} tokens is more than the model's {own:,}; "
        "answers get worse beyond those."
    )


def host_problems(
    machine: MachineFacts, settings: PlanSettings, host: HostMemory
) -> Sequence[Problem]:
    """What RAM, pinning and page file lack."""
    return [problem for problem in _host_problems(machine, settings, host) if problem is not None]


def _host_problems(
    machine: MachineFacts, settings: PlanSettings, host: HostMemory
) -> Iterator[Problem | None]:
    short = host.needed - machine.ram
    if short > 0:
        yield Problem(
            f"{format_bytes(short)} of RAM short: experts, head and embedding take "
            f"{format_bytes(host.experts + host.copies)}, and a tenth more must be left, of "
            f"{format_bytes(machine.ram)}; no setting changes that.",
            "Choose a smaller quantization, or --force to read from disk what RAM cannot hold.",
        )
    yield _pin_problem(machine, settings, host)
    yield _pin_note(settings, host)
    if machine.system is System.WINDOWS:
        yield _page_file_problem(machine)


def _pin_problem(machine: MachineFacts, settings: PlanSettings, host: HostMemory) -> Problem | None:
    budget, asked = machine.pin_budget(), host.pinned + host.copies
    if settings.pin is None or asked <= budget:
        return None
    what = "all" if settings.pin == PIN_ALL else f"{settings.pin / GIB:g}"
    return Problem(
        f"--pin-gib {what} pins {format_bytes(asked)}, more than the {format_bytes(budget)} that "
        "can be asked for here without being refused.",
        "Leave it to auto.",
        fatal=False,
    )


def _pin_note(settings: PlanSettings, host: HostMemory) -> Problem | None:
    """Tell when more is to be pinned than there is to pin."""
    there = host.experts + host.copies
    if settings.pin is None or settings.pin == PIN_ALL or settings.pin <= there:
        return None
    return Problem(
        f"--pin-gib {settings.pin / GIB:g} comes to {format_bytes(there)}: experts, head and "
        "embedding are no bigger.",
        fatal=False,
    )


def slots_note(settings: PlanSettings, most: int) -> Problem | None:
    """Tell when more expert slots are asked for than the model has experts, `most`."""
    if settings.expert_cache is None or settings.expert_cache <= max(most, STAGING_ONLY):
        return None
    return Problem(
        f"--expert-cache {settings.expert_cache} comes to {most:,}: the model has no more experts.",
        fatal=False,
    )


def _page_file_problem(machine: MachineFacts) -> Problem | None:
    page_file = machine.page_file
    if page_file is None or page_file >= LEAST_PAGE_FILE:
        return None
    return Problem(
        f"The page file is {format_bytes(page_file)}; Windows refuses memory long before RAM is "
        "full when it has less than 4 GiB.",
        "Raise it in System Properties, Advanced, Performance, Advanced, Virtual memory.",
        fatal=False,
    )
