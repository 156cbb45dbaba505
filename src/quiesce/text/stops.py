"""Stop strings, found across token borders."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Cuts a stream of text at the first stop string, however the text was split into pieces.

    The match that *ends* first wins (of those, the longest): that is what reading character by character gives, so the
    answer does not depend on where tokens end. Text that may still become a stop string is held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._prefixes = [_Prefix(stop) for stop in stops if stop]
        self._held = ""
        self._stopped = False

    def push(self, text: str) -> tuple[str, bool]:
        """Take the next piece; return what may be shown now, and whether a stop string ended the text."""
        if self._stopped:
            return "", True
        if not self._prefixes:
            return text, False
        return self._scan(self._held + text, len(self._held))

    def flush(self) -> str:
        """The text is over: return what was held back."""
        held, self._held = self._held, ""
        return held

    def _scan(self, text: str, start: int) -> tuple[str, bool]:
        for index in range(start, len(text)):
            matched = max(prefix.advance(text[index]) for prefix in self._prefixes)
            if matched:
                self._held, self._stopped = "", True
                return text[: index + 1 - matched], True
        keep = max(prefix.length for prefix in self._prefixes)
        cut = len(text) - keep
        self._held = text[cut:]
        return text[:cut], False


class _Prefix:
    """How much of one stop string the text ends with now (Knuth, Morris, Pratt: constant work per character)."""

    def __init__(self, stop: str) -> None:
        self._stop = stop
        self._fallback = _fallbacks(stop)
        self.length = 0

    def advance(self, character: str) -> int:
        """Take one character; the stop string's length when it is complete, else 0."""
        while self.length and self._stop[self.length] != character:
            self.length = self._fallback[self.length - 1]
        if self._stop[self.length] == character:
            self.length += 1
        return self.length if self.length == len(self._stop) else 0


def _fallbacks(stop: str) -> list[int]:
    """For each prefix of `stop`, the length of its longest proper border."""
    table = [0] * len(stop)
    length = 0
    for index in range(1, len(stop)):
        while length and stop[index] != stop[length]:
            length = table[length - 1]
        if stop[index] == stop[length]:
            length += 1
        table[index] = length
    return table
