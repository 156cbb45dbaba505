from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.text import tiny
from quiesce.text.tool_calls import FORMATS, CallPart, CallReader, detect

NAMES = ("f", "g")
Parts = list[str | CallPart]


def read(form: str, *pieces: str, nothing_else: bool = False) -> Parts:
    """What the pieces say, neighbouring texts as one, and what belongs to a call."""
    reader = CallReader(FORMATS[form], NAMES, nothing_else=nothing_else)
    parts: list[list[Any]] = []
    for part in [part for piece in pieces for part in reader.push(piece)] + reader.flush():
        goes_on = parts and isinstance(parts[-1][0], type(part)) and not getattr(part, "name", "")
        parts = parts if goes_on else [*parts, []]
        parts[-1].append(part)
    return ["".join(run) if isinstance(run[0], str) else whole_call(run) for run in parts]


def whole_call(run: list[CallPart]) -> CallPart:
    return CallPart(run[0].name, "".join(part.arguments for part in run), run[-1].ends)


def call(name: str, arguments: str) -> CallPart:
    return CallPart(name, arguments, ends=True)


def torn(arguments: str) -> CallPart:
    return CallPart("f", arguments)


F1, G = call("f", '{"a": 1}'), call("g", "{}")
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
        call("f", '{"x": "</tool_call> \\" } \\\\"}')
    ],
    H('{"name": "f", "arguments": {"é": [1.5e-3, true, null, "\\u00e9 😀"]}}'): [
        call("f", '{"é": [1.5e-3, true, null, "\\u00e9 😀"]}')
    ],
    H('{"name": "f", "arguments": {"x": 3e999999}}'): [call("f", '{"x": 3e999999}')],
    # what comes out as the text it is
    "<": ["<"], "<tool_call": ["<tool_call"],
    H("hello"): [H("hello")],
    H(""): [H("")],
    H("[1]"): [H("[1]")],
    H("{}"): [H("{}")],
    H('{"name": "nobody", "arguments": {}}'): [H('{"name": "nobody", "arguments": {}}')],
    H('{"name": "f", "arguments": [1]}'): [H('{"name": "f", "arguments": [1]}')],
    H('{"name": "f", "arguments": "no JSON"}'): [H('{"name": "f", "arguments": "no JSON"}')],
    "<tool_call>" + '{"a":' * 3000 + "1" + "}" * 3000: ["<tool_call>" + '{"a":' * 3000 + "1" + "}" * 3000],
    # and what follows it
    "<<tool_call>" + F1_SAID + "</tool_call>": ["<", F1],
    "<tool_call>" + H(F1_SAID): ["<tool_call>", F1],
    '<tool_call>{"a": ' + H(F1_SAID) + "!": ['<tool_call>{"a": ', F1, "!"],
    # the end came too soon, but nothing of the call is missing
    f"<tool_call>{F1_SAID}": [F1], f"<tool_call>{F1_SAID}\n</tool_c": [F1],
    H('{"name": "g"}') + f"<tool_call>{F1_SAID[:-1]}": [G, F1],
    # a name and the beginning of arguments are a call, whatever comes then
    H('{"name": "f", "arguments": {]}}'): [torn("{]")],
    H('{"name": "f", "arguments": {"a": "\n"}}'): [torn('{"a": "\n"}')],
    H('{"name": "f", "arguments": {"a": 1'): [torn('{"a": 1')],
    H('{"name": "f", "arguments": {"a": sy "1"}}') + H('{"name": "g"}'): [torn('{"a": sy "1"}'), G],
    H('\n{"name": "f", "arguments": {"a": True, "b": "}"}}\n') + "\n!": [torn('{"a": True, "b": "}"}'), "\n!"],
    H('{"name": "f", "arguments": {"a": NaN}}'): [torn('{"a": NaN}')],
    H('{"name": "f", "arguments": {"a": x"}}\n') + H('{"name": "g"}'): [torn('{"a": x"}}\n'), G],
    '<tool_call>{"name": "f", "arguments": {"a": x\n' + H('{"name": "g"}'): [torn('{"a": x\n'), G],
    H('{"name": "f", "arguments": {"<tool_<b>": <</b>}}'): [torn('{"<tool_<b>": <</b>}')],
    H('{"name": "f", "arguments": {"a": <tool_c<'): [torn('{"a": <tool_c<')],
    '<tool_call>{"name": "f", "arguments": {"a": 1</tool_c': [torn('{"a": 1')],
    '<tool_call>{"name": "f", "arguments": {"a": "</tool_call> and so on': [torn('{"a": "</tool_call> and so on')],
    '{"name": "f", "arguments": {}}': ['{"name": "f", "arguments": {}}'],
    H('{"name": "f", "arguments": {"a": 1}, "id": {"b": "}"}}'): [F1],
    H('{ "name" :"f",\n"parameters": {"a": 1} }'): [F1],
    # brackets that are missing or too many behind it are no loss, other things are text
    H('{"name": "f", "arguments": {"a": 1}'): [F1],
    H(F1_SAID + " }\n"): [F1],
    H(F1_SAID + "]"): [F1, "]"],
    f"<tool_call>{F1_SAID}</tool" + H('{"name": "g"}'): [F1, "</tool", G],
    H('{"name": "f", "arguments": {"a": 1}, hm'): [F1, ", hm"],
    H(F1_SAID + " and <b>\n") + " ok": [F1, " and <b> ok"],
    f"<tool_call>{F1_SAID}]</tool_c": [F1, "]"], f"<tool_call>{F1_SAID}] <": [F1, "] <"],
    # so is the tag behind it, if another one follows
    f"<tool_call>\n{F1_SAID}\n" + H('\n{"name": "g"}'): [F1, G],
    f"<tool_call>{F1_SAID}" + H('{"name": "g"}') + " ok": [F1, G, " ok"],
    f"<tool_call>{F1_SAID[:-1]}, 1\n" + H('{"name": "g"}'): [F1, G],
    f"<tool_call>{F1_SAID}}} <" + H('{"name": "g"}'): [F1, "} <", G],
    f"<tool_call>{F1_SAID}\n" + H("hello"): [F1, "\n" + H("hello")],
}  # fmt: skip
MISTRAL: dict[str, Parts] = {
    f"[TOOL_CALLS] [{F1_SAID}]": [F1],
    f'[TOOL_CALLS][{F1_SAID}, {{"name": "g", "arguments": {{}}, "id": "x"}}]': [F1, G],
    f"See. [TOOL_CALLS] [{F1_SAID}] ": ["See.", F1],
    "[TOOL_CALLS] []": ["[TOOL_CALLS] []"],
    f'[TOOL_CALLS] [{F1_SAID}, {{"name": "nobody"}}]': [F1, ', {"name": "nobody"}]'],
    f'[TOOL_CALLS] [{{"name": "nobody"}}, {F1_SAID}]': [f'[TOOL_CALLS] [{{"name": "nobody"}}, {F1_SAID}]'],
    f'[TOOL_CALLS]\n[ {F1_SAID}\n,{{"name": "g"}} ] ok': [F1, G, " ok"],
    f"[TOOL_CALLS] [{F1_SAID}": [F1],
    f"[TOOL_CALLS] [{F1_SAID}, ]": [F1, ", ]"],
    f'[TOOL_CALLS] [{F1_SAID}\n[TOOL_CALLS] [{{"name": "g"}}] ok': [F1, G, " ok"],
    '[TOOL_CALLS] [{"name": "f", "arguments": {"a": [x]}}, {"name": "g"}]': [torn('{"a": [x]}'), G],
    '[TOOL_CALLS] [{"name": "f", "arguments": {"a": None, "b": [[T[]]]}}] ok': [
        torn('{"a": None, "b": [[T[]]]}'),
        " ok",
    ],
    "[TOOL_CALLS] [1]": ["[TOOL_CALLS] [1]"],
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
    '{"name": "f", "parameters": {"a": x': [torn('{"a": x')],
    '{"name": "f", "parameters": {"a": None}}; {"name": "g"}': [torn('{"a": None}'), G],
    '{"name": "f", "parameters": {"a": 1} ; {"name": "g"}': [F1, G],
    '{"name": "f", "parameters": {"a": 1}\n<|python_tag|>{"name": "g"}': [F1, G],
    '{"name": "f", "parameters": {"a": 1}, x': [F1, ", x"],
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
         " ", "\n", "<", "[", "]", ";", "x", '{"name": "g"}', "1", "é", "True", '{"name": "f", "arguments": {']
    ),
    max_size=12,
)  # fmt: skip


