"""A GGUF model on disk: all its shards, their metadata, and its tensors as views."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stratadesk.engine.gguf_cursor import DAMAGED, quote
from stratadesk.engine.gguf_header import Header, read_header
from stratadesk.engine.gguf_layout import TensorInfo, place_tensors
from stratadesk.engine.gguf_mapping import MappedFile
from stratadesk.engine.gguf_metadata import MetadataGetters, MetadataValue
from stratadesk.engine.gguf_shards import find_shards
from stratadesk.errors import GgufError

__all__ = ["GgufFile", "TensorInfo"]


class GgufFile(MetadataGetters):
    """An open model; use it as a context manager or call `close`.

    `path` is the first shard, `shards` are all files in order, `file_bytes` is their total size
    in bytes. `metadata` comes from the first shard and, like `tensors`, outlives `close`.
    `tensors` keeps the order of the files.
    """

    path: Path
    shards: tuple[Path, ...]
    file_bytes: int
    metadata: Mapping[str, MetadataValue]
    tensors: dict[str, TensorInfo]

    def __init__(self, files: Sequence[MappedFile]) -> None:
        headers = [read_header(file.buffer, file.label) for file in files]
        _check_set(headers)
        self._files = files
        self.path = files[0].path
        self.label = files[0].label
        self.shards = tuple(file.path for file in files)
        self.file_bytes = sum(map(len, files))
        self.metadata = headers[0].metadata
        self.tensors = _tensor_table(headers, files)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the model at `path`: a file, any shard of a set, or the folder of one model.

        Reads headers only; tensor data are mapped, not read.

        Raises:
            GgufError: the file or set is missing, incomplete or unsound.
            UnsupportedModelError: a tensor type that this version does not know.
        """
        with ExitStack() as undo:
            files = []
            for shard in find_shards(Path(path)):
                files.append(MappedFile(shard))
                undo.callback(files[-1].close)
            opened = cls(files)
            undo.pop_all()
            return opened

    @property
    def architecture(self) -> str:
        """The name of the model family, such as "qwen3moe"."""
        return self.get_str("general.architecture")

    def data(self, name: str) -> NDArray[np.uint8]:
        """Return the stored bytes of a tensor: a read-only view, 1-D uint8, nothing copied.

        Raises:
            GgufError: there is no tensor of this name.
            ValueError: the file has been closed.
        """
        info = self.tensors.get(name)
        if info is None:
            raise GgufError(f"{self.label} has no tensor {quote(name)}.", DAMAGED)
        stored = self._files[info.shard].data
        if stored is None:
            raise ValueError(f"{self.label} is closed")
        return stored[info.offset : info.end]

    def check_whole(self) -> None:
        """Raise GgufError when a file has been cut short since it was opened."""
        for file in self._files:
            file.check_whole()

    def close(self) -> None:
        """Give the mapping back; a view still in use keeps its shard mapped until dropped."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _check_set(headers: Sequence[Header]) -> None:
    for index, header in enumerate(headers):
        count = header.get_int("split.count", 1) or 1
        number = header.get_int("split.no", 0)
        if (count, number) != (len(headers), index):
            raise GgufError(
                f"The header of {header.label} says shard {number + 1:,} of {count:,}, its name "
                f"says {index + 1:,} of {len(headers):,}.",
                "Restore the names name-00001-of-0000N.gguf that the files were published with.",
            )
    total = sum(len(header.tensors) for header in headers)
    announced = headers[0].get_int("split.tensors.count", total)
    if announced != total:
        raise GgufError(
            f"{headers[0].label} announces {announced:,} tensors over {len(headers):,} files, "
            f"which hold {total:,}.",
            DAMAGED,
        )


def _tensor_table(headers: Sequence[Header], files: Sequence[MappedFile]) -> dict[str, TensorInfo]:
    table: dict[str, TensorInfo] = {}
    for shard, (header, file) in enumerate(zip(headers, files, strict=True)):
        for info in place_tensors(header, len(file), shard):
            if info.name in table:
                raise GgufError(f"{header.label} repeats the tensor {quote(info.name)}.", DAMAGED)
            table[info.name] = info
    return table
