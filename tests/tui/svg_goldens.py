"""Comparing a screenshot with the one kept, whatever ids and fonts the exporter writes."""

import difflib
import re
from pathlib import Path

FOLDER = Path(__file__).parent / "goldens"
_IDS = re.compile(r"terminal-\d+-")
_FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
_TITLE_IDS = re.compile(r"terminal-\d+")


def normalised(svg: str) -> str:
    """Return the SVG without what differs from run to run, or is fetched from elsewhere."""
    return _TITLE_IDS.sub("terminal", _IDS.sub("terminal-", _FONTS.sub("", svg)))


def compare(name: str, svg: str, *, update: bool) -> None:
    """Compare with the golden `name`; with `update` write it instead."""
    path, shown = FOLDER / f"{name}.svg", normalised(svg)
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, "utf-8")
        return
    assert path.exists(), f"no golden {name}: write it with --update-goldens"
    kept = path.read_text("utf-8")
    if kept == shown:
        return
    lines = difflib.unified_diff(_words(kept), _words(shown), "golden", "screen", lineterm="", n=1)
    difference = "\n".join(lines) or "only colours or positions differ"
    raise AssertionError(f"{name} looks different (--update-goldens accepts it):\n{difference}")


def _words(svg: str) -> list[str]:
    """The texts of a screenshot, row by row."""
    return [text.replace("&#160;", " ") for text in re.findall(r"<text[^>]*>(.*?)</text>", svg)]
