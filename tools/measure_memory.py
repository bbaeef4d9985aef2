"""Measure the peak of resident memory while a model answers, against its bound.

    python -m tools.measure_memory MODEL.gguf [run flags …]

The bound is the mapped file + KV cache and state + 400 MB. Linux only (VmHWM).
"""

import json
import subprocess
import sys

SPARE = 400_000_000

SCRIPT = """
import json, sys
from pathlib import Path
from stratadesk.cli.inputs import engine_settings
from stratadesk.cli.parser import build_parser
from stratadesk.engine.loading import load_model

arguments = build_parser().parse_args(["run", "-p", "x", *sys.argv[1:]])
model = load_model(Path(arguments.model), engine_settings(arguments), lambda progress: None)
state = model.new_state()
prompt = [token % model.vocab_size for token in range(7, 7 + min(300, model.context - 40))]
logits = model.forward(state, prompt, logits="last")
for _ in range(32):
    logits = model.forward(state, [int(logits.argmax())], logits="last")
status = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
kept = model.kv_bytes + model.state_bytes
print(json.dumps({"peak": peak, "file": model.file_bytes, "kv": kept}))
"""


def main() -> int:
    """Print the measurement; returns 1 when the bound is exceeded."""
    command = [sys.executable, "-c", SCRIPT, "-m", *sys.argv[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    bound = found["file"] + found["kv"] + SPARE
    print(
        f"{sys.argv[1]}: peak {found['peak'] / 1e6:,.0f} MB of at most {bound / 1e6:,.0f} MB "
        f"(file {found['file'] / 1e6:,.0f} + KV and state {found['kv'] / 1e6:,.0f} + 400)"
    )
    return int(found["peak"] > bound)


if __name__ == "__main__":
    sys.exit(main())
