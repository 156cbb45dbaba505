"""A whole transport: decode's pool is a file of the kernel's memory, and prefill writes into it with `pwrite`.

Only on one host, and for processes of one user. There is no fence: pages come back when prefill has acknowledged.
"""

import ctypes
import os

import msgspec

from quiesce.protocol.hello import Capabilities
from quiesce.transport.onesided import Line, OneSidedSender, PoolAddresses, addresses_of
from quiesce.transport.registry import Backend
from quiesce.transport.unfenced import UnfencedReceiver

SEEN = Capabilities(drain_ack=True, source_fence=True, bounds_checked=True)


class FileDescriptor(PoolAddresses, frozen=True):
    path: str
    begin: int  # where the receiver has mapped it


class FileLine(Line):
    def __init__(self, described):
        self._begin = described.begin
        self._fd = os.open(described.path, os.O_RDWR)

    def copy(self, copies, wanted):
        for source, target, n_bytes in copies.tolist():
            if os.pwrite(self._fd, (ctypes.c_char * n_bytes).from_address(source), target - self._begin) != n_bytes:
                return "not all of it was written"
        return ""

    def close(self):
        os.close(self._fd)


class FileSender(OneSidedSender):
    capabilities, descriptor = SEEN, FileDescriptor

    def _connect(self, described):
        return FileLine(described)


class FileReceiver(UnfencedReceiver):
    capabilities = SEEN

    def describe(self, peer):
        pool, path = self._pool, f"/proc/{os.getpid()}/fd/{self._pool.fd}"
        described = FileDescriptor(pool.layout, pool.pages, pool.slots, *addresses_of(pool), path, pool.base_address)
        return msgspec.msgpack.encode(described), []


BACKEND = Backend(
    *("file", SEEN, FileSender, lambda pool, host, port: FileReceiver(pool)),
    shared_pool=True,
    fence="never",
    reach="same host",
)
