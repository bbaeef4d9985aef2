"""Units and how figures are written; the only place that turns bytes into words."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


def mib(n_bytes: float) -> float:
    """Return `n_bytes` in MiB."""
    return n_bytes / MIB


def format_bytes(n_bytes: float) -> str:
    """Write a size as people read it: B, KiB, MiB below 10 GiB, then GiB.

    >>> format_bytes(333 * MIB)
    '333 MiB'
    """
    if n_bytes < KIB:
        return f"{n_bytes:.0f} B"
    if n_bytes < MIB:
        return f"{n_bytes / KIB:.1f} KiB"
    if n_bytes < 10 * MIB:
        return f"{n_bytes / MIB:.1f} MiB"
    if n_bytes < 10 * GIB:
        return f"{n_bytes / MIB:,.0f} MiB"
    return f"{n_bytes / GIB:.1f} GiB"


def format_seconds(seconds: float) -> str:
    """Write a duration with what tells two of them apart: below a tenth of a second in ms.

    >>> format_seconds(8.2), format_seconds(0.0273), format_seconds(0.0003)
    ('8.20 s', '27.3 ms', '0.3 ms')
    """
    return f"{seconds:,.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.1f} ms"


def format_rate(tokens: int, seconds: float) -> str:
    """Write tokens per second, or a dash when no time has passed."""
    return f"{tokens / seconds:,.1f} tok/s" if seconds > 0 else "– tok/s"
