"""Files of tenants for tests, and requests that bear their keys."""

from __future__ import annotations

from pathlib import Path

from quiesce.router.tenants_file import key_lines

SECRET = "ab" * 32


def key_of(tenant: str) -> str:
    return f"qk-{tenant}-secret"


def bearer(tenant: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key_of(tenant)}"}


def write_tenants(path: Path, salt: str = f'[salt]\nsecret = "{SECRET}"\n', **limits: str) -> str:
    """A file in which each tenant has one key, and the limits that are said of it; its name."""
    tables = "".join(f"[tenant.{name}]\n{said}\n{key_lines(name, key_of(name))}\n" for name, said in limits.items())
    path.write_text(f"{salt}\n{tables}", encoding="utf-8")
    path.chmod(0o600)
    return str(path)
