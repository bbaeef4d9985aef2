"""Write requirements.lock and requirements-dev.lock from pyproject.toml, with hashes.

Usage: python tools/lock.py [--upgrade]

Needs uv (`pip install uv`). Without --upgrade, versions already locked are kept. The files name
no package index, so they install from whichever one pip is set up for.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = (
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-header",
    "--quiet",
)


def compile_lock(uv: str, output: str, *options: str) -> None:
    """Compile pyproject.toml into the lock file `output`, or exit with uv's status."""
    command = [uv, "pip", "compile", "pyproject.toml", "-o", output, *OPTIONS, *options]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status:
        sys.exit(status)


def main() -> None:
    """Write both lock files; the second keeps to the versions of the first."""
    parser = argparse.ArgumentParser(description="Lock the dependencies with hashes.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("Locking needs uv, which is not on the path. Install it: pip install uv")
    compile_lock(uv, "requirements.lock", "--group=build", *upgrade)
    compile_lock(uv, "requirements-dev.lock", "--group=dev", "-c", "requirements.lock", *upgrade)


if __name__ == "__main__":
    main()
