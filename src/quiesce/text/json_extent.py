"""Where a JSON object or list ends, found character by character."""

from __future__ import annotations

_BETWEEN = frozenset(" \t\r\n,:+-.0123456789eEtrufalsn")
"""What may stand outside of strings: numbers, true, false, null, and what separates values."""

_ANYWHERE = _BETWEEN | frozenset('{[]}"')


class JsonExtent:
    """Counts brackets outside of strings. It does not check more than that, so the value is still to be decoded."""

    def __init__(self) -> None:
        self.complete = False
        self.depth = self.deepest = 0
        self._in_string = False
        self._escaped = False

    def may_come(self, character: str) -> bool:
        """Whether some JSON has it next."""
        return self._in_string or character in _ANYWHERE

    def take(self, character: str) -> bool:
        """Take the next character, from the opening bracket to the closing one; False: no JSON has it there."""
        if not self._in_string:
            return self._outside(character)
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._in_string = False
        return True

    def _outside(self, character: str) -> bool:
        if character in "{[":
            self.depth += 1
            self.deepest = max(self.deepest, self.depth)
        elif character in "}]":
            self.depth -= 1
            self.complete = self.depth == 0
        elif character == '"':
            self._in_string = True
        else:
            return character in _BETWEEN
        return True
