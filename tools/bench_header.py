"""How long the header of a model takes to open, and how long its tokens take to decode.

Usage, from the project's folder:
    python -m tools.bench_header [MODEL.gguf] [--repeat N]

Without a model it writes a vocabulary of 248,320 tokens and 247,587 merges and opens that.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from stratadesk.engine.gguf_file import GgufFile
from tests.gguf_builder import big_vocabulary

TOKENS_KEY = "tokenizer.ggml.tokens"


def median_seconds(work: Callable[[], object], repeat: int) -> float:
    """Run `work` several times and return the median duration."""
    durations = []
    for _ in range(repeat):
        started = time.perf_counter()
        work()
        durations.append(time.perf_counter() - started)
    return statistics.median(durations)


def open_and_close(path: Path) -> None:
    """Open a model and close it again."""
    GgufFile.open(path).close()


def report(path: Path, repeat: int) -> None:
    """Print the medians for one model."""
    with GgufFile.open(path) as gguf:
        tokens = gguf.get_strings(TOKENS_KEY)
        opening = median_seconds(lambda: open_and_close(path), repeat)
        decoding = median_seconds(tokens.to_list, repeat)
        print(f"{path.name}: {len(gguf.tensors):,} tensors, {len(tokens):,} tokens")
        print(f"  open          {opening * 1e3:8.1f} ms")
        print(f"  decode tokens {decoding * 1e3:8.1f} ms")


def main() -> None:
    """Measure the model named on the command line, or a written one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    if arguments.model:
        report(arguments.model, arguments.repeat)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = big_vocabulary(248_320, 247_587).write(Path(folder) / "vocabulary.gguf")
        report(path, arguments.repeat)


if __name__ == "__main__":
    main()
