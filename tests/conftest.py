"""Fixtures every test may use: small golden files, the golden folder, a home of its own."""

import os
from pathlib import Path

import pytest

from stratadesk.kernels.host import compile_cache

DATA_DIR = Path(__file__).parent / "data"

# Each test has a home of its own, but compiled kernels are kept between tests and runs, under a
# digest of their sources: a changed decoder must never be tested by what was compiled before.
compile_cache.configure(Path(__file__).parents[1] / ".numba_cache")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let screenshots be accepted as they are now."""
    parser.addoption(
        "--update-goldens", action="store_true", help="write the SVG goldens of the screens anew"
    )


def golden_folder() -> Path | None:
    """The folder named by STRATADESK_GOLDEN, or None when it is unset."""
    value = os.environ.get("STRATADESK_GOLDEN")
    return Path(value) if value else None


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
    """A StrataDesk home for this test alone, except the kernel cache, which all share."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("STRATADESK_HOME", str(home))
    return home
