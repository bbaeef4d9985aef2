"""Guards against an answer that depends on where bytes lay while it was computed.

Whatever is chosen for the card, logits are those of the same model without a card, bit by bit:
stale bytes of a head, of a lent slot, of a buffer or of a state would show.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from stratadesk.engine import decode
from stratadesk.engine.commands import EngineSettings, Generate, KvFormat, LoadModel
from stratadesk.engine.events import Event, FinishReason, RequestFinished, RequestStarted
from stratadesk.engine.request import Request
from stratadesk.engine.runtime import open_runtime
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.phase_table import VramState
from stratadesk.engine.vram.plan_settings import PIN_ALL, HeadAlias, Layout, PlanSettings
from stratadesk.units import MIB
from tests.conftest import DATA_DIR
from tests.engine.harness import GREEDY, of_type
from tests.vram.host_bench import (
    CHUNK,
    CONTEXT,
    DELTA_NET,
    DENSE,
    EXPERTS,
    TINY,
    Floats,
    HostRig,
    random_ids,
    reference,
    rig,
    same_bits,
)

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPT = random_ids(1, CHUNK + 6)
LONG = [*PROMPT, *random_ids(2, CHUNK)]
STEPS = 3
CACHES = (1, 2, 5, None)
"""The staging slot alone, fewer slots than layers, some, all."""
MIXTURES = (DELTA_NET, EXPERTS)


def compare(bench: HostRig, name: str, kv: KvFormat = KvFormat.F32) -> None:
    """A request's logits and greedy tokens, with those of the model without a card."""
    right = reference(name, kv).answer(PROMPT, STEPS)
    same_bits(bench.answer(PROMPT, STEPS), right, bench.plan.settings)


def end_of_slots(bench: HostRig, slots: int) -> int:
    """Where the arena ends when it holds so many slots, in whole blocks."""
    return bench.plan.geometry.end_of(slots) + bench.plan.settings.block_bytes


def layouts_used(bench: HostRig) -> set[Layout]:
    return {phase.layout for phase in bench.phases if phase.layout is not None}


@pytest.mark.parametrize("layout", [None, Layout.FIXED, Layout.LOAN], ids=str)
@pytest.mark.parametrize("alias", list(HeadAlias))
@pytest.mark.parametrize("name", MIXTURES)
def test_neither_layout_nor_alias_nor_slots_change_a_bit(
    name: str, alias: HeadAlias, layout: Layout | None
) -> None:
    used: set[Layout] = set()
    for slots in CACHES:
        with rig(name, alias=alias, prefill_layout=layout, expert_cache=slots) as bench:
            compare(bench, name)
            if slots is None:
                compare(bench, name)
            used |= layouts_used(bench)
    if alias is HeadAlias.ON:
        assert Layout.ALIAS in used
    elif alias is HeadAlias.OFF and layout is not None:
        assert used == {layout}
    else:
        assert used


@pytest.mark.parametrize("alias", list(HeadAlias))
@pytest.mark.parametrize("name", [DELTA_NET, TINY])
def test_the_size_of_the_card_changes_no_bit(name: str, alias: HeadAlias) -> None:
    with rig(name, block_bytes=4_096) as bench:
        least, row = bench.plan.planner.needed, bench.plan.geometry.row_bytes
    slots, lent = set(), 0
    for rows in (0, 0.3, 1.7, 2.5, 4, 40):
        card = least + 4_096 + int(rows * row)
        with rig(
            name, card=card, alias=alias, prefill_layout=Layout.LOAN, block_bytes=4_096
        ) as bench:
            compare(bench, name)
            slots.add(bench.cache.slots)
            lent += max(phase.slots_lent for phase in bench.phases)
    print(f"{name}, alias {alias}: {sorted(slots)} slots, {lent} lent")
    assert min(slots) == 0
    assert max(slots) == bench.plan.planner.most_slots
    assert lent


@pytest.mark.parametrize("name", MIXTURES)
def test_where_experts_lie_on_the_host_changes_no_bit(name: str) -> None:
    with rig(name) as bench:
        some = bench.plan.host.copies + 3 * max(bench.plan.geometry.slot_bytes)
    pinned = []
    for pin, slots in product((0, some, PIN_ALL), (1, 3, None)):
        with rig(name, pin=pin, expert_cache=slots) as bench:
            compare(bench, name)
            assert bench.cache.counters.bypasses or slots is None
            pinned.append(bench.plan.host.pinned_experts)
    assert pinned[::3] == [0, 3, bench.plan.planner.most_slots]


