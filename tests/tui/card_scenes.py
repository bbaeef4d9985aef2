"""The states that the monitor must make plain, each as the events that lead to it."""

from collections.abc import Callable

from stratadesk.engine.card_events import DeviceLost
from stratadesk.engine.events import DecodeProgress, Event, MemorySample, Phase, PhaseChanged
from stratadesk.engine.vram.phase_table import HeadPlace, VramState
from stratadesk.engine.vram.plan_settings import Layout
from stratadesk.engine.vram.readings import Growth
from stratadesk.engine.vram.states import MemoryState
from stratadesk.units import GIB, MIB
from tests.tui import card_script as card
from tests.tui import scripted_engine as script

BROWSER = Growth("chrome.exe", 4242, 412 * MIB)
LENT = 190

Scene = Callable[[float], tuple[Event, ...]]
"""Returns the events up to a state that holds at the time given, in seconds."""


def ready(now: float) -> tuple[Event, ...]:
    """A model is loaded, nothing runs."""
    return (*card.loaded(now), MemorySample(19 * GIB, 7 * GIB, 32 * GIB))


def head_out(now: float) -> tuple[Event, ...]:
    """A prompt is read in the head's bytes."""
    return (*ready(now), *card.prompt(now))


def loan(now: float) -> tuple[Event, ...]:
    """A prompt is read in lent slots."""
    return (*ready(now), *card.prompt(now, layout=Layout.LOAN, slots=LENT))


def returning(now: float) -> tuple[Event, ...]:
    """The head is being read back."""
    return (
        *head_out(now),
        card.memory_phase(
            VramState.RETURNING, now - 0.02, layout=Layout.ALIAS, head=HeadPlace.RETURNING
        ),
    )


def decoding(now: float) -> tuple[Event, ...]:
    """An answer is being written, after a loan that has been refilled."""
    return (
        *loan(now),
        card.memory_phase(VramState.RETURNING, now - 1.1, layout=Layout.LOAN, slots=LENT),
        card.memory_phase(VramState.DECODING, now - 1.09),
        card.cache(now - 1.08, reserved=LENT, link_bytes=None),
        PhaseChanged(Phase.DECODING, now - 1.08),
        card.cache(
            now - 0.6, window=(260, 60), answer=(260, 60), refilled=LENT, link_bytes=600 * MIB
        ),
        card.cache(
            now - 0.1, window=(270, 50), answer=(530, 110), refilled=LENT, link_bytes=550 * MIB
        ),
        DecodeProgress(1, 23, 8, 1.05, 16_369, 32_768),
    )


def low(now: float) -> tuple[Event, ...]:
    """Less is free than the reserve."""
    return (*ready(now), card.sample(now - 0.2, 412 * MIB, MemoryState.LOW, grew=BROWSER))


def zero(now: float) -> tuple[Event, ...]:
    """Nothing is free under WDDM, while a prompt is read."""
    books = card.lent_ledger(0, head=False, slots=LENT)
    return (
        *loan(now),
        card.sample(now - 0.9, 412 * MIB, MemoryState.LOW),
        card.sample(now - 0.45, 0, MemoryState.LOW, grew=BROWSER, books=books),
        card.sample(now - 0.2, 0, MemoryState.ZERO, grew=BROWSER, books=books),
    )


def gpu_lost(now: float) -> tuple[Event, ...]:
    """The card has stopped answering while a prompt was read."""
    why = "The card stopped answering: CUDA error 719, unspecified launch failure."
    return (*head_out(now), DeviceLost(now - 0.1, why))


def no_gpu(now: float) -> tuple[Event, ...]:
    """A model computes on the CPU, without a card."""
    del now
    return tuple(
        event if not isinstance(event, PhaseChanged) else PhaseChanged(event.phase, 0.0)
        for event in script.loaded(name="Qwen3 30B A3B Q4_K_M")
    )


SCENES: dict[str, Scene] = {
    "ready": ready,
    "head-out": head_out,
    "loan": loan,
    "returning": returning,
    "decoding": decoding,
    "low": low,
    "zero-wddm": zero,
    "gpu-lost": gpu_lost,
    "no-gpu": no_gpu,
}
