"""The collector rests while a process begins, and leaves what it began with alone."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from quiesce.lasting import making_what_lasts


def test_the_collector_rests_and_comes_back_whatever_happens() -> None:
    assert gc.isenabled()
    with making_what_lasts():
        with making_what_lasts():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), making_what_lasts():
        _ = 1 / 0
    assert gc.isenabled()


def test_what_is_kept_is_not_looked_at_and_what_comes_later_is() -> None:
    """In a process of its own: nothing can be unkept by halves."""
    program = (
        "import gc, weakref\n"
        "from quiesce.lasting import keep\n"
        "class Knot:\n"
        "    def __init__(self): self.me = self\n"
        "before = Knot()\n"
        "keep()\n"
        "kept, later = weakref.ref(before), weakref.ref(Knot())\n"
        "del before\n"
        "gc.collect()\n"
        "print(gc.isenabled(), kept() is not None, later() is None)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout
    assert said.split() == ["True", "True", "True"]
