"""The one table that says, at start, what is served, where, and within which limits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from quiesce.cli.fields import Kind, Setting
from quiesce.cli.fronts import front_rows
from quiesce.cli.open_door import open_door_warning
from quiesce.cli.options import ISOLATION
from quiesce.cli.settings import Composed
from quiesce.cli.survey import Survey
from quiesce.protocol.dispatch import Welcome
from quiesce.protocol.hello import PULL
from quiesce.transport.registry import backend
from quiesce.units import show_bytes

# Settings that have a row of their own, or are seen in one.
_SEEN = frozenset(
    {
        *(
            "model",
            "dtype",
            "threads",
            "context_length",
            "host",
            "port",
            "api_key",
            "prefill",
            "decode",
            "transport",
            "transfer",
        ),
        *("fronts", "front_host", "front_open"),
        *("prefill_pool_tokens", "decode_pool_tokens", "memory_share"),
        *("max_running_requests", "max_prefill_tokens", "max_queue", "spare"),
    }
)

_TRANSPORT = ("transport", "transfer", "landing")
_PULLED = "decode's pages come back when its own reads have ended, prefill's when decode has read"
_OWN_MEMORY = "decode gave up the hand-off's own memory"

Row = tuple[str, str]


def start_table(workers: Sequence[Welcome], composed: Composed, url: str, survey: Survey, run_dir: Path) -> Table:
    """Rows of name and value: the address, the model, each worker, limits, then what differs from defaults."""
    table = Table(show_header=False, title="quiesce", title_justify="left", min_width=60)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("address", Text(url))
    table.add_row("api keys", Text(_keys(composed)))
    for name, value in _model_rows(workers[0]):
        table.add_row(name, Text(value))
    table.add_section()
    for welcome in workers:
        table.add_row(Text(welcome.worker), Text(_worker_line(welcome, survey)))
    table.add_row("spare", Text(survey.spare.line()))
    table.add_row("run directory", Text(str(run_dir)))
    table.add_row("limits", Text(_limits(composed)))
    if composed.get("mode") == "pd":
        table.add_row("transport", Text(transport_line(*(str(composed.get(name)) for name in _TRANSPORT))))
    for name, value in _differing(composed):
        table.add_row(name, Text(value))
    for warning in warnings(workers, composed):
        table.add_row("[red]warning", Text(warning))
    for name, value in front_rows(composed, [(welcome.worker, welcome.role) for welcome in workers]):
        table.add_row(Text(name), Text(value))
    if composed.get("console_key"):
        table.add_row("console", f"{url}/console")
    return table


def warnings(workers: Sequence[Welcome], composed: Composed) -> list[str]:
    """What the operator should know before trusting this server."""
    found = []
    if composed.get("unsafe_release_on_timeout"):
        found.append("--unsafe-release-on-timeout: held pages are freed without proof; answers may mix users' contexts")
    if open_door := open_door_warning(str(composed.get("host")), needs_key(composed)):
        found.append(open_door)
    threads = sum(int(dict(welcome.facts).get("threads", "1")) for welcome in workers)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads > cores:
        found.append(f"{threads} compute threads on {cores} cores: expect much worse latency")
    return found


def transport_line(name: str, transfer: str = "push", landing: str = "direct") -> str:
    """A transport, how far it reaches, and the proofs on which pages come back."""
    chosen = backend(name, transfer)
    if transfer == PULL:
        return f"{chosen.name} ({chosen.reach}), pull; {_PULLED}"
    fence = _OWN_MEMORY if landing == "staged" and chosen.segmented else chosen.fence
    proofs = {
        "writers acknowledged (drain_ack)": chosen.capabilities.drain_ack,
        f"{fence} (fence)": chosen.capabilities.fence,
    }
    return (
        f"{chosen.name} ({chosen.reach}); pages come back when: {', or '.join(p for p, has in proofs.items() if has)}"
    )


def needs_key(composed: Composed) -> bool:
    """Whether requests must bear a key."""
    return bool(composed.get("api_key") or composed.get("tenants"))


def _keys(composed: Composed) -> str:
    keys = composed.get("api_key")
    if composed.get("tenants"):
        return "needed; tenants have theirs"
    if not isinstance(keys, Sequence) or not keys:
        return "none needed"
    return f"needed; {len(keys)} {'is' if len(keys) == 1 else 'are'} valid"


def _model_rows(welcome: Welcome) -> list[Row]:
    dtype = dict(welcome.facts).get("dtype", "")
    rows = [("model", f"{welcome.model}, {dtype}  ({welcome.model_fingerprint[:12]})")]
    rows.append(("context", f"{welcome.context_length:,} tokens"))
    return rows


def _worker_line(welcome: Welcome, survey: Survey) -> str:
    """Capacity, threads, queue."""
    pages = welcome.pool_tokens // welcome.page_size
    pool = survey.prefill_pool if welcome.role == "prefill" else survey.decode_pool
    why = f" ({pool.why})" if pool.why else ""
    threads = dict(welcome.facts).get("threads", "1")
    return (
        f"{welcome.pool_tokens:,} tokens in {pages:,} pages of {welcome.page_size}{why}; "
        f"threads {threads}; {welcome.max_queue:,} may wait"
    )


def _limits(composed: Composed) -> str:
    batch, chunk = composed.get("max_running_requests"), composed.get("max_prefill_tokens")
    return f"{batch} requests in a batch; prompts in chunks of {chunk} tokens"


def _differing(composed: Composed) -> Iterator[Row]:
    """What was said and is not the default, except what is seen elsewhere or means nothing in this mode."""
    unseen = _SEEN if composed.get("mode") == "pd" else _SEEN | ISOLATION
    for name, setting in composed.settings.items():
        value = composed.get(name)
        if name not in unseen and value != setting.default and not setting.secret:
            yield setting.key, _value(setting, value)


def _value(setting: Setting, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g} s" if setting.kind is Kind.SECONDS else f"{value:g}"
    if isinstance(value, int):
        return show_bytes(value) if setting.kind is Kind.BYTES else f"{value:,}"
    return ", ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
