"""What is inside a model file, and whether this version can run it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stratadesk.engine.gguf_cursor import quote
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.inspection_table import render_table
from stratadesk.engine.tensor_formats import HOST_FORMATS
from stratadesk.engine.tensor_groups import GROUPS, TensorGroups
from stratadesk.errors import ModelError, UnsupportedModelError

OTHER_MODEL = "Choose another model or quantization; stratadesk models lists those found here."


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """Model, pre-tokenizer (None where the header has none) and number of tokens."""

    model: str | None
    pre: str | None
    size: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """Facts from the header. Sizes are bytes; a count the header lacks is 0.

    `tensors` maps every group to its bytes per tensor type. `layers` are those of the trunk.
    `head_bytes` are those of the embedding when the head is tied to it. `why_not` is one
    sentence when `supported` is false.
    """

    architecture: str
    name: str
    file_bytes: int
    tensors: Mapping[str, Mapping[str, int]]
    layers: int
    experts: int
    experts_used: int
    head_bytes: int
    context_length: int
    tokenizer: TokenizerFacts
    chat_template: bool
    why_not: str | None

    @property
    def supported(self) -> bool:
        """Whether this version can run the model."""
        return self.why_not is None

    def as_json(self) -> dict[str, object]:
        """Return the object that `stratadesk inspect --json` prints."""
        return {
            "architecture": self.architecture,
            "name": self.name,
            "file_bytes": self.file_bytes,
            "tensors": {group: dict(types) for group, types in self.tensors.items()},
            "layers": self.layers,
            "experts": self.experts,
            "experts_used": self.experts_used,
            "head_bytes": self.head_bytes,
            "context_length": self.context_length,
            "tokenizer": {
                "model": self.tokenizer.model,
                "pre": self.tokenizer.pre,
                "size": self.tokenizer.size,
            },
            "chat_template": self.chat_template,
            "supported": self.supported,
            "why_not": self.why_not,
        }

    def as_table(self) -> str:
        """Return the same facts as aligned text for people."""
        return render_table(self)


def inspect_model(path: str | Path) -> Inspection:
    """Read the headers of the model at `path` (file, any shard or folder) and sum them up.

    Raises:
        GgufError: the file is unsound, or lacks an architecture.
        UnsupportedModelError: a tensor type that this version does not even know the size of.
    """
    with GgufFile.open(path) as gguf:
        return _inspect(gguf)


def why_unsupported(gguf: GgufFile) -> str | None:
    """Return one sentence naming the first thing this version cannot run, or None."""
    reasons = (_architecture_problem, _format_problem, _tokenizer_problem)
    return next((why for reason in reasons if (why := reason(gguf))), None)


def check_supported(gguf: GgufFile) -> None:
    """Raise UnsupportedModelError, naming the first thing that this version cannot run."""
    reason = why_unsupported(gguf)
    if reason is not None:
        raise UnsupportedModelError(reason, OTHER_MODEL)


def check_computable(gguf: GgufFile) -> None:
    """As `check_supported`, without regard to the tokenizer: enough for work on sizes."""
    reason = _architecture_problem(gguf) or _format_problem(gguf)
    if reason is not None:
        raise UnsupportedModelError(reason, OTHER_MODEL)


def _inspect(gguf: GgufFile) -> Inspection:
    def number(key: str) -> int:
        return gguf.get_int(f"{gguf.architecture}.{key}", 0)

    layers = max(0, number("block_count") - number("nextn_predict_layers"))
    return Inspection(
        architecture=gguf.architecture,
        name=_text(gguf, "general.name") or gguf.path.stem,
        file_bytes=gguf.file_bytes,
        tensors=_bytes_by_group(gguf, layers),
        layers=layers,
        experts=number("expert_count"),
        experts_used=number("expert_used_count"),
        head_bytes=_head_bytes(gguf),
        context_length=number("context_length"),
        tokenizer=_tokenizer_facts(gguf),
        chat_template=bool(_text(gguf, "tokenizer.chat_template")),
        why_not=why_unsupported(gguf) or _fit_problem(gguf),
    )


def _bytes_by_group(gguf: GgufFile, layers: int) -> dict[str, dict[str, int]]:
    groups = TensorGroups(gguf.tensors, layers)
    sums: dict[str, dict[str, int]] = {group: {} for group in GROUPS}
    for name, info in gguf.tensors.items():
        by_type = sums[groups.group_of(name)]
        by_type[info.format.name] = by_type.get(info.format.name, 0) + info.n_bytes
    return sums


def _head_bytes(gguf: GgufFile) -> int:
    head = gguf.tensors.get("output.weight") or gguf.tensors.get("token_embd.weight")
    return head.n_bytes if head else 0


def _tokenizer_facts(gguf: GgufFile) -> TokenizerFacts:
    has_tokens = "tokenizer.ggml.tokens" in gguf.metadata
    return TokenizerFacts(
        model=_text(gguf, "tokenizer.ggml.model"),
        pre=_text(gguf, "tokenizer.ggml.pre"),
        size=len(gguf.get_strings("tokenizer.ggml.tokens")) if has_tokens else 0,
    )


def _text(gguf: GgufFile, key: str) -> str | None:
    value = gguf.metadata.get(key)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _architecture_problem(gguf: GgufFile) -> str | None:
    from stratadesk.engine.architectures import SUPPORTED

    return None if gguf.architecture in SUPPORTED else unsupported_architecture(gguf.architecture)


def unsupported_architecture(name: str) -> str:
    """Return the sentence for an architecture that this version does not run."""
    from stratadesk.engine.architectures import SUPPORTED

    return f"The architecture {quote(name)} is not supported; this version runs {_list(SUPPORTED)}."


def _fit_problem(gguf: GgufFile) -> str | None:
    """What keeps a model of a known family from loading: a size or tensor that does not fit."""
    from stratadesk.engine.fit import fitting_shape

    try:
        fitting_shape(gguf, mtp=False)
    except ModelError as error:
        return error.sentence
    return None


def _format_problem(gguf: GgufFile) -> str | None:
    if not gguf.tensors:
        return f"{gguf.label} holds a vocabulary only, no tensors."
    for info in gguf.tensors.values():
        if info.format.name not in HOST_FORMATS:
            return (
                f"Tensor {quote(info.name)} has the type {info.format.name}; "
                f"this version computes {_list(HOST_FORMATS)}."
            )
    return None


def _tokenizer_problem(gguf: GgufFile) -> str | None:
    from stratadesk.engine.tokenizer import PRE_TOKENIZERS

    model, pre = _text(gguf, "tokenizer.ggml.model"), _text(gguf, "tokenizer.ggml.pre")
    if model != "gpt2":
        return f"The tokenizer model {quote(str(model))} is not supported; this version has gpt2."
    if pre not in PRE_TOKENIZERS:
        return (
            f"The pre-tokenizer {quote(str(pre))} is not supported; "
            f"this version has {_list(PRE_TOKENIZERS)}."
        )
    return None


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
