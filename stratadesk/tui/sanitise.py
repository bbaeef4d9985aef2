"""Text from models, files and users, made safe to show.

Every character is mapped on its own, so cleaning pieces of a stream gives the same text as
cleaning the whole. What is sent to the engine is never cleaned, only what is drawn.

Three dangers are removed: characters that a terminal obeys (escape, C1, bidirectional
controls), characters over whose width terminals disagree (joiners, variation selectors, skin
tones, flags), which would push borders out of line, and characters that Python's
`str.splitlines` takes for line ends but Markdown does not.
"""

import re

_DROPPED = (
    "\r",
    "\u00ad",
    "\u061c",
    "\u115f\u1160",
    "\u180e",
    "\u200b\u200d\u200e\u200f",
    "\u202a\u202b\u202c\u202d\u202e",
    "\u2060\u2061\u2062\u2063\u2064\u2065\u2066\u2067\u2068\u2069",
    "\u206a\u206b\u206c\u206d\u206e\u206f",
    "\u3164\uffa0",
    "\ufeff",
    "\ufff9\ufffa\ufffb",
)
_DROPPED_RANGES = (
    (0xFE00, 0xFE0F),
    (0x1F3FB, 0x1F3FF),
    (0xE0000, 0xE0FFF),
)
_REPLACED_RANGES = ((0x80, 0x9F), (0xD800, 0xDFFF), (0xFDD0, 0xFDEF), (0xFFFE, 0xFFFF))
_LINE_ENDS = "\u0085\u2028\u2029"
_REGIONAL_A, _REGIONAL_Z = 0x1F1E6, 0x1F1FF
_REPLACEMENT = "\ufffd"

_UNSAFE_RAW = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def _mapping() -> dict[int, str]:
    table = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
    table[0x7F] = "\u2421"
    for first, last in _REPLACED_RANGES:
        table |= dict.fromkeys(range(first, last + 1), _REPLACEMENT)
    table |= {ord(char): "\n" for char in _LINE_ENDS}
    table |= {
        code: chr(ord("A") + code - _REGIONAL_A) for code in range(_REGIONAL_A, _REGIONAL_Z + 1)
    }
    table |= {ord(char): "" for group in _DROPPED for char in group}
    for first, last in _DROPPED_RANGES:
        table |= dict.fromkeys(range(first, last + 1), "")
    return table


_TABLE = _mapping()


def safe_text(text: str) -> str:
    """Return `text` with nothing left that a terminal obeys; line feeds and tabs stay.

    >>> safe_text(f"red {chr(27)}[31m")
    'red ␛[31m'
    """
    return text.translate(_TABLE)


def safe_line(text: str) -> str:
    """Return `text` safe to show and on one line: runs of blanks become one space."""
    return " ".join(safe_text(text).split())


def has_controls(text: str) -> bool:
    """Whether `text` holds control characters that an editor would show raw."""
    return _UNSAFE_RAW.search(text) is not None
