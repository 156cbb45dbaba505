"""Every run draws the same examples. HYPOTHESIS_PROFILE=explore draws new ones, for a search that may find more."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from quiesce.lasting import keep, making_what_lasts
from quiesce.telemetry.logs import LIBRARIES
from tests import stages

settings.register_profile("replay", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "replay"))


@pytest.fixture(autouse=True)
def _loggers_as_they_were() -> Iterator[None]:
    """What a test configures as a process would must not take the records of those after it."""
    loggers = [logging.getLogger(name) for name in ("quiesce", *LIBRARIES)]
    before = [(logger, logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, handlers, propagate, level in before:
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    with making_what_lasts():
        return (yield)


def pytest_collection_finish() -> None:
    """Libraries and tests stay until the end: a fifteenth of what the explorer's tests cost was looking at them."""
    keep()
    gc.set_threshold(20_000, 20, 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What each room's tests cost, against its budget."""
    reports = [each for found in terminalreporter.stats.values() for each in found if hasattr(each, "duration")]
    lines = stages.report(stages.spent_s((each.nodeid, each.duration) for each in reports))
    if lines:
        terminalreporter.section("seconds by room")
        terminalreporter.write_line("\n".join(lines))
