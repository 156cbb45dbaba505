"""What this worker says of itself in HELLO."""

from __future__ import annotations

import secrets

from quiesce.protocol.hello import PROTOCOL_VERSION, Capabilities, Hello
from quiesce.transport.registry import backend, secured_name
from quiesce.worker.parts import Parts
from quiesce.worker.reach import encrypts_pages
from quiesce.worker.settings import WorkerSettings


def hello_of(parts: Parts, capabilities: Capabilities) -> Hello:
    """A fresh HELLO; its nonce is new each time."""
    settings = parts.settings
    return Hello(
        version=PROTOCOL_VERSION,
        role=settings.role,
        worker=settings.name,
        incarnation=parts.incarnation,
        ranks=1,
        model_fingerprint=parts.engine.fingerprint,
        layout_fingerprint=parts.pool.layout.fingerprint(),
        payload_digest=settings.digest,
        transport=transport_name(settings),
        capabilities=capabilities,
        nonce=secrets.token_hex(16),
        transfer=settings.transfer,
    )


def transport_name(settings: WorkerSettings) -> str:
    """The backend that is meant, over TLS as another. Raises ConfigurationError when there is none of that name."""
    name = backend(settings.transport).name
    return secured_name(name) if encrypts_pages(settings) else name


def transport_facts(settings: WorkerSettings, capabilities: Capabilities) -> tuple[tuple[str, str], ...]:
    """For the start table: which transport, and what it can prove."""
    proofs = [name for name in ("drain_ack", "fence", "source_fence") if getattr(capabilities, name)]
    return (("transport", transport_name(settings)), ("proofs", ", ".join(proofs)))
