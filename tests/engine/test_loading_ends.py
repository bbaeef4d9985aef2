"""Guards against a load that cannot be ended, or that leaves something behind when it is."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stratadesk.engine.commands import CancelLoad, LoadModel
from stratadesk.engine.events import (
    Failure,
    LoadCancelled,
    LoadProgress,
    ModelLoaded,
    Phase,
    RequestFinished,
)
from stratadesk.engine.protocols import ProgressSink
from tests.engine.harness import MODEL, Desk, ask, desk, empty_desk, of_type, phases, raw

LONG = raw("x" * 80)
"""Five chunks of sixteen tokens."""
FAILING_TEMPLATE = "{{ raise_exception('no such role') }}"


def reporting(d: Desk, reached: threading.Event) -> Callable[[ProgressSink], None]:
    """Loading that reports and reports, and sets `reached` after the first time."""

    def endless(progress: ProgressSink) -> None:
        while True:
            progress(LoadProgress("Compiling kernels", 3, 12, "kernels"))
            reached.set()
            time.sleep(0.001)

    return endless


def test_a_cancel_ends_loading_and_another_load_works(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stratadesk")
    with empty_desk() as d:
        reached, usual = threading.Event(), d.while_loading
        d.while_loading = reporting(d, reached)
        d.send(LoadModel(MODEL))
        assert reached.wait(60)
        events = d.run(CancelLoad())
        assert of_type(events, LoadCancelled) == [LoadCancelled("fake.gguf")]
        assert phases(events) == [Phase.LOADING, Phase.EMPTY]
        assert not of_type(events, Failure)
        assert "loading fake.gguf ended early" in caplog.text
        d.while_loading = usual
        assert phases(d.load()) == [Phase.LOADING, Phase.READY]
        d.will_say("here")
        assert d.answer(ask("Hello")).text == "here"


def test_a_cancel_that_comes_when_all_is_loaded_gives_the_model_back() -> None:
    with empty_desk() as d:
        d.while_loading = lambda _progress: d.send(CancelLoad())
        d.send(LoadModel(MODEL))
        events = d.rest()
        assert of_type(events, LoadCancelled)
        assert not of_type(events, ModelLoaded)
        assert d.model.closed


def test_a_cancel_withdraws_a_load_that_waits_and_leaves_the_answer_alone() -> None:
    with desk() as d:
        d.will_say("done")
        d.model.gate.shut()
        d.send(ask("Hello"), LoadModel(MODEL))
        d.model.gate.wait_for_call()
        d.send(CancelLoad())
        d.model.gate.open()
        events = d.rest()
        assert of_type(events, RequestFinished)[0].text == "done"
        assert of_type(events, LoadCancelled)
        assert not d.model.closed


def test_a_cancel_with_nothing_to_load_spoils_no_later_load() -> None:
    with desk() as d:
        d.send(CancelLoad())
        assert of_type(d.load(), ModelLoaded)


def test_a_model_wanted_meanwhile_takes_the_place_of_the_one_that_loads() -> None:
    with empty_desk() as d:
        reached, usual = threading.Event(), d.while_loading
        d.while_loading = reporting(d, reached)
        d.send(LoadModel(MODEL))
        assert reached.wait(60)
        d.while_loading = usual
        d.send(LoadModel(Path("other.gguf")))
        assert phases(d.rest()) == [Phase.LOADING, Phase.EMPTY]
        events = d.rest()
        assert [loaded.path for loaded in of_type(events, ModelLoaded)] == ["other.gguf"]
        assert not of_type(events, LoadCancelled)
