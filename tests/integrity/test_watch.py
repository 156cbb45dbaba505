from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.errors import InvariantBroken
from quiesce.integrity.watch import TagWatch
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool

POOL_PAGES = 40
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5), st.lists(st.integers(0, POOL_PAGES - 1), unique=True)),
        st.tuples(st.just("extend"), st.integers(0, 5), st.integers(0, POOL_PAGES - 1)),
        st.tuples(st.just("remove"), st.integers(0, 5), st.none()),
        st.tuples(st.just("stray"), st.integers(0, 1), st.integers(0, POOL_PAGES - 1)),
    ),
    max_size=60,
)


@pytest.fixture
def pool() -> Iterator[Pool]:
    private = Pool.private(Layout(2, 1, 1, 1, layer_groups=2), 200_000)
    yield private
    private.close()


def test_an_untouched_pool_gives_no_names(pool: Pool) -> None:
    watch: TagWatch[str] = TagWatch()
    assert watch.check(pool) == []
    pool.stamp(np.array([3, 4, 5]), 7)
    pool.stamp(np.array([9]), 8)
    watch.add("a", np.array([3, 4]), np.array([7, 7], np.uint64))
    watch.add("b", np.array([5, 9]), np.array([7, 8], np.uint64))
    assert watch.check(pool) == []
    assert len(watch) == 4
    assert "a" in watch


def test_every_owner_of_a_foreign_tag_is_named_whatever_the_group(pool: Pool) -> None:
    watch: TagWatch[str] = TagWatch()
    pool.stamp(np.arange(30), 7)
    for number, key in enumerate("abc"):
        watch.add(key, np.arange(10 * number, 10 * number + 10), 7)
    pool.tags[[3, 4], 1] = 6
    pool.tags[29, 0] = 6
    assert watch.check(pool) == ["a", "c"]
    watch.remove("a")
    assert watch.check(pool) == ["c"]
    watch.remove("c")
    watch.remove("c")
    assert watch.check(pool) == []


def test_a_key_is_added_once_and_extended_only_when_there(pool: Pool) -> None:
    watch: TagWatch[str] = TagWatch()
    watch.add("a", np.array([1]), 7)
    with pytest.raises(InvariantBroken):
        watch.add("a", np.array([2]), 7)
    with pytest.raises(InvariantBroken):
        watch.extend("b", 2, 7)


def test_it_grows_with_a_million_token_request(pool: Pool) -> None:
    watch: TagWatch[str] = TagWatch()
    pool.stamp(np.arange(100_000), 7)
    watch.add("long", np.arange(65_536, dtype=np.int32), 7)
    for page in range(65_536, 66_000):
        watch.extend("long", page, 7)
    assert watch.check(pool) == []
    pool.tags[65_999, 1] = 8
    assert watch.check(pool) == ["long"]


@settings(deadline=None)
@given(OPERATIONS)
def test_it_says_what_a_plain_dictionary_would_say(operations: list[tuple[str, int, object]]) -> None:
    pool = Pool.private(Layout(2, 1, 1, 1, layer_groups=2), POOL_PAGES)
    pool.tags[...] = 1
    watch: TagWatch[int] = TagWatch()
    model: dict[int, list[int]] = {}
    for name, key, argument in operations:
        if name == "add" and key not in model and isinstance(argument, list):
            model[key] = list(argument)
            watch.add(key, np.array(argument, np.int32), 1)
        elif name == "extend" and key in model and isinstance(argument, int):
            model[key].append(argument)
            watch.extend(key, argument, 1)
        elif name == "remove":
            model.pop(key, None)
            watch.remove(key)
        elif name == "stray" and isinstance(argument, int):
            pool.tags[argument, key] = 2
        strayed = set(np.flatnonzero((pool.tags != 1).any(axis=1)).tolist())
        assert watch.check(pool) == [key for key, pages in model.items() if strayed & set(pages)]
    pool.close()
