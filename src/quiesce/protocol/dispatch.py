"""What the router and a worker say to each other: one request's two halves, and questions about a worker.

The router sends `Submit` with the same tokens to both halves at once; the halves meet by room and digest. Decode
streams tokens back; either half may reject or fail; the router cancels the other.
"""

from __future__ import annotations

import msgspec

from quiesce.ids import Incarnation, RequestId, Room
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import Failure

DISPATCH_VERSION = 3
"""What a worker understands of `Submit`. Fields it does not know are dropped on arrival, so it must say so first.

1   temperature, top_p, top_k, seed
2   the rest of `Sampling` up to logprobs; logprobs in `Tokens`
3   `Sampling.grammar`, `Submit.priority`
"""


class Sampling(msgspec.Struct, frozen=True):
    """How tokens are drawn. temperature 0 is greedy; top_k 0 and top_p 1.0 are off; no seed: the router draws one.

    Presence and frequency penalties look at what was generated, the repetition penalty at the prompt too. Before
    `min_tokens` nothing that ends the answer is drawn. `logit_bias` is (token id, what is added) pairs. `logprobs` says
    how many alternatives to tell with each token's log probability; None: tell nothing. `grammar` is the text of
    a grammar that the answer must match; "" is none.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    grammar: str = ""


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """router -> worker. `token_ids` is a packed little-endian uint32 array; `max_tokens` None means what fits.

    `prefill` names the prefill worker of the pair (read by decode); `salt` is the tenant's, minted by the router.
    `timeout_s` is how long the request may still take. Higher `priority` is served first, then earlier arrival.
    `tells_prompt` asks whoever computes the prompt for the log probabilities of its tokens, too (`PromptTold`).
    """

    request: RequestId
    room: Room
    token_ids: bytes
    sampling: Sampling
    max_tokens: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    prefill: str = ""
    salt: str = ""
    timeout_s: float | None = None
    priority: int = 0
    tells_prompt: bool = False


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """router -> worker: the request is over for `failure`'s reason (client left, other half failed, stop string)."""

    request: RequestId
    failure: Failure


class Scrape(msgspec.Struct, frozen=True, tag="scrape"):
    """Ask for the worker's metrics as Prometheus text."""

    serial: int


class Inspect(msgspec.Struct, frozen=True, tag="inspect"):
    """Ask for a `WorkerSnapshot`."""

    serial: int


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """router -> worker: are you there? A worker that does not answer soon gets no new requests."""

    serial: int


class Trace(msgspec.Struct, frozen=True, tag="trace"):
    """Ask for the last steps of the worker's machine."""

    serial: int


class Flush(msgspec.Struct, frozen=True, tag="flush"):
    """router -> worker: forget every cached prefix, and say `Flushed` when the last of their pages is free."""

    serial: int


ROUTER = "router"
"""What a router calls itself in `Attach`."""


class Attach(msgspec.Struct, frozen=True, tag="attach"):
    """First frame of a connection that wants to dispatch (a router) or to look (`quiesce inspect`)."""

    name: str


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """worker -> router, first: what this worker is and what it can admit. `version` is its `DISPATCH_VERSION`.

    `max_running` is how many requests it generates for at once. `landing_tokens`: 0 where prompts land in the pool.
    """

    worker: str
    role: str
    incarnation: Incarnation
    model: str
    model_fingerprint: str
    context_length: int
    pool_tokens: int
    page_size: int
    max_queue: int
    facts: tuple[tuple[str, str], ...] = ()
    version: int = 1
    max_running: int = 32
    landing_tokens: int = 0


MOST_TROUBLES = 64
MOST_TROUBLE_CHARS = 1024


class Peers(msgspec.Struct, frozen=True, tag="peers"):
    """decode -> router: the prefill workers (by name) that HELLO has accepted and whose streams are up now.

    `troubles` are those that it cannot be paired with: (name, or address where no name is known; why not, in words).
    """

    prefills: tuple[str, ...]
    troubles: tuple[tuple[str, str], ...] = ()


