"""Measure what the host does for each token that a model on a card writes.

Usage: python tools/bench_writing.py MODEL [--json OUT] [--tokens 256]

For each token: how often the host waited for the card, how long it waited, and how long it was
busy otherwise. A token's time less the waiting is the host's own; while it is shorter than a step,
the card never waits for it. Sampling has no influence on it: the card draws.
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from stratadesk.engine.commands import Device, EngineSettings, SamplingSettings
from stratadesk.engine.cuda_model import CudaModel
from stratadesk.engine.loading import load_model
from stratadesk.engine.sampler import Sampler

PROMPT = (5, 9, 2, 31, 7, 7, 14, 3)
WARM_UP = 32


class Waits:
    """Counts and times how often the host waits."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0

    def timed(self, wait: Any) -> Any:
        """The same function, counted."""

        def waiting(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return wait(*arguments, **named)
            finally:
                self.count += 1
                self.seconds += time.perf_counter() - began

        return waiting


class _Stream:
    """A stream whose events are waited for through `waits`."""

    def __init__(self, stream: Any, waits: Waits) -> None:
        self._stream, self._waits = stream, waits

    def record(self) -> Any:
        return _Event(self._stream.record(), self._waits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Event:
    def __init__(self, event: Any, waits: Waits) -> None:
        self.synchronize = waits.timed(event.synchronize)


def watch(model: CudaModel) -> Waits:
    """Have everything by which writing could wait for the card counted from now on."""
    waits, ops = Waits(), model.contents.ops
    stream: Any = _Stream(ops.device.stream, waits)
    ops.device = dataclasses.replace(ops.device, stream=stream)
    for name in ("upload", "download"):
        setattr(ops, name, waits.timed(getattr(ops, name)))
    return waits


def measure(model: CudaModel, count: int) -> dict[str, float]:
    """Write `count` tokens; figures of one token. The model must not be used otherwise after."""
    for name in ("draw", "write 0", "write 1"):
        model.graph_of(name)
    how, state = SamplingSettings(), model.new_state()
    model.forward(state, PROMPT, logits="last")
    waits = watch(model)
    writer = model.writer(state, Sampler(how), ())
    if writer is None:
        raise RuntimeError("the card does not draw with the usual settings")

    def write(tokens: int) -> None:
        for _ in range(tokens):
            if writer.next() is None:
                raise RuntimeError("the card could not draw a token")
            writer.hold()

    write(WARM_UP)
    waits.count, waits.seconds = 0, 0.0
    began = time.perf_counter()
    write(count)
    whole = time.perf_counter() - began
    return {
        "tokens": count,
        "us": 1e6 * whole / count,
        "waits": waits.count / count,
        "waited_us": 1e6 * waits.seconds / count,
        "host_us": 1e6 * (whole - waits.seconds) / count,
    }


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description="Measure what the host does for each token.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tokens", type=int, default=256)
    options = parser.parse_args()
    settings = EngineSettings(device=Device.CUDA, max_context=options.tokens + 128)
    model = load_model(options.model, settings, lambda progress: None)
    if not isinstance(model, CudaModel):
        raise TypeError("the model is not on a card")
    row: dict[str, Any] = {"card": model.contents.device.name, "model": model.name}
    row |= {"date": time.strftime("%Y-%m-%d"), **measure(model, options.tokens)}
    print({key: round(v, 2) if isinstance(v, float) else v for key, v in row.items()})
    if options.json:
        options.json.write_text(json.dumps([row], indent=1))
    model.close()


if __name__ == "__main__":
    main()
