"""Fixtures of the memory tests: the shape of a real model, and kernels on one thread."""

from collections.abc import Iterator

import numba
import pytest

from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.vram.shape import (
    ModelShape,
)
from stratadesk.engine.vram.shape_reader import read_shape
from tests.vram.model_headers import Sizes, write_header_only


@pytest.fixture(scope="module")
def shape_35b(tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    """The 35B-A3B shape with its MTP block, read from a file that is all header."""
    folder = tmp_path_factory.mktemp("headers")
    path = write_header_only(folder / "35b.gguf", Sizes(draft=1, merges=1))
    with GgufFile.open(path) as gguf:
        return read_shape(gguf)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread for kernels: such small ones are ten times slower on two busy processors."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(before)