LEAVING = "draining"
"""The `Load.reason` of a worker that was told to stop."""


NO_PREFIX_CACHE = ("prefix cache", "off")
"""A fact that a Welcome tells: prompts that begin alike are computed anew each time."""


class Load(msgspec.Struct, frozen=True, tag="load"):
    """worker -> router, when it changed: what admission and pairing look at.

    `queued` counts what its door compares with `Welcome.max_queue`: at that number the next request gets a 429.
    """

    running: int
    waiting: int
    free_tokens: int
    ready: bool = True
    reason: str = ""
    queued: int = 0


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """worker -> router: its door let the request in."""

    request: RequestId


class Tokens(msgspec.Struct, frozen=True, tag="tokens"):
    """decode -> router: next tokens; `finish` is "", "stop" (eos or stop token, not in `token_ids`) or "length".

    `cached_tokens` counts prompt tokens that a prefix cache supplied. `logprobs` has one entry for each of `token_ids`
    when the request asked for them, else none.
    """

    request: RequestId
    token_ids: tuple[int, ...]
    finish: str = ""
    cached_tokens: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """worker -> router: the request ended here without an answer. `rejected`: the door refused, nothing had existed."""

    request: RequestId
    failure: Failure
    rejected: bool = False


class HandedOff(msgspec.Struct, frozen=True, tag="handed_off"):
    """prefill -> router: its half is complete."""

    request: RequestId


class PromptTold(msgspec.Struct, frozen=True, tag="prompt_told"):
    """Whoever computes the prompt -> router: how likely its tokens from position `start` on were; frames are in order.

    The first token of all has no entry. All of it is sent before the hand-off is complete.
    """

    request: RequestId
    start: int
    logprobs: tuple[TokenLogprobs, ...]


class Scraped(msgspec.Struct, frozen=True, tag="scraped"):
    serial: int
    text: str


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    serial: int


class Flushed(msgspec.Struct, frozen=True, tag="flushed"):
    """No page is cached that was when `Flush` came. Sent when nobody reads one any more, however long that takes."""

    serial: int


class PageRange(msgspec.Struct, frozen=True):
    """Pages [first, last] that one owner has; `state` is free, used, cached, reserved, held or quarantined."""

    first: int
    last: int
    state: str
    owner: str = ""


class RoomView(msgspec.Struct, frozen=True):
    """One hand-off for people: `state` is the machine's; `awaiting` names the proofs still missing."""

    request: str
    attempt: int
    state: str
    pages: int
    age_s: float
    awaiting: tuple[str, ...] = ()


class WorkerSnapshot(msgspec.Struct, frozen=True):
    """What `quiesce inspect` shows of one worker; counts are pages. `routers` are attached to it.

    `landing` are pages that writes land in, by state, where that is not the pool.
    """

    worker: str
    role: str
    incarnation: Incarnation
    pages: dict[str, int]
    page_size: int
    ranges: tuple[PageRange, ...]
    rooms: tuple[RoomView, ...]
    running: int
    waiting: int
    routers: int = 0
    troubles: tuple[tuple[str, str], ...] = ()
    landing: dict[str, int] = {}


class Inspected(msgspec.Struct, frozen=True, tag="inspected"):
    serial: int
    snapshot: WorkerSnapshot


class Traced(msgspec.Struct, frozen=True, tag="traced"):
    """`lines` are the canonical ones of `protocol.trace`, oldest first, each after its time; nothing of a user."""

    serial: int
    lines: tuple[str, ...]


RouterFrame = Attach | Submit | Cancel | Scrape | Inspect | Trace | Ping | Flush
WorkerFrame = (
    Welcome | Peers | Load | Accepted | Tokens | Failed | HandedOff | PromptTold | Scraped | Inspected | Traced | Pong
    | Flushed
)  # fmt: skip
