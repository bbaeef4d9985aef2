"""Compile the kernels for graphics cards that are not here, and look at what they need.

    python -m stratadesk.kernels.cuda.check [--all]

Without --all: every program for sm_75 and sm_120, and one format of each kind for the
architectures between. Fails on a compile error, on spills in a hot kernel, and on more shared
memory than the architecture gives a block.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count

from stratadesk.kernels.cuda import programs
from stratadesk.kernels.cuda.compiler import CompileError, KernelReport, compile_source

OUTER = ("sm_75", "sm_120")
INNER = ("sm_80", "sm_86", "sm_89", "sm_90")
SAMPLE = ("F16", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS", "IQ2_XXS", "IQ3_S", "IQ1_M", "MXFP4")
"""One format of each way of reading blocks."""

SHARED_LIMIT = 48 * 1024
"""Bytes of static shared memory that every architecture gives a block."""

COLD = ("router.cu", "sampling.cu")
"""Programs whose kernels may spill: they are short, or run once a token."""


def main(arguments: list[str] | None = None) -> int:
    """Check, print one line for each problem and a summary; 1 if there was a problem."""
    parser = argparse.ArgumentParser(prog="python -m stratadesk.kernels.cuda.check")
    parser.add_argument("--all", action="store_true", help="every program for every architecture")
    parser.add_argument("--verbose", action="store_true", help="print what each kernel needs")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    jobs = list(_jobs(everything=options.all))
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        found = list(pool.map(lambda job: check(*job), jobs))
    lines = [line for problems, _ in found for line in problems]
    if options.verbose:
        for (program, arch), (_, kernels) in zip(jobs, found, strict=True):
            for kernel in kernels:
                print(f"{arch} {program.name} {kernel}")
    print(*lines, sep="\n" if lines else "", end="\n" if lines else "")
    count, seconds = sum(len(kernels) for _, kernels in found), time.monotonic() - begun
    print(f"{count} kernels in {len(jobs)} programs compiled in {seconds:.0f} s.")
    return 1 if lines else 0


def check(program: programs.Program, arch: str) -> tuple[list[str], tuple[KernelReport, ...]]:
    """Compile one program; return what is wrong in words, and the kernels' reports."""
    try:
        compiled = compile_source(program.text(), program.name, arch, program.defines)
    except CompileError as error:
        return [f"{arch}: {error.sentence}"], ()
    problems = [] if compiled.kernels else [f"{arch}: {program.name}: nothing is told of kernels"]
    for kernel in compiled.kernels:
        where = f"{arch}: {program.name}: {kernel.name}"
        if kernel.spilled and program.file not in COLD:
            problems.append(f"{where} spills {kernel.spilled} bytes")
        if kernel.shared > SHARED_LIMIT:
            problems.append(f"{where} needs {kernel.shared} bytes of shared memory")
    return problems, compiled.kernels


def _jobs(*, everything: bool) -> Iterator[tuple[programs.Program, str]]:
    sample = programs.needed(SAMPLE, "F16")
    for arch in OUTER:
        yield from ((program, arch) for program in programs.everything())
    for arch in INNER:
        chosen = programs.everything() if everything else sample
        yield from ((program, arch) for program in chosen)


if __name__ == "__main__":
    sys.exit(main())
