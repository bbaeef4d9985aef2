"""`--reset-terminal`: undo what a killed program could not undo itself."""

import sys

from stratadesk.exit_codes import ExitCode

RESET = (
    "\x1b[?2026l"  # a frame is drawn whole
    "\x1b[<u"  # kitty keyboard protocol, which the alternate screen has a stack of its own for
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # mouse
    "\x1b[?1004l"  # focus reports
    "\x1b[?2004l"  # bracketed paste
    "\x1b[?2048l"  # size reports
    "\x1b[?7h"  # lines wrap
    "\x1b[?1049l"  # alternate screen
    "\x1b[<u"
    "\x1b[0m"  # colours
    "\x1b[?25h"  # cursor
)


def reset_terminal() -> int:
    """Write the sequences, and nothing else; let the terminal edit and echo lines again."""
    sys.stdout.write(RESET)
    sys.stdout.flush()
    _edit_lines()
    return ExitCode.OK


if sys.platform == "win32":

    def _edit_lines() -> None:
        """The console gives every program its own mode."""

else:
    import termios

    def _edit_lines() -> None:
        """Undo raw mode: what is typed is echoed, Enter ends a line, Ctrl+C interrupts."""
        try:
            modes = termios.tcgetattr(sys.stdin)
        except (termios.error, OSError, ValueError):
            return
        modes[0] |= termios.ICRNL | termios.IXON
        modes[1] |= termios.OPOST | termios.ONLCR
        modes[3] |= termios.ICANON | termios.ECHO | termios.ECHOE | termios.ISIG | termios.IEXTEN
        termios.tcsetattr(sys.stdin, termios.TCSANOW, modes)
