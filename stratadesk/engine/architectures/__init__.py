"""Model families, one module each: hyperparameters, tensor table and forward pass."""

from importlib import import_module
from typing import TYPE_CHECKING

from stratadesk.errors import UnsupportedModelError

if TYPE_CHECKING:
    from stratadesk.engine.architectures.base import Family

SUPPORTED = (
    "qwen35moe",
    "qwen3next",
    "qwen3moe",
    "qwen3",
    "olmoe",
    "glm4moe",
    "gpt-oss",
    "deepseek2",
    "qwen4exp",
)
"""Values of `general.architecture`; each is a module here, with _ for -."""


def family(architecture: str) -> "type[Family]":
    """The class that runs `general.architecture`.

    Raises UnsupportedModelError, naming the architecture and the supported ones.
    """
    if architecture not in SUPPORTED:
        raise UnsupportedModelError(
            f"Architecture {architecture!r} is not supported; this version runs "
            f"{', '.join(SUPPORTED)}.",
            "Choose a model of one of these families.",
        )
    name = architecture.replace("-", "_")
    module = import_module(f"stratadesk.engine.architectures.{name}")
    found: type[Family] = module.MODEL
    return found
