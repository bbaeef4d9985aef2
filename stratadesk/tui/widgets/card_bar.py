"""Who has the card's memory in one stacked bar, and how much of it is free."""

from textual.content import Content

from stratadesk.engine.vram.ledger import Ledger
from stratadesk.tui.alarm import memory_word
from stratadesk.tui.card_shares import FREE, RESERVE, Share, card_shares, kept_free
from stratadesk.tui.cells import share_cells
from stratadesk.tui.figures import NO_VALUE
from stratadesk.tui.mib import MibScale, scale_of
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.card_legend import Entry, entries
from stratadesk.tui.widgets.drawing import FAINT, figure, lines, row
from stratadesk.tui.widgets.section import Section


class CardBar(Section):
    """The card's size, the bar with a pattern for each owner, what is free and what should be."""

    watches = ("ledger", "status")

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw it, with dashes where nothing is known yet."""
        ledger = state.ledger
        scale = scale_of(ledger.total if ledger else 0)
        total = f"{scale.text(ledger.total)} MiB" if ledger else NO_VALUE
        return lines(
            row("Video memory", figure(total), width),
            _bar(ledger, width),
            *_free(state, scale, width),
        )


def _bar(ledger: Ledger | None, width: int) -> Content:
    if ledger is None:
        return Content.styled(FREE.glyph * width, FAINT)
    kept = kept_free(ledger)
    free = (Share(RESERVE, kept), Share(FREE, ledger.free - kept))
    shares = (*card_shares(ledger)[:-1], *free)
    cells = share_cells([share.n_bytes for share in shares], width)
    return Content.assemble(
        *(
            (share.owner.glyph * n, share.owner.color)
            for share, n in zip(shares, cells, strict=True)
        )
    )


def _free(state: MonitorState, scale: MibScale, width: int) -> list[Content]:
    """Draw the free bytes with the state in a word, and the reserve that they are to keep."""
    ledger, word = state.ledger, memory_word(state.status)
    free = Entry(
        FREE.glyph,
        FREE.color,
        f"free {word}".rstrip(),
        scale.text(ledger.free) if ledger else NO_VALUE,
        "bold $error" if word else "",
    )
    reserve = scale.text(ledger.reserve) if ledger else NO_VALUE
    return entries([free, Entry(RESERVE.glyph, RESERVE.color, "reserve in it", reserve)], width)
