"""A running server, asked by GET alone, within bounds of size and time. Redirects are not followed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx
import immutables
import msgspec

from quiesce.doctor.answers import MOST_VALUE, read_metrics, server_member
from quiesce.doctor.documents import Document
from quiesce.doctor.fleet import Engine, Evidence, Field, Member, Role, Told, evidence
from quiesce.errors import PeerUnusable, UsageError

MOST_ANSWER_BYTES = 8 << 20
PATIENCE_S = 10.0
"""For all questions of one server together."""

PATHS = ("/server_info", "/get_server_info", "/metrics", "/v1/loads", "/version", "/v1/models")
_SERVER_INFO = ("/server_info", "/get_server_info")


class Answer(msgspec.Struct, frozen=True):
    """`status` is 0 and `trouble` says why when no answer could be used; `silent` when there was none at all."""

    status: int
    text: str
    trouble: str = ""
    silent: bool = False


def examine(url: str, key: str | None, patience_s: float = PATIENCE_S) -> tuple[list[Member], list[str]]:
    """The processes that a server tells of, and notes on what it did not tell.

    Raises UsageError for an address that is none, and PeerUnusable for a server that tells nothing.
    """
    base = checked(url)
    answers = asyncio.run(_ask(base, key, patience_s))
    members = _members(base, answers)
    if not members:
        raise _unusable(base, answers)
    open_door = key is None and answers["/v1/models"].status == 200
    return [_placed(member, base, open_door) for member in members], list(_notes(base, answers))


def _unusable(base: str, answers: Mapping[str, Answer]) -> PeerUnusable:
    if all(answer.silent for answer in answers.values()):
        why = "; ".join(dict.fromkeys(_why(answer) for answer in answers.values()))
        remedy = "Is it running, and is this its address?"
        return PeerUnusable(f"{base} does not answer ({why}).", remedy=remedy, took_effect=False)
    why = "; ".join(f"{path}: {_why(answers[path])}" for path in PATHS)
    remedy = "Is it the address of a server of SGLang, vLLM or Quiesce?"
    if any(answer.status in (401, 403) for answer in answers.values()):
        remedy = "Give a key with QUIESCE_DOCTOR_KEY."
    return PeerUnusable(f"{base} tells nothing that can be examined ({why}).", remedy=remedy, took_effect=False)


def checked(url: str, key: str = "QUIESCE_DOCTOR_KEY") -> str:
    """The address without a path, once it is one of HTTP; `key` is where keys are given. Raises UsageError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(f"{url[:200]!r} is no address.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url[:200]!r} is no http:// or https:// address.")
    if parts.username or parts.password:
        raise UsageError("An address must not hold a password.", remedy=f"Give a key with {key}.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


async def _ask(base: str, key: str | None, patience_s: float) -> dict[str, Answer]:
    headers = {"Accept-Encoding": "identity", "User-Agent": "quiesce-doctor"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    # No proxies and no .netrc: the machine that is asked is the one that was named.
    async with httpx.AsyncClient(
        headers=headers, timeout=patience_s, follow_redirects=False, trust_env=False
    ) as client:
        asked = [asyncio.create_task(_get(client, base + path)) for path in PATHS]
        await asyncio.wait(asked, timeout=patience_s)
        late = [task for task in asked if not task.done()]
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        over = Answer(0, "", f"no full answer within {patience_s:g} s", silent=True)
        return {path: over if task in late else task.result() for path, task in zip(PATHS, asked, strict=True)}


async def _get(client: httpx.AsyncClient, url: str) -> Answer:
    try:
        async with client.stream("GET", url) as response:
            if response.is_redirect:
                where = response.headers.get("location", "")[:80]
                return Answer(0, "", f"redirects to {where!r}, which is not followed")
            return await _read(response)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as problem:
        silent = isinstance(problem, (httpx.ConnectError, httpx.TimeoutException))
        return Answer(0, "", str(problem)[:120] or type(problem).__name__, silent)


async def _read(response: httpx.Response) -> Answer:
    if response.headers.get("content-encoding", "identity") != "identity":
        return Answer(0, "", "is compressed, which was not asked for")
    parts, size = [], 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > MOST_ANSWER_BYTES:
            return Answer(0, "", f"more than {MOST_ANSWER_BYTES} bytes")
        parts.append(part)
    return Answer(response.status_code, b"".join(parts).decode("utf-8", "replace"))


def _members(base: str, answers: Mapping[str, Answer]) -> list[Member]:
    measured = _metrics(base, answers["/metrics"])
    told = [member for path in _SERVER_INFO if (member := _told(base, path, answers[path]))][:1]
    loads = _told(base, "/v1/loads", answers["/v1/loads"])
    if told:
        return [_joined(told[0], measured if len(measured) == 1 else [], loads)]
    version = _object(answers["/version"]).get("version")
    found = [_with_version(member, base, version) for member in measured]
    limit = _context(answers["/v1/models"])
    return [_with_context(member, base, limit) for member in found]


def _metrics(base: str, answer: Answer) -> list[Member]:
    if answer.status != 200:
        return []
    try:
        members = read_metrics(Document(f"{base}/metrics", answer.text))
    except UsageError:
        return []
    return [msgspec.structs.replace(member, name=member.name.replace("/metrics", "")) for member in members]


def _told(base: str, path: str, answer: Answer) -> Member | None:
    body = _object(answer)
    member = server_member(Document(f"{base}{path}", answer.text), body) if body else None
    return msgspec.structs.replace(member, name=base) if member else None


def _object(answer: Answer) -> dict[str, object]:
    if answer.status != 200:
        return {}
    try:
        return msgspec.json.decode(answer.text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {}


def _joined(told: Member, measured: list[Member], loads: Member | None) -> Member:
    """One process: what it says of itself counts before what is measured."""
    facts = dict(told.facts)
    for other in [*measured, *([loads] if loads else [])]:
        if other.engine is told.engine or other is loads:
            facts = {**other.facts, **facts}
    return msgspec.structs.replace(told, facts=immutables.Map(facts))


def _with_version(member: Member, base: str, version: object) -> Member:
    if not isinstance(version, str):
        return member
    told = Told(version[:80], evidence(f"{base}/version", 0, f"version {version}"))
    return msgspec.structs.replace(member, facts=member.facts.set(Field.VERSION, told))


def _context(answer: Answer) -> int | None:
    """`max_model_len` of the first model."""
    listed = _object(answer).get("data")
    model = listed[0] if isinstance(listed, list) and listed else {}
    limit = model.get("max_model_len") if isinstance(model, dict) else None
    is_count = isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit <= MOST_VALUE
    return limit if is_count else None


def _with_context(member: Member, base: str, limit: int | None) -> Member:
    if limit is None or Field.CONTEXT_TOKENS in member.facts:
        return member
    told = Told(limit, evidence(f"{base}/v1/models", 0, f"max_model_len {limit}"))
    return msgspec.structs.replace(member, facts=member.facts.set(Field.CONTEXT_TOKENS, told))


def _placed(member: Member, base: str, open_door: bool) -> Member:
    """With the address as it was reached, and whether it asks for a key."""
    if member.engine is Engine.QUIESCE and member.role not in (Role.ROUTER, Role.UNKNOWN):
        return member
    host = urlsplit(base).hostname or ""
    facts = member.facts
    if Field.HOST not in facts:
        facts = facts.set(Field.HOST, Told(host, evidence(base, 0, f"reached at {host}")))
    if open_door and Field.API_KEY not in facts:
        facts = facts.set(Field.API_KEY, Told(False, evidence(f"{base}/v1/models", 0, "200 without a key")))
    return msgspec.structs.replace(member, facts=facts, source=Evidence(base, 0, "a running server"))


def _why(answer: Answer) -> str:
    return answer.trouble or (str(answer.status) if answer.status != 200 else "nothing of use")


def _notes(base: str, answers: Mapping[str, Answer]) -> list[str]:
    """Paths that are there and could not be used."""
    troubles = [(path, answers[path]) for path in PATHS if answers[path].status in (401, 403) or answers[path].trouble]
    return [f"{base}{path}: {_why(answer)}" for path, answer in troubles]
