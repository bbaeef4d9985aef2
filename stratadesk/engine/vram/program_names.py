"""Names of processes, fit to be shown."""

import psutil


def program_name(pid: int) -> str | None:
    """The name of process `pid` without control characters; None if it cannot be told."""
    try:
        name = psutil.Process(pid).name()
    except (psutil.Error, ValueError, OSError):
        return None
    return "".join(character for character in name if character.isprintable()) or None
