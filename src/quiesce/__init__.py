"""Quiesce: LLM serving with prefill and decode apart, whose KV pages change owner on proof only."""

__version__ = "0.1.0"
