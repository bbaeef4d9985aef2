"""Guards against headers that take seconds and hundreds of megabytes, as big vocabularies do.

Every measurement is a fresh process: peak memory of this one would count earlier tests.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gguf_builder import GgufBuilder, big_vocabulary

TOKENS, MERGES = 248_320, 247_587
MAX_BYTES = 60_000_000
MAX_SECONDS = 0.3
HEADROOM = 20

MEASURE = """
import json, sys, time
from stratadesk.engine.gguf_file import GgufFile

def memory(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

before, started = memory("VmRSS"), time.perf_counter()
gguf = GgufFile.open(sys.argv[1])
seconds = time.perf_counter() - started
print(json.dumps({
    "seconds": seconds,
    "bytes": memory("VmHWM") - before,
    "strings": sum(len(v) for v in gguf.metadata.values() if type(v).__name__ == "StringArray"),
    "tensors": len(gguf.tensors),
}))
"""


def measure(path: Path) -> dict[str, float]:
    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory of a process is read from /proc, which this system lacks")
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True
    )
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def test_big_vocabulary_is_quick_and_small(tmp_path: Path) -> None:
    figures = measure(big_vocabulary(TOKENS, MERGES).write(tmp_path / "big.gguf"))
    assert figures["strings"] == TOKENS + MERGES
    assert figures["bytes"] < MAX_BYTES
    assert figures["seconds"] < MAX_SECONDS * HEADROOM


def test_opening_reads_no_tensor_data(tmp_path: Path) -> None:
    path = tmp_path / "sparse.gguf"
    n_values = 2**30
    path.write_bytes(GgufBuilder().tensor("big", (1024, n_values // 1024), data=b"").build())
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + 4 * n_values)
    figures = measure(path)
    assert figures["tensors"] == 1
    assert figures["bytes"] < 8_000_000
