"""Guards against a card that is lost for as long as the program runs.

A kernel that reads where nothing is loses the card. It does so in a process of its own: what is
left of a context is nobody else's then.
"""

import subprocess
import sys
from typing import Any

from stratadesk.kernels.cuda.tensors import DeviceTensor
from tests.conftest import DATA_DIR
from tests.gpu.losing import lose_and_load_again, on_card

NOWHERE = 1 << 32


def test_a_model_is_loaded_again_on_a_card_that_was_lost() -> None:
    done = subprocess.run(
        [sys.executable, "-m", __name__], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as before" in done.stdout


def lose(model: Any) -> None:
    """Read an address that is not mapped."""
    from cupy.cuda import runtime

    runtime.setDevice(0)
    ops, nowhere = model.contents.ops, DeviceTensor(NOWHERE, (1, 64))
    ops.copy(nowhere, nowhere)
    ops.flush()


def main() -> None:
    """Lose the card and get it back."""
    path = next((DATA_DIR / "models").glob("qwen3moe*.gguf"))
    lose_and_load_again(path, on_card(), lose, lambda model: model.contents.device.free())
    print("as before")


if __name__ == "__main__":
    main()
