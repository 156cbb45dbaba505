"""Grammars over a real vocabulary: what may come next, where an answer may end, and what cannot be a grammar."""

from __future__ import annotations

import json
import time
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer

from quiesce.text import grammars as text_grammars
from quiesce.text import tiny
from quiesce.text.grammars import Grammars, Lost, Matcher, Unusable, as_grammar
from quiesce.text.model import TextModel

EOS = tiny.IM_END


@cache
def grammars(model: str = "tiny") -> Grammars:
    return Grammars(TextModel.load(model))


def start(kind: str, text: str, model: str = "tiny") -> Matcher:
    return grammars(model).compile(as_grammar(kind, text))


def schema(**fields: Any) -> str:
    return json.dumps(fields)


def next_bytes(matcher: Matcher) -> set[str]:
    """What may come next; "" is the end of the text."""
    return {"" if token == EOS else chr(token) for token in matcher.allowed().nonzero()[0].tolist()}


def takes(matcher: Matcher, text: str) -> bool:
    """Whether `text`, byte by byte, is a whole answer."""
    for byte in text.encode():
        if not matcher.allowed()[byte]:
            return False
        matcher.say(byte)
    return bool(matcher.allowed()[EOS])


def test_what_may_come_next() -> None:
    matcher = start("regex", "ab?[xy]")
    for drawn, then in (("a", {"b", "x", "y"}), ("b", {"x", "y"}), ("y", {""})):
        matcher.say(ord(drawn))
        assert next_bytes(matcher) == then


def test_an_answer_may_end_where_the_grammar_may_and_must_where_it_must() -> None:
    matcher = start("regex", "a{1,2}")
    assert next_bytes(matcher) == {"a"}
    matcher.say(ord("a"))
    assert next_bytes(matcher) == {"a", ""}
    matcher.say(ord("a"))
    assert next_bytes(matcher) == {""}


def test_a_token_that_does_not_fit_is_the_end() -> None:
    matcher = start("regex", "ab")
    with pytest.raises(Lost):
        matcher.say(ord("b"))
    with pytest.raises(Lost):
        matcher.allowed()


@pytest.mark.parametrize("token", [tiny.IM_START, tiny.USED_TOKENS, 319, 1 << 31])
def test_tokens_that_are_no_text_are_never_allowed(token: int) -> None:
    """Those of templates, and those that are none of the vocabulary."""
    matcher = start("regex", "(.|\n)*")
    assert matcher.allowed().size == tiny.USED_TOKENS
    assert not matcher.allowed()[tiny.IM_START]
    with pytest.raises(Lost):
        matcher.say(token)


def test_every_end_of_text_token_ends() -> None:
    text = TextModel("two", Tokenizer.from_str(tiny.tokenizer_json()), eos_token_ids=(257, 258), context_length=99)
    matcher = Grammars(text).compile(as_grammar("regex", "a"))
    matcher.say(ord("a"))
    assert matcher.allowed().nonzero()[0].tolist() == [257, 258]


def test_a_model_that_cannot_end_has_no_grammars() -> None:
    text = TextModel("endless", Tokenizer.from_str(tiny.tokenizer_json()), eos_token_ids=(), context_length=99)
    with pytest.raises(Unusable, match="end-of-text"):
        Grammars(text)


def test_one_grammar_is_compiled_once_and_followed_apart() -> None:
    first, second = start("regex", "[ab]c"), start("regex", "[ab]c")
    first.say(ord("a"))
    assert next_bytes(first) == {"c"}
    assert next_bytes(second) == {"a", "b"}


@pytest.mark.parametrize(
    ("kind", "text", "good", "bad"),
    [
        ("json", schema(type="object"), '{"a": [1, null]}', "[]"),
        ("json", schema(type="object"), "{}", "{"),
        ("json", schema(type="integer", minimum=7, maximum=12), "11", "6"),
        ("json", schema(type="string", pattern="^a+$"), '"aa"', '"ab"'),
        ("json", schema(enum=["x", 5, None]), "null", '"y"'),
        ("json", schema(oneOf=[{"type": "boolean"}, {"const": "x"}]), '"x"', '"y"'),
        ("json", schema(type="array", items={"type": "boolean"}, minItems=2), "[true, false]", "[true]"),
        ("json", schema(type="string"), '"h\u00e9 \\" \U0001f600"', '"a\nb"'),
        ("regex", "(é|ß){2}x?", "ßé", "ß"),
        ("regex", "^abc$", "abc", "^abc$"),
        ("regex", "", "", "a"),
        ("choice", json.dumps(["yes", "no"]), "no", "n"),
        ("choice", json.dumps([""]), "", "a"),
        ("choice", json.dumps(['q"\\u\n\t/x/ %json {} | "b"']), 'q"\\u\n\t/x/ %json {} | "b"', "b"),
        ("choice", json.dumps(["\x00\x1f\x7f\u2028\U0001f600"]), "\x00\x1f\x7f\u2028\U0001f600", "\x00"),
        ("grammar", 'start: "a" rest\nrest: "b" rest | "."', "abb.", "a"),
        ("grammar", 'root ::= "a" rest\nrest ::= "b" rest | "."', "abb.", "a"),
        ("grammar", 'start: %json {"type": "null"} "!"', "null!", "null"),
    ],
)
def test_what_is_a_whole_answer(kind: str, text: str, good: str, bad: str) -> None:
    assert takes(start(kind, text), good)
    assert not takes(start(kind, text), bad)


