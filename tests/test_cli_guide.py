"""Guards against a first start without an answer, and a made-up card that outlives the guide."""

import argparse
import errno
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stratadesk.cli import main
from stratadesk.cli.chat import as_failure
from stratadesk.cli.chat_start import chosen_model, start_model
from stratadesk.cli.guide_card import GuideCard
from stratadesk.cli.inputs import engine_settings, sampling_settings
from stratadesk.cli.kept_settings import with_kept
from stratadesk.cli.one_answer import OneAnswer
from stratadesk.cli.parser import build_parser
from stratadesk.cli.plan_command import MADE_UP
from stratadesk.cli.run import GUIDE_ANSWERS
from stratadesk.engine.card_events import CacheSample
from stratadesk.engine.commands import (
    Device,
    EngineSettings,
    Generate,
    LoadModel,
    SamplingSettings,
)
from stratadesk.engine.events import Event
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.host_plan import plan_for_host
from stratadesk.engine.loop import Engine
from stratadesk.engine.vram.phase_table import HeadPlace, VramPhase, VramState
from stratadesk.engine.vram.plan_settings import HeadAlias
from stratadesk.errors import GgufError
from stratadesk.exit_codes import ExitCode
from stratadesk.models import find_models
from stratadesk.models.guide import VARIABLE
from stratadesk.settings_file import save_setting, user_file
from stratadesk.settings_order import decide
from stratadesk.units import KIB, MIB

RED = ["run", "--raw", "-p", "red", "-n", "3", "--temp", "0"]
OTHER = Path("other.gguf")


class Full(io.StringIO):
    """A stream to a full disk."""

    def write(self, text: str, /) -> int:
        """Refuse it."""
        raise OSError(errno.ENOSPC, "No space left on device")


def arguments(*words: str) -> argparse.Namespace:
    return with_kept(build_parser().parse_args(words))[0]


def card_of(settings: EngineSettings) -> tuple[int, int, int, HeadAlias, int | None]:
    """Size, free bytes, reserve, alias and short read."""
    assert settings.machine is not None
    assert settings.plan is not None
    machine, plan = settings.machine, settings.plan
    return machine.card, machine.free_before, plan.reserve, plan.alias, plan.short_read


