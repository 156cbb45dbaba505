"""Prefix caches that several tenants share."""

from __future__ import annotations

from quiesce.doctor.findings import Hit, Rule, Seen, Severity, Unknown, label
from quiesce.doctor.fleet import Engine, Field, Fleet, Member, Role
from quiesce.doctor.rules.links import OUR_SECURITY, VLLM_PREFIX, VLLM_SECURITY

_WORKERS = (Role.PREFILL, Role.DECODE, Role.AGGREGATED, Role.UNKNOWN)
_SALT = {
    Engine.SGLANG: "Let the gateway set cache_salt (or extra_key) per tenant in every request, or "
    "--disable-radix-cache.",
    Engine.VLLM: "Let the gateway set cache_salt per tenant in every request, or --no-enable-prefix-caching.",
    Engine.QUIESCE: "Give each tenant its own key in the file of --tenants: each then has a cache of its own.",
}


def _shared(fleet: Fleet) -> Seen:
    if fleet.traffic.several_tenants is False:
        return
    for member in fleet.members:
        cached = _cached(fleet, member)
        if not cached:
            continue
        if fleet.traffic.several_tenants or _has_keys(member):
            yield Hit(
                member.places(Field.PREFIX_CACHE, Field.API_KEYS),
                f"{label(member)} caches prefixes of all tenants together.",
                _SALT[member.engine],
            )
        elif member.engine is not Engine.QUIESCE:
            yield Unknown(
                "whether several tenants share this deployment",
                "Tell it with --tell tenants=several (or one): then the prefix cache is judged.",
            )


def _cached(fleet: Fleet, member: Member) -> bool:
    """Ours is kept apart by tenant at the router, and has one salt for all keys of --api-key."""
    if member.engine is Engine.QUIESCE:
        return member.role is Role.ROUTER and not _has_tenants(member) and not _all_off(fleet)
    cache = member.known(Field.PREFIX_CACHE, True)
    return member.role in _WORKERS and cache is not None and cache.value is True


def _has_tenants(router: Member) -> bool:
    tenants = router.known(Field.TENANTS, False)
    return tenants is None or tenants.value is True


def _all_off(fleet: Fleet) -> bool:
    workers = list(fleet.of(Engine.QUIESCE, *_WORKERS))
    told = [worker.told(Field.PREFIX_CACHE) for worker in workers]
    return bool(told) and all(each is not None and each.value is False for each in told)


def _has_keys(member: Member) -> bool:
    return (member.number(Field.API_KEYS) or 0) > 1


def _remote(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.VLLM):
        if member.is_on(Field.REMOTE_CACHE):
            yield Hit(
                member.places(Field.REMOTE_CACHE),
                f"{label(member)} keeps KV cache in a remote store (LMCACHE_REMOTE_URL).",
                "Let only the workers reach the store, and give tenants stores or salts of their own.",
            )


RULES = (
    Rule(
        id="prefix-cache-shared",
        severity=Severity.EXPOSURE,
        title="A prefix cache that tenants share",
        why="Whether a prefix is cached shows in the time to the first token and in the reported cached tokens. So one "
        "tenant can find out, guess by guess, what another one has sent.",
        sources=(VLLM_PREFIX, VLLM_SECURITY, OUR_SECURITY),
        check=_shared,
    ),
    Rule(
        id="kv-store-remote",
        severity=Severity.EXPOSURE,
        title="KV cache in a remote store",
        why="A KV cache is the prompt in another form. Whoever reaches the store can read or replace it.",
        sources=("https://docs.lmcache.ai/", VLLM_SECURITY),
        check=_remote,
    ),
)
