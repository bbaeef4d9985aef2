"""Logits of a whole token sequence, for comparing this engine with others."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stratadesk.engine.commands import EngineSettings
from stratadesk.engine.events import LoadProgress
from stratadesk.engine.loading import load_model
from stratadesk.engine.model import LoadedModel
from stratadesk.engine.prompt import check_token_ids
from stratadesk.errors import StrataDeskError, UsageError


def compute_logits(
    model: LoadedModel, tokens: Sequence[int], chunk: int
) -> npt.NDArray[np.float32]:
    """Logits after every token, float32 [len(tokens), vocabulary], read `chunk` at a time.

    Raises UsageError for an empty sequence or ids outside the vocabulary.
    """
    if not tokens:
        raise UsageError("There are no tokens to compute.", "Give at least one token id.")
    check_token_ids(tokens, model.vocab_size)
    state = model.new_state()
    rows = []
    for start in range(0, len(tokens), chunk):
        rows.append(model.forward(state, tokens[start : start + chunk], logits="all"))
    return np.concatenate([row for row in rows if row is not None])


def write_logits(
    path: Path, tokens: Sequence[int], out: Path, settings: EngineSettings
) -> tuple[int, int]:
    """Write array `logits` to the .npz file `out` and return its shape.

    `settings.chunk` tokens, at least 1, are read at a time. The file appears complete or not at
    all. Raises what `load_model` and `compute_logits` raise.
    """
    model = load_model(path, settings, _ignore)
    try:
        logits = compute_logits(model, tokens, settings.chunk)
    finally:
        model.close()
    _save(out, logits)
    return logits.shape[0], logits.shape[1]


def _ignore(progress: LoadProgress) -> None:
    """Say nothing: a script reads this command's output."""


def _save(out: Path, logits: npt.NDArray[np.float32]) -> None:
    try:
        handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.", suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            np.savez(file, logits=logits)
        os.replace(name, out)
    except OSError as error:
        raise StrataDeskError(
            f"Cannot write {out}: {error.strerror}.", "Choose another -o."
        ) from error
