"""How fast the prompt is read and the answer written; a speed is shown in its phase alone."""

from textual.content import Content

from stratadesk.engine.card_events import CacheSample, PowerSample
from stratadesk.engine.events import Phase, PromptProgress
from stratadesk.tui.figures import NO_VALUE, bar, duration, fit, link_speed, plural, rate, spread
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import MUTED, STRONG, TRACK, figure, lines, row
from stratadesk.tui.widgets.section import Section


class SpeedFigures(Section):
    """The speed of the phase, what slows the machine down, and how far it is."""

    watches = ("phase", "prompt", "decode", "cache", "power")

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw two rows."""
        match state.phase:
            case Phase.PROMPT:
                label, speed, second = "Reading", prompt_speed(state), _prompt_bar(state, width)
            case Phase.DECODING:
                label, speed, second = "Writing", answer_speed(state), _written(state, width)
            case _:
                label, speed, second = "Speed", "", Content(" ")
        live = bool(speed)
        label = fit((label, power_note(state.power)), max(width - len(speed) - 2, 1))
        return lines(row(label, figure(speed or NO_VALUE, live=live), width), second)


def prompt_speed(state: MonitorState) -> str:
    """Write the speed of reading; nothing outside its phase."""
    return rate(reading_rate(state.prompt)) if state.phase is Phase.PROMPT else ""


def answer_speed(state: MonitorState) -> str:
    """Write the speed of writing; nothing outside its phase."""
    if state.phase is not Phase.DECODING:
        return ""
    decode = state.decode
    return rate(decode.tokens / decode.seconds if decode and decode.seconds > 0 else 0.0)


def power_note(power: PowerSample | None) -> str:
    """Say what slows the machine down; nothing when nothing does or nobody tells."""
    if power is None:
        return ""
    notes = []
    if power.on_battery:
        notes.append("on battery")
    if power.throttled:
        notes.append(f"throttled: {', '.join(power.throttled)}")
    return " · ".join(notes)


def reading_rate(prompt: PromptProgress | None) -> float:
    """Return prompt tokens read per second, 0 before the first are."""
    if prompt is None or prompt.seconds <= 0:
        return 0.0
    return prompt.read / prompt.seconds


def seconds_left(prompt: PromptProgress) -> float | None:
    """Return the estimated seconds until the prompt is read, None before there is a rate."""
    speed = reading_rate(prompt)
    return (prompt.total - prompt.reused - prompt.read) / speed if speed > 0 else None


def _prompt_bar(state: MonitorState, width: int) -> Content:
    prompt = state.prompt
    if prompt is None:
        return Content.styled(bar(0.0, width)[1], TRACK)
    left = seconds_left(prompt)
    after = f"{duration(left)} left" if left is not None else ""
    share = (prompt.read + prompt.reused) / max(prompt.total, 1)
    filled, rest = bar(share, width - 6 - max(len(after), 9))
    return Content.assemble(
        (filled, "$primary"), (rest, TRACK), (f" {share:4.0%} ", STRONG), (after.rjust(9), MUTED)
    )


def _written(state: MonitorState, width: int) -> Content:
    decode = state.decode
    thought = f"{decode.thinking_tokens:,} thinking" if decode and decode.thinking_tokens else ""
    tokens = plural(decode.tokens, "token") if decode else ""
    link = link_words(state.cache)
    left = fit((tokens, thought), width - len(link) - 1)
    return Content.styled(spread(left, link, width) if link else left or " ", MUTED)


def link_words(cache: CacheSample | None) -> str:
    """Write how fast experts cross the link from RAM; nothing while that is not known."""
    rate = cache.link_rate if cache else None
    return "" if rate is None else f"link {link_speed(rate)}"
