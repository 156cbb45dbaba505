"""Which pairs serve is told to who may look and asks: who with whom, over what, since when; bounded."""

from __future__ import annotations

from quiesce.api.responses import Partner, Serving
from quiesce.control.address import parse_address
from quiesce.ids import mint_incarnation
from quiesce.protocol.dispatch import DISPATCH_VERSION, Load, Welcome
from quiesce.router.fleet import Fleet
from quiesce.router.link import WorkerLink
from quiesce.router.pairs import Pair
from quiesce.router.serving import MOST_PARTNERS, MOST_WORKERS, ServingPairs

from .conftest import Deployment
from .fake_worker import nothing

SECOND = "1970-01-01T00:00:{:02}Z".format


def link(name: str, role: str, *facts: tuple[str, str]) -> WorkerLink:
    made = WorkerLink(parse_address(f"unix:/{name}"), Fleet(()))
    about = (name, role, mint_incarnation(), "tiny", "print")
    made.welcome = Welcome(*about, 4096, 4096, 16, 8, facts, DISPATCH_VERSION)
    return made


def test_since_when_holds_for_a_pair_while_it_serves_and_both_live() -> None:
    now_s = 1.0
    serving = ServingPairs(lambda: now_s)
    prefill, other = link("prefill-0", "prefill"), link("prefill-1", "prefill")
    decode, alone = link("decode-0", "decode", ("transport", "tcp")), link("worker-0", "aggregated")
    assert serving.see([Pair(decode, prefill)])
    now_s = 2.0
    assert serving.see([Pair(alone), Pair(decode, other), Pair(decode, prefill)])
    assert serving.listed() == (
        Serving("decode-0", SECOND(1), "tcp", (Partner("prefill-0", SECOND(1)), Partner("prefill-1", SECOND(2)))),
        Serving("worker-0", SECOND(2)),
    )
    now_s = 3.0
    prefill.welcome = link("prefill-0", "prefill").welcome
    assert serving.see([Pair(decode, prefill)])
    assert serving.listed() == (Serving("decode-0", SECOND(3), "tcp", (Partner("prefill-0", SECOND(3)),)),)
    assert not serving.see([])
    assert (serving.listed(), serving.unlisted()) == ((), 0)


def test_what_is_told_of_a_large_fleet_is_bounded() -> None:
    serving = ServingPairs()
    prefills = [link(f"prefill-{number}", "prefill") for number in range(MOST_PARTNERS + 3)]
    decodes = [link(f"decode-{number}", "decode") for number in range(MOST_WORKERS + 2)]
    serving.see(Pair(decode, prefill) for decode in decodes for prefill in prefills)
    told = serving.listed()
    assert (len(told), serving.unlisted()) == (MOST_WORKERS, 2)
    assert {(len(each.peers), each.more_peers) for each in told} == {(MOST_PARTNERS, 3)}


async def test_readiness_tells_who_asks_and_may_look_which_pairs_serve(deployment: Deployment) -> None:
    client = await deployment.start(admin_key="a-key-of-some-length")
    key = {"authorization": "Bearer a-key-of-some-length"}
    assert (await client.get("/readiness", headers=key)).json() == {"status": "ready"}
    assert (await client.get("/readiness?pairs")).json() == {"status": "ready"}
    ((told,), status) = [(await client.get("/readiness?pairs", headers=key)).json()[k] for k in ("serving", "status")]
    assert status == "ready"
    assert (told["worker"], [each["worker"] for each in told["peers"]]) == ("decode-0", ["prefill-0"])
    deployment.decode.probe_plan = nothing
    await deployment.prefill.stop()
    await deployment.until(lambda service: bool(service.readiness.why_not()))
    assert "serving" not in (await client.get("/readiness?pairs", headers=key)).json()


async def test_readiness_tells_who_is_not_used_while_others_serve(deployment: Deployment) -> None:
    deployment.workers.append(second := deployment.worker("decode-1", "decode", ("prefill-0",)))
    client = await deployment.start()
    await deployment.until(lambda service: len(service.fleet.present) == 3)
    assert "unused" not in (await client.get("/readiness?pairs")).json()
    second.send(Load(0, 0, 4096, ready=False, reason="it drains"))
    await deployment.until(lambda service: bool(service.fleet.unused()))
    told = (await client.get("/readiness?pairs")).json()
    assert (told["status"], told["unused"]) == ("ready", [{"worker": "decode-1", "reason": "it drains"}])
    await second.stop()
    await deployment.until(lambda service: "not connected" in service.fleet.unused()[0].reason)
