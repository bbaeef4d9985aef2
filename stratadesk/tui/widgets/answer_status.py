"""The one line under an answer: what is being waited for, and afterwards what it took."""

from textual.content import Content
from textual.timer import Timer

from stratadesk.engine.events import (
    DecodeProgress,
    FinishReason,
    PromptProgress,
    RequestFinished,
    RequestStarted,
)
from stratadesk.keys import find_key
from stratadesk.tui import moment
from stratadesk.tui.figures import bar, clock, duration, fit, plural, rate
from stratadesk.tui.widgets.drawing import MUTED, TRACK, Drawing, lines
from stratadesk.tui.widgets.speed_figures import reading_rate, seconds_left

TICK_S = 0.25
BAR_CELLS = 20
CONTEXT_FULL, LIMIT_REACHED, STOPPED = "◆ Context full", "◆ Token limit reached", "■ Stopped"
WAITS_FOR_MODEL = "Waits for the model"

Moment = RequestStarted | PromptProgress | DecodeProgress | RequestFinished | None


class AnswerStatus(Drawing):
    """One row, or two while a prompt is read and the terminal is narrow."""

    def __init__(self) -> None:
        super().__init__()
        self._asked_at = moment.now()
        self._moment: Moment = None
        self._stopping = False
        self._awaits_model = False
        self._ticks: Timer | None = None

    def on_mount(self) -> None:
        """Let the clock run while there is something to wait for."""
        self._ticks = self.set_interval(TICK_S, self.redraw)

    def show(self, moment: Moment) -> None:
        """Show this stage of the answer from now on."""
        self._moment = moment
        self.redraw()
        if isinstance(moment, RequestFinished):
            self._stop_clock()

    def await_model(self) -> None:
        """Say that the question is not asked before a model is ready."""
        self._awaits_model = True
        self.redraw()

    def asked(self) -> None:
        """The question is asked now."""
        self._awaits_model = False
        self._asked_at = moment.now()
        self.redraw()

    def stopping(self) -> None:
        """Say that a stop is asked for, which takes until the chunk or token is computed."""
        self._stopping = True
        self.redraw()

    def close(self) -> None:
        """Nothing is waited for any more and there is nothing to tell."""
        self._stop_clock()
        self.display = False

    def picture(self, width: int) -> Content:
        """Draw the stage."""
        waited = moment.now() - self._asked_at
        match self._moment:
            case RequestFinished() as finished:
                return finished_row(finished, width)
            case _ if self._stopping:
                return _muted(("Stopping", clock(waited)), width)
            case PromptProgress() as progress:
                return reading_rows(progress, waited, width)
            case DecodeProgress() as progress:
                return _muted(_writing(progress), width)
            case RequestStarted() as started:
                return _muted(_starting(started, waited), width)
        if self._awaits_model:
            parts = (WAITS_FOR_MODEL, f"{find_key('stop').caption} takes it back")
        else:
            parts = ("Waiting for the engine", clock(waited))
        return _muted(parts, width)

    def _stop_clock(self) -> None:
        if self._ticks is not None:
            self._ticks.stop()


def reading_rows(progress: PromptProgress, waited: float, width: int) -> Content:
    """Draw how much of the prompt is read with a bar, and its rate and times.

    The figures follow the bar where there is room for all, else they take a row of their own.
    """
    done = progress.read + progress.reused
    share = done / max(progress.total, 1)
    head = f"Reading {done:,} of {progress.total:,} tokens "
    filled, rest = bar(share, min(BAR_CELLS, width - len(head) - 5))
    start = Content.assemble(head, (filled, "$primary"), (rest, TRACK), f" {share:4.0%}")
    parts = _reading_details(progress, waited)
    details = " · ".join(filter(None, parts))
    if start.cell_length + len(details) + 3 <= width:
        return Content.assemble(start, (f" · {details}", MUTED))
    return lines(start, _muted(parts, width))


def finished_row(finished: RequestFinished, width: int) -> Content:
    """Draw what the answer took, and how it ended unless it simply ended."""
    ending = ending_words(finished)
    facts = (
        ending,
        plural(len(finished.tokens), "token"),
        rate(finished.timings.decode_tps) if finished.timings.decode_tps > 0 else "",
        f"reused {finished.reused:,} of {finished.prompt_tokens:,}",
        f"read at {rate(finished.timings.prefill_tps)}" if finished.timings.prefill_tps > 0 else "",
    )
    row = fit(facts, width)
    cut = len(ending) if row.startswith(ending) else 0
    return Content.assemble((row[:cut], "bold $warning"), (row[cut:], MUTED))


def ending_words(finished: RequestFinished) -> str:
    """Say how an answer ended; nothing when the model ended it."""
    if finished.finish_reason is FinishReason.LENGTH:
        full = finished.context_used >= finished.context_total > 0
        return CONTEXT_FULL if full else LIMIT_REACHED
    return STOPPED if finished.finish_reason is FinishReason.CANCELLED else ""


def _reading_details(progress: PromptProgress, waited: float) -> tuple[str, ...]:
    speed, left = reading_rate(progress), seconds_left(progress)
    return (
        f"{progress.reused:,} reused" if progress.reused else "",
        rate(speed) if speed else "",
        f"{duration(left)} left" if left is not None else "",
        clock(waited),
    )


def _starting(started: RequestStarted, waited: float) -> tuple[str, ...]:
    fresh = started.prompt_tokens - started.reused
    return (
        f"Reading {plural(fresh, 'token')}",
        f"{started.reused:,} reused" if started.reused else "",
        clock(waited),
    )


def _writing(progress: DecodeProgress) -> tuple[str, ...]:
    speed = progress.tokens / progress.seconds if progress.seconds > 0 else 0.0
    return (
        f"Writing {plural(progress.tokens, 'token')}",
        rate(speed) if speed else "",
        clock(progress.seconds),
    )


def _muted(parts: tuple[str, ...], width: int) -> Content:
    return Content.styled(fit(parts, width), MUTED)