class TestRun:
    def test_without_a_model_the_guide_answers_and_that_is_said_once_beside_the_answer(
        self, tiny_guide: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # What is said of compiling depends on what ran before.
        assert main([*RED, "-m", str(tiny_guide)]) == ExitCode.OK
        capsys.readouterr()
        assert main(RED) == ExitCode.OK
        out, err = capsys.readouterr()
        assert err.count(GUIDE_ANSWERS) == 1
        assert main([*RED, "-m", str(tiny_guide)]) == ExitCode.OK
        assert capsys.readouterr() == (out, err.replace(f"{GUIDE_ANSWERS}\n", ""))
        assert main([*RED, "--json"]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["text"].strip() == out.strip()

    def test_the_prompt_may_come_from_a_pipe(
        self, tiny_guide: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(RED) == ExitCode.OK
        whole = capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"red")))
        assert main([word.replace("red", "-") for word in RED]) == ExitCode.OK
        assert capsys.readouterr() == whole

    def test_a_model_that_is_set_wins(
        self,
        data_dir: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv(VARIABLE, str(tmp_path / "never-opened.gguf"))
        monkeypatch.setenv("STRATADESK_MODEL", str(data_dir / "models" / "qwen3moe-iq4_xs.gguf"))
        assert main(RED) == ExitCode.OK
        assert GUIDE_ANSWERS not in capsys.readouterr().err

    @pytest.mark.usefixtures("tiny_guide")
    def test_a_model_that_is_set_and_gone_is_an_error_and_not_the_guide(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("STRATADESK_MODEL", "gone.gguf")
        assert main(RED) == ExitCode.MODEL_UNUSABLE
        out, err = capsys.readouterr()
        assert out == ""
        assert "gone.gguf" in err
        assert GUIDE_ANSWERS not in err

    @pytest.mark.usefixtures("tiny_guide")
    def test_where_nothing_can_be_said_beside_it_the_answer_still_comes(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(RED) == ExitCode.OK
        answer = capsys.readouterr().out
        monkeypatch.setattr(sys, "stderr", Full())
        assert main(RED) == ExitCode.OK
        assert capsys.readouterr().out == answer
        assert main([*RED, "-m", "gone.gguf"]) == ExitCode.MODEL_UNUSABLE

    def test_without_model_and_guide_it_says_what_to_give(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(RED) == ExitCode.USAGE
        err = capsys.readouterr().err
        assert f"{VARIABLE} is empty. Give -m" in err
        assert main([*RED, "-m", "guide"]) == ExitCode.MODEL_UNUSABLE
        assert f"There is no guide: {VARIABLE} is empty." in capsys.readouterr().err


class TestInstallation:
    """A guide that is missing or damaged is mended by installing again, not by a download."""

    @pytest.fixture
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Where an installed package looks for its guide."""
        package = tmp_path / "site" / "stratadesk"
        monkeypatch.setattr("stratadesk.models.guide.__file__", str(package / "models" / "x.py"))
        monkeypatch.delenv(VARIABLE)
        (package / "assets").mkdir(parents=True)
        return package / "assets" / "guide.gguf"

    @pytest.mark.parametrize(
        "words",
        [RED, ["plan", "-m", "guide"], ["inspect", "guide"], ["tokenize", "-m", "guide", "red"]],
        ids=lambda words: words[0],
    )
    def test_every_command_says_so(
        self, words: list[str], place: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        whole = (data_dir / "models" / "qwen3moe-iq4_xs.gguf").read_bytes()
        states = {
            b"": "is damaged: 'guide.gguf' is empty. ",
            whole[:-1000]: "is damaged: ",
            None: f"lacks the guide: there is no {place}. ",
        }
        for data, said in states.items():
            if data is None:
                place.unlink()
            else:
                place.write_bytes(data)
            assert main(words) == ExitCode.MODEL_UNUSABLE
            out, err = capsys.readouterr()
            assert out == ""
            assert said in err
            assert err.endswith(". Install StrataDesk again, or choose another model with -m.\n")
            assert err.count("\n") == 1

    def test_the_chat_offers_other_models(self, place: Path) -> None:
        model, trouble = start_model(decide({}))
        assert model is None
        assert trouble is not None
        assert str(place) in as_failure(trouble).sentence
        assert "Install StrataDesk again" in as_failure(trouble).remedy
        with pytest.raises(GgufError, match="lacks the guide"):
            start_model(decide({"model": "guide"}))

    def test_the_line_mode_says_so_and_offers_others(
        self,
        place: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("USERPROFILE", str(tmp_path))
        monkeypatch.chdir(tmp_path / "site")
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        assert main(["--plain"]) == ExitCode.OK
        out, err = capsys.readouterr()
        assert f"there is no {place}. Install StrataDesk again" in err
        assert "No model was found" in out

    def test_a_sound_one_is_taken_and_a_cut_one_listed_with_its_remedy(
        self, place: Path, data_dir: Path, tmp_path: Path
    ) -> None:
        whole = (data_dir / "models" / "qwen3moe-iq4_xs.gguf").read_bytes()
        place.write_bytes(whole)
        assert start_model(decide({})) == (place, None)
        assert find_models({}, tmp_path).models[0].why_not is None
        place.write_bytes(whole[:-1000])
        why_not = find_models({}, tmp_path).models[0].why_not
        assert why_not is not None
        assert "Install StrataDesk again" in why_not


def test_the_chat_starts_the_guide_unless_something_else_is_set(
    tiny_guide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen_model(decide({})) == tiny_guide
    monkeypatch.setenv("STRATADESK_MODEL", "gone.gguf")
    assert chosen_model(decide({})) == Path("gone.gguf")
    monkeypatch.setenv("STRATADESK_MODEL", "~no-such-user/m.gguf")
    assert chosen_model(decide({})) == Path("~no-such-user/m.gguf")
    monkeypatch.delenv("STRATADESK_MODEL")
    monkeypatch.setenv(VARIABLE, "")
    assert chosen_model(decide({})) is None


def test_the_line_mode_starts_the_guide_too(
    tiny_guide: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("/quit\n"))
    assert main(["--plain"]) == ExitCode.OK
    assert f"[ready] {tiny_guide.stem}" in capsys.readouterr().out


def test_the_guide_is_told_the_last_exchanges_again_and_others_the_whole_chat(
    tiny_guide: Path,
) -> None:
    """Of sixty questions in one chat it had 33 right where ten exchanges were told, 56 with two."""
    cards = GuideCard(arguments())
    assert (cards.remembered(tiny_guide), cards.remembered(OTHER)) == (2, None)


class TestTemperature:
    """The guide tells facts: a draw among words makes some of them wrong."""

    def drawn(self, model: Path, *flags: str) -> SamplingSettings:
        given = arguments(*flags)
        return GuideCard(given).sampling(model, sampling_settings(given))

    def test_the_guide_answers_without_chance_and_others_as_ever(self, tiny_guide: Path) -> None:
        usual = sampling_settings(arguments())
        assert self.drawn(tiny_guide) == replace(usual, temperature=0.0)
        assert self.drawn(OTHER) == usual

    def test_a_temperature_that_is_set_counts(
        self, tiny_guide: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.drawn(tiny_guide, "--temp", "0.8").temperature == 0.8
        save_setting(user_file(), "temperature", 0.5)
        assert self.drawn(tiny_guide).temperature == 0.5
        monkeypatch.setenv("STRATADESK_TEMPERATURE", "0.7")
        assert self.drawn(tiny_guide).temperature == 0.7

    def test_run_uses_it(self, tiny_guide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[Generate] = []

        def execute(_self: OneAnswer, _load: LoadModel, request: Generate) -> int:
            asked.append(request)
            return ExitCode.OK

        monkeypatch.setattr(OneAnswer, "execute", execute)
        assert main(["run", "-p", "red"]) == ExitCode.OK
        assert main(["run", "-p", "red", "-m", str(tiny_guide), "--temp", "0.8"]) == ExitCode.OK
        assert [request.sampling.temperature for request in asked] == [0.0, 0.8]


class TestCard:
    def test_the_guide_gets_a_small_card_over_whose_head_each_prompt_is_read(
        self, tiny_guide: Path
    ) -> None:
        given = arguments()
        settings = GuideCard(given).fit(tiny_guide, engine_settings(given))
        assert card_of(settings) == (24 * MIB, 24 * MIB, 8 * MIB, HeadAlias.ON, 0)
        assert settings.plan is not None
        assert settings.plan.block_bytes == 64 * KIB

    def test_plan_plans_the_card_that_the_chat_makes_up(
        self, tiny_guide: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["plan", "-m", "guide", "--json"]) == ExitCode.OK
        out, err = capsys.readouterr()
        assert err == f"{MADE_UP}\n"
        card = json.loads(out)
        given = arguments()
        wanted = GuideCard(given).fit(tiny_guide, engine_settings(given))
        with GgufFile.open(tiny_guide) as gguf:
            assert card == json.loads(json.dumps(plan_for_host(gguf, wanted).as_json()))
        monkeypatch.setenv("STRATADESK_VRAM_RESERVE_MIB", "590")
        assert main(["plan", "-m", "guide", "--json"]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out) == card
        assert main(["plan", "-m", "guide"]) == ExitCode.OK
        out = capsys.readouterr().out
        assert "none: the card is made up" in out
        assert "--free-mib" not in out

    @pytest.mark.parametrize("flags", [["--vram-mib", "8151"], ["--device", "cuda"]])
    @pytest.mark.usefixtures("tiny_guide")
    def test_plan_plans_another_card_where_a_flag_speaks_of_it(
        self, flags: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["plan", "-m", "guide", *flags]) == ExitCode.OK
        out, err = capsys.readouterr()
        assert "card 8,151 MiB" in out
        assert err == ""

    def test_flags_override_what_is_made_up(self, tiny_guide: Path) -> None:
        given = arguments("--vram-mib", "48", "--prefill-head-alias", "off", "-c", "512")
        settings = GuideCard(given).fit(tiny_guide, engine_settings(given))
        assert card_of(settings) == (48 * MIB, 48 * MIB, 8 * MIB, HeadAlias.OFF, 0)
        assert settings.max_context == 512
        given = arguments("--free-mib", "20", "--vram-reserve-mib", "1", "--short-read", "9")
        settings = GuideCard(given).fit(tiny_guide, engine_settings(given))
        assert card_of(settings) == (24 * MIB, 20 * MIB, 1 * MIB, HeadAlias.ON, 9)

    def test_what_is_set_for_other_models_does_not_keep_the_guide_from_starting(
        self, tiny_guide: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in (("VRAM_RESERVE_MIB", "590"), ("MAX_CONTEXT", "32768")):
            monkeypatch.setenv(f"STRATADESK_{name}", value)
        monkeypatch.setenv("STRATADESK_KV_FORMAT", "q8_0")
        given = arguments()
        settings = GuideCard(given).fit(tiny_guide, engine_settings(given))
        assert card_of(settings)[2] == 8 * MIB
        assert settings.max_context == 0
        assert settings.kv_format == "q8_0"

    @pytest.mark.parametrize("flags", [[], ["--vram-mib", "4096"]])
    def test_another_model_is_loaded_as_if_there_had_been_no_guide(
        self, flags: list[str], tiny_guide: Path
    ) -> None:
        given = arguments(*flags)
        cards, usual = GuideCard(given), engine_settings(given)
        assert cards.fit(OTHER, usual) is usual
        with_guide = cards.fit(tiny_guide, usual)
        assert cards.fit(tiny_guide, with_guide) is with_guide
        assert cards.fit(OTHER, with_guide) == usual

    def test_more_free_memory_than_the_card_would_have_makes_a_larger_one(
        self, tiny_guide: Path
    ) -> None:
        given = arguments("-m", "other.gguf", "--free-mib", "4096")
        cards, usual = GuideCard(given), engine_settings(given)
        assert cards.fit(OTHER, usual) is usual
        assert card_of(cards.fit(tiny_guide, usual))[:2] == (4096 * MIB, 4096 * MIB)

    def test_what_was_chosen_for_other_models_is_theirs_again_after_the_guide(
        self, tiny_guide: Path
    ) -> None:
        given = arguments()
        cards = GuideCard(given)
        chosen = replace(engine_settings(given), max_context=4096, chunk=256)
        with_guide = cards.fit(tiny_guide, chosen)
        assert with_guide.max_context == 0
        assert cards.fit(OTHER, replace(with_guide, max_context=8192)) == chosen
        assert cards.fit(tiny_guide, chosen) == with_guide

    @pytest.mark.usefixtures("tiny_guide")
    def test_where_a_card_computes_none_is_made_up(self, tiny_guide: Path) -> None:
        settings = EngineSettings(device=Device.CUDA)
        fitted = GuideCard(arguments()).fit(tiny_guide, settings)
        assert (fitted.device, fitted.machine) == (Device.CUDA, None)
        assert fitted.plan is not None
        assert fitted.plan.reserve == 590 * MIB

    def test_choices_on_a_made_up_card_are_not_kept_but_those_of_the_screen_are(
        self, tiny_guide: Path
    ) -> None:
        given = arguments()
        cards, usual = GuideCard(given), engine_settings(given)
        made_up = cards.fit(tiny_guide, usual)
        for field in ("vram_reserve_mib", "prefill_head_alias", "expert_cache", "max_context"):
            assert cards.keeps(field, usual)
            assert not cards.keeps(field, made_up)
        assert cards.keeps("monitor", made_up)


class Told:
    """A view that keeps what the engine tells of its memory."""

    def __init__(self) -> None:
        self.phases: list[VramPhase] = []
        self.samples: list[CacheSample] = []

    def show(self, event: Event) -> None:
        """Keep phases and samples."""
        if isinstance(event, VramPhase):
            self.phases.append(event)
        elif isinstance(event, CacheSample):
            self.samples.append(event)

    def close(self) -> None:
        """Nothing is open."""

    def phases_in(self, state: VramState) -> list[VramPhase]:
        """The phases of one state."""
        return [phase for phase in self.phases if phase.state is state]


def told_of_an_answer(model: Path, prompt: str, *flags: str) -> Told:
    """What is told while the chat's guide answers one prompt."""
    given, told = arguments(*flags), Told()
    settings = GuideCard(given).fit(model, engine_settings(given))
    request = Generate(
        1, raw_prompt=prompt, max_tokens=24, sampling=SamplingSettings(0.0), ignore_eos=True
    )
    assert OneAnswer(Engine(), told).execute(LoadModel(model, settings), request) == ExitCode.OK
    return told


def test_on_the_made_up_card_a_short_prompt_sends_the_head_out_and_back(tiny_guide: Path) -> None:
    told = told_of_an_answer(tiny_guide, "red")
    (reading,) = told.phases_in(VramState.PROMPT)
    assert reading.head is HeadPlace.OUT
    assert reading.slots_lent > 0
    (writing,) = told.phases_in(VramState.DECODING)
    assert writing.head is HeadPlace.IN
    assert writing.slots_lent == 0
    told = told_of_an_answer(tiny_guide, "red", "--prefill-head-alias", "off")
    (reading,) = told.phases_in(VramState.PROMPT)
    assert reading.head is HeadPlace.IN


def test_the_guide_that_comes_along_finds_some_of_its_experts_and_misses_others(
    guide: Path,
) -> None:
    told = told_of_an_answer(guide, "What does head out mean?")
    (reading,) = told.phases_in(VramState.PROMPT)
    assert reading.head is HeadPlace.OUT
    last = told.samples[-1]
    assert last.slots < last.pinned + last.pageable
    assert last.answer_hits > 0
    assert last.answer_misses > 0
