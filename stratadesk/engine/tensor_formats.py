"""How tensors are stored: block sizes of every GGUF type, and which of them can be computed."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gguf.constants import GGML_QUANT_SIZES

HOST_FORMATS: tuple[str, ...] = (
    *("F32", "F16", "BF16"),
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"),
    *("IQ4_NL", "IQ4_XS", "MXFP4"),
)
"""Names of the formats that the host backend computes with."""


@dataclass(frozen=True, slots=True)
class TensorFormat:
    """One storage type: `block_values` values of a row share `block_bytes` bytes."""

    name: str
    type_id: int
    block_values: int
    block_bytes: int

    def row_bytes(self, n_values: int) -> int:
        """Return the bytes of a row of `n_values`, which is a whole number of blocks.

        Raises:
            ValueError: `n_values` is not a multiple of `block_values`.
        """
        if n_values % self.block_values:
            raise ValueError(f"{n_values} values are not whole blocks of {self.block_values}")
        return n_values // self.block_values * self.block_bytes


def _known_formats() -> Mapping[int, TensorFormat]:
    return MappingProxyType(
        {
            int(kind): TensorFormat(kind.name, int(kind), block_values, block_bytes)
            for kind, (block_values, block_bytes) in GGML_QUANT_SIZES.items()
        }
    )


_BY_ID = _known_formats()
_BY_NAME = MappingProxyType({known.name: known for known in _BY_ID.values()})


def format_by_id(type_id: int) -> TensorFormat | None:
    """Return the format with this number in GGUF files, or None for an unknown number."""
    return _BY_ID.get(type_id)


def format_by_name(name: str) -> TensorFormat | None:
    """Return the format called `name`, such as "Q4_K", or None for an unknown name."""
    return _BY_NAME.get(name)
