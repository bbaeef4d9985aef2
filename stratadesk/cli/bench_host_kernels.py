"""`bench host-kernels`: how fast each tensor format is computed on this machine's CPU."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from stratadesk.errors import UsageError
from stratadesk.exit_codes import ExitCode
from stratadesk.logs import start_logging
from stratadesk.settings import Flag

if TYPE_CHECKING:
    from stratadesk.kernels.host.speed import Speed

PURPOSE = "how fast each tensor format is computed on the CPU"
TIME = Flag(
    "seconds",
    ("--seconds",),
    float,
    0.5,
    "time for each format; the fastest run counts",
    low=0.001,
    high=3600,
)
_GIGA = 1e9
_SOURCES = {
    "cache": "the same in every run: what fits stays in the CPU's cache",
    "memory": "others in every run: they come from memory",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let `parser` take which formats to measure and for how long."""
    from stratadesk.cli.parser import add_number

    parser.add_argument(
        "--format",
        metavar="NAME",
        action="append",
        default=[],
        help="measure this one only, such as Q4_K; may be repeated (default: all)",
    )
    add_number(parser, TIME)
    parser.add_argument(
        "--from-memory",
        action="store_true",
        default=False,
        help="take other weights at every run, so that they come from memory, as a model's do",
    )
    parser.add_argument("--json", action="store_true", default=False, help="print one JSON object")


def bench_host_kernels(arguments: argparse.Namespace) -> int:
    """Print weights/s and GB/s of each format beside the speed of copying memory.

    Raises:
        UsageError: a format that the host backend does not compute.
    """
    names = _names(arguments.format)
    start_logging()
    _use_kept_kernels()
    import numba

    from stratadesk.kernels.host.speed import copy_speed, format_speeds

    threads = numba.get_num_threads()
    copied = copy_speed(arguments.seconds)
    speeds = format_speeds(names, arguments.seconds, from_memory=arguments.from_memory)
    source = "memory" if arguments.from_memory else "cache"
    if arguments.json:
        import json

        print(json.dumps({"from": source} | _as_json(threads, copied, speeds), indent=2))
        return ExitCode.OK
    for line in _table(threads, source, copied, speeds):
        print(line, flush=True)
    return ExitCode.OK


def _names(wanted: Sequence[str]) -> Sequence[str]:
    from stratadesk.engine.tensor_formats import HOST_FORMATS

    for name in wanted:
        if name not in HOST_FORMATS:
            raise UsageError(
                f"{name!r} is not a format that the CPU computes.",
                f"Choose among {', '.join(HOST_FORMATS)}.",
            )
    return wanted or HOST_FORMATS


def _use_kept_kernels() -> None:
    from stratadesk.kernels.host import compile_cache, numba_environment
    from stratadesk.paths import folders

    compile_cache.configure(folders().cache)
    numba_environment.check_threads()


def _as_json(threads: int, copied: "Speed", speeds: Iterable["Speed"]) -> dict[str, Any]:
    from stratadesk.kernels.host.speed import COLUMNS, ROWS

    return {
        "rows": ROWS,
        "columns": COLUMNS,
        "tokens": 1,
        "threads": threads,
        "copy": _rates(copied),
        "formats": {speed.name: _rates(speed) for speed in speeds},
    }


def _rates(speed: "Speed") -> dict[str, dict[str, float]]:
    """Per second, on one thread and on all."""
    times = {"one_thread": speed.one_thread, "all_threads": speed.all_threads}
    rates = {key: {"bytes": speed.n_bytes / seconds} for key, seconds in times.items()}
    for key, seconds in times.items():
        if speed.weights:
            rates[key]["weights"] = speed.weights / seconds
    return rates


def _table(threads: int, source: str, copied: "Speed", speeds: Iterable["Speed"]) -> Iterator[str]:
    from stratadesk.kernels.host.speed import COLUMNS, ROWS

    yield f"{ROWS} x {COLUMNS} weights times one vector, {_SOURCES[source]}."
    yield "Sums are float32; the fastest run counts."
    yield (
        f"Copying memory: {copied.n_bytes / copied.one_thread / _GIGA:.1f} GB/s on 1 thread, "
        f"{copied.n_bytes / copied.all_threads / _GIGA:.1f} GB/s on all {threads}."
    )
    yield ""
    yield f"{'':9}{'1 thread':>22}{f'all {threads} threads':>24}"
    yield f"{'format':9}" + f"{'G weights/s':>14}{'GB/s':>8}" * 2 + f"{'gain':>8}"
    for speed in speeds:
        columns = (
            f"{speed.weights / seconds / _GIGA:14.2f}{speed.n_bytes / seconds / _GIGA:8.2f}"
            for seconds in (speed.one_thread, speed.all_threads)
        )
        yield f"{speed.name:9}{''.join(columns)}{speed.one_thread / speed.all_threads:8.2f}"
