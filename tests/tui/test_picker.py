"""A picker that hides a file, or starts one that cannot run, leaves the user guessing."""

import threading
from dataclasses import replace
from pathlib import Path

from stratadesk.engine.commands import EngineSettings, LoadModel
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.tui.options import AppOptions
from stratadesk.tui.ports import OneCard
from stratadesk.tui.screens.picker_screen import PickerScreen
from stratadesk.tui.widgets.model_picks import ModelPicks
from tests.tui import scripted_engine as script
from tests.tui.looking import rows_of, text_of, wait_for_text, wait_until
from tests.tui.scripted_engine import MODEL, Found, Place, ScriptedEngine, Search, Skipped, make_app

RUNS = Found("Qwen3 30B A3B", Path("a.gguf"), "Hugging Face", shards=2)
BLOCKED = Found(
    "Mixtral", Path("b.gguf"), architecture="llama", supported=False, why_not="llama is not known."
)
SEARCH = Search([BLOCKED, RUNS], [Skipped(Path("mmproj.gguf"), "a vision projector")])


async def test_models_are_listed_with_size_store_and_architecture_and_enter_starts_one() -> None:
    engine = ScriptedEngine()
    async with make_app(engine, model=None, found=SEARCH).run_test() as pilot:
        await wait_for_text(pilot, "2 models found · 1 cannot run")
        for fact in ("Qwen3 30B A3B", "17.0 GiB", "qwen3moe · Hugging Face · 2 files"):
            assert fact in text_of(pilot.app)
        assert text_of(pilot.app).index("Qwen3") < text_of(pilot.app).index("Mixtral")
        await pilot.press("enter")
        await wait_until(pilot, lambda: engine.commands, "a command")
        (command,) = engine.commands
        assert isinstance(command, LoadModel)
        assert command.path == RUNS.path
        await wait_for_text(pilot, "READY")


async def test_a_model_that_cannot_run_is_marked_explained_and_not_started() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, model=None, found=SEARCH)
    async with app.run_test(notifications=True) as pilot:
        await wait_for_text(pilot, "✗ Mixtral")
        assert "llama is not known." in text_of(pilot.app)
        await pilot.press("down", "enter")
        await pilot.pause(0.1)
        assert engine.commands == []
        assert isinstance(app.screen, PickerScreen)


async def test_skipped_files_are_counted_and_explained_on_demand() -> None:
    engine = ScriptedEngine()
    async with make_app(engine, model=None, found=SEARCH).run_test() as pilot:
        await wait_for_text(pilot, "1 file passed over")
        assert "a vision projector" not in text_of(pilot.app)
        await pilot.press("tab", "enter")
        await wait_for_text(pilot, "a vision projector")
        assert "mmproj.gguf" in text_of(pilot.app)


PLACES = [
    Place("STRATADESK_MODELS", Path("/mnt/my\x1b[2Jmodels")),
    Place("LM Studio", Path.home() / ".lmstudio" / "models"),
    Place("LM Studio", Path.home() / ".cache" / "lm-studio" / "models"),
    Place("Ollama", Path.home() / ".ollama" / "models"),
]


async def test_nothing_found_says_where_it_was_looked_and_what_to_do() -> None:
    app = make_app(ScriptedEngine(), model=None, found=Search(searched=PLACES))
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "No model was found on this machine.")
        rows = [row.strip() for row in rows_of(app)]
        assert "STRATADESK_MODELS: /mnt/my␛[2Jmodels" in rows
        assert "LM Studio: ~/.lmstudio/models, ~/.cache/lm-studio/models" in rows
        words = " ".join(" ".join(rows).split())
        for hint in ("-m FILE starts", "stratadesk models lists", "Qwen3-30B-A3B", "The guide,"):
            assert hint in words
        await pilot.press("escape")
        await wait_for_text(pilot, "F2 chooses one")


async def test_a_search_that_fails_is_explained() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, model=None)

    def broken() -> Search:
        raise PermissionError("models: permission denied")

    app._discover = broken
    async with app.run_test() as pilot:
        await wait_for_text(pilot, "permission denied")


async def test_names_from_files_cannot_paint_the_screen() -> None:
    engine = ScriptedEngine()
    evil = Search([Found("evil\x1b[2J\nname")], [Skipped(Path("x\x1b]0;y\x07.gguf"), "\x9bno")])
    async with make_app(engine, model=None, found=evil).run_test() as pilot:
        await wait_for_text(pilot, "evil␛[2J name")
        await pilot.press("tab", "enter")
        await wait_for_text(pilot, "x␛]0;y␇.gguf")
        assert not {"\x1b", "\x07", "\x9b"} & set(text_of(pilot.app))


async def test_f2_changes_the_model_in_the_middle_of_a_chat() -> None:
    engine = ScriptedEngine()
    async with make_app(engine, found=SEARCH).run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.finished(1, "b"))
        await wait_for_text(pilot, "reused 0 of 64")
        await pilot.press("f2")
        await wait_for_text(pilot, "2 models found")
        engine.silent = True
        await pilot.press("enter")
        await wait_until(pilot, lambda: len(engine.commands) == 3, "a second load")
        engine.say(*script.loading(3, 12))
        await wait_for_text(pilot, "Compiling kernels 3 of 12")
        engine.say(*script.loaded())
        await wait_for_text(pilot, "answers from here on")
        await pilot.press("c", "enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "a second request")
        assert len(engine.requests[1].messages) == 3


async def test_page_keys_home_and_end_move_the_highlight() -> None:
    engine = ScriptedEngine()
    many = Search([Found(f"model {number:02}") for number in range(30)])
    app = make_app(engine, model=None, found=many)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "30 models found")
        picks = app.screen.query_one(ModelPicks)
        await pilot.press("pagedown")
        page = picks.index or 0
        assert 2 <= page <= 10
        await pilot.press("pagedown", "pageup")
        assert picks.index == page
        await pilot.press("end")
        assert picks.index == 29
        await wait_for_text(pilot, "model 29")
        await pilot.press("pagedown")
        assert picks.index == 29
        await pilot.press("home")
        assert picks.index == 0
        await pilot.press("pageup")
        assert picks.index == 0


