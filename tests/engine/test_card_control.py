"""Guards against a reserve that is a wish: it must be really free, whoever else grows."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from stratadesk.engine.card_control import CardControl
from stratadesk.engine.card_events import CardSettings
from stratadesk.engine.commands import (
    EngineSettings,
    Generate,
    LoadModel,
    SamplingSettings,
    SetHeadAlias,
    SetReserve,
)
from stratadesk.engine.events import (
    Failure,
    ModelLoaded,
    PromptPlanned,
    RequestFinished,
    ReserveApplied,
    VramSample,
)
from stratadesk.engine.loading import load_model
from stratadesk.engine.loop import Engine
from stratadesk.engine.model import LoadedModel
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.phase_table import VramPhase, VramState
from stratadesk.engine.vram.plan_settings import HeadAlias, PlanSettings
from stratadesk.engine.vram.states import MemoryState
from stratadesk.units import MIB

T = TypeVar("T")

BLOCK = 64 * 1024
# The first model loaded on a machine compiles kernels, which takes a busy one minutes.
PATIENCE_S = 240.0
MODEL = "qwen3moe-iq4_xs.gguf"


def settings(*, card: int = 3 * MIB, reserve: int = MIB) -> EngineSettings:
    """A small card; the model's experts nearly fill it."""
    return EngineSettings(
        max_context=512,
        plan=PlanSettings(reserve=reserve, block_bytes=BLOCK),
        machine=MachineFacts(card=card, desktop=0, context=0),
        poison=True,
    )


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    made.start()
    yield made
    assert made.stop() is not False


def until(engine: Engine, kind: type[T]) -> tuple[list[object], T]:
    """All events up to the first of `kind`, and that one."""
    seen: list[object] = []
    while True:
        event = engine.events.get(PATIENCE_S)
        assert event is not None, f"no {kind.__name__} among {seen}"
        seen.append(event)
        if isinstance(event, kind):
            return seen, event


def answer(engine: Engine, request_id: int) -> RequestFinished:
    prompt = tuple(range(5, 205))
    sampling = SamplingSettings(temperature=0)
    engine.send(Generate(request_id, tokens=prompt, sampling=sampling, max_tokens=12))
    return until(engine, RequestFinished)[1]


def load(engine: Engine, data_dir: Path, wanted: EngineSettings) -> LoadedModel:
    engine.send(LoadModel(data_dir / "models" / MODEL, wanted))
    until(engine, ModelLoaded)
    assert engine._runtime is not None
    model: LoadedModel = engine._runtime.model  # type: ignore[assignment]
    return model


def test_raising_the_reserve_gives_slots_back_and_the_answer_goes_on(
    engine: Engine, data_dir: Path
) -> None:
    model = load(engine, data_dir, settings())
    alone = answer(engine, 1)
    slots = model.memory.cache.slots
    engine.send(SetReserve(MIB + 256 * 1024))
    engine.send(Generate(2, tokens=(*range(5, 205), 7), sampling=SamplingSettings(0.0)))
    applied = until(engine, ReserveApplied)[1]
    assert applied.done
    assert applied.slots < slots
    assert model.memory.card.free >= applied.reserve == MIB + 256 * 1024
    until(engine, RequestFinished)
    assert answer(engine, 3).tokens == alone.tokens


def test_lowering_the_reserve_brings_slots(engine: Engine, data_dir: Path) -> None:
    model = load(engine, data_dir, settings(reserve=MIB + 256 * 1024))
    slots = model.memory.cache.slots
    engine.send(SetReserve(MIB))
    applied = until(engine, ReserveApplied)[1]
    assert applied.slots > slots
    assert model.memory.card.free >= MIB


def test_a_reserve_that_cannot_be_reached_is_told_as_such(engine: Engine, data_dir: Path) -> None:
    load(engine, data_dir, settings())
    engine.send(SetReserve(3 * MIB))
    applied = until(engine, ReserveApplied)[1]
    assert applied.free < applied.reserve == 3 * MIB
    assert applied.limitation


