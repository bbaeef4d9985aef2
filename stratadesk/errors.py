"""The one exception family whose members a user may see.

Every error says the same three things in the terminal, in the app and in logs: a title,
one sentence with names and numbers, and what to do about it.
"""

from typing import ClassVar

from stratadesk.exit_codes import ExitCode


class StrataDeskError(Exception):
    """A failure that can be explained to a user.

    `sentence` says what failed, with names and numbers; `remedy` says what to do, and is empty
    only where the sentence says that, too. `title`, `exit_code` and the `usual_remedy` of an
    error that is raised without one belong to the class.
    """

    title: ClassVar[str] = "StrataDesk failed"
    exit_code: ExitCode = ExitCode.FAILURE
    usual_remedy: ClassVar[str] = ""

    def __init__(self, sentence: str, remedy: str | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.remedy = self.usual_remedy if remedy is None else remedy

    def __str__(self) -> str:
        return f"{self.sentence} {self.remedy}".rstrip()


class UsageError(StrataDeskError):
    """Flags, settings or input that cannot be used together or at all."""

    title = "Bad usage"
    exit_code = ExitCode.USAGE


class ModelError(StrataDeskError):
    """A model that cannot be used."""

    title = "Model unusable"
    exit_code = ExitCode.MODEL_UNUSABLE


class GgufError(ModelError):
    """A file that is not a sound GGUF file; names file, tensor or key, offset and size."""

    usual_remedy = "Download the model again, or choose another conversion of it."


class UnsupportedModelError(ModelError):
    """A sound file whose architecture, tensor type or tokenizer this version cannot run."""

    usual_remedy = "Choose another conversion of the model, or another model."


class TemplateError(ModelError):
    """A chat template that does not parse, fails while rendering, or runs out of its limits."""

    title = "Chat template failed"


class DeviceError(StrataDeskError):
    """No usable GPU, or a driver that is missing or too old."""

    title = "No usable GPU"
    exit_code = ExitCode.NO_GPU
    usual_remedy = "Use --device host to compute on the CPU."


class DeviceLostError(DeviceError):
    """A card that answered and does not any more: this process cannot use it again."""

    title = "GPU lost"
    usual_remedy = "Start StrataDesk again."


class MemoryShortageError(StrataDeskError):
    """Not enough RAM or VRAM for what was asked; names both figures in MiB."""

    title = "Not enough memory"
    exit_code = ExitCode.OUT_OF_MEMORY


class ContextOverflowError(StrataDeskError):
    """More tokens than the context holds; names both counts."""

    title = "Context is full"
    exit_code = ExitCode.USAGE
