"""Guards against a lost card that takes the chat with it, or that is never noticed or let go."""

from stratadesk.engine.card_events import DeviceLost
from stratadesk.engine.commands import LoadModel
from stratadesk.engine.events import Failure, Phase, RequestFinished, TextDelta
from stratadesk.engine.loop import SLEEP_S
from stratadesk.errors import DeviceError, DeviceLostError
from stratadesk.exit_codes import ExitCode
from tests.engine.harness import MODEL, ask, desk, empty_desk, of_type, phases, said

LOST = DeviceLostError("The graphics card stopped answering while computing: launch failure.")


class _Samples:
    """A card's control whose samples find it lost once `lost` is set."""

    def __init__(self) -> None:
        self.lost: DeviceLostError | None = None

    def seconds_left(self) -> float:
        return 0.01

    def attend(self) -> None:
        if self.lost is not None:
            raise self.lost

    def close(self) -> None:
        """Nothing is open."""


def test_a_card_lost_while_writing_keeps_the_text_and_another_can_be_loaded_onto() -> None:
    with desk() as d:
        ids = d.will_say("hello hello")
        d.model.failures = {len(ids) // 2 + 1: LOST}
        lost = d.model
        d.send(ask("Hello"))
        events = d.rest()
        assert of_type(events, DeviceLost)[0].why == LOST.sentence
        failure = of_type(events, Failure)[0]
        assert (failure.request_id, failure.title) == (1, "GPU lost")
        assert failure.exit_code == ExitCode.NO_GPU
        assert failure.remedy == "Start StrataDesk again."
        assert said(events)
        assert events.index(of_type(events, TextDelta)[0]) < events.index(failure)
        assert phases(events)[-2:] == [Phase.FAILED, Phase.EMPTY]
        assert lost.closed

        assert d.failure(ask("Hello", 2)).sentence == "No model is loaded."
        d.load()
        assert d.model is not lost
        d.will_say("here")
        started = d.run(ask("Hello", 3))
        assert of_type(started, RequestFinished)[0].text == "here"
        assert not of_type(started, DeviceLost)


def test_the_first_prompt_after_a_loss_says_why_all_is_read_again() -> None:
    with desk() as d:
        d.will_say("one")
        d.run(ask("Hello"))
        d.model.failures = {len(d.model.calls): LOST}
        d.run(ask("Again", 2))
        d.load()
        d.will_say("two")
        assert "the model was loaded again" in d.started(ask("Hello", 3)).prefix_note


def test_a_card_lost_in_sleep_is_noticed_before_anything_is_asked_of_it() -> None:
    now = [0.0]
    with desk(engine={"wall_clock": lambda: now[0]}) as d:
        d.model.missing = LOST
        now[0] += SLEEP_S + 1
        events = d.rest()
        assert of_type(events, DeviceLost)
        assert not of_type(events, Failure)
        assert phases(events) == [Phase.FAILED, Phase.EMPTY]
        assert d.model.closed


def test_a_card_that_a_sample_finds_lost_at_rest_is_told_at_once() -> None:
    samples = _Samples()
    with desk(control=samples) as d:
        d.will_say("one")
        d.run(ask("Hello"))
        lost = d.model
        samples.lost = LOST
        events = d.rest()
        assert of_type(events, DeviceLost)[0].why == LOST.sentence
        assert not of_type(events, Failure)
        assert phases(events) == [Phase.FAILED, Phase.EMPTY]
        assert lost.closed


def test_a_card_lost_in_sleep_while_a_request_waited_fails_that_request() -> None:
    now = [0.0]
    with desk(engine={"wall_clock": lambda: now[0]}) as d:
        d.will_say("never read")
        d.model.missing = LOST
        lost = d.model

        def sleep(chunk: object) -> None:
            now[0] += SLEEP_S + 1

        d.model.before_call = sleep
        events = d.run(ask("Hello"))
        assert of_type(events, DeviceLost)
        assert of_type(events, Failure)[0].request_id == 1
        assert len(lost.calls) == 1


def test_a_card_is_not_asked_while_the_clock_runs_as_usual() -> None:
    now = [0.0]
    with desk(engine={"wall_clock": lambda: now[0]}) as d:
        d.will_say("hello")
        now[0] += SLEEP_S / 2
        d.run(ask("Hello"))
        assert d.model.checks == 0
        now[0] += SLEEP_S + 1
        d.will_say("hello")
        assert of_type(d.run(ask("Hello", 2)), RequestFinished)
        assert d.model.checks == 1


def test_a_loss_while_loading_is_told_and_a_failed_load() -> None:
    with empty_desk() as d:
        d.load_failure = LOST
        events = d.run(LoadModel(MODEL))
        assert of_type(events, DeviceLost)[0].why == LOST.sentence
        assert of_type(events, Failure)[0].loading
        assert phases(events) == [Phase.LOADING, Phase.FAILED, Phase.EMPTY]
        d.load_failure = None
        assert phases(d.load()) == [Phase.LOADING, Phase.READY]


def test_a_refusal_that_is_no_loss_keeps_the_model() -> None:
    with desk() as d:
        d.will_say("hello")
        d.model.failures = {0: DeviceError("The graphics card failed while computing: invalid.")}
        events = d.run(ask("Hello"))
        assert not of_type(events, DeviceLost)
        assert phases(events)[-1] is Phase.READY
        assert not d.model.closed
