"""Mooncake's transfer engine over TCP, as it really behaves (docs/transports.md); needs `quiesce[mooncake]`."""
