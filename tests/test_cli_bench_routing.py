"""Guards against a routing report that counts other experts or other hits than it says.

The least-recently-used hits are counted again by a few lines that share no code with the cache,
and those of the engine's rule by an engine that really decodes with so many slots.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stratadesk.cli import main
from stratadesk.cli.bench_routing import MOST_TEXT, QUESTIONS, bar, questions_in
from stratadesk.engine.commands import EngineSettings
from stratadesk.engine.loading import load_model
from stratadesk.engine.model import LoadedModel
from stratadesk.engine.protocols import tell_nobody
from stratadesk.engine.routing_bench import record_routing
from stratadesk.engine.routing_record import LayerUse, RoutingRecord
from stratadesk.engine.vram.cache_replay import replay_routing
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.exit_codes import ExitCode
from stratadesk.units import MIB

Ints = NDArray[np.int32]
MODELS = ("qwen3moe-iq4_xs.gguf", "qwen35moe-ud-q4k.gguf")


def recounted_hits(layers: list[Ints], slots: int) -> int:
    """Hits of a least-recently-used cache whose slots are dealt to the layers in turns.

    What a token uses never makes room for what the same token misses. Of experts unused for
    equally long, the one in the later slot goes.
    """
    hits = 0
    for layer, tokens in enumerate(layers):
        held: list[tuple[int, int]] = [(-1, -1)] * len(range(layer, slots, len(layers)))
        for now, used in enumerate(tokens.tolist()):
            missed = []
            for expert in sorted(used):
                at = next((i for i, (held_one, _) in enumerate(held) if held_one == expert), None)
                if at is None:
                    missed.append(expert)
                else:
                    hits += 1
                    held[at] = (expert, now)
            for expert in missed:
                old = [i for i, (_, last) in enumerate(held) if last < now]
                if old:
                    oldest = min(old, key=lambda i: (held[i][1], -i))
                    held[oldest] = (expert, now)
    return hits


def random_routing(seed: int, layers: int, experts: int, used: int, tokens: int) -> list[Ints]:
    """Distinct experts for each token, some of them likelier than others."""
    random = np.random.default_rng(seed)
    liked = random.dirichlet(np.full(experts, 0.5))
    return [
        np.array(
            [random.choice(experts, used, replace=False, p=liked) for _ in range(tokens)], np.int32
        )
        for _ in range(layers)
    ]


@pytest.mark.parametrize("slots", [1, 3, 10, 24, 25, 48])
def test_lru_hits_are_those_of_an_independent_count(slots: int) -> None:
    layers = random_routing(slots, layers=3, experts=16, used=3, tokens=200)
    found = replay_routing(layers, 16, slots, plain_lru=True)
    assert found.hits == recounted_hits(layers, slots)
    assert found.hits + found.misses == 3 * 200 * 3


@pytest.mark.parametrize("name", MODELS)
def test_lru_hits_of_a_recorded_model_are_those_of_an_independent_count(
    name: str, data_dir: Path
) -> None:
    recorded = record_routing(data_dir / "models" / name, QUESTIONS[:3], 12, tell_nobody)
    for part in (recorded.prompts, recorded.answers):
        for slots in (2, 4, 7):
            found = replay_routing(part.layers(), max(recorded.experts), slots, plain_lru=True)
            assert found.hits == recounted_hits(part.layers(), slots)
            assert found.hits > 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("slots", [2, 5])
def test_the_engines_hits_are_those_of_an_engine_that_decodes_with_so_many_slots(
    name: str, slots: int, data_dir: Path
) -> None:
    settings = EngineSettings(
        max_context=128,
        plan=PlanSettings(reserve=0, expert_cache=slots, short_read=128),
        machine=MachineFacts(card=64 * MIB, desktop=0, context=0),
    )
    model = load_model(data_dir / "models" / name, settings, tell_nobody)
    assert isinstance(model, LoadedModel)
    try:
        cache = model.memory.cache
        assert cache.slots == slots
        record = RoutingRecord(cache.residency.shape[0])
        model.watch_routing(record.note)
        state = model.new_state()
        for token in range(40, 100):
            model.forward(state, [token], logits="none")
        found = replay_routing(record.layers(), cache.residency.shape[1], slots)
        assert record.tokens == 60
        assert (found.hits, found.misses) == (cache.counters.hits, cache.counters.misses)
        assert found.hits > 0
        model.watch_routing(None)
        model.forward(state, [1], logits="none")
        assert record.tokens == 60
    finally:
        model.close()


def test_what_is_recorded_is_every_token_that_was_read(data_dir: Path) -> None:
    recorded = record_routing(data_dir / "models" / MODELS[0], ["red", "blue"], 6, tell_nobody)
    assert recorded.answers.tokens <= 2 * 5
    for part in (recorded.prompts, recorded.answers):
        for routed, use in zip(part.layers(), part.use(recorded.experts), strict=True):
            assert routed.shape == (part.tokens, recorded.used)
            assert use.uses == part.tokens * recorded.used
            assert all(len(set(chosen)) == recorded.used for chosen in routed.tolist())
            again = [int((routed == expert).sum()) for expert in range(use.counts.size)]
            assert use.counts.tolist() == again


@pytest.mark.parametrize(
    ("counts", "most", "share", "for_most", "entropy"),
    [
        ([1, 1, 1, 1], 0, 0.25, 4, 2.0),
        ([0, 10, 0, 0], 1, 1.0, 1, 0.0),
        ([45, 45, 10, 0], 0, 0.45, 2, -2 * 0.45 * math.log2(0.45) - 0.1 * math.log2(0.1)),
        ([0, 0], 0, 0.0, 0, 0.0),
    ],
)
def test_the_use_of_a_layer_in_figures(
    counts: list[int], most: int, share: float, for_most: int, entropy: float
) -> None:
    use = LayerUse(np.array(counts, np.int64))
    assert (use.most_used, use.for_most) == (most, for_most)
    assert use.top_share == pytest.approx(share)
    assert use.entropy == pytest.approx(entropy)
    assert use.evenness == pytest.approx(entropy / math.log2(len(counts)))


def test_a_bar_falls_from_the_most_used_expert_on() -> None:
    assert bar([0, 4, 8, 1]) == "█▄▁·"
    assert bar([5] * 128) == "█" * 32
    assert bar([0, 0]) == "··"


class TestCommand:
    @pytest.mark.usefixtures("tiny_guide")
    def test_the_guide_is_measured_and_the_same_comes_out_again(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["bench", "routing", "-n", "3", "--json"]) == ExitCode.OK
        first = capsys.readouterr().out
        assert main(["bench", "routing", "-n", "3", "--json"]) == ExitCode.OK
        assert capsys.readouterr().out == first
        found = json.loads(first)
        assert found["questions"] == len(QUESTIONS)
        assert list(found["prompt"]["cached"]) == ["1/8", "1/4", "1/2"]
        assert found["decode"]["tokens"] <= 2 * len(QUESTIONS)

    def test_the_table_has_the_figures_of_the_json_object(
        self, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = tmp_path / "q.txt"
        text.write_text("red\n\n  blue\n", encoding="utf-8")
        words = ["bench", "routing", "-m", str(data_dir / "models" / MODELS[1]), "-n", "4"]
        words += ["--file", str(text)]
        assert main([*words, "--json"]) == ExitCode.OK
        found = json.loads(capsys.readouterr().out)
        assert (found["questions"], found["text"]) == (2, str(text))
        assert main(words) == ExitCode.OK
        rows = capsys.readouterr().out.splitlines()
        layers = [row.split() for row in rows if " expert " in row and " of " in row]
        for part, shown in (
            ("prompt", layers[: len(layers) // 2]),
            ("decode", layers[len(layers) // 2 :]),
        ):
            for layer, row in zip(found[part]["layers"], shown, strict=True):
                assert row[0] == str(layer["layer"])
                assert row[2] == str(layer["most_used"])
                assert row[4] == str(layer["for_90_percent"])
        for share in ("1/8", "1/4", "1/2"):
            row = next(row.split() for row in rows if row.strip().startswith(share))
            rates = [
                found[part]["cached"][share][rule]["hit_rate"]
                for part in ("prompt", "decode")
                for rule in ("engine", "lru")
            ]
            assert [float(cell.rstrip("%")) for cell in row[2:]] == pytest.approx(
                [100 * rate for rate in rates], abs=0.06
            )

    def test_a_byte_order_mark_and_line_ends_of_windows_are_not_asked(self, tmp_path: Path) -> None:
        (tmp_path / "q.txt").write_bytes(b"\xef\xbb\xbfred\r\n\r\nblue\r\n")
        assert questions_in(tmp_path / "q.txt") == ["red", "blue"]

    def test_one_token_of_answer_is_sampled_but_never_routed(
        self, data_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        model = str(data_dir / "models" / MODELS[0])
        assert main(["bench", "routing", "-m", model, "-n", "1"]) == ExitCode.OK
        shown = capsys.readouterr().out
        assert "Answers: 0 tokens" in shown
        assert "–" in shown

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["-n", "0"], "'0' is not a whole number from 1"),
            (["--file", "none.txt"], "none.txt cannot be read"),
            (["--file", "{empty}"], "has no line with text"),
            (["--file", "{latin}"], "is not UTF-8 at byte 3"),
            (["--file", "{huge}"], "has more than 16 MiB"),
            (["--file", "{long}"], "Question 2 of 2 is too long: The prompt has "),
            (["-m", "{dense}"], "has no experts"),
        ],
    )
    @pytest.mark.usefixtures("tiny_guide")
    def test_what_cannot_be_measured_is_one_sentence(
        self,
        words: list[str],
        said: str,
        data_dir: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        (tmp_path / "empty.txt").write_text("\n \n", encoding="utf-8")
        (tmp_path / "latin.txt").write_bytes(b"red\xfc")
        (tmp_path / "long.txt").write_text("red\n" + "red " * 20_000, encoding="utf-8")
        with (tmp_path / "huge.txt").open("wb") as huge:
            huge.truncate(MOST_TEXT + 1)
        places = {
            **{name: str(tmp_path / f"{name}.txt") for name in ("empty", "latin", "huge", "long")},
            "dense": str(data_dir / "models" / "qwen3-tied-q6_k.gguf"),
        }
        assert main(["bench", "routing", *(word.format(**places) for word in words)]) == (
            ExitCode.USAGE
        )
        out, err = capsys.readouterr()
        assert out == ""
        assert said in err
