"""How fast the prompt is read and the answer written; outside its phase a figure is "last"."""

from textual.content import Content

from stratadesk.engine.events import Phase, PromptProgress
from stratadesk.tui.figures import NO_VALUE, bar, duration, rate, spread
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import MUTED, STRONG, TRACK, figure, lines, row
from stratadesk.tui.widgets.section import Section


class PromptSpeed(Section):
    """How fast the prompt is read and how much of it is."""

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw three rows: the speed, a bar, the counts."""
        live = state.phase is Phase.PROMPT
        return lines(
            row("Prompt", figure(prompt_speed(state), live=live), width),
            _prompt_bar(state, width),
            Content.styled(_prompt_counts(state, width), MUTED),
        )


class AnswerSpeed(Section):
    """How fast the answer is written and how long it is."""

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw two rows: the speed and the counts."""
        live = state.phase is Phase.DECODING
        return lines(
            row("Answer", figure(answer_speed(state), live=live), width),
            Content.styled(_answer_counts(state, width), MUTED),
        )


def prompt_speed(state: MonitorState) -> str:
    """Write the speed of reading, live in its phase, else that of the last answer."""
    if state.phase is Phase.PROMPT:
        return rate(reading_rate(state.prompt))
    if state.phase is Phase.DECODING:
        return _last(reading_rate(state.prompt))
    return _last(state.last.prefill_tps if state.last else 0.0)


def answer_speed(state: MonitorState) -> str:
    """Write the speed of writing, live in its phase, else that of the last answer."""
    if state.phase is Phase.DECODING:
        decode = state.decode
        live = decode is not None and decode.seconds > 0
        return rate(decode.tokens / decode.seconds if decode and live else 0.0)
    return _last(state.last.decode_tps if state.last else 0.0)


def reading_rate(prompt: PromptProgress | None) -> float:
    """Return prompt tokens read per second, 0 before the first are."""
    if prompt is None or prompt.seconds <= 0:
        return 0.0
    return prompt.read / prompt.seconds


def seconds_left(prompt: PromptProgress) -> float | None:
    """Return the estimated seconds until the prompt is read, None before there is a rate."""
    speed = reading_rate(prompt)
    return (prompt.total - prompt.reused - prompt.read) / speed if speed > 0 else None


def _last(tokens_per_second: float) -> str:
    return f"last {rate(tokens_per_second)}" if tokens_per_second > 0 else NO_VALUE


def _prompt_bar(state: MonitorState, width: int) -> Content:
    prompt = state.prompt if state.phase is Phase.PROMPT else None
    if prompt is None:
        return Content.styled(bar(0.0, width)[1], TRACK)
    share = (prompt.read + prompt.reused) / max(prompt.total, 1)
    filled, rest = bar(share, width - 5)
    return Content.assemble((filled, "$primary"), (rest, TRACK), (f" {share:4.0%}", STRONG))


def _prompt_counts(state: MonitorState, width: int) -> str:
    prompt = state.prompt
    if prompt is None:
        return " "
    left = seconds_left(prompt) if state.phase is Phase.PROMPT else None
    done = prompt.read + prompt.reused
    counts = f"{done:,} / {prompt.total:,}" if left is not None else f"{prompt.total:,} tokens"
    reused = f"{prompt.reused:,} reused"
    return spread(counts, f"{duration(left)} left" if left is not None else reused, width)


def _answer_counts(state: MonitorState, width: int) -> str:
    decode = state.decode
    if decode is None:
        return " "
    thought = f"{decode.thinking_tokens:,} thinking" if decode.thinking_tokens else ""
    return spread(f"{decode.tokens:,} tokens", thought, width)
