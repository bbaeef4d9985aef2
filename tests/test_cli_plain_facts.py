"""Guards against lines of a chat without a screen that leave out what the monitor would show."""

from stratadesk.cli.plain_facts import PlainFacts
from stratadesk.engine.card_events import CacheSample, DeviceLost, PowerSample
from stratadesk.engine.events import (
    DecodeProgress,
    Event,
    Phase,
    PromptPlanned,
    ReserveApplied,
    VramSample,
)
from stratadesk.engine.vram.ledger import Ledger, LedgerLine
from stratadesk.engine.vram.phase_table import HeadPlace, VramPhase, VramState
from stratadesk.engine.vram.plan_settings import Layout
from stratadesk.engine.vram.states import MemoryState, MemoryStatus
from stratadesk.units import MIB
from tests.tui import scripted_engine as script


def status(state: MemoryState, headroom: int) -> MemoryStatus:
    return MemoryStatus(state, 590 * MIB, headroom=headroom, age=0.0)


def memory(state: VramState, head: HeadPlace, lent: int, return_s: float = 0.0) -> VramPhase:
    ledger = Ledger(8151 * MIB, 590 * MIB, 590 * MIB, (LedgerLine("weights", 7561 * MIB),), True)
    return VramPhase(state, 0.0, Layout.ALIAS, 0, lent, head, 333 * MIB, return_s, 0, ledger)


def cache(hits: int, misses: int) -> CacheSample:
    return CacheSample(
        0.0, 2616, 2426, 0, 0, 190, 0, 0.5, 1, 1, hits, misses, 0, 1, 1, 1, 1, link_bytes=None
    )


def test_every_change_of_phase_tells_head_slots_and_free_memory() -> None:
    facts = PlainFacts()
    events: tuple[Event, ...] = (
        memory(VramState.READY, HeadPlace.IN, 0),
        VramSample(status(MemoryState.OK, 600 * MIB)),
        script.phase(Phase.PROMPT),
        script.started(1, prompt=8192, reused=0, note="message 2 was changed"),
        memory(VramState.PROMPT, HeadPlace.OUT, 190),
        PromptPlanned(1, "prompt", "alias", 2048, 190, head_out=True, seconds=4.0, why="quick"),
        script.reading(1, 4096, 8192),
        script.reading(1, 8192, 8192),
        memory(VramState.RETURNING, HeadPlace.RETURNING, 190),
        memory(VramState.DECODING, HeadPlace.IN, 0, 0.028),
        script.phase(Phase.DECODING),
        DecodeProgress(1, 5, 0, 0.1, 8197, 32768),
        cache(3, 1),
        script.finished(1, "x", tokens=54, context=8246),
    )
    free = "free 600 MiB, reserve 590 MiB"
    assert [line for event in events for line in facts.lines(event)] == [
        "[prompt] reading 8,192 tokens, 0 reused · message 2 was changed · alias, chunk 2,048"
        f" · head out (333 MiB) · 190 slots lent · {free}",
        f"[returning] head returning · 190 slots lent · {free}",
        "[decoding] prompt read at 1,000.0 tok/s · head in, last back in 28.0 ms"
        f" · 0 slots lent · {free}",
        "[ready] 54 tokens at 20.0 tok/s · context 8,246 of 32,768 · expert hits 75%"
        f" · head in, last back in 28.0 ms · 0 of 2,616 slots lent · {free}",
    ]


def test_alarms_power_and_loss_are_told_when_they_change() -> None:
    facts = PlainFacts()
    low, ok = status(MemoryState.LOW, 100 * MIB), status(MemoryState.OK, 700 * MIB)
    events = (
        VramSample(low),
        VramSample(low),
        VramSample(ok),
        ReserveApplied(1536 * MIB, 1210 * MIB, 2456, done=True, limitation="prompt floor"),
        PowerSample(on_battery=True, percent=54.0, throttled=None),
        PowerSample(on_battery=True, percent=53.0, throttled=None),
        PowerSample(on_battery=False, percent=53.0, throttled=None),
        DeviceLost(0.0, "The driver was reset."),
    )
    told = [line for event in events for line in facts.lines(event)]
    assert told[0].startswith("[memory LOW] Video memory is below the reserve: 100 MiB free")
    assert told[1:] == [
        "[memory ok] free 700 MiB",
        "[reserve] asked 1,536 MiB, got 1,210 MiB: prompt floor · 2,456 slots",
        "[power] on battery, 54 %",
        "[power] on mains, full speed",
        "[card lost] The driver was reset.",
    ]