@pytest.mark.parametrize("kv", list(KvFormat))
@pytest.mark.parametrize("name", [DELTA_NET, EXPERTS, DENSE])
def test_each_format_of_the_kv_cache_agrees_with_itself(name: str, kv: KvFormat) -> None:
    alias = HeadAlias.AUTO if name == DENSE else HeadAlias.ON
    with rig(name, kv=kv, alias=alias) as bench:
        compare(bench, name, kv)
    if kv is not KvFormat.F32:
        other, full = (reference(name, form).answer(PROMPT, 0) for form in (kv, KvFormat.F32))
        assert not np.array_equal(other, full), "both formats give the same numbers"


@pytest.mark.parametrize("alias", [HeadAlias.AUTO, HeadAlias.OFF])
@pytest.mark.parametrize("layout", [None, Layout.FIXED], ids=str)
def test_a_tied_head_is_never_lent_and_right(alias: HeadAlias, layout: Layout | None) -> None:
    with rig(DENSE, alias=alias, prefill_layout=layout) as bench:
        compare(bench, DENSE)
        assert layouts_used(bench) == {Layout.FIXED}


@pytest.mark.parametrize("name", MIXTURES)
def test_the_path_a_prompt_is_read_by_changes_no_bit(name: str) -> None:
    for short_read, path in ((0, "prompt"), (len(PROMPT), "decode"), (None, None)):
        with rig(name, short_read=short_read, alias=HeadAlias.ON) as bench:
            compare(bench, name)
            assert path in (bench.memory.request(len(PROMPT)).path, None)


@pytest.mark.parametrize("alias", list(HeadAlias))
@pytest.mark.parametrize("name", MIXTURES)
def test_a_reserve_changed_in_mid_answer_changes_no_bit(name: str, alias: HeadAlias) -> None:
    right = reference(name).answer(PROMPT, 12)
    seen = set()
    with rig(name, alias=alias, prefill_layout=Layout.LOAN, block_bytes=4_096) as bench:
        ends = [end_of_slots(bench, slots) for slots in (99, 0, bench.plan.slots, 3, 6)]
        state = bench.new_state()
        rows = [bench.read(state, PROMPT)]
        for number in range(12):
            result = bench.machine.resize(ends[number % len(ends)])
            bench.check()
            seen.add((result.done, bench.cache.slots))
            rows.append(bench.step(state, [int(rows[-1].argmax())]))
        bench.model.end_request()
        bench.check()
        same_bits(np.stack(rows), right)
        bench.machine.resize(end_of_slots(bench, 6))
        same_bits(bench.answer(PROMPT, 12), right, "the request after")
    print(f"{name}, alias {alias}: done and slots {sorted(seen)}")
    assert {slots for done, slots in seen if done} >= {0, 3, 6, bench.plan.slots}


@pytest.mark.parametrize("name", MIXTURES)
def test_a_reserve_changed_while_a_prompt_is_read_waits_and_changes_no_bit(name: str) -> None:
    right = reference(name).answer(LONG, 2)
    with rig(name, alias=HeadAlias.ON, block_bytes=4_096) as bench:
        state, end = bench.new_state(), bench.arena.end
        bench.model.begin_request(len(LONG))
        bench.model.forward(state, LONG[:CHUNK], logits="none")
        wanted = bench.plan.geometry.end_of(5)
        assert not bench.machine.resize(wanted).done
        bench.model.forward(state, LONG[CHUNK : 2 * CHUNK], logits="none")
        rows = [bench.step(state, LONG[2 * CHUNK :])]
        assert bench.arena.end == end
        for _ in range(2):
            rows.append(bench.step(state, [int(rows[-1].argmax())]))
        assert bench.arena.end < end, "the wish was never heard in the answer"
        bench.check()
        bench.model.end_request()
        same_bits(np.stack(rows), right)


