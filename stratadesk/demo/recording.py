"""A recorded run: what it is, the question that was asked, and the events with their times."""

import json
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from stratadesk.demo.codec import decode, encode
from stratadesk.engine.card_events import Provenance
from stratadesk.engine.events import Event, Phase, PhaseChanged
from stratadesk.errors import UsageError

FORMAT = 1
RECORDED = "recorded.jsonl"


@dataclass(frozen=True, slots=True)
class Moment:
    """An event and when it was said, in seconds of the recording's clock."""

    at: float
    event: Event


@dataclass(frozen=True, slots=True)
class Recording:
    """A run from loading a model to the end of one answer."""

    words: str
    question: str
    loading: tuple[Moment, ...]
    answer: tuple[Moment, ...]

    @property
    def provenance(self) -> Provenance:
        """What screens say about it."""
        return Provenance("RECORDED", self.words)


def parse_recording(text: str) -> Recording:
    """Read what `written` wrote.

    Raises:
        UsageError: it is no recording, or one of another version.
    """
    try:
        head, *lines = (json.loads(line) for line in text.splitlines() if line.strip())
        known = head.get("format") == FORMAT
        moments = [Moment(float(line["at"]), decode(line["event"])) for line in lines if known]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"The recording is damaged: {error}.", "Record it again.") from error
    if not known:
        raise UsageError(
            f"The recording has format {head.get('format')}, not {FORMAT}.",
            "Record it again with this version.",
        )
    split = next((i for i, moment in enumerate(moments) if _begins_answer(moment)), len(moments))
    return Recording(
        words=str(head["words"]),
        question=str(head["question"]),
        loading=tuple(moments[:split]),
        answer=tuple(moments[split:]),
    )


def written(recording: Recording) -> str:
    """Return a recording as JSON lines."""
    head = {"format": FORMAT, "words": recording.words, "question": recording.question}
    moments = (*recording.loading, *recording.answer)
    lines = [head, *({"at": round(m.at, 4), "event": encode(m.event)} for m in moments)]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def packaged_recording() -> Recording:
    """Read the recording that comes with the program."""
    text = resources.files("stratadesk.demo").joinpath(RECORDED).read_text("utf-8")
    return parse_recording(text)


def moved(event: Event, shift: float, request_id: int | None = None) -> Event:
    """Return `event` as if it was said `shift` seconds later, of request `request_id` if of any."""
    changes: dict[str, Any] = {}
    when, status = getattr(event, "at", None), getattr(event, "status", None)
    if when is not None:
        changes["at"] = when + shift
    if status is not None and status.reading is not None:
        reading = replace(status.reading, at=status.reading.at + shift)
        changes["status"] = replace(status, reading=reading)
    if request_id is not None and getattr(event, "request_id", None) is not None:
        changes["request_id"] = request_id
    return replace(event, **changes) if changes else event


def _begins_answer(moment: Moment) -> bool:
    return isinstance(moment.event, PhaseChanged) and moment.event.phase is Phase.PROMPT
