"""Where workers are, as several sources say it: flags, a file, DNS, a router."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from quiesce.control.address import Address

Places = Mapping[Address, str]
"""Addresses, and the name of the worker that must be there; "" where the source does not know it."""


class Whereabouts:
    """What all sources say together; each replaces what it said before. `changed` hears of it.

    What a source said holds until it says something else: one that fails says nothing.
    """

    def __init__(self, changed: Callable[[Places], None]) -> None:
        self._changed = changed
        self._said: dict[str, Places] = {}

    def say(self, source: str, places: Places) -> None:
        before = self.places
        self._said[source] = dict(places)
        if self.places != before:
            self._changed(self.places)

    def besides(self, source: str) -> set[Address]:
        """Where workers are as all others say it."""
        return {address for each, places in self._said.items() if each != source for address in places}

    @property
    def places(self) -> dict[Address, str]:
        """In the order in which sources first spoke. A name that any of them knows is known."""
        merged: dict[Address, str] = {}
        for places in self._said.values():
            for address, name in places.items():
                merged[address] = merged.get(address) or name
        return merged
