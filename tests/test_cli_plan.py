"""Guards against a `plan` that scripts cannot rely on: keys that change, a wrong exit code, a flag
that reaches nothing, seconds of waiting for a file of which only the header is needed.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from stratadesk.cli import main, program
from stratadesk.cli.parser import build_parser
from stratadesk.cli.plan_command import MADE_UP, machine_facts, plan, plan_settings
from stratadesk.engine.commands import KvFormat
from stratadesk.engine.vram.machine_facts import MachineFacts, System, this_system
from stratadesk.engine.vram.plan_settings import PIN_ALL, HeadAlias, Layout, PlanSettings
from stratadesk.errors import GgufError, MemoryShortageError, UsageError
from stratadesk.exit_codes import ExitCode
from stratadesk.models.guide import VARIABLE
from stratadesk.units import GIB, MIB
from stratadesk.vram_flags import MACHINE_FLAGS, PLAN_FLAGS, VRAM_FLAGS
from tests.gguf_builder import small_model
from tests.vram.model_headers import Q8_0, Sizes, write_header_only

MODEL = ["plan", "-m", "x.gguf"]
HEAVY = {"cupy", "numba", "rich", "textual", "tokenizers", "jinja2"}

RUN = """
import sys
from stratadesk.cli.parser import build_parser
from stratadesk.cli.plan_command import plan
code = plan(build_parser().parse_args(["plan", *sys.argv[1:]]))
print("loaded", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
if code:
    raise SystemExit(int(code))
"""

COUNT = """
from pathlib import Path
def of(file, field):
    words = Path("/proc/self", file).read_text().split()
    return int(words[words.index(field + ":") + 1])
print(of("io", "rchar"), of("status", "VmHWM") * 1024, file=sys.stderr)
"""
"""Bytes read by calls, and the most memory held at once, mapped pages of files included."""


def parse(*arguments: str) -> argparse.Namespace:
    return build_parser().parse_args([*MODEL, *arguments])


def run(model: Path, *arguments: str) -> int:
    return int(plan(build_parser().parse_args(["plan", "-m", str(model), *arguments])))


@pytest.fixture(scope="module")
def model_35b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 35B-A3B shape without tensor data; the vocabulary is as long as the real one."""
    return write_header_only(tmp_path_factory.mktemp("plan") / "35b.gguf", Sizes())


@pytest.fixture
def found(model_35b: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert run(model_35b, "--os", "linux", "--json") == 0
    plan_object: dict[str, object] = json.loads(capsys.readouterr().out)
    return plan_object


def test_the_defaults_are_the_engines() -> None:
    assert plan_settings(parse()) == PlanSettings()
    assert machine_facts(parse("--os", "linux")) == MachineFacts()
    assert machine_facts(parse()).system is this_system()


def test_the_defaults_in_the_help_are_the_ones_used() -> None:
    shown = {flag.field: flag.default for flag in (*PLAN_FLAGS, *MACHINE_FLAGS)}
    usual, machine = PlanSettings(), MachineFacts()
    assert shown["vram_reserve_mib"] == usual.reserve // MIB
    assert shown["vram_mib"] == machine.card // MIB
    assert shown["ram_gib"] == machine.ram // GIB
    assert shown["link_gbps"] == machine.rates.link / 1e9
    assert shown["kv_format"] == usual.kv_format
    assert shown["max_context"] == usual.max_context


def test_words_mean_what_leaving_a_flag_out_means() -> None:
    words = [flag for flag in VRAM_FLAGS if "auto" in (*flag.words, *flag.choices)]
    assert len(words) == 6
    written = [part for flag in words for part in (flag.names[0], "auto")]
    assert plan_settings(parse(*written)) == PlanSettings()


def test_every_setting_is_reached_by_a_flag() -> None:
    written = plan_settings(
        parse(
            "--vram-reserve-mib", "100", "--max-context", "4096", "--kv", "q8_0",
            "--expert-cache", "7", "--prefill", "1024", "--prefill-head-alias", "on",
            "--prefill-layout", "fixed", "--short-read", "32", "--pin-gib", "1.5", "--mtp",
            "--spec", "3", "--vram-block-mib", "32", "--force",
        )
    )  # fmt: skip
    assert written == PlanSettings(
        reserve=100 * MIB,
        max_context=4096,
        kv_format=KvFormat.Q8_0,
        expert_cache=7,
        prefill=1024,
        alias=HeadAlias.ON,
        prefill_layout=Layout.FIXED,
        short_read=32,
        pin=3 * GIB // 2,
        mtp=True,
        drafts=3,
        block_bytes=32 * MIB,
        force=True,
    )
    usual = PlanSettings()
    same = [
        field.name
        for field in fields(usual)
        if getattr(written, field.name) == getattr(usual, field.name)
    ]
    assert same == []
    assert plan_settings(parse("--pin-gib", "all")).pin == PIN_ALL
    assert not plan_settings(parse("--no-mtp")).mtp


def test_every_fact_of_the_machine_is_reached_by_a_flag() -> None:
    flags = "--vram-mib 6144 --free-mib 5000 --ram-gib 15.5 --commit-gib 20 --link-gbps 25"
    facts = machine_facts(parse(*flags.split(), "--os", "windows"))
    assert (facts.card, facts.free, facts.system) == (6144 * MIB, 5000 * MIB, System.WINDOWS)
    assert (facts.ram, facts.commit, facts.rates.link) == (31 * GIB // 2, 20 * GIB, 25e9)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--expert-cache", "0"], "'0' is not auto or a whole number from 1 to 2147483647"),
        (["--prefill", "9000"], "'9000' is not auto or a whole number from 1 to 8192"),
        (["--pin-gib", "some"], "'some' is not auto or all or a number from 0 to 1000000"),
        (["--prefill-layout", "alias"], "--prefill-layout: 'alias' is not one of auto"),
        (["--os", "mac"], "--os: 'mac' is not one of linux"),
        (["--link-gbps", "0"], "'0' is not a number from 0.01"),
    ],
)
def test_bad_usage_is_one_sentence(flags: list[str], said: str) -> None:
    with pytest.raises(UsageError, match="--help") as caught:
        parse(*flags)
    assert said in caught.value.sentence


def test_more_cannot_be_free_than_there_is() -> None:
    with pytest.raises(UsageError, match="more than the card has: 8151 MiB") as caught:
        machine_facts(parse("--free-mib", "9000"))
    assert "a larger --vram-mib" in caught.value.remedy


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["plan", "--help"])
    text = capsys.readouterr().out
    assert text.startswith("usage: stratadesk plan ")
    assert "stratadesk plan" in text.partition("examples:")[2]
    for flag in (*PLAN_FLAGS, *MACHINE_FLAGS):
        assert flag.names[-1] in text
    assert "--mtp" in text
    assert "--no-mtp" in text
    assert "--force" in text


