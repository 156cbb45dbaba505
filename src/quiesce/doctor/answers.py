"""What a running server answers: JSON of `/server_info` and its like, and Prometheus metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import immutables
import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from quiesce.doctor.dialects import NAMES
from quiesce.doctor.documents import Document
from quiesce.doctor.fleet import Engine, Evidence, Field, Member, Part, Placed, Role, Told, Value, evidence
from quiesce.doctor.launches import Pair, connector_pairs, member_of_pairs, sglang_role, vllm_role
from quiesce.errors import UsageError

MOST_SAMPLES = 200_000
MOST_LINE_CHARACTERS = 1 << 12
MOST_LABELS = 128
"""The parser's time grows with a line's length times its labels, and times the escapes in it."""

MOST_VALUE = 2.0**63
"""Of a sample. What is more, negative or no number counts nothing that is looked for here, and is left out."""


def read_json(document: Document) -> list[Member]:
    """The answer of `/server_info`, `/get_server_info` or `/v1/loads`, or a KV transfer configuration."""
    try:
        answer = msgspec.json.decode(document.text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise UsageError(f"{document.name}: this is no JSON.") from None
    if isinstance(answer, list):
        answer = answer[0] if answer else {}
    if not isinstance(answer, dict):
        raise UsageError(f"{document.name}: this JSON is no object, so it is no answer of a server that is known.")
    member = server_member(document, answer)
    if member is None:
        raise UsageError(f"{document.name}: this JSON is no answer of a server that is known.")
    return [member]


def server_member(document: Document, answer: Mapping[str, object]) -> Member | None:
    """The member that an answer describes, None when it describes none."""
    if "kv_connector" in answer:
        pairs = list(connector_pairs(Placed(document.text, 1)))
        return member_of_pairs(Engine.VLLM, pairs, document.name, document.name, vllm_role(dict(pairs)), "json")
    if isinstance(config := answer.get("vllm_config"), (str, dict)):
        return _vllm(document, config)
    pairs = list(_flat(document, answer))
    names = {name for name, _text in pairs}
    if "disaggregation-mode" in names:
        return _sglang(document, answer, pairs)
    if isinstance(answer.get("loads"), list) or "max-total-num-tokens" in names:
        return member_of_pairs(Engine.SGLANG, pairs, document.name, document.name, Role.UNKNOWN, "loads")
    return None


def _sglang(document: Document, answer: Mapping[str, object], pairs: list[Pair]) -> Member:
    """SGLang's, or one of our fronts, which answer in the same shape and name their worker."""
    given = dict(pairs)
    role = sglang_role(given.get("disaggregation-mode", "?"))
    ours = "worker" in answer and "status" in answer and "weight_version" not in answer
    engine = Engine.QUIESCE if ours else Engine.SGLANG
    if ours:
        pairs = [(("pool-tokens" if name == "max-total-num-tokens" else name), text) for name, text in pairs]
        pairs = [pair for pair in pairs if pair[0] not in ("host", "port")]
    shown = () if ours else (Part.FLAGS,)
    member = member_of_pairs(engine, pairs, document.name, document.name, role, "server_info", shown)
    return member if not ours else _versioned(member, given)


def _versioned(member: Member, given: Mapping[str, str]) -> Member:
    told = Told(given.get("version", ""), evidence(member.source.input, 0, f"version {given.get('version')}"))
    return msgspec.structs.replace(member, facts=member.facts.set(Field.VERSION, told))


def _vllm(document: Document, config: str | dict[str, object]) -> Member:
    """Of `/server_info?config_format=json`; its text form is not parsed."""
    answer = config if isinstance(config, dict) else {}
    parts = [part for part in answer.values() if isinstance(part, dict)]
    pairs = [pair for part in [answer, *parts] for pair in _flat(document, part)]
    given = dict(pairs)
    role = vllm_role(given) if "kv-role" in given else Role.UNKNOWN
    return member_of_pairs(Engine.VLLM, pairs, document.name, document.name, role, "server_info")


def _flat(document: Document, answer: Mapping[str, object]) -> Iterator[Pair]:
    """Names and values, and those of objects and of the first of a list inside, as flags have them."""
    for name, value in answer.items():
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, dict) and name in ("server_args", "scheduler_info", "internal_states", "loads"):
            yield from _flat(document, inner)
        elif name.replace("_", "-") in NAMES and isinstance(value, (str, int, float)):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield name.replace("_", "-"), Placed(text, _line(document.text, name))


def _line(text: str, name: str) -> int:
    at = text.find(f'"{name}"')
    return text.count("\n", 0, at) + 1 if at >= 0 and "\n" in text else 0


def read_metrics(document: Document) -> list[Member]:
    """A member for each process that has series. Raises UsageError for a text that is no exposition."""
    series: dict[Engine, list[Sample]] = defaultdict(list)
    try:
        for sample in _samples(document.text):
            engine = _engine(sample.name)
            if engine:
                series[engine].append(sample)
    except (ValueError, IndexError, KeyError) as problem:
        raise UsageError(f"{document.name}: these are no Prometheus metrics ({str(problem)[:80]!r}).") from None
    found = []
    for engine, samples in series.items():
        for (role, worker), mine in _by_process(engine, samples).items():
            found.append(_measured(document.name, engine, role, worker, mine))
    return found


def _samples(text: str) -> Iterator[Sample]:
    for line in text.splitlines():
        if len(line) > MOST_LINE_CHARACTERS or any(line.count(mark) > MOST_LABELS for mark in "=,\\"):
            raise ValueError(
                f"a line of more than {MOST_LINE_CHARACTERS} characters, or {MOST_LABELS} labels or escapes"
            )
    count = 0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            count += 1
            if count > MOST_SAMPLES:
                raise ValueError(f"more than {MOST_SAMPLES} samples")
            if 0 <= sample.value <= MOST_VALUE:
                yield sample


