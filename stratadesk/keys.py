"""The one table of keys: bindings, the footer, the help screen and the docs are made from it.

Keys are written as Textual names them. None is a key that Windows Terminal keeps for itself,
and none is another key's code in a terminal without the kitty protocol.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """One key: a stable id, the key, a label for the footer, and what it does in a sentence."""

    id: str
    key: str
    label: str
    tooltip: str

    @property
    def caption(self) -> str:
        """The key as keyboards write it.

        >>> find_key("new_chat").caption, find_key("help").caption, find_key("stop").caption
        ('^N', 'F1', 'Esc')
        """
        if self.key.startswith("ctrl+"):
            return "^" + self.key.removeprefix("ctrl+").upper()
        return _CAPTIONS.get(self.key, self.key.upper())


_CAPTIONS = {
    "escape": "Esc",
    "enter": "Enter",
    "backspace": "Bksp",
    "pageup": "PgUp",
    "pagedown": "PgDn",
}

KEYS = (
    Key("send", "enter", "send", "Send the message; after a trailing backslash, start a new line."),
    Key("newline", "ctrl+j", "new line", "Start a new line in the message."),
    Key("stop", "escape", "stop", "Stop the answer or the loading; close help and lists."),
    Key("interrupt", "ctrl+c", "copy or stop", "Copy the selection; else stop; twice: quit."),
    Key("help", "f1", "help", "Show this list of keys."),
    Key("model", "f2", "model", "Choose another model."),
    Key("alias", "f3", "alias", "Let prompts take the output head's bytes: auto, on or off."),
    Key("reserve_down", "f4", "reserve down", "Keep less of the card free: more expert slots."),
    Key("reserve_up", "f5", "reserve up", "Keep more of the card free: fewer expert slots."),
    Key("monitor", "f6", "monitor", "Make the monitor wide, narrow, or hide it."),
    Key("thinking", "f7", "thinking", "Show or hide what the model thinks."),
    Key("reload", "f8", "reload", "Load the model again; with a lost GPU, start StrataDesk again."),
    Key("settings", "f9", "settings", "Change settings, one key each."),
    Key("new_chat", "ctrl+n", "new chat", "Start an empty chat with the same model."),
    Key("page_up", "pageup", "scroll up", "Read further up; new text does not move the view."),
    Key("page_down", "pagedown", "scroll down", "Read further down; at the end the view follows."),
    Key("palette", "ctrl+p", "commands", "Search all commands, themes among them."),
    Key("quit", "ctrl+q", "quit", "Leave StrataDesk."),
    Key("widen", "backspace", "widen", "In the list of models: letters filter it; take one back."),
    Key("set_reserve", "r", "reserve", "In the settings: type the reserve in MiB."),
    Key(
        "set_device", "d", "device", "In the settings: compute on the CPU (host) or a card (cuda)."
    ),
    Key("set_chunk", "c", "chunk", "In the settings: tokens of a prompt computed at once."),
    Key("set_cache", "e", "expert slots", "In the settings: how many expert slots there are."),
    Key("set_kv", "k", "KV cache", "In the settings: how keys and values are stored."),
    Key("set_context", "x", "context", "In the settings: how many tokens the context holds."),
    Key("set_theme", "t", "theme", "In the settings: the colours."),
)


def find_key(key_id: str) -> Key:
    """Return the key with this id.

    Raises:
        KeyError: There is no such id.
    """
    for key in KEYS:
        if key.id == key_id:
            return key
    raise KeyError(key_id)
