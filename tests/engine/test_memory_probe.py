"""Guards against RAM that is counted twice: as this program's, and as available."""

from types import SimpleNamespace

import pytest

from stratadesk.engine import memory_probe
from stratadesk.engine.events import MemorySample
from stratadesk.engine.memory_probe import sample_memory


def told(monkeypatch: pytest.MonkeyPatch, **own: int) -> MemorySample:
    """A sample where the system says that 20 of 24 bytes are available and `own` of us."""
    fake = SimpleNamespace(
        virtual_memory=lambda: SimpleNamespace(available=20, total=24),
        Process=lambda: SimpleNamespace(memory_info=lambda: SimpleNamespace(**own)),
    )
    monkeypatch.setattr(memory_probe, "psutil", fake)
    return sample_memory()


def test_pages_of_a_mapped_model_are_not_available_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = told(monkeypatch, rss=10, shared=9)
    assert sample == MemorySample(resident=10, available=11, total=24)
    assert sample.total - sample.resident - sample.available == 3, "what others hold"


def test_a_system_that_tells_no_mapped_pages_is_taken_at_its_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert told(monkeypatch, rss=3).available == 20


def test_more_mapped_pages_than_are_available_leave_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, rss=23, shared=22).available == 0
