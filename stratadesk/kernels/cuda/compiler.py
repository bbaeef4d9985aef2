"""From CUDA C++ to a cubin, without a driver: NVRTC, and what its assembler says of each kernel."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest

from stratadesk.errors import DeviceError

OPTIONS = ("--std=c++17", "--ptxas-options=-v", "--extra-device-vectorization")
"""Given to every compilation. Not fast math: kernels agree with the host to its tolerance."""

OLDEST = 75
"""Compute capability 7.5 (Turing) is the oldest that kernels are written for."""

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class KernelReport:
    """What a kernel needs: registers a thread, static shared memory and spills in bytes."""

    name: str
    registers: int
    shared: int
    stack: int
    spilled: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A cubin for one architecture, and a report for each of its kernels.

    There are none where NVRTC (13 and newer) took the cubin from its own cache.
    """

    cubin: bytes
    kernels: tuple[KernelReport, ...]


class CompileError(DeviceError):
    """A kernel's source did not compile; `log` has the compiler's words."""

    def __init__(self, name: str, arch: str, log: str) -> None:
        first = next((line for line in log.splitlines() if "error" in line), "no reason given")
        super().__init__(
            f"The kernels in {name} do not compile for {arch}: {first.strip()}",
            "Update StrataDesk, or use --device host.",
        )
        self.log = log


@cache
def compiler_version() -> tuple[int, int]:
    """Major and minor version of NVRTC.

    Raises:
        DeviceError: when it is not installed or does not load.
    """
    try:
        from cupy.cuda import nvrtc

        major, minor = nvrtc.getVersion()
    except (ImportError, OSError, RuntimeError) as missing:
        raise DeviceError(
            f"The CUDA compiler library NVRTC cannot be loaded: {str(missing).splitlines()[0]}",
            "Install StrataDesk again with its CUDA parts, or use --device host.",
        ) from None
    return int(major), int(minor)


def compile_source(source: str, name: str, arch: str, defines: Sequence[str] = ()) -> Compiled:
    """Compile `source` (whole, no includes) for `arch`, such as "sm_89".

    `defines` are "NAME=VALUE". `name` is what the compiler's messages call the source.

    Raises:
        CompileError: with the first error.
        DeviceError: when NVRTC cannot be loaded.
    """
    compiler_version()
    from cupy.cuda import nvrtc

    options = [f"--gpu-architecture={arch}", *OPTIONS, *(f"--define-macro={d}" for d in defines)]
    program = nvrtc.createProgram(source, name, [], [])
    try:
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError:
            raise CompileError(name, arch, nvrtc.getProgramLog(program)) from None
        return Compiled(nvrtc.getCUBIN(program), read_report(nvrtc.getProgramLog(program)))
    finally:
        nvrtc.destroyProgram(program)


def read_report(log: str) -> tuple[KernelReport, ...]:
    """The reports in the assembler's log, one for each entry function.

    >>> read_report('''ptxas info : Compiling entry function 'f' for 'sm_75'
    ... ptxas  .  16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
    ... ptxas info : Used 40 registers, used 1 barriers, 128 bytes smem''')
    (KernelReport(name='f', registers=40, shared=128, stack=16, spilled=12),)
    """
    reports = []
    entries = list(_ENTRY.finditer(log))
    for entry, following in zip_longest(entries, entries[1:]):
        part = log[entry.end() : following.start() if following else len(log)]
        spills, registers, shared = (p.search(part) for p in (_SPILLS, _REGISTERS, _SHARED))
        stack, stores, loads = map(int, spills.groups()) if spills else (0, 0, 0)
        reports.append(
            KernelReport(
                entry.group(1),
                int(registers.group(1)) if registers else 0,
                int(shared.group(1)) if shared else 0,
                stack,
                stores + loads,
            )
        )
    return tuple(reports)
