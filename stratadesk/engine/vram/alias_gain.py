"""What lending the head's bytes buys on this card with this model, said honestly."""

from typing import TYPE_CHECKING

from stratadesk.engine.vram.buffers import CHUNK_STEP
from stratadesk.engine.vram.plan_settings import Layout
from stratadesk.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from stratadesk.engine.vram.plan import VramPlan

TOKENS = 8_192
"""The prompt that layouts are compared by, or as many tokens as the context holds."""

NOTICEABLE = 0.02
"""Share of a prompt's seconds below which a gain is none."""


def alias_gain(plan: "VramPlan") -> str:
    """Say in a sentence or two what the alias buys against the loan; no line breaks."""
    if plan.shape.tied:
        return "The alias is not available: the output head is the embedding and is never lent."
    alias, loan = plan.layouts[Layout.ALIAS], plan.layouts[Layout.LOAN]
    head = format_bytes(plan.geometry.head.size)
    if not alias.max_chunk:
        return f"The alias buys nothing here: head ({head}) and slots hold no chunk."
    if not loan.max_chunk:
        return (
            f"The alias reads chunks of up to {alias.max_chunk:,} tokens in the head's {head}; the "
            f"loan holds none, and buffers of their own would take {format_bytes(_first(plan))} or "
            "more for ever."
        )
    return f"{_chunks(plan)} {_seconds(plan)}"


def _first(plan: "VramPlan") -> int:
    return plan.planner.buffers(CHUNK_STEP)


def _chunks(plan: "VramPlan") -> str:
    alias, loan = plan.layouts[Layout.ALIAS], plan.layouts[Layout.LOAN]
    if alias.max_chunk > loan.max_chunk:
        return f"The alias holds chunks of {alias.max_chunk:,} tokens, the loan {loan.max_chunk:,}."
    arena, fewer = plan.planner.arena(), []
    for layout in (Layout.LOAN, Layout.ALIAS):
        fewer.append(arena.lent(layout, plan.planner.buffers(alias.max_chunk)))
    return (
        f"The alias lends {fewer[1]:,} slots at chunk {alias.max_chunk:,}, the loan {fewer[0]:,}; "
        "both hold the same chunks."
    )


def _seconds(plan: "VramPlan") -> str:
    tokens, arena = min(TOKENS, plan.context), plan.planner.arena()
    alias = plan.requests.best(arena, Layout.ALIAS, tokens)
    loan = plan.requests.best(arena, Layout.LOAN, tokens)
    if alias is None or loan is None:
        return ""
    saved = loan.seconds - alias.seconds
    ours, theirs = format_seconds(alias.seconds), format_seconds(loan.seconds)
    times = f"{ours} for {tokens:,} tokens against {theirs}"
    if saved > NOTICEABLE * loan.seconds:
        return f"It saves time: {times}."
    if saved < -NOTICEABLE * loan.seconds:
        return f"It costs time here: {times}."
    return f"It hardly changes the time: {times}."
