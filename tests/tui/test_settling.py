"""A screen that is laid out anew for each part of a code block is late for every key.

While text streams, all that a piece of it adds is laid out once, and keys are drawn meanwhile.
"""

from typing import Any

import pytest
from textual._compositor import Compositor
from textual.geometry import Size
from textual.widget import Widget

from stratadesk.engine.events import Phase
from stratadesk.tui.screens import settling
from stratadesk.tui.widgets.phase_banner import PhaseBanner
from stratadesk.tui.widgets.prompt_input import PromptInput
from stratadesk.tui.widgets.safe_markdown import SafeMarkdown
from tests.tui import scripted_engine as script
from tests.tui.looking import text_of, wait_for_text, wait_until
from tests.tui.scripted_engine import ScriptedEngine, make_app

RICH = """\
## Heading

1. one
2. two

```python
x = 1
```

| a | b |
| --- | --- |
| 1 | 2 |

> quoted
"""
LONG_S = 30.0


@pytest.fixture
def arrangements(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Collect whether each arrangement of the whole screen was for all of its widgets."""
    made: list[bool] = []
    arrange = Compositor._arrange_root

    def counted(
        self: Compositor, root: Widget, size: Size, visible_only: bool = True
    ) -> tuple[Any, set[Widget]]:
        made.append(not visible_only)
        return arrange(self, root, size, visible_only)

    monkeypatch.setattr(Compositor, "_arrange_root", counted)
    return made


async def test_a_piece_with_many_parts_is_laid_out_once(arrangements: list[bool]) -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 40)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.started(1), script.phase(Phase.DECODING), script.said(1, "Begin.\n\n"))
        await wait_for_text(pilot, "Begin.")
        await pilot.pause(0.5)
        arrangements.clear()
        engine.say(script.said(1, RICH))
        await wait_for_text(pilot, "quoted")
        await pilot.pause(0.5)
        assert 1 <= sum(arrangements) <= 2
        for words in ("Heading", "1. one", "x = 1", "quoted"):
            assert words in text_of(pilot.app)


async def test_a_key_is_drawn_while_a_layout_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=(100, 40)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.started(1), script.phase(Phase.DECODING), script.said(1, "Begin.\n\n"))
        await wait_for_text(pilot, "Begin.")
        await pilot.pause(0.3)
        monkeypatch.setattr(settling, "SETTLE_S", LONG_S)
        drawn: list[bool] = []
        refresh = app.screen._compositor_refresh

        def noted() -> None:
            drawn.append(app.screen._layout_required)
            refresh()

        app.screen._compositor_refresh = noted  # type: ignore[method-assign]
        engine.say(script.said(1, "More.\n\n" + RICH))
        await wait_until(pilot, lambda: app.screen._layout_required, "a layout that waits")
        await pilot.press("x")
        await wait_until(pilot, lambda: True in drawn, "a frame before the layout")
        assert app.screen.query_one(PromptInput).text == "x"
        assert "Heading" not in text_of(app)
        monkeypatch.setattr(settling, "SETTLE_S", 0.0)
        await wait_for_text(pilot, "Heading")


async def test_a_key_that_is_drawn_early_makes_nothing_else_be_forgotten() -> None:
    """What had changed beside it would show an old figure until the next one."""
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(100, 40)) as pilot:
        await wait_for_text(pilot, "READY")
        banner, editor = app.screen.query_one(PhaseBanner), app.screen.query_one(PromptInput)
        app.screen._dirty_widgets |= {banner, editor}
        app.chat_screen._draw_focused()
        assert banner in app.screen._dirty_widgets
        assert editor not in app.screen._dirty_widgets


async def test_nothing_waits_while_no_text_streams() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=(100, 40)) as pilot:
        await wait_for_text(pilot, "READY")
        assert not app.chat_screen.streams
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        await wait_until(pilot, lambda: app.chat_screen.streams, "an answer")
        engine.say(script.finished(1, RICH), script.phase(Phase.READY))
        await wait_until(pilot, lambda: not app.chat_screen.streams, "the end")


async def test_a_table_gets_its_rows_while_it_is_written() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 40)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.started(1), script.phase(Phase.DECODING))
        for piece in ("| name | size |\n| --- | --- |\n| alp", "ha | 1 |\n", "| beta | 22 |\n"):
            engine.say(script.said(1, piece))
            await wait_for_text(pilot, piece.strip("|\n ").split(" |")[0].split("| ")[-1])
        rows = [row for row in text_of(pilot.app).split("\n") if "alpha" in row or "beta" in row]
        assert ["alpha" in row and " 1 " in row for row in rows] == [True, False]
        assert "22" in rows[1]
        assert len(pilot.app.screen.query(SafeMarkdown)) >= 1
