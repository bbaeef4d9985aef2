"""Guards against tracebacks on a user's screen, wrong exit codes, and a chat in a pipe."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stratadesk.cli import main
from stratadesk.cli.program import GO_ELSEWHERE, GONE
from stratadesk.errors import UsageError
from stratadesk.exit_codes import ExitCode
from stratadesk.result_file import check_place

Program = Callable[..., subprocess.CompletedProcess[str]]

CRASHING = """
import stratadesk.cli.versions as versions
from stratadesk.cli import main
def show_paths(_):
    raise ValueError("the cause\\nand more")
versions.show_paths = show_paths
raise SystemExit(main(["paths"]))
"""


@pytest.fixture
def stratadesk(own_home: Path) -> Program:
    """Runs Python with the arguments given, standard input empty."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    return run


def test_a_machine_without_a_card_is_one_line_and_its_exit_code(
    stratadesk: Program, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    model = str(data_dir / "models" / "qwen3-tied-q6_k.gguf")
    done = stratadesk("-m", "stratadesk", "run", "-m", model, "-p", "hi", "--device", "cuda")
    assert done.returncode == ExitCode.NO_GPU
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "NVIDIA" in done.stderr
    assert "--device host" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "-m", "none.gguf"], ExitCode.USAGE),
        (["tokenize", "-m", "none.gguf", "hi"], ExitCode.MODEL_UNUSABLE),
        (["inspect", "none.gguf"], ExitCode.MODEL_UNUSABLE),
        (["run", "-m", "https://a.b/c.gguf", "-p", "hi"], ExitCode.MODEL_UNUSABLE),
        (["run", "-m", "none.gguf", "-p", " "], ExitCode.USAGE),
        (["logits", "-m", "m", "--tokens", "1", "-o", ""], ExitCode.USAGE),
        (["config", "validate", "."], ExitCode.USAGE),
        (["demo"], ExitCode.USAGE),
        (["logits", "-m", "none.gguf", "--tokens", "1", "-o", "x.npz"], ExitCode.MODEL_UNUSABLE),
        (["run", "-m", "none.gguf", "-p", "hi"], ExitCode.MODEL_UNUSABLE),
        (["run", "-m", "none.gguf", "-p", "hi", "--json"], ExitCode.MODEL_UNUSABLE),
        (["logits", "-m", "m", "--tokens", "1", "-o", "no/folder/x.npz"], ExitCode.USAGE),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value.name,
)
def test_an_error_is_one_line_and_an_exit_code(
    stratadesk: Program, arguments: list[str], code: ExitCode
) -> None:
    done = stratadesk("-m", "stratadesk", *arguments)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("stratadesk: ")
    assert done.stderr.count("\n") == 1


def test_an_unforeseen_error_is_a_sentence_and_a_log_entry(
    stratadesk: Program, own_home: Path
) -> None:
    done = stratadesk("-c", CRASHING)
    log = own_home / "log" / "stratadesk.log"
    assert done.returncode == ExitCode.FAILURE
    assert done.stderr == (
        "stratadesk: An unexpected error ended the program (ValueError: the cause). "
        f"The details are in {log}.\n"
    )
    assert "Traceback" in log.read_text("utf-8")
    assert "and more" in log.read_text("utf-8")


def test_debugging_shows_the_traceback(stratadesk: Program) -> None:
    assert "Traceback" in stratadesk("-c", CRASHING, STRATADESK_DEBUG="1").stderr
    done = stratadesk("-m", "stratadesk", "inspect", "none.gguf", STRATADESK_DEBUG="1")
    assert done.returncode == ExitCode.MODEL_UNUSABLE
    assert "Traceback" in done.stderr


