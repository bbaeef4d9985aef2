"""Commands below a command, each with its purpose in the list above it and in its own help."""

import argparse
from typing import TypeVar

AParser = TypeVar("AParser", bound=argparse.ArgumentParser)


def add_command(
    commands: "argparse._SubParsersAction[AParser]", name: str, purpose: str, examples: str = ""
) -> AParser:
    """Add a command and return its parser; `purpose` begins small and has no full stop."""
    described = f"{purpose[:1].upper()}{purpose[1:]}."
    return commands.add_parser(name, help=purpose, description=described, epilog=examples or None)
