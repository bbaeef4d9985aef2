"""What is compiled together: the programs, their sources in one text, and their defines.

A program is a .cu file with one choice of its defines. Codebooks come from the `gguf` package.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

FORMATS: tuple[str, ...] = (
    *("F32", "F16", "BF16"),
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"),
    *("IQ4_NL", "IQ4_XS", "MXFP4"),
)
"""Tensor formats that `weights.cu` can be compiled for."""

FLOATS = ("F32", "F16", "BF16")
"""Those whose products read activations in float32, not in fixed point."""

_FEW = {"F32": 4, "F16": 8, "BF16": 8, "Q8_0": 16}


def values_of_a_lane(format_name: str) -> int:
    """How many values of a block one lane reads: VALUES in formats.cuh."""
    return _FEW.get(format_name, 32)


CACHE_FORMATS = ("F32", "F16", "Q8_0")
"""Formats of the KV cache, in the order of CACHE's values in attention.cu."""

IQ2_MAGNITUDES = (8, 25, 43)
"""What the values of IQ2's grids are without their signs, ascending."""

_OVERLAPPING = ("attention.cu", "delta_net.cu", "router.cu", "vectors.cu", "weights.cu")
"""Those whose kernels follow each other in a layer."""

_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Program:
    """A source file of this package, compiled with `defines`."""

    file: str
    defines: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What messages call it."""
        return " ".join((self.file, *self.defines))

    @property
    def overlaps(self) -> bool:
        """Whether its kernels may be started early: each takes its turn (machine.cuh)."""
        return self.file in _OVERLAPPING

    def text(self) -> str:
        """The source with all that it includes, each file once."""
        return _joined(self.file, set())


def weights(format_name: str) -> Program:
    """Products with weights of a format."""
    return Program("weights.cu", (f"FORMAT={format_name}",))


def attention(cache_format: str) -> Program:
    """Attention over a KV cache of a format."""
    return Program("attention.cu", (f"CACHE={CACHE_FORMATS.index(cache_format)}",))


VECTORS, ROUTER = Program("vectors.cu"), Program("router.cu")
DELTA_NET, STEP = Program("delta_net.cu"), Program("step.cu")
SAMPLING = Program("sampling.cu")
BANDWIDTH = Program("bandwidth.cu")
"""A kernel that reads memory and nothing else."""

GENERAL = (VECTORS, ROUTER, DELTA_NET, STEP, SAMPLING)
"""Programs without a choice."""


def needed(formats: Iterable[str], cache_format: str) -> tuple[Program, ...]:
    """Programs of a model with weights of `formats` and a KV cache of `cache_format`."""
    return (*GENERAL, attention(cache_format), *map(weights, sorted(set(formats))))


def everything() -> tuple[Program, ...]:
    """All programs there are."""
    return (*GENERAL, BANDWIDTH, *map(attention, CACHE_FORMATS), *map(weights, FORMATS))


def _joined(file: str, seen: set[str]) -> str:
    def included(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in seen:
            return ""
        seen.add(name)
        return codebooks() if name == "codebooks.cuh" else _joined(name, seen)

    source = files("stratadesk.kernels.cuda") / "src" / file
    text = source.read_text(encoding="utf-8").replace("#pragma once\n", "")
    return _INCLUDE.sub(included, text)


@cache
def codebooks() -> str:
    """Tables of the codebook formats as CUDA source.

    The two tables of 16 signed bytes are packed, lowest index in the lowest byte. So are the
    magnitudes of IQ2's grids, which an entry names by a nibble for each of its eight values.
    """
    from gguf import quants

    def sixteen(values: Sequence[int]) -> str:
        return ", ".join(_word(values[i : i + 4]) for i in range(0, 16, 4))

    grids = {
        "IQ2_XXS_GRID": _nibble_grid(quants.IQ2_XXS),
        "IQ2_XS_GRID": _nibble_grid(quants.IQ2_XS),
        "IQ2_S_GRID": _nibble_grid(quants.IQ2_S),
        "IQ3_XXS_GRID": _grid(quants.IQ3_XXS, np.uint32),
        "IQ3_S_GRID": _grid(quants.IQ3_S, np.uint32),
        "IQ1_GRID": _grid(quants.IQ1_S, np.uint64, round(1 / quants.IQ1_S.delta)),
    }
    return "\n".join(
        (
            f"#define IQ4_BYTES {sixteen(quants.IQ4_NL.kvalues)}",
            f"#define MXFP4_BYTES {sixteen(quants.MXFP4.kvalues)}",
            f"#define IQ2_MAGNITUDES {_word(IQ2_MAGNITUDES)}",
            f"#define IQ2_NEGATIVES {_word(-value for value in IQ2_MAGNITUDES)}",
            *(_array(name, words) for name, words in grids.items()),
        )
    )


def _grid(quant: object, word: npt.DTypeLike, factor: int = 1) -> npt.NDArray[np.unsignedinteger]:
    """The grid of a gguf quantization class, times `factor`: one word of int8 values an entry."""
    quant.init_grid()  # type: ignore[attr-defined]
    values = quant.grid.reshape(quant.grid_shape) * factor  # type: ignore[attr-defined]
    words: npt.NDArray[np.unsignedinteger] = values.astype(np.int8).view(word).reshape(-1)
    return words


def _nibble_grid(quant: object) -> npt.NDArray[np.unsignedinteger]:
    """An entry's magnitudes as indices into IQ2_MAGNITUDES, four bits each, lowest first."""
    magnitudes = _grid(quant, np.uint64).view(np.int8).reshape(-1, 8)
    codes = np.searchsorted(IQ2_MAGNITUDES, magnitudes).astype(np.uint32)
    words: npt.NDArray[np.unsignedinteger] = (codes << np.arange(0, 32, 4, dtype=np.uint32)).sum(
        axis=1, dtype=np.uint32
    )
    return words


def _word(values: Iterable[int]) -> str:
    """Up to four signed bytes in one word, the first lowest."""
    word = sum((value & 255) << (8 * i) for i, value in enumerate(values))
    return f"0x{word:08x}u"


def _array(name: str, words: npt.NDArray[np.unsignedinteger]) -> str:
    kind, suffix = ("u64", "ull") if words.itemsize == 8 else ("u32", "u")
    listed = ",".join(f"0x{int(word):x}{suffix}" for word in words)
    return f"alignas(16) static __device__ const {kind} {name}[{words.size}] = {{{listed}}};"
