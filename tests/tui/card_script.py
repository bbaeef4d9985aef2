"""What an engine says about a laptop's card of 8,151 MiB while a 35B-A3B model runs on it.

The sizes are those that `docs/DETAILS.md` works out by hand.
"""

from collections.abc import Iterable, Mapping

from stratadesk.engine.card_events import CacheSample, CardSettings, PowerSample
from stratadesk.engine.events import (
    Event,
    ModelLoaded,
    Phase,
    PhaseChanged,
    PromptPlanned,
    PromptProgress,
    RequestStarted,
    VramSample,
)
from stratadesk.engine.vram.driver_model import DriverModel
from stratadesk.engine.vram.ledger import Ledger, LedgerLine
from stratadesk.engine.vram.phase_table import HeadPlace, VramPhase, VramState
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout
from stratadesk.engine.vram.readings import CardFigure, Growth, MemoryReading, Source
from stratadesk.engine.vram.states import MemoryState, MemoryStatus
from stratadesk.units import GIB, MIB

CARD, RESERVE, HEAD, STEP = 8151 * MIB, 590 * MIB, 333 * MIB, 64 * MIB
EXPERTS, PINNED = 10_240, 7_800
EXPERT = 1_671_168
SLOTS = 2_616
USUAL: Mapping[str, int] = {
    "weights": 1_232 * MIB,
    "KV and state": 766 * MIB,
    "scratch": 60 * MIB,
    "head": HEAD,
    "experts": SLOTS * EXPERT,
    "prompt buffers": 0,
    "padding": 1 * MIB,
    "graphs and context": 300 * MIB,
    "other programs": 691 * MIB,
}


def ledger(free: int = RESERVE, **owners: int) -> Ledger:
    """The books of the card; 9 MiB or so are unexplained. Owners are named with underscores.

    What is not free is other programs', unless their size is given.
    """
    others = USUAL["other programs"] + RESERVE - free
    sizes = {
        **USUAL,
        "other programs": others,
        **{owner.replace("_", " "): size for owner, size in owners.items()},
    }
    lines = tuple(LedgerLine(owner, size) for owner, size in sizes.items())
    return Ledger(CARD, free, RESERVE, lines, others_known=True)


def lent_ledger(free: int = RESERVE, *, head: bool, slots: int) -> Ledger:
    """The books while a prompt is read in the head's bytes, in lent slots, or in both."""
    taken = slots * EXPERT
    return ledger(
        free,
        head=0 if head else HEAD,
        experts=SLOTS * EXPERT - taken,
        prompt_buffers=taken + (HEAD if head else 0),
    )


def settings(
    alias: HeadAlias = HeadAlias.AUTO, *, following: HeadAlias | None = None, reserve: int = RESERVE
) -> CardSettings:
    """What is set."""
    return CardSettings(alias, following or alias, reserve, STEP, 41)


def reading(
    at: float, free: int | None, model: DriverModel = DriverModel.WDDM, grew: Growth | None = None
) -> MemoryReading:
    """What CUDA, NVML and DXGI say; DXGI's budget is what decides."""
    more = None if free is None else free + 6 * MIB
    own = CARD - 1_400 * MIB
    return MemoryReading(
        at,
        model,
        (
            CardFigure(Source.CUDA, CARD, more, why="" if more is not None else "the card is gone"),
            CardFigure(Source.NVML, CARD, None if more is None else more + 8 * MIB),
            CardFigure(Source.DXGI, CARD, budget=None if free is None else own + free, own=own),
        ),
        grew=grew,
    )


def sample(
    at: float,
    free: int | None = RESERVE,
    state: MemoryState = MemoryState.OK,
    *,
    model: DriverModel = DriverModel.WDDM,
    grew: Growth | None = None,
    books: Ledger | None = None,
    kept_for: float = 0.0,
    age: float = 0.0,
) -> VramSample:
    """A sample of free memory, the smallest headroom being `free`."""
    taken = reading(at, free, model, grew)
    deciding = taken.deciding
    status = MemoryStatus(
        state,
        RESERVE,
        taken,
        free,
        deciding.source if deciding else None,
        age,
        kept_for,
        grew,
    )
    return VramSample(status, books or ledger(free or 0))


