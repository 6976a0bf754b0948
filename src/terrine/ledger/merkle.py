"""A Merkle tree over the chain's digests, as in RFC 6962: short proofs that one ledger continues another.

Leaf k is entry k + 1. A node is complete when no later entry can change it; complete nodes above the leaves are
numbered 1, 2, 3, ... in the order in which entries complete them, and stored under that number. What a proof needs is
then a logarithmic number of look-ups. Nothing here knows of a database.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

EMPTY = hashlib.sha256(b"").hexdigest()  # the root of a tree without leaves


class Node(NamedTuple):
    """The complete subtree over leaves ``place << level`` to ``(place + 1) << level``."""

    level: int
    place: int

    @property
    def number(self) -> int:
        """Among complete nodes above the leaves, in the order of their completion."""
        last = ((self.place + 1) << self.level) - 1
        return last - last.bit_count() + self.level


class Span(NamedTuple):
    """Leaves ``start`` to ``end``, a subtree of some tree: ``start`` is a multiple of a power of 2 >= its length."""

    start: int
    end: int

    def nodes(self) -> list[Node]:
        """The complete nodes that it consists of, the largest first."""
        found, start = [], self.start
        for level in range((self.end - self.start).bit_length() - 1, -1, -1):
            if (self.end - self.start) >> level & 1:
                found.append(Node(level, start >> level))
                start += 1 << level
        return found


def leaf(digest: str) -> str:
    return hashlib.sha256(b"\x00" + bytes.fromhex(digest)).hexdigest()


def parent(left: str, right: str) -> str:
    return hashlib.sha256(b"\x01" + bytes.fromhex(left) + bytes.fromhex(right)).hexdigest()


def folded(hashes: Sequence[str]) -> str:
    """The hash of a span from those of its complete nodes."""
    if not hashes:
        return EMPTY
    *others, found = hashes
    for one in reversed(others):
        found = parent(one, found)
    return found


class Frontier:
    """The complete nodes that a tree of some size consists of: all that is needed to let it grow."""

    def __init__(self, size: int = 0, hashes: Iterable[str] = ()) -> None:
        self.size = size
        self._hashes = list(hashes)  # of Span(0, size).nodes()

    def append(self, digest: str) -> Iterator[str]:
        """The hashes of the nodes that a new leaf completes, in the order of their numbers."""
        self.size += 1
        found = leaf(digest)
        for _ in range((self.size & -self.size).bit_length() - 1):
            found = parent(self._hashes.pop(), found)
            yield found
        self._hashes.append(found)

    def root(self) -> str:
        return folded(self._hashes)

    def copy(self) -> Frontier:
        return Frontier(self.size, self._hashes)


def n_nodes(size: int) -> int:
    """Complete nodes above the leaves of a tree."""
    return size - size.bit_count()


def inclusion(index: int, size: int) -> list[Span]:
    """Whose hashes prove that a leaf is in a tree of this size, from the leaf up. [RFC 6962, 2.1.1]"""
    start, end, found = 0, size, []
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            found.append(Span(middle, end))
            end = middle
        else:
            found.append(Span(start, middle))
            start = middle
    return found[::-1]


def consistency(first: int, second: int) -> list[Span]:
    """Whose hashes prove that the tree of the first size begins that of the second, 1 <= first <= second. [RFC 6962,
    2.1.2]"""
    start, end, found, known = 0, second, [], True
    while first != end:
        middle = start + _split(end - start)
        if first <= middle:
            found.append(Span(middle, end))
            end = middle
        else:
            found.append(Span(start, middle))
            start, known = middle, False
    if not known:
        found.append(Span(start, end))
    return found[::-1]


def hashes_of(spans: Sequence[Span], look_up: Callable[[list[Node]], dict[Node, str]]) -> list[str]:
    """Each span's hash, with one look-up of all their nodes."""
    nodes = [span.nodes() for span in spans]
    known = look_up([node for some in nodes for node in some])
    return [folded([known[node] for node in some]) for some in nodes]


def is_included(digest: str, *, index: int, size: int, path: Sequence[str], root: str) -> bool:
    """Whether the path proves that this leaf is in the tree. [RFC 9162, 2.1.3.2]"""
    if not 0 <= index < size:
        return False
    place, last, found = index, size - 1, leaf(digest)
    for one in path:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = parent(one, found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = parent(found, one)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def is_consistent(*, first: int, second: int, first_root: str, root: str, path: Sequence[str]) -> bool:
    """Whether the path proves that the first tree begins the second. [RFC 9162, 2.1.4.2]"""
    if not 0 <= first <= second:
        return False
    if first == 0 or first == second:
        return not path and first_root == (EMPTY if first == 0 else root)
    hashes = list(path)
    if first & (first - 1) == 0:
        hashes.insert(0, first_root)
    if not hashes:
        return False
    place, last = first - 1, second - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = hashes[0]
    for one in hashes[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            old, new = parent(one, old), parent(one, new)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            new = parent(new, one)
        place, last = place >> 1, last >> 1
    return last == 0 and old == first_root and new == root


def _split(size: int) -> int:
    """The largest power of 2 below it."""
    return 1 << (size - 1).bit_length() - 1
