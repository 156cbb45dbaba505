"""The arithmetic: model families, attention over pages in place, sampling. Knows pages, knows nothing of hand-offs."""
