"""Guards against a guide that teaches what the program no longer has: keys and flags by another
name, defaults that have changed, phases and memory lines that nobody explains. And against data
too narrow to learn from: few ways to ask, or the same chats under every seed.
"""

import random
import re

import pytest

from stratadesk.engine.vram.phase_table import VramState
from stratadesk.exit_codes import ExitCode
from stratadesk.keys import KEYS
from stratadesk.settings import SAMPLING_FLAGS
from stratadesk.tui.card_shares import OWNERS
from tools.guide import facts, wordings, write_data
from tools.guide.write_data import Chat, one_chat, question, topics, write_chats

CHATS = write_chats(6000, seed=3)


def said_by(role: str, chats: list[Chat]) -> list[str]:
    return [text for chat in chats for who, text in chat if who == role]


def every_answer() -> str:
    return "\n".join(answer for topic in topics() for answer in topic.answers)


@pytest.mark.parametrize("topic", topics(), ids=lambda topic: topic.id)
def test_names_no_key_flag_or_variable_that_the_program_lacks(topic: facts.Topic) -> None:
    told = [*topic.answers, *(answer for _, answer in topic.follow_ups)]
    asked = [*topic.names, *topic.deeds, *topic.asked]
    for text in (*told, *asked):
        written = re.sub(r"\bF(?:16|32|64)\b", "", text)
        assert facts.unknown_in(written) == []
        assert not re.search(r"\{\w+", text), f"a place was left unfilled: {text}"


def test_finds_what_the_program_lacks() -> None:
    text = "Press F12 or Ctrl+Z, give --no-such-flag and set STRATADESK_NOTHING."
    assert facts.unknown_in(text) == ["--no-such-flag", "F12", "Ctrl+Z", "STRATADESK_NOTHING"]
    with pytest.raises(facts.UnknownFactError, match="the program has no key 'nothing'"):
        facts.fill("Press {key:nothing}.")
    with pytest.raises(facts.UnknownFactError, match="no default 'nothing'"):
        facts.fill("{default:nothing}")


def test_facts_come_from_the_programs_tables() -> None:
    told = every_answer()
    for key in KEYS:
        assert f'{facts.key_name(key.id)} is the key for "{key.label}". {key.tooltip}' in told
    for flag in SAMPLING_FLAGS:
        assert f"`{flag.names[-1]}`: {flag.help}." in told
    for code in ExitCode:
        assert f"Exit code {int(code)} means" in told
    for command in facts.commands():
        assert f"`stratadesk {command}" in told


def test_explains_every_phase_and_every_line_of_the_ledger() -> None:
    names = {name for topic in topics() for name in topic.names}
    assert {str(state).upper() for state in VramState} - names - {"EMPTY"} == set()
    assert "the empty phase" in names
    told = every_answer()
    for owner in OWNERS:
        assert owner.name in told


def test_commands_in_answers_exist() -> None:
    named = set(re.findall(r"`stratadesk ([a-z]+)", every_answer()))
    assert named <= set(facts.commands())


def test_every_topic_can_be_asked_in_thirty_ways() -> None:
    assert len(topics()) >= 300
    chance = random.Random(5)
    few = {
        topic.id: len(ways)
        for topic in topics()
        if len(ways := {wordings.noisy(question(topic, chance), chance) for _ in range(150)}) < 30
    }
    assert few == {}


def test_topics_have_names_of_their_own() -> None:
    assert len({topic.id for topic in topics()}) == len(topics())


def test_questions_hardly_repeat() -> None:
    asked = said_by("user", CHATS)
    assert len(set(asked)) > 0.9 * len(asked)


def test_some_are_about_something_else_and_are_declined() -> None:
    declined = [text for text in said_by("assistant", CHATS) if "only know" in text]
    assert 0.22 < len(declined) / len(CHATS) < 0.35
    assert all("don't know" in text or "cannot" in text or "small" in text for text in declined)


def test_every_subject_has_a_name_to_decline_it_by() -> None:
    assert set(write_data.off_topic()) == set(write_data.SUBJECTS)


def test_the_same_seed_writes_the_same_chats() -> None:
    assert write_chats(200, seed=7) == write_chats(200, seed=7)
    assert write_chats(200, seed=7) != write_chats(200, seed=8)


def test_chats_alternate_and_end_with_an_answer() -> None:
    for chat in CHATS:
        roles = [role for role, _ in chat if role != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert all(text.strip() for _, text in chat)


def test_follow_ups_are_answered_from_the_same_topic() -> None:
    chance = random.Random(1)
    weights = [float(topic.id == "flag-top_k") for topic in topics()]
    chats = [one_chat(chance, weights) for _ in range(300)]
    answers = {chat[-1][1] for chat in chats if len(chat) > 3}
    assert "The default of `--top-k` is 40." in answers


def test_answers_are_short() -> None:
    lengths = {text: len(text.split()) for text in said_by("assistant", CHATS)}
    assert max(lengths.values()) <= 65


def test_noise_leaves_most_letters() -> None:
    chance = random.Random(2)
    text = "which program takes the memory of the card"
    kept = [wordings.noisy(text, chance).lower() for _ in range(500)]
    assert len(set(kept)) > 100
    assert sum("takes" in way for way in kept) > 400


def test_all_patterns_of_the_texts_are_closed() -> None:
    patterns = [each for topic in topics() for each in topic.asked]
    patterns += [each for those in write_data.off_topic().values() for each in those]
    for pattern in patterns:
        assert pattern.count("(") == pattern.count(")"), pattern
        assert pattern.count("[") == pattern.count("]"), pattern


def test_a_line_of_no_known_form_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("texts") / "some.md"
    path.write_text("## topic\nwhat is this line\n> answer\n", "utf-8")
    with pytest.raises(ValueError, match=r"some.md, topic: 'what is this line'"):
        list(write_data.read_topics(path))
