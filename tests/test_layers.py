"""Guards against a command line that takes seconds to say its version.

One import in the wrong place is enough: Textual, NumPy or Numba in the path of `--help`, or a
screen in the path of the engine. So fresh interpreters say what they have loaded.
"""

import os
import subprocess
import sys

import pytest

HEAVY = {"cupy", "gguf", "jinja2", "numba", "numpy", "rich", "textual", "tokenizers"}
LIGHT_MODULES = (
    "stratadesk.cli",
    "stratadesk.errors",
    "stratadesk.exit_codes",
    "stratadesk.keys",
    "stratadesk.logs",
    "stratadesk.paths",
    "stratadesk.settings",
    "stratadesk.settings_file",
    "stratadesk.settings_order",
    "stratadesk.units",
)
INSTANT = (["--version"], ["--help"], ["run", "--help"], ["logits", "--help"])


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after running `code`."""
    probe = f"{code}\nimport sys\nprint('loaded', *{{m.partition('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True)
    return set(done.stdout.decode().rpartition("loaded ")[2].split())


@pytest.mark.parametrize("arguments", INSTANT, ids=" ".join)
def test_help_and_version_load_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "from stratadesk.cli import main\n"
        f"try:\n    main({arguments!r})\n"
        "except SystemExit:\n    pass\n"
    )
    assert loaded_by(code) & HEAVY == set()


@pytest.mark.parametrize("arguments", INSTANT, ids=" ".join)
def test_help_and_version_are_instant(arguments: list[str]) -> None:
    """The quickest of ten counts, in seconds of the processor: a busy machine measures itself."""
    seconds = []
    for _ in range(10):
        before = os.times()
        command = [sys.executable, "-m", "stratadesk", *arguments]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        user = after.children_user - before.children_user
        seconds.append(user + after.children_system - before.children_system)
    assert min(seconds) < 0.3


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_light_modules_need_only_the_standard_library(module: str) -> None:
    added = loaded_by(f"import {module}") - loaded_by("pass")
    assert added - {"stratadesk"} <= sys.stdlib_module_names


@pytest.mark.parametrize("module", ["stratadesk.engine", "stratadesk.engine.loop"])
def test_the_engine_loads_no_screen_and_no_gpu(module: str) -> None:
    assert loaded_by(f"import {module}") & {"cupy", "rich", "textual"} == set()
