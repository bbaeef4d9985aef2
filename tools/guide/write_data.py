"""Write the chats that the guide is trained on, from texts and the program's own tables.

    python -m tools.guide.write_data OUT.jsonl [--chats 1000] [--seed 1]

Topics are read from `texts/*.md` (see `README.md` for their form) and made from the tables
(`facts.py`). Each chat draws a topic, one of the many ways to ask about it (`wordings.py`) and
one of its answers. About three in ten questions are about something else, and the answer says
that the guide does not know it.
"""

import argparse
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from tools.guide import facts, wordings
from tools.guide.facts import Topic, fill

TEXTS = Path(__file__).parent / "texts"
TOPIC_FILES = ("program.md", "memory.md", "use.md", "unknown.md")
MORE_FILES = (
    "more.md",
    "ways.md",
    "asked-tables.md",
    "asked-keys.md",
    "asked-program.md",
    "asked-use.md",
    "asked-memory.md",
    "asked-speed.md",
    "said-program.md",
    "said-memory.md",
    "said-speed.md",
    "said-use.md",
    "said-keys.md",
)
OFF_TOPIC_SHARE = 0.29
OTHERS_SHARE = 0.5
SYSTEM_SHARE = 0.03
FOLLOW_UP_SHARE = 0.3

Chat = list[tuple[str, str]]
"""Messages as role and text."""

SYSTEM_TEXTS = (
    "You are a helpful assistant.",
    "You are the StrataDesk guide.",
    "Answer briefly.",
    "You are a helpful, honest assistant. Be concise.",
)

REFUSALS = (
    "I don't know anything about {x}: I only know StrataDesk. A bigger model, chosen with "
    "{key:model}, may help.",
    "I cannot help with {x}: I am a tiny model and only know StrataDesk. Load a bigger model with "
    "{key:model} for that.",
    "Sorry, I don't know about {x}. I only know this program, StrataDesk; ask a bigger model "
    "({key:model}).",
)

SUBJECTS = {
    "weather": "the weather",
    "capital": "places",
    "recipes": "food and cooking",
    "code": "programming",
    "maths": "maths",
    "people": "people",
    "history": "history",
    "news": "news, prices or dates",
    "medical": "health; please ask a doctor",
    "law": "law",
    "writing": "writing and translating",
    "culture": "books, films and music",
    "sports": "sports and games",
    "science": "science and nature",
    "everyday": "everyday things",
    "programs": "other programs",
    "feelings": "life and feelings",
    "travel": "travel",
    "politics": "politics and opinions",
    "other-ai": "other AI systems",
    "animals": "animals and plants",
    "home": "house and clothes",
    "vehicles": "cars and machines",
    "hardware": "other hardware",
    "smalltalk": "small talk",
    "work": "work and school",
    "religion": "religion and myths",
    "mixed": "that",
}
"""What the guide calls the subjects of `offtopic.md` and `others.md`."""


def read_topics(path: Path) -> Iterator[Topic]:
    """The topics of a text file; ValueError names a line that is none of its forms."""
    for block in f"\n{path.read_text('utf-8')}".split("\n## ")[1:]:
        name, *lines = block.strip().split("\n")
        kinds: dict[str, list[str]] = {"T: ": [], "D: ": [], "S: ": [], "- ": [], "> ": []}
        for line in lines:
            kind = next((kind for kind in kinds if line.startswith(kind)), None)
            if kind is None:
                raise ValueError(f"{path.name}, {name}: {line!r} has no form that is known")
            own = line.removeprefix(kind)
            kinds[kind] += own.split("|") if kind[0] in "TDS" else [own]
        yield Topic(
            name,
            tuple(fill(answer) for answer in kinds["> "]),
            names=tuple(kinds["T: "]),
            deeds=tuple(kinds["D: "]),
            troubles=tuple(kinds["S: "]),
            asked=tuple(kinds["- "]),
        )


@cache
def topics() -> tuple[Topic, ...]:
    """Hand-written topics, then those made from the program's tables."""
    written = [topic for name in TOPIC_FILES for topic in read_topics(TEXTS / name)]
    named = frozenset(name for topic in written for name in topic.names)
    found = [*written, *facts.table_topics(named)]
    for name in MORE_FILES:
        more = {topic.id: topic for topic in read_topics(TEXTS / name)}
        found = [_with(topic, more.pop(topic.id, None)) for topic in found]
        if more:
            raise ValueError(f"{name} asks about topics that no other file has: {list(more)}")
    return tuple(found)


