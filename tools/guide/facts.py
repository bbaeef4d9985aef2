"""What the guide says of keys, flags, commands and exit codes, from the program's own tables.

Texts name them by id, as in `{key:alias}`, `{default:kv_format}` or `{exit:USAGE}`; an id that the
program no longer has is an error, and so is a flag, key or variable written out that it lacks.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from stratadesk.cli.parser import build_parser
from stratadesk.exit_codes import ExitCode
from stratadesk.keys import KEYS, find_key
from stratadesk.settings import Flag
from stratadesk.settings_schema import Setting, all_settings
from stratadesk.vram_flags import MACHINE_FLAGS
from tools.guide.wordings import sections

PATTERNS = Path(__file__).parent / "texts" / "tables.md"
SPOKEN = Path(__file__).parent / "texts" / "spoken.md"

_PLACE = re.compile(r"\{(key|flag|default|exit):(\w+)\}|\{(commands)\}")
_FLAG_IN_TEXT = re.compile(r"(?<![\w-])--?[a-z][a-z0-9-]*")
_KEY_IN_TEXT = re.compile(r"(?<![\w-])(?:F\d{1,2}|Ctrl\+\w+)(?!\w)")
_VARIABLE_IN_TEXT = re.compile(r"STRATADESK_[A-Z]\w*")
_LETTER = re.compile(r"\b[A-Z]\b")

EXIT_MEANINGS = {
    ExitCode.OK: "done, all went well",
    ExitCode.FAILURE: "failed; the sentence on standard error says how, or names the log",
    ExitCode.USAGE: "bad usage: wrong flags, settings or input, or a prompt longer than "
    "the context",
    ExitCode.MODEL_UNUSABLE: "the model cannot be used: a damaged file or an unsupported family, "
    "tensor type or tokenizer",
    ExitCode.NO_GPU: "no usable GPU or driver",
    ExitCode.OUT_OF_MEMORY: "not enough memory; the message names the smallest changes that fit",
    ExitCode.INTERRUPTED: "stopped by Ctrl+C; what was said until then has been printed",
}

OTHER_VARIABLES = frozenset({"STRATADESK_HOME", "STRATADESK_MODELS", "STRATADESK_DEBUG"})
"""Variables that set no setting; `STRATADESK_MODELS` has its own name in the schema."""


class UnknownFactError(ValueError):
    """A text names something that the program does not have."""


@dataclass(frozen=True)
class Topic:
    """One thing to be asked about, and what is answered.

    `names` are noun phrases for it, `deeds` what somebody wants to do, `troubles` what somebody
    sees, and `asked` whole questions, all in the grammar of `wordings.py`.
    """

    id: str
    answers: tuple[str, ...]
    names: tuple[str, ...] = ()
    deeds: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    weight: float = 1.0
    follow_ups: tuple[tuple[str, str], ...] = field(default=())


def key_name(key_id: str) -> str:
    """A key as the guide writes it: `F3`, `Ctrl+N`, `Esc`.

    >>> key_name("alias"), key_name("new_chat"), key_name("set_kv")
    ('F3', 'Ctrl+N', 'K')
    """
    key = find_key(key_id)
    if key.key.startswith("ctrl+"):
        return "Ctrl+" + key.key.removeprefix("ctrl+").upper()
    return key.caption


@cache
def flags() -> dict[str, Flag]:
    """Every flag of a setting or of the machine by its field."""
    found = {flag.field: flag for flag in MACHINE_FLAGS}
    return {**found, **{setting.flag.field: setting.flag for setting in all_settings()}}


@cache
def commands() -> dict[str, str]:
    """Each command of the command line with its purpose."""
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {choice.dest: str(choice.help) for choice in action._choices_actions}
    raise UnknownFactError("the command line has no commands")


@cache
def option_strings() -> frozenset[str]:
    """Everything that any command takes as a flag."""
    return frozenset(_options_of(build_parser()))


def _options_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _options_of(command)


def fill(text: str) -> str:
    """Put the program's facts into a text; UnknownFactError names an id that it does not have."""
    return _PLACE.sub(_fact, text)


