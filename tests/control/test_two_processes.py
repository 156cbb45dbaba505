from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from pathlib import Path

from quiesce.control import frames
from quiesce.control.handshake import offer
from quiesce.control.process_fd import pid_of
from quiesce.control.stream import dial

from .hellos import DECODE, PREFILL

_CHILD = """
import asyncio, os, sys
from quiesce.control.handshake import accept
from quiesce.control.hello_codec import decode_first
from quiesce.control.stream import first_frame, listen
from tests_hellos import PREFILL

async def serve(sock):
    opened = await accept(sock, await first_frame(sock, decode_first), PREFILL)
    os.pwrite(opened.fds[0], b"written by the other process", 0)
    sock.send(b"x")
    await asyncio.sleep(3600)

async def main():
    await listen(sys.argv[1], serve)
    print("up", flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


async def test_two_processes_share_memory_and_a_death_is_seen(run_dir: Path) -> None:
    """The pidfd that decode gets is prefill's: it becomes readable when prefill is killed, and not before."""
    hellos = "import msgspec\nfrom quiesce.protocol.hello import Hello\n"
    hellos += f"PREFILL = msgspec.msgpack.decode({frames.pack(PREFILL)!r}, type=Hello)\n"
    program = _CHILD.replace("from tests_hellos import PREFILL\n", hellos)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(run_dir / "p.sock"), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"up\n"
    pool = os.memfd_create("pool")
    sock = await dial(run_dir / "p.sock", 5)
    opened = await offer(sock, DECODE, lambda _: (b"pool", [pool]))
    assert await asyncio.get_running_loop().sock_recv(sock, 1) == b"x"
    assert os.pread(pool, 100, 0) == b"written by the other process"
    assert pid_of(opened.pidfd) == child.pid
    assert not select.select([opened.pidfd], [], [], 0)[0]
    child.send_signal(signal.SIGKILL)
    assert select.select([opened.pidfd], [], [], 10)[0]
    assert await child.wait() == -signal.SIGKILL
    child._transport.close()  # type: ignore[attr-defined]
    opened.close()
    os.close(pool)
    sock.close()
