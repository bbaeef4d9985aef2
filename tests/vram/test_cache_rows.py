"""Guards against a plan for a KV cache that no run can make: Q8_0 with rows of half a block."""

from dataclasses import replace
from pathlib import Path

import pytest

from stratadesk.cli import main
from stratadesk.engine.commands import Device, EngineSettings, KvFormat
from stratadesk.engine.forecast import forecast
from stratadesk.engine.loading import load_model
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.mixer_shapes import AttentionShape
from stratadesk.engine.vram.shape import ModelShape
from stratadesk.errors import UsageError
from stratadesk.exit_codes import ExitCode
from stratadesk.kernels.host.formats import FORMATS
from stratadesk.kernels.host.kv_cache import cached_units
from stratadesk.units import MIB
from tests.tiny_models import FAMILIES, HEAD, tiny_model
from tests.vram.plan_models import dense_model, plan_of

SENTENCE = (
    "A KV cache in Q8_0 needs rows of whole blocks of 32 values, this model's rows have {row}."
)
PACKED = EngineSettings(device=Device.HOST, max_context=64, kv_format=KvFormat.Q8_0)


@pytest.fixture
def narrow(tmp_path: Path) -> Path:
    """A model whose heads have 16 values."""
    return tiny_model("qwen3moe").write(tmp_path / "narrow.gguf")


def narrow_dense(kv_heads: int) -> ModelShape:
    """4 layers of 256 cached keys and values, in so many rows."""
    shape = dense_model()
    mixer = shape.layers[0].mixer
    assert isinstance(mixer, AttentionShape)
    layer = replace(shape.layers[0], mixer=replace(mixer, kv_heads=kv_heads))
    return replace(shape, layers=(layer,) * 4)


def test_plan_run_and_settings_say_what_the_kernels_say(
    narrow: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = SENTENCE.format(row=HEAD)
    flags = ["-m", str(narrow), "--kv", "q8_0", "--max-context", "64"]
    for command in (
        ["plan", *flags],
        ["plan", *flags, "--device", "host", "--force"],
        ["run", *flags, "--tokens", "1 2", "-n", "1"],
        ["logits", *flags[:4], "--tokens", "1 2", "-o", str(narrow.with_name("out.npz"))],
    ):
        assert main(command) == ExitCode.USAGE
        told = capsys.readouterr()
        assert sentence in told.err
        assert told.out == ""
    assert forecast(narrow, PACKED).trouble == sentence
    with pytest.raises(UsageError) as caught:
        cached_units(FORMATS["Q8_0"], HEAD)
    assert caught.value.sentence == sentence


def test_a_row_of_latent_attention_counts_with_what_rotates(tmp_path: Path) -> None:
    values = FAMILIES["deepseek2"]
    row = values["attention.kv_lora_rank"] + values["rope.dimension_count"]
    path = tiny_model("deepseek2").write(tmp_path / "latent.gguf")
    with pytest.raises(UsageError) as caught:
        load_model(path, PACKED, lambda progress: None)
    assert caught.value.sentence == SENTENCE.format(row=row)


def test_wide_rows_are_planned(tmp_path: Path) -> None:
    values = {**FAMILIES["qwen3"], "attention.key_length": 32, "attention.value_length": 32}
    path = tiny_model("qwen3", values).write(tmp_path / "wide.gguf")
    assert forecast(path, PACKED).trouble == ""


@pytest.mark.parametrize(("kv_heads", "offered"), [(8, True), (16, False)])
def test_a_format_that_does_not_suit_is_not_advised(kv_heads: int, offered: bool) -> None:
    shape = narrow_dense(kv_heads)
    free = plan_of(shape).parts.total + shape.head_bytes + (590 - 8) * MIB
    tight = plan_of(shape, MachineFacts(free=free)).problems[0].sentence
    assert ("--kv q8_0" in tight) is offered
    hopeless = plan_of(shape, MachineFacts(free=10 * MIB)).problems[0].sentence
    assert f"even --max-context 1024 --kv {'q8_0' if offered else 'f16'} " in hopeless
