"""Text that a model, a file or a paste brings must neither reach the terminal raw nor move a line.

Wide, combining, right-to-left, joined and control characters are drawn beside the monitor's
border; the border must stand in the same column in every row.
"""

from rich.cells import cell_len

from stratadesk.engine.events import Phase
from tests.tui import scripted_engine as script
from tests.tui.looking import rows_of, text_of, wait_for_text, wait_until
from tests.tui.scripted_engine import ScriptedEngine, make_app

HOSTILE = {
    "escape sequences": "\x1b[2J\x1b]0;pwned\x07\x1b[31mred\x9b5A up \x08\x08\x7f bell \x07",
    "wide": "你好世界" * 30,
    "emoji": "👨\u200d👩\u200d👧 ❤\ufe0f 👍🏿 🇩🇪 1\ufe0f\u20e3 " * 12,
    "right to left": "שלום עולם مرحبا بالعالم \u202eevil\u202c " * 6,
    "combining": "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319 a\u0301 " * 20,
    "line ends": "one\u2028two\u2029three\u0085four\x0bfive\x0csix\r\nseven",
    "unbroken": "x" * 500,
    "html": "<b>bold</b> <script>alert(1)</script> <!-- hidden --> &lt;",
    "markup": "[bold red]not markup[/] [@click=app.quit]quit[/] [link",
    "table": "| a | b |\n|---|---|\n| 你 | \x1b[31m |\n",
    "fence": "```\x1b[31m weird {lang}\n\tcode\x1b[0m\n```\n",
    "links": "[x](javascript:alert(1)) [y](file:///etc/passwd) ![z](http://a/'\"b)",
    "deep": "> " * 60 + "deep\n" + "  " * 60 + "- list",
    "tabs": "a\tb\tc\n\n    code\tblock\n",
    "lone surrogate": "a\ud800b",
}


def assert_sound(rows: list[str], columns: int) -> None:
    borders = set()
    for row in rows[1:-1]:
        assert cell_len(row) == columns, row
        assert all(char.isprintable() or char == "\u200c" for char in row), row
        if "│" in row:
            borders.add(cell_len(row[: row.rindex("│")]))
    assert len(borders) == 1


async def test_no_border_moves_and_nothing_is_raw() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "READY")
        engine.say(script.phase(Phase.DECODING))
        for request, text in enumerate(HOSTILE.values(), 1):
            await pilot.press("a", "enter")
            await wait_until(pilot, lambda: len(engine.requests) == request, "a request")  # noqa: B023
            middle = len(text) // 2
            for piece in (text[:middle], text[middle:], "\n\nthe end"):
                engine.say(script.said(request, piece))
                await pilot.pause(0.06)
                assert_sound(rows_of(pilot.app), 80)
            engine.say(script.finished(request, text))
            await wait_for_text(pilot, "reused 0 of 64")
            assert_sound(rows_of(pilot.app), 80)
            await pilot.press("ctrl+n")


async def test_html_and_markup_are_shown_as_the_text_they_are() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(140, 40)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.said(1, f"{HOSTILE['html']}\n\n{HOSTILE['markup']}\n\n<div>block</div>"))
        await wait_for_text(pilot, "<div>block</div>")
        await wait_for_text(pilot, "<script>alert(1)</script>")
        await wait_for_text(pilot, "[bold red]not markup[/]")


async def test_single_line_ends_are_kept() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.said(1, "roses are red\nviolets are blue"))
        await wait_for_text(pilot, "violets")
        assert "roses are red violets" not in text_of(pilot.app)


async def test_what_the_user_typed_and_failed_models_say_is_cleaned_too() -> None:
    engine = ScriptedEngine(lambda _command: script.loaded(name="evil\x1b[2J", warnings=("\x9bw",)))
    async with make_app(engine).run_test(size=(140, 40)) as pilot:
        await wait_for_text(pilot, "evil␛[2J")
        assert not {"\x1b", "\x9b"} & set(text_of(pilot.app))
