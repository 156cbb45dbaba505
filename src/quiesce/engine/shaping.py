"""What changes a row's logits before the draw: a grammar, stop tokens that must wait, bias, penalties."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from quiesce.protocol.dispatch import Sampling

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


class CannotGoOn(Exception):
    """No token can be drawn under the answer's grammar. The message quotes nothing of a client's."""


class Grammar(Protocol):
    """What an answer must match, and how far it has come."""

    @property
    def is_ready(self) -> bool:
        """Whether `allowed` would answer without waiting."""

    def wait(self, at_most_s: float) -> bool:
        """Wait until it is ready, but not for longer than this; whether it is."""

    def when_ready(self, wake: Callable[[], None]) -> None:
        """Call `wake` on the running event loop as soon as it is ready."""

    def say(self, token: int) -> None:
        """`token` was drawn."""

    def allowed(self) -> Mask:
        """Which tokens may be drawn next, bool, at most (vocab,); those behind its end may not. Raises CannotGoOn."""


class Shaping:
    """One sequence's, from its first draw to its last. It depends on the prompt and on what was said, nothing else.

    So prefill may draw the first token with one of its own and decode the rest with another that was told of it.
    `problem` says why nothing can be drawn any more, once that is so; what is drawn nevertheless is nobody's answer.
    """

    def __init__(
        self,
        how: Sampling,
        prompt_ids: Ids,
        stop_ids: Iterable[int],
        vocab_size: int,
        grammar: Grammar | None = None,
        unwanted_ids: Iterable[int] = (),
    ) -> None:
        self.problem = ""
        self.grammar = grammar
        self._how = how
        self._said = 0
        self._stop_ids = _within(stop_ids, vocab_size)
        self._unwanted_ids = _within(unwanted_ids, vocab_size)
        biased = [pair for pair in how.logit_bias if pair[0] < vocab_size]
        self._biased_ids = np.array([token for token, _ in biased], np.int64)
        self._bias = np.array([bias for _, bias in biased], np.float32)
        self._seen = np.zeros(vocab_size if how.repetition_penalty != 1.0 else 0, bool)
        self._counts = np.zeros(vocab_size if how.presence_penalty or how.frequency_penalty else 0, np.float32)
        if self._seen.size:
            self._seen[prompt_ids] = True

    def say(self, token: int) -> None:
        """`token` was drawn."""
        self._said += 1
        if self.grammar is not None:
            self.grammar.say(token)
        if self._seen.size:
            self._seen[token] = True
        if self._counts.size:
            self._counts[token] += 1

    def apply(self, row: Logits) -> Logits:
        """A shaped copy of float32 (vocab,) logits."""
        shaped = self._masked(row)
        waiting = self._stop_ids if self._said < self._how.min_tokens else self._unwanted_ids
        if waiting.size:
            kept = shaped[waiting]
            shaped[waiting] = -np.inf
            if not np.isfinite(shaped.max()):  # nothing else can be said
                shaped[waiting] = kept
        np.add.at(shaped, self._biased_ids, self._bias)
        if self._seen.size:
            self._penalise_repetition(shaped)
        if self._counts.size:
            shaped -= self._how.frequency_penalty * self._counts
            shaped -= self._how.presence_penalty * (self._counts > 0)
        return shaped

    def _masked(self, row: Logits) -> Logits:
        """A copy with what the grammar allows."""
        if self.grammar is None or self.problem:
            return row.copy()
        try:
            allowed = self.grammar.allowed()
        except CannotGoOn as error:
            self.problem = str(error)
            return row.copy()
        masked = np.full_like(row, -np.inf)
        np.copyto(masked[: allowed.size], row[: allowed.size], where=allowed)
        if not np.isfinite(masked.max()):
            self.problem = "the model says nothing that the grammar allows"
            return row.copy()
        return masked

    def _penalise_repetition(self, shaped: Logits) -> None:
        """Seen tokens become less likely by a factor, whatever the sign of their logit."""
        seen, penalty = shaped[self._seen], np.float32(self._how.repetition_penalty)
        shaped[self._seen] = np.where(seen > 0, seen / penalty, seen * penalty)


def shaping_of(
    how: Sampling,
    prompt_ids: Ids,
    stop_ids: Iterable[int],
    vocab_size: int,
    grammar: Grammar | None = None,
    unwanted_ids: Iterable[int] = (),
) -> Shaping | None:
    """None when nothing that was asked for changes logits: such rows cost nothing.

    `unwanted_ids` are drawn only where nothing else can be.
    """
    wanted = how.min_tokens or how.logit_bias or how.presence_penalty or how.frequency_penalty or grammar is not None
    if not wanted and how.repetition_penalty == 1.0:
        return None
    return Shaping(how, prompt_ids, stop_ids, vocab_size, grammar, unwanted_ids)


def _within(token_ids: Iterable[int], vocab_size: int) -> npt.NDArray[np.int64]:
    return np.array(sorted(token for token in token_ids if token < vocab_size), np.int64)
