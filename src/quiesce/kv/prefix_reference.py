"""The prefix tree said purely: what `prefix_tree.PrefixTree` must equal, page for page. Tests only."""

from __future__ import annotations

import msgspec

from quiesce.errors import invariant

Path = tuple[str, tuple[bytes, ...]]
"""A salt and the token ids of each page from the first on: the whole of what a page was computed from."""


class Node(msgspec.Struct, frozen=True):
    """A cached page; `used` is when it was used last."""

    page: int
    used: int


class ReferenceTree(msgspec.Struct, frozen=True):
    """`readers` counts by page, in the tree or not. Every operation returns another tree."""

    nodes: dict[Path, Node] = {}
    readers: dict[int, int] = {}
    clock: int = 0


def page_paths(salt: str, tokens: bytes, page_bytes: int) -> tuple[Path, ...]:
    """The path of each full page of `tokens`."""
    own = [tokens[at : at + page_bytes] for at in range(0, len(tokens) // page_bytes * page_bytes, page_bytes)]
    return tuple((salt, tuple(own[: n + 1])) for n in range(len(own)))


def find(tree: ReferenceTree, paths: tuple[Path, ...]) -> tuple[int, ...]:
    """The pages of the longest known beginning of `paths`."""
    known = next((n for n, path in enumerate(paths) if path not in tree.nodes), len(paths))
    return tuple(tree.nodes[path].page for path in paths[:known])


def add(
    tree: ReferenceTree, paths: tuple[Path, ...], pages: tuple[int, ...], *, past_copies: bool
) -> tuple[ReferenceTree, tuple[int, ...]]:
    """The tree with those of `pages` that it had nothing for, and these; up to the first copy unless `past_copies`."""
    clock = tree.clock + 1
    nodes, taken = dict(tree.nodes), []
    for path, page in zip(paths, pages, strict=True):
        if path not in tree.nodes:
            taken.append(page)
            nodes[path] = Node(page, clock)
        elif tree.nodes[path].page != page and not past_copies:
            break
        else:
            nodes[path] = Node(tree.nodes[path].page, clock)
    return ReferenceTree(nodes, tree.readers, clock), tuple(taken)


def enter(tree: ReferenceTree, pages: tuple[int, ...]) -> ReferenceTree:
    """One reader more for each page."""
    readers = tree.readers | {page: tree.readers.get(page, 0) + 1 for page in pages}
    return _used(ReferenceTree(tree.nodes, readers, tree.clock), pages)


def leave(tree: ReferenceTree, pages: tuple[int, ...]) -> tuple[ReferenceTree, tuple[int, ...]]:
    """One reader less; and the pages that are outside the tree and unread now."""
    invariant(all(tree.readers.get(page, 0) for page in pages), "once")
    readers = tree.readers | {page: tree.readers[page] - 1 for page in pages}
    after = _used(ReferenceTree(tree.nodes, readers, tree.clock), pages)
    inside = {node.page for node in tree.nodes.values()}
    return after, tuple(page for page in pages if not readers[page] and page not in inside)


def unread(tree: ReferenceTree) -> int:
    return sum(not tree.readers.get(node.page, 0) for node in tree.nodes.values())


def evict(tree: ReferenceTree, most_pages: int) -> tuple[ReferenceTree, tuple[int, ...]]:
    """One leaf after the other that nobody reads, the least recently used first, of equals the deepest."""
    gone: tuple[int, ...] = ()
    while len(gone) < most_pages and (leaves := _unread_leaves(tree)):
        path = min(leaves, key=lambda each: (tree.nodes[each].used, -len(each[1]), tree.nodes[each].page))
        gone += (tree.nodes[path].page,)
        tree = _without(tree, {path})
    return tree, gone


def condemn(tree: ReferenceTree, pages: tuple[int, ...]) -> tuple[ReferenceTree, tuple[int, ...]]:
    """Without these pages and all below them; and those of them that nobody reads, by number."""
    roots = [path for path, node in tree.nodes.items() if node.page in pages]
    out = {path for path in tree.nodes if any(_is_below(path, root) for root in roots)}
    gone = sorted(tree.nodes[path].page for path in out)
    return _without(tree, out), tuple(page for page in gone if not tree.readers.get(page, 0))


def _unread_leaves(tree: ReferenceTree) -> list[Path]:
    parents = {(salt, own[:-1]) for salt, own in tree.nodes}
    return [path for path, node in tree.nodes.items() if path not in parents and not tree.readers.get(node.page, 0)]


def _is_below(path: Path, root: Path) -> bool:
    return path[0] == root[0] and path[1][: len(root[1])] == root[1]


def _used(tree: ReferenceTree, pages: tuple[int, ...]) -> ReferenceTree:
    clock = tree.clock + 1
    nodes = {path: Node(node.page, clock) if node.page in pages else node for path, node in tree.nodes.items()}
    return ReferenceTree(nodes, tree.readers, clock)


def _without(tree: ReferenceTree, paths: set[Path]) -> ReferenceTree:
    return ReferenceTree({p: node for p, node in tree.nodes.items() if p not in paths}, tree.readers, tree.clock)
