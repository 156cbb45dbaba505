"""The page about settings says what the program does."""

from __future__ import annotations

from pathlib import Path

from quiesce.cli.reference import page
from quiesce.cli.tree import EVERY_NAME

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_up_to_date() -> None:
    """Else run `python -m quiesce.cli.reference > docs/settings.md`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_setting_of_every_command_is_on_it() -> None:
    text = page()
    missing = [name for name in EVERY_NAME - {"role"} if f"`--{name.replace('_', '-')}" not in text]
    assert missing == []
