"""`python -m stratadesk` is the same as `stratadesk`: both begin here."""

import sys

INTERRUPTED = 130
"""`ExitCode.INTERRUPTED`; Ctrl+C may come before even that can be imported."""


def start() -> int:
    """Run the command line and return its exit code, also when interrupted while it is read in."""
    try:
        from stratadesk.cli import main

        return main()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(start())
