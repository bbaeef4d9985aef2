"""How often experts are found in slots, and where in RAM all of them are."""

from textual.content import Content

from stratadesk.engine.card_events import CacheSample
from stratadesk.engine.events import Phase
from stratadesk.tui.figures import NO_VALUE, fit, percent
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import MUTED, figure, lines, row
from stratadesk.tui.widgets.section import Section

WIDE_FROM = 36


class ExpertFigures(Section):
    """Hits now and over the answer; experts pinned and pageable."""

    watches = ("phase", "cache")

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw two rows."""
        return lines(
            row("Slot hits" if width >= WIDE_FROM else "Hits", _hits(state, width), width),
            row("Experts", Content.styled(tier_words(state.cache, width - 8), MUTED), width),
        )


def hit_words(cache: CacheSample | None) -> tuple[str, str]:
    """Write the hit rate of the last half second and of the answer."""
    return percent(cache.window_rate if cache else None), percent(
        cache.answer_rate if cache else None
    )


def tier_words(cache: CacheSample | None, width: int) -> str:
    """Write how many experts are pinned in RAM and how many in the mapped file."""
    if cache is None:
        return NO_VALUE
    return fit((f"pinned {cache.pinned:,}", f"pageable {cache.pageable:,}"), width)


def _hits(state: MonitorState, width: int) -> Content:
    """Write both rates, so that they leave room for the label in the narrowest monitor, too."""
    now, answer = hit_words(state.cache)
    if state.phase is not Phase.DECODING:
        return figure(f"last answer {answer}", live=False)
    gap = "  " if width >= WIDE_FROM else " "
    return Content.assemble(figure(f"now {now}"), (f"{gap}answer ", MUTED), figure(answer))
