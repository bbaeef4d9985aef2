"""Flags people know from llama.cpp that make no sense here: each is answered with what does."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from stratadesk.errors import UsageError

ON_THE_CARD = "StrataDesk itself works out what lies on the card"
FOREIGN: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("-ngl", "--gpu-layers", "--n-gpu-layers"),
        ON_THE_CARD,
        "Leave it out; --device cuda puts all of the model on a card and keeps --vram-reserve-mib "
        "MiB free.",
    ),
    (
        ("-ncmoe", "--n-cpu-moe", "-cmoe", "--cpu-moe", "-ot", "--override-tensor"),
        ON_THE_CARD,
        "Leave it out; with --device cuda all experts lie there, on a card that the CPU simulates "
        "those that --expert-cache says.",
    ),
    (("-b", "--batch-size"), "a prompt is read in chunks of one size", "Use --prefill."),
    (
        ("-ctk", "--cache-type-k", "-ctv", "--cache-type-v"),
        "keys and values are kept in one format",
        "Use --kv.",
    ),
    (
        ("-fa", "--flash-attn"),
        "attention is always computed without a table of all scores",
        "Leave it out.",
    ),
    (
        ("-t", "--threads", "-tb", "--threads-batch"),
        "all cores are used",
        "Leave it out; NUMBA_NUM_THREADS limits them.",
    ),
    (
        ("--mlock", "--no-mmap"),
        "experts are always read from the mapped file",
        "Leave it out; --pin-gib says how much RAM is pinned.",
    ),
    (("-f", "--file"), "a prompt is read from standard input", "Write run -p - < FILE."),
    (
        ("-hf", "--hf-repo", "-hff", "--hf-file", "-mu", "--model-url"),
        "nothing is downloaded",
        "Download the file and name it with -m.",
    ),
    (
        ("-cnv", "--conversation", "--jinja", "-i", "--interactive"),
        "the chat is what stratadesk without a command opens, with the model's own template",
        "Leave it out.",
    ),
    (
        ("-sys", "--system-prompt", "-sysf", "--system-prompt-file"),
        "a chat begins with your first message",
        "Write there what the model shall be.",
    ),
    (
        ("--chat-template", "--chat-template-file"),
        "the model's own template is used",
        "Leave it out; run --raw takes a prompt that is complete.",
    ),
    (
        ("--grammar", "--grammar-file", "-j", "--json-schema", "--json-schema-file"),
        "answers are not held to a form",
        "Ask for the form in the prompt.",
    ),
    (
        ("--lora", "--lora-scaled", "--control-vector"),
        "adapters are not computed",
        "Name a model that holds them with -m.",
    ),
    (("-mm", "--mmproj", "--image"), "only text is read", "Leave it out."),
    (
        ("-md", "--model-draft", "--draft", "--draft-max", "--draft-n"),
        "no other model drafts tokens",
        "Leave it out.",
    ),
    (
        ("-dev", "-mg", "--main-gpu", "-sm", "--split-mode", "-ts", "--tensor-split"),
        "a model is on one card or none",
        "Use --device.",
    ),
    (
        ("--mirostat", "--typical", "--samplers", "--dynatemp-range", "--xtc-probability"),
        "tokens are drawn in one way",
        "Use --temp, --top-k, --top-p and --min-p.",
    ),
    (
        ("--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale"),
        "the model's header says how positions are turned",
        "Leave it out.",
    ),
    (
        ("--host", "--port", "--api-key", "-np", "--parallel"),
        "there is no server",
        "Use stratadesk run for one answer, or stratadesk for a chat.",
    ),
    (
        ("--no-display-prompt", "--color", "--no-warmup", "--keep", "--context-shift", "-no-cnv"),
        "there is no choice about it",
        "Leave it out.",
    ),
    (("--max-tokens", "--num-predict"), "it has another name", "Use -n."),
    (("--num-ctx", "--context-length"), "it has another name", "Use -c."),
    (("--format",), "it has another name", "Use --json for one JSON object."),
)
"""Names, why there is no such flag here, and what to do instead."""


class Explained(argparse.Action):
    """A flag that always ends in the sentence it was made with."""

    def __init__(self, *, sentence: str, remedy: str, **options: Any) -> None:
        super().__init__(**options | {"nargs": "?", "help": argparse.SUPPRESS})
        self._sentence = sentence
        self._remedy = remedy

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> NoReturn:
        """Raise the sentence."""
        raise UsageError(self._sentence.format(flag=option_string), self._remedy)


def add_foreign(parser: argparse.ArgumentParser) -> None:
    """Have `parser` explain the flags of llama.cpp that it does not have."""
    for names, reason, remedy in FOREIGN:
        parser.add_argument(
            *names,
            dest=argparse.SUPPRESS,
            action=Explained,
            sentence=f"There is no {{flag}} here: {reason}.",
            remedy=remedy,
        )


def add_needless_model(parser: argparse.ArgumentParser) -> None:
    """Have a parser whose first word is the model say so."""
    parser.add_argument(
        "-m",
        "--model",
        dest=argparse.SUPPRESS,
        action=Explained,
        sentence="The model is named without {flag} here.",
        remedy=f"Write {parser.prog} MODEL.",
    )


def add_misplaced_prompt(parser: argparse.ArgumentParser) -> None:
    """Have the chat's parser say where `-p` belongs."""
    parser.add_argument(
        "-p",
        "--prompt",
        dest=argparse.SUPPRESS,
        action=Explained,
        sentence="The chat takes no {flag}: prompts are typed there.",
        remedy='Did you mean stratadesk run -m MODEL -p "TEXT"?',
    )
