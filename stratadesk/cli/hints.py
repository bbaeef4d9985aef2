"""What was probably meant by a command or flag that does not exist."""

import os
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from stratadesk.errors import UsageError


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
    near = get_close_matches(word, names, 1)
    if near:
        meant = f"Did you mean {program} {near[0]}?"
        return UsageError(f"There is no command {word!r}.", f"{meant} See {program} --help.")
    return UsageError(
        f"There is no command {word!r}.",
        f"The commands are {', '.join(names)}; see {program} --help.",
    )


def nearest_flag(word: str, flags: Iterable[str]) -> str:
    """Return the flag most like an unknown one, or "" when none is.

    >>> nearest_flag("--tmep", ["--temp", "--top-k"]), nearest_flag("--zzz", ["--temp"])
    ('--temp', '')
    """
    name = word.partition("=")[0]
    return next(iter(get_close_matches(name, flags, 1)), "")
