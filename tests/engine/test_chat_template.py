"""Guards against prompts that differ from what a model was trained on, templates that hang or
fill the memory, and failures that do not say what and where.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

import jinja2
import jinja2.ext
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from stratadesk.engine.chat_template import CHATML, NEW_CHAT, ChatTemplate, thinking_open
from stratadesk.engine.commands import Message
from stratadesk.engine.template_limits import TemplateLimits
from stratadesk.engine.tokenizer import Tokenizer
from stratadesk.errors import ExitCode, TemplateError
from tests.engine.test_tokenizer import SMALL

USER = Message("user", "Hi")
QUICK = TemplateLimits(seconds=0.3)


def render(source: str, messages: Sequence[Any] = (USER,), **variables: Any) -> str:
    return ChatTemplate(source, limits=QUICK).render(messages, **variables)


def failure(source: str, messages: Sequence[Any] = (USER,)) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        render(source, messages)
    return caught.value


@pytest.fixture
def chat(data_dir: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((data_dir / "chat.json").read_text("utf-8"))
    return loaded


def test_golden_chats_give_the_same_text_and_ids(chat: dict[str, Any]) -> None:
    template, tokenizer = ChatTemplate(chat["template"]), Tokenizer(SMALL)
    assert len(chat["cases"]) == 12
    for case in chat["cases"]:
        flag = case["add_generation_prompt"]
        text = template.render(case["messages"], add_generation_prompt=flag)
        assert text == case["text"]
        assert tokenizer.encode(text, parse_special=True) == case["ids"]
    assert template.origin == "model"


def test_contents_of_golden_chats_stay_text_when_marked(chat: dict[str, Any]) -> None:
    template, tokenizer = ChatTemplate(chat["template"]), Tokenizer(SMALL)
    for case in chat["cases"]:
        contents = [message["content"] for message in case["messages"]]
        mark = tokenizer.choose_mark([*contents, template.source])
        marked = [
            {**message, "content": tokenizer.escape_content(message["content"], mark)}
            for message in case["messages"]
        ]
        text = template.render(marked, add_generation_prompt=case["add_generation_prompt"])
        ids = tokenizer.encode_marked(text, mark)
        turns = len(case["messages"])
        assert tokenizer.decode(ids) == case["text"]
        assert ids.count(1533) == turns
        if not any("<|" in content for content in contents):
            assert ids == case["ids"]


def test_chatml_is_declared_and_equals_the_golden_template(chat: dict[str, Any]) -> None:
    template = ChatTemplate(None)
    assert (template.origin, template.source) == ("ChatML", CHATML)
    assert not template.knows_thinking
    for case in chat["cases"]:
        flag = case["add_generation_prompt"]
        assert template.render(case["messages"], add_generation_prompt=flag) == case["text"]


def test_messages_of_the_engine() -> None:
    messages = [Message("user", "a"), Message("assistant", "b", reasoning="r"), Message("x", "")]
    got = json.loads(render("{{ messages | tojson }}", messages))
    assert got == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "r"},
        {"role": "x", "content": ""},
    ]


def test_messages_of_other_programs_are_put_right() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": [1, "é"]}'}}
    bare = {"name": "g", "arguments": "not JSON"}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call, bare]},
        {"role": "assistant", "tool_calls": []},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": [{"type": "image"}]},
        {"role": "tool", "content": "", "tool_calls": None, "name": "f"},
    ]
    before = json.dumps(messages)
    assert json.loads(render("{{ messages | tojson }}", messages)) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "type": "function",
                    "function": {"name": "f", "arguments": {"a": [1, "é"]}},
                },
                bare,
            ],
        },
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "ab"},
        {"role": "user", "content": [{"type": "image"}]},
        {"role": "tool", "content": "", "name": "f"},
    ]
    assert json.dumps(messages) == before


@pytest.mark.parametrize("tools", [None, [], ()])
def test_empty_tools_are_none(tools: Any) -> None:
    source = "{% if tools is none %}none{% endif %}{% if tools %}some{% endif %}"
    assert render(source, tools=tools) == "none"


def test_variables_of_the_template() -> None:
    source = "{{ bos_token }}{{ eos_token }}{{ tools[0].name }}{{ add_generation_prompt }}"
    got = render(source, bos_token="<s>", eos_token="</s>", tools=[{"name": "t"}])
    assert got == "<s></s>tTrue"
    assert render("[{{ nothing }}]") == "[]"


def test_thinking_is_handed_on_only_when_chosen() -> None:
    source = "{{ enable_thinking if enable_thinking is defined else 'unset' }}"
    assert ChatTemplate(source).knows_thinking
    got = [render(source, enable_thinking=choice) for choice in (None, True, False)]
    assert got == ["unset", "True", "False"]


@pytest.mark.parametrize(
    ("prompt", "is_open"),
    [
        ("", False),
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>\nFirst,", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<think>a</think>b<think>", True),
        ("<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n", False),
        ("</think><think", False),
    ],
)
def test_whether_a_prompt_ends_inside_thinking(prompt: str, is_open: bool) -> None:
    assert thinking_open(prompt) is is_open


SNIPPETS = [
    "{% for m in messages[::-1] %}{{ loop.index0 }}{{ m.role }}{{ loop.last }}{% endfor %}",
    "{% for m in messages %}{% if m.role %}{% continue %}{% endif %}{% break %}{% endfor %}",
    "{% set ns = namespace(n=0, found=false) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% endfor %}{{ ns.n }}{{ ns.found }}",
    "{% if true %}\n    kept\n{% endif %}\n  {%- if 1 %} a {% endif -%}  b\n",
    "{{ {'b': [1, none, '<é>'], 'a': 1.5} | tojson }}{{ [1, {'a': 2}] | tojson(indent=2) }}",
    "{{ '</think>x'.split('</think>')[-1].lstrip('\\n') }}{{ 'a\\n'.rstrip('\\n') | length }}",
    "{{ messages | map(attribute='role') | join(', ') }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{{ messages | join('-', attribute='role') }}{{ [1, 'a', none] | join }}",
    "{{ 'a' ~ 1 ~ none ~ [2, 'b'] ~ {'c': 3} }}{{ 'x' + 'y' * 3 }}{{ [1] + [2] }}{{ 2 ** 8 % 7 }}",
    "{{ '%s is %05.1f' % ('a', 2.25) }}{{ '%d' | format(3) }}{{ '{:>4}{}'.format('a', 1) }}",
    "{{ 'a-b-c' | replace('-', '+') }}{{ 'a-b'.replace('-', '+') }}{{ 1212 | replace(1, 'x') }}",
    "{{ 'one\\ntwo\\n\\nthree\\n' | indent(2) }}|{{ 'a\\nb' | indent('> ', first=true) }}|",
    "{{ 'a\\n\\nb' | indent(1, blank=true) }}|{{ '' | indent }}|{{ 'a' | indent(3, true) }}",
    "{{ '  a ' | trim }}{{ 'A' | lower }}{{ 'é' | upper }}{{ 'ab cd' | title }}",
    "{{ [3, 1, 2] | sort | first }}{{ [1, 2] | sum }}{{ [{'n': 1}, {'n': 2}] | sum('n') }}",
    "{{ {'b': 1, 'a': 2} | dictsort }}{{ {'a': 1}.items() | list }}{{ {'a': 1} | items | list }}",
    "{{ '<b>' | e }}{{ '<b>' | safe }}{{ ('<b>' | tojson) | safe }}{{ '<b>' | escape | length }}",
    "{{ 1 is string }}{{ {} is mapping }}{{ [] is sequence }}{{ x is defined }}{{ none is none }}",
    "{% macro m(x, y='d') %}{{ x }}{{ y }}{% endmacro %}{{ m('a') }}{{ m('a', y='b') | length }}",
    "{% set text %}  block {{ 1 + 1 }} {% endset %}{{ text | trim }}{{ range(3) | list }}",
    "{{ 'abc'[1:] }}{{ 'abc'.startswith('ab') }}{{ 'a,b'.split(',') }}{{ 'ab'.center(6) }}|",
    "{{ 'a'.ljust(3) }}|{{ '7'.zfill(3) }}{{ 'a\\tb'.expandtabs(4) }}{{ ', '.join(['a', 'b']) }}",
    "{{ messages | length }}{{ messages[0].get('name', 'none') }}{{ messages[0]['role'] }}",
    "{{ 'ab' | list }}{{ 'a b' | wordcount }}{{ '3' | int + 1 }}{{ 3.14159 | round(2) }}",
    "{{ dict(a=1) }}{{ [1, 2, 3, 4, 5] | batch(2) | list }}{{ [1, 1, 2] | unique | list }}",
    "{# comment #}{% raw %}{{ raw }}{% endraw %}{{ undefined_name | default('d') }}",
]


def plain_jinja(source: str, messages: list[dict[str, Any]]) -> str:
    """Jinja as Hugging Face sets it up for chat templates."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = lambda x, **options: json.dumps(
        x, ensure_ascii=False, **options
    )
    return environment.from_string(source).render(messages=messages)


