"""Whether the probabilities of a rare class are right among the rows that rank first, where one would act.

As `probe_level.py`, with 3% and 10% rows of the rare class: of the test rows that rank first by the probability that a
student of the probe gives (after `sureness`), the mean probability and the true share. All of these data are public.
Run: TERRINE_DATA=... python experiments/probe_top.py
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from probe_level import DELTA, EPSILON, N_PUBLIC, SEEDS, thinned, trained, with_measured
from scipy.special import softmax

from terrine.datasets import load
from terrine.features import AutoRecipe, fit_auto
from terrine.probe import ProbeRows, public_scale
from terrine.probe.sureness import sureness
from terrine.relations import Relation

RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "probe_top.json"
UNITS, SHARES = (3000, 10_000), (0.03, 0.1)


def measured(share: float) -> list[dict[str, Any]]:
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
        plan: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "planned_units": n, "relation": Relation.UNIT_ANY}
        first = {"100": 100, "fifteenth": len(truth) // 15}
        kept = [f"{what}_of_first_{k}" for k in first for what in ("probability", "share")]
        seeds: dict[str, list[float]] = {name: [] for name in ("mean_probability", *kept)}
        for seed in SEEDS:
            some = np.random.default_rng(seed).choice(len(X), n, replace=False)
            private = features.transform(X[some])
            probe = trained(ProbeRows(private, y[some], n_classes=2), plan, sizes, seed)
            probe = with_measured(probe, private, y[some], plan, seed)
            p = softmax(sureness(probe, seen) * np.log(probe.predict_proba(tested)), axis=1)[:, 1]
            order = np.argsort(-p, kind="stable")
            seeds["mean_probability"].append(float(p.mean()))
            for k, rows in first.items():
                seeds[f"probability_of_first_{k}"].append(float(p[order[:rows]].mean()))
                seeds[f"share_of_first_{k}"].append(float(truth[order[:rows]].mean()))
        one: dict[str, Any] = {"share": float(truth.mean()), "units": n, "test_rows": len(truth)}
        found.append(one | {"seeds": seeds} | {name: math.fsum(values) / len(SEEDS) for name, values in seeds.items()})
        print(found[-1], flush=True)
    return found


if __name__ == "__main__":
    RESULT.write_text(json.dumps([one for share in SHARES for one in measured(share)], indent=1) + "\n")
