"""Make the guide in one run: train, convert, check, evaluate.

    python -m tools.guide.make RUN [--minutes 5] [--held-out] [--tiny]

Everything lands in the folder RUN; `guide.gguf` is what gets bundled, `table.md` what was measured.
Other flags are those of `train.py`. Ends with exit code 1 when the file's logits are not PyTorch's.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

TEXTS = Path(__file__).parent / "texts"


def module(name: str, *arguments: object) -> int:
    """Run one step as a program of its own, so that its memory is gone afterwards."""
    began = time.monotonic()
    command = [sys.executable, "-m", f"tools.guide.{name}", *map(str, arguments)]
    code = subprocess.run(command, check=False).returncode
    print(f"-- {name}: exit code {code}, {time.monotonic() - began:.0f} s", flush=True)
    return code


def main() -> int:
    """Run the steps that the command line asks for and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--held-out", action="store_true", help="ask the held-out questions")
    given, training = parser.parse_known_args()
    run: Path = given.run
    if module("train", run, *training):
        return 1
    guide, exact = run / "guide.gguf", run / "f32.gguf"
    if module("convert", run, guide) or module("convert", run, exact, "--mix", "f32"):
        return 1
    asked = ["--held-out"] if given.held_out else []
    samples = ["--samples", TEXTS / "samples.txt"]
    failed = module("evaluate", run, guide, *asked, *samples, "--out", run / "table.md")
    return int(bool(failed) or bool(module("check", run, exact)))


if __name__ == "__main__":
    sys.exit(main())
