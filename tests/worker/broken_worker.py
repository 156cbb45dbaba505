"""A worker whose engine breaks after it has warmed up: `python -m tests.worker.broken_worker ROLE ...`."""

from __future__ import annotations

import itertools
import sys
from typing import Any
from unittest import mock

from quiesce.engine.engine import Engine
from quiesce.lab.worker import main

WARM_UP_STEPS = 2


def _breaking(*args: Any) -> Any:
    if next(_calls) >= WARM_UP_STEPS:
        raise ValueError("no such kernel")
    return _decode_step(*args)


_calls, _decode_step = itertools.count(), Engine.decode_step

if __name__ == "__main__":
    with mock.patch.object(Engine, "decode_step", _breaking):
        sys.exit(main(sys.argv[1:]))
