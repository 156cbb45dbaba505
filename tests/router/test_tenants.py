"""Tenants by their keys: salts, limits, what is told of them, and a file that is read again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.errors import ConfigurationError
from quiesce.router.quotas import show_s
from quiesce.router.tenants import ANYBODY, MAX_PRIORITY, Tenant, digest_of, salt_of
from quiesce.router.tenants_file import add_key, key_id, key_lines, mint_key, read_tenants

from .asking import CHAT, chat, chat_body, complete, error_of
from .conftest import Deployment
from .fake_worker import nothing, say
from .tenancy import SECRET, bearer, key_of, write_tenants

ADMIN = "an-admin-key-of-24-chars"
ADMIN_HEADERS = {"authorization": f"Bearer {ADMIN}"}


async def ask(client: httpx.AsyncClient, tenant: str, **fields: Any) -> httpx.Response:
    return await client.post(CHAT, json=chat_body(**fields), headers=bearer(tenant))


async def start(deployment: Deployment, tmp_path: Path, limits: str = "", **also: Any) -> httpx.AsyncClient:
    return await deployment.start(tenants=write_tenants(tmp_path / "t.toml", a=limits, b=""), **also)


# ---------------------------------------------------------------- who asks


async def test_a_key_is_a_tenants_and_others_are_refused(deployment: Deployment, tmp_path: Path) -> None:
    client = await start(deployment, tmp_path, api_key=("plain",))
    assert (await ask(client, "a")).status_code == 200
    assert (await ask(client, "b")).status_code == 200
    assert error_of(await ask(client, "c"), 401)["code"] == "invalid_api_key"
    assert error_of(await chat(client), 401)["code"] == "invalid_api_key"
    response = await client.post(CHAT, json=chat_body(), headers={"authorization": "Bearer plain"})
    assert response.status_code == 200, "--api-key keeps working"
    metrics = (await client.get("/metrics")).text
    for tenant in ("a", "b", "default"):
        assert f'outcome="finished",role="router",tenant="{tenant}",worker="router"}} 1.0' in metrics


async def test_a_file_without_keys_lets_nobody_in(deployment: Deployment, tmp_path: Path) -> None:
    client = await deployment.start(tenants=write_tenants(tmp_path / "t.toml"))
    assert error_of(await chat(client), 401)["code"] == "invalid_api_key"


async def test_each_tenant_has_its_salt_and_both_halves_get_it(deployment: Deployment, tmp_path: Path) -> None:
    """What a client says of salts goes nowhere."""
    client = await start(deployment, tmp_path, api_key=("plain",))
    for tenant in ("a", "b", "a"):
        assert (await ask(client, tenant, salt="mine")).status_code == 200
    await client.post(CHAT, json=chat_body(), headers={"authorization": "Bearer plain"})
    await deployment.prefill.submitted(4)  # whose half may arrive after decode has answered
    salts = [submit.salt for submit in deployment.decode.submits]
    assert salts == [submit.salt for submit in deployment.prefill.submits]
    assert salts == [salt_of(bytes.fromhex(SECRET), name) for name in ("a", "b", "a", "default")]
    assert len(set(salts)) == 3


async def test_without_tenants_there_is_one_salt(deployment: Deployment) -> None:
    client = await deployment.start(api_key=("one", "two"))
    for key in ("one", "two"):
        await client.post(CHAT, json=chat_body(), headers={"authorization": f"Bearer {key}"})
    assert [submit.salt for submit in deployment.decode.submits] == ["", ""]


def test_salts_of_a_file_without_a_secret_are_another_routers_secret(tmp_path: Path) -> None:
    file = Path(write_tenants(tmp_path / "t.toml", salt="", a=""))
    salts = [read_tenants(file, secret)[0].by_name["a"].salt for secret in (b"one", b"two", b"one")]
    assert salts[0] == salts[2] != salts[1]


# ---------------------------------------------------------------- limits


async def test_requests_per_minute(deployment: Deployment, tmp_path: Path) -> None:
    """And the headers that say so, as OpenAI's; another tenant does not notice."""
    client = await start(deployment, tmp_path, "requests-per-minute = 2")
    first = await ask(client, "a", stream=True)
    assert (first.headers["x-ratelimit-limit-requests"], first.headers["x-ratelimit-remaining-requests"]) == ("2", "1")
    assert (await ask(client, "a")).status_code == 200
    refused = await ask(client, "a")
    error = error_of(refused, 429)
    assert (error["code"], error["type"]) == ("rate_limit_exceeded", "rate_limit_error")
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.headers["x-ratelimit-reset-requests"] in ("1m0s", "59s", "58s")
    other = await ask(client, "b")
    assert other.status_code == 200
    assert not [name for name in other.headers if name.startswith("x-ratelimit")]
    assert len(deployment.decode.submits) == 3
    metrics = (await client.get("/metrics")).text
    assert 'code="rate_limit_exceeded",role="router",tenant="a",worker="router"} 1.0' in metrics


