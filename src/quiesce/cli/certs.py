"""`quiesce certs`: a CA and certificates for a trial of several hosts."""

from __future__ import annotations

import re
from pathlib import Path

import click

from quiesce.cli.installation import lacks_extra
from quiesce.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}|[0-9A-Fa-f:.]{2,45}")
_HERE = "localhost,127.0.0.1"
_DEFAULT = (f"prefill-0={_HERE}", f"decode-0={_HERE}")


@click.command(short_help="Make a CA and certificates for a trial of several hosts.")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--router", "routers", multiple=True, metavar="NAME[=HOST,..]", help="A router; HOST for --control-listen."
)
@click.option("--prefill", "prefills", multiple=True, metavar="NAME=HOST[,HOST]", help="A prefill worker.")
@click.option("--decode", "decodes", multiple=True, metavar="NAME=HOST[,HOST]", help="A decode worker.")
@click.option("--days", type=click.IntRange(1, 825), default=30, show_default=True, help="How long they are valid.")
def command(
    directory: Path, routers: tuple[str, ...], prefills: tuple[str, ...], decodes: tuple[str, ...], days: int
) -> None:
    """Write NAME.pem and NAME.key for each process to DIR, and ca.pem and ca.key if DIR has no CA yet.

    HOST is a name or IP address under which a worker is dialled; the certificate is good for no other, and for no other
    role or name. Keys are readable by you alone. No file is ever overwritten. With no option: a router, prefill-0
    and decode-0 on this machine.

    To renew, copy ca.pem and ca.key into a new directory, make certificates there and move them over the old ones: a
    directory without them gets a new CA. A CA that is made is valid for --days, too, and ends what it has signed.
    """
    try:
        from quiesce.trust.certificates import Leaf, make_certificates
    except ModuleNotFoundError as missing:
        raise lacks_extra(str(missing.name), "hosts") from None
    nobody = not (routers or prefills or decodes)
    workers = [("prefill", told) for told in prefills] + [("decode", told) for told in decodes]
    if nobody:
        routers, workers = ("router",), [(told.partition("-")[0], told) for told in _DEFAULT]
    leaves = [Leaf(*_router(told)) for told in routers]
    leaves += [Leaf(*_read(role, told)) for role, told in workers]
    names = [leaf.name for leaf in leaves]
    if len(set(names)) < len(names) or "ca" in names:
        raise UsageError("Names must differ from each other and from ca; nothing was written.")
    for path in make_certificates(directory, leaves, days):
        click.echo(str(path))


def _router(told: str) -> tuple[str, str, tuple[str, ...]]:
    """Nobody dials one, except workers that announce themselves to it."""
    name, _, hosts = _read("router", told) if "=" in told else (_checked(told), "", ())
    return name, "router", hosts


def _read(role: str, told: str) -> tuple[str, str, tuple[str, ...]]:
    name, equals, hosts = told.partition("=")
    listed = tuple(host for host in hosts.split(",") if host)
    if not equals or not listed or not all(_HOST.fullmatch(host) for host in listed):
        raise UsageError(f"--{role} {told}: write NAME=HOST[,HOST]; nothing was written.")
    return _checked(name), f"{role}/{name}", listed


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a certificate's file; nothing was written.")
    return name
