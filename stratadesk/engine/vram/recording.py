"""Readings as JSON lines, one sample a line, for replay and bug reports. Sizes are bytes."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stratadesk.engine.vram.driver_model import DriverModel
from stratadesk.engine.vram.readings import (
    CardFigure,
    Growth,
    MemoryReading,
    ProgramList,
    ProgramUse,
    Source,
)
from stratadesk.engine.vram.states import MemoryState
from stratadesk.errors import UsageError

FORMAT = 1
"""The number of this line format; a line of another one is refused."""

_FIGURE_SIZES = ("total", "free", "budget", "own", "own_shared")


@dataclass(frozen=True, slots=True)
class Sample:
    """A reading, the reserve then (bytes), and the state it led to.

    `starts` is set on the first sample of a session: the states before it do not count.
    """

    reading: MemoryReading
    reserve: int
    state: MemoryState
    starts: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """All samples of a file, and the numbers of lines that a crash left incomplete."""

    samples: tuple[Sample, ...]
    torn: tuple[int, ...] = ()


class Recorder:
    """Appends samples to a file, a line in one write, so that no line mixes with another's.

    Raises:
        OSError: from the constructor and `write`, when the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._separator = "\n" if _ends_torn(path) else ""
        self._starts = True

    def write(self, reading: MemoryReading, reserve: int, state: MemoryState) -> None:
        """Append one sample."""
        line = encode(Sample(reading, reserve, state, self._starts))
        self._file.write(f"{self._separator}{line}\n".encode())
        self._separator, self._starts = "", False

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def encode(sample: Sample) -> str:
    """One line of JSON without its newline. What is not known is null."""
    fields = {"format": FORMAT, **asdict(sample)}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def decode(line: str) -> Sample:
    """Read what `encode` wrote.

    Raises:
        KeyError, TypeError, ValueError: A field is missing or has a value of another kind.
    """
    fields = json.loads(line)
    if fields["format"] != FORMAT:
        raise ValueError(f"format {fields['format']}, not {FORMAT}")
    return Sample(
        reading=_reading(fields["reading"]),
        reserve=_size(fields["reserve"]) or 0,
        state=MemoryState(fields["state"]),
        starts=bool(fields["starts"]),
    )


def load_recording(path: Path) -> Recording:
    """Read a file of samples.

    Raises:
        UsageError: The file cannot be read, has no sample, or a line is something else.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", "Name a file that can be read."
        ) from error
    torn = tuple(number for number, line in _numbered(lines) if _is_torn(line))
    samples = tuple(_sample(path, n, line) for n, line in _numbered(lines) if n not in torn)
    if not samples:
        raise UsageError(f"{path} has no recorded memory reading.", "Record one first.")
    return Recording(samples, torn)


def _numbered(lines: list[str]) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _is_torn(line: str) -> bool:
    """Whether a line is the beginning of a JSON object only: a write that was cut off."""
    try:
        json.loads(line)
    except ValueError:
        return line.startswith("{")
    return False


def _sample(path: Path, number: int, line: str) -> Sample:
    try:
        return decode(line)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path}, line {number} is no memory reading of this version: {error}.",
            "Record it again with this version.",
        ) from error


def _reading(fields: dict[str, Any]) -> MemoryReading:
    programs, grew = fields["programs"], fields["grew"]
    return MemoryReading(
        at=_seconds(fields["at"]),
        driver_model=DriverModel(fields["driver_model"]),
        figures=tuple(map(_figure, fields["figures"])),
        programs=None if programs is None else _programs(programs),
        own_dedicated=_size(fields["own_dedicated"]),
        own_shared=_size(fields["own_shared"]),
        grew=None if grew is None else _growth(grew),
    )


def _figure(fields: dict[str, Any]) -> CardFigure:
    sizes = {name: _size(fields[name]) for name in _FIGURE_SIZES}
    return CardFigure(Source(fields["source"]), why=str(fields["why"]), **sizes)


def _programs(fields: dict[str, Any]) -> ProgramList:
    uses = fields["programs"]
    programs = None if uses is None else tuple(map(_program, uses))
    return ProgramList(Source(fields["source"]), programs, str(fields["why"]))


def _program(fields: dict[str, Any]) -> ProgramUse:
    name = fields["name"]
    return ProgramUse(
        pid=int(fields["pid"]),
        name=None if name is None else str(name),
        dedicated=_size(fields["dedicated"]),
        shared=_size(fields["shared"]),
    )


def _growth(fields: dict[str, Any]) -> Growth:
    return Growth(str(fields["name"]), int(fields["pid"]), int(fields["n_bytes"]))


def _size(value: Any) -> int | None:
    """A number of bytes, or None for one that is not known."""
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{value!r} is no number of bytes")
    return value


def _seconds(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is no time in seconds")
    return float(value)


def _ends_torn(path: Path) -> bool:
    """Whether the file's last line has no newline: a write that was cut off."""
    with path.open("rb") as file:
        file.seek(0, 2)
        if file.tell() == 0:
            return False
        file.seek(-1, 2)
        return file.read() != b"\n"
