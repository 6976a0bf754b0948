"""Two rounds beside one at the same publishable ε, on Fashion-MNIST by `terrine run` alone.

`python experiments/rounds.py measure OUT` writes the images of $TERRINE_DATA/fashion as a stranger's own files under
OUT, two settings for each ε, types `terrine run` for each of them and each seed, and writes docs/results/rounds.json;
`python experiments/rounds.py show` writes the page from it. A run that is there already is not repeated.

Nothing is chosen by a look at the test rows: teachers and student have the settings of `terrine demo`, the consensus is
a guess made beforehand, and noise and numbers of questions are planned by `terrine run`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from provenance import record

from terrine.accounting.curves import round_up
from terrine.datasets.mnist import read_idx

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "rounds.json"
N_PUBLIC = 8_000  # of the 10,000 test images; the rest tests
TEACHERS, CONSENSUS, DELTA = 250, 0.8, 1e-5
SETTINGS = """seed = {seed}
[data]
private = "private.npz"
public = "public.npy"
test = "test.npz"
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]

[features]
kind = "edges"

[teachers]
number = {teachers}
kind = "lda"
options = {{ solver = "lsqr", shrinkage = 0.4 }}
keep = false
executor = "serial"

[privacy]
delta = {delta}
epsilon = {epsilon}
consensus = {consensus}
{rounds}
[student]
kind = "features"
estimator = "sklearn.discriminant_analysis.LinearDiscriminantAnalysis"
options = {{ solver = "lsqr", shrinkage = 0.2 }}
"""
ROUNDS = {"one": "", "two": '\n[[rounds]]\nmechanism = "confident"\n\n[[rounds]]\nmechanism = "interactive"\n'}


def images(name: str) -> Any:
    folder = Path(os.environ["TERRINE_DATA"]) / "fashion"
    pixels, labels = (folder / f"{name}-{part}-ubyte.gz" for part in ("images-idx3", "labels-idx1"))
    return read_idx(pixels), read_idx(labels)


def prepare(out: Path) -> None:
    """The images as files of one's own; labels of public images are left out."""
    out.mkdir(parents=True, exist_ok=True)
    if (out / "test.npz").is_file():
        return
    X, y = images("train")
    np.savez(out / "private.npz", X=X, y=y.astype(np.int64))
    X, y = images("t10k")
    np.save(out / "public.npy", X[:N_PUBLIC])
    np.savez(out / "test.npz", X=X[N_PUBLIC:], y=y[N_PUBLIC:].astype(np.int64))


def measure(out: Path, *, epsilons: list[float], seeds: int) -> None:
    prepare(out)
    cells = []
    for epsilon in epsilons:
        for seed in range(seeds):
            for name, rounds in ROUNDS.items():
                path = out / f"{name}-{epsilon:g}-{seed}.toml"
                given = {"teachers": TEACHERS, "consensus": CONSENSUS, "delta": DELTA, "rounds": rounds}
                path.write_text(SETTINGS.format(seed=seed, epsilon=epsilon, **given))
                command = [sys.executable, "-m", "terrine", "run", path.name, "--json"]
                done = subprocess.run(command, cwd=out, capture_output=True, text=True, check=True)
                found = json.loads(done.stdout)
                cells.append({"epsilon_given": epsilon, "seed": seed, "rounds": name, **cell(found)})
                print(cells[-1], flush=True)
    RESULTS.write_text(json.dumps({"teachers": TEACHERS, "consensus": CONSENSUS, "cells": cells}, indent=1) + "\n")
    record("rounds", "python experiments/rounds.py measure OUT && python experiments/rounds.py show")


def cell(found: dict[str, Any]) -> dict[str, Any]:
    """What a run printed."""
    guarantee, student = found["guarantee"], found["student"]
    names = ("epsilon", "delta", "queries_at_most", "answers_at_most", "answered", "withheld", "unasked", "reinforced")
    return {
        **{name: guarantee.get(name, 0) for name in names},
        "each": [
            {key: value for key, value in one.items() if key != "mechanism"} for one in guarantee.get("rounds", [])
        ],
        "accuracy": student["accuracy"],
        "n_test": student["n_test"],
    }


def page(found: dict[str, Any]) -> str:
    cells = found["cells"]
    keys = sorted({(one["epsilon_given"], one["rounds"]) for one in cells})
    n_seeds = len({one["seed"] for one in cells})
    rows = []
    for epsilon, name in keys:
        some = [one for one in cells if (one["epsilon_given"], one["rounds"]) == (epsilon, name)]
        right = [one["accuracy"] for one in some]
        spread = f" ± {stdev(right):.1%}" if len(right) > 1 else ""
        rows.append(
            f"| {epsilon:g} | {name} | {round_up(max(one['epsilon'] for one in some))} | "
            f"{some[0]['queries_at_most']:,} | "
            f"{some[0]['answers_at_most']:,} | {mean(one['answered'] for one in some):,.0f} | "
            f"{mean(one['reinforced'] for one in some):,.0f} | **{mean(right):.1%}**{spread} |"
        )
    return PAGE.format(
        rows="\n".join(rows),
        verdict=verdict(cells),
        seeds=n_seeds,
        teachers=found["teachers"],
        consensus=found["consensus"],
        n_test=f"{cells[0]['n_test']:,}",
        delta=cells[0]["delta"],
        n_public=f"{N_PUBLIC:,}",
    )


def verdict(cells: list[dict[str, Any]]) -> str:
    """Two rounds less one, seed by seed."""
    said = []
    for epsilon in sorted({one["epsilon_given"] for one in cells}):
        by = {(one["rounds"], one["seed"]): one["accuracy"] for one in cells if one["epsilon_given"] == epsilon}
        gains = [by["two", seed] - by["one", seed] for name, seed in by if name == "one"]
        said.append(
            f"At ε = {epsilon:g} two rounds give {mean(gains):+.1%} accuracy, from {min(gains):+.1%} to "
            f"{max(gains):+.1%} over the seeds."
        )
    return " ".join([*said, "Where such a range includes 0, the seeds do not tell the two apart."])


PAGE = """# Two rounds beside one, at the same ε

Written by `python experiments/rounds.py show` from `rounds.json`, which `measure` made by `terrine run` alone, with
secure noise. Fashion-MNIST as a stranger's own files: 60,000 private images, {n_public} public ones, {n_test} to test.
{teachers} teachers (linear discriminants on [edges](../features.md)), δ = {delta:g}; the settings of teachers and
student are those of `terrine demo`, and the assumed consensus, {consensus}, was a guess made beforehand. In one round a
Confident-GNMax answers; in two rounds it has half of the budget, and an Interactive-GNMax that is asked with the
student of the first round has the other half ([rounds](../runs.md#rounds)). Noise and numbers of questions are what
`terrine run` plans. Questions are those that may be asked; *label kept* counts those for
which the student kept its own label. Means over {seeds} seeds; ± is their standard deviation.

| ε given | rounds | ε, publishable | questions | answers, at most | answered | label kept | student right |
|---|---|---|---|---|---|---|---|
{rows}

{verdict}

Both are charged by Rényi bounds here. Rounds share a filter, which stays so; one round is a budget of counted
questions, whose worst case [privacy profiles](../math.md#the-profile-accountant) make 5 to 9% smaller today, so that a
run of today in one round asks more questions at these ε.
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["measure", "show"])
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--epsilons", default="1,2")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    if given.what == "measure":
        measure(given.out, epsilons=[float(one) for one in given.epsilons.split(",")], seeds=given.seeds)
    RESULTS.with_suffix(".md").write_text(page(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
