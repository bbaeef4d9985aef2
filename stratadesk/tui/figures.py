"""How figures are written on screen: fixed widths, plain glyphs, no colour needed."""

from collections.abc import Iterable

from rich.cells import cell_len

from stratadesk.units import GIB

FULL, HALF, EMPTY = "━", "╸", "─"
NO_VALUE = "–"


def bar(fraction: float, width: int) -> tuple[str, str]:
    """Return the filled and the empty part of a bar, together `width` cells.

    The filled part is a heavy line and the rest a light one, so that it reads without colour.
    """
    width = max(width, 0)
    halves = round(2 * width * min(max(fraction, 0.0), 1.0))
    filled = FULL * (halves // 2) + HALF * (halves % 2)
    return filled, EMPTY * (width - len(filled))


def clock(seconds: float) -> str:
    """Write a duration in a fixed form: `00:03.1`, from an hour on `1:02:03`.

    >>> clock(3.14), clock(3723)
    ('00:03.1', '1:02:03')
    """
    tenths = int(max(seconds, 0.0) * 10)
    minutes, tenths = divmod(tenths, 600)
    if minutes < 60:
        return f"{minutes:02}:{tenths // 10:02}.{tenths % 10}"
    return f"{minutes // 60}:{minutes % 60:02}:{tenths // 10:02}"


def duration(seconds: float) -> str:
    """Write a duration in words: `4 s`, `3 min 20 s`, `1 h 2 min`."""
    whole = round(max(seconds, 0.0))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def short_count(number: int) -> str:
    """Write a count in few cells.

    >>> short_count(812), short_count(11_204), short_count(262_144)
    ('812', '11.2k', '262k')
    """
    if number < 1_000:
        return str(number)
    if number < 99_950:
        return f"{number / 1_000:.1f}k"
    return f"{number / 1_000:.0f}k"


def rate(tokens_per_second: float) -> str:
    """Write a speed in tokens per second; a dash when there is none yet."""
    if tokens_per_second <= 0:
        return f"{NO_VALUE} tok/s"
    if tokens_per_second >= 1_000:
        return f"{tokens_per_second:,.0f} tok/s"
    return f"{tokens_per_second:.1f} tok/s"


def milliseconds(seconds: float) -> str:
    """Write a short time: `28 ms`, below 10 ms with a decimal, from a second on `1.2 s`.

    >>> milliseconds(0.0283), milliseconds(0.0003), milliseconds(1.24)
    ('28 ms', '0.3 ms', '1.2 s')
    """
    if seconds >= 1:
        return f"{seconds:,.1f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"


def percent(share: float | None) -> str:
    """Write a share in four cells, a dash for one that is not known.

    >>> percent(0.684), percent(None)
    (' 68%', '   –')
    """
    return NO_VALUE.rjust(4) if share is None else f"{share:4.0%}"


def link_speed(bytes_per_second: float) -> str:
    """Write the speed of a link, as data sheets do, in units of 10⁹ bytes, small ones of 10⁶.

    >>> link_speed(11.94e9), link_speed(8.3e6)
    ('11.9 GB/s', '8.3 MB/s')
    """
    if bytes_per_second >= 1e8:
        return f"{bytes_per_second / 1e9:,.1f} GB/s"
    return f"{bytes_per_second / 1e6:.1f} MB/s"


def gib(n_bytes: int) -> str:
    """Write a size in GiB whatever it is, so that sizes of RAM line up.

    >>> gib(512 * 1024 * 1024)
    '0.5 GiB'
    """
    return f"{n_bytes / GIB:,.1f} GiB"


def plural(number: int, word: str) -> str:
    """Write a count with its noun.

    >>> plural(1, "token"), plural(1204, "token")
    ('1 token', '1,204 tokens')
    """
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def fit(parts: Iterable[str], width: int, separator: str = " · ") -> str:
    """Join the first parts that fit into `width` cells; the first one always stays, cut."""
    joined = ""
    for part in filter(None, parts):
        longer = joined + separator + part if joined else part
        if cell_len(longer) > width:
            return joined or clip(part, width)
        joined = longer
    return joined


def clip(text: str, width: int) -> str:
    """Cut `text` to `width` cells, an ellipsis marking the cut."""
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) > width - 1:
        text = text[:-1]
    return text + "…" if width > 0 else ""


def spread(left: str, right: str, width: int) -> str:
    """Put `left` and `right` at the two ends of `width` cells; `left` is cut when tight."""
    room = width - cell_len(right) - 1
    left = clip(left, max(room, 0))
    return left + " " * max(width - cell_len(left) - cell_len(right), 0) + right
