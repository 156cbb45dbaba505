"""The start table warns about what an operator should know; addresses are written so that they can be used."""

from __future__ import annotations

import socket
from pathlib import Path
from unittest.mock import ANY

import pytest
from rich.console import Console

from quiesce.cli.open_door import open_door_warning
from quiesce.cli.port import free_port, is_loopback, reachable, url
from quiesce.cli.settings import Composed, compose
from quiesce.cli.spare_choice import SpareChoice
from quiesce.cli.start_table import start_table, transport_line, warnings
from quiesce.cli.survey import Survey
from quiesce.cli.tree import SERVE
from quiesce.engine.config import TINY
from quiesce.errors import ConfigurationError
from quiesce.worker.sizes import PoolSize

from .fake_process import welcome

WORKERS = [welcome("prefill", "prefill-0"), welcome("decode", "decode-0")]


def composed(**flags: object) -> Composed:
    return compose(SERVE, flags, environ={})


SURVEY = Survey(TINY, PoolSize(4096, "15 % of free memory"), PoolSize(4096), spare=SpareChoice("model", 200 << 20))


def drawn(settings: Composed) -> str:
    console = Console(width=140)
    with console.capture() as capture:
        console.print(start_table(WORKERS, settings, "http://127.0.0.1:8000", SURVEY, Path("/run/q")))
    return capture.get()


def rows(settings: Composed) -> dict[str, str]:
    lines = [line.split("│") for line in drawn(settings).splitlines() if "│" in line]
    return {cells[1].strip(): cells[2].strip() for cells in lines}


def test_it_shows_address_model_capacity_and_limits() -> None:
    assert rows(composed(threads="1")) == {
        "address": "http://127.0.0.1:8000",
        "api keys": "none needed",
        "model": "fake-model, float32  (feedfacefeed)",
        "context": "2,048 tokens",
        "prefill-0": "4,096 tokens in 256 pages of 16 (15 % of free memory); threads 1; 7 may wait",
        "decode-0": "4,096 tokens in 256 pages of 16; threads 1; 7 may wait",
        "spare": "waits to take the place of a worker that dies; holds libraries and model (200.0 MiB)",
        "run directory": "/run/q",
        "limits": "32 requests in a batch; prompts in chunks of 512 tokens",
        "transport": "shm (same host); pages come back when: writers acknowledged (drain_ack), "
        "or the writer's process is dead (fence)",
    } | ({"warning": ANY} if "warning" in rows(composed()) else {})


def test_settings_that_differ_from_their_defaults_are_shown() -> None:
    told = composed(hold_deadline_s="2m", fence_policy="quarantine", deterministic=True, max_body_bytes="1M")
    shown = rows(told)
    assert (shown["hold-deadline-s"], shown["deterministic"], shown["max-body-bytes"]) == ("120 s", "on", "1.0 MiB")
    assert "fence-policy" not in shown


def test_without_a_hand_off_nothing_is_said_of_it() -> None:
    told = composed(
        mode="aggregated", fence_policy="fence", quarantine_budget="0.5", handoff_timeout_s="9", page_size="8"
    )
    shown = rows(told)
    assert not {"transport", "fence-policy", "quarantine-budget", "handoff-timeout-s"} & set(shown)
    assert (shown["mode"], shown["page-size"]) == ("aggregated", "8")


def test_keys_are_counted_and_never_shown() -> None:
    text = drawn(composed(api_key=("hush", "hush2")))
    assert "needed; 2 are valid" in text
    assert "hush" not in text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1"])  # noqa: S104 (nothing is bound)
def test_a_server_that_others_reach_without_a_key_is_warned_of(host: str) -> None:
    assert f"--host {host} can be reached from other machines" in drawn(composed(host=host, threads="1"))
    assert "can be reached" not in drawn(composed(host=host, api_key=("k",)))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_key(host: str) -> None:
    assert is_loopback(host)
    assert open_door_warning(host, has_keys=False) == ""


def test_the_transport_is_shown_with_its_proofs() -> None:
    assert transport_line("auto") == transport_line("shm")
    reads = "decode's pages come back when its own reads have ended, prefill's when decode has read"
    assert transport_line("auto", "pull") == f"tcp (any host), pull; {reads}"
    assert "the writer's process is dead" not in transport_line("shm", "push", "staged")
    assert transport_line("tcp", "push", "staged") == transport_line("tcp")


def test_unsafe_release_is_called_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert warnings(WORKERS, composed()) == []
    [warning] = warnings(WORKERS, composed(unsafe_release_on_timeout=True))
    assert "without proof" in warning


def test_more_threads_than_cores_are_called_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert warnings(WORKERS, composed()) == ["2 compute threads on 1 cores: expect much worse latency"]


def test_a_free_port_is_found_and_a_taken_one_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"--port {port}: Address already in use"):
            free_port("127.0.0.1", port)
    first_of_the_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert 0 < free_port("127.0.0.1", 0) < first_of_the_kernel


def test_a_host_that_is_not_ours_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"--host 192\.0\.2\.1"):
        free_port("192.0.2.1", 0)


def test_where_to_reach_a_server_that_listens_everywhere() -> None:
    assert reachable("0.0.0.0") == "127.0.0.1"  # noqa: S104 (nothing is bound)
    assert url("::", 80) == "http://[::1]:80"
    assert url("10.0.0.1", 80) == "http://10.0.0.1:80"


def test_the_console_is_named_and_its_key_is_not() -> None:
    text = drawn(composed(console_key="a-key-that-opens-doors"))
    assert "http://127.0.0.1:8000/console" in text
    assert "a-key-that" not in text
    assert "/console" not in drawn(composed())
