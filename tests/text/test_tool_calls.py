from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.text import tiny
from quiesce.text.tool_calls import FORMATS, Call, CallReader, detect

NAMES = ("f", "g")
F1, G = Call("f", '{"a": 1}'), Call("g", "{}")
Parts = list[str | Call]


def read(form: str, *pieces: str) -> Parts:
    """What the pieces say, neighbouring texts as one."""
    reader = CallReader(FORMATS[form], NAMES)
    parts: Parts = []
    for part in [part for piece in pieces for part in reader.push(piece)] + reader.flush():
        before = parts[-1] if parts else None
        if isinstance(part, str) and isinstance(before, str):
            parts[-1] = before + part
        else:
            parts.append(part)
    return parts


H = "<tool_call>{}</tool_call>".format
F1_SAID = '{"name": "f", "arguments": {"a": 1}}'

HERMES: dict[str, Parts] = {
    "": [],
    "  hello <b> \n": ["  hello <b> \n"],
    H(F1_SAID): [F1],
    f"\n<tool_call>\n{F1_SAID}\n</tool_call>\n": [F1],
    f"Let me see.\n\n{H(F1_SAID)}\n": ["Let me see.", F1],
    H(F1_SAID) + "\n" + H('{"name": "g"}'): [F1, G],
    H(F1_SAID) + " and then\n": [F1, " and then\n"],
    H('{"arguments": "{\\"a\\": 1}", "name": "f"}'): [F1],
    H('{"name": "f", "parameters": {"a": 1}}'): [F1],
    H('{"name": "f", "arguments": {"x": "</tool_call> \\" } \\\\"}}'): [
        Call("f", '{"x": "</tool_call> \\" } \\\\"}')
    ],
    H('{"name": "f", "arguments": {"é": [1.5e-3, true, null, "\\u00e9 😀"]}}'): [
        Call("f", '{"é": [1.5e-3, true, null, "\\u00e9 😀"]}')
    ],
    H('{"name": "f", "arguments": {"x": 3e999999}}'): [Call("f", '{"x": 3e999999}')],
    # what comes out as the text it is
    "<": ["<"], "<tool_call": ["<tool_call"], "<tool_call>": ["<tool_call>"], "<tool_call> ": ["<tool_call> "],
    H("hello"): [H("hello")],
    H(""): [H("")],
    H("[1]"): [H("[1]")],
    H("{}"): [H("{}")],
    H('{"name": "nobody", "arguments": {}}'): [H('{"name": "nobody", "arguments": {}}')],
    H('{"name": "f", "arguments": [1]}'): [H('{"name": "f", "arguments": [1]}')],
    H('{"name": "f", "arguments": "no JSON"}'): [H('{"name": "f", "arguments": "no JSON"}')],
    H('{"name": "f", "arguments": {]}}'): [H('{"name": "f", "arguments": {]}}')],
    H('{"name": "f", "arguments": {}}}'): [H('{"name": "f", "arguments": {}}}')],
    H('{"name": "f", "arguments": {}'): [H('{"name": "f", "arguments": {}')],
    '<tool_call>{"name": "f", "arguments": {"a": "\n"}}': ['<tool_call>{"name": "f", "arguments": {"a": "\n"}}'],
    '<tool_call>{"name": "f", "argum': ['<tool_call>{"name": "f", "argum'],
    "<tool_call>" + '{"a":' * 3000 + "1" + "}" * 3000: ["<tool_call>" + '{"a":' * 3000 + "1" + "}" * 3000],
    # and what follows it
    "<<tool_call>" + F1_SAID + "</tool_call>": ["<", F1],
    "<tool_call>" + H(F1_SAID): ["<tool_call>", F1],
    '<tool_call>{"a": ' + H(F1_SAID) + "!": ['<tool_call>{"a": ', F1, "!"],
    f"<tool_call>{F1_SAID}</tool" + H('{"name": "g"}'): [f"<tool_call>{F1_SAID}</tool", G],
    # the end came too soon, but nothing of the call is missing
    f"<tool_call>{F1_SAID}": [F1], f"<tool_call>{F1_SAID}\n</tool_c": [F1],
}  # fmt: skip
MISTRAL: dict[str, Parts] = {
    f"[TOOL_CALLS] [{F1_SAID}]": [F1],
    f'[TOOL_CALLS][{F1_SAID}, {{"name": "g", "arguments": {{}}, "id": "x"}}]': [F1, G],
    f"See. [TOOL_CALLS] [{F1_SAID}] ": ["See.", F1],
    "[TOOL_CALLS] []": ["[TOOL_CALLS] []"],
    f'[TOOL_CALLS] [{F1_SAID}, {{"name": "nobody"}}]': [f'[TOOL_CALLS] [{F1_SAID}, {{"name": "nobody"}}]'],
    "[TOOL_CALLS]f{}": ["[TOOL_CALLS]f{}"],
    "[1, 2] and [TOOL": ["[1, 2] and [TOOL"],
    f"[[TOOL_CALLS] [{F1_SAID}]": ["[", F1],
}
LLAMA: dict[str, Parts] = {
    '{"name": "f", "parameters": {"a": 1}}': [F1],
    '\n<|python_tag|>{"name": "f", "parameters": {"a": 1}}\n': [F1],
    '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}': [F1, G],
    '{"name": "f", "parameters": {"a": 1}}\n<|python_tag|>{"name": "g"}': [F1, G],
    '{"name": "f", "parameters": {"a": 1}} is it': [F1, " is it"],
    '{"name": "f", "parameters": {"a": 1}};;': [F1, ";;"],
    '{"name": "Ada", "age": 36}': ['{"name": "Ada", "age": 36}'],
    '{"name": "Ada"} {"name": "f"}': ['{"name": "Ada"} {"name": "f"}'],
    'Well: {"name": "f"}': ['Well: {"name": "f"}'],
    '; {"name": "f"}': ['; {"name": "f"}'],
    "<|python_tag|>print(1)": ["<|python_tag|>print(1)"],
    "<|python": ["<|python"],
    "  ": ["  "],
}
CASES = [
    (form, said, parts)
    for form, table in (("hermes", HERMES), ("mistral", MISTRAL), ("llama3_json", LLAMA))
    for said, parts in table.items()
]


