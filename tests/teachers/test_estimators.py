"""scikit-learn's classifiers: which are kept, what is refused, seeds."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
import skops.io
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from tests.teachers.tasks import images, prints_of

from terrine.errors import InputError, MissingDependencyError, StoreError
from terrine.teachers import SklearnTeacher

X, Y = images(60)
KEPT = [
    RandomForestClassifier(n_estimators=3),
    ExtraTreesClassifier(n_estimators=3),
    GradientBoostingClassifier(n_estimators=3, subsample=0.5),
    HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5),
    LogisticRegression(),
    SGDClassifier(max_iter=5, tol=None),
    GaussianNB(),
    KNeighborsClassifier(),
    KNeighborsClassifier(algorithm="kd_tree"),
    SVC(),
    MLPClassifier(hidden_layer_sizes=(4,), max_iter=400, tol=1e-2),
    make_pipeline(StandardScaler(), LogisticRegression()),
    CalibratedClassifierCV(GaussianNB(), cv=2),
]


class Foreign:
    """A type that nobody trusts."""


def attack() -> int:
    raise AssertionError("code in a file was executed")


@pytest.mark.parametrize("estimator", KEPT, ids=lambda e: type(e).__name__)
def test_it_is_kept_and_comes_back_with_the_same_votes(estimator):
    teacher = SklearnTeacher(estimator=estimator)
    models = teacher.fit([(X, Y), (X[:0], Y[:0]), (X[:30], Y[:30])], ids=[4, 5, 6], n_classes=4, seed=1)
    votes = teacher.predict(models, X)
    assert votes.shape == (3, 60)
    assert votes.dtype == np.int16
    assert (teacher.predict(teacher.loads(teacher.dumps(models)), X) == votes).all()
    again = teacher.fit([(X, Y), (X[:0], Y[:0]), (X[:30], Y[:30])], ids=[4, 5, 6], n_classes=4, seed=1)
    assert (teacher.predict(again, 255 - X) == teacher.predict(models, 255 - X)).all()
    if getattr(estimator, "algorithm", None) != "kd_tree":  # it keeps memory that it never wrote to
        assert prints_of(again) == prints_of(models)  # nothing is drawn but from the seed


def test_a_given_estimator_stays_unfitted_and_its_own_seed_does_not_count():
    estimators = [RandomForestClassifier(n_estimators=3, random_state=seed) for seed in (1, 2)]
    one, two = (SklearnTeacher(estimator=e).fit([(X, Y)], ids=[0], n_classes=4, seed=1) for e in estimators)
    assert (one[0].predict_proba(X.reshape(60, -1)) == two[0].predict_proba(X.reshape(60, -1))).all()
    assert not hasattr(estimators[0], "estimators_")
    assert SklearnTeacher(estimator=estimators[0]).settings() == SklearnTeacher(estimator=estimators[1]).settings()


def test_seeds_reach_inside_a_pipeline():
    teacher = SklearnTeacher(estimator=make_pipeline(StandardScaler(), RandomForestClassifier(n_estimators=3)))
    models = teacher.fit([(X, Y)] * 2, ids=[0, 1], n_classes=4, seed=1)
    states = [model[-1].random_state for model in models]
    assert len(set(states)) == 2


def test_settings_name_every_parameter_however_long_the_list():
    steps = [StandardScaler() for _ in range(40)]
    weak, strong = (
        SklearnTeacher(estimator=make_pipeline(*steps, FunctionTransformer(np.log1p), LogisticRegression(C=c)))
        for c in (0.123, 0.5)
    )
    differ = {key for key in weak.settings() if weak.settings()[key] != strong.settings()[key]}
    assert differ == {"estimator.logisticregression__C"}
    assert "0x" not in str(weak.settings())  # no addresses: the same in the next process


@pytest.mark.parametrize("bad", [LinearRegression(), object(), LogisticRegression, make_pipeline(StandardScaler())])
def test_what_is_no_classifier_is_refused(bad):
    with pytest.raises(InputError, match="estimator must be a scikit-learn classifier, got"):
        SklearnTeacher(estimator=bad)


def test_a_chunk_is_at_least_one():
    with pytest.raises(InputError, match="chunk"):
        SklearnTeacher(estimator=GaussianNB(), chunk=0)


@pytest.mark.parametrize("planted", [Foreign(), FunctionTransformer(attack), [[attack]]], ids=lambda p: str(type(p)))
def test_types_that_nobody_trusts_are_refused(planted):
    with pytest.raises(StoreError, match=r"not trusted, and are not loaded: .*(Foreign|attack)"):
        SklearnTeacher(estimator=GaussianNB()).loads(skops.io.dumps([planted]))


class Own(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.ones(len(X), dtype=np.int64)


def test_what_could_not_be_loaded_is_not_kept():
    teacher = SklearnTeacher(estimator=Own())
    models = teacher.fit([(X, Y)], ids=[0], n_classes=4, seed=1)
    assert (teacher.predict(models, X) == 1).all()
    with pytest.raises(StoreError, match=r"not trusted, and are not loaded: .*Own"):
        teacher.dumps(models)


def test_a_file_that_is_something_else_is_refused():
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    whole = skops.io.dumps([1])
    for data in (b"", b"PK", whole[: len(whole) // 2], empty.getvalue()):
        with pytest.raises(StoreError, match="is damaged, or not"):
            SklearnTeacher(estimator=GaussianNB()).loads(data)


def test_without_skops_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "skops.io", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'terrine\[keep\]'"):
        SklearnTeacher(estimator=GaussianNB()).dumps([1])


def test_what_an_estimator_warns_of_is_not_heard(recwarn):
    """Whether it converged, or had one sample of a class, depends on private rows."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 5)), rng.integers(3, size=60)
    restless = SklearnTeacher(estimator=LogisticRegression(max_iter=1))
    models = restless.fit([(X, y)], ids=[0], n_classes=3, seed=0)
    restless.predict(models, X)
    assert len(recwarn) == 0


