"""The push model in TLA+, for TLC: every state of small worlds. `python -m proof.tla`, or `make tla`."""
