"""Grammars that an answer must match, compiled for one model's vocabulary and followed token by token (llguidance)."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper, grammar_from

from quiesce.text.model import TextModel
from quiesce.text.schemas import without_idle

Mask = npt.NDArray[np.bool_]

_MOST_LEXER_STATES = 50_000
"""Of one grammar, at one or two KiB each: what a regex that explodes may cost in memory. Its answer ends there."""

_MOST_ITEMS = 1_000
"""Ways on at one place. Each makes every mask dearer, by its square. An object with 240 optional properties has 970."""

_STEP_FUEL = 50_000
"""What one mask may add to the regexes. Ordinary ones take a few thousand."""

_MASK_ITEMS = 10_000
"""Ways tried for one mask. JSON's grammar in GBNF, where spaces may stand anywhere, takes half of that."""

_SPARE_S, _TOKEN_S = 5.0, 0.01
"""CPU time of an answer's masks: so much in all, beyond so much for each. An ordinary mask takes a twentieth of that: a
slow machine ends no answer that a quick one finishes. What explodes is ended by what is counted above."""

_KEPT = 16
_MOST_ANSWERS = 64
_STEPS_TRIED = 4
_SILENT = 0
_UNKNOWN_KEYS = "Unimplemented keys:"
_SLOW_S = 0.005
_PICTURE = re.compile(r"\n *\d+ \| ")
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as `json.dumps` writes it. A small model that may write spaces anywhere may write nothing else."""


class Unusable(Exception):
    """A grammar cannot be compiled. The message is for its author, and quotes from it."""


_LEXER_FAILED = "lexer error"
_TOO_COMPLEX = "the grammar is too complex to follow"


class Lost(Exception):
    """An answer cannot go on under its grammar. The message quotes nothing."""


class Compiled:
    """A compiled grammar. Copies of a matcher share its lexer: the states it found, and its failure, which is for good.

    `is_slow`: some mask of it took long. `again` compiles it anew, or gives what others compiled meanwhile.
    """

    def __init__(self, start: LLMatcher, again: Callable[[], Compiled]) -> None:
        self.start = start
        self.again = again
        self.answers = 0
        self.is_slow = self.is_broken = False
        self._lock = threading.Lock()

    def breaks(self) -> bool:
        """Its lexer failed. Whether it was whole until now: then it is the caller who asked too much of it."""
        with self._lock:
            was_whole, self.is_broken = not self.is_broken, True
        return was_whole


class Matcher:
    """One answer's place in its grammar."""

    def __init__(self, compiled: Compiled, vocab_size: int) -> None:
        self.compiled = compiled
        self._matcher = compiled.start.deep_copy()
        self._vocab_size = vocab_size
        self._said: list[int] = []
        self._spare_s = _SPARE_S

    def say(self, token: int) -> None:
        """`token` was drawn. Raises Lost when it does not fit."""
        began_s = time.thread_time()
        self._said.append(token)
        if not (self._matcher.consume_token(token) or self._goes_on_elsewhere()):
            much = any(words in self.problem for words in ("items; max", _LEXER_FAILED))
            raise Lost(_TOO_COMPLEX if much else "a token does not fit the grammar")
        self._spend(began_s, 0.0)

    def allowed(self) -> Mask:
        """Which tokens may be drawn next, bool (vocab,). Where the answer may end, that includes all end-of-text ids;
        where it must, nothing else. Raises Lost.
        """
        began_s = time.thread_time()
        mask = self._matcher.compute_bitmask()
        if self._matcher.is_error() and self._goes_on_elsewhere():
            mask = self._matcher.compute_bitmask()
        if self._matcher.is_error():  # the mask then says: end
            raise Lost(f"{_TOO_COMPLEX}, or nothing can match it")
        self._spend(began_s, _TOKEN_S)
        bits = np.frombuffer(mask, np.uint8)
        return np.unpackbits(bits, bitorder="little", count=self._vocab_size).view(np.bool_)

    def _goes_on_elsewhere(self) -> bool:
        """Whether it was another answer that broke what they share, and this one is where it was with a new one."""
        if _LEXER_FAILED not in self.problem or self.compiled.breaks():
            return False
        self.compiled = self.compiled.again()
        self._matcher = self.compiled.start.deep_copy()
        return all(self._matcher.consume_token(token) for token in self._said)

    def _spend(self, began_s: float, granted_s: float) -> None:
        """CPU time, not time: a busy machine ends no answer that an idle one finishes. Raises Lost."""
        used_s = time.thread_time() - began_s
        self.compiled.is_slow |= used_s > _SLOW_S
        self._spare_s = min(self._spare_s + granted_s - used_s, _SPARE_S)
        if self._spare_s < 0:
            raise Lost(_TOO_COMPLEX)

    @property
    def problem(self) -> str:
        """What is wrong, in the library's words; it quotes the grammar."""
        return _problem(self._matcher)


