"""What is refused is told with its reason and since when, and is bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from quiesce.control.restraint import BURST, EVERY_S, Restraint
from quiesce.errors import RequestRejected
from quiesce.ids import Incarnation
from quiesce.protocol.dispatch import DISPATCH_VERSION, Sampling, Welcome
from quiesce.router.fleet import Fleet
from quiesce.router.generation import Generation
from quiesce.router.objections import LISTED_S, MOST_KEPT, MOST_LISTED, Objections
from quiesce.router.order import Order
from quiesce.router.pairs import MOST_CAUSE_CHARS, MOST_CAUSES

ORDER = Order(token_ids=b"", prompt_tokens=1, sampling=Sampling(), max_tokens=1)


def test_since_when_holds_while_the_reason_does() -> None:
    now_s = 0.0
    objections = Objections(lambda: now_s)
    assert objections.refuse("p", "model differs")
    now_s = 50.0
    assert not objections.refuse("p", "model differs")
    assert [each.since for each in objections.listed()] == ["1970-01-01T00:00:00Z"]
    assert objections.refuse("p", "version differs")
    assert [(each.reason, each.since) for each in objections.listed()] == [("version differs", "1970-01-01T00:00:50Z")]
    now_s = 51.0 + LISTED_S
    assert objections.listed() == () == tuple(objections.refused)


def test_a_worker_that_is_taken_is_refused_no_more() -> None:
    objections = Objections()
    objections.refuse("p", "no")
    objections.take("p")
    objections.take("nobody")
    assert objections.told() == []


def test_of_two_that_see_a_pair_not_fit_the_first_is_heard() -> None:
    now_s = 1.0
    objections = Objections(lambda: now_s)
    pair = ("d", "p")
    assert objections.find_unfit("router", {pair: "early"}) == [pair]
    now_s = 2.0
    assert objections.find_unfit("workers", {pair: "late", ("d", "q"): "other"}) == [("d", "q")]
    assert {(each.worker, each.peer, each.reason, each.since) for each in objections.listed()} == {
        ("d", "p", "early", "1970-01-01T00:00:01Z"),
        ("d", "q", "other", "1970-01-01T00:00:02Z"),
    }
    assert objections.find_unfit("router", {}) == [pair]
    assert objections.unfit[pair] == "late"
    objections.find_unfit("workers", {})
    assert objections.told() == []


def test_what_is_kept_and_listed_is_bounded() -> None:
    objections = Objections()
    for number in range(MOST_KEPT + 5):
        objections.refuse(f"p{number}", "no")
    objections.find_unfit("router", {("d", f"p{number}"): "no" for number in range(MOST_KEPT + 5)})
    assert len(objections.refused) == len(objections.unfit) == MOST_KEPT
    assert len(objections.listed()) == len(objections.told()) == MOST_LISTED


def test_a_pair_that_fails_in_one_way_and_then_another_is_not_formed_since_the_first() -> None:
    """As while the network is down: a dial is not answered, the next one is told that there is no route."""
    clock = [0.0]
    objections = Objections(lambda: clock[0])
    for why in ("it does not answer", "No route to host", "it does not answer"):
        assert objections.find_unfit("d", {("d", "p"): why}) == [("d", "p")]
        clock[0] += 1.0
    assert [(each.reason, each.since) for each in objections.listed()] == [(why, "1970-01-01T00:00:00Z")]
    objections.find_unfit("d", {})
    objections.find_unfit("d", {("d", "p"): why})
    assert [each.since for each in objections.listed()] == ["1970-01-01T00:00:03Z"]


async def test_requests_that_nobody_can_serve_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The first is said, and the first for another reason, also where the two alternate."""
    clock = [0.0]
    fleet = Fleet([], model="tiny")
    fleet.refusals = Restraint(lambda: clock[0])

    async def ask(reason: str, times: int) -> None:
        fleet.objections = Objections()
        if reason:
            fleet.objections.refuse("prefill-9", reason)
        for _ in range(times):
            with pytest.raises(RequestRejected):
                await Generation(fleet, ORDER).check()

    for _ in range(100):
        await ask("", 9)
        await ask("model differs", 1)
    clock[0] = EVERY_S
    await ask("", 1)
    told = [record.ids for record in caplog.records if record.getMessage() == "no worker can serve"]  # type: ignore[attr-defined]
    first, other = "no worker is known", "no worker is known; prefill-9 is refused: model differs"
    assert sorted(map(str, told[:-1])) == sorted(map(str, [{"reason": first}] * BURST + [{"reason": other}] * BURST))
    assert told[-1] == {"reason": first, "unsaid": 900 - BURST}


def test_why_nothing_is_served_is_bounded_and_tells_live_causes_first() -> None:
    """A thousand registrations without a worker hide neither a pair that is not formed nor who is here."""
    fleet = Fleet([Path(f"/nobody/{number}.sock") for number in range(1000)], model="tiny")
    here = fleet.links[-1]
    here.welcome = Welcome(
        "decode-0", "decode", Incarnation("d" * 32), "another", "f", 4096, 4096, 16, 9, version=DISPATCH_VERSION
    )
    fleet.objections.find_unfit("router", {("decode-0", "prefill-0"): "KV layout differs" + 1000 * " and differs"})
    fleet.objections.refuse("prefill-9", "model differs")
    first, second, third, *gone, last = fleet.why_no_pair().split("; ")
    assert first == "decode-0: serves model another, not tiny"
    assert second.startswith("decode-0 with prefill-0: KV layout differs")
    assert len(second) == MOST_CAUSE_CHARS
    assert third == "prefill-9 is refused: model differs"
    assert gone == [f"unix:/nobody/{number}.sock: not connected" for number in range(MOST_CAUSES - 1)]
    assert last == f"and {1000 - MOST_CAUSES} more workers cannot be used"
