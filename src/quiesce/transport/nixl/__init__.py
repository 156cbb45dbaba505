"""NIXL over UCX, as it really behaves (docs/transports.md); needs `nixl-cu12`, installed without its dependencies."""
