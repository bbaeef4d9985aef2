"""Guards against a banner that frightens without helping, or says what is not known.

Each must name the figure, the reserve, the program that grew and the two keys, and say what the
driver model really does: Windows pages without an error, Linux refuses.
"""

from dataclasses import replace

import pytest

from stratadesk.engine.vram.driver_model import DriverModel, model_of_nvml, model_of_platform
from stratadesk.engine.vram.readings import (
    CardFigure,
    Growth,
    MemoryReading,
    ProgramList,
    Source,
)
from stratadesk.engine.vram.states import MemoryState, MemoryStatus, MemoryWatch
from stratadesk.engine.vram.wording import (
    Banner,
    Keys,
    Step,
    banner,
    figure_mib,
    missing_sources,
    reserve_reached,
    source_line,
)
from stratadesk.units import MIB
from tests.vram.probe_helpers import RESERVE, reading

BROWSER = Growth("chrome.exe", 4242, 412 * MIB)


def pushed(*free: float | None, model: DriverModel = DriverModel.WDDM) -> MemoryStatus:
    """The status after these free MiB, a second apart, read by DXGI."""
    watch = MemoryWatch(RESERVE)
    for at, figure in enumerate(free):
        sample = reading(at, figure, model=model, source=Source.DXGI, grew=BROWSER)
        status = watch.push(sample)
    return status


def shown(status: MemoryStatus, **options: Step | Keys) -> Banner:
    found = banner(status, **options)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_the_empty_card_under_wddm_says_everything() -> None:
    found = shown(pushed(0, 0), step=Step(256 * MIB, 160))
    assert found.word == "EMPTY"
    assert found.sentences == (
        "No free video memory: 0 MiB free by DXGI, reserve 590 MiB.",
        "Windows is moving parts of it to RAM, which makes answers several times slower, "
        "without any error.",
        "Grew just now: chrome.exe +412 MiB.",
        "Close it, or press F5: it gives 256 MiB back (−160 expert slots).",
        "This goes away by itself after 5 s above the reserve.",
    )


@pytest.mark.parametrize("model", [DriverModel.LINUX, DriverModel.TCC])
def test_without_wddm_nothing_is_said_about_windows(model: DriverModel) -> None:
    for status in (pushed(0, 0, model=model), pushed(300, model=model)):
        found = shown(status)
        assert "Windows" not in found.text
        assert "slower several" not in found.text
        assert "refused" in found.text


@pytest.mark.parametrize("model", [DriverModel.MCDM, DriverModel.UNKNOWN])
def test_what_is_not_known_is_called_not_known(model: DriverModel) -> None:
    for status in (
        pushed(0, 0, model=model),
        pushed(300, model=model),
        pushed(0, 0, 9, model=model),
    ):
        assert "not known" in shown(status).text
        assert "Windows is moving" not in shown(status).text


def test_wsl_is_spoken_of_as_wddm() -> None:
    assert "Windows is moving" in shown(pushed(0, 0, model=DriverModel.WSL)).text


def test_low_names_figure_reserve_program_and_keys() -> None:
    found = shown(pushed(287))
    assert found.word == "LOW"
    assert (
        found.sentences[0]
        == "Video memory is below the reserve: 287 MiB free by DXGI, reserve 590 MiB."
    )
    assert "chrome.exe +412 MiB" in found.text
    assert "F4" in found.text
    assert "F5" in found.text


@pytest.mark.parametrize("step", [Step(0, 0), Step(64 * MIB, 0)], ids=["least", "real card"])
def test_a_key_that_gives_nothing_back_is_not_offered(step: Step) -> None:
    found = shown(pushed(287), step=step)
    assert "F5 has nothing left to give back; F4 lowers the reserve." in found.text
    assert "press F5" not in found.text


def test_a_step_of_a_small_card_is_not_written_as_nothing() -> None:
    found = shown(pushed(287), step=Step(192 * 1024, 1))
    assert "it gives 0.19 MiB back (−1 expert slot)" in found.text


def test_rebound_keys_are_named() -> None:
    text = shown(pushed(287), keys=Keys(lower="^K", higher="^L")).text
    assert "press ^L: it gives memory back by raising the reserve; ^K lowers the reserve." in text
    assert "F4" not in text


