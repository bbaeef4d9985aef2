"""A name for every MiB of the card, and who says how much is free."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from stratadesk.engine.vram.ledger import Ledger
from stratadesk.engine.vram.readings import MemoryReading
from stratadesk.tui import moment
from stratadesk.tui.card_shares import card_shares, untold, without_padding
from stratadesk.tui.figures import NO_VALUE, clip, duration, fit, spread
from stratadesk.tui.mib import MibScale, scale_of
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import MUTED, figure, lines, row
from stratadesk.tui.widgets.section import Section

TWO_COLUMNS_FROM = 36
LONG_NAMES_FROM = 52
GAP = 2
OLD_S = 2.0
"""A figure older than this is shown with its age."""

NOTHING_KNOWN = Ledger(0, 0, 0, (), others_known=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """A glyph with its colour, a name, a figure; `style` makes the whole entry stand out."""

    glyph: str
    color: str
    name: str
    figure: str
    style: str = ""


class CardLegend(Section):
    """The owners in the bar's order, which with the free bytes add up to the card."""

    watches = ("ledger",)

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw the owners, with dashes where nothing is known yet."""
        scale = scale_of(state.ledger.total if state.ledger else 0)
        long, brief = width >= LONG_NAMES_FROM, width < TWO_COLUMNS_FROM
        return lines(*entries(legend(state.ledger, scale, long=long, brief=brief), width))


class CardSources(Section):
    """What each source says is free, and how old that is if it is not new."""

    watches = ("status", "ledger")
    ages = True

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw one row."""
        scale = scale_of(state.ledger.total if state.ledger else 0)
        return Content.styled(_sources(state, scale, width), MUTED)


def legend(
    ledger: Ledger | None, scale: MibScale, *, long: bool = False, brief: bool = False
) -> list[Entry]:
    """Return each owner with its figure; all of them and the free bytes add up to the card.

    `long` writes names in full; `brief` counts the rest of blocks, which is next to nothing,
    with the scratch memory beside it, for screens where each row is dear.
    """
    shares = card_shares(ledger or NOTHING_KNOWN)[:-1]
    if brief:
        shares = without_padding(shares)
    figures = [NO_VALUE] * len(shares)
    if ledger is not None:
        used = scale.down(ledger.total) - scale.down(ledger.free)
        units = scale.shared_out([share.n_bytes for share in shares], used)
        figures = [
            NO_VALUE if share.owner.key in untold(ledger) else scale.write(number)
            for share, number in zip(shares, units, strict=True)
        ]
    return [
        Entry(owner.glyph, owner.color, owner.name if long else owner.short, text)
        for owner, text in zip((share.owner for share in shares), figures, strict=True)
    ]


def entries(rows: Sequence[Entry], width: int) -> list[Content]:
    """Draw entries one below the other, in two columns where there is room."""
    if width < TWO_COLUMNS_FROM:
        return [_entry(entry, width) for entry in rows]
    left = (width - GAP) // 2
    half = -(-len(rows) // 2)
    drawn = [_entry(entry, left) for entry in rows[:half]]
    others = [_entry(entry, width - GAP - left) for entry in rows[half:]]
    others += [Content()] * (half - len(others))
    return [
        Content.assemble(first, " " * GAP, second)
        for first, second in zip(drawn, others, strict=True)
    ]


def source_words(reading: MemoryReading, scale: MibScale) -> tuple[str, ...]:
    """Tell what each source says is free, and under which driver model."""
    return (
        *(f"{figure.source} {scale.text(figure.headroom)}" for figure in reading.figures),
        reading.driver_model.words,
    )


def _entry(entry: Entry, width: int) -> Content:
    live = entry.figure.strip("0.") not in ("", NO_VALUE)
    drawn = row(entry.name, figure(entry.figure, live=live), width - 2)
    if entry.style:
        drawn = Content.styled(drawn.plain, entry.style)
    return Content.assemble((f"{entry.glyph} ", entry.color), drawn)


def _sources(state: MonitorState, scale: MibScale, width: int) -> str:
    status = state.status
    if status is None or status.reading is None:
        return clip("no source has told yet", width)
    age = moment.now() - status.reading.at
    old = f"{duration(age)} old" if age >= OLD_S else ""
    told = fit(source_words(status.reading, scale), width - len(old) - 1)
    return spread(told, old, width) if old else told
