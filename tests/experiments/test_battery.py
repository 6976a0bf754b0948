"""The battery's own arithmetic: a probe in floats is the library's, and files are read as they are."""

from __future__ import annotations

import importlib
import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from terrine.probe import ProbeRows, ProbeSettings, gradient_sum, rehearse_probe
from terrine.probe.exact import LATTICE_BITS, whole_weights
from terrine.probe.sums import Step

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    sys.path.insert(0, str(EXPERIMENTS))
    yield
    sys.path.remove(str(EXPERIMENTS))


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.parametrize("with_units", [False, True])
def test_sums_in_floats_are_the_library_s(with_units: bool) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 6)).astype(np.float32) / 2, rng.integers(0, 3, 300)
    unit = rng.integers(0, 90, 300) if with_units else None
    weights = rng.normal(size=(7, 3)).astype(np.float32)
    rows = script("battery_probe").Descending(X, y, unit, scale=0.9, n_classes=3)
    step = Step(whole_weights(weights.astype(np.float64)), 0.9, int(0.3 * 2**LATTICE_BITS))
    exact = gradient_sum(ProbeRows(X, y, unit, n_classes=3), step).reveal() / 2**LATTICE_BITS
    assert rows.n_units == (300 if unit is None else len(np.unique(unit)))
    found = rows.total(torch.tensor(weights, device=rows.rows.device), 0.3).cpu().numpy()
    np.testing.assert_allclose(found, exact, atol=0.02)


def test_the_descent_in_floats_ends_where_the_library_s_does() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 600)
    X = (np.eye(3)[y] + rng.normal(size=(600, 3)) / 2).astype(np.float32)
    settings = ProbeSettings(n_features=3, n_classes=3, steps=20, rate=4.0)
    plan = {"epsilon": 8.0, "delta": 1e-5, "planned_units": 60_000}
    budget = settings.budget(**plan)
    ours = rehearse_probe(ProbeRows(X, y, n_classes=3), settings=settings, budget=budget, n_units=600, seed=0)
    rows = script("battery_probe").Descending(X, y, None, scale=1.0, n_classes=3)
    noise = budget.noise / 2**LATTICE_BITS / 100  # so little that the weights are alike
    np.testing.assert_allclose(
        script("battery_probe").descend(rows, settings, noise=noise, seed=0), ours.weights, atol=0.2
    )


def test_a_review_ends_where_its_line_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some reviews hold characters that `splitlines` takes for the end of a line."""
    (tmp_path / "imdb").mkdir()
    lines = {"train": ["pos\t1\tgood\x85 indeed", "neg\t2\tbad"], "unlabelled": ["1\tone"], "test": ["pos\t3\tfine"]}
    for name, some in lines.items():
        (tmp_path / "imdb" / f"{name}.tsv.xz").write_bytes(lzma.compress(("\n".join(some) + "\n").encode()))
    monkeypatch.setenv("TERRINE_DATA", str(tmp_path))
    texts, labels = script("battery").imdb_texts()
    assert texts == {"private": ["good\x85 indeed", "bad"], "public": ["one"], "test": ["fine"]}
    assert labels["private"].tolist() == [1, 0]


def test_a_cell_that_was_not_run_is_a_dash() -> None:
    page = script("battery_page")
    cell = {"task": "adult", "kind": "probe", "epsilon": 1.0, "relation": "UNIT_ADDED", "seeds": [0, 1]}
    found = {"cells": [{**cell, "accuracy": [0.8, 0.9]}]}
    assert page.accuracies(found, "UNIT_ADDED").splitlines()[-1] == "| Adult | 1 | – | 85.0 ± 7.1 (2) | – | – | – |"
    assert page.paired({0: 0.8, 1: 0.9}, {0: 0.7, 1: 0.8}) == "+10.0 (+10.0 to +10.0)"
    assert page.paired({0: 0.8}, {1: 0.7}) == "–"
    json.dumps(found)
