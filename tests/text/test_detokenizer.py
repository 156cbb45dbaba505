from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.text.detokenizer import Decoder, Detokenizer

from .vocabularies import SPECIAL_ID, byte_fallback, byte_level

BYTES = byte_level()
FALLBACK = byte_fallback()
SPECIAL = frozenset({SPECIAL_ID})


def stream(tokenizer: Decoder, tokens: Sequence[int], chunk: int = 1, tail: Sequence[int] = ()) -> list[str]:
    detokenizer = Detokenizer(tokenizer, SPECIAL, tail)
    pieces = [detokenizer.push(tokens[at : at + chunk]) for at in range(0, len(tokens), chunk)]
    return [*pieces, detokenizer.flush()]


@given(st.lists(st.integers(0, 263) | st.just(SPECIAL_ID), max_size=120), st.integers(1, 5))
def test_random_byte_level_tokens_decode_to_the_full_text(tokens: list[int], chunk: int) -> None:
    """Whatever the tokens, even bytes that are no UTF-8, the pieces add up to the tokenizer's own decoding."""
    assert "".join(stream(BYTES, tokens, chunk)) == BYTES.decode(tokens)


@given(st.lists(st.sampled_from([0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0xFF, 0x41]), max_size=300))
def test_long_runs_of_broken_bytes(tokens: list[int]) -> None:
    """Windows that never end in whole text are cut inside, and nothing is lost or shown twice."""
    assert "".join(stream(BYTES, tokens)) == BYTES.decode(tokens)


@given(st.text(max_size=40), st.integers(1, 4))
def test_pieces_of_real_text_never_hold_a_broken_character(text: str, chunk: int) -> None:
    """Characters that are split over tokens come out whole."""
    text = text.replace("\ufffd", "")
    pieces = stream(BYTES, BYTES.encode(text).ids, chunk)
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_an_emoji_split_over_tokens_comes_out_whole() -> None:
    tokens = BYTES.encode("a 😀!").ids
    pieces = stream(BYTES, tokens)
    assert any(piece.endswith("😀") for piece in pieces)
    assert "".join(pieces) == "a 😀!"


def test_an_answer_that_ends_inside_a_character() -> None:
    """Only `flush` may show U+FFFD, because then it is the truth."""
    tokens = list("x€".encode())[:-1]
    assert stream(BYTES_BY_BYTE, tokens) == ["x", "", "", "\ufffd"]


def test_special_tokens_are_not_text() -> None:
    assert "".join(stream(BYTES, [*BYTES.encode("hell").ids, SPECIAL_ID])) == "hell"


PIECES = st.sampled_from([[256], [257], [258], [259], [260], [261], *(list(text.encode()) for text in "€😀é₂a")])


@given(st.lists(PIECES, max_size=40), st.integers(1, 4))
def test_sentencepiece_text_equals_the_full_decoding(pieces: list[list[int]], chunk: int) -> None:
    """Words with a leading mark, and bytes that are UTF-8 (others change what was complete before)."""
    tokens = [token for piece in pieces for token in piece]
    shown = stream(FALLBACK, tokens, chunk)
    assert "".join(shown) == FALLBACK.decode(tokens)
    assert not any("\ufffd" in piece for piece in shown)


def test_sentencepiece_bytes_that_are_no_utf8_end_with_the_next_word() -> None:
    """Broken bytes hold nothing back for longer."""
    shown = stream(FALLBACK, [*"€".encode(), 0xFF, 0xFF, 256, 257])
    assert "€" in "".join(shown[:3])
    assert "hello" in shown[5]


def test_sentencepiece_after_a_prompt_keeps_the_leading_space() -> None:
    """The tail of the prompt tells that the answer's first word does not start the text."""
    assert "".join(stream(FALLBACK, [257], tail=[256])) == " world"
    assert "".join(stream(FALLBACK, [257])) == "world"


def test_a_prompt_that_ends_inside_a_character_does_not_leak_into_the_answer() -> None:
    assert "".join(stream(BYTES_BY_BYTE, [0x41], tail=[0xE2, 0x82])) == "A"


@pytest.mark.parametrize("token", [0xFF, 0xE2])
def test_endless_broken_bytes_keep_the_window_short(token: int) -> None:
    class Counting:
        longest = 0

        def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
            self.longest = max(self.longest, len(ids))
            return bytes(ids).decode(errors="replace")

    counting = Counting()
    detokenizer = Detokenizer(counting, frozenset())
    pieces = [detokenizer.push([token]) for _ in range(1000)]
    assert "".join(pieces) + detokenizer.flush() == "\ufffd" * 1000
    assert counting.longest < 50


class _ByteByByte:
    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return bytes(ids).decode(errors="replace")


BYTES_BY_BYTE = _ByteByByte()
