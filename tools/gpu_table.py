"""Write what tests/gpu/run_gpu.sh found as Markdown, for docs/measurements.

Usage: python tools/gpu_table.py FOLDER

Reads tests.xml, bandwidth.json, layers.json and writing.json there; what is missing is left out.
"""

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def tests_of(report: Path) -> str:
    """Say in a sentence what became of the tests."""
    suites = ET.parse(report).getroot().iter("testsuite")
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    seconds = 0.0
    for suite in suites:
        seconds += float(suite.get("time", "0"))
        for name in totals:
            totals[name] += int(suite.get(name, "0"))
    bad, skipped = totals["failures"] + totals["errors"], totals["skipped"]
    passed = totals["tests"] - bad - skipped
    return f"{passed} tests passed, {bad} failed, {skipped} were skipped, in {seconds:.0f} s."


def bandwidth_of(rows: Iterable[Row]) -> Iterator[str]:
    """The card's read bandwidth, and each format's share of it."""
    card, *formats = rows
    yield (
        f"{card['card']} ({card['arch']}), {card['date']}: reads {card['read_gb_per_s']:,.0f} GB/s."
    )
    yield ""
    yield "| Format | 1 token, GB/s | of reading | 4 tokens, GB/s | of reading |"
    yield "|---|---:|---:|---:|---:|"
    for row in formats:
        cells = (f"{row[f'gb_per_s_{n}']:,.0f} | {row[f'share_{n}']:.0%}" for n in (1, 4))
        yield f"| {row['format']} | {' | '.join(cells)} |"


def layers_of(rows: Iterable[Row]) -> Iterator[str]:
    """A layer's kernels and time, the head's, and what laptops would take."""
    card, *rest = rows
    read = card["read_gb_per_s"]
    beside_bytes = f"Time beside bytes ÷ {read:,.0f} GB/s, µs"
    yield f"| Layer | Started early | Kernels | Time, µs | Bytes | {beside_bytes} |"
    yield "|---|---|---:|---:|---:|---:|"
    for row in rest:
        if "layer" in row:
            figures = f"{row['kernels']:g} | {row['us']:.1f} | {row['bytes']:,}"
            yield f"| {row['layer']} | {early_of(row)} | {figures} | {row['beside_us']:.1f} |"
        elif "head_us" in row:
            beside = row["head_us"] - row["bytes"] / read / 1e3
            figures = f"2 | {row['head_us']:.1f} | {row['bytes']:,}"
            yield f"| head | {early_of(row)} | {figures} | {beside:.1f} |"
    yield ""
    yield "| Card | Step, ms | tokens/s |"
    yield "|---|---:|---:|"
    for row in rest:
        if "laptop" in row:
            step, speed = row["step_us"] / 1e3, row["tokens_per_s"]
            yield f"| {row['laptop']} | {step:.1f} | {speed:.0f} |"


def early_of(row: Row) -> str:
    """Whether kernels were started while the ones in front still ran."""
    return "yes" if row["early"] else "no"


def writing_of(rows: Iterable[Row]) -> Iterator[str]:
    """What the host does for a token."""
    yield "| Model | Token, µs | Waits | Waiting, µs | Host otherwise, µs |"
    yield "|---|---:|---:|---:|---:|"
    for row in rows:
        figures = (row["us"], row["waits"], row["waited_us"], row["host_us"])
        yield f"| {row['model']} | {' | '.join(f'{figure:.1f}' for figure in figures)} |"


PARTS = (
    ("Bandwidth of products", "bandwidth.json", bandwidth_of),
    ("Layers of the 35B-A3B shape", "layers.json", layers_of),
    ("The host, for each token", "writing.json", writing_of),
)


def tables(folder: Path) -> Iterator[str]:
    """All lines, a heading before each part."""
    report = folder / "tests.xml"
    if report.is_file():
        yield from ("## Tests", "", tests_of(report), "")
    for heading, name, lines_of in PARTS:
        file = folder / name
        if file.is_file():
            yield from (f"## {heading}", "")
            yield from lines_of(json.loads(file.read_text(encoding="utf-8")))
            yield ""


def main() -> None:
    """Print the tables of a folder."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(tables(Path(sys.argv[1]))).rstrip())


if __name__ == "__main__":
    main()
