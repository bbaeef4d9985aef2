"""`bench`: measurements that anyone can repeat."""

import argparse

NAME = "bench"
PURPOSE = "measure this program on this machine"
EXAMPLES = """\
examples:
  stratadesk bench tui                 redraws, CPU share and key latency at 200 tokens/s
  stratadesk bench tui -m MODEL        also what the screen costs a model's decoding
  stratadesk bench tui --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let `parser` take what there is to measure."""
    from stratadesk.cli import bench_tui

    subjects = parser.add_subparsers(dest="subject", metavar="SUBJECT", required=True)
    bench_tui.add_arguments(subjects.add_parser("tui", help="what the screen costs"))


def bench(arguments: argparse.Namespace) -> int:
    """Run the measurement named and return the exit code."""
    from stratadesk.cli import bench_tui

    return {"tui": bench_tui.bench_tui}[arguments.subject](arguments)
