"""Attention over pages by gathering them and calling torch: slow, plain, and the oracle of the kernel."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention


def attend_gathered(
    queries: torch.Tensor, pool: torch.Tensor, layer: int, pages: torch.Tensor, start: int, scale: float
) -> torch.Tensor:
    """Attention of consecutive positions of one sequence.

    `queries` (rows, heads, head_dim) stand at positions start, start + 1, ...; `pool` is (pages, layers, 2, page_size,
    kv_heads, head_dim), `pages` int64, the sequence's. Returns (rows, heads, head_dim).
    """
    rows, known = queries.shape[0], start + queries.shape[0]
    kv = pool[:, layer].index_select(0, pages)  # (pages, 2, page_size, kv_heads, head_dim)
    keys, values = (kv[:, which].flatten(0, 1)[:known].transpose(0, 1).unsqueeze(0) for which in (0, 1))
    visible = torch.ones(rows, known, dtype=torch.bool, device=queries.device).tril(start)
    q = queries.transpose(0, 1).unsqueeze(0)
    out = scaled_dot_product_attention(q, keys, values, attn_mask=visible, scale=scale, enable_gqa=True)
    return out[0].transpose(0, 1)
