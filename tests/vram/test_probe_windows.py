"""Guards against Windows readers that read the wrong field, card or process, or leak.

One method index or one byte of layout off, and the budget is a pointer; a card guessed among
two, and the figures are of the other one. Nothing here has run on Windows: the libraries are
stand-ins made of C callbacks (`fake_windows.py`).
"""

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest

from stratadesk.engine.vram.dxgi_source import AdapterDescription, DxgiSource, MemoryInfo
from stratadesk.engine.vram.pdh_source import CounterItem, PdhSource
from stratadesk.engine.vram.readings import ProgramUse, Source
from stratadesk.engine.vram.sources import Unavailable
from stratadesk.engine.vram.windows_abi import Guid, load_library, read_wide, wide
from stratadesk.units import MIB
from tests.vram.fake_windows import NO_DATA, OK, REMOVED, FakeDxgi, FakePdh, load_lines

LUID = 0xD1E5


@pytest.fixture
def dxgi(data_dir: Path) -> FakeDxgi:
    return FakeDxgi(load_lines(data_dir / "probe" / "dxgi_adapters.jsonl"))


@pytest.fixture
def pdh(data_dir: Path) -> FakePdh:
    return FakePdh(load_lines(data_dir / "probe" / "pdh_counters.jsonl"))


def names(pid: int) -> str | None:
    return {1480: "dwm.exe", 4242: "chrome.exe", 9001: "python.exe"}.get(pid)


def test_dxgi_reads_the_budget_of_the_nvidia_card(dxgi: FakeDxgi) -> None:
    source = DxgiSource(load=lambda: dxgi)
    figure = source.read()
    assert (figure.source, figure.why) == (Source.DXGI, "")
    assert (figure.total, figure.budget) == (7957 * MIB, 7181 * MIB)
    assert (figure.own, figure.own_shared) == (6886 * MIB, 212 * MIB)
    assert (figure.free, figure.headroom) == (None, 295 * MIB)
    assert source.find_luid() == LUID


def test_dxgi_finds_the_card_by_the_luid_that_cuda_tells(dxgi: FakeDxgi) -> None:
    dxgi.lines[0] = {**dxgi.lines[1], "luid": "0x000000070000beef", "budget": 5 * MIB, "usage": MIB}
    assert DxgiSource(0x7_0000_BEEF, lambda: dxgi).read().headroom == 4 * MIB
    assert DxgiSource(LUID, lambda: dxgi).read().headroom == 295 * MIB
    assert DxgiSource(1, lambda: dxgi).read().why == "DXGI lists no such NVIDIA adapter"


def test_dxgi_does_not_guess_among_two_cards(dxgi: FakeDxgi) -> None:
    dxgi.lines[0] = {**dxgi.lines[1], "luid": "0x2"}
    figure = DxgiSource(load=lambda: dxgi).read()
    assert (figure.headroom, figure.why) == (
        None,
        "2 NVIDIA adapters, and nobody said which one",
    )
    assert dxgi.references == 0


def test_dxgi_gives_back_every_reference_and_opens_again(dxgi: FakeDxgi) -> None:
    source = DxgiSource(load=lambda: dxgi)
    for _ in range(3):
        source.read()
    assert dxgi.references == 1
    source.close()
    source.close()
    assert dxgi.references == 0
    assert source.read().headroom == 295 * MIB


def test_dxgi_of_a_removed_card_is_a_reason_and_comes_back(dxgi: FakeDxgi) -> None:
    source = DxgiSource(load=lambda: dxgi)
    source.read()
    dxgi.status = REMOVED
    figure = source.read()
    assert (figure.headroom, figure.why) == (None, "QueryVideoMemoryInfo failed with 0x887A0005")
    assert dxgi.references == 0
    dxgi.status = OK
    assert source.read().headroom == 295 * MIB


