"""What the line mode says besides the answer: one line for each change of phase.

The lines are made from engine events alone and name what the monitor draws: the phase, speeds,
where the head is, slots lent, free memory.
"""

from collections.abc import Iterator

from stratadesk.cli.views import ENDINGS, load_words
from stratadesk.engine.card_events import CacheSample, DeviceLost, PowerSample, Provenance
from stratadesk.engine.events import (
    EngineStopped,
    Event,
    Failure,
    LoadProgress,
    MemorySample,
    ModelLoaded,
    Phase,
    PhaseChanged,
    PromptPlanned,
    PromptProgress,
    RequestFinished,
    RequestStarted,
    ReserveApplied,
    VramSample,
)
from stratadesk.engine.load_report import KERNELS_TOLD_S
from stratadesk.engine.vram.phase_table import HeadPlace, VramPhase, VramState
from stratadesk.engine.vram.states import MemoryState, MemoryStatus
from stratadesk.engine.vram.wording import banner, figure_mib, reserve_reached
from stratadesk.units import format_bytes, format_rate

SEPARATOR = " · "


class PlainFacts:
    """Turns events into lines; most events only change what the next line says."""

    def __init__(self) -> None:
        self._started: RequestStarted | None = None
        self._progress: PromptProgress | None = None
        self._plan: PromptPlanned | None = None
        self._card: VramPhase | None = None
        self._status: MemoryStatus | None = None
        self._cache: CacheSample | None = None
        self._ram: MemorySample | None = None
        self._power: tuple[bool | None, tuple[str, ...] | None] = (None, None)
        self._prompt_told = False
        self._stage = ""

    def lines(self, event: Event) -> Iterator[str]:
        """Take note of an event and go through the lines that it is worth."""
        yield from self._of_work(event)
        yield from self._of_machine(event)

    def _of_work(self, event: Event) -> Iterator[str]:
        match event:
            case LoadProgress():
                yield from self._loading(event)
            case ModelLoaded():
                yield _line("ready", *_model(event), *self._of_card())
                yield from (_line("warning", warning) for warning in event.warnings)
            case PhaseChanged():
                yield from self._phase(event.phase)
            case RequestStarted() | PromptPlanned() | PromptProgress():
                yield from self._prompt(event)
            case RequestFinished():
                yield _line("ready", *_finished(event), *self._hits(), *self._of_card())

    def _of_machine(self, event: Event) -> Iterator[str]:
        match event:
            case VramPhase() | VramSample() | ReserveApplied():
                yield from self._of_memory(event)
            case CacheSample():
                self._cache = event
            case MemorySample():
                self._ram = event
            case PowerSample():
                yield from self._of_power(event)
            case Failure():
                yield _line("failed", f"{event.sentence} {event.remedy}".rstrip())
            case DeviceLost():
                yield _line("card lost", event.why)
            case Provenance():
                yield _line(event.label.lower(), event.words)
            case EngineStopped():
                yield _line("stopped", "The engine has stopped; start StrataDesk again.")

    def _loading(self, event: LoadProgress) -> Iterator[str]:
        if event.stage != self._stage:
            self._stage = event.stage
            yield _line("loading", load_words(event))

    def _phase(self, phase: Phase) -> Iterator[str]:
        if phase is Phase.LOADING:
            self._stage, self._card, self._status, self._cache = "", None, None, None
        elif phase is Phase.PROMPT:
            self._started = self._progress = self._plan = None
            self._prompt_told = False
        elif phase is Phase.DECODING:
            yield _line("decoding", *self._read(), *self._of_card())
        elif phase is Phase.CANCELLING:
            yield _line("stopping")

    def _prompt(self, event: RequestStarted | PromptPlanned | PromptProgress) -> Iterator[str]:
        match event:
            case RequestStarted():
                self._started = event
            case PromptPlanned():
                self._plan = event
            case PromptProgress():
                self._progress = event
        planned = self._plan is not None or self._progress is not None
        if self._started is not None and planned and not self._prompt_told:
            self._prompt_told = True
            yield _line("prompt", *_prompt(self._started, self._plan), *self._of_card())

    def _read(self) -> Iterator[str]:
        if self._progress is not None and self._progress.read:
            speed = format_rate(self._progress.read, self._progress.seconds)
            yield f"prompt read at {speed}"

    def _of_memory(self, event: VramPhase | VramSample | ReserveApplied) -> Iterator[str]:
        match event:
            case VramPhase():
                self._card = event
                if self._status and event.state in (VramState.RETURNING, VramState.RESIZING):
                    yield _line(event.state.value, *self._of_card())
            case VramSample():
                before = self._status.state if self._status else MemoryState.OK
                self._status = event.status
                if event.status.state is not before:
                    yield _alarm(event.status)
            case ReserveApplied():
                yield _line("reserve", *_reserve(event))

    def _of_power(self, event: PowerSample) -> Iterator[str]:
        power = (event.on_battery, event.throttled)
        if power != self._power:
            told, self._power = self._power, power
            words = list(_power(event))
            if words or any(told):
                yield _line("power", *(words or ["on mains, full speed"]))

    def _hits(self) -> Iterator[str]:
        rate = self._cache.answer_rate if self._cache else None
        if rate is not None:
            yield f"expert hits {rate:.0%}"

    def _of_card(self) -> Iterator[str]:
        """Where the head is, what is lent and what is free; without a card, the RAM."""
        if self._card is not None and self._status is not None:
            yield _head(self._card)
            yield self._slots(self._card)
            free, reserve = self._status.headroom, self._status.reserve
            yield f"free {figure_mib(free)}, reserve {figure_mib(reserve)}"
        elif self._ram is not None:
            used, left = format_bytes(self._ram.resident), format_bytes(self._ram.available)
            yield f"RAM {used}, {left} available"

    def _slots(self, card: VramPhase) -> str:
        of_all = f" of {self._cache.slots:,}" if self._cache else ""
        return f"{card.slots_lent:,}{of_all} slots lent"