def test_json_is_written_as_json_dumps_writes_it() -> None:
    """A model that may write spaces anywhere may write nothing else, until its tokens are used up."""
    asked = schema(type="object", properties={"a": {"type": "array", "items": {"type": "integer"}}}, required=["a"])
    assert takes(start("json", asked), json.dumps({"a": [1, 2]}))
    for text in ('{ "a": []}', '{"a" : []}', '{"a":[]}', '\n{"a": []}', '{"a": []}\n'):
        assert not takes(start("json", asked), text)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("regex", "(", "unclosed group"),
        ("regex", "a(?=b)", "look-around"),
        ("regex", r"(a)\1", "backreferences are not supported"),
        ("regex", r"[^\s\S]", "nothing matches it"),
        ("regex", "(" * 5000 + ")" * 5000, "nested"),
        ("json", "[]", "schema"),
        ("json", "nonsense", "expected"),
        ("json", '{"type": "objekt"}', "objekt"),
        ("json", '{"if": {}, "then": {"type": "string"}}', r'not supported here: \["if", "then"\]'),
        ("json", '{"not": {"type": "string"}}', r'not supported here: \["not"\]'),
        ("json", '{"type": "array", "uniqueItems": true}', r'not supported here: \["uniqueItems"\]'),
        ("json", '{"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]}', "oneOf .* anyOf may do"),
        ("json", '{"$ref": "#"}', "nothing matches it"),
        ("json", '{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}', "nothing"),
        ("json", '{"$ref": "#/nowhere"}', "/nowhere"),
        ("json", '{"$ref": "http://127.0.0.1:9/x"}', "not present"),
        ("json", '{"$ref": "file:///etc/passwd"}', "not present"),
        ("json", '{"properties": {"a": false}, "required": ["a"], "type": "object"}', "nsatisfiable"),
        ("json", '{"items": ' * 3000 + "{}" + "}" * 3000, "recursion limit"),
        ("grammar", "start: nothing", "unknown name"),
        ("grammar", "start: start", "nothing matches it"),
        ("grammar", 'start: "a" start', "Too many items"),
        ("grammar", "start: " + "(" * 5000 + '"a"' + ")" * 5000, "nested"),
        ("grammar", "root ::= " + "(" * 5000 + '"a"' + ")" * 5000, "recursion"),
        ("grammar", "root ::= (", "Expected"),
        ("grammar", "start: <|no_such_token|>", "unknown special token"),
        ("grammar", "", "root"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_followed(kind: str, text: str, words: str) -> None:
    with pytest.raises(Unusable, match=words) as caught:
        grammars().check(as_grammar(kind, text))
    assert "\n   1 |" not in str(caught.value)


def test_a_recursive_schema_can_be_followed() -> None:
    node: dict[str, Any] = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
    }
    node |= {"required": ["next"], "additionalProperties": False}
    asked = json.dumps({"$ref": "#/$defs/n", "$defs": {"n": node}})
    assert takes(start("json", asked), '{"next": {"next": {"next": null}}}')


def entangled(rules: int) -> str:
    """Harmless for as long as the door tries it; then `rules` pairs of regexes are followed at once."""
    either = " | ".join(f"a{i}" for i in range(rules))
    each = "\n".join(f"a{i}: /.{{1,{i + 5}}}/ x | /.*{i}/ x" for i in range(rules))
    return as_grammar("grammar", f"start: /[0-9]{{8}}/ x\nx: {either}\n{each}")


