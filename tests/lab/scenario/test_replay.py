"""Commands carried out: what comes of them, and what is said when they make no sense."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quiesce.errors import UsageError
from quiesce.lab.scenario.format import Scenario, Step, difference, parse
from quiesce.lab.scenario.replay import QUIET, Unexpected, replayed

HEAD = "scenario: T\nrequests: A in room 7 asks a, B in room 7 asks b\nfaults: abort 1, copy 1, loss 1, crash_p 1\n\n"
BOUND = "> submit A\n> arrive A at prefill 0\n> deliver PUBLISH A to prefill 0\n> compute A at prefill 0\n"


def told(commands: str, head: str = HEAD) -> Scenario:
    return replayed(parse(head + commands, "f.txt"), (), "f.txt")


def last(commands: str, head: str = HEAD) -> tuple[str, ...]:
    return told(commands, head).course.steps[-1].outcome


def test_a_hand_off_from_end_to_end() -> None:
    assert last(f"{BOUND}> land write 1\n> deliver DONE A from prefill 0\n") == (
        "decode, A: committed, DONE by prefill 0",
        "page 0: read by A",
        "sent: COMMITTED A to prefill 0",
    )


def test_what_is_in_brackets_may_be_left_out() -> None:
    assert last(f"{BOUND}> land write 1\n") == last(f"{BOUND}> land write 1 (A, prefill 0)\n")


def test_an_impossible_command_is_said_with_what_is_possible() -> None:
    with pytest.raises(UsageError) as refused:
        told("> submit A\n> submit B\n")
    said = str(refused.value)
    assert said.startswith("f.txt:6: 'submit B' cannot happen here. What can happen:\n")
    assert "\n  arrive B at prefill 0\n" in said
    assert said.endswith("\n  lose PUBLISH A to prefill 0")


def test_an_ambiguous_command_is_said_with_what_it_may_mean() -> None:
    again = "> clock RESEND A at decode\n"
    two = HEAD.replace("loss 1", "loss 1, resend 1").replace("\n\n", "\npages: 2\n\n")
    with pytest.raises(UsageError) as refused:
        told(f"> submit A\n> submit B\n{again}> deliver PUBLISH A to prefill 0\n", two)
    assert str(refused.value).splitlines() == [
        "f.txt:9: 'deliver PUBLISH A to prefill 0' may mean several things. Say one of:",
        "  deliver PUBLISH A to prefill 0 (A open)",
        "  deliver PUBLISH A to prefill 0 (A open, B open)",
    ]


def test_what_is_tried_may_be_impossible() -> None:
    assert last("> submit A\n> try submit B\n") == ("cannot happen: pages needed 1, pages free 0",)
    assert last("> try land write 1\n") == ("cannot happen",)
    assert last("> try submit A\n") == last("> submit A\n")


def test_a_second_life_bears_a_prime() -> None:
    lines = last("> submit A\n> crash prefill 0\n")
    assert "due: decode learns that prefill 0 is dead" in lines
    assert last("> submit A\n> crash prefill 0\n> arrive B at prefill 0'\n") == (
        "prefill 0', prompt of B: waits for PUBLISH",
    )


def test_healing_ends_everything() -> None:
    assert last(f"{BOUND}> abort A\n> heal\n") == (QUIET,)


def test_showing_tells_all() -> None:
    assert last(f"{BOUND}> show\n") == (
        "decode, A: published",
        "prefill 0, prompt of A: computed",
        "prefill 0, A: sending, 1 outstanding",
        "page 0: leased to A",
        "write 1 (A, prefill 0): under way to page 0",
    )


def test_expectations() -> None:
    told(f"{BOUND}> expect nothing broken\n> expect page 0: leased to A\n")
    with pytest.raises(Unexpected) as wrong:
        told(f"{BOUND}> expect page 0: free\n")
    assert str(wrong.value) == "f.txt:9: expected 'page 0: free'; but: page 0: leased to A."
    with pytest.raises(Unexpected, match="expected 'no_leak broken'; but: nothing broken"):
        told(f"{BOUND}> expect no_leak broken\n")


def test_clocks_that_free_break_an_invariant_and_proofs_do_not() -> None:
    head = HEAD.replace("abort 1", "abort 1, clock 1").replace("\n\n", "\nunsafe: yes\n\n")
    both = f"{BOUND}> abort A\n> clock HOLD A at decode\n> expect no_wild_write broken\n"
    kept = "\n=== with the rule, after 5 equal steps\n\n> clock HOLD A at decode\n> expect nothing broken\n"
    assert told(both + kept, head).kept is not None
    with pytest.raises(Unexpected, match=r"f.txt:11: 'clock HOLD A at decode' comes out otherwise"):
        told(both + kept.replace("5 equal", "6 equal"), head)


def test_a_changed_outcome_is_a_difference() -> None:
    now = told("> submit A\n")
    assert difference(now, now, "f.txt") == ""
    other = replace(now.course.steps[0], outcome=("page 0: free",))
    changed = replace(now, course=replace(now.course, items=(other,)))
    assert "-    page 0: free\n" in difference(changed, now, "f.txt")
    assert "+    page 0: leased to A\n" in difference(changed, now, "f.txt")


def test_steps_are_equal_wherever_they_stand() -> None:
    assert Step("heal", line=3) == Step("heal", line=4)
