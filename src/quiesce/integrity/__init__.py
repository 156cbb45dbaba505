"""Digests, the coverage check at commit, and the tag canary of every decode step."""
