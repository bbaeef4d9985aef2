"""The command line: instant until a command needs more than the standard library."""

from stratadesk.cli.program import main

__all__ = ["main"]
