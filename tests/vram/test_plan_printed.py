"""Guards against printed plans that do not add up, and documents that say other figures."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stratadesk.engine.vram.machine_facts import MachineFacts, System
from stratadesk.engine.vram.plan_json import REQUESTS
from stratadesk.engine.vram.plan_settings import Layout
from stratadesk.engine.vram.regions import PHASES
from stratadesk.engine.vram.shape import (
    ModelShape,
)
from stratadesk.units import GIB, MIB
from tests.vram.plan_models import plan_of, tiny_moe


def test_the_json_has_these_keys_and_adds_up(shape_35b: ModelShape) -> None:
    found = plan_of(shape_35b).as_json()
    assert list(found) == [
        "card", "regions", "rows", "slots_total", "slots_per_layer", "slot_bytes_per_layer",
        "head_bytes", "tiers", "layouts", "free_mib_by_phase", "reserve_mib", "requests",
        "problems", "device_cuda",
    ]  # fmt: skip
    assert found["device_cuda"] is None
    assert found["rows"] == 66
    assert sum(found["slots_per_layer"]) == found["slots_total"]  # type: ignore[call-overload]
    assert list(found["free_mib_by_phase"]) == list(PHASES)  # type: ignore[call-overload]
    requests = found["requests"]
    assert isinstance(requests, list)
    assert [request["tokens"] for request in requests] == list(REQUESTS)
    for request in requests:
        assert list(request) == [
            "tokens", "path", "layout", "chunk", "slots_lent", "head", "seconds", "terms", "why",
        ]  # fmt: skip
        terms = request["terms"]
        total = terms["reading"] + terms["refill"] + terms["head_return"]
        assert request["seconds"] == pytest.approx(total, abs=3e-6)


def test_the_table_adds_up_to_the_card_and_says_shares_in_bytes(shape_35b: ModelShape) -> None:
    text = plan_of(shape_35b).as_text()
    assert max(map(len, text.splitlines())) <= 100
    assert "2,616 of 10,240 experts (26%), 65 to 66 a layer" in text
    blocks = text.split("\n\n")
    rows = next(each for each in blocks if each.startswith("  the card ")).splitlines()[1:]
    figures = [float(re.split(r" {2,}", row.strip())[1].replace(",", "")) for row in rows]
    assert figures[-1] == 8151
    assert abs(sum(figures[:-1]) - 8151) <= 3
    bar = next(line for line in text.splitlines() if line.startswith("  ["))
    assert all(glyph in bar for glyph in "oDKsHE.")


def test_ram_is_written_as_people_read_it(shape_35b: ModelShape) -> None:
    machine = MachineFacts(ram=25_276_530_688, free=7151 * MIB)
    assert ", RAM 23.5 GiB, link" in plan_of(shape_35b, machine).as_text()
    assert ", RAM 32 GiB, link" in plan_of(shape_35b).as_text()


def test_free_memory_given_replaces_both_guesses(shape_35b: ModelShape) -> None:
    assert plan_of(shape_35b, MachineFacts(free=7151 * MIB)).slots == 2616
    text = plan_of(shape_35b, MachineFacts(free=7151 * MIB)).as_text()
    assert "given by --free-mib" in text


def test_a_card_that_nobody_else_holds_is_not_told_as_a_flag(shape_35b: ModelShape) -> None:
    machine = MachineFacts(card=7151 * MIB, desktop=0, context=0)
    text = plan_of(shape_35b, machine).as_text()
    assert plan_of(shape_35b, machine).slots == 2616
    assert "none: the card is made up" in text
    assert "--free-mib" not in text


def test_escape_sequences_in_a_models_name_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in plan_of(replace(tiny_moe(), name="a\x1b[31mb")).as_text()


def test_planning_loads_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "import stratadesk.engine.vram.plan, stratadesk.engine.vram.shape_reader\n"
        "import stratadesk.engine.vram.plan_text, stratadesk.engine.vram.plan_json\n"
        "tops = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(tops - set(sys.stdlib_module_names) - {'stratadesk'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


# The tables of docs/DETAILS.md, recomputed from the sizes that stand above them.

DETAILS = Path(__file__).parents[2] / "docs" / "DETAILS.md"


def table_below(heading: str, first_column: str) -> list[list[str]]:
    """Cells of the table that begins with `first_column`, in the section with this heading."""
    section = DETAILS.read_text("utf-8").partition(f"### {heading}\n")[2].partition("\n#")[0]
    lines = section.partition(f"| {first_column} |")[2].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace(",", "") for cell in line.strip("|").split("|")])
    assert rows, f"no table with a column {first_column!r} below {heading!r}"
    return rows


def test_the_parts_in_the_documents_are_the_plans(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b)
    by_hand = [
        plan.parts.dense / MIB,
        10 * 2 * 2 * 256 * 2 * 32_768 / MIB,
        2 * 30 * 4 * (3 * 8192 + 32 * 128 * 128) / MIB,
        60,
        248_320 * 2048 / 256 * 176 / MIB,
    ]
    written = [float(row[2]) for row in table_below("By hand", "Part")]
    assert written == pytest.approx([*by_hand, sum(by_hand)], abs=0.051)
    assert written[-1] == pytest.approx(plan.geometry.rows_start / MIB, abs=0.051)


def test_the_cards_in_the_documents_are_the_plans(shape_35b: ModelShape) -> None:
    slot, head = 1_671_168 / MIB, 248_320 * 2048 / 256 * 176 / MIB
    rows = table_below("By hand", "Card")
    assert [row[0] for row in rows] == ["6144", "8151", "12282", "16376"]
    for row in rows:
        figures = [float(cell.removesuffix(" %")) for cell in row]
        plan = plan_of(shape_35b, MachineFacts(card=int(figures[0]) * MIB))
        parts = plan.parts.dense / MIB + 640 + 125.625 + 60 + head
        left = figures[0] - 700 - 300 - 590 - parts
        small, large = (102 + chunk * 100.25 / 1024 for chunk in (2048, 8192))
        slots = left // slot
        by_hand = [left, slots, 100 * slots / 10_240, (left - large) // slot]
        lent = [-(-max(0, need) // slot) for need in (small, small - head, large, large - head)]
        assert figures[1:5] == pytest.approx(by_hand, abs=0.51)
        assert figures[5:] == lent
        assert figures[2] == plan.slots == slots
        assert figures[4] == plan.layouts[Layout.FIXED].slots_total
        assert figures[7:] == [
            plan.layouts[name].slots_lent for name in (Layout.LOAN, Layout.ALIAS)
        ]


def test_the_ram_in_the_documents_is_the_plans(shape_35b: ModelShape) -> None:
    slot, total, copies = 1_671_168, 10_240 * 1_671_168, 2 * 349_634_560
    rows = table_below("RAM", "RAM")
    assert [row[0] for row in rows] == ["16", "32", "64"]
    for row in rows:
        ram = int(row[0]) * GIB
        written = [float(cell) for cell in row[1:7]]
        by_hand: list[float] = []
        for system, share in ((System.LINUX, 0.8), (System.WINDOWS, 0.4)):
            pinned = min(total, (share * ram - copies) // slot * slot)
            by_hand += [share * ram / GIB, pinned / GIB, (total - pinned) / GIB]
            plan = plan_of(shape_35b, MachineFacts(ram=ram, system=system))
            assert (plan.host.pinned, plan.host.pageable) == (pinned, total - pinned)
            assert plan.refused is (1.1 * (total + copies) > ram) is (row[7] == "no")
        assert written == pytest.approx(by_hand, abs=0.0051)


def test_the_seconds_in_the_documents_are_the_plans(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b)
    rows = table_below("Seconds", "Fresh tokens")
    assert [int(row[0]) for row in rows] == list(REQUESTS)
    for row in rows:
        request = plan.request(int(row[0]))
        assert row[1] == (request.layout or request.path)
        assert [int(row[2]), int(row[3])] == [request.chunk, request.slots_lent]
        assert float(row[4]) == pytest.approx(request.seconds, abs=0.0051)
