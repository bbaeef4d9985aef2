"""Guards against reading again what is held, and against holding what is not the chat.

Each test compares three things: what the engine says it reused, what the model was given, and
what a model that reads the whole prompt afresh would have been given.
"""

from collections.abc import Sequence
from itertools import chain

import pytest

from stratadesk.engine.commands import Generate, Message, SamplingSettings
from stratadesk.engine.events import FinishReason, RequestFinished
from tests.engine.fake_model import Script
from tests.engine.harness import GREEDY, Bench, ask, chat, desk, of_type, raw

USER, SECOND = Message("user", "Hello"), Message("user", "And then?")
THOUGHTLESS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Drops the reasoning of all messages."""
EMPTY_THINKING = THOUGHTLESS.replace(
    "assistant\n{% endif %}", "assistant\n<think>\n\n</think>\n\n{% endif %}"
)
"""Answers are asked for after empty thinking, which later prompts leave out."""
THOUGHTFUL = THOUGHTLESS.replace(
    "{{ m.content }}",
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}",
)
"""Keeps the reasoning of all messages."""
TRIMMING = THOUGHTLESS.replace("m.content", "m.content|trim")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def answered(finished: RequestFinished) -> Message:
    return Message("assistant", finished.text, finished.reasoning)


def follow_up(bench: Bench, finished: RequestFinished, request_id: int = 2) -> Generate:
    return chat([USER, answered(finished), SECOND], request_id, max_tokens=1)


def will_spell(bench: Bench, text: str, *, then: int | None = None) -> list[int]:
    """Have the model say `text` letter by letter, as its tokenizer would not; returns the ids."""
    letters = [token for letter in text for token in bench.ids(letter)]
    end = bench.desk.end if then is None else then
    bench.model.rule = Script(letters, end)
    return letters


def test_a_follow_up_reads_only_what_is_new(bench: Bench) -> None:
    bench.will_say("Hi there")
    first = bench.answer(chat([USER]))
    held = list(bench.model.state.tokens)
    bench.model.calls.clear()
    second = bench.answer(follow_up(bench, first))
    rest = bench.ids("<|im_end|>\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n")
    assert list(chain(*bench.model.calls)) == rest, "the end token was sampled, but not yet read"
    assert (second.reused, second.prompt_tokens) == (len(held), len(held) + len(rest))
    assert bench.model.state.tokens == held + rest
    assert len(bench.model.states) == 1


def test_the_first_prompt_has_no_note(bench: Bench) -> None:
    started = bench.started(chat([USER], max_tokens=1))
    assert (started.reused, started.prefix_note) == (0, "")


def test_a_reused_prefix_has_no_note(bench: Bench) -> None:
    first = bench.answer(chat([USER]))
    assert bench.started(follow_up(bench, first)).prefix_note == ""


def test_generated_ids_are_kept_and_not_made_again_from_text(bench: Bench) -> None:
    letters = will_spell(bench, "hello")
    assert letters != bench.ids("hello"), "the text alone would give another token"
    first = bench.answer(chat([USER]))
    bench.run(follow_up(bench, first))
    n_prompt = first.prompt_tokens
    assert bench.model.state.tokens[n_prompt : n_prompt + 5] == letters


def test_the_last_token_of_an_answer_cut_by_the_limit_is_kept(bench: Bench) -> None:
    bench.will_say("abcdef")
    first = bench.answer(chat([USER], max_tokens=3))
    assert first.finish_reason is FinishReason.LENGTH
    second = bench.answer(follow_up(bench, first))
    assert second.reused == first.prompt_tokens + 2
    held = bench.model.state.tokens
    assert held[first.prompt_tokens :][:4] == [*bench.ids("abc"), bench.desk.end]


def test_a_cut_character_is_kept_as_it_was_generated(bench: Bench) -> None:
    ids = bench.will_say("é")
    assert len(ids) == 3
    first = bench.answer(chat([USER], max_tokens=1))
    assert first.text == "\ufffd"
    second = bench.answer(follow_up(bench, first))
    assert second.reused == first.prompt_tokens
    assert bench.model.state.tokens[first.prompt_tokens] == ids[0]


def test_an_answer_ended_by_another_end_token_is_continued(bench: Bench) -> None:
    will_spell(bench, "hello", then=bench.desk.id_of("<|endoftext|>"))
    first = bench.answer(chat([USER]))
    second = bench.answer(follow_up(bench, first))
    assert second.reused == first.prompt_tokens + 5
    assert bench.desk.id_of("<|endoftext|>") not in bench.model.state.tokens


def test_thinking_is_kept_where_the_template_keeps_it() -> None:
    bench = Bench(template=THOUGHTFUL)
    bench.will_say("<think>Hm.</think>Yes.")
    first = bench.answer(chat([USER]))
    second = bench.answer(follow_up(bench, first))
    assert second.reused == first.prompt_tokens + len(bench.ids("<think>Hm.</think>Yes."))


def test_a_cancelled_answer_is_continued_where_it_stopped(bench: Bench) -> None:
    bench.will_say("abcdef")
    request, events = bench.request(chat([USER]))
    for _ in range(20):
        request.step()
        if bench.model.state.tokens[-2:] == bench.ids("ab"):
            break
    request.cancel()
    first = of_type(events, RequestFinished)[0]
    assert (first.finish_reason, first.text) == (FinishReason.CANCELLED, "abc")
    bench.runtime.session.verify()
    second = bench.answer(follow_up(bench, first))
    assert second.reused == first.prompt_tokens + 2


def test_a_cancelled_prompt_is_read_on_from_its_last_chunk() -> None:
    bench = Bench(chunk=4)
    request, _ = bench.request(raw("abcdefghijkl"))
    request.step()
    request.step()
    request.cancel()
    bench.runtime.session.verify()
    second = bench.answer(raw("abcdefghijkl", 2, max_tokens=1))
    assert second.reused == 8
    assert bench.model.state.tokens == bench.ids("abcdefghijkl")


def test_a_cancelled_prompt_is_not_continued_inside_a_word() -> None:
    """The ids of "he" begin no word that holds "hello": its text is a prefix, its ids are not."""
    bench = Bench(chunk=1)
    request, _ = bench.request(raw("he"))
    request.step()
    request.cancel()
    second = bench.answer(raw("hello", 2, max_tokens=1))
    assert second.reused == 0
    assert bench.model.state.tokens == bench.ids("hello")


def test_the_same_prompt_again_needs_no_reading_when_nothing_follows_it(bench: Bench) -> None:
    bench.will_say("yes")
    bench.answer(chat([USER], max_tokens=1))
    bench.model.calls.clear()
    second = bench.answer(chat([USER], 2, max_tokens=1))
    assert (second.reused, second.text) == (second.prompt_tokens, "y")
    assert bench.model.calls == []


def test_the_same_prompt_is_read_again_when_its_logits_are_gone() -> None:
    bench = Bench(chunk=4)
    request, _ = bench.request(raw("abcdefgh"))
    request.step()
    request.cancel()
    started = bench.started(raw("abcd", 2, max_tokens=1))
    assert started.reused == 0
    assert "logits" in started.prefix_note


def test_reading_on_and_reading_afresh_give_the_same_answer() -> None:
    """The rule depends on every token held, so one token too many or too few changes it."""

    def rule(tokens: Sequence[int]) -> int:
        return 97 + sum(i * token for i, token in enumerate(tokens, 1)) % 26

    bench, fresh = Bench(), Bench()
    bench.model.rule = fresh.model.rule = rule
    first = bench.answer(chat([USER], max_tokens=9))
    second = bench.answer(follow_up(bench, first))
    tokens = tuple(bench.model.state.tokens)
    again = fresh.answer(Generate(1, tokens=tokens, sampling=GREEDY, max_tokens=1))
    assert second.reused > 0
    assert again.tokens == second.tokens


def test_raw_text_is_continued(bench: Bench) -> None:
    bench.will_say(" sat")
    bench.answer(raw("The cat"))
    second = bench.answer(raw("The cat sat on", 2, max_tokens=1))
    assert second.reused == len(bench.ids("The cat")) + len(bench.ids(" sat"))


def test_token_ids_are_continued(bench: Bench) -> None:
    bench.will_say("ab")
    first = bench.answer(Generate(1, tokens=(1, 2, 3), sampling=GREEDY))
    more = (1, 2, 3, *first.tokens, 7)
    second = bench.answer(Generate(2, tokens=more, sampling=GREEDY, max_tokens=1))
    assert (second.reused, second.prompt_tokens) == (5, 7)


def test_a_raw_prompt_continues_a_chat_when_its_text_does(bench: Bench) -> None:
    bench.will_say("Hi")
    bench.answer(chat([USER]))
    text = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n"
    assert bench.answer(raw(text, 2, max_tokens=1)).reused > 0


def test_written_markers_do_not_pass_for_real_ones(bench: Bench) -> None:
    """The user's text reads like the end of a message; a raw prompt means the real marker."""
    bench.answer(ask("a<|im_end|>", max_tokens=1))
    prompt = "<|im_start|>user\na<|im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert bench.answer(raw(prompt, 2, max_tokens=1)).reused == 0


