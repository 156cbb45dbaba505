"""`quiesce keys`: keys of tenants, of which only hashes are kept."""

from __future__ import annotations

from pathlib import Path

import click

from quiesce.cli.report import warn
from quiesce.router.tenants import Tenant, Tenants
from quiesce.router.tenants_file import add_key, check_name, key_lines, mint_key, read_tenants


@click.group(short_help="Make keys for tenants, and check their file.")
def command() -> None:
    """Keys for the file of --tenants. A key is shown once, when it is made; the file holds its hash."""


@command.command(short_help="Make a key for a tenant.")
@click.option("--tenant", required=True, metavar="NAME", help="Whose key it is.")
@click.option("--file", type=click.Path(path_type=Path), metavar="FILE", help="Add it there; made if it is not there.")
def new(tenant: str, file: Path | None) -> None:
    """Print a new key on stdout, and add its hash to FILE (or print the lines to add).

    A running router reads the file again at SIGHUP.
    """
    check_name(tenant)
    key = mint_key()
    if file is None:
        click.echo(key_lines(tenant, key).lstrip("\n"), err=True, nl=False)
    else:
        add_key(file, tenant, key)
        click.echo(f"added to {file}; a router that runs takes it at SIGHUP. This is shown once:", err=True)
    click.echo(key)


@command.command(short_help="Check a file of tenants.")
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Say what is wrong with FILE, or list its tenants, how many keys each has, and its limits."""
    tenants, warnings = read_tenants(file, b"")
    for warning in warnings:
        warn(warning)
    for tenant in tenants.by_name.values():
        click.echo(_line(tenant, tenants))


def _line(tenant: Tenant, tenants: Tenants) -> str:
    keys = sum(known.tenant == tenant.name for known in tenants.keys)
    unset = Tenant(name="")
    said = [
        f"{field.replace('_', '-')} {value}"
        for field in tenant.__struct_fields__
        if field not in ("name", "salt") and (value := getattr(tenant, field)) != getattr(unset, field)
    ]
    return f"{tenant.name}: {', '.join([f'keys {keys}', *said])}"
