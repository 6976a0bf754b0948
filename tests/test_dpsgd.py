"""The DP-SGD baseline: it trains, Opacus' ε is dp-accounting's, and the page says what the JSON says."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.conftest import need

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def dpsgd() -> Iterator[ModuleType]:
    if importlib.util.find_spec("opacus") is None:
        need("opacus")
    sys.path.insert(0, str(ROOT / "experiments"))  # scripts import each other by name
    spec = importlib.util.spec_from_file_location("dpsgd", ROOT / "experiments" / "dpsgd.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["dpsgd"] = module  # dataclasses look for it there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["dpsgd"]
    sys.path.remove(str(ROOT / "experiments"))


def test_a_small_run_learns_and_its_epsilon_is_that_of_dp_accounting(dpsgd: ModuleType) -> None:
    import torch

    from terrine.datasets import files, load
    from terrine.datasets.adult import FILES

    if any(files.find(file) is None for file in FILES):
        need("adult/ under $TERRINE_DATA")
    torch.set_num_threads(1)
    data = load("adult")
    private, _, test = dpsgd.features(data, "ramps")
    y = torch.tensor(np.asarray(data.private.y)[:800])
    learner = dpsgd.TASKS[1].learners[2]
    schedule = dpsgd.Schedule(batch=50, epochs=1, rate=0.5)
    network, spent = dpsgd.train(private[:800], y, learner, schedule, n_classes=2, epsilon=2.0, delta=1e-5, seed=0)
    assert dpsgd.right(network, test, data.test_y) > 0.78  # always "<=50K": 0.76
    assert (spent["steps"], spent["sample_rate"]) == (16, pytest.approx(1 / 16))
    assert spent["epsilon_opacus"] <= 2.0
    steps = {name: spent[name] for name in ("noise", "sample_rate", "steps")}
    outside = dpsgd.outside_epsilon(dpsgd.ADDED, **steps, delta=1e-5)
    assert spent["epsilon_opacus"] == pytest.approx(outside, rel=0.02)
    assert dpsgd.outside_epsilon(dpsgd.REPLACED, **steps, delta=1e-5) > outside


def test_the_page_says_what_the_json_says(dpsgd: ModuleType) -> None:
    facts = json.loads((dpsgd.OUT / "dpsgd.json").read_text())
    assert (dpsgd.OUT / "dpsgd.md").read_text() == dpsgd.page(facts), "run: python experiments/dpsgd.py"
    for task in facts["tasks"]:
        for row in (row for row in task["rows"] if row["epsilon"] is not None):
            assert row["epsilon_opacus"] <= row["epsilon"]
            # Opacus adds the error that it allows itself
            assert row["epsilon_opacus"] == pytest.approx(row["epsilon_outside"], rel=0.02, abs=1.2 * dpsgd.ERROR)
            assert row["schedule"] in [
                t["schedule"] for t in row["tuning"] if t["public_accuracy"] == dpsgd.on_public(row)
            ]
            assert row["accuracy"]["mean"] == pytest.approx(np.mean(row["accuracy"]["by_seed"]))


def test_pate_students_come_from_the_results_that_are_there(dpsgd: ModuleType) -> None:
    students = dpsgd.pate("adult")
    assert {round(s["epsilon"], 1) for s in students} >= {0.8, 1.9}
    assert dpsgd.beside(students, 0.3) == "–"
    assert "(ε = 0.833)" in dpsgd.beside(students, 0.9)
    assert min(s["epsilon"] for s in dpsgd.pate("mnist")) <= 0.1


def test_the_learner_that_is_named_was_chosen_on_public_rows(dpsgd: ModuleType) -> None:
    rows = [
        {"learner": name, "epsilon": 1.0, "accuracy": {"mean": test}, "tuning": [{"public_accuracy": public}]}
        for name, public, test in (("a", 0.8, 0.7), ("b", 0.7, 0.9))
    ]
    assert [row["learner"] for row in dpsgd.best_learners({"rows": rows})] == ["a"]
    students = [
        {"epsilon": e, "accuracy": {"mean": m, "deviation": 0.0}, "public": m} for e, m in ((0.5, 0.9), (0.9, 0.8))
    ]
    assert dpsgd.beside(students, 1.0).startswith("80.00%")
