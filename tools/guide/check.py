"""Hold this program's engine to PyTorch: the same logits for the same weights.

    python -m tools.guide.check RUN F32.gguf

F32.gguf is the guide of the folder RUN, written by `convert.py --mix f32`. Compares the logits of
the host backend and its draft head with PyTorch's, both in float32, on a chat and on random ids.
Ends with exit code 1 when any differs by more than 1e-3.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from stratadesk.engine.commands import Device, EngineSettings, KvFormat
from stratadesk.engine.logits import write_logits
from stratadesk.kernels.host import compile_cache
from tools.guide import vocabulary
from tools.guide.evaluate import Loaded, load

ALLOWED = 1e-3
QUESTION = "What does head out mean, and when does the alias pay?"

Floats = npt.NDArray[np.float32]


def engine_logits(file: Path, ids: Sequence[int]) -> tuple[Floats, Floats]:
    """Logits of trunk and draft head by this program's engine, [T, V] each."""
    settings = EngineSettings(
        device=Device.HOST, max_context=len(ids), kv_format=KvFormat.F32, chunk=len(ids), mtp=True
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "logits.npz"
        write_logits(file, ids, out, settings)
        with np.load(out) as found:
            return found["logits"], found["mtp_logits"]


@torch.no_grad()  # type: ignore[untyped-decorator]  # torch has no types here
def trained_logits(loaded: Loaded, ids: Sequence[int]) -> tuple[Floats, Floats]:
    """The same by PyTorch, on the CPU: nothing is rounded to less than float32 there."""
    outputs = loaded.guide.cpu()(torch.tensor([list(ids)]))
    return outputs.logits[0].numpy(), outputs.drafted[0].numpy()


def largest_difference(loaded: Loaded, file: Path, ids: Sequence[int]) -> float:
    """The largest difference between the two, in logits."""
    pairs = zip(engine_logits(file, ids), trained_logits(loaded, ids), strict=True)
    return max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)


def main() -> int:
    """Compare, print the figures, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    loaded = load(given.run)
    size = loaded.tokenizer.get_vocab_size()
    with tempfile.TemporaryDirectory() as folder:
        compile_cache.configure(Path(folder))
        chat = vocabulary.prompt(loaded.tokenizer, QUESTION)
        noise = np.random.default_rng(0).integers(0, size, 200).tolist()
        worst = max(largest_difference(loaded, given.file, ids) for ids in (chat, noise))
    print(f"logits of host engine and PyTorch differ by at most {worst:.1e} (allowed {ALLOWED})")
    return int(worst > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
