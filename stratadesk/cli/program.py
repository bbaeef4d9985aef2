"""Entry point: picks the command, and turns every error into one sentence and an exit code."""

import argparse
import sys
from collections.abc import Sequence

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
from stratadesk.cli.parser import build_parser
from stratadesk.cli.reset_terminal import reset_terminal
from stratadesk.cli.terminal import abandon_stdout, print_error, use_utf8
from stratadesk.errors import StrataDeskError
from stratadesk.exit_codes import ExitCode


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (by default the process's arguments) names.

    Returns the exit code. An error outside the program's own family goes to the crash hook.
    """
    use_utf8()
    logs.install_crash_hooks()
    try:
        code = dispatch(build_parser().parse_args(argv))
        sys.stdout.flush()
    except StrataDeskError as error:
        if logs.debugging():
            sys.__excepthook__(type(error), error, error.__traceback__)
        print_error(error.sentence, error.remedy)
        code = error.exit_code
    except BrokenPipeError:
        abandon_stdout()
        code = ExitCode.FAILURE
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    return code


def dispatch(arguments: argparse.Namespace) -> int:
    """Call what the command name stands for; without one, the chat."""
    if arguments.version:
        return versions.show_versions(arguments)
    if arguments.reset_terminal:
        return reset_terminal()
    commands = {
        None: chat.start_chat,
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
    return commands[arguments.command](arguments)
