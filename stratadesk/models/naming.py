"""Finds the model that a name means among those a search has found."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from stratadesk.models.found import FoundModel

LIKE = 0.5
"""How like another name must be, from 0 to 1, to be offered as the one that was meant."""

SHOWN = 3


def named(models: Sequence[FoundModel], name: str) -> list[FoundModel]:
    """Return the models that `name` may mean: one is the answer, none and several are not.

    The first of these rules that any model meets decides: its name or file name as written, the
    same without regard to case, a name that begins so.
    """
    wanted = name.casefold()
    rules: tuple[Callable[[tuple[str, ...]], bool], ...] = (
        lambda known: name in known,
        lambda known: wanted in map(str.casefold, known),
        lambda known: any(one.casefold().startswith(wanted) for one in known),
    )
    for rule in rules:
        if fitting := [model for model in models if rule(names_of(model))]:
            return fitting
    return []


def names_of(model: FoundModel) -> tuple[str, ...]:
    """Return what a model may be called: the name that lists show, and its file name.

    Nobody calls a model by the file name that Ollama keeps it under, its digest.
    """
    file = model.path.name
    return (model.name, file) if file.lower().endswith(".gguf") else (model.name,)


def nearest(models: Iterable[FoundModel], name: str) -> list[str]:
    """Return up to three shown names that are most like `name`, the likest first."""
    scored = sorted(_likenesses(models, name), reverse=True)
    return [shown for likeness, shown in scored[:SHOWN] if likeness >= LIKE]


def _likenesses(models: Iterable[FoundModel], name: str) -> Iterator[tuple[float, str]]:
    wanted = name.casefold()
    for shown in dict.fromkeys(model.name for model in models):
        yield SequenceMatcher(None, wanted, shown.casefold()).ratio(), shown