async def test_tokens_per_minute_are_settled(deployment: Deployment, tmp_path: Path) -> None:
    """Asked for at first, used in the end."""
    client = await start(deployment, tmp_path, "tokens-per-minute = 1000")
    first = await ask(client, "a", max_tokens=500)
    used = first.json()["usage"]["total_tokens"]
    asked = first.json()["usage"]["prompt_tokens"] + 500
    assert int(first.headers["x-ratelimit-remaining-tokens"]) == 1000 - asked
    second = await ask(client, "a", max_tokens=500)
    left = 1000 - used - asked
    assert left <= int(second.headers["x-ratelimit-remaining-tokens"]) <= left + 200, "what a slow machine gains"
    refused = await ask(client, "a", max_tokens=970)
    assert error_of(refused, 429)["code"] == "rate_limit_exceeded"
    assert int(refused.headers["retry-after"]) >= 1


async def test_what_a_worker_says_beyond_the_order_is_owed(deployment: Deployment, tmp_path: Path) -> None:
    client = await start(deployment, tmp_path, "tokens-per-minute = 300")
    deployment.decode.plan = say("x" * 2000)
    assert (await ask(client, "a")).status_code == 200
    refused = await ask(client, "a")
    assert error_of(refused, 429)["code"] == "rate_limit_exceeded"
    assert int(refused.headers["retry-after"]) > 60, "more than a minute's worth is owed"


@pytest.mark.parametrize("n", [1, 32])
async def test_answers_of_no_stated_length_share_what_is_left(deployment: Deployment, tmp_path: Path, n: int) -> None:
    client = await start(deployment, tmp_path, "tokens-per-minute = 3000")
    answer = await ask(client, "a", n=n, ignore_eos=True)
    prompt_tokens = answer.json()["usage"]["prompt_tokens"]
    share = (3000 - prompt_tokens) // n
    assert [submit.max_tokens for submit in deployment.decode.submits] == [share] * n
    left = 3000 - prompt_tokens - n * share
    assert left <= int(answer.headers["x-ratelimit-remaining-tokens"]) <= left + 100, "what a slow machine gains"
    assert (await ask(client, "a")).status_code == 200, "what was not used was given back"


async def test_a_named_length_is_the_clients(deployment: Deployment, tmp_path: Path) -> None:
    client = await start(deployment, tmp_path, "tokens-per-minute = 3000")
    assert (await ask(client, "a", max_tokens=7, n=2)).status_code == 200
    assert [submit.max_tokens for submit in deployment.decode.submits] == [7, 7]
    assert (await client.post("/v1/completions", json={"prompt": "hi"}, headers=bearer("a"))).status_code == 200
    assert deployment.decode.submits[2].max_tokens == 16


