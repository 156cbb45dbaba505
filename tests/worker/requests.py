"""Requests as a router would submit them, and settings of small workers."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from quiesce.ids import RequestId, Room
from quiesce.protocol.dispatch import Sampling, Submit
from quiesce.worker.links import Link
from quiesce.worker.request import Request
from quiesce.worker.settings import Role, WorkerSettings

from .rig import GREEDY, PAGE

SMALL: dict[str, Any] = {
    "model": "tiny",
    "deterministic": True,
    "page_size": PAGE,
    "context_length": 256,
    "pool_tokens": 256,
    "max_prefill_tokens": 16,
    "max_running_requests": 4,
    "resend_s": 0.02,
    "log_level": "error",
}


def settings(role: Role, name: str = "", **changes: Any) -> WorkerSettings:
    told: dict[str, Any] = {
        "role": role,
        "name": name or f"{role}-0",
        "listen": "unix:/tmp/unused.sock",
        **SMALL,
        **changes,
    }
    return WorkerSettings(**told)


class NobodyLink:
    """A router's link whose frames are kept."""

    def __init__(self) -> None:
        self.frames: list[object] = []

    def send(self, frame: object) -> None:
        self.frames.append(frame)


def submit(ids: NDArray[np.int32], name: str = "r", room: int = 1, **changes: Any) -> Submit:
    sampling = changes.pop("sampling", GREEDY)
    told: dict[str, Any] = {"ignore_eos": True, "prefill": "prefill-0", **changes}
    return Submit(RequestId(name), Room(room), ids.astype("<u4").tobytes(), cast(Sampling, sampling), **told)


def request(ids: NDArray[np.int32], name: str = "r", room: int = 1, **changes: Any) -> Request:
    return Request(submit(ids, name, room, **changes), cast(Link, NobodyLink()), "model")
