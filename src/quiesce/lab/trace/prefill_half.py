"""What the lines of one prefill life did to its records, each step held against the model's actions at prefill."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from quiesce.lab.trace.breach import Blame
from quiesce.lab.trace.line import Line
from quiesce.lab.trace.text import HIDDEN, Lease, Message, Node, Told, life_of, split_key


@dataclass
class Kept:
    """One attempt at this rank. `is_sure`: the lines have all of it; else what is not seen may have been earlier."""

    key: str
    is_sure: bool
    lease: Lease | None = None
    room: object = None
    digest: str = HIDDEN
    request: str | None = None
    is_bound: bool = False
    ended_by: str = ""
    is_aborted: bool = False
    is_acked: bool = False
    is_done: bool = False
    is_poisoned: bool = False
    is_fenced: bool = False
    outstanding: dict[int, frozenset[int]] = field(default_factory=dict)
    landed: set[int] = field(default_factory=set)

    def end(self, reason: str) -> None:
        self.ended_by = self.ended_by or reason


@dataclass
class Asked:
    """A request at prefill."""

    room: object
    digest: str
    is_released: bool = False


class PrefillHalf:
    """`take` each line in order. `is_whole`: the lines begin with the life."""

    _kind = Kept

    def __init__(self, life: str, blame: Blame) -> None:
        self.life = life
        self.kept: dict[str, Kept] = {}
        self.is_whole = True
        self._blame = blame
        self._forget_all()

    def _forget_all(self) -> None:
        self._asked: dict[str, Asked] = {}
        self._told: defaultdict[str, set[Told]] = defaultdict(set)
        self._dead: set[str] = set()
        self._last_write = 0
        self._is_source_fenced = False

    def begin_anew(self) -> None:
        """Lines are missing here: of what was before, nothing is sure."""
        self.kept.clear()
        self._forget_all()
        self.is_whole = False

    def is_closed(self, key: str) -> bool:
        """Rule 9, monotone: any message that was heard said so."""
        decode, number = split_key(key)
        return any(told.is_closed(number) for told in self._told[life_of(decode)])

    def take(self, line: Line, is_seen: bool) -> None:
        """`is_seen` matters to decode only."""
        self._learn(line)
        for effect in line.effects:
            check = self._CHECKS.get(effect.name)
            if check is not None:
                check(self, line, effect)

    def _of(self, key: str, *, is_fresh: bool = False) -> Kept:
        """What is known of the attempt; made when the lines never spoke of it."""
        if key not in self.kept:
            self.kept[key] = self._kind(key, is_sure=self.is_whole or is_fresh)
        return self.kept[key]

    # ------------------------------------------------------------ facts

    def _learn(self, line: Line) -> None:
        fact = line.fact
        if fact.name == "Heard" and line.heard is not None:
            self._hear(line, line.heard)
        elif fact.name == "Arrived":
            self._asked.setdefault(fact["request"], Asked(fact["room"], fact.get("digest", HIDDEN)))
        elif fact.name == "WriteSettled":
            self._settle(line)
        elif fact.name == "DecodeReplaced":
            self._bury(life_of(fact["old"]))
        elif fact.name == "SourceFenced":
            self._is_source_fenced = True

    def _bury(self, life: str) -> None:
        self._dead.add(life)
        for kept in self.kept.values():
            if life_of(split_key(kept.key)[0]) == life:
                kept.end("buried_is_refused")

    def _hear(self, line: Line, said: Message) -> None:
        if life_of(said.to) != self.life or life_of(said.sender) in self._dead:
            self._must_ignore(line, said)
            return
        if said.open is not None:
            self._told[life_of(said.sender)].add(said.open)
        key = said.key_at(said.sender)
        if self.is_closed(key):
            if key in self.kept:
                self.kept[key].end("closed_is_refused")
            return
        self._obeyed(self._of(key, is_fresh=begins(line, key)), said)

    def _obeyed(self, kept: Kept, said: Message) -> None:
        if said.kind == "publish" and kept.lease is None:
            kept.lease, kept.room, kept.digest = said.fields["lease"], said.fields["room"], said.fields["digest"]
        elif said.kind == "abort":
            kept.is_aborted = True
            kept.end("queue_is_dropped")
        elif said.kind in ("fenced", "fail"):
            kept.is_fenced |= said.kind == "fenced"
            kept.end("tombstones")

    def _must_ignore(self, line: Line, said: Message) -> None:
        if any(effect.name != "SenderIgnored" for effect in line.effects):
            self._blame(
                line, f"hear_{said.kind}", "buried_is_refused", f"{said.kind} of or for an earlier life is obeyed"
            )

    def _settle(self, line: Line) -> None:
        fact = line.fact
        kept = self._of(fact["key"])
        pages = kept.outstanding.pop(fact["write"], None)
        if pages is None:
            if kept.is_sure and not line.has("SenderIgnored"):
                self._blame(line, fact["outcome"], "write_in_order", f"write {fact['write']} was not under way")
        elif fact["outcome"] == "landed":
            kept.landed |= pages
        else:
            kept.end("failure_stops")
            kept.is_poisoned |= fact["outcome"] == "failed_in_flight" and not kept.is_fenced

    # ------------------------------------------------------------ replies

    def _reply(self, line: Line, effect: Node) -> None:
        said: Message = effect["envelope"]
        kept = self._of(said.key_at(said.to))
        if said.kind == "bound":
            self._check_bound(line, kept)
        elif said.kind == "done":
            self._check_done(line, kept)
        elif said.kind == "abort_ack":
            self._check_ack(line, kept, said)

    def _check_bound(self, line: Line, kept: Kept) -> None:
        why = self._why_over(kept)
        if why:
            self._blame(line, "bind", why, f"{kept.key} is bound although it has ended")
        if kept.is_sure and kept.lease is None:
            self._blame(line, "bind", "bound_was_granted", f"{kept.key} was never published here")
        kept.is_bound = True

    def _why_over(self, kept: Kept) -> str:
        """The rule by which nothing may begin any more, or nothing."""
        if self.is_closed(kept.key):
            return "closed_is_refused"
        if life_of(split_key(kept.key)[0]) in self._dead:
            return "buried_is_refused"
        return "tombstones" if kept.ended_by or kept.is_acked or kept.is_done else ""

    def _check_done(self, line: Line, kept: Kept) -> None:
        if kept.is_done:
            return
        if kept.is_poisoned:
            self._blame(line, "send_done", "poisoned_is_not_acked", f"DONE of {kept.key}: a write has an unknown fate")
        elif kept.ended_by:
            self._blame(line, "send_done", kept.ended_by, f"DONE of {kept.key}, which has ended")
        elif kept.outstanding:
            why = f"DONE of {kept.key} while writes {sorted(kept.outstanding)} are outstanding"
            self._blame(line, "send_done", "ack_awaits_outstanding", why)
        elif kept.is_sure and kept.lease is not None and len(kept.landed) != kept.lease.pages:
            why = f"DONE of {kept.key}: {len(kept.landed)} of {kept.lease.pages} pages have landed"
            self._blame(line, "send_done", "done_is_clean", why)
        kept.is_done = True

    def _check_ack(self, line: Line, kept: Kept, said: Message) -> None:
        about = f"ABORT_ACK of {kept.key}"
        if self.is_closed(kept.key):
            self._blame(line, "send_ack", "closed_is_silent", f"{about}, which is closed")
        elif kept.is_sure and not kept.is_aborted:
            self._blame(line, "send_ack", "tombstone_before_ack", f"{about}: no ABORT was heard")
        if kept.is_poisoned:
            self._blame(line, "send_ack", "poisoned_is_not_acked", f"{about}: a write has an unknown fate")
        if kept.outstanding or said.fields.get("outstanding"):
            why = f"{about} while writes {sorted(kept.outstanding)} are outstanding"
            self._blame(line, "send_ack", "ack_awaits_outstanding", why)
        kept.is_acked = True

    # ------------------------------------------------------------ writes and sources

    def _launch(self, line: Line, effect: Node) -> None:
        kept, write, request = self._of(effect["key"]), effect["write"], effect["request"]
        first, pages = effect["first_page"], effect["pages"]
        self._check_launch(line, kept, effect)
        if write <= self._last_write:
            self._blame(line, "launch", "write_in_order", f"write {write} after write {self._last_write}")
        self._last_write = max(write, self._last_write)
        kept.request = request
        kept.outstanding[write] = frozenset(range(first, first + pages))
        asked = self._asked.get(request)
        if asked is not None:
            self._check_pair(line, kept, asked)
            if asked.is_released:
                self._blame(line, "dequeue", "dequeued_keeps_source", f"the source of {request} was released")

    def _check_launch(self, line: Line, kept: Kept, effect: Node) -> None:
        about = f"write {effect['write']} of {kept.key}"
        why = self._why_over(kept)
        if why:
            self._blame(line, "dequeue", kept.ended_by or why, f"{about}, which has ended")
        if kept.is_sure and not kept.is_bound:
            self._blame(line, "dequeue", "bound_was_granted", f"{about}, which was never bound")
        lease: Lease = effect["lease"]
        if effect["first_page"] + effect["pages"] > lease.pages or kept.lease not in (None, lease):
            self._blame(line, "dequeue", "dequeued_is_granted", f"{about} leaves the lease that was published")

    def _check_pair(self, line: Line, kept: Kept, asked: Asked) -> None:
        hidden = HIDDEN in (kept.digest, asked.digest)
        same = kept.room == asked.room and (hidden or kept.digest == asked.digest)
        if kept.lease is not None and not same:
            self._blame(line, "bind", "digest_pairs", f"{kept.key} was bound to a request of another room or digest")

    def _release_source(self, line: Line, effect: Node) -> None:
        request = effect["request"]
        asked = self._asked.get(request)
        if asked is not None and asked.is_released:
            self._blame(line, "reuse_source", "released_once", f"the source of {request} once more")
        for kept in self.kept.values():
            if kept.request == request and not self._is_kept_out(kept):
                self._check_source(line, kept, effect["proof"])
        if asked is not None:
            asked.is_released = True

    def _is_kept_out(self, kept: Kept) -> bool:
        """Rule 13: its writes read no source any more, however they end."""
        return kept.is_fenced or self._is_source_fenced or self.is_closed(kept.key)

    def _check_source(self, line: Line, kept: Kept, proof: str) -> None:
        about = f"the source of {kept.request} is released as {proof}"
        if kept.outstanding:
            why = f"{about} while writes {sorted(kept.outstanding)} of {kept.key} are outstanding"
            self._blame(line, "reuse_source", "failed_holds_source", why)
        if kept.is_poisoned:
            self._blame(line, "reuse_source", "poisoned_holds_source", f"{about}; a write may read it still")

    def _cache_source(self, line: Line, effect: Node) -> None:
        request = effect["request"]
        undone = [kept.key for kept in self.kept.values() if kept.request == request and not kept.is_done]
        if undone or not line.has("PrefillDone", request=request):
            self._blame(line, "cache", "only_committed_is_cached", f"the source of {request}, which is not done")

    _CHECKS: ClassVar[dict[str, Callable[[Any, Line, Node], None]]] = {
        "Reply": _reply,
        "Launch": _launch,
        "ReleaseSource": _release_source,
        "CacheSource": _cache_source,
    }


def begins(line: Line, key: str) -> bool:
    """Whether this step makes the record of an attempt: nothing was said or written of it before."""
    heard = line.heard
    if heard is None or heard.kind not in ("publish", "ask") or heard.key_at(heard.sender) != key:
        return False
    return line.has("StartSenderTimer", subject=key)
