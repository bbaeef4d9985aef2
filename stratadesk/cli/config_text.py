"""What `config show` prints: a settings file that says who decided each value, or JSON."""

import json
import re
from collections.abc import Iterable, Iterator

from stratadesk.settings_order import Decided, Decisions, Told
from stratadesk.settings_schema import SECTIONS
from stratadesk.settings_values import Kept, default_of

_RAW_CONTROLS = re.compile(r"[\x7f-\x9f]")
"""What JSON leaves as it is, but a terminal may obey and TOML in part forbids."""

VALUE_CELLS = 34
"""Where the column of winners begins, unless a value is longer."""


def as_toml(decisions: Decisions) -> str:
    """Write all settings as TOML; a comment behind each names who decides and what it hides."""
    return "\n\n".join(_section_text(decisions, section.name) for section in SECTIONS)


def as_json(decisions: Decisions) -> dict[str, object]:
    """Return the object that `config show --json` prints; scripts rely on its keys."""
    return {decided.setting.key: _object(decided) for decided in decisions}


def toml_value(value: Kept) -> str:
    """Write a value as TOML does.

    >>> toml_value("a"), toml_value(True), toml_value(("a", "b")), toml_value(0.5)
    ('"a"', 'true', '["a", "b"]', '0.5')
    """
    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return _RAW_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04X}", text)


def _section_text(decisions: Decisions, name: str) -> str:
    section = next(section for section in SECTIONS if section.name == name)
    mine = [decided for decided in decisions if decided.setting.section == name]
    return "\n".join((f"[{name}]  # {section.purpose}", *_rows(mine)))


def _rows(decisions: Iterable[Decided]) -> Iterator[str]:
    for decided in decisions:
        flag, winner = decided.setting.flag, decided.winner
        yield f"# {flag.help}"
        if winner.value in (None, ()):
            yield f"# {flag.field} is not set"
        else:
            value = f"{flag.field} = {toml_value(winner.value)}"
            yield f"{value:<{VALUE_CELLS}}  # {_who(decided)}"


def _who(decided: Decided) -> str:
    winner = decided.winner
    told = winner.source if not winner.place else f"{winner.source}: {winner.place}"
    hidden = "; ".join(f"{toml_value(said.value)} of {said.place}" for said in decided.hidden)
    return f"{told}, overrides {hidden}" if hidden else told


def _object(decided: Decided) -> dict[str, object]:
    setting = decided.setting
    return {
        "value": decided.winner.value,
        "source": decided.winner.source.value,
        "place": decided.winner.place,
        "overridden": [_told_object(said) for said in decided.hidden],
        "default": default_of(setting.flag),
        "variable": setting.variable,
        "help": setting.flag.help,
    }


def _told_object(said: Told) -> dict[str, object]:
    return {"value": said.value, "source": said.source.value, "place": said.place}