async def test_the_guide_stands_behind_the_models_that_run_and_says_when_it_is_alone() -> None:
    guide = Found("guide", Path("g.gguf"), "bundled")
    several = Search([guide, BLOCKED, RUNS])
    async with make_app(ScriptedEngine(), model=None, found=several).run_test() as pilot:
        await wait_for_text(pilot, "3 models found")
        shown = text_of(pilot.app)
        assert shown.index("Qwen3 30B") < shown.index("guide") < shown.index("Mixtral")
    alone = Search([guide], [Skipped(Path("mmproj.gguf"), "a vision projector")], PLACES * 2)
    async with make_app(ScriptedEngine(), model=None, found=alone).run_test() as pilot:
        await wait_for_text(pilot, "No other model was found")
        for fact in ("The guide below", "bundled", "1 file passed over", "^Q quit"):
            assert fact in text_of(pilot.app), fact


class OneMade(OneCard):
    """A card for one model alone; what is chosen on it is not kept."""

    made = PlanSettings(reserve=8)

    def fit(self, model: Path, settings: EngineSettings) -> EngineSettings:
        return replace(settings, plan=self.made if model == MODEL else None)

    def keeps(self, field: str, settings: EngineSettings) -> bool:
        return settings.plan is None


async def test_a_model_with_a_card_of_its_own_leaves_no_trace_of_it_for_others() -> None:
    engine, kept = ScriptedEngine(), []
    options = AppOptions(remember=lambda key, _value: kept.append(key), cards=OneMade())
    app = make_app(engine, found=SEARCH, options=options)
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        app._keep("expert_cache", 256, app._control.settings)
        await pilot.press("f2")
        await wait_for_text(pilot, "2 models found")
        await pilot.press("enter")
        await wait_until(pilot, lambda: len(engine.commands) == 2, "a second load")
        app._keep("monitor", "narrow", app._control.settings)
        await wait_until(pilot, lambda: kept, "something kept")
        await pilot.press("f8")
        await wait_until(pilot, lambda: len(engine.commands) == 3, "a third load")
    loads = [command for command in engine.commands if isinstance(command, LoadModel)]
    assert [load.settings.plan for load in loads] == [OneMade.made, None, None]
    assert kept == ["monitor"]


MANY = Search(
    [
        Found("Qwen3-30B-A3B-Q4_K_M", Path("q.gguf"), quantization="Q4_K_M"),
        Found("qwen3:30b", Path("o.gguf"), "Ollama", quantization="IQ4_XS"),
        Found("gpt-oss-20b", Path("g.gguf"), architecture="gpt-oss", quantization="MXFP4_MOE"),
        *(Found(f"model {n:02}", Path(f"{n}.gguf"), architecture="olmoe") for n in range(20)),
    ]
)


async def test_typing_narrows_the_list_and_enter_starts_what_is_left() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, model=None, found=MANY)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "23 models found")
        assert "A-Z filter" in rows_of(app)[-1]
        assert "Esc back" in rows_of(app)[-1]
        await pilot.press(*"QWEN")
        await wait_for_text(pilot, "“QWEN”: 2 of 23 models")
        assert "gpt-oss" not in text_of(app)
        assert "Bksp widen" in rows_of(app)[-1]
        await pilot.press("space", *"iq4")
        await wait_for_text(pilot, "1 of 23 models")
        assert "qwen3:30b" in text_of(app)
        assert "qwen3moe · IQ4_XS · Ollama" in text_of(app)
        await pilot.press("enter")
        await wait_until(pilot, lambda: engine.commands, "a command")
        assert engine.commands[0] == LoadModel(Path("o.gguf"), EngineSettings())


async def test_backspace_widens_and_escape_clears_the_filter_before_it_closes() -> None:
    app = make_app(ScriptedEngine(), model=None, found=MANY)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "23 models found")
        await pilot.press(*"mxfpx")
        await wait_for_text(pilot, "No model matches “mxfpx”; Bksp takes a letter back")
        assert not app.screen.query_one(ModelPicks).display
        await pilot.press("backspace")
        await wait_for_text(pilot, "“mxfp”: 1 of 23 models")
        assert "gpt-oss-20b" in text_of(app)
        assert "Esc show all" in rows_of(app)[-1]
        await pilot.press("escape")
        await wait_for_text(pilot, "23 models found")
        assert app.screen.query_one(ModelPicks).index == 0
        await pilot.press("backspace", "escape")
        await wait_until(pilot, lambda: not isinstance(app.screen, PickerScreen), "it closes")


async def test_what_is_typed_while_the_search_runs_counts() -> None:
    app, found = make_app(ScriptedEngine(), model=None), threading.Event()

    def slow() -> Search:
        found.wait(30)
        return MANY

    app._discover = slow
    async with app.run_test() as pilot:
        await wait_for_text(pilot, "Looking for GGUF files")
        await pilot.press(*"gpt")
        found.set()
        await wait_for_text(pilot, "“gpt”: 1 of 23 models")
