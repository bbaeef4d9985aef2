"""Guards against checks of kernels that pass whatever a kernel computes."""

from collections.abc import Iterator

import pytest

from tests.gpu.mutations import MUTATIONS, Mutation
from tests.kernels.cuda.emulation.bench import EmulatedBench
from tests.kernels.cuda.emulation.kernels import COMPILER, library

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


@pytest.fixture(autouse=True)
def own_libraries() -> Iterator[None]:
    """No library of a changed program outlives its test, and none from before is taken for it."""
    library.cache_clear()
    yield
    library.cache_clear()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_changed_kernel_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.check(EmulatedBench())
    library.cache_clear()
    mutation.install(monkeypatch)
    with pytest.raises(AssertionError):
        mutation.check(EmulatedBench())
