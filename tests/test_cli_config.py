"""Guards against settings nobody can find out about, and files that are checked too kindly."""

import json
import tomllib
from pathlib import Path

import pytest

from stratadesk.cli import main
from stratadesk.exit_codes import ExitCode
from stratadesk.settings_file import PROJECT_FILE, read_settings, save_setting, user_file
from stratadesk.settings_schema import all_settings

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRATADESK_MODELS", raising=False)
    return tmp_path


def test_show_is_a_settings_file_with_all_defaults(capsys: Output, tmp_path: Path) -> None:
    assert main(["config", "show"]) == 0
    shown = capsys.readouterr().out
    for setting in all_settings():
        assert f"\n# {setting.flag.help}\n" in shown
    copy = tmp_path / "copy.toml"
    copy.write_text(shown, encoding="utf-8")
    contents = read_settings(copy)
    assert contents.problems == ()
    given = {s.key: s.flag.default for s in all_settings() if s.flag.default is not None}
    assert contents.values == given


def test_show_names_the_winner_and_what_it_overrides(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, working_folder: Path
) -> None:
    save_setting(user_file(), "top_k", 7)
    (working_folder / PROJECT_FILE).write_text("[sampling]\ntop_k = 8\n")
    monkeypatch.setenv("STRATADESK_MIN_P", "0.25")
    assert main(["--temp", "0.5", "config", "show"]) == 0
    rows = {line.split(" = ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "# flag: --temp" in rows["temperature"]
    assert "# environment: STRATADESK_MIN_P" in rows["min_p"]
    assert f"# project file: {working_folder / PROJECT_FILE}, line 2" in rows["top_k"]
    assert f"overrides 7 of {user_file()}, line 5" in rows["top_k"]
    assert rows["top_p"].endswith("# default")


def test_show_json_has_the_same_for_scripts(capsys: Output) -> None:
    save_setting(user_file(), "stop", ("END",))
    assert main(["--stop", "HALT", "config", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == [setting.key for setting in all_settings()]
    assert shown["sampling.stop"]["value"] == ["HALT"]
    assert shown["sampling.stop"]["source"] == "flag"
    assert shown["sampling.stop"]["overridden"] == [
        {"value": ["END"], "source": "user file", "place": f"{user_file()}, line 5"}
    ]
    assert shown["sampling.seed"]["value"] is None
    assert shown["models.folders"]["variable"] == "STRATADESK_MODELS"


def test_unset_takes_a_value_out_and_leaves_the_rest(capsys: Output) -> None:
    save_setting(user_file(), "model", "some.gguf")
    save_setting(user_file(), "top_k", 7)
    assert main(["config", "unset", "model"]) == 0
    assert tomllib.loads(user_file().read_text()) == {"models": {}, "sampling": {"top_k": 7}}
    assert capsys.readouterr().out == ""
    assert main(["config", "unset", "models.model"]) == 0
    assert capsys.readouterr().out == f"{user_file()} does not set models.model.\n"


def test_unset_writes_no_file_where_there_is_none(capsys: Output) -> None:
    assert main(["config", "unset", "top_k"]) == 0
    assert not user_file().exists()
    assert "does not set sampling.top_k" in capsys.readouterr().out


def test_unset_takes_a_wrong_value_out_too() -> None:
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text('[models]\nmodel = ""\n')
    assert main(["config", "unset", "model"]) == 0
    assert read_settings(user_file()).problems == ()


def test_unset_says_what_decides_instead(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    save_setting(user_file(), "top_k", 7)
    monkeypatch.setenv("STRATADESK_TOP_K", "9")
    assert main(["config", "unset", "top_k"]) == 0
    assert "STRATADESK_TOP_K decides sampling.top_k here" in capsys.readouterr().out


def test_unset_refuses_unknown_keys_and_damaged_files(capsys: Output) -> None:
    assert main(["config", "unset", "temprature"]) == ExitCode.USAGE
    assert "temperature" in capsys.readouterr().err
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text("[models\n")
    assert main(["config", "unset", "model"]) == ExitCode.FAILURE
    assert "not TOML" in capsys.readouterr().err
    assert user_file().read_text() == "[models\n"


def test_an_empty_model_is_refused_and_says_how_to_have_none(capsys: Output) -> None:
    assert main(["config", "set", "model", ""]) == ExitCode.USAGE
    assert "config unset" in capsys.readouterr().err
    assert not user_file().exists()


def test_validate_names_file_key_line_and_nearest_key(capsys: Output, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("[sampling]\ntop_k = -1.5\ntemprature = 1\n")
    assert main(["config", "validate", str(bad)]) == ExitCode.USAGE
    first, second = capsys.readouterr().out.splitlines()
    assert (
        first == f"{bad}, line 2, sampling.top_k: -1.5 is not a whole number from 0 to 2147483647."
    )
    assert second.startswith(f"{bad}, line 3: There is no setting 'sampling.temprature'.")
    assert second.endswith("The nearest is sampling.temperature.")


def test_validate_checks_both_files_that_would_be_used(
    capsys: Output, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["config", "validate"]) == 0
    save_setting(user_file(), "top_k", 7)
    assert main(["config", "validate"]) == 0
    assert capsys.readouterr().out == f"{user_file()}: 1 setting, nothing wrong\n"
    (working_folder / PROJECT_FILE).write_text("[sampling\n")
    assert main(["config", "validate"]) == ExitCode.USAGE
    assert f"{PROJECT_FILE}, line 1: This is not TOML" in capsys.readouterr().out
    (working_folder / PROJECT_FILE).unlink()
    monkeypatch.setenv("STRATADESK_TOP_K", "x")
    assert main(["config", "validate"]) == ExitCode.USAGE
    assert "STRATADESK_TOP_K=x" in capsys.readouterr().err


def test_validate_of_nothing_is_bad_usage(capsys: Output) -> None:
    assert main(["config", "validate", "none.toml"]) == ExitCode.USAGE
    assert "There is no file 'none.toml'" in capsys.readouterr().err


def test_path_is_where_set_writes(capsys: Output) -> None:
    assert main(["config", "path"]) == 0
    path = Path(capsys.readouterr().out.rstrip("\n"))
    assert main(["config", "set", "sampling.temperature", "0.7"]) == 0
    assert main(["config", "set", "folders", "/one", "/two"]) == 0
    assert main(["config", "set", "plain", "off"]) == 0
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    assert data["sampling"] == {"temperature": 0.7}
    assert data["models"] == {"folders": ["/one", "/two"]}
    assert data["interface"] == {"plain": False}
    assert capsys.readouterr().out == ""


def test_set_takes_a_value_out_where_llama_cpp_writes_minus_one(capsys: Output) -> None:
    assert main(["config", "set", "seed", "5"]) == 0
    assert main(["config", "set", "seed", "--", "-1"]) == 0
    assert read_settings(user_file()).values == {}
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["top_k", "many"], "sampling.top_k: 'many' is not a whole number from 0 to 2147483647."),
        (["top_k", "1", "2"], "'1 2' is not a whole number from 0 to 2147483647, once."),
        (["theme", "zzz"], "'zzz' is not one of strata-dark, strata-light, strata-contrast, "),
        (["monitor", "huge"], "'huge' is not one of wide, narrow, off."),
        (["temp", "1"], "There is no setting 'temp'. The nearest is sampling.temperature."),
    ],
)
def test_set_refuses_what_is_not_allowed(arguments: list[str], said: str, capsys: Output) -> None:
    assert main(["config", "set", *arguments]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert not user_file().exists()


ODD_TEXTS = {
    "nonsense": "zzz",
    "empty": "",
    "blank": "  ",
    "escape": "\x1b[31mred",
    "of eight bits": "\x9b31m",
    "bell": "a\x07",
    "lines": "a\nb",
    "not UTF-8": "\udcff",
    "huge number": "9" * 5000,
    "beyond": "1e999",
    "not a number": "nan",
    "negative": "-99999",
    "long": "x" * 100_000,
}
ANY_TEXT = {"models.model", "models.folders", "sampling.stop"}


@pytest.mark.parametrize("odd", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_set_refuses_odd_values_of_every_setting(odd: str, capsys: Output) -> None:
    """What is not allowed is told in a line that shows no control character, and is not kept."""
    plain = odd.isprintable() and odd.strip() and len(odd) < 100
    ends = odd in ("  ", "a\nb")  # An answer may well be ended at spaces or a new line.
    for setting in all_settings():
        code = main(["config", "set", setting.key, "--", odd])
        said = capsys.readouterr().err
        taken = setting.key in ANY_TEXT and (plain or (ends and "stop" in setting.key))
        assert code == (ExitCode.OK if taken else ExitCode.USAGE), setting.key
        if not taken:
            assert said.startswith(f"stratadesk: {setting.key}: ")
            assert setting.flag.allowed().partition(", once")[0] in said or "text" in said
            assert said.removesuffix("\n").isprintable()
            assert len(said) < 600
    kept = read_settings(user_file())
    assert kept.problems == ()
    assert kept.values.keys() <= ANY_TEXT


@pytest.mark.parametrize("words", ["Füße", "日本語", "a path with spaces", "👩‍🚀"])
def test_set_keeps_any_text_that_can_be_read(words: str, capsys: Output) -> None:
    assert main(["config", "set", "folders", words]) == 0
    assert read_settings(user_file()).values == {"models.folders": (words,)}
    assert main(["config", "show"]) == 0
    assert words in capsys.readouterr().out


def test_every_theme_can_be_set() -> None:
    for name in ("strata-light", "nord"):
        assert main(["config", "set", "theme", name]) == 0
        assert read_settings(user_file()).values == {"interface.theme": name}


def test_no_variable_reaches_the_terminal_as_it_is(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATADESK_THEME", "\x1b[31mred")
    assert main(["config", "show"]) == ExitCode.USAGE
    assert "STRATADESK_THEME=\\x1b[31mred is not one of strata-dark" in capsys.readouterr().err
    monkeypatch.delenv("STRATADESK_THEME")
    monkeypatch.setenv("STRATADESK_MODELS", "/a\x9b31m\x7f")
    assert main(["config", "show"]) == 0
    shown = capsys.readouterr().out
    assert '["/a\\u009B31m\\u007F"]' in shown
    assert tomllib.loads(shown)["models"]["folders"] == ["/a\x9b31m\x7f"]


def test_set_says_when_something_stronger_decides(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATADESK_TOP_K", "3")
    assert main(["config", "set", "top_k", "5"]) == 0
    assert "STRATADESK_TOP_K decides sampling.top_k here" in capsys.readouterr().out


def test_set_tells_of_a_damaged_file_and_keeps_it(capsys: Output) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text("[sampling\n")
    assert main(["config", "set", "top_k", "5"]) == 0
    (copy,) = user_file().parent.glob("*.damaged-*")
    assert str(copy) in capsys.readouterr().out
    assert copy.read_text() == "[sampling\n"


def test_a_damaged_file_does_not_keep_a_command_from_running(capsys: Output) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text("[sampling\n")
    assert main(["run", "-m", "none.gguf", "-p", "hi"]) == ExitCode.MODEL_UNUSABLE
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    assert told[0].startswith(f"stratadesk: warning: {user_file()}, line 1: This is not TOML")
    assert user_file().read_text() == "[sampling\n"
