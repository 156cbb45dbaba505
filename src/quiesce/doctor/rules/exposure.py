"""Ports and endpoints that others can reach."""

from __future__ import annotations

from quiesce.doctor.addresses import is_local
from quiesce.doctor.findings import Hit, Rule, Seen, Severity, label
from quiesce.doctor.fleet import Engine, Evidence, Field, Fleet, Member, Role, Told
from quiesce.doctor.rules.links import OUR_SECURITY, OUR_SETTINGS, SGLANG_PD, SGLANG_SERVER, VLLM_NIXL, VLLM_SECURITY
from quiesce.doctor.rules.release import before

_ORCA = "https://orca.security/resources/blog/sglang-llm-framework-rce-vulnerabilities/"
_EVERYWHERE = frozenset({"0.0.0.0", "::", "[::]", "*", ""})  # noqa: S104 - looked for, not bound
BOOTSTRAP_PORT = 8998


def _open_api(fleet: Fleet) -> Seen:
    for member in fleet.members:
        if member.engine is Engine.QUIESCE and member.role is not Role.ROUTER:
            continue
        host = _address(member)
        key, tenants = member.known(Field.API_KEY, False, says="no key is given"), member.known(Field.TENANTS, False)
        closed = key is None or key.value is True or (tenants is not None and tenants.value is True)
        if host is None or closed or is_local(str(host.value)):
            continue
        yield Hit(
            (host.evidence,) if key is None else (host.evidence, key.evidence),
            f"{label(member)} listens on {host.value} and needs no key.",
            f"Listen on 127.0.0.1 behind a gateway, or {_KEY[member.engine]}.",
            sources=_ABOUT_KEYS[member.engine],
        )


def _address(member: Member) -> Told | None:
    """Other people's routers are not known well enough to know where they listen when they are not told."""
    if member.role is Role.ROUTER and member.engine is not Engine.QUIESCE:
        return member.told(Field.HOST)
    default = _DEFAULT_HOST[member.engine]
    return member.known(Field.HOST, default, says=f"no --host is given, so {default}")


_DEFAULT_HOST = {Engine.SGLANG: "127.0.0.1", Engine.VLLM: "0.0.0.0", Engine.QUIESCE: "127.0.0.1"}  # noqa: S104
_KEY = {
    Engine.SGLANG: "give --api-key",
    Engine.VLLM: "give --api-key and put a proxy in front that lets only /v1 through",
    Engine.QUIESCE: "give --tenants or --api-key",
}


_ABOUT_KEYS = {
    Engine.SGLANG: (SGLANG_SERVER,),
    Engine.VLLM: (VLLM_SECURITY,),
    Engine.QUIESCE: (OUR_SECURITY,),
}


def _open_admin(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.QUIESCE, Role.ROUTER):
        host, admin = member.known(Field.HOST, "127.0.0.1"), member.known(Field.ADMIN_KEY, False)
        if host and admin and not is_local(str(host.value)) and admin.value is not True:
            yield Hit(
                (host.evidence, admin.evidence),
                f"{label(member)} listens on {host.value}, and /metrics needs no key.",
                "Give --admin-key: then /metrics, /flush_cache and the reasons of /readiness need it.",
            )


def _bootstrap(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.SGLANG, Role.PREFILL):
        port = int(member.number(Field.BOOTSTRAP_PORT) or BOOTSTRAP_PORT)
        published = member.told(Field.PUBLISHED_PORTS)
        host = member.told(Field.HOST)
        places: tuple[Evidence, ...] = ()
        if published and _publishes(str(published.value), port):
            places = (published.evidence,)
        elif host and str(host.value) in _EVERYWHERE and "launch" in member.kinds:
            places = (host.evidence,)
        if places:
            yield Hit(
                places,
                f"{label(member)}: the bootstrap port ({port}) can be reached from wherever {_how(published, port)}.",
                "Bind prefill to an address of a network that only decode workers and the router reach; publish the "
                "router's port alone, and close the others with a firewall or a NetworkPolicy.",
            )


def _how(published: object, port: int) -> str:
    return "the port is published" if published else f"this host is reached on port {port}"


def _publishes(ports: str, port: int) -> bool:
    """Whether `8998:8998`, `127.0.0.1:8998:8998`, `hostNetwork` or a range shows the port to others."""
    for entry in ports.split(","):
        if entry.startswith(("127.0.0.1:", "[::1]:", "localhost:")):
            continue
        inside = entry.rpartition(":")[2].partition("/")[0]
        low, _dash, high = inside.partition("-")
        if entry in ("hostNetwork", "network_mode: host") or _within(low, high, port):
            return True
    return False


