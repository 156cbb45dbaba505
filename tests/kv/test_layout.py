from __future__ import annotations

import msgspec
import pytest

from quiesce.kv.layout import Layout

LAYOUT = Layout(layers=6, kv_heads=3, head_dim=64, page_size=16, dtype="float16", layer_groups=2)


def test_sizes_follow_from_the_shape() -> None:
    assert LAYOUT.token_bytes == 6 * 2 * 3 * 64 * 2
    assert LAYOUT.page_bytes == 16 * LAYOUT.token_bytes


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2), (700_000, 43_750)])
def test_a_started_page_is_a_page(tokens: int, pages: int) -> None:
    assert LAYOUT.pages_for(tokens) == pages


def test_every_field_is_in_the_fingerprint() -> None:
    others = [
        msgspec.structs.replace(LAYOUT, layers=4),
        msgspec.structs.replace(LAYOUT, kv_heads=4),
        msgspec.structs.replace(LAYOUT, head_dim=32),
        msgspec.structs.replace(LAYOUT, page_size=1),
        msgspec.structs.replace(LAYOUT, dtype="bfloat16"),
        msgspec.structs.replace(LAYOUT, layer_groups=3),
    ]
    assert len({layout.fingerprint() for layout in [LAYOUT, *others]}) == 7
    assert msgspec.structs.replace(LAYOUT).fingerprint() == LAYOUT.fingerprint()


@pytest.mark.parametrize(
    "wrong",
    [{"layers": 0}, {"head_dim": -1}, {"page_size": 2**40}, {"dtype": "object"}, {"layer_groups": 4}, {"kv_heads": 0}],
)
def test_an_impossible_layout_is_refused_however_it_arrives(wrong: dict[str, object]) -> None:
    fields = msgspec.structs.asdict(LAYOUT) | wrong
    with pytest.raises(ValueError, match=next(iter(wrong)).replace("layer_groups", "layer groups")):
        Layout(**fields)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=Layout)
