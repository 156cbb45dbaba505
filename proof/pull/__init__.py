"""Pull: decode reads the pages that prefill lends (PROTOCOL section 6)."""
