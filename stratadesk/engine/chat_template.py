"""From the messages of a chat to the text of a prompt, by the model's own Jinja template."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

import jinja2

from stratadesk.engine.commands import Message
from stratadesk.engine.template_limits import LimitReachedError, TemplateLimits, time_limit
from stratadesk.engine.template_sandbox import TemplateSandbox
from stratadesk.errors import TemplateError

CHATML = """\
{%- for message in messages -%}
{{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
"""The template used, and declared, when a model has none that works."""

MAX_SOURCE = 1024 * 1024
"""Longest template source, in characters."""

NEW_CHAT = "Start a new chat, or shorten this one."

_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"
_TURN_MARKER = re.compile(r"<\|[^|<>\s]+\|>|<end_of_turn>|</s>")
_TEMPLATE_FAILURES = (
    jinja2.TemplateError,
    LimitReachedError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What Jinja and the expressions of a template can raise; Jinja wraps none of the latter."""

ChatMessage = Message | Mapping[str, Any]


class ChatTemplate:
    """One chat template, compiled once; for one thread at a time.

    Without `source` it is ChatML. `name` is the model's, for error sentences. `now` tells the
    time to templates that ask for it.

    Raises TemplateError when `source` does not parse.
    """

    def __init__(
        self,
        source: str | None,
        name: str = "the model",
        *,
        limits: TemplateLimits | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.source = CHATML if source is None else source
        self.name = name
        self._is_model = source is not None
        self._limits = limits or TemplateLimits()
        self._sandbox = TemplateSandbox(self._limits, now)
        self._template = self._compile()

    @property
    def origin(self) -> str:
        """Where the template comes from: "model" or "ChatML"."""
        return "model" if self._is_model else "ChatML"

    @property
    def knows_thinking(self) -> bool:
        """Whether the template can be asked to think or not to."""
        return "enable_thinking" in self.source

    def render(
        self,
        messages: Sequence[ChatMessage],
        *,
        add_generation_prompt: bool = True,
        enable_thinking: bool | None = None,
        bos_token: str = "",
        eos_token: str = "",
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Return the prompt for `messages`.

        `add_generation_prompt` ends it where the assistant begins to speak. `enable_thinking`
        None leaves the choice to the template. An empty list of `tools` counts as none.

        Raises TemplateError when the template fails, refuses the messages or runs out of its
        limits.
        """
        variables: dict[str, Any] = {
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
            "bos_token": bos_token,
            "eos_token": eos_token,
        }
        if enable_thinking is not None:
            variables["enable_thinking"] = enable_thinking
        try:
            variables["messages"] = [_plain_message(message) for message in messages]
            with time_limit(self._limits.seconds):
                return self._run(variables)
        except _TEMPLATE_FAILURES as error:
            raise self._explain("failed", error) from error

    def _compile(self) -> jinja2.Template:
        try:
            if len(self.source) > MAX_SOURCE:
                raise LimitReachedError(f"it is longer than {MAX_SOURCE:,} characters")
            with time_limit(self._limits.seconds):
                return self._sandbox.from_string(self.source)
        except _TEMPLATE_FAILURES as error:
            raise self._explain("does not parse", error) from error

    def _run(self, variables: dict[str, Any]) -> str:
        self._sandbox.start()
        length = 0
        pieces = []
        for piece in self._template.generate(variables):
            pieces.append(piece)
            length += len(piece)
            if length > self._limits.output:
                raise LimitReachedError(f"it writes more than {self._limits.output:,} characters")
        return "".join(pieces)

    def _explain(self, what: str, error: BaseException) -> TemplateError:
        line = _line_of(error)
        where = f" at line {line}" if line else ""
        return TemplateError(
            f"The chat template of {self.name} {what}{where}: {_words(error)}.",
            "The chat can be written in ChatML instead." if self._is_model else NEW_CHAT,
        )


def thinking_open(prompt: str) -> bool:
    """Tell whether a prompt ends inside `<think>`, so that the answer starts in thinking.

    A marker of a chat format (`<|...|>`) after `<think>` ends the turn and the thought with it.
    """
    start = prompt.rfind(_THINK_OPEN)
    if start < 0:
        return False
    rest = prompt[start + len(_THINK_OPEN) :]
    return _THINK_CLOSE not in rest and not _TURN_MARKER.search(rest)


def _plain_message(message: ChatMessage) -> dict[str, Any]:
    if isinstance(message, Message):
        plain: dict[str, Any] = {"role": message.role, "content": message.content}
        return {**plain, "reasoning_content": message.reasoning} if message.reasoning else plain
    plain = {**message, "content": _plain_content(message.get("content"))}
    if "tool_calls" in plain:
        calls = plain.pop("tool_calls")
        if calls:
            plain["tool_calls"] = [_plain_call(call) for call in calls]
    return plain


def _plain_content(content: Any) -> Any:
    """Return text for no content and for parts that are all text; anything else as it is."""
    if content is None:
        return ""
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [part for part in content if isinstance(part, Mapping)]
        texts = [part.get("text") for part in parts if part.get("type") == "text"]
        if len(texts) == len(content):
            return "".join(text or "" for text in texts)
    return content


def _plain_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call whose arguments are parsed if they came as JSON text."""
    plain = dict(call)
    for holder in (plain, plain.get("function")):
        if isinstance(holder, Mapping) and isinstance(holder.get("arguments"), str):
            parsed = {**holder, "arguments": _parsed(holder["arguments"])}
            plain = parsed if holder is plain else {**plain, "function": parsed}
    return plain


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _line_of(error: BaseException) -> int | None:
    """Return the line of the template that `error` comes from, None when it is not known."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return error.lineno
    lines = [
        template.get_corresponding_lineno(line)
        for template, line in _template_frames(error.__traceback__)
    ]
    return lines[-1] if lines else None


def _template_frames(trace: TracebackType | None) -> Iterable[tuple[jinja2.Template, int]]:
    while trace is not None:
        template = trace.tb_frame.f_globals.get("__jinja_template__")
        if isinstance(template, jinja2.Template):
            yield template, trace.tb_lineno
        trace = trace.tb_next


def _words(error: BaseException) -> str:
    """Return the message of `error` on one line of at most 300 characters, without full stop."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    said = error.message if isinstance(error, jinja2.TemplateError) else str(error)
    text = " ".join((said or "").split()) or type(error).__name__
    return (text if len(text) <= 300 else text[:299] + "…").rstrip(".")
