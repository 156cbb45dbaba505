"""A prompt that is shown before its answer, and how likely the model found it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quiesce.api.logprobs import Said
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.router.answer import Piece, piece_of, said_of
from quiesce.text.detokenizer import Detokenizer


class Echo:
    """Of one prompt. `detokenizer` is a fresh one. `tells`: the tokens' log probabilities were asked for."""

    def __init__(self, text: str, detokenizer: Detokenizer, *, tells: bool) -> None:
        self.text = text
        self._tells = tells
        self._detokenizer = detokenizer

    def piece(self, token_ids: bytes, told: Sequence[TokenLogprobs]) -> Piece:
        """The prompt's text, and `told` of all its tokens but the first, which nothing stands before.

        `token_ids` are packed little-endian uint32.
        """
        said: list[Said] = []
        offset = 0
        for index, token_id in enumerate(np.frombuffer(token_ids, "<u4").tolist() if self._tells else ()):
            said.append(_said(token_id, offset, told[index - 1] if index else None))
            offset += len(self._detokenizer.push((token_id,)))
        return piece_of([self.text], said)


def _said(token_id: int, offset: int, told: TokenLogprobs | None) -> Said:
    return Said(token_id, offset, None, ()) if told is None else said_of(token_id, offset, told)
