"""The tree over the chain against a brute-force RFC 6962 tree; forged proofs are refused."""

from __future__ import annotations

import hashlib

import pytest

from terrine.ledger import merkle

SIZES = range(70)
DIGESTS = [hashlib.sha256(bytes([k])).hexdigest() for k in SIZES]
OTHERS = [hashlib.sha256(b"other" + bytes([k])).hexdigest() for k in SIZES]


def brute(digests):
    """MTH of RFC 6962, section 2.1, word by word."""
    if not digests:
        return hashlib.sha256(b"").digest()
    if len(digests) == 1:
        return hashlib.sha256(b"\0" + bytes.fromhex(digests[0])).digest()
    k = 1
    while 2 * k < len(digests):
        k *= 2
    return hashlib.sha256(b"\1" + brute(digests[:k]) + brute(digests[k:])).digest()


def path(m, digests):
    """PATH of section 2.1.1."""
    if len(digests) == 1:
        return []
    k = 1
    while 2 * k < len(digests):
        k *= 2
    if m < k:
        return [*path(m, digests[:k]), brute(digests[k:]).hex()]
    return [*path(m - k, digests[k:]), brute(digests[:k]).hex()]


def subproof(m, digests, whole=True):
    """SUBPROOF of section 2.1.2."""
    if m == len(digests):
        return [] if whole else [brute(digests).hex()]
    k = 1
    while 2 * k < len(digests):
        k *= 2
    if m <= k:
        return [*subproof(m, digests[:k], whole), brute(digests[k:]).hex()]
    return [*subproof(m - k, digests[k:], False), brute(digests[:k]).hex()]


def stored(digests):
    """The complete nodes as a ledger stores them: by number; what a look-up finds."""
    frontier, nodes = merkle.Frontier(), []
    for digest in digests:
        nodes += frontier.append(digest)

    def look_up(wanted):
        return {
            node: merkle.leaf(digests[node.place]) if node.level == 0 else nodes[node.number - 1] for node in wanted
        }

    return frontier, nodes, look_up


def test_roots_grow_as_the_standard_says():
    frontier = merkle.Frontier()
    assert frontier.root() == merkle.EMPTY == brute([]).hex()
    n_nodes = 0
    for size, digest in enumerate(DIGESTS, 1):
        n_nodes += len(list(frontier.append(digest)))
        assert frontier.root() == brute(DIGESTS[:size]).hex()
        assert n_nodes == size - size.bit_count()  # what a ledger of this size has stored


def test_nodes_are_numbered_in_the_order_of_their_completion():
    _, nodes, look_up = stored(DIGESTS)
    complete = [merkle.Node(level, place) for level in range(1, 8) for place in range(len(DIGESTS) >> level)]
    assert sorted(node.number for node in complete) == list(range(1, len(nodes) + 1))
    found = look_up(complete)
    for node in complete:
        start = node.place << node.level
        assert found[node] == brute(DIGESTS[start : start + (1 << node.level)]).hex()


def test_every_inclusion_proof_is_that_of_the_standard_and_holds():
    for size in SIZES[1:]:
        _, _, look_up = stored(DIGESTS[:size])
        root = brute(DIGESTS[:size]).hex()
        for index in range(size):
            proof = merkle.hashes_of(merkle.inclusion(index, size), look_up)
            assert proof == path(index, DIGESTS[:size])
            assert merkle.is_included(DIGESTS[index], index=index, size=size, path=proof, root=root)


def test_every_consistency_proof_is_that_of_the_standard_and_holds():
    for second in SIZES[1:]:
        _, _, look_up = stored(DIGESTS[:second])
        root = brute(DIGESTS[:second]).hex()
        for first in range(1, second + 1):
            proof = merkle.hashes_of(merkle.consistency(first, second), look_up)
            assert proof == subproof(first, DIGESTS[:second])
            first_root = brute(DIGESTS[:first]).hex()
            assert merkle.is_consistent(first=first, second=second, first_root=first_root, root=root, path=proof)


def forgeries(proof):
    """Proofs that are not this one: cut, longer, in another order, with one hash changed."""
    yield [*proof, DIGESTS[0]]
    yield [DIGESTS[0], *proof]
    for k in range(len(proof)):
        yield proof[:k] + proof[k + 1 :]
        yield [*proof[:k], OTHERS[k], *proof[k + 1 :]]
    if len(set(proof)) > 1:
        yield proof[::-1]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 21, 64, 69])
def test_a_forged_inclusion_proof_is_refused(size):
    _, _, look_up = stored(DIGESTS[:size])
    root = brute(DIGESTS[:size]).hex()
    for index in range(size):
        proof = merkle.hashes_of(merkle.inclusion(index, size), look_up)
        given = {"index": index, "size": size, "root": root}
        assert not any(merkle.is_included(DIGESTS[index], **given, path=bad) for bad in forgeries(proof))
        assert not merkle.is_included(OTHERS[index], **given, path=proof)
        for other in range(-1, size + 2):
            if other != index:
                assert not merkle.is_included(DIGESTS[index], index=other, size=size, root=root, path=proof)


@pytest.mark.parametrize("second", [1, 2, 3, 7, 8, 21, 64, 69])
def test_a_tree_that_does_not_go_on_from_the_first_is_refused(second):
    root = brute(DIGESTS[:second]).hex()
    for first in range(1, second + 1):
        _, _, look_up = stored(DIGESTS[:second])
        proof = merkle.hashes_of(merkle.consistency(first, second), look_up)
        first_root = brute(DIGESTS[:first]).hex()
        given = {"first": first, "second": second}
        assert not any(
            merkle.is_consistent(**given, first_root=first_root, root=root, path=bad) for bad in forgeries(proof)
        )
        for changed in {0, first // 2, first - 1}:  # an entry that the first tree had is another one now
            forked = [*DIGESTS[:changed], OTHERS[changed], *DIGESTS[changed + 1 : second]]
            _, _, other = stored(forked)
            forged = merkle.hashes_of(merkle.consistency(first, second), other)
            for path_ in (forged, proof):
                assert not merkle.is_consistent(**given, first_root=first_root, root=brute(forked).hex(), path=path_)
        assert not merkle.is_consistent(first=second + 1, second=second, first_root=root, root=root, path=[])
