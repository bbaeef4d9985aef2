"""A run of the checks that ends in pages about its own end hides what it had found."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

WORKER = """
import time
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("a worker complains", flush=True)
"""
CHECK = f"""
import subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", {WORKER!r}])
print("the check has begun", flush=True)
try:
    worker.wait()
except KeyboardInterrupt:
    print("the check complains", flush=True)
"""
DEV = f"""
import sys
from tools import dev
dev.prepare = lambda command: None
dev.tool = lambda name: sys.executable
dev.CHECKS = (("python", "-c", {CHECK!r}), ("python", "-c", "print('the next one')"))
sys.argv = ["dev.py", "test"]
sys.exit(dev.main())
"""


@pytest.mark.skipif(os.name == "nt", reason="a group of processes cannot be interrupted alone")
@pytest.mark.parametrize("ending", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_checks_that_are_stopped_end_in_one_line_and_leave_nothing_behind(ending: str) -> None:
    running = subprocess.Popen(
        [sys.executable, "-c", DEV],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert running.stdout is not None
    try:
        # What is run is printed before, and has the same words.
        while (line := running.stdout.readline()) != "the check has begun\n":
            assert line, "it ended before the check began"
        os.killpg(running.pid, getattr(signal, ending))
        # The pipe ends only when nobody holds it any more, the worker included.
        said, _ = running.communicate(timeout=30)
    finally:
        running.kill()
    assert said == "\nStopped.\n"
    assert running.returncode == 130
