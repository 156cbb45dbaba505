"""One line dropped, doubled, moved or changed: the rule that it breaks is named."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest

from quiesce.lab.explorer.config import A, B, config
from quiesce.lab.trace.replay import AFTER, BEFORE, NO_FILE, Verdict, judge
from quiesce.protocol import trace
from tests.lab.trace.written import read, texts, way

DECODE, PREFILL = "decode@d0000000", "prefill@e0000000"
STORY = """
submit A, arrive A, deliver publish, deliver bound, compute A, abort, deliver abort, land, deliver abort_ack,
submit B, arrive B, deliver publish, deliver bound, compute B, land, deliver done, deliver committed, finish
"""
"""A is aborted while its write is under way, drains and gives its page to B, which commits."""

Files = dict[str, list[str]]


def told(label: Any) -> str:
    kind, *about = label
    body = next((type(each.body).__struct_config__.tag for each in about if hasattr(each, "body")), "")
    name = next((each for each in about if each in ("A", "B")), "")
    return f"{kind} {body or name}".strip()


def story() -> Files:
    return {name: list(lines) for name, lines in _story().items()}


@functools.cache
def _story() -> Files:
    left = map(str.strip, STORY.split(","))

    def choose(ways: list[Any]) -> int | None:
        wanted = next(left, None)
        return None if wanted is None else next(at for at, each in enumerate(ways) if told(each[0]) == wanted)

    world = config(requests=(A, B), pages=1, abort=1)
    return texts(way(world, choose, 100), trace.PUBLIC)


def renumbered(files: Files) -> Files:
    """As if the machines had taken these steps and no others."""
    return {
        name: [re.sub(r" \d+ ", f" {at} ", line, count=1) for at, line in enumerate(lines, 1)]
        for name, lines in files.items()
    }


def found(files: Files, name: str, part: str) -> int:
    return next(at for at, line in enumerate(files[name]) if part in line)


def drop(name: str, part: str) -> Callable[[Files], None]:
    return lambda files: files[name].__delitem__(found(files, name, part))


def double(name: str, part: str) -> Callable[[Files], None]:
    return lambda files: files[name].insert(found(files, name, part), files[name][found(files, name, part)])


def put_before(name: str, part: str, other: str) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        line = files[name].pop(found(files, name, part))
        files[name].insert(found(files, name, other), line)

    return edit


def change(name: str, part: str, old: str, new: str) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        at = found(files, name, part)
        assert old in files[name][at]
        files[name][at] = files[name][at].replace(old, new)

    return edit


EDITS = {
    "a write is never settled": (change(PREFILL, "WriteSettled", "write=1", "write=9"), "ack_awaits_outstanding"),
    "the ack and what it follows from are gone": (drop(PREFILL, "WriteSettled"), "said_before_heard"),
    "ABORT is never heard": (drop(PREFILL, "abort()"), "tombstone_before_ack"),
    "the ack is never said": (drop(PREFILL, "abort_ack()"), "said_before_heard"),
    "the ack is never heard": (drop(DECODE, "abort_ack()"), "no_alias"),
    "nothing is held": (drop(DECODE, "Hold("), "said_before_heard"),
    "DONE is never heard": (
        drop(DECODE, "Received(envelope=0@e0000000->0@d0000000#2 done("),
        "commit_awaits_every_grant",
    ),
    "a lease is given back twice": (double(DECODE, "Release(attempt=1"), "released_once"),
    "a request is reserved twice": (double(DECODE, "Reserve(request=B"), "minted_in_order"),
    "a write is launched twice": (double(PREFILL, "Launch(key=0@d0000000#2"), "write_in_order"),
    "the ack comes before the write settled": (put_before(PREFILL, "WriteSettled", "abort()"), "tombstone_before_ack"),
    "a write settles before it is launched": (
        put_before(PREFILL, "WriteSettled(key=0@d0000000#2", "Launch(key=0@d0000000#2"),
        "write_in_order",
    ),
    "B gets the page before A gave it back": (put_before(DECODE, "Reserve(request=B", "abort_ack()"), "no_alias"),
    "DONE is heard before PUBLISH left": (
        put_before(DECODE, "Received(envelope=0@e0000000->0@d0000000#2 done(", "Reserve(request=B"),
        "said_before_heard",
    ),
    "the ack is about another attempt": (
        change(DECODE, "abort_ack()", "#1 abort_ack", "#2 abort_ack"),
        "released_is_proved",
    ),
    "the ack is another life's": (
        change(DECODE, "abort_ack()", "0@e0000000->", "0@e0010000->"),
        "released_is_proved",
    ),
    "the ack is for another life": (
        change(DECODE, "abort_ack()", "->0@d0000000", "->0@d0010000"),
        "released_is_proved",
    ),
    "ABORT is about another attempt": (
        change(PREFILL, "abort()", "#1 abort()", "#7 abort()"),
        "tombstone_before_ack",
    ),
    "the proof has another name": (
        change(DECODE, "abort_ack()", "proof=drained", "proof=never_armed"),
        "released_is_proved",
    ),
    "a clock is the proof": (change(DECODE, "abort_ack()", "proof=drained", "proof=timeout"), "no_clock_frees"),
    "what failed is cached": (change(DECODE, "Hold(", "-> ", "-> Cache(attempt=1); "), "only_committed_is_cached"),
    "what failed is attended": (change(DECODE, "Hold(", "-> ", "-> Attach(attempt=1, first_token=*); "), "coverage"),
    "verification failed": (
        change(DECODE, "Verified(attempt=2", "attempt=2", "attempt=2, failure=Failure(code=coverage, message=*)"),
        "coverage",
    ),
    "an open attempt is said to be closed": (change(DECODE, "Hold(", "open<2[1]", "open<2[]"), "closed_is_over"),
    "PUBLISH goes to another life": (
        change(DECODE, "Reserve(request=A", "->0@e0000000#1", "->0@e0010000#1"),
        "grants_are_kept",
    ),
    "a write leaves the lease": (
        change(PREFILL, "Launch(key=0@d0000000#1", "first_page=0", "first_page=3"),
        "dequeued_is_granted",
    ),
    "a write of unknown fate": (change(PREFILL, "WriteSettled", "landed", "failed_in_flight"), "poisoned_is_not_acked"),
    "a write failed": (
        change(PREFILL, "WriteSettled(key=0@d0000000#2", "landed", "failed_quiesced"),
        "failure_stops",
    ),
    "the source is released too soon": (
        change(PREFILL, "abort()", "-> ", "-> ReleaseSource(request=A, proof=drained); "),
        "failed_holds_source",
    ),
    "the source is released twice": (double(PREFILL, "ReleaseSource(request=A"), "released_once"),
    "an aborted source is cached": (
        change(PREFILL, "ReleaseSource(request=A", "-> ", "-> CacheSource(request=A); "),
        "only_committed_is_cached",
    ),
    "the room is another one": (change(PREFILL, "Arrived(request=A", "room=7", "room=8"), "digest_pairs"),
    "the write is another life's": (
        lambda files: files.update(other_life(files)),
        "bound_was_granted",
    ),
}


def other_life(files: Files) -> Files:
    """The prefill worker's lines as those of a life that was granted nothing."""
    lines = [line.replace("e0000000", "e0990000") for line in files.pop(PREFILL)]
    return {"prefill@e0990000": [line for line in lines if "Heard" not in line]}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_line_breaks_a_rule(name: str) -> None:
    edit, rule = EDITS[name]
    files = story()
    edit(files)
    assert rule in judge(read(renumbered(files)), idle=True).rules


