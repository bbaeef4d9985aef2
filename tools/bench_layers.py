"""Measure decode steps of layers of the 35B-A3B shape on the card that is here.

Usage: python tools/bench_layers.py [--json OUT] [--format Q4_K] [--layers 20] [--context 4096]

All experts are on the card; a step is one captured graph for one token. For layers of each kind it
prints kernels, time, the bytes that a token reads, and the time beside bytes over bandwidth.
Weights are zeros, which cost as much to read and multiply as any others; the router then takes the
first experts of every layer, and as many layers are computed as hold more than the card's cache.
Where this card starts kernels early, it is measured without that, too.
Last come predicted step times of laptops: bytes over their bandwidth, and what was measured beside
it for each layer of a card that starts kernels as theirs does.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cupy.cuda import runtime

sys.path.insert(0, str(Path(__file__).parents[1]))

from stratadesk.engine.architectures import family
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.gguf_metadata import MetadataGetters
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.kernels.cuda import programs
from stratadesk.kernels.cuda.memory import CudaMemory
from stratadesk.kernels.cuda.ops import CudaOps, DeviceExperts
from stratadesk.kernels.cuda.states import StepState
from stratadesk.kernels.cuda.tensors import DeviceTensor, DeviceWeight, DeviceWorkspace
from stratadesk.units import GIB, MIB
from tools.bench_cuda import Bench

SHAPE: Mapping[str, Any] = {
    "context_length": 262_144,
    "embedding_length": 2_048,
    "attention.head_count": 16,
    "attention.head_count_kv": 2,
    "attention.key_length": 256,
    "attention.value_length": 256,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 1e7,
    "rope.dimension_count": 64,
    "rope.dimension_sections": [11, 11, 10, 0],
    "expert_count": 256,
    "expert_used_count": 8,
    "expert_feed_forward_length": 512,
    "expert_shared_feed_forward_length": 512,
    "ssm.conv_kernel": 4,
    "ssm.state_size": 128,
    "ssm.group_count": 16,
    "ssm.time_step_rank": 32,
    "ssm.inner_size": 4_096,
}
VOCABULARY = 248_320
FLOAT_WEIGHTS = ("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight")
LAYERS_OF_MODEL = {"delta net": 30, "attention": 10}
LAPTOPS = {
    "RTX 4060 Laptop": (256.0, False),
    "RTX 4070 Laptop": (256.0, False),
    "RTX 5070 Laptop": (384.0, True),
}
"""Memory bandwidth in GB/s (128 bits at 16 and 24 Gbit/s), and whether kernels start early."""


class Header(MetadataGetters):
    """The shape as if it were read from a file, with layers of one kind."""

    label = "35B-A3B shape"
    architecture = "qwen35moe"

    def __init__(self, layers: int, *, recurrent: bool) -> None:
        values = {
            **SHAPE,
            "block_count": layers,
            "attention.recurrent_layers": [recurrent] * layers,
        }
        self.metadata = {
            f"qwen35moe.{key}": np.array(value) if isinstance(value, list) else value
            for key, value in values.items()
        }


class EmptyTable(TensorTable):
    """Has every tensor that a layer asks for, in places that nothing is copied to."""

    def __init__(self, ops: CudaOps, space: DeviceWorkspace, form: str) -> None:
        super().__init__({}, self)  # type: ignore[arg-type]
        self._ops, self._space, self._form = ops, space, form
        self._count = 0

    def has(self, name: str) -> bool:
        """Only what must be there, and a head of its own."""
        return name == "output.weight"

    def weight(self, name: str, *shape: int) -> DeviceWeight:
        """A matrix in the format that is measured."""
        form = "F32" if name.endswith(FLOAT_WEIGHTS) else self._form
        sized = DeviceWeight(form, 0, shape)
        n_bytes = max(1, sized.matrices) * sized.matrix_bytes
        return DeviceWeight(form, self._space.take(n_bytes), shape)

    def vector(self, name: str, *shape: int) -> DeviceTensor:
        """A norm or another small tensor."""
        return self._space.tensor(*shape)

    def expert_layer(self, parts: Any, form: Any = None) -> DeviceExperts:
        """Experts of one more layer."""
        self._count += 1
        return self._ops.expert_layer(self._count - 1, parts)


class LayerBench:
    """Layers of one kind on the card, and a graph that computes one token's step through them."""

    def __init__(
        self, base: Bench, form: str, layers: int, context: int, *, recurrent: bool
    ) -> None:
        self.layers = layers
        ops = self.ops = CudaOps(base.device, base.ops._kernels)
        header = Hyperparameters(Header(layers, recurrent=recurrent))
        size = 2 * GIB + layers * 640 * MIB
        self.memory = CudaMemory(base.device, 32 * MIB)
        self.memory.allocate(size)
        runtime.memset(self.memory.address, 0, size)
        runtime.deviceSynchronize()
        space = DeviceWorkspace(self.memory.address, size - GIB)
        ops.resident = DeviceWorkspace(self.memory.address + size - GIB, 768 * MIB)
        ops.workspace = DeviceWorkspace(self.memory.address + size - 256 * MIB, 256 * MIB)
        where, tokens = ops.resident.tensor(2), ops.resident.tensor(8)
        ops.step = StepState(where.address, tokens.address)
        anything: Any = ops
        self.family = family("qwen35moe")(header, EmptyTable(ops, space, form), VOCABULARY)
        self.states = [
            layer.mixer.new_state(anything, context, "F16") for layer in self.family.layers
        ]
        ops.upload(where.address, np.array([context - 2, 0], np.int32))

    def graph(self, count: int) -> tuple[Any, int]:
        """A step through the first `count` layers, and how many kernels it has."""
        stream, anything = self.ops.device.stream, self.ops
        ids = np.zeros(1, np.int32)
        self._compute(ids, count)
        stream.synchronize()
        before = self.ops.launches
        stream.begin_capture()
        self._compute(ids, count)
        return stream.end_capture(), anything.launches - before

    def _compute(self, ids: Any, count: int) -> None:
        anything: Any = self.ops
        model: Any = self.family
        with self.ops.scope():
            chunk = model.chunk(anything, 0, 1)
            x = self.ops.embed(model.embedding, ids)
            for layer, state in zip(model.layers[:count], self.states[:count], strict=True):
                model.advance(anything, x, layer, chunk, state)
            self.ops.flush()

    def head(self) -> tuple[Any, int]:
        """The output norm and the head."""
        stream = self.ops.device.stream
        model: Any = self.family
        x = self.ops.workspace.tensor(1, 2_048)
        stream.begin_capture()
        with self.ops.scope():
            h = self.ops.rms_norm(x, model.output_norm, 1e-6)
            self.ops.linear(model.head, h)
            self.ops.flush()
        return stream.end_capture(), model.head.matrix_bytes