def _within(low: str, high: str, port: int) -> bool:
    return low.isdigit() and int(low[:6]) <= port <= int(high[:6] if high.isdigit() else low[:6])


def _side_channel(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.VLLM):
        for field in (Field.SIDE_CHANNEL_HOST, Field.KV_ADDRESS):
            told = member.told(field)
            if told and str(told.value) in _EVERYWHERE:
                yield Hit(
                    (told.evidence,),
                    f"{label(member)}: the metadata of transfers is offered on every network of this host.",
                    f"Set {field.words} to the address of a network that only the workers reach.",
                )


def _dev_mode(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.VLLM):
        if member.is_on(Field.DEV_MODE):
            yield Hit(
                member.places(Field.DEV_MODE),
                f"{label(member)} serves development endpoints, /collective_rpc among them, which need no key.",
                "Remove VLLM_SERVER_DEV_MODE.",
            )


def _pickles(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.SGLANG):
        if member.is_on(Field.ENCODER_APART) and before(member, (0, 5, 10)):
            yield Hit(
                member.places(Field.ENCODER_APART, Field.VERSION),
                f"{label(member)} unpickles what anybody sends to its encoder port.",
                "Update to SGLang 0.5.10 or newer, and let only its own workers reach it.",
            )


def _front(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.QUIESCE, Role.ROUTER):
        host = member.told(Field.FRONT_HOST)
        if Field.FRONTS in member.facts and host and not is_local(str(host.value)):
            yield Hit(
                member.places(Field.FRONTS, Field.FRONT_HOST),
                f"{label(member)}: fronts listen on {host.value}; whoever has their key uses workers past all limits.",
                "Let only the other router reach the fronts' ports.",
            )


def _plain(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.QUIESCE, Role.ROUTER):
        host = member.told(Field.HOST)
        if host and not is_local(str(host.value)) and "launch" in member.kinds:
            yield Hit(
                (host.evidence,),
                f"{label(member)} speaks plain HTTP on {host.value}.",
                "Put TLS in front of it; keys and prompts travel in the clear otherwise.",
            )


RULES = (
    Rule(
        id="open-api",
        severity=Severity.EXPOSURE,
        title="Others can use this server without a key",
        why="Who can send requests can abort them too, and aborts are what the races above need.",
        sources=(VLLM_SECURITY, SGLANG_SERVER, OUR_SECURITY),
        check=_open_api,
    ),
    Rule(
        id="bootstrap-exposed",
        severity=Severity.EXPOSURE,
        title="The bootstrap port can be reached by others",
        why="Bootstrap and metadata ports ask nobody who he is. Who reaches them can learn where KV memory is, take "
        "the place of a half, or stop hand-offs.",
        sources=(SGLANG_PD, _ORCA),
        check=_bootstrap,
    ),
    Rule(
        id="vllm-side-channel-exposed",
        severity=Severity.EXPOSURE,
        title="The side channel of transfers can be reached by others",
        why="vLLM's communication between nodes is insecure by design and must be on a network of its own.",
        sources=(VLLM_SECURITY, VLLM_NIXL),
        check=_side_channel,
    ),
    Rule(
        id="vllm-dev-mode",
        severity=Severity.EXPOSURE,
        title="Development endpoints are on",
        why="They run methods of the engine for whoever asks.",
        sources=(VLLM_SECURITY,),
        check=_dev_mode,
    ),
    Rule(
        id="sglang-pickle",
        severity=Severity.EXPOSURE,
        title="Unpickling what the network sends",
        why="CVE-2026-3059 and CVE-2026-3060: before 0.5.10 whoever reaches the port runs code in the server.",
        sources=(_ORCA, "https://llm-hacking.com/hacks/sglang-pickle-zmq-rce.md"),
        check=_pickles,
    ),
    Rule(
        id="quiesce-admin-open",
        severity=Severity.EXPOSURE,
        title="Metrics are open to others",
        why="They hold no text of a user, but names of tenants, and how much each sends.",
        sources=(OUR_SETTINGS, OUR_SECURITY),
        check=_open_admin,
    ),
    Rule(
        id="quiesce-fronts-exposed",
        severity=Severity.EXPOSURE,
        title="Fronts can be reached by others",
        why="A front is past the limits and keys of the public port.",
        sources=("docs/fronts.md",),
        check=_front,
    ),
    Rule(
        id="quiesce-plain-http",
        severity=Severity.ADVICE,
        title="Plain HTTP beyond this machine",
        why="Whoever is on the way reads prompts, answers and keys.",
        sources=(OUR_SECURITY,),
        check=_plain,
    ),
)
