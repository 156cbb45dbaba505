"""`quiesce serve` with fake processes: `fake_serve.py ROLL BEHAVIOURS [options of serve]`. Not a test.

BEHAVIOURS is `name=behaviour,...`; others are steady. This is also how a lab starts workers of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from quiesce.cli.options import SettingsCommand
from quiesce.cli.report import report
from quiesce.cli.serve import serve
from quiesce.cli.settings import Composed
from quiesce.cli.tree import EVERY_NAME, SERVE

FAKE = Path(__file__).with_name("fake_process.py")


def main(roll: str, behaviours: str, words: list[str]) -> int:
    special = dict(item.split("=") for item in behaviours.split(",") if item)

    def entry(role: str, name: str) -> Sequence[str]:
        return (sys.executable, str(FAKE), roll, special.get(name, "steady"), role)

    def action(composed: Composed, parent_fd: int | None) -> int:
        return serve(composed, entry)

    command = SettingsCommand("serve", SERVE, action, EVERY_NAME, about="fake", short="fake")
    try:
        return int(command.main(words, standalone_mode=False))
    except Exception as error:
        return report(error, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
