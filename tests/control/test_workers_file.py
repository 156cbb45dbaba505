"""The file of --workers-file: bounded, checked as a whole, and followed without ever taking half of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.control import workers_file
from quiesce.control.address import TcpAddress
from quiesce.control.workers_file import NamedWorkers, read_workers, watch_workers
from quiesce.errors import ConfigurationError

GOOD = """
[prefill]
prefill-0 = "tcp://10.0.0.2:9001"
[decode]
decode-0 = "unix:/run/q/decode-0.sock"
"""


def written(path: Path, text: str) -> Path:
    """Replaced as a whole, as a careful writer does."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    return fresh.replace(path)


def test_workers_by_role_and_name(tmp_path: Path) -> None:
    workers = read_workers(written(tmp_path / "w.toml", GOOD))
    assert workers.prefill == {"prefill-0": TcpAddress("10.0.0.2", 9001)}
    assert workers.everywhere == (TcpAddress("10.0.0.2", 9001), Path("/run/q/decode-0.sock"))
    assert read_workers(written(tmp_path / "w.toml", "")) == NamedWorkers()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("prefill = 1", "Expected `object`"),
        ("[prefill]\na = 1", "Expected `str`"),
        ("[prefil]\na = 'unix:/a'", "unknown field"),
        ("[prefill", "end of a table declaration"),
        ("[prefill]\na = 'http://x'", r"\[prefill\] address 'http://x' is not supported"),
        ("[prefill]\na = 'tcp://h:0'", "port 0 is for listening"),
        ("[prefill]\n'' = 'unix:/a'", "this one has 0"),
        ("[prefill]\na = 'unix:/a'\n[decode]\na = 'unix:/b'", "each name and each address may be there once"),
        ("[prefill]\na = 'unix:/a'\nb = 'unix:/a'", "each name and each address may be there once"),
        ("[prefill]\n" + "".join(f"w{n} = 'unix:/{n}'\n" for n in range(1025)), "1025 workers; at most 1024"),
        ("#" * (1 << 20) + "#", "is longer than"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        read_workers(written(tmp_path / "w.toml", text))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        read_workers(tmp_path / "w.toml")


@given(st.binary(max_size=200) | st.text(max_size=99).map(lambda text: f"[prefill]\n{text}".encode("utf-8", "replace")))
def test_noise_is_read_or_refused(noise: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(noise)
        with contextlib.suppress(ConfigurationError):
            assert isinstance(read_workers(Path(file.name)), NamedWorkers)


async def test_a_change_is_followed_and_a_wrong_one_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers_file, "LOOK_S", 0.001)
    path = written(tmp_path / "w.toml", GOOD)
    news: asyncio.Queue[NamedWorkers] = asyncio.Queue()

    def refuse_b(workers: NamedWorkers) -> None:
        if "b" in workers.prefill:
            raise ConfigurationError(["b may not be"])

    with caplog.at_level(logging.WARNING):
        watching = asyncio.create_task(watch_workers(path, news.put_nowait, refuse_b))
        assert (await news.get()).prefill.keys() == {"prefill-0"}
        for wrong in ("[prefill", "[prefill]\nb = 'unix:/b'"):
            written(path, wrong)
            async with asyncio.timeout(20):
                while not caplog.records:  # noqa: ASYNC110 - what changes nothing announces nothing
                    await asyncio.sleep(0.001)
            caplog.clear()
        path.unlink()
        async with asyncio.timeout(20):
            while not caplog.records:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.001)
        written(path, GOOD)
        written(path, "[prefill]\nc = 'unix:/c'")
        async with asyncio.timeout(20):
            assert (await news.get()).prefill == {"c": Path("/c")}
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert news.empty()
