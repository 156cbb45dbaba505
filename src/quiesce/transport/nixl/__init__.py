"""NIXL over UCX, as it really behaves (docs/backends.md); needs `nixl-cu12`, installed without its dependencies."""