def _engine(name: str) -> Engine | None:
    marks = {"quiesce_": Engine.QUIESCE, "sglang:": Engine.SGLANG, "vllm:": Engine.VLLM}
    return next((engine for mark, engine in marks.items() if name.startswith(mark)), None)


def _by_process(engine: Engine, samples: Iterable[Sample]) -> dict[tuple[Role, str], list[Sample]]:
    found: dict[tuple[Role, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        role = sample.labels.get("role" if engine is Engine.QUIESCE else "engine_type", "")
        worker = sample.labels.get("worker", "") if engine is Engine.QUIESCE else ""
        if role == "serve":
            continue
        found[Role(role) if role in tuple(Role) else Role.UNKNOWN, worker].append(sample)
    if engine is not Engine.QUIESCE and len(found) == 2 and (Role.UNKNOWN, "") in found:
        rest = found.pop((Role.UNKNOWN, ""))  # series without a role are of the same process
        found[next(iter(found))].extend(rest)
    return found


def _measured(source: str, engine: Engine, role: Role, worker: str, samples: list[Sample]) -> Member:
    measure = {Engine.QUIESCE: _ours, Engine.SGLANG: _sglangs, Engine.VLLM: _vllms}[engine]
    facts = {field: Told(value, evidence(source, 0, says)) for field, value, says in measure(samples)}
    place = Evidence(source, 0, "metrics")
    name = f"{source} {worker}" if worker else source
    return Member(engine, role, name, place, immutables.Map(facts), kinds=frozenset({"metrics"}))


def _total(samples: Iterable[Sample], name: str, **labels: str) -> float | None:
    found = [s.value for s in samples if s.name == name and all(s.labels.get(k) == v for k, v in labels.items())]
    return sum(found) if found else None


Measured = Iterator[tuple[Field, Value, str]]


def _ours(samples: list[Sample]) -> Measured:
    for field, name, labels in _OUR_COUNTERS:
        value = _total(samples, name, **labels)
        if value is not None:
            yield field, value, f"{name} {value:g}"
    pages = _total(samples, "quiesce_pages")
    if pages:
        held = sum(_total(samples, "quiesce_pages", state=state) or 0 for state in ("held", "quarantined"))
        yield Field.HELD_SHARE, held / pages, f"{held:g} of {pages:g} pages are held or in quarantine"


_OUR_COUNTERS: tuple[tuple[Field, str, dict[str, str]], ...] = (
    (Field.TIMEOUT_RELEASES, "quiesce_unsafe_releases_total", {}),
    (Field.RELEASES, "quiesce_releases_total", {}),
    (Field.TAG_MISMATCHES, "quiesce_tag_mismatches_total", {}),
    (Field.QUARANTINED_PAGES, "quiesce_pages", {"state": "quarantined"}),
)

_RELEASES = "sglang:decode_deferred_kv_release_total"
_SECONDS = "sglang:decode_deferred_kv_release_seconds"
_HELD = "sglang:num_decode_deferred_kv_release_reqs"


def _sglangs(samples: list[Sample]) -> Measured:
    total = _total(samples, _RELEASES)
    if total is not None:
        late = sum(s.value for s in samples if s.name == _RELEASES and "time" in s.labels.get("outcome", ""))
        yield Field.RELEASES, total, f"{_RELEASES} {total:g}"
        yield Field.TIMEOUT_RELEASES, late, f"{_RELEASES}: {late:g} of {total:g} by time-out"
    seconds, count = _total(samples, f"{_SECONDS}_sum"), _total(samples, f"{_SECONDS}_count")
    if seconds is not None and count and count >= 1:
        yield Field.HOLD_MEAN_S, seconds / count, f"{_SECONDS}: {seconds / count:.3g} s on average"
    held = _total(samples, _HELD)
    if held is not None:
        yield Field.HELD_REQUESTS, held, f"{_HELD} {held:g}"
    pool = [s.value for s in samples if s.name == "sglang:max_total_num_tokens"]
    if pool:
        yield Field.POOL_TOKENS, min(pool), f"sglang:max_total_num_tokens {min(pool):g}"


_CACHE = "vllm:cache_config_info"


def _vllms(samples: list[Sample]) -> Measured:
    """Of one engine; the smallest pool where there are several."""
    caches = [sample.labels for sample in samples if sample.name == _CACHE]
    pools = [pool for labels in caches if (pool := _pool_tokens(labels))]
    if pools:
        yield Field.POOL_TOKENS, min(pools), f"{_CACHE}: a pool of {min(pools)} tokens"
    for labels in caches[:1]:
        if labels.get("enable_prefix_caching") in ("True", "False"):
            on = labels["enable_prefix_caching"] == "True"
            yield Field.PREFIX_CACHE, on, f"{_CACHE}: enable_prefix_caching {on}"
        if labels.get("block_size", "").isdecimal():
            yield Field.PAGE_SIZE, int(labels["block_size"][:9]), f"{_CACHE}: block_size {labels['block_size']}"


def _pool_tokens(labels: Mapping[str, str]) -> int | None:
    """As it is told, else blocks times their size."""
    size, blocks, block = (labels.get(name, "") for name in ("kv_cache_size_tokens", "num_gpu_blocks", "block_size"))
    if size.isdecimal():
        return int(size[:18])
    return int(blocks[:12]) * int(block[:9]) if blocks.isdecimal() and block.isdecimal() else None
