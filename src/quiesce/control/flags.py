"""Flags that routers and workers have alike."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

AnyAddress = Annotated[
    str,
    Meta(
        pattern=r"^(unix:/.*[^/\n]|tcp://.+:[0-9]+)$(?!\n)",
        extra={"shape": "unix:/absolute/path.sock or tcp://HOST:PORT"},
    ),
]
DnsServer = Annotated[
    str | None,
    Meta(min_length=1, description="IP:PORT to ask for --workers-srv, as Consul's :8600. Default: resolv.conf."),
]
TlsCert = Annotated[
    str | None, Meta(min_length=1, description="This process's certificate, PEM: TCP control is mutual TLS 1.3.")
]
TlsKey = Annotated[str | None, Meta(min_length=1, description="The key of --tls-cert, PEM.")]
TlsCa = Annotated[
    str | None, Meta(min_length=1, description="The CA that certificates of all peers must be signed by, PEM.")
]
Insecure = Annotated[bool, Meta(description="UNSAFE: TCP control without TLS: whoever reaches the port is trusted.")]
GraceS = Annotated[float, Meta(ge=0.0, description="How long SIGTERM lets running requests finish.")]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], Meta(description="How much is logged.")]
LogFormat = Annotated[Literal["text", "json"], Meta(description="Lines of key=value, or one JSON object a line.")]
OtlpEndpoint = Annotated[
    str | None,
    Meta(
        pattern=r"^https?://[^/?#\s@]+(/\S*)?$(?!\n)",
        description="Send traces there, OTLP over HTTP: http://127.0.0.1:4318/v1/traces. Needs the extra otel.",
        extra={"shape": "an http:// or https:// URL"},
    ),
]
