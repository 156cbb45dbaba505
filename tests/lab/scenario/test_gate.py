"""What waits at a gate, and writes that have their bytes in hand while they wait."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from quiesce.errors import UsageError
from quiesce.ids import PageTag
from quiesce.kv.layout import Layout
from quiesce.kv.runs import copy_runs
from quiesce.kv.storage import Pool
from quiesce.lab.gate import Gate, GateEvent, Waits, WriteGate
from quiesce.lab.gated_placement import GatedPlacement
from quiesce.protocol import sender_rules
from quiesce.transport.contract import Write
from quiesce.transport.placement import Placing

LAYOUT = Layout(2, 1, 4, 4)


def armed() -> tuple[Gate, list[GateEvent], list[str]]:
    told: list[GateEvent] = []
    gate = Gate(told.append)
    gate.arm("")
    return gate, told, []


def test_an_open_gate_holds_nothing() -> None:
    told: list[GateEvent] = []
    done: list[str] = []
    assert Gate(told.append).hold(lambda: done.append("in"), "message") == 0
    assert (done, told) == (["in"], [])


def test_what_waits_is_told_and_goes_in_when_it_is_let() -> None:
    gate, told, done = armed()
    first = gate.hold(lambda: done.append("a"), "message", kind="abort", attempt=3)
    second = gate.hold(lambda: done.append("b"), "submit", request="r")
    assert told == [Waits(first, "message", "abort", "", 3), Waits(second, "submit", "", "r")]
    gate.let(second)
    gate.let(first, stays=True)
    gate.let(first)
    assert done == ["b", "a", "a"]
    with pytest.raises(UsageError):
        gate.let(first)


def test_what_is_lost_never_comes_and_the_rest_goes_in_order_when_the_gate_opens() -> None:
    gate, _, done = armed()
    serials = [gate.hold(lambda name=name: done.append(name), "message") for name in "abc"]  # type: ignore[misc]
    gate.lose(serials[1])
    gate.disarm()
    assert done == ["a", "c"]
    gate.hold(lambda: done.append("d"), "message")
    assert done == ["a", "c", "d"]


def test_everything_goes_in_although_something_goes_wrong() -> None:
    gate, _, done = armed()

    def go_wrong() -> None:
        raise ValueError("wrong")

    gate.hold(go_wrong, "message")
    gate.hold(lambda: done.append("b"), "message")
    with pytest.raises(ValueError, match="wrong"):
        gate.disarm()
    assert done == ["b"]


def test_a_rule_is_left_out_until_the_gate_opens() -> None:
    gate, _, _ = armed()
    honest = sender_rules.may_ack
    gate.arm("ack while writes are outstanding")
    assert sender_rules.may_ack is not honest
    gate.arm("a poisoned attempt is acked")
    gate.disarm()
    assert sender_rules.may_ack is honest


@pytest.mark.parametrize("torn", [False, True])
def test_a_write_that_waits_lands_what_it_read(torn: bool) -> None:
    """As bytes in a queue do: what becomes of the source meanwhile does not matter."""
    source, target = Pool.private(LAYOUT, 4), Pool.private(LAYOUT, 4)
    source.page_view()[:] = 7
    reached, gates = threading.Event(), list[WriteGate]()
    placement = GatedPlacement()

    def announce(write: int, gate: WriteGate) -> None:
        gates.append(gate)
        reached.set()

    placement.announce = announce
    pages = np.array([1, 2], np.int32)
    write = Write(id=1, source_pages=pages, target_pages=pages + 1, tag=PageTag(9))
    placing = Placing(write, source, target, copy_runs(pages, pages + 1))

    def place() -> None:
        placement.copy(placing, placing.runs)
        placement.stamp(placing)
        placement.write_metadata(placing)

    thread = threading.Thread(target=place)
    thread.start()
    assert reached.wait(10)
    source.page_view()[:] = 8
    gates[0].torn = torn
    gates[0].open()
    thread.join()
    assert target.page_view()[:, 0].tolist() == [0, 0, 7, 7]
    assert (target.tags[2:4] == (0 if torn else 9)).all()
