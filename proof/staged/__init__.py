"""Staged landing: copy to private memory, then verify a digest over the copy (PROTOCOL section 6)."""
