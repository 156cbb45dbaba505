"""`quiesce version`: which code, and which versions of what it stands on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import click

from quiesce import __version__
from quiesce.errors import install
from quiesce.protocol.hello import PROTOCOL_VERSION

STANDS_ON = ("torch", "numba", "numpy", "tokenizers", "msgspec", "starlette", "uvicorn")


@click.command(short_help="Show versions.")
def command() -> None:
    """Show versions: quiesce, its hand-off protocol, Python and libraries."""
    for name, number in versions().items():
        click.echo(f"{name:<12}{number}")


def versions() -> dict[str, str]:
    """By name."""
    rows = {"quiesce": __version__, "protocol": str(PROTOCOL_VERSION), "python": platform.python_version()}
    return rows | {name: _installed(name) for name in STANDS_ON}


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return f"not installed ({install('serve')})" if name in ("torch", "numba") else "not installed"
