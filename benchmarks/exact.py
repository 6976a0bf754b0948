"""The exact accountant against the plain way: all ordered pairs of classes, same quadrature, nothing merged.

The plain way runs on a sample of the same votes; for 150 classes on a sample of the 22,350 pairs of each sampled row.
Run: python benchmarks/exact.py
"""

from __future__ import annotations

import math
import resource
import time

import numpy as np
from numpy.typing import NDArray
from rows import votes_folder, write
from scipy.special import log_ndtr

from terrine import ORDERS, GNMax, Votes, cost, synthetic_votes
from terrine.accounting.divergence import _step
from terrine.accounting.exact import rdp_gnmax_exact

SIGMA = 40.0
Array = NDArray[np.float64]


def law(counts: NDArray[np.int64]) -> Array:
    """log p of every class by the same trapezoid."""
    x = counts / SIGMA
    step = _step(counts.size)
    t = np.arange((x.max() + x.min()) / 2 - 9, x.max() + 9 + math.sqrt(2 * math.log(counts.size)), step)
    z = t[:, None] - x
    log_cdf = log_ndtr(z)
    log_f = -0.5 * z**2 + log_cdf.sum(axis=1, keepdims=True) - log_cdf
    peak = log_f.max(axis=0)
    return peak + np.log(np.exp(log_f - peak).sum(axis=0)) + math.log(step / math.sqrt(2 * math.pi))


def divergence(log_p: Array, log_q: Array) -> Array:
    """Both directions at every order."""
    rho = (log_q - log_p)[:, None]
    largest = np.zeros(ORDERS.size)
    for c in (1 - ORDERS, ORDERS):
        with np.errstate(over="ignore", invalid="ignore"):
            excess = (np.exp(log_p)[:, None] * (np.expm1(c * rho) - c * np.expm1(rho))).sum(axis=0)
        largest = np.fmax(largest, np.log1p(np.maximum(excess, 0)) / (ORDERS - 1))
    return largest


def plain(counts: NDArray[np.int64], pairs: list[tuple[int, int]]) -> Array:
    log_p = law(counts)
    largest = np.zeros(ORDERS.size)
    for a, b in pairs:
        moved = counts.copy()
        moved[a] -= 1
        moved[b] += 1
        largest = np.fmax(largest, divergence(log_p, law(moved)))
    return largest


def main() -> None:
    sets = {}
    if folder := votes_folder():
        sets["MNIST, 9,000 x 10"] = (Votes.load(folder / "mnist_250_teachers.npy"), 24, 90)
    glyph = synthetic_votes(n_queries=12_000, n_classes=150, n_teachers=5_000, consensus=0.9, hard=0.1)
    sets["Glyph-like, 12,000 x 150, 5,000 teachers"] = (glyph, 10, 200)
    rows, rng = [], np.random.default_rng(0)
    for name, (votes, n_rows, n_pairs) in sets.items():
        cost(GNMax(sigma=SIGMA), votes[:8])  # the worst case of this sigma is cached
        start = time.perf_counter()
        cost(GNMax(sigma=SIGMA), votes)
        fast = (time.perf_counter() - start) / len(votes)
        sample = rng.choice(len(votes), n_rows, replace=False)
        start, share, difference = time.perf_counter(), 0.0, 0.0
        for row in sample:
            counts = votes.counts[row]
            pairs = [(a, b) for a in range(counts.size) for b in range(counts.size) if a != b and counts[a]]
            chosen = [pairs[i] for i in rng.choice(len(pairs), min(n_pairs, len(pairs)), replace=False)]
            found = plain(counts, chosen)
            share += len(chosen) / len(pairs)
            if len(chosen) == len(pairs):
                exact = rdp_gnmax_exact(counts, sigma=SIGMA, orders=ORDERS)[0]
                difference = max(difference, float(np.abs(found / exact - 1)[exact > 1e-9].max()))
        slow = (time.perf_counter() - start) / share
        rows.append(
            {
                "metric": f"exact accountant, {name}, 298 orders",
                "value": round(1 / fast, 1),
                "unit": "queries/s",
                "baseline": "every ordered pair, same quadrature, no merging, one thread",
                "sample": f"{n_rows} rows, {share / n_rows:.1%} of their pairs",
                "ratio": round(slow / fast, 1),
                "largest_relative_difference": difference if share == n_rows else None,
                "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    write("exact", rows)


if __name__ == "__main__":
    main()
