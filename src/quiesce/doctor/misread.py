"""Words of a pair's configuration that are not understood: flags and values that are none of those that are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from quiesce.doctor.dialects import NAMES, is_template
from quiesce.doctor.fleet import Engine, Misread, evidence, line_of

ROLE = "the role"
CONNECTOR = "the connector"
BACKEND = "the transfer backend"

_SHOWN_CHARACTERS = 40
"""Of a value; enough to find it, and too little for what a configuration may hold further on."""
_NEAR = 2
"""Edits between a known word and one that is taken for it."""

_DECIDES = {"disaggregation-mode": ROLE, "kv-transfer-config": CONNECTOR, "disaggregation-transfer-backend": BACKEND}
_PAIR_FLAGS = frozenset(
    {
        *_DECIDES,
        *(name for name in NAMES if name.startswith("disaggregation-")),
        *("disaggregation-ib-device", "disaggregation-decode-tp", "disaggregation-decode-dp"),
        *("disaggregation-prefill-pp", "disaggregation-decode-polling-interval"),
        *("pd-disaggregation", "vllm-pd-disaggregation", "num-reserved-decode-tokens"),
    }
)
MODES = frozenset({"null", "None", "", "prefill", "decode", "agg", "pd", "prefill_and_decode", "encode"})
"""Of `--disaggregation-mode`: SGLang's, and those that Dynamo has besides."""
_KV_ROLES = frozenset({"kv_producer", "kv_consumer", "kv_both"})
_BACKENDS = frozenset({"mooncake", "nixl", "ascend", "fake", "mori", "mooncake_tcp"})
_CONNECTORS = frozenset(
    {
        "NixlConnector",
        "NixlPullConnector",
        "NixlPushConnector",
        "MooncakeConnector",
        "MooncakeStoreConnector",
        "MoRIIOConnector",
        "P2pNcclConnector",
        "LMCacheConnectorV1",
        "LMCacheMPConnector",
        "MultiConnector",
        "OffloadingConnector",
        "SharedStorageConnector",
        "ExampleConnector",
        "ExampleHiddenStatesConnector",
        "DecodeBenchConnector",
        "FlexKVConnectorV1",
        "SimpleCPUOffloadConnector",
        "HF3FSKVConnector",
    }
)


class _Known(msgspec.Struct, frozen=True):
    """The values that a setting may have. An `open_set` may have others, which plugins add."""

    decides: str
    values: frozenset[str]
    open_set: bool = False


_VALUES: Mapping[Engine, Mapping[str, _Known]] = {
    Engine.SGLANG: {
        "disaggregation-mode": _Known(ROLE, MODES),
        "disaggregation-transfer-backend": _Known(BACKEND, _BACKENDS, open_set=True),
    },
    Engine.VLLM: {
        "disaggregation-mode": _Known(ROLE, MODES),
        "kv-role": _Known(ROLE, _KV_ROLES),
        "kv-connector": _Known(CONNECTOR, _CONNECTORS, open_set=True),
    },
    Engine.QUIESCE: {},
}


def misread_values(engine: Engine, pairs: Iterable[tuple[str, str]], source: str) -> Iterator[Misread]:
    """Values of `pairs` that decide what a process is, and are none of those that are known."""
    for name, text in pairs:
        known = _VALUES[engine].get(name)
        if known and text not in known.values:
            yield _value(name, text, known, source)


def _value(name: str, text: str, known: _Known, source: str) -> Misread:
    written = f"--{name}" if name.startswith("disaggregation-") else name.replace("-", "_")
    word = f"{written} {text[:_SHOWN_CHARACTERS]}"
    place = evidence(source, line_of(text) or line_of(name), word)
    if is_template(text):
        return Misread(place, word, "only a shell knows it", "Give what it becomes.", known.decides, True)
    near = nearest(text, known.values)
    if near or not known.open_set:
        why = f"it looks like {near}" if near else "it is no value that is known"
        values = ", ".join(sorted(value for value in known.values if value))
        return Misread(place, word, why, f"Known are {values}.", known.decides)
    return Misread(place, word, "no rule knows it", "Look at its own documentation.")


def misread_flags(pairs: Iterable[tuple[str, str]], source: str) -> Iterator[Misread]:
    """Flags that look like one of a pair and are none, and a `--kv-transfer-config` that is no JSON."""
    for name, text in pairs:
        if name == "kv-transfer-config":
            yield from _config(text, source)
        elif near := _flag_near(name):
            place = evidence(source, line_of(name) or line_of(text), f"--{name} {text[:_SHOWN_CHARACTERS]}")
            told = f"it looks like --{near}"
            yield Misread(place, f"--{name[:80]}", told, f"Write --{near}.", _DECIDES.get(near, ""))


def _flag_near(name: str) -> str:
    """The flag that `name` is taken for, "" when it is known itself, or like none."""
    if name in _PAIR_FLAGS or name in NAMES:
        return ""
    near = nearest(name, _PAIR_FLAGS)
    strange = name.startswith("disag") and not name.startswith("disaggregation-")
    return near or ("disaggregation-mode" if strange else "")


def _config(text: str, source: str) -> Iterator[Misread]:
    word = f"--kv-transfer-config {text[:_SHOWN_CHARACTERS]}"
    place = evidence(source, line_of(text), word)
    try:
        msgspec.json.decode(str(text), type=dict[str, object])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        if is_template(text):
            yield Misread(place, word, "only a shell knows it", "Give what it becomes.", CONNECTOR, True)
        else:
            fix = "Quote the JSON for the shell: '{\"kv_connector\": ...}'."
            yield Misread(place, word, "it is no JSON object", fix, CONNECTOR)


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word with the fewest edits to `word`, cases aside, "" when all are further than `_NEAR`."""
    close = [(edits, one) for one in sorted(known) if one and (edits := _edits(word.lower(), one.lower())) <= _NEAR]
    return min(close, default=(0, ""))[1]


def _edits(one: str, other: str) -> int:
    """Letters to put in, take out or exchange (Levenshtein), or more than `_NEAR` where lengths alone say so."""
    if abs(len(one) - len(other)) > _NEAR:
        return _NEAR + 1
    row = list(range(len(other) + 1))
    for index, letter in enumerate(one, 1):
        before, row[0] = row[0], index
        for at, theirs in enumerate(other, 1):
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, before + (letter != theirs))
    return row[-1]
