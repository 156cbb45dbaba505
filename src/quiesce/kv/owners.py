"""Which owner has which page, with owners' names interned to small numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quiesce.kv.runs import FEW, index_of

AnyPages = npt.NDArray[np.integer[Any]]


class OwnerTable:
    """`codes[page]` is the owner's number, int32; 0 is nobody.

    A number returns to use when its last page is taken back; else the table would grow by a name per request for ever.
    """

    def __init__(self, pages: int) -> None:
        self.codes = np.zeros(pages, np.int32)
        self._names = [""]
        self._uses = [0]
        self._code_of: dict[str, int] = {}
        self._unused: list[int] = []

    def name(self, code: int) -> str:
        return self._names[code]

    def give(self, pages: AnyPages, owner: str) -> None:
        """`owner` gets distinct pages that nobody has."""
        if owner and len(pages):
            code = self._intern(owner)
            self.codes[index_of(pages)] = code
            self._uses[code] += len(pages)

    def take(self, pages: AnyPages) -> None:
        """Distinct pages lose their owners, who may differ."""
        where = index_of(pages)
        if len(pages) <= FEW:
            codes = self.codes[where].tolist()
            for code in set(codes):
                self._forget(code, codes.count(code))
        else:
            tally = np.bincount(self.codes[pages])
            for code in np.flatnonzero(tally).tolist():  # owners, not pages
                self._forget(code, int(tally[code]))
        self.codes[where] = 0

    def _intern(self, owner: str) -> int:
        if owner not in self._code_of:
            code = self._unused.pop() if self._unused else len(self._names)
            if code == len(self._names):
                self._names.append("")
                self._uses.append(0)
            self._names[code] = owner
            self._code_of[owner] = code
        return self._code_of[owner]

    def _forget(self, code: int, n_pages: int) -> None:
        if code == 0:
            return
        self._uses[code] -= n_pages
        if self._uses[code] == 0:
            del self._code_of[self._names[code]]
            self._names[code] = ""
            self._unused.append(code)