def test_a_row_on_which_a_model_raises_gets_a_vote_for_class_0_and_no_other_row_does():
    share = np.array([[0.0], [1.0], [2.0], [3.0]] * 5), np.array([1, 2, 1, 2] * 5)
    teacher = SklearnTeacher(estimator=make_pipeline(OneHotEncoder(), LogisticRegression()))
    models = teacher.fit([share], ids=[0], n_classes=3, seed=0)
    asked = np.array([[0.0], [4.0], [1.0], [2.0], [5.0], [3.0], [0.0]])
    assert teacher.predict(models, asked).tolist() == [[1, 0, 2, 1, 0, 2, 1]]
    assert teacher.predict(models, asked[1:2]).tolist() == [[0]]
    assert np.concatenate([teacher.predict(models, row[None]) for row in asked], axis=1).tolist() == [
        [1, 0, 2, 1, 0, 2, 1]
    ]


class Odd(Own):
    """Gives what its first feature says: no class, no number, or too many of them."""

    def predict(self, X):
        if (X[:, 0] == 2).any():
            return np.ones((len(X), 2), dtype=np.int64)
        if (X[:, 0] == 3).any():
            return np.array(["one"] * len(X))
        return np.where(X[:, 0] == 4, 70_000, np.where(X[:, 0] == 5, -1, 1))


def test_what_is_no_class_index_is_a_vote_for_class_0():
    teacher = SklearnTeacher(estimator=Odd())
    models = teacher.fit([(np.zeros((4, 1)), np.array([0, 1, 0, 1]))], ids=[0], n_classes=2, seed=0)
    assert teacher.predict(models, np.arange(7.0)[:, None]).tolist() == [[1, 1, 0, 0, 0, 0, 1]]


def test_what_can_never_predict_fails_when_it_is_taught():
    few = SklearnTeacher(estimator=KNeighborsClassifier(50))
    with pytest.raises(ValueError, match="n_neighbors"):
        few.fit([(X[:20], Y[:20])], ids=[0], n_classes=4, seed=0)
