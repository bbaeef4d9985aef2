"""Runs the CUDA sources on the CPU, so that what kernels compute is tested without a card.

Each program is compiled by the C++ compiler that is here, with `machine.h` in place of
machine.cuh, and its kernels are called through `ctypes` with the arguments of a launch.
"""

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cupy.cuda import runtime

from stratadesk.kernels.cuda.programs import Program
from tests.shared_compiling import compiling

HERE = Path(__file__).parent
FOLDER = Path(tempfile.gettempdir()) / f"stratadesk-emulated-{os.getuid()}"
FIRST_OF_HEADER, FIRST_BEHIND_HEADER = (
    "// Types, and the few instructions",
    "constexpr u32 ALL_LANES",
)
COMPILER = shutil.which("g++") or shutil.which("clang++")
# A card refuses loads that are not aligned, and says nothing of an index beyond an array: here both
# end the process.
CHECKS = (
    "-fsanitize=alignment,bounds,shift,integer-divide-by-zero",
    "-fsanitize-undefined-trap-on-error",
)
OPTIONS = (
    *("-std=c++17", "-O1", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"),
    *("-U_FORTIFY_SOURCE", "-w", "-fvisibility=hidden", "-fno-gnu-unique", *CHECKS),
)
_KERNEL = re.compile(r"__attribute__\(\(used\)\)\s+void\s+(\w+)\(([^)]*)\)")


@cache
def library(program: Program) -> ctypes.CDLL:
    """The program's kernels; compiled once a machine and source."""
    text = program.text()
    # The real header is cut out: it stands between its first line and the next header's.
    begin, end = text.index(FIRST_OF_HEADER), text.index(FIRST_BEHIND_HEADER)
    source = f'{text[:begin]}#include "{HERE / "machine.h"}"\n{text[end:]}'
    parts = (source, (HERE / "machine.h").read_text(), *OPTIONS, *program.defines)
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]
    built = FOLDER / f"{digest}.so"
    if not built.exists():
        with compiling(built.with_suffix(".lock")), tempfile.TemporaryDirectory(dir=FOLDER) as made:
            if not built.exists():
                _compile(source, program.defines, Path(made)).replace(built)
    return ctypes.CDLL(str(built))


def _compile(source: str, defines: Sequence[str], folder: Path) -> Path:
    assert COMPILER is not None
    file, out = folder / "kernels.cpp", folder / "kernels.so"
    command = [COMPILER, *OPTIONS, *(f"-D{define}" for define in defines)]
    file.write_text(source)
    expanded = subprocess.run(
        [*command, "-E", "-P", str(file)], check=True, capture_output=True, text=True
    ).stdout
    file.write_text(expanded + "\n".join(map(_wrapper, _KERNEL.findall(expanded))))
    whole = [*command, str(file), "-o", str(out)]
    done = subprocess.run(whole, check=False, capture_output=True, text=True)
    assert not done.returncode, done.stderr[:3000]
    return out


def _wrapper(kernel: tuple[str, str]) -> str:
    """A function that takes the grid and an array of 8-byte arguments."""
    name, parameters = kernel
    kinds = [re.sub(r"\s*\w+\s*$", "", part.strip()) for part in parameters.split(",")]
    passed = (f"*reinterpret_cast<{kind} *>(arguments + {i})" for i, kind in enumerate(kinds))
    seen = '__attribute__((visibility("default")))'
    return (
        f"static void call_{name}() {{ {name}({', '.join(passed)}); }}\n"
        f'extern "C" {seen} void run_{name}(u32 x, u32 y, u32 z, int threads, u64 *a) {{'
        f"run_grid({{x, y, z}}, threads, call_{name}, a); }}\n"
    )


class EmulatedStream:
    """Runs at once what is launched on it, or notes it for a graph.

    One that is `late` keeps everything back until another stream waits for it. With `failing`, a
    CUDA status, all that is asked of it fails.
    """

    ptr = 0

    def __init__(self, *, late: bool = False) -> None:
        self.late = late
        self.noted: list[Any] | None = [] if late else None
        self.failing = 0

    def synchronize(self) -> None:
        """Everything has been done already."""
        if self.failing:
            raise runtime.CUDARuntimeError(self.failing)

    def record(self) -> "EmulatedStream":
        """An event that happens once all launched so far is done."""
        return self

    def wait_event(self, event: "EmulatedStream") -> None:
        """Let what comes next come behind an event."""
        if not event.late or event is self:
            return
        kept, event.noted = event.noted or [], []
        for launch in kept:
            if self.noted is None:
                launch()
            else:
                self.noted.append(launch)

    def begin_capture(self) -> None:
        """Note launches from here on."""
        self.noted = []

    def end_capture(self) -> "EmulatedGraph":
        """What was noted, to be launched."""
        noted, self.noted = self.noted, None
        assert noted is not None
        return EmulatedGraph(noted)


class EmulatedGraph:
    """Launches one behind the other."""

    def __init__(self, launches: Sequence[Any]) -> None:
        self._launches = launches

    def launch(self, stream: EmulatedStream) -> None:
        """Run them."""
        stream.synchronize()
        for launch in self._launches:
            launch()


class EmulatedKernels:
    """Stands in for `cubins.Kernels`."""

    def __call__(self, program: Program, name: str) -> Any:
        """The kernel, called as CuPy's functions are."""
        loaded = library(program)
        run = getattr(loaded, f"run_{name}")

        def call(grid: tuple[int, ...], block: tuple[int], arguments: Any, *, stream: Any) -> None:
            words = (ctypes.c_uint64 * len(arguments))()
            for i, value in enumerate(arguments):
                raw = np.asarray(value).tobytes()
                ctypes.memmove(ctypes.addressof(words) + 8 * i, raw, len(raw))
            size = (*grid, 1, 1)[:3]
            if stream.noted is not None:
                stream.noted.append(lambda: run(*size, *block, words))
            else:
                run(*size, *block, words)

        return call