@given(st.sampled_from(sorted(FORMATS)), FRAGMENTS)
def test_pieces_do_not_matter_and_text_is_never_lost(form: str, fragments: list[str]) -> None:
    said = "".join(fragments)
    whole = read(form, said)
    assert read(form, *fragments) == read(form, *said) == whole
    if not any(isinstance(part, CallPart) for part in whole):
        text = "".join(str(part) for part in whole)
        assert text == said or said.removeprefix(text).lstrip().startswith(FORMATS[form].begins)
    assert is_within("".join(part for part in whole if isinstance(part, str)), said)


def is_within(text: str, said: str) -> bool:
    """All of its characters, in their order."""
    rest = iter(said)
    return all(character in rest for character in text)


TORN: list[tuple[str, str, Parts, Parts]] = [
    # format, what is said, what it is when it ends there, and when it must call besides
    ("hermes", "<tool_ca", ["<tool_ca"], []),
    ("hermes", "<tool_call> ", [], []),
    ("hermes", "See: <tool_call>", ["See:"], ["See:"]),
    ("hermes", '<tool_call>\n{"na', [], []),
    ("hermes", '<tool_call>{"name": "f", "arguments": ', [], []),
    ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "f"', [], []),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": ', [torn('{"a": ')], [torn('{"a": ')]),
    ("hermes", f"<tool_call>{F1_SAID}", [F1], [F1]),
    ("hermes", H(F1_SAID) + '\n<tool_call>{"name": "f"', [F1], [F1]),
    ("hermes", f'<tool_call>{F1_SAID}\n<tool_call>{{"name": "f"', [F1], [F1]),
    ("hermes", H(F1_SAID) + "\n<tool", [F1, "\n<tool"], [F1]),
    ("hermes", H("hello") + " <tool_call>", [H("hello")], [H("hello")]),
    ("mistral", '[TOOL_CALLS] [{"name', [], []),
    ("mistral", f'[TOOL_CALLS] [{F1_SAID}, {{"name', [F1], [F1]),
    ("mistral", f"[TOOL_CALLS] [{F1_SAID}, ", [F1], [F1]),
    ("llama3_json", '{"name": "f", "para', ['{"name": "f", "para'], []),
    ("llama3_json", '{"name": "f", "parameters": {"', [torn('{"')], [torn('{"')]),
    ("llama3_json", '<|python_tag|>{"name', [], []),
    ("llama3_json", '{"name": "f", "parameters": {"a": 1}}; {"name": "g", ', [F1], [F1]),
]


