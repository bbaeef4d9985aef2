"""The tensor formats this backend computes: storage, block size, and the kernels of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from stratadesk.kernels.host import (
    decode_codebook,
    decode_iq1,
    decode_iq2,
    decode_iq3,
    decode_plain,
    decode_super,
)
from stratadesk.kernels.host.kernel import Kernel, specialise
from stratadesk.kernels.host.matmul import (
    MATMUL_SIGNATURE,
    ROWS_SIGNATURE,
    TILE_COLUMNS,
    matmul,
    matmul_work,
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


_UNITS: Mapping[str, npt.DTypeLike] = {"F32": np.float32, "F16": np.uint16, "BF16": np.uint16}
"""Storage units of the formats without blocks; the others are stored in bytes."""

_DECODERS = (
    *(decode_plain.decode_f32, decode_plain.decode_f16, decode_plain.decode_bf16),
    *(decode_plain.decode_q4_0, decode_plain.decode_q4_1),
    *(decode_plain.decode_q5_0, decode_plain.decode_q5_1, decode_plain.decode_q8_0),
    *(decode_super.decode_q2_k, decode_super.decode_q3_k, decode_super.decode_q4_k),
    *(decode_super.decode_q5_k, decode_super.decode_q6_k),
    *(decode_iq1.decode_iq1_s, decode_iq1.decode_iq1_m),
    *(decode_iq2.decode_iq2_xxs, decode_iq2.decode_iq2_xs, decode_iq2.decode_iq2_s),
    *(decode_iq3.decode_iq3_xxs, decode_iq3.decode_iq3_s),
    *(decode_codebook.decode_iq4_nl, decode_codebook.decode_iq4_xs),
    decode_codebook.decode_mxfp4,
)


def _format(decode: Any) -> HostFormat:
    """The format that `decode` is named after."""
    name = decode.__name__.removeprefix("decode_").upper()
    values, n_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    unit = np.dtype(_UNITS.get(name, np.uint8))
    return HostFormat(
        name,
        unit,
        values,
        n_bytes // unit.itemsize,
        decode,
        specialise(matmul, MATMUL_SIGNATURE, decode, work=matmul_work, UNIT=unit.type),
        specialise(rows, ROWS_SIGNATURE.format(unit=unit), decode, parallel=False),
    )


FORMATS = {item.name: item for item in map(_format, _DECODERS)}