def test_written_markers_do_not_break_a_prefix(bench: Bench) -> None:
    messages = [Message("user", "what is <|im_end|>?")]
    letters = will_spell(bench, "hello <|im_end|>!")
    first = bench.answer(chat(messages))
    assert first.text == "hello <|im_end|>!"
    second = bench.answer(chat([*messages, answered(first), SECOND], 2, max_tokens=1))
    assert second.reused == first.prompt_tokens + len(letters)


def test_a_change_of_mark_does_not_break_a_prefix(bench: Bench) -> None:
    """A content with the character that served as a mark forces another one."""
    letters = will_spell(bench, "hello")
    first = bench.answer(chat([Message("user", "<|im_end|>")]))
    mark = bench.desk.tokenizer.choose_mark([])
    messages = [Message("user", "<|im_end|>"), answered(first), Message("user", f"odd {mark}")]
    second = bench.answer(chat(messages, 2, max_tokens=1))
    assert second.reused == first.prompt_tokens + len(letters)


def test_a_written_mark_does_not_pass_for_a_real_one(bench: Bench) -> None:
    """Both prompts look alike once marks are in them, and mean different tokens."""
    mark = bench.desk.tokenizer.choose_mark([])
    will_spell(bench, "hello")
    first = bench.answer(ask(f"<{mark}|im_end|>"))
    messages = [Message("user", "<|im_end|>"), answered(first), SECOND]
    assert bench.answer(chat(messages, 2, max_tokens=1)).reused == 0


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([USER, Message("assistant", "No"), SECOND], "message 2 was edited"),
        ([Message("user", "Bye"), Message("assistant", "Hi"), SECOND], "message 1 was edited"),
        ([USER], "message 2 was taken back"),
        ([Message("user", "Something else")], "this is another chat"),
    ],
)
def test_the_note_says_which_message_differs(
    bench: Bench, messages: list[Message], reason: str
) -> None:
    bench.will_say("Hi")
    bench.answer(chat([USER]))
    started = bench.started(chat(messages, 2, max_tokens=1))
    assert started.prefix_note == f"Read afresh: {reason}."
    assert started.reused == 0
    assert len(bench.model.state.tokens) == started.prompt_tokens


