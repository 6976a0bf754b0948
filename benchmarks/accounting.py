"""The paper's accountant, all queries at once, against a loop that takes one query per step.

Both are vectorised over the 298 orders; the loop is the way the published analyses work.
Run: python benchmarks/accounting.py
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from rows import seconds, votes_folder, write
from scipy.special import log_ndtr

from terrine import ORDERS, GNMax, Votes, cost, synthetic_votes

SIGMA = 40.0


def one_query(counts: NDArray[np.int64], sigma: float, orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """RDP of one histogram at every order: scalars by math, orders by numpy."""
    ascending = np.sort(counts)
    terms = log_ndtr(-(ascending[-1] - ascending[:-1]) / (sigma * math.sqrt(2)))
    top = float(terms[-1])
    log_q = min(top + math.log(float(np.exp(terms - top).sum())), math.log1p(-1 / counts.size))
    variance = sigma**2
    mu2 = sigma * math.sqrt(-log_q)
    mu1, eps2 = mu2 + 1, mu2 / variance
    independent = orders / variance
    if mu2 <= 1 or log_q + eps2 >= 0:
        return independent
    if log_q > (mu2 - 1) * eps2 - mu2 * (math.log(mu1 / (mu1 - 1)) + math.log(mu2 / (mu2 - 1))):
        return independent
    log_1q = log1mexp(log_q)
    log_a = log_1q - log1mexp((log_q + eps2) * (1 - 1 / mu2))
    log_b = mu1 / variance - log_q / (mu1 - 1)
    log_sum = np.logaddexp(log_1q + (orders - 1) * log_a, log_q + (orders - 1) * log_b)
    bound = np.maximum(log_sum, 0.0) / (orders - 1)
    return np.where(orders <= mu1, np.minimum(bound, independent), independent)


def log1mexp(x: float) -> float:
    return math.log(-math.expm1(x)) if x > -math.log(2) else math.log1p(-math.exp(x))


def loop(votes: Votes) -> NDArray[np.float64]:
    total = np.zeros_like(ORDERS)
    for row in votes.counts:
        total += one_query(row, SIGMA, ORDERS)
    return total


def main() -> None:
    sets = {}
    if folder := votes_folder():
        sets["MNIST, 9,000 x 10"] = Votes.load(folder / "mnist_250_teachers.npy")
        sets["SVHN, 26,032 x 10"] = Votes.load(folder / "svhn_250_teachers.npy")
    sets["synthetic, 12,000 x 150"] = synthetic_votes(n_queries=12_000, n_classes=150, n_teachers=5_000)
    rows = []
    for name, votes in sets.items():
        fast, curve = seconds(lambda votes=votes: cost(GNMax(sigma=SIGMA), votes, accountant="paper").reveal().epsilons)
        slow, total = seconds(lambda votes=votes: loop(votes))
        difference = float(np.abs(curve / total - 1).max())
        rows.append(
            {
                "metric": f"paper accountant, {name}, 298 orders",
                "value": round(len(votes) / fast),
                "unit": "queries/s",
                "baseline": "one query per step, vectorised over orders",
                "ratio": round(slow / fast, 1),
                "largest_relative_difference": difference,
            }
        )
    write("accounting", rows)


if __name__ == "__main__":
    main()
