"""`bench`: measurements that anyone can repeat."""

import argparse

from stratadesk.cli.subcommands import add_command

NAME = "bench"
PURPOSE = "measure this program on this machine"
EXAMPLES = """\
examples:
  stratadesk bench tui                 redraws, CPU share and key latency at 200 tokens/s
  stratadesk bench tui -m MODEL        also what the screen costs a model's decoding
  stratadesk bench host-kernels        weights/s of every tensor format on the CPU
  stratadesk bench host-kernels --format Q4_K --from-memory --json
  stratadesk bench routing             how evenly the guide's experts are used, and cache hits
  stratadesk bench routing -m MODEL --file questions.txt --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let `parser` take what there is to measure."""
    from stratadesk.cli import bench_host_kernels, bench_routing, bench_tui

    subjects = parser.add_subparsers(dest="subject", metavar="SUBJECT", required=True)
    for name, subject in (
        ("tui", bench_tui),
        ("host-kernels", bench_host_kernels),
        ("routing", bench_routing),
    ):
        subject.add_arguments(add_command(subjects, name, subject.PURPOSE))


def bench(arguments: argparse.Namespace) -> int:
    """Run the measurement named and return the exit code."""
    from stratadesk.cli import bench_host_kernels, bench_routing, bench_tui

    run = {
        "tui": bench_tui.bench_tui,
        "host-kernels": bench_host_kernels.bench_host_kernels,
        "routing": bench_routing.bench_routing,
    }
    return run[arguments.subject](arguments)
