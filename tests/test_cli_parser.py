"""Guards against flags that drift: a default that differs from the engine's, a name of
llama.cpp that stops working, a setting no flag can reach, bad usage that prints a page.
"""

import argparse
from dataclasses import fields
from pathlib import Path

import pytest

from stratadesk.cli.foreign_flags import FOREIGN
from stratadesk.cli.hints import with_model_first
from stratadesk.cli.inputs import (
    chosen,
    engine_settings,
    sampling_settings,
    token_ids,
    token_ids_from,
)
from stratadesk.cli.parser import build_parser
from stratadesk.engine.commands import Device, EngineSettings, KvFormat, SamplingSettings
from stratadesk.errors import UsageError
from stratadesk.settings import ENGINE_FLAGS, LOGITS_FLAGS, MAX_TOKENS, SAMPLING_FLAGS, Flag

COMMANDS = ("run", "logits", "tokenize", "inspect", "paths")
RUN = ["run", "-m", "x.gguf", "-p", "hi"]


def parse(*arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(arguments)


@pytest.mark.parametrize(
    ("flags", "settings"), [(ENGINE_FLAGS, EngineSettings), (SAMPLING_FLAGS, SamplingSettings)]
)
def test_flags_have_the_defaults_of_the_settings(flags: tuple[Flag, ...], settings: type) -> None:
    defaults = {field.name: field.default for field in fields(settings)}
    for flag in flags:
        assert defaults[flag.field] == (() if flag.repeated else flag.default)


def test_every_sampling_setting_has_a_flag() -> None:
    assert [flag.field for flag in SAMPLING_FLAGS] == [f.name for f in fields(SamplingSettings)]


def test_flags_left_out_leave_the_engines_defaults() -> None:
    assert sampling_settings(parse(*RUN)) == SamplingSettings()
    assert engine_settings(parse(*RUN)).chunk == EngineSettings().chunk


def test_flags_reach_the_settings() -> None:
    arguments = parse(*RUN, "--temp", "0", "--top-k", "7", "--seed", "3", "-c", "99")
    assert sampling_settings(arguments) == SamplingSettings(temperature=0.0, top_k=7, seed=3)
    assert engine_settings(arguments).max_context == 99


@pytest.mark.parametrize(
    ("ours", "llama_cpp"),
    [
        ("--max-context 64", "--ctx-size 64"),
        ("--prefill 64", "--chunk 64"),
        ("--prefill auto", "--chunk 0"),
        ("--prefill 64", "-ub 64"),
        ("--chunk 64", "--ubatch-size 64"),
        ("-n 5", "--n-predict 5"),
        ("-n 0", "-n -1"),
        ("--stop END", "-r END"),
        ("--stop A --stop B", "--reverse-prompt A -r B"),
        ("--seed 1", "-s 1"),
    ],
)
def test_names_of_llama_cpp_mean_the_same(ours: str, llama_cpp: str) -> None:
    assert parse(*RUN, *ours.split()) == parse(*RUN, *llama_cpp.split())


def test_one_flag_by_two_names_reaches_the_engine() -> None:
    for name in ("--chunk", "--prefill"):
        assert engine_settings(parse(*RUN, name, "64")).chunk == 64
        logits = ["logits", "-m", "x", "--tokens", "1", "-o", "out.npz", name, "64"]
        assert parse(*logits).chunk == 64


@pytest.mark.parametrize("command", [[], ["run"], ["logits"]])
def test_what_this_version_refuses_is_not_offered(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(*command, "--help")
    shown = capsys.readouterr().out
    assert "--spec" not in shown
    assert "--mtp" in shown


def test_a_wrong_seed_is_told_all_that_is_allowed() -> None:
    with pytest.raises(UsageError) as caught:
        parse(*RUN, "--seed", "-2")
    said = "'-2' is not a whole number from 0 to 18446744073709551615, or -1 for a fresh one."
    assert caught.value.sentence.endswith(said)


def test_seed_minus_one_draws_a_fresh_seed() -> None:
    assert sampling_settings(parse(*RUN, "--seed", "-1")).seed is None


def test_flags_before_the_command_are_kept() -> None:
    assert parse("-m", "a.gguf", "-n", "3").max_tokens == 3
    assert parse("-m", "a.gguf", "run", "-m", "b.gguf", "-p", "hi").model == "b.gguf"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*RUN, "--top-p", "1.5"], "'1.5' is not a number from 0 to 1"),
        ([*RUN, "-n", "many"], "'many' is not a whole number from 0 to 2147483647"),
        ([*RUN, "--chunk", "-1"], "'-1' is not auto or a whole number from 1 to 8192"),
        ([*RUN, "--temp", "nan"], "'nan' is not a number from 0 to 100"),
        ([*RUN, "--kv", "q4_0"], "--kv: 'q4_0' is not one of f32, f16, q8_0."),
        (["--theme", "zzz"], "--theme: 'zzz' is not one of strata-dark, strata-light, "),
        (["--theme", "zzz"], ", gruvbox, monokai, "),
        ([*RUN, "--tokens", "1"], "--tokens: not allowed with argument -p/--prompt"),
        (["tokenize", "hi"], "required: -m/--model"),
        (["run", "-m", "x.gguf"], "-p/--prompt --tokens is required"),
        (["plan", "-m", "x", "--device", "auto"], "--device: 'auto' is not one of cuda, host."),
        (["bench", "tui", "-n", "0"], "'0' is not a whole number from 100"),
        (["bench", "tui", "--speed", "0"], "'0' is not a number from 1"),
        (["bench", "tui", "--runs", "0"], "'0' is not a whole number from 1"),
        (["bench", "routing", "-n", "-1"], "'-1' is not a whole number from 1"),
        (["bench", "host-kernels", "--seconds", "nan"], "'nan' is not a number from 0.001"),
        (["--ascii=yes"], "--ascii/--no-ascii: takes no value, and has 'yes'."),
        (["launch"], "There is no command 'launch'"),
        ([*RUN, "--tmep", "0"], "stratadesk run has no flag '--tmep'"),
        (["--temperature", "0.5"], "stratadesk has no flag '--temperature'"),
        (["--ascii", "launch"], "There is no command 'launch'"),
    ],
)
def test_bad_usage_is_one_sentence(arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(*arguments)
    assert said in caught.value.sentence
    assert "\n" not in str(caught.value)
    assert "--help" in caught.value.remedy


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["runn"], "Did you mean stratadesk run?"),
        (["config", "shw"], "Did you mean stratadesk config show?"),
        (["why is the sky blue?"], "The commands are run, logits"),
        ([*RUN, "--tmep", "0"], "Did you mean --temp?"),
        (["--zzz=9"], "See stratadesk --help."),
        (["--temperature", "0.5"], "Did you mean --temp?"),
        (["-m", "x.gguf", "-p", "hi"], 'Did you mean stratadesk run -m MODEL -p "TEXT"?'),
        (["-m", "x.gguf", "-ngl", "99"], "--device cuda puts all of the model on a card"),
        ([*RUN, "--n-gpu-layers=99"], "--vram-reserve-mib"),
        ([*RUN, "-ncmoe", "9"], "with --device cuda all experts lie there"),
        ([*RUN, "-ctk", "q8_0"], "Use --kv."),
        ([*RUN, "-fa"], "Leave it out."),
        (["plan", "-m", "x", "-ngl", "9"], "--vram-reserve-mib"),
        (["list"], "stratadesk models lists"),
        (["pull", "qwen3"], "Nothing is downloaded"),
        (["serve"], "There is no server"),
        (["-c", "4096", "guide"], "Did you mean stratadesk -m guide?"),
        (["config", "get", "temp"], "stratadesk config show lists every setting"),
        (["run", "m.gguf"], 'Did you mean -m m.gguf -p "TEXT"? '),
        (["run", "qwen3:30b", "Why?"], 'Did you mean -m qwen3:30b -p "Why?"? '),
        (["run", "m.gguf", "-p", "hi"], "Did you mean -m m.gguf? "),
        (["run", "m.gguf", "--tokens", "1"], "Did you mean -m m.gguf? "),
        (["run", "-m", "m.gguf", "hi"], 'Did you mean -p "hi"? '),
        (["run", "Why is it so?"], 'Did you mean -p "Why is it so?"? '),
        (["run", "-m", "m.gguf", 'a"$(b)'], 'Did you mean -p "TEXT"? '),
        (["plan", "m.gguf"], "Did you mean -m m.gguf? "),
        (["plan", "-m", "m.gguf", "more"], "See stratadesk plan --help."),
        (["inspect", "-m", "m.gguf"], "Write stratadesk inspect MODEL."),
        ([*RUN, "--temperature", "0"], "Did you mean --temp?"),
        ([*RUN, "-v"], "See stratadesk run --help."),
        ([*RUN, "-sys", "x"], "Write there what the model shall be."),
        ([*RUN, "--max-tokens", "9"], "Use -n."),
    ],
)
def test_what_was_meant_is_said(arguments: list[str], remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(*arguments)
    assert remedy in caught.value.remedy
    assert "\n" not in str(caught.value)


def test_a_flag_that_is_none_is_not_taken_for_the_beginning_of_others() -> None:
    with pytest.raises(UsageError, match="stratadesk logits has no flag '-c'"):
        parse("logits", "-m", "x", "--tokens", "1", "-o", "out.npz", "-c", "5")
    assert parse("run", "-mx.gguf", "-phi", "-n5").max_tokens == 5


def test_a_help_says_what_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    """Words without a place are looked for as if nothing were."""
    parser = build_parser()
    for _ in range(2):
        with pytest.raises(UsageError, match=r"has no place for 'm\.gguf'"):
            parser.parse_args(["logits", "m.gguf"])
    with pytest.raises(SystemExit):
        parser.parse_args(["logits", "--help"])
    usage = " ".join(capsys.readouterr().out.split())
    assert "-m MODEL (--tokens IDS | --tokens-file F.json) -o OUT.npz" in usage


def test_every_command_below_a_command_says_what_it_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, purpose in (
        (("config", "show"), "Print every setting and who decides it."),
        (("config", "unset"), "Take one value out of this user's settings."),
        (("bench", "tui"), "What the screen costs while an answer is written."),
    ):
        with pytest.raises(SystemExit):
            parse(*words, "--help")
        assert purpose in capsys.readouterr().out


def test_flags_of_other_programs_are_not_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("run", "--help")
    shown = capsys.readouterr().out.replace(",", " ").split()
    assert {name for names, *_ in FOREIGN for name in names} & set(shown) == set()


def test_a_model_file_may_come_first(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    commands = ("run", "models")
    for word in ("a.gguf", "A.GGUF", str(folder)):
        assert with_model_first([word, "-n", "3"], commands) == ["-m", word, "-n", "3"]
    for words in ([], ["run", "x.gguf"], ["models"], ["--version"], ["nowhere/at/all"]):
        assert with_model_first(words, commands) == words


def test_a_device_is_chosen_by_name_and_the_host_without_one() -> None:
    assert engine_settings(parse(*RUN, "--device", "cuda")).device is Device.CUDA
    assert engine_settings(parse(*RUN)).device is Device.HOST


def test_the_logits_command_may_read_all_tokens_at_once() -> None:
    logits = ["logits", "-m", "x", "--tokens", "1", "-o", "out.npz"]
    assert parse(*logits, "--chunk", "0").chunk == 0


def test_the_logits_command_rounds_nothing_in_its_kv_cache_unless_asked_to() -> None:
    logits = ["logits", "-m", "x", "--tokens", "1", "-o", "out.npz"]
    assert chosen(parse(*logits), LOGITS_FLAGS)["kv_format"] == KvFormat.F32
    assert chosen(parse(*logits, "--kv", "q8_0"), LOGITS_FLAGS)["kv_format"] == KvFormat.Q8_0


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(command, "--help")
    text = capsys.readouterr().out
    assert left.value.code == 0
    assert text.startswith(f"usage: stratadesk {command} ")
    assert f"stratadesk {command}" in text.partition("examples:")[2]


def test_help_names_every_flag_and_hides_the_aliases(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    words = capsys.readouterr().out.replace(",", " ").split()
    for flag in (*ENGINE_FLAGS, *SAMPLING_FLAGS, MAX_TOKENS):
        assert set(flag.names) <= set(words)
        assert set(flag.aliases).isdisjoint(words)


@pytest.mark.parametrize("written", ["1 2 3", "1,2,3", " 1,\n2 3 "])
def test_token_ids_are_read(written: str) -> None:
    assert token_ids(written) == (1, 2, 3)


@pytest.mark.parametrize("written", ["", "1 two", "-1", "1.5", "²"])
def test_wrong_token_ids_are_named(written: str) -> None:
    with pytest.raises(UsageError):
        token_ids(written)


@pytest.mark.parametrize("content", ["{}", "[1, true]", "[-1]", '["1"]', "[]", "[1", "1 2 3"])
def test_wrong_files_of_token_ids_are_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "ids.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=r"ids\.json") as caught:
        token_ids_from(path)
    assert "Expecting" not in str(caught.value)
    assert caught.value.remedy


def test_a_file_of_token_ids_that_is_no_text_is_told_in_words(tmp_path: Path) -> None:
    path = tmp_path / "ids.json"
    path.write_bytes(b"[1,\xff]")
    with pytest.raises(UsageError, match="not UTF-8 at byte 3"):
        token_ids_from(path)


def test_bounds_are_written_in_full() -> None:
    with pytest.raises(UsageError, match="from 1 to 10000000"):
        parse(*RUN, "--vram-mib", "0")


def test_token_ids_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ids.json"
    path.write_text("[3, 1, 2]", encoding="utf-8")
    assert token_ids_from(path) == (3, 1, 2)
    with pytest.raises(UsageError, match=r"none\.json cannot be read"):
        token_ids_from(tmp_path / "none.json")
