"""The console in a real browser: a busy server with a hold, by its form, live, light and dark, wide and narrow."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quiesce.lab.client import Client
from quiesce.lab.cluster import Cluster
from quiesce.lab.faults import Held, Hold, LetGo

from .browser import CHROMIUM, Browser

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason="needs a Chromium")]

KEY = "the-key-of-the-console"
FLAGS = (
    *("--model", "tiny", "--context-length", "512", "--page-size", "4", "--deterministic"),
    *("--decode-pool-tokens", "1024", "--console-key", KEY, "--prefix-cache", "off"),
)
SHOTS = os.environ.get("QUIESCE_SCREENSHOTS", "")

PIXEL = """(() => {
  const canvas = document.querySelector('[data-map="decode-0"]');
  const {size} = canvas.shape;
  const [r, g, b] = canvas.getContext('2d').getImageData(CELL * size + size / 5, size / 2, 1, 1).data;
  return [r, g, b].join();
})()"""
COLOUR = """(() => {
  const probe = document.createElement('canvas').getContext('2d');
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--NAME');
  probe.fillRect(0, 0, 1, 1);
  return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3).join();
})()"""

POINT = """(() => {
  const map = document.querySelector('[data-map=decode-0]'), box = map.getBoundingClientRect();
  const where = {bubbles: true, clientX: box.left + 3, clientY: box.top + 3};
  map.dispatchEvent(new PointerEvent('pointermove', where));
})()"""


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with Browser() as browser:
        yield browser


async def log_in(browser: Browser, url: str, key: str) -> None:
    await browser.go(f"{url}/console")
    await browser.tell(f"document.querySelector('#key').value = {key!r}, document.querySelector('form').submit()")


async def shown(browser: Browser, name: str) -> None:
    if SHOTS:
        await browser.screenshot(Path(SHOTS) / f"{name}.png")


async def shows(browser: Browser, cell: int, state: str) -> None:
    """Wait until a cell of decode's map has the colour of a state."""
    await browser.until(f"{PIXEL.replace('CELL', str(cell))} === {COLOUR.replace('NAME', state)}")


async def test_a_hold_from_its_start_to_its_proof(browser: Browser) -> None:
    async with Cluster(*FLAGS) as cluster, Client(cluster.url) as client:
        await log_in(browser, cluster.url, "not-the-key-at-all")
        await browser.until("document.querySelector('[role=alert]') !== null")
        browser.console.clear()  # the 401 that was wanted
        await log_in(browser, cluster.url, KEY)
        await browser.until("document.querySelector('.empty')?.textContent.includes('Nothing is held')")
        await shows(browser, 0, "free")

        faults = await cluster.faults("prefill-0")
        await faults.order(Hold())
        asking = asyncio.create_task(client.ask({"prompt": "a question", "max_tokens": 4}))
        await faults.wait_for(Held)
        asking.cancel()
        await browser.until("document.querySelector('[data-fragment=holds]').textContent.includes('prefill-0 (0@')")
        await shows(browser, 0, "held")
        assert await browser.tell("document.querySelector('[data-figure=\"decode-0.held\"]').textContent") == "3"
        assert "3 held" in str(await browser.tell("document.querySelector('[data-map=decode-0]').ariaLabel"))
        await shown(browser, "light")

        await browser.prefer("dark")
        await shows(browser, 0, "held")
        await shown(browser, "dark")
        await browser.resize(400, 900)
        await browser.until("document.documentElement.scrollWidth <= 400")
        await shown(browser, "narrow")

        await faults.order(LetGo())
        faults.close()
        await browser.until("document.querySelector('tr.holding') === null")
        await shows(browser, 0, "free")
        assert browser.console == []
    await browser.until("document.body.classList.contains('stale')")
    assert "no news" in str(await browser.tell("document.querySelector('#freshness').textContent"))


async def test_pointing_at_a_page_names_its_owner(browser: Browser) -> None:
    async with Cluster(*FLAGS) as cluster, Client(cluster.url) as client:
        await log_in(browser, cluster.url, KEY)
        faults = await cluster.faults("prefill-0")
        await faults.order(Hold())
        asking = asyncio.create_task(client.ask({"prompt": "go on", "max_tokens": 4}))
        await faults.wait_for(Held)
        await browser.until("document.querySelector('[data-figure=\"decode-0.reserved\"]')?.textContent === '2'")
        await browser.tell(POINT)
        told = str(await browser.tell("document.querySelector('[data-under=decode-0]').textContent"))
        assert told.startswith("pages 0-1: reserved req-")
        await faults.order(LetGo())
        faults.close()
        assert not (await asking).error
