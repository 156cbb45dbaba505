"""`quiesce inspect --router URL`: whether a router is ready, whom it uses and whom it does not, from anywhere."""

from __future__ import annotations

import os

import httpx
import msgspec
from rich.console import Group, RenderableType

from quiesce.api.responses import Objection, Serving, Status
from quiesce.cli.terminal import plainly
from quiesce.doctor.endpoint import checked
from quiesce.errors import PeerUnusable

KEY = "QUIESCE_ADMIN_KEY"
MOST_ANSWER_BYTES = 1 << 20
_PATIENCE_S = 10.0
_UNTOLD = f"the reason is told to who bears the router's admin key: set {KEY} to it"
_UNNAMED = f"who serves is told to who bears the router's admin key, set {KEY} to it, and not by older routers"


def ask_router(url: str) -> Status:
    """What /readiness says, ready or not. Raises UsageError for no address, PeerUnusable for no answer of ours."""
    address = f"{checked(url, KEY)}/readiness?pairs"
    try:
        status, body = _get(address)
        if status not in (200, 503):
            raise PeerUnusable(f"{address} answers with HTTP {status}.", remedy="Is it a router's?", took_effect=False)
        return msgspec.json.decode(body, type=Status)
    except (httpx.HTTPError, msgspec.MsgspecError) as error:
        why = f"{address} tells nothing: {str(error).rstrip('.')}."
        raise PeerUnusable(why, remedy="Is it a router's, and is that running?", took_effect=False) from error


def _get(address: str) -> tuple[int, bytes]:
    """The status and at most the first `MOST_ANSWER_BYTES`. No proxies, no redirects: who is named is asked."""
    key = os.environ.get(KEY, "").strip()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with (
        httpx.Client(timeout=_PATIENCE_S, trust_env=False, headers=headers) as client,
        client.stream("GET", address) as answer,
    ):
        body = bytearray()
        for part in answer.iter_bytes():
            body += part
            if len(body) > MOST_ANSWER_BYTES:
                break
        return answer.status_code, bytes(body[:MOST_ANSWER_BYTES])


def is_ready(status: Status) -> bool:
    return status.status == "ready"


def router_view(url: str, status: Status) -> RenderableType:
    """A line for the router, each worker that serves, that is not used or refused, and each pair that is not formed."""
    reason = f": {status.reason or _UNTOLD}" if not is_ready(status) else ""
    first = plainly(f"{url}: {status.status}{reason}", style="green" if is_ready(status) else "red")
    used = [plainly(_use(each), style="green") for each in status.serving]
    if status.more_serving:
        used.append(plainly(f"and {status.more_serving} more workers serve", style="green"))
    if is_ready(status) and not used:
        used.append(plainly(_UNNAMED))
    unused = [f"{each.worker} is not used: {each.reason}" for each in status.unused]
    return Group(first, *used, *(plainly(each, style="red") for each in (*unused, *map(_words, status.refused))))


def _use(serving: Serving) -> str:
    if not serving.peers:
        return f"{serving.worker} serves alone since {serving.since}"
    peers = [f"{each.worker} since {each.since}" for each in serving.peers]
    if serving.more_peers:
        peers.append(f"{serving.more_peers} more prefill workers")
    by = f" over {serving.transport}" if serving.transport else ""
    return f"{serving.worker} is paired{by} with {', '.join(peers)}"


def _words(objection: Objection) -> str:
    what = (
        f"{objection.worker} is not paired with {objection.peer}"
        if objection.peer
        else f"{objection.worker} is refused"
    )
    return f"{what} since {objection.since}: {objection.reason}"
