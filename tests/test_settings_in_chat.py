"""Guards against a choice made with a key that is gone at the next start.

The program runs on a pseudo-terminal with a home of its own, as a user starts it.
"""

import sys
import tomllib
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("pseudo-terminals need POSIX", allow_module_level=True)

from stratadesk.settings_file import user_file
from tests.pseudo_terminal import CTRL_Q, Terminal, terminal

F6, F7 = b"\x1b[17~", b"\x1b[18~"
READY = b"READY"


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No models of this user."""
    monkeypatch.setenv("HOME", str(tmp_path))


def start(screen: Terminal, data_dir: Path, cwd: Path, *flags: str, **variables: str) -> None:
    """Start the chat with a model and wait until it is ready."""
    model = str(data_dir / "models" / "qwen3moe-iq4_xs.gguf")
    screen.run("-m", "stratadesk", "-m", model, *flags, cwd=cwd, **variables)
    screen.read_until(READY)


def leave(screen: Terminal) -> None:
    screen.type(CTRL_Q)
    assert screen.wait() == 0


def test_what_a_key_chose_holds_at_the_next_start(data_dir: Path, tmp_path: Path) -> None:
    with terminal(160, 40) as screen:
        start(screen, data_dir, tmp_path)
        screen.read_until(b"thinking hidden")
        screen.type(F6 + F7)
        leave(screen)
    kept = tomllib.loads(user_file().read_text(encoding="utf-8"))
    assert kept == {"interface": {"monitor": "narrow", "thinking": "shown"}}
    with terminal(160, 40) as screen:
        start(screen, data_dir, tmp_path)
        screen.read_until(b"thinking shown")
        assert b"thinking hidden" not in screen.text
        leave(screen)
    with terminal(160, 40) as screen:
        start(screen, data_dir, tmp_path, STRATADESK_THINKING="hidden")
        screen.read_until(b"thinking hidden")
        leave(screen)


def test_a_damaged_file_is_told_in_the_chat_and_set_aside(data_dir: Path, tmp_path: Path) -> None:
    damaged = "[interface\nmonitor = 'off'\n"
    user_file().parent.mkdir(parents=True)
    user_file().write_text(damaged, encoding="utf-8")
    with terminal(160, 40) as screen:
        start(screen, data_dir, tmp_path)
        screen.read_until(b"This is not TOML")
        screen.type(F7)
        leave(screen)
    assert tomllib.loads(user_file().read_text(encoding="utf-8")) == {
        "interface": {"thinking": "shown"}
    }
    (copy,) = user_file().parent.glob("*.damaged-*")
    assert copy.read_text(encoding="utf-8") == damaged
