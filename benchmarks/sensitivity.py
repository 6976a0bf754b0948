"""Smooth sensitivity by branch and bound over the distance against the whole curve, same run.

Three baselines. The paper's Algorithms 3-5 for all queries at once at d = 0..M; the same where a query that has reached
the peak (the paper's STOP) is not looked at again; and S(d) of the package at d = 0..M, with equal rows merged and
tables shared as branch and bound has them. For 5,000 teachers they are measured at 25 distances and scaled.
Run: python benchmarks/sensitivity.py
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rows import seconds, votes_folder, write

from terrine import ConfidentGNMax, Votes, synthetic_votes
from terrine.accounting import theorems
from terrine.release.smooth import cell_profile, log_parts, log_smooth, log_total, smooth_sensitivity

Array = NDArray[np.float64]
SAMPLES = 25
REPEATS = 5  # the best of them


class Plain:
    """One distance after the other, all queries at once."""

    def __init__(self, mechanism: ConfidentGNMax, votes: Votes, order: float, accountant: str, *, stop: bool) -> None:
        self.stop = stop
        self.sigma, self.m, self.order = mechanism.sigma_vote, votes.n_classes, order
        self.counts = -np.sort(-votes.counts, axis=1)
        log_q = theorems.log_q_gaussian(self.counts, sigma=self.sigma)
        places = np.arange(votes.n_teachers + 1)
        log_p = theorems.log_pr_answered(places, threshold=mechanism.threshold, sigma=mechanism.sigma_check)
        if accountant == "paper":
            self.fall = theorems.log_q0(sigma=self.sigma, order=order)
            self.rise = float(theorems.log_lower(self.fall, sigma=self.sigma, n_classes=self.m)[0])
            self.local: Callable[[Array], Array] = self.algorithm_3
            self.peak = float(self.algorithm_3(np.array([self.rise]))[0])
            check = theorems.rdp_threshold(log_p, sigma=mechanism.sigma_check, orders=order)[:, 0]
        else:
            cells = cell_profile(sigma=self.sigma, order=order, n_classes=self.m, n_teachers=votes.n_teachers)
            self.rise, self.fall, self.peak = cells.rise, cells.fall, math.exp(cells.peak)
            self.local = lambda log_q: np.exp(cells.at(log_q))
            check = theorems.rdp_threshold_sanitizable(log_p, sigma=mechanism.sigma_check, orders=order)[:, 0]
        step = np.abs(np.diff(check))
        self.line = np.maximum(np.append(step, 0.0), np.append(0.0, step))  # local sensitivity by top count
        self.top = self.counts[:, 0]
        self.values = np.full(len(votes), self.peak)
        self.rising, self.falling = np.flatnonzero(log_q < self.rise), np.flatnonzero(log_q > self.fall)
        self.lowered = self.counts.copy()
        self.distance = -1

    def algorithm_3(self, log_q: Array) -> Array:
        log_q = np.where((log_q >= self.rise) & (log_q <= self.fall), self.rise, log_q)
        rdp = partial(theorems.rdp_gnmax, sigma=self.sigma, orders=self.order)
        here = rdp(log_q)[:, 0]
        up = rdp(theorems.log_upper(log_q, sigma=self.sigma, n_classes=self.m))[:, 0]
        down = rdp(theorems.log_lower(log_q, sigma=self.sigma, n_classes=self.m))[:, 0]
        return np.maximum(up - here, here - down)

    def move(self) -> None:
        """One more move towards the first class, and one more place to either side of the check."""
        self.distance += 1
        if self.distance:
            second = 1 + np.argmax(self.lowered[self.falling, 1:], axis=1)
            some = self.lowered[self.falling, second] > 0
            rows = self.falling[some]
            self.lowered[rows, second[some]] -= 1
            self.lowered[rows, 0] += 1
            padded = np.pad(self.line, 1)
            self.line = np.maximum(np.maximum(padded[:-2], self.line), padded[2:])

    def next(self) -> float:
        """S at the next distance: Algorithm 4 on every query (that has not stopped)."""
        self.move()
        d = self.distance
        rows = self.rising
        apart = self.counts[rows, 0] - self.counts[rows, 1] >= 2 * d
        moved = self.counts[rows[apart]]
        moved[:, 0] -= d
        moved[:, 1] += d
        log_q = theorems.log_q_gaussian(moved, sigma=self.sigma) if moved.size else np.empty(0)
        below = log_q < self.rise
        self.values[rows] = self.peak
        self.values[rows[apart][below]] = self.local(log_q[below])
        if self.stop:
            self.rising = rows[apart][below]
        rows = self.falling
        log_q = theorems.log_q_gaussian(self.lowered[rows], sigma=self.sigma) if rows.size else np.empty(0)
        above = log_q > self.fall
        self.values[rows] = self.peak
        self.values[rows[above]] = self.local(log_q[above])
        if self.stop:
            self.falling = rows[above]
        return float(self.values.sum() + self.line[self.top].sum())

    def curve(self, distances: NDArray[np.int64]) -> tuple[Array, float]:
        """S there, and the seconds that those distances alone took."""
        spent, values = 0.0, []
        for d in distances:
            while self.distance < d - 2:
                self.move()
            if self.distance < d - 1:
                self.next()  # who has stopped by then
            start = time.perf_counter()
            values.append(self.next())
            spent += time.perf_counter() - start
        return np.array(values), spent


def measure(
    name: str, mechanism: ConfidentGNMax, votes: Votes, order: float, beta: float, accountant: str, *, sampled: bool
) -> dict[str, object]:
    smooth = partial(smooth_sensitivity, mechanism, votes, order=order, beta=beta, accountant=accountant)
    smooth()  # the profile of this sigma and order is cached
    fast, value = seconds(lambda: smooth().reveal(), repeats=REPEATS)
    last = votes.n_teachers
    distances = np.linspace(0, last, SAMPLES).round().astype(int) if sampled else np.arange(last + 1)
    share = distances.size / (last + 1)
    repeats = 1 if sampled else REPEATS

    def plainly(*, stop: bool) -> tuple[float, Array]:
        runs = [Plain(mechanism, votes, order, accountant, stop=stop).curve(distances) for _ in range(repeats)]
        return min(spent for _, spent in runs), runs[0][0]

    spent, plain = plainly(stop=False)
    spent_stopping, stopping = plainly(stop=True)
    parts = log_parts(mechanism, votes, order, accountant)
    bare, _ = seconds(lambda: log_smooth(parts, beta=beta), repeats=REPEATS)
    same_spent, same = seconds(lambda: [log_total(parts, int(d)) for d in distances], repeats=repeats)
    for curve in (stopping, np.exp(same)):
        if not np.allclose(plain, curve, rtol=1e-9, atol=1e-13):
            raise AssertionError(f"{name}, {accountant}: two curves differ by {np.abs(plain / curve - 1).max()}")
    largest = float((np.exp(-beta * distances) * plain).max())
    if value < largest * (1 - 1e-9) or (not sampled and value > largest * (1 + 1e-9)):
        raise AssertionError(f"{name}, {accountant}: branch and bound found {value}, the curve {largest}")
    return {
        "metric": f"smooth sensitivity, {name}, {accountant}",
        "value": round(fast, 4),
        "unit": "s",
        "baseline": f"the paper's algorithms at d = 0..{last}, all queries at once",
        "ratio": round(spent / share / fast, 1),
        "baseline_stopping": "the same, and a query that has reached the peak is not looked at again",
        "ratio_stopping": round(spent_stopping / share / fast, 1),
        "baseline_same_code": f"S(d) of the same tables at d = 0..{last}, against branch and bound alone",
        "ratio_same_code": round(same_spent / share / bare, 1),
        "sample": f"{distances.size} distances, scaled by {1 / share:.4g}" if sampled else "all distances",
        "relative_difference": None if sampled else abs(value / largest - 1),
        "above_every_sampled_distance": True,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    sets = []
    if folder := votes_folder():
        svhn = Votes.load(folder / "svhn_250_teachers.npy")[:8500]
        mechanism = ConfidentGNMax(threshold=300, sigma_check=200, sigma_vote=40)
        sets.append(("SVHN, 8,500 x 10, 250 teachers", mechanism, svhn, 7.5, 0.0533, False))
    glyph = synthetic_votes(n_queries=12_000, n_classes=150, n_teachers=5_000, consensus=0.9)
    mechanism = ConfidentGNMax(threshold=1000, sigma_check=500, sigma_vote=100)
    sets.append(("Glyph-like, 12,000 x 150, 5,000 teachers", mechanism, glyph, 20.5, 0.0205, True))
    write(
        "sensitivity",
        [
            measure(*case, accountant, sampled=sampled)
            for *case, sampled in sets
            for accountant in ("paper", "sanitizable")
        ],
    )


if __name__ == "__main__":
    main()
