"""What becomes of request fields that the typed bodies do not declare.

Fields that steer a server's inside are stripped and counted, because clients never choose hosts, rooms, transfers or
salts. Of the others, those pass that change nothing: null, a few names (`metadata`, `service_tier`, ...), and values
that ask for what happens anyway. Everything else is refused by name: what is ignored would be a wrong answer.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

import msgspec

from quiesce.api.reading import invalid, read
from quiesce.api.unsupported import HARMLESS, INSTEAD, UNSUPPORTED, Only
from quiesce.errors import RequestRejected

_STRIPPED_NAMES = frozenset(
    {
        "salt", "extra_key", "room", "rooms", "host", "hosts", "port", "rid", "request_id", "attempt",
        "incarnation", "data_parallel_rank", "dp_rank", "routed_dp_rank", "kv_transfer_params", "ec_transfer_params",
        "session_params", "tenant", "nvext",
    }
)  # fmt: skip
_STRIPPED_PREFIXES = ("bootstrap_", "disagg_", "remote_", "do_remote_", "prefill_", "decode_", "kv_", "transfer_")

_LONGEST_VALUE_BYTES = 4096
_MOST_FIELDS = 256


def stripped(names: Mapping[str, msgspec.Raw]) -> tuple[str, ...]:
    """Which rule struck each field that was thrown away: a name, or a prefix with `*` (so labels stay few)."""
    return tuple(sorted({rule for name in names if (rule := _rule(name.lower()))}))


def _rule(name: str) -> str:
    if name in _STRIPPED_NAMES:
        return name
    return next((f"{prefix}*" for prefix in _STRIPPED_PREFIXES if name.startswith(prefix)), "")


def refuse_others(
    fields: Mapping[str, msgspec.Raw], honoured: Collection[str], instead: Mapping[str, str] = INSTEAD
) -> None:
    """Raises RequestRejected for the first field that is not `honoured`, not stripped, and would change the answer.

    `instead` are names from elsewhere, in lower case, and what they are called in this dialect. The code is
    `unsupported_parameter` for names that are known, here or elsewhere, else `unknown_parameter`.
    """
    if len(fields) > _MOST_FIELDS:
        raise invalid(f"The body has {len(fields)} parameters; at most {_MOST_FIELDS} are looked at.", None)
    for name, raw in fields.items():
        if name in honoured or name in HARMLESS or bytes(memoryview(raw)[:5]) == b"null" or _rule(name.lower()):
            continue
        if name in UNSUPPORTED:
            _refuse_value(name, UNSUPPORTED[name], raw, instead)
        elif other := instead.get(name.lower()):
            raise _refused(name, f"{_shown(name)} is not supported; use {other}.")
        else:
            raise RequestRejected(
                f"There is no parameter {_shown(name)!r}.{_meant(name, honoured)}",
                code="unknown_parameter",
                param=_shown(name),
            )


def _refuse_value(name: str, only: Only, raw: msgspec.Raw, instead: Mapping[str, str]) -> None:
    # None of the values is long; what is long need not be decoded to be refused.
    if len(memoryview(raw)) > _LONGEST_VALUE_BYTES or not only.accepts(read(raw, object, name)):
        other = f" Use {instead[name]}." if name in instead else ""
        raise _refused(name, f"{only.refusal(name)}{other}")


def _refused(name: str, message: str) -> RequestRejected:
    return RequestRejected(message, code="unsupported_parameter", param=_shown(name))


def _meant(name: str, honoured: Collection[str]) -> str:
    close = difflib.get_close_matches(_shown(name).lower(), honoured, n=1)
    return f" Did you mean {close[0]}?" if close else ""


def _shown(name: str) -> str:
    """Names are the client's: they may be as long as the body."""
    return name[:64]
