"""`bench routing`: which experts a model's tokens use, and what a cache of some would find."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stratadesk.cli.kernel_cache import warn_of_unkept_kernels
from stratadesk.cli.run import answering_model
from stratadesk.errors import UsageError
from stratadesk.exit_codes import ExitCode
from stratadesk.logs import start_logging
from stratadesk.settings import MOST_TOKENS, Flag
from stratadesk.units import MIB

if TYPE_CHECKING:
    from stratadesk.engine.routing_bench import RecordedRouting
    from stratadesk.engine.routing_record import LayerUse, RoutingRecord
    from stratadesk.engine.vram.cache_counters import CacheCounters

PURPOSE = "which experts a model uses, and how often a cache of some of them would hit"
MOST_WRITTEN = Flag(
    "tokens", ("-n", "--tokens"), int, 64, "most tokens of an answer", low=1, high=MOST_TOKENS
)
MOST_TEXT = 16 * MIB
"""Bytes of a file of questions: more is no such file, and would fill the memory."""

SHARES = {"1/8": 8, "1/4": 4, "1/2": 2}
"""Parts of all experts, and what their number is divided by."""

QUESTIONS = (
    "What does head out mean?",
    "How do I give video memory back to other programs?",
    "Which key shows the settings?",
    "Why does a long prompt take a while before the first word comes?",
    "How many expert slots does my card have room for?",
    "What is kept when I stop an answer?",
    "Where can I get a model that runs on this laptop?",
    "What do the colours in the memory bar stand for?",
    "Hello, who are you?",
    "Write a short poem about the sea.",
    "How do I sort a list of words in Python?",
    "Erkläre mir in zwei Sätzen, was ein Zwischenspeicher ist.",
)
"""Asked where no file is given: about this program, which the guide knows, and about other things,
which it does not."""

NOTES = (
    "Each expert that a token uses in a layer is one hit or one miss, token by token, in the order",
    "of computing. Prompts and answers go through a cache of their own that starts empty once.",
    "engine: with less than 3 slots for each expert that a token uses, a layer keeps the experts",
    "that are used most often, as decoding does. LRU: the one unused for longest always gives way.",
)
BLOCKS = "▁▂▃▄▅▆▇█"
BAR_CELLS = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let `parser` take the model, the text and how much is written."""
    from stratadesk.cli.parser import add_number

    add = parser.add_argument
    add("-m", "--model", metavar="MODEL", help="measure this one (default: as for run)")
    add("--file", metavar="F.txt", help="ask what stands in the lines of this file, one each")
    add_number(parser, MOST_WRITTEN)
    add("--json", action="store_true", default=False, help="print one JSON object")


def bench_routing(arguments: argparse.Namespace) -> int:
    """Have the model answer, print its use of experts and the hits, and return the exit code.

    Raises:
        UsageError: no question, or a model without experts.
        StrataDeskError: the model cannot be loaded.
    """
    import json

    from stratadesk.settings_order import decide

    source = "built-in" if "file" not in arguments else arguments.file
    questions = QUESTIONS if "file" not in arguments else questions_in(Path(arguments.file))
    model = answering_model(decide(vars(arguments)))
    start_logging()
    warn_of_unkept_kernels()
    recorded = record(model, questions, arguments.tokens)
    if arguments.json:
        facts = {"path": str(model), "questions": len(questions), "text": source}
        print(json.dumps(facts | as_json(recorded), indent=2, ensure_ascii=False))
    else:
        print("\n".join(as_lines(recorded, len(questions), source)))
    return ExitCode.OK


def questions_in(path: Path) -> Sequence[str]:
    """Return the lines of a file that are not empty; a byte order mark is none of its text.

    Raises:
        UsageError: it cannot be read, is too long, is not UTF-8, or has no such line.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_TEXT + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Give a text file.") from None
    if len(data) > MOST_TEXT:
        most = MOST_TEXT // MIB
        raise UsageError(f"{path} has more than {most} MiB.", "Give a text file with less.")
    try:
        lines = data.decode("utf-8").removeprefix("\ufeff").splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 at byte {error.start}.", "Convert it.") from None
    questions = [line.strip() for line in lines if line.strip()]
    if not questions:
        raise UsageError(f"{path} has no line with text.", "Write one question in each line.")
    return questions


def record(model: Path, questions: Sequence[str], tokens: int) -> "RecordedRouting":
    """Have the model answer, with progress on a terminal's standard error."""
    from stratadesk.cli.terminal import ProgressLine
    from stratadesk.cli.views import Notices
    from stratadesk.engine.routing_bench import record_routing

    notices, line = Notices(), ProgressLine()

    def asked(number: int) -> None:
        notices.clear()
        line.show(f"Question {number + 1} of {len(questions)}")

    try:
        return record_routing(model, questions, tokens, notices.show, asked)
    finally:
        notices.clear()
        line.clear()


