"""Model families, one module each: hyperparameters, tensor table and forward pass."""

from importlib import import_module
from typing import TYPE_CHECKING

from stratadesk.errors import UnsupportedModelError

if TYPE_CHECKING:
    from stratadesk.engine.architectures.base import Family

SUPPORTED = ("qwen35moe", "qwen3moe", "qwen3")


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
    module = import_module(f"stratadesk.engine.architectures.{architecture}")
    found: type[Family] = module.MODEL
    return found
