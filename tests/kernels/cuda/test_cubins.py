"""Guards against a kept cubin that is torn, stale or of another card."""

from pathlib import Path

import pytest

from stratadesk.kernels.cuda import cubins
from stratadesk.kernels.cuda.compiler import Compiled, KernelReport
from stratadesk.kernels.cuda.cubins import CubinStore
from stratadesk.kernels.cuda.programs import Program

pytest.importorskip("cupy", reason="cupy-cuda12x is not made for this platform")
STEP = Program("step.cu")


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was compiled, with a compiler that is quick."""
    seen: list[str] = []

    def compiled(source: str, name: str, arch: str, defines: tuple[str, ...]) -> Compiled:
        seen.append(arch)
        return Compiled(b"cubin of " + arch.encode(), (KernelReport("advance", 8, 0, 0, 0),))

    monkeypatch.setattr(cubins, "compile_source", compiled)
    return seen


def test_a_program_is_compiled_once_for_each_card(tmp_path: Path, compilations: list[str]) -> None:
    first = CubinStore(tmp_path / "kept", "sm_75").get(STEP)
    assert CubinStore(tmp_path / "kept", "sm_75").get(STEP) == first
    assert CubinStore(tmp_path / "kept", "sm_120").get(STEP) != first
    assert compilations == ["sm_75", "sm_120"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_damaged_file_is_compiled_again(
    damage: str, tmp_path: Path, compilations: list[str]
) -> None:
    store = CubinStore(tmp_path, "sm_75")
    kept = store.get(STEP)
    (path,) = tmp_path.glob("*.cubin")
    whole = path.read_bytes()
    damaged = {
        "cut": whole[:-3],
        "flipped": whole[:-1] + bytes([whole[-1] ^ 1]),
        "empty": b"",
        "other": b"[]\n",
    }
    path.write_bytes(damaged[damage])
    assert store.get(STEP) == kept
    assert path.read_bytes() == whole
    assert len(compilations) == 2


def test_a_folder_that_cannot_be_written_costs_no_more_than_time(
    tmp_path: Path, compilations: list[str]
) -> None:
    (tmp_path / "file").touch()
    store = CubinStore(tmp_path / "file", "sm_75")
    assert store.get(STEP) == store.get(STEP)
    assert len(compilations) == 2


def test_a_changed_source_is_compiled_anew(
    tmp_path: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CubinStore(tmp_path, "sm_75")
    store.get(STEP)
    monkeypatch.setattr(Program, "text", lambda program: "// changed")
    store.get(STEP)
    assert len(compilations) == 2
