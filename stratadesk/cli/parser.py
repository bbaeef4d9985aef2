"""The argument parser, built from the tables of `settings.py`; every command has examples."""

import argparse
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from stratadesk.cli import bench_command, config_command, demo_command, models_command
from stratadesk.cli.foreign_flags import add_foreign, add_misplaced_prompt, add_needless_model
from stratadesk.cli.hints import lone_words, nearest_flag, no_such_command
from stratadesk.cli.subcommands import add_command
from stratadesk.errors import UsageError
from stratadesk.settings import (
    ENGINE_FLAGS,
    LOGITS_FLAGS,
    MAX_TOKENS,
    SAMPLING_FLAGS,
    Flag,
    Value,
    quoted,
)
from stratadesk.settings_schema import INTERFACE_FLAGS, MODEL
from stratadesk.vram_flags import CARD_FLAGS, MACHINE_FLAGS, PLAN_FLAGS, VRAM_FLAGS

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction["Parser"]

CHAT_EXAMPLES = """\
examples:
  stratadesk                                  chat with the bundled guide; F2 takes another
  stratadesk -m Qwen3-30B-A3B-Q4_K_M.gguf     chat with this one
  stratadesk -m MODEL --device cuda           with all of it on an NVIDIA card
  stratadesk run -m MODEL -p "Why is the sky blue?"
  stratadesk COMMAND --help                   flags and examples of a command

A split model is named by any of its files or by their folder. STRATADESK_HOME moves all files
StrataDesk keeps, STRATADESK_MODELS names more folders with models.
"""

RUN_EXAMPLES = """\
examples:
  stratadesk run -p "what does head out mean?"         the bundled guide answers
  stratadesk run -m MODEL -p "Why is the sky blue?"
  git diff | stratadesk run -m MODEL -p - --temp 0 > review.txt
  stratadesk run -m MODEL --raw -p "Once upon a time" -n 64
  stratadesk run -m MODEL --tokens "1 2 3" -n 8 --ignore-eos --json

On a terminal the model's thinking is shown dimmed before its answer, and progress and a closing
line of figures go to standard error. Into a pipe or file goes the answer alone. Ctrl+C stops the
answer and keeps what was said (exit code 130); a second one leaves at once.
"""

LOGITS_EXAMPLES = """\
examples:
  stratadesk logits -m MODEL --tokens "1 2 3" -o out.npz
  stratadesk logits -m MODEL --tokens-file ids.json -o out.npz --chunk 64 --kv f16
  stratadesk logits -m MODEL --tokens "1 2 3" -o out.npz --mtp

The file holds array `logits`: float32, (tokens, vocabulary), one row for every position. With
--mtp also `mtp_logits`, of the same shape: what the model's draft head makes of each token and of
the state before it (zeros before the first).
"""

TOKENIZE_EXAMPLES = """\
examples:
  stratadesk tokenize -m MODEL "Hello, world"
  stratadesk tokenize -m MODEL --no-parse-special "<|im_start|> as plain text"
  stratadesk tokenize -m MODEL - < story.txt
  stratadesk tokenize -m MODEL -- "-text that starts with a dash"
"""

INSPECT_EXAMPLES = """\
examples:
  stratadesk inspect MODEL
  stratadesk inspect MODEL --json
"""

PLAN_EXAMPLES = """\
examples:
  stratadesk plan -m MODEL
  stratadesk plan -m MODEL --vram-mib 6144 --ram-gib 16 --os windows --commit-gib 24
  stratadesk plan -m MODEL --free-mib 5900 --max-context 16384 --kv q8_0 --json

Reads the file's header only and needs no GPU. The tables are the design: experts streamed from RAM
and memory lent to prompts, which no real card does yet. What this version does with --device cuda,
which takes only a model that fits whole, stands above them. When the design does not fit, the plan
is printed all the same, with the smallest changes that would do, and the exit code is 5.
"""

SIMULATED_CARD = """\
On the CPU any of these has it simulate a card ({} alone do not).
With --device cuda only --vram-reserve-mib counts; the others are refused, unless they say auto.
"""

