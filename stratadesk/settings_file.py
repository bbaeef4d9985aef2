"""`settings.toml`: reading it with a place for every problem, and changing one value in it.

Comments, order and keys that this version does not know are kept. A file that is not TOML is
never overwritten: it is reported, and copied aside before a change must be saved.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from stratadesk.errors import StrataDeskError, UsageError
from stratadesk.file_safety import keep_aside, locked, replace_text
from stratadesk.paths import folders
from stratadesk.settings import quoted
from stratadesk.settings_schema import Setting, find_setting, nearest_key
from stratadesk.settings_toml import NotTomlError, entries_of, key_lines, parse_toml
from stratadesk.settings_values import Kept, from_file

USER_FILE = "settings.toml"
PROJECT_FILE = "stratadesk.toml"
LOCK_WAIT_S = 2.0
LARGEST_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that cannot be used; `key` is empty when it is the whole file.

    `unknown` marks keys that another version may know: they are kept, not used.
    """

    path: Path
    line: int | None
    key: str
    sentence: str
    unknown: bool = False

    @property
    def place(self) -> str:
        """File, line and key in words."""
        line = f"line {self.line}" if self.line else ""
        return ", ".join(filter(None, (str(self.path), line, self.key)))

    def __str__(self) -> str:
        return f"{self.place}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class FileContents:
    """What a file says: checked values by key, the line of each, and what is wrong with it."""

    path: Path
    values: Mapping[str, Kept] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def user_file() -> Path:
    """Where this user's settings are kept."""
    return folders().config / USER_FILE


def project_file() -> Path:
    """Where a project may keep its own: in the folder that StrataDesk is started in."""
    return Path(PROJECT_FILE).absolute()


def read_settings(path: Path) -> FileContents:
    """Read a settings file; one that does not exist says nothing. Never raises."""
    try:
        text = _text_of(path)
        data = parse_toml(text)
    except NotTomlError as error:
        problem = Problem(path, error.line, "", f"This is not TOML: {error}.")
        return FileContents(path, problems=(problem,))
    except StrataDeskError as error:
        return FileContents(path, problems=(Problem(path, None, "", error.sentence),))
    lines = key_lines(text)
    values: dict[str, Kept] = {}
    problems = []
    for key, raw in entries_of(data):
        outcome = _checked(path, lines.get(key), key, raw)
        if isinstance(outcome, Problem):
            problems.append(outcome)
        else:
            values[key] = outcome
    return FileContents(path, values, lines, tuple(problems))


def save_setting(path: Path, key: str, value: Kept) -> Path | None:
    """Change one value in the file at `path`, None taking it out; all else stays as it is.

    Other processes wait meanwhile, so that no change is lost. Returns the copy of a damaged file
    that had to be set aside, None when the file was sound.

    Raises:
        UsageError: there is no such setting, or the value is not allowed.
        StrataDeskError: the file cannot be read, locked or written, or cannot take the change.
    """
    from stratadesk.settings_edit import changed_text

    setting = find_setting(key)
    if value is not None:
        _refuse_wrong(setting, value)
    with locked(path, LOCK_WAIT_S):
        text, aside = _text_to_change(path)
        replace_text(path, changed_text(path, text, setting, value))
    return aside


def remember(key: str, value: object) -> None:
    """Keep one value in this user's file for the next start; what others changed there stays.

    May take as long as another process holds the file, at most `LOCK_WAIT_S`. A damaged file is
    set aside, which the log tells.

    Raises:
        UsageError: there is no such setting, or the value is not allowed.
        StrataDeskError: the file cannot be read, locked or written, or cannot take the change.
    """
    import logging

    kept = tuple(value) if isinstance(value, list) else value
    aside = save_setting(user_file(), key, cast(Kept, kept))
    if aside is not None:
        logging.getLogger(__name__).warning("the settings were damaged; a copy is %s", aside)


def _checked(path: Path, line: int | None, key: str, raw: object) -> "Kept | Problem":
    try:
        setting = find_setting(key)
    except UsageError as error:
        return Problem(path, line, "", f"{error.sentence} {error.remedy}", unknown=True)
    if setting.key != key:
        sentence = f"There is no setting {key!r}. The nearest is {nearest_key(key)}."
        return Problem(path, line, "", sentence, unknown=True)
    try:
        return from_file(setting.flag, raw)
    except ValueError as error:
        return Problem(path, line, key, f"{quoted(raw)} is not {error}.")


def _refuse_wrong(setting: Setting, value: Kept) -> None:
    raw = list(value) if isinstance(value, tuple) else value
    try:
        from_file(setting.flag, raw)
    except ValueError as error:
        raise UsageError(
            f"{setting.key}: {quoted(raw)} is not {error}.", "Choose a value that is allowed."
        ) from None


def _text_to_change(path: Path) -> tuple[str, Path | None]:
    """Return the file's text; for a damaged one "" and where it has been copied to."""
    try:
        text = _text_of(path)
        parse_toml(text)
    except NotTomlError:
        return "", keep_aside(path)
    return text, None


def _text_of(path: Path) -> str:
    try:
        # A FIFO would never end, and a device never be full.
        if path.exists() and not path.is_file():
            raise StrataDeskError(f"{path} cannot be read: it is no file.", "Move it away.")
        raw = path.read_bytes()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StrataDeskError(
            f"{path} cannot be read: {error.strerror}.", "Give this user the right to read it."
        ) from None
    if len(raw) > LARGEST_BYTES:
        raise StrataDeskError(
            f"{path} is no settings file: it has {len(raw):,} bytes.", "Move it away."
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise NotTomlError(f"byte 0x{raw[error.start]:02X} is not UTF-8", line) from None