def as_json(recorded: "RecordedRouting") -> dict[str, Any]:
    """Return what was counted; `for_90_percent` counts experts, entropy is in bits."""
    return {
        "model": recorded.name,
        "architecture": recorded.architecture,
        "experts_used": recorded.used,
        "prompt": _part_as_json(recorded, recorded.prompts),
        "decode": _part_as_json(recorded, recorded.answers),
    }


def _part_as_json(recorded: "RecordedRouting", part: "RoutingRecord") -> dict[str, Any]:
    uses = part.use(recorded.experts)
    return {
        "tokens": part.tokens,
        "layers": [
            {
                "layer": layer,
                "uses": use.uses,
                "most_used": use.most_used,
                "most_used_share": round(use.top_share, 4),
                "for_90_percent": use.for_most,
                "entropy": round(use.entropy, 4),
                "counts": use.counts.tolist(),
            }
            for layer, use in zip(recorded.layers, uses, strict=True)
        ],
        "cached": {
            share: {
                "slots": slots_of(recorded, share),
                "engine": _hits_as_json(replayed(recorded, part, share)),
                "lru": _hits_as_json(replayed(recorded, part, share, plain_lru=True)),
            }
            for share in SHARES
        },
    }


def _hits_as_json(counters: "CacheCounters | None") -> dict[str, Any]:
    if counters is None:
        return {"hits": 0, "misses": 0, "hit_rate": None}
    rate = counters.hit_rate
    return {
        "hits": counters.hits,
        "misses": counters.misses,
        "hit_rate": None if rate is None else round(rate, 4),
    }


def slots_of(recorded: "RecordedRouting", share: str) -> int:
    """Return how many slots hold such a part of all the model's experts."""
    return sum(recorded.experts) // SHARES[share]


def replayed(
    recorded: "RecordedRouting", part: "RoutingRecord", share: str, *, plain_lru: bool = False
) -> "CacheCounters | None":
    """Return the hits of a cache for that part of the experts; None when nothing was routed."""
    from stratadesk.engine.vram.cache_replay import replay_routing

    if not part.tokens:
        return None
    slots = slots_of(recorded, share)
    return replay_routing(part.layers(), max(recorded.experts), slots, plain_lru=plain_lru)


def as_lines(recorded: "RecordedRouting", questions: int, source: str) -> Iterator[str]:
    """Write a table of layers for prompts and for answers, and one of hits."""
    from stratadesk.engine.inspection_table import printable

    several = sorted(set(recorded.experts))
    yield (
        f"{printable(recorded.name)} ({recorded.architecture}): {len(recorded.layers)} layers with "
        f"{' or '.join(map(str, several))} experts, {recorded.used} used by each token."
    )
    asked = "1 question" if questions == 1 else f"{questions:,} questions"
    yield f"{asked} ({printable(source)}), answered greedily, on the CPU."
    for title, part in (("Prompts", recorded.prompts), ("Answers", recorded.answers)):
        yield ""
        yield f"{title}: {part.tokens:,} tokens"
        yield f"{'layer':>7}{'most used':>18}{'90 % of uses':>16}{'evenness':>10}   all, by use"
        for layer, use in zip(recorded.layers, part.use(recorded.experts), strict=True):
            yield _layer_row(layer, use)
    yield ""
    yield from _hit_table(recorded)


def _layer_row(layer: int, use: "LayerUse") -> str:
    most = f"expert {use.most_used:>3} {use.top_share:>6.1%}" if use.uses else "–"
    share = f"{use.for_most} of {use.counts.size}"
    return f"{layer:>7}{most:>18}{share:>16}{use.evenness:>10.2f}   {bar(use.counts.tolist())}"


def bar(counts: Sequence[int]) -> str:
    """Draw uses from the most used expert on, in at most `BAR_CELLS` cells; "·" is no use.

    >>> bar([0, 4, 8]), bar([1] * 3)
    ('█▄·', '███')
    """
    ordered = sorted(counts, reverse=True)
    width = -(-len(ordered) // BAR_CELLS)
    cells = [ordered[at : at + width] for at in range(0, len(ordered), width)]
    means = [sum(cell) / len(cell) for cell in cells]
    return "".join(_block(mean, means[0]) for mean in means)


def _block(value: float, most: float) -> str:
    return BLOCKS[max(0, -(-int(value * 1024) * 8 // int(most * 1024)) - 1)] if value else "·"


def _hit_table(recorded: "RecordedRouting") -> Iterator[str]:
    yield f"{'hits with':>20}{'prompts':>18}{'answers':>20}"
    yield f"{'cached':>9}{'slots':>11}" + f"{'engine':>10}{'LRU':>10}" * 2
    for share in SHARES:
        rates = (
            replayed(recorded, part, share, plain_lru=plain)
            for part in (recorded.prompts, recorded.answers)
            for plain in (False, True)
        )
        slots = slots_of(recorded, share)
        yield f"{share:>9}{slots:>11,}" + "".join(f"{_rate(found):>10}" for found in rates)
    yield ""
    yield from NOTES


def _rate(counters: "CacheCounters | None") -> str:
    rate = counters.hit_rate if counters is not None else None
    return "–" if rate is None else f"{rate:.1%}"
