"""Answers drawn on a card, and the same by other means."""

import numpy as np

from stratadesk.engine.commands import SamplingSettings
from stratadesk.engine.cuda_model import CudaModel
from stratadesk.engine.sampler import Sampler

TOKENS = [5, 9, 2, 200, 31, 7, 7, 90, 14, 3]
"""What answers are written behind."""


def written(model: CudaModel, how: SamplingSettings, count: int, ends: set[int]) -> list[int]:
    """So many tokens behind TOKENS, drawn on the card; ends as a request does."""
    state = model.new_state()
    model.forward(state, TOKENS, logits="last")
    writer = model.writer(state, Sampler(how), ends)
    assert writer is not None
    tokens: list[int] = []
    for _ in range(count):
        if tokens:
            writer.hold()
        token = writer.next()
        assert token is not None
        tokens.append(token)
    model.end_request()
    assert state.position == len(TOKENS) + count - 1
    return tokens


def sampled(model: CudaModel, how: SamplingSettings, count: int) -> list[int]:
    """The same, drawn on the host from the card's logits."""
    state, sampler, tokens = model.new_state(), Sampler(how), list(TOKENS)
    logits = model.forward(state, tokens, logits="last")
    for _ in range(count):
        assert logits is not None
        tokens.append(sampler.next(logits, tokens))
        logits = model.forward(state, tokens[-1:], logits="last")
    return tokens[len(TOKENS) :]


def stop_everywhere(model: CudaModel, stops: int) -> None:
    """Stop an answer at consecutive places, by the host or an end token, and read on each time.

    What is computed then has the same bits as behind a fresh start with the tokens held.
    """
    how = SamplingSettings(temperature=1.0, seed=11)
    answer = written(model, how, stops, set())
    for count in range(1, stops + 1):
        last = answer[count - 1]
        ends = {last} if count % 2 and last not in answer[: count - 1] else set()
        tokens = written(model, how, count, ends)
        assert tokens == answer[:count]
        following = [*tokens[-1:], 8, 1]
        after = model.forward(model.state, following, logits="last")
        fresh = model.new_state()
        wanted = model.forward(fresh, [*TOKENS, *tokens[:-1], *following], logits="last")
        assert np.array_equal(after, wanted)
