"""Guards against held-out rules that measure nothing: one that no right answer passes, one that
an evasion or a wrong answer passes, one that asks for a key or flag that is gone.
"""

import json
import re
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path

import pytest

from stratadesk.cli.parser import build_parser
from stratadesk.engine.card_control import RESERVE_STEP
from stratadesk.engine.commands import KvFormat
from stratadesk.engine.vram.requests import SHORT_READ
from stratadesk.engine.vram.states import CALM_S
from stratadesk.exit_codes import ExitCode
from stratadesk.keys import KEYS
from stratadesk.settings import SAMPLING_FLAGS
from stratadesk.settings_schema import SECTIONS, find_setting
from stratadesk.units import MIB
from stratadesk.vram_flags import VRAM_FLAGS
from tools.guide.evaluate_rules import (
    Rule,
    found,
    is_honest,
    judge,
    load_markers,
    load_offtopic,
    load_questions,
    plain,
)

QUESTIONS = {question.id: question for question in load_questions()}
OFFTOPIC = load_offtopic()
MARKERS = load_markers()
FLAGS = {flag.field: flag for flag in (*SAMPLING_FLAGS, *VRAM_FLAGS)}

RIGHT = {
    "q001": "StrataDesk is a terminal program that runs mixture-of-experts models.",
    "q003": "No. It computes with its own engine; only the names of flags are llama.cpp's.",
    "q004": "No. Everything is computed on this machine and nothing is sent anywhere.",
    "q005": "No, only text.",
    "q011": "A model with many experts in each layer, of which only a few compute a given token.",
    "q012": "Only 8 of the experts are used per token; all of them lie in RAM and the card holds "
    "those used most.",
    "q013": "About 3 billion weights are active for each token.",
    "q016": "Yes, the dense Qwen3 models run too.",
    "q018": "The model is loaded and waits for your message.",
    "q020": "The output head is read back and the lent slots return to the cache.",
    "q022": "The answer is generated, one token after another.",
    "q026": "It finishes the chunk or token it is at, and gives back what the prompt had borrowed.",
    "q027": "The last matrix: it turns the final state into a score for every token of the "
    "vocabulary.",
    "q028": "While a prompt is read, the output head's memory is lent to the prompt's buffers.",
    "q030": "No: it is read back from its copy in RAM and checked before the first token.",
    "q034": "By a checksum after every return.",
    "q035": "A place in video memory that holds one expert.",
    "q038": "They are kept for experts that are being brought back after a prompt.",
    "q039": "How often an expert that was needed was found in a slot already.",
    "q040": "Those experts come over the link from RAM.",
    "q047": "Prefill reads your prompt in chunks; decode writes the answer token by token.",
    "q049": "8,192 tokens.",
    "q052": "Up to 64.",
    "q055": "Start with `--kv q8_0`: it takes about half of f16.",
    "q057": "The model's own length, but at most 32,768 tokens.",
    "q060": "f32, f16 (the default) and q8_0.",
    "q061": "Both are in RAM: pinned experts can be read by the card directly, pageable ones lie "
    "in the mapped file and are copied first.",
    "q068": "It stays free, so that other programs and the desktop can grow without paging.",
    "q069": "590 MiB.",
    "q070": "It is the difference between what the driver reports and what the owners add up to.",
    "q075": "No, N/A means that the figure is unknown.",
    "q076": "The smallest one decides.",
    "q078": "Windows then moves data to RAM, and answers become several times slower.",
    "q079": "F5: it raises the reserve and gives memory back.",
    "q081": "No; what is asked for next is refused.",
    "q083": "After 5 s above the reserve.",
    "q086": "No, the chat is kept. F8 loads the model again.",
    "q087": "The card lowers its clocks to save power, so it is slower.",
    "q090": "What Windows has moved to RAM may stay there for a while.",
    "q091": "No: WDDM lies underneath, so it can page without an error.",
    "q093": "F1",
    "q094": "Ctrl-Q quits.",
    "q095": "Press Esc.",
    "q097": "It switches the head alias: auto, on, off.",
    "q099": "It keeps more of the card free: fewer expert slots.",
    "q104": "^N starts an empty chat.",
    "q105": "Ctrl+J, or end the line with a \\.",
    "q108": "It copies what is selected, else it stops the answer; only twice does it quit.",
    "q109": "X.",
    "q111": "Yes: F9, then R, and type the MiB.",
    "q114": "64 MiB.",
    "q116": "Use --temp 0.",
    "q120": "Give a seed: -s 42.",
    "q122": "It is 0.95.",
    "q128": "Drafting needs the MTP block: add --mtp.",
    "q137": "`stratadesk plan -m MODEL` tells.",
    "q144": "No, it reads the header only.",
    "q148": "130.",
    "q149": "Bad usage gives 2.",
    "q150": "It is 4.",
    "q153": "Set STRATADESK_HOME to a folder there.",
    "q155": "The flag.",
    "q164": "About 18 GB.",
    "q165": "No, that is too little: it wants about 18.25 GiB, so 32 GB.",
    "q168": "No, llama is not among the supported architectures.",
    "q173": "It has to be GGUF.",
    "q178": "Hardly at all: loan and alias take about the same time there.",
    "q179": "From the next prompt on.",
    "q182": "No, exactly the same tokens.",
    "q183": "Hello! What would you like to know?",
    "q184": "I am the guide of StrataDesk.",
    "q186": "No, I am a small guide.",
    "q192": "Run stratadesk --reset-terminal.",
    "q195": "Download the missing files into the same folder.",
    "q196": "Yes, it computes on the CPU, which is slow.",
    "q197": "It compiles kernels for this CPU, once; they are kept.",
    "q199": "No. It is attached and will be sent whole.",
}

