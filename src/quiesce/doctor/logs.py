"""Start-up logs: what a process says of itself when it begins. One line at a time, each bounded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import immutables
import msgspec

from quiesce.doctor.dialects import NAMES
from quiesce.doctor.documents import Document
from quiesce.doctor.fleet import Engine, Evidence, Field, Member, Part, Placed, Role, Told, evidence
from quiesce.doctor.launches import Pair, connector_pairs, member_of_pairs, sglang_role, vllm_role

MOST_LINE_CHARACTERS = 1 << 16
MOST_MEMBERS = 256
"""A log of that many starts is one of a crash loop: the last one is what counts."""

# Values of a Python repr: a quoted text, or what stands before the next comma. Neither can backtrack.
_PAIR = re.compile(r"(\w{1,80})=('[^']{0,4000}'|\"[^\"]{0,4000}\"|[^,()\s]{1,200})")
_ENTRY = re.compile(r"'(\w{1,80})': ('[^']{0,4000}'|\"[^\"]{0,4000}\"|[^,{}\s]{1,200})")
_SGLANG_VERSION = re.compile(r"\bsglang(?:[ _]version)?[ =:v]{1,3}(\d+\.\d+\.\d+[\w.+-]{0,40})", re.IGNORECASE)
_VLLM_VERSION = re.compile(r"(?:vLLM API server version |LLM engine \(v)(\d+\.\d+[\w.+-]{0,40})")
_VLLM_POOL = re.compile(r"KV cache size: ([\d,]{1,20}) tokens")
_VLLM_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]{1,20}) tokens per request: (\d+(?:\.\d+)?)x")
_VLLM_CONNECTOR = re.compile(r"KVTransferConfig\((.{0,8000})")
_QUIESCE = re.compile(r"\bts=\S{1,80} level=\w{1,20} role=(\w{1,20}) worker=(\S{1,80}) ")
_QUIESCE_JSON = re.compile(r'"role": "(\w{1,20})", "worker": "([^"]{1,80})"')
_UNSAFE = re.compile(r"--unsafe-release-on-timeout|msg=released .*proof=timeout")


def read_log(document: Document) -> list[Member]:
    """A member for each process that tells its settings."""
    log = _Log(document.name)
    for number, line in enumerate(document.text.split("\n"), 1):
        log.take(number, line[:MOST_LINE_CHARACTERS])
    return log.members()


class _Log:
    """Settings of each process so far. SGLang and vLLM print theirs once per start; the last life counts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._starts: list[tuple[Engine, dict[str, str]]] = []
        self._version: Placed | None = None
        self._found: dict[tuple[Role, str], Member] = {}

    def take(self, number: int, line: str) -> None:
        if "server_args=ServerArgs(" in line:
            self._start(Engine.SGLANG, _pairs(_PAIR, line, number))
        elif "max_total_num_tokens=" in line or "context_len=" in line:
            self._add(Engine.SGLANG, _pairs(_PAIR, line, number))
        elif "non-default args: " in line or "LLM engine (v" in line or "vLLM API server version" in line:
            self._vllm_start(number, line)
        elif "KV cache size: " in line or "Maximum concurrency for " in line:
            self._add(Engine.VLLM, _vllm_sizes(number, line))
        elif "ts=" in line or '"ts": ' in line:
            self._quiesce(number, line)
        if match := _SGLANG_VERSION.search(line):
            self._version = Placed(match[1], number)

    def members(self) -> list[Member]:
        lives = {_identity(engine, given): (engine, given) for engine, given in self._starts}
        found = [_member(self._name, index, *life) for index, life in enumerate(lives.values())]
        return [*(self._with_version(member) for member in found), *self._found.values()]

    def _with_version(self, member: Member) -> Member:
        if member.engine is not Engine.SGLANG or self._version is None or Field.VERSION in member.facts:
            return member
        place = evidence(self._name, self._version.line, f"sglang {self._version}")
        return msgspec.structs.replace(member, facts=member.facts.set(Field.VERSION, Told(str(self._version), place)))

    def _start(self, engine: Engine, pairs: Iterable[Pair]) -> None:
        self._starts = [*self._starts[-MOST_MEMBERS:], (engine, dict(pairs))]

    def _add(self, engine: Engine, pairs: Iterable[Pair]) -> None:
        if not self._starts or self._starts[-1][0] is not engine:
            self._start(engine, ())
        self._starts[-1][1].update(pairs)

    def _vllm_start(self, number: int, line: str) -> None:
        if "vLLM API server version" in line:
            self._start(Engine.VLLM, ())
        pairs = [*_pairs(_ENTRY, line, number), *_pairs(_PAIR, line, number)]
        if match := _VLLM_VERSION.search(line):
            pairs.append(("version", Placed(match[1], number)))
        if match := _VLLM_CONNECTOR.search(line):
            pairs += _pairs(_PAIR, match[1], number)
        config = next((text for name, text in pairs if name == "kv-transfer-config" and text.startswith("{")), None)
        self._add(Engine.VLLM, [*pairs, *(connector_pairs(config) if config else ())])

    def _quiesce(self, number: int, line: str) -> None:
        match = _QUIESCE.search(line) or _QUIESCE_JSON.search(line)
        if not match or match[1] not in tuple(Role):
            return
        role, worker = Role(match[1]), match[2][:80]
        key = (role, worker)
        if key not in self._found and len(self._found) < MOST_MEMBERS:
            place = evidence(self._name, number, f"role={role} worker={worker}")
            self._found[key] = Member(Engine.QUIESCE, role, f"{self._name} {worker}", place, kinds=frozenset({"log"}))
        if key in self._found and _UNSAFE.search(line):
            told = Told(True, evidence(self._name, number, line))
            member = self._found[key]
            self._found[key] = msgspec.structs.replace(member, facts=member.facts.set(Field.UNSAFE_RELEASE, told))


