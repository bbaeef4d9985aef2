"""What a search for models gives."""

from dataclasses import dataclass, field
from pathlib import Path

from stratadesk.models.guide import BUNDLED
from stratadesk.models.stores import Store


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model on disk, split or not.

    `path` is its first file, `store` the name of the place, "bundled" for the guide, `total_bytes`
    the size of all its `shards` files, `quantization` what most of its weights are stored as
    ("Q4_K_M"), empty where the header does not say. `why_not` says what is wrong and what to do
    when `supported` is false: an unknown family, tensor type or tokenizer, or a file that is cut
    short or damaged. Only headers have been read: damage within tensor data shows when the model is
    loaded or answers.
    """

    path: Path
    store: str
    name: str
    architecture: str
    total_bytes: int
    shards: int
    supported: bool
    why_not: str | None
    quantization: str = ""


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file or folder that is not offered as a model, and the reason in words."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Discovery:
    """All models found, the guide first, by store and name, and everything that was passed over.

    `searched` are the folders that were looked into, whether they exist or not; the guide's is not
    among them.
    """

    models: list[FoundModel]
    skipped: list[SkippedFile]
    searched: list[Store] = field(default_factory=list)

    @property
    def others(self) -> list[FoundModel]:
        """The models that did not come with the program."""
        return [model for model in self.models if model.store != BUNDLED]