async def test_what_was_taken_is_nobody_elses_and_none_is_cut_short(deployment: Deployment, tmp_path: Path) -> None:
    """While one answer of no stated length may have all of the minute, another one comes back later."""
    client = await start(deployment, tmp_path, "tokens-per-minute = 300")
    deployment.decode.plans = [nothing]
    running = asyncio.ensure_future(ask(client, "a"))
    submit = await deployment.decode.submitted()
    refused = await ask(client, "a")
    assert error_of(refused, 429)["code"] == "rate_limit_exceeded"
    assert 1 <= int(refused.headers["retry-after"]) <= 40, "until an answer of usual length fits, not a whole minute"
    say("done")(deployment.decode, submit)
    assert (await running).status_code == 200
    assert (await ask(client, "a")).status_code == 200


async def test_an_answer_takes_no_more_than_its_context(deployment: Deployment, tmp_path: Path) -> None:
    """Else the first chat would keep a large minute from all others."""
    client = await start(deployment, tmp_path, "tokens-per-minute = 9000")
    deployment.decode.plans = [nothing, nothing]
    running = [asyncio.ensure_future(ask(client, "a")) for _ in range(2)]
    await deployment.decode.submitted(2)
    assert (await ask(client, "a")).status_code == 200
    most = [submit.max_tokens or 0 for submit in deployment.decode.submits]
    assert most[0] == most[1] == 4096 - len(deployment.decode.submits[0].token_ids) // 4
    assert 0 < most[2] < most[0], "what those two left"
    for submit in deployment.decode.submits[:2]:
        say("done")(deployment.decode, submit)
    assert [response.status_code for response in await asyncio.gather(*running)] == [200, 200]


async def test_a_tenants_longest_answer_is_bounded_by_its_minute(deployment: Deployment, tmp_path: Path) -> None:
    client = await start(deployment, tmp_path, "tokens-per-minute = 200\nmax-tokens = 1000")
    assert (await ask(client, "a")).status_code == 200
    assert 0 < (deployment.decode.submits[0].max_tokens or 0) < 200


async def test_what_can_never_be_is_no_429(deployment: Deployment, tmp_path: Path) -> None:
    """A client that came back later would come back for ever."""
    client = await start(deployment, tmp_path, "tokens-per-minute = 100")
    error = error_of(await ask(client, "a", max_tokens=500), 400)
    assert error["code"] == "request_too_large"
    assert (await ask(client, "a", max_tokens=5)).status_code == 200


async def test_concurrent_requests(deployment: Deployment, tmp_path: Path) -> None:
    client = await start(deployment, tmp_path, "max-concurrent = 1")
    deployment.decode.plans = [nothing]
    running = asyncio.ensure_future(ask(client, "a"))
    submit = await deployment.decode.submitted()
    refused = await ask(client, "a")
    assert error_of(refused, 429)["code"] == "rate_limit_exceeded"
    assert refused.headers["retry-after"] == "1"
    assert (await ask(client, "b")).status_code == 200
    say("done")(deployment.decode, submit)
    assert (await running).status_code == 200
    assert (await ask(client, "a")).status_code == 200


async def test_largest_prompt_and_answer(deployment: Deployment, tmp_path: Path) -> None:
    client = await start(deployment, tmp_path, "max-prompt-tokens = 40\nmax-tokens = 9")
    long = await client.post("/v1/completions", json={"model": "tiny", "prompt": "x" * 50}, headers=bearer("a"))
    assert (error_of(long, 400)["code"], error_of(long, 400)["param"]) == ("prompt_too_long", "prompt")
    assert error_of(await ask(client, "a", max_tokens=10), 400)["param"] == "max_tokens"
    assert not deployment.decode.submits
    assert (await ask(client, "a")).status_code == 200
    assert deployment.decode.submits[0].max_tokens == 9, "who names no length gets what the tenant may have"


async def test_a_priority_is_bounded_by_the_tenants(deployment: Deployment, tmp_path: Path) -> None:
    client = await start(deployment, tmp_path, "priority = 3\nearliest-priority = -2")
    for priority in (None, 5, 0, -2, -100):
        await ask(client, "a", priority=priority)
    await ask(client, "b", priority=-100)
    assert [submit.priority for submit in deployment.decode.submits] == [-3, -5, 0, 2, 2, 0]