def test_a_reserve_that_cannot_be_reached_is_no_lasting_alarm_and_nobody_elses_doing(
    engine: Engine, data_dir: Path
) -> None:
    """Kept is what can be: no banner stays, and no other program is blamed for the rest."""
    model = load(engine, data_dir, settings())
    engine.send(SetReserve(3 * MIB))
    applied = until(engine, ReserveApplied)[1]
    told = until(engine, CardSettings)[1]
    assert MIB < told.reserve == told.most == model.memory.machine.reserve <= applied.free
    assert applied.free - told.reserve < BLOCK
    seen: list[object] = []
    while sum(isinstance(event, VramSample) for event in seen) < 4:
        event = engine.events.get(PATIENCE_S)
        assert event is not None
        seen.append(event)
    assert not [event for event in seen if isinstance(event, ReserveApplied)]
    last = [event for event in seen if isinstance(event, VramSample)][-1]
    assert last.status.reserve_kept
    assert last.status.reserve == told.reserve
    model.memory.card.others += BLOCK
    assert "other programs" in until(engine, ReserveApplied)[1].reason


def test_while_a_raised_reserve_waits_other_programs_are_not_blamed(data_dir: Path) -> None:
    """Less is free than the reserve until the prompt is read: the user's wish, nobody's growth."""
    plan = PlanSettings(reserve=MIB, block_bytes=BLOCK, short_read=8)
    wanted = replace(settings(), plan=plan)
    model = load_model(data_dir / "models" / MODEL, wanted, lambda _: None)
    told: list[object] = []
    now = [1_000.0]
    watched = CardControl(model, told.append, clock=lambda: now[0])
    watched.attend()
    model.begin_request(200)
    watched.set_reserve(MIB + 256 * 1024)
    (waits,) = [event for event in told if isinstance(event, ReserveApplied)]
    assert not waits.done
    for _ in range(3):
        now[0] += 1
        watched.attend()
    samples = [event for event in told if isinstance(event, VramSample)]
    assert samples[-1].status.state is MemoryState.LOW
    assert [event for event in told if isinstance(event, ReserveApplied)] == [waits]
    model.memory.card.others += 512 * 1024
    now[0] += 1
    watched.attend()
    assert [event.reason for event in told if isinstance(event, ReserveApplied)][-1]
    watched.close()
    model.close()


def test_growth_is_told_only_where_it_brings_a_slot(data_dir: Path) -> None:
    """A block far smaller than a slot: the first of them bring none."""
    block = 4_096
    wanted = replace(settings(), plan=PlanSettings(reserve=MIB, block_bytes=block))
    model = load_model(data_dir / "models" / MODEL, wanted, lambda _: None)
    told: list[object] = []
    now = [1_000.0]
    watched = CardControl(model, told.append, clock=lambda: now[0])

    def seconds(count: int) -> list[ReserveApplied]:
        for _ in range(count):
            now[0] += 1
            watched.attend()
        return [event for event in told if isinstance(event, ReserveApplied)]

    seconds(40)
    told.clear()
    geometry, end = model.memory.arena.geometry, model.memory.arena.end
    slots, more = model.memory.cache.slots, end
    while geometry.slots_within(more + block) == slots:
        more += block
    model.memory.card.total += more - end
    assert more > end
    assert seconds(40) == []
    assert model.memory.arena.end == more
    model.memory.card.total += block
    (applied,) = seconds(40)
    assert applied.slots > slots
    watched.close()
    model.close()


