"""Mooncake's transfer engine over TCP, as it really behaves (docs/backends.md); needs the extra `mooncake`."""
