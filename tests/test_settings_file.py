"""Guards against a settings file that loses what somebody wrote into it.

By a crash in the middle, by two windows that save at once, by a version that does not know a key,
by a typing mistake that turns the whole file into "damaged, starting over".
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratadesk import file_safety, settings_file
from stratadesk.errors import StrataDeskError, UsageError
from stratadesk.settings_edit import changed_text
from stratadesk.settings_file import read_settings, remember, save_setting, user_file
from stratadesk.settings_schema import find_setting
from stratadesk.settings_toml import key_lines, parse_toml

WRITTEN = """\
# mine
[sampling]  # about sampling
top_k = 7 # seven
future_key = [1,
  2]

[from_the_future]
x = 1

[interface]
theme = "strata-light"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "settings.toml"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def test_a_missing_file_says_nothing(path: Path) -> None:
    contents = read_settings(path)
    assert (contents.values, contents.problems) == ({}, ())


def test_one_value_changes_and_every_other_line_stays(path: Path) -> None:
    save_setting(write(path, WRITTEN), "sampling.top_k", 9)
    assert path.read_text() == WRITTEN.replace("top_k = 7", "top_k = 9")


def test_a_new_value_comes_with_what_it_means(path: Path) -> None:
    save_setting(write(path, WRITTEN), "temperature", 0.5)
    help_text = find_setting("temperature").flag.help
    added = f"# {help_text}\ntemperature = 0.5\n"
    assert path.read_text() == WRITTEN.replace("  2]\n", f"  2]\n{added}")


def test_a_new_section_goes_to_the_end(path: Path) -> None:
    save_setting(write(path, WRITTEN), "memory.prefill", 2048)
    assert path.read_text().startswith(WRITTEN + "\n[memory]\n# ")
    assert read_settings(path).values["memory.prefill"] == 2048


def test_none_takes_a_value_out_again_with_its_comment(path: Path) -> None:
    write(path, WRITTEN)
    save_setting(path, "temperature", 0.5)
    save_setting(path, "temperature", None)
    assert path.read_text() == WRITTEN
    save_setting(path, "models.model", None)
    assert path.read_text() == WRITTEN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "# only a comment\n",
        "[sampling]",
        "sampling = {top_k = 3}\n",
        "sampling.top_k = 3\nother = 1\n",
        WRITTEN.replace("\n", "\r\n"),
        "[sampling]\ntop_p = 0.5\n[interface]\n[sampling.deep]\nx = 1\n",
    ],
)
def test_any_form_of_file_takes_a_change(path: Path, text: str) -> None:
    before = parse_toml(text)
    save_setting(write(path, text), "sampling.temperature", 0.25)
    after = parse_toml(path.read_bytes().decode())
    assert after.get("sampling", {}).pop("temperature") == 0.25
    before.setdefault("sampling", {})
    assert after == before
    if "\r\n" in text:
        assert path.read_bytes().count(b"\n") == path.read_bytes().count(b"\r\n")


def test_a_change_that_cannot_be_made_safely_is_refused(path: Path) -> None:
    write(path, "sampling = 3\n")
    with pytest.raises(StrataDeskError, match="by hand"):
        save_setting(path, "sampling.top_k", 9)
    assert path.read_text() == "sampling = 3\n"


