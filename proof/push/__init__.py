"""Push: prefill ranks write into pages that decode reserved (PROTOCOL sections 2 to 5)."""
