"""Moves of the explorer as commands, and commands as moves."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from quiesce.ids import AttemptKey, Peer
from quiesce.lab.explorer.move import DECODE
from quiesce.lab.explorer.moves import Step, successors
from quiesce.lab.explorer.reads import Fetch
from quiesce.lab.explorer.world import World
from quiesce.lab.scenario.names import Names
from quiesce.protocol.invariants import Cached, Flight
from quiesce.protocol.lender_io import ReaderDead
from quiesce.protocol.messages import Envelope
from quiesce.protocol.receiver_io import PeerReplaced, StreamLost
from quiesce.protocol.sender_io import DecodeLost, DecodeReplaced

_DETAIL = re.compile(r" \([^()]*\)$")


def command_of(label: Any, world: World, names: Names) -> str:
    """The command for a move of `successors(world)`, with every detail; moves unknown here are spelt out."""
    match label:
        case ("submit", name):
            return f"submit {name}"
        case ("arrive", int(k), name):
            return f"arrive {name} at {_prefill(world, names, k)}"
        case ("compute", int(k), request, chunk):
            part = f" chunk {chunk}" if world.config.chunks > 1 else ""
            return f"compute {request}{part} at {_prefill(world, names, k)}"
        case ("ended", int(k), request):
            return f"end {request} at {_prefill(world, names, k)}"
        case (("finish" | "abort") as verb, int(number)):
            return f"{verb} {names.attempt(world.receiver.incarnation, number)}"  # type: ignore[arg-type]
        case ("evict", Cached() as cached, at):
            return f"evict page {at} of {names.digest(cached.content.digest)}{_of_decode(world, cached.decode_rank)}"
        case (("deliver" | "lose") as verb, Envelope() as message):
            return f"{verb} {names.message(message)}"
        case ("deliver, copy stays", Envelope() as message):
            return f"deliver a copy of {names.message(message)}"
        case (str(verb), (Flight() | Fetch()) as moved, *_):
            what, how = _WRITES.get(verb, (verb, ""))
            return f"{what} {names.write(moved if isinstance(moved, Flight) else moved.flight, how)}"
        case _:
            return _command_about_peers(label, world, names)


_WRITES = {
    "vanishes": ("drop", ""),
    "failed_in_flight": ("fail", " in flight"),
    "failed_quiesced": ("fail", " for good"),
    "error of fenced write": ("end", " at the fence"),
}


def _command_about_peers(label: Any, world: World, names: Names) -> str:
    match label:
        case ("notice", int(where), fact):
            return notice(where, fact, world, names)
        case ("fence", number, Peer() as peer):
            return f"fence {names.prefill(peer)} for {names.attempt(world.receiver.incarnation, number)}"
        case ("cut", int(k)):
            return f"cut the stream to {_prefill(world, names, k)}"
        case ("crash prefill", int(k)):
            return f"crash {_prefill(world, names, k)}"
        case ("crash decode",):
            return "crash decode"
        case ("close endpoint", int(k)):
            return f"close the endpoint of {_prefill(world, names, k)}"
        case ("clock", int(where), subject, timer):
            place = "decode" if where == DECODE else _prefill(world, names, where)
            return f"clock {timer.name} {_subject(subject, world, names)} at {place}"
        case _:
            return _command_in_pull(label, world, names)


def _command_in_pull(label: Any, world: World, names: Names) -> str:
    match label:
        case ("revoke", Peer() as peer, AttemptKey() as key):
            return revoke(peer, key, names)
        case ("join",):
            return JOIN
        case ("join, unasked",):
            return f"{JOIN} unasked"
        case ("rumour", int(k)):
            return f"tell {_prefill(world, names, k)} that decode is replaced"
        case (str(verb), *words):
            return " ".join((verb.replace("_", " "), *(_spelt(word, world, names) for word in words)))
    return str(label)


JOIN = "close decode's endpoint"


def revoke(lender: Peer, key: AttemptKey, names: Names) -> str:
    return f"revoke the window of {names.prefill(lender)} to {names.key(key)}"


def notice(where: int, fact: Any, world: World, names: Names) -> str:
    """A fact that one side is still to learn; also the command that lets it."""
    who = "decode" if where == DECODE else _prefill(world, names, where)
    match fact:
        case StreamLost(peer=peer):
            return f"{who} learns that its stream to {names.prefill(peer)} is lost"
        case PeerReplaced(old=old):
            return f"{who} learns that {names.prefill(old)} is dead"
        case DecodeLost(decode=decode):
            return f"{who} learns that its stream to {names.decode(decode)} is lost"
        case DecodeReplaced(old=old):
            return f"{who} learns that {names.decode(old)} is {'replaced' if world.config.pull else 'dead'}"
        case ReaderDead(peer=peer):
            return f"{who} learns for certain that {names.decode(peer)} is dead"
    return f"{who} learns {type(fact).__name__}"


def _prefill(world: World, names: Names, k: int) -> str:
    return names.prefill(world.senders[k].me)


def _of_decode(world: World, rank: int) -> str:
    return f" at decode {rank}" if world.config.ranks > 1 else ""


def _subject(subject: Any, world: World, names: Names) -> str:
    match subject:
        case AttemptKey():
            return names.key(subject)
        case int():
            return names.attempt(world.receiver.incarnation, subject)  # type: ignore[arg-type]
        case (room, digest):
            return f"room {room} and {names.digest(digest)}"
    return str(subject)


def _spelt(word: Any, world: World, names: Names) -> str:
    match word:
        case Peer():
            return names.prefill(word)
        case AttemptKey():
            return names.key(word)
        case Envelope():
            return names.message(word)
        case Flight():
            return names.write(word)
    return str(word)


# ---------------------------------------------------------------- from a command to its move


def brief(command: str) -> str:
    """Without the detail in brackets at its end."""
    return _DETAIL.sub("", command)


class Choices:
    """What can happen next in a world, by command."""

    def __init__(self, world: World, names: Names) -> None:
        self._steps: dict[str, list[Step]] = {}
        for step in sorted(successors(world), key=lambda step: repr(step[0])):
            self._steps.setdefault(command_of(step[0], world, names), []).append(step)
        self._brief = Counter(brief(command) for command in self._steps)

    def said(self, command: str) -> str:
        """As short as it can be said here."""
        short = brief(command)
        return short if self._brief[short] == 1 else command

    def possible(self) -> list[str]:
        return sorted(self.said(command) for command in self._steps)

    def meant(self, command: str) -> list[str]:
        """The full commands that this one may mean: none, one, or several when it is ambiguous."""
        if command in self._steps:
            return [command]
        return sorted(each for each in self._steps if brief(each) == command)

    def step(self, command: str) -> Step:
        """The move of a full command. Two moves that read alike also do alike."""
        return self._steps[command][0]

    def command_for(self, label: Any) -> str | None:
        """The full command for a move, None if it cannot be made here."""
        found = (command for command, steps in self._steps.items() for each, _ in steps if each == label)
        return next(found, None)
