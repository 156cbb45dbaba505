"""How many pages whoever runs may still need: what a new request leaves alone when it takes pages."""

from __future__ import annotations


def growth_pages(tokens: int, pages: int, steps: int, page_size: int) -> int:
    """Pages that a context of `tokens` tokens in `pages` pages lacks for `steps` more tokens."""
    return max(0, -(-(tokens + steps) // page_size) - pages)


def leaves_headroom(available_pages: int, n_pages: int, own_growth: int, others_growth: int | None) -> bool:
    """Whether a request may take `n_pages` pages now.

    It may when what it and all others will grow by is left over. `others_growth` is None when there are no others, who
    could be starved: then it may have all there is, since its door found that it fits the pool.
    """
    if others_growth is None:
        return available_pages >= n_pages
    return available_pages >= n_pages + own_growth + others_growth
