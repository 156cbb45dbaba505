"""HELLO: a nonce exchange in which two workers find out whether they fit (PROTOCOL sections 4 and 6)."""

from __future__ import annotations

import msgspec

from quiesce.ids import Incarnation

PROTOCOL_VERSION = 5
PUSH = "push"
PULL = "pull"
OVER_TLS = "+tls"
"""At the end of a transport's name: its pages are inside TLS."""


class Capabilities(msgspec.Struct, frozen=True):
    """What a transport backend can prove (PROTOCOL section 6). That `landed` means placed is no capability."""

    drain_ack: bool = False
    fence: bool = False
    source_fence: bool = False
    bounds_checked: bool = False
    authenticated: bool = False
    ordered: bool = False
    zero_copy: bool = False
    pull: bool = False


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Who I am and what I can do. `echo` returns the other side's nonce ("" in the first HELLO of a stream).

    `transfer` says who moves the pages: "push" is prefill, which writes, "pull" is decode, which reads.
    """

    version: int
    role: str
    worker: str
    incarnation: Incarnation
    ranks: int
    model_fingerprint: str
    layout_fingerprint: str
    payload_digest: str
    transport: str
    capabilities: Capabilities
    nonce: str
    echo: str = ""
    transfer: str = "push"


class OtherVersion(msgspec.Struct, frozen=True):
    """All that is read of a HELLO of another version: who says it. Its other fields may mean anything.

    In every version HELLO is a map that has `type`, "hello", `version`, an integer, and `worker`, a text; and REFUSAL
    is one that has `type`, "refusal", and `reason`, a text. So of any two versions both learn why they do not pair.
    """

    version: int
    worker: str


Greeting = Hello | OtherVersion
"""What is known of a worker that said HELLO."""


def version_differs(mine: Greeting, theirs: Greeting) -> str:
    """The reason, in words, why two versions are never paired, or ""."""
    if mine.version == theirs.version:
        return ""
    return f"protocol version differs: {mine.worker} has {mine.version}, {theirs.worker} has {theirs.version}"


def mismatch(mine: Hello, theirs: Hello) -> str | None:
    """The first reason, in words, why two workers must not be paired, or None."""
    if reason := version_differs(mine, theirs):
        return reason
    checks = (
        ("model", mine.model_fingerprint, theirs.model_fingerprint),
        ("KV layout", mine.layout_fingerprint, theirs.layout_fingerprint),
        ("transfer", mine.transfer, theirs.transfer),
        ("transport", mine.transport, theirs.transport),
        ("payload digest setting", mine.payload_digest, theirs.payload_digest),
        ("number of ranks", mine.ranks, theirs.ranks),
    )
    for what, ours, other in checks:
        if ours != other:
            return f"{what} differs: {mine.worker} has {ours}, {theirs.worker} has {other}{_remedy(ours, other)}"
    if mine.role == theirs.role:
        return f"both workers are {mine.role}"
    return unpairable(mine) or unpairable(theirs) or None


def unpairable(hello: Hello) -> str:
    """The reason, in words, why a worker must not be paired with anybody, or ""."""
    if not _can_return_memory(hello.capabilities):
        nothing = f"transport {hello.transport} has neither drain_ack nor fence at {hello.worker}"
        return f"{nothing}: held memory could never be proved free"
    if hello.transfer == PULL and not hello.capabilities.pull:
        return f"transport {hello.transport} has no pull at {hello.worker}: decode cannot read with it"
    return ""


def known_mismatch(one: Greeting | None, two: Greeting | None) -> str:
    """Why two workers will not pair, in words, as far as a third one sees it that may speak another version; or "".

    "" is no promise: what the third one cannot read, the two find out themselves.
    """
    if one is None or two is None:
        return ""
    if isinstance(one, Hello) and isinstance(two, Hello):
        return mismatch(one, two) or ""
    return version_differs(one, two)


def _remedy(ours: object, other: object) -> str:
    """What to do where two differ in who moves the pages, or only one wants them inside TLS, or their digest."""
    if {ours, other} == {PUSH, PULL}:
        return ": give both the same --transfer"
    if {ours, other} == {"off", "blake2b"}:
        return ": give both the same --landing, or the same --payload-digest"
    if f"{ours}{OVER_TLS}" != other and f"{other}{OVER_TLS}" != ours:
        return ""
    return ": give both --tls-cert, --tls-key and --tls-ca, or both --data-tls off"


def _can_return_memory(capabilities: Capabilities) -> bool:
    return capabilities.drain_ack or capabilities.fence
