"""What can be said of a world, subject by subject, and what changed from one to the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace as changed

from quiesce.lab.explorer.world import World
from quiesce.lab.scenario.names import Names
from quiesce.lab.scenario.wording import JOIN, brief, notice, revoke
from quiesce.protocol import invariants, receiver_rules, sender_rules
from quiesce.protocol.attempt import AttemptState, Phase, PullState
from quiesce.protocol.record import Record, RequestState

View = dict[str, str]

GONE = "over"
SILENT_ENDS = ("due", "client of")
FATES = {"flying": "under way to", "unknown": "failed, may still land in", "shut": "kept out of"}
OWNERS = {
    Phase.COMMITTED: "read by",
    Phase.HOLDING: "held for",
    Phase.QUARANTINED: "quarantined for",
}


def view(world: World, names: Names) -> View:
    """Subject to what is so, in the order in which it is told."""
    said = [*_decode(world, names), *_prefills(world, names), *_pages(world, names), *_memory(world, names)]
    return dict([*said, *_writes(world, names), *_due(world, names), *_told(world, names)])


def outcome(before: World, after: World, names: Names, taken: Any = None) -> tuple[str, ...]:
    """What a move changed, a line each. `taken` is the message that the move itself took off the wire."""
    old, new = view(before, names), view(after, names)
    lines = [line(subject, said) for subject, said in new.items() if old.get(subject) != said]
    lines += [f"{subject}: {GONE}" for subject in old if subject not in new and not subject.startswith(SILENT_ENDS)]
    lines += sorted(f"sent: {_message(names, each)}" for each in after.net - before.net)
    lines += sorted(f"lost: {_message(names, each)}" for each in before.net - after.net if each != taken)
    was = broken(before, names)
    return (*lines, *(f"{wrong} broken: {how}" for wrong, how in broken(after, names).items() if wrong not in was))


def line(subject: str, said: str) -> str:
    return f"{subject}: {said}" if said else subject


def _message(names: Names, message: Any) -> str:
    """What is open is worth telling when something is closed."""
    said = names.message(message)
    return said if "closed" in said or "of prompt" in said or message.open_attempts is None else brief(said)


# ---------------------------------------------------------------- machines


def _decode(world: World, names: Names) -> Iterator[tuple[str, str]]:
    for number, attempt in sorted(world.receiver.attempts.items()):
        yield f"decode, {names.attempt(world.receiver.incarnation, number)}", _attempt(attempt, world, names)


def _attempt(attempt: AttemptState | PullState, world: World, names: Names) -> str:
    def of(places: Any) -> str:
        there = sorted(places)
        if world.config.ranks == 1:
            return " and ".join(names.prefill(each.peer) for each in there)
        return " and ".join(f"{names.prefill(each.peer)} for decode {each.decode_rank}" for each in there)

    facts: list[tuple[str, Any]] = [("BOUND by", attempt.bound)]
    if isinstance(attempt, PullState):
        facts.append(("OFFER by", attempt.offers))
        awaited = ("reads awaited from", {*attempt.outstanding.values(), *attempt.poisoned})
    else:
        facts.append(("DONE by", attempt.done))
        awaited = ("proof awaited of", set(receiver_rules.unproved(attempt)))
    facts = [awaited] if receiver_rules.is_held(attempt) else facts
    return ", ".join((str(attempt.phase), *(f"{word} {of(places)}" for word, places in facts if places)))


def _prefills(world: World, names: Names) -> Iterator[tuple[str, str]]:
    for state in world.senders:
        who = names.prefill(state.me)
        for name, request in sorted(state.requests.items()):
            yield f"{who}, prompt of {name}", _request(request, world)
        for key, record in sorted(state.records.items()):
            yield f"{who}, {names.key(key)}", _record(record)
        for room, digest in sorted(state.given_up):
            yield f"{who}, room {room} and {names.digest(digest)}", "given up"


def _request(request: RequestState, world: World) -> str:
    awaited = "ASK" if world.config.pull else "PUBLISH"
    held = {"failed": "failed, source pages held", "waiting": f"waits for {awaited}"}
    return held.get(request.phase, str(request.phase))


def _record(record: Record) -> str:
    facts = [str(record.phase)]
    if record.queued:
        facts.append(f"{len(record.queued)} queued")
    if record.outstanding:
        facts.append(f"{len(record.outstanding)} outstanding")
    if record.poisoned and record.phase != "poisoned":
        facts.append("poisoned")
    if sender_rules.is_lent(record) and record.phase != "offered":
        facts.append("lent")
    if record.fenced or record.source_fenced:
        facts.append("fenced" if record.fenced else "sources fenced")
    return ", ".join(facts)


# ---------------------------------------------------------------- pages, memory, writes


def _pages(world: World, names: Names) -> Iterator[tuple[str, str]]:
    for rank, free in enumerate(world.free):
        for page in range(world.config.pages):
            owners = ["free"] * (page in free) + list(_owners(world, names, rank, page))
            yield names.page(rank, page), " and ".join(owners) or "nobody's"


def _owners(world: World, names: Names, rank: int, page: int) -> Iterator[str]:
    cached = {each.page: each for each, _ in world.cached if each.decode_rank == rank}
    if page in cached:
        yield f"cached as {names.digest(cached[page].content.digest)}"
    for number, attempt in sorted(world.receiver.attempts.items()):
        if rank in attempt.released or page not in invariants.pages_of(attempt.leases[rank]) or page in cached:
            continue
        yield f"{OWNERS.get(attempt.phase, 'leased to')} {names.attempt(world.receiver.incarnation, number)}"


def _memory(world: World, names: Names) -> Iterator[tuple[str, str]]:
    for (rank, page, k), content in sorted(world.memory.items()):
        part = f", part of prefill {k}" if world.config.prefills > 1 else ""
        yield (
            f"memory of {names.page(rank, page)}{part}",
            f"{names.digest(content.digest)}, tag of {names.tag(content.tag)}",
        )


def _writes(world: World, names: Names) -> Iterator[tuple[str, str]]:
    for flown in sorted(world.flights, key=lambda flown: flown.flight):
        where = ", ".join(names.page(flown.flight.key.decode.rank, page) for page in flown.pages)
        yield names.write(flown.flight), f"{FATES.get(flown.state, flown.state)} {where}"
    if world.config.pull:
        yield from _reads(world, names)


def _reads(world: World, names: Names) -> Iterator[tuple[str, str]]:
    for fetch in sorted(world.air.flights, key=lambda fetch: fetch.flight):
        where = ", ".join(names.page(fetch.flight.key.decode.rank, page) for page in fetch.pages)
        what = f"has {names.digest(fetch.carries)}" if fetch.carries else "has read nothing yet"
        fate = "may land" if fetch.state == "unknown" else "under way"
        yield names.write(fetch.flight), f"{what}, {fate} to {where}"


def _due(world: World, names: Names) -> Iterator[tuple[str, str]]:
    due = [notice(where, fact, world, names) for where, fact in world.notices]
    due += [revoke(side.me, key, names) for side in world.prefills for key in side.revoking]
    if world.config.pull:
        due += [JOIN] if world.config.fence and world.asked else []
    elif world.config.fence:
        due += [f"fence {names.prefill(p)} for {names.attempt(world.receiver.incarnation, n)}" for n, p in world.asked]
    yield from ((f"due: {each}", "") for each in sorted(due))


def _told(world: World, names: Names) -> Iterator[tuple[str, str]]:
    for told in world.told:
        if told[1] == "failed" and told[0] == world.decode_life:
            yield f"client of {names.attempt(world.receiver.incarnation, told[2])}", "is told that it failed"


# ---------------------------------------------------------------- what is broken


def broken(world: World, names: Names) -> dict[str, str]:
    """The invariants that do not hold, each with what breaks it."""
    seen = world.copy()
    parts = () if world.config.pull else invariants.broken(seen.picture())
    found = {wrong.partition(":")[0]: "" for wrong in (*parts, seen.check(), seen.error) if wrong}
    return {name: WHY_IN_PULL.get(name, "") if world.config.pull else _why(name, seen, names) for name in found}


def _why(name: str, world: World, names: Names) -> str:
    picture = world.picture()
    flights = [
        each for each in sorted(picture.flights) if _is_at_fault(name, changed(picture, flights=frozenset({each})))
    ]
    writes = " and ".join(names.write(each) for each in flights)
    match name:
        case "no_wild_write":
            return f"{writes} may land in pages that its attempt does not own"
        case "no_wild_read":
            return f"{writes} reads source pages that were given away"
        case "no_early_ack":
            return f"{writes} is under way, and the message on the wire says that nothing is"
    return WHY.get(name, "")


def _is_at_fault(name: str, picture: invariants.Picture) -> bool:
    return any(wrong.startswith(name) for wrong in invariants.broken(picture))


WHY = {
    "no_alias": "two attempts may write one page",
    "read_own": "decode reads a page that is not its own request's context",
    "once": "something was released, told or counted twice",
    "no_poison": "a prefix tree has what was not verified",
    "no_leak": "the world is quiet, and something is still held without a reason that has a name",
}
WHY_IN_PULL = WHY | {
    "no_wild_write": "a read under way may land in pages that its attempt does not own",
    "no_wild_read": "a read under way may read source pages that were given away",
    "no_early_ack": "a read is under way, and a message on the wire says that nothing is",
}
