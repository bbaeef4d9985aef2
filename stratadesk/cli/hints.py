"""What was probably meant by a command or flag that does not exist, or by a word without one."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from stratadesk.errors import UsageError

_CHAT = "The chat is stratadesk without a command: stratadesk -m MODEL."
_LIST = "stratadesk models lists the models found on this machine."
_DOWNLOAD = "Nothing is downloaded: fetch the GGUF file yourself and name it with -m."
_SERVER = "There is no server: stratadesk run answers one prompt, stratadesk opens the chat."
_INSPECT = "stratadesk inspect MODEL says what a file holds."
_VERSION = "stratadesk --version prints the version."
_SHOW = "stratadesk config show lists every setting; config set KEY VALUE changes one."
OF_OTHERS: Final[Mapping[str, Mapping[str, str]]] = {
    "stratadesk": {
        **dict.fromkeys(("chat", "cli", "start", "open"), _CHAT),
        **dict.fromkeys(("list", "ls", "ps", "search"), _LIST),
        **dict.fromkeys(("pull", "get", "download"), _DOWNLOAD),
        **dict.fromkeys(("serve", "server"), _SERVER),
        **dict.fromkeys(("show", "info"), _INSPECT),
        "version": _VERSION,
        "help": "See stratadesk --help, or stratadesk COMMAND --help.",
        "guide": "Did you mean stratadesk -m guide?",
        "set": "Did you mean stratadesk config set?",
    },
    "stratadesk config": {
        **dict.fromkeys(("list", "ls", "get", "edit"), _SHOW),
        "reset": "stratadesk config unset KEY takes one value back.",
    },
}
"""What Ollama, LM Studio and llama.cpp call a command, and what does it here; by our program."""


def with_model_first(words: Sequence[str], commands: Iterable[str]) -> list[str]:
    """Let a first word that is a model file or a folder stand for `-m` and it.

    >>> with_model_first(["a.gguf", "-n", "5"], ["run"])
    ['-m', 'a.gguf', '-n', '5']
    """
    first = words[0] if words else ""
    if first and not first.startswith("-") and first not in commands and _is_model(first):
        return ["-m", *words]
    return list(words)


def _is_model(word: str) -> bool:
    path = os.path.expanduser(word)
    return word.lower().endswith(".gguf") or (os.sep in word and os.path.exists(path))


def no_such_command(word: str, commands: Iterable[str], program: str) -> UsageError:
    """Return the error for a word that stands where a command should."""
    names = list(commands)
    here = OF_OTHERS.get(program, {}).get(word)
    if here is not None:
        return UsageError(f"There is no command {word!r}.", here)
    near = get_close_matches(word, names, 1)
    if near:
        meant = f"Did you mean {program} {near[0]}?"
        return UsageError(f"There is no command {word!r}.", f"{meant} See {program} --help.")
    return UsageError(
        f"There is no command {word!r}.",
        f"The commands are {', '.join(names)}; see {program} --help.",
    )


def nearest_flag(word: str, flags: Iterable[str]) -> str:
    """Return the flag most like an unknown one, or "" when none is. One letter is like none.

    >>> nearest_flag("--tmep", ["--temp", "--top-k"]), nearest_flag("--zzz", ["--temp"])
    ('--temp', '')
    >>> nearest_flag("--temperature", ["--temp"]), nearest_flag("-v", ["--kv"])
    ('--temp', '')
    """
    name = word.partition("=")[0].lstrip("-")
    names = {flag.lstrip("-"): flag for flag in flags if flag.startswith("--")}
    begun = [long for long in names if len(long) >= 4 and name.startswith(long)]
    near = begun or (get_close_matches(name, names, 1) if len(name) > 1 else [])
    return names[near[0]] if near else ""


def lone_words(words: Sequence[str], missing: Collection[str]) -> str:
    """Say with which flags words were probably meant; `missing` of "model" and "prompt".

    >>> lone_words(["qwen3:30b"], {"model", "prompt"}), lone_words(["Why?"], {"prompt"})
    ('-m qwen3:30b -p "TEXT"', '-p "Why?"')
    >>> lone_words(["Why is it?"], {"model", "prompt"}), lone_words(["x"], set())
    ('-p "Why is it?"', '')
    """
    rest, meant = list(words), []
    text_alone = "prompt" in missing and len(rest) == 1 and " " in rest[0]
    if "model" in missing and not text_alone:
        meant.append(f"-m {_plain(rest.pop(0), 'MODEL')}")
    if "prompt" in missing:
        meant.append(f'-p "{_plain(" ".join(rest), "TEXT")}"')
    return " ".join(meant)


def _plain(text: str, otherwise: str) -> str:
    """The text where it can stand on a line of a shell as it is."""
    fits = text and text.isprintable() and len(text) <= 80 and not set(text) & set("\"'\\$`!")
    return text if fits else otherwise
