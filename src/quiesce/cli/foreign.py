"""Options of other servers, and of our other commands: what is said when somebody types one here."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

import click

from quiesce.cli.fields import Kind, Slice, settings_of
from quiesce.cli.tree import BETWEEN_HOSTS, EVERY_NAME, ROUTER, SERVE, UNPAIRED_WORKER, WORKER

_OURS: dict[str, tuple[str, ...]] = {
    "--admin-api-key": ("--admin-key",),
    "--block-size": ("--page-size",),
    "--chunked-prefill-size": ("--max-prefill-tokens",),
    "--disable-radix-cache": ("--prefix-cache off",),
    "--disaggregation-enable-kv-checksum": ("--payload-digest blake2b",),
    "--disaggregation-transfer-backend": ("--transport",),
    "--enable-deterministic-inference": ("--deterministic",),
    "--gpu-memory-utilization": ("--memory-share",),
    "--max-model-len": ("--context-length",),
    "--max-num-batched-tokens": ("--max-prefill-tokens",),
    "--max-num-seqs": ("--max-running-requests",),
    "--max-queued-requests": ("--max-queue",),
    "--max-total-tokens": ("--prefill-pool-tokens", "--decode-pool-tokens", "--pool-tokens"),
    "--mem-fraction-static": ("--memory-share",),
    "--model-path": ("--model",),
    "--tool-call-parser": ("--tool-call-format",),
}
"""Their option to ours; of several, those that the command has are told."""
_ONE_PROCESS = "not supported: on CPU a worker is one process; --threads says how many threads it computes with."
_OWN_COMMANDS = "`quiesce serve` starts both roles; `quiesce prefill` and `quiesce decode` run one worker each."
_NONE = "There is none here."
_ELSEWHERE = {
    "--disaggregation-bootstrap-port": f"{_NONE} Halves meet at --listen: over Unix sockets, or over mutual TLS.",
    "--disaggregation-decode-enable-offload-kvcache": _NONE,
    "--disaggregation-decode-enable-radix-cache": "--prefix-cache is on by default, at decode too.",
    "--disaggregation-ib-device": _NONE,
    "--disaggregation-mode": _OWN_COMMANDS,
    "--kv-transfer-config": f"{_OWN_COMMANDS} --transport says how pages travel.",
    "--pd-disaggregation": f"{_OWN_COMMANDS} `quiesce router` takes their addresses by --worker.",
    "--policy": f"{_NONE} A pair is chosen by load; a request waits for its tenant's turn.",
    "--tensor-parallel-size": _ONE_PROCESS,
    "--tp": _ONE_PROCESS,
    "--tp-size": _ONE_PROCESS,
}
_COMMANDS = {"serve": SERVE, "router": ROUTER, "prefill": UNPAIRED_WORKER, "decode": WORKER}
_ONE_HOST = "`quiesce serve` keeps everything on one host, where nothing needs it."
_ALIKE = 0.75
"""How similar a name must be to be suggested; click's 0.6 finds --mode for --max-model-len."""


def explained(error: click.NoSuchOption) -> click.UsageError:
    """The error in our words, whichever command it is of."""
    command = error.ctx.command if error.ctx else click.Command(None)
    known = {flag for each in command.params if isinstance(each, click.Option) for flag in each.opts}
    return click.UsageError(explain(error.option_name, known, command.name or ""), error.ctx)


def explain(name: str, known: Collection[str], command: str = "") -> str:
    """What to say of an option that `command`, with the options `known`, does not have."""
    return f"No such option: {name}. {_hint(name, known, command)}".strip()


def _hint(name: str, known: Collection[str], command: str) -> str:
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if here := [ours for ours in _OURS.get(name, ()) if ours.partition(" ")[0] in known]:
        return f"Here it is {' and '.join(here)}."
    owners = _owners(name)
    if owners and command == "serve" and name.replace("--no-", "--") in _flags(BETWEEN_HOSTS):
        return f"{owners} {_ONE_HOST}"
    alike = " or ".join(difflib.get_close_matches(name, sorted(known), cutoff=_ALIKE))
    if alike or owners:
        return f"{owners} Did you mean {alike}?".strip() if alike else owners
    elsewhere = difflib.get_close_matches(name, sorted(_flags(EVERY_NAME)), n=1, cutoff=_ALIKE)
    return " ".join(f"Did you mean {each}? {_owners(each)}" for each in elsewhere)


def _owners(name: str) -> str:
    """Which of our commands have this option."""
    found = [each for each, slices in _COMMANDS.items() if name in _flags_of(slices)]
    return f"It is for {', '.join(f'`quiesce {each}`' for each in found)}." if found else ""


def _flags_of(slices: Sequence[Slice]) -> set[str]:
    settings = settings_of(slices)
    switches = (name for name, each in settings.items() if each.kind is Kind.SWITCH)
    return _flags(settings) | _flags(f"no_{name}" for name in switches)


def _flags(names: Iterable[str]) -> set[str]:
    return {f"--{name.replace('_', '-')}" for name in names}