def _fact(place: re.Match[str]) -> str:
    kind, name, listing = place.groups()
    if listing:
        return ", ".join(f"`{command}`" for command in commands())
    try:
        if kind == "key":
            return key_name(name)
        if kind == "exit":
            return str(int(ExitCode[name]))
        flag = flags()[name]
    except KeyError:
        raise UnknownFactError(f"{place[0]}: the program has no {kind} {name!r}") from None
    return flag.names[-1] if kind == "flag" else written_default(flag)


def written_default(flag: Flag) -> str:
    """A flag's default in words."""
    if flag.default is None:
        return "not set"
    if flag.kind is bool:
        return "on" if flag.default else "off"
    return str(flag.default)


def unknown_in(text: str) -> list[str]:
    """The flags, keys and variables written out in a text that the program does not have."""
    keys = {key_name(key.id) for key in KEYS}
    variables = {setting.variable for setting in all_settings()} | OTHER_VARIABLES
    return [
        *(found for found in _FLAG_IN_TEXT.findall(text) if found not in option_strings()),
        *(found for found in _KEY_IN_TEXT.findall(text) if found not in keys),
        *(
            found
            for found in _VARIABLE_IN_TEXT.findall(text)
            if found not in variables and not found.endswith("_")
        ),
    ]


# -- topics made from the tables ----------------------------------------------------------------


def table_topics(named: frozenset[str]) -> Iterator[Topic]:
    """Topics about each key, flag, setting, command and exit code.

    `named` are noun phrases that hand-written topics already explain.
    """
    yield from _key_topics()
    for name, flag in flags().items():
        if flag.names:
            yield from _flag_topics(name, flag, named)
    yield from (_setting_topic(setting) for setting in all_settings() if setting.flag.names)
    for command, purpose in commands().items():
        if f"stratadesk {command}" not in named:
            yield _command_topic(command, purpose)
    yield from (_exit_topic(code) for code in ExitCode)


@cache
def spoken_names() -> dict[str, tuple[str, ...]]:
    """What people call each flag, from `spoken.md`; UnknownFactError names a field without one."""
    lines = SPOKEN.read_text("utf-8").splitlines()
    parts = (line.split(": ", 1) for line in lines if line and not line.startswith("#"))
    found = {name: tuple(names.split("|")) for name, names in parts}
    if unknown := found.keys() - flags().keys():
        raise UnknownFactError(f"{SPOKEN.name}: the program has no flag for {sorted(unknown)}")
    return found


def _asked(section: str, **places: str) -> tuple[str, ...]:
    """The patterns of a section of `tables.md` with each capital letter's text in its place."""
    return tuple(
        _LETTER.sub(lambda letter: places[letter[0]], pattern)
        for pattern in sections(PATTERNS)[section]
    )


def _either(*groups: Sequence[str]) -> str:
    """A pattern for one text of one group, each group drawn as often as the others."""
    return f"({'|'.join('|'.join(group).join('()') for group in groups if group)})"


def _key_topics() -> Iterator[Topic]:
    for key in KEYS:
        name = key_name(key.id)
        spoken = [name, name.lower(), f"the {name} key", f"key {name}", f"pressing {name}"]
        pressed = [name, name.lower(), f"the {name} key", f"the key {name.lower()}"]
        if name.startswith("Ctrl+"):
            letter = name[-1]
            others = [f"ctrl {letter}".lower(), f"^{letter}", f"control {letter}".lower()]
            spoken += others
            pressed += [*others, f"ctrl-{letter}".lower()]
        if key.id.startswith("set_"):
            letter = key.key
            spoken = [
                f"{letter} in the settings",
                f"the key {letter} in the settings",
                f"pressing {letter} in the settings",
            ]
            opener = key_name("settings").lower()
            pressed = [
                *spoken[:2],
                f"{letter} on the settings screen",
                f"{opener} and then {letter}",
            ]
        asked = _asked("key", K=_either(pressed))
        answer = f'{name} is the key for "{key.label}". {key.tooltip}'
        yield Topic(f"pressed-{key.id}", (answer,), tuple(spoken), asked=asked, weight=0.6)


