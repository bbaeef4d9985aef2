"""A model loaded into a backend: weights, memory by phases, and one pass per chunk of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from stratadesk.engine.drafting import Drafting
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.phase_table import COMPUTING, VramState
from stratadesk.engine.vram.plan_settings import HeadAlias
from stratadesk.errors import UsageError
from stratadesk.kernels.host.workspace import HeapWorkspace
from stratadesk.units import MIB

if TYPE_CHECKING:
    from stratadesk.engine.architectures.base import Drafter, Family
    from stratadesk.engine.card_memory import CardMemory
    from stratadesk.engine.drafting import DraftState
    from stratadesk.engine.expert_supply import CardExperts, RoutingSink
    from stratadesk.engine.gguf_file import GgufFile
    from stratadesk.engine.ops import LayerState
    from stratadesk.engine.vram.requests import RequestPlan
    from stratadesk.engine.vram.resizing import Resize
    from stratadesk.kernels.host.backend import HostOps

Floats = npt.NDArray[np.float32]

REFILL_BYTES = 64 * MIB
"""How much of the expert cache comes back between two tokens of an answer."""


@dataclass(slots=True)
class ModelState:
    """KV caches and recurrent state of one sequence. `position` is the number of tokens held."""

    layers: Sequence[LayerState]
    position: int = 0
    draft: DraftState | None = None

    def commit(self, tokens: int) -> None:
        """Count `tokens` more as held, once every layer has computed them."""
        for layer in self.layers:
            layer.commit()
        if self.draft is not None:
            self.draft.commit()
        self.position += tokens


@dataclass(frozen=True, slots=True)
class Kept:
    """Hidden states [n, E] of a chunk that outlive it: the trunk's, the draft head's if loaded."""

    trunk: Floats
    draft: Floats | None


class LoadedModel:
    """A GGUF model ready to compute. Sizes are in bytes, `context` in tokens.

    Its memory holds one state at a time: `new_state` ends the use of the one before. A request is
    `begin_request`, any number of `forward`, `end_request`; a `forward` outside one is a request
    of its own.
    """

    def __init__(
        self,
        gguf: GgufFile,
        ops: HostOps,
        memory: CardMemory,
        experts: CardExperts,
        family_model: Family,
    ) -> None:
        plan = memory.plan
        self.gguf = gguf
        self.memory = memory
        self.architecture = gguf.architecture
        self.name = gguf.get_str("general.name", gguf.path.stem)
        self.device = "host"
        self.file_bytes = gguf.file_bytes
        self.vocab_size = family_model.vocab_size
        self.context = plan.context
        self.kv_bytes = plan.parts.kv
        self.state_bytes = plan.parts.state
        self._ops = ops
        self._experts = experts
        self._family = family_model
        self._drafting: Drafting | None = None
        if family_model.draft is not None:
            self._drafting = Drafting(ops, family_model.draft, family_model.width)
        self._kv_format = plan.settings.kv_format.upper()
        self._scratch = memory.workspace(memory.scratch)
        self._ops.workspace = self._scratch
        self._choice: RequestPlan | None = None

    def new_state(self) -> ModelState:
        """Return a state for `context` tokens that holds none, in place of any before."""
        self._ops.resident = self.memory.workspace(self.memory.state)
        states = (
            layer.mixer.new_state(self._ops, self.context, self._kv_format)
            for layer in self._family.layers
        )
        state = ModelState(tuple(states))
        if self._drafting is not None:
            state.draft = self._drafting.new_state(self.context, self._kv_format)
        return state

    def begin_request(self, fresh: int) -> RequestPlan:
        """Plan how `fresh` tokens are read, 0 for none, and lend what that needs.

        Raises:
            MemoryShortageError: when the buffers do not fit any more; the model stays ready.
        """
        choice = self.memory.request(max(1, fresh))
        machine = self.memory.machine
        if choice.layout is None or not fresh:
            machine.begin_decode()
        else:
            span = machine.begin_prompt(choice.layout, choice.buffer_bytes)
            self._ops.workspace = self.memory.workspace(span)
        self._experts.reads_prompt = machine.state is VramState.PROMPT
        self._choice = choice
        return choice

    def watch_routing(self, told: RoutingSink | None) -> None:
        """Tell `told` from now on which experts each chunk uses in each layer; None is nobody."""
        self._experts.watch = told

    def end_request(self) -> None:
        """The request is over: head and slots are back, or brought back now."""
        self._end_prompt()
        self._choice = None
        self.memory.machine.end_decode()

    def recover(self) -> None:
        """After a cancel or a failure in any phase: bring head and slots back and be ready.

        Raises:
            HeadLostError: when the head does not come back; nothing can be computed then.
        """
        machine = self.memory.machine
        self._use_scratch()
        self._choice = None
        self.memory.cache.take_routing()
        if machine.state is VramState.FAILED:
            machine.reset()
        else:
            self._experts.reserved.extend(machine.cancel())

    def forward(
        self, state: ModelState, tokens: Sequence[int], *, logits: Literal["none", "last", "all"]
    ) -> Floats | None:
        """Append `tokens` to `state`; inside a prompt at most the planned chunk at once.

        Returns float32 [vocabulary] for "last", [len(tokens), vocabulary] for "all", else None.
        Asking for logits ends the prompt phase: the head must be in. The caller sees to it that
        ids are inside the vocabulary and the context is not exceeded. After an exception `state`
        holds the chunks that were computed wholly, and `recover` must be called.

        Raises:
            InvariantError: while the memory allows no compute.
            GgufError: when the file has been cut short; nothing of the chunk is computed then.
            HeadLostError: when the head does not come back.
            CopyError: when an expert's bytes do not arrive.
        """
        rows = {"none": slice(0, 0), "last": slice(-1, None), "all": slice(None)}[logits]
        with self._request(len(tokens)):
            kept = [kept.trunk for kept in self._read(state, tokens, rows)]
            if logits == "none":
                return None
            self._end_prompt()
            hidden = np.concatenate(kept) if logits == "all" else kept[-1]
            values = self._logits(hidden, self._family)
        return values if logits == "all" else values[0]

    def forward_with_drafts(
        self, state: ModelState, tokens: Sequence[int]
    ) -> tuple[Floats, Floats]:
        """As `forward` for all tokens; also the draft head's logits, [len(tokens), vocabulary].

        Its row t comes from token t and the trunk's state at t - 1, zeros before the first token.

        Raises:
            UsageError: the model is loaded without a draft head; or as for `forward`.
        """
        head = self._drafts().head
        with self._request(len(tokens)):
            kept = list(self._read(state, tokens, slice(None)))
            self._end_prompt()
            drafted = [part.draft for part in kept if part.draft is not None]
            trunk = self._logits(np.concatenate([part.trunk for part in kept]), self._family)
            return trunk, self._logits(np.concatenate(drafted), head)

    def draft(self, state: ModelState, token: int) -> Floats:
        """Draft: the logits [vocabulary] behind `token`, as if it followed the tokens held.

        Called again it goes on behind the drafts made so far, until `forward` appends tokens.
        The caller sees to it that the context is not exceeded.

        Raises:
            UsageError: the model is loaded without a draft head; or as for `forward`.
        """
        drafting = self._drafts()
        with self._request(0):
            self._end_prompt()
            self._experts.begin_pass()
            with self._ops.scope():
                assert state.draft is not None
                kept = drafting.draft(state.draft, token, state.position).copy()
            values: Floats = self._logits(kept, drafting.head)[0]
        return values

    def set_reserve(self, reserve: int, asked: int) -> Resize:
        """Keep `reserve` bytes free from now on, and move the arena's end as far as `asked` does.

        `asked` is what the user wants and `reserve` what of it can be kept: the resize tells what
        stands in the way of the rest.
        """
        memory = self.memory
        memory.machine.reserve = reserve
        return memory.machine.resize(memory.arena.end + memory.card.free - asked)

    def resize_by(self, n_bytes: int, *, urgent: bool = False) -> Resize:
        """Move the arena's end by `n_bytes`, at once or at the next safe point."""
        return self.memory.machine.resize(self.memory.arena.end + n_bytes, urgent=urgent)

    def set_alias(self, alias: HeadAlias) -> None:
        """Choose whether prompts may take the head's bytes, from the next one on.

        Raises:
            UsageError: the head is the embedding, which is never lent.
        """
        if alias is HeadAlias.ON and self.memory.plan.shape.tied:
            raise UsageError(
                f"{self.name} has no output head of its own: it is the embedding and is never "
                "lent.",
                "Leave the alias off.",
            )
        self.memory.machine.set_alias(alias)

    def close(self) -> None:
        """Give arena and mapped file back; the model must not be used afterwards."""
        del self._family
        with ExitStack() as undo:
            undo.callback(self.gguf.close)
            undo.callback(self.memory.machine.release)
            self.memory.machine.cancel()

    @contextmanager
    def _request(self, tokens: int) -> Iterator[None]:
        """Make a request around the `with` block unless there is one."""
        state = self.memory.machine.state
        if state not in COMPUTING:
            raise InvariantError(f"nothing can be computed while the memory is {state}")
        if state is not VramState.READY:
            yield
            return
        self.begin_request(tokens)
        with ExitStack() as undo:
            undo.callback(self.recover)
            yield
            undo.pop_all()
        self.end_request()

    def _chunks(self, tokens: Sequence[int]) -> Iterator[Sequence[int]]:
        choice = self._choice if self._experts.reads_prompt else None
        size = choice.chunk if choice else self.memory.plan.inputs.rule.decode_window
        return (tokens[i : i + size] for i in range(0, len(tokens), size))

    def _read(self, state: ModelState, tokens: Sequence[int], rows: slice) -> Iterator[Kept]:
        """Compute and commit `tokens` chunk by chunk; copies of the hidden states `rows`."""
        self.memory.machine.safe_point()
        for chunk in self._chunks(tokens):
            yield self._pass(state, chunk, rows)

    def _pass(self, state: ModelState, tokens: Sequence[int], rows: slice) -> Kept:
        """Compute one chunk and commit it; copies of the hidden states `rows`."""
        self.gguf.check_whole()
        ids = np.asarray(tokens, np.int32)
        self._experts.begin_pass()
        with self._ops.scope():
            hidden = self._family.hidden(self._ops, ids, state.position, state.layers)
            kept = Kept(hidden[rows].copy(), self._follow(state, ids, hidden, rows))
        state.commit(ids.size)
        if not self._experts.reads_prompt:
            self._experts.refill(REFILL_BYTES)
        return kept

    def _follow(
        self, state: ModelState, ids: npt.NDArray[np.int32], hidden: Floats, rows: slice
    ) -> Floats | None:
        """Let the draft head read the chunk too, if there is one; a copy of its states `rows`."""
        if self._drafting is None or state.draft is None:
            return None
        drafted = self._drafting.follow(state.draft, ids, hidden, state.position)
        kept: Floats = drafted[rows].copy()
        return kept

    def _drafts(self) -> Drafting:
        if self._drafting is None:
            raise UsageError(f"{self.name} is loaded without its draft head.", "Add --mtp.")
        return self._drafting

    def _logits(self, hidden: Floats, of: Family | Drafter) -> Floats:
        """Logits of hidden states [n, E] of the trunk or the draft head, from the head in place."""
        self.memory.machine.head()
        if len(hidden) > 1:
            # More rows than a step needs do not fit the decode scratch.
            self._ops.workspace = HeapWorkspace()
        with self._ops.scope():
            values: Floats = of.logits(self._ops, hidden).copy()
        self._ops.workspace = self._scratch
        return values

    def _end_prompt(self) -> None:
        """Bring head and slots back if a prompt is being read."""
        machine = self.memory.machine
        if machine.state is not VramState.PROMPT:
            return
        self._use_scratch()
        self._experts.reserved.extend(machine.end_prompt(self.memory.cache.take_routing()))

    def _use_scratch(self) -> None:
        self._ops.workspace = self._scratch
        self._experts.reads_prompt = False
