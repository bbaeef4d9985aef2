"""Textual messages that cross from one part of the app to another."""

from dataclasses import dataclass

from textual.message import Message

from stratadesk.engine.commands import Command


class EngineWoke(Message):
    """The engine's queue has something to read; posted from the engine's thread."""


@dataclass
class TellEngine(Message):
    """A widget wants the engine told something."""

    command: Command
