"""The backend under test: one that the registry knows, or `package.module:ATTRIBUTE` of one that is being written.

`tcp+tls=DIR` is `tcp` over TLS, with the certificates of `prefill-0` and `decode-0` that `quiesce certs DIR` makes.
`shm+segments` is `shm` as `--landing staged` has it: each lease lands in memory of its own.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from msgspec.structs import replace

from quiesce.errors import ConfigurationError
from quiesce.transport import registry
from quiesce.transport.conformance.segmented import LeaseByLease
from quiesce.transport.registry import Backend, secured_name
from quiesce.transport.shm_segments import SegmentReceiver
from quiesce.trust.contexts import load_tls

_OVER = secured_name("") + "="
_SEGMENTS = "+segments"
_BOTH = WRITER, READER = "prefill-0", "decode-0"


def trial_of(name: str, directory: Path) -> str:
    """`name` over TLS, as `candidate` knows it, with certificates that are made for it in an empty `directory`.

    Raises ModuleNotFoundError where the extra `hosts` is not installed.
    """
    from quiesce.trust.certificates import Leaf, make_certificates

    leaves = [Leaf(each, each.replace("-0", f"/{each}"), ("127.0.0.1",)) for each in (WRITER, READER)]
    make_certificates(directory, leaves, days=1)
    return f"{name}{_OVER}{directory}"


def segments_of(name: str) -> str:
    """`name` with a segment for each lease, as `candidate` knows it."""
    return f"{name}{_SEGMENTS}"


def _segmented(name: str) -> Backend:
    over = registry.backend(name)
    if over.segmented is not SegmentReceiver:
        raise ConfigurationError([f"{name} lends no segments"])
    return replace(
        over,
        name=segments_of(name),
        receiver=lambda pool, _host, _port: LeaseByLease(pool),
        fence="whoever writes late writes into memory that nobody reads",
        segmented=None,
        lease_bound=True,
    )


def _secured(name: str, directory: str) -> Backend:
    secured = registry.backend(name).secured
    if secured is None:
        raise ConfigurationError([f"pages of {name} cannot be encrypted"])
    shown = (load_tls(f"{directory}/{each}.pem", f"{directory}/{each}.key", f"{directory}/ca.pem") for each in _BOTH)
    prefill, decode = map(secured, shown)
    return replace(prefill, receiver=decode.receiver, puller=decode.puller)


def candidate(name: str) -> Backend:
    """Raises ConfigurationError when there is no such backend."""
    if _OVER in name:
        return _secured(*name.split(_OVER, 1))
    if name.endswith(_SEGMENTS):
        return _segmented(name.removesuffix(_SEGMENTS))
    module, _, attribute = name.partition(":")
    if not attribute:
        return registry.backend(name)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError([f"{name!r} cannot be imported: {error}"]) from error
    if not isinstance(found, Backend):
        raise ConfigurationError([f"{name!r} is no transport.registry.Backend"])
    return found