@pytest.mark.parametrize("priority", [MAX_PRIORITY + 1, -MAX_PRIORITY - 1, 0.5, "high", True])
async def test_no_priority_at_all(deployment: Deployment, priority: object) -> None:
    client = await deployment.start()
    assert error_of(await chat(client, priority=priority), 400)["param"] == "priority"


def test_without_tenants_any_priority_is_served() -> None:
    assert [ANYBODY.served_priority(asked) for asked in (None, 7, -MAX_PRIORITY)] == [0, -7, MAX_PRIORITY]


@settings(derandomize=True, deadline=None)
@given(st.integers(-9, 9), st.integers(-9, 9), st.none() | st.integers(-20, 20))
def test_nobody_is_served_earlier_than_the_tenant_may_be(priority: int, earliest: int, asked: int | None) -> None:
    tenant = Tenant(name="a", priority=priority, earliest_priority=earliest)
    assert tenant.served_priority(asked) <= -earliest


async def test_a_refused_request_gives_back_its_place(deployment: Deployment, tmp_path: Path) -> None:
    client = await start(deployment, tmp_path, "max-concurrent = 1")
    for _ in range(3):
        assert error_of(await ask(client, "a", max_tokens=0), 400)["param"] == "max_tokens"
    assert (await ask(client, "a")).status_code == 200


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "0ms"), (0.12, "120ms"), (1.0, "1s"), (59.2, "1m0s"), (360.0, "6m0s")]
)
def test_durations_as_openai_writes_them(seconds: float, shown: str) -> None:
    assert show_s(seconds) == shown


# ---------------------------------------------------------------- the file


