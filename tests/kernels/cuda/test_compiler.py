"""Guards against kernels that only compile where they were written, and against lost reports."""

import pytest

from stratadesk.kernels.cuda import check, programs
from stratadesk.kernels.cuda.compiler import CompileError, compile_source, compiler_version

pytest.importorskip("cupy", reason="cupy-cuda12x is not made for this platform")


def test_the_compiler_knows_the_newest_cards() -> None:
    assert compiler_version() >= (12, 8)


def test_a_kernel_that_does_not_compile_is_one_sentence() -> None:
    with pytest.raises(CompileError) as caught:
        compile_source("__global__ void f() { missing(); }", "f.cu", "sm_75")
    assert "f.cu do not compile for sm_75" in caught.value.sentence
    assert 'identifier "missing" is undefined' in caught.value.sentence
    assert "\n" not in str(caught.value)


def test_reports_tell_registers_shared_memory_and_spills() -> None:
    source = """
    extern "C" __global__ void __launch_bounds__(1024, 1) greedy(float *x) {
        __shared__ float kept[64];
        float values[64];
        for (int i = 0; i < 64; ++i) values[i] = x[threadIdx.x + 1024 * i];
        kept[threadIdx.x % 64] = values[0];
        __syncthreads();
        for (int i = 0; i < 64; ++i) x[i] = values[i] * values[63 - i] + kept[i];
    }"""
    (report,) = compile_source(source, "greedy.cu", "sm_75").kernels
    assert (report.name, report.shared) == ("greedy", 256)
    assert 0 < report.registers <= 64
    assert report.spilled > 0


def test_the_check_names_a_kernel_that_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    hungry = """
    extern "C" __global__ void __launch_bounds__(1024, 1) hungry(float *x) {
        __shared__ float kept[96];
        float values[96];
        for (int i = 0; i < 96; ++i) values[i] = x[threadIdx.x + 1024 * i];
        kept[threadIdx.x % 96] = values[0];
        __syncthreads();
        for (int i = 0; i < 96; ++i) x[i] = values[i] * values[95 - i] + kept[i];
    }"""
    monkeypatch.setattr(programs.Program, "text", lambda program: hungry)
    problems, kernels = check.check(programs.weights("Q8_0"), "sm_75")
    assert [kernel.name for kernel in kernels] == ["hungry"]
    assert problems[0].startswith("sm_75: weights.cu FORMAT=Q8_0: hungry spills ")


@pytest.mark.parametrize("arch", check.OUTER)
@pytest.mark.parametrize("program", programs.everything(), ids=lambda program: program.name)
def test_every_program_compiles_for_the_oldest_and_newest_card(
    program: programs.Program, arch: str
) -> None:
    problems, kernels = check.check(program, arch)
    assert problems == []
    assert kernels


@pytest.mark.parametrize("arch", check.INNER)
@pytest.mark.parametrize(
    "program", programs.needed(check.SAMPLE, "F16"), ids=lambda program: program.name
)
def test_a_format_of_each_kind_compiles_for_the_cards_between(
    program: programs.Program, arch: str
) -> None:
    assert check.check(program, arch)[0] == []
