"""How long a context and how large a pool a worker has; said at start, refused when it cannot work."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from quiesce.errors import ConfigurationError
from quiesce.kv.layout import Layout
from quiesce.protocol.admission import Limits
from quiesce.text import tiny
from quiesce.units import show_bytes
from quiesce.worker.settings import WorkerSettings

ROUND_TOKENS = 1024
_ROWS_OF_TINY = 4
LANDING_SHARE = 4
"""By default landing pages are one for so many of the pool: they are taken for the time of a hand-off only."""


def available_memory_bytes() -> int:
    """What the kernel says could be used without swapping; physical memory where it does not say."""
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class PoolSize(msgspec.Struct, frozen=True):
    """`tokens` in whole pages, and `why`, in words, it has that size. `asked` is what somebody said, if they did."""

    tokens: int
    why: str = ""
    asked: int | None = None


def asked_pool(tokens: int, page_size: int) -> PoolSize:
    """As asked, in whole pages."""
    whole = max(page_size, tokens // page_size * page_size)
    return PoolSize(whole, "" if whole == tokens else f"{whole} in whole pages of {page_size}", tokens)


def default_pool(model: str, context: int, batch: int, share: float, layout: Layout) -> PoolSize:
    """A share of free memory, but no more than `batch` requests of full length could use.

    `tiny` has a context of a million tokens, which nobody fills 32 times over.
    """
    n_bytes = int(available_memory_bytes() * share)
    affordable = n_bytes // layout.token_bytes
    affordable -= affordable % (ROUND_TOKENS if affordable >= ROUND_TOKENS else 1)
    rows = min(batch, _ROWS_OF_TINY) if model == tiny.NAME else batch
    useful = layout.pages_for(context) * layout.page_size * rows
    tokens = max(1, min(affordable, useful) // layout.page_size) * layout.page_size
    of_memory = f"{share * 100:.3g} % of free memory"
    return PoolSize(tokens, of_memory if affordable < useful else f"{rows} x context, less than {of_memory}")


def context_problem(asked: int | None, model_context: int) -> str:
    """Why the model cannot have the context that was asked for, or ""."""
    if asked is None or asked <= model_context:
        return ""
    return f"--context-length {asked} is more than the model's {model_context}"


def pool_problem(asked: int | None, model_context: int, pool: PoolSize, layout: Layout, flag: str) -> str:
    """Why a context (None: the model's) does not fit the pool that `flag` sets, with the numbers as said; or ""."""
    if (asked or model_context) <= pool.tokens:
        return ""
    context = f"the model's context of {model_context} tokens" if asked is None else f"--context-length {asked}"
    why = f"{pool.why}, " if pool.why else ""
    return (
        f"{context} does not fit the KV pool of {pool.asked or pool.tokens} tokens "
        f"({why}{show_bytes(pool.tokens * layout.token_bytes)}): give a larger {flag} or a smaller --context-length, "
        "or --allow-small-pool to refuse longer requests one by one"
    )


def landing_size(landing_bytes: int | None, context: int, pool: PoolSize, layout: Layout) -> PoolSize:
    """What staged writes land in: as asked, or a share of the pool in which the longest prompt has room."""
    if landing_bytes is not None:
        return asked_pool(landing_bytes // layout.token_bytes, layout.page_size)
    longest_pages = layout.pages_for(min(context, pool.tokens))
    pages = max(longest_pages, pool.tokens // layout.page_size // LANDING_SHARE)
    return PoolSize(pages * layout.page_size)


def landing_problem(landing_bytes: int | None, context: int, pool: PoolSize, layout: Layout) -> str:
    """Why a prompt of this context cannot land whole in what was asked for, with what would do; or ""."""
    landing = landing_size(landing_bytes, context, pool, layout)
    if landing_bytes is None or context <= landing.tokens:
        return ""  # by default only a pool that is too small makes it so, and that is told
    needed = layout.pages_for(context) * layout.page_size * layout.token_bytes
    return (
        f"a context of {context} tokens does not fit --landing-bytes "
        f"{show_bytes(landing.tokens * layout.token_bytes)} ({landing.tokens} tokens): give at least "
        f"{show_bytes(needed)} or a smaller --context-length, or --allow-small-pool to refuse longer prompts one by one"
    )


def landing_excess(landing_bytes: int | None) -> str:
    """Why so much cannot be had on this machine, or ""."""
    free_bytes = available_memory_bytes()
    if landing_bytes is None or landing_bytes <= free_bytes:
        return ""
    return f"--landing-bytes {show_bytes(landing_bytes)} is more than the {show_bytes(free_bytes)} of free memory"


def decide_limits(settings: WorkerSettings, model_context: int, layout: Layout) -> Limits:
    """The context and pool this worker admits. Raises ConfigurationError with every problem at once."""
    context = settings.context_length or model_context
    if settings.pool_tokens is not None:
        pool = asked_pool(settings.pool_tokens, layout.page_size)
    else:
        batch, share = settings.max_running_requests, settings.memory_share
        pool = default_pool(settings.model, context, batch, share, layout)
    problems = [context_problem(settings.context_length, model_context)]
    if not settings.allow_small_pool:
        problems.append(pool_problem(settings.context_length, model_context, pool, layout, "--pool-tokens"))
    landing_tokens = 0
    if settings.landing == "staged" and settings.role == "decode":
        landing_tokens = landing_size(settings.landing_bytes, context, pool, layout).tokens
        problems.append(landing_excess(settings.landing_bytes))
        if not settings.allow_small_pool:
            problems.append(landing_problem(settings.landing_bytes, context, pool, layout))
    if any(problems):
        raise ConfigurationError([problem for problem in problems if problem])
    return Limits(context_length=context, pool_tokens=pool.tokens, landing_tokens=landing_tokens)