def test_a_card_that_stays_low_with_nothing_to_give_back_changes_no_phase(data_dir: Path) -> None:
    """A figure that flickers through RESIZING twice a second says that something is being done."""
    told: list[object] = []
    model = load_model(data_dir / "models" / MODEL, settings(), lambda _: None, told.append)
    machine, now = model.memory.machine, [1_000.0]
    watched = CardControl(model, told.append, clock=lambda: now[0])

    def samples(count: int) -> list[VramState]:
        known = len(told)
        for _ in range(count):
            now[0] += 1
            watched.attend()
        return [event.state for event in told[known:] if isinstance(event, VramPhase)]

    model.memory.card.others += model.memory.card.free + model.memory.arena.end
    assert samples(1) == [VramState.RESIZING, VramState.READY]
    end = model.memory.arena.end
    assert samples(5) == []
    last = [event for event in told if isinstance(event, VramSample)][-1]
    assert last.status.state is MemoryState.ZERO
    (applied,) = [event for event in told if isinstance(event, ReserveApplied)]
    assert applied.limitation
    model.begin_request(0)
    assert samples(3) == []
    assert machine.arena.end == end
    model.end_request()
    model.memory.card.others = 0
    assert VramState.RESIZING in samples(40)
    assert machine.arena.end > end
    watched.close()
    model.close()


def test_lowering_a_reserve_that_others_took_is_kept_as_asked(
    engine: Engine, data_dir: Path
) -> None:
    model = load(engine, data_dir, settings())
    model.memory.card.others += model.memory.card.free
    until(engine, ReserveApplied)
    engine.send(SetReserve(MIB - BLOCK))
    assert until(engine, ReserveApplied)[1].reserve == MIB - BLOCK
    assert model.memory.machine.reserve == MIB - BLOCK


def test_what_other_programs_took_while_loading_is_made_good(
    engine: Engine, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stratadesk.engine import loading

    build = loading._build

    def while_others_grow(*arguments: object) -> LoadedModel:
        model = build(*arguments)  # type: ignore[arg-type]
        model.memory.card.others += 300 * 1024
        return model

    monkeypatch.setattr(loading, "_build", while_others_grow)
    model = load(engine, data_dir, settings())
    assert model.memory.card.others > 0
    assert model.memory.card.free >= MIB


def test_pressure_by_other_programs_is_answered_at_once(engine: Engine, data_dir: Path) -> None:
    model = load(engine, data_dir, settings())
    slots = model.memory.cache.slots
    model.memory.card.others += 300 * 1024
    seen, applied = until(engine, ReserveApplied)
    states = [event.status.state for event in seen if isinstance(event, VramSample)]
    assert states[-1] is MemoryState.LOW
    assert applied.reason
    assert applied.slots < slots
    assert model.memory.card.free >= MIB
    resizes = [event for event in seen if isinstance(event, VramPhase) and event.resize]
    assert resizes[-1].state is VramState.READY


def test_the_alias_changes_from_the_next_prompt_on(engine: Engine, data_dir: Path) -> None:
    load(engine, data_dir, settings())
    engine.send(SetHeadAlias(HeadAlias.ON))
    with_alias = answer(engine, 1)
    engine.send(SetHeadAlias(HeadAlias.OFF))
    engine.send(Generate(2, tokens=(9, *range(5, 205)), sampling=SamplingSettings(0.0)))
    assert not until(engine, PromptPlanned)[1].head_out
    until(engine, RequestFinished)
    assert answer(engine, 3).tokens == with_alias.tokens


def test_without_a_card_the_wish_is_refused_in_words(engine: Engine, data_dir: Path) -> None:
    load(engine, data_dir, EngineSettings(max_context=512))
    engine.send(SetReserve(MIB))
    assert "no card" in until(engine, Failure)[1].sentence


def test_a_reserve_after_a_lost_head_is_refused_and_the_engine_lives(
    engine: Engine, data_dir: Path
) -> None:
    model = load(engine, data_dir, settings())
    model.memory.machine.fail("the head is lost")
    model.memory.card.others += 300 * 1024
    engine.send(SetReserve(MIB + 256 * 1024))
    assert "the head is lost" in until(engine, Failure)[1].sentence
    until(engine, VramSample)
    engine.send(LoadModel(data_dir / "models" / MODEL, settings()))
    until(engine, ModelLoaded)
