"""Guards against commands that scripts rely on printing something else than promised."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stratadesk import __version__
from stratadesk.cli import main
from stratadesk.cli.output_guard import output_into

KEYS = [
    "architecture",
    "name",
    "file_bytes",
    "tensors",
    "layers",
    "experts",
    "experts_used",
    "head_bytes",
    "context_length",
    "tokenizer",
    "chat_template",
    "supported",
    "why_not",
]


@pytest.fixture
def model(data_dir: Path) -> str:
    """A small mixture-of-experts model."""
    return str(data_dir / "models" / "qwen3moe-iq4_xs.gguf")


def special_case(data_dir: Path) -> dict[str, object]:
    cases = json.loads((data_dir / "tokenizer_small.json").read_text("utf-8"))["qwen2"]["cases"]
    return next(case for case in cases if case["ids_parse_special"] != case["ids_plain"])


@pytest.mark.parametrize(
    ("flags", "wanted"), [([], "ids_parse_special"), (["--no-parse-special"], "ids_plain")]
)
def test_tokenize_prints_the_golden_ids(
    model: str, data_dir: Path, flags: list[str], wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case = special_case(data_dir)
    assert main(["tokenize", "-m", model, *flags, "--", str(case["text"])]) == 0
    assert json.loads(capsys.readouterr().out) == case[wanted]


def test_tokenize_reads_standard_input(model: str, data_dir: Path) -> None:
    case = special_case(data_dir)
    for argument in (["-"], []):
        done = subprocess.run(
            [sys.executable, "-m", "stratadesk", "tokenize", "-m", model, *argument],
            input=str(case["text"]).encode(),
            capture_output=True,
            check=True,
        )
        assert json.loads(done.stdout) == case["ids_parse_special"]


def test_inspect_prints_exactly_these_keys(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", model, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == KEYS
    assert found["architecture"] == "qwen3moe"
    assert found["supported"] is True


def test_inspect_prints_a_table_for_people(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", model]) == 0
    out = capsys.readouterr().out
    assert "qwen3moe" in out
    assert "\x1b" not in out


def test_logits_writes_one_row_for_every_token(model: str, tmp_path: Path) -> None:
    ids, out = tmp_path / "ids.json", tmp_path / "out.npz"
    ids.write_text("[5, 6, 7]", encoding="utf-8")
    flags = ["--tokens-file", str(ids), "-o", str(out), "--chunk", "2", "--device", "host"]
    assert main(["logits", "-m", model, *flags]) == 0
    with np.load(out) as file:
        assert file.files == ["logits"]
        assert (file["logits"].shape, file["logits"].dtype) == ((3, 1536), np.float32)


def test_run_is_the_same_in_words_and_in_json(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["run", "-m", model, "--raw", "-p", "The red router", "-n", "6", "--temp", "0"]
    assert main([*flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["finish_reason"] == "length"
    assert len(found["tokens"]) == 6
    assert found["device"] == "host"
    assert main(flags) == 0
    assert capsys.readouterr().out.rstrip("\n") == found["text"].rstrip("\n")


def test_versions_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"stratadesk {__version__}\n"
    assert main(["--version", "--verbose"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["NumPy"] == np.__version__
    assert set(rows) == {"stratadesk", "Python", "NumPy", "Numba", "CuPy", "Textual", "driver"}


NOISY_APP = """
import os, pathlib, sys
from stratadesk.cli.output_guard import output_into
with output_into(pathlib.Path(sys.argv[1])):
    os.write(1, b"native out|")
    os.write(2, b"native err|")
    print("library", flush=True)
    sys.__stdout__.write("drawn|")
    sys.__stderr__.write("é|")
print("after")
assert sys.__stdout__ is sys.stdout
"""


def test_nothing_but_the_app_reaches_the_terminal(tmp_path: Path) -> None:
    printed = tmp_path / "log" / "output.log"
    command = [sys.executable, "-c", NOISY_APP, str(printed)]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.decode().split() == ["drawn|é|after"]
    assert done.stderr == b""
    assert printed.read_text("utf-8").split() == ["native", "out|native", "err|library"]


def test_the_terminal_is_given_back_after_an_error(tmp_path: Path) -> None:
    streams = sys.__stdout__, sys.__stderr__
    with pytest.raises(ZeroDivisionError), output_into(tmp_path / "output.log"):
        raise ZeroDivisionError
    assert (sys.__stdout__, sys.__stderr__) == streams
