"""Logits of a whole token sequence, for comparing this engine with others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stratadesk.engine.commands import EngineSettings
from stratadesk.engine.cuda_model import CudaModel
from stratadesk.engine.events import LoadProgress
from stratadesk.engine.loading import load_model
from stratadesk.engine.model import LoadedModel
from stratadesk.engine.prompt import check_token_ids
from stratadesk.engine.sampling_checks import check_logits
from stratadesk.errors import UsageError
from stratadesk.file_safety import replacing
from stratadesk.result_file import check_place

Floats = npt.NDArray[np.float32]


def compute_logits(model: LoadedModel | CudaModel, tokens: Sequence[int], chunk: int) -> Floats:
    """Logits after every token, float32 [len(tokens), vocabulary], read `chunk` at a time.

    Raises UsageError for an empty sequence or ids outside the vocabulary.
    """
    state: Any = model.new_state()
    rows = [model.forward(state, part, logits="all") for part in _chunks(model, tokens, chunk)]
    return np.concatenate([row for row in rows if row is not None])


def compute_drafted_logits(
    model: LoadedModel | CudaModel, tokens: Sequence[int], chunk: int
) -> tuple[Floats, Floats]:
    """As `compute_logits`, and the draft head's logits, of the same shape.

    Row t of the head's comes from token t and the trunk's state at t - 1, zeros for the first.
    """
    state: Any = model.new_state()
    rows = [model.forward_with_drafts(state, part) for part in _chunks(model, tokens, chunk)]
    trunk, drafted = zip(*rows, strict=True)
    return np.concatenate(trunk), np.concatenate(drafted)


def write_logits(
    path: Path, tokens: Sequence[int], out: Path, settings: EngineSettings
) -> tuple[int, int]:
    """Write array `logits` to the .npz file `out` and return its shape.

    With `settings.mtp` also `mtp_logits`, those of the draft head. `settings.chunk` tokens, at
    least 1, are read at a time. The file appears complete or not at all.

    Raises:
        UsageError: `out` is no place for a new .npz file.
        ModelError: logits that are no numbers.
        StrataDeskError: what `load_model` and `compute_logits` raise, or `out` cannot be written.
    """
    check_place(out)
    model = load_model(path, settings, _ignore)
    try:
        arrays = _arrays(model, tokens, settings)
    finally:
        model.close()
    for row in arrays["logits"]:
        check_logits(row)
    _save(out, arrays)
    rows, vocab = arrays["logits"].shape
    return rows, vocab


def _arrays(
    model: LoadedModel | CudaModel, tokens: Sequence[int], settings: EngineSettings
) -> dict[str, Floats]:
    if not settings.mtp:
        return {"logits": compute_logits(model, tokens, settings.chunk)}
    logits, drafted = compute_drafted_logits(model, tokens, settings.chunk)
    return {"logits": logits, "mtp_logits": drafted}


def _chunks(
    model: LoadedModel | CudaModel, tokens: Sequence[int], chunk: int
) -> list[Sequence[int]]:
    if not tokens:
        raise UsageError("There are no tokens to compute.", "Give at least one token id.")
    check_token_ids(tokens, model.vocab_size)
    return [tokens[start : start + chunk] for start in range(0, len(tokens), chunk)]


def _ignore(progress: LoadProgress) -> None:
    """Say nothing: a script reads this command's output."""


def _save(out: Path, arrays: dict[str, Floats]) -> None:
    with replacing(out) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
