"""Starting the program again in its own place: a card that is lost is lost to the process."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from stratadesk.cli.handover_file import naming
from stratadesk.errors import StrataDeskError

STARTING = "StrataDesk starts again; the chat is kept."


def start_again(kept: Path) -> int:
    """Run the command line of this process once more, with `kept` handed over.

    Where processes can be replaced this one is, and there is no return. On Windows, where a
    console would go back to its shell meanwhile, another process runs and its exit code is
    returned.

    Raises:
        StrataDeskError: the interpreter cannot be run.
    """
    with suppress(OSError):
        print(STARTING, file=sys.stderr, flush=True)
    command = [sys.executable, *sys.orig_argv[1:]]
    try:
        return _run_instead(command, dict(os.environ) | naming(kept))
    except OSError as error:
        raise StrataDeskError(
            f"{command[0]} cannot be run: {error.strerror}.",
            f"Start StrataDesk yourself; {kept} has what was said.",
        ) from None


if sys.platform == "win32":

    def _run_instead(command: list[str], environment: dict[str, str]) -> int:
        """Run a child to its end; Ctrl+C, which reaches both, is the child's to obey."""
        import subprocess

        child = subprocess.Popen(command, env=environment)
        while True:
            with suppress(KeyboardInterrupt):
                return child.wait()

else:

    def _run_instead(command: list[str], environment: dict[str, str]) -> int:
        """Replace this process."""
        _close_at_exec()
        os.execve(command[0], command, environment)

    def _close_at_exec() -> None:
        """Keep what native code has opened, the card's devices, out of the new program.

        Python sees to its own files.
        """
        with suppress(OSError):
            for number in map(int, os.listdir("/dev/fd")):
                if number > 2:
                    _close_one_at_exec(number)

    def _close_one_at_exec(number: int) -> None:
        # The one that the list itself was read by is closed already.
        with suppress(OSError):
            os.set_inheritable(number, False)
