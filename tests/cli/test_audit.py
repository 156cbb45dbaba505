"""`quiesce audit` as a command: exit codes, files, keys that are shown nowhere, and watching."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from quiesce.cli.main import main
from tests.audit.fake_openai import FakeOpenAI, Faults, serving

QUICK = ("--victims", "8", "--answer-tokens", "6", "--donor-tokens", "60", "--victim-tokens", "40", "--pause", "0")


class Served:
    """Fakes on a loop of their own: the command has its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop: list[asyncio.Event] = []
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def fake(self, faults: Faults) -> tuple[FakeOpenAI, str]:
        made: asyncio.Future[tuple[FakeOpenAI, str]] = asyncio.Future(loop=self._loop)
        self._serving = asyncio.run_coroutine_threadsafe(self._serve(faults, made), self._loop)
        return asyncio.run_coroutine_threadsafe(_wait(made), self._loop).result(30)

    async def _serve(self, faults: Faults, made: asyncio.Future[tuple[FakeOpenAI, str]]) -> None:
        over = asyncio.Event()
        self._stop.append(over)
        async with serving(faults) as served:
            made.set_result(served)
            await over.wait()

    def close(self) -> None:
        for over in self._stop:
            self._loop.call_soon_threadsafe(over.set)
        self._serving.result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _wait(made: asyncio.Future[tuple[FakeOpenAI, str]]) -> tuple[FakeOpenAI, str]:
    return await made


@pytest.fixture
def served() -> Iterator[Served]:
    server = Served()
    yield server
    server.close()


def test_a_leak_is_exit_code_1_and_four_files(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key").write_text("sk-very-secret\n")
    _, url = served.fake(Faults(keys=("sk-very-secret",), leaks_every=5))
    words = ["audit", url, *QUICK, "--seed", "3", "--api-key-file", str(tmp_path / "key")]
    assert main([*words, "--report-dir", str(tmp_path / "out"), "--format", "json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["headline"] == "A leak is suspected."
    assert "quiesce: seed 3" in said.err
    files = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert sorted(files) == ["audit.html", "audit.json", "audit.junit.xml", "audit.txt"]
    assert "sk-very-secret" not in said.out + said.err + "".join(files.values())
    assert f"--api-key-file {tmp_path / 'key'}" in files["audit.txt"]
    suite = ElementTree.fromstring(files["audit.junit.xml"])  # noqa: S314 - written by us
    assert (suite.get("failures"), suite.get("tests")) == ("1", "7")
    assert "<script" not in files["audit.html"]
    assert not re.search(r"(?:src|href)=", files["audit.html"])


def test_a_clean_server_is_exit_code_0_and_its_key_comes_from_the_environment(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, url = served.fake(Faults(keys=("from-outside",)))
    monkeypatch.setenv("QUIESCE_AUDIT_KEY", "from-outside")
    assert main(["audit", url, *QUICK, "--allow-aborts", "--yes"]) == 0
    said = capsys.readouterr()
    assert "Use it on a staging copy" in said.err
    assert "No leak was seen." in said.out


def test_without_a_terminal_aborts_need_a_yes(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake, url = served.fake(Faults())
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["audit", url, *QUICK, "--allow-aborts"]) == 2
    assert "Say --yes." in capsys.readouterr().err
    assert fake.bodies == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_asking_and_not_the_report(
    number: signal.Signals, served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake, url = served.fake(Faults())
    fake.heard = lambda count: os.kill(os.getpid(), number) if count == 20 else None
    assert main(["audit", url, *QUICK, "--report-dir", str(tmp_path)]) == 4
    said = capsys.readouterr()
    assert "Stopped early; no leak was seen until then." in said.out
    assert re.search(r"Not tested:\n- \d+ requests: the audit was stopped early", (tmp_path / "audit.txt").read_text())
    assert re.search(r"quiesce: alone, before, request 1 of \d+\n", said.err)
    assert re.search(r", request 10 of \d+\n", said.err)


def test_what_cannot_be_used_is_exit_code_4_and_what_cannot_be_asked_2(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, url = served.fake(Faults(keys=("k",)))
    assert main(["audit", url]) == 4
    assert "wants an API key" in capsys.readouterr().err
    (tmp_path / "empty").write_text("")
    assert main(["audit", "notaurl"]) == 2
    for words in (["--victims", "1"], ["--watch", "--allow-aborts"], ["--api-key-file", str(tmp_path / "empty")]):
        assert main(["audit", url, *words]) == 2


def test_a_dry_run_prints_a_plan(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    fake, url = served.fake(Faults())
    assert main(["audit", url, "--dry-run", "--seed", "1"]) == 0
    assert "at most" in capsys.readouterr().out
    assert main(["audit", url, "--dry-run", "--model", "nosuch"]) == 2
    assert "lists no model nosuch (fake)" in capsys.readouterr().err
    assert fake.bodies == []


@pytest.mark.parametrize(("every", "code"), [(0, 0), (3, 1)])
def test_watching_counts_and_tells(served: Served, every: int, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    _, url = served.fake(Faults(leaks_every=every))
    words = ["--watch", "--cycles", "4", "--interval", "0", "--metrics-port", "0", *QUICK]
    assert main(["audit", url, *words]) == code
    said = capsys.readouterr().err
    assert "metrics on http://127.0.0.1:" in said
    assert ("a leak is suspected" in said) is bool(code)