class _Words:
    """A vocabulary as llguidance takes it: every token as bytes."""

    def __init__(self, text: TextModel) -> None:
        self._text = text
        self.eos_token_id = text.eos_token_ids[0]
        self.bos_token_id = None
        self.tokens = [text.spell(token) for token in range(text.vocab_size)]
        self.special_token_ids = sorted(text.special_ids)

    def __call__(self, text: str | bytes) -> list[int]:
        whole = text if isinstance(text, str) else text.decode("utf-8", "replace")
        token_ids: list[int] = self._text.encode(whole, add_special=False).tolist()
        return token_ids


class Grammars:
    """Compiles grammars for one model, on any thread. Making one takes up to a second, a tenth of it with the GIL.

    The answers to one grammar share what its lexer finds out, but not for ever: its states are counted.
    """

    def __init__(self, text: TextModel) -> None:
        """Raises Unusable for a model that has no end-of-text token: no answer of it could end."""
        if not text.eos_token_ids:
            raise Unusable("the model has no end-of-text token, so no answer could end with its grammar")
        words = TokenizerWrapper(_Words(text))
        self._vocab_size = text.vocab_size
        self._tokenizer = LLTokenizer(words, n_vocab=text.vocab_size, eos_token=list(text.eos_token_ids))
        self._limits = LLParserLimits(
            max_items_in_row=_MOST_ITEMS,
            step_lexer_fuel=_STEP_FUEL,
            step_max_items=_MASK_ITEMS,
            max_lexer_states=_MOST_LEXER_STATES,
            verbose_errors=False,
        )
        self._compiled: OrderedDict[str, Compiled] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, grammar: str) -> Matcher:
        """A matcher at the start of `grammar` (as `as_grammar` writes it). Raises Unusable.

        Compiling lets go of the GIL. Its time is bounded by the library's limits, except for `multipleOf`.
        """
        return Matcher(self._shared(grammar), self._vocab_size)

    def _shared(self, grammar: str) -> Compiled:
        with self._lock:
            known = self._compiled.get(grammar)
            if known is None or known.is_broken or known.answers >= _MOST_ANSWERS:
                start = LLMatcher(self._tokenizer, grammar, log_level=_SILENT, limits=self._limits)
                if start.is_error():
                    raise Unusable(_in_words(_problem(start)))
                known = self._compiled[grammar] = Compiled(start, lambda: self._shared(grammar))
            known.answers += 1
            self._compiled.move_to_end(grammar)
            if len(self._compiled) > _KEPT:
                self._compiled.popitem(last=False)
            return known

    def check(self, grammar: str) -> None:
        """Compile it and take a few steps. Raises Unusable for what cannot be, or what nothing matches."""
        matcher = self.compile(grammar)
        try:
            for _ in range(_STEPS_TRIED):
                matcher.say(int(matcher.allowed().argmax()))
        except Lost as lost:
            raise Unusable(_in_words(matcher.problem) or str(lost)) from None


def as_grammar(kind: str, text: str) -> str:
    """In llguidance's terms: a JSON schema (`json`), `regex`, JSON list of words (`choice`), Lark or GBNF (`grammar`).

    Raises Unusable for what is none of its kind; what is else wrong with it is found by `Grammars.check`.
    """
    try:
        match kind:
            case "json":
                return LLMatcher.grammar_from_json_schema(_schema(text), defaults=_SPACING)  # type: ignore[arg-type]
            case "regex":
                return LLMatcher.grammar_from_regex(text)
            case "choice":
                return LLMatcher.grammar_from_lark(_alternatives(json.loads(text)))
            case _:
                return grammar_from("grammar", text)
    except RecursionError:
        raise Unusable("it is nested too deeply") from None
    except ValueError as error:
        raise Unusable(str(error)) from None


def _schema(text: str) -> str:
    """As it was written, unless something in it says nothing. What is wrong with it is for the library to say."""
    try:
        schema = json.loads(text)
        told = without_idle(schema)
    except (ValueError, RecursionError):
        return text
    return text if told == schema else json.dumps(told)


def _alternatives(words: list[str]) -> str:
    """Lark's strings are written as JSON's are. In a terminal, a thousand of them are one item."""
    return "start: WORD\nWORD: " + " | ".join(json.dumps(word) for word in words)


def _problem(matcher: LLMatcher) -> str:
    return str(matcher.get_error()).removesuffix("<non-verbose/>").strip()


def _in_words(problem: str) -> str:
    """The library's message without the picture of where it is, nor the list of all that would be right."""
    if problem.startswith("NoExtension"):
        return "nothing matches it"
    if problem.startswith("oneOf constraints"):
        return "oneOf is followed only where it is plain that no value matches two of its schemas; anyOf may do"
    if problem.startswith(_UNKNOWN_KEYS):
        return f"keywords of JSON Schema that are not supported here:{problem.removeprefix(_UNKNOWN_KEYS)}"
    what = _PICTURE.split(problem)[0].partition("; following")[0]
    return what.rpartition("\nerror: ")[2].strip()
