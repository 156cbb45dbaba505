"""What a worker is made of."""

from __future__ import annotations

from quiesce.control.security import LOCAL, Security
from quiesce.engine.engine import Engine
from quiesce.ids import Incarnation
from quiesce.kv.allocator import PageAllocator
from quiesce.kv.prefix_cache import PrefixCache
from quiesce.kv.storage import Pool
from quiesce.protocol.admission import Limits
from quiesce.telemetry.metrics import Telemetry
from quiesce.worker.compute import Compute
from quiesce.worker.grammars import GrammarThread
from quiesce.worker.landing_memory import LandingSpace
from quiesce.worker.peer_lines import PeerLines
from quiesce.worker.settings import WorkerSettings


class Parts:
    """`limits` is what the worker's door admits, `landing` where writes land if not in `pool`."""

    def __init__(
        self,
        settings: WorkerSettings,
        incarnation: Incarnation,
        engine: Engine,
        pool: Pool,
        allocator: PageAllocator,
        limits: Limits,
        telemetry: Telemetry,
        security: Security = LOCAL,
        landing: LandingSpace | None = None,
    ) -> None:
        self.settings = settings
        self.incarnation = incarnation
        self.engine = engine
        self.pool = pool
        self.allocator = allocator
        self.prefixes = PrefixCache(allocator, settings.page_size, on=settings.prefix_cache == "on")
        self.limits = limits
        self.telemetry = telemetry
        self.security = security
        self.landing = landing
        self.lines = PeerLines()
        self.compute = Compute()
        self.grammars = GrammarThread(settings.model)

    def join(self) -> None:
        """End the engine thread; the one that compiles grammars touches nothing and need not be waited for."""
        self.grammars.close()
        self.compute.close()
