"""A model on a graphics card: one captured graph per window size computes a step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from stratadesk.engine.cuda_writer import CudaWriter, can_draw
from stratadesk.engine.vram.costs import Reading as CostReading
from stratadesk.engine.vram.requests import DECODE, RequestPlan
from stratadesk.errors import DeviceLostError
from stratadesk.kernels.cuda.device import translated
from stratadesk.kernels.cuda.loss import LOSS
from stratadesk.kernels.cuda.ops import MOST_TOKENS

if TYPE_CHECKING:
    from stratadesk.engine.cuda_loading import CardContents, no_drafts
    from stratadesk.engine.sampler import Sampler

Floats = npt.NDArray[np.float32]
Head = Literal["none", "last", "all"]


class CudaState:
    """The one sequence that the card's memory holds. `position` is the number of tokens held."""

    def __init__(self) -> None:
        self.position = 0
        self.steps = 0


class CudaModel:
    """A GGUF model on the card; implements `engine.protocols.Model`.

    Its memory holds one `state` at a time: `new_state` ends the use of the one before. Prompts are
    read through windows of up to eight tokens.
    """

    def __init__(self, contents: CardContents) -> None:
        gguf = contents.gguf
        self.gguf = gguf
        self.architecture = gguf.architecture
        self.name = gguf.get_str("general.name", gguf.path.stem)
        self.device = "cuda"
        self.file_bytes = gguf.file_bytes
        self.vocab_size = contents.vocab_size
        self.context = contents.context
        self.kv_bytes = sum(
            layer.n_bytes for layer in contents.layers if not hasattr(layer, "memories")
        )
        self.state_bytes = contents.state_bytes - self.kv_bytes
        self.contents = self._contents = contents
        self._ops = contents.ops
        self._graphs: dict[tuple[int, Head] | str, Any] = {}
        self.state = CudaState()
        self._writing = False
        LOSS.watch(self)

    def new_state(self) -> CudaState:
        """Return a state that holds no token, in place of any before."""
        for layer in self._contents.layers:
            for side in ("histories", "memories"):
                if hasattr(layer, side):
                    self._ops.clear(getattr(layer, side))
        self.state = CudaState()
        self._place()
        return self.state

    def begin_request(self, fresh: int) -> RequestPlan:
        """Plan how `fresh` tokens are read: always through the decode windows."""
        reading = CostReading(0.0, 0.0, 0.0)
        why = "prompts are read through the decode windows in this version"
        return RequestPlan(fresh, DECODE, None, MOST_TOKENS, 0, 0, reading, 0.0, 0.0, why)

    def end_request(self) -> None:
        """Nothing was lent; the device goes back to what is held if it has written ahead."""
        if self._writing:
            self._place()

    def writer(
        self, state: CudaState, sampler: Sampler, end_ids: Collection[int]
    ) -> CudaWriter | None:
        """Draw tokens on the card from the last logits on; None where the host has to."""
        if not can_draw(sampler.settings, self.vocab_size, end_ids):
            return None
        self._writing = True
        return CudaWriter(self, state, sampler, end_ids, self._place)

    def graph_of(self, name: str) -> Any:
        """The graph "draw" (from the first row of logits), or "write 0" or "write 1".

        Writing reads the token drawn last, puts its logits into row 0 or 1, and draws from them.
        """
        if name not in self._graphs:
            self._graphs[name] = self._captured_as(lambda: self._queue_writing(name))
        return self._graphs[name]

    def recover(self) -> None:
        """After a cancel or a failure: the device stands where the host committed last.

        A card that is lost holds nothing to stand anywhere in.
        """
        with suppress(DeviceLostError):
            self._place()

    def check(self) -> None:
        """See whether the card still answers; raises DeviceLostError if not."""
        with translated("being asked whether it is there"):
            self._ops.device.stream.synchronize()
        self._ops.device.free()

    def forward(self, state: CudaState, tokens: Sequence[int], *, logits: Head) -> Floats | None:
        """Append `tokens` to `state`, at most eight at a time.

        Returns float32 [vocabulary] for "last", [len(tokens), vocabulary] for "all", else None.
        The caller sees to it that ids are inside the vocabulary and the context is not exceeded.

        Raises:
            DeviceError: when the card fails; the state is of no use then.
        """
        ids = np.asarray(tokens, np.int32)
        kept = []
        for first in range(0, ids.size, MOST_TOKENS):
            window = ids[first : first + MOST_TOKENS]
            last = first + MOST_TOKENS >= ids.size
            head: Head = logits if logits != "last" or last else "none"
            self._step(state, window, head)
            if head != "none":
                rows = window.size if head == "all" else 1
                kept.append(self._ops.download(self._logits(rows)))
        if logits == "none":
            return None
        return np.concatenate(kept) if logits == "all" else kept[-1][0]

    def forward_with_drafts(self, state: CudaState, tokens: Sequence[int]) -> tuple[Floats, Floats]:
        """Raise UsageError: drafts are not computed on a card."""
        raise no_drafts()

    def close(self) -> None:
        """Give the card's memory and the mapped file back; the model must not be used after."""
        if not LOSS.why:
            self._graphs.clear()
        with ExitStack() as undo:
            undo.callback(self.gguf.close)
            undo.callback(self._contents.release)

    def _step(self, state: CudaState, window: npt.NDArray[np.int32], head: Head) -> None:
        """Queue one window; the host counts it once it is queued."""
        self._ops.upload(self._contents.tokens.address, window)
        key = (window.size, head)
        if key not in self._graphs:
            self._graphs[key] = self._captured(*key)
        with translated("starting a step"):
            self._graphs[key].launch(self._ops.device.stream)
        state.position += window.size
        state.steps += 1

    def _captured(self, count: int, head: Head) -> Any:
        """The graph of a window of `count` tokens, with the head for no, the last or all rows."""
        return self._captured_as(lambda: self._queue(count, head))

    def _captured_as(self, queue: Callable[[], None]) -> Any:
        stream = self._ops.device.stream
        with translated("capturing a step"):
            stream.begin_capture()
            try:
                queue()
            finally:
                graph = stream.end_capture()
        return graph

    def _queue_writing(self, name: str) -> None:
        contents = self._contents
        ops: Any = self._ops
        row = contents.logits.row(1 if name.endswith("1") else 0)
        if name != "draw":
            with ops.scope():
                hidden = contents.family.hidden(ops, np.zeros(1, np.int32), 0, contents.layers)
                ops.copy(row, contents.family.logits(ops, hidden))
            ops.advance_turn(contents.draws)
        ops.draw_token(row, contents.draws)

    def _queue(self, count: int, head: Head) -> None:
        contents = self._contents
        ops: Any = self._ops
        with ops.scope():
            ids = np.zeros(count, np.int32)
            hidden = contents.family.hidden(ops, ids, 0, contents.layers)
            if head != "none":
                rows = hidden if head == "all" else hidden.row(-1)
                ops.copy(self._logits(rows.shape[0]), contents.family.logits(ops, rows))
        ops.advance(count)

    def _logits(self, rows: int) -> Any:
        return self._contents.logits.first_rows(rows)

    def _place(self) -> None:
        """Tell the device where the committed sequence stands."""
        self._writing = False
        where = np.array([self.state.position, self.state.steps % 2], np.int32)
        self._ops.upload(self._contents.step.address, where)
