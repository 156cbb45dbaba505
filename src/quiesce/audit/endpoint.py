"""The audited server over HTTP. This is the only module of the audit that opens a connection to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from quiesce.audit.events import MOST_BYTES, Stream, as_object, code_of
from quiesce.audit.observation import Answer, Outcome
from quiesce.audit.options import Options
from quiesce.audit.plan import Arm, Ask, Leave, Manner
from quiesce.audit.target import Target
from quiesce.errors import PeerUnusable, UsageError

RETRIES = 4
SMALL_RETRIES = 2
PATIENCE = 4
"""Times what a long prompt is expected to take: attention grows faster than the prompt does."""
MOST_TIMEOUTS = 10
LONGEST_WAIT_S = 20.0
TRY_AGAIN = frozenset({429, 503})
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
_PLAIN = {"accept-encoding": "identity"}
"""A few compressed bytes could become more than memory holds, so none are asked for and none are read."""


class Keys:
    """API keys. They are shown nowhere: not by `repr`, not in errors, not in reports."""

    def __init__(self, first: str = "", second: str = "") -> None:
        self._first, self._second = first, second

    @property
    def are_two(self) -> bool:
        return bool(self._second)

    def headers(self, *, second: bool = False) -> dict[str, str]:
        key = self._second if second else self._first
        return {"authorization": f"Bearer {key}"} if key else {}


def root_of(url: str) -> str:
    """`URL`, or HOST:PORT, without a slash or `/v1` at its end.

    Raises UsageError for what is no HTTP address, or has a password.
    """
    has_scheme = "://" in url
    try:
        parts = urlsplit(url if has_scheme else f"http://{url}")
        is_address = bool(parts.hostname) and (parts.port is not None or has_scheme)
    except ValueError:  # a port that cannot be, or half a bracket
        is_address = False
    if not is_address or parts.scheme not in ("http", "https"):
        raise UsageError("the URL must be that of an HTTP server.", remedy="Write for example http://127.0.0.1:8000.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError("the URL must have no password, query or fragment.", remedy="Keys go into --api-key-file.")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


class Endpoint:
    """`async with`. Two pools of connections: one keeps them, one opens a new one for each request."""

    def __init__(self, url: str, keys: Keys, options: Options) -> None:
        self.url = root_of(url)
        self._keys = keys
        self._options = options
        self._tls = httpx.create_ssl_context()
        self._kept = self._client(keep=options.concurrency)
        self._fresh = self._client(keep=0)
        self._began_s = time.monotonic()

    def _client(self, keep: int) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=keep)
        timeout = httpx.Timeout(self._options.timeout_s, connect=min(10.0, self._options.timeout_s))
        # No proxies and no .netrc: keys go to the machine that was named, and to no other.
        return httpx.AsyncClient(
            base_url=self.url, verify=self._tls, limits=limits, timeout=timeout, headers=_PLAIN, trust_env=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._kept.aclose()
        await self._fresh.aclose()

    def now_s(self) -> float:
        """Since this endpoint was made."""
        return time.monotonic() - self._began_s

    # ------------------------------------------------------------ small questions

    async def get(self, path: str) -> dict[str, Any]:
        """The JSON object at `path`; empty when there is none."""
        return await self._small("GET", path, None)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What a small POST answers; empty when it is no JSON object, or an error."""
        return await self._small("POST", path, body)

    async def status(self, path: str) -> int:
        """The status of GET `path`, at last. Raises PeerUnusable when nobody answers, or none that can be read."""
        status = await self._status(path)
        for retry in range(SMALL_RETRIES):
            if status not in TRY_AGAIN:
                break
            await asyncio.sleep(0.5 * 2**retry)
            status = await self._status(path)
        return status

    async def _status(self, path: str) -> int:
        try:
            async with self._kept.stream("GET", path, headers=self._keys.headers()) as response:
                _must_be_plain(response)
                return response.status_code
        except httpx.HTTPError as error:
            message = f"{self.url} does not answer ({type(error).__name__})."
            raise PeerUnusable(message, remedy="Is it running, and is this its address?", took_effect=False) from None

    async def _small(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        found, is_busy = await self._small_once(method, path, body)
        for retry in range(SMALL_RETRIES):
            if not is_busy:
                break
            await asyncio.sleep(0.5 * 2**retry)
            found, is_busy = await self._small_once(method, path, body)
        return found

    async def _small_once(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[dict[str, Any], bool]:
        """What is there, and whether it was too busy to say."""
        try:
            async with (
                asyncio.timeout(self._options.timeout_s),
                self._kept.stream(method, path, json=body, headers=self._keys.headers()) as response,
            ):
                found = as_object(await _whole(response)) if response.status_code == 200 else {}
                return found, response.status_code in TRY_AGAIN
        except (httpx.HTTPError, PeerUnusable, TimeoutError):
            return {}, False

    # ------------------------------------------------------------ answers

    async def ask(self, ask: Ask, target: Target) -> Answer:
        """Ask until there is an answer, an error, or it is time to leave. Waits and tries again when told to."""
        for retry in range(RETRIES + 1):
            answer, wait_s = await self._once(ask, target)
            answer.retries = retry
            if wait_s is None or retry == RETRIES or ask.leave is not None:
                return answer
            await asyncio.sleep(min(LONGEST_WAIT_S, wait_s or 0.5 * 2**retry))
        return answer

    async def _once(self, ask: Ask, target: Target) -> tuple[Answer, float | None]:
        """An answer, and how many seconds to wait before another try: None for not at all, 0 if it does not say."""
        answer = Answer(began_s=self.now_s())
        leaves_s = patience_s(ask, target, self._options)
        if ask.leave is not None and not ask.leave.events:
            leaves_s = ask.leave.ttfts * target.ttft_s
        wait_s: float | None = None
        try:
            async with asyncio.timeout(leaves_s):
                wait_s = await self._stream(ask, target, answer)
        except TimeoutError:
            answer.outcome = Outcome.TIMEOUT if ask.leave is None else Outcome.LEFT
        except httpx.TimeoutException:
            answer.outcome = Outcome.TIMEOUT
        except (httpx.HTTPError, PeerUnusable):
            answer.outcome = Outcome.INCOMPLETE if answer.status else Outcome.UNREACHABLE
        answer.total_s = self.now_s() - answer.began_s
        return answer, wait_s

    async def _stream(self, ask: Ask, target: Target, answer: Answer) -> float | None:
        client = self._fresh if ask.fresh_connection else self._kept
        request = client.build_request(
            "POST",
            "/v1/chat/completions" if self._options.api == "chat" else "/v1/completions",
            json=body_of(ask, target, self._options.api),
            headers=self._keys.headers(second=ask.second_key),
            extensions=_extensions(ask.leave, patience_s(ask, target, self._options)),
        )
        response = await client.send(request, stream=True)
        try:
            answer.status = response.status_code
            if response.status_code != 200:
                return await _refused(response, answer)
            await self._read(response, ask.leave, answer)
            return None
        finally:
            await response.aclose()

    async def _read(self, response: httpx.Response, leave: Leave | None, answer: Answer) -> None:
        stream = Stream(answer)
        _must_be_plain(response)
        async for data in response.aiter_raw():
            if stream.feed(data) and answer.ttft_s is None:
                answer.ttft_s = self.now_s() - answer.began_s
            if leave is not None and leave.events and stream.events >= leave.events:
                answer.outcome = Outcome.LEFT
                return
        stream.end()


def patience_s(ask: Ask, target: Target, options: Options) -> float:
    """How long an answer is waited for. Who gives up has left, so a long prompt gets several times what its length
    takes by the time that a donor took; within bounds, as an endpoint may never answer.
    """
    if ask.arm is not Arm.LONG:
        return options.timeout_s
    expected_s = target.ttft_s * ask.chars / max(1, target.chars_for(options.donor_tokens))
    return min(MOST_TIMEOUTS * options.timeout_s, max(options.timeout_s, PATIENCE * expected_s))


def body_of(ask: Ask, target: Target, api: str) -> dict[str, Any]:
    """The request: greedy, streamed, with usage at its end where the endpoint can say it."""
    said: dict[str, Any] = {"messages": [{"role": "user", "content": ask.text}]}
    if api == "completions":
        said = {"prompt": ask.text}
    said |= {target.length_field: ask.max_tokens, "temperature": 0, "stream": True}
    if target.model:
        said["model"] = target.model
    return said | ({"stream_options": {"include_usage": True}} if target.has_usage else {})


def _must_be_plain(response: httpx.Response) -> None:
    """Raises PeerUnusable for a body that would have to be decompressed."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise PeerUnusable(
            "an answer is compressed, which was not asked for.",
            remedy="Ask the server itself, not through what compresses its answers.",
        )


async def _whole(response: httpx.Response) -> bytes:
    """The body. Raises PeerUnusable when it is compressed, or has more than MOST_BYTES."""
    _must_be_plain(response)
    parts, size = [], 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > MOST_BYTES:
            raise PeerUnusable(f"an answer has more than {MOST_BYTES} bytes.", took_effect=True)
        parts.append(part)
    return b"".join(parts)


async def _refused(response: httpx.Response, answer: Answer) -> float | None:
    """Read an error's body, if it is of a size that errors have."""
    body = b""
    with contextlib.suppress(PeerUnusable):
        body = await _whole(response)
    answer.outcome = Outcome.REFUSED
    answer.text = body.decode("utf-8", "replace")
    answer.code = code_of(as_object(body))
    if response.status_code not in TRY_AGAIN:
        return None
    with contextlib.suppress(ValueError):
        return max(0.0, float(response.headers.get("retry-after", "0")))
    return 0.0


def _extensions(leave: Leave | None, timeout_s: float) -> dict[str, Any]:
    """httpx's: the timeouts, and for who resets its connection a look at the socket as soon as there is one."""
    timeout = {"connect": min(10.0, timeout_s), "read": timeout_s, "write": timeout_s, "pool": timeout_s}
    if leave is None or leave.manner is not Manner.RESET:
        return {"timeout": timeout}
    return {"timeout": timeout, "trace": _reset_at_close}


async def _reset_at_close(event: str, info: dict[str, Any]) -> None:
    if event != "connection.connect_tcp.complete":
        return
    sock = info["return_value"].get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