@pytest.mark.parametrize(("form", "said", "parts"), CASES)
def test_every_split_reads_the_same(form: str, said: str, parts: Parts) -> None:
    """In one piece, in two at every place, and character by character."""
    assert read(form, said) == parts
    assert read(form, *said) == parts
    places = range(len(said)) if len(said) < 200 else range(0, len(said), 997)
    assert all(read(form, said[:place], said[place:]) == parts for place in places)


FRAGMENTS = st.lists(
    st.sampled_from(
        ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", F1_SAID, f"[{F1_SAID}]", "{", "}", '"', "\\",
         " ", "\n", "<", "[", "]", ";", "x", '{"name": "g"}', "1", "é"]
    ),
    max_size=12,
)  # fmt: skip


@given(st.sampled_from(sorted(FORMATS)), FRAGMENTS)
def test_pieces_do_not_matter_and_text_is_never_lost(form: str, fragments: list[str]) -> None:
    said = "".join(fragments)
    whole = read(form, said)
    assert read(form, *fragments) == read(form, *said) == whole
    if not any(isinstance(part, Call) for part in whole):
        assert "".join(str(part) for part in whole) == said
    assert is_within("".join(part for part in whole if isinstance(part, str)), said)


def is_within(text: str, said: str) -> bool:
    """All of its characters, in their order."""
    rest = iter(said)
    return all(character in rest for character in text)


def test_text_is_shown_as_soon_as_it_cannot_become_a_call() -> None:
    reader = CallReader(FORMATS["hermes"], NAMES)
    assert reader.push("hello") == ["hello"]
    assert reader.push(" <tool") == []
    assert reader.push("box") == [" <toolbox"]
    assert reader.push(f"<tool_call>{F1_SAID}") == []
    assert reader.push("</tool_call>") == [F1]


def test_a_long_call_takes_time_in_proportion() -> None:
    """Each character is looked at once: a quadratic reader would take minutes here."""
    arguments = '{"a": "' + "x" * 300_000 + '"}'
    assert read("hermes", *H(f'{{"name": "f", "arguments": {arguments}}}')) == [Call("f", arguments)]


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (tiny.CHAT_TEMPLATE, "hermes"),
        ("{% if tools %}return <tool_call>{...}</tool_call>{% endif %}", "hermes"),
        ("{{ tools }}<tool_call><function=f>", None),
        ("{{ '[AVAILABLE_TOOLS]' }}{{ '[TOOL_CALLS] [' }}", "mistral"),
        ("[TOOL_CALLS]name[ARGS]{}", None),
        ('<|start_header_id|>{"name": function, "parameters": {}}', "llama3_json"),
        ("{{ tools }}", None),
    ],
)
def test_the_format_is_known_by_the_template(template: str, name: str | None) -> None:
    assert detect(template) is (FORMATS[name] if name else None)


def test_ids_are_fresh_and_as_short_as_templates_insist() -> None:
    assert len({FORMATS["hermes"].mint_id() for _ in range(100)}) == 100
    short: Any = FORMATS["mistral"].mint_id()
    assert len(short) == 9
    assert short.isalnum()
