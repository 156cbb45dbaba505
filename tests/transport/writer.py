"""A real writer process: `writer.py <memfd> <descriptor in hex> <mode>`. Says what happens on stdout, line by line.

once      copies pages 0..3 into 4..7 with tag 77, says "landed" and ends
endless   copies pages with ever new bytes until it is killed; says "running" after the first round
held      starts a write that is held before its bytes, says "held", and lets it go at a line on stdin
"""

from __future__ import annotations

import select
import sys

import numpy as np

from quiesce.ids import PageTag
from quiesce.kv.runs import Pages
from quiesce.kv.storage import Pool
from quiesce.transport.contract import Write
from quiesce.transport.shm import ShmSender, ShmTarget

from .placements import LONG_S, Held
from .pools import LAYOUT, SOURCE_PAGES, whole_pool

TAG = PageTag(77)


def once(sender: ShmSender, target: ShmTarget) -> None:
    sender.launch(target, Write(1, _pages(0, 4), _pages(4, 8), TAG))
    _wait(sender)
    print("landed", flush=True)


def endless(source: Pool, sender: ShmSender, target: ShmTarget) -> None:
    random = np.random.default_rng(5)
    for number in range(2**62):
        source.page_view()[...] = number & 255
        shuffled = random.permutation(SOURCE_PAGES).astype(np.int32)
        sender.launch(target, Write(number, _pages(0, SOURCE_PAGES), shuffled, TAG))
        _wait(sender)
        if number == 0:
            print("running", flush=True)


def held(sender: ShmSender, target: ShmTarget, placement: Held) -> None:
    sender.launch(target, Write(1, _pages(0, 4), _pages(4, 8), TAG))
    placement.reached.wait(LONG_S)
    print("held", flush=True)
    sys.stdin.readline()
    placement.let_go.set()
    _wait(sender)
    print("landed", flush=True)


def _pages(first: int, end: int) -> Pages:
    return np.arange(first, end, dtype=np.int32)


def _wait(sender: ShmSender) -> None:
    while not sender.completions():
        select.select([sender.completion_fd], [], [])


def main(fd: int, descriptor: bytes, mode: str) -> None:
    source = Pool.private(LAYOUT, SOURCE_PAGES)
    source.page_view()[...] = 0x5A
    placement = Held()
    sender = ShmSender(source, placement=placement if mode == "held" else None)
    target = whole_pool(sender.open_target(descriptor, [fd]))
    if mode == "once":
        once(sender, target)
    elif mode == "held":
        held(sender, target, placement)
    else:
        endless(source, sender, target)
    sender.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), bytes.fromhex(sys.argv[2]), sys.argv[3])
