"""`bench tui`: what the screen costs while an answer is written."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from stratadesk.cli.model_argument import model_path
from stratadesk.exit_codes import ExitCode
from stratadesk.logs import start_logging
from stratadesk.settings import MOST_TOKENS, Flag

if TYPE_CHECKING:
    from stratadesk.cli.bench_screen import Measured

SPEED, TOKENS, RUNS = 200.0, 10_000, 5
PURPOSE = "what the screen costs while an answer is written"
NUMBERS = (
    Flag(
        "tokens", ("-n", "--tokens"), int, TOKENS, "tokens of the answer", low=100, high=MOST_TOKENS
    ),
    Flag(
        "speed", ("--speed",), float, SPEED, "tokens per second of the answer", low=1, high=100_000
    ),
    Flag("runs", ("--runs",), int, RUNS, "with -m: how often it is compared", low=1, high=1000),
)
ROWS = (
    ("redraws_per_s", "redraws per second", "≤ 20"),
    ("cpu_percent", "CPU of the app's thread, % of one core", ""),
    ("key_p50_ms", "key latency, median, ms", ""),
    ("key_p95_ms", "key latency, 95 % of the keys, ms", "≤ 50"),
    ("longest_stall_ms", "longest stall of the app's thread, ms", ""),
    ("written_kib_per_s", "written to the terminal, KiB/s", ""),
    ("alone_tps", "decoding without the screen, tok/s, best", ""),
    ("under_screen_tps", "decoding under the screen, tok/s, best", ""),
    ("loss_percent", "loss through the screen, %", "≤ 3 (on a card 1)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let `parser` take what can be said about the measurement."""
    from stratadesk.cli.parser import add_number

    add = parser.add_argument
    add("-m", "--model", metavar="MODEL", help="measure how much this one's decoding loses, too")
    for flag in NUMBERS:
        add_number(parser, flag)
    where = "with -m: where it computes (default host)"
    add("--device", choices=("host", "cuda"), default="host", help=where)
    add("--json", action="store_true", default=False, help="print one JSON object")


def bench_tui(arguments: argparse.Namespace) -> int:
    """Measure, print a table or JSON, and return the exit code."""
    import json

    start_logging()
    figures = screen_figures(arguments.tokens, arguments.speed)
    if "model" in arguments:
        model = model_path(arguments.model)
        figures |= decode_figures(model, arguments.runs, arguments.device)
    if arguments.json:
        print(json.dumps({"machine": machine(), "figures": figures}, indent=2))
    else:
        print(as_table(figures))
    return ExitCode.OK


def screen_figures(tokens: int, speed: float) -> dict[str, float]:
    """Measure the app while a made-up engine writes `tokens` at `speed` tokens per second."""
    import asyncio

    from stratadesk.cli.bench_engine import TalkingEngine
    from stratadesk.cli.bench_screen import answering, measure, until
    from stratadesk.engine.commands import EngineSettings

    async def run() -> "Measured":
        engine = TalkingEngine(tokens, speed)
        made_up = Path("bench.gguf")
        async with answering(engine, made_up, EngineSettings(), 0, "Go on.") as (driver, heard):
            await until(engine.writing.is_set)
            return await measure(driver, lambda: heard.finished)

    return summary(asyncio.run(run()))


def summary(measured: "Measured") -> dict[str, float]:
    """Work the figures out of what was seen."""
    latencies = sorted(measured.latencies)
    figures = {
        "redraws_per_s": measured.frames / measured.seconds,
        "cpu_percent": 100 * measured.cpu / measured.seconds,
        "key_p50_ms": 1e3 * share_below(latencies, 0.5),
        "key_p95_ms": 1e3 * share_below(latencies, 0.95),
        "longest_stall_ms": 1e3 * max(measured.stalls, default=0.0),
        "written_kib_per_s": measured.written / measured.seconds / 1024,
    }
    return {name: round(figure, 1) for name, figure in figures.items()}


def share_below(ordered: list[float], share: float) -> float:
    """Return the smallest value that at least `share` of the ordered ones do not exceed.

    >>> share_below([1, 2, 3, 4], 0.5), share_below([1, 2, 3, 4], 0.95)
    (2, 4)
    """
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else 0.0


def decode_figures(model: Path, runs: int, device: str = "host") -> dict[str, float]:
    """Measure decoding with and without the screen, in turns; the best of each is compared.

    What else runs on the machine only ever takes time away, so that the best run is the one
    that was disturbed least.
    """
    from stratadesk.cli.bench_decode import pairs
    from stratadesk.engine.commands import Device, EngineSettings

    speeds = pairs(model, EngineSettings(device=Device(device)), runs)
    alone, under_screen = max(one for one, _ in speeds), max(other for _, other in speeds)
    return {
        "alone_tps": round(alone, 1),
        "under_screen_tps": round(under_screen, 1),
        "loss_percent": round(100 * (1 - under_screen / alone), 1),
    }


def as_table(figures: dict[str, float]) -> str:
    """Write the figures in rows with their goals."""
    rows = [("", "measured", "goal")]
    rows += [
        (words, f"{figures[name]:,.1f}", goal) for name, words, goal in ROWS if name in figures
    ]
    width = max(len(words) for words, _, _ in rows)
    return "\n".join(
        f"{words:<{width}}  {value:>8}  {goal}".rstrip() for words, value, goal in rows
    )


def machine() -> dict[str, object]:
    """Say where this was measured, and how busy it was."""
    import os
    import platform

    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }
