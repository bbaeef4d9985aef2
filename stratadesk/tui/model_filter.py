"""Which models of a list a typed filter leaves."""

from collections.abc import Iterable

from stratadesk.tui.ports import ModelEntry


def narrowed(models: Iterable[ModelEntry], typed: str) -> list[ModelEntry]:
    """Return the models of which every word of `typed` is part, whatever the case.

    Looked at are name, architecture, quantization and the place where it was found.
    """
    words = typed.casefold().split()
    return [model for model in models if all(word in _text(model) for word in words)]


def _text(model: ModelEntry) -> str:
    facts = (model.name, model.architecture, model.quantization, model.store)
    return "\n".join(facts).casefold()
