"""Guards against a dequantizer that is off by a rounding, a nibble or a scale bit."""

from pathlib import Path

import numpy as np
import pytest

from stratadesk.engine.tensor_formats import HOST_FORMATS, format_by_name
from stratadesk.kernels.host.backend import HostOps
from stratadesk.kernels.host.formats import FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_decodes_bit_for_bit(name: str, data_dir: Path) -> None:
    item = FORMATS[name]
    item.rows.compile()
    stored = np.load(data_dir / "dequant.npz")
    wanted = stored[f"{name}_float32"]
    data = np.ascontiguousarray(stored[f"{name}_raw"]).reshape(-1).view(np.uint8).view(item.unit)
    data.flags.writeable = False
    out = np.empty(wanted.shape, np.float32)

    item.rows(data, item.units(wanted.shape[1]), np.arange(len(wanted), dtype=np.int32), out)

    assert np.array_equal(out.view(np.uint32), wanted.view(np.uint32))


def test_the_engine_knows_what_the_kernels_compute() -> None:
    assert tuple(FORMATS) == HOST_FORMATS
    for name, item in FORMATS.items():
        stored = format_by_name(name)
        assert stored is not None
        assert item.block_values == stored.block_values
        assert item.block_units * np.dtype(item.unit).itemsize == stored.block_bytes


@pytest.mark.parametrize("name", ["Q4_K", "Q5_0"])
def test_the_matrix_product_sees_the_same_values(name: str, data_dir: Path) -> None:
    """There the decoder is compiled between sums that may be fused and reordered."""
    FORMATS[name].matmul.compile()
    stored = np.load(data_dir / "dequant.npz")
    wanted = stored[f"{name}_float32"]
    weight = HostOps().weight(stored[f"{name}_raw"].reshape(-1), name, wanted.shape)

    got = HostOps().linear(weight, np.eye(wanted.shape[1], dtype=np.float32))

    assert np.array_equal(got.T, wanted)


def test_all_half_floats_decode_as_numpy_does() -> None:
    item = FORMATS["F16"]
    item.rows.compile()
    halves = np.arange(1 << 16, dtype=np.uint16)
    halves.flags.writeable = False
    out = np.empty((1 << 10, 64), np.float32)

    item.rows(halves, 64, np.arange(1 << 10, dtype=np.int32), out)

    expected = halves.view(np.float16).astype(np.float32)
    finite = ~np.isnan(expected)
    assert np.array_equal(np.isnan(out.ravel()), ~finite)
    assert np.array_equal(out.ravel()[finite], expected[finite])