PATHS_EXAMPLES = """\
examples:
  stratadesk paths
  STRATADESK_HOME=/mnt/big/stratadesk stratadesk paths
"""


class MissingArgumentError(UsageError):
    """Something that a command needs is not there."""


class NoSuchCommandError(UsageError):
    """A word stands where a command should; `word` is that word."""

    def __init__(self, word: str, commands: Iterable[str], program: str) -> None:
        told = no_such_command(word, commands, program)
        super().__init__(told.sentence, told.remedy)
        self.word = word


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises `UsageError`, and leaves out flags that were not given."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
            **options,
        )

    def error(self, message: str) -> NoReturn:
        """Report bad usage in one sentence."""
        told = message.replace("ignored explicit argument", "takes no value, and has")
        sentence = told[:1].upper() + told[1:].rstrip(".") + "."
        kind = MissingArgumentError if "required" in message else UsageError
        raise kind(sentence, f"See {self.prog} --help.")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as usual, and say what was probably meant by a word that has no place.

        A command's own parser knows its flags; the parser of all commands would not.
        """
        try:
            parsed, extras = super().parse_known_args(args, namespace)
        except MissingArgumentError as error:
            parsed, extras = self._parse_without_needs(args)
            if not extras:
                raise UsageError(error.sentence, error.remedy) from None
        except NoSuchCommandError as error:
            unknown = self._unknown_flag(args[: args.index(error.word)])
            if not unknown:
                raise
            raise self._no_place([unknown], {}) from None
        if extras:
            raise self._no_place(extras, vars(parsed))
        return parsed, extras

    def _parse_without_needs(self, args: Any) -> tuple[argparse.Namespace, list[str]]:
        """Parse as if no flag were required: a missing one may stand there without its name."""
        needed: list[Any] = [action for action in self._actions if action.option_strings]
        needed = [it for it in (*needed, *self._mutually_exclusive_groups) if it.required]
        for it in needed:
            it.required = False
        try:
            return super().parse_known_args(args, None)
        except MissingArgumentError:
            return argparse.Namespace(), []
        finally:
            for it in needed:
                it.required = True

    def _unknown_flag(self, words: Sequence[str]) -> str:
        """Return the last of `words` if it is a flag that does not exist: the next is its value."""
        last = words[-1] if words else ""
        is_flag = last.startswith("--") and "=" not in last
        return last if is_flag and last not in self._option_string_actions else ""

    def _no_place(self, extras: list[str], given: Mapping[str, Any]) -> UsageError:
        unknown = next((word for word in extras if word.startswith("-")), "")
        if unknown:
            meant = nearest_flag(unknown, self._shown_flags())
            sentence = f"{self.prog} has no flag {quoted(unknown)}."
        else:
            known = {action.dest for action in self._actions if action.option_strings}
            missing = {name for name in ("model", "prompt") if name in known - given.keys()}
            meant = lone_words(extras, missing - {"prompt" if "tokens" in given else ""})
            sentence = f"{self.prog} has no place for {quoted(extras[0])}."
        remedy = f"Did you mean {meant}? " if meant else ""
        return UsageError(sentence, f"{remedy}See {self.prog} --help.")

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        """Return the flag of one letter that a word begins with, its value behind it.

        argparse would take the beginning of a flag like -cnv for it, too.
        """
        return [found for found in super()._get_option_tuples(option_string) if len(found[1]) == 2]

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print a help text at once; unlike argparse's own, this lets a full disk be told."""
        if message:
            print(message, end="", file=file or sys.stderr, flush=True)

    def _shown_flags(self) -> list[str]:
        shown = (action for action in self._actions if action.help != argparse.SUPPRESS)
        return [name for action in shown for name in action.option_strings]

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Check a word against what is allowed; a command that does not exist gets a hint."""
        commands = action.choices if isinstance(action, argparse._SubParsersAction) else None
        if commands is not None and value not in commands:
            raise NoSuchCommandError(value, commands, self.prog)
        if action.choices is not None and value not in action.choices:
            allowed = ", ".join(map(str, action.choices))
            raise argparse.ArgumentError(action, f"{quoted(value)} is not one of {allowed}")


def build_parser() -> Parser:
    """Build the parser of all commands."""
    parser = Parser(
        prog="stratadesk",
        usage="stratadesk [-m MODEL] [-n N] [option ...]\n       stratadesk COMMAND ...",
        description="Chat in the terminal with GGUF mixture-of-experts models.",
        epilog=CHAT_EXAMPLES,
    )
    parser.set_defaults(version=False, verbose=False, command=None)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument("--verbose", action="store_true", help="with --version: of libraries too")
    parser.add_argument(
        "--reset-terminal",
        action="store_true",
        default=False,
        help="put a terminal in order that a killed program has left in disorder, and exit",
    )
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", prog="stratadesk"
    )
    _add_model(parser)
    add_misplaced_prompt(parser)
    add_flag(parser, MAX_TOKENS)
    _add_groups(parser)
    _add_group(parser, "interface", INTERFACE_FLAGS)
    for add in (_add_run, _add_logits, _add_tokenize, _add_inspect, _add_plan, _add_paths):
        add(commands)
    for command in (models_command, demo_command, config_command, bench_command):
        about = add_command(commands, command.NAME, command.PURPOSE, command.EXAMPLES)
        command.add_arguments(about)
    return parser


def add_flag(parser: argparse._ActionsContainer, flag: Flag, *, listed: bool = True) -> None:
    """Let `parser` accept `flag` and, never listed in its help, the aliases."""
    words = (
        f"{flag.help} (default {_written(flag.default)})" if flag.default is not None else flag.help
    )
    shown = words if listed else argparse.SUPPRESS
    for names, text in ((flag.names, shown), (flag.aliases, argparse.SUPPRESS)):
        if names and flag.kind is bool:
            parser.add_argument(
                *names, dest=flag.field, action=argparse.BooleanOptionalAction, help=text
            )
        elif names:
            parser.add_argument(
                *names,
                dest=flag.field,
                action="append" if flag.repeated else "store",
                type=_converter(flag),
                metavar=_metavar(flag),
                help=text,
            )


def _written(default: Value) -> str:
    return {True: "on", False: "off"}[default] if isinstance(default, bool) else str(default)


def add_number(parser: argparse.ArgumentParser, flag: Flag) -> None:
    """Let `parser` accept `flag`, and put its default where it is not given."""
    add_flag(parser, flag)
    parser.set_defaults(**{flag.field: flag.default})


def _metavar(flag: Flag) -> str:
    if flag.choices and flag.others is None:
        return f"{{{','.join(flag.choices)}}}"
    return "|".join((*flag.words, "NAME" if flag.choices else _METAVARS[flag.kind]))


_METAVARS = {str: "TEXT", int: "N", float: "X"}


def _converter(flag: Flag) -> Any:
    def convert(text: str) -> Value:
        try:
            return flag.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{quoted(text)} is not {error}") from None

    return convert


def _add_groups(parser: Parser) -> None:
    groups: tuple[tuple[str, Iterable[Flag]], ...] = (
        ("computing", ENGINE_FLAGS),
        ("sampling (llama.cpp's names are understood too)", SAMPLING_FLAGS),
    )
    for title, flags in groups:
        _add_group(parser, title, flags)
    _add_card(parser)


def _add_group(
    parser: Parser, title: str, flags: Iterable[Flag], unlisted: Container[str] = ()
) -> argparse._ArgumentGroup:
    group = parser.add_argument_group(title)
    for flag in flags:
        add_flag(group, flag, listed=flag.field not in unlisted)
    return group


def _add_card(parser: Parser, without: Container[str] = ()) -> None:
    """Add the flags about a card's memory; see `OF_A_CARD` and `card_for` for what they do.

    Fields in `without` are left out. What this version refuses is taken, but not listed.
    """
    flags = (flag for flag in (*CARD_FLAGS, *VRAM_FLAGS) if flag.field not in without)
    group = _add_group(parser, "memory of a card", flags, unlisted=("spec",))
    group.description = SIMULATED_CARD.format(
        "--mtp and --force" if "prefill" in without else "--prefill, --mtp and --force"
    )
    group.add_argument(
        "--force", action="store_true", help="go on without the reserve, or with too little RAM"
    )
    add_foreign(parser)


def _add_model(parser: Parser, *, required: bool = False) -> None:
    otherwise = "" if required else " (default: the one set, else the bundled guide)"
    parser.add_argument(
        "-m",
        "--model",
        metavar="MODEL",
        required=required,
        help=MODEL.help + otherwise,
    )


def _add_run(commands: "Commands") -> None:
    parser = add_command(commands, "run", "answer one prompt and exit", RUN_EXAMPLES)
    _add_model(parser)
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument(
        "-p", "--prompt", metavar="TEXT", help="what to answer; - reads it from standard input"
    )
    prompt.add_argument("--tokens", metavar="IDS", help='token ids as they are: "1 2 3"')
    add_flag(parser, MAX_TOKENS)
    parser.add_argument(
        "--raw",
        action="store_true",
        default=False,
        help="TEXT is the whole prompt: no chat template, special tokens are recognised",
    )
    parser.add_argument(
        "--ignore-eos", action="store_true", default=False, help="go on after an end token"
    )
    parser.add_argument(
        "--json", action="store_true", default=False, help="print one JSON object at the end"
    )
    _add_groups(parser)


def _add_logits(commands: "Commands") -> None:
    purpose = "write the logits of every position to a file"
    parser = add_command(commands, "logits", purpose, LOGITS_EXAMPLES)
    _add_model(parser, required=True)
    tokens = parser.add_mutually_exclusive_group(required=True)
    tokens.add_argument("--tokens", metavar="IDS", help='token ids: "1 2 3"')
    tokens.add_argument("--tokens-file", metavar="F.json", help="a JSON list of token ids")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT.npz",
        required=True,
        type=_named_file,
        help="file to write; - for standard output is refused",
    )
    for flag in LOGITS_FLAGS:
        add_flag(parser, flag)
    _add_card(parser, without=("prefill",))


def _named_file(written: str) -> str:
    """Refuse the name that stands for standard output elsewhere, and none."""
    if not written:
        raise UsageError("-o names no file: the text after it is empty.", "Name a file.")
    if written == "-":
        raise UsageError(
            "An .npz file is not written to standard output (-o -).",
            "Name a file, such as -o out.npz.",
        )
    return written


def _add_tokenize(commands: "Commands") -> None:
    purpose = "print the token ids of a text as JSON"
    parser = add_command(commands, "tokenize", purpose, TOKENIZE_EXAMPLES)
    _add_model(parser, required=True)
    parser.add_argument(
        "--no-parse-special",
        action="store_true",
        default=False,
        help="treat the names of control tokens as ordinary text",
    )
    parser.add_argument(
        "text", metavar="TEXT", nargs="?", default="-", help="- reads it from standard input"
    )


def _add_inspect(commands: "Commands") -> None:
    purpose = "say what a model file holds and whether it runs here"
    parser = add_command(commands, "inspect", purpose, INSPECT_EXAMPLES)
    parser.add_argument("model", metavar="MODEL", help=MODEL.help)
    add_needless_model(parser)
    parser.add_argument("--json", action="store_true", default=False, help="print one JSON object")


def _add_plan(commands: "Commands") -> None:
    purpose = "say what would lie where on a card and how prompts would be read"
    parser = add_command(commands, "plan", purpose, PLAN_EXAMPLES)
    _add_model(parser, required=True)
    parser.add_argument("--json", action="store_true", default=False, help="print one JSON object")
    parser.add_argument(
        "--force", action="store_true", help="go on without the reserve, or with too little RAM"
    )
    parser.add_argument(
        "--device",
        choices=("cuda", "host"),
        help="plan for an NVIDIA card, or as run and the chat do on this CPU (default cuda)",
    )
    _add_group(parser, "the machine", MACHINE_FLAGS)
    _add_group(parser, "settings", PLAN_FLAGS)
    add_foreign(parser)


def _add_paths(commands: "Commands") -> None:
    purpose = "print the folders StrataDesk keeps its files in"
    add_command(commands, "paths", purpose, PATHS_EXAMPLES)
