"""Contexts, pools, and limits that differ between the halves of a pair."""

from __future__ import annotations

from quiesce.doctor.findings import Hit, Rule, Seen, Severity, label, untold
from quiesce.doctor.fleet import Engine, Field, Fleet, Member, Role
from quiesce.doctor.rules.links import sglang, sglang_issue
from quiesce.doctor.rules.release import before

WORKERS = (Role.PREFILL, Role.DECODE, Role.AGGREGATED, Role.UNKNOWN)

_POOL_REMEDY = "Give the start-up log, or the address of the running server: the pool is sized at start."


def _context_exceeds_pool(fleet: Fleet) -> Seen:
    for member in fleet.members:
        if member.role not in WORKERS or member.engine is Engine.VLLM:
            continue
        context, pool = member.number(Field.CONTEXT_TOKENS), member.number(Field.POOL_TOKENS)
        if context is None or pool is None:
            if member.engine is Engine.SGLANG and _is_half(member):
                yield from _unknown_sizes(member)
        elif context > pool:
            yield _too_small(member, int(context), int(pool))


def _unknown_sizes(member: Member) -> Seen:
    if Field.CONTEXT_TOKENS not in member.facts:
        yield untold(member, Field.CONTEXT_TOKENS, "It is the model's own unless --context-length says otherwise.")
    if Field.POOL_TOKENS not in member.facts:
        yield untold(member, Field.POOL_TOKENS, _POOL_REMEDY)


def _too_small(member: Member, context: int, pool: int) -> Hit:
    severity = Severity.LEAK if _is_half(member) and not _rejects_early(member) else Severity.ADVICE
    return Hit(
        member.places(Field.CONTEXT_TOKENS, Field.POOL_TOKENS),
        f"{label(member)}: a context of {context} tokens, a KV pool of {pool}. "
        f"Prompts of {pool + 1} to {context} tokens pass the first check and fit no pool.",
        f"Set the context length to at most {pool}, on prefill and on decode alike, or give the pool {context} tokens.",
        severity,
    )


def _is_half(member: Member) -> bool:
    return member.role in (Role.PREFILL, Role.DECODE)


def _rejects_early(member: Member) -> bool:
    """Whether a request that its door refuses is never handed off."""
    return member.engine is Engine.QUIESCE or before(member, (0, 5, 21)) is False


def _limits_differ(fleet: Fleet) -> Seen:
    for prefill, decode in fleet.pairs():
        ours, theirs = _most(prefill), _most(decode)
        if ours is None or theirs is None or ours == theirs:
            continue
        early = _rejects_early(prefill) and _rejects_early(decode)
        protected = early or prefill.engine is Engine.VLLM
        smaller, larger = sorted((ours, theirs))
        yield Hit(
            (*prefill.places(*_SIZES), *decode.places(*_SIZES)),
            f"{label(prefill)} takes {ours} tokens of one request, {label(decode)} {theirs}: "
            f"between {smaller} and {larger} one half accepts what the other refuses.",
            f"Give both the same --context-length, at most {smaller}.",
            Severity.ADVICE if protected else Severity.LEAK,
        )


_SIZES = (Field.CONTEXT_TOKENS, Field.POOL_TOKENS)


def _most(member: Member) -> int | None:
    """Tokens of one request, None unless both limits are known, or the context alone is set."""
    known = [int(size) for size in map(member.number, _SIZES) if size is not None]
    return min(known) if len(known) == 2 or Field.CONTEXT_TOKENS in member.facts else None


def _below_one(fleet: Fleet) -> Seen:
    for member in fleet.of(Engine.VLLM):
        times = member.number(Field.CONCURRENCY) or _times(member)
        if times is not None and times < 1:
            yield Hit(
                member.places(Field.CONCURRENCY, *_SIZES),
                f"{label(member)}: the pool holds {times:.2g} requests of full length.",
                "Lower --max-model-len until at least one request of full length fits, or give the pool more memory.",
            )


def _times(member: Member) -> float | None:
    context, pool = (member.number(size) for size in _SIZES)
    return pool / context if context and pool is not None else None


RULES = (
    Rule(
        id="context-exceeds-pool",
        severity=Severity.LEAK,
        title="A context that the KV pool cannot hold",
        why="A prompt that fits the context and not the pool is refused only after its hand-off has begun. The other "
        "half may go on and answer from pages that nobody filled for it: another request's context, or noise. Where "
        "refusals are never handed off (SGLang from 0.5.21 on, Quiesce) the prompts fail, and nothing leaks.",
        sources=(sglang_issue(30233), sglang(38935), sglang_issue(4048)),
        check=_context_exceeds_pool,
    ),
    Rule(
        id="limits-differ",
        severity=Severity.LEAK,
        title="Prefill and decode accept different lengths",
        why="One half rejects what the other has accepted, so a hand-off exists that only one half knows to be over.",
        sources=(sglang_issue(30233), sglang(38935)),
        check=_limits_differ,
    ),
    Rule(
        id="pool-below-one-request",
        severity=Severity.HANG,
        title="Not even one request of full length fits the pool",
        why="A request of the advertised length waits for pages that will never be free, or fails at start.",
        sources=("https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",),
        check=_below_one,
    ),
)
