"""Guards against books that do not agree with what the model computed.

A session that believes in one token too many gives wrong answers without any error.
"""

import pytest

from stratadesk.engine.prompt import Prompt
from stratadesk.engine.session import Session, Turn
from tests.engine.fake_model import FakeModel, FakeState

WHY = "the last request failed"


@pytest.fixture
def model() -> FakeModel:
    return FakeModel(len, vocab_size=100, context=10)


@pytest.fixture
def session(model: FakeModel) -> Session[FakeState]:
    made = Session(model)
    made.restart()
    return made


def test_it_holds_exactly_what_it_read(model: FakeModel, session: Session[FakeState]) -> None:
    session.read([1, 2, 3], logits=False)
    session.read([4], logits=True)
    assert list(session.ids) == model.state.tokens == [1, 2, 3, 4]
    assert session.room == 6
    session.verify()


def test_logits_belong_to_the_last_id_or_are_not_there(session: Session[FakeState]) -> None:
    session.read([1, 2], logits=True)
    assert session.logits is not None
    assert session.logits.argmax() == 2
    session.read([3], logits=False)
    assert session.logits is None


def test_restart_begins_with_an_empty_state(model: FakeModel, session: Session[FakeState]) -> None:
    session.read([1], logits=True)
    session.turn = Turn(Prompt(ids=(1,)), 1)
    session.restart()
    assert list(session.ids) == []
    assert all(getattr(session, name) is None for name in ("turn", "logits"))
    session.read([2], logits=False)
    assert model.state.tokens == [2]


def test_an_unused_state_is_not_made_twice(model: FakeModel, session: Session[FakeState]) -> None:
    session.restart()
    assert len(model.states) == 1


def test_the_old_state_is_released_before_a_new_one_is_made(
    model: FakeModel, session: Session[FakeState], monkeypatch: pytest.MonkeyPatch
) -> None:
    session.read([1], logits=False)
    monkeypatch.setattr(model, "new_state", lambda: pytest.fail(str(session._state)))
    with pytest.raises(pytest.fail.Exception, match="None"):
        session.restart()


def test_reading_without_a_state_is_refused(model: FakeModel) -> None:
    with pytest.raises(RuntimeError, match="restart"):
        Session(model).read([1], logits=False)


def test_a_failure_drops_what_was_held(model: FakeModel, session: Session[FakeState]) -> None:
    session.read([1], logits=False)
    model.failures[1] = OSError("disk gone")
    with pytest.raises(OSError, match="disk gone"), session.dropped_on_failure(WHY):
        session.read([2], logits=False)
    assert (list(session.ids), session.lost) == ([], WHY)
    session.verify()


def test_a_disagreement_with_the_model_is_a_failure(
    model: FakeModel, session: Session[FakeState]
) -> None:
    model.forgets = True
    with pytest.raises(RuntimeError, match="holds 1 tokens"), session.dropped_on_failure(WHY):
        session.read([1, 2], logits=False)
    assert session.lost == WHY


def test_what_went_well_is_kept(session: Session[FakeState]) -> None:
    with session.dropped_on_failure(WHY):
        session.read([1], logits=False)
    assert (list(session.ids), session.lost) == ([1], "")


def test_a_new_start_forgets_the_loss(session: Session[FakeState]) -> None:
    session.read([1], logits=False)
    session.drop(WHY)
    session.restart()
    assert session.lost == ""
