"""The Jinja sandbox that chat templates run in: Hugging Face's dialect, with limits."""

import functools
import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from types import BuiltinMethodType
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from markupsafe import escape

from stratadesk.engine.template_limits import (
    LimitReachedError,
    TemplateLimits,
    TextBudget,
    check_count,
    check_format,
    check_integer_bits,
    check_weight,
)

_WRITING_FILTERS = frozenset(
    {"capitalize", "center", "lower", "pprint", "string", "striptags", "title", "trim"}
    | {"truncate", "upper", "urlencode", "wordcount"}
)
_DROPPED_FILTERS = frozenset({"urlize", "wordwrap", "xmlattr"})
_WIDTH_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_LONG_STRFTIME = re.compile(r"%[^A-Za-z%]*\d{4,}")


def weighed(value: Any) -> Any:
    """Return `value` unless it is a container that expands to too much."""
    check_weight(value)
    return value


class GenerationExtension(Extension):
    """`{% generation %}` of Hugging Face templates: marks text for training, changes nothing."""

    tags = {"generation"}  # noqa: RUF012  (Jinja declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the body of the block as it stands."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateNamespace(Namespace):
    """A namespace whose attributes cannot pass for Python's own."""

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if str(name).startswith("_"):
            raise SecurityError(f"a namespace cannot hold {name!r}")
        super().__setitem__(name, value)


