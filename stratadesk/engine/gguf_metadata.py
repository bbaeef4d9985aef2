"""Metadata of a GGUF header and the typed ways to ask for it."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stratadesk.engine.gguf_cursor import quote
from stratadesk.engine.gguf_strings import StringArray
from stratadesk.errors import GgufError

OTHER_COPY = "Download the file again, or one that somebody else has converted."
NumberArray = NDArray[np.generic]
MetadataValue = bool | int | float | str | bytes | NumberArray | StringArray
"""A value as read: a string that is not UTF-8 stays `bytes`, number arrays are read-only."""


def describe(value: MetadataValue) -> str:
    """Say in words what kind of value this is."""
    if isinstance(value, StringArray):
        return f"an array of {len(value):,} strings"
    if isinstance(value, np.ndarray):
        items = "booleans" if value.dtype == np.bool_ else f"{value.dtype.name} numbers"
        return f"an array of {value.size:,} {items}"
    names = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        bytes: "a text that is not UTF-8",
    }
    return names[type(value)]


class MetadataGetters:
    """Typed access to `metadata`; `label` is the quoted file name for error sentences.

    Every getter raises GgufError when the value has another type, naming key, got and wanted,
    and when a key without default is missing.
    """

    metadata: Mapping[str, MetadataValue]
    label: str

    def get_int(self, key: str, default: int | None = None) -> int:
        """Return a whole number."""
        value = self._find(key, default, "a whole number")
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._mismatch(key, value, "a whole number")
        return value

    def get_float(self, key: str, default: float | None = None) -> float:
        """Return a finite number; whole numbers are converted."""
        value = self._find(key, default, "a number")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._mismatch(key, value, "a number")
        if not math.isfinite(value):
            raise GgufError(
                f"{quote(key)} in {self.label} is {value}, not a finite number.", OTHER_COPY
            )
        return float(value)

    def get_str(self, key: str, default: str | None = None) -> str:
        """Return a text."""
        value = self._find(key, default, "a text")
        if not isinstance(value, str):
            raise self._mismatch(key, value, "a text")
        return value

    def get_bool(self, key: str, default: bool | None = None) -> bool:
        """Return true or false."""
        value = self._find(key, default, "true or false")
        if not isinstance(value, bool):
            raise self._mismatch(key, value, "true or false")
        return value

    def get_strings(self, key: str) -> StringArray:
        """Return an array of strings, not yet decoded."""
        value = self._find(key, None, "an array of strings")
        if not isinstance(value, StringArray):
            raise self._mismatch(key, value, "an array of strings")
        return value

    def get_ints(self, key: str) -> list[int]:
        """Return an array of whole numbers."""
        items: list[int] = self._numbers(key, "iu", "an array of whole numbers").tolist()
        return items

    def get_floats(self, key: str) -> list[float]:
        """Return an array of numbers; whole numbers are converted, NaN may occur."""
        numbers = self._numbers(key, "fiu", "an array of numbers")
        items: list[float] = numbers.astype(np.float64).tolist()
        return items

    def get_bools(self, key: str) -> list[bool]:
        """Return an array of true and false."""
        items: list[bool] = self._numbers(key, "b", "an array of true and false").tolist()
        return items

    def _numbers(self, key: str, kinds: str, wanted: str) -> NumberArray:
        value = self._find(key, None, wanted)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            raise self._mismatch(key, value, wanted)
        return value

    def _find(self, key: str, default: MetadataValue | None, wanted: str) -> MetadataValue:
        value = self.metadata.get(key, default)
        if value is None:
            raise GgufError(
                f"{self.label} lacks the metadata key {quote(key)} ({wanted}).", OTHER_COPY
            )
        return value

    def _mismatch(self, key: str, value: MetadataValue, wanted: str) -> GgufError:
        return GgufError(
            f"{quote(key)} in {self.label} is {describe(value)}, not {wanted}.", OTHER_COPY
        )