def _with(topic: Topic, more: Topic | None) -> Topic:
    """A topic with what else there is to ask about it; it is drawn a little more often."""
    if more is None:
        return topic
    return replace(
        topic,
        weight=topic.weight * 1.2,
        names=topic.names + more.names,
        deeds=topic.deeds + more.deeds,
        troubles=topic.troubles + more.troubles,
        asked=topic.asked + more.asked,
    )


@cache
def word_lists() -> Mapping[str, Sequence[str]]:
    """The lists of `lists.md` by name."""
    lines = (TEXTS / "lists.md").read_text("utf-8").splitlines()
    parts = (line.split(": ", 1) for line in lines if not line.startswith("#") and line)
    return {name: words.split("|") for name, words in parts}


@cache
def off_topic() -> Mapping[str, Sequence[str]]:
    """Patterns of questions that the guide cannot answer, by subject."""
    found: dict[str, list[str]] = {}
    for line in (TEXTS / "offtopic.md").read_text("utf-8").splitlines():
        if line.startswith("## "):
            found[line.removeprefix("## ")] = []
        elif line and not line.startswith("#"):
            found[list(found)[-1]].append(line)
    return found


@cache
def others() -> tuple[tuple[Topic, ...], tuple[int, ...]]:
    """Subjects that are no part of the program, to be asked about like topics, with weights.

    The questions of the block `all` are asked about each of them.
    """
    in_common, *subjects = read_topics(TEXTS / "others.md")
    found = tuple(replace(topic, asked=topic.asked + in_common.asked) for topic in subjects)
    return found, tuple(sum(_kind_weights(topic)) for topic in found)


def _kind_weights(topic: Topic) -> list[int]:
    """How often a topic is asked about by its names, deeds, troubles and whole questions."""
    around = [bool(kind) * (4 + len(kind)) for kind in (topic.names, topic.deeds, topic.troubles)]
    return [*around, 3 * len(topic.asked)]


def question(topic: Topic, chance: random.Random) -> str:
    """One way to ask about a topic, without noise; `{name}` in it is one of the topic's names."""
    kinds = (topic.names, topic.deeds, topic.troubles, topic.asked)
    kind = chance.choices(range(4), _kind_weights(topic))[0]
    own = {"name": topic.names, "deed": topic.deeds, "trouble": topic.troubles}
    pattern = wordings.expand(chance.choice(kinds[kind]), chance, {**word_lists(), **own})
    if kind == 3:
        return pattern
    around = (wordings.about_name, wordings.about_deed, wordings.about_trouble)[kind]
    return around(pattern, chance)


def strange_question(chance: random.Random) -> tuple[str, str]:
    """A question that the guide cannot answer, and what it answers."""
    if chance.random() < OTHERS_SHARE:
        topic = chance.choices(*others())[0]
        subject, asked = topic.id, question(topic, chance)
    else:
        subject = chance.choice(list(off_topic()))
        pattern = chance.choice(off_topic()[subject])
        asked = wordings.expand(pattern, chance, word_lists())
    return asked, fill(chance.choice(REFUSALS).replace("{x}", SUBJECTS[subject]))


def one_chat(chance: random.Random, weights: Sequence[float]) -> Chat:
    """A question and its answer, sometimes with a system message or a follow-up."""
    chat: Chat = []
    if chance.random() < SYSTEM_SHARE:
        chat.append(("system", chance.choice(SYSTEM_TEXTS)))
    if chance.random() < OFF_TOPIC_SHARE:
        asked, answer = strange_question(chance)
        return [*chat, ("user", wordings.noisy(asked, chance)), ("assistant", answer)]
    topic = chance.choices(topics(), weights)[0]
    asked = wordings.noisy(question(topic, chance), chance)
    chat += [("user", asked), ("assistant", chance.choice(topic.answers))]
    if topic.follow_ups and chance.random() < FOLLOW_UP_SHARE:
        pattern, answer = chance.choice(topic.follow_ups)
        asked = wordings.expand(f"({pattern})", chance, word_lists())
        chat += [("user", wordings.noisy(asked, chance)), ("assistant", answer)]
    return chat


def write_chats(count: int, seed: int) -> list[Chat]:
    """So many chats, the same for the same seed."""
    chance = random.Random(seed)
    weights = [topic.weight for topic in topics()]
    return [one_chat(chance, weights) for _ in range(count)]


def main() -> None:
    """Write the chats as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--chats", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with given.path.open("w", encoding="utf-8") as out:
        for chat in write_chats(given.chats, given.seed):
            messages = [{"role": role, "content": text} for role, text in chat]
            out.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
    print(f"{given.path}: {given.chats} chats on {len(topics())} topics")


if __name__ == "__main__":
    main()
