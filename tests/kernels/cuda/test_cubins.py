"""Guards against a kept cubin that is torn, stale or of another card."""

import threading
from pathlib import Path

import pytest

from stratadesk.kernels.cuda import cubins
from stratadesk.kernels.cuda.compiler import Compiled, CompileError, KernelReport
from stratadesk.kernels.cuda.cubins import CubinStore, Kernels
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


class FakeModule:
    """A module of the driver's, which takes any cubin but an empty one."""

    def load(self, cubin: bytes) -> None:
        self.cubin = cubin

    def get_function(self, name: str) -> tuple[bytes, str]:
        return self.cubin, name


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cupy.cuda.function.Module", FakeModule)


PROGRAMS = tuple(Program("step.cu", (f"NUMBER={number}",)) for number in range(9))


@pytest.mark.usefixtures("driver")
def test_all_programs_are_compiled_told_and_loaded_once(
    tmp_path: Path, compilations: list[str]
) -> None:
    kernels, told = Kernels(), []
    store = CubinStore(tmp_path, "sm_75")
    kernels.load(PROGRAMS, store, lambda done, total: told.append((done, total)))
    assert told == [(done, 9) for done in range(10)]
    assert len(compilations) == 9
    assert kernels(PROGRAMS[3], "advance") == (b"cubin of sm_75", "advance")
    told.clear()
    kernels.load(PROGRAMS, store, lambda done, total: told.append((done, total)))
    assert told == [(0, 0)]


@pytest.mark.usefixtures("driver")
def test_whoever_is_told_may_end_it(tmp_path: Path, compilations: list[str]) -> None:
    def enough(done: int, total: int) -> None:
        if done == 2:
            raise InterruptedError

    kernels = Kernels()
    with pytest.raises(InterruptedError):
        kernels.load(PROGRAMS, CubinStore(tmp_path, "sm_75"), enough)
    assert sum(program in kernels._modules for program in PROGRAMS) == 2
    assert not [thread for thread in threading.enumerate() if "compiling" in thread.name]


@pytest.mark.usefixtures("driver")
def test_a_program_that_does_not_compile_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Compiled:
        raise CompileError("step.cu", "sm_75", "error: no")

    monkeypatch.setattr(cubins, "compile_source", refuse)
    with pytest.raises(CompileError):
        Kernels().load(PROGRAMS, CubinStore(tmp_path, "sm_75"), lambda done, total: None)
