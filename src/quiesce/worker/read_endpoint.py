"""Decode's own endpoint, where it reads: a source for each prefill life, and it can be closed and made anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from quiesce.errors import PeerUnusable
from quiesce.ids import Peer
from quiesce.protocol.hello import Capabilities
from quiesce.telemetry.logs import ids
from quiesce.transport.contract import Completion
from quiesce.transport.pulling import Puller, Read, Source

log = logging.getLogger(__name__)


class _Opened(msgspec.Struct, frozen=True, eq=False):
    descriptor: bytes
    source: Source


class ReadEndpoint:
    """A source is open for as long as the stream to its life is up. Lives on the event loop's thread."""

    def __init__(self, make: Callable[[], Puller]) -> None:
        self._make = make
        self._puller = make()
        self._sources: dict[Peer, _Opened] = {}
        self._heard: Callable[[], None] | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self._puller.capabilities

    def open(self, prefill: Peer, descriptor: bytes, fds: Sequence[int]) -> None:
        """Raises HandshakeRefused."""
        source = self._puller.open_source(descriptor, fds)
        self.close_source(prefill)
        self._sources[prefill] = _Opened(descriptor, source)

    def source_of(self, prefill: Peer) -> Source | None:
        opened = self._sources.get(prefill)
        return None if opened is None else opened.source

    def close_source(self, prefill: Peer) -> None:
        """No read of it starts any more; those under way end by themselves."""
        if (opened := self._sources.pop(prefill, None)) is not None:
            self._puller.close_source(opened.source)

    def launch(self, source: Source, read: Read) -> None:
        self._puller.launch(source, read)

    def completions(self) -> list[Completion]:
        return self._puller.completions()

    def renew(self) -> list[Completion]:
        """Close and join, so that nothing of any read lands any more, and begin again; how the reads ended."""
        heard = self._heard
        self.stop()
        self._puller.close()
        ended = self._puller.completions()
        described, self._sources = self._sources, {}
        self._puller = self._make()
        for prefill, opened in described.items():
            try:
                self.open(prefill, opened.descriptor, ())
            except PeerUnusable as error:  # its reads fail until its stream brings another descriptor
                log.warning("a source cannot be opened again", extra=ids(peer=prefill, reason=error))
        if heard is not None:
            self.start(heard)
        return ended

    def start(self, heard: Callable[[], None]) -> None:
        """Call `heard` from the running loop when completions wait."""
        self._heard = heard
        asyncio.get_running_loop().add_reader(self._puller.completion_fd, heard)

    def stop(self) -> None:
        if self._heard is not None:
            asyncio.get_running_loop().remove_reader(self._puller.completion_fd)
            self._heard = None

    def close(self) -> None:
        self._puller.close()
