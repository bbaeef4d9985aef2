"""Entry point: picks the command, and turns every error into one sentence and an exit code."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

from stratadesk import logs
from stratadesk.cli import (
    bench_command,
    chat,
    config_command,
    demo_command,
    model_commands,
    models_command,
    plan_command,
    run,
    versions,
)
from stratadesk.cli.hints import with_model_first
from stratadesk.cli.parser import build_parser
from stratadesk.cli.reset_terminal import reset_terminal
from stratadesk.cli.terminal import (
    abandon_stdout,
    has_working_folder,
    open_closed_streams,
    print_error,
    refuses_output,
    use_utf8,
)
from stratadesk.errors import StrataDeskError
from stratadesk.exit_codes import ExitCode

GONE = "The working directory does not exist any more."
GO_ELSEWHERE = "Go to one that does with cd, and try again."
NEW_OUTPUT = "Write to a place that has room and may be written."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (by default the process's arguments) names.

    Returns the exit code. An error outside the program's own family goes to the crash hook.
    """
    closed = open_closed_streams()
    use_utf8()
    logs.install_crash_hooks()
    if "stdout" in closed:
        print_error("Standard output is closed: there is nowhere to print.", NEW_OUTPUT)
        return ExitCode.FAILURE
    try:
        words = with_model_first(sys.argv[1:] if argv is None else argv, commands())
        code = dispatch(build_parser().parse_args(words))
        sys.stdout.flush()
    except StrataDeskError as error:
        if logs.debugging():
            sys.__excepthook__(type(error), error, error.__traceback__)
        print_error(error.sentence, error.remedy)
        code = error.exit_code
    except BrokenPipeError:
        abandon_stdout()
        code = ExitCode.FAILURE
    except OSError as error:
        code = _told(error)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    return code


def _told(error: OSError) -> ExitCode:
    """Print what an error of the system means that no command has caught, or raise it again."""
    if isinstance(error, FileNotFoundError) and not has_working_folder():
        print_error(GONE, GO_ELSEWHERE)
    elif refuses_output(error):
        abandon_stdout()
        print_error(f"Standard output cannot be written: {error.strerror}.", NEW_OUTPUT)
    else:
        raise error
    return ExitCode.FAILURE


def dispatch(arguments: argparse.Namespace) -> int:
    """Call what the command name stands for; without one, the chat."""
    if arguments.version:
        return versions.show_versions(arguments)
    if arguments.reset_terminal:
        return reset_terminal()
    name = arguments.command
    return chat.start_chat(arguments) if name is None else commands()[name](arguments)


def commands() -> Mapping[str, Callable[[argparse.Namespace], int]]:
    """Return what each command's name calls."""
    return {
        "run": run.run,
        "logits": model_commands.logits,
        "tokenize": model_commands.tokenize,
        "inspect": model_commands.inspect,
        "plan": plan_command.plan,
        "paths": versions.show_paths,
        models_command.NAME: models_command.models,
        demo_command.NAME: demo_command.demo,
        config_command.NAME: config_command.config,
        bench_command.NAME: bench_command.bench,
    }
