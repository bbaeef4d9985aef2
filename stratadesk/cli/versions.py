"""`--version` and `paths`: what is installed here and where files are kept."""

import argparse
import platform
from dataclasses import fields

from stratadesk import __version__
from stratadesk.exit_codes import ExitCode
from stratadesk.paths import folders

PACKAGES = {
    "NumPy": ("numpy",),
    "Numba": ("numba",),
    "CuPy": ("cupy-cuda12x", "cupy-cuda13x", "cupy"),
    "Textual": ("textual",),
}


def show_versions(arguments: argparse.Namespace) -> int:
    """Print the version, and with --verbose those of Python, the libraries and the driver."""
    print(f"stratadesk {__version__}")
    if arguments.verbose:
        rows = {"Python": platform.python_version()}
        rows |= {name: _installed(names) for name, names in PACKAGES.items()}
        rows["driver"] = driver_version()
        _print_rows(rows)
    return ExitCode.OK


def _installed(names: tuple[str, ...]) -> str:
    from importlib.metadata import PackageNotFoundError, version

    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "not installed"


def driver_version() -> str:
    """Return the NVIDIA driver's version and the CUDA version it serves, or why there is none."""
    try:
        import pynvml
    except ImportError:
        return "unknown: nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return "no driver"
    try:
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        return f"{pynvml.nvmlSystemGetDriverVersion()} (CUDA {cuda // 1000}.{cuda % 1000 // 10})"
    finally:
        pynvml.nvmlShutdown()


def show_paths(_: argparse.Namespace) -> int:
    """Print the folders of this user, whether they exist yet or not."""
    here = folders()
    _print_rows({field.name: str(getattr(here, field.name)) for field in fields(here)})
    return ExitCode.OK


def _print_rows(rows: dict[str, str]) -> None:
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:<{width}}  {value}")
