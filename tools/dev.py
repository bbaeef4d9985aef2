"""Set StrataDesk up in .venv and start it or run its checks; needs only Python and pip.

Usage:
    python tools/dev.py start [arguments of stratadesk ...]
    python tools/dev.py test [arguments of pytest ...]

The first run installs the locked dependencies (about 1 GB with the CUDA parts); later runs
install again only when a lock file or pyproject.toml has changed.
"""

import contextlib
import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
OLDEST, NEWEST = (3, 11), (3, 14)
STOPS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
LOCKS = {"start": "requirements.lock", "test": "requirements-dev.lock"}
WORKERS = min((os.cpu_count() or 1) + 1, 4)
"""Processes that run tests, one more than cores: tests of the screen wait a fifth of the time."""
CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports",),
    ("pytest", "-n", str(WORKERS), "--dist", "worksteal"),
)
INTERRUPTED = 130
"""The exit status of what Ctrl+C has ended."""

PATIENCE_S = 5.0
"""Seconds that a check has to end before it is killed."""


def main() -> int:
    """Run the command named on the command line and return its exit status."""
    if len(sys.argv) < 2 or sys.argv[1] not in LOCKS:
        print(__doc__)
        return 2
    require_python()
    command, arguments = sys.argv[1], sys.argv[2:]
    try:
        prepare(command)
        return start(*arguments) if command == "start" else test(*arguments)
    except KeyboardInterrupt:
        print("\nStopped.")
        return INTERRUPTED


def require_python() -> None:
    """Exit with a sentence when this Python cannot make the environment."""
    version = sys.version_info[:2]
    found = "This is Python {}.{} ({}).".format(*version, sys.executable)
    if not OLDEST <= version <= NEWEST:
        sys.exit(f"StrataDesk needs Python 3.{OLDEST[1]} to 3.{NEWEST[1]}. {found}")
    missing = [name for name in ("venv", "ensurepip") if not importlib.util.find_spec(name)]
    if missing:
        sys.exit(
            f"{found} It lacks the module {' and '.join(missing)}, which sets up environments. "
            "On Debian and Ubuntu install python3-venv; elsewhere, Python from python.org has it."
        )


def prepare(command: str) -> None:
    """Make .venv hold what the lock file of `command` names, and the project itself."""
    stamp, wanted = VENV / f"{command}.stamp", fingerprint()
    usable = runs_this_python()
    if usable and stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    if not usable:
        create_venv()
    for old in VENV.glob("*.stamp"):
        if old == stamp or old.read_text(encoding="utf-8") != wanted:
            old.unlink()
    print(f"Installing {LOCKS[command]} into .venv", flush=True)
    pip("--only-binary=:all:", "--require-hashes", "-r", str(ROOT / LOCKS[command]))
    pip("--no-build-isolation", "--quiet", "-e", str(ROOT))
    stamp.write_text(wanted, encoding="utf-8")


def fingerprint() -> str:
    """Hash all that an installed environment depends on, its place included."""
    parts = [(ROOT / name).read_bytes() for name in (*LOCKS.values(), "pyproject.toml")]
    return hashlib.sha256(b"\0".join([os.fsencode(ROOT), *parts])).hexdigest()


def runs_this_python() -> bool:
    """Whether .venv has a working Python of the version that runs this file."""
    probe = "import sys; print(list(sys.version_info[:2]))"
    try:
        output = subprocess.check_output([tool("python"), "-c", probe], stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return False
    return output.decode().strip() == str(list(sys.version_info[:2]))


def create_venv() -> None:
    """Create .venv afresh."""
    if Path(sys.prefix).resolve() == VENV:
        sys.exit("The environment .venv is broken: run this with a Python from outside of it.")
    print("Creating .venv", flush=True)
    status = subprocess.call([sys.executable, "-m", "venv", "--clear", str(VENV)])
    if status:
        sys.exit("Python could not create .venv; the lines above say why.")


def pip(*options: str) -> None:
    """Install into .venv without looking for further dependencies; exit if pip fails."""
    command = [tool("python"), "-m", "pip", "install", "--no-deps", "--no-input", *options]
    status = subprocess.call([*command, "--disable-pip-version-check"], cwd=ROOT)
    if status:
        sys.exit("pip could not install the dependencies; the lines above say why.")


def tool(name: str) -> str:
    """The path of a program inside .venv."""
    return str(VENV / ("Scripts" if os.name == "nt" else "bin") / name)


def start(*arguments: str) -> int:
    """Become StrataDesk, in the folder the user is in."""
    command = [tool("python"), "-P", "-m", "stratadesk", *arguments]
    if os.name == "posix":
        os.execv(command[0], command)
    process = subprocess.Popen(command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return process.wait()


def test(*arguments: str) -> int:
    """Run every check, then say which ones failed.

    Raises:
        KeyboardInterrupt: it was stopped, as Ctrl+C does; nothing that it started is left.
    """
    for number in STOPS[1:]:
        signal.signal(number, signal.default_int_handler)
    failed, utf8 = [], {**os.environ, "PYTHONUTF8": "1"}
    for check in CHECKS:
        print(f"\n== {' '.join(check)}", flush=True)
        extra = arguments if check[0] == "pytest" else ()
        if run_check([tool(check[0]), *check[1:], *extra], utf8):
            failed.append(" ".join(check))
    print(f"\nFailed: {', '.join(failed)}" if failed else "\nAll checks passed.")
    return 1 if failed else 0


def run_check(command: list[str], env: dict[str, str]) -> int:
    """Run a check in a session of its own and return its exit status.

    Ctrl+C goes to all processes that belong to the terminal, and pytest and its workers, ended at
    once, would fill the screen with warnings about each other. A stop that comes while the check is
    being started waits until there is something to end.
    """
    stops: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: stops.append(number))
        for number in STOPS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    process = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True)
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if stops:
            raise KeyboardInterrupt
        return process.wait()
    except KeyboardInterrupt:
        end(process)
        raise


def end(process: subprocess.Popen[bytes]) -> None:
    """End a check; where there are sessions, with all that it has started."""
    if sys.platform == "win32":
        process.kill()
        process.wait()
        return
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, ending)
            process.wait(PATIENCE_S)


if __name__ == "__main__":
    sys.exit(main())
