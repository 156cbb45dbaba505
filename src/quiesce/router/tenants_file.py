"""The file behind `--tenants`: read and checked as a whole, and added to by `quiesce keys new`."""

from __future__ import annotations

import datetime
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from quiesce.errors import ConfigurationError
from quiesce.router.tenants import MAX_PRIORITY, UNNAMED, KnownKey, Tenant, Tenants, digest_of, salt_of

T = TypeVar("T")

MOST_TENANTS = 1000
MOST_KEYS = 4096
MOST_FILE_BYTES = 4 << 20

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SECRET_BYTES = 32

Count = Annotated[int, Meta(ge=1, le=1 << 40)]
Priority = Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
Weight = Annotated[int, Meta(ge=1, le=1000)]
Hex256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]


class TenantTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """`[tenant.NAME]`: every limit may be left out."""

    weight: Weight = 1
    max_concurrent: Count | None = None
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    max_prompt_tokens: Count | None = None
    max_tokens: Count | None = None
    priority: Priority = 0
    earliest_priority: Priority | None = None


class KeyTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[key]]`: `id` is the beginning of the key, by which people know it."""

    tenant: str
    sha256: Hex256
    id: str = ""
    created: Any = None


class SaltTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[salt]`: with a secret, tenants keep their salts over restarts, and routers that share the file share them."""

    secret: Hex256


def read_tenants(path: Path, secret: bytes) -> tuple[Tenants, list[str]]:
    """What the file says, and warnings. `secret` makes the salts if the file has none of its own.

    Raises ConfigurationError with everything that is wrong with it.
    """
    raw, warnings, problems = _read(path)
    _refuse_others(raw, problems)
    salt = _table(raw.get("salt"), SaltTable, "[salt]", problems)
    tables = _tenant_tables(raw.get("tenant", {}), problems)
    keys = _keys(raw.get("key", []), tables, problems)
    if problems:
        raise ConfigurationError([f"--tenants {path}: {problem}" for problem in problems])
    made = bytes.fromhex(salt.secret) if salt else secret
    if not keys:
        warnings.append(f"{path} has no key; `quiesce keys new --tenant NAME --file {path}` makes one")
    tables = {UNNAMED: TenantTable()} | tables
    return Tenants({name: _tenant(name, table, made) for name, table in tables.items()}, keys), warnings


def add_key(path: Path, tenant: str, key: str) -> None:
    """Append the key's hash; make the file, and the tenant without limits, where they are not there yet.

    What the file says already stays as it is, comments included. Raises ConfigurationError, and then changes nothing.
    """
    check_name(tenant)
    new = not path.exists()
    if not new:
        read_tenants(path, b"")
    text = f'[salt]\nsecret = "{secrets.token_hex(_SECRET_BYTES)}"\n' if new else _text(path)
    known = tomllib.loads(text).get("tenant", {})
    if text and not text.endswith("\n"):
        text += "\n"
    text += "" if tenant in known else f"\n[tenant.{tenant}]\n"
    _replace(path, text + key_lines(tenant, key))


def check_name(tenant: str) -> None:
    """Raises ConfigurationError for what cannot be a tenant's name."""
    if not _NAME.fullmatch(tenant):
        raise ConfigurationError([_bad_name(tenant)])


def key_lines(tenant: str, key: str) -> str:
    """What stands in the file for a key."""
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    created = now.isoformat().replace("+00:00", "Z")
    digest = digest_of(key).hex()
    return f'\n[[key]]\ntenant = "{tenant}"\nid = "{key_id(key)}"\nsha256 = "{digest}"\ncreated = {created}\n'


def mint_key() -> str:
    """A new key: an id to know it by, then 256 random bits."""
    return f"qk-{secrets.token_hex(4)}-{secrets.token_urlsafe(_SECRET_BYTES)}"


def key_id(key: str) -> str:
    """The part of a key that may be shown."""
    return "-".join(key.split("-")[:2])


