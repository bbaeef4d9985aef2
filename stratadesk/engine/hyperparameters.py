"""A model's hyperparameters: typed reads of GGUF metadata under the architecture's prefix."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from stratadesk.errors import GgufError

# Far above any model; a larger count is a damaged header.
LARGEST_COUNT = 1 << 31
_COUNT = f"a count from {{}} to {LARGEST_COUNT - 1:,}"


class Metadata(Protocol):
    """The typed reads of `GgufFile` that hyperparameters need; each raises GgufError."""

    @property
    def architecture(self) -> str:
        """`general.architecture`."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """All keys."""

    def get_int(self, key: str, default: int | None = None) -> int:
        """A whole number, or `default` when the key is absent and one is given."""

    def get_float(self, key: str, default: float | None = None) -> float:
        """A finite number."""

    def get_str(self, key: str, default: str | None = None) -> str:
        """A text."""

    def get_bool(self, key: str, default: bool | None = None) -> bool:
        """True or false."""

    def get_ints(self, key: str) -> Sequence[int]:
        """An array of whole numbers."""

    def get_bools(self, key: str) -> Sequence[bool]:
        """An array of true and false."""


class Hyperparameters:
    """Reads keys without their `<architecture>.` prefix."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.architecture = metadata.architecture

    def key(self, name: str) -> str:
        """The full key as it stands in the file."""
        return f"{self.architecture}.{name}"

    def positive(self, name: str, default: int | None = None) -> int:
        """An integer of at least 1; GgufError when absent without default, or out of range."""
        value = self._metadata.get_int(self.key(name), default)
        if not 1 <= value < LARGEST_COUNT:
            raise GgufError(f"{self.key(name)} is {value}, not {_COUNT.format(1)}.")
        return value

    def natural(self, name: str, default: int | None = None) -> int:
        """An integer of at least 0."""
        value = self._metadata.get_int(self.key(name), default)
        if not 0 <= value < LARGEST_COUNT:
            raise GgufError(f"{self.key(name)} is {value}, not {_COUNT.format(0)}.")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        """A floating-point number."""
        return self._metadata.get_float(self.key(name), default)

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        return self._metadata.get_str(self.key(name), default)

    def boolean(self, name: str, default: bool | None = None) -> bool:
        """True or false."""
        return self._metadata.get_bool(self.key(name), default)

    def is_list(self, name: str) -> bool:
        """Whether the key is present and not a single value."""
        value = self._metadata.metadata.get(self.key(name))
        return value is not None and not isinstance(value, bool | int | float | str | bytes)

    def integers(self, name: str) -> tuple[int, ...]:
        """An array of whole numbers, empty when absent."""
        key = self.key(name)
        return tuple(self._metadata.get_ints(key)) if key in self._metadata.metadata else ()

    def booleans(self, name: str) -> tuple[bool, ...]:
        """An array of true and false, empty when absent."""
        key = self.key(name)
        return tuple(self._metadata.get_bools(key)) if key in self._metadata.metadata else ()


class KeyedInt(int):
    """A whole number that remembers the keys it was made of, and what each of them is.

    Sums, differences, products and quotients of such numbers remember the keys of both.
    """

    keys: Mapping[str, int]

    @classmethod
    def of(cls, value: int, *sources: int) -> "KeyedInt":
        """Return `value`, made of `sources`, of which those that have keys are remembered."""
        made = cls(value)
        made.keys = {
            key: told
            for source in sources
            if isinstance(source, KeyedInt)
            for key, told in source.keys.items()
        }
        return made

    def __add__(self, other: int) -> "KeyedInt":
        return KeyedInt.of(int(self) + int(other), self, other)

    def __sub__(self, other: int) -> "KeyedInt":
        return KeyedInt.of(int(self) - int(other), self, other)

    def __mul__(self, other: int) -> "KeyedInt":
        return KeyedInt.of(int(self) * int(other), self, other)

    def __floordiv__(self, other: int) -> "KeyedInt":
        return KeyedInt.of(int(self) // int(other), self, other)

    __radd__ = __add__
    __rmul__ = __mul__


class KeyedHyperparameters(Hyperparameters):
    """Counts it reads say where they are from, so that what does not fit can be traced to keys."""

    def positive(self, name: str, default: int | None = None) -> int:
        """An integer of at least 1."""
        return self._keyed(name, super().positive(name, default))

    def natural(self, name: str, default: int | None = None) -> int:
        """An integer of at least 0."""
        return self._keyed(name, super().natural(name, default))

    def _keyed(self, name: str, value: int) -> int:
        key = self.key(name)
        if key not in self._metadata.metadata:
            return value
        number = KeyedInt(value)
        number.keys = {key: value}
        return number


def told_by_keys(sizes: Iterable[int]) -> str:
    """Say which keys make the sizes what they are, as the end of a sentence; "" for no keys."""
    keys = KeyedInt.of(0, *sizes).keys
    told = " and ".join(f"{key} is {value}" for key, value in keys.items())
    return f", as {told}" if told else ""