@pytest.mark.parametrize("source", SNIPPETS)
def test_limits_change_nothing_that_templates_do(source: str) -> None:
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a <|x|> b"},
        {"role": "assistant", "content": "c"},
    ]
    assert render(source, messages) == plain_jinja(source, messages)


def test_extras_of_hugging_face() -> None:
    source = (
        "{% generation %}a{{ messages[0].content }}{% endgeneration %}{{ strftime_now('%d %b') }}"
    )
    template = ChatTemplate(source, now=lambda: datetime(2026, 11, 5))
    assert template.render([USER]) == "aHi05 Nov"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("\n\n{% for %}", "does not parse at line 3: "),
        ("{{ 'x' | nofilter }}", "does not parse at line 1: No filter named 'nofilter'."),
        ("{{ 'a", "does not parse at line 1"),
        (
            "\n{{ raise_exception('Roles must alternate.') }}",
            "failed at line 2: Roles must alternate.",
        ),
        ("\n\n{% macro m() %}\n{{ 1 // 0 }}{% endmacro %}{{ m() }}", "failed at line 4: "),
        ("{{ messages[7].content }}", "failed at line 1: list object has no element 7."),
        ("{{ nothing.at_all }}", "failed at line 1: 'nothing' is undefined."),
        ("{{ 'a' + 1 }}", "failed at line 1: "),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "does not parse: it is nested too deeply."),
        ("{% include 'x' %}", "failed at line 1: no loader"),
        ("{{ ''.__class__.x }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% set ns = namespace(_x=1) %}", "cannot hold '_x'"),
        ("x" * (1024 * 1024 + 1), "longer than 1,048,576 characters"),
    ],
)
def test_a_failure_says_what_and_where(source: str, words: str) -> None:
    error = failure(source)
    assert error.sentence.startswith("The chat template of the model ")
    assert words in error.sentence
    assert "\n" not in error.sentence
    assert len(error.sentence) < 400
    assert "ChatML" in error.remedy
    assert error.exit_code is ExitCode.MODEL_UNUSABLE


