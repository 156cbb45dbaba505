"""What a worker can be told. Each field is a flag (`--page-size`), a QUIESCE_ variable and a TOML key."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from quiesce.control import flags
from quiesce.control.address import TcpAddress, is_wildcard, parse_address

Role = Literal["prefill", "decode", "aggregated"]


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one prefill, decode or aggregated worker process. Durations are seconds."""

    role: Role
    name: Annotated[str, Meta(description="Name of this worker, unique among its peers.")]
    listen: Annotated[
        flags.AnyAddress,
        Meta(description="Where to listen: unix:/path/to.sock, in a directory only you can use, or tcp://HOST:PORT."),
    ]
    peer: Annotated[
        tuple[str, ...],
        Meta(description="decode only: a prefill worker to pair with, NAME=ADDRESS as --listen. Repeatable."),
    ] = ()
    workers_file: Annotated[
        str | None,
        Meta(min_length=1, description="decode only: TOML file of workers; its prefill workers are paired with too."),
    ] = None
    workers_srv: Annotated[
        tuple[str, ...],
        Meta(
            description="decode only: a DNS name whose SRV records say where prefill workers are, looked up again as "
            "its TTL says. Repeatable."
        ),
    ] = ()
    dns_server: flags.DnsServer = None
    register: Annotated[
        tuple[str, ...],
        Meta(
            description="A router to announce this worker to, its --control-listen. Decode learns of prefill workers "
            "there. Repeatable."
        ),
    ] = ()
    advertise: Annotated[
        flags.AnyAddress | None,
        Meta(description="Where others dial this worker, for --register. Default: --listen."),
    ] = None
    tls_cert: flags.TlsCert = None
    tls_key: flags.TlsKey = None
    tls_ca: flags.TlsCa = None
    insecure: flags.Insecure = False
    model: Annotated[str, Meta(description="smollm2, tiny, a Hugging Face directory, a .gguf file, or a hub id.")] = (
        "smollm2"
    )
    dtype: Annotated[Literal["float32"], Meta(description="Type of weights and KV cache.")] = "float32"
    threads: Annotated[int, Meta(ge=1, le=1024, description="Compute threads of this worker.")] = 1
    deterministic: Annotated[
        bool, Meta(description="A row's bits never depend on what it is batched with. Slower.")
    ] = False
    context_length: Annotated[
        int | None, Meta(ge=2, description="Longest prompt plus answer, in tokens. Default: the model's.")
    ] = None
    pool_tokens: Annotated[
        int | None, Meta(ge=1, description="Size of the KV pool in tokens. Default: --memory-share of free memory.")
    ] = None
    memory_share: Annotated[
        float, Meta(gt=0.0, le=0.9, description="Share of the free memory that the default pool may take.")
    ] = 0.15
    allow_small_pool: Annotated[
        bool, Meta(description="Start although the context does not fit the pool; longer requests are refused.")
    ] = False
    page_size: Annotated[int, Meta(ge=1, le=1024, description="Tokens per KV page.")] = 16
    prefix_cache: Annotated[
        Literal["on", "off"],
        Meta(description="Keep pages of prompts (decode: of answers too) for those that begin alike."),
    ] = "on"
    max_prefill_tokens: Annotated[int, Meta(ge=1, description="Tokens per prefill chunk.")] = 512
    max_running_requests: Annotated[int, Meta(ge=1, le=4096, description="Requests decoded in one batch.")] = 32
    headroom_tokens: Annotated[
        int, Meta(ge=1, description="Tokens that each running request may still grow by before a new one gets pages.")
    ] = 256
    max_queue: Annotated[int, Meta(ge=0, description="Requests that may wait at this worker; more get 429.")] = 256
    transport: Annotated[
        str,
        Meta(
            max_length=64,
            description="How pages travel: shm, tcp, mooncake, nixl, or one that a package offers. auto takes shm "
            "on one host, tcp between hosts.",
        ),
    ] = "auto"
    transfer: Annotated[
        Literal["push", "pull"],
        Meta(
            description="Who moves the pages: push, prefill writes them into decode's memory; pull, decode reads them "
            "out of prefill's (tcp, nixl). The same on both sides."
        ),
    ] = "push"
    data_host: Annotated[
        str | None,
        Meta(
            min_length=1,
            description="Address on which decode takes page data (--transport tcp); prefill connects to it. With "
            "--transfer pull, prefill gives it there and decode connects. Default: the host that the worker "
            "listens on over tcp (advertises, where that is 0.0.0.0 or ::), else 127.0.0.1.",
        ),
    ] = None
    data_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="First decode worker's port for page data (--transport tcp), with --transfer pull the first "
            "prefill worker's; 0 takes free ones.",
        ),
    ] = 0
    data_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=16,
            description="Connections for page data to each peer (--transport tcp alone), as whoever dials makes them: "
            "prefill, with --transfer pull decode. More are worth it over TLS, where one core bounds each, and "
            "for several writes at once; in plain one fills two cores.",
        ),
    ] = 1
    data_tls: Annotated[
        Literal["auto", "on", "off"],
        Meta(
            description="Page data (--transport tcp) inside mutual TLS 1.3. auto: if there is --tls-cert. "
            "Both workers of a pair must have it alike."
        ),
    ] = "auto"
    trust_network: Annotated[
        bool,
        Meta(description="Allow a transport that asks nobody who they are (mooncake, nixl)."),
    ] = False
    trust_transport: Annotated[
        bool, Meta(description="Allow a transport, or its library, in a version that was never verified.")
    ] = False
    transfer_batch_pages: Annotated[
        int, Meta(ge=0, description="Most pages in one launched write or read; 0 moves a chunk in one.")
    ] = 0
    call_deadline_s: Annotated[
        float,
        Meta(gt=0.0, description="A launched write or read that takes longer counts as failed, perhaps in flight."),
    ] = 30.0
    hold_deadline_s: Annotated[
        float, Meta(gt=0.0, description="How long a hold waits for proof before it is fenced or quarantined.")
    ] = 30.0
    resend_s: Annotated[float, Meta(gt=0.0, description="First wait before an unanswered message is sent again.")] = 0.5
    fence_policy: Annotated[
        Literal["quarantine", "fence"],
        Meta(
            description="At the hold deadline: quarantine, or also kill the writer (pull: close decode's endpoint), "
            "which fails other requests."
        ),
    ] = "quarantine"
    quarantine_budget: Annotated[
        float,
        Meta(ge=0.0, le=1.0, description="Share of the pool in quarantine above which a worker begins a new life."),
    ] = 0.25
    unsafe_release_on_timeout: Annotated[
        bool, Meta(description="UNSAFE: free held pages when the hold deadline passes, as other systems do.")
    ] = False
    handoff_timeout_s: Annotated[
        float,
        Meta(
            gt=0.0, description="How long a hand-off may hear nothing of its other half; a prompt at work is heard of."
        ),
    ] = 300.0
    grace_s: flags.GraceS = 30.0
    landing: Annotated[
        Literal["direct", "staged"],
        Meta(
            description="Where writes land at decode: in the pool, or in memory beside it, to be copied and verified; "
            "then a hold keeps no page of the pool. Prefill workers must be told, too: it implies a digest."
        ),
    ] = "direct"
    landing_bytes: Annotated[
        int | None,
        Meta(
            ge=1, description="--landing staged: what writes land in. Default: a quarter of the pool, or one context."
        ),
    ] = None
    payload_digest: Annotated[
        Literal["auto", "off", "blake2b"],
        Meta(
            description="Digest of the pages' bytes, compared at commit. auto: blake2b with --landing staged, else off."
        ),
    ] = "auto"
    log_level: flags.LogLevel = "info"
    log_format: flags.LogFormat = "text"
    otlp_endpoint: flags.OtlpEndpoint = None

    def __post_init__(self) -> None:
        if problem := landing_conflict(self.landing, self.landing_bytes, self.payload_digest, self.transfer):
            raise ValueError(problem)

    @property
    def page_host(self) -> str:
        """`data_host` with its default decided. Raises ConfigurationError for addresses that are none."""
        if self.data_host:
            return self.data_host
        said = [parse_address(each) for each in (self.listen, self.advertise) if each]
        dialled = (each.host for each in said if isinstance(each, TcpAddress) and not is_wildcard(each.host))
        return next(dialled, "127.0.0.1")

    @property
    def digest(self) -> Literal["off", "blake2b"]:
        """`payload_digest` with `auto` decided."""
        if self.payload_digest == "auto":
            return "blake2b" if self.landing == "staged" else "off"
        return self.payload_digest


LANDING_NAMES = ("landing", "landing_bytes", "payload_digest", "transfer")


def landing_conflict(landing: object, landing_bytes: object, payload_digest: object, transfer: object) -> str:
    """What of `LANDING_NAMES` cannot be meant together, or ""."""
    if landing == "staged" and transfer == "pull":
        return "--landing staged with --transfer pull: there nobody but decode writes to its memory"
    if landing == "staged" and payload_digest == "off":
        return "--payload-digest off with --landing staged: nothing else proves that a copy is what prefill computed"
    if landing != "staged" and landing_bytes is not None:
        return "--landing-bytes means nothing without --landing staged"
    return ""