def test_the_json_is_the_35b_budget(found: dict[str, object]) -> None:
    assert found["slots_total"] == 2616
    assert found["rows"] == 66
    assert found["reserve_mib"] == 590
    assert found["head_bytes"] == 349_634_560
    assert found["problems"] == []
    tiers = found["tiers"]
    assert isinstance(tiers, dict)
    assert tiers["slot"] == 2616 * 1_671_168
    assert tiers["pinned"] + tiers["pageable"] == 10_240 * 1_671_168
    layouts = found["layouts"]
    assert isinstance(layouts, dict)
    assert list(layouts) == ["fixed", "loan", "alias"]
    assert list(layouts["loan"]) == ["max_chunk", "buffers_bytes", "slots_lent", "slots_total"]


def test_no_phase_of_the_json_eats_into_the_reserve(found: dict[str, object]) -> None:
    free, regions = found["free_mib_by_phase"], found["regions"]
    assert isinstance(free, dict)
    assert isinstance(regions, list)
    assert list(free) == [
        "empty", "loading", "ready", "prompt", "returning", "decoding", "cancelling", "resizing",
        "failed",
    ]  # fmt: skip
    for phase, free_mib in free.items():
        owned = sum(region["bytes"] for region in regions if phase in region["phases"])
        assert free_mib >= 590
        assert owned / MIB + free_mib <= 8151 - 1000 + 0.1


def test_the_table_is_for_people(model_35b: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model_35b, "--os", "linux") == 0
    out = capsys.readouterr().out
    assert "2,616 of 10,240 experts" in out
    assert "The alias lends 358 slots" in out
    assert "\x1b" not in out