def test_dxgi_of_an_old_windows_is_a_reason(dxgi: FakeDxgi) -> None:
    dxgi.lines[1]["old"] = True
    assert DxgiSource(load=lambda: dxgi).read().why == "IDXGIAdapter3 failed with 0x80004002"
    assert dxgi.references == 0
    without = DxgiSource(load=SimpleNamespace)
    assert without.read().why == "this Windows has no CreateDXGIFactory1"


def test_dxgi_usage_above_the_budget_leaves_nothing(dxgi: FakeDxgi) -> None:
    dxgi.lines[1]["budget"] = 6000 * MIB
    assert DxgiSource(load=lambda: dxgi).read().headroom == 0


def test_pdh_reads_every_process_of_this_card_only(pdh: FakePdh) -> None:
    found = PdhSource(lambda: LUID, pdh.library, names).read_programs()
    assert (found.source, found.why) == (Source.PDH, "")
    assert found.programs == (
        ProgramUse(1480, "dwm.exe", 311 * MIB, 24 * MIB),
        ProgramUse(4242, "chrome.exe", 518 * MIB, 77 * MIB),
        ProgramUse(6120, None, 0, 0),
        ProgramUse(9001, "python.exe", 6886 * MIB, 212 * MIB),
    )
    assert sorted(pdh.paths.values()) == [
        r"\GPU Process Memory(*)\Dedicated Usage",
        r"\GPU Process Memory(*)\Shared Usage",
    ]


def test_pdh_sees_processes_that_come_and_go_with_one_query(pdh: FakePdh) -> None:
    source = PdhSource(lambda: LUID, pdh.library, names)
    source.read_programs()
    pdh.lines = pdh.lines[:1]
    found = source.read_programs()
    assert found.programs == (ProgramUse(1480, "dwm.exe", 311 * MIB, 24 * MIB),)
    assert pdh.queries == 1
    source.close()
    source.close()
    assert pdh.queries == 0


def test_pdh_copes_with_a_list_that_grows_while_it_is_read(pdh: FakePdh) -> None:
    pdh.growing = 3
    found = PdhSource(lambda: LUID, pdh.library, names).read_programs()
    assert found.programs is not None
    assert len(found.programs) == 4
    pdh.growing = 100
    found = PdhSource(lambda: LUID, pdh.library, names).read_programs()
    assert (found.programs, found.why) == (
        None,
        "the list of processes grew 4 times while it was read",
    )


def test_pdh_without_data_or_card_is_a_reason_and_closes_the_query(pdh: FakePdh) -> None:
    pdh.status = NO_DATA
    found = PdhSource(lambda: LUID, pdh.library, names).read_programs()
    assert (found.programs, found.why) == (None, "PdhCollectQueryData failed with 0x800007D5")
    assert pdh.queries == 0

    def unknown() -> int:
        raise Unavailable("no such card")

    assert PdhSource(unknown, pdh.library, names).read_programs().why == "no such card"


def test_pdh_with_no_process_at_all_is_an_empty_list_and_not_unknown(pdh: FakePdh) -> None:
    pdh.lines = []
    assert PdhSource(lambda: LUID, pdh.library, names).read_programs().programs == ()


@pytest.mark.skipif(hasattr(ctypes, "WinDLL"), reason="Windows has these libraries")
def test_elsewhere_than_on_windows_both_say_so() -> None:
    assert DxgiSource().read().why == "dxgi exists on Windows only"
    assert PdhSource(lambda: LUID).read_programs().why == "pdh exists on Windows only"
    with pytest.raises(Unavailable):
        load_library("dxgi")


def test_structures_have_the_sizes_of_the_64_bit_headers() -> None:
    sizes = [ctypes.sizeof(kind) for kind in (AdapterDescription, MemoryInfo, CounterItem, Guid)]
    assert sizes == [312, 32, 24, 16]


@pytest.mark.parametrize("text", ["", "pid_1", "ß €", "䄀Ā", "😀"])
def test_wide_strings_survive(text: str) -> None:
    assert read_wide(ctypes.addressof(wide(text))) == text
