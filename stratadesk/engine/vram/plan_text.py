"""Draws a plan for people: fit tables, a bar of the card, layouts side by side, requests."""

from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from stratadesk.engine.vram.alias_gain import alias_gain
from stratadesk.engine.vram.buffers import HOST_RULE
from stratadesk.engine.vram.machine_facts import System
from stratadesk.engine.vram.plan_json import REQUESTS
from stratadesk.engine.vram.plan_settings import Layout
from stratadesk.units import GIB, MIB, mib

if TYPE_CHECKING:
    from stratadesk.engine.vram.plan import VramPlan
    from stratadesk.engine.vram.requests import RequestPlan
    from stratadesk.engine.vram.resident import ResidentModel

COLUMNS, BAR_CELLS = 98, 72

STREAMED = (
    "experts without a slot come over PCIe, and prompts are read in memory that slots and the "
    "output head lend"
)
ALL_DENSE = "prompts are read in large chunks"
"""What the design has that a real card has not yet: with experts, and without."""

Rows = Sequence[Sequence[str]]


def plan_text(plan: "VramPlan", resident: "ResidentModel | None" = None) -> str:
    """Return the whole plan as text of at most 100 columns; nothing is told by colour.

    `resident` tells what this version does on a real card, where that is planned for.
    """
    parts = (
        _title(plan),
        _wrapped(resident.text, "  ") if resident else "",
        "" if _is_simulated(plan) else _wrapped(_design(plan), "  "),
        _table(("the card", "MiB", ""), list(_card_lines(plan))),
        _bar(plan),
        _table(("RAM", "GiB", ""), list(_host_lines(plan))),
        _table(("layout", "largest chunk", "buffers MiB", "slots lent", "slots"), _layouts(plan)),
        _wrapped(alias_gain(plan), "  "),
        _table(("tokens", "path", "chunk", "lent", "head", "seconds", "bound by"), _requests(plan)),
        "\n".join(_wrapped(str(problem), "  ! ") for problem in _notes(plan)),
    )
    return "\n\n".join(part for part in parts if part)


def _notes(plan: "VramPlan") -> Iterator[object]:
    """The problems besides the one for which the plan is refused: that ends the command."""
    return (problem for problem in plan.problems if problem is not plan.refusal)


def _wrapped(text: str, mark: str) -> str:
    """Break a sentence to `COLUMNS`; `mark` begins the first line, blanks the others."""
    return fill(text, COLUMNS, initial_indent=mark, subsequent_indent=" " * len(mark))


def _title(plan: "VramPlan") -> str:
    machine, name = plan.machine, _printable(plan.shape.name)
    ram = round(machine.ram / GIB, 1)
    simulated = "  as run and the chat plan it on this CPU, which simulates the card\n"
    return (
        f"{name} ({plan.shape.architecture}), context {plan.context:,} tokens\n"
        f"{simulated if _is_simulated(plan) else ''}"
        f"  card {mib(machine.card):,.0f} MiB, {machine.system}, RAM {ram:,g} GiB, "
        f"link {machine.rates.link / 1e9:g} GB/s"
    )


def _is_simulated(plan: "VramPlan") -> bool:
    return plan.inputs.rule is HOST_RULE


def _design(plan: "VramPlan") -> str:
    design = STREAMED if plan.planner.most_slots else ALL_DENSE
    return (
        f"The tables are the design for an NVIDIA card: {design}. No real card does this yet, "
        "but the simulated one of run and the chat (--device host)."
    )


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _card_lines(plan: "VramPlan") -> Iterator[tuple[str, str, str]]:
    machine, reserve = plan.machine, plan.settings.reserve
    if machine.free is None and not machine.desktop and not machine.context:
        yield "others, context", _mib(0), "none: the card is made up"
    elif machine.free is None:
        yield "other programs", _mib(machine.desktop), "assumed; --free-mib gives what is free"
        yield "CUDA context", _mib(machine.context), "assumed"
    else:
        yield "others, context", _mib(machine.card - machine.free), "given by --free-mib"
    yield "dense weights", _mib(plan.parts.dense), "100 % on the card"
    yield "KV cache", _mib(plan.parts.kv), _kv_cache(plan)
    if plan.parts.state:
        yield "recurrent state", _mib(plan.parts.state), "two copies"
    yield "decode scratch", _mib(plan.parts.scratch + plan.parts.staging), _staging(plan)
    if plan.arena.fixed_buffers:
        yield "prompt buffers", _mib(plan.arena.fixed_buffers), "of their own (layout fixed)"
    yield "output head", _mib(plan.geometry.head.size), _head(plan)
    yield "expert slots", _mib(plan.host.slot), _slots(plan)
    unused = plan.free_bytes("ready") - reserve
    yield "reserve", _mib(reserve), "stays free in every phase"
    yield "unused", _mib(unused), "" if unused >= 0 else "the reserve is not kept"
    yield "total", _mib(machine.card), ""


