"""Byte-level BPE in the slowest and most obvious way, to compare the tokenizer with."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import regex

from stratadesk.engine.vocabulary import TokenizerSpec

CONTROL, USER_DEFINED = 3, 4


def byte_characters() -> list[str]:
    """The stand-in of every byte: printable ones are their own, others follow U+0100."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1)]
    printable += range(ord("®"), ord("ÿ") + 1)
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


class ReferenceBpe:
    """Encodes with plain lists and dictionaries; `whole_pieces` as in glm4."""

    def __init__(
        self, spec: TokenizerSpec, steps: Sequence[str], *, whole_pieces: bool = False
    ) -> None:
        self.spec = spec
        self.steps = [regex.compile(pattern) for pattern in steps]
        self.whole_pieces = whole_pieces
        self.ids: Mapping[str, int] = {text: i for i, text in enumerate(spec.tokens)}
        self.ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(spec.merges)}
        self.bytes = byte_characters()

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Cut special tokens out, longest first, and merge the rest."""
        kinds = {USER_DEFINED, CONTROL} if parse_special else {USER_DEFINED}
        special = [i for i, kind in enumerate(self.spec.token_types) if kind in kinds]
        special.sort(key=lambda i: len(self.spec.tokens[i]), reverse=True)
        return self._cut(text, special)

    def _cut(self, text: str, special: list[int]) -> list[int]:
        for n, token in enumerate(special):
            before, found, after = text.partition(self.spec.tokens[token])
            if found:
                return [*self._cut(before, special[n:]), token, *self._cut(after, special[n:])]
        return [self.ids[part] for piece in self._pieces(text) for part in self._merge(piece)]

    def _pieces(self, text: str) -> list[str]:
        pieces = [text]
        for pattern in self.steps:
            pieces = [part for piece in pieces for part in _cut(pattern, piece)]
        return pieces

    def _merge(self, piece: str) -> list[str]:
        parts = [self.bytes[byte] for byte in piece.encode()]
        if self.whole_pieces and "".join(parts) in self.ids:
            return ["".join(parts)]
        while True:
            pairs = list(pairwise(parts))
            known = [pair for pair in pairs if pair in self.ranks]
            if not known:
                return parts
            at = pairs.index(min(known, key=lambda pair: self.ranks[pair]))
            parts[at : at + 2] = [parts[at] + parts[at + 1]]


def _cut(pattern: regex.Pattern[str], text: str) -> list[str]:
    """Matches, and what lies between them."""
    pieces, end = [], 0
    for match in pattern.finditer(text):
        pieces += [text[end : match.start()], match.group()]
        end = match.end()
    pieces.append(text[end:])
    return [piece for piece in pieces if piece]
