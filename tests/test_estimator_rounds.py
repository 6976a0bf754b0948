"""PATEClassifier(rounds=): one filter for all rounds, planned or given; what cannot be is refused before a vote."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.test_estimator import PUBLIC, TEST, TRUTH, X, Y, classifier

from terrine.errors import InputError
from terrine.estimator import by_teachers
from terrine.estimator import classifier as model
from terrine.ledger import Ledger
from terrine.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, Outcome
from terrine.runs.interactive import plan_filter
from terrine.students import load_student

FIRST = ConfidentGNMax(threshold=15, sigma_check=8, sigma_vote=4)
SECOND = InteractiveGNMax(threshold=10, sigma_check=8, sigma_vote=4, student_confidence=0.8)
ROUNDS = [(FIRST, 60, 40), (SECOND, 150, 30)]
WITHOUT = {"mechanism": None, "n_queries": None}


def test_given_rounds(tmp_path):
    found = classifier(**WITHOUT, rounds=ROUNDS, ledger=tmp_path / "ledger.sqlite").fit(X, Y, X_public=PUBLIC)
    assert found.score(TEST, TRUTH) > 0.9
    budget = plan_filter(ROUNDS, delta=1e-5)
    assert (found.guarantee_.epsilon, found.guarantee_.order) == (budget.epsilon, budget.order)
    assert found.guarantee_.relation == "row_replaced"
    first, second = found.rounds_
    assert first.n_answered <= 40
    assert second.n_answered <= 30
    assert (second.outcomes == Outcome.REINFORCED).sum() > 50
    assert len(found.answers_) == 210
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        summary = ledger.summary()
        assert summary.answered == first.n_answered + second.n_answered
        assert summary.reinforced == (second.outcomes == Outcome.REINFORCED).sum()
    found.save(tmp_path / "student")
    card = load_student(tmp_path / "student").card
    assert [one["mechanism"]["kind"] for one in card.rounds] == ["confident", "interactive"]
    assert "| round 2 | Interactive-GNMax" in (tmp_path / "student" / "model_card.md").read_text()


def test_planned_rounds_cost_at_most_epsilon():
    found = classifier(**WITHOUT, rounds=2, epsilon=6.0, consensus=0.9).fit(X, Y, X_public=PUBLIC)
    assert 5 < found.guarantee_.epsilon <= 6.0
    assert len(found.rounds_) == 2
    assert isinstance(found.rounds_[1].mechanism, InteractiveGNMax)
    assert classifier().fit(X, Y, X_public=PUBLIC).rounds_ == ()


REFUSED = {
    "interactive alone": ({"mechanism": SECOND}, "Ask in rounds: rounds=2 with epsilon=, or rounds=["),
    "interactive first": (WITHOUT | {"rounds": [(SECOND, 5, 5)]}, "Round 1 uses InteractiveGNMax"),
    "beside a mechanism": ({"rounds": ROUNDS}, "rounds stand in the place of mechanism, n_queries and n_answers"),
    "no epsilon": (WITHOUT | {"rounds": 2}, "rounds=2 needs epsilon"),
    "an epsilon too many": (WITHOUT | {"rounds": ROUNDS, "epsilon": 2.0}, "leave epsilon out"),
    "none": (WITHOUT | {"rounds": []}, "rounds must be a number, or a list"),
    "zero": (WITHOUT | {"rounds": 0, "epsilon": 2.0}, "rounds must be a whole number of at least 1"),
    "not three": (WITHOUT | {"rounds": [(FIRST, 5)]}, "Round 1 must be (mechanism, n_queries, n_answers)."),
    "answers": (WITHOUT | {"rounds": [(FIRST, 5, 6)]}, "n_answers of round 1 must be at most 5"),
    "all are answered": (WITHOUT | {"rounds": [(GNMax(sigma=4), 5, 4)]}, "n_answers of round 1 must be 5"),
    "rows": (WITHOUT | {"rounds": [(FIRST, 301, 5)]}, "n_queries of round 1 must be at most 300"),
}


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_before_teachers_are_polled(changes, words, monkeypatch):
    monkeypatch.setattr(by_teachers, "poll_teachers", lambda *_, **__: pytest.fail("teachers were polled"))
    monkeypatch.setattr(by_teachers, "partition", lambda *_, **__: pytest.fail("rows were dealt"))
    with pytest.raises(InputError, match=re.escape(words)):
        classifier(**changes).fit(X, Y, X_public=PUBLIC)


def test_interactive_alone_is_refused_before_a_row_is_looked_at(monkeypatch):
    for name in ("encoder_for", "both_sides", "warn_of_pooled_fit"):
        monkeypatch.setattr(model, name, lambda *_, **__: pytest.fail("rows were looked at"))
    with pytest.raises(InputError, match=r"rounds=2 with epsilon=.*Nothing was taught or spent\."):
        classifier(mechanism=SECOND).fit(None, None)


def test_texts_are_asked_in_rounds_too():
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(0)
    words = {"ash": "leaf tall green", "birch": "white bark thin", "cedar": "needle scent dark"}
    y = rng.choice(list(words), size=600)
    texts = [" ".join(rng.choice(words[name].split(), size=4)) + f" {k}" for k, name in enumerate(y)]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    found = classifier(**WITHOUT, rounds=[(FIRST, 60, 40), (SECOND, 100, 30)], teacher=model, student=model)
    found.fit(texts[:400], y[:400], X_public=texts[400:])
    assert len(found.rounds_) == 2
    assert found.predict(texts[:3]).shape == (3,)
