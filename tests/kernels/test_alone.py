"""Guards against small work on one thread giving other bits than the same work on all of them.

A prompt is read on all threads and an answer is often written on one: if they differed in a bit,
an answer would depend on how its prompt was cut into chunks.
"""

from typing import Any

import numpy as np
import pytest

from stratadesk.kernels.host import delta_net, elementwise
from stratadesk.kernels.host.attention import ATTENTION
from stratadesk.kernels.host.formats import FORMATS
from stratadesk.kernels.host.kernel import SMALL, Kernel
from stratadesk.kernels.host.kv_cache import cached_units, store_values
from stratadesk.kernels.host.speed import random_blocks
from stratadesk.kernels.host.weights import HostWeight


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def both(kernel: Kernel, out: np.ndarray, *args: Any) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel writes to `out`, one of its arguments, on all threads and on one."""
    kernel.compile()
    results = []
    for function in (kernel.dispatcher, kernel.alone):
        out.fill(np.nan)
        function(*args)
        results.append(out.copy())
    return results[0], results[1]


@pytest.mark.parametrize("name", FORMATS)
def test_a_product_has_the_same_bits_on_one_thread(name: str) -> None:
    item = FORMATS[name]
    item.rows.compile()
    columns = 1280 if 1280 % item.block_values == 0 else 4 * item.block_values
    for tokens, rows, matrices in ((1, 5, 1), (3, 8, 2), (7, 33, 1)):
        blocks = random_blocks(item, matrices * rows * columns // item.block_values)
        weight = HostWeight.wrap(blocks.reshape(-1), name, (matrices, rows, columns))
        x, out = drawn(tokens, columns), np.empty((tokens, rows), np.float32)
        order = np.arange(tokens, dtype=np.int32)
        starts = np.linspace(0, tokens, matrices + 1).astype(np.int32)
        addresses = weight.addresses(np.arange(matrices, dtype=np.int32))
        shape = (weight.row_units, item.tile_units, rows)
        one, other = both(item.matmul, out, addresses, *shape, x, 1, order, starts, out, 0)
        assert np.isfinite(one).all()
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_has_the_same_bits_on_one_thread(name: str) -> None:
    tokens, heads, kv_heads, size, held = 3, 4, 2, 96, 50
    units = cached_units(FORMATS[name], size)
    cached = []
    for seed in (1, 2):
        target = np.empty(held * kv_heads * units, FORMATS[name].unit)
        values = np.random.default_rng(seed).standard_normal((held, kv_heads, size), np.float32)
        store_values(values, name, target)
        cached.append(target)
    out = np.empty((tokens, heads, size), np.float32)
    seen = (held - tokens, np.float32(0.1), 0, np.empty(0, np.float32))
    one, other = both(
        ATTENTION[name], out, drawn(tokens, heads, size), *cached, units, kv_heads, *seen, out
    )
    assert np.isfinite(one).all()
    assert one.tobytes() == other.tobytes()


def test_the_delta_rule_has_the_same_bits_on_one_thread() -> None:
    tokens, heads, size = 5, 4, 48
    out, state = (
        np.empty((tokens, heads, size), np.float32),
        np.empty((heads, size, size), np.float32),
    )
    gates = np.abs(drawn(2, tokens, heads)) % 1
    args = (
        drawn(tokens, 2 * 2 * size + heads * size), gates[0].copy(), gates[1].copy(),
        np.array([0, 1, 0, 1], np.int32), 2, np.float32(1e-6), drawn(heads, size, size),
    )  # fmt: skip
    for written in (out, state):
        one, other = both(delta_net.delta_steps, written, *args, state, out)
        assert np.isfinite(one).all()
        assert one.tobytes() == other.tobytes()


def test_what_works_value_by_value_has_the_same_bits_on_one_thread() -> None:
    out = np.empty((6, 333), np.float32)
    found = both(elementwise.swiglu, out, drawn(6, 666), out)
    assert found[0].tobytes() == found[1].tobytes()
    args = (drawn(3, 333), drawn(6, 333), drawn(333, 4))
    found = both(delta_net.causal_convolution, out, *args, out)
    assert found[0].tobytes() == found[1].tobytes()


def test_work_is_done_alone_as_long_as_it_is_small() -> None:
    ran: list[str] = []
    kernel = Kernel(
        "k", "", lambda *_: ran.append("all"), lambda *_: ran.append("alone"), lambda n, *_: n
    )
    kernel(SMALL, "x")
    kernel(SMALL + 1, "x")
    Kernel("k", "", lambda *_: ran.append("all"))(1)
    assert ran == ["alone", "all", "all"]


def test_the_work_of_a_product_grows_with_matrices_and_entries() -> None:
    work = FORMATS["F32"].matmul.work
    assert work is not None
    x, addresses = np.empty((4, 100), np.float32), np.zeros(1, np.int64)
    order, starts = np.zeros(4, np.int32), np.zeros(2, np.int32)
    assert work(addresses, 100, 1024, 10, x, 1, order, starts, x, 0) == 4 * 10 * 100
    assert work(np.zeros(8, np.int64), 100, 1024, 10, x, 1, order, starts, x, 0) == 8 * 10 * 100