def test_a_log_that_cannot_be_written_harms_nothing(stratadesk: Program, tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    done = stratadesk("-c", CRASHING, STRATADESK_HOME=str(in_the_way))
    assert done.returncode == ExitCode.FAILURE
    assert done.stderr.count("\n") == 1


def test_an_error_in_a_thread_goes_to_the_log_alone(stratadesk: Program, own_home: Path) -> None:
    code = (
        "import threading\n"
        "from stratadesk.logs import install_crash_hooks\n"
        "install_crash_hooks()\n"
        "threading.Thread(target=lambda: 1 / 0).start()\n"
    )
    done = stratadesk("-c", code)
    assert done.stderr == ""
    assert "ZeroDivisionError" in (own_home / "log" / "stratadesk.log").read_text("utf-8")


def test_an_interrupt_is_silent(stratadesk: Program) -> None:
    done = stratadesk("-c", CRASHING.replace("ValueError", "KeyboardInterrupt"))
    assert done.returncode == ExitCode.INTERRUPTED
    assert done.stderr == ""


HELP = [["--help"], ["run", "--help"], ["config", "set", "--help"], ["bench", "--help"]]


@pytest.mark.parametrize("words", [["paths"], *HELP], ids=" ".join)
def test_a_reader_that_leaves_is_no_error(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "stratadesk", *words]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode == ExitCode.FAILURE
    assert done.stderr == b""


def test_the_chat_refuses_to_run_without_a_terminal(stratadesk: Program) -> None:
    done = stratadesk("-m", "stratadesk")
    assert done.returncode == ExitCode.USAGE
    assert done.stdout == ""
    assert done.stderr.startswith("stratadesk: The chat needs a terminal")


def test_output_is_utf8_whatever_the_locale_says(stratadesk: Program, tmp_path: Path) -> None:
    home = str(tmp_path / "日本語")
    done = stratadesk(
        "-m", "stratadesk", "paths", STRATADESK_HOME=home, PYTHONIOENCODING="ascii", LC_ALL="C"
    )
    assert done.returncode == ExitCode.OK
    assert home in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [["paths"], *HELP], ids=" ".join)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_is_full_is_a_sentence(words: list[str], unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "stratadesk", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            encoding="utf-8",
            check=False,
        )
    assert done.returncode == ExitCode.FAILURE
    assert done.stderr.startswith("stratadesk: Standard output cannot be written: No space left")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell that closes streams")
