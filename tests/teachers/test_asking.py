"""How models are asked: the same calls for every share, and a vote that is a function of share and row."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from experiments.recipes import adult_teacher
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.feature_selection import SelectKBest, SelectPercentile, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    RidgeClassifier,
    RidgeClassifierCV,
    SGDClassifier,
)
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, RadiusNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC, NuSVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from terrine.datasets.adult import feature_names
from terrine.sensitive import unheard
from terrine.teachers import SklearnTeacher, asking

WIDTH = 6
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(80, WIDTH)), RNG.integers(1, 4, size=80)
X[:, 0] = Y + 0.1 * X[:, 0]

CLASSIFIERS = [
    DecisionTreeClassifier(),
    ExtraTreeClassifier(),
    RandomForestClassifier(n_estimators=3),
    ExtraTreesClassifier(n_estimators=3),
    GradientBoostingClassifier(n_estimators=3),
    AdaBoostClassifier(n_estimators=3),
    HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5),
    *(SVC(kernel=kernel) for kernel in ("linear", "poly", "rbf", "sigmoid")),
    SVC(break_ties=True, decision_function_shape="ovr"),
    NuSVC(nu=0.1),
    LinearSVC(),
    DummyClassifier(),
    LogisticRegression(),
    LogisticRegressionCV(cv=2, Cs=2, use_legacy_attributes=False, l1_ratios=(0,), scoring="accuracy"),
    RidgeClassifier(),
    RidgeClassifierCV(),
    SGDClassifier(),
    Perceptron(),
    GaussianNB(),
    BernoulliNB(),
    KNeighborsClassifier(),
    KNeighborsClassifier(algorithm="brute"),
    KNeighborsClassifier(algorithm="kd_tree"),
    KNeighborsClassifier(algorithm="ball_tree", metric="manhattan"),
    RadiusNeighborsClassifier(2.0),
    RadiusNeighborsClassifier(2.0, algorithm="brute", weights="distance"),
    RadiusNeighborsClassifier(2.0, algorithm="brute"),
    RadiusNeighborsClassifier(2.0, algorithm="kd_tree"),
    MLPClassifier(hidden_layer_sizes=(4,), max_iter=50),
    LinearDiscriminantAnalysis(),
    QuadraticDiscriminantAnalysis(),
]
STEPS = [
    StandardScaler(),
    MinMaxScaler(),
    RobustScaler(),
    MaxAbsScaler(),
    Normalizer(),
    Binarizer(),
    QuantileTransformer(n_quantiles=10),
    QuantileTransformer(n_quantiles=10, output_distribution="normal"),
    PCA(3),
    PCA(3, whiten=True),
    TruncatedSVD(3),
    PolynomialFeatures(2),
    SimpleImputer(),
    VarianceThreshold(),
    SelectKBest(k=3),
    SelectPercentile(percentile=50),
    FunctionTransformer(),
    make_pipeline(MinMaxScaler(), FunctionTransformer(np.log1p)),
    FunctionTransformer(np.exp),
    OneHotEncoder(),
    OneHotEncoder(handle_unknown="ignore"),
    OrdinalEncoder(),
    make_pipeline(StandardScaler(), PCA(2)),
    ColumnTransformer([("a", StandardScaler(), [0, 1]), ("b", OneHotEncoder(), slice(2, 3))], remainder="passthrough"),
    ColumnTransformer(
        [("a", make_pipeline(StandardScaler(), FunctionTransformer(np.exp)), [0, 1]), ("b", "drop", [2])]
    ),
    ColumnTransformer([("a", "passthrough", np.arange(WIDTH) < 2)]),
]
ADULT = adult_teacher().estimator
EVERY = [*CLASSIFIERS, *(make_pipeline(step, LogisticRegression()) for step in STEPS), ADULT]


def extremes(dtype) -> np.ndarray:
    """Finite rows that no one expects: the largest, the smallest, past float32, both signs."""
    ends = np.finfo(dtype)
    values = [0.0, -0.0, ends.max, ends.min, ends.tiny, ends.smallest_subnormal, 3.4e38, -3.4e38, 1e20]
    values += [1e39, 1e300] if dtype == np.float64 else []
    rows = [np.full(WIDTH, value) for value in values]
    rows += [np.where(np.arange(WIDTH) % 2, value, -value) for value in values]
    return np.array(rows, dtype=dtype)


def taught(estimator, X=X, y=Y):
    teacher = SklearnTeacher(estimator=estimator)
    if estimator is ADULT:
        X = np.random.default_rng(1).random((len(y), len(feature_names()))).astype(X.dtype)
    return teacher, teacher.fit([(X, y)], ids=[0], n_classes=4, seed=0)


@pytest.mark.parametrize("estimator", EVERY, ids=lambda e: str(e).replace("\n", "")[:60])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_listed_is_never_asked_twice_and_never_raises(estimator, dtype, monkeypatch):
    assert asking.is_listed(estimator)
    teacher, models = taught(estimator, X.astype(dtype))
    width = models[0].n_features_in_
    strange = np.resize(extremes(dtype), (len(extremes(dtype)), width))
    plain = np.random.default_rng(2).normal(size=(40, width)).astype(dtype)
    rows = np.concatenate([plain, strange])
    honest, raised = asking._indices, []

    def noted(model, some):
        found = honest(model, some)
        raised.append(found is None)
        return found

    monkeypatch.setattr(asking, "_indices", noted)
    transformed, lost = asking._transformed, []

    def walked(*given):
        try:
            return transformed(*given)
        except Exception:
            lost.append(given[0])
            raise

    monkeypatch.setattr(asking, "_transformed", walked)
    votes = teacher.predict(models, rows)[0]
    assert raised == [False]
    assert lost == []
    # Each row's vote is its own, wherever it stands and whoever stands beside it
    order = np.random.default_rng(3).permutation(len(rows))
    assert (teacher.predict(models, rows[order])[0] == votes[order]).all()
    alone = np.concatenate([teacher.predict(models, row[None])[0] for row in rows])
    assert (alone == votes).all()
    with unheard():
        expected = asking.ask_each(models[0], rows)  # what the model says itself, 0 where it raises
    assert (votes[:40] == expected[:40]).mean() >= 0.97  # a one-row product may round otherwise


class Custom(LogisticRegression):
    """Code of one's own: nobody has read what it raises on."""

    calls: ClassVar[list[int]] = []
    most: ClassVar[float] = np.inf

    def predict(self, X):
        self.calls.append(len(X))
        if (X[:, 1] > self.most).any():
            raise ValueError("Ann")
        return super().predict(X)


