"""Whose every byte of the card is, in the words, patterns and colours of the screen."""

from dataclasses import dataclass, replace

from stratadesk.engine.vram.ledger import CONTEXT, OTHERS, Ledger


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner in the ledger, its names on screen, its pattern in the bar, and a colour."""

    key: str
    name: str
    short: str
    glyph: str
    color: str


@dataclass(frozen=True, slots=True)
class Share:
    """What an owner has, in bytes; negative where the ledger's lines claim too much."""

    owner: Owner
    n_bytes: int


OWNERS = (
    Owner("weights", "weights", "weights", "█", "$primary"),
    Owner("KV and state", "KV and state", "KV, state", "▓", "$secondary"),
    Owner("head", "output head", "head", "H", "bold $accent"),
    Owner("experts", "experts", "experts", "▒", "$success"),
    Owner("prompt buffers", "prompt buffers", "prompt", "▞", "$warning"),
    Owner("scratch", "scratch", "scratch", "▄", "$foreground 62%"),
    Owner(CONTEXT, "graphs and context", "GPU context", "+", "$foreground 62%"),
    Owner("padding", "rest of blocks", "block rest", "▖", "$foreground 62%"),
    Owner(OTHERS, "other programs", "programs", "░", "$error"),
)
REST = Owner("rest", "further lines", "further", "&", "$foreground 62%")
UNEXPLAINED = Owner("unexplained", "unexplained", "unexplained", "?", "bold $error")
FREE = Owner("free", "free", "free", "·", "$foreground 62%")
RESERVE = Owner("reserve", "kept as reserve", "reserve", ":", "bold $foreground")


def card_shares(ledger: Ledger) -> tuple[Share, ...]:
    """Split the card by owner, free bytes last; the shares add up to the card.

    The free bytes up to the reserve and those beyond are one share: see `kept_free`.
    """
    known = {owner.key for owner in OWNERS}
    rest = sum(line.n_bytes for line in ledger.lines if line.owner not in known)
    return (
        *(Share(owner, ledger.of(owner.key)) for owner in OWNERS),
        *((Share(REST, rest),) if rest else ()),
        Share(UNEXPLAINED, ledger.unexplained),
        Share(FREE, ledger.free),
    )


def untold(ledger: Ledger) -> frozenset[str]:
    """Return the owners that no source tells of: their share is not known, which is not 0."""
    return frozenset((CONTEXT, OTHERS)) - {line.owner for line in ledger.lines}


def without_padding(shares: tuple[Share, ...]) -> tuple[Share, ...]:
    """Return the shares with the rest of blocks counted as scratch memory."""
    padding = sum(share.n_bytes for share in shares if share.owner.key == "padding")
    return tuple(
        replace(share, n_bytes=share.n_bytes + padding) if share.owner.key == "scratch" else share
        for share in shares
        if share.owner.key != "padding"
    )


def kept_free(ledger: Ledger) -> int:
    """Return how many of the free bytes are part of the reserve."""
    return min(ledger.free, ledger.reserve)