async def test_the_file_is_read_again_and_a_bad_one_changes_nothing(
    deployment: Deployment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = await start(deployment, tmp_path, "requests-per-minute = 1")
    file = tmp_path / "t.toml"
    assert deployment.server is not None
    reload = deployment.server.service.keys.reload
    assert (await ask(client, "a")).status_code == 200
    file.write_text(file.read_text() + "\n[tenant.c]\nweight = 0\n")
    reload()
    assert "[tenant.c]: Expected `int` >= 1" in caplog.text
    assert (await ask(client, "a")).status_code == 429
    assert (await ask(client, "b")).status_code == 200
    write_tenants(file, a="requests-per-minute = 3", c="")
    reload()
    assert [(await ask(client, tenant)).status_code for tenant in "aaabc"] == [200, 200, 429, 401, 200]


async def test_a_file_that_lost_all_its_keys_changes_nothing(
    deployment: Deployment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An editor empties a file before it writes it."""
    client = await start(deployment, tmp_path, api_key=("plain",))
    file = tmp_path / "t.toml"
    assert deployment.server is not None
    reload = deployment.server.service.keys.reload
    for text in ("", "[tenant.a]\n"):
        file.write_text(text)
        caplog.clear()
        reload()
        assert "is not taken" in caplog.text
        assert "it has no key any more" in caplog.text
        assert [(await ask(client, tenant)).status_code for tenant in "ab"] == [200, 200]
    write_tenants(file, b="")
    reload()
    assert [(await ask(client, tenant)).status_code for tenant in "ab"] == [401, 200]


async def test_a_file_that_never_had_a_key_is_read_again(deployment: Deployment, tmp_path: Path) -> None:
    client = await deployment.start(tenants=write_tenants(tmp_path / "t.toml"), api_key=("plain",))
    (tmp_path / "t.toml").write_text("[tenant.default]\nrequests-per-minute = 1\n")
    assert deployment.server is not None
    deployment.server.service.keys.reload()
    plain = {"authorization": "Bearer plain"}
    statuses = [(await client.post(CHAT, json=chat_body(), headers=plain)).status_code for _ in range(2)]
    assert statuses == [200, 429]


def test_a_process_reads_it_at_sighup(tmp_path: Path) -> None:
    """And takes SIGTERM as ever."""
    file = write_tenants(tmp_path / "t.toml", a="")
    program = (
        "import sys; from quiesce.router.main import run; from quiesce.router.settings import RouterSettings;"
        f"sys.exit(run(RouterSettings(port=0, model='tiny', grace_s=1.0, tenants={file!r})))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "listening" in process.stderr.readline()
    os.kill(process.pid, signal.SIGHUP)
    said = process.stderr.readline()
    assert "read the file of tenants again" in said
    assert "level=warning" in said, "serve's default level hides what is less, and somebody waits for this"
    (tmp_path / "t.toml").write_text("[tenant.a\n")
    os.kill(process.pid, signal.SIGHUP)
    assert "the file of tenants is not taken" in process.stderr.readline()
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) == 0
    process.stderr.close()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[tenant.a]\nweight = 0", "[tenant.a]: Expected `int` >= 1"),
        ("[tenant.a]\nspeed = 1", "[tenant.a]: Object contains unknown field `speed`"),
        ('[tenant."a b"]', "a name has 1 to 64 letters"),
        ("[tenants.a]", "there is no 'tenants'"),
        ("tenant = 5", "tenant must be tables"),
        ("key = 5", "key must be an array of tables"),
        ('[[key]]\ntenant = "b"\nsha256 = "' + "0" * 64 + '"', "there is no [tenant.b]"),
        ('[tenant.a]\n[[key]]\ntenant = "a"\nsha256 = "secret"', "[[key]] 1: Expected `str` matching regex"),
        ("[tenant.a]\n" + 2 * key_lines("a", "x"), "[[key]] 2: this key is there twice"),
        ('[salt]\nsecret = "short"', "[salt]: Expected `str` matching regex"),
        ("[tenant.a]\nearliest-priority = 1", "earliest-priority is later than priority"),
        ("[tenant.a", "t.toml: "),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "t.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_tenants(file, b"")
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value).replace("`secret`", "") or "salt" in text


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text("[tenant.a]\nweight = 0\n[tenant.b]\nweight = 'x'\n[other]\n")
    with pytest.raises(ConfigurationError) as caught:
        read_tenants(file, b"")
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_file_that_others_can_read_is_warned_about(tmp_path: Path, mode: int, warned: bool) -> None:
    file = Path(write_tenants(tmp_path / "t.toml", a=""))
    file.chmod(mode)
    assert bool(read_tenants(file, b"")[1]) is warned


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    """They could let anybody in."""
    file = Path(write_tenants(tmp_path / "t.toml", a=""))
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match="others can write it; chmod 600 it"):
        read_tenants(file, b"")


def test_everything_that_is_wrong_with_a_file_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text("[tenant.a]\nweight = 0\nmax-tokens = 'x'\nlimit = 1\n[[key]]\nsha256 = 'no'\n[salt]\nsecret = 1\n")
    file.chmod(0o666)
    with pytest.raises(ConfigurationError) as told:
        read_tenants(file, b"")
    assert [problem.removeprefix(f"--tenants {file}: ") for problem in told.value.problems] == [
        "others can write it; chmod 600 it",
        "[salt]: Expected `str`, got `int` - at `$.secret`",
        "[tenant.a]: Object contains unknown field `limit`",
        "[tenant.a]: Expected `int` >= 1 - at `$.weight`",
        "[tenant.a]: Expected `int | null`, got `str` - at `$.max-tokens`",
        "[[key]] 1: Object missing required field `tenant`",
        "[[key]] 1: Expected `str` matching regex '^[0-9a-f]{64}$(?!\\\\n)' - at `$.sha256`",
    ]


async def test_a_key_of_two_is_refused(deployment: Deployment, tmp_path: Path) -> None:
    file = write_tenants(tmp_path / "t.toml", a="")
    with pytest.raises(ConfigurationError, match="a key of --api-key is a tenant's as well"):
        await deployment.start(tenants=file, api_key=(key_of("a"),))


def test_keys_are_added_and_only_their_hashes(tmp_path: Path) -> None:
    """What people wrote into the file stays."""
    file = tmp_path / "t.toml"
    keys = [mint_key() for _ in range(3)]
    add_key(file, "a", keys[0])
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(file.read_text() + "# mine\n[tenant.b]\nweight = 7")
    add_key(file, "b", keys[1])
    add_key(file, "a", keys[2])
    tenants, warnings = read_tenants(file, b"")
    assert warnings == []
    assert [(known.digest, known.tenant) for known in tenants.keys] == [
        (digest_of(key), tenant) for key, tenant in zip(keys, "aba", strict=True)
    ]
    assert tenants.by_name["b"].weight == 7
    text = file.read_text()
    assert "# mine" in text
    assert not [key for key in keys if key in text]
    assert all(key_id(key) in text for key in keys)
    assert list(tmp_path.iterdir()) == [file]


def test_keys_are_long_and_none_is_another(tmp_path: Path) -> None:
    keys = {mint_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(len(key) >= 43 + 12 for key in keys)


def test_a_bad_file_is_not_added_to(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text("[tenant.a\n")
    with pytest.raises(ConfigurationError):
        add_key(file, "a", mint_key())
    assert file.read_text() == "[tenant.a\n"
    with pytest.raises(ConfigurationError, match="a name has 1 to 64 letters"):
        add_key(tmp_path / "new.toml", "a b", mint_key())
    assert not (tmp_path / "new.toml").exists()


# ---------------------------------------------------------------- the admin key


async def test_metrics_and_reasons_need_the_admin_key_where_there_is_one(deployment: Deployment) -> None:
    deployment.workers = []
    client = await deployment.start(ready=False, admin_key=ADMIN, api_key=("plain",))
    for headers in ({}, {"authorization": "Bearer plain"}, {"authorization": f"Basic {ADMIN}"}):
        refused = await client.get("/metrics", headers=headers)
        assert error_of(refused, 401)["code"] == "invalid_admin_key"
        ready = await client.get("/readiness", headers=headers)
        assert (ready.status_code, ready.json()) == (503, {"status": "not ready"})
    assert (await client.get("/metrics", headers=ADMIN_HEADERS)).status_code == 200
    assert (await client.get("/readiness", headers=ADMIN_HEADERS)).json()["reason"] == "no worker is known"
    assert (await client.get("/health")).status_code == 200
    assert (await client.post(CHAT, json=chat_body(), headers=ADMIN_HEADERS)).status_code == 401, "it is no API key"


async def test_the_admin_key_aborts_anybodys_request(deployment: Deployment, tmp_path: Path) -> None:
    client = await start(deployment, tmp_path, admin_key=ADMIN)
    deployment.decode.plans = [nothing]
    running = asyncio.ensure_future(ask(client, "a"))
    await deployment.decode.submitted()
    assert deployment.server is not None
    (rid,) = deployment.server.service.running._runs
    assert (await client.post("/abort_request", json={"rid": rid}, headers=bearer("b"))).status_code == 404
    assert (await client.post("/abort_request", json={"rid": rid}, headers=ADMIN_HEADERS)).status_code == 200
    assert error_of(await running, 499)["code"] == "request_aborted"


# ---------------------------------------------------------------- other origins


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/metrics", "/tokenize", "/abort_request"])
async def test_no_other_origin_is_let_in(deployment: Deployment, path: str) -> None:
    """A browser asks first, and reads no answer that does not name its page's origin."""
    client = await deployment.start()
    asking = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    preflight = await client.options(path, headers=asking)
    assert error_of(preflight, 405)["code"] == "method_not_allowed"
    answers = [preflight, await client.get("/v1/models", headers=asking)]
    answers.append(await client.post(CHAT, json=chat_body(), headers=asking))
    assert not [name for each in answers for name in each.headers if name.startswith("access-control-")]


async def test_completions_have_limits_too(deployment: Deployment, tmp_path: Path) -> None:
    client = await start(deployment, tmp_path, "requests-per-minute = 1")
    assert error_of(await complete(client), 401)
    for status in (200, 429):
        response = await client.post("/v1/completions", json={"model": "tiny", "prompt": "hi"}, headers=bearer("a"))
        assert response.status_code == status