@pytest.mark.parametrize(
    "estimator",
    [
        Custom(),
        CalibratedClassifierCV(GaussianNB(), cv=2),
        BaggingClassifier(LogisticRegression(), n_estimators=2),
        MultinomialNB(),
        KNeighborsClassifier(weights="distance"),  # raises where all distances are infinite
        make_pipeline(FunctionTransformer(lambda rows: rows), LogisticRegression()),
        make_pipeline(StandardScaler(), Custom()),
        DummyClassifier(strategy="uniform"),
        KNeighborsClassifier(metric=lambda a, b: 0.0),
        SVC(kernel=lambda a, b: a @ b.T),
        GradientBoostingClassifier(init=Custom()),
    ],
    ids=lambda e: type(e).__name__,
)
def test_whatever_is_not_listed_is_asked_one_row_at_a_time(estimator):
    assert not asking.is_listed(estimator)


@pytest.mark.parametrize("most", [-10.0, 0.0, 10.0])
def test_other_estimators_are_asked_as_often_whatever_raises(most, monkeypatch):
    teacher, models = taught(Custom())
    monkeypatch.setattr(Custom, "most", most)
    del Custom.calls[:]
    votes = teacher.predict(models, X)[0]
    assert Custom.calls == [1] * len(X)
    assert ((votes == 0) == (X[:, 1] > most)).all()
    del Custom.calls[:]
    assert (teacher.predict(models, X, watched=False)[0] == votes).all()  # nobody sees the clock: in halves
    assert (len(Custom.calls) == 1) == (most == 10.0)


def test_a_row_that_one_share_cannot_take_costs_no_other_row_its_vote():
    near, far = X * 1e-3, X * 1e-3 + 1e3
    teacher = SklearnTeacher(estimator=RadiusNeighborsClassifier(1.0))
    models = teacher.fit([(near, Y), (far, Y)], ids=[0, 1], n_classes=4, seed=0)
    rows = np.concatenate([near[:5], far[:5], np.full((1, WIDTH), 1e300)])
    votes = teacher.predict(models, rows)
    assert (votes[0] > 0).tolist() == [True] * 5 + [False] * 6
    assert (votes[1] > 0).tolist() == [False] * 5 + [True] * 5 + [False]


def test_a_vote_does_not_depend_on_how_many_rows_there_are():
    """Scores, bit for bit, where linear algebra rounds by shape."""
    wide = np.random.default_rng(4).normal(size=(700, 301)).astype(np.float32)
    labels = np.random.default_rng(5).integers(3, size=700)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5))
    with unheard():
        model.fit(wide, labels)
    heard: list[np.ndarray] = []

    class Listening(LogisticRegression):
        def predict(self, rows):
            heard.append(self.decision_function(rows).copy())
            return super().predict(rows)

    model[-1].__class__ = type("LogisticRegression", (Listening,), {"__module__": "sklearn.linear_model._logistic"})
    whole = asking.ask(model, wide)
    scores = np.concatenate(heard)[:700]
    for n in (1, 2, 3, 255, 256, 257):
        del heard[:]
        assert (asking.ask(model, wide[:n]) == whole[:n]).all()
        assert (np.concatenate(heard)[:n] == scores[:n]).all()
    del heard[:]
    asking.ask(model, wide[::-1])
    assert (np.concatenate(heard)[:700][::-1] == scores).all()  # nor on where it stands
