"""Guards against a card that stays lost, and against what dies noisily with it.

A kernel that reads where nothing is loses the card. It does so in a process of its own, which then
ends, or starts itself again as the program does.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from stratadesk.cli.handover_file import VARIABLE, take_handover, write_handover
from stratadesk.cli.start_again import STARTING, start_again
from stratadesk.engine.commands import SamplingSettings
from stratadesk.kernels.cuda.tensors import DeviceTensor
from stratadesk.logs import start_logging
from stratadesk.settings_schema import InterfaceSettings
from stratadesk.tui.handover import ChatRecord, Handover, Written
from tests.conftest import DATA_DIR
from tests.gpu.losing import lose_for_good, on_card, tokens_in_peace

NOWHERE = 1 << 32
START_AGAIN = "start again"


def lost_by(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run this module: it loses the card."""
    command = [sys.executable, "-m", __name__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_a_process_that_has_lost_its_card_ends_without_a_word() -> None:
    done = lost_by()
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.startswith("lost by ")


def test_the_program_in_its_place_computes_what_was_computed_before() -> None:
    done = lost_by(START_AGAIN)
    assert (done.returncode, done.stderr) == (0, f"{STARTING}\n"), done.stdout
    lost, again = done.stdout.splitlines()
    assert lost.startswith("lost by ")
    assert again == lost.replace("lost by", "as before by")


def lose(model: Any) -> None:
    """Read an address that is not mapped."""
    from cupy.cuda import runtime

    runtime.setDevice(0)
    ops, nowhere = model.contents.ops, DeviceTensor(NOWHERE, (1, 64))
    ops.copy(nowhere, nowhere)
    ops.flush()


def main() -> None:
    """Lose the card, or answer as before when that has been done."""
    start_logging()
    path = next((DATA_DIR / "models").glob("qwen3moe*.gguf"))
    if VARIABLE in os.environ:
        answer_as_before(path)
        return
    wanted = lose_for_good(path, on_card(), lose)
    print("lost by", os.getpid(), flush=True)
    if START_AGAIN in sys.argv:
        chat = ChatRecord(draft=Written(repr(tuple(wanted))))
        handover = Handover(str(path), on_card(), SamplingSettings(), InterfaceSettings(), chat)
        start_again(write_handover(handover))


def answer_as_before(path: Path) -> None:
    """Compare with the tokens that were handed over."""
    handover = take_handover()
    assert handover is not None
    found = tokens_in_peace(path, handover.settings)
    assert repr(found) == handover.chat.draft.typed
    print("as before by", os.getpid())


if __name__ == "__main__":
    main()
