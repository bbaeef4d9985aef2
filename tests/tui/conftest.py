"""What tests of the screen share: a clock that stands still, and a cursor that does not blink."""

import pytest

from stratadesk.tui import moment

NOW = 10_000.0


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> float:
    """Hold the clock of all widgets; return the time at which it stands, in seconds."""
    monkeypatch.setattr(moment, "now", lambda: NOW)
    return NOW
