"""`quiesce doctor`: would this configuration leak or hang?"""

from __future__ import annotations

import os
from pathlib import Path

import click

from quiesce.doctor.documents import Kind
from quiesce.doctor.examination import Inputs, examine
from quiesce.doctor.findings import Diagnosis, Rule, Severity
from quiesce.doctor.report import as_json, as_text, explained
from quiesce.doctor.rules import RULES
from quiesce.doctor.sarif import as_sarif
from quiesce.errors import UsageError

_FORMATS = {"text": as_text, "json": as_json, "sarif": as_sarif}
_LEVELS = [severity.word for severity in sorted(Severity, reverse=True)]


@click.command(short_help="Would this configuration leak or hang? Of Quiesce, SGLang and vLLM.")
@click.argument("inputs", nargs=-1, metavar="[[ROLE=]URL|FILE]...")
@click.option("--args", "arguments", metavar="TEXT", multiple=True, help="A command line, or its flags. Repeatable.")
@click.option(
    "--tell", metavar="NAME=VALUE", multiple=True, help="What no input shows: version=0.5.23, tenants=one. Repeatable."
)
@click.option(
    "--kind", type=click.Choice([kind.value for kind in Kind]), help="What the files are, when their looks do not tell."
)
@click.option("--fail-on", type=click.Choice(_LEVELS), default="hang", show_default=True, help="Exit 1 from here up.")
@click.option(
    "--format", "shape", type=click.Choice(list(_FORMATS)), default="text", show_default=True, help="Of the report."
)
@click.option(
    "--key-file", type=click.Path(path_type=Path), metavar="FILE", help="A key for the servers that are asked."
)
@click.option("--list-rules", is_flag=True, help="List all rules and end.")
@click.option("--explain", metavar="RULE", help="Say all about one rule and end.")
def command(
    inputs: tuple[str, ...],
    arguments: tuple[str, ...],
    tell: tuple[str, ...],
    kind: str | None,
    fail_on: str,
    shape: str,
    key_file: Path | None,
    list_rules: bool,
    explain: str | None,
) -> int:
    """Examine launch commands, units, Kubernetes and compose files, start-up logs, and running servers.

    Several inputs are joined into one picture: prefill, decode and router. ROLE= (prefill=, decode=, decode-1=,
    router=) says which process an input is about. A server is asked by GET alone; a key for it may also be in
    QUIESCE_DOCTOR_KEY. Exit 0: nothing found, 1: found, 2: usage, 4: a server that tells nothing. See docs/doctor.md.
    """
    if list_rules or explain:
        click.echo(explained(_rule(explain)) if explain else _listed(), nl=False)
        return 0
    if not inputs and not arguments:
        raise UsageError("Nothing to examine.", remedy="Give a file, an address, or --args 'sglang serve ...'.")
    key = _key(key_file)
    diagnosis = examine(Inputs(inputs, arguments, tell, Kind(kind) if kind else None, key))
    click.echo(_FORMATS[shape](diagnosis), nl=False)
    return _code(diagnosis, Severity[fail_on.upper()])


def _code(diagnosis: Diagnosis, limit: Severity) -> int:
    return int(diagnosis.worst is not None and diagnosis.worst >= limit)


def _rule(name: str) -> Rule:
    for rule in RULES:
        if rule.id == name:
            return rule
    raise UsageError(f"--explain {name[:80]}: there is no such rule.", remedy="See --list-rules.")


def _listed() -> str:
    width = max(len(rule.id) for rule in RULES)
    return "".join(f"{rule.id:{width}}  {rule.severity.word:8}  {rule.title}\n" for rule in RULES)


def _key(file: Path | None) -> str | None:
    try:
        text = file.read_text(encoding="utf-8")[:4096] if file else os.environ.get("QUIESCE_DOCTOR_KEY", "")
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"--key-file {file}: cannot be read.") from None
    key = text.strip()
    if not key.isascii() or any(character.isspace() for character in key):
        raise UsageError("The key has characters that no header may have.")
    return key or None
