"""Measure the CUDA kernels on the card that is here.

Usage: python tools/bench_cuda.py [--json OUT] [--formats Q4_K,...] [--cubins FOLDER]

Prints, for each format, how fast one token and four are multiplied with a weight of at least
64 MiB, beside what a kernel reaches that only reads. A launch's time is the median over groups of
launches that go through more memory than the card's cache holds.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cupy.cuda import Event, runtime

sys.path.insert(0, str(Path(__file__).parents[1]))

from stratadesk.kernels.cuda import programs
from stratadesk.kernels.cuda.cubins import CubinStore, Kernels
from stratadesk.kernels.cuda.device import open_device
from stratadesk.kernels.cuda.memory import CudaMemory
from stratadesk.kernels.cuda.ops import CudaOps
from stratadesk.kernels.cuda.ops_base import blocks
from stratadesk.kernels.cuda.tensors import DeviceTensor, DeviceWeight, DeviceWorkspace
from stratadesk.units import MIB

LEAST = 64 * MIB
COLUMNS = 4_096
SPACE = 1_536 * MIB
FILL = 96 * MIB
"""Different bytes that weights are filled with, again and again; SPACE is a multiple."""
GROUPS = 15


class Bench:
    """The card, its kernels, and memory full of valid blocks."""

    def __init__(self, formats: list[str], cubins: Path) -> None:
        self.device = open_device()
        kernels, store = Kernels(), CubinStore(cubins, self.device.arch)
        chosen = (*programs.needed(formats, "F16"), programs.BANDWIDTH)
        kernels.load(chosen, store, lambda done, total: None)
        self.memory = CudaMemory(self.device, 2 * MIB)
        self.memory.allocate(SPACE + 64 * MIB)
        self._fill()
        self.ops = CudaOps(self.device, kernels)
        self.scratch = DeviceWorkspace(self.memory.address + SPACE, 64 * MIB)
        self.ops.workspace = self.scratch

    def _fill(self) -> None:
        """Any bytes are blocks of every format. Equal ones would find codebooks free of conflicts.

        Scales among them that are no numbers take no longer than others.
        """
        some = np.random.default_rng(0).integers(0, 256, FILL, np.uint8)
        runtime.memcpy(self.memory.address, some.ctypes.data, FILL, 1)
        for at in range(FILL, SPACE, FILL):
            runtime.memcpy(self.memory.address + at, self.memory.address, FILL, 3)
        runtime.memset(self.memory.address + SPACE, 0, 64 * MIB)
        runtime.deviceSynchronize()

    def microseconds(self, launches: Sequence[Callable[[], object]]) -> float:
        """Median time of one launch, all of them one behind the other in a captured graph."""
        stream, found = self.device.stream, []
        stream.begin_capture()
        for launch in launches:
            launch()
        graph = stream.end_capture()
        for _ in range(GROUPS):
            begin, end = Event(), Event()
            begin.record(stream)
            graph.launch(stream)
            end.record(stream)
            end.synchronize()
            found.append(1e3 * _elapsed(begin, end) / len(launches))
        return statistics.median(found)

    def reading(self, n_bytes: int) -> float:
        """GB/s of the kernel that only reads, for pieces of `n_bytes`."""
        sums = self.scratch.tensor(1 << 16)
        grid = 8 * self.device.multiprocessors
        pieces = [self.memory.address + at for at in range(0, SPACE - n_bytes, n_bytes)]
        launches = [
            lambda at=at: self.ops._launch(
                programs.BANDWIDTH, "read_all", (grid,), 512, at, np.uint64(n_bytes // 16), sums
            )
            for at in pieces
        ]
        return n_bytes / self.microseconds(launches) / 1e3

    def products(self, name: str, tokens: int) -> dict[str, float]:
        """GB/s and microseconds of y = W x with a weight of at least 64 MiB."""
        row_bytes = DeviceWeight(name, 0, (1, COLUMNS)).row_bytes
        rows = blocks(LEAST, row_bytes)
        size = rows * row_bytes
        starts = [
            self.memory.address + at for at in range(0, SPACE - size, blocks(size, 256) * 256)
        ]
        weights = [DeviceWeight(name, start, (rows, COLUMNS)) for start in starts]
        with self.scratch.scope():
            x = self.scratch.tensor_and_fixed(tokens, COLUMNS)
            time_us = self.microseconds([self._product(weight, x) for weight in weights])
        return {"us": time_us, "gb_per_s": size / time_us / 1e3, "bytes": float(size)}

    def _product(self, weight: DeviceWeight, x: DeviceTensor) -> Callable[[], object]:
        def launch() -> None:
            with self.scratch.scope():
                self.ops.linear(weight, x)
                self.ops.flush()

        return launch


def _elapsed(begin: Any, end: Any) -> float:
    """Milliseconds between two events."""
    from cupy.cuda import get_elapsed_time

    return float(get_elapsed_time(begin, end))


def measure(formats: list[str], cubins: Path) -> Iterator[dict[str, Any]]:
    """One row for the card, then one for each format."""
    bench = Bench(formats, cubins)
    most = bench.reading(LEAST)
    yield {
        "card": bench.device.name,
        "arch": bench.device.arch,
        "read_gb_per_s": most,
        "date": time.strftime("%Y-%m-%d"),
    }
    for name in formats:
        row: dict[str, Any] = {"format": name}
        for tokens in (1, 4):
            found = bench.products(name, tokens)
            row[f"gb_per_s_{tokens}"] = found["gb_per_s"]
            row[f"share_{tokens}"] = found["gb_per_s"] / most
        yield row


def main() -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description="Measure the CUDA kernels.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--formats", default=",".join(programs.FORMATS))
    parser.add_argument("--cubins", type=Path, default=Path(".cubins"))
    options = parser.parse_args()
    rows = []
    for row in measure(options.formats.split(","), options.cubins):
        rows.append(row)
        if "card" in row:
            print(f"{row['card']} ({row['arch']}): reads {row['read_gb_per_s']:,.0f} GB/s")
        else:
            shares = " ".join(
                f"{row[f'gb_per_s_{n}']:8,.0f} GB/s {row[f'share_{n}']:5.0%}" for n in (1, 4)
            )
            print(f"{row['format']:8} {shares}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
