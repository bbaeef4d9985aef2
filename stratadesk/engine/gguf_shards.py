"""Finds the files of a model: one file, or all shards of a set from any of them or the folder."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stratadesk.engine.gguf_cursor import quote
from stratadesk.engine.gguf_mapping import system_path, unreadable
from stratadesk.errors import GgufError

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.I)
_RAW_PART = re.compile(r"(?P<whole>.+\.gguf)\.part\d{1,6}of(?P<count>\d{1,6})", re.I)
_SIDE_FILE = re.compile(r"mmproj|imatrix", re.I)


@dataclass(frozen=True, slots=True)
class ShardName:
    """A file name such as `stem-00001-of-00003.gguf`; `number` counts from 1."""

    stem: str
    number: int
    count: int
    suffix: str

    def sibling(self, number: int) -> str:
        """Return the name of shard `number` of the same set."""
        return f"{self.stem}-{number:05d}-of-{self.count:05d}{self.suffix}"


def parse_shard_name(name: str) -> ShardName | None:
    """Return the parts of a shard's file name, or None when it is not one."""
    match = _SHARD.fullmatch(name)
    if match is None or not 1 <= int(match["number"]) <= int(match["count"]):
        return None
    return ShardName(match["stem"], int(match["number"]), int(match["count"]), match["suffix"])


def raw_part_error(name: str) -> GgufError | None:
    """Return how to join the pieces if this is a `.gguf.partXofY`, a file cut by bytes."""
    match = _RAW_PART.fullmatch(name)
    if match is None:
        return None
    return GgufError(
        f"{quote(name)} is one of {int(match['count'])} pieces of a file that was cut by bytes.",
        f"Join them in order into {quote(match['whole'])}: 'cat' on Linux, 'copy /b' on Windows.",
    )


def find_shards(path: Path) -> tuple[Path, ...]:
    """Return all files of the model at `path`, a file, any shard of a set, or a folder.

    Raises:
        GgufError: shards are missing (all named), a raw part, or a folder without exactly one
            model.
    """
    if os.path.isdir(system_path(path)):
        path = _only_model(path)
    if error := raw_part_error(path.name):
        raise error
    shard = parse_shard_name(path.name)
    return (path,) if shard is None else _complete_set(path, shard)


def missing_shards(folder: Path, shard: ShardName) -> list[str]:
    """Return the names of the set's files that are not in `folder`."""
    names = (shard.sibling(number) for number in range(1, shard.count + 1))
    return [name for name in names if not os.path.isfile(system_path(folder / name))]


def missing_error(shard: ShardName, missing: Sequence[str]) -> GgufError:
    """Return the error that lists the missing files of a set by name."""
    return GgufError(
        f"{len(missing):,} of the {shard.count:,} files of {quote(shard.stem)} are missing: "
        f"{_listed(missing)}.",
        "Download them into the same folder.",
    )


def group_sets(paths: Iterable[Path]) -> list[list[Path]]:
    """Put the shards of each set together; every other file stands alone. Order is kept."""
    groups: defaultdict[object, list[Path]] = defaultdict(list)
    for path in paths:
        shard = parse_shard_name(path.name)
        key = path if shard is None else (path.parent, shard.stem, shard.count)
        groups[key].append(path)
    return list(groups.values())


def _complete_set(path: Path, shard: ShardName) -> tuple[Path, ...]:
    missing = missing_shards(path.parent, shard)
    if len(missing) == shard.count:
        return (path,)
    if missing:
        raise missing_error(shard, missing)
    return tuple(path.parent / shard.sibling(number) for number in range(1, shard.count + 1))


def _only_model(folder: Path) -> Path:
    try:
        names = sorted(os.listdir(system_path(folder)))
    except OSError as error:
        raise unreadable(folder, error) from None
    files = [folder / name for name in names if name.lower().endswith(".gguf")]
    models = group_sets(file for file in files if not _SIDE_FILE.search(file.name))
    if len(models) > 1:
        listed = _listed([model[0].name for model in models])
        raise GgufError(
            f"The folder {quote(str(folder), limit=1000)} holds {len(models)} models: {listed}.",
            "Name one of them.",
        )
    if models:
        return models[0][0]
    pieces = [folder / name for name in names if raw_part_error(name)]
    if pieces:
        return pieces[0]
    raise GgufError(
        f"The folder {quote(str(folder), limit=1000)} holds no GGUF model.",
        "Name a .gguf file; stratadesk models lists those found on this machine.",
    )


def _listed(names: Sequence[str], shown: int = 8) -> str:
    words = ", ".join(quote(name) for name in names[:shown])
    more = len(names) - shown
    return f"{words} and {more:,} more" if more > 0 else words
