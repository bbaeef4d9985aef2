"""Guards against a legend that shows 0 where nobody knows."""

from stratadesk.engine.vram.ledger import CardFigures, LedgerLine, make_ledger
from stratadesk.tui.mib import scale_of
from stratadesk.tui.widgets.card_legend import legend
from stratadesk.units import MIB


def figures_of(others: int | None, outside: int | None) -> dict[str, str]:
    card = CardFigures(8_192 * MIB, 6_144 * MIB, others, outside)
    ledger = make_ledger(card, (LedgerLine("weights", 300 * MIB),), reserve=0)
    return {entry.name: entry.figure for entry in legend(ledger, scale_of(ledger.total))}


def test_what_no_source_tells_has_a_dash_and_is_not_explained() -> None:
    figures = figures_of(None, None)
    assert figures["GPU context"] == figures["programs"] == "–"
    assert (figures["weights"], figures["unexplained"]) == ("300", "1,748")


def test_what_a_source_tells_is_shown_even_if_it_is_nothing() -> None:
    figures = figures_of(0, None)
    assert (figures["GPU context"], figures["programs"]) == ("–", "0")
    assert figures["unexplained"] == "1,748"
    figures = figures_of(None, 500 * MIB)
    assert (figures["GPU context"], figures["programs"]) == ("500", "1,248")
    assert figures["unexplained"] == "0"
