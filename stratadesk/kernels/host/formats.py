"""The tensor formats this backend computes: storage, block size, and the kernels of each."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host import decode_plain as plain
from stratadesk.kernels.host import decode_super as super_blocks
from stratadesk.kernels.host.kernel import Kernel, specialise
from stratadesk.kernels.host.matmul import (
    MATMUL_SIGNATURE,
    ROWS_SIGNATURE,
    TILE_COLUMNS,
    matmul,
    rows,
)


@dataclass(frozen=True, slots=True)
class HostFormat:
    """A tensor format: `block_values` values lie in `block_units` storage units of `unit`."""

    name: str
    unit: npt.DTypeLike
    block_values: int
    block_units: int
    decode: Any
    matmul: Kernel
    rows: Kernel

    def units(self, values: int) -> int:
        """Storage units of a row of `values` values, a multiple of the block."""
        return values // self.block_values * self.block_units

    @property
    def tile_units(self) -> int:
        """Storage units of one tile's columns."""
        return self.units(TILE_COLUMNS)


def _format(name: str, unit: str, values: int, units: int, decode: Any) -> HostFormat:
    return HostFormat(
        name,
        np.dtype(unit),
        values,
        units,
        decode,
        specialise(matmul, MATMUL_SIGNATURE, decode, UNIT=np.dtype(unit).type),
        specialise(rows, ROWS_SIGNATURE.format(unit=unit), decode),
    )


FORMATS = {
    item.name: item
    for item in (
        _format("F32", "float32", 1, 1, plain.decode_f32),
        _format("F16", "uint16", 1, 1, plain.decode_f16),
        _format("BF16", "uint16", 1, 1, plain.decode_bf16),
        _format("Q8_0", "uint8", 32, 34, plain.decode_q8_0),
        _format("Q5_0", "uint8", 32, 22, plain.decode_q5_0),
        _format("IQ4_NL", "uint8", 32, 18, plain.decode_iq4_nl),
        _format("Q4_K", "uint8", 256, 144, super_blocks.decode_q4_k),
        _format("Q5_K", "uint8", 256, 176, super_blocks.decode_q5_k),
        _format("Q6_K", "uint8", 256, 210, super_blocks.decode_q6_k),
        _format("IQ4_XS", "uint8", 256, 136, super_blocks.decode_iq4_xs),
    )
}