def test_failures_name_the_model_and_chatml_does_not_offer_itself() -> None:
    with pytest.raises(TemplateError, match=r"^The chat template of Tiny 1B does not parse"):
        ChatTemplate("{% x", "Tiny 1B")
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(None).render([{"role": 1, "content": [{"type": "image"}], "tool_calls": [3]}])
    assert caught.value.remedy == NEW_CHAT


GROWING = "{% set n = namespace(x=SEED) %}{% for i in range(64) %}{% set n.x = STEP %}{% endfor %}"


def growing(seed: str, step: str, then: str = "") -> str:
    return GROWING.replace("SEED", seed).replace("STEP", step) + then


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 1000000000 }}",
        "{{ 1000000000 * 'a' }}",
        "{{ [0] * 1000000000 }}",
        "{{ 10 ** 100000000 }}",
        growing("'ab'", "n.x ~ n.x"),
        growing("'ab'", "n.x + n.x"),
        growing("'ab'", "n.x * 2"),
        growing("'ab'", "n.x | replace('b', n.x)"),
        growing("'ab'", "n.x.replace('b', n.x)"),
        growing("'ab'", "[n.x, n.x] | join"),
        growing("'ab'", "n.x.join(['', n.x, ''])"),
        growing("['ab']", "n.x + n.x"),
        growing("3", "n.x * n.x"),
        growing("['a']", "[n.x, n.x]", "{{ n.x }}"),
        growing("['a']", "[n.x, n.x]", "{{ n.x | string }}"),
        growing("['a']", "[n.x, n.x]", "{{ n.x | tojson }}"),
        growing("['a']", "[n.x, n.x]", "{{ n.x | join }}"),
        growing("['a']", "[n.x, n.x]", "{{ n.x ~ '' }}"),
        growing("['a']", "[n.x, n.x]", "{{ '%s' % (n.x,) }}"),
        growing("['a']", "[n.x, n.x]", "{{ '{}'.format(n.x) }}"),
        growing("['a']", "[n.x, n.x]", "{{ n.x | upper }}"),
        growing("['a']", "{'a': n.x, 'b': n.x}", "{{ n.x | tojson }}"),
        growing("['a']", "(n.x, n.x)", "{{ n.x == (n.x[0], n.x[1]) }}"),
        growing("['a']", "dict(a=n.x, b=n.x)"),
        growing("['a']", "[0, 0] | map('default', n.x, true) | list"),
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a'.zfill(1000000000) }}",
        "{{ '\\t'.expandtabs(1000000000) }}",
        "{{ '\\t'.expandtabs(tabsize=1000000000) }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ 'a' | center(width=1000000000) }}",
        "{{ 'a\\nb' | indent(1000000000) }}",
        "{{ ('a\\n' * 1000) | indent('b' * 1000000) }}",
        "{{ [1] | tojson(indent=1000000000) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%-*d' % (1000000000, 1) }}",
        "{{ '%.1000000000f' % 1 }}",
        "{{ '%(a)1000000000d' % {'a': 1} }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 1000000000) }}",
        "{{ strftime_now('%1000000000d') }}",
        "{{ range(1000000000) }}",
        "{{ [[]] | sum(start=[0] * 100000) | batch(1000000000, 0) | list }}",
        "{% for i in range(100000) %}{{ 'a' * 10000 }}{% endfor %}",
        "{% set x %}{% for i in range(100000) %}{{ 'a' * 10000 }}{% endfor %}{% endset %}",
        "{{ lipsum(n=100000) }}",
    ],
)
def test_huge_results_are_refused_before_they_are_built(source: str) -> None:
    started = time.process_time()
    error = failure(source)
    assert time.process_time() - started < 10
    assert "failed at line 1: " in error.sentence or "it writes more than" in error.sentence


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% for i in range(9) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endfor %}"
        "{% endmacro %}{{ m(99) }}",
        "{% for i in range(100000) %}{{ range(100000) | map('string') | list }}{% endfor %}",
    ],
)
def test_loops_without_end_run_out_of_time(source: str) -> None:
    started = time.monotonic()
    assert "it runs longer than 0.3 s" in failure(source).sentence
    assert time.monotonic() - started < 30


