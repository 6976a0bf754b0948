"""How few units a probe can learn from: training rows of Adult and MNIST as units, by the rule, with auto features.

These data sets are public, and the noise is seeded. Each row is a unit; a unit may be changed.
Run: TERRINE_DATA=... python experiments/probe_few.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from terrine.datasets import load
from terrine.features import AutoRecipe, fit_auto
from terrine.probe import ProbeRows, ProbeSettings, components_by_rule, public_scale, rehearse_probe
from terrine.probe.settings import signal
from terrine.relations import Relation

RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "probe_few.json"
UNITS, EPSILONS, SEEDS, DELTA = (50, 150, 500, 1500, 5000), (0.1, 0.3, 1.0, 3.0), (0, 1, 2), 1e-6
SETS = {"adult": (5000, 3000), "mnist": (2000, 1000)}  # public rows that features are made from; test rows


def measured(name: str, n_public: int, n_test: int) -> list[dict[str, Any]]:
    """Accuracy for every number of units and every epsilon."""
    task = load(name)
    assert task.private is not None
    assert task.test_y is not None
    found = []
    for n in UNITS:
        for epsilon in EPSILONS:
            plan: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "planned_units": n}
            plan["relation"] = Relation.UNIT_ANY
            recipe = AutoRecipe(encoder="no", components=min(500, components_by_rule(**plan)))
            features = fit_auto(task.public.X[:n_public], recipe=recipe, seed=0)
            test = features.transform(task.test_X[:n_test])
            scale = public_scale(features.transform(task.public.X[:n_public]))
            sizes = {"n_features": features.n_features, "n_classes": len(task.classes)}
            settings = ProbeSettings.by_rule(**sizes, scale=scale, **plan)
            right = []
            for seed in SEEDS:
                some = np.random.default_rng(seed).choice(20_000, n, replace=False)
                rows = ProbeRows(
                    features.transform(task.private.X[some]), task.private.y[some], n_classes=sizes["n_classes"]
                )
                probe = rehearse_probe(rows, settings=settings, budget=settings.budget(**plan), n_units=n, seed=seed)
                right.append(float((probe.predict(test) == task.test_y[:n_test]).mean()))
            found.append({"data": name, "units": n, "epsilon": epsilon, "signal": signal(**plan), "right": right})
            print(found[-1], flush=True)
    return found


if __name__ == "__main__":
    RESULT.write_text(
        json.dumps([one for name, sizes in SETS.items() for one in measured(name, *sizes)], indent=1) + "\n"
    )
