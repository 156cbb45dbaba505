"""One model on one pool: chunks of prefill and steps of decode. Owned by one thread; knows pages, not hand-offs."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt
import torch

from quiesce.engine.checkpoint import Checkpoint, draw_tiny, open_checkpoint
from quiesce.engine.config import TINY, ModelConfig, read_config, with_context_length
from quiesce.engine.crew import Crew
from quiesce.engine.gguf_weights import convert
from quiesce.engine.kernels import compile_kernels
from quiesce.engine.linear import Array
from quiesce.engine.model import Model
from quiesce.engine.step import batch_step, chunk_step
from quiesce.engine.vectors import LANES
from quiesce.errors import ConfigurationError, invariant
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool
from quiesce.text import catalog

Ids = npt.NDArray[np.int32]


class Aborted(Exception):
    """The chunk was given up between two layers because its flag was set. Its pages hold unfinished values."""


class AbortFlag:
    """Set `aborted` from any thread; the engine looks at it before every layer."""

    def __init__(self) -> None:
        self.aborted = False

    def check(self) -> None:
        """Raises Aborted when set."""
        if self.aborted:
            raise Aborted


class Engine:
    """A loaded model. `fingerprint` names config and weights; `threads` are those that compute."""

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint, *, threads: int, deterministic: bool) -> None:
        """Use `load`. Deterministic: one thread, and a row's bits depend on nothing but its own sequence."""
        self.config = config
        self.deterministic = deterministic
        self.threads = 1 if deterministic else threads
        self.fingerprint = checkpoint.fingerprint(config)
        self._claimed_by = 0
        self._claim_thread()
        with torch.inference_mode():
            self._model = Model(config, checkpoint, compile_kernels(config), Crew(self.threads), deterministic)
        self._pool: Array | None = None

    @classmethod
    def load(
        cls,
        model: str,
        *,
        threads: int = 1,
        deterministic: bool = False,
        dtype: str = "float32",
        context_length: int | None = None,
    ) -> Engine:
        """Load by the names `text.catalog.resolve` knows. Sets torch's thread count for the process.

        Raises ConfigurationError for what is not supported, MachineLacksError when something is missing here.
        """
        if dtype != "float32":
            raise ConfigurationError([f"dtype {dtype!r} is not supported; the engine computes in float32"])
        if threads < 1:
            raise ConfigurationError([f"an engine needs at least one thread, not {threads}"])
        config, checkpoint = _open(catalog.resolve(model))
        if config.head_dim % LANES:
            raise ConfigurationError([f"head dim {config.head_dim} is not a multiple of {LANES}"])
        config = with_context_length(config, context_length)
        return cls(config, checkpoint, threads=threads, deterministic=deterministic)

    def layout(self, page_size: int) -> Layout:
        """How this model's KV lies in pages of `page_size` tokens."""
        return self.config.layout(page_size)

    def bind(self, pool: Pool) -> None:
        """Compute in this pool from now on; it must have this model's layout."""
        invariant(pool.layout == self.layout(pool.layout.page_size), "the pool has the model's layout")
        self._pool = pool.kv

    def prefill_chunk(
        self, token_ids: Ids, start: int, pages: Ids, abort: AbortFlag, want_logits: bool
    ) -> npt.NDArray[np.float32] | None:
        """Compute K and V of `token_ids` (int32) at positions [start, start + n) of one sequence.

        `pages` (int32) are the whole sequence's, in order; positions before `start` must have been computed. Returns
        the last token's logits, float32 (vocab,), when wanted. Raises Aborted.
        """
        pool = self._ready()
        step = chunk_step(token_ids.size, start, pages, pool.shape[3], pool.shape[0])
        with torch.inference_mode():
            logits = self._model.forward(token_ids, step, pool, abort.check, logits=want_logits, last_row_only=True)
        return None if logits is None else logits[0]

    def prefill_rows(self, token_ids: Ids, start: int, pages: Ids, abort: AbortFlag) -> npt.NDArray[np.float32]:
        """The same with every token's logits, float32 (n, vocab). Raises Aborted."""
        pool = self._ready()
        step = chunk_step(token_ids.size, start, pages, pool.shape[3], pool.shape[0])
        with torch.inference_mode():
            logits = self._model.forward(token_ids, step, pool, abort.check)
        invariant(logits is not None, "every row has logits")
        return logits  # type: ignore[return-value]

    def decode_step(self, token_ids: Ids, positions: Ids, page_table: Ids) -> npt.NDArray[np.float32]:
        """Logits float32 (B, vocab) after one token of each of B sequences.

        `token_ids` and `positions` are int32 (B,): token b's K and V are written at its position. `page_table` is int32
        (B, P), row b sequence b's pages in order, padded with 0.
        """
        pool = self._ready()
        step = batch_step(positions, page_table, pool.shape[3], pool.shape[0])
        with torch.inference_mode():
            logits = self._model.forward(token_ids, step, pool, _nothing)
        invariant(logits is not None, "decode has logits")
        return logits  # type: ignore[return-value]

    def warm_up(self) -> None:
        """Touch all weights and code once, on pages of its own, so that the first request pays for nothing."""
        bound, self._pool = self._pool, np.zeros(_pool_shape(self.layout(16), 2), np.float32)
        try:
            ids, pages = np.zeros(16, np.int32), np.zeros(1, np.int32)
            self.prefill_chunk(ids, 0, pages, AbortFlag(), want_logits=True)
            for rows in (1, 2):
                table = np.arange(rows, dtype=np.int32).reshape(rows, 1)
                self.decode_step(ids[:rows], ids[:rows], table)
        finally:
            self._pool = bound

    def _ready(self) -> Array:
        self._claim_thread()
        invariant(self._pool is not None, "the engine is bound to a pool")
        return self._pool  # type: ignore[return-value]

    def _claim_thread(self) -> None:
        """OpenMP keeps the number of threads per calling thread: another thread would use every core."""
        if self._claimed_by != threading.get_ident():
            self._claimed_by = threading.get_ident()
            torch.set_num_threads(self.threads)


def _open(source: catalog.ModelSource) -> tuple[ModelConfig, Checkpoint]:
    if source.kind == "tiny":
        return TINY, draw_tiny(TINY)
    directory = catalog.prepare(source)
    config = read_config(directory, source.name)
    if source.gguf is not None:
        convert(source.gguf, directory, config)
    return config, open_checkpoint(directory)


def _pool_shape(layout: Layout, pages: int) -> tuple[int, ...]:
    return (pages, layout.layers, 2, layout.page_size, layout.kv_heads, layout.head_dim)


def _nothing() -> None:
    return None
