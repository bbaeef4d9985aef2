"""A model loaded into a backend: weights, and one forward pass per chunk of tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import psutil

from stratadesk.engine.architectures import family
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.backends import Backend, choose_device, open_backend
from stratadesk.engine.events import LoadProgress
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.tensor_formats import HOST_FORMATS
from stratadesk.errors import GgufError, MemoryShortageError, UnsupportedModelError
from stratadesk.paths import folders
from stratadesk.units import mib

if TYPE_CHECKING:
    from stratadesk.engine.architectures.base import Family
    from stratadesk.engine.commands import EngineSettings
    from stratadesk.engine.ops import ExpertLayer, LayerState, Ops, Tensor, Weight

# Without --max-context, a model's own length counts only up to this many tokens.
DEFAULT_CONTEXT = 32_768

ProgressSink = Callable[[LoadProgress], None]


@dataclass(slots=True)
class ModelState:
    """KV caches and recurrent state of one sequence. `position` is the number of tokens held."""

    layers: Sequence[LayerState]
    position: int = 0

    def commit(self, tokens: int) -> None:
        """Count `tokens` more as held, once every layer has computed them."""
        for layer in self.layers:
            layer.commit()
        self.position += tokens


class LoadedModel:
    """A GGUF model ready to compute. Sizes are in bytes, `context` in tokens."""

    def __init__(
        self, gguf: GgufFile, backend: Backend, family_model: Family, settings: EngineSettings
    ) -> None:
        self.gguf = gguf
        self.architecture = gguf.architecture
        self.name = gguf.get_str("general.name", gguf.path.stem)
        self.device = backend.device
        self.file_bytes = gguf.file_bytes
        self.vocab_size = family_model.vocab_size
        self.context = _context(Hyperparameters(gguf), settings.max_context)
        self._backend = backend
        self._family = family_model
        self._kv_format = settings.kv_format.upper()
        self.kv_bytes, self.state_bytes = self._state_sizes()

    @classmethod
    def load(cls, path: Path, settings: EngineSettings, progress: ProgressSink) -> LoadedModel:
        """Open, check and prepare the model at `path`, telling `progress` how far it is.

        Weights stay in the mapped file; nothing is copied.

        Raises:
            GgufError: the file is unsound, or a tensor is missing or misshapen.
            UnsupportedModelError: an architecture, tensor type or tensor this version cannot run.
            DeviceError: the device asked for is not available.
            MemoryShortageError: KV cache and state exceed the RAM that is available.
        """
        device = choose_device(settings.device)
        with ExitStack() as undo:
            gguf = undo.enter_context(GgufFile.open(path))
            kind = family(gguf.architecture)
            formats = _checked_formats(gguf)
            backend = open_backend(device, folders().cache)
            # Decoding the norms needs F32 even in a file that stores none as such.
            needed = formats | {"F32"}
            backend.prepare(needed, settings.kv_format.upper(), _kernel_progress(progress))
            model = cls(gguf, backend, _build(kind, gguf, backend.ops), settings)
            model._check_memory()
            undo.pop_all()
            return model

    def new_state(self) -> ModelState:
        """Return a state for `context` tokens that holds none."""
        return ModelState(self._layer_states(self.context))

    def forward(
        self, state: ModelState, tokens: Sequence[int], *, logits: Literal["none", "last", "all"]
    ) -> npt.NDArray[np.float32] | None:
        """Append `tokens` to `state` as one chunk.

        Returns float32 [vocabulary] for "last", [len(tokens), vocabulary] for "all", else None.
        The caller sees to it that ids are inside the vocabulary and the context is not exceeded.
        After an exception `state` is as it was before.
        """
        ids = np.asarray(tokens, np.int32)
        ops = self._backend.ops
        with ops.scope():
            hidden = self._family.hidden(ops, ids, state.position, state.layers)
            values = None
            if logits != "none":
                wanted = hidden if logits == "all" else hidden[-1:]
                values = self._family.logits(ops, wanted).copy()
        state.commit(ids.size)
        return values if logits != "last" or values is None else values[0]

    def close(self) -> None:
        """Give the mapped file back; the model must not be used afterwards."""
        del self._family
        self.gguf.close()

    def _layer_states(self, context: int) -> list[LayerState]:
        ops, kv_format = self._backend.ops, self._kv_format
        return [layer.mixer.new_state(ops, context, kv_format) for layer in self._family.layers]

    def _state_sizes(self) -> tuple[int, int]:
        """Bytes of KV cache for the whole context, and of state that does not grow with it."""
        one = sum(layer.n_bytes for layer in self._layer_states(1))
        two = sum(layer.n_bytes for layer in self._layer_states(2))
        per_token = two - one
        return per_token * self.context, one - per_token

    def _check_memory(self) -> None:
        needed = self.kv_bytes + self.state_bytes
        available = psutil.virtual_memory().available
        if needed > available:
            fitting = max(0, available - self.state_bytes) * self.context // max(1, self.kv_bytes)
            raise MemoryShortageError(
                f"The KV cache for {self.context:,} tokens needs {mib(needed):,.0f} MiB of RAM, "
                f"{mib(available):,.0f} MiB are available.",
                f"Use --max-context {fitting // 1024 * 1024} or less, or --kv q8_0.",
            )


class _MappedLoader:
    """Loads weights as views of the mapped file."""

    def __init__(self, gguf: GgufFile, ops: Ops) -> None:
        self._gguf = gguf
        self._ops = ops
        self._expert_layers = 0

    def load(self, name: str) -> Weight:
        """The tensor `name`, not copied."""
        info = self._gguf.tensors[name]
        return self._ops.weight(self._gguf.data(name), info.format.name, info.shape)

    def dense(self, weight: Weight) -> Tensor:
        """A small weight decoded to float32."""
        return self._ops.dense(weight)

    def expert_layer(self, parts: Sequence[Weight]) -> ExpertLayer:
        """The experts of the next layer."""
        self._expert_layers += 1
        return self._ops.expert_layer(self._expert_layers - 1, parts)


def _build(kind: type[Family], gguf: GgufFile, ops: Ops) -> Family:
    vocab_size = len(gguf.get_strings("tokenizer.ggml.tokens"))
    if not vocab_size:
        raise GgufError(f"{gguf.label} has an empty vocabulary.")
    table = TensorTable(gguf.tensors, _MappedLoader(gguf, ops))
    model = kind(Hyperparameters(gguf), table, vocab_size)
    table.finish()
    return model


def _checked_formats(gguf: GgufFile) -> set[str]:
    """The formats in the file; UnsupportedModelError names a tensor in one that cannot run."""
    for name, info in gguf.tensors.items():
        if info.format.name not in HOST_FORMATS:
            raise UnsupportedModelError(
                f"Tensor {name} is stored as {info.format.name}, which this version cannot "
                f"compute; it computes {', '.join(HOST_FORMATS)}.",
                "Choose a quantization made of these types, such as Q4_K_M or IQ4_XS.",
            )
    return {info.format.name for info in gguf.tensors.values()}


def _context(header: Hyperparameters, wanted: int) -> int:
    own = header.positive("context_length", default=DEFAULT_CONTEXT)
    return wanted or min(own, DEFAULT_CONTEXT)


def _kernel_progress(progress: ProgressSink) -> Callable[[int, int], None]:
    begun = time.monotonic()

    def report(done: int, total: int) -> None:
        # Loading from the cache takes a moment; only compiling is worth a line.
        if time.monotonic() - begun > 0.3 or done == total:
            progress(LoadProgress("Preparing kernels", done, total, "kernels"))

    return report
