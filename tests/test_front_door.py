"""The front door: every name that it lists is there, and an end-to-end script needs no other."""

from __future__ import annotations

import numpy as np

import terrine


def test_every_listed_name_is_there_and_listed_once():
    assert len(set(terrine.__all__)) == len(terrine.__all__)
    for name in terrine.__all__:
        assert getattr(terrine, name) is not None, name


def test_a_script_from_rows_to_a_student_needs_no_other_import(tmp_path):
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    y = np.arange(600) % 2
    X = rng.normal(size=(600, 3)) + 2 * y[:, None]
    private, public = terrine.PrivateData(X[:500], y[:500]), terrine.PublicData(X[500:])
    shares = terrine.partition(private, n_teachers=20, method="balanced", key=terrine.new_key())
    teacher = terrine.SklearnTeacher(estimator=LogisticRegression())
    teachers = terrine.fit_teachers(private, shares, teacher, classes=("no", "yes"), seed=0)
    mechanism = terrine.GNMax(sigma=3)
    budget = terrine.CountBudget(mechanism, n_queries=100, delta=1e-5, relation=shares.relation)
    with terrine.Ledger(tmp_path / "ledger.sqlite", budget=budget) as ledger:
        answers = terrine.Labeller(teachers, mechanism, ledger).label(public, request_id="all")
    settings = terrine.SupervisedStudent(estimator=LogisticRegression())
    student = terrine.fit_student(settings, public, answers, classes=("no", "yes"), seed=0)
    assert (student.predict(X[500:]) == y[500:]).mean() > 0.9
    votes = terrine.poll_teachers(private, shares, teacher, public, classes=("no", "yes"), seed=0)
    np.testing.assert_array_equal(votes.counts, teachers.vote(public).counts)


def test_a_table_of_words_and_blanks_needs_no_other_import():
    public = terrine.read_table({"age": ["31", "", "47", "29"], "job": ["nurse", "baker", "nurse", "baker"]})
    schema = terrine.draft(public)
    assert isinstance(schema, terrine.Schema)
    encoder = terrine.Encoder.fit(schema, public)
    new = terrine.read_table({"job": ["smith"], "age": ["a secret"]})
    assert np.isfinite(encoder.transform(new)).all()


def test_the_warnings_one_acts_on_are_there():
    for warning in (terrine.AdviceWarning, terrine.PooledFitWarning, terrine.SpendingWarning):
        assert issubclass(warning, UserWarning)
