"""A model ready to answer: weights, tokenizer, chat template, and the session it holds."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stratadesk.engine.chat_template import ChatTemplate
from stratadesk.engine.commands import Generate, LoadModel
from stratadesk.engine.events import ModelLoaded
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.load_report import LoadClock, LoadReport
from stratadesk.engine.protocols import Model, ProgressSink, tell_nobody
from stratadesk.engine.session import Session
from stratadesk.engine.tokenizer import Tokenizer
from stratadesk.engine.vram.problems import context_words
from stratadesk.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stratadesk.engine.card_control import CardControl
    from stratadesk.engine.cuda_watch import CudaWatch
    from stratadesk.engine.gguf_file import GgufFile


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything that a request needs of a loaded model.

    `load_s` are seconds without `kernels_s`, those in which kernels were compiled or read.
    `warnings` are sentences about what is wrong with the file but does not keep it from answering.
    """

    path: Path
    model: Model[Any]
    tokenizer: Tokenizer
    template: ChatTemplate
    session: Session[Any]
    load_s: float
    warnings: tuple[str, ...] = ()
    control: CardControl | CudaWatch | None = None
    """Live control of the card's memory, None where the model has no card."""
    kernels_s: float = 0.0

    def template_for(self, command: Generate) -> ChatTemplate:
        """Return the template that the messages of `command` are rendered with."""
        return ChatTemplate(None, self.model.name) if command.force_chatml else self.template

    def describe(self) -> ModelLoaded:
        """Return what screens say about the model."""
        model = self.model
        return ModelLoaded(
            name=model.name,
            architecture=model.architecture,
            path=str(self.path),
            device=model.device,
            file_bytes=model.file_bytes,
            context=model.context,
            kv_bytes=model.kv_bytes,
            state_bytes=model.state_bytes,
            load_s=self.load_s,
            template=self.template.origin,
            thinks=self.template.knows_thinking or self.tokenizer.special_id("<think>") is not None,
            warnings=self.warnings,
            kernels_s=self.kernels_s,
        )

    def close(self) -> None:
        """Release the session's state and the model."""
        if self.control is not None:
            self.control.close()
        self.session.drop("")
        self.model.close()


def open_runtime(
    command: LoadModel, progress: ProgressSink, emit: Callable[[Any], None] = tell_nobody
) -> Runtime:
    """Load the model of `command`, telling `progress` how far it is.

    `emit` is told of every phase and sample of the model's memory as long as it is loaded.

    Raises:
        UsageError: settings out of range.
        ModelError: a file that cannot be used.
        DeviceError: the device asked for is not there.
        MemoryShortageError: not enough RAM.
    """
    from stratadesk.engine.card_control import CardControl
    from stratadesk.engine.cuda_watch import CudaWatch
    from stratadesk.engine.loading import load_model

    clock = LoadClock(progress)
    with ExitStack() as undo:
        model: Any = load_model(command.path, command.settings, clock, emit)
        undo.callback(model.close)
        LoadReport(clock, model.name, model.file_bytes).step("Building the tokenizer")
        tokenizer = Tokenizer.from_gguf(model.gguf)
        template, problems = chat_template_of(model.gguf, model.name)
        own = Hyperparameters(model.gguf).positive("context_length", default=model.context)
        too_long = context_words(model.context, own)
        session = Session(model)
        session.restart()
        control: CardControl | CudaWatch | None = None
        if model.device == "cuda":
            control = CudaWatch(model, emit)
        elif command.settings.plan is not None:
            control = CardControl(model, emit)
        if control is not None:
            undo.callback(control.close)
            control.after_loading()
        undo.pop_all()
    return Runtime(
        path=command.path,
        model=model,
        tokenizer=tokenizer,
        template=template,
        session=session,
        load_s=clock.load_s,
        kernels_s=clock.kernels_s,
        warnings=(*tokenizer.warnings, *problems, *([too_long] if too_long else [])),
        control=control,
    )


def chat_template_of(gguf: GgufFile, name: str) -> tuple[ChatTemplate, tuple[str, ...]]:
    """Return the chat template of model `name` and what is wrong with it.

    ChatML stands in for a template that is missing or does not parse, and a sentence says so.
    """
    source = gguf.get_str("tokenizer.chat_template", "")
    if not source:
        return ChatTemplate(None, name), ("The model has no chat template: it is asked in ChatML.",)
    try:
        return ChatTemplate(source, name), ()
    except TemplateError as error:
        return ChatTemplate(None, name), (f"{error.sentence} It is asked in ChatML instead.",)
