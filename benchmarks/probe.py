"""A probe's exact sums: seconds a step, growth with rows, memory; against the same gradient in ordinary floats.

Rows are a memory-mapped file of float32 with 500 features and 10 classes. Seconds a fit are extrapolated from steps by
the growth that was fitted, with the secure noise of as many draws.
Run: python benchmarks/probe.py [largest number of rows, 40000 by default] [device, such as cuda]
"""

from __future__ import annotations

import math
import sys
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rows import seconds, write

from terrine.noise import UNIT, SecureNoise
from terrine.probe import ProbeRows, ProbeSettings, exact, gradient_sum
from terrine.probe.sums import Step

FEATURES, CLASSES, STEPS = 500, 10, 60
SETTINGS = ProbeSettings(n_features=FEATURES, n_classes=CLASSES, steps=STEPS)
MILLION = 1_000_000
OPACUS = 4096  # rows: it holds a gradient for each


def stored(folder: Path, n: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    path = folder / f"{n}.npy"
    made = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, FEATURES))
    for at in range(0, n, 10_000):
        made[at : at + 10_000] = rng.normal(size=made[at : at + 10_000].shape) / math.sqrt(FEATURES)
    made.flush()
    return np.load(path, mmap_mode="r"), rng.integers(0, CLASSES, n)


def in_floats(X: NDArray[np.float32], y: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Block by block, as one would write it without a thought of neighbors."""
    total = np.zeros_like(weights)
    for at in range(0, len(X), exact.BLOCK):
        A = np.column_stack([X[at : at + exact.BLOCK].astype(np.float64), np.full(len(X[at : at + exact.BLOCK]), 0.5)])
        odds = np.exp(A @ weights)
        left = odds / odds.sum(axis=1, keepdims=True)
        left[np.arange(len(left)), y[at : at + exact.BLOCK]] -= 1
        length = np.linalg.norm(A, axis=1) * np.linalg.norm(left, axis=1)
        total += A.T @ (left * np.minimum(1, SETTINGS.clip / length)[:, None])
    return total


def by_opacus(X: NDArray[np.float32], y: NDArray[np.int64]) -> float:
    """Seconds of one step on the whole batch: its gradients of single rows, clipped, with its noise."""
    sys.path.remove(str(Path(__file__).parent))  # its profile.py would stand in for Python's
    import torch
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    torch.set_num_threads(1)
    model = GradSampleModule(torch.nn.Linear(FEATURES, CLASSES))
    plain = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    optimizer = DPOptimizer(plain, noise_multiplier=29.0, max_grad_norm=SETTINGS.clip, expected_batch_size=len(X))
    rows, labels = torch.tensor(np.array(X)), torch.tensor(y)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()

    return seconds(step)[0]


def main() -> None:
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
    device = sys.argv[2] if len(sys.argv) > 2 else None
    weights = np.random.default_rng(1).normal(size=(FEATURES + 1, CLASSES))
    step = Step(exact.whole_weights(weights), 1.0, SETTINGS.lattice_clip)
    sizes = [largest // 4, largest // 2, largest]
    taken, peaks = [], []
    with tempfile.TemporaryDirectory() as folder:
        for n in sizes:
            X, y = stored(Path(folder), n)
            rows = ProbeRows(X, y, n_classes=CLASSES)
            best, _ = seconds(lambda rows=rows: gradient_sum(rows, step, device=device))
            taken.append(best)
            tracemalloc.start()
            gradient_sum(rows, step, device=device)
            peaks.append(tracemalloc.get_traced_memory()[1] / 2**20)
            tracemalloc.stop()
        plain, _ = seconds(lambda: in_floats(X, y, weights))
        units, _ = seconds(
            lambda: gradient_sum(ProbeRows(X, y, np.arange(largest) // 4, n_classes=CLASSES), step, device=device),
            repeats=1,
        )
        X, y = stored(Path(folder), OPACUS)
        small = ProbeRows(X, y, n_classes=CLASSES)
        ours = seconds(lambda: gradient_sum(small, step, device=device))[0]
        theirs = by_opacus(X, y)
    growth = float(np.polyfit(np.log(sizes), np.log(taken), 1)[0])
    a_step = taken[-1] * (MILLION / largest) ** growth
    draws = SETTINGS.dimension
    noise, _ = seconds(lambda: SecureNoise().gaussian((draws,), sigma=2.0**33 / UNIT))
    where = device or "one thread of numpy"
    found = [
        {
            "metric": f"one exact sum, {largest:,} rows x {FEATURES} features x {CLASSES} classes from a file, {where}",
            "value": round(taken[-1], 3),
            "unit": "s",
            "baseline": "the same in floats",
            "ratio": round(taken[-1] / plain, 2),
        },
        {"metric": "the same with four rows a unit", "value": round(units, 3), "unit": "s", "baseline": None},
        {"metric": f"growth of seconds with rows, {sizes[0]:,} to {largest:,}: exponent", "value": round(growth, 3)},
        {
            "metric": f"memory of a sum beside the file, {sizes[0]:,} and {largest:,} rows",
            "value": [round(peaks[0], 1), round(peaks[-1], 1)],
            "unit": "MiB",
        },
        {
            "metric": f"a step on {OPACUS:,} rows, with secure noise",
            "value": round(ours + noise, 3),
            "unit": "s",
            "baseline": "Opacus, a linear layer on the whole batch in float32, its ordinary noise, one thread",
            "ratio": round((ours + noise) / theirs, 2),
        },
        {"metric": "secure noise", "value": round(draws / noise), "unit": "draws/s"},
        {
            "metric": f"a fit of {STEPS} steps on a million rows, extrapolated",
            "value": round(STEPS * (a_step + noise)),
            "unit": "s",
        },
    ]
    write("probe", found)


if __name__ == "__main__":
    main()