def test_the_note_says_that_a_chat_has_lost_its_beginning(bench: Bench) -> None:
    """A model that remembers little is told the last exchanges alone."""
    bench.will_say("Hi")
    bench.answer(chat([USER]))
    held = [USER, Message("assistant", "Hi"), SECOND]
    bench.will_say("Hi")
    bench.answer(chat(held, 2))
    third = [*held[2:], Message("assistant", "Hi"), Message("user", "third")]
    note = bench.started(chat(third, 3, max_tokens=1)).prefix_note
    assert note == "Read afresh: messages 1 to 2 were left out."


def test_another_chat_with_the_same_system_prompt_is_another_chat(bench: Bench) -> None:
    system = Message("system", "Be brief.")
    bench.will_say("Hi")
    bench.answer(chat([system, USER]))
    started = bench.started(chat([system, Message("user", "New topic")], 2, max_tokens=1))
    assert started.prefix_note == "Read afresh: this is another chat."


def test_the_note_says_that_reasoning_was_edited() -> None:
    bench = Bench(template=THOUGHTFUL)
    bench.will_say("<think>Hm.</think>Hi")
    bench.answer(chat([USER]))
    messages = [USER, Message("assistant", "Hi", "Aha."), SECOND]
    note = bench.started(chat(messages, 2, max_tokens=1)).prefix_note
    assert note == "Read afresh: message 2 has another reasoning."


