"""A running server is asked by GET, within bounds; a hostile one costs time and memory within bounds."""

from __future__ import annotations

import json

import pytest

from quiesce.doctor import endpoint
from quiesce.doctor.endpoint import examine
from quiesce.doctor.examination import Inputs
from quiesce.doctor.examination import examine as diagnose
from quiesce.doctor.findings import Severity
from quiesce.errors import PeerUnusable

from .fake_server import ENDLESS, ok, serving

INCIDENT = {
    "version": "0.5.18",
    "disaggregation_mode": "decode",
    "disaggregation_transfer_backend": "mooncake",
    "context_length": 1048576,
    "api_key": None,
    "internal_states": [{"max_total_num_tokens": 681280}],
}
REPAIRED = {**INCIDENT, "version": "0.5.23", "context_length": 681280}
TELL = ("SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT=120",)


def test_the_incident_is_found_at_a_running_server() -> None:
    with serving({"/server_info": ok(json.dumps(INCIDENT))}) as server:
        diagnosis = diagnose(Inputs(names=[server.url]))
    assert diagnosis.worst is Severity.LEAK
    found = {finding.rule for finding in diagnosis.findings}
    assert {"context-exceeds-pool", "sglang-release-unprotected"} <= found
    assert {head.split()[0] for head in server.asked} == {"GET"}


def test_its_repaired_form_passes() -> None:
    with serving({"/get_server_info": ok(json.dumps(REPAIRED))}) as server:
        assert diagnose(Inputs(names=[f"decode={server.url}/v1"], tell=TELL)).findings == ()


def test_what_is_measured_is_joined_to_what_is_said() -> None:
    metrics = (
        "# TYPE sglang:decode_deferred_kv_release_total counter\n"
        'sglang:decode_deferred_kv_release_total{outcome="drained"} 9\n'
        'sglang:decode_deferred_kv_release_total{outcome="timeout"} 1\n'
    )
    with serving({"/server_info": ok(json.dumps(REPAIRED)), "/metrics": ok(metrics)}) as server:
        diagnosis = diagnose(Inputs(names=[server.url], tell=TELL))
    (finding,) = diagnosis.findings
    assert finding.rule == "sglang-timers-fire"
    assert "1 of 10 holds (10.0%)" in finding.says


def test_a_running_vllm_is_known_by_its_metrics() -> None:
    """What it does not tell is asked for."""
    cache = 'vllm:cache_config_info{block_size="16",enable_prefix_caching="True",num_gpu_blocks="42580"} 1.0\n'
    models = ok('{"data": [{"id": "m", "max_model_len": 1048576}]}')
    replies = {"/metrics": ok(f"# TYPE vllm:cache_config_info gauge\n{cache}"), "/v1/models": models}
    with serving({**replies, "/version": ok('{"version": "0.20.1"}')}) as server:
        diagnosis = diagnose(Inputs(names=[server.url], tell=["tenants=several"]))
    assert [finding.rule for finding in diagnosis.findings] == ["pool-below-one-request", "prefix-cache-shared"]
    (untold,) = diagnosis.untold
    assert untold.what.startswith(f"how vLLM ({server.url}) was started")


def test_a_key_is_shown_to_the_server_and_in_no_report() -> None:
    with serving({"/server_info": ok(json.dumps(REPAIRED))}) as server:
        diagnosis = diagnose(Inputs(names=[server.url], key="sk-secret"))
    assert all("authorization: bearer sk-secret" in head.lower() for head in server.asked)
    assert "sk-secret" not in repr(diagnosis)


def test_paths_that_are_closed_are_noted() -> None:
    closed = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with serving({"/server_info": ok(json.dumps(REPAIRED)), "/metrics": closed}) as server:
        assert examine(server.url, None)[1] == [f"{server.url}/metrics: 401"]


def test_redirects_are_not_followed() -> None:
    away = b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with (
        serving({}, away) as server,
        pytest.raises(PeerUnusable, match=r"redirects to 'file:///etc/passwd', which is not"),
    ):
        examine(server.url, None)


def test_an_endless_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MOST_ANSWER_BYTES", 1 << 18)
    with serving({"/server_info": ok(json.dumps(REPAIRED)), "/metrics": ENDLESS}) as server:
        members, notes = examine(server.url, None)
    assert [member.role for member in members] == ["decode"]
    assert notes == [f"{server.url}/metrics: more than {1 << 18} bytes"]


def test_a_silent_server_is_left_after_a_while() -> None:
    with serving({}, b"") as server, pytest.raises(PeerUnusable, match=r"no full answer within 0\.2 s"):
        examine(server.url, None, 0.2)


def test_a_silent_path_does_not_hide_the_others() -> None:
    with serving({"/server_info": ok(json.dumps(REPAIRED)), "/v1/loads": b""}) as server:
        members, notes = examine(server.url, None, 2.0)
    assert len(members) == 1
    assert notes == [f"{server.url}/v1/loads: no full answer within 2 s"]


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nboom",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort",
        ok("[" * 100_000),
        ok('{"disaggregation_mode": {}, "server_args": 3, "loads": {}}'),
        ok("# TYPE sglang:x counter\nsglang:x{ 1"),
        ok("\x00\xff"),
    ],
)
def test_nonsense_is_a_server_that_tells_nothing(reply: bytes) -> None:
    with serving({}, reply) as server, pytest.raises(PeerUnusable) as told:
        examine(server.url, None, 5.0)
    assert told.value.took_effect is False


def test_nobody_there_is_exit_4() -> None:
    with serving({}) as server:
        url = server.url
    with pytest.raises(PeerUnusable) as told:
        examine(url, None)
    assert told.value.exit_code == 4


def test_an_open_door_is_seen_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its answer to a request without a key, where the address is not this machine's own."""
    monkeypatch.setattr("quiesce.doctor.rules.exposure.is_local", lambda _host: False)
    with serving({"/server_info": ok(json.dumps(REPAIRED)), "/v1/models": ok('{"data": []}')}) as server:
        found = {finding.rule for finding in diagnose(Inputs(names=[server.url], tell=TELL)).findings}
    assert found == {"open-api"}


def test_a_server_that_does_not_answer_is_told_in_one_line() -> None:
    """Nobody listens on port 9 of this machine; a key would not help."""
    with pytest.raises(PeerUnusable) as refused:
        examine("http://127.0.0.1:9", None)
    told = str(refused.value)
    assert told.startswith("http://127.0.0.1:9 does not answer (")
    assert told.count("attempts failed") == 1
    assert "key" not in told


def test_a_server_that_asks_for_a_key_is_told_so() -> None:
    closed = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with serving({"/metrics": closed}) as server, pytest.raises(PeerUnusable) as refused:
        examine(server.url, None)
    assert "tells nothing that can be examined" in str(refused.value)
    assert str(refused.value).endswith("Give a key with QUIESCE_DOCTOR_KEY.")