def follow(matcher: Matcher, steps: int, letters: str = "abcdefg") -> int:
    """How many steps are taken before it is lost, with letters once they are allowed."""
    for step in range(steps):
        try:
            allowed = matcher.allowed()
            matcher.say(ord(letters[step % len(letters)]) if allowed[ord("a")] else int(allowed.argmax()))
        except Lost as lost:
            assert "too complex" in str(lost)  # noqa: PT017
            return step
    return steps


def test_a_grammar_that_goes_too_many_ways_at_once_is_lost_there() -> None:
    grammars().check(entangled(600))
    assert follow(grammars().compile(entangled(600)), 60) < 12


def test_it_is_refused_where_it_is_seen_at_the_door() -> None:
    """What the grammar leaves no choice about is gone through at once."""
    with pytest.raises(Unusable, match="1801 items; max is 1000"):
        grammars().check(entangled(600).replace("/[0-9]{8}/", '"12345678"'))


NESTED = as_grammar("regex", "((a{1,1000}){1,1000}){1,1000}")


def test_what_explodes_ends_at_the_same_place_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted what it takes, and nothing is timed; the same grammar's next answer begins anew."""
    steps = [follow(grammars().compile(NESTED), 99, "a")]
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    steps += [follow(grammars().compile(NESTED), 99, "a") for _ in range(2)]
    assert 4 < steps[0] < 99
    assert steps == steps[:1] * 3


def test_what_one_answer_breaks_ends_no_other_under_the_same_grammar() -> None:
    """They share a lexer, whose failure is for good: whoever did not cause it goes on with a new one, where it was."""
    grammar = as_grammar("regex", "((a{1,1000}){1,1000}){1,1000}|(ab)+c")
    careful, first, waiting = (grammars().compile(grammar) for _ in range(3))
    for letter in "abab":
        assert careful.allowed()[ord(letter)]
        careful.say(ord(letter))
    waiting.say(ord("a"))
    assert follow(first, 99, "a") < 99
    assert next_bytes(careful) == {"a", "c"}
    waiting.say(ord("b"))
    assert takes(waiting, "abc")
    assert takes(careful, "c")


def test_a_lexer_is_not_shared_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its states are counted over all of its answers."""
    monkeypatch.setattr(text_grammars, "_MOST_ANSWERS", 2)
    shared = [start("regex", "x{7}").compiled for _ in range(5)]
    assert len(set(shared)) == 3
    assert shared[0] is shared[1]


def test_only_cpu_time_far_beyond_the_usual_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = 0.0
    monkeypatch.setattr(time, "thread_time", lambda: clock_s)
    matcher = start("regex", "a*")
    spend = matcher._spend
    for _ in range(2000):
        clock_s += 0.009
        spend(clock_s - 0.009, 0.01)
    clock_s += 4
    spend(clock_s - 4, 0.01)
    clock_s += 2
    with pytest.raises(Lost, match="too complex"):
        spend(clock_s - 2, 0.01)


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("json", schema(type="object", properties={f"field_{i}": {"type": "string"} for i in range(240)})),
        ("json", schema(anyOf=[{"type": "string", "pattern": f"^.{{1,{i + 5}}}x{i}$"} for i in range(20)])),
        ("json", schema(type="array", items={"type": "string", "maxLength": 4000})),
        ("choice", json.dumps([f"{i * 7919} words" for i in range(3000)])),
        ("regex", r"(\p{L}{1,100} ){1,9}[.]"),
    ],
    ids=["properties", "patterns", "lengths", "words", "letters"],
)
def test_what_is_large_but_ordinary_can_be_followed(kind: str, asked: str) -> None:
    grammar = as_grammar(kind, asked)
    grammars().check(grammar)
    matcher = grammars().compile(grammar)
    for _ in range(400):
        printed = matcher.allowed()[:127].nonzero()[0]
        if not printed.size:
            break
        matcher.say(int(printed[-1]))


@pytest.mark.slow
def test_tokens_of_many_bytes() -> None:
    """With the default model's vocabulary: a token may cross what the grammar sees as borders."""
    text = TextModel.load("smollm2")
    for asked, answer in (("[A-Z][a-z ]+, [0-9]+[.]", "What is it, 42."), ("é{2}😀 (ünï)+", "éé😀 ünïünï")):
        matcher = start("regex", asked, "smollm2")
        for token in text.encode(answer, add_special=False).tolist():
            assert matcher.allowed()[token]
            assert not matcher.allowed()[list(text.special_ids - set(text.eos_token_ids))].any()
            matcher.say(token)
        assert matcher.allowed()[list(text.eos_token_ids)].all()