def _kv_cache(plan: "VramPlan") -> str:
    kept = f"{plan.context:,} tokens, {plan.settings.kv_format}"
    windows = plan.shape.windows(plan.settings.mtp)
    if not windows:
        return kept
    layers = len(plan.shape.running(plan.settings.mtp))
    return (
        f"{kept}; {len(windows)} of {layers} layers see only the last {max(windows):,}, all is kept"
    )


def _staging(plan: "VramPlan") -> str:
    return "staging slot included" if plan.parts.staging else ""


def _head(plan: "VramPlan") -> str:
    if plan.shape.tied:
        return "is the embedding, counted with the dense weights and never lent"
    lends = Layout.ALIAS in plan.requests.allowed(plan.arena)
    return "may be out while a prompt is read" if lends else "always in"


def _slots(plan: "VramPlan") -> str:
    if not plan.planner.most_slots:
        return "none: the model has no experts, so there are no rows to lend"
    least, most = min(plan.arena.resident()), max(plan.arena.resident())
    share = plan.slots / plan.planner.most_slots
    each = f"{least} a layer" if least == most else f"{least} to {most} a layer"
    return f"{plan.slots:,} of {plan.planner.most_slots:,} experts ({share:.0%}), {each}"


def _bar(plan: "VramPlan") -> str:
    machine = plan.machine
    shares = (
        ("o", "others", machine.card - machine.free_before),
        ("D", "dense", plan.parts.dense),
        ("K", "KV and state", plan.parts.kv + plan.parts.state),
        ("s", "scratch", plan.parts.scratch + plan.parts.staging),
        ("p", "prompt buffers", plan.arena.fixed_buffers),
        ("H", "head", plan.geometry.head.size),
        ("E", "experts", plan.host.slot),
        (".", "free", max(0, plan.free_bytes("ready"))),
    )
    shown = [share for share in shares if share[2]]
    total = sum(n_bytes for _, _, n_bytes in shown) or 1
    cells, done, bar = 0, 0, ""
    for glyph, _, n_bytes in shown:
        done += n_bytes
        end = max(cells + 1, round(BAR_CELLS * done / total))
        bar += glyph * (end - cells)
        cells = end
    legend = "  ".join(f"{glyph} {name}" for glyph, name, _ in shown)
    return f"  [{bar}]\n   {legend}"


def _host_lines(plan: "VramPlan") -> Iterator[tuple[str, str, str]]:
    host, machine = plan.host, plan.machine
    if host.experts:
        pinned = f"{host.pinned_share:.0%} of the experts"
        yield "experts, pinned", _gib(host.pinned), pinned
        yield "experts, pageable", _gib(host.pageable), "in the mapped file"
    yield "head, embedding", _gib(host.copies), "host copies"
    spare = host.needed - host.experts - host.copies
    yield "spare", _gib(spare), "a tenth of these"
    yield "needed", _gib(host.needed), f"of {_gib(machine.ram)} GiB"
    if machine.system is not System.LINUX and machine.commit is not None:
        yield "commit limit", _gib(machine.commit), "RAM and page file"
        yield "page file", _gib(machine.page_file or 0), "less than 4 GiB is too small"
    yield "may be pinned", _gib(host.budget if plan.settings.pin is None else host.pinned), ""


def _layouts(plan: "VramPlan") -> Rows:
    return [
        (
            layout.value,
            f"{facts.max_chunk:,}" if facts.max_chunk else "none",
            _mib(facts.buffer_bytes),
            f"{facts.slots_lent:,}",
            f"{facts.slots_total:,}",
        )
        for layout, facts in plan.layouts.items()
    ]


def _requests(plan: "VramPlan") -> Rows:
    return [_row(plan, tokens) for tokens in REQUESTS]


def _row(plan: "VramPlan", tokens: int) -> Sequence[str]:
    if tokens > plan.context:
        return (f"{tokens:,}", "longer than the context", "", "", "", "", "")
    return _request(plan.request(tokens))


def _request(request: "RequestPlan") -> Sequence[str]:
    reading = request.reading
    return (
        f"{request.tokens:,}",
        request.layout.value if request.layout else "decode",
        f"{request.chunk:,}",
        f"{request.slots_lent:,}",
        "out" if request.head_out else "in",
        f"{request.seconds:,.2f}" if request.seconds >= 0.1 else f"{request.seconds:.4f}",
        "computing" if reading.compute > reading.link else "the link",
    )


def _table(header: Sequence[str], rows: Rows) -> str:
    """Left-align the first column and words, right-align columns of figures."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    figures = [
        all(_is_figure(row[column]) for row in rows if row[column]) for column in range(len(header))
    ]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, figures, strict=True)
        ).rstrip()
        for row in (header, *rows)
    ]
    return "\n".join(f"  {line}" for line in lines)


def _is_figure(text: str) -> bool:
    return text.lstrip("-")[:1].isdigit() or text == "none"


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / MIB:,.0f}" if abs(n_bytes) >= 10 * MIB else f"{n_bytes / MIB:.1f}"


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / GIB:,.1f}"