def _pairs(pattern: re.Pattern[str], line: str, number: int) -> list[Pair]:
    """Names as flags have them, of those that are looked for. `None` is what was not set."""
    found: list[Pair] = []
    for match in pattern.finditer(line):
        name, value = match[1].replace("_", "-"), match[2].strip("'\"")
        if name in NAMES and value != "None":
            found.append((name, Placed({"True": "true", "False": "false"}.get(value, value), number)))
    return found


def _vllm_sizes(number: int, line: str) -> Iterator[Pair]:
    if match := _VLLM_POOL.search(line):
        yield "pool", Placed(match[1], number)
    if match := _VLLM_CONCURRENCY.search(line):
        yield "max-model-len", Placed(match[1], number)
        yield "concurrency", Placed(match[2], number)


def _identity(engine: Engine, given: Mapping[str, str]) -> tuple[str, ...]:
    """Which process it is, over its lives."""
    return engine, *(given.get(name, "") for name in ("disaggregation-mode", "kv-role", "host", "port", "node-rank"))


def _member(source: str, index: int, engine: Engine, given: Mapping[str, str]) -> Member:
    role = sglang_role(given.get("disaggregation-mode", "?")) if engine is Engine.SGLANG else vllm_role(given)
    if engine is Engine.VLLM and "kv-role" not in given:
        role = Role.UNKNOWN
    # A start prints all arguments of SGLang; the environment is in no log.
    shown = (Part.FLAGS,) if engine is Engine.SGLANG and "disaggregation-mode" in given else ()
    name = source if index == 0 else f"{source} start {index + 1}"
    member = member_of_pairs(engine, given.items(), source, name, role, "log", shown)
    extra = {
        field: Told(
            float(str(given[key]).replace(",", "")), evidence(source, _line(given[key]), says.format(given[key]))
        )
        for key, field, says in _VLLM_STATE
        if key in given
    }
    place = Evidence(source, min(map(_line, given.values()), default=0), "start-up log")
    return msgspec.structs.replace(member, facts=immutables.Map({**member.facts, **extra}), source=place)


_VLLM_STATE = (
    ("pool", Field.POOL_TOKENS, "KV cache size: {} tokens"),
    ("concurrency", Field.CONCURRENCY, "Maximum concurrency: {}x"),
)


def _line(text: str) -> int:
    return text.line if isinstance(text, Placed) else 0
