"""Where StrataDesk keeps its files; STRATADESK_HOME moves all of them under one folder."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

APP_NAME = "stratadesk"


@dataclass(frozen=True, slots=True)
class Folders:
    """The five folders: settings, data, what was open last, what can be made again, logs.

    Nothing is kept in `data` yet; chats will be.
    """

    config: Path
    data: Path
    state: Path
    cache: Path
    log: Path

    @property
    def log_file(self) -> Path:
        """The log being written."""
        return self.log / f"{APP_NAME}.log"


def folders(environment: Mapping[str, str] = os.environ) -> Folders:
    """Return the folders of this user; none is created here."""
    home = environment.get("STRATADESK_HOME")
    if home:
        # Not `Path.expanduser`, which raises for a user that is not known.
        root = Path(os.path.expanduser(home)).absolute()
        return Folders(*(root / name for name in ("config", "data", "state", "cache", "log")))
    return _platform_folders()


def _platform_folders() -> Folders:
    from platformdirs import PlatformDirs

    dirs = PlatformDirs(APP_NAME, appauthor=False)
    return Folders(
        config=dirs.user_config_path,
        data=dirs.user_data_path,
        state=dirs.user_state_path,
        cache=dirs.user_cache_path,
        log=dirs.user_log_path,
    )
