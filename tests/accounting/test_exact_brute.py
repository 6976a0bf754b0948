"""Every histogram of at most 12 votes and 4 classes, every move, both directions, against rigorous enclosures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.oracles.gnmax_arb import Winner, all_moves, gnmax_divergence, kinds_of, largest

from terrine.accounting.exact import MARGIN, rdp_gnmax_exact

ORDERS = (1.5, 4.0, 30.0)


def histograms(votes: int, classes: int, most: int) -> Iterator[list[int]]:
    """All of them up to permutation."""
    if classes == 1:
        if votes <= most:
            yield [votes]
        return
    for first in range(min(votes, most), -1, -1):
        for rest in histograms(votes - first, classes - 1, first):
            yield [first, *rest]


@pytest.mark.parametrize("sigma", [1.0, 3.0])
@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_every_small_histogram(n_classes: int, sigma: float) -> None:
    law = Winner(sigma=sigma, n_classes=n_classes)
    seen = 0
    for votes in range(1, 13):
        for counts in histograms(votes, n_classes, votes):
            kinds = kinds_of(counts)
            moves = [gnmax_divergence(law, kinds, move, orders=ORDERS) for move in all_moves(kinds)]
            costs = rdp_gnmax_exact(counts, sigma=sigma, orders=ORDERS)[0]
            for i, cost in enumerate(costs):
                low, high = largest(enclosure for move in moves for enclosure in move[i])
                assert high <= cost, (counts, ORDERS[i])
                assert cost <= float(low) * (1 + 1.1 * MARGIN) + 1e-299, (counts, ORDERS[i])
            seen += 1
    assert seen == {2: 48, 3: 101, 4: 154}[n_classes]
