"""One rule says where a ledger is: what was given, else TERRINE_LEDGER, else ledger.sqlite in the folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from terrine import CountBudget, GNMax, Ledger, PATEClassifier
from terrine.errors import LedgerError
from terrine.ledger import ledger_place

BUDGET = CountBudget(GNMax(sigma=9), n_queries=40, delta=1e-5, relation="row_replaced")


def test_the_rule(monkeypatch):
    monkeypatch.delenv("TERRINE_LEDGER", raising=False)
    assert ledger_place(None, "r") == Path("r/ledger.sqlite")
    assert ledger_place("given", "r") == "given"
    monkeypatch.setenv("TERRINE_LEDGER", "elsewhere")
    assert ledger_place(None, "r") == "elsewhere"
    assert ledger_place("given", "r") == "given"
    monkeypatch.setenv("TERRINE_LEDGER", "")
    assert ledger_place(None, "r") == Path("r/ledger.sqlite")


@pytest.fixture
def bound(tmp_path):
    """A run directory whose ledger is elsewhere."""
    folder = tmp_path / "r"
    folder.mkdir()
    with Ledger(tmp_path / "elsewhere.sqlite", budget=BUDGET) as ledger:
        (folder / "ledger.json").write_text(json.dumps({"ledger": ledger.id}))
    return folder


def show(folder, capsys):
    from terrine.cli import app

    app(["ledger", "show", str(folder), "--json"], standalone_mode=False)
    return json.loads(capsys.readouterr().out)["ledger_id"]


def test_the_ledger_of_a_run_directory_is_the_one_it_is_bound_to(bound, monkeypatch, capsys):
    monkeypatch.delenv("TERRINE_LEDGER", raising=False)
    with pytest.raises(LedgerError, match=r"There is no .*ledger\.sqlite, the ledger that pays for"):
        show(bound, capsys)
    monkeypatch.setenv("TERRINE_LEDGER", str(bound.parent / "elsewhere.sqlite"))
    assert show(bound, capsys) == json.loads((bound / "ledger.json").read_text())["ledger"]
    with Ledger(bound.parent / "other.sqlite", budget=BUDGET):
        monkeypatch.setenv("TERRINE_LEDGER", str(bound.parent / "other.sqlite"))
        with pytest.raises(LedgerError, match="This is not the ledger that pays for"):
            show(bound, capsys)


def test_an_estimator_without_a_ledger_spends_from_the_environments(tmp_path, monkeypatch):
    from sklearn.linear_model import LogisticRegression

    monkeypatch.setenv("TERRINE_LEDGER", str(tmp_path / "shared.sqlite"))
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = (X[:, 0] > 0).astype(int)
    settings = {"classes": [0, 1], "n_teachers": 10, "delta": 1e-5, "mechanism": GNMax(sigma=9), "n_queries": 40}
    fitted = PATEClassifier(LogisticRegression(), LogisticRegression(), **settings).fit(X, y, X_public=X[:60].copy())
    with Ledger(tmp_path / "shared.sqlite") as ledger:
        assert ledger.summary().queries == 40
        assert ledger.budget.guarantee() == fitted.guarantee_