def history(now: float, figures: Iterable[int | None]) -> tuple[Event, ...]:
    """One sample each half second, the last one half a second before `now`."""
    values = list(figures)
    first = now - len(values) / 2
    return tuple(sample(first + i / 2, free) for i, free in enumerate(values))


def cache(
    at: float,
    *,
    lent: int = 0,
    reserved: int = 0,
    window: tuple[int, int] = (0, 0),
    answer: tuple[int, int] = (0, 0),
    refilled: int = 0,
    link_bytes: int | None = 0,
    slots: int = SLOTS,
) -> CacheSample:
    """What the slots hold."""
    return CacheSample(
        at=at,
        slots=slots,
        holding=slots - lent - reserved,
        filling=0,
        empty=0,
        lent=lent,
        reserved=reserved,
        window_s=0.5,
        window_hits=window[0],
        window_misses=window[1],
        answer_hits=answer[0],
        answer_misses=answer[1],
        refilled=refilled,
        pinned=PINNED,
        pinned_bytes=PINNED * EXPERT,
        pageable=EXPERTS - PINNED,
        pageable_bytes=(EXPERTS - PINNED) * EXPERT,
        link_bytes=link_bytes,
    )


def memory_phase(
    state: VramState,
    at: float,
    *,
    layout: Layout | None = None,
    slots: int = 0,
    head: HeadPlace = HeadPlace.IN,
    return_s: float = 0.0,
    books: Ledger | None = None,
) -> VramPhase:
    """A phase of the memory."""
    out = head is not HeadPlace.IN
    return VramPhase(
        state=state,
        at=at,
        layout=layout,
        bytes_lent=slots * EXPERT + (HEAD if out else 0),
        slots_lent=slots,
        head=head,
        head_bytes=HEAD,
        return_s=return_s,
        arena_end=SLOTS * EXPERT,
        ledger=books or lent_ledger(head=out, slots=slots),
    )


def loaded(now: float) -> tuple[Event, ...]:
    """The model is ready; a minute of samples lies behind."""
    return (
        PhaseChanged(Phase.LOADING, now - 70),
        memory_phase(VramState.READY, now - 62),
        settings(),
        ModelLoaded(
            name="Qwen3.6 35B A3B IQ4_XS",
            architecture="qwen35moe",
            path="models/qwen3.6-35b-a3b-iq4_xs.gguf",
            device="cuda",
            file_bytes=18 * GIB,
            context=32_768,
            kv_bytes=640 * MIB,
            state_bytes=126 * MIB,
            load_s=5.2,
            template="model",
            thinks=True,
        ),
        PhaseChanged(Phase.READY, now - 60),
        PowerSample(on_battery=False, percent=97.0, throttled=()),
        cache(now - 0.5),
        *history(now, [RESERVE + (i % 7 == 0) * 2 * MIB for i in range(120)]),
    )


def prompt(
    now: float,
    request_id: int = 1,
    *,
    layout: Layout = Layout.ALIAS,
    chunk: int = 2_048,
    read: int = 8_192,
    slots: int = 0,
) -> tuple[Event, ...]:
    """Part of a prompt of 15,934 tokens is read, the chunk before last just ended."""
    head_out = layout is Layout.ALIAS
    began = now - 4.4
    out = HeadPlace.OUT if head_out else HeadPlace.IN
    other = "loan" if head_out else "alias"
    return (
        PhaseChanged(Phase.PROMPT, began),
        RequestStarted(request_id, 15_934, 412, ""),
        memory_phase(VramState.PROMPT, began + 0.01, layout=layout, slots=slots, head=out),
        PromptPlanned(
            request_id,
            "prompt",
            layout,
            chunk,
            slots,
            head_out,
            8.2,
            f"{layout} at chunk {chunk:,}: 8.20 s, bound by the link, "
            f"{f'{slots:,} slots' if slots else 'no slot'} lent; slower: {other} at chunk "
            "2,048: 8.31 s, decode windows: 124.52 s",
        ),
        cache(began + 0.02, lent=slots, link_bytes=None),
        *(
            PromptProgress(request_id, done, 412, 15_934, 0.5 * done / 1_024, chunk)
            for done in range(chunk, read + 1, chunk)
        ),
    )
