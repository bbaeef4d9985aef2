"""Guards against a benchmark that measures something else than the program it speaks of."""

import json
import time
from itertools import islice
from pathlib import Path

import pytest

from stratadesk.cli import bench_decode, bench_tui, main
from stratadesk.cli.bench_engine import CHAPTER, TalkingEngine, words
from stratadesk.cli.bench_screen import KEYS
from stratadesk.engine.commands import Generate
from stratadesk.engine.events import RequestFinished, TextDelta


def test_the_made_up_answer_is_the_chapter_at_the_speed_asked_for() -> None:
    engine = TalkingEngine(40, 200.0)
    began = time.monotonic()
    engine.send(Generate(1, raw_prompt="x"))
    assert engine.finished.wait(60)
    assert time.monotonic() - began >= 0.2
    engine.stop()
    events = engine.events.drain()
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    (finished,) = [event for event in events if isinstance(event, RequestFinished)]
    assert text == finished.text == "".join(islice(words(), 40))
    assert text.split() == CHAPTER.split()[: len(text.split())]
    assert not set(KEYS) & set(CHAPTER)


def test_an_answer_that_is_told_to_stop_stops() -> None:
    engine = TalkingEngine(10_000, 200.0)
    engine.send(Generate(1, raw_prompt="x"))
    assert engine.writing.wait(60)
    engine.stop()
    assert engine.finished.is_set()


def test_the_screen_is_measured_and_drawn_at_most_twenty_times_a_second(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", "tui", "-n", "400", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    figures = shown["figures"]
    assert 1 <= figures["redraws_per_s"] <= 20
    assert 0 < figures["cpu_percent"] <= 100
    assert 0 < figures["key_p50_ms"] <= figures["key_p95_ms"]
    assert figures["written_kib_per_s"] > 1
    assert shown["machine"]["cores"] >= 1


def test_decoding_is_compared_with_and_without_the_screen(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_decode, "TOKENS", 8)
    model = data_dir / "models" / "qwen3moe-iq4_xs.gguf"
    figures = bench_tui.decode_figures(model, 1)
    assert figures["alone_tps"] > 0
    assert figures["under_screen_tps"] > 0
    loss = 100 * (1 - figures["under_screen_tps"] / figures["alone_tps"])
    assert figures["loss_percent"] == pytest.approx(loss, abs=0.2)


def test_a_model_that_is_not_there_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_tui, "screen_figures", lambda *_: {})
    assert main(["bench", "tui", "-m", "none.gguf"]) != 0
    assert "none.gguf" in capsys.readouterr().err


def test_the_table_has_goals_and_no_rows_without_figures() -> None:
    table = bench_tui.as_table({"redraws_per_s": 11.25, "loss_percent": 2.0}).splitlines()
    assert table[1].split()[-3:] == ["11.2", "≤", "20"]
    assert table[2].endswith("2.0  ≤ 3 (on a card 1)")


@pytest.mark.parametrize(("share", "value"), [(0.5, 2), (0.95, 4), (0.0, 1), (1.0, 4)])
def test_a_share_of_the_values_lies_below(share: float, value: float) -> None:
    assert bench_tui.share_below([1, 2, 3, 4], share) == value
    assert bench_tui.share_below([], share) == 0.0