class MeteredCodeGenerator(CodeGenerator):
    """Compiles what makes texts and containers to calls that look at what is made."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Write `environment.join_texts((...))`."""
        self.write("environment.join_texts((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        """Write `environment.weighed([...])`."""
        self.write("environment.weighed(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        """Write `environment.weighed({...})`."""
        self.write("environment.weighed(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        """Write `environment.weighed((...))`, but targets of an assignment as they are."""
        self.write("environment.weighed(" if node.ctx == "load" else "(")
        super().visit_Tuple(node, frame)
        self.write(")")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Jinja as Hugging Face runs chat templates, except that big results are refused.

    `now` tells the time for `strftime_now`. Call `start` before each rendering; one rendering
    at a time. Expressions are not folded at compile time, so that every limit holds there too.
    Filters never yield Markup, so `safe` changes nothing.
    """

    code_generator_class = MeteredCodeGenerator
    weighed = staticmethod(weighed)
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, limits: TemplateLimits, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=weighed,
            extensions=[LoopControlExtension, GenerationExtension],
        )
        self._limits = limits
        self._budget = TextBudget(limits)
        self.filters = {
            name: _guarded(function, writes=name in _WRITING_FILTERS)
            for name, function in self.filters.items()
            if name not in _DROPPED_FILTERS
        }
        self.filters.update(
            e=_escape,
            escape=_escape,
            format=_format,
            forceescape=_escape,
            indent=self._indent,
            join=self._join,
            replace=self._replace,
            safe=_text,
            sum=self._sum,
            tojson=_to_json,
        )
        self.globals.pop("lipsum")
        self.globals["dict"] = _dict
        self.globals["namespace"] = TemplateNamespace
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = functools.partial(_strftime, now)
        self.concat = self.join_texts  # type: ignore[method-assign]

    def start(self) -> None:
        """Begin a rendering with a fresh text budget."""
        self._budget = TextBudget(self._limits)

    def handle_exception(self, source: str | None = None) -> NoReturn:
        """Raise what is being handled as it is, with the frames of the compiled template."""
        raise  # noqa: PLE0704

    def join_texts(self, parts: Iterable[Any]) -> str:
        """Return all parts, as texts, in one."""
        texts = [_text(part) for part in parts]
        self._budget.take(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute `left operator right` if the result is of reasonable size."""
        check = {
            "+": self._check_sum,
            "*": self._check_product,
            "**": _check_power,
            "%": _check_modulo,
        }[operator]
        check(left, right)
        return self.binop_table[operator](left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method, macro or function, text methods only with reasonable results."""
        method = getattr(__obj, "__wrapped__", __obj)
        if isinstance(method, BuiltinMethodType) and isinstance(method.__self__, str):
            args = __self._check_method(method.__name__, method.__self__, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def _check_sum(self, left: Any, right: Any) -> None:
        if isinstance(left, str) and isinstance(right, str):
            self._budget.take(len(left) + len(right))
        elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
            check_count(len(left) + len(right))

    def _check_product(self, left: Any, right: Any) -> None:
        if isinstance(left, int) and isinstance(right, int):
            check_integer_bits(left.bit_length() + right.bit_length())
            return
        sequence, count = (right, left) if isinstance(left, int) else (left, right)
        if isinstance(sequence, str) and isinstance(count, int):
            self._budget.take(len(sequence) * max(count, 0))
        elif isinstance(sequence, list | tuple) and isinstance(count, int):
            check_count(len(sequence) * count)

    def _check_method(
        self, name: str, text: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        if name in _WIDTH_METHODS:
            width = next(iter((*args, *kwargs.values())), 8)
            check_count(width)
            self._budget.take(text.count("\t") * width if name == "expandtabs" else width)
        elif name in {"format", "format_map"}:
            check_format(text)
            check_weight([args, kwargs])
        elif name == "replace" and len(args) >= 2:
            self._check_replacement(text, args[0], args[1])
        elif name == "join" and len(args) == 1:
            args = (list(args[0]),)
            self._check_joined(text, args[0])
        return args

    def _check_replacement(self, text: str, old: str, new: str) -> None:
        self._budget.take(len(text) + text.count(old) * len(new))

    def _check_joined(self, separator: str, parts: list[Any]) -> None:
        lengths = (len(part) for part in parts if isinstance(part, str))
        self._budget.take(len(separator) * len(parts) + sum(lengths))

    def _indent(
        self, value: Any, width: int | str = 4, first: bool = False, blank: bool = False
    ) -> str:
        check_count(width)
        lines = (_text(value) + "\n").splitlines()
        margin = width if isinstance(width, str) else " " * width
        self._budget.take(len(margin) * len(lines))
        rest = (margin + line if line or blank else line for line in lines[1:])
        return "\n".join([(margin if first else "") + lines[0], *rest])

    def _join(self, value: Iterable[Any], d: Any = "", attribute: Any = None) -> str:
        items = value if attribute is None else map(make_attrgetter(self, attribute), value)
        texts = [_text(item) for item in items]
        self._check_joined(_text(d), texts)
        return _text(d).join(texts)

    def _replace(self, value: Any, old: Any, new: Any, count: int | None = None) -> str:
        text, old, new = _text(value), _text(old), _text(new)
        self._check_replacement(text, old, new)
        return text.replace(old, new, -1 if count is None else count)

    def _sum(self, value: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
        items = value if attribute is None else map(make_attrgetter(self, attribute), value)
        total = start
        for item in items:
            self._check_sum(total, item)
            total = total + item
        return total


def _guarded(function: Callable[..., Any], *, writes: bool) -> Callable[..., Any]:
    """Return a filter that refuses huge counts, and huge values when it writes them out."""
    n_values = 2 if hasattr(function, "jinja_pass_arg") else 1

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for option in (*args[n_values:], *kwargs.values()):
            check_count(option)
            check_weight(option)
        if writes:
            check_weight(args[n_values - 1])
        return function(*args, **kwargs)

    return checked


def _check_power(base: Any, exponent: Any) -> None:
    if isinstance(base, int) and isinstance(exponent, int):
        check_integer_bits(base.bit_length() * max(exponent, 0))


def _check_modulo(left: Any, right: Any) -> None:
    if isinstance(left, str):
        check_format(left)
        check_weight(right)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(weighed(value))


def _escape(value: Any) -> str:
    return str(escape(_text(value)))


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    _check_modulo(_text(value), args or kwargs)
    return str(_text(value) % (kwargs or args))


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    made: dict[Any, Any] = weighed(dict(*args, **kwargs))
    return made


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as Hugging Face does: characters and HTML stay as they are."""
    check_weight(value)
    check_count(indent)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: Any) -> NoReturn:
    raise TemplateError(_text(message))


def _strftime(now: Callable[[], datetime], form: str) -> str:
    if len(form) > 1000 or _LONG_STRFTIME.search(form):
        raise LimitReachedError("it formats the time with a width that is too large")
    return now().strftime(form)
