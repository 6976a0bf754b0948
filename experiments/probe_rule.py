"""The rule for a probe's settings, on images by principal components: half, the whole and twice its way, and one fixed.

These data sets are public: the noise is seeded, and settings may be compared by accuracy. Features and scale come from
the 9,000 public test images; 20,000 training images are the units; accuracy is on all 10,000 test images.
Run: TERRINE_DATA=... python experiments/probe_rule.py   (folders mnist and fashion with the four idx files)
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.datasets.mnist import read_idx
from terrine.probe import ProbeRows, ProbeSettings, components_by_rule, public_scale, rehearse_probe

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "probe_rule.json"
UNITS, DELTA = 20_000, 1e-5
EPSILONS = (0.1, 0.3, 1.0)
SEEDS = (0, 1)


def images(folder: Path, name: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    X, y = (read_idx(folder / f"{name}-{what}-ubyte.gz") for what in ("images-idx3", "labels-idx1"))
    return X.reshape(len(X), -1).astype(np.float32) / 255, y.astype(np.int64)


def components(public: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and directions, each divided by the root of its deviation."""
    mean = public.mean(axis=0)
    _, values, directions = np.linalg.svd(public - mean, full_matrices=False)
    return mean, (directions.T / np.sqrt(values / math.sqrt(len(public)) + 1e-6)).astype(np.float32)


def rows_of(name: str) -> list[dict[str, Any]]:
    folder = Path(os.environ.get("TERRINE_DATA", "../shared/data")) / name
    (X, y), (held, held_y) = images(folder, "train"), images(folder, "t10k")
    mean, directions = components(held[:9000])
    private, test = ((part - mean) @ directions for part in (X[:UNITS], held))
    found = []
    for epsilon in EPSILONS:
        plan: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "planned_units": UNITS}
        p = min(components_by_rule(**plan), 400)
        scale = public_scale(test[:9000, :p])
        rule = ProbeSettings.by_rule(n_features=p, n_classes=10, scale=scale, **plan)
        tried = {
            "rule": rule,
            "half": dataclasses.replace(rule, steps=round(rule.steps / math.sqrt(2)), rate=rule.rate / math.sqrt(2)),
            "twice": dataclasses.replace(rule, steps=round(rule.steps * math.sqrt(2)), rate=rule.rate * math.sqrt(2)),
            "fixed": dataclasses.replace(rule, steps=60, rate=16.0, clip=0.3),
        }
        for what, settings in tried.items():
            rows = ProbeRows(private[:, :p], y[:UNITS], n_classes=10)
            right = []
            for seed in SEEDS:
                budget = settings.budget(**plan)
                made = rehearse_probe(rows, settings=settings, budget=budget, n_units=UNITS, seed=seed)
                right.append(float((made.predict(test[:, :p]) == held_y).mean()))
            row = {"data": name, "epsilon": epsilon, "settings": what, "components": p, "steps": settings.steps}
            found.append({**row, "rate": round(settings.rate, 2), "percent": round(100 * float(np.mean(right)), 1)})
            print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    found = [{**row, "commit": commit} for name in ("mnist", "fashion") for row in rows_of(name)]
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
