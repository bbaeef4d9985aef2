"""Record the demo: a real run of a tiny test model on a simulated card, event by event.

python tools/record_demo.py [--out stratadesk/demo/recorded.jsonl]
"""

import argparse
import os
import time
from pathlib import Path

from stratadesk.demo.recording import RECORDED, Moment, Recording, parse_recording, written
from stratadesk.engine.commands import (
    EngineSettings,
    Generate,
    LoadModel,
    Message,
    SamplingSettings,
)
from stratadesk.engine.events import Event, ModelLoaded, RequestFinished
from stratadesk.engine.loop import Engine
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.units import GIB, KIB, MIB

ROOT = Path(__file__).resolve().parent.parent
MODEL = Path("tests/data/models/qwen35moe-ud-q4k.gguf")
"""Relative, so that the recording names no folder of this machine."""
QUESTION = "Read this long text about routers and say what you make of it."
PARAGRAPH = "Each token is sent to a few experts by a router; the others are not read for it. "
WORDS = "a 4 MiB test model, simulated card; its words are noise"
PATIENCE_S = 120.0
AFTER_S = 1.5
"""Seconds recorded after the answer."""


def settings(context: int) -> EngineSettings:
    """A card just too small for all experts."""
    return EngineSettings(
        max_context=context,
        plan=PlanSettings(reserve=1 * MIB, short_read=8, block_bytes=64 * KIB),
        machine=MachineFacts(card=10 * MIB, free=8 * MIB + 512 * KIB, ram=32 * GIB),
    )


def record(context: int, paragraphs: int, tokens: int) -> Recording:
    """Load the model, ask once, and keep all that is said."""
    engine = Engine()
    moments: list[Moment] = []

    def listen(until: type[Event] | None, patience: float) -> None:
        deadline = time.monotonic() + patience
        while (left := deadline - time.monotonic()) > 0:
            event = engine.events.get(left)
            if event is not None:
                moments.append(Moment(time.monotonic(), event))
            if until is not None and isinstance(event, until):
                return

    engine.start()
    for _ in ("compiling kernels", "recorded"):
        listen(None, 0.1)
        moments.clear()
        engine.send(LoadModel(MODEL, settings(context)))
        listen(ModelLoaded, PATIENCE_S)
    listen(None, AFTER_S)
    asked = Message("user", QUESTION + "\n\n" + PARAGRAPH * paragraphs)
    engine.send(
        Generate(
            1,
            messages=(asked,),
            max_tokens=tokens,
            sampling=SamplingSettings(seed=7),
            ignore_eos=True,
        )
    )
    listen(RequestFinished, PATIENCE_S)
    listen(None, AFTER_S)
    engine.stop()
    whole = Recording(WORDS, QUESTION, loading=(), answer=tuple(moments))
    return parse_recording(written(whole))


def main() -> None:
    """Write the recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "stratadesk/demo" / RECORDED)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--paragraphs", type=int, default=90)
    parser.add_argument("--tokens", type=int, default=240)
    arguments = parser.parse_args()
    os.chdir(ROOT)
    recording = record(arguments.context, arguments.paragraphs, arguments.tokens)
    arguments.out.write_text(written(recording), "utf-8")
    print(f"{arguments.out}: {len(recording.loading)} + {len(recording.answer)} events")


if __name__ == "__main__":
    main()
