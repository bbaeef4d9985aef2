"""What `run` shows of an answer: text as it comes, or one JSON object at the end."""

import json
import sys
import time
from dataclasses import asdict

from stratadesk.cli.terminal import ProgressLine, dim, print_error
from stratadesk.engine.events import (
    Channel,
    Event,
    Failure,
    FinishReason,
    LoadProgress,
    ModelLoaded,
    PromptProgress,
    RequestFinished,
    TextDelta,
)
from stratadesk.tui.sanitise import safe_text
from stratadesk.units import format_bytes, format_rate

COMPILING = "Compiling kernels for this machine (once, then they are kept)…"
COMPILING_S = 2.0
ENDINGS = {
    FinishReason.STOP: "",
    FinishReason.LENGTH: "stopped at the token limit",
    FinishReason.CANCELLED: "stopped by you",
}


class Notices:
    """What every view says on standard error: progress on a terminal, warnings and failures."""

    def __init__(self) -> None:
        self._line = ProgressLine()
        self._kernels = CompileNotice()

    def show(self, event: Event) -> None:
        """Show progress, a warning or a failure; other events are left to the view."""
        match event:
            case LoadProgress():
                self._kernels.show(event)
                self._line.show(load_words(event))
            case PromptProgress():
                self._line.show(prompt_words(event))
            case ModelLoaded():
                self._line.clear()
                for warning in event.warnings:
                    print_error(f"warning: {warning}")
            case Failure():
                self._line.clear()
                print_error(event.sentence, event.remedy)

    def clear(self) -> None:
        """Take the progress line away."""
        self._line.clear()


class CompileNotice:
    """One line on a standard error that is no terminal, where loading means to compile first.

    Reading kernels that were compiled before takes a moment and is worth no line.
    """

    def __init__(self) -> None:
        self._silent = sys.stderr.isatty()
        self._begun: float | None = None

    def show(self, event: LoadProgress) -> None:
        """Say so at most once: at once when nothing was kept, else after two seconds."""
        if self._silent or event.unit != "kernels" or event.done == event.total:
            return
        now = time.monotonic()
        self._begun = now if self._begun is None else self._begun
        if event.done == 0 or now - self._begun > COMPILING_S:
            self._silent = True
            print(COMPILING, file=sys.stderr, flush=True)


class JsonView:
    """Prints one JSON object when the answer is complete, and nothing before."""

    def __init__(self) -> None:
        self._notices = Notices()
        self._device = ""

    def show(self, event: Event) -> None:
        """Wait for the end of the answer and print it."""
        self._notices.show(event)
        match event:
            case ModelLoaded():
                self._device = event.device
            case RequestFinished():
                self._notices.clear()
                print(json.dumps(answer_object(event, self._device), ensure_ascii=False))

    def close(self) -> None:
        """Take the progress line away."""
        self._notices.clear()


class TextView:
    """Streams the answer to standard output.

    On a terminal, thinking is shown dimmed before it, characters that a terminal would obey are
    made visible, and a line of figures follows on standard error.
    """

    def __init__(self) -> None:
        self._notices = Notices()
        self._on_terminal = sys.stdout.isatty()
        self._thinking = False
        self._at_line_start = True

    def show(self, event: Event) -> None:
        """Print what the event adds to the answer."""
        self._notices.show(event)
        match event:
            case TextDelta(channel=Channel.THINKING):
                if self._on_terminal:
                    self._begin_thinking()
                    self._write(event.text, dimmed=True)
            case TextDelta():
                self._end_thinking()
                self._write(event.text)
            case RequestFinished() if sys.stderr.isatty():
                self.close()
                print(dim(closing_words(event), sys.stderr), file=sys.stderr)

    def close(self) -> None:
        """End the last line, so that the shell's prompt starts on one of its own."""
        self._notices.clear()
        self._thinking = False
        if not self._at_line_start:
            self._write("\n")

    def _begin_thinking(self) -> None:
        if not self._thinking:
            self._thinking = True
            self._write("Thinking…\n", dimmed=True)

    def _end_thinking(self) -> None:
        if self._thinking:
            self._thinking = False
            if not self._at_line_start:
                self._write("\n")
            self._write("…done thinking.\n\n", dimmed=True)

    def _write(self, text: str, *, dimmed: bool = False) -> None:
        if not text:
            return
        self._notices.clear()
        shown = safe_text(text) if self._on_terminal else text
        self._at_line_start = text.endswith("\n")
        print(dim(shown, sys.stdout) if dimmed else shown, end="", flush=True)


def answer_object(event: RequestFinished, device: str) -> dict[str, object]:
    """Return the JSON object of `run --json`; scripts rely on its keys."""
    return {
        "prompt_tokens": event.prompt_tokens,
        "tokens": list(event.tokens),
        "text": event.text,
        "reasoning": event.reasoning,
        "finish_reason": event.finish_reason.value,
        "timings": asdict(event.timings),
        "device": device,
    }


def load_words(event: LoadProgress) -> str:
    """Say how far loading is."""
    if event.unit == "bytes":
        return f"{event.stage} {format_bytes(event.done)} of {format_bytes(event.total)}"
    if not event.unit:
        return event.stage
    return f"{event.stage} {event.done:,} of {event.total:,}"


def prompt_words(event: PromptProgress) -> str:
    """Say how far reading the prompt is."""
    done = event.read + event.reused
    speed = format_rate(event.read, event.seconds)
    return f"Reading the prompt: {done:,} of {event.total:,} tokens, {speed}"


def closing_words(event: RequestFinished) -> str:
    """Say how the answer ended and how quick it was."""
    timings = event.timings
    parts = (
        f"{len(event.tokens):,} tokens at {timings.decode_tps:,.1f} tok/s",
        f"prompt {event.prompt_tokens:,} tokens at {timings.prefill_tps:,.1f} tok/s",
        ENDINGS[event.finish_reason],
    )
    return f"[{', '.join(filter(None, parts))}]"