@pytest.mark.parametrize(("form", "said", "free", "forced"), TORN)
def test_a_torn_call_is_no_text(form: str, said: str, free: Parts, forced: Parts) -> None:
    """Where it is certain that it would have been one: behind its tag or a call, or when nothing else may be said."""
    assert read(form, said) == read(form, *said) == free
    assert read(form, said, nothing_else=True) == read(form, *said, nothing_else=True) == forced


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("forced", [False, True])
def test_wherever_a_call_is_torn_there_is_no_text(form: str, forced: bool) -> None:
    said = {"hermes": H(F1_SAID), "mistral": f"[TOOL_CALLS] [{F1_SAID}]", "llama3_json": F1_SAID}[form]
    for cut in range(0 if forced else len(FORMATS[form].begins), len(said)):
        parts = read(form, said[:cut], nothing_else=forced)
        arguments = F1.arguments[: max(0, cut - said.index(F1.arguments))]
        bare = FORMATS[form].bare and not forced and not arguments
        assert parts == (
            [said[:cut]] if bare else [CallPart("f", arguments, arguments == F1.arguments)] * bool(arguments)
        )


def test_text_is_shown_as_soon_as_it_cannot_become_a_call() -> None:
    reader = CallReader(FORMATS["hermes"], NAMES)
    assert reader.push("hello") == ["hello"]
    assert reader.push(" <tool") == []
    assert reader.push("box") == [" <toolbox"]


def test_arguments_come_as_they_are_said() -> None:
    reader = CallReader(FORMATS["hermes"], NAMES)
    assert reader.push('<tool_call>{"name": "f", "arguments": ') == []
    assert reader.push("{") == [CallPart("f"), CallPart("", "{")]
    assert reader.push('"a": ') == [CallPart("", '"a": ')]
    assert reader.push("[{}, {") == [CallPart("", "[{}, {")]
    assert reader.push("}]}") == [CallPart("", "}]}"), CallPart(ends=True)]
    assert reader.push("}</tool_call>") == reader.flush() == []


def test_arguments_before_the_name_come_with_it() -> None:
    reader = CallReader(FORMATS["hermes"], NAMES)
    assert reader.push('<tool_call>{"arguments": {"a": 1}, "name": "f"') == []
    assert reader.push("}") == [F1]


def test_a_long_call_takes_time_in_proportion() -> None:
    """Each character is looked at once: a quadratic reader would take minutes here."""
    arguments = '{"a": "' + "x" * 300_000 + '", "b": [' + "{}, " * 20_000 + "1]}"
    assert read("hermes", *H(f'{{"name": "f", "arguments": {arguments}}}')) == [call("f", arguments)]


@pytest.mark.parametrize("number", ["1" * 5_000, "-1." + "1" * 5_000, "1e" + "9" * 5_000])
def test_numbers_may_have_any_number_of_digits(number: str) -> None:
    """Python's own limit is 4,300."""
    arguments = f'{{"a": {number}}}'
    for said in (f'{{"name": "f", "arguments": {arguments}}}', f'{{"arguments": {arguments}, "name": "f"}}'):
        assert read("hermes", H(said)) == [call("f", arguments)]


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
