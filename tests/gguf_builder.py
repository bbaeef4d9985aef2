"""Writes small GGUF files byte by byte, sound ones and damaged ones.

Deliberately independent of the engine and of the `gguf` package's writer, which refuses most
of the damage that tests need.
"""

import struct
from dataclasses import dataclass, field
from pathlib import Path

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
_CODES = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    U32: "I",
    I32: "i",
    F32: "f",
    BOOL: "B",
    U64: "Q",
    11: "q",
    12: "d",
}
F32_TYPE, Q8_0_TYPE, TQ1_0_TYPE = 0, 8, 34


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind: int, value: float) -> bytes:
    return struct.pack(f"<I{_CODES[kind]}", kind, value)


def string(value: str | bytes) -> bytes:
    return struct.pack("<I", STRING) + text(value)


def numbers(kind: int, values: list[int] | list[float]) -> bytes:
    head = struct.pack("<IIQ", ARRAY, kind, len(values))
    return head + struct.pack(f"<{len(values)}{_CODES[kind]}", *values)


def strings(values: list[str] | list[bytes]) -> bytes:
    head = struct.pack("<IIQ", ARRAY, STRING, len(values))
    return head + b"".join(map(text, values))


@dataclass
class Tensor:
    """A line of the tensor table and its bytes; `offset` None means right after the last one."""

    name: str
    dims: tuple[int, ...]
    type_id: int
    data: bytes
    offset: int | None = None


@dataclass
class GgufBuilder:
    """Collects entries (encoded by the functions above) and tensors; any part may be a lie."""

    version: int = 3
    alignment: int = 32
    entries: list[tuple[str | bytes, bytes]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    n_entries: int | None = None
    n_tensors: int | None = None

    def add(self, key: str | bytes, encoded: bytes) -> "GgufBuilder":
        self.entries.append((key, encoded))
        return self

    def tensor(
        self,
        name: str,
        dims: tuple[int, ...],
        type_id: int = F32_TYPE,
        data: bytes | None = None,
        offset: int | None = None,
    ) -> "GgufBuilder":
        n_values = 1
        for dim in dims:
            n_values *= dim
        self.tensors.append(
            Tensor(name, dims, type_id, bytes(4 * n_values) if data is None else data, offset)
        )
        return self

    def header(self) -> bytes:
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_entries = len(self.entries) if self.n_entries is None else self.n_entries
        parts = [b"GGUF", struct.pack("<IQQ", self.version, n_tensors, n_entries)]
        parts += [text(key) + encoded for key, encoded in self.entries]
        position = 0
        for tensor in self.tensors:
            offset = position if tensor.offset is None else tensor.offset
            parts.append(text(tensor.name) + struct.pack("<I", len(tensor.dims)))
            parts.append(struct.pack(f"<{len(tensor.dims)}Q", *tensor.dims))
            parts.append(struct.pack("<IQ", tensor.type_id, offset))
            position += self._padded(len(tensor.data))
        return b"".join(parts)

    def build(self) -> bytes:
        header = self.header()
        parts = [header, bytes(self._padded(len(header)) - len(header))]
        for tensor in self.tensors:
            parts += [tensor.data, bytes(self._padded(len(tensor.data)) - len(tensor.data))]
        return b"".join(parts)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.build())
        return path

    def _padded(self, n_bytes: int) -> int:
        return -(-n_bytes // self.alignment) * self.alignment


def small_model(architecture: str = "qwen3moe", name: str = "Tiny") -> GgufBuilder:
    """A sound file of one layer, enough for everything that only looks at headers."""
    prefix = architecture
    builder = GgufBuilder()
    builder.add("general.architecture", string(architecture))
    builder.add("general.name", string(name))
    builder.add(f"{prefix}.block_count", scalar(U32, 1))
    builder.add(f"{prefix}.context_length", scalar(U32, 4096))
    builder.add("tokenizer.ggml.model", string("gpt2"))
    builder.add("tokenizer.ggml.pre", string("qwen2"))
    builder.add("tokenizer.ggml.tokens", strings(["a", "b", "é"]))
    builder.tensor("token_embd.weight", (8, 3))
    builder.tensor("blk.0.attn_norm.weight", (8,))
    return builder


def write_set(folder: Path, stem: str, count: int, architecture: str = "qwen3moe") -> list[Path]:
    """Write a split model: shard 1 holds the metadata, each shard one tensor."""
    paths = []
    for index in range(count):
        builder = GgufBuilder()
        if index == 0:
            builder.add("general.architecture", string(architecture))
            builder.add(f"{architecture}.block_count", scalar(U32, 1))
        builder.add("split.no", scalar(2, index))
        builder.add("split.count", scalar(2, count))
        builder.add("split.tensors.count", scalar(I32, count))
        builder.tensor(f"blk.{index}.attn_norm.weight", (8,), data=bytes([index]) * 32)
        path = folder / f"{stem}-{index + 1:05d}-of-{count:05d}.gguf"
        paths.append(builder.write(path))
    return paths


def big_vocabulary(tokens: int, merges: int) -> GgufBuilder:
    """A vocabulary of realistic string lengths, without tensors."""
    builder = GgufBuilder().add("general.architecture", string("qwen35moe"))
    builder.add("tokenizer.ggml.model", string("gpt2"))
    builder.add("tokenizer.ggml.pre", string("qwen35"))
    builder.add("tokenizer.ggml.tokens", strings([f"tok{i:05d}" for i in range(tokens)]))
    builder.add("tokenizer.ggml.token_type", numbers(I32, [1] * tokens))
    builder.add("tokenizer.ggml.merges", strings([f"lef{i:03d} rig{i:03d}" for i in range(merges)]))
    return builder
