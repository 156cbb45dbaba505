"""docs/settings.md, made from the settings structs: `python -m quiesce.cli.reference > docs/settings.md`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quiesce.cli.fields import Kind, Setting, Slice, settings_of
from quiesce.cli.options import ABOUT_SOURCES, GROUPS, OTHERS
from quiesce.cli.tree import ROUTER, SERVE, WORKER
from quiesce.units import show_bytes

_INTRODUCTION = f"""# Settings

This page is generated from the settings structs by `python -m quiesce.cli.reference`; a test compares it with them.

{ABOUT_SOURCES}
`--page-size 16`, `QUIESCE_PAGE_SIZE=16` and `page-size = 16` say the same. Durations take a unit (`500ms`, `30s`,
`2m`), so do bytes (`512M`, `4G`); a switch has a `--no-` form; what is repeatable is separated by commas in a
variable and a list in the file. One file may serve several commands: each takes what is its own. All problems are
reported at once, with exit code 2."""

_COMMANDS: tuple[tuple[str, Sequence[Slice]], ...] = (
    ("quiesce serve", SERVE),
    ("quiesce router", ROUTER),
    ("quiesce prefill, decode, aggregated", WORKER),
)


def page() -> str:
    """The whole page as Markdown."""
    return "\n\n".join([_INTRODUCTION, *(_command(title, slices) for title, slices in _COMMANDS)]) + "\n"


def _command(title: str, slices: Sequence[Slice]) -> str:
    settings = settings_of(slices)
    sections = [f"## {title}"]
    for group, names in GROUPS:
        if mine := [settings.pop(name) for name in names if name in settings]:
            sections.append(_table(group, mine))
    if settings:
        sections.append(_table(OTHERS, settings.values()))
    return "\n\n".join(sections)


def _table(title: str, settings: Iterable[Setting]) -> str:
    rows = [f"| {title} | default | |", "| --- | --- | --- |"]
    rows += [f"| `{_written(setting)}` | {_default(setting)} | {setting.description} |" for setting in settings]
    return "\n".join(rows)


def _written(setting: Setting) -> str:
    value = "\\|".join(setting.choices) or setting.kind.value
    return f"{setting.flag} {value}".strip()


def _default(setting: Setting) -> str:
    if setting.required:
        return "required"
    if setting.kind is Kind.SWITCH:
        return "on" if setting.default else "off"
    if setting.default in (None, "", ()):
        return ""
    if setting.kind is Kind.BYTES:
        return show_bytes(setting.default)
    return f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default)


if __name__ == "__main__":
    print(page(), end="")
