"""Reading golden models and comparing logits with them, as the golden folder's README says."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PROMPTS = range(4)
SPARSE = "qwen4exp-sparse-q4_0"
"""Only some of its positions are determined; `test_golden_sparse` compares those."""


@dataclass(frozen=True)
class Golden:
    """One golden model: its file, llama.cpp's results, and the tolerance of the index."""

    folder: Path
    name: str

    @property
    def path(self) -> Path:
        """The GGUF file."""
        return self.folder / "models" / f"{self.name}.gguf"

    @cached_property
    def results(self) -> Any:
        """The .npz of results."""
        return np.load(self.folder / "logits" / f"{self.name}.npz")

    def result(self, prompt: int, key: str) -> npt.NDArray[Any]:
        """The exact result `key` of a prompt."""
        found: npt.NDArray[Any] = self.results[f"p{prompt}_{key}"]
        return found

    def tokens(self, prompt: int) -> list[int]:
        """Input ids of a prompt."""
        ids: list[int] = self.result(prompt, "tokens").tolist()
        return ids

    @cached_property
    def sigma(self) -> float:
        """Standard deviation of the stored full logits over all prompts."""
        stored = [self.result(prompt, "exact_logits").ravel() for prompt in PROMPTS]
        return float(np.concatenate(stored).std())

    @cached_property
    def tolerance(self) -> float:
        """Largest allowed difference of a logit for a float32 engine."""
        return tolerances(self.folder)["f32"] * self.sigma

    def largest_difference(self, prompt: int, logits: npt.NDArray[np.float32]) -> float:
        """Largest difference from the exact logits at the stored positions and the top ten."""
        stored = self.result(prompt, "exact_positions")
        full = np.abs(logits[stored] - self.result(prompt, "exact_logits")).max()
        top = np.take_along_axis(logits, self.result(prompt, "exact_top_ids"), axis=1)
        return max(float(full), float(np.abs(top - self.result(prompt, "exact_top_logits")).max()))

    def decided(self, prompt: int) -> npt.NDArray[np.bool_]:
        """Where the greedy token leads the second best by twice the tolerance or more, [steps]."""
        margins = self.result(prompt, "exact_greedy_margin")
        led: npt.NDArray[np.bool_] = margins >= 2 * self.tolerance
        return led


def tolerances(folder: Path) -> dict[str, float]:
    """Allowed differences by KV format, in standard deviations of the logits."""
    index = json.loads((folder / "index.json").read_text())
    values: dict[str, float] = index["tolerance"]
    return values


def names_with(folder: Path, families: set[str], formats: set[str]) -> list[str]:
    """Golden models of these families all of whose tensors are in these formats, but `SPARSE`."""
    index = json.loads((folder / "index.json").read_text())
    return [
        Path(entry["file"]).stem
        for entry in index["models"]
        if entry["arch"] in families and set(entry["tensor_types"]) <= formats
        if SPARSE not in entry["file"]
    ]
