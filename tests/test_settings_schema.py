"""Guards against settings described in two places that drift apart.

A default in a table that is not the one the program uses, a key or variable that two settings
share, a flag whose help the settings file words differently.
"""

import os
from dataclasses import fields

import pytest
from textual.theme import BUILTIN_THEMES

from stratadesk.cli.card_inputs import plan_settings
from stratadesk.cli.parser import build_parser
from stratadesk.engine.commands import EngineSettings, SamplingSettings
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.errors import UsageError
from stratadesk.settings_schema import (
    INTERFACE_FLAGS,
    MODEL_FLAGS,
    OF_ONE_MODEL,
    SECTIONS,
    InterfaceSettings,
    ModelSettings,
    Section,
    Setting,
    all_settings,
    find_setting,
    nearest_key,
)
from stratadesk.settings_values import default_of, from_environment, from_file
from stratadesk.tui.layout import MonitorChoice
from stratadesk.tui.themes import THEMES
from stratadesk.vram_flags import VRAM_FLAGS

SETTINGS = tuple(all_settings())
OTHER_VARIABLES = {"STRATADESK_HOME", "STRATADESK_DEBUG", "STRATADESK_GOLDEN"}


@pytest.mark.parametrize(
    ("flags", "settings"), [(INTERFACE_FLAGS, InterfaceSettings), (MODEL_FLAGS, ModelSettings)]
)
def test_a_class_and_its_table_agree(flags: tuple[object, ...], settings: type) -> None:
    section = Section("any", "", flags)  # type: ignore[arg-type]
    described = {each.flag.field: default_of(each.flag) for each in section.settings}
    assert described == {field.name: field.default for field in fields(settings)}


@pytest.mark.parametrize(
    ("name", "settings", "extra"),
    [("engine", EngineSettings, set()), ("sampling", SamplingSettings, {"max_tokens"})],
)
def test_the_engines_classes_have_the_fields_of_their_sections(
    name: str, settings: type, extra: set[str]
) -> None:
    (section,) = [section for section in SECTIONS if section.name == name]
    known = {field.name for field in fields(settings)} | extra
    assert {flag.field for flag in section.flags} <= known


def test_the_memory_section_says_what_a_plan_does_without_flags() -> None:
    (section,) = [section for section in SECTIONS if section.name == "memory"]
    given = {flag.field: flag.default for flag in section.flags}
    arguments = build_parser().parse_args(["plan", "-m", "x"])
    vars(arguments).update(given)
    assert plan_settings(arguments) == PlanSettings()


def test_keys_fields_and_variables_are_unique() -> None:
    for names in (
        [setting.key for setting in SETTINGS],
        [setting.flag.field for setting in SETTINGS],
        [setting.variable for setting in SETTINGS],
    ):
        assert len(set(names)) == len(names)
    assert not OTHER_VARIABLES & {setting.variable for setting in SETTINGS}


def test_help_says_what_the_settings_file_says(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["--help"])
    shown = "".join(capsys.readouterr().out.split())
    for setting in SETTINGS:
        if setting.flag.names:
            assert "".join(setting.flag.help.split()) in shown, setting.key


def test_the_monitors_choices_are_those_of_the_screen() -> None:
    assert find_setting("monitor").flag.choices == tuple(MonitorChoice)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_defaults_are_allowed_in_files(setting: Setting) -> None:
    default = setting.flag.default
    if default is not None:
        assert from_file(setting.flag, default) == default
    assert find_setting(setting.key) == find_setting(setting.flag.field) == setting


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("seed", "a whole number from 0 to 18446744073709551615, or -1 for a fresh one"),
        ("max_tokens", "a whole number from 0 to 2147483647, or -1 for no limit"),
        ("prefill", "auto or a whole number from 1 to 8192, or 0 for auto"),
        ("top_p", "a number from 0 to 1"),
        ("kv_format", "one of f32, f16, q8_0"),
    ],
)
def test_all_that_is_allowed_is_said(key: str, allowed: str) -> None:
    assert find_setting(key).flag.allowed() == allowed


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_a_number_that_stands_for_the_default_is_explained(setting: Setting) -> None:
    flag = setting.flag
    assert (flag.unset is None) == (not flag.unset_means)
    if flag.unset is not None:
        assert flag.low is not None
        assert flag.unset < flag.low
        assert flag.parse(str(flag.unset)) == flag.default


def test_the_themes_that_can_be_chosen_are_those_the_chat_knows() -> None:
    flag = find_setting("theme").flag
    assert flag.choices == tuple(theme.name for theme in THEMES)
    for name in (*flag.choices, *BUILTIN_THEMES):
        assert flag.parse(name) == name


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_number_has_both_bounds(setting: Setting) -> None:
    """A number that nothing bounds is kept, and fails wherever it is used."""
    if setting.flag.kind in (int, float):
        assert setting.flag.low is not None
        assert setting.flag.high is not None


def test_unknown_keys_are_answered_with_the_nearest() -> None:
    assert nearest_key("temp") == "sampling.temperature"
    assert nearest_key("ctx-size") == "engine.max_context"
    assert nearest_key("sampling.vram_reserve") == "memory.vram_reserve_mib"
    with pytest.raises(UsageError, match=r"'topk'\. The nearest is sampling\.top_k"):
        find_setting("topk")
    with pytest.raises(UsageError, match="config show"):
        find_setting("quite another thing")


@pytest.mark.parametrize(
    ("key", "raw"),
    [
        ("top_k", "5"),
        ("top_k", 1.5),
        ("top_k", True),
        ("top_p", "0.5"),
        ("top_p", float("nan")),
        ("ascii", "true"),
        ("ascii", 1),
        ("theme", 1),
        ("theme", "zzz"),
        ("monitor", "huge"),
        ("prefill", "all"),
        ("folders", [1]),
        ("kv_format", "q4_0"),
    ],
)
def test_values_of_another_kind_are_refused(key: str, raw: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        from_file(find_setting(key).flag, raw)


@pytest.mark.parametrize("field", sorted(OF_ONE_MODEL))
def test_what_only_some_models_have_is_not_kept(field: str) -> None:
    assert field in {flag.field for flag in VRAM_FLAGS}
    assert field not in {setting.flag.field for setting in SETTINGS}
    with pytest.raises(UsageError, match="no setting"):
        find_setting(field)


def test_switches_are_written_as_people_write_them() -> None:
    flag = find_setting("plain").flag
    assert [flag.parse(text) for text in ("on", "TRUE", "1")] == [True] * 3
    assert [flag.parse(text) for text in ("off", "False", "0")] == [False] * 3
    with pytest.raises(ValueError, match="true or false"):
        flag.parse("maybe")


def test_variables_are_read_like_flags() -> None:
    folders = f"/one{os.pathsep}{os.pathsep} /two "
    environment = {"STRATADESK_MODELS": folders, "STRATADESK_STOP": "END", "STRATADESK_TOP_K": " "}
    assert from_environment(find_setting("folders"), environment) == ("/one", "/two")
    assert from_environment(find_setting("stop"), environment) == ("END",)
    assert from_environment(find_setting("top_k"), environment) is None
