"""The library, loaded only when it is needed, and agents that cost nothing when idle."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import struct
import threading
from types import ModuleType
from typing import Any

from quiesce.errors import MachineLacksError
from quiesce.protocol.hello import Capabilities
from quiesce.transport.onesided import PoolAddresses

VERIFIED = "1.5.1"
"""The version that the conformance suite was run against."""
REMEDY = "pip install --no-deps nixl-cu12, on Linux for x86-64 or ARM."
# No fence: the receiver checks nothing, so nothing that it does stops a writer (measured; docs/backends.md).
NIXL_CAPABILITIES = Capabilities(drain_ack=True, source_fence=True, bounds_checked=True, pull=True)
PROGRESS_US = 10_000
"""What a receiver's progress thread waits for an event at most. With the library's own 0 it never sleeps."""
DEFAULTS = {
    "UCX_TLS": "tcp",  # what was verified
    "UCX_MODULES": "^ib",  # else Debian's libibverbs ends the process when it exits
    "UCX_HANDLE_ERRORS": "none",  # signals are ours
    "UCX_LOG_LEVEL": "error",
    "NIXL_LOG_LEVEL": "ERROR",
}
_SIOCGIFADDR = 0x8915
_ENVIRONMENT = threading.Lock()
"""UCX reads its devices from the environment whenever an agent is made."""


class NixlDescriptor(PoolAddresses, frozen=True):
    """`agent` names this life of the receiver, `metadata` is its own description, `host` an address of its device."""

    agent: str
    metadata: bytes
    host: str


def unverified() -> str:
    """What of UCX's configuration no suite has seen, or ""."""
    chosen = os.environ.get("UCX_TLS", DEFAULTS["UCX_TLS"])
    return "" if chosen == DEFAULTS["UCX_TLS"] else f"UCX_TLS={chosen}, but with {DEFAULTS['UCX_TLS']} only"


def library() -> ModuleType:
    """The library's bindings. Raises MachineLacksError when they, or what they need, are not here."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    raises = logging.raiseExceptions
    try:
        import nixl_cu12._bindings as bindings
    except ImportError as error:
        raise MachineLacksError(f"NIXL cannot be loaded: {error}", remedy=REMEDY) from error
    finally:
        logging.raiseExceptions = raises  # the library switches it off for everybody
    found: ModuleType = bindings
    return found


def agent(name: str, host: str, *, progress: bool) -> Any:
    """An agent that listens on the device of `host` only. With `progress` the library's own thread serves it.

    Raises MachineLacksError.
    """
    nixl = library()
    wanted = nixl.nixlAgentConfig()
    wanted.useProgThread = progress
    wanted.pthrDelay = PROGRESS_US
    wanted.syncMode = nixl.NIXL_THREAD_SYNC_STRICT
    made = nixl.nixlAgent(name, wanted)
    with _ENVIRONMENT:
        before = os.environ.get("UCX_NET_DEVICES")
        os.environ["UCX_NET_DEVICES"] = before or device_towards(host)
        try:
            made.createBackend("UCX", made.getPluginParams("UCX")[0])
        except Exception as error:  # whatever the library raises
            raise MachineLacksError(f"NIXL cannot listen at {host}: {error}") from error
        finally:
            if before is None:
                del os.environ["UCX_NET_DEVICES"]
    return made


def memory(*regions: tuple[int, int]) -> Any:
    """What an agent registers: (address, bytes) of each region."""
    nixl = library()
    return nixl.nixlRegDList(nixl.DRAM_SEG, [(*region, 0, b"") for region in regions if region[1]])


def device_towards(host: str) -> str:
    """The network device on which `host` is reached, or has its address. Raises MachineLacksError."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((host, 9))  # sends nothing
            own = sock.getsockname()[0]
            devices = [name for _, name in socket.if_nameindex() if _address_of(sock, name) == own]
    except OSError as error:
        raise MachineLacksError(f"no network device leads to {host}: {error}") from error
    if own.startswith("127."):
        return "lo"
    if not devices:
        raise MachineLacksError(f"no network device has the address {own}, from which {host} is reached")
    return devices[0]


def _address_of(sock: socket.socket, device: str) -> str:
    try:
        answer = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", device.encode()[:15]))
    except OSError:  # it has none
        return ""
    return socket.inet_ntoa(answer[20:24])
