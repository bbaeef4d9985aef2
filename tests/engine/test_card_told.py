"""Guards against a monitor that is told less, or other, than the engine does.

A real model answers on a small simulated card; what is told of slots, settings and previews is
compared with the cache and the arena themselves.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from stratadesk.engine.card_events import (
    CacheSample,
    CardSettings,
    PowerSample,
    ReservePreviewed,
)
from stratadesk.engine.commands import (
    EngineSettings,
    Generate,
    LoadModel,
    PreviewReserve,
    SamplingSettings,
    SetHeadAlias,
    SetReserve,
)
from stratadesk.engine.events import (
    Failure,
    ModelLoaded,
    RequestFinished,
    ReserveApplied,
    VramSample,
)
from stratadesk.engine.forecast import forecast
from stratadesk.engine.loop import Engine
from stratadesk.engine.model import LoadedModel
from stratadesk.engine.power_probe import INTERVAL_S, PowerProbe
from stratadesk.engine.vram.cache_report import CacheReporter
from stratadesk.engine.vram.expert_cache import ExpertCache
from stratadesk.engine.vram.geometry import ArenaGeometry
from stratadesk.engine.vram.host_memory import HostMemory
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.phase_table import VramState
from stratadesk.engine.vram.plan_settings import HeadAlias, PlanSettings
from stratadesk.units import KIB, MIB

T = TypeVar("T")

BLOCK = 64 * KIB
MODEL = "qwen3moe-iq4_xs.gguf"
PATIENCE_S = 60.0


def settings(card: int = 3 * MIB) -> EngineSettings:
    return EngineSettings(
        max_context=512,
        plan=PlanSettings(reserve=MIB, block_bytes=BLOCK, short_read=8),
        machine=MachineFacts(card=card, desktop=0, context=0),
    )


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    made.start()
    yield made
    made.stop()


def until(engine: Engine, kind: type[T]) -> tuple[list[object], T]:
    seen: list[object] = []
    while True:
        event = engine.events.get(PATIENCE_S)
        assert event is not None, f"no {kind.__name__} among {seen}"
        seen.append(event)
        if isinstance(event, kind):
            return seen, event


def load(engine: Engine, data_dir: Path) -> tuple[LoadedModel, list[object]]:
    engine.send(LoadModel(data_dir / "models" / MODEL, settings()))
    seen, _ = until(engine, ModelLoaded)
    assert engine._runtime is not None
    model: LoadedModel = engine._runtime.model  # type: ignore[assignment]
    return model, seen


def answer(engine: Engine, request_id: int = 1) -> list[object]:
    prompt = tuple(range(5, 205))
    greedy = SamplingSettings(temperature=0)
    engine.send(Generate(request_id, tokens=prompt, sampling=greedy, max_tokens=12))
    return until(engine, RequestFinished)[0]


def of(events: list[object], kind: type[T]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]


def test_all_is_known_before_the_model_counts_as_loaded(engine: Engine, data_dir: Path) -> None:
    model, seen = load(engine, data_dir)
    (told,) = of(seen, CardSettings)
    assert told.alias is HeadAlias.AUTO
    assert (told.reserve, told.step) == (MIB, BLOCK)
    assert of(seen, CacheSample)[-1].slots == model.memory.cache.slots
    (sample,) = of(seen, VramSample)
    assert sample.ledger is not None
    assert sample.ledger.free == model.memory.card.free


def test_slots_add_up_in_every_phase_and_the_loan_is_seen(engine: Engine, data_dir: Path) -> None:
    load(engine, data_dir)
    samples = of(answer(engine), CacheSample)
    for told in samples:
        parts = (told.holding, told.filling, told.empty, told.lent, told.reserved)
        assert sum(parts) == told.slots
    assert any(told.lent for told in samples)
    assert all(told.link_bytes is None for told in samples if told.lent)


def test_hits_of_the_answer_are_the_caches_own(engine: Engine, data_dir: Path) -> None:
    model, _ = load(engine, data_dir)
    answer(engine)
    told = until(engine, CacheSample)[1]
    counters = model.memory.cache.counters
    assert (told.answer_hits, told.answer_misses) == (counters.hits, counters.misses)
    assert told.answer_hits > 0
    before = counters
    answer(engine, 2)
    again = until(engine, CacheSample)[1]
    grown = model.memory.cache.counters - before
    assert (again.answer_hits, again.answer_misses) == (grown.hits, grown.misses)


def test_experts_on_the_host_are_counted_by_tier(engine: Engine, data_dir: Path) -> None:
    model, seen = load(engine, data_dir)
    told = of(seen, CacheSample)[-1]
    layers = model.memory.plan.shape.experts(mtp=False)
    assert told.pinned + told.pageable == sum(layer.experts for layer in layers)
    assert told.pinned_bytes + told.pageable_bytes == model.memory.plan.host.experts


@pytest.mark.parametrize("reserve", [MIB // 2, MIB + 300 * KIB, 3 * MIB])
def test_a_preview_changes_nothing_and_is_what_is_reached(
    engine: Engine, data_dir: Path, reserve: int
) -> None:
    model, _ = load(engine, data_dir)
    slots, free = model.memory.cache.slots, model.memory.card.free
    engine.send(PreviewReserve(reserve))
    preview = until(engine, ReservePreviewed)[1]
    assert (model.memory.cache.slots, model.memory.card.free) == (slots, free)
    assert (preview.before, preview.slots_before) == (MIB, slots)
    engine.send(SetReserve(reserve))
    applied = until(engine, ReserveApplied)[1]
    assert (applied.slots, applied.free) == (preview.slots, preview.free)
    assert bool(applied.limitation) is bool(preview.limitation)
    told = until(engine, CardSettings)[1]
    assert told.most is not None
    assert told.reserve == min(reserve, told.most)


def test_the_alias_is_told_when_it_is_set(engine: Engine, data_dir: Path) -> None:
    load(engine, data_dir)
    engine.send(SetHeadAlias(HeadAlias.OFF))
    told = until(engine, CardSettings)[1]
    assert told.alias is told.alias_next is HeadAlias.OFF
    assert not told.alias_waits


def test_without_a_card_a_preview_is_refused_in_words(engine: Engine, data_dir: Path) -> None:
    engine.send(LoadModel(data_dir / "models" / MODEL, EngineSettings(max_context=512)))
    until(engine, ModelLoaded)
    engine.send(PreviewReserve(MIB))
    assert "no card" in until(engine, Failure)[1].sentence


def test_pressure_that_cannot_be_answered_is_told_once(engine: Engine, data_dir: Path) -> None:
    model, _ = load(engine, data_dir)
    model.memory.card.others += model.memory.card.free
    applied = until(engine, ReserveApplied)[1]
    assert applied.reason
    seen: list[object] = []
    while len(of(seen, VramSample)) < 6:
        event = engine.events.get(PATIENCE_S)
        assert event is not None
        seen.append(event)
    assert len(of(seen, ReserveApplied)) <= 1


def test_an_arena_that_cannot_grow_is_left_alone(
    engine: Engine, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stratadesk.engine.vram import capacity_rule

    monkeypatch.setattr(capacity_rule, "GROW_AFTER_S", 0.0)
    monkeypatch.setattr(capacity_rule, "COOLDOWN_S", 0.0)
    engine.send(LoadModel(data_dir / "models" / MODEL, settings(card=16 * MIB)))
    until(engine, ModelLoaded)
    seen = answer(engine)
    seen += until(engine, VramSample)[0] + until(engine, VramSample)[0]
    assert of(seen, ReserveApplied) == []


def make_reporter() -> tuple[CacheReporter, ExpertCache, list[VramState], list[float]]:
    geometry = ArenaGeometry(0, 0, [256, 256])
    cache = ExpertCache(geometry, 8, 2, 8)
    state, now = [VramState.READY], [100.0]
    tiers = HostMemory(0, 0, 4096, 0, 2, 0, 0)
    reporter = CacheReporter(cache, 16, tiers, lambda: state[0], lambda: now[0])
    return reporter, cache, state, now


def test_a_sample_comes_twice_a_second_and_when_the_phase_changes() -> None:
    reporter, _, state, now = make_reporter()
    assert reporter.take_if_due() is not None
    assert reporter.take_if_due() is None
    now[0] += 0.4
    assert reporter.take_if_due() is None
    state[0] = VramState.PROMPT
    assert reporter.take_if_due() is not None
    now[0] += 0.5
    assert reporter.take_if_due() is not None


def test_the_first_counts_of_an_answer_are_told_at_once() -> None:
    """An answer of a third of a second would otherwise be written without any figure."""
    reporter, cache, state, now = make_reporter()
    reporter.take_if_due()
    state[0] = VramState.PROMPT
    reporter.take_if_due()
    state[0] = VramState.DECODING
    told = reporter.take_if_due()
    assert told is not None
    assert told.answer_rate is None
    now[0] += 0.02
    assert reporter.take_if_due() is None
    cache.begin_step()
    cache.resolve(0, [1, 2])
    first = reporter.take_if_due()
    assert first is not None
    assert (first.answer_hits, first.answer_misses) == (0, 2)
    assert first.window_rate == first.answer_rate == 0.0
    cache.begin_step()
    cache.resolve(0, [1, 2])
    assert reporter.take_if_due() is None


def test_the_window_counts_from_the_sample_before() -> None:
    reporter, cache, state, now = make_reporter()
    reporter.take_if_due()
    state[0] = VramState.DECODING
    reporter.take_if_due()
    cache.begin_step()
    for place in cache.resolve(0, [1, 2]):
        cache.filled(place)
    cache.begin_step()
    cache.resolve(0, [1, 3])
    now[0] += 0.5
    told = reporter.take_if_due()
    assert told is not None
    assert (told.window_hits, told.window_misses) == (1, 3)
    assert told.window_rate == 0.25
    assert told.link_bytes == 2 * 256
    assert told.link_rate == 1024.0
    assert (told.pinned, told.pageable) == (0, 16)
    now[0] += 0.5
    quiet = reporter.take_if_due()
    assert quiet is not None
    assert quiet.window_rate is None
    assert quiet.answer_rate == 0.25


def test_power_is_told_when_it_changes_and_unknown_is_not_mains() -> None:
    now = [0.0]
    readings = iter(
        [
            PowerSample(None, None, None),
            PowerSample(None, None, None),
            PowerSample(on_battery=True, percent=80.0, throttled=None),
        ]
    )
    probe = PowerProbe(lambda: next(readings), lambda: now[0])
    first = probe.take_if_news()
    assert first == PowerSample(None, None, None)
    assert probe.take_if_news() is None
    now[0] += INTERVAL_S
    assert probe.take_if_news() is None
    now[0] += INTERVAL_S
    changed = probe.take_if_news()
    assert changed is not None
    assert changed.on_battery is True


def test_a_forecast_is_what_loading_gives(engine: Engine, data_dir: Path) -> None:
    model, _ = load(engine, data_dir)
    told = forecast(data_dir / "models" / MODEL, settings())
    assert told.trouble == ""
    assert told.slots == model.memory.plan.slots
    assert (told.context, told.kv_bytes) == (model.context, model.kv_bytes)


def test_a_forecast_of_what_cannot_be_loaded_says_why(data_dir: Path) -> None:
    told = forecast(data_dir / "models" / MODEL, settings(card=256 * KIB))
    assert "MiB" in told.trouble
    assert forecast(data_dir / "nowhere.gguf", settings()).trouble
