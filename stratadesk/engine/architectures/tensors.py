"""The tensor table of a model: each tensor is asked for by name and shape, and accounted for."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from stratadesk.engine.hyperparameters import told_by_keys
from stratadesk.engine.ops import ExpertLayer, Tensor, Weight
from stratadesk.errors import GgufError, UnsupportedModelError
from stratadesk.kernels.expert_form import PLAIN_EXPERTS, ExpertForm


class TensorFacts(Protocol):
    """What the table needs to know of a tensor in a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Row-major shape."""


class WeightLoader(Protocol):
    """Turns tensors of a file into a backend's weights."""

    def load(self, name: str) -> Weight:
        """The tensor `name` as a weight."""

    def vector(self, name: str) -> Tensor:
        """The small tensor `name`, such as a norm, in float32: [n], or [rows, columns]."""

    def expert_layer(self, parts: Sequence[Weight], form: ExpertForm) -> ExpertLayer:
        """The experts of the next layer that has any; see `Ops.expert_layer`."""

    def head_rows(
        self, weight: Weight, heads: int, first: int, rows: int, *, transposed: bool
    ) -> Tensor:
        """Each head's rows of a weight; see `LatentOps.head_rows`."""


class TensorTable:
    """Hands out the weights of a file, checking that every tensor is used and fits."""

    def __init__(self, tensors: Mapping[str, TensorFacts], loader: WeightLoader) -> None:
        self._tensors = tensors
        self._loader = loader
        self._used: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the file holds a tensor of this name."""
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """The row-major shape, of at least one size, that tensor `name` has in the file.

        Raises GgufError when the file does not hold it.
        """
        facts = self._tensors.get(name)
        if facts is None or not facts.shape:
            raise GgufError(
                f"Tensor {name} is missing.",
                "Download the model again, or choose a complete conversion.",
            )
        return tuple(facts.shape)

    def weight(self, name: str, *shape: int) -> Weight:
        """The tensor `name` of row-major `shape`.

        Raises GgufError naming the tensor, the shape found and the one wanted.
        """
        self._check(name, shape)
        return self._loader.load(name)

    def vector(self, name: str, *shape: int) -> Tensor:
        """A small tensor in float32, such as a norm: [n], or [rows, columns]."""
        self._check(name, shape)
        return self._loader.vector(name)

    def optional_vector(self, name: str, *shape: int) -> Tensor | None:
        """As `vector`, or None when the file holds no tensor of this name."""
        return self.vector(name, *shape) if self.has(name) else None

    def refuse(self, name: str, what: str) -> None:
        """Raise UnsupportedModelError when the file holds `name`, which is `what` in words."""
        if self.has(name):
            raise UnsupportedModelError(
                f"This file keeps {what} in {name}, which this version does not compute.",
                "Choose another conversion of the model.",
            )

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        facts = self._tensors.get(name)
        if facts is None:
            raise GgufError(
                f"Tensor {name} {list(shape)} is missing.",
                "Download the model again, or choose a complete conversion.",
            )
        found = tuple(facts.shape)
        if found != shape:
            wrong = (size for at, size in enumerate(shape) if found[at : at + 1] != (size,))
            raise GgufError(
                f"Tensor {name} has shape {list(found)}, wanted {list(shape)}"
                f"{told_by_keys(wrong)}.",
                "The file does not fit its own header; choose another conversion.",
            )
        self._used.add(name)

    def expert_layer(
        self, parts: Sequence[Weight], form: ExpertForm = PLAIN_EXPERTS
    ) -> ExpertLayer:
        """The experts made of `parts`: gate and up or both fused, then down."""
        return self._loader.expert_layer(parts, form)

    def head_rows(
        self, weight: Weight, heads: int, first: int, rows: int, *, transposed: bool = False
    ) -> Tensor:
        """Rows `first` … `first + rows` of each head's equal part of a weight."""
        return self._loader.head_rows(weight, heads, first, rows, transposed=transposed)

    def set_aside(self, prefix: str) -> None:
        """Account for tensors that belong to a part of the model that is not run."""
        self._used.update(name for name in self._tensors if name.startswith(prefix))

    def finish(self) -> None:
        """Raise UnsupportedModelError when the file holds tensors nobody asked for."""
        unknown = [name for name in self._tensors if name not in self._used]
        if unknown:
            listed = ", ".join(unknown[:3]) + (", …" if len(unknown) > 3 else "")
            raise UnsupportedModelError(
                f"{len(unknown)} tensors of this file take no part in what this version "
                f"computes ({listed}), so its answers would be wrong.",
                "Choose another conversion of the model.",
            )
