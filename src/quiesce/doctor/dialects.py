"""How each engine names its settings: flags, variables, and keys of JSON answers and logs, in one vocabulary."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from math import isfinite

from quiesce.doctor.fleet import Engine, Field, Value
from quiesce.units import parse_seconds


class Kind(StrEnum):
    """How a value is written.

    `OFF` is a switch that turns the field off; of a `SECRET` nothing is kept but that it is set.
    """

    NUMBER = "number"
    SECONDS = "seconds"
    SWITCH = "switch"
    OFF = "off"
    ON_OFF = "on or off"
    TEXT = "text"
    SECRET = "secret"  # noqa: S105 - a kind of value, not one


Way = tuple[Field, Kind]

_SGLANG: dict[str, Way] = {
    "context-length": (Field.CONTEXT_TOKENS, Kind.NUMBER),
    "context-len": (Field.CONTEXT_TOKENS, Kind.NUMBER),
    "max-total-tokens": (Field.POOL_TOKENS, Kind.NUMBER),
    "max-total-num-tokens": (Field.POOL_TOKENS, Kind.NUMBER),
    "page-size": (Field.PAGE_SIZE, Kind.NUMBER),
    "kv-cache-dtype": (Field.KV_DTYPE, Kind.TEXT),
    "tp": (Field.TP_SIZE, Kind.NUMBER),
    "tp-size": (Field.TP_SIZE, Kind.NUMBER),
    "tensor-parallel-size": (Field.TP_SIZE, Kind.NUMBER),
    "disaggregation-transfer-backend": (Field.BACKEND, Kind.TEXT),
    "disaggregation-bootstrap-port": (Field.BOOTSTRAP_PORT, Kind.NUMBER),
    "disaggregation-enable-kv-checksum": (Field.CHECKSUM, Kind.SWITCH),
    "disaggregation-decode-enable-offload-kvcache": (Field.DECODE_OFFLOAD, Kind.SWITCH),
    "disaggregation-decode-enable-radix-cache": (Field.DECODE_RADIX, Kind.SWITCH),
    "encoder-only": (Field.ENCODER_APART, Kind.SWITCH),
    "language-only": (Field.ENCODER_APART, Kind.SWITCH),
    "disable-radix-cache": (Field.PREFIX_CACHE, Kind.OFF),
    "host": (Field.HOST, Kind.TEXT),
    "port": (Field.PORT, Kind.NUMBER),
    "api-key": (Field.API_KEY, Kind.SECRET),
    "admin-api-key": (Field.ADMIN_KEY, Kind.SECRET),
    "version": (Field.VERSION, Kind.TEXT),
    "request-timeout-secs": (Field.ROUTER_TIMEOUT_S, Kind.SECONDS),
}

_SGLANG_VARIABLES: dict[str, Way] = {
    "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE": (Field.DEFERRED_RELEASE, Kind.ON_OFF),
    "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT": (Field.HOLD_S, Kind.SECONDS),
    "SGLANG_MOONCAKE_MAX_TRANSFER_BATCH_INDICES": (Field.BATCH_CAP, Kind.NUMBER),
    "SGLANG_MORI_TRANSFER_TIMEOUT_MS": (Field.MORI_TRANSFER_MS, Kind.NUMBER),
    "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": (Field.WAITING_S, Kind.SECONDS),
    "SGLANG_TEST_DISAGG_FAILURE_PROB": (Field.FAULTS, Kind.NUMBER),
    "MC_TRANSFER_TIMEOUT": (Field.TRANSFER_S, Kind.SECONDS),
}

_VLLM: dict[str, Way] = {
    "max-model-len": (Field.CONTEXT_TOKENS, Kind.NUMBER),
    "max-seq-len": (Field.CONTEXT_TOKENS, Kind.NUMBER),
    "block-size": (Field.PAGE_SIZE, Kind.NUMBER),
    "kv-cache-dtype": (Field.KV_DTYPE, Kind.TEXT),
    "tensor-parallel-size": (Field.TP_SIZE, Kind.NUMBER),
    "tp": (Field.TP_SIZE, Kind.NUMBER),
    "enable-prefix-caching": (Field.PREFIX_CACHE, Kind.SWITCH),
    "no-enable-prefix-caching": (Field.PREFIX_CACHE, Kind.OFF),
    "host": (Field.HOST, Kind.TEXT),
    "port": (Field.PORT, Kind.NUMBER),
    "api-key": (Field.API_KEY, Kind.SECRET),
    "kv-connector": (Field.CONNECTOR, Kind.TEXT),
    "kv-role": (Field.KV_ROLE, Kind.TEXT),
    "kv-ip": (Field.KV_ADDRESS, Kind.TEXT),
    "kv-lease-duration": (Field.LEASE_S, Kind.SECONDS),
    "kv-load-failure-policy": (Field.LOAD_FAILURE, Kind.TEXT),
    "version": (Field.VERSION, Kind.TEXT),
}

_VLLM_VARIABLES: dict[str, Way] = {
    "VLLM_NIXL_ABORT_REQUEST_TIMEOUT": (Field.ABORT_S, Kind.SECONDS),
    "VLLM_NIXL_SIDE_CHANNEL_HOST": (Field.SIDE_CHANNEL_HOST, Kind.TEXT),
    "VLLM_SERVER_DEV_MODE": (Field.DEV_MODE, Kind.ON_OFF),
    "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": (Field.STABLE_IDS, Kind.ON_OFF),
    "VLLM_API_KEY": (Field.API_KEY, Kind.SECRET),
    "LMCACHE_REMOTE_URL": (Field.REMOTE_CACHE, Kind.SECRET),
}

QUIESCE: dict[str, Way] = {
    "context-length": (Field.CONTEXT_TOKENS, Kind.NUMBER),
    "pool-tokens": (Field.POOL_TOKENS, Kind.NUMBER),
    "page-size": (Field.PAGE_SIZE, Kind.NUMBER),
    "prefix-cache": (Field.PREFIX_CACHE, Kind.ON_OFF),
    "payload-digest": (Field.CHECKSUM, Kind.ON_OFF),
    "transport": (Field.BACKEND, Kind.TEXT),
    "data-host": (Field.DATA_HOST, Kind.TEXT),
    "listen": (Field.LISTEN, Kind.TEXT),
    "data-tls": (Field.DATA_TLS, Kind.TEXT),
    "tls-cert": (Field.TLS_CERT, Kind.TEXT),
    "host": (Field.HOST, Kind.TEXT),
    "port": (Field.PORT, Kind.NUMBER),
    "api-key": (Field.API_KEY, Kind.SECRET),
    "admin-key": (Field.ADMIN_KEY, Kind.SECRET),
    "tenants": (Field.TENANTS, Kind.SECRET),
    "fronts": (Field.FRONTS, Kind.NUMBER),
    "front-host": (Field.FRONT_HOST, Kind.TEXT),
    "front-open": (Field.FRONT_OPEN, Kind.SWITCH),
    "unsafe-release-on-timeout": (Field.UNSAFE_RELEASE, Kind.SWITCH),
    "allow-small-pool": (Field.SMALL_POOL, Kind.SWITCH),
    "trust-network": (Field.TRUST_NETWORK, Kind.SWITCH),
    "trust-transport": (Field.TRUST_TRANSPORT, Kind.SWITCH),
    "hold-deadline-s": (Field.HOLD_DEADLINE_S, Kind.SECONDS),
    "call-deadline-s": (Field.CALL_DEADLINE_S, Kind.SECONDS),
    "handoff-timeout-s": (Field.HANDOFF_S, Kind.SECONDS),
    "fence-policy": (Field.FENCE_POLICY, Kind.TEXT),
    "quarantine-budget": (Field.QUARANTINE_BUDGET, Kind.NUMBER),
}

FLAGS: Mapping[Engine, Mapping[str, Way]] = {
    Engine.SGLANG: _SGLANG,
    Engine.VLLM: _VLLM,
    Engine.QUIESCE: QUIESCE,
}
VARIABLES: Mapping[Engine, Mapping[str, Way]] = {
    Engine.SGLANG: _SGLANG_VARIABLES,
    Engine.VLLM: _VLLM_VARIABLES,
    Engine.QUIESCE: {f"QUIESCE_{name.replace('-', '_').upper()}": way for name, way in QUIESCE.items()},
}

NAMES = frozenset(
    {"disaggregation-mode", "kv-transfer-config", "node-rank", *(name for flags in FLAGS.values() for name in flags)}
)
"""What is looked for where there may be any number of other names."""

SWITCHES = frozenset({Kind.SWITCH, Kind.OFF})

_TRUE = frozenset({"1", "true", "yes", "y", "on"})
_FALSE = frozenset({"0", "false", "no", "n", "off", ""})
_NUMBER = re.compile(r"([+-]?\d{1,18}(?:\.\d{1,9})?)([kKmM]?)")
_SCALE = {"": 1, "k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}


def is_template(text: str) -> bool:
    """Whether a shell, Helm or an orchestrator would still put something in its place."""
    return "$" in text or "{{" in text or "`" in text


def read_value(kind: Kind, text: str) -> Value | None:
    """The value of `text`, None when it cannot be read as its kind."""
    bare = text.strip()
    if kind is Kind.SECRET:
        return bool(bare)
    if is_template(bare):
        return None
    if kind in SWITCHES:
        on = _truth(bare)
        return on if on is None or kind is Kind.SWITCH else not on
    if kind is Kind.ON_OFF:
        return _truth(bare) if _truth(bare) is not None else bool(bare)
    if kind is Kind.TEXT:
        return bare or None
    return _quantity(kind, bare)


def _truth(text: str) -> bool | None:
    if text.lower() in _TRUE:
        return True
    return False if text.lower() in _FALSE else None


def _quantity(kind: Kind, text: str) -> Value | None:
    if kind is Kind.SECONDS:
        try:
            return seconds if isfinite(seconds := parse_seconds(text)) else None
        except ValueError:
            return None
    match = _NUMBER.fullmatch(text.replace(",", "").replace("_", ""))
    if not match:
        return None
    number = float(match[1]) * _SCALE[match[2]]
    return int(number) if number.is_integer() else number
