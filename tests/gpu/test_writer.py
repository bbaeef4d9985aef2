"""Guards against answers on the card that lose or repeat a token where they stop."""

import pytest

from stratadesk.engine.commands import SamplingSettings
from tests.goldens import Golden
from tests.gpu.conftest import golden_models
from tests.gpu.test_golden import load
from tests.gpu.writing import sampled, stop_everywhere, written


@pytest.fixture(params=golden_models()[:6], ids=lambda golden: golden.name)
def golden(request: pytest.FixtureRequest) -> Golden:
    found: Golden = request.param
    return found


def test_tokens_drawn_ahead_are_those_the_host_draws(golden: Golden) -> None:
    model = load(golden)
    for how in (SamplingSettings(temperature=0.0), SamplingSettings(temperature=1.5, seed=3)):
        assert written(model, how, 60, set()) == sampled(model, how, 60)
    model.close()


def test_another_turn_finds_what_is_held(golden: Golden) -> None:
    model = load(golden)
    stop_everywhere(model, 40)
    model.close()
