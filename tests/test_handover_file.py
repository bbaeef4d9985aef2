"""Guards against a chat that is lost, kept too long, or mixed up between two programs of one user.

A file that cannot be used must never keep the program from starting.
"""

import json
import os
import stat
import time
from pathlib import Path

import pytest

from stratadesk.cli import handover_file
from stratadesk.cli.handover_file import FRESH_S, VARIABLE, naming, take_handover, write_handover
from stratadesk.engine.commands import EngineSettings, KvFormat, Message, SamplingSettings
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.errors import StrataDeskError
from stratadesk.settings_schema import InterfaceSettings
from stratadesk.tui.handover import ChatRecord, Handover, Turn, Written

CHAT = ChatRecord(
    (Message("user", "Ünïcode \ud800 and \x1b[2J"), Message("assistant", "yes", "hm")),
    (Turn(said=Written("Ünïcode \ud800", ("a paste\n",))), Turn(remark="A remark.")),
    Written("not sent\nat all"),
    (Written("no answer"),),
)
HANDOVER = Handover(
    "models/m.gguf",
    EngineSettings(kv_format=KvFormat.Q8_0, plan=PlanSettings(reserve=7 << 20)),
    SamplingSettings(temperature=0.25, seed=3, stop=("END",)),
    InterfaceSettings(theme="strata-light"),
    CHAT,
)


def test_all_of_it_comes_back_once_and_the_file_is_gone(own_home: Path) -> None:
    path = write_handover(HANDOVER)
    assert path.parent == own_home / "state"
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    environment = {"OTHER": "1", **naming(path)}
    assert take_handover(environment) == HANDOVER
    assert environment == {"OTHER": "1"}, (
        "no program that is started from here takes it for its own"
    )
    assert list(path.parent.iterdir()) == []
    with pytest.raises(StrataDeskError, match="cannot be read: No such file"):
        take_handover(naming(path))


@pytest.mark.parametrize("said", [None, "", "x", "../../etc/passwd", "-1", "٣"])
def test_a_start_that_is_told_of_no_file_takes_none(said: str | None) -> None:
    path = write_handover(HANDOVER)
    assert take_handover({} if said is None else {VARIABLE: said}) is None
    assert path.exists(), "it is for another program"


def damaged(written: str) -> list[str]:
    fields = json.loads(written)
    chat = fields["handover"]["chat"]
    return [
        "",
        written[: len(written) // 2],
        "[]",
        "[" * 100_000,
        "null",
        json.dumps({**fields, "at": "noon"}),
        json.dumps({**fields, "handover": {**fields["handover"], "chat": {**chat, "turns": 5}}}),
        json.dumps({**fields, "handover": {**fields["handover"], "model": 5}}),
        json.dumps({**fields, "handover": {**fields["handover"], "more": 5}}),
        json.dumps({**fields, "handover": {"model": None}}),
        json.dumps({**fields, "format": 2}),
        json.dumps({**fields, "at": fields["at"] - 2 * FRESH_S}),
    ]


def test_what_is_damaged_or_old_is_told_and_removed() -> None:
    path = write_handover(HANDOVER)
    for content in damaged(path.read_text("utf-8")):
        path.write_text(content, "utf-8")
        with pytest.raises(StrataDeskError) as caught:
            take_handover(naming(path))
        assert len(str(caught.value)) < 400
        assert caught.value.remedy == "The chat starts empty; ask again."
        assert not path.exists()
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(StrataDeskError, match="it is not UTF-8"):
        take_handover(naming(path))


def test_what_others_left_long_ago_is_removed_and_what_is_theirs_now_is_not(
    own_home: Path,
) -> None:
    state = own_home / "state"
    state.mkdir()
    for name, age in (("handover-1.json", 2 * FRESH_S), ("handover-2.json", 0.0), ("x.json", 1e6)):
        (state / name).touch()
        os.utime(state / name, (time.time() - age, time.time() - age))
    path = write_handover(HANDOVER)
    assert {each.name for each in state.iterdir()} == {"handover-2.json", "x.json", path.name}


def test_a_place_that_cannot_be_written_is_told_and_nothing_is_left(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _text: str) -> None:
        raise StrataDeskError(f"{path} cannot be written: No space left on device.", "Make room.")

    monkeypatch.setattr(handover_file, "replace_text", full)
    with pytest.raises(StrataDeskError, match="No space left"):
        write_handover(HANDOVER)
    assert list((own_home / "state").iterdir()) == []
    (own_home / "state").rmdir()
    (own_home / "state").touch()
    with pytest.raises(StrataDeskError, match=r"The chat cannot be kept in .*: ") as caught:
        write_handover(HANDOVER)
    assert caught.value.remedy == f"{own_home / 'state'} is no folder: move it away, and try again."


def test_a_folder_in_the_place_of_the_file_is_told_like_any_other_obstacle(own_home: Path) -> None:
    place = own_home / "state" / f"handover-{os.getpid()}.json"
    place.mkdir(parents=True)
    with pytest.raises(StrataDeskError, match="is no file"):
        write_handover(HANDOVER)
