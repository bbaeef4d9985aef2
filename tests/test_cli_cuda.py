"""Guards against flags that a real card is said to follow and does not."""

from pathlib import Path

import pytest

from stratadesk.cli.guide_card import GuideCard
from stratadesk.cli.inputs import engine_settings
from stratadesk.cli.kept_settings import with_kept
from stratadesk.cli.parser import build_parser
from stratadesk.engine.commands import Device
from stratadesk.errors import UsageError
from stratadesk.settings import Flag
from stratadesk.settings_file import save_setting, user_file
from stratadesk.units import MIB
from stratadesk.vram_flags import CARD_FLAGS, VRAM_FLAGS

KEPT_TO = {"vram_reserve_mib"}
"""What a real card follows."""

RUN = ["run", "-m", "x", "-p", "hi", "--device", "cuda"]


@pytest.mark.parametrize("flag", ["--vram-mib", "--free-mib", "--vram-block-mib"])
def test_a_card_is_not_made_up_beside_the_real_one(flag: str) -> None:
    with pytest.raises(UsageError, match=f"{flag} makes a card up"):
        engine_settings(build_parser().parse_args([*RUN, flag, "64"]))


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--expert-cache", "9"),
        ("--prefill-head-alias", "on"),
        ("--prefill-layout", "loan"),
        ("--short-read", "4"),
        ("--short-read", "0"),
        ("--pin-gib", "2"),
        ("--pin-gib", "0"),
        ("--prefill", "512"),
    ],
)
def test_what_a_real_card_does_not_do_yet_is_refused_and_auto_is_not(flag: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{flag} {value}.* cannot be had with --device cuda yet"):
        engine_settings(build_parser().parse_args([*RUN, flag, value]))
    assert engine_settings(build_parser().parse_args([*RUN, flag, "auto"])).machine is None


def test_the_reserve_cannot_be_given_up_on_a_real_card_yet() -> None:
    with pytest.raises(UsageError, match=r"--force cannot be had with --device cuda yet: .* free"):
        engine_settings(build_parser().parse_args([*RUN, "--force"]))


LISTED = [flag for flag in (*CARD_FLAGS, *VRAM_FLAGS) if flag.field != "spec"]


@pytest.mark.parametrize("flag", LISTED, ids=lambda flag: flag.names[0])
def test_what_the_help_says_of_these_flags_is_so(
    flag: Flag, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["run", "--help"])
    said = capsys.readouterr().out.partition("memory of a card:")[2].partition("--vram-mib")[0]
    value = [] if flag.kind is bool else [flag.choices[-1] if flag.choices else "64"]
    written = [flag.names[0], *value]
    on_host = engine_settings(build_parser().parse_args([*RUN[:-1], "host", *written]))
    assert (on_host.plan is not None) is (flag.names[0] not in said or flag.field in KEPT_TO)
    on_card = build_parser().parse_args([*RUN, *written])
    if flag.field in KEPT_TO:
        assert engine_settings(on_card).plan is not None
    elif flag.field != "mtp":  # refused where it is loaded: tests/engine/test_card_need.py
        with pytest.raises(UsageError):
            engine_settings(on_card)


def test_the_reserve_of_a_real_card_comes_from_flag_file_or_default(own_home: object) -> None:
    def reserve(*more: str) -> int:
        arguments, _ = with_kept(build_parser().parse_args([*RUN, *more]))
        plan = engine_settings(arguments).plan
        assert plan is not None
        return plan.reserve // MIB

    assert reserve() == 590
    save_setting(user_file(), "vram_reserve_mib", 700)
    assert reserve() == 700
    assert reserve("--vram-reserve-mib", "300") == 300


@pytest.mark.parametrize(
    "flags", [("--vram-mib", "6000"), ("--expert-cache", "9"), ("--prefill", "512")]
)
def test_a_flag_goes_before_a_card_that_was_chosen_in_the_chat_and_kept(
    flags: tuple[str, str], own_home: object
) -> None:
    """The same command line, after a change in the settings, would not start any more."""
    save_setting(user_file(), "device", "cuda")
    run = ["run", "-m", "x", "-p", "hi"]
    arguments, _ = with_kept(build_parser().parse_args([*run, *flags]))
    settings = engine_settings(arguments)
    assert settings.device is Device.HOST
    assert settings.machine is not None or flags[0] == "--prefill"
    assert GuideCard(arguments).fit(Path("x"), settings) == settings
    arguments, _ = with_kept(build_parser().parse_args(run))
    assert engine_settings(arguments).device is Device.CUDA
    with pytest.raises(UsageError):
        engine_settings(build_parser().parse_args([*RUN, *flags]))


def test_the_guide_gets_no_made_up_card_where_a_real_one_computes() -> None:
    arguments = build_parser().parse_args(["--device", "cuda"])
    cards = GuideCard(arguments)
    usual = engine_settings(arguments)
    assert cards.fit(__file__, usual) is usual  # type: ignore[arg-type]


def test_what_is_chosen_on_a_real_card_is_kept_for_the_next_start() -> None:
    arguments = build_parser().parse_args(["--device", "cuda"])
    cards, settings = GuideCard(arguments), engine_settings(arguments)
    assert cards.keeps("vram_reserve_mib", settings)
    assert cards.keeps("max_context", settings)
