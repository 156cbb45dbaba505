from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quiesce.errors import InvariantBroken
from quiesce.kv import prefix_reference as reference
from quiesce.kv.prefix_tree import PrefixTree
from quiesce.kv.runs import Pages

PAGE_SIZE = 2
PAGE_BYTES = PAGE_SIZE * 4


def ids(*tokens: int) -> bytes:
    return np.array(tokens, "<u4").tobytes()


def pages(*numbers: int) -> Pages:
    return np.array(numbers, np.int32)


@pytest.fixture
def tree() -> PrefixTree:
    return PrefixTree(16, PAGE_SIZE)


def test_the_longest_known_beginning_is_found_in_whole_pages(tree: PrefixTree) -> None:
    tree.add("", ids(1, 2, 3, 4, 5, 6), pages(7, 3, 9), past_copies=False)
    assert tree.find("", ids(1, 2, 3, 4, 5, 6), 3).tolist() == [7, 3, 9]
    assert tree.find("", ids(1, 2, 3, 4, 5, 6), 2).tolist() == [7, 3]
    assert tree.find("", ids(1, 2, 3, 4, 5), 9).tolist() == [7, 3]
    assert tree.find("", ids(1, 2, 3, 5, 5, 6), 9).tolist() == [7]
    assert tree.find("", ids(2, 1, 3, 4), 9).tolist() == []


def test_equal_tokens_elsewhere_in_a_prompt_are_another_page(tree: PrefixTree) -> None:
    """What a page holds depends on everything before it."""
    tree.add("", ids(1, 2, 3, 4), pages(0, 1), past_copies=False)
    assert tree.find("", ids(3, 4), 9).tolist() == []


def test_one_salt_never_hits_what_another_warmed(tree: PrefixTree) -> None:
    tree.add("a", ids(1, 2, 3, 4), pages(0, 1), past_copies=False)
    assert [tree.find(salt, ids(1, 2, 3, 4), 2).tolist() for salt in ("a", "b", "", "aa")] == [[0, 1], [], [], []]


class Colliding(bytes):
    """Token ids whose hash says nothing."""

    def __getitem__(self, which: Any) -> Any:
        return Colliding(bytes.__getitem__(self, which))

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return bytes.__eq__(self, other)


def test_equal_hashes_prove_nothing(tree: PrefixTree) -> None:
    """Every key collides; the content decides."""
    for number in range(8):
        tree.add("", Colliding(ids(number, number)), pages(number), past_copies=False)
    assert [tree.find("", Colliding(ids(n, n)), 1).tolist() for n in range(9)] == [*([n] for n in range(8)), []]


def test_the_page_that_came_first_is_kept(tree: PrefixTree) -> None:
    tree.add("", ids(1, 2, 3, 4), pages(0, 1), past_copies=False)
    assert tree.add("", ids(1, 2, 3, 4, 5, 6), pages(4, 5, 6), past_copies=False).tolist() == []
    assert tree.add("", ids(1, 2, 3, 4, 5, 6), pages(4, 5, 6), past_copies=True).tolist() == [6]
    assert tree.find("", ids(1, 2, 3, 4, 5, 6), 9).tolist() == [0, 1, 6]


def test_what_is_read_is_not_evicted(tree: PrefixTree) -> None:
    tree.add("", ids(1, 2, 3, 4, 5, 6), pages(0, 1, 2), past_copies=False)
    tree.enter(pages(0, 1))
    assert (tree.unread, tree.evict(9).tolist()) == (1, [2])
    assert tree.leave(pages(0, 1)).tolist() == []
    assert tree.evict(9).tolist() == [1, 0]
    assert len(tree) == tree.unread == 0


def test_the_least_recently_used_goes_first(tree: PrefixTree) -> None:
    for number in range(3):
        tree.add("", ids(number, 0), pages(number), past_copies=False)
    tree.enter(pages(0))
    tree.leave(pages(0))
    assert tree.evict(2).tolist() == [1, 2]


def test_a_condemned_page_takes_with_it_what_was_computed_on_it(tree: PrefixTree) -> None:
    tree.add("", ids(1, 2, 3, 4, 5, 6), pages(0, 1, 2), past_copies=False)
    tree.add("", ids(1, 2, 9, 9), pages(0, 3), past_copies=False)
    tree.enter(pages(0, 1))
    assert tree.condemn(pages(1)).tolist() == [2]
    assert tree.find("", ids(1, 2, 3, 4, 5, 6), 9).tolist() == [0]
    assert tree.find("", ids(1, 2, 9, 9), 9).tolist() == [0, 3]
    assert tree.leave(pages(0, 1)).tolist() == [1]