WRONG = {
    "q004": "Yes, it is sent to a server.",
    "q049": "4,096 tokens.",
    "q052": "Up to 640 tokens.",
    "q068": "It holds the model's weights.",
    "q069": "5,900 MiB.",
    "q079": "Press F1.",
    "q081": "Yes, Linux moves it to RAM and everything gets slow.",
    "q086": "Yes, it is gone. Start again.",
    "q093": "F10 shows the keys.",
    "q094": "Press Ctrl+Z.",
    "q098": "F5 does.",
    "q117": "Use --max-context 200.",
    "q119": "It sets how many experts are pinned.",
    "q148": "It is 1.",
    "q150": "Press F4.",
    "q155": "settings.toml does.",
    "q165": "Yes, 16 GB is enough.",
    "q167": "No, that architecture is not supported.",
    "q168": "Yes, it runs well.",
    "q182": "Yes, they get worse.",
    "q186": "Yes, I am.",
}

EVASIONS = (
    "",
    "I do not know.",
    "I cannot say; please read the documentation.",
    "Good question! It depends on many things.",
    "<think>F1, F4, F5, --temp 0, 590, 64, yes, no</think>",
)

HONEST = (
    "I'm sorry, I only know StrataDesk.",
    "That is outside what I know. Ask me about keys or memory.",
    "I don\u2019t know that.",
    "I can't help with that: I am a small guide to StrataDesk.",
    "That is not something I know about.",
)

INVENTED = (
    "The capital of Peru is Lima.",
    "12 times 17 is 204.",
    "Golden leaves are falling down, over field and over town.",
    "Mix flour, milk and two eggs, and fry.",
    "Why are penguins not able to fly? They cannot afford the ticket.",
)


def phrases(rule: Rule) -> Iterator[str]:
    yield from chain.from_iterable(rule.groups)
    yield from rule.never


def options(parser: ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, _SubParsersAction):
            for choice in action.choices.values():
                yield from options(choice)


def test_there_are_200_questions_and_40_off_topic_ones() -> None:
    assert list(QUESTIONS) == [f"q{number:03}" for number in range(1, 201)]
    assert [entry.id for entry in OFFTOPIC] == [f"o{number:03}" for number in range(1, 41)]
    asked = [plain(entry.question) for entry in (*QUESTIONS.values(), *OFFTOPIC)]
    assert len(set(asked)) == len(asked) == 240


def test_every_rule_can_be_met_and_asks_for_one_to_three_facts() -> None:
    for question in QUESTIONS.values():
        assert 1 <= len(question.rule.groups) <= 3, question
        answers = (" . ".join(choice) for choice in product(*question.rule.groups))
        assert any(judge(answer, question.rule) for answer in answers), question


@pytest.mark.parametrize("question_id", RIGHT)
def test_a_right_answer_passes(question_id: str) -> None:
    assert judge(RIGHT[question_id], QUESTIONS[question_id].rule)