@pytest.mark.parametrize("name", MIXTURES)
def test_an_alias_switched_in_a_prompt_is_the_next_one_s_and_changes_no_bit(name: str) -> None:
    right = reference(name).answer(LONG, 2)
    order = (HeadAlias.OFF, HeadAlias.ON, HeadAlias.AUTO, HeadAlias.ON)
    with rig(name, alias=HeadAlias.ON, prefill_layout=Layout.LOAN) as bench:
        used = []
        for mode in order:
            state = bench.new_state()
            used.append(bench.model.begin_request(len(LONG)).layout)
            assert not bench.machine.set_alias(mode) or mode is bench.machine.alias
            for start in (0, CHUNK):
                bench.model.forward(state, LONG[start : start + CHUNK], logits="none")
            rows = [bench.step(state, LONG[2 * CHUNK :])]
            for _ in range(2):
                rows.append(bench.step(state, [int(rows[-1].argmax())]))
            bench.model.end_request()
            same_bits(np.stack(rows), right, mode)
        assert used[:3] == [Layout.ALIAS, Layout.LOAN, Layout.ALIAS]


@pytest.mark.parametrize("alias", [HeadAlias.ON, HeadAlias.OFF])
@pytest.mark.parametrize("name", MIXTURES)
def test_what_was_read_before_a_cancel_is_as_good_as_new(name: str, alias: HeadAlias) -> None:
    """Cancelled after each chunk and each token, then read on, and read afresh."""
    ids = [*LONG, *random_ids(7, 4)]
    right = reference(name).logits(ids)
    reached = Counter[VramState]()
    with rig(name, alias=alias, prefill_layout=Layout.LOAN) as bench:
        for calls in range(6):
            state = bench.new_state()
            chunk = bench.model.begin_request(len(LONG)).chunk
            for _ in range(calls):
                size = chunk if bench.machine.state is VramState.PROMPT else 1
                end = min(state.position + size, max(len(LONG), state.position + 1))
                bench.model.forward(
                    state,
                    ids[state.position : end],
                    logits="last" if end >= len(LONG) else "none",
                )
            reached[bench.machine.state] += 1
            bench.model.recover()
            assert bench.machine.state is VramState.READY
            bench.check()
            rest = ids[state.position :]
            same_bits(bench.read(state, rest), right[-1], f"read on after {calls} calls")
            bench.model.end_request()
        same_bits(bench.answer(LONG, STEPS), reference(name).answer(LONG, STEPS))
    assert reached.keys() == {VramState.PROMPT, VramState.DECODING}


LENGTHS = (1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, CONTEXT - 1)


@pytest.mark.parametrize(
    ("name", "layout"), [*product(MIXTURES, Layout), (DENSE, Layout.FIXED)], ids=str
)
def test_prompts_of_any_length_are_right(name: str, layout: Layout) -> None:
    """One token, whole chunks and one token more, and all of the context but one token."""
    alias = HeadAlias.ON if layout is Layout.ALIAS else HeadAlias.OFF
    other = Layout.LOAN if layout is Layout.ALIAS else layout
    ids = random_ids(3, CONTEXT)
    right = reference(name).logits(ids)
    with rig(name, alias=alias, prefill_layout=other, chunk=CHUNK) as bench:
        for length in LENGTHS:
            state = bench.new_state()
            same_bits(bench.read(state, ids[:length]), right[length - 1], length)
            same_bits(bench.step(state, [ids[length]]), right[length], f"{length} and one")
            bench.model.end_request()
            bench.check()
        assert layouts_used(bench) == {layout}
        assert state.position == bench.model.context


POSITIONS = range(1, 41)
"""Where answers end, in tokens behind the first ones."""
QUESTION = 9
STOP_TEXT = "#"
FOLLOW_UP = 5
"""Tokens that a follow-up adds."""
LONGEST = {TINY: 20, DELTA_NET: 5}
"""Tokens of the longest answers; what comes before them is the question."""


class Scripted:
    """Takes the sampler's place and says the tokens it was given, whatever the logits."""

    def __init__(self, script: Sequence[int]) -> None:
        self._script = list(script)

    def next(self, logits: Floats, ids: Sequence[int]) -> int:
        assert np.isfinite(logits).all()
        return self._script.pop(0)


