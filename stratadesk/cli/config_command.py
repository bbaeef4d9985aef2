"""`config`: which settings hold and who decided each; check, find and change the files."""

import argparse
from pathlib import Path

from stratadesk.cli.subcommands import add_command
from stratadesk.errors import StrataDeskError, UsageError
from stratadesk.exit_codes import ExitCode

NAME = "config"
PURPOSE = "show, check and change the settings that are kept"
ALLOWED = "stratadesk config show has every setting and what it means; config unset takes one back."
EXAMPLES = """\
examples:
  stratadesk config show                       every setting, and who decides it
  stratadesk --temp 0.2 config show --json     the same for scripts, with a flag given
  stratadesk config set sampling.temperature 0.7
  stratadesk config set folders ~/models /mnt/models
  stratadesk config unset model                back to what holds without it
  stratadesk config validate stratadesk.toml   exit code 2 if anything in it is wrong
  stratadesk config path

Who decides: a flag, else the environment (STRATADESK_TEMPERATURE=0.7), else stratadesk.toml in
the folder you are in, else settings.toml in the config folder, else the default.
"""
SET_EXAMPLES = """\
examples:
  stratadesk config set temperature 0.7
  stratadesk config set folders ~/models /mnt/models
  stratadesk config set model qwen3:30b

stratadesk config show lists all keys with what they mean.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let `parser` take the actions of `config`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    show = add_command(actions, "show", "print every setting and who decides it")
    show.add_argument("--json", action="store_true", default=False, help="print one JSON object")
    validate = add_command(actions, "validate", "check settings files")
    validate.add_argument(
        "file", metavar="FILE", nargs="?", help="by default those that would be used here"
    )
    add_command(actions, "path", "print where this user's settings are kept")
    change = add_command(actions, "set", "change one value in this user's settings", SET_EXAMPLES)
    change.add_argument("key", metavar="KEY", help="section.name; the name alone is enough")
    change.add_argument("values", metavar="VALUE", nargs="+", help="the new value")
    unset = add_command(actions, "unset", "take one value out of this user's settings")
    unset.add_argument("key", metavar="KEY", help="section.name; the name alone is enough")


def config(arguments: argparse.Namespace) -> int:
    """Do what the action says and return the exit code."""
    actions = {
        "show": show,
        "validate": validate,
        "path": print_path,
        "set": change,
        "unset": take_out,
    }
    return actions[arguments.action](arguments)


def show(arguments: argparse.Namespace) -> int:
    """Print all settings with their winners, as a settings file with comments or as JSON."""
    import json

    from stratadesk.cli.config_text import as_json, as_toml
    from stratadesk.cli.kept_settings import tell_problems
    from stratadesk.settings_order import decide

    decisions = decide(vars(arguments))
    tell_problems(decisions.problems)
    if arguments.json:
        print(json.dumps(as_json(decisions), ensure_ascii=False, indent=2))
    else:
        print(as_toml(decisions))
    return ExitCode.OK


def validate(arguments: argparse.Namespace) -> int:
    """Print everything that is wrong in the file named, or in those that would be used.

    Raises:
        UsageError: the file named does not exist, or a variable has a wrong value.
    """
    from stratadesk.settings import quoted
    from stratadesk.settings_file import project_file, read_settings, user_file
    from stratadesk.settings_order import decide

    named = vars(arguments).get("file")
    if named is not None and not Path(named).is_file():
        raise UsageError(
            f"There is no file {quoted(named)}.", "stratadesk config path names yours."
        )
    files = [Path(named)] if named else [project_file(), user_file()]
    wrong = 0
    for path in files:
        contents = read_settings(path)
        wrong += len(contents.problems)
        for problem in contents.problems:
            print(problem)
        if path.exists() and not contents.problems:
            print(f"{path}: {_counted(len(contents.values))}, nothing wrong")
    if named is None:
        decide({})
    return ExitCode.USAGE if wrong else ExitCode.OK


def print_path(_: argparse.Namespace) -> int:
    """Print where this user's settings are kept, whether there are any yet or not."""
    from stratadesk.settings_file import user_file

    print(user_file())
    return ExitCode.OK


def change(arguments: argparse.Namespace) -> int:
    """Change one value in this user's file, and say so if something else overrides it.

    Raises:
        UsageError: there is no such setting, or the value is not allowed.
        StrataDeskError: the file cannot be changed.
    """
    from stratadesk.settings import quoted
    from stratadesk.settings_file import save_setting, user_file
    from stratadesk.settings_order import Source, decide
    from stratadesk.settings_schema import find_setting
    from stratadesk.settings_values import from_texts

    setting = find_setting(arguments.key)
    try:
        value = from_texts(setting.flag, arguments.values)
    except ValueError as error:
        text = " ".join(arguments.values)
        raise UsageError(f"{setting.key}: {quoted(text)} is not {error}.", ALLOWED) from None
    path = user_file()
    aside = save_setting(path, setting.key, value)
    if aside is not None:
        print(f"{path} was damaged; a copy of it is {aside}.")
    winner = decide({}).of(setting.key).winner
    if winner.source not in (Source.USER, Source.DEFAULT):
        print(f"Saved, but {winner.place} decides {setting.key} here.")
    return ExitCode.OK


def take_out(arguments: argparse.Namespace) -> int:
    """Take one value out of this user's file, and say what decides from then on.

    A value that is wrong can be taken out too. Where there is none, nothing is written.

    Raises:
        UsageError: there is no such setting.
        StrataDeskError: the file is damaged or cannot be changed.
    """
    from stratadesk.settings_file import read_settings, save_setting, user_file
    from stratadesk.settings_order import Source, decide
    from stratadesk.settings_schema import find_setting

    setting, path = find_setting(arguments.key), user_file()
    contents = read_settings(path)
    for problem in contents.problems:
        if not problem.key and not problem.unknown:
            raise StrataDeskError(str(problem), "Mend the file by hand, or move it away.")
    wrong = {problem.key for problem in contents.problems}
    if setting.key not in {*contents.values, *wrong}:
        print(f"{path} does not set {setting.key}.")
        return ExitCode.OK
    save_setting(path, setting.key, None)
    winner = decide({}).of(setting.key).winner
    if winner.source is not Source.DEFAULT:
        print(f"Taken out, but {winner.place} decides {setting.key} here.")
    return ExitCode.OK


def _counted(values: int) -> str:
    return "1 setting" if values == 1 else f"{values} settings"
