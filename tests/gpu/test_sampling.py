"""Guards against tokens drawn on the card that the host would not have drawn."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.engine.commands import SamplingSettings
from stratadesk.engine.sampler import narrow, pick, weigh
from stratadesk.kernels.cuda.ops_sampling import (
    NOT_FINITE,
    RING,
    TOO_MANY_ALIKE,
    DrawPlaces,
    turn_of,
    wishes_of,
)
from stratadesk.kernels.cuda.tensors import DeviceTensor
from tests.gpu.bench import Bench

Floats = npt.NDArray[np.float32]

SETTINGS = (
    SamplingSettings(),
    SamplingSettings(temperature=0.0),
    SamplingSettings(temperature=3.0, top_k=1_000, top_p=1.0, min_p=0.0),
    SamplingSettings(temperature=0.5, top_k=1, top_p=0.5, min_p=0.9),
    SamplingSettings(temperature=1.0, top_k=20, top_p=0.8, min_p=0.0),
    SamplingSettings(temperature=2.0, top_k=500, top_p=0.99, min_p=0.01),
)


def drawn(bench: Bench, logits: Floats, how: SamplingSettings, share: float) -> int:
    """The token that the card draws."""
    ops = bench.ops
    with ops.resident.scope():
        row = bench.tensor(logits.reshape(1, -1))
        places = DrawPlaces(*map(ops.resident.take, (*DrawPlaces.SIZES, 8 * RING, 4 * RING)))
        ops.upload(places.wishes, wishes_of(how.temperature, how.top_k, how.top_p, how.min_p))
        ops.upload(places.turn, turn_of(()))
        ops.upload(places.shares, np.full(RING, share))
        ops.draw_token(row, places)
        token = ops.download(DeviceTensor(places.said, (1,)))
    return int(token.view(np.int32)[0])


def wanted(logits: Floats, how: SamplingSettings, share: float) -> int:
    """The token that the host draws."""
    if how.temperature == 0:
        return int(logits.argmax())
    candidates = narrow(logits, how)
    return candidates.id_at(pick(weigh(candidates.logits, how.temperature), share))


@pytest.mark.parametrize("how", SETTINGS, ids=repr)
@pytest.mark.parametrize("count", [1, 77, 5_000])
def test_draws_are_the_hosts(bench: Bench, how: SamplingSettings, count: int) -> None:
    if how.temperature and how.top_k >= count:
        how = replace(how, top_k=max(count - 1, 1), temperature=how.temperature * (count > 1))
    rng = np.random.default_rng(count)
    for spread in (0.5, 3.0, 20.0):
        logits = (spread * rng.standard_normal(count)).astype(np.float32)
        logits[rng.integers(0, count, 3)] = logits.max()
        for share in (0.0, *rng.random(2), 1 - 2**-53):
            assert drawn(bench, logits, how, share) == wanted(logits, how, share)


def test_what_cannot_be_drawn_is_said(bench: Bench) -> None:
    how = SamplingSettings()
    logits = np.zeros(3_000, np.float32)
    assert drawn(bench, logits, how, 0.5) == TOO_MANY_ALIKE
    assert drawn(bench, logits, SamplingSettings(temperature=0.0), 0.5) == 0
    for wrong in (np.nan, np.inf, -np.inf):
        logits[1_234] = wrong
        assert drawn(bench, logits, how, 0.5) == NOT_FINITE
