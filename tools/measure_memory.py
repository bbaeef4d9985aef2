"""Measure the peak of resident memory while models answer, against its bound.

    python -m tools.measure_memory MODEL.gguf [MODEL.gguf …] [run flags …]

Each model reads up to 300 tokens and writes 32, in a process of its own. The bound is the mapped
file + KV cache and state + 400 MB; MB are 10^6 bytes. Linux only (VmHWM, RssAnon).
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

SPARE = 400_000_000

SCRIPT = """
import json, sys
from pathlib import Path
from stratadesk.cli.inputs import engine_settings
from stratadesk.cli.parser import build_parser
from stratadesk.engine.loading import load_model

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

arguments = build_parser().parse_args(["run", "-p", "x", *sys.argv[1:]])
model = load_model(Path(arguments.model), engine_settings(arguments), lambda progress: None)
state = model.new_state()
prompt = [token % model.vocab_size for token in range(7, 7 + min(300, model.context - 40))]
logits = model.forward(state, prompt, logits="last")
for _ in range(32):
    logits = model.forward(state, [int(logits.argmax())], logits="last")
print(json.dumps({
    "peak": status("VmHWM"),
    "own": status("RssAnon") + status("RssShmem"),
    "file": model.file_bytes,
    "kv": model.kv_bytes + model.state_bytes,
}))
"""

COLUMNS = ("model", "peak MB", "bound MB", "file", "KV, state", "not of the file")


def main() -> int:
    """Print a table of the measurements; returns 1 when a bound is exceeded, 2 without a model."""
    models = list(takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
    if not models:
        print(__doc__)
        return 2
    flags = sys.argv[1 + len(models) :]
    print(_row(COLUMNS), _row(["---"] + ["---:"] * (len(COLUMNS) - 1)), sep="\n", flush=True)
    within = [_within_bound(model, flags) for model in models]
    return int(not all(within))


def _within_bound(model: str, flags: Sequence[str]) -> bool:
    """Measure one model and print its row."""
    command = [sys.executable, "-c", SCRIPT, "-m", model, *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{model} did not run:\n{done.stderr.strip()}")
    found: dict[str, int] = json.loads(done.stdout)
    bound = found["file"] + found["kv"] + SPARE
    figures = (found["peak"], bound, found["file"], found["kv"], found["own"])
    name = Path(model).stem + (" (above its bound)" if found["peak"] > bound else "")
    print(_row([name, *(f"{figure / 1e6:,.1f}" for figure in figures)]), flush=True)
    return found["peak"] <= bound


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