def median_us(base: Bench, graph: Any, repeats: int = 30) -> float:
    """Median time of a replay in microseconds."""
    from cupy.cuda import Event, get_elapsed_time

    found = []
    for _ in range(repeats):
        begin, end = Event(), Event()
        begin.record(base.device.stream)
        graph.launch(base.device.stream)
        end.record(base.device.stream)
        end.synchronize()
        found.append(1e3 * float(get_elapsed_time(begin, end)))
    return float(np.median(found))


def layer_bytes(form: str, context: int, *, recurrent: bool) -> int:
    """Bytes that a token reads and writes in a layer: weights, state, cache."""

    def matrix(rows: int, columns: int, kind: str = form) -> int:
        return DeviceWeight(kind, 0, (rows, columns)).matrix_bytes

    width, inner = 2_048, 512
    experts = 9 * 3 * matrix(inner, width) + matrix(257, width, "F32")
    if recurrent:
        mixer = matrix(8_192 + 4_096 + 64, width) + matrix(width, 4_096)
        return experts + mixer + 2 * 4 * 32 * 128 * 128 + 2 * 4 * 3 * 8_192 + 4 * 4 * 8_192
    mixer = matrix(8_192 + 1_024, width) + matrix(width, 4_096)
    return experts + mixer + 2 * 2 * context * 2 * 256


def measure_layers(
    base: Bench, options: argparse.Namespace, read: float
) -> Iterator[dict[str, Any]]:
    """A row for each kind of layer, and one for the head."""
    graph_us, head_bytes = 0.0, 0
    for kind, recurrent in (("delta net", True), ("attention", False)):
        bench = LayerBench(
            base, options.format, options.layers, options.context, recurrent=recurrent
        )
        half = options.layers // 2
        (few, few_kernels), (all_, kernels) = bench.graph(half), bench.graph(options.layers)
        time_us = (median_us(base, all_) - median_us(base, few)) / (options.layers - half)
        n_bytes = layer_bytes(options.format, options.context, recurrent=recurrent)
        yield {
            "layer": kind,
            "early": base.device.overlaps,
            "kernels": (kernels - few_kernels) / (options.layers - half),
            "us": time_us,
            "bytes": n_bytes,
            "beside_us": time_us - n_bytes / read / 1e3,
        }
        graph, head_bytes = bench.head()
        graph_us = median_us(base, graph)
        bench.memory.release()
    yield {"head_us": graph_us, "early": base.device.overlaps, "bytes": head_bytes}


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each kind of layer, one for the head, one for each laptop."""
    base = Bench([options.format, "F32"], options.cubins)
    read = base.reading(512 * MIB)
    rows: list[dict[str, Any]] = [{"card": base.device.name, "date": time.strftime("%Y-%m-%d")}]
    rows[0]["read_gb_per_s"] = read
    rows += measure_layers(base, options, read)
    if base.device.overlaps:
        base.device = replace(base.device, overlaps=False)
        rows += measure_layers(base, options, read)
    total = next(row["bytes"] for row in rows if "head_us" in row) + sum(
        count * layer_bytes(options.format, options.context, recurrent=kind == "delta net")
        for kind, count in LAYERS_OF_MODEL.items()
    )
    for name, (bandwidth, early) in LAPTOPS.items():
        alike = [row for row in rows if "layer" in row and row["early"] == early]
        beside = {row["layer"]: row["beside_us"] for row in alike}
        if beside:
            fixed_us = sum(count * beside[kind] for kind, count in LAYERS_OF_MODEL.items())
            step_us = total / bandwidth / 1e3 + fixed_us
            rows.append({"laptop": name, "step_us": step_us, "tokens_per_s": 1e6 / step_us})
    return rows


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description="Measure layers of the 35B-A3B shape.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--format", default="Q4_K", choices=programs.FORMATS)
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--context", type=int, default=4_096)
    parser.add_argument("--cubins", type=Path, default=Path(".cubins"))
    options = parser.parse_args()
    rows = measure(options)
    for row in rows:
        print({key: round(v, 2) if isinstance(v, float) else v for key, v in row.items()})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