def _flag_topics(name: str, flag: Flag, named: frozenset[str]) -> Iterator[Topic]:
    longest, bare = flag.names[-1], flag.names[-1].lstrip("-")
    own = [each for each in (*flag.names, *flag.aliases) if each not in named]
    about = [
        f"the {longest} flag",
        f"the flag {longest}",
        f"the {bare} option",
        f"option {longest}",
    ]
    spoken = (name.replace("_", " "), *spoken_names().get(name, ()))
    default = f"The default of `{longest}` is {written_default(flag)}."
    allowed = f"`{longest}` takes {flag.allowed()}; the default is {written_default(flag)}."
    means = f"It means: {flag.help}."
    yield Topic(
        f"flag-{name}",
        (f"`{longest}`: {flag.help}. {default} Allowed is {flag.allowed()}.",),
        (*own, *about),
        asked=_asked("flag", F=_either(own, about), S=_either(spoken)),
        weight=0.5,
        follow_ups=tuple(zip(_FOLLOWING, (default, allowed), strict=True)),
    )
    either = _either((longest, bare, *flag.names[:-1], *flag.aliases), spoken)
    asked = _asked_of_kind("default", flag, either)
    yield Topic(f"default-{name}", (f"{default} {means}",), asked=asked, weight=0.3)
    asked = _asked_of_kind("allowed", flag, either)
    yield Topic(f"allowed-{name}", (f"{allowed} {means}",), asked=asked, weight=0.2)


def _asked_of_kind(section: str, flag: Flag, names: str) -> tuple[str, ...]:
    """A section's patterns and those for flags of this kind: numbers, choices, switches, auto."""
    kinds = {
        "-number": flag.kind in (int, float),
        "-choice": bool(flag.choices),
        "-switch": flag.kind is bool,
        "-auto": "auto" in (*flag.words, *flag.choices),
    }
    wanted = [section, *(section + kind for kind, fits in kinds.items() if fits)]
    known = sections(PATTERNS)
    return tuple(pattern for each in wanted if each in known for pattern in _asked(each, N=names))


_FOLLOWING = (
    "(and|what is|what's) (the|its) default[ value]|default",
    "(which|what) values (are allowed|can it have|does it take)|range",
)


def _setting_topic(setting: Setting) -> Topic:
    flag = setting.flag
    spoken = (flag.field.replace("_", " "), *spoken_names().get(flag.field, ()))
    answer = (
        f"In a settings file the key is `{setting.key}`, in the environment "
        f"`{setting.variable}`, and the flag is `{flag.names[-1]}`. "
        f"`stratadesk config set {setting.key} VALUE` keeps it."
    )
    return Topic(
        f"setting-{setting.key}",
        (answer,),
        (setting.variable, setting.key),
        asked=_asked("setting", N=_either(flag.names, spoken)),
        weight=0.3,
    )


def _command_topic(command: str, purpose: str) -> Topic:
    sentence = (
        f"`stratadesk {command}` is the command to {purpose}; `--help` behind it explains it."
    )
    spoken = (f"stratadesk {command}", f"the {command} command", f"the command {command}")
    asked = _asked("command", C=_either(spoken), P=purpose)
    return Topic(
        f"command-{command}", (sentence,), spoken, deeds=(purpose,), asked=asked, weight=0.7
    )


def _exit_topic(code: ExitCode) -> Topic:
    number = int(code)
    spoken = [
        f"{kind} {number}"
        for kind in ("exit code", "code", "exit status", "return code", "error code", "exit")
    ]
    meaning = EXIT_MEANINGS[code]
    short = meaning.partition(";")[0].partition(":")[0]
    return Topic(
        f"exit-{code.name}",
        (f"Exit code {number} means: {meaning}.",),
        tuple(spoken),
        troubles=(
            f"it ends with {number}",
            f"i get exit code {number}",
            f"it exits with code {number}",
        ),
        asked=_asked("exit", X=_either(spoken), C=str(number), M=short),
        weight=0.7,
    )
