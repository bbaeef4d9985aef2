"""Tests on a graphics card: skipped where there is none; golden files from STRATADESK_GOLDEN."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratadesk.kernels.cuda.cubins import Kernels
from tests.conftest import DATA_DIR, golden_folder
from tests.goldens import Golden, names_with
from tests.gpu.bench import Bench, all_kernels


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/gpu" in item.nodeid:
            item.add_marker(pytest.mark.gpu)


def card_is_missing() -> str:
    """Why no card can be used, empty when one can."""
    from stratadesk.errors import StrataDeskError
    from stratadesk.kernels.cuda.device import open_device

    try:
        open_device()
    except StrataDeskError as error:
        return error.sentence
    return ""


@pytest.fixture(scope="session", autouse=True)
def card() -> None:
    missing = card_is_missing()
    if missing:
        pytest.skip(missing)


def golden_models() -> list[Golden]:
    """Golden models that the card computes, of STRATADESK_GPU_GOLDENS (names) if it is set."""
    from stratadesk.kernels.cuda.ops import SUPPORTED
    from stratadesk.kernels.cuda.programs import FORMATS

    folder = golden_folder() or DATA_DIR
    here = {path.stem for path in (folder / "models").glob("*.gguf")}
    asked = set(os.environ.get("STRATADESK_GPU_GOLDENS", "").split())
    names = names_with(folder, set(SUPPORTED), set(FORMATS))
    return [Golden(folder, name) for name in names if name in here and name in (asked or here)]


def kernel_folder() -> Path:
    """Where tests keep cubins."""
    return Path(__file__).parents[2] / ".cubins"


@pytest.fixture(scope="session")
def kernels(card: None) -> Kernels:
    return all_kernels(kernel_folder())


@pytest.fixture
def bench(kernels: Kernels) -> Iterator[Bench]:
    opened = Bench(kernels)
    yield opened
    opened.close()