def test_an_alarm_that_is_about_to_clear_says_so_and_does_not_claim_emptiness() -> None:
    found = shown(pushed(0, 0, 120))
    assert found.sentences[0] == "Video memory ran out: now 120 MiB free by DXGI, reserve 590 MiB."
    assert found.sentences[1].startswith("What Windows moved to RAM may stay there")
    found = shown(pushed(0, 0, 700, 700, 700))
    assert found.word == "EMPTY"
    assert found.sentences[-1] == "This goes away by itself in 3 s if the reserve stays free."
    assert shown(pushed(100, 700)).sentences[0].startswith("Video memory keeps the reserve again")


def test_the_banner_comes_and_goes_with_the_state() -> None:
    assert banner(pushed(700)) is None
    assert banner(pushed(0, 0, 700, 700, 700, 700, 700, 700)) is None


def test_lost_says_how_long_and_why_and_that_nothing_is_decided() -> None:
    watch = MemoryWatch(RESERVE)
    watch.push(reading(0, 700))
    watch.push(reading(3, None))
    text = shown(watch.status(8)).text
    assert text == (
        "Free video memory has not been known for 8 s. CUDA: no answer. "
        "Until it is, no slots come or go."
    )
    assert shown(MemoryWatch(RESERVE).status(8)).text.startswith("Free video memory is not known.")


def test_a_missing_figure_is_na_and_never_zero() -> None:
    assert figure_mib(None) == "N/A"
    assert figure_mib(MIB - 1) == "0 MiB"
    status = replace(pushed(0, 0), headroom=None, source=None, state=MemoryState.ZERO)
    assert "now N/A free" in shown(status).text


FIGURES = (
    CardFigure(Source.CUDA, free=287 * MIB),
    CardFigure(Source.NVML, free=301 * MIB),
    CardFigure(Source.DXGI, why="WSL has no DXGI"),
)


def test_the_status_line_names_its_source_and_what_is_missing() -> None:
    sample = MemoryReading(0, DriverModel.WSL, FIGURES)
    assert source_line(sample) == (
        "free 287 MiB by CUDA (CUDA 287 MiB · NVML 301 MiB · DXGI N/A) · WSL (WDDM underneath)"
    )
    assert missing_sources(sample) == ("DXGI: WSL has no DXGI",)


def test_the_status_line_of_one_source_and_of_none() -> None:
    one = MemoryReading(0, DriverModel.LINUX, (CardFigure(Source.SIMULATED, free=MIB),))
    assert source_line(one) == "free 1 MiB by simulated card · Linux"
    none = MemoryReading(
        0,
        DriverModel.UNKNOWN,
        (CardFigure(Source.CUDA, why="no driver"),),
        ProgramList(Source.PDH, None, "pdh is missing"),
    )
    assert source_line(none) == "free N/A · driver model unknown"
    assert missing_sources(none) == ("CUDA: no driver", "PDH, by program: pdh is missing")


def test_what_a_change_of_the_reserve_reached() -> None:
    assert reserve_reached(1536 * MIB, 1210 * MIB, "prompt floor") == (
        "asked 1,536 MiB, got 1,210 MiB: prompt floor"
    )
    assert reserve_reached(590 * MIB, 590 * MIB, "") == "asked 590 MiB, got 590 MiB"


@pytest.mark.parametrize(
    ("system", "release", "model"),
    [
        ("Linux", "6.8.0-60-generic", DriverModel.LINUX),
        ("Linux", "5.15.167.4-microsoft-standard-WSL2", DriverModel.WSL),
        ("Linux", "4.4.0-19041-Microsoft", DriverModel.WSL),
        ("Windows", "11", DriverModel.UNKNOWN),
        ("Darwin", "24.0", DriverModel.UNKNOWN),
    ],
)
def test_the_platform_tells_the_driver_model(system: str, release: str, model: DriverModel) -> None:
    assert model_of_platform(system, release) is model


def test_nvmls_numbers() -> None:
    assert [model_of_nvml(code) for code in (0, 1, 2, 3, -1)] == [
        DriverModel.WDDM,
        DriverModel.TCC,
        DriverModel.MCDM,
        DriverModel.UNKNOWN,
        DriverModel.UNKNOWN,
    ]
