"""Many ways to ask the same: a small grammar, frames around names and deeds, and human noise.

In a pattern `(a|b)` is one of its parts, `[a]` is there or not, and `{list}` is a word of a list.
"""

import random
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

FRAMES = Path(__file__).parent / "texts" / "frames.md"

_SMALL_WORDS = frozenset(
    ("the", "a", "an", "is", "are", "do", "does", "i", "to", "of", "my", "it", "in", "on", "for")
)
_TOKEN = re.compile(r"\(|\)|\[|\]|\||\{\w+\}|[^()\[\]|{}]+")


def frames() -> Mapping[str, Sequence[str]]:
    """The lines of `frames.md` by section."""
    return sections(FRAMES)


@cache
def sections(path: Path) -> Mapping[str, Sequence[str]]:
    """The lines of a text below each `## ` heading."""
    found: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("## "):
            found[line.removeprefix("## ")] = []
        elif line and not line.startswith("# "):
            found[list(found)[-1]].append(line)
    return found


@cache
def synonyms() -> Mapping[str, Sequence[str]]:
    """For each word of a group those that may stand in its place."""
    found: dict[str, list[str]] = {}
    for group in frames()["alike"]:
        words = [word.replace("-", " ") for word in group.split()]
        for word in words:
            found.setdefault(word, []).extend(other for other in words if other != word)
    return found


def expand(pattern: str, chance: random.Random, lists: Mapping[str, Sequence[str]]) -> str:
    """One of the texts that a pattern stands for.

    >>> sorted({expand("(a|b) [c]", random.Random(n), {}).strip() for n in range(20)})
    ['a', 'a c', 'b', 'b c']
    """
    tokens = _TOKEN.findall(pattern)
    text, _ = _alternatives(tokens, 0, chance, lists)
    return " ".join(text.split())


def _alternatives(
    tokens: Sequence[str], at: int, chance: random.Random, lists: Mapping[str, Sequence[str]]
) -> tuple[str, int]:
    """The text chosen from `tokens` up to the bracket that closes them, and the place behind."""
    options: list[str] = []
    parts: list[str] = []
    while at < len(tokens) and tokens[at] not in ")]":
        token = tokens[at]
        at += 1
        if token == "|":
            options.append("".join(parts))
            parts = []
        elif token in "([":
            inner, at = _alternatives(tokens, at, chance, lists)
            parts.append(inner if token == "(" or chance.random() < 0.5 else "")
        elif token.startswith("{") and token[1:-1] in lists:
            parts.append(chance.choice(lists[token[1:-1]]))
        else:
            parts.append(token)
    options.append("".join(parts))
    return chance.choice(options), at + 1


def about_name(name: str, chance: random.Random) -> str:
    """A question about something by its name."""
    return chance.choice(frames()["names"]).replace("X", name)


def about_deed(deed: str, chance: random.Random) -> str:
    """A question how to do something."""
    return chance.choice(frames()["deeds"]).replace("D", deed)


def about_trouble(trouble: str, chance: random.Random) -> str:
    """A complaint, as a statement or turned into a question."""
    if chance.random() < 0.25:
        found = re.match(r"(.+?) (is|are|was) (.+)", trouble)
        if found:
            return f"why {found[2]} {found[1]} {found[3]}"
        found = re.match(r"(it) (\w+[^s])s\b(.*)", trouble)
        if found:
            return f"why does {found[1]} {found[2]}{found[3]}"
    return chance.choice(frames()["troubles"]).replace("S", trouble)


def noisy(text: str, chance: random.Random) -> str:
    """The text as people write it: other words, politeness, capitals, gaps, typing errors."""
    if chance.random() < 0.3:
        text = _other_words(text, chance)
    if chance.random() < 0.1:
        text = _keywords(text)
    if chance.random() < 0.3:
        text = _incomplete(text, chance)
    if chance.random() < 0.12:
        text = _mixed(text, chance)
    if chance.random() < 0.18:
        text = f"{chance.choice(frames()['before'])} {text}"
    if chance.random() < 0.15:
        text = f"{text} {chance.choice(frames()['after'])}"
    if chance.random() < 0.15:
        text = _mistyped(text, chance)
    return _punctuated(text, chance)


def _other_words(text: str, chance: random.Random) -> str:
    words = text.split(" ")
    places = [i for i, word in enumerate(words) if word in synonyms()]
    for place in places:
        if chance.random() < 0.5:
            words[place] = chance.choice(synonyms()[words[place]])
    return " ".join(words)


def _keywords(text: str) -> str:
    kept = [word for word in text.split(" ") if word not in _SMALL_WORDS]
    return " ".join(kept) if len(kept) > 1 else text


def _incomplete(text: str, chance: random.Random) -> str:
    """With some words missing: no single word must decide what a question is about."""
    words = text.split(" ")
    share = chance.uniform(0.1, 0.3)
    kept = [word for word in words if chance.random() >= share]
    return " ".join(kept) if len(kept) > 1 else text


def _mixed(text: str, chance: random.Random) -> str:
    """With two parts of it in each other's place."""
    words = text.split(" ")
    if len(words) < 3:
        return text
    at = chance.randrange(1, len(words))
    return " ".join(words[at:] + words[:at])


def _mistyped(text: str, chance: random.Random) -> str:
    words = text.split(" ")
    places = [i for i, word in enumerate(words) if len(word) > 3 and word.isalpha()]
    for place in chance.sample(places, min(len(places), chance.choice((1, 1, 2)))):
        words[place] = _misspelled(words[place], chance)
    return " ".join(words)


def _misspelled(word: str, chance: random.Random) -> str:
    at = chance.randrange(1, len(word) - 1)
    kind = chance.randrange(4)
    if kind == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == 1:
        return word[:at] + word[at + 1 :]
    if kind == 2:
        return word[:at] + word[at] + word[at:]
    return word[:at] + chance.choice("aeiounrst") + word[at + 1 :]


def _punctuated(text: str, chance: random.Random) -> str:
    draw = chance.random()
    if draw < 0.5:
        text = text[:1].upper() + text[1:]
    elif draw < 0.52:
        text = text.upper()
    end = chance.random()
    return text + ("?" if end < 0.55 else "." if end < 0.62 else "!" if end < 0.64 else "")
