"""What the choice of a model says when there is none to choose."""

from collections.abc import Sequence
from pathlib import Path

from stratadesk.tui.ports import ModelSearch, Place
from stratadesk.tui.sanitise import safe_line

INDENT = "  "
WAYS = (
    ("stratadesk -m FILE", "starts a GGUF file wherever it lies"),
    ("STRATADESK_MODELS", "names folders of your own, to be searched as well"),
    ("stratadesk models", "lists what was found, and why files were passed over"),
)
GET_ONE = "Get one with LM Studio or from Hugging Face, such as a Qwen3-30B-A3B GGUF."
GUIDE_BELOW = "The guide below came with StrataDesk and knows it alone: Enter starts it."
NO_GUIDE = "The guide, which comes with StrataDesk and explains it, is not there either."


def nothing_found(found: ModelSearch) -> str:
    """Say that there is no model but the guide, where it was looked, and what helps."""
    guide = bool(found.models)
    return "\n".join(
        (
            f"No {'other ' if guide else ''}model was found on this machine."
            + (" These folders were searched:" if found.searched else ""),
            *places(found.searched, Path.home()),
            "",
            GET_ONE,
            *(f"{INDENT}{what:<19}{does}" for what, does in WAYS),
            GUIDE_BELOW if guide else NO_GUIDE,
        )
    )


def places(searched: Sequence[Place], home: Path) -> list[str]:
    """Write a line for each program or setting whose folders were searched."""
    folders: dict[str, list[str]] = {}
    for place in searched:
        folders.setdefault(place.name, []).append(_short(place.folder, home))
    return [f"{INDENT}{name}: {', '.join(dict.fromkeys(names))}" for name, names in folders.items()]


def _short(folder: Path, home: Path) -> str:
    inside = folder.is_relative_to(home)
    return safe_line(str(Path("~") / folder.relative_to(home) if inside else folder))
