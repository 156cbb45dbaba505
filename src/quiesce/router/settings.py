"""What the router can be told. Each field is a flag (`--api-key`), a QUIESCE_ variable and a TOML key."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from quiesce.control import flags
from quiesce.control.address import is_loopback


class RouterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the router process. Durations are seconds."""

    host: Annotated[str, Meta(description="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="HTTP port; 0 takes a free one.")] = 8000
    worker: Annotated[
        tuple[str, ...],
        Meta(description="A worker to use, unix:/path.sock or tcp://HOST:PORT. Repeatable; it may start later."),
    ] = ()
    workers_file: Annotated[
        str | None,
        Meta(min_length=1, description="TOML file of workers to use beside --worker, read again when it changes."),
    ] = None
    workers_srv: Annotated[
        tuple[str, ...],
        Meta(
            description="A DNS name whose SRV records say where workers are, _quiesce._tcp.example.org, looked up "
            "again as its TTL says. Repeatable."
        ),
    ] = ()
    dns_server: flags.DnsServer = None
    control_listen: Annotated[
        flags.AnyAddress | None,
        Meta(description="Where workers that have --register announce themselves, tcp://HOST:PORT. Default: nowhere."),
    ] = None
    tls_cert: flags.TlsCert = None
    tls_key: flags.TlsKey = None
    tls_ca: flags.TlsCa = None
    insecure: flags.Insecure = False
    model: Annotated[str, Meta(description="The model that the workers serve: its tokenizer and chat template.")] = (
        "smollm2"
    )
    served_model_name: Annotated[
        str | None, Meta(min_length=1, description="Name of the model in requests. Default: the model's own.")
    ] = None
    tool_call_format: Annotated[
        Literal["auto", "hermes", "llama3_json", "mistral"],
        Meta(description="How the model writes calls of tools; auto: as its chat template tells it."),
    ] = "auto"
    api_key: Annotated[
        tuple[str, ...],
        Meta(
            description="Requests must bear one of these keys. Repeatable. Default: no key needed.",
            extra={"secret": "leave it out to serve without a key"},
        ),
    ] = ()
    tenants: Annotated[
        str | None,
        Meta(
            min_length=1,
            description="TOML file of tenants, their limits and hashes of their keys; read again at SIGHUP. "
            "`quiesce keys new` adds to it.",
        ),
    ] = None
    admin_key: Annotated[
        str | None,
        Meta(
            min_length=16,
            description="/metrics and whatever changes the server for all need this key. Default: /metrics is open.",
            extra={"secret": "leave it out to leave /metrics open"},
        ),
    ] = None
    console_key: Annotated[
        str | None,
        Meta(
            min_length=16,
            description="Serve /console to whoever has this key. Default: there is no console.",
            extra={"secret": "leave it out to have no console"},
        ),
    ] = None
    queue_per_tenant: Annotated[
        int, Meta(ge=1, le=1 << 16, description="Requests of one tenant that may wait at the router; more get 429.")
    ] = 256
    decode_window: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Requests that one decode or aggregated worker has of this router at once; others wait their "
            "turn at the router. Default: its --max-running-requests and a quarter.",
        ),
    ] = None
    prefill_window: Annotated[
        int,
        Meta(ge=1, description="Prompts of this router that each pair of workers has at once and has not handed off."),
    ] = 4
    fronts: Annotated[
        int | None,
        Meta(
            ge=0,
            le=65535,
            description="Serve SGLang's endpoints for each worker, so that another router can drive it: the first "
            "worker at this port, the others at the next ones. Default: no fronts.",
        ),
    ] = None
    front_host: Annotated[str, Meta(description="Address that fronts listen on.")] = "127.0.0.1"
    front_key: Annotated[
        str | None,
        Meta(
            min_length=16,
            description="The key that the other router must bear at fronts.",
            extra={"secret": "give a key, or --front-open on a loopback address"},
        ),
    ] = None
    front_open: Annotated[bool, Meta(description="Fronts need no key; only for a loopback --front-host.")] = False
    retries: Annotated[
        int,
        Meta(
            ge=0,
            le=10,
            description="How often a request may start anew when a worker fails before its client has any output.",
        ),
    ] = 1
    on_disconnect: Annotated[
        Literal["abort", "after-handoff"],
        Meta(
            description="A client that leaves stops both halves at once, or once the hand-off that is under way has "
            "finished: that computes more, and holds no pages.",
        ),
    ] = "abort"
    breaker_failures: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="After how many failures in a row, of different requests, a worker is put to the test.",
        ),
    ] = 3
    max_body_bytes: Annotated[int, Meta(ge=1, le=1 << 30, description="Largest request body.")] = 16 << 20
    max_bodies_bytes: Annotated[
        int, Meta(ge=1, le=1 << 40, description="Largest sum of the bodies of all requests that are under way.")
    ] = 256 << 20
    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=1 << 20,
            description="How many clients may be connected; fewer when the system allows fewer open files.",
        ),
    ] = 4096
    receive_timeout_s: Annotated[
        float, Meta(gt=0.0, description="How long a client may take to send a request's head, and then its body.")
    ] = 30.0
    grace_s: flags.GraceS = 30.0
    drain_delay_s: Annotated[
        float,
        Meta(
            ge=0.0,
            description="How long requests are still served after SIGTERM while /readiness is 503, so that load "
            "balancers look elsewhere; before --grace-s.",
        ),
    ] = 0.0
    log_level: flags.LogLevel = "info"
    log_format: flags.LogFormat = "text"
    otlp_endpoint: flags.OtlpEndpoint = None

    def __post_init__(self) -> None:
        changing = {"--workers-file": self.workers_file, "--workers-srv": self.workers_srv}
        changing |= {"--control-listen": self.control_listen}
        if self.fronts is not None and (told := [flag for flag, value in changing.items() if value]):
            raise ValueError(
                f"--fronts gives each worker a port at start, so {told[0]} cannot change them: use --worker"
            )
        if self.fronts is None or (self.front_key and not self.front_open):
            return
        if self.front_key:
            raise ValueError("--front-key and --front-open contradict each other: give one of them")
        if not self.front_open:
            raise ValueError("--fronts needs --front-key: whoever reaches a front can use a worker past all limits")
        if not is_loopback(self.front_host):
            raise ValueError(f"--front-open is for loopback addresses, and --front-host is {self.front_host}")
