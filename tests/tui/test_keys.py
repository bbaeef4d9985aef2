"""A key that the terminal keeps for itself, or sends as another key, is an action nobody reaches.

The list is what Windows Terminal binds by default, and what a terminal without the kitty
protocol cannot tell apart.
"""

import pytest
from textual.binding import Binding
from textual.keys import Keys

from stratadesk.keys import KEYS, Key, find_key
from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.bindings import bind
from stratadesk.tui.screens.chat_screen import ChatScreen

LETTERS = ("f", "p", "t", "n", "d", "w", "c", "v", "a", "m")
PAGES = ("pageup", "pagedown", "home", "end")
CTRL_SHIFT = (*LETTERS, *PAGES, "up", "down", "space", "period", "tab")
CTRL_ALT = [*map(str, range(1, 10)), "left", "comma"]
ARROWS = ("up", "down", "left", "right")

SWALLOWED = {
    *("alt+f4", "alt+enter", "f11", "alt+space", "ctrl+tab", "ctrl+insert", "shift+insert"),
    *("ctrl+comma", "ctrl+plus", "ctrl+minus", "ctrl+0", "menu"),
    *(f"ctrl+shift+{key}" for key in (*CTRL_SHIFT, *map(str, range(1, 10)))),
    *(f"ctrl+alt+{key}" for key in CTRL_ALT),
    *(f"alt+{key}" for key in ARROWS),
    *(f"alt+shift+{key}" for key in (*ARROWS, "minus", "plus")),
}
ALIASES = {
    *("ctrl+i", "ctrl+m", "ctrl+left_square_bracket", "ctrl+h", "ctrl+space", "ctrl+at"),
    *("shift+enter", "ctrl+enter", "ctrl+b", "ctrl+a", "ctrl+s", "ctrl+z"),
}


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.id)
def test_no_key_is_swallowed_or_an_alias(key: Key) -> None:
    assert key.key not in SWALLOWED
    assert key.key not in ALIASES
    assert not (key.key.startswith("ctrl+") and len(key.key) == 6 and key.key[5].isupper())
    assert not key.key.startswith(("shift+f", "ctrl+shift+"))


def test_keys_and_ids_are_unique_and_explained() -> None:
    assert len({key.id for key in KEYS}) == len(KEYS)
    assert len({key.key for key in KEYS}) == len(KEYS)
    for key in KEYS:
        assert key.label
        assert key.tooltip.endswith(".")


def test_keys_are_named_as_textual_names_them() -> None:
    known = {key.value for key in Keys}
    for key in KEYS:
        assert key.key in known or (len(key.key) == 1 and key.key.islower()), key


def test_a_binding_carries_what_the_table_says() -> None:
    binding = bind("monitor", "cycle_monitor", priority=True)
    key = find_key("monitor")
    assert (binding.id, binding.key, binding.tooltip) == (key.id, key.key, key.tooltip)
    with pytest.raises(KeyError):
        bind("no such id", "anything")


def test_every_binding_of_the_screens_comes_from_the_table() -> None:
    ids = {key.id for key in KEYS}
    for owner in (StrataDeskApp, ChatScreen):
        for binding in owner.BINDINGS:
            assert isinstance(binding, Binding)
            assert binding.id in ids


def test_captions_are_what_keyboards_say() -> None:
    captions = {key.id: key.caption for key in KEYS}
    assert captions["new_chat"] == "^N"
    assert captions["help"] == "F1"
    assert captions["stop"] == "Esc"
    assert captions["page_up"] == "PgUp"
