"""Attention over pages in place, in numba.

The pool is (pages, layers, 2, page_size, kv_heads, head_dim) float32; K at [., ., 0], V at [., ., 1]. Rows hold queries
at columns [0, heads * head_dim).

The kernel works on blocks of 64 positions counted from position 0, and every sum in it runs in an order that depends
on the row's own position alone. So a row's bits are the same in any chunk and in any batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from quiesce.engine.jit import inlined, kernel
from quiesce.engine.vectors import BLOCK, LANES, STATE_LANES, attend_block, transpose

ROWS = 16
"""Query rows that share one transposed block of keys."""

_NEVER = np.float32(-1e30)


def compile_attention(head_dim: int, group: int) -> Callable[..., None]:
    """The kernel for `group` query heads per KV head. Call inside `compiling()`; takes seconds unless cached.

    `attend(qkv, spans, first_span, span_end, first_head, head_end, pool, layer, page_table, out, scale)`: `spans` is
    int64 (n, 4): first row, row end, position of the first row, row of `page_table` (int32). A span's rows are
    consecutive positions of one sequence; `first_head` and `head_end` count KV heads. Results go to the queries'
    places in `out` (rows, heads * head_dim).
    """
    hd, g_size = head_dim, group
    state_size = STATE_LANES + head_dim

    @kernel(
        "void(float32[:,::1], int64[:,::1], int64, int64, int64, int64, "
        "float32[:,:,:,:,:,::1], int64, int32[:,::1], float32[:,::1], float32)"
    )
    def attend(
        qkv: Any,
        spans: Any,
        first_span: int,
        span_end: int,
        first_head: int,
        head_end: int,
        pool: Any,
        layer: int,
        page_table: Any,
        out: Any,
        scale: Any,
    ) -> None:
        heads = head_end - first_head
        first_column, columns = first_head * g_size * hd, heads * g_size * hd
        tile = _tile(spans, first_span, span_end)
        keys = np.empty((hd, BLOCK), np.float32)
        addresses = np.empty((BLOCK,), np.int64)
        state = np.empty((tile, heads * g_size, state_size), np.float32)
        queries = np.empty((tile, columns), np.float32)
        addresses_at = np.int64(addresses.ctypes.data)
        keys_at = np.int64(keys.ctypes.data)
        state_at = np.int64(state.ctypes.data)
        queries_at = np.int64(queries.ctypes.data)
        for span in range(first_span, span_end):
            first_row, row_end, start, sequence = spans[span]
            for r0 in range(first_row, row_end, ROWS):
                rows = min(row_end - r0, ROWS)
                position = start + r0 - first_row
                _begin(qkv, r0, rows, first_column, scale, queries, state)
                for p0 in range(0, position + rows, BLOCK):
                    _locate(pool, layer, page_table, sequence, p0, position + rows, addresses)
                    for head in range(heads):
                        k_bytes = (first_head + head) * pool.strides[4]
                        v_bytes = k_bytes + pool.strides[2]
                        _transpose_keys(hd, addresses_at, k_bytes, keys_at)
                        for r in range(max(0, p0 - position), rows):
                            seen = min(BLOCK, position + r + 1 - p0)
                            group_at = g_size * (r * heads + head)
                            q_at, s_at = queries_at + 4 * hd * group_at, state_at + 4 * state_size * group_at
                            attend_block(hd, g_size, q_at, keys_at, addresses_at, v_bytes, seen, s_at)
                _finish(state, rows, hd, out, r0, first_column)

    return attend


@inlined
def _tile(spans: Any, first_span: int, span_end: int) -> Any:
    """Rows of scratch that are needed."""
    longest = 1
    for span in range(first_span, span_end):
        longest = max(longest, spans[span, 1] - spans[span, 0])
    return min(ROWS, longest)


@inlined
def _begin(qkv: Any, r0: int, rows: int, first_column: int, scale: Any, queries: Any, state: Any) -> None:
    """Scaled queries, and states in which nothing has been seen."""
    for r in range(rows):
        state[r] = np.float32(0)
        state[r, :, :LANES] = _NEVER
        for column in range(queries.shape[1]):
            queries[r, column] = qkv[r0 + r, first_column + column] * scale


@inlined
def _locate(pool: Any, layer: int, page_table: Any, sequence: int, p0: int, end: int, addresses: Any) -> None:
    """Addresses of K (head 0) of positions p0, p0 + 1, ...; past the end the last one again: its score is masked."""
    page_size = pool.shape[3]
    layer_at = np.int64(pool.ctypes.data) + layer * pool.strides[1]
    for j in range(BLOCK):
        position = min(p0 + j, end - 1)
        page = np.int64(page_table[sequence, position // page_size])
        addresses[j] = layer_at + page * pool.strides[0] + (position % page_size) * pool.strides[3]


@inlined
def _transpose_keys(hd: int, addresses_at: Any, head_bytes: Any, keys_at: Any) -> None:
    """The block's keys of one head as (hd, BLOCK)."""
    for j in range(0, BLOCK, LANES):
        for d in range(0, hd, LANES):
            transpose(addresses_at + 8 * j, head_bytes + 4 * d, keys_at + 4 * (d * BLOCK + j), 4 * BLOCK)


@inlined
def _finish(state: Any, rows: int, hd: int, out: Any, r0: int, first_column: int) -> None:
    """Divide by the sum of the weights."""
    for r in range(rows):
        for query in range(state.shape[1]):
            total = np.float32(0)
            for lane in range(LANES):
                total += state[r, query, LANES + lane]
            inverse = np.float32(1) / total
            for d in range(hd):
                out[r0 + r, first_column + query * hd + d] = state[r, query, STATE_LANES + d] * inverse
