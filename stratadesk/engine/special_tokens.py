"""Special tokens inside text: cutting them out, and keeping user text from forging them.

A chat template mixes its own markers with texts of users. So that only the former become
control tokens, every occurrence of a control token's text in a content gets a *mark*, a
character that occurs nowhere else, after its first character. In the rendered prompt an
unbroken marker is then the template's own, and marks are dropped before the rest is encoded.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from stratadesk.errors import UsageError

_NONCHARACTERS = (
    *range(0xFDD0, 0xFDF0),
    *(plane << 16 | low for plane in range(17) for low in (0xFFFE, 0xFFFF)),
)


class SpecialTokens:
    """Texts that are one token each, longest first.

    `control` and `user_defined` map text → id; a text in both counts as control.
    """

    def __init__(self, control: Mapping[str, int], user_defined: Mapping[str, int]) -> None:
        everything = {**user_defined, **control}
        self._all = _longest_first(everything)
        self._user_defined = _longest_first(
            {text: token for text, token in user_defined.items() if text not in control}
        )
        # A single character cannot be broken by a mark, so marked text never parses one.
        self._escapable = {text: token for text, token in control.items() if len(text) > 1}
        self._marked = [
            (text, token)
            for text, token in self._all
            if text in self._escapable or text not in control
        ]
        self._beginnings = frozenset(
            text[:length] for text in self._escapable for length in range(1, len(text))
        )
        self._longest = max((len(text) for text in self._escapable), default=0)

    def split(self, text: str, *, parse_special: bool) -> list[str | int]:
        """Cut `text` into plain pieces and token ids.

        Without `parse_special` only user-defined tokens are recognised. Longer texts are cut
        out first wherever they stand, as llama.cpp does.
        """
        return _cut_out(text, self._all if parse_special else self._user_defined)

    def split_marked(self, text: str, mark: str) -> list[str | int]:
        """Cut marked `text` into token ids and plain pieces, which lose their marks."""
        pieces = _cut_out(text, self._marked)
        return [p.replace(mark, "") if isinstance(p, str) else p for p in pieces]

    def escape(self, content: str, mark: str) -> str:
        """Return `content` with `mark` inside everything that a control token could grow from.

        That is each occurrence of a control token's text, and an end of `content` that begins
        one: what a template puts behind it could complete it.
        """
        starts = {
            start for text in self._escapable if text in content for start in _find(content, text)
        }
        first = max(0, len(content) - self._longest + 1)
        starts.update(i for i in range(first, len(content)) if content[i:] in self._beginnings)
        cuts = [0, *(start + 1 for start in sorted(starts)), len(content)]
        return mark.join(content[a:b] for a, b in pairwise(cuts))

    def choose_mark(self, texts: Iterable[str]) -> str:
        """Return a Unicode noncharacter that occurs in none of `texts` and in no special token.

        Raises UsageError when the texts use all 66 of them.
        """
        used = set().union(*texts, *(text for text, _ in self._all))
        for code in _NONCHARACTERS:
            if chr(code) not in used:
                return chr(code)
        raise UsageError(
            "The chat contains all 66 Unicode noncharacters.", "Leave one of them out."
        )


def _longest_first(tokens: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(tokens.items(), key=lambda item: -len(item[0].encode("utf-8", "replace")))


def _find(content: str, text: str) -> Iterable[int]:
    start = content.find(text)
    while start >= 0:
        yield start
        start = content.find(text, start + 1)


def _cut_out(text: str, tokens: Iterable[tuple[str, int]]) -> list[str | int]:
    pieces: list[str | int] = [text] if text else []
    for marker, token in tokens:
        if marker in text:
            pieces = [part for piece in pieces for part in _cut_one(piece, marker, token)]
    return pieces


def _cut_one(piece: str | int, marker: str, token: int) -> list[str | int]:
    if isinstance(piece, int):
        return [piece]
    parts: list[str | int] = []
    for i, plain in enumerate(piece.split(marker)):
        if i:
            parts.append(token)
        if plain:
            parts.append(plain)
    return parts
