"""Fixtures every test may use: small golden files, the golden folder, a home of its own."""

import gc
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from stratadesk.kernels.host import compile_cache
from stratadesk.models.guide import VARIABLE, guide_path
from tests.shared_compiling import share_kernels

DATA_DIR = Path(__file__).parent / "data"

# Each test has a home of its own, but compiled kernels are kept between tests and runs, under a
# digest of their sources: a changed decoder must never be tested by what was compiled before.
compile_cache.configure(Path(__file__).parents[1] / ".numba_cache")
if "PYTEST_XDIST_WORKER" in os.environ:
    share_kernels()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let screenshots be accepted as they are now."""
    parser.addoption(
        "--update-goldens", action="store_true", help="write the SVG goldens of the screens anew"
    )


def golden_folder() -> Path | None:
    """The folder named by STRATADESK_GOLDEN, or None when it is unset."""
    value = os.environ.get("STRATADESK_GOLDEN")
    return Path(value) if value else None


def pytest_collection() -> None:
    """Collect no garbage while tests are found: nearly all that is made stays until the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Have garbage collections pass over the tests: 400,000 objects."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def collected() -> None:
    """Let the app under test collect its garbage."""


@pytest.fixture(autouse=True)
def uncollected(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep apps from collecting garbage by themselves, but for tests that want it `collected`.

    Each would visit what all tests have left, and undo the freeze of the whole run.
    """
    if "collected" in request.fixturenames:
        return
    calls = {"collect": int, "freeze": int, "unfreeze": int}
    usual = {"get_threshold": gc.get_threshold, "set_threshold": gc.set_threshold}
    monkeypatch.setattr("stratadesk.tui.pauses.gc", SimpleNamespace(**calls, **usual))


@pytest.fixture
def data_dir() -> Path:
    """Small copies of golden files that travel with the tests."""
    return DATA_DIR


@pytest.fixture
def golden_dir() -> Path:
    """The complete golden folder; tests that need it are skipped where it is not."""
    folder = golden_folder()
    if folder is None:
        pytest.skip("STRATADESK_GOLDEN is not set: the full golden folder is not here")
    return folder


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A StrataDesk home for this test alone, except the kernel cache, which all share.

    No guide comes with the program there: see `guide` and `tiny_guide`.
    """
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("STRATADESK_HOME", str(home))
    monkeypatch.setenv(VARIABLE, "")
    return home


@pytest.fixture
def guide(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The guide that comes with the program; tests that need it are skipped where it is not."""
    path = guide_path({})
    if path is None:
        pytest.skip("assets/guide.gguf is not here: this checkout comes without the guide")
    monkeypatch.setenv(VARIABLE, str(path))
    return path


@pytest.fixture
def tiny_guide(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small golden model in the place of the guide."""
    path = data_dir / "models" / "qwen3moe-iq4_xs.gguf"
    monkeypatch.setenv(VARIABLE, str(path))
    return path