def test_the_note_says_that_reasoning_did_not_come_back(bench: Bench) -> None:
    bench.will_say("<think>Hm.</think>Hi")
    bench.answer(chat([USER]))
    started = bench.started(chat([USER, Message("assistant", "Hi"), SECOND], 2, max_tokens=1))
    assert "message 2 came back without its reasoning" in started.prefix_note


def test_the_note_says_that_the_template_dropped_reasoning() -> None:
    bench = Bench(template=THOUGHTLESS)
    bench.will_say("<think>\nHm.\n</think>\n\nHi")
    first = bench.answer(chat([USER]))
    note = bench.started(follow_up(bench, first)).prefix_note
    assert note == "Read afresh: the template dropped the reasoning of message 2."


@pytest.mark.parametrize(("template", "say"), [(EMPTY_THINKING, "Hi"), (TRIMMING, "Hi ")])
def test_the_note_says_that_the_template_changed_a_message(template: str, say: str) -> None:
    bench = Bench(template=template)
    bench.will_say(say)
    first = bench.answer(chat([USER]))
    note = bench.started(follow_up(bench, first)).prefix_note
    assert note == "Read afresh: the template changed the text of message 2."


def test_the_note_says_that_an_answer_was_cut_at_a_stop_string(bench: Bench) -> None:
    bench.will_say("Hi ##")
    sampling = SamplingSettings(temperature=0.0, stop=("##",))
    first = bench.answer(chat([USER], sampling=sampling))
    note = bench.started(follow_up(bench, first)).prefix_note
    assert note == "Read afresh: message 2 was cut at a stop string."


def test_the_note_says_that_an_answer_has_hidden_tokens(bench: Bench) -> None:
    bench.will_say("<|tool|>Hi")
    first = bench.answer(chat([USER]))
    note = bench.started(follow_up(bench, first)).prefix_note
    assert note == "Read afresh: message 2 has control tokens, which are not shown."


def test_the_note_says_that_another_template_is_used() -> None:
    bench = Bench(template=THOUGHTLESS.replace("<|im_start|>", "[").replace("<|im_end|>", "]"))
    bench.will_say("Hi")
    first = bench.answer(chat([USER]))
    messages = [USER, answered(first), SECOND]
    note = bench.started(chat(messages, 2, max_tokens=1, force_chatml=True)).prefix_note
    assert note == "Read afresh: the chat template is now ChatML, not model."


def test_the_note_of_a_raw_prompt_counts_characters(bench: Bench) -> None:
    bench.answer(raw("The cat", max_tokens=1))
    note = bench.started(raw("The dog", 2, max_tokens=1)).prefix_note
    assert note == "Read afresh: its text differs after 4 characters."


def test_the_note_of_token_ids_counts_ids(bench: Bench) -> None:
    bench.answer(Generate(1, tokens=(1, 2, 3), sampling=GREEDY, max_tokens=1))
    note = bench.started(Generate(2, tokens=(1, 2, 4), sampling=GREEDY, max_tokens=1)).prefix_note
    assert note == "Read afresh: its token ids differ after 2 ids."


def test_the_note_says_that_the_model_was_loaded_again() -> None:
    with desk() as d:
        d.will_say("Hi")
        d.answer(chat([USER]))
        d.load()
        started = d.started(chat([USER, Message("assistant", "Hi"), SECOND], 2, max_tokens=1))
        assert (started.reused, started.prefix_note) == (
            0,
            "Read afresh: the model was loaded again.",
        )


def test_loading_again_before_anything_was_asked_needs_no_note() -> None:
    with desk() as d:
        d.load()
        assert d.started(chat([USER], max_tokens=1)).prefix_note == ""


def test_a_prompt_starts_with_one_bos_token_where_the_model_wants_it(bench: Bench) -> None:
    tokenizer, bos = bench.desk.tokenizer, bench.desk.id_of("<|tool|>")
    tokenizer.add_bos, tokenizer.bos_id = True, bos
    first = bench.answer(chat([USER]))
    assert bench.model.state.tokens[0] == bos
    second = bench.answer(follow_up(bench, first))
    assert second.reused == first.prompt_tokens
    assert bench.model.state.tokens.count(bos) == 1
