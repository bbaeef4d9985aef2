"""Drawing with ASCII characters only, for terminals and fonts that have no others.

The filter stands behind every widget, so that borders, scroll bars and Markdown are changed as
well as our own drawings. Each character becomes one of the same width; letters of any script
are left alone.
"""

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_PAIRS = {
    "─╌┄╍┅┈┉╺╴╶╼╾‾▔▁⠉": "-",
    "━╸═": "=",
    "│┃╎┆┇┊┋╏▏▎▍▌▐▕": "|",
    "┌┐└┘├┤┬┴┼╭╮╯╰┏┓┗┛┣┫┳┻╋╔╗╚╝╠╣╦╩╬": "+",
    "║": "|",
    "█": "#",
    "▓": "%",
    "▒": "x",
    "░": "o",
    "▞▚": "/",
    "▄▂▃▅▆▇": "_",
    "▀": '"',
    "▖▗▘▝▙▛▜▟": "'",
    "▸▶►→": ">",
    "◂◀←": "<",
    "▾▼": "v",
    "▴▲": "^",
    "●■◆▪•◉": "*",
    "○◇◦": "o",
    "✗✘": "X",
    "✓✔": "V",
    "·": ".",
    "…": "~",
    "–—−": "-",
    "×": "x",
    "≤": "<",
    "≥": ">",
    "≈": "~",
    "“”": '"',
    "’": "'",
}
_BRAILLE = range(0x2800, 0x2900)
_UPPER = 0x01 | 0x02 | 0x08 | 0x10
_LOWER = 0x04 | 0x40 | 0x20 | 0x80


def _braille(bits: int) -> str:
    """Where in the cell the dots are: above, below, both, or nowhere."""
    upper, lower = bool(bits & _UPPER), bool(bits & _LOWER)
    return {(True, True): ":", (True, False): "'", (False, True): "."}.get((upper, lower), " ")


def _table() -> dict[int, str]:
    table = {code: _braille(code - _BRAILLE.start) for code in _BRAILLE}
    table |= {ord(char): plain for chars, plain in _PAIRS.items() for char in chars}
    # Box drawing, blocks and geometric shapes that have no likeness above.
    for code in range(0x2500, 0x2600):
        table.setdefault(code, "+" if code < 0x2580 else "#")
    return table


TABLE = _table()


class AsciiFilter(LineFilter):
    """Replaces what is no letter, digit or sign of ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments with their characters replaced."""
        return [
            segment if segment.text.isascii() else segment._replace(text=plain(segment.text))
            for segment in segments
        ]


def plain(text: str) -> str:
    """Return `text` with every drawing character replaced.

    >>> plain("ready ▸ PROMPT · 4 s …")
    'ready > PROMPT . 4 s ~'
    """
    return text.translate(TABLE)
