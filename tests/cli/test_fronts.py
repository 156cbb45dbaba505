"""What `--fronts` asks of a server is checked before anything is started, and said when it is up."""

from __future__ import annotations

import socket

import pytest

from quiesce.cli.fronts import front_problems, front_rows
from quiesce.cli.plan import plan
from quiesce.cli.port import free_ports
from quiesce.cli.serve_settings import ServeSettings
from quiesce.cli.settings import Composed, compose
from quiesce.cli.tree import SERVE
from quiesce.errors import ConfigurationError

from .test_plan import RUN

KEY = "a key of the other router"


def composed(**flags: object) -> Composed:
    return compose(SERVE, flags, environ={})


def test_without_fronts_there_is_nothing_to_say() -> None:
    settings = composed(front_key=KEY)
    assert front_problems(settings) == []
    assert front_rows(settings, [("prefill-0", "prefill")]) == []


def test_fronts_need_a_key() -> None:
    (problem,) = front_problems(composed(fronts="0"))
    assert "--front-key" in problem


def test_free_ports_are_found_and_told_to_the_router() -> None:
    settings = composed(fronts="0", front_key=KEY, prefill="2")
    assert front_problems(settings) == []
    first = settings.values["fronts"]
    assert isinstance(first, int)
    assert first > 0
    router = plan(settings.build(ServeSettings), settings, RUN)[-1]
    assert (router.settings["fronts"], router.settings["front_key"]) == (first, KEY)
    workers = [("prefill-0", "prefill"), ("prefill-1", "prefill"), ("decode-0", "decode")]
    assert front_rows(settings, workers) == [
        ("front of prefill-0", f"http://127.0.0.1:{first}, bootstrap port {first}"),
        ("front of prefill-1", f"http://127.0.0.1:{first + 1}, bootstrap port {first + 1}"),
        ("front of decode-0", f"http://127.0.0.1:{first + 2}"),
    ]


def test_a_port_that_is_taken_is_a_problem_before_the_start() -> None:
    host = "127.0.0.77"  # where nobody else takes the port before it
    with socket.create_server((host, 0)) as taken:
        port = taken.getsockname()[1]
        (problem,) = front_problems(composed(fronts=str(port - 1), front_host=host, front_key=KEY))
    assert problem == f"--fronts {port - 1} --front-host {host}: port {port}: Address already in use"


def test_the_port_of_our_own_router_is_no_other_process() -> None:
    (problem,) = front_problems(composed(fronts="9000", port="9001", front_key=KEY))
    assert problem == "--fronts 9000: port 9001 is --port's; choose a range without it"


def test_ports_end_somewhere() -> None:
    with pytest.raises(ConfigurationError):
        free_ports("127.0.0.1", 65535, 2)
