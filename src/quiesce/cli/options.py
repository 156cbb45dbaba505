"""click commands whose options are made from settings structs, grouped in `--help` by what they are about."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence

import click

from quiesce.cli.fields import Kind, Setting, Slice, settings_of
from quiesce.cli.settings import Composed, compose
from quiesce.units import show_bytes

_HAND_OFF = (
    *("transport", "transfer", "data_host", "data_port", "data_connections"),
    *("trust_network", "trust_transport"),
    *("transfer_batch_pages", "call_deadline_s", "handoff_timeout_s", "resend_s", "hold_deadline_s"),
    *("fence_policy", "quarantine_budget", "landing", "landing_bytes", "payload_digest"),
    "unsafe_release_on_timeout",
)
ISOLATION = frozenset(_HAND_OFF)
"""Settings that mean nothing where no hand-off is."""

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Model", ("model", "dtype", "threads", "deterministic", "context_length")),
    ("HTTP", ("host", "port", "served_model_name", "api_key", "admin_key", "console_key")),
    ("Tenants and queueing", ("tenants", "queue_per_tenant", "prefill_window", "decode_window")),
    ("Fronts for other routers", ("fronts", "front_host", "front_key", "front_open")),
    ("Workers", ("mode", "prefill", "decode", "spare", "name", "listen", "peer", "worker", "workers_file", "role")),
    (
        "Between hosts",
        (
            *("register", "advertise", "control_listen", "workers_srv", "dns_server"),
            *("tls_cert", "tls_key", "tls_ca", "insecure", "data_tls"),
        ),
    ),
    (
        "KV pools and batches",
        (
            *("prefill_pool_tokens", "decode_pool_tokens", "pool_tokens", "memory_share", "allow_small_pool"),
            *("page_size", "prefix_cache", "max_prefill_tokens", "max_running_requests", "headroom_tokens"),
            "max_queue",
        ),
    ),
    ("Hand-off and isolation", _HAND_OFF),
)
OTHERS = "More"
_BARE = "bare"
WORDS = "quiesce.words"
"""Where a click context keeps what followed the command."""
ABOUT_SOURCES = (
    "Each option is also a QUIESCE_ variable and a key of the --config file; a flag beats a variable beats the file."
)


class SettingsCommand(click.Command):
    """A command with an option for each setting of its slices.

    `action` gets what was said, problems included, and the supervisor's pipe; it returns the exit code. `known` are
    field names of other commands, which a shared file may hold. `positional` names a setting that may also be given
    without its flag.
    """

    def __init__(
        self,
        name: str,
        slices: Sequence[Slice],
        action: Callable[[Composed, int | None], int],
        known: Collection[str],
        *,
        about: str,
        short: str,
        examples: Sequence[str] = (),
        positional: str = "",
    ) -> None:
        self.settings = settings_of(slices)
        self.slices = tuple(slices)
        self.examples = tuple(examples)
        bare = [click.Argument([_BARE], metavar=f"[{positional.upper()}]", required=False)] if positional else []
        options = [option(setting) for setting in self.settings.values()]
        super().__init__(name, params=[*bare, *options, *_common()], callback=self._call, help=about, short_help=short)
        self._action = action
        self._known = known
        self._positional = positional

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = tuple(args)
        return super().parse_args(ctx, args)

    def _call(self, config: str | None, parent_fd: int | None, **flags: object) -> int:
        if (bare := flags.pop(_BARE, None)) is not None:
            if flags[self._positional] not in (None, bare):
                raise click.UsageError(f"Both {bare} and --{self._positional} {flags[self._positional]} are given.")
            flags[self._positional] = bare
        composed = compose(self.slices, flags, environ=os.environ, config=config, known=self._known)
        return self._action(composed, parent_fd)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, parameters in _grouped(self.params):
            rows = [row for parameter in parameters if (row := parameter.get_help_record(ctx))]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {example}\n" for example in self.examples))
        formatter.write_paragraph()
        formatter.write_text(ABOUT_SOURCES)


def option(setting: Setting) -> click.Option:
    """The flag of a setting. Values stay text here, so that all problems can be told at once."""
    words = f"{setting.description}{_default(setting)}"
    if setting.kind is Kind.SWITCH:
        return click.Option([f"{setting.flag}/--no-{setting.key}", setting.name], default=None, help=words)
    shown = "|".join(setting.choices) or setting.kind.value
    many = setting.kind is Kind.LIST
    return click.Option(
        [setting.flag, setting.name], metavar=shown.removesuffix(" ..."), default=None, multiple=many, help=words
    )


def _default(setting: Setting) -> str:
    if setting.required:
        return "  [required]"
    if setting.default in (None, "", (), False):
        return ""
    default = f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default)
    if setting.kind is Kind.BYTES:
        default = show_bytes(setting.default)
    return f"  [default: {default}]"


def _common() -> list[click.Option]:
    return [
        click.Option(["--config"], metavar="FILE", help="TOML file with settings: page-size = 16, model = \"tiny\"."),
        # The supervisor's pipe: at its end of file this process stops, so no child outlives `quiesce serve`.
        click.Option(["--parent-fd"], type=int, hidden=True),
    ]  # fmt: skip


def _grouped(parameters: Sequence[click.Parameter]) -> list[tuple[str, list[click.Parameter]]]:
    by_name = {parameter.name: parameter for parameter in parameters}
    groups = [(title, [by_name.pop(name) for name in names if name in by_name]) for title, names in GROUPS]
    return [*groups, (OTHERS, list(by_name.values()))]
