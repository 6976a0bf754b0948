"""What a planning number that is off costs a probe, and how true its probabilities are, before and after `sureness`.

Training rows of Adult as units, one unit changed, ε = 1, δ = 1e-5, auto features, seeded noise. For the rare class only
some of the rows above 50K are kept, of private, public and test rows alike. All of these data are public.
Run: TERRINE_DATA=... python experiments/probe_level.py
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.metrics import log_loss

from terrine.datasets import load
from terrine.features import AutoRecipe, fit_auto
from terrine.probe import Probe, ProbeRows, ProbeSettings, public_scale, rehearse_probe
from terrine.probe.measuring import measured_of
from terrine.probe.sureness import sureness
from terrine.relations import Relation

RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "probe_level.json"
EPSILON, DELTA, SEEDS, N_PUBLIC = 1.0, 1e-5, (0, 1, 2, 3, 4), 5000
UNITS, TIMES = (1000, 3000, 10_000), (0.25, 0.5, 1.0, 2.0, 4.0)  # true numbers; planned over true
RARE = 0.1  # share of the rare class


def thinned(X: NDArray[Any], y: NDArray[Any], share: float | None, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """With as many rows of class 1 as make it this share."""
    if share is None:
        return X, y
    order = np.random.default_rng(seed).permutation(np.flatnonzero(y == 1))
    keep = np.sort(np.concatenate([np.flatnonzero(y == 0), order[: round(share / (1 - share) * (y == 0).sum())]]))
    return X[keep], y[keep]


def trained(rows: ProbeRows, plan: dict[str, Any], sizes: dict[str, Any], seed: int) -> Probe:
    settings = ProbeSettings.by_rule(**sizes, **plan).measuring()
    planned = plan["planned_units"]  # the mean is by it, and the noise is that of the budget
    return rehearse_probe(rows, settings=settings, budget=settings.budget(**plan), n_units=planned, seed=seed)


def with_measured(probe: Probe, rows: NDArray[Any], y: NDArray[Any], plan: dict[str, Any], seed: int) -> Probe:
    """With what its last sum would have told of these private rows."""
    budget = probe.settings.budget(**plan)
    right = probe.predict(rows) == y
    counts = np.array([[int((hit & (y == k)).sum()) for k in (0, 1)] for hit in (right, ~right)])
    noise = budget.noise / math.isqrt(budget.clip**2 // 2)
    drawn = np.random.default_rng([seed, 1]).normal(0, noise, 6)
    output = np.concatenate([counts.sum(axis=1), counts.ravel()]) + drawn
    told = measured_of(output * math.isqrt(budget.clip**2 // 2), n_classes=2, clip=budget.clip, noise=budget.noise)
    return replace(probe, measured=told)


def measured(share: float | None) -> list[dict[str, Any]]:
    task = load("adult")
    assert task.private is not None
    assert task.test_y is not None
    assert task.public_y is not None
    X, y = thinned(task.private.X, task.private.y, share, 0)
    public = thinned(task.public.X, task.public_y, share, 1)[0][:N_PUBLIC]
    test, truth = thinned(task.test_X, task.test_y, share, 2)
    features = fit_auto(public, recipe=AutoRecipe(encoder="no"), seed=0)
    seen, tested = features.transform(public), features.transform(test)
    sizes = {"n_features": features.n_features, "n_classes": 2, "scale": public_scale(seen)}
    found = []
    for n in UNITS:
        for times in TIMES if share is None else (1.0,):
            plan: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "planned_units": round(times * n)}
            plan["relation"] = Relation.UNIT_ANY
            right, mean, sure, loss, loss_sure = [], [], [], [], []
            for seed in SEEDS:
                some = np.random.default_rng(seed).choice(len(X), n, replace=False)
                private = features.transform(X[some])
                probe = trained(ProbeRows(private, y[some], n_classes=2), plan, sizes, seed)
                probe = with_measured(probe, private, y[some], plan, seed)
                p = probe.predict_proba(tested)
                right.append(float((p.argmax(axis=1) == truth).mean()))
                mean.append(float(p[:, 1].mean()))
                factor = sureness(probe, seen)  # as a student of the probe has it
                surer = softmax(factor * np.log(p), axis=1)
                sure.append(float(surer[:, 1].mean()))
                loss.append(float(log_loss(truth, p)))
                loss_sure.append(float(log_loss(truth, surer)))
            seeds = {"right": right, "mean_probability": mean}
            seeds |= {"mean_when_sure": sure, "loss": loss, "loss_when_sure": loss_sure}
            one: dict[str, Any] = {"share": float(truth.mean()), "units": n, "planned_over_true": times, "seeds": seeds}
            found.append(one | {name: math.fsum(values) / len(SEEDS) for name, values in seeds.items()})
            print(found[-1], flush=True)
    return found


if __name__ == "__main__":
    RESULT.write_text(json.dumps([*measured(None), *measured(RARE)], indent=1) + "\n")
