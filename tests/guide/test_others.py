"""Things that are no part of the program, asked about in the frames of its own topics."""

import random
from itertools import chain

import pytest

from tools.guide import write_data
from tools.guide.facts import Topic, unknown_in

SUBJECTS, _ = write_data.others()
LONGEST_LINE = 400


def asked_many(topic: Topic, count: int = 300) -> list[str]:
    chance = random.Random(topic.id)
    return [write_data.question(topic, chance) for _ in range(count)]


@pytest.mark.parametrize("topic", SUBJECTS, ids=lambda topic: topic.id)
def test_each_subject_has_all_kinds_and_a_name_that_the_guide_calls_it(topic: Topic) -> None:
    assert topic.id in write_data.SUBJECTS
    assert topic.names
    assert topic.deeds
    assert topic.troubles
    assert topic.asked
    assert not topic.answers


@pytest.mark.parametrize("topic", SUBJECTS, ids=lambda topic: topic.id)
def test_questions_are_whole(topic: Topic) -> None:
    for asked in asked_many(topic):
        assert asked
        assert not set("{}[]()|") & set(asked), asked
        assert not unknown_in(asked), asked


def test_there_are_many_of_each_kind() -> None:
    def count(kind: str) -> int:
        return len(set(chain.from_iterable(getattr(topic, kind) for topic in SUBJECTS)))

    assert count("names") >= 900
    assert count("deeds") >= 500
    assert count("troubles") >= 150
    assert count("asked") >= 240


@pytest.mark.parametrize("kind", ["names", "deeds", "troubles"])
def test_nothing_of_it_is_part_of_the_program(kind: str) -> None:
    own = set(chain.from_iterable(getattr(topic, kind) for topic in write_data.topics()))
    for topic in SUBJECTS:
        assert not own & set(getattr(topic, kind)), topic.id


def test_lines_are_short() -> None:
    text = (write_data.TEXTS / "others.md").read_text("utf-8")
    assert max(map(len, text.splitlines())) <= LONGEST_LINE


def test_about_half_of_the_strange_questions_are_asked_like_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_like_topics = 0
    real = write_data.question

    def counted(topic: Topic, chance: random.Random) -> str:
        nonlocal asked_like_topics
        asked_like_topics += 1
        return real(topic, chance)

    monkeypatch.setattr(write_data, "question", counted)
    chance = random.Random(3)
    for _ in range(2000):
        write_data.strange_question(chance)
    assert 900 < asked_like_topics < 1100


def test_same_seed_asks_the_same() -> None:
    first, second = (
        [write_data.strange_question(chance) for _ in range(200)]
        for chance in (random.Random(7), random.Random(7))
    )
    assert first == second
