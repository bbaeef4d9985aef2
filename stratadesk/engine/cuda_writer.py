"""Writing an answer on a card: tokens are drawn there, and the next step runs before one is read.

A step reads the token that was drawn last, computes logits and draws the next. It is queued while
the host still waits for the token it reads. Whether that token belongs to the answer is the host's
to say: what a step changed counts only once the token is held (`hold`), and the other side of the
recurrent states is as it was (DESIGN 3). An end token turns the steps behind it into nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stratadesk.engine.sampling_checks import check_logits
from stratadesk.kernels.cuda.device import translated
from stratadesk.kernels.cuda.ops_sampling import (
    MOST_CANDIDATES,
    MOST_ENDS,
    NOT_FINITE,
    RING,
    turn_of,
    wishes_of,
)

if TYPE_CHECKING:
    from stratadesk.engine.commands import SamplingSettings
    from stratadesk.engine.cuda_model import CudaModel, CudaState
    from stratadesk.engine.sampler import Sampler


def can_draw(settings: SamplingSettings, vocabulary: int, end_ids: Collection[int]) -> bool:
    """Whether the card draws as `settings` say: no penalties, and the best or a top-k."""
    penalised = settings.penalty_last_n != 0 and (
        settings.repeat_penalty != 1
        or settings.presence_penalty != 0
        or settings.frequency_penalty != 0
    )
    most = min(MOST_CANDIDATES, vocabulary - 1)
    choosing = settings.temperature == 0 or 1 <= settings.top_k <= most
    return not penalised and choosing and len(end_ids) <= MOST_ENDS


class CudaWriter:
    """The tokens of one answer, behind the logits that the model computed last.

    For each token call `next`, then `hold` when it is part of the text; nothing else may use the
    model until it is told that the request has ended.

    Raises:
        DeviceError: when the card fails.
    """

    def __init__(
        self,
        model: CudaModel,
        state: CudaState,
        sampler: Sampler,
        end_ids: Collection[int],
        place: Callable[[], None],
    ) -> None:
        self._model = model
        self._state = state
        self._sampler = sampler
        self._place = place
        self._given = self._queued = 0
        self._events: dict[int, Any] = {}
        contents = model.contents
        self._shares = _view(contents.shares.address, np.float64)
        self._said = _view(contents.said.address, np.int32)
        how, ops = sampler.settings, contents.ops
        top_k = min(max(how.top_k, 1), MOST_CANDIDATES)
        wishes = wishes_of(how.temperature, top_k, how.top_p, how.min_p)
        ops.upload(contents.draws.wishes, wishes)
        ops.upload(contents.draws.turn, turn_of(end_ids))
        self._queue()

    def next(self) -> int | None:
        """The next token; None when the card cannot choose, for the host to draw from `logits`.

        Raises StrataDeskError when a logit is not a finite number.
        """
        if self._state.position < self._model.context:
            self._queue()
        number = self._given
        self._given += 1
        with translated("computing"):
            self._events.pop(number).synchronize()
        token = int(self._said[number % RING])
        if token == NOT_FINITE:
            check_logits(self._logits_behind(number))
        return token if token >= 0 else None

    def hold(self) -> None:
        """The token that `next` gave last is in the text, and the step behind it has read it."""
        self._state.position += 1
        self._state.steps += 1

    @property
    def logits(self) -> npt.NDArray[np.float32]:
        """Those that the last token should have been drawn from, [vocabulary]; ends the writing."""
        logits = self._logits_behind(self._given - 1)
        self._place()
        return logits

    def _logits_behind(self, number: int) -> npt.NDArray[np.float32]:
        contents = self._model.contents
        row: npt.NDArray[np.float32] = contents.ops.download(contents.logits.row(number % 2))[0]
        return row

    def _queue(self) -> None:
        """Queue the draw of one more token, and the step before it that reads the one before."""
        number = self._queued
        self._shares[number % RING] = self._sampler.share()
        stream = self._model.contents.ops.device.stream
        with translated("starting a step"):
            self._model.graph_of("draw" if number == 0 else f"write {number % 2}").launch(stream)
            self._events[number] = stream.record()
        self._queued += 1


def _view(address: int, kind: Any) -> npt.NDArray[Any]:
    """The ring at a host address."""
    n_bytes = RING * np.dtype(kind).itemsize
    return np.frombuffer((ctypes.c_char * n_bytes).from_address(address), kind)
