"""Guards against a command that tells someone at the shell to press keys after a loss of the card.

One sentence says what happened and that the command is to be run again, and the exit code is that
of a card that cannot be used, wherever the loss came.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from stratadesk.cli import bench_decode, bench_tui, main
from stratadesk.cli.terminal import print_error
from stratadesk.engine import logits, loop
from stratadesk.engine.card_events import DeviceLost
from stratadesk.engine.commands import Command, Generate, LoadModel
from stratadesk.engine.events import Event, Phase
from stratadesk.engine.failures import failure_of
from stratadesk.errors import DeviceLostError
from stratadesk.exit_codes import ExitCode
from tests.tui import scripted_engine as script
from tests.tui.scripted_engine import ScriptedEngine

LOST = DeviceLostError("The graphics card stopped answering while computing: launch failure.")
SAID = f"stratadesk: {LOST.sentence} Run the command again.\n"


def losing_at(kind: type[Command]) -> Callable[[Command], Iterable[Event]]:
    """Load and begin to answer; lose the card at a command of `kind`, after some text."""

    def reply(command: Command) -> Iterable[Event]:
        if isinstance(command, kind):
            assert isinstance(command, LoadModel | Generate)
            if isinstance(command, Generate):
                yield script.started(command.request_id)
                yield script.said(command.request_id, "Half an ans")
            yield DeviceLost(0.0, LOST.sentence)
            yield failure_of(LOST, "It", command, None)
            yield script.phase(Phase.EMPTY)
        elif isinstance(command, LoadModel):
            yield from script.loaded()
        elif isinstance(command, Generate):
            yield script.started(command.request_id)
            yield script.finished(command.request_id, "All of it")

    return reply


@pytest.fixture
def model(data_dir: Path) -> str:
    return str(data_dir / "models" / "qwen3moe-iq4_xs.gguf")


@pytest.mark.parametrize("kind", [LoadModel, Generate])
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_run(
    kind: Any,
    flags: tuple[str, ...],
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(loop, "Engine", lambda: ScriptedEngine(losing_at(kind)))
    assert main(["run", "-m", model, "-p", "Hi", *flags]) == ExitCode.NO_GPU
    said = capsys.readouterr()
    assert said.err == SAID
    assert said.out == ("Half an ans\n" if kind is Generate and not flags else "")


@pytest.mark.parametrize(("kind", "engines"), [(LoadModel, 1), (Generate, 1), (Generate, 2)])
def test_bench_tui_alone_and_under_the_screen(
    kind: Any,
    engines: int,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made: list[ScriptedEngine] = []

    def engine() -> ScriptedEngine:
        never = type("Never", (), {})
        made.append(ScriptedEngine(losing_at(kind if len(made) + 1 == engines else never)))
        return made[-1]

    monkeypatch.setattr(bench_decode, "Engine", engine)
    monkeypatch.setattr(bench_tui, "screen_figures", lambda *_: {})
    assert main(["bench", "tui", "-m", model]) == ExitCode.NO_GPU
    assert capsys.readouterr().err == SAID
    assert [each.stops > 0 for each in made] == [True] * engines


def test_logits(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose(*_: Any) -> NoReturn:
        raise LOST

    monkeypatch.setattr(logits, "write_logits", lose)
    out = str(tmp_path / "out.npz")
    assert main(["logits", "-m", model, "--tokens", "1 2", "-o", out]) == ExitCode.NO_GPU
    assert capsys.readouterr().err == SAID


@pytest.mark.parametrize(
    ("remedy", "said"),
    [
        ("Load the model again; if it fails again, wait.", "Run the command again; if it fails "),
        ("Download the model again.", "Download the model again."),
        ("", "It failed.\n"),
    ],
)
def test_remedies_at_the_shell(remedy: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_error("It failed.", remedy)
    assert said in capsys.readouterr().err