def test_what_does_not_fit_is_printed_and_refused(
    model_35b: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--vram-mib", "3600", "--os", "linux", "--json"]
    with pytest.raises(MemoryShortageError, match=r"MiB short: .*--max-context \d+") as caught:
        run(model_35b, *flags)
    assert caught.value.exit_code == ExitCode.OUT_OF_MEMORY
    refused = json.loads(capsys.readouterr().out)
    assert refused["slots_total"] == 0
    assert caught.value.sentence in refused["problems"][0]
    assert run(model_35b, *flags, "--force") == 0
    assert json.loads(capsys.readouterr().out)["problems"] == refused["problems"]


def test_the_change_it_proposes_is_enough(
    model_35b: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--vram-mib", "3600", "--os", "linux"]
    with pytest.raises(MemoryShortageError) as caught:
        run(model_35b, *flags)
    context = caught.value.sentence.split("--max-context ")[1].split(",")[0]
    assert run(model_35b, *flags, "--max-context", context) == 0
    with pytest.raises(MemoryShortageError):
        run(model_35b, *flags, "--max-context", str(int(context) + 1024))
    capsys.readouterr()


def test_the_refusal_stands_in_one_place(
    model_35b: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "-m", str(model_35b), "--vram-mib", "3600", "--os", "linux"]) == 5
    out, err = capsys.readouterr()
    assert "MiB short" in err
    assert "MiB short" not in out
    assert main(["plan", "-m", str(model_35b), "--vram-mib", "3600", "--force"]) == 0
    assert "MiB short" in capsys.readouterr().out


def test_run_and_plan_say_the_same_of_the_simulated_card(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(data_dir / "models" / "qwen3moe-iq4_xs.gguf")
    flags = ["--free-mib", "3", "--vram-reserve-mib", "1", "--max-context", "4096"]
    assert main(["run", "-m", model, "-p", "hi", "--device", "host", *flags]) == 5
    of_run = capsys.readouterr().err
    assert "MiB short" in of_run
    assert "stratadesk plan --device host" in of_run
    assert main(["plan", "-m", model, "--device", "host", *flags]) == 5
    out, of_plan = capsys.readouterr()
    assert of_plan == of_run
    assert "which simulates the card" in out
    assert main(["plan", "-m", model, *flags]) == 5
    out, of_gpu = capsys.readouterr()
    assert "the design for an NVIDIA card" in out
    assert "plan --device host" not in of_gpu


def told_in_one_line(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_the_design_and_what_this_version_does_are_told_apart(
    model_35b: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a laptop's card the design runs the model, and --device cuda does not load it."""
    flags = ["--os", "linux", "--device", "cuda"]
    assert run(model_35b, *flags) == 0
    out = told_in_one_line(capsys)
    design = "The tables are the design for an NVIDIA card: experts without a slot come over PCIe"
    now, _, tables = out.partition(design)
    assert "the 7,151 MiB free." in now, "what it does now goes first"
    assert "the card MiB" in tables
    assert "No real card does this yet" in out
    assert "This version, with --device cuda, puts all of the model on the card, 18,112 MiB" in out
    assert "for a context of 4,096 tokens" in out
    assert "the reserve of 590 MiB that does not fit into the 7,151 MiB free." in out
    assert "Choose a smaller model or --max-context, or compute on the CPU." in out
    assert "refuses" not in out
    assert run(model_35b, *flags, "--expert-cache", "99", "--prefill", "auto") == 0
    assert "It refuses --expert-cache 99. The tables" in told_in_one_line(capsys)
    assert run(model_35b, "--vram-mib", "24000", "--free-mib", "18702", "--os", "linux") == 0
    assert "590 MiB that fits into the 18,702 MiB free." in told_in_one_line(capsys)
    with pytest.raises(MemoryShortageError):
        run(model_35b, "--vram-mib", "100", "--os", "linux")
    assert "that does not fit into the 0 MiB free." in told_in_one_line(capsys)
    assert run(data_dir / "models" / "qwen3-tied-q6_k.gguf") == 0
    of_a_dense_model = told_in_one_line(capsys)
    assert "card: prompts are read in large chunks. No real" in of_a_dense_model
    assert "PCIe" not in of_a_dense_model


def test_a_device_that_is_only_set_does_not_decide_what_is_planned(
    model_35b: Path,
    data_dir: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F9 keeps `host` for who goes back to the CPU; the next question may be about a card."""
    assert run(model_35b, "--os", "linux") == 0
    usual = capsys.readouterr().out
    assert "This version, with --device cuda" in usual
    monkeypatch.setenv("STRATADESK_DEVICE", "host")
    assert run(model_35b, "--os", "linux") == 0
    assert capsys.readouterr().out == usual
    monkeypatch.setenv(VARIABLE, str(data_dir / "models" / "qwen3moe-iq4_xs.gguf"))
    assert main(["plan", "-m", "guide"]) == 0
    out, told = capsys.readouterr()
    assert "which simulates the card" in out
    assert MADE_UP in told


def test_scripts_learn_what_this_version_does_on_a_card(
    found: dict[str, object],
    model_35b: Path,
    data_dir: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert found["device_cuda"] == {
        "fits": False,
        "why_not": None,
        "needed_bytes": 18_112 * MIB,
        "context": 4_096,
        "window": 8,
        "refused_flags": [],
    }
    assert run(model_35b, "--json", "--vram-mib", "24000", "--max-context", "8192") == 0
    larger = json.loads(capsys.readouterr().out)["device_cuda"]
    assert larger["fits"]
    assert larger["context"] == 8_192
    # 10 layers keep 2 x 2 x 256 halves a token: 80 MiB more for 4,096 tokens, in blocks of 32.
    assert 48 < larger["needed_bytes"] / MIB - 18_112 < 112
    small = data_dir / "models" / "qwen3moe-f16.gguf"
    assert run(small, "--json", "--device", "host", "--vram-mib", "8151") == 0
    assert json.loads(capsys.readouterr().out)["device_cuda"] is None


def test_prompts_beyond_the_context_are_not_timed(
    model_35b: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--max-context", "512", "--os", "linux"]
    assert run(model_35b, *flags) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert rows["29,854"].split() == ["29,854", "longer", "than", "the", "context"]
    assert rows["512"].split()[-1] == "link"
    assert run(model_35b, *flags, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [request["tokens"] for request in found["requests"]] == [16, 64, 256, 512]


def test_more_than_there_is_comes_to_what_there_is(
    model_35b: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--vram-mib", "40000", "--ram-gib", "64", "--os", "linux", "--json"]
    assert run(model_35b, *flags, "--pin-gib", "9999", "--expert-cache", "99999") == 0
    notes = json.loads(capsys.readouterr().out)["problems"]
    assert any(note.startswith("--pin-gib 9999 comes to 16.") for note in notes), notes
    assert any(note.startswith("--expert-cache 99999 comes to 10,240") for note in notes), notes
    assert run(model_35b, *flags, "--pin-gib", "9", "--expert-cache", "10240") == 0
    assert json.loads(capsys.readouterr().out)["problems"] == []


def test_what_does_not_run_is_not_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = small_model("llama").write(tmp_path / "llama.gguf")
    assert main(["plan", "-m", str(unknown)]) == ExitCode.MODEL_UNUSABLE
    assert "'llama' is not supported" in capsys.readouterr().err
    odd = small_model().tensor("blk.0.x", (256,), 34, bytes(54)).write(tmp_path / "tq1.gguf")
    assert main(["plan", "-m", str(odd)]) == ExitCode.MODEL_UNUSABLE
    assert "TQ1_0" in capsys.readouterr().err


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match="no file"):
        run(tmp_path / "none.gguf")


def test_a_small_real_model_is_planned(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("qwen3moe-iq4_xs", "qwen35moe-ud-q4k", "qwen3-tied-q6_k"):
        assert run(data_dir / "models" / f"{name}.gguf", "--os", "linux", "--json") == 0
        assert json.loads(capsys.readouterr().out)["problems"] == []


def test_planning_loads_no_screen_and_no_kernels(model_35b: Path) -> None:
    command = [sys.executable, "-c", RUN, "-m", str(model_35b), "--json"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert set(done.stderr.partition("loaded ")[2].split()) & HEAVY == set()


@pytest.mark.skipif(sys.platform == "win32", reason="NTFS would write the 60 GB of the hole")
def test_a_60_gb_file_reads_its_header_only(tmp_path: Path) -> None:
    path = write_header_only(tmp_path / "60gb.gguf", Sizes(layers=72, expert_type=Q8_0))
    assert path.stat().st_size > 60e9
    if not Path("/proc/self/io").exists():
        pytest.skip("what a process has read is known from /proc, which this system lacks")
    command = [sys.executable, "-c", RUN + COUNT, "-m", str(path), "--ram-gib", "128"]
    ended = subprocess.run([*command, "--os", "linux"], capture_output=True, text=True, check=True)
    read, peak = (int(word) for word in ended.stderr.split()[-2:])
    assert read < 100 * MIB
    assert peak < 500 * MIB


def test_the_program_knows_the_command(model_35b: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not hasattr(program, "plan_command"):
        pytest.skip("stratadesk/cli/program.py does not dispatch `plan` yet")
    assert main(["plan", "-m", str(model_35b), "--os", "linux", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["slots_total"] == 2616
    assert main(["plan", "-m", str(model_35b), "--vram-mib", "2048"]) == ExitCode.OUT_OF_MEMORY
    assert capsys.readouterr().err.startswith("stratadesk: ")
