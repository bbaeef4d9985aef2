"""Guards against checks of kernels that pass whatever a kernel computes on the card."""

from pathlib import Path
from typing import Any

import pytest

from stratadesk.kernels.cuda.cubins import CubinStore, Kernels
from stratadesk.kernels.cuda.programs import Program
from tests.gpu.bench import Bench
from tests.gpu.mutations import MUTATIONS, Mutation


class WhenCalled(Kernels):
    """Compiles a program when a kernel of it is asked for."""

    def __init__(self, store: CubinStore) -> None:
        super().__init__()
        self._store = store

    def __call__(self, program: Program, name: str) -> Any:
        self.load([program], self._store, lambda done, total: None)
        return super().__call__(program, name)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_changed_kernel_is_noticed(
    mutation: Mutation, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation.check(bench)
    mutation.install(monkeypatch)
    changed = Bench(WhenCalled(CubinStore(tmp_path, bench.device.arch)))
    try:
        with pytest.raises(AssertionError):
            mutation.check(changed)
    finally:
        changed.close()