comments = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=20)
values = st.one_of(st.integers(-9, 9), st.booleans(), st.text("ab#]\"'\\ü", max_size=5))


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A settings file of known and unknown keys, and its comments."""
    lines, said = [], []
    for section in draw(st.permutations(["sampling", "memory", "engine", "unknown"])):
        lines.append(f"[{section}]")
        for name in draw(
            st.lists(st.sampled_from(["a", "top_p", "max_context", "z9"]), unique=True)
        ):
            comment = "# " + draw(comments)
            said.append(comment)
            lines += [comment, f"{name} = {_toml(draw(values))}  {comment}"]
        lines += [""] * draw(st.integers(0, 2))
    return "\n".join(lines) + "\n", said


def _toml(value: object) -> str:
    from stratadesk.cli.config_text import toml_value

    return toml_value(value)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(
    documents(),
    st.sampled_from(["sampling.top_k", "memory.vram_reserve_mib", "engine.max_context"]),
)
def test_all_comments_and_values_survive_a_change(
    document: tuple[str, list[str]], key: str
) -> None:
    text, said = document
    changed = changed_text(Path("x"), text, find_setting(key), 42)
    wanted = parse_toml(text)
    section, name = key.split(".")
    wanted[section][name] = 42
    assert parse_toml(changed) == wanted
    for comment in said:
        assert changed.count(comment) >= text.count(comment) - (key == "engine.max_context")


def test_a_damaged_file_is_set_aside_and_never_overwritten(path: Path) -> None:
    damaged = "[sampling\ntop_k = 7\n"
    assert read_settings(write(path, damaged)).values == {}
    first = save_setting(path, "sampling.top_k", 9)
    assert first is not None
    assert first.read_text() == damaged
    assert read_settings(path).values == {"sampling.top_k": 9}
    second = save_setting(write(path, "also = = bad"), "sampling.top_k", 9)
    assert second is not None
    assert (first.read_text(), second.read_text()) == (damaged, "also = = bad")


@pytest.mark.parametrize(
    ("raw", "line", "said"),
    [
        (b"[sampling\n", 1, "not TOML"),
        (b"[sampling]\ntop_k = 1\ntop_k = 2\n", 3, "not TOML"),
        (b"a = 1\nb = \xff\n", 2, "byte 0xFF is not UTF-8"),
        (b"a = " + b"[" * 5_000 + b"\n", None, "nested too deeply"),
        (b"# " + b"x" * settings_file.LARGEST_BYTES, None, "no settings file"),
    ],
    ids=["header", "twice", "bytes", "deep", "large"],
)
def test_damage_is_one_sentence_with_its_line(
    path: Path, raw: bytes, line: int | None, said: str
) -> None:
    path.parent.mkdir()
    path.write_bytes(raw)
    (problem,) = read_settings(path).problems
    assert said in str(problem)
    assert problem.line == line
    assert "\n" not in str(problem)


def test_a_file_that_cannot_be_read_is_left_alone(path: Path) -> None:
    path.mkdir(parents=True)
    (problem,) = read_settings(path).problems
    assert "cannot be read" in problem.sentence
    with pytest.raises(StrataDeskError, match="cannot be read"):
        save_setting(path, "top_k", 1)
    assert path.is_dir()


def test_every_wrong_value_and_unknown_key_is_named_with_its_line(path: Path) -> None:
    text = '[sampling]\ntop_k = "many"\ntop_p = 2\nmin_p = true\ntemprature = 1\n\n'
    text += '[memori]\npin_gib = 1\ntheme = "loose"\n'
    contents = read_settings(write(path, text))
    told = {(problem.line, problem.key, problem.unknown) for problem in contents.problems}
    assert told == {
        (2, "sampling.top_k", False),
        (3, "sampling.top_p", False),
        (4, "sampling.min_p", False),
        (5, "", True),
        (8, "", True),
        (9, "", True),
    }
    sentences = " ".join(map(str, contents.problems))
    assert "'many' is not a whole number from 0 to 2147483647" in sentences
    assert "'sampling.temprature'. The nearest is sampling.temperature" in sentences
    assert "'memori.pin_gib'. The nearest is memory.pin_gib" in sentences
    assert contents.values == {}


def test_values_are_taken_as_toml_has_them(path: Path) -> None:
    text = (
        "[sampling]\ntemperature = 1\nseed = -1\nstop = ['a', 'b']\n"
        "[memory]\nprefill = 'auto'\npin_gib = 2.5\n"
        "[interface]\nascii = true\n[models]\nfolders = '/one'\n"
    )
    assert read_settings(write(path, text)).values == {
        "sampling.temperature": 1.0,
        "sampling.seed": None,
        "sampling.stop": ("a", "b"),
        "memory.prefill": "auto",
        "memory.pin_gib": 2.5,
        "interface.ascii": True,
        "models.folders": ("/one",),
    }


def test_lines_are_where_a_value_begins() -> None:
    text = "# c\na = 1\n\n[s]\n\nb = [\n 1,\n # x\n]\nc = '''\n[no]\nd = 1\n'''\ne.f = 1\n[t]\n"
    assert key_lines(text) == {"a": 2, "s.b": 6, "s.c": 10, "s.e": 14, "t": 15} | {"s": 4}


def test_a_crash_before_the_end_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, WRITTEN)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StrataDeskError, match=r"cannot be written: No space left"):
        save_setting(path, "sampling.top_k", 9)
    assert path.read_text() == WRITTEN
    assert {file.name for file in path.parent.iterdir()} == {path.name, f"{path.name}.lock"}


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege on Windows")
def test_a_link_stays_a_link_and_permissions_stay(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text(WRITTEN)
    real.chmod(0o640)
    path.parent.mkdir()
    path.symlink_to(real)
    save_setting(path, "sampling.top_k", 9)
    assert path.is_symlink()
    assert "top_k = 9" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640


def test_windows_that_save_at_once_lose_nothing(own_home: Path) -> None:
    keys = ("top_k", "penalty_last_n", "max_context")
    code = (
        "import sys\nfrom stratadesk.settings_file import remember\n"
        "for number in range(1, 16):\n    remember(sys.argv[1], number)\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, key]) for key in keys]
    assert [process.wait(120) for process in processes] == [0] * len(keys)
    values = read_settings(user_file()).values
    assert {find_setting(key).key: 15 for key in keys} == values
    assert user_file().parent == own_home / "config"


def test_a_lock_that_is_held_is_told_and_not_waited_for_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_file, "LOCK_WAIT_S", 0.05)
    with file_safety.locked(path, 1.0), pytest.raises(StrataDeskError, match="another StrataDesk"):
        save_setting(path, "top_k", 1)
    save_setting(path, "top_k", 1)
    assert read_settings(path).values == {"sampling.top_k": 1}


@pytest.mark.parametrize(
    ("key", "value"), [("no_such", 1), ("top_k", "x"), ("theme", 3), ("monitor", "huge")]
)
def test_what_is_not_allowed_is_not_remembered(key: str, value: object) -> None:
    with pytest.raises(UsageError):
        remember(key, value)
    assert not user_file().exists()
