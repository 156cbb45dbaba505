"""Mutants of staged landing: production's `StagedPages` with one rule left out. Machines, worlds and proof know nothing
of what a lease's pages are, so only whoever looks at pages can see these.
"""

from __future__ import annotations

from typing import Any

from quiesce.kv.allocator import PageState
from quiesce.lab.mutants.mutant import Mutant, checked
from quiesce.worker.staged_pages import StagedPages

honest_hold = StagedPages.hold


def come_back_at_once(pages: Any, handoff: Any, give_back: Any) -> None:
    give_back(handoff)


def hold_both(pages: Any, handoff: Any) -> None:
    """As if somebody could write to the context, too."""
    pages._landing.mark(handoff.lease.pages, PageState.HELD)
    pages._allocator.mark(handoff.own_pages, PageState.HELD)


def hold_neither(pages: Any, handoff: Any) -> None:
    """The failed hand-off's landing pages are the next one's at once."""
    honest_hold(pages, handoff)
    pages._landing.release(handoff.lease.pages)


def keep_lease(pages: Any, handoff: Any) -> None:
    """Commit leaves landing pages to the release, which gives back the context."""


def give_back_lease_alone(pages: Any, handoff: Any) -> None:
    """A committed hand-off's context is forgotten."""
    if not handoff.is_committed:
        pages._when_copied(handoff, pages._free_lease)


def forget_quarantine(pages: Any, handoff: Any) -> None:
    """No proof came, and the pages circulate again."""
    pages._landing.release(handoff.lease.pages)


def without(rule: str, name: str, check: str, method: str, change: Any) -> Mutant:
    return checked(rule, f"staged: {name}", check, (StagedPages, method, change))


LANDING = (
    without(
        "16", "pages come back while they are copied", "a_copy_keeps_what_it_touches", "_when_copied", come_back_at_once
    ),
    without("6.", "a hold keeps the context", "a_hold_costs_no_page_of_the_pool", "hold", hold_both),
    without("2", "a hold gives landing pages back", "a_hold_keeps_landing_pages", "hold", hold_neither),
    without("15", "commit keeps the landing pages", "a_commit_gives_landing_back", "commit", keep_lease),
    without(
        "15",
        "the context of a finished request is forgotten",
        "a_finished_request_gives_its_context_back",
        "release",
        give_back_lease_alone,
    ),
    without(
        "3.",
        "quarantined landing pages circulate",
        "quarantine_keeps_landing_pages",
        "quarantine",
        forget_quarantine,
    ),
)
