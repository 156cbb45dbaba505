"""Staged landing done wrongly: the obligation that breaks, and the run from the start that does the harm."""

from __future__ import annotations

from proof.model import Mutant, Run, without

MUTANTS = (
    Mutant(
        "section 6",
        "the digest is verified in place, and the buffer is attended",
        without("reads_the_copy"),
        "commit / attended_is_private",
        Run("reserve hear_done land verify commit land", "read_own"),
    ),
    Mutant(
        "section 6",
        "the digest is verified in the buffer, then the buffer is copied",
        without("verifies_the_copy"),
        "verify / verified_is_own",
        Run("reserve hear_done land verify land copy commit", "read_own"),
    ),
    Mutant(
        "section 6",
        "the copy is verified by its tag: a torn write leaves that intact",
        without("digest_covers_payload"),
        "verify / verified_is_own",
        Run("reserve hear_done land land copy copy verify commit", "read_own", {"Word": 2, "Cell": 4}),
    ),
    Mutant(
        "section 6",
        "the digest does not cover identity: another request's whole context passes",
        without("digest_covers_identity"),
        "hear_done / told_is_own",
        Run("reserve hear_done land copy verify commit", "read_own"),
    ),
    Mutant(
        "section 6",
        "copying goes on after the check",
        without("copy_ends_before_check"),
        "copy / verified_is_own",
        Run("reserve hear_done land copy verify land copy commit", "read_own"),
    ),
    Mutant(
        "section 6",
        "a staging buffer's memory becomes pool memory, or the pool is registered too",
        without("pool_is_private"),
        "reserve / no_wild_write",
        Run("reserve hear_done land copy verify commit land", "read_own"),
    ),
    Mutant(
        "section 3",
        "two live leases have one pool cell",
        without("pool_has_one_owner"),
        "reserve / no_alias",
        Run("reserve hear_done land copy verify commit reserve land copy", "read_own"),
    ),
)

STORIES = (Run("reserve hear_done land copy verify commit land release reserve land copy"),)
