"""One audit from its address to its report."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Coroutine
from typing import Any

from quiesce.audit.endpoint import Endpoint, Keys
from quiesce.audit.judge import judge
from quiesce.audit.observation import Progress
from quiesce.audit.options import Options
from quiesce.audit.plan import make_plan
from quiesce.audit.report import Report, make_report
from quiesce.audit.run import Auditor
from quiesce.audit.survey import advertised, measured
from quiesce.audit.text_report import plan_text


async def audit(
    url: str,
    keys: Keys,
    options: Options,
    progress: Progress,
    extra: str = "",
    stopping: asyncio.Event | None = None,
) -> Report:
    """Look, plan, ask, judge. Raises UsageError for what cannot be planned, PeerUnusable for who does not answer.

    `extra` goes into the command that repeats it. Once `stopping` is set, what was seen until then is judged.
    """
    stopping = stopping or asyncio.Event()
    began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    async with Endpoint(url, keys, options) as endpoint:
        progress("looking", 0, 1)
        target = await measured(endpoint, options, await advertised(endpoint, options))
        plan = make_plan(options, target)
        auditor = Auditor(endpoint, target, plan, progress)
        await _unless(stopping, auditor.run())
        observed = auditor.observed()
    return make_report(plan, target, observed, judge(plan, target, observed), began=began, extra=extra)


async def _unless(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Carry `work` out, or until it is stopped."""
    working, stopped = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if working.done():
        working.result()
    working.cancel()
    await asyncio.wait([working])


async def audit_plan(url: str, keys: Keys, options: Options) -> str:
    """The plan and its cost, from what the endpoint says of itself; it is asked for no answer."""
    async with Endpoint(url, keys, options) as endpoint:
        target = await advertised(endpoint, options, is_dry=True)
    return plan_text(make_plan(options, target), target)
