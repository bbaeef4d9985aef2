"""Guards against speeds that are made up: wrong bytes, wrong runs, or another thread count."""

import argparse
import json
from collections.abc import Callable

import numba
import numpy as np
import pytest

from stratadesk.cli import main
from stratadesk.cli.bench_host_kernels import _names, add_arguments, bench_host_kernels
from stratadesk.errors import UsageError
from stratadesk.exit_codes import ExitCode
from stratadesk.kernels.host import speed
from stratadesk.kernels.host.formats import FORMATS

SMALL_COPY = 1 << 20


class Clock:
    """Time that passes only where somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def taking(self, *seconds: float) -> Callable[[], None]:
        durations = iter(seconds)

        def work() -> None:
            self.now += next(durations)

        return work


@pytest.fixture
def small_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed.copy_speed, "__defaults__", (SMALL_COPY,))


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def test_the_fastest_run_of_each_counts_and_they_take_turns() -> None:
    clock = Clock()
    first, second = clock.taking(4, 2, 3, 9), clock.taking(5, 6, 4, 8)
    assert speed.fastest([first, second], 25, clock) == [2, 4]


def test_there_are_three_runs_however_short_the_time() -> None:
    clock = Clock()
    assert speed.fastest([clock.taking(9, 9, 1)], 0.1, clock) == [1]


@pytest.mark.parametrize("name", ["Q8_0", "BF16"])
def test_random_blocks_hold_ordinary_values_and_all_kinds_of_bytes(name: str) -> None:
    item = FORMATS[name]
    item.rows.compile()
    blocks = speed.random_blocks(item, 5000)
    assert len(blocks) == 5000
    assert len(np.unique(blocks)) == 256
    values = np.empty((5000, item.block_values), np.float32)
    data = blocks.reshape(-1).view(item.unit)
    data.flags.writeable = False
    item.rows(data, item.block_units, np.arange(5000, dtype=np.int32), values)
    assert np.abs(values).max(axis=1).min() > 1e-4
    assert np.abs(values).max() < 1e4


def test_a_product_is_timed_on_one_thread_and_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def product(item: object, matrices: int) -> Callable[[], None]:
        return lambda: seen.append(numba.get_num_threads())

    monkeypatch.setattr(speed, "_product", product)
    before = numba.get_num_threads()
    (measured,) = speed.format_speeds(["Q8_0"], 0.001)
    assert seen[:4] == [1, before, 1, before]
    assert numba.get_num_threads() == before
    assert (measured.weights, measured.n_bytes) == (2048 * 4096, 2048 * 4096 // 32 * 34)


def test_the_timed_product_is_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(speed, "multiply", lambda *given: calls.append(given))
    FORMATS["F32"].rows.compile()
    speed._product(FORMATS["F32"], 1)()
    ((weight, addresses, x, *_, out, column),) = calls
    assert (weight.rows, weight.columns, x.shape, out.shape) == (2048, 4096, (1, 4096), (1, 2048))
    assert (addresses.tolist(), column) == ([weight.data.ctypes.data], 0)


def test_weights_from_memory_are_others_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    used, wanted = [], []
    monkeypatch.setattr(speed, "multiply", lambda weight, at, *_: used.append((weight, int(at[0]))))
    FORMATS["Q8_0"].rows.compile()
    run = speed._product(FORMATS["Q8_0"], 3)
    for _ in range(4):
        run()
    addresses = [address for _, address in used]
    assert len(set(addresses[:3])) == 3
    assert addresses[3] == addresses[0]
    for weight, address in used:
        assert weight.data.ctypes.data == address
        assert np.array_equal(weight.data, used[0][0].data)

    def product(item: object, matrices: int) -> Callable[[], None]:
        wanted.append(matrices)
        return lambda: None

    monkeypatch.setattr(speed, "_product", product)
    (measured,) = speed.format_speeds(["Q8_0"], 0.001, from_memory=True)
    assert wanted[0] * measured.n_bytes >= speed.COPIED_BYTES > (wanted[0] - 1) * measured.n_bytes


@pytest.mark.usefixtures("small_copy")
def test_json_has_rates_of_the_copy_and_of_each_format(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--format", "F32", "--format", "Q8_0", "--seconds", "0.01", "--json")
    assert bench_host_kernels(arguments(*words)) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["from"] == "cache"
    shape = {key: printed[key] for key in ("rows", "columns", "tokens", "threads")}
    assert shape == {
        "rows": 2048,
        "columns": 4096,
        "tokens": 1,
        "threads": numba.get_num_threads(),
    }
    assert set(printed["copy"]["all_threads"]) == {"bytes"}
    assert list(printed["formats"]) == ["F32", "Q8_0"]
    for name, bytes_per_weight in (("F32", 4), ("Q8_0", 34 / 32)):
        for rates in printed["formats"][name].values():
            assert rates["bytes"] == pytest.approx(rates["weights"] * bytes_per_weight)


@pytest.mark.usefixtures("small_copy")
def test_the_table_has_a_line_for_each_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_host_kernels(arguments("--format", "Q8_0", "--seconds", "0.01")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "stays in the CPU's cache" in lines[0]
    assert lines[2].startswith("Copying memory: ")
    name, one, one_bytes, every, every_bytes, gain = lines[-1].split()
    assert name == "Q8_0"
    assert float(one_bytes) == pytest.approx(float(one) * 34 / 32, abs=0.02)
    assert float(every_bytes) == pytest.approx(float(every) * 34 / 32, abs=0.02)
    assert float(gain) == pytest.approx(float(every) / float(one), rel=0.05)


@pytest.mark.usefixtures("small_copy")
def test_the_command_line_knows_the_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "host-kernels", "--format", "F16", "--seconds", "0.01", "--json"]
    assert main([*words, "--from-memory"]) == 0
    printed_object = json.loads(capsys.readouterr().out)
    assert (printed_object["from"], list(printed_object["formats"])) == ("memory", ["F16"])
    assert main([*words, "--format", "Q4_X"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert "'Q4_X' is not a format" in printed.err


def test_all_formats_are_measured_unless_some_are_named() -> None:
    assert tuple(_names([])) == tuple(FORMATS)
    assert _names(["Q6_K", "F32"]) == ["Q6_K", "F32"]


def test_an_unknown_format_is_one_sentence_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'TQ1_0' is not a format .*MXFP4"):
        bench_host_kernels(arguments("--format", "TQ1_0"))


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_time_that_is_none_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "host-kernels", "--seconds", seconds]) == ExitCode.USAGE
    assert f"--seconds: '{seconds}' is not a number from 0.001" in capsys.readouterr().err
