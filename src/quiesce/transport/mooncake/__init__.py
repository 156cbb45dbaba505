"""Mooncake's transfer engine over TCP, as it really behaves (docs/transports.md); needs the extra `mooncake`."""
