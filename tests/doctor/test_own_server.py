"""Our own server as shipped, looked at from outside."""

from __future__ import annotations

import asyncio

import pytest

from quiesce.doctor.examination import Inputs, examine
from quiesce.lab.cluster import PRODUCT, Cluster


@pytest.mark.slow
async def test_our_server_with_defaults_is_clean() -> None:
    flags = (
        "--model",
        "tiny",
        "--context-length",
        "512",
        "--decode-pool-tokens",
        "2048",
        "--prefill-pool-tokens",
        "2048",
    )
    async with Cluster(*flags, program=PRODUCT) as cluster:
        diagnosis = await asyncio.to_thread(examine, Inputs(names=[cluster.url]))
        assert diagnosis.findings == ()
        assert [each.what.partition(" trusts ")[0] for each in diagnosis.untold] == [
            f"whether Quiesce decode ({cluster.url} decode-0)"  # its flags are not to be seen from here
        ]
        assert {member.role for member in diagnosis.fleet.members} == {"router", "prefill", "decode"}
        assert all(member.engine == "quiesce" for member in diagnosis.fleet.members)
