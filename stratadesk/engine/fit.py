"""Whether a header fits its own tensors: asked of the model's family, before anything is planned.

The family takes its tensors from a table that loads nothing. So every check of loading is made
before a size from the header becomes memory, and in the words that loading has for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stratadesk.engine.architectures import family
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import KeyedHyperparameters
from stratadesk.engine.vram.shape import ModelShape
from stratadesk.engine.vram.shape_reader import read_shape
from stratadesk.errors import GgufError

if TYPE_CHECKING:
    from stratadesk.engine.gguf_file import GgufFile
    from stratadesk.kernels.expert_form import ExpertForm

_BLOCK = re.compile(r"blk\.(\d{1,9})\.")
_TOKENS = "tokenizer.ggml.tokens"


class NoLoader:
    """Loads nothing: a family only keeps what it gets."""

    def load(self, name: str) -> Any:
        """The name, in place of a weight."""
        return name

    vector = load

    def expert_layer(self, parts: Sequence[Any], form: ExpertForm) -> Any:
        """The parts themselves."""
        return parts

    def head_rows(self, weight: Any, *_: Any, **__: Any) -> Any:
        """The weight itself."""
        return weight


def fitting_shape(gguf: GgufFile, *, mtp: bool) -> ModelShape:
    """Return the shape of a model whose header fits its tensors, with `mtp` the draft block's too.

    Raises:
        GgufError: a tensor is missing or not as the header says, with the keys that say so.
        UnsupportedModelError: an architecture or tensor that this version cannot run.
    """
    header = KeyedHyperparameters(gguf)
    drafts = header.natural("nextn_predict_layers", default=0)
    _check_blocks(gguf, header, drafts)
    table = TensorTable(gguf.tensors, NoLoader())
    family(gguf.architecture)(header, table, _vocabulary(gguf), mtp=mtp and drafts > 0)
    table.finish()
    return read_shape(gguf)


def _check_blocks(gguf: GgufFile, header: KeyedHyperparameters, drafts: int) -> None:
    """Compare the count with the blocks that tensors are of; those that draft may be left out."""
    count = header.positive("block_count")
    found = (_BLOCK.match(name) for name in gguf.tensors)
    held = max((int(block[1]) + 1 for block in found if block), default=0)
    if not count - drafts <= held <= count:
        raise GgufError(
            f"{header.key('block_count')} is {count}, but the tensors are of {held} blocks."
        )


def _vocabulary(gguf: GgufFile) -> int:
    """Number of tokens; that of the embedding's rows where the file has no tokenizer."""
    if _TOKENS in gguf.metadata:
        return len(gguf.get_strings(_TOKENS))
    embedding = gguf.tensors.get("token_embd.weight")
    return embedding.shape[0] if embedding is not None and embedding.shape else 0