def _read(path: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """What stands there, warnings, and problems of the file itself."""
    try:
        status = path.stat()
        if status.st_size > MOST_FILE_BYTES:
            raise ConfigurationError([f"--tenants {path}: it has more than {MOST_FILE_BYTES} bytes"])
        return tomllib.loads(_text(path)), *_open_to_others(path, status)
    except OSError as problem:
        raise ConfigurationError([f"--tenants {path}: {problem.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigurationError([f"--tenants {path}: {problem}"]) from None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _open_to_others(path: Path, status: os.stat_result) -> tuple[list[str], list[str]]:
    """Warnings and problems: who can read the file learns the salts, and no key; who can write it lets anybody in."""
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return [], ["others can write it; chmod 600 it"]
    readable = status.st_mode & (stat.S_IRGRP | stat.S_IROTH)
    return [f"{path} can be read by others; chmod 600 it"] if readable else [], []


def _refuse_others(raw: Mapping[str, Any], problems: list[str]) -> None:
    problems += [f"there is no {name!r}; it has [tenant.NAME], [[key]] and [salt]" for name in raw.keys() - _TABLES]


_TABLES = {"tenant", "key", "salt"}


def _tenant_tables(raw: Any, problems: list[str]) -> dict[str, TenantTable]:
    if not isinstance(raw, dict) or len(raw) > MOST_TENANTS:
        problems.append(f"tenant must be tables, [tenant.NAME], at most {MOST_TENANTS}")
        return {}
    problems += [_bad_name(name) for name in raw if not _NAME.fullmatch(name)]
    tables = {name: _table(said, TenantTable, f"[tenant.{name}]", problems) for name, said in raw.items()}
    for name, table in tables.items():
        if table and table.earliest_priority is not None and table.earliest_priority > table.priority:
            problems.append(f"[tenant.{name}]: earliest-priority is later than priority; the lower number is earlier")
    return {name: table or TenantTable() for name, table in tables.items()}


def _keys(raw: Any, tables: Mapping[str, TenantTable], problems: list[str]) -> list[KnownKey]:
    if not isinstance(raw, list) or len(raw) > MOST_KEYS:
        problems.append(f"key must be an array of tables, [[key]], at most {MOST_KEYS}")
        return []
    found: dict[bytes, KnownKey] = {}
    for number, said in enumerate(raw, 1):
        table = _table(said, KeyTable, f"[[key]] {number}", problems)
        if table is None:
            continue
        digest = bytes.fromhex(table.sha256)
        if table.tenant not in tables:
            problems.append(f"[[key]] {number}: there is no [tenant.{table.tenant[:64]}]")
        if digest in found:
            problems.append(f"[[key]] {number}: this key is there twice")
        found[digest] = KnownKey(digest, table.tenant)
    return list(found.values())


def _table(raw: Any, kind: type[T], where: str, problems: list[str]) -> T | None:
    """The table as its type; what is wrong with it is a problem, and its values are not shown."""
    if raw is None:
        return None
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as problem:
        wrong = _wrong_fields(raw, kind) if isinstance(raw, dict) else []
        problems += [f"{where}: {each}" for each in wrong or [str(problem)]]
        return None


def _wrong_fields(raw: Mapping[str, Any], kind: type[Any]) -> list[str]:
    """All that is wrong with a table, where msgspec stops at the first."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    found = [f"Object contains unknown field `{name[:64]}`" for name in raw if name not in fields]
    for name, field in fields.items():
        if name not in raw:
            found += [f"Object missing required field `{name}`"] if field.required else []
            continue
        try:
            msgspec.convert(raw[name], field.type)
        except msgspec.ValidationError as problem:
            found.append(f"{problem} - at `$.{name}`")
    return found


def _tenant(name: str, table: TenantTable, secret: bytes) -> Tenant:
    limits = {field: getattr(table, field) for field in table.__struct_fields__ if field != "earliest_priority"}
    earliest = table.priority if table.earliest_priority is None else table.earliest_priority
    return Tenant(name=name, salt=salt_of(secret, name), earliest_priority=earliest, **limits)


def _replace(path: Path, text: str) -> None:
    """All of it or nothing, and only its owner may read it."""
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            beside.replace(path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
    except OSError as problem:
        raise ConfigurationError([f"cannot write {path}: {problem.strerror}"]) from None


def _bad_name(name: str) -> str:
    return f"tenant {name[:64]!r}: a name has 1 to 64 letters, digits, - and _"
