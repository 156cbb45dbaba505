"""What the inputs tell of a deployment: its processes, and of each what is known, with the place that says it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, StrEnum

import immutables
import msgspec

SHOWN_CHARACTERS = 160
MOST_CHARACTERS = 1000


class Engine(StrEnum):
    SGLANG = "sglang"
    VLLM = "vllm"
    QUIESCE = "quiesce"


class Role(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    AGGREGATED = "aggregated"
    ROUTER = "router"
    UNKNOWN = "unknown"


class Part(StrEnum):
    """Where a fact is set. What a member does not show in one of these is not known; it is never taken as default."""

    FLAGS = "flags"
    ENVIRONMENT = "environment"
    STATE = "state"


class Field(Enum):
    """One fact of a process: its words, and where it is set. Units: tokens, seconds, pages, or none."""

    VERSION = ("the version", Part.STATE)
    HOST = ("the address that it listens on", Part.FLAGS)
    PORT = ("the port", Part.FLAGS)
    API_KEY = ("whether a key is needed", Part.FLAGS)
    API_KEYS = ("how many keys there are", Part.FLAGS)
    ADMIN_KEY = ("whether there is an admin key", Part.FLAGS)
    TENANTS = ("whether tenants are configured", Part.FLAGS)
    PREFIX_CACHE = ("whether prefixes are cached", Part.FLAGS)
    CONTEXT_TOKENS = ("the context length", Part.FLAGS)
    POOL_TOKENS = ("the size of the KV pool", Part.STATE)
    PAGE_SIZE = ("tokens per page", Part.FLAGS)
    KV_DTYPE = ("the type of the KV cache", Part.FLAGS)
    TP_SIZE = ("the tensor parallel size", Part.FLAGS)
    BACKEND = ("the transfer backend", Part.FLAGS)
    BOOTSTRAP_PORT = ("the bootstrap port", Part.FLAGS)
    CHECKSUM = ("whether transfers are checked by a checksum", Part.FLAGS)
    DECODE_OFFLOAD = ("whether decode offloads its KV cache", Part.FLAGS)
    DECODE_RADIX = ("whether decode has a prefix cache", Part.FLAGS)
    ENCODER_APART = ("whether encoders run apart", Part.FLAGS)
    DEFERRED_RELEASE = ("SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE", Part.ENVIRONMENT)
    HOLD_S = ("SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT", Part.ENVIRONMENT)
    BATCH_CAP = ("SGLANG_MOONCAKE_MAX_TRANSFER_BATCH_INDICES", Part.ENVIRONMENT)
    TRANSFER_S = ("MC_TRANSFER_TIMEOUT", Part.ENVIRONMENT)
    MORI_TRANSFER_MS = ("SGLANG_MORI_TRANSFER_TIMEOUT_MS", Part.ENVIRONMENT)
    WAITING_S = ("SGLANG_DISAGGREGATION_WAITING_TIMEOUT", Part.ENVIRONMENT)
    FAULTS = ("a switch that makes faults for tests", Part.ENVIRONMENT)
    PATCHES = ("which changes are patched in", Part.STATE)
    CONNECTOR = ("the KV connector", Part.FLAGS)
    KV_ROLE = ("kv_role", Part.FLAGS)
    KV_ADDRESS = ("kv_ip", Part.FLAGS)
    LEASE_S = ("kv_lease_duration", Part.FLAGS)
    LOAD_FAILURE = ("kv_load_failure_policy", Part.FLAGS)
    ABORT_S = ("VLLM_NIXL_ABORT_REQUEST_TIMEOUT", Part.ENVIRONMENT)
    SIDE_CHANNEL_HOST = ("VLLM_NIXL_SIDE_CHANNEL_HOST", Part.ENVIRONMENT)
    DEV_MODE = ("VLLM_SERVER_DEV_MODE", Part.ENVIRONMENT)
    STABLE_IDS = ("VLLM_DISABLE_REQUEST_ID_RANDOMIZATION", Part.ENVIRONMENT)
    REMOTE_CACHE = ("LMCACHE_REMOTE_URL", Part.ENVIRONMENT)
    CONCURRENCY = ("how many requests of full length fit the pool", Part.STATE)
    UNSAFE_RELEASE = ("--unsafe-release-on-timeout", Part.FLAGS)
    SMALL_POOL = ("--allow-small-pool", Part.FLAGS)
    HOLD_DEADLINE_S = ("--hold-deadline-s", Part.FLAGS)
    CALL_DEADLINE_S = ("--call-deadline-s", Part.FLAGS)
    HANDOFF_S = ("--handoff-timeout-s", Part.FLAGS)
    FENCE_POLICY = ("--fence-policy", Part.FLAGS)
    QUARANTINE_BUDGET = ("--quarantine-budget", Part.FLAGS)
    TRUST_NETWORK = ("--trust-network", Part.FLAGS)
    TRUST_TRANSPORT = ("--trust-transport", Part.FLAGS)
    DATA_HOST = ("--data-host", Part.FLAGS)
    LISTEN = ("--listen", Part.FLAGS)
    DATA_TLS = ("--data-tls", Part.FLAGS)
    TLS_CERT = ("--tls-cert", Part.FLAGS)
    FRONTS = ("--fronts", Part.FLAGS)
    FRONT_OPEN = ("--front-open", Part.FLAGS)
    FRONT_HOST = ("--front-host", Part.FLAGS)
    ROUTER_KIND = ("which router it is", Part.STATE)
    ROUTER_TIMEOUT_S = ("the router's time limit of a request", Part.FLAGS)
    NAMED_PREFILL = ("the prefill worker that the router names", Part.FLAGS)
    NAMED_DECODE = ("the decode worker that the router names", Part.FLAGS)
    PUBLISHED_PORTS = ("ports that are published", Part.STATE)
    RELEASES = ("releases of held pages", Part.STATE)
    TIMEOUT_RELEASES = ("releases by a timer", Part.STATE)
    HOLD_MEAN_S = ("how long pages are held on average", Part.STATE)
    HELD_REQUESTS = ("requests whose pages are held now", Part.STATE)
    HELD_SHARE = ("the share of the pool that is held", Part.STATE)
    QUARANTINED_PAGES = ("pages in quarantine", Part.STATE)
    TAG_MISMATCHES = ("requests with a foreign page tag", Part.STATE)

    @property
    def words(self) -> str:
        return self.value[0]

    @property
    def part(self) -> Part:
        return self.value[1]


class Placed(str):
    """Text that knows its line, from 1; 0 where there are no lines."""

    __slots__ = ("line",)
    line: int

    def __new__(cls, text: str, line: int = 0) -> Placed:
        placed = super().__new__(cls, text)
        placed.line = line
        return placed


def line_of(text: str) -> int:
    """The line that `text` was read at, 0 if it does not know."""
    return text.line if isinstance(text, Placed) else 0


class Evidence(msgspec.Struct, frozen=True):
    """A place in an input and what it says there, in one short line without secrets and control characters."""

    input: str
    line: int
    says: str

    @property
    def place(self) -> str:
        return f"{self.input}:{self.line}" if self.line else self.input


def plain(text: str, most: int = MOST_CHARACTERS) -> str:
    """Text that anybody may have written, as it can be shown: shortened, and without what a terminal would obey."""
    clean = "".join(character if character.isprintable() else "?" for character in text[: most + 1])
    return clean if len(text) <= most else f"{clean[: most - 3]}..."


def evidence(source: str, line: int, says: str) -> Evidence:
    """Evidence in one short line."""
    return Evidence(plain(source), line, plain(says, SHOWN_CHARACTERS))


Value = bool | int | float | str


class Told(msgspec.Struct, frozen=True):
    """A value and the place that tells it."""

    value: Value
    evidence: Evidence


Facts = immutables.Map[Field, Told]


class Misread(msgspec.Struct, frozen=True):
    """A word that was not understood, and why. `decides` is what depends on it, "" for nothing that is known; a
    `template` is a word that only a shell or an orchestrator can fill in.
    """

    evidence: Evidence
    word: str
    why: str
    remedy: str
    decides: str = ""
    template: bool = False


class Member(msgspec.Struct, frozen=True):
    """One process. `shown` are the parts of its configuration that its inputs show in full.

    `unreadable` are fields that are set to something that cannot be known here, such as `$POOL`.
    """

    engine: Engine
    role: Role
    name: str
    source: Evidence
    facts: Facts = immutables.Map()
    shown: frozenset[Part] = frozenset()
    unreadable: frozenset[Field] = frozenset()
    kinds: frozenset[str] = frozenset()
    misread: tuple[Misread, ...] = ()

    def told(self, field: Field) -> Told | None:
        return self.facts.get(field)

    def known(self, field: Field, default: Value, *, says: str = "") -> Told | None:
        """What is told, the default where the input would show it, None when it cannot be known."""
        if told := self.facts.get(field):
            return told
        if field in self.unreadable or field.part not in self.shown:
            return None
        return Told(default, msgspec.structs.replace(self.source, says=says or f"{field.words}: not set"))

    def number(self, field: Field) -> float | None:
        told = self.facts.get(field)
        return float(told.value) if told and isinstance(told.value, (int, float)) else None

    def is_on(self, field: Field) -> bool:
        """Whether it is told to be on; False also when nothing is known."""
        told = self.facts.get(field)
        return told is not None and told.value is True

    def places(self, *fields: Field) -> tuple[Evidence, ...]:
        """Evidence for those of `fields` that are told, else of where the process was found."""
        return tuple(self.facts[field].evidence for field in fields if field in self.facts) or (self.source,)


class Traffic(msgspec.Struct, frozen=True):
    """What no configuration shows: how the deployment is used. None is not told."""

    aborts_per_s: float | None = None
    tokens_per_request: float | None = None
    several_tenants: bool | None = None


class Fleet(msgspec.Struct, frozen=True):
    """All processes that the inputs tell of, joined."""

    members: tuple[Member, ...]
    traffic: Traffic = Traffic()

    def of(self, engine: Engine, *roles: Role) -> Iterator[Member]:
        """Members of an engine, in any of the roles, or in all."""
        return (m for m in self.members if m.engine is engine and (not roles or m.role in roles))

    def routers(self) -> Iterator[Member]:
        return (member for member in self.members if member.role is Role.ROUTER)

    def pairs(self, engine: Engine | None = None) -> Iterator[tuple[Member, Member]]:
        """Each prefill with each decode of the same engine."""
        for prefill in self.members:
            for decode in self.members:
                mine = prefill.engine is decode.engine and (engine is None or prefill.engine is engine)
                if mine and prefill.role is Role.PREFILL and decode.role is Role.DECODE:
                    yield prefill, decode
