"""Guards against an engine that dies, hangs, answers out of turn or lies about what it does.

Whatever a job meets (a cancel, a failing model, a shut-down), the engine must say so, come back
to rest, and serve the next job as if nothing had been.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from stratadesk.engine import request
from stratadesk.engine.commands import Cancel, LoadModel, Shutdown
from stratadesk.engine.events import (
    EngineStopped,
    Event,
    Failure,
    FinishReason,
    LoadProgress,
    MemorySample,
    ModelLoaded,
    Phase,
    PhaseChanged,
    PromptProgress,
    RequestFinished,
    RequestStarted,
    TextDelta,
)
from stratadesk.engine.loop import SWITCH_S, Engine
from stratadesk.engine.memory_probe import MemoryProbe
from stratadesk.engine.phases import Phases
from stratadesk.engine.protocols import ProgressSink
from stratadesk.errors import GgufError
from stratadesk.exit_codes import ExitCode
from tests.engine.harness import MODEL, Desk, ask, desk, empty_desk, of_type, phases, raw, said

LONG = raw("x" * 80)
"""Five chunks of sixteen tokens."""
FAILING_TEMPLATE = "{{ raise_exception('no such role') }}"


def test_an_answer_comes_in_order_and_ends_at_rest() -> None:
    with desk() as d:
        d.will_say("Hi there")
        events = d.run(ask("Hello"))
        kinds = [type(event) for event in events]
        order = [kinds.index(k) for k in (RequestStarted, TextDelta, RequestFinished)]
        assert order == sorted(order)
        finished = of_type(events, RequestFinished)[0]
        assert said(events) == finished.text == "Hi there"
        assert phases(events) == [Phase.PROMPT, Phase.DECODING, Phase.READY]


def test_no_thread_keeps_the_interpreter_from_the_engine_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    monkeypatch.setattr("sys.setswitchinterval", asked.append)
    with desk():
        assert asked == [SWITCH_S]


def test_loading_says_what_was_loaded() -> None:
    with empty_desk() as d:
        events = d.load()
        assert phases(events) == [Phase.LOADING, Phase.READY]
        loaded = of_type(events, ModelLoaded)[0]
        assert (loaded.name, loaded.path, loaded.context) == ("Fake", str(MODEL), 1_000)
        assert (loaded.kv_bytes, loaded.state_bytes, loaded.load_s) == (2_000, 3_000, 0.5)
        assert (loaded.template, loaded.thinks) == ("ChatML", True)


def test_progress_is_told_before_the_first_chunk_is_computed() -> None:
    with desk() as d:
        d.model.gate.shut()
        d.send(LONG)
        progress = d.next(PromptProgress)[-1]
        assert progress == PromptProgress(1, 0, 0, 80, 0.0, 16)
        d.model.gate.open()
        d.rest()


def test_progress_follows_every_chunk() -> None:
    with desk() as d:
        d.model.gate.shut()
        d.send(LONG)
        reads = []
        for _ in range(5):
            d.model.gate.wait_for_call()
            d.model.gate.let_through()
            events = d.until(lambda event: isinstance(event, PromptProgress) and event.read > 0)
            reads.append(of_type(events, PromptProgress)[-1].read)
        assert reads == [16, 32, 48, 64, 80]
        d.rest()


def test_a_cancel_stops_a_prompt_after_the_running_chunk() -> None:
    with desk() as d:
        d.model.gate.shut()
        d.send(LONG)
        d.model.gate.wait_for_call()
        d.send(Cancel(1))
        d.model.gate.let_through()
        events = d.rest()
        finished = of_type(events, RequestFinished)[0]
        assert (finished.finish_reason, finished.tokens) == (FinishReason.CANCELLED, ())
        assert finished.context_used == len(d.model.state.tokens) == 16
        assert len(d.model.calls) == 1
        assert phases(events) == [Phase.PROMPT, Phase.CANCELLING, Phase.READY]


def test_a_cancel_stops_an_answer_and_keeps_its_text() -> None:
    with desk() as d:
        d.will_say("abcdef")
        d.model.gate.shut()
        d.send(raw("x"))
        d.model.gate.let_through(3)  # the prompt, "a" and "b"
        for _ in range(4):
            d.model.gate.wait_for_call()
        d.send(Cancel(1))
        d.model.gate.let_through()  # "c", whose logits choose "d"
        events = d.rest()
        finished = of_type(events, RequestFinished)[0]
        assert (finished.finish_reason, finished.text) == (FinishReason.CANCELLED, "abcd")
        assert finished.tokens == tuple(d.ids("abcd"))
        assert d.model.state.tokens == d.ids("xabc")
        assert phases(events)[-2:] == [Phase.CANCELLING, Phase.READY]


def test_a_cancel_of_something_else_changes_nothing() -> None:
    with desk() as d:
        d.will_say("yes")
        d.send(Cancel(7))
        assert d.answer(ask("Sure?")).text == "yes"
        d.send(Cancel(1))
        d.will_say("again")
        assert d.answer(ask("Sure?")).text == "again"


def test_requests_wait_their_turn() -> None:
    with desk() as d:
        d.model.gate.shut()
        d.send(raw("a", 1, max_tokens=1), raw("b", 2, max_tokens=1), raw("c", 3, max_tokens=1))
        d.model.gate.open()
        finished = [f for _ in range(3) for f in of_type(d.rest(), RequestFinished)]
        assert [f.request_id for f in finished] == [1, 2, 3]


def test_a_waiting_request_is_cancelled_at_once() -> None:
    with desk() as d:
        d.model.gate.shut()
        d.send(LONG, ask("later", 2))
        d.model.gate.wait_for_call()
        d.send(Cancel(2))
        d.model.gate.let_through()
        events = d.next(RequestFinished)
        finished = of_type(events, RequestFinished)[0]
        assert (finished.request_id, finished.finish_reason) == (2, FinishReason.CANCELLED)
        assert (finished.prompt_tokens, finished.tokens, finished.text) == (0, (), "")
        d.model.gate.open()
        assert of_type(d.rest(), RequestFinished)[0].request_id == 1


def test_a_failing_model_fails_one_request_only(caplog: pytest.LogCaptureFixture) -> None:
    with desk() as d:
        d.model.failures[0] = RuntimeError("kernel\nexploded")
        events = d.run(ask("Hello"))
        failure = of_type(events, Failure)[0]
        assert failure.request_id == 1
        assert not failure.loading
        assert "RuntimeError: kernel exploded" in failure.sentence
        assert "Traceback" not in failure.sentence + failure.remedy
        assert failure.remedy
        assert failure.exit_code == ExitCode.FAILURE
        assert phases(events) == [Phase.PROMPT, Phase.FAILED, Phase.READY]
        assert "Traceback" in caplog.text, "the log must have what the screen has not"
        d.will_say("fine")
        assert d.answer(ask("Hello", 2)).text == "fine"


def test_a_failure_amid_an_answer_leaves_nothing_to_reuse() -> None:
    with desk() as d:
        d.will_say("abc")
        d.model.failures[1] = RuntimeError("lost")
        events = d.run(raw("x"))
        assert phases(events) == [Phase.PROMPT, Phase.DECODING, Phase.FAILED, Phase.READY]
        assert not of_type(events, RequestFinished)
        d.will_say("ok")
        started = d.started(raw("xabc", 2))
        assert started.reused == 0
        assert "the last request failed" in started.prefix_note
        assert len(d.model.states) == 2


def test_a_model_that_counts_otherwise_is_not_believed() -> None:
    with desk() as d:
        d.model.forgets = True
        failure = d.failure(raw("xyz"))
        assert "the state holds" in failure.sentence


def test_an_error_nobody_foresaw_drops_all_that_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    with desk() as d:
        d.will_say("abc")
        d.run(raw("x"))
        with monkeypatch.context() as patch:
            patch.delattr(request, "plan_reading")
            assert "NameError" in d.failure(raw("x", 2)).sentence
        assert d.started(raw("xabc", 3)).reused == 0


def test_a_phase_ends_however_its_block_ends() -> None:
    told: list[PhaseChanged] = []
    phase = Phases(told.append, lambda: Phase.READY, lambda: 1.0)
    with pytest.raises(KeyError), phase.busy(Phase.PROMPT):
        raise KeyError
    assert told == [PhaseChanged(Phase.PROMPT, 1.0), PhaseChanged(Phase.READY, 1.0)]


def test_running_out_of_memory_says_both_figures() -> None:
    with desk() as d:
        d.model.failures[0] = MemoryError()
        failure = d.failure(ask("Hello"))
        assert failure.exit_code == ExitCode.OUT_OF_MEMORY
        assert failure.sentence.count("MiB") == 3
        assert "--max-context" in failure.remedy


def test_logits_that_are_not_numbers_fail_and_are_not_kept() -> None:
    with desk() as d:
        d.model.poisoned = True
        failure = d.failure(raw("x"))
        assert failure.sentence
        d.model.poisoned = False
        assert d.started(raw("x", 2)).reused == 0


def test_asking_without_a_model_is_answered_with_a_sentence() -> None:
    with empty_desk() as d:
        events = d.run(ask("Hello"))
        assert of_type(events, Failure)[0].sentence == "No model is loaded."
        assert phases(events) == [Phase.PROMPT, Phase.FAILED, Phase.EMPTY]


def test_a_failed_load_leaves_an_engine_that_can_load() -> None:
    with desk() as d:
        first = d.model
        d.load_failure = GgufError("fake.gguf is no GGUF file.", "Choose another.")
        events = d.run(LoadModel(MODEL))
        failure = of_type(events, Failure)[0]
        assert (failure.request_id, failure.exit_code) == (None, ExitCode.MODEL_UNUSABLE)
        assert failure.loading
        assert failure.sentence == "fake.gguf is no GGUF file."
        assert phases(events) == [Phase.LOADING, Phase.FAILED, Phase.EMPTY]
        assert first.closed, "the model loaded before is released first"
        d.load_failure = None
        d.load()
        d.will_say("back")
        assert d.answer(ask("Hello")).text == "back"


def test_a_load_that_breaks_names_the_file() -> None:
    with empty_desk() as d:
        d.load_failure = ValueError("odd")
        assert "Loading fake.gguf failed" in d.failure(LoadModel(MODEL)).sentence


def test_loading_waits_for_the_answer_before_it() -> None:
    with desk() as d:
        first = d.model
        d.will_say("done")
        first.gate.shut()
        d.send(ask("Hello"), LoadModel(MODEL))
        first.gate.wait_for_call()
        assert not first.closed
        first.gate.open()
        assert of_type(d.rest(), RequestFinished)[0].text == "done"
        assert phases(d.rest()) == [Phase.LOADING, Phase.READY]
        assert first.closed


def test_a_failing_template_offers_chatml_which_then_works() -> None:
    with desk(template=FAILING_TEMPLATE) as d:
        failure = d.failure(ask("Hello"))
        assert failure.offers_chatml
        assert "no such role" in failure.sentence
        d.will_say("Hi")
        assert d.answer(ask("Hello", 2, force_chatml=True)).text == "Hi"


def test_other_failures_offer_no_chatml() -> None:
    with desk() as d:
        assert not d.failure(raw("")).offers_chatml


def test_a_request_that_cannot_start_keeps_what_is_held() -> None:
    with desk(context=40) as d:
        d.will_say("abc")
        d.run(raw("x"))
        failure = d.failure(raw("y" * 50, 2))
        assert failure.exit_code == ExitCode.USAGE
        assert d.started(raw("xabc", 3)).reused == 4


def test_stopping_amid_a_prompt_ends_everything() -> None:
    with desk() as d:
        d.model.gate.shut()
        d.send(LONG, ask("later", 2))
        d.model.gate.wait_for_call()
        d.send(Shutdown())
        d.model.gate.let_through()
        events = d.next(EngineStopped)
        finished = of_type(events, RequestFinished)
        assert [f.request_id for f in finished] == [1, 2]
        assert {f.finish_reason for f in finished} == {FinishReason.CANCELLED}
        assert len(d.model.calls) == 1
        assert d.model.closed
        d.engine.stop()
        assert d.engine.events.get(0.01) is None, "nothing comes after EngineStopped"


def test_stopping_gives_up_loading() -> None:
    with empty_desk() as d:

        def endless(progress: ProgressSink) -> None:
            done = 0
            while True:
                progress(LoadProgress("Compiling kernels", done, 12, "kernels"))
                done = min(done + 1, 12)

        d.while_loading = endless
        d.send(LoadModel(MODEL))
        d.next(LoadProgress)
        d.send(Shutdown())
        events = d.next(EngineStopped)
        assert not of_type(events, Failure)
        assert not of_type(events, ModelLoaded)


def test_a_model_that_cannot_be_closed_does_not_keep_the_engine() -> None:
    with desk() as d:
        d.model.close = lambda: 1 / 0  # type: ignore[method-assign, assignment]
        d.send(Shutdown())
        events = d.next(EngineStopped)
        assert "Releasing the model failed" in of_type(events, Failure)[0].sentence


def test_an_engine_can_be_stopped_before_it_starts_and_twice() -> None:
    Engine().stop()
    d = Desk()
    d.engine.start()
    d.engine.stop()
    d.engine.stop()


def test_memory_is_sampled_while_nothing_happens() -> None:
    with empty_desk(engine={"probe": MemoryProbe(interval_s=0.01)}) as d:
        for _ in range(3):
            sample = of_type(d.next(MemorySample), MemorySample)[0]
            assert 0 < sample.resident < sample.total
            assert 0 < sample.available < sample.total


def test_memory_is_sampled_between_tokens() -> None:
    with desk(engine={"probe": MemoryProbe(interval_s=0.0)}) as d:
        d.will_say("abc")
        d.model.gate.shut()
        d.send(raw("x"))
        for _ in range(3):
            d.model.gate.wait_for_call()
            d.engine.events.drain()
            d.model.gate.let_through()
            d.next(MemorySample)
        d.model.gate.open()
        d.rest()


def test_a_sample_is_due_once_per_interval() -> None:
    now = [100.0]
    sample = MemorySample(1, 2, 3)
    probe = MemoryProbe(lambda: sample, lambda: now[0])
    assert probe.take_if_due() == sample
    assert probe.take_if_due() is None
    now[0] += 0.75
    assert (probe.take_if_due(), probe.seconds_left()) == (None, 0.25)
    now[0] += 0.25
    assert probe.take_if_due() == sample


def test_events_reach_a_listener_that_only_drains() -> None:
    with desk() as d:
        got: list[Event] = []
        d.engine.events.set_listener(lambda: got.extend(d.engine.events.drain()))
        d.will_say("Hi")
        d.send(ask("Hello"))
        d.engine.stop()
        assert isinstance(got[-1], EngineStopped)
        assert any(isinstance(event, RequestFinished) for event in got)


def test_the_engine_can_be_imported_without_a_screen_or_compiler() -> None:
    code = "import sys, stratadesk.engine.loop; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"textual", "numba", "cupy"} & set(run.stdout.split())


def test_the_thread_is_a_daemon_named_engine() -> None:
    engine = Engine()
    assert (engine._thread.name, engine._thread.daemon) == ("engine", True)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    engine = Engine()
    engine.start()
    try:
        engine.send(LoadModel(tmp_path / "gone.gguf"))
        event = engine.events.get(30)
        while event is not None and not isinstance(event, Failure):
            event = engine.events.get(30)
        assert event is not None
        assert "gone.gguf" in event.sentence
        assert event.exit_code == ExitCode.MODEL_UNUSABLE
    finally:
        engine.stop()
