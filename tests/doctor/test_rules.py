"""Rules over fleets of any kind: they never fail, they are pure, and what is healthy stays so when more is told."""

from __future__ import annotations

from typing import Any

import immutables
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.doctor.answers import server_member
from quiesce.doctor.dialects import FLAGS, VARIABLES, Kind
from quiesce.doctor.documents import Document
from quiesce.doctor.examination import diagnosis
from quiesce.doctor.fleet import Engine, Evidence, Field, Fleet, Member, Part, Role, Told, Traffic
from quiesce.doctor.report import as_json, as_text
from quiesce.doctor.sarif import as_sarif

KINDS = {field: kind for ways in (FLAGS, VARIABLES) for table in ways.values() for field, kind in table.values()}
NUMBERS = st.integers(0, 1 << 40) | st.floats(0, 1e12)
VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.NUMBER: NUMBERS,
    Kind.SECONDS: NUMBERS,
    Kind.TEXT: st.sampled_from(
        ["0.5.18", "0.5.20", "0.5.23", "latest", "mooncake", "mori", "nixl", "10.0.0.1", "::", ""]
    ),
}


@st.composite
def members(draw: st.DrawFn) -> Member:
    fields = draw(st.lists(st.sampled_from(list(Field)), unique=True, max_size=12))
    place = Evidence("input", 1, "says")
    # What is measured, and is in no table, is a number or a text.
    facts = {
        field: Told(draw(VALUES.get(KINDS[field], st.booleans()) if field in KINDS else NUMBERS), place)
        for field in fields
    }
    return Member(
        draw(st.sampled_from(Engine)),
        draw(st.sampled_from(Role)),
        draw(st.text(max_size=5)),
        place,
        immutables.Map(facts),
        draw(st.frozensets(st.sampled_from(Part))),
        draw(st.frozensets(st.sampled_from(Field), max_size=3)),
        draw(st.frozensets(st.sampled_from(["launch", "log", "manifest"]), max_size=1)),
    )


TRAFFIC = st.builds(Traffic, st.none() | st.floats(0, 1e6), st.none() | st.floats(0, 1e6), st.none() | st.booleans())


@settings(max_examples=150, deadline=None)
@given(st.lists(members(), max_size=5), TRAFFIC)
def test_rules_never_fail_and_say_the_same_twice(found: list[Member], traffic: Traffic) -> None:
    fleet = Fleet(tuple(found), traffic)
    once = diagnosis(fleet)
    assert once == diagnosis(fleet)
    assert as_text(once)
    assert msgspec.json.decode(as_json(once))
    assert msgspec.json.decode(as_sarif(once))


NAMES = st.sampled_from(
    ["disaggregation_mode", "version", "context_length", "max_total_num_tokens", "host", "api_key", "loads",
     "server_args", "internal_states", "vllm_config", "kv_connector", "kv_role", "worker", "status", "other"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, JSON, max_size=6))
def test_any_answer_of_a_server_is_read_or_is_none(answer: dict[str, Any]) -> None:
    member = server_member(Document("answer", msgspec.json.encode(answer).decode()), answer)
    diagnosis(Fleet((member,) if member else ()))
