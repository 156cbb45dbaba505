"""A struct's fields become settings; what people write becomes values, or a sentence that says what is wrong."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from quiesce.cli.fields import Kind, Slice, bounded, from_file, from_text, settings_of


class Room(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="Who.")]
    page_size: Annotated[int, Meta(ge=1, le=64, description="Tokens.")] = 16
    share: Annotated[float, Meta(gt=0, description="Share.")] = 0.5
    grace_s: Annotated[float, Meta(ge=0, description="Grace.")] = 30.0
    cap_bytes: Annotated[int, Meta(description="Bytes.")] = 1024
    quick: Annotated[bool, Meta(description="Quick.")] = False
    mode: Annotated[Literal["pd", "aggregated"], Meta(description="Mode.")] = "pd"
    peer: Annotated[tuple[str, ...], Meta(description="Peers.")] = ()
    limit: Annotated[int | None, Meta(ge=2, description="Limit.")] = None
    title: Annotated[str | None, Meta(min_length=1, description="Title.")] = None
    secret: Annotated[str | None, Meta(min_length=16, description="Secret.")] = None


class Other(msgspec.Struct, frozen=True, kw_only=True):
    page_size: Annotated[int, Meta(description="Another word for it.")] = 16
    extra: str = "x"


SETTINGS = settings_of([Slice(Room)])


def test_kinds_follow_types_and_unit_suffixes() -> None:
    assert {name: setting.kind for name, setting in SETTINGS.items()} == {
        "name": Kind.TEXT,
        "page_size": Kind.NUMBER,
        "share": Kind.REAL,
        "grace_s": Kind.SECONDS,
        "cap_bytes": Kind.BYTES,
        "quick": Kind.SWITCH,
        "mode": Kind.CHOICE,
        "peer": Kind.LIST,
        "limit": Kind.NUMBER,
        "title": Kind.TEXT,
        "secret": Kind.TEXT,
    }


def test_a_setting_carries_description_default_and_names() -> None:
    page_size = SETTINGS["page_size"]
    assert (page_size.description, page_size.default, page_size.required) == ("Tokens.", 16, False)
    assert (page_size.flag, page_size.variable, page_size.key) == ("--page-size", "QUIESCE_PAGE_SIZE", "page-size")
    assert SETTINGS["name"].required
    assert SETTINGS["mode"].choices == ("pd", "aggregated")


def test_slices_leave_fields_out_and_the_first_room_words_a_shared_name() -> None:
    both = settings_of([Slice(Room, frozenset({"name"})), Slice(Other)])
    assert "name" not in both
    assert both["page_size"].description == "Tokens."
    assert both["extra"].default == "x"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("page_size", " 8 ", 8),
        ("page_size", "1,024", 1024),
        ("grace_s", "500ms", 0.5),
        ("grace_s", "2m", 120.0),
        ("cap_bytes", "4G", 4 << 30),
        ("quick", "yes", True),
        ("quick", "0", False),
        ("peer", "a=unix:/x, b=unix:/y", ("a=unix:/x", "b=unix:/y")),
        ("peer", ("a", "b"), ("a", "b")),
        ("name", "some text", "some text"),
    ],
)
def test_text_is_read_by_kind(name: str, text: str, value: object) -> None:
    assert from_text(SETTINGS[name], text) == value


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("page_size", "many", "whole number"),
        ("share", "half", "a number"),
        ("grace_s", "soon", "30s or 500ms"),
        ("cap_bytes", "4 boxes", "512M or 4G"),
        ("quick", "maybe", "true or false"),
    ],
)
def test_unreadable_text_is_refused_in_words(name: str, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        from_text(SETTINGS[name], text)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("page_size", 0, "^must be at least 1$"),
        ("page_size", 65, "^must be at most 64$"),
        ("share", 0.0, "^must be more than 0$"),
        ("mode", "both", "^choose one of pd, aggregated$"),
        ("limit", 1, "^must be at least 2$"),
        ("title", "", "^must not be empty$"),
        ("secret", "adm", "^must have at least 16 characters$"),
        ("page_size", "16", "^must be a whole number$"),
        ("quick", 3, "^must be true or false$"),
        ("peer", 3, "^must be a list of texts$"),
    ],
)
def test_bounds_are_those_of_the_struct(name: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bounded(SETTINGS[name], value)


def test_a_file_may_write_units_as_text() -> None:
    assert from_file(SETTINGS["grace_s"], "30s") == 30.0
    assert from_file(SETTINGS["grace_s"], 30) == 30
    assert from_file(SETTINGS["cap_bytes"], "1k") == 1024
    assert from_file(SETTINGS["page_size"], "16") == "16"