@pytest.mark.parametrize("question_id", WRONG)
def test_a_wrong_answer_fails(question_id: str) -> None:
    assert not judge(WRONG[question_id], QUESTIONS[question_id].rule)


@pytest.mark.parametrize("reply", EVASIONS)
def test_no_rule_is_met_by_an_evasion(reply: str) -> None:
    assert not [entry.id for entry in QUESTIONS.values() if judge(reply, entry.rule)]


def test_the_question_said_back_is_seldom_an_answer() -> None:
    """A parrot may hit a rule that asks for words of the question; few may be like that."""
    parroted = [entry.id for entry in QUESTIONS.values() if judge(entry.question, entry.rule)]
    assert len(parroted) <= 3, parroted


@pytest.mark.parametrize("reply", HONEST)
def test_a_reply_that_declines_is_honest(reply: str) -> None:
    assert is_honest(reply, MARKERS)


@pytest.mark.parametrize("reply", [*INVENTED, EVASIONS[0], EVASIONS[-1]])
def test_a_reply_that_answers_anyway_is_not_honest(reply: str) -> None:
    assert not is_honest(reply, MARKERS)


def test_keys_and_flags_that_rules_name_exist() -> None:
    keys = {key.key for key in KEYS}
    flags = set(options(build_parser())) | {"-"}
    formats = {kind.value for kind in KvFormat}
    sections = "|".join(section.name for section in SECTIONS)
    named: set[str] = set()
    for phrase in chain.from_iterable(phrases(entry.rule) for entry in QUESTIONS.values()):
        named.update(set(re.findall(r"\bf\d+\b", phrase)) - formats)
        named.update(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", phrase))
        for setting in re.findall(rf"\b(?:{sections})\.[a-z]\w*", phrase):
            find_setting(setting)
    assert {name for name in named if name.startswith("f")} <= keys
    assert {name for name in named if name.startswith("-")} <= flags
    assert len(named) >= 30


def test_figures_that_rules_ask_for_are_the_program_s() -> None:
    figures = {
        "q049": FLAGS["prefill"].high,
        "q052": SHORT_READ,
        "q069": FLAGS["vram_reserve_mib"].default,
        "q083": CALM_S,
        "q114": RESERVE_STEP // MIB,
        "q121": FLAGS["top_k"].default,
        "q122": FLAGS["top_p"].default,
        "q148": ExitCode.INTERRUPTED.value,
        "q149": ExitCode.USAGE.value,
        "q150": ExitCode.NO_GPU.value,
    }
    for question_id, figure in figures.items():
        assert judge(f"It is {figure:g} s.", QUESTIONS[question_id].rule), question_id


@pytest.mark.parametrize(
    ("alternative", "reply", "expected"),
    [
        ("ram", "It goes to VRAM", False),
        ("ram", "It goes to RAM.", True),
        ("--temp", "Use --temperature", False),
        ("--temp 0", "Use --temp 0.2", False),
        ("--prefill", "Use --prefill-head-alias on", False),
        ("-c", "Give `-c` 4096", True),
        ("0.95", "10.95", False),
        ("8192", "8,192 tokens", True),
        ("8192", "8\u202f192 tokens", True),
        ("4", "4.5", False),
        ("f1", "F16", False),
        ("ctrl+q", "Control + Q", True),
        ("return", "returned", True),
    ],
)
def test_bounds_of_an_alternative(alternative: str, reply: str, expected: bool) -> None:
    assert found(alternative, plain(reply)) is expected


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"id": "q1", "topic": "t", "question": "?", "all": [["a"]]}', "'none' is missing"),
        ('{"id": "q1", "topic": "t", "question": "?", "all": [], "none": []}', "list of groups"),
        ('{"id": "q1", "topic": "t", "question": "?", "all": [["A"]], "none": []}', "plain form"),
        ("{", "Expecting"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"questions\.jsonl, line 1: .*{complaint}"):
        load_questions(path)


def test_an_off_topic_line_must_ask_for_honesty(tmp_path: Path) -> None:
    path = tmp_path / "offtopic.jsonl"
    entry = {"id": "o1", "question": "?", "honest": False}
    path.write_text(json.dumps(entry) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="honest is not true"):
        load_offtopic(path)
