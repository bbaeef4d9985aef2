"""Compiled kernels, kept on disk for each architecture, and loaded into the device."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stratadesk.kernels.cuda.compiler import (
    OPTIONS,
    Compiled,
    KernelReport,
    compile_source,
    compiler_version,
)
from stratadesk.kernels.cuda.device import translated
from stratadesk.kernels.cuda.loss import LOSS
from stratadesk.kernels.cuda.programs import Program

Progress = Callable[[int, int], None]
"""Told how many programs of how many are ready."""


class CubinStore:
    """Cubins in `folder`, named by a digest of all that they are made of.

    A file that is missing, torn or of another make is compiled again.
    """

    def __init__(self, folder: Path, arch: str) -> None:
        self._folder = folder
        self._arch = arch

    def has(self, program: Program) -> bool:
        """Whether `program` has been compiled before."""
        return self._path(program).is_file()

    def get(self, program: Program) -> Compiled:
        """The program's cubin, compiled now if need be.

        Raises:
            DeviceError: when it does not compile.
        """
        path = self._path(program)
        kept = _read(path)
        if kept is None:
            kept = compile_source(program.text(), program.name, self._arch, program.defines)
            _write(path, kept)
        return kept

    def _path(self, program: Program) -> Path:
        made_of = (
            program.name,
            program.text(),
            self._arch,
            *OPTIONS,
            *map(str, compiler_version()),
        )
        digest = hashlib.sha256("\0".join(made_of).encode()).hexdigest()
        return self._folder / f"{self._arch}-{digest[:32]}.cubin"


class Kernels:
    """The functions of all programs of a model, loaded into the current device.

    A kernel is named by its program's file and defines, and its own name.
    """

    def __init__(self) -> None:
        self._modules: dict[Program, Any] = {}
        self._functions: dict[tuple[Program, str], Any] = {}
        LOSS.watch(self)

    def load(self, programs: Sequence[Program], store: CubinStore, progress: Progress) -> None:
        """Compile `programs` on all cores and load them; those loaded already are left out.

        `progress` may raise to end it: what is being compiled is waited for, the rest is left.

        Raises:
            DeviceError: a program does not compile, or the driver refuses it.
        """
        from cupy.cuda.function import Module

        fresh = [program for program in programs if program not in self._modules]
        pool = ThreadPoolExecutor(os.cpu_count() or 1, "compiling")
        try:
            # What takes longest stands last; begun last, it would be waited for alone.
            compiling = {pool.submit(store.get, program): program for program in reversed(fresh)}
            progress(0, len(fresh))
            for done, compiled in enumerate(as_completed(compiling), 1):
                program, module = compiling[compiled], Module()
                cubin = compiled.result().cubin
                with translated(f"loading the kernels of {program.name}"):
                    module.load(cubin)
                self._modules[program] = module
                progress(done, len(fresh))
        finally:
            pool.shutdown(cancel_futures=True)

    def __call__(self, program: Program, name: str) -> Any:
        """The function `name` of `program`; KeyError when the program is not loaded."""
        if (program, name) not in self._functions:
            with translated(f"looking for the kernel {name}"):
                self._functions[program, name] = self._modules[program].get_function(name)
        return self._functions[program, name]


def _read(path: Path) -> Compiled | None:
    """What was kept: a JSON line with the kernels' reports and the cubin's digest, the cubin."""
    try:
        head, _, cubin = path.read_bytes().partition(b"\n")
        facts = json.loads(head)
        if facts["sha256"] != hashlib.sha256(cubin).hexdigest():
            return None
        return Compiled(cubin, tuple(KernelReport(**kernel) for kernel in facts["kernels"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, compiled: Compiled) -> None:
    """Keep a cubin; a folder that cannot be written costs compiling again, nothing else."""
    digest = hashlib.sha256(compiled.cubin).hexdigest()
    head = {"sha256": digest, "kernels": [asdict(kernel) for kernel in compiled.kernels]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(head).encode() + b"\n" + compiled.cubin)
        Path(name).replace(path)
    except OSError:
        return
