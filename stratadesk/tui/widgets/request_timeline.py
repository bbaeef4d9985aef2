"""The last request to scale: when it read, what was lent meanwhile, when all was back."""

from collections.abc import Iterable

from textual.content import Content

from stratadesk.tui.card_shares import OWNERS
from stratadesk.tui.cells import span_cells
from stratadesk.tui.figures import NO_VALUE, fit, milliseconds, plural
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.request_trace import RequestTrace
from stratadesk.tui.widgets.drawing import FAINT, MUTED, figure, lines, row
from stratadesk.tui.widgets.section import Section

LABEL = 6
_GLYPHS = {owner.key: owner.glyph for owner in OWNERS}
LENT, HEAD, EXPERTS = _GLYPHS["prompt buffers"], _GLYPHS["head"], _GLYPHS["experts"]
CHUNKS, WRITING, RETURN, REFILL, NOTHING = "▓░", "━", "<", "r", "·"

Span = tuple[float, float, str]


class RequestTimeline(Section):
    """Three lanes over the same time, with the glyphs of the bar above: time, head, slots."""

    watches = ("trace", "phase", "lost")

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw the length, the lanes, and their figures in words."""
        trace = state.trace
        took = milliseconds(trace.seconds) if trace else NO_VALUE
        return lines(
            row("Last request" if not state.busy else "This request", figure(took), width),
            _lane("time", _time_spans(trace), trace, width),
            _lane("head", _head_spans(trace), trace, width),
            _lane("slots", _slot_spans(trace), trace, width),
            Content.styled(fit(trace_words(trace), width) or " ", MUTED),
        )


def trace_words(trace: RequestTrace | None) -> tuple[str, ...]:
    """Say what happened, the most telling first; empty where it did not."""
    if trace is None:
        return ()
    read = milliseconds(trace.read_until - trace.began)
    writing = trace.decoding_at is not None
    return (
        f"{plural(len(trace.chunks), 'chunk')} {read}",
        f"{trace.slots_lent:,} lent, {trace.refilled:,} refilled" if trace.slots_lent else "",
        f"head back {milliseconds(trace.return_s)}" if trace.return_s else "",
        f"{plural(trace.tokens, 'token')}" if writing else "",
    )


def _time_spans(trace: RequestTrace | None) -> Iterable[Span]:
    if trace is None:
        return
    start = trace.began
    for number, end in enumerate((*trace.chunks, trace.read_until)):
        if end > start:
            yield start, end, CHUNKS[number % 2]
            start = end
    if trace.decoding_at is not None:
        yield trace.decoding_at, trace.ended_at or trace.until, WRITING
    if trace.returning_at is not None:
        yield trace.returning_at, trace.back_at or trace.until, RETURN


def _head_spans(trace: RequestTrace | None) -> Iterable[Span]:
    if trace is None:
        return
    yield trace.began, trace.until, HEAD
    if trace.head_out:
        yield trace.began, trace.read_until, LENT
        if trace.returning_at is not None:
            yield trace.returning_at, trace.back_at or trace.until, RETURN


def _slot_spans(trace: RequestTrace | None) -> Iterable[Span]:
    if trace is None:
        return
    if trace.slots_lent:
        yield trace.began, trace.until, EXPERTS
        yield trace.began, trace.back_at or trace.read_until, LENT
        if trace.back_at is not None:
            yield trace.back_at, trace.refilled_at or trace.until, REFILL


def _lane(label: str, spans: Iterable[Span], trace: RequestTrace | None, width: int) -> Content:
    room = max(width - LABEL, 0)
    cells = [NOTHING] * room
    for start, end, glyph in spans:
        if trace is None:
            break
        first, last = span_cells(start - trace.began, end - trace.began, trace.seconds, room)
        cells[first:last] = glyph * (last - first)
    return Content.assemble(
        (label.ljust(LABEL), MUTED), ("".join(cells), "$primary" if trace else FAINT)
    )