def test_trace_function_is_put_back(request: pytest.FixtureRequest) -> None:
    def tracer(frame: FrameType, event: str, argument: object) -> None:
        return None

    before = sys.gettrace()
    request.addfinalizer(lambda: sys.settrace(before))
    sys.settrace(tracer)
    assert render("{{ 1 }}") == "1"
    assert sys.gettrace() is tracer
    failure("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}")
    assert sys.gettrace() is tracer
    failure("{{ 1 // 0 }}")
    assert sys.gettrace() is tracer


def test_a_template_works_on_after_a_failure() -> None:
    template = ChatTemplate("{{ messages[0].content * 9000000 }}", limits=QUICK)
    for _ in range(3):
        with pytest.raises(TemplateError):
            template.render([USER])
        assert len(template.render([Message("user", "x")])) == 9_000_000


def long_chat() -> Iterator[Message]:
    for i in range(500):
        yield Message("user", f"Question {i} " + "word " * 400)
        yield Message("assistant", f"Answer {i} " + "word " * 400)


def test_a_long_chat_is_no_abuse() -> None:
    source = (
        "{% set ns = namespace(out='') %}{% for m in messages %}"
        "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
        "{% for m in messages %}{% set ns.last = m.content ~ '' %}{% endfor %}{{ ns.last }}"
    )
    assert len(ChatTemplate(source).render(list(long_chat()))) > 2_000_000
