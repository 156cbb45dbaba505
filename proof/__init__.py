"""The unbounded proof of the hand-off protocol: `python -m proof`. What it claims: docs/claim.md."""