@pytest.mark.parametrize("edit", [drop, double])
@pytest.mark.parametrize(("name", "part"), [(DECODE, "Hold("), (PREFILL, "WriteSettled")])
def test_a_missing_or_doubled_line_is_seen_by_its_number(edit: Any, name: str, part: str) -> None:
    files = story()
    edit(name, part)(files)
    assert "in_order" in judge(read(files)).rules


def test_the_story_itself_is_one_of_the_models() -> None:
    verdict = judge(read(story()), idle=True)
    assert verdict.breaches == []
    assert {"commit", "cache", "finish", "release", "send_ack", "reuse_source"} <= set(verdict.actions)


# ---------------------------------------------------------------- what is not known is not judged


def late(files: Files, name: str, lines: int) -> Verdict:
    """As if this ring had lost its first lines."""
    files[name] = files[name][lines:]
    return judge(read(files))


@pytest.mark.parametrize("name", [DECODE, PREFILL])
def test_a_ring_may_begin_anywhere(name: str) -> None:
    for lines in range(1, len(story()[name])):
        assert late(story(), name, lines).breaches == [], lines


@pytest.mark.parametrize("name", [DECODE, PREFILL])
def test_a_ring_may_end_anywhere(name: str) -> None:
    for lines in range(1, len(story()[name])):
        files = story()
        files[name] = files[name][:lines]
        assert judge(read(files)).breaches == [], lines


@pytest.mark.parametrize("name", [DECODE, PREFILL])
def test_one_half_alone_is_judged(name: str) -> None:
    verdict = judge(read({name: story()[name]}))
    assert verdict.breaches == []
    assert set(verdict.messages) == {NO_FILE}


def test_what_was_said_before_and_after_is_counted() -> None:
    assert late(story(), PREFILL, 3).messages[BEFORE] > 0
    files = story()
    files[PREFILL] = files[PREFILL][:5]
    assert judge(read(files)).messages[AFTER] > 0
    assert "said_before_heard" in judge(read(files), idle=True).rules


def test_a_cut_line_makes_its_past_unsure() -> None:
    files = story()
    at = found(files, DECODE, "Reserve(request=A")
    files[DECODE][at] = files[DECODE][at][:200] + "..."
    verdict = judge(read(files))
    assert verdict.breaches == []
    assert verdict.messages[BEFORE] > 0


def test_rings_that_were_asked_twice_are_one_journal() -> None:
    files = story()
    halves = {"first": files[DECODE][:6], "second": files[DECODE][3:], PREFILL: files[PREFILL]}
    verdict = judge(read(halves), idle=True)
    assert verdict.breaches == []
    assert len(verdict.journals) == 2
    halves["second"][0] = halves["second"][0].replace("attempt=", "attempt=1")
    assert "in_order" in judge(read(halves)).rules
