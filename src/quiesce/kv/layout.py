"""How one page of KV cache lies in memory. Both workers of a pair must have equal layouts (HELLO compares them)."""

from __future__ import annotations

import hashlib

import msgspec

_ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_MOST = {"layers": 4096, "kv_heads": 4096, "head_dim": 65536, "page_size": 65536, "layer_groups": 4096}


class Layout(msgspec.Struct, frozen=True):
    """The shape of a page: `(layers, 2, page_size, kv_heads, head_dim)` of `dtype`; index 0 of the 2 is K, 1 is V.

    `page_size` is in tokens. `layer_groups` cuts a page's layers into equal groups, each with its own page tag, so
    that groups may be transferred apart. `dtype` is float32, float16 or bfloat16. Raises ValueError (and so
    `msgspec.ValidationError` when it arrives in a frame) for a layout that cannot be.
    """

    layers: int
    kv_heads: int
    head_dim: int
    page_size: int
    dtype: str = "float32"
    layer_groups: int = 1

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be 1 to {most}, not {getattr(self, name)}")
        if self.dtype not in _ITEM_BYTES:
            raise ValueError(f"dtype must be one of {', '.join(_ITEM_BYTES)}, not {self.dtype!r}")
        if self.layers % self.layer_groups:
            raise ValueError(f"{self.layers} layers do not divide into {self.layer_groups} layer groups")

    @property
    def item_bytes(self) -> int:
        return _ITEM_BYTES[self.dtype]

    @property
    def token_bytes(self) -> int:
        """Bytes of K and V of one token over all layers."""
        return self.layers * 2 * self.kv_heads * self.head_dim * self.item_bytes

    @property
    def page_bytes(self) -> int:
        return self.token_bytes * self.page_size

    def fingerprint(self) -> str:
        """32 hex digits, equal exactly when the layouts are."""
        return hashlib.blake2b(msgspec.json.encode(self), digest_size=16, person=b"quiesce-layout").hexdigest()

    def pages_for(self, tokens: int) -> int:
        """How many pages hold `tokens` tokens."""
        return -(-tokens // self.page_size)