def _line(word: str, *parts: str) -> str:
    return SEPARATOR.join((f"[{word}] {parts[0]}", *parts[1:])) if parts else f"[{word}]"


def _model(event: ModelLoaded) -> Iterator[str]:
    yield event.name
    yield event.device
    yield f"context {event.context:,} tokens"
    yield f"loaded in {event.load_s:.1f} s"
    if event.kernels_s >= KERNELS_TOLD_S:
        yield f"kernels in {event.kernels_s:.1f} s"


def _prompt(started: RequestStarted, plan: PromptPlanned | None) -> Iterator[str]:
    fresh = started.prompt_tokens - started.reused
    yield f"reading {fresh:,} tokens, {started.reused:,} reused"
    if started.prefix_note:
        yield started.prefix_note
    if plan is not None:
        yield f"{plan.layout or plan.path}, chunk {plan.chunk:,}"


def _finished(event: RequestFinished) -> Iterator[str]:
    if ENDINGS[event.finish_reason]:
        yield ENDINGS[event.finish_reason]
    yield f"{len(event.tokens):,} tokens at {event.timings.decode_tps:,.1f} tok/s"
    yield f"context {event.context_used:,} of {event.context_total:,}"


def _head(card: VramPhase) -> str:
    if card.head is HeadPlace.OUT:
        return f"head out ({format_bytes(card.head_bytes)})"
    if card.head is HeadPlace.IN and card.return_s > 0:
        return f"head in, last back in {card.return_s * 1e3:,.1f} ms"
    return f"head {card.head.value}"


def _alarm(status: MemoryStatus) -> str:
    said = banner(status)
    if said is None:
        return _line("memory ok", f"free {figure_mib(status.headroom)}")
    return _line(f"memory {said.word}", said.text)


def _reserve(event: ReserveApplied) -> Iterator[str]:
    if event.reason:
        yield event.reason
    yield reserve_reached(event.reserve, event.free, event.limitation)
    yield f"{event.slots:,} slots"
    if not event.done:
        yield "waits for a safe point"


def _power(event: PowerSample) -> Iterator[str]:
    if event.on_battery:
        yield "on battery" + (f", {event.percent:.0f} %" if event.percent is not None else "")
    if event.throttled:
        yield f"throttled: {', '.join(event.throttled)}"
