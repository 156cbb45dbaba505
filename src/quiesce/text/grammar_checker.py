"""A process that does nothing but try out grammars, so that one which explodes takes nobody with it.

It reads `Job`s from its standard input and writes a `Verdict` for each, after a first one that says that it is ready.
Each job gets a process of its own, forked from the one that has the vocabulary; the kernel ends it when it takes too
much, and nothing of it is left.
"""

from __future__ import annotations

import os
import resource
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import msgspec

if TYPE_CHECKING:  # who only speaks with the process needs no llguidance
    from quiesce.text.grammars import Grammars

JOB_CPU_S = 2
"""CPU time, not time: a busy machine refuses nothing that an idle one takes."""

JOB_BYTES = 1 << 30
"""Address space beyond what the process has when it is ready."""

LENGTH = struct.Struct("<I")


class Job(msgspec.Struct, frozen=True):
    """A grammar as it was asked for."""

    kind: str
    text: str


class Verdict(msgspec.Struct, frozen=True):
    """The grammar in llguidance's terms, or the `problem` with it."""

    grammar: str = ""
    problem: str = ""


TOO_MUCH = Verdict(problem="it takes too much time or memory to compile")


def frame(message: Job | Verdict) -> bytes:
    """A message as it travels: its length (uint32, little endian) and msgpack."""
    payload = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(payload)) + payload


def run(model: str, jobs: BinaryIO, verdicts: BinaryIO) -> None:
    """Serve until the end of `jobs`."""
    from quiesce.text.grammars import Grammars, Unusable
    from quiesce.text.model import TextModel

    try:
        grammars = Grammars(TextModel.load(model))
    except Unusable as error:
        _say(verdicts, Verdict(problem=str(error)))
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _say(verdicts, Verdict())
    while head := jobs.read(LENGTH.size):
        job = msgspec.msgpack.decode(jobs.read(*LENGTH.unpack(head)), type=Job)
        _say(verdicts, _tried(grammars, job))


def _tried(grammars: Grammars, job: Job) -> Verdict:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _judge_and_exit(grammars, job, writing)
    os.close(writing)
    with open(reading, "rb") as told:  # noqa: PTH123 - a descriptor
        payload = told.read()
    _, status = os.waitpid(child, 0)
    return TOO_MUCH if status else msgspec.msgpack.decode(payload, type=Verdict)


def _judge_and_exit(grammars: Grammars, job: Job, writing: int) -> NoReturn:
    """In the forked process. Whatever goes wrong, it does not return."""
    code = 1
    try:
        _limit()
        with open(writing, "wb") as telling:
            telling.write(msgspec.msgpack.encode(_judged(grammars, job)))
        code = 0
    finally:
        os._exit(code)


def _judged(grammars: Grammars, job: Job) -> Verdict:
    from quiesce.text.grammars import Unusable, as_grammar

    try:
        grammar = as_grammar(job.kind, job.text)
        grammars.check(grammar)
    except Unusable as error:
        return Verdict(problem=str(error) or "it cannot be read")
    return Verdict(grammar)


def _limit() -> None:
    used_bytes = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + JOB_BYTES, used_bytes + JOB_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (JOB_CPU_S, JOB_CPU_S + 1))


def _say(verdicts: BinaryIO, verdict: Verdict) -> None:
    verdicts.write(frame(verdict))
    verdicts.flush()


if __name__ == "__main__":
    run(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