def test_nothing_outside_the_tree_is_shared_and_nobody_leaves_twice(tree: PrefixTree) -> None:
    with pytest.raises(InvariantBroken, match="no_poison"):
        tree.enter(pages(3))
    with pytest.raises(InvariantBroken, match="once"):
        tree.leave(pages(3))
    tree.add("", ids(1, 2), pages(0), past_copies=False)
    with pytest.raises(InvariantBroken, match="no_alias"):
        tree.add("", ids(3, 4), pages(0), past_copies=False)


def test_a_million_tokens() -> None:
    """65,536 pages of 16; bench/prefix_tree.py says how long it takes."""
    n_pages = 65_536
    tree = PrefixTree(n_pages, 16)
    prompt = np.random.default_rng(0).integers(0, 50_000, n_pages * 16).astype("<u4").tobytes()
    every = np.arange(n_pages, dtype=np.int32)
    assert len(tree.add("s", prompt, every, past_copies=False)) == n_pages
    assert np.array_equal(tree.find("s", prompt, n_pages), every)
    tree.enter(every)
    tree.leave(every)
    assert np.array_equal(np.sort(tree.evict(n_pages)), every)


PROMPTS = st.lists(st.integers(0, 1), min_size=0, max_size=8).map(lambda tokens: ids(*tokens))
SALTS = st.sampled_from(["", "a"])
N_PAGES = 10


class AgainstReference(RuleBasedStateMachine):
    """The tree and its pure twin do the same to the same pages; readers come and go as workers' do."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = PrefixTree(N_PAGES, PAGE_SIZE)
        self.twin = reference.ReferenceTree()
        self.free = set(range(N_PAGES))
        self.readers: list[tuple[int, ...]] = []

    @rule(salt=SALTS, prompt=PROMPTS, past_copies=st.booleans(), shared=st.booleans(), goes_on=st.booleans())
    def compute(self, salt: str, prompt: bytes, past_copies: bool, shared: bool, goes_on: bool) -> None:
        """A request with this prompt: shares what there is (or not), computes the rest, lets it in."""
        paths = reference.page_paths(salt, prompt, PAGE_BYTES)
        known = reference.find(self.twin, paths) if shared else ()
        missing = len(paths) - len(known)
        if missing > len(self.free):
            return
        self.twin = reference.enter(self.twin, known)
        self.tree.enter(pages(*known))
        own = tuple(sorted(self.free)[:missing])
        self.twin, taken = reference.add(self.twin, paths, (*known, *own), past_copies=past_copies)
        got = self.tree.add(salt, prompt, pages(*known, *own), past_copies=past_copies)
        assert tuple(got.tolist()) == taken
        self.free -= set(taken)
        if goes_on and not past_copies:
            self.twin = reference.enter(self.twin, taken)
            self.tree.enter(got)
            self.readers.append((*known, *taken))
        else:
            self.readers.append(known)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        mine = self.readers.pop(data.draw(st.integers(0, len(self.readers) - 1)))
        self.twin, freed = reference.leave(self.twin, mine)
        assert tuple(self.tree.leave(pages(*mine)).tolist()) == freed
        self.free |= set(freed)

    @rule(most_pages=st.integers(0, 4))
    def evict(self, most_pages: int) -> None:
        self.twin, gone = reference.evict(self.twin, most_pages)
        assert tuple(self.tree.evict(most_pages).tolist()) == gone
        self.free |= set(gone)

    @precondition(lambda self: self.twin.nodes)
    @rule(data=st.data())
    def condemn(self, data: st.DataObject) -> None:
        inside = sorted(node.page for node in self.twin.nodes.values())
        chosen = data.draw(st.lists(st.sampled_from(inside), unique=True, max_size=2))
        self.twin, gone = reference.condemn(self.twin, tuple(chosen))
        assert tuple(self.tree.condemn(pages(*chosen)).tolist()) == gone
        self.free |= set(gone)

    @rule()
    def clear(self) -> None:
        every = tuple(node.page for node in self.twin.nodes.values())
        self.twin, gone = reference.condemn(self.twin, every)
        assert tuple(self.tree.clear().tolist()) == gone
        self.free |= set(gone)

    @invariant()
    def both_say_the_same(self) -> None:
        inside = {node.page for node in self.twin.nodes.values()}
        assert len(self.tree) == len(inside)
        assert self.tree.unread == reference.unread(self.twin)
        assert set(np.flatnonzero(self.tree.contains(np.arange(N_PAGES, dtype=np.int32))).tolist()) == inside
        for (salt, own), node in self.twin.nodes.items():
            assert self.tree.find(salt, b"".join(own), len(own)).tolist()[-1:] == [node.page]

    @invariant()
    def no_page_is_lost(self) -> None:
        inside = {node.page for node in self.twin.nodes.values()}
        read = {page for mine in self.readers for page in mine}
        assert self.free | inside | read == set(range(N_PAGES))
        assert not self.free & (inside | read)


AgainstReference.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestAgainstReference = AgainstReference.TestCase
