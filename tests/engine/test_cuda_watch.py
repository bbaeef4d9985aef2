"""Guards against a monitor that is blind to a real card, or whose books do not add up.

The card is dry: addresses are given out, nothing is launched.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stratadesk.engine.card_events import CacheSample, CardSettings, ReservePreviewed
from stratadesk.engine.commands import Device, EngineSettings
from stratadesk.engine.cuda_loading import MOST_CONTEXT
from stratadesk.engine.cuda_watch import CudaWatch
from stratadesk.engine.events import ReserveApplied, VramSample
from stratadesk.engine.forecast import forecast
from stratadesk.engine.vram.driver_model import DriverModel
from stratadesk.engine.vram.ledger import Ledger
from stratadesk.engine.vram.phase_table import HeadPlace, VramPhase
from stratadesk.engine.vram.plan_settings import HeadAlias, PlanSettings
from stratadesk.engine.vram.probe import Probe
from stratadesk.engine.vram.readings import (
    CardFigure,
    MemoryReading,
    ProgramList,
    ProgramUse,
    Source,
)
from stratadesk.engine.vram.states import MemoryState
from stratadesk.errors import DeviceLostError, UsageError
from stratadesk.kernels.cuda import device
from stratadesk.kernels.cuda.loss import LOSS
from stratadesk.units import MIB
from tests.conftest import DATA_DIR
from tests.engine.test_cuda_loading import contents, dry_card
from tests.tiny_models import tiny_model

__all__ = ["dry_card"]

TIED, UNTIED = (
    next((DATA_DIR / "models").glob(pattern)) for pattern in ("qwen3-tied*", "qwen35moe*")
)
OWN, OTHERS = 900 * MIB, 400 * MIB


class Card:
    """What the sources of a card say."""

    def __init__(self, *, windows: bool = False) -> None:
        self.free: int | None = 6_000 * MIB
        self.windows = windows
        self.programs: ProgramList | None = ProgramList(
            Source.NVML, (ProgramUse(1, "game", OTHERS), ProgramUse(2, "desktop", 0))
        )

    def read(self, at: float, *, urgent: bool = False) -> MemoryReading:
        """The card now."""
        figure = CardFigure(Source.CUDA, total=8_192 * MIB, free=self.free, why="it is gone")
        model = DriverModel.WDDM if self.windows else DriverModel.UNKNOWN
        own = None if self.windows else OWN
        return MemoryReading(at, model, (figure,), self.programs, own_dedicated=own)

    def close(self) -> None:
        """Nothing to let go of."""


def watched(path: Path, card: Card, now: list[float], **settings: Any) -> tuple[Any, list[Any]]:
    told: list[Any] = []
    model: Any = SimpleNamespace(contents=contents(path, **settings))

    def clock() -> float:
        return now[0]

    probe = Probe(card, model.contents.reserve, clock=clock)
    watch = CudaWatch(model, told.append, probe=probe, clock=clock)
    watch.after_loading()
    return watch, told


def last_ledger(told: list[Any]) -> Ledger:
    ledger = next(event for event in reversed(told) if isinstance(event, VramSample)).ledger
    assert isinstance(ledger, Ledger)
    return ledger


def test_every_byte_of_the_card_is_somebodys() -> None:
    watch, told = watched(UNTIED, Card(), [0.0])
    phase = next(event for event in told if isinstance(event, VramPhase))
    ledger = last_ledger(told)
    ledger.check(limit=8_192 * MIB)
    arena = watch._contents.arena.end
    ours = ("weights", "KV and state", "scratch", "head", "experts", "padding")
    assert sum(map(ledger.of, ours)) == arena
    assert all(ledger.of(owner) > 0 for owner in ours)
    assert ledger.of("graphs and context") == OWN - arena
    assert ledger.of("other programs") == OTHERS
    assert ledger.unexplained == (8_192 - 6_000) * MIB - OWN - OTHERS
    assert (phase.head, phase.head_bytes) == (HeadPlace.IN, ledger.of("head"))


def test_all_experts_are_told_to_be_there_once() -> None:
    watch, told = watched(UNTIED, Card(), [0.0])
    samples = [event for event in told if isinstance(event, CacheSample)]
    header = watch._contents.gguf
    experts = header.get_int(f"{header.architecture}.expert_count")
    assert [sample.slots for sample in samples] == [samples[0].holding]
    assert samples[0].slots % experts == 0
    assert samples[0].slots >= experts
    assert samples[0].answer_rate is None


def test_a_head_that_is_the_embedding_is_no_line_of_its_own() -> None:
    _, told = watched(TIED, Card(), [0.0])
    assert last_ledger(told).of("head") == 0


def test_samples_come_when_they_are_due_and_say_how_short_memory_is() -> None:
    now, card = [0.0], Card()
    watch, told = watched(UNTIED, card, now, plan=PlanSettings(reserve=590 * MIB))
    count = len(told)
    watch.attend()
    assert len(told) == count
    card.free = 0
    for _ in range(8):
        now[0] += watch.seconds_left() or 0.0
        watch.attend()
    assert told[-1].status.state is MemoryState.ZERO
    assert told[-1].status.reserve == 590 * MIB
    assert last_ledger(told).free == 0


def test_a_sample_that_finds_the_card_lost_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, _ = watched(UNTIED, Card(), [0.0])
    watch.attend()
    monkeypatch.setattr(LOSS, "why", "stopped answering while reading its free memory")
    with pytest.raises(DeviceLostError, match="lost to this process: it stopped answering"):
        watch.attend()


def test_programs_that_are_not_told_each_time_are_remembered() -> None:
    now, card = [0.0], Card()
    watch, told = watched(UNTIED, card, now)
    card.programs = None
    now[0] += 10.0
    watch.attend()
    assert last_ledger(told).of("other programs") == OTHERS


def test_a_card_whose_driver_names_no_figures_leaves_the_rest_unexplained() -> None:
    card = Card(windows=True)
    card.programs = ProgramList(Source.NVML, (ProgramUse(1, "game", None),))
    watch, told = watched(UNTIED, card, [0.0])
    ledger = last_ledger(told)
    arena = watch._contents.arena.end
    owners = {line.owner for line in ledger.lines}
    assert owners.isdisjoint(("graphs and context", "other programs"))
    assert ledger.unexplained == (8_192 - 6_000) * MIB - arena


def test_a_card_that_tells_nothing_has_no_books() -> None:
    card = Card()
    card.free = None
    _, told = watched(UNTIED, card, [0.0])
    assert not [event for event in told if isinstance(event, VramPhase)]
    assert [event.ledger for event in told if isinstance(event, VramSample)] == [None]


def test_a_reserve_is_what_is_warned_by_and_no_more_than_is_free() -> None:
    now, card = [0.0], Card()
    watch, told = watched(UNTIED, card, now, plan=PlanSettings(reserve=590 * MIB))
    assert settings_of(told).reserve == 590 * MIB
    assert settings_of(told).most == 6_000 * MIB
    watch.preview_reserve(7_000 * MIB)
    preview = told[-1]
    assert preview == ReservePreviewed(
        before=590 * MIB,
        reserve=7_000 * MIB,
        slots_before=preview.slots,
        slots=preview.slots,
        free=6_000 * MIB,
        waits=False,
        limitation="all of the model stays on the card",
    )
    watch.set_reserve(7_000 * MIB)
    applied = [event for event in told if isinstance(event, ReserveApplied)][-1]
    assert (applied.reserve, applied.free) == (7_000 * MIB, 6_000 * MIB)
    assert applied.limitation == "all of the model stays on the card"
    assert settings_of(told).reserve == 6_000 * MIB
    watch.set_reserve(100 * MIB)
    applied = [event for event in told if isinstance(event, ReserveApplied)][-1]
    assert (applied.reserve, applied.limitation) == (100 * MIB, "")
    now[0] += 10.0
    watch.attend()
    assert last_ledger(told).reserve == 100 * MIB


def settings_of(told: list[Any]) -> CardSettings:
    settings: CardSettings = [event for event in told if isinstance(event, CardSettings)][-1]
    return settings


def test_the_same_settings_are_told_once() -> None:
    now = [0.0]
    watch, told = watched(UNTIED, Card(), now)
    for _ in range(3):
        now[0] += 10.0
        watch.attend()
    assert len([event for event in told if isinstance(event, CardSettings)]) == 1


def test_prompts_borrow_nothing_yet() -> None:
    watch, told = watched(UNTIED, Card(), [0.0])
    assert settings_of(told).alias is HeadAlias.OFF
    with pytest.raises(UsageError, match="cannot borrow the head's memory on a card yet"):
        watch.set_alias(HeadAlias.ON)


def test_a_forecast_for_a_card_has_all_experts_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "driver_version", lambda: 12_040)
    header = contents(UNTIED).gguf
    told = forecast(UNTIED, EngineSettings(device=Device.CUDA))
    assert told.trouble == ""
    assert told.context == min(header.get_int("qwen35moe.context_length"), MOST_CONTEXT)
    assert told.slots == contents(UNTIED).experts
    assert told.card_bytes == contents(UNTIED).layout.mapped
    assert forecast(UNTIED, EngineSettings(device=Device.HOST)).card_bytes == 0
    assert forecast(UNTIED, EngineSettings(device=Device.CUDA, max_context=64)).context == 64


def test_a_forecast_for_a_card_says_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(driverGetVersion=lambda: 0)
    monkeypatch.setattr("cupy.cuda.runtime", runtime)
    told = forecast(UNTIED, EngineSettings(device=Device.CUDA))
    assert told.trouble == "There is no NVIDIA driver on this machine."


def test_a_forecast_for_a_card_says_what_it_does_not_compute(tmp_path: Path) -> None:
    path = tmp_path / "another.gguf"
    path.write_bytes(tiny_model("olmoe").build())
    told = forecast(path, EngineSettings(device=Device.CUDA))
    assert "olmoe is not computed on a graphics card yet" in told.trouble
