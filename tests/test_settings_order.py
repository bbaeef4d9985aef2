"""Guards against a setting that holds although something stronger says otherwise.

Flag, environment, project file, user file, default: each must win against all behind it.
"""

from pathlib import Path

import pytest

from stratadesk.cli.inputs import engine_settings, sampling_settings
from stratadesk.cli.kept_settings import kept_fields, with_kept
from stratadesk.cli.model_commands import logits_settings
from stratadesk.cli.parser import build_parser
from stratadesk.engine.commands import KvFormat
from stratadesk.errors import UsageError
from stratadesk.settings_file import PROJECT_FILE, save_setting, user_file
from stratadesk.settings_order import Source, decide

VARIABLE = "STRATADESK_TOP_K"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the program is started in, for a settings file of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / PROJECT_FILE


def test_each_source_wins_against_all_behind_it(project: Path) -> None:
    def winner() -> tuple[object, Source]:
        told = decide(flags, environment).of("top_k").winner
        return told.value, told.source

    flags: dict[str, object] = {}
    environment: dict[str, str] = {}
    assert winner() == (40, Source.DEFAULT)
    save_setting(user_file(), "top_k", 1)
    assert winner() == (1, Source.USER)
    project.write_text("[sampling]\ntop_k = 2\n")
    assert winner() == (2, Source.PROJECT)
    environment[VARIABLE] = "3"
    assert winner() == (3, Source.ENVIRONMENT)
    flags["top_k"] = 4
    assert winner() == (4, Source.FLAG)
    hidden = decide(flags, environment).of("top_k").hidden
    assert [(told.value, told.source) for told in hidden] == [
        (3, Source.ENVIRONMENT),
        (2, Source.PROJECT),
        (1, Source.USER),
    ]
    assert hidden[1].place == f"{project}, line 2"


def test_fixed_is_what_the_users_file_cannot_change(project: Path) -> None:
    save_setting(user_file(), "min_p", 0.1)
    project.write_text("[interface]\ntheme = 'strata-light'\n")
    decisions = decide({"top_p": 0.5}, {VARIABLE: "3"})
    assert decisions.fixed == {"top_p", "top_k", "theme"}
    assert decisions.interface.theme == "strata-light"


def test_a_wrong_variable_is_bad_usage() -> None:
    with pytest.raises(UsageError, match=r"STRATADESK_TOP_K=many is not a whole number"):
        decide({}, {VARIABLE: "many"})


def test_a_theme_that_is_none_does_not_hold(project: Path) -> None:
    with pytest.raises(UsageError, match=r"STRATADESK_THEME=zzz is not one of strata-dark, .*nord"):
        decide({}, {"STRATADESK_THEME": "zzz"})
    save_setting(user_file(), "theme", "nord")
    project.write_text("[interface]\ntheme = 'zzz'\n")
    decisions = decide({}, {})
    assert decisions.interface.theme == "nord"
    assert ["'zzz' is not one of" in problem.sentence for problem in decisions.problems] == [True]


def test_what_is_wrong_in_a_file_leaves_the_next_to_decide(project: Path) -> None:
    save_setting(user_file(), "top_k", 1)
    project.write_text("[sampling]\ntop_k = -3\ntop_p = 0.5\n")
    decisions = decide({}, {})
    assert decisions.of("top_k").winner.value == 1
    assert decisions.of("top_p").winner.value == 0.5
    assert [problem.line for problem in decisions.problems] == [2]


@pytest.mark.usefixtures("project")
def test_the_command_line_is_filled_in_and_never_overruled() -> None:
    for key, value in (("temperature", 0.25), ("top_k", 9), ("kv_format", "q8_0"), ("prefill", 64)):
        save_setting(user_file(), key, value)
    parsed = build_parser().parse_args(["run", "-m", "x", "-p", "hi", "--top-k", "3"])
    arguments, _ = with_kept(parsed, ("engine", "sampling", "memory"))
    assert sampling_settings(arguments).temperature == 0.25
    assert sampling_settings(arguments).top_k == 3
    assert engine_settings(arguments).kv_format is KvFormat.Q8_0
    assert kept_fields(arguments) == {"temperature", "kv_format", "prefill"}


@pytest.mark.usefixtures("project")
def test_only_flags_have_the_host_simulate_a_card() -> None:
    save_setting(user_file(), "vram_reserve_mib", 7)
    run = ["run", "-m", "x", "-p", "hi"]
    arguments, _ = with_kept(build_parser().parse_args(run))
    assert engine_settings(arguments).plan is None
    arguments, _ = with_kept(build_parser().parse_args([*run, "--vram-mib", "64"]))
    plan = engine_settings(arguments).plan
    assert plan is not None
    assert plan.reserve == 7 * 1024 * 1024


@pytest.mark.usefixtures("project")
def test_logits_are_computed_as_asked_whatever_is_kept() -> None:
    save_setting(user_file(), "kv_format", "q8_0")
    arguments = build_parser().parse_args(["logits", "-m", "x", "--tokens", "1", "-o", "o.npz"])
    assert logits_settings(arguments, 1).kv_format is KvFormat.F32


def test_problems_are_told_once_on_standard_error(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write_text("[sampling]\ntop_k = -3\nfrom_the_future = 1\n")
    with_kept(build_parser().parse_args([]))
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"{project}, line 2, sampling.top_k: -3 is not" in told