class Chat:
    """Requests on a model on a card, through session and request, with scripted answers."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = EngineSettings(
            max_context=CONTEXT,
            kv_format=KvFormat.F32,
            chunk=CHUNK,
            plan=PlanSettings(reserve=0, alias=HeadAlias.ON, short_read=0, block_bytes=1 << 16),
            machine=MachineFacts(card=8 * MIB, desktop=0, context=0),
            poison=True,
        )
        path = DATA_DIR / "models" / f"{name}.gguf"
        self.name = name
        self.runtime = open_runtime(LoadModel(path, settings), lambda _: None)
        self.script: Sequence[int] = ()
        monkeypatch.setattr(decode, "Sampler", lambda _: Scripted(self.script))
        tokenizer = self.runtime.tokenizer
        self.end = max(tokenizer.end_ids)
        (self.stop,) = tokenizer.encode(STOP_TEXT, parse_special=False)
        self.text = [i for i in random_ids(5, 60) if STOP_TEXT not in tokenizer.decode([i])]
        """All ids that are ever held: questions, answers and follow-ups are parts of it."""

    def run(
        self, ids: Sequence[int], script: Sequence[int], steps: int = 0, **fields: Any
    ) -> tuple[RequestStarted, RequestFinished]:
        """A request for `ids`, answered by `script`, cancelled after so many `steps` if any."""
        self.script, events = script, list[Event]()
        command = Generate(1, tokens=tuple(ids), **{"sampling": GREEDY, **fields})
        request = Request(command, self.runtime, events.append)
        request.begin()
        taken = 0
        while not request.finished:
            request.step()
            taken += 1
            if taken == steps and not request.finished:
                request.cancel()
        self.check()
        return of_type(events, RequestStarted)[0], of_type(events, RequestFinished)[0]

    def ends(self, how: str, start: int, end: int) -> RequestFinished:
        """Ask with the text before `start`; the token before `end` ends the answer `how`."""
        question, answer = self.text[:start], self.text[start:end]
        match how:
            case "length":
                return self.run(question, answer, max_tokens=len(answer))[1]
            case "cancel":
                return self.run(question, answer, steps=1 + len(answer))[1]
            case "stop":
                sampling = replace(GREEDY, stop=(STOP_TEXT,))
                return self.run(question, [*answer[:-1], self.stop], sampling=sampling)[1]
            case _:
                return self.run(question, [*answer[:-1], self.end])[1]

    def follow_up(self, ids: Sequence[int], reused: int, right: Floats) -> None:
        """Go on to `ids`, of which `reused` are held; compare with a model that reads them all."""
        started, _ = self.run(ids, [0], max_tokens=1)
        assert started.reused == reused
        logits = self.runtime.session.logits
        assert logits is not None
        same_bits(logits, right, len(ids))

    def check(self) -> None:
        memory = self.runtime.model.memory  # type: ignore[attr-defined]
        self.runtime.session.verify()
        assert memory.machine.state is VramState.READY
        memory.machine.check()


REASONS = {
    "stop": FinishReason.STOP,
    "cancel": FinishReason.CANCELLED,
    "length": FinishReason.LENGTH,
    "end of turn": FinishReason.STOP,
}


@pytest.mark.parametrize("how", REASONS)
@pytest.mark.parametrize("name", LONGEST)
def test_a_follow_up_to_an_answer_that_ended_anywhere_is_a_fresh_read(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token read too many or too few, at any of 40 positions, would change every logit."""
    chat = Chat(name, monkeypatch)
    right = reference(name).logits(chat.text)
    for position in POSITIONS:
        end = QUESTION + position
        start = end - 1 - (position - 1) % LONGEST[name]
        finished = chat.ends(how, start, end)
        assert finished.finish_reason is REASONS[how]
        assert len(finished.tokens) == end - start
        longer = end + FOLLOW_UP
        chat.follow_up(chat.text[:longer], end - 1, right[longer - 1])
        chat.runtime.session.drop("")
    chat.runtime.close()


@pytest.mark.parametrize("name", MIXTURES)
def test_a_prompt_cancelled_after_any_chunk_is_read_on(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Chat(name, monkeypatch)
    right = reference(name).logits(LONG)[-1]
    for chunks in (1, 2):
        _, finished = chat.run(LONG, (), steps=chunks)
        assert finished.finish_reason is FinishReason.CANCELLED
        chat.follow_up(LONG, chunks * CHUNK, right)
        chat.runtime.session.drop("")
    chat.runtime.close()
