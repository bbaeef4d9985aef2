"""Guards against names that lists show and commands do not take, and a model nobody asked for."""

import json
from pathlib import Path

import pytest

from stratadesk.cli import main
from stratadesk.cli.model_argument import model_path
from stratadesk.errors import GgufError, UsageError
from stratadesk.exit_codes import ExitCode
from tests.gguf_builder import small_model

CONTENTS = ("Qwen3-30B-A3B-Q4_K_M", "Qwen3-30B-A3B-Q8_0", "OLMoE-1B-7B")


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three models and an Ollama one, found from an empty working folder."""
    folder, here = tmp_path / "store", tmp_path / "here"
    for path in (folder, here, tmp_path / "ollama" / "blobs"):
        path.mkdir(parents=True)
    for name in CONTENTS:
        small_model(name=name).write(folder / f"{name}.gguf")
    small_model(name="blob").write(tmp_path / "ollama" / "blobs" / "sha256-abc")
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:abc"}
    manifest = (
        tmp_path / "ollama" / "manifests" / "registry.ollama.ai" / "library" / "qwen3" / "30b"
    )
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": [layer]}), encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setenv("STRATADESK_MODELS", str(folder))
    monkeypatch.chdir(here)
    return folder


@pytest.mark.parametrize("command", [["run", "-p", "hi"], ["tokenize", "hi"], ["plan"]])
@pytest.mark.parametrize("name", ["", "  "])
def test_no_name_is_no_model(
    command: list[str], name: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_model().write(Path("only.gguf"))
    assert main([command[0], "-m", name, *command[1:]]) == ExitCode.USAGE
    assert "No model is named" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "file"),
    [
        ("OLMoE-1B-7B", "OLMoE-1B-7B.gguf"),
        ("OLMoE-1B-7B.gguf", "OLMoE-1B-7B.gguf"),
        ("olmoe-1b-7b", "OLMoE-1B-7B.gguf"),
        ("olm", "OLMoE-1B-7B.gguf"),
        ("Qwen3-30B-A3B-Q8", "Qwen3-30B-A3B-Q8_0.gguf"),
        ("qwen3:30b", "sha256-abc"),
        ("QWEN3:", "sha256-abc"),
    ],
)
def test_names_that_lists_show_are_taken(written: str, file: str) -> None:
    assert model_path(written).name == file


def test_a_file_here_comes_before_any_store() -> None:
    here = small_model(name="mine").write(Path("OLMoE-1B-7B.gguf"))
    assert model_path("OLMoE-1B-7B.gguf") == here


def test_a_name_of_several_lists_them() -> None:
    with pytest.raises(UsageError) as caught:
        model_path("qwen3-30b")
    assert "'Qwen3-30B-A3B-Q4_K_M', 'Qwen3-30B-A3B-Q8_0'" in caught.value.sentence
    with pytest.raises(UsageError, match="name of 3 models"):
        model_path("qwen3")


def test_equal_names_are_told_apart_by_their_paths(store: Path) -> None:
    (store / "other").mkdir()
    twin = small_model(name="twin").write(store / "other" / "OLMoE-1B-7B.gguf")
    with pytest.raises(UsageError) as caught:
        model_path("OLMoE-1B-7B")
    assert str(twin) in caught.value.sentence


def test_an_unknown_name_says_where_it_looked_and_what_is_near() -> None:
    with pytest.raises(GgufError) as caught:
        model_path("OLMoE-1B-8B.gguf")
    assert "no file 'OLMoE-1B-8B.gguf'" in caught.value.sentence
    assert "4 models found where LM Studio" in caught.value.sentence
    assert caught.value.remedy.startswith("The nearest: 'OLMoE-1B-7B'")
    with pytest.raises(GgufError) as caught:
        model_path("/nowhere/zzz")
    assert "Check the path" in caught.value.remedy


def test_one_model_that_is_not_it_is_not_called_several(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = tmp_path / "only"
    only.mkdir()
    small_model(name="one").write(only / "one.gguf")
    monkeypatch.setenv("STRATADESK_MODELS", str(only))
    monkeypatch.setenv("OLLAMA_MODELS", str(only))
    with pytest.raises(GgufError, match="and no model found where LM Studio"):
        model_path("/nowhere/zzz")


def test_the_home_of_a_user_that_is_not_known_is_an_unknown_name() -> None:
    with pytest.raises(GgufError, match=r"There is no file '~no-such-user/x\.gguf'"):
        model_path("~no-such-user/x.gguf")


def test_a_file_that_was_passed_over_says_why(store: Path) -> None:
    (store / "half.gguf.part").write_bytes(b"GGUF")
    with pytest.raises(GgufError, match="an unfinished download"):
        model_path("half.gguf.part")


def test_the_list_has_name_size_store_family_and_path(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = small_model(name="cut").build()
    (store / "cut.gguf").write_bytes(whole[:-40])
    (store / "page.gguf").write_bytes(b"<html>")
    assert main(["models"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("OLMoE-1B-7B"))
    assert row.split()[3:] == ["qwen3moe", "STRATADESK_MODELS", "runs"]
    assert f"    {store / 'OLMoE-1B-7B.gguf'}" in lines
    cut = next(number for number, line in enumerate(lines) if line.startswith("cut "))
    assert lines[cut].endswith("does not run")
    assert "is truncated" in lines[cut + 2]
    assert any("page.gguf: " in line for line in lines[lines.index("Not offered:") :])


def test_the_list_for_scripts_is_complete(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    by_name = {model["name"]: model for model in found["models"]}
    assert set(by_name) == {*CONTENTS, "qwen3:30b"}
    for model in found["models"]:
        assert list(model) == [
            "name", "path", "store", "architecture", "total_bytes", "shards", "supported",
            "why_not",
        ]  # fmt: skip
        assert Path(model["path"]).stat().st_size == model["total_bytes"]
        assert main(["tokenize", "-m", model["name"], "--", "zz"]) != ExitCode.USAGE


def test_an_empty_list_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRATADESK_MODELS", "")
    monkeypatch.setenv("OLLAMA_MODELS", "")
    assert main(["models"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "No model was found" in out
    assert "STRATADESK_MODELS" in out


def test_with_the_guide_alone_the_list_names_it_and_says_what_to_do(
    tiny_guide: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRATADESK_MODELS", "")
    monkeypatch.setenv("OLLAMA_MODELS", "")
    assert main(["models"]) == ExitCode.OK
    row, place, *rest = capsys.readouterr().out.splitlines()
    assert row.split()[0] == "guide"
    assert row.split()[-2:] == ["bundled", "runs"]
    assert place.strip() == str(tiny_guide)
    assert rest[0].startswith("No other model was found")


@pytest.mark.parametrize(
    "words",
    [
        ["tokenize", "-m", "guide", "--", "red"],
        ["inspect", "guide"],
        ["plan", "-m", "guide"],
        ["logits", "-m", "guide", "--tokens", "1 2", "-o", "{}"],
        ["run", "-m", "guide", "--raw", "-p", "red", "-n", "2", "--temp", "0"],
    ],
)
def test_every_command_with_a_model_knows_the_guide(
    words: list[str], tiny_guide: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.format(tmp_path / "out.npz") for word in words]
    assert main(words) == ExitCode.OK
    said = capsys.readouterr()
    assert main([str(tiny_guide) if word == "guide" else word for word in words]) == ExitCode.OK
    assert capsys.readouterr() == said


def test_a_file_called_guide_is_taken_before_the_bundled_one(
    tiny_guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert model_path("guide") == tiny_guide
    (tmp_path / "guide").write_bytes(b"GGUF")
    assert model_path("guide") == Path("guide")


def test_an_address_is_told_as_one(own_home: Path) -> None:
    for address in ("https://huggingface.co/a/b.gguf", "hf.co/a/b"):
        with pytest.raises(GgufError, match="is an address, and nothing is downloaded") as caught:
            model_path(address)
        assert address in caught.value.sentence


def test_without_a_guide_its_name_is_told_by_what_switched_it_off(own_home: Path) -> None:
    with pytest.raises(GgufError, match="There is no guide: STRATADESK_GUIDE is empty"):
        model_path("guide")
