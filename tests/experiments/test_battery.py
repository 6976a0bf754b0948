"""The battery's own arithmetic: a probe in floats is the library's, and files are read as they are."""

from __future__ import annotations

import importlib
import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

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


def test_a_cell_that_was_not_run_is_a_dash(tmp_path: Path) -> None:
    page, found = script("battery_page"), _gathered(tmp_path, [_probe(0, 0.8), _probe(1, 0.9)])
    assert page.accuracies(found, "UNIT_ADDED").splitlines()[-1] == "| Adult | 1 | – | 85.0 ± 7.1 (2) | – | – | – |"
    assert "| Adult | 1 |" not in page.accuracies(found, "UNIT_REPLACED")
    assert page.paired({0: 0.8, 1: 0.9}, {0: 0.7, 1: 0.8}) == "+10.0 (+10.0 to +10.0)"
    assert page.paired({0: 0.8}, {1: 0.7}) == "–"
    assert page.page(json.loads(page.written(found))) == page.page(found)


def test_the_page_says_where_dp_sgd_wins(tmp_path: Path) -> None:
    sgd = [{**_probe(seed, right), "kind": "sgd"} for seed, right in ((0, 0.815), (1, 0.826))]
    found = _gathered(tmp_path, [_probe(0, 0.8), _probe(1, 0.81), *sgd])
    said = script("battery_page").verdict(found)
    assert (
        "“probe” wins in 0, “DP-SGD, tuned” in 1:\n- Adult, a unit added or removed, ε = 1: -1.5 (-2.2 to -0.9)" in said
    )
    assert "whatever their interval: 2:\n" in said  # the probe, and what auto ends with


@pytest.mark.parametrize("seed", [0, 1])
def test_features_of_a_cpu_and_of_a_gpu_are_not_mixed(seed: int, tmp_path: Path) -> None:
    cells = [_probe(0, 0.8), {**_probe(seed, 0.9), "parts": ["scattering", "encoder"], "kind": "tuned", "compared": []}]
    with pytest.raises(SystemExit, match="adult differ in"):
        _gathered(tmp_path, cells)


def test_further_cells_stand_beside_those_of_before(tmp_path: Path) -> None:
    for name in ("old", "new", "other"):
        (tmp_path / name).mkdir()
    old = _gathered(tmp_path / "old", [_probe(0, 0.8), _probe(1, 0.9)])
    baseline = {"task": "adult", "kind": "baseline", "learner": "trees", "seed": 0, "accuracy": 0.87}
    new = _gathered(tmp_path / "new", [_probe(2, 0.7), baseline])
    joined = script("battery_page").joined
    found = joined(old, new)
    assert [(row["kind"], row["seeds"]) for row in found["cells"]] == [("probe", [2]), ("baseline", [0])]
    assert found["tasks"] == old["tasks"]
    assert joined(found, old)["cells"][0] == old["cells"][0]
    other = _gathered(tmp_path / "other", [{**_probe(0, 0.8), "parts": ["components"]}])
    with pytest.raises(SystemExit, match="adult had features of quantiles"):
        joined(old, other)


def _probe(seed: int, accuracy: float) -> dict[str, Any]:
    cell = {"task": "adult", "kind": "probe", "epsilon": 1.0, "relation": "UNIT_ADDED", "parts": ["quantiles"]}
    return {**cell, "seed": seed, "accuracy": accuracy}


def _gathered(folder: Path, cells: list[dict[str, Any]]) -> dict[str, Any]:
    """By battery_page, from files as battery.py writes them."""
    sizes = {"planned_units": 32561, "n_classes": 2, "n_features": 142, "n_public": 8140, "n_teachers": 500}
    facts = {"task": "adult", "kind": "facts", "delta": 1e-5, "parts": ["quantiles"], **sizes}
    for place, cell in enumerate([facts, *cells]):
        (folder / f"{place}.json").write_text(json.dumps(cell))
    (folder / "noise.json").write_text("{}")
    found: dict[str, Any] = script("battery_page").gather(folder)
    return found
