"""What can be kept in a settings file: sections of settings, each setting a `Flag`.

`--help`, the comments in `settings.toml`, `stratadesk config show` and the environment variables
are all made from these tables. The values of the first three sections fill the engine's own
classes (`engine/commands.py`, `engine/vram/plan_settings.py`); the other two have theirs here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stratadesk.errors import UsageError
from stratadesk.settings import ENGINE_FLAGS, MAX_TOKENS, SAMPLING_FLAGS, Flag
from stratadesk.vram_flags import VRAM_FLAGS

ENVIRONMENT_PREFIX = "STRATADESK_"
LIKE = 0.6
"""How like another name must be, from 0 to 1, to be what was meant."""


@dataclass(frozen=True, slots=True)
class InterfaceSettings:
    """How the chat looks; what each field means is said once, in `INTERFACE_FLAGS`."""

    theme: str = "strata-dark"
    monitor: str = "wide"
    thinking: str = "hidden"
    ascii: bool = False
    plain: bool = False


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which models are offered and opened; see `MODEL_FLAGS`."""

    model: str | None = None
    folders: tuple[str, ...] = ()


OUR_THEMES = ("strata-dark", "strata-light", "strata-contrast")


def textual_themes() -> tuple[str, ...]:
    """Return the names of the themes that come with Textual, which takes 0.2 s to load."""
    from textual.theme import BUILTIN_THEMES

    return tuple(sorted(BUILTIN_THEMES))


INTERFACE_FLAGS = (
    Flag(
        "theme",
        ("--theme",),
        str,
        "strata-dark",
        f"colours: {', '.join(OUR_THEMES)} or one of Textual's, such as nord",
        choices=OUR_THEMES,
        others=textual_themes,
    ),
    Flag(
        "monitor",
        ("--monitor",),
        str,
        "wide",
        "how wide the monitor beside the chat starts",
        choices=("wide", "narrow", "off"),
    ),
    Flag(
        "thinking",
        ("--thinking",),
        str,
        "hidden",
        "whether what the model thinks starts shown or folded to a line",
        choices=("shown", "hidden"),
    ),
    Flag("ascii", ("--ascii",), bool, False, "draw with ASCII characters only"),
    Flag(
        "plain",
        ("--plain",),
        bool,
        False,
        "chat line by line, without a screen: for pipes, screen readers and simple terminals",
    ),
)

MODEL = Flag(
    "model",
    ("-m", "--model"),
    str,
    None,
    "a GGUF file, the folder of a split one, guide, or a name listed by stratadesk models",
)

MODEL_FLAGS = (
    MODEL,
    Flag("folders", (), str, None, "further folders to look for models in", repeated=True),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One value that can be kept: `section` and `flag.field` make its key."""

    section: str
    flag: Flag

    @property
    def key(self) -> str:
        """The name in files and commands, like `sampling.top_k`."""
        return f"{self.section}.{self.flag.field}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return ENVIRONMENT_PREFIX + _VARIABLES.get(self.flag.field, self.flag.field.upper())


_VARIABLES: Final = {"folders": "MODELS"}


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the file: one concern, its purpose in words, and its settings."""

    name: str
    purpose: str
    flags: tuple[Flag, ...]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Its settings in the order in which they are shown."""
        return tuple(Setting(self.name, flag) for flag in self.flags)


OF_ONE_MODEL = frozenset({"mtp", "spec"})
"""Flags that are not kept: a model without a draft block would refuse to load because of them."""
_KEPT_OF_MEMORY = tuple(flag for flag in VRAM_FLAGS if flag.field not in OF_ONE_MODEL)

SECTIONS = (
    Section("engine", "computing", ENGINE_FLAGS),
    Section("sampling", "how the next token is chosen", (*SAMPLING_FLAGS, MAX_TOKENS)),
    Section("memory", "memory of the card", _KEPT_OF_MEMORY),
    Section("interface", "how the chat looks", INTERFACE_FLAGS),
    Section("models", "which models are offered", MODEL_FLAGS),
)


def all_settings() -> Iterator[Setting]:
    """Go through the settings of all sections."""
    for section in SECTIONS:
        yield from section.settings


def find_setting(key: str) -> Setting:
    """Return the setting with this key; the part after the dot is enough.

    Raises:
        UsageError: there is none; the remedy names the nearest.
    """
    for setting in all_settings():
        if key in (setting.key, setting.flag.field):
            return setting
    near = nearest_key(key)
    remedy = f"The nearest is {near}." if near else "stratadesk config show lists them all."
    raise UsageError(f"There is no setting {key!r}.", remedy)


def nearest_key(key: str) -> str:
    """Return the key most like `key`, or "" when none is like it.

    >>> nearest_key("sampling.temprature"), nearest_key("topk"), nearest_key("zzz")
    ('sampling.temperature', 'sampling.top_k', '')
    """
    from difflib import SequenceMatcher

    def likeness(name: str) -> float:
        written = {key, key.rpartition(".")[2]}
        return max(SequenceMatcher(None, part, name).ratio() for part in written)

    names = _names()
    nearest = max(names, key=likeness)
    return names[nearest] if likeness(nearest) >= LIKE else ""


def _names() -> dict[str, str]:
    """Every name that may be meant by a setting, flags and llama.cpp's names among them."""
    names: dict[str, str] = {}
    for setting in all_settings():
        flag = setting.flag
        written = (name.lstrip("-") for name in (*flag.names, *flag.aliases))
        for name in (setting.key, flag.field, *written):
            names.setdefault(name, setting.key)
    return names
