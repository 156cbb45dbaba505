"""Seats come lowest first and are given back once."""

from __future__ import annotations

import pytest

from quiesce.errors import InvariantBroken
from quiesce.worker.seats import Seats


def test_seats_are_taken_lowest_first() -> None:
    seats = Seats(3)
    assert [seats.take(), seats.take()] == [0, 1]
    assert seats.free == 1


def test_a_seat_comes_back_once() -> None:
    seats = Seats(2)
    seat = seats.take()
    seats.give_back(seat)
    with pytest.raises(InvariantBroken, match="once"):
        seats.give_back(seat)
    assert seats.free == 2