def test_closed_streams_are_no_crash(own_home: Path) -> None:
    def shell(words: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-c", f'"{sys.executable}" -m stratadesk {words}']
        return subprocess.run(command, capture_output=True, encoding="utf-8", check=False)

    done = shell("paths >&-")
    assert (done.returncode, done.stdout) == (ExitCode.FAILURE, "")
    assert done.stderr.startswith("stratadesk: Standard output is closed")
    done = shell("inspect none.gguf 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.MODEL_UNUSABLE, "", "")
    done = shell("<&-")
    assert done.returncode == ExitCode.USAGE
    assert "standard input is not one" in done.stderr
    assert not (own_home / "log" / "stratadesk.log").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps a folder that is used")
@pytest.mark.parametrize(
    "words", ["", "config show", "models", "run -m m.gguf -p hi", "logits -m m --tokens 1 -o o.npz"]
)
def test_a_working_directory_that_is_gone_is_told(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(words.split()) == ExitCode.FAILURE
    assert capsys.readouterr() == ("", f"stratadesk: {GONE} {GO_ELSEWHERE}\n")
    assert main(["paths"]) == ExitCode.OK


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("command", [["inspect"], ["run", "-p", "hi", "-m"], ["plan", "-m"]])
def test_what_is_no_model_file_is_a_sentence_with_a_remedy(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "noise.gguf").write_bytes(b"\x00\xff\x80\x01")
    remedies = {
        "folder": "holds no GGUF model. Name a .gguf file",
        "pipe.gguf": "is not a regular file. Name a .gguf file",
        "empty.gguf": "is empty. Download it again.",
        "noise.gguf": "the bytes 00 ff 80 01, not with GGUF). Choose",
    }
    for name, words in remedies.items():
        assert main([*command, str(tmp_path / name)]) == ExitCode.MODEL_UNUSABLE
        err = capsys.readouterr().err
        assert words in err
        assert err.count("\n") == 1


def test_logits_never_replace_a_model_or_another_file_that_is_no_result(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes((data_dir / "models" / "qwen3moe-f16.gguf").read_bytes())
    before = model.read_bytes()
    ids = tmp_path / "ids.json"
    ids.write_text("[1, 2]")
    for out in (model, ids):
        flags = ("-m", str(model), "--tokens-file", str(ids), "-o", str(out))
        assert main(["logits", *flags]) == ExitCode.USAGE
        assert "is no .npz file, so it is not replaced" in capsys.readouterr().err
    assert (model.read_bytes(), ids.read_text()) == (before, "[1, 2]")
    for _ in range(2):
        flags = ("-m", str(model), "--tokens-file", str(ids), "-o", str(tmp_path / "out.npz"))
        assert main(["logits", *flags]) == ExitCode.OK


NO_PLACES = {
    "folder": "is no file",
    "folder/": "is no file",
    "none/out.npz": "does not exist. Create it",
    "model.pt": "is no .npz file, so it is not replaced",
    "cut.npz": "is no .npz file, so it is not replaced",
    "model.gguf/out.npz": "does not exist. Create it",
    "x" * 300: "cannot be written: File name too long",
    "/dev/null": "is no file",
}


@pytest.mark.skipif(sys.platform == "win32", reason="devices and codes of POSIX systems")
@pytest.mark.parametrize(("place", "said"), NO_PLACES.items(), ids=lambda value: value[:30])
def test_a_place_for_logits_that_is_none_is_a_sentence(
    place: str, said: str, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = data_dir / "models" / "qwen3moe-f16.gguf"
    (tmp_path / "folder").mkdir()
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("archive/data.pkl", "weights")
    np.savez(tmp_path / "whole.npz", logits=np.zeros(99))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:200])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    out = os.path.join(tmp_path, place)
    command = ["logits", "-m", str(model), "--tokens", "1", "-o", out]
    assert main(command) in (ExitCode.USAGE, ExitCode.FAILURE)
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_logits_are_not_written_into_a_file_called_dash(
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    model = str(data_dir / "models" / "qwen3moe-f16.gguf")
    assert main(["logits", "-m", model, "--tokens", "1", "-o", "-"]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("stratadesk: An .npz file is not written to standard output (-o -)")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX systems")
def test_a_folder_that_may_not_be_written_to_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root every folder may be written to, so the system's answer is stood in for."""
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(UsageError) as caught:
        check_place(tmp_path / "out.npz")
    assert caught.value.sentence == f"No file can be made in {tmp_path}."


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ("[" + "9" * 5000 + "]", "is not JSON"),
        ("[" + "9" * 100 + "]", "is not a JSON list of token ids"),
        ("[-1]", "is not a JSON list of token ids"),
        ("[" * 100_000, "is not JSON"),
    ],
    ids=["too long for a number", "no id", "negative", "nested"],
)
def test_a_list_of_ids_is_read_with_care(
    ids: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ids.json"
    file.write_text(ids)
    command = ["logits", "-m", "none.gguf", "-o", str(tmp_path / "out.npz"), "--tokens-file"]
    assert main([*command, str(file)]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    words = ids.strip("[]")
    if words.isdigit():
        assert main([*command[:-1], "--tokens", words]) == ExitCode.USAGE
        err = capsys.readouterr().err
        assert "is not a token id" in err
        assert len(err) < 200


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
@pytest.mark.timeout(30)
def test_a_list_of_ids_without_an_end_is_not_read_for_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["logits", "-m", "none.gguf", "-o", str(tmp_path / "out.npz"), "--tokens-file"]
    assert main([*command, "/dev/zero"]) == ExitCode.USAGE
    assert "/dev/zero has more than 64 MiB" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="there are no FIFOs on Windows")
def test_settings_that_are_a_fifo_are_told_and_nothing_waits(
    stratadesk: Program, own_home: Path
) -> None:
    place = own_home / "config" / "settings.toml"
    place.parent.mkdir(parents=True)
    os.mkfifo(place)
    assert "is no file" in stratadesk("-m", "stratadesk", "config", "validate").stdout
    done = stratadesk("-m", "stratadesk", "config", "set", "temperature", "0.7")
    assert done.returncode == ExitCode.FAILURE
    assert "is no file" in done.stderr
    assert place.is_fifo()
