"""Prefill, decode and aggregated processes: one loop owns everything; executors carry out the protocol's effects."""
