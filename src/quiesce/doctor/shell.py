"""The words of shell commands, with their lines. Nothing is run; what only a shell could know stays as `$...`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from quiesce.doctor.fleet import Placed
from quiesce.errors import UsageError

MOST_WORD_CHARACTERS = 1 << 16
"""A variable that is made of others can grow without bound."""

_SEPARATORS = frozenset(";&|(){}\n")
ARRAY = "\x1f"
"""Between the words of an array, `A=(x y)`, in the value of its variable."""

_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")

Lookup = Callable[[str], str | None]


def unknown(_name: str) -> str | None:
    """The lookup of whom no variable is known to."""
    return None


def commands(text: str, lookup: Lookup, first_line: int = 1) -> Iterator[list[Placed]]:
    """Each command's words. `lookup` is asked for variables while words are read, and so may learn between commands.

    Raises UsageError for a quote that is never closed and for words without end.
    """
    yield from _Lexer(text, lookup, first_line).commands()


class _Lexer:
    def __init__(self, text: str, lookup: Lookup, first_line: int) -> None:
        self._text, self._lookup = text, lookup
        self._at, self._line = 0, first_line
        self._word: list[str] | None = None
        self._size = 0
        self._began = first_line
        self._words: list[Placed] = []
        self._drop_next = False
        self._documents: list[str] = []

    def commands(self) -> Iterator[list[Placed]]:
        while self._at < len(self._text):
            character = self._text[self._at]
            if self._separates(character):
                self._end_word()
                self._next()
                if character == "\n":
                    self._skip_documents()
                if self._words:
                    yield self._words
                    self._words = []
            else:
                self._step(character)
        self._end_word()
        if self._words:
            yield self._words

    def _separates(self, character: str) -> bool:
        """Braces group commands only where they stand alone; else they are part of a word."""
        if character in "{}":
            following = self._text[self._at + 1 : self._at + 2]
            return self._word is None and (character == "}" or not following or following.isspace())
        return character in _SEPARATORS and not (character == "(" and self._is_assignment())

    def _step(self, character: str) -> None:
        if character.isspace():
            self._end_word()
            self._next()
        elif character == "(":
            self._array()
        elif character == "#" and self._word is None:
            self._skip_comment()
        elif character in "<>":
            self._redirect()
        elif character == "\\":
            self._escape()
        elif character == "'":
            self._single_quoted()
        elif character == '"':
            self._double_quoted()
        else:
            self._plain(character)

    def _plain(self, character: str, quoted: bool = False) -> None:
        if character == "$":
            self._variable(quoted)
        elif character == "`":
            self._backticks()
        else:
            self._add(character)
            self._next()

    def _next(self) -> None:
        if self._text[self._at] == "\n":
            self._line += 1
        self._at += 1

    def _add(self, text: str) -> None:
        if self._word is None:
            self._word, self._size, self._began = [], 0, self._line
        self._size += len(text)
        if self._size > MOST_WORD_CHARACTERS:
            raise UsageError(f"line {self._line}: a word has more than {MOST_WORD_CHARACTERS} characters.")
        self._word.append(text)

    def _end_word(self) -> None:
        if self._word is None:
            return
        if not self._drop_next:
            self._words.append(Placed("".join(self._word), self._began))
        self._drop_next = False
        self._word = None

    def _skip_comment(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _redirect(self) -> None:
        """The word that follows is a file, or the end of a document that follows; neither is part of the command."""
        if self._text.startswith("<<", self._at) and not self._text.startswith("<<<", self._at):
            end = self._text.find("\n", self._at)
            line = self._text[self._at + 2 : len(self._text) if end < 0 else end]
            self._documents.append(line.lstrip("-").split()[0].strip("'\"") if line.strip("- ") else "")
        self._end_word()
        while self._at < len(self._text) and self._text[self._at] in "<>&-":
            self._next()
        self._drop_next = True

    def _skip_documents(self) -> None:
        for end in self._documents:
            while self._at < len(self._text):
                stop = self._text.find("\n", self._at)
                line = self._text[self._at : len(self._text) if stop < 0 else stop]
                self._at = len(self._text) if stop < 0 else stop + 1
                self._line += 1
                if line.strip() == end:
                    break
        self._documents = []

    def _escape(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        self._next()
        if not following:
            return
        if following != "\n":
            self._add(following)
        self._next()

    def _single_quoted(self) -> None:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise UsageError(f"line {self._line}: a ' is never closed.")
        self._add(self._text[self._at + 1 : end])
        self._line += self._text.count("\n", self._at, end)
        self._at = end + 1

    def _double_quoted(self) -> None:
        began = self._line
        self._add("")
        self._next()
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == '"':
                self._next()
                return
            if character == "\\" and self._text[self._at + 1 : self._at + 2] in ('"', "\\", "$", "`", "\n"):
                self._escape()
            else:
                self._plain(character, quoted=True)
        raise UsageError(f'line {began}: a " is never closed.')

    def _variable(self, quoted: bool) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following == "(":
            self._nested("(", ")")
        elif following == "{":
            self._braced(quoted)
        else:
            end = self._at + 1
            while end < len(self._text) and self._text[end] in _NAME:
                end += 1
            self._put(self._text[self._at + 1 : end], None, self._text[self._at : end], quoted)
            self._at = end

    def _braced(self, quoted: bool) -> None:
        end = self._text.find("}", self._at)
        if end < 0:
            raise UsageError(f"line {self._line}: a ${{ is never closed.")
        inside = self._text[self._at + 2 : end]
        name, mark, default = inside.partition(":-")
        if not mark:
            name, mark, default = inside.partition("-")
        written = self._text[self._at : end + 1]
        if name.endswith(("[@]", "[*]")):
            self._spread(self._lookup(name[:-3]), written)
        else:
            self._put(name, default if mark else None, written, quoted)
        self._line += inside.count("\n")
        self._at = end + 1

    def _put(self, name: str, default: str | None, written: str, quoted: bool) -> None:
        """A variable's value; without quotes its words are words of the command."""
        value = self._lookup(name) if name else None
        if value is None:
            value = default
        if value is None:
            self._add(written)
        elif quoted or self._is_assignment():
            self._add(value)
        else:
            self._spread(value.replace(" ", ARRAY).replace("\n", ARRAY).replace("\t", ARRAY), written)

    def _is_assignment(self) -> bool:
        """Whether the word so far is `NAME=`, whose value a shell does not split."""
        word = "".join(self._word or ())
        return word.endswith("=") and word[:-1].rstrip("+").isidentifier()

    def _spread(self, value: str | None, written: str) -> None:
        """Several words; the first continues the word that has begun, and what follows continues the last."""
        parts = [part for part in (value or "").split(ARRAY) if part] if value is not None else [written]
        for number, part in enumerate(parts):
            if number:
                self._end_word()
            self._add(part)

    def _array(self) -> None:
        """`NAME=(a b)`: the words, as one value."""
        end = self._text.find(")", self._at)
        if end < 0:
            raise UsageError(f"line {self._line}: a ( is never closed.")
        inside = _Lexer(self._text[self._at + 1 : end].replace("\n", " "), self._lookup, self._line)
        self._add(ARRAY.join(word for command in inside.commands() for word in command))
        self._line += self._text.count("\n", self._at, end)
        self._at = end + 1

    def _nested(self, opening: str, closing: str) -> None:
        """A command whose output is not known: it stays as `$(...)`."""
        depth = 0
        while self._at < len(self._text):
            depth += {opening: 1, closing: -1}.get(self._text[self._at], 0)
            self._next()
            if depth == 0 and self._text[self._at - 1] == closing:
                break
        self._add("$(...)")

    def _backticks(self) -> None:
        end = self._text.find("`", self._at + 1)
        if end < 0:
            raise UsageError(f"line {self._line}: a ` is never closed.")
        self._line += self._text.count("\n", self._at, end)
        self._at = end + 1
        self._add("$(...)")
