"""How a fitted scikit-learn model is asked: a vote is a function of share and row, in calls that no share decides.

A model that raises on some rows would have to be asked again, and how often tells of its share. So a closed list of
estimators is asked in calls whose number and shape are public: rows that such a model cannot take are found before, or
between its steps, and vote for class 0. Every other estimator is asked one row at a time, whatever happens.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._blocks import blocks

BLOCK = 256  # rows of a call where linear algebra rounds by shape: the last block is filled up
_SMALL = 64  # of those that look at their whole share for every row

# By the name of a class of scikit-learn's own, never of a subclass. They take every finite row of the right width: each
# was read for what it checks, and tests/teachers/test_asking.py asks each about the largest and smallest numbers.
_TREES = {  # they cast to float32, and refuse what is then infinite
    "DecisionTreeClassifier",
    "ExtraTreeClassifier",
    "RandomForestClassifier",
    "ExtraTreesClassifier",
    "GradientBoostingClassifier",
    "AdaBoostClassifier",
}
_BY_ROW = _TREES | {"HistGradientBoostingClassifier", "SVC", "NuSVC", "DummyClassifier"}  # the same bits in any block
_CLASSIFIERS = _BY_ROW | {
    "LogisticRegression",
    "LogisticRegressionCV",
    "RidgeClassifier",
    "RidgeClassifierCV",
    "SGDClassifier",
    "Perceptron",
    "LinearSVC",
    "GaussianNB",
    "BernoulliNB",
    "KNeighborsClassifier",
    "RadiusNeighborsClassifier",
    "MLPClassifier",
    "LinearDiscriminantAnalysis",
    "QuadraticDiscriminantAnalysis",
}
_ELEMENTWISE = {"StandardScaler", "MinMaxScaler", "RobustScaler", "MaxAbsScaler", "OneHotEncoder", "OrdinalEncoder"}
_TRANSFORMERS = _ELEMENTWISE | {
    "Normalizer",
    "Binarizer",
    "QuantileTransformer",
    "PCA",
    "TruncatedSVD",
    "PolynomialFeatures",
    "SimpleImputer",
    "VarianceThreshold",
    "SelectKBest",
    "SelectPercentile",
    "FunctionTransformer",
    "Pipeline",
    "ColumnTransformer",
}
_METRICS = {"minkowski", "euclidean", "l2", "manhattan", "cityblock", "l1", "chebyshev"}
_KERNELS = {"linear", "poly", "rbf", "sigmoid"}
# Settings with which one on the list could raise, or draw, by the rows
_ONLY_IF: dict[str, Any] = {
    "GradientBoostingClassifier": lambda e: e.init in (None, "zero"),
    "AdaBoostClassifier": lambda e: e.estimator is None,
    "HistGradientBoostingClassifier": lambda e: (
        e.categorical_features is None or e.categorical_features == "from_dtype"
    ),
    "SVC": lambda e: e.kernel in _KERNELS,
    "NuSVC": lambda e: e.kernel in _KERNELS,
    "DummyClassifier": lambda e: e.strategy in ("prior", "most_frequent", "constant"),
    "BernoulliNB": lambda e: e.binarize is not None,
    "KNeighborsClassifier": lambda e: _plain_neighbors(e) and e.weights == "uniform",  # 1/inf: "zero weights"
    "RadiusNeighborsClassifier": lambda e: _plain_neighbors(e) and e.outlier_label is None,
    "SimpleImputer": lambda e: isinstance(e.missing_values, float) and np.isnan(e.missing_values),
    "FunctionTransformer": lambda e: e.func is None or isinstance(e.func, np.ufunc) or e.func is np.interp,
    "OneHotEncoder": lambda e: e.handle_unknown in ("error", "ignore"),
    "OrdinalEncoder": lambda e: e.handle_unknown == "error",
    "Pipeline": lambda e: all(_listed(step, _TRANSFORMERS) for _, step in e.steps),
    "ColumnTransformer": lambda e: _plain_columns(e),
}


def is_listed(estimator: Any) -> bool:
    """Whether it is asked many rows at a time: by its type and settings alone, which are public."""
    *before, last = _steps(estimator)
    return _listed(last, _CLASSIFIERS) and all(_listed(step, _TRANSFORMERS) for step in before)


def ask(model: Any, rows: NDArray[Any]) -> NDArray[np.int16]:
    """(n_rows,) votes of a model whose estimator is listed.

    What still raises does so on any finite rows, since rows that could cause it were set aside before. It is
    its share's doing, and every row has its vote for class 0.
    """
    steps = _steps(model)
    if _name(steps[-1]) in _BY_ROW and all(_name(step) in _ELEMENTWISE for step in steps[:-1]):
        return _asked(steps, rows)
    votes = np.zeros(len(rows), dtype=np.int16)
    size = _SMALL if _name(steps[-1]) in ("KNeighborsClassifier", "RadiusNeighborsClassifier") else BLOCK
    for at, block in blocks(rows, size):
        votes[at] = _asked(steps, block)[: at.stop - at.start]
    return votes


def ask_each(model: Any, rows: NDArray[Any]) -> NDArray[np.int16]:
    """(n_rows,) votes, one call for each row, whether it raises or not."""
    votes = [_indices(model, row[None]) for row in rows]
    return np.array([0 if vote is None else vote[0] for vote in votes], dtype=np.int16)


def ask_in_halves(model: Any, rows: NDArray[Any]) -> NDArray[np.int16]:
    """(n_rows,) votes, as many rows in a call as do not raise: fast, but its time tells which rows raise."""
    found = _indices(model, rows)
    if found is not None:
        return found
    if len(rows) < 2:
        return np.zeros(len(rows), dtype=np.int16)
    half = len(rows) // 2
    return np.concatenate([ask_in_halves(model, rows[:half]), ask_in_halves(model, rows[half:])])


def _asked(steps: list[Any], rows: NDArray[Any]) -> NDArray[np.int16]:
    lost = np.zeros(len(rows), dtype=bool)
    try:
        X: Any = rows
        for step in steps[:-1]:
            X = _transformed(step, X, lost)
        model = steps[-1]
        if _name(model) in _TREES:
            X = _finite(X.astype(np.float32), lost)
        if _name(model) == "RadiusNeighborsClassifier":  # where nobody is near it would raise: no class instead
            model = copy.copy(model)
            model.outlier_label, model.outlier_label_ = -1, [-1]
        found = _indices(model, X)
    except Exception:
        found = None
    return np.zeros(len(rows), dtype=np.int16) if found is None else np.where(lost, 0, found).astype(np.int16)


def _indices(model: Any, rows: Any) -> NDArray[np.int16] | None:
    """What a model predicts; what is no class index is class 0, what is no prediction is None."""
    try:
        found = np.asarray(model.predict(rows))
        if found.shape == (rows.shape[0],):
            return np.where((found >= 0) & (found <= np.iinfo(np.int16).max), found, 0).astype(np.int16)
    except Exception:  # which row fails depends on private rows: it may not show
        pass
    return None


def _transformed(step: Any, X: Any, lost: NDArray[Any]) -> Any:
    """The step's rows. Those that it cannot take, or makes infinite or nan, are marked lost and are 0."""
    match _name(step):
        case "passthrough":
            return X
        case "Pipeline":
            for _, inner in step.steps:
                X = _transformed(inner, X, lost)
            return X
        case "ColumnTransformer":
            parts = [
                _transformed(inner, X[:, _column_list(columns)], lost)
                for _, inner, columns in step.transformers_
                if inner != "drop" and len(np.arange(X.shape[1])[_column_list(columns)])
            ]
            if step.sparse_output_:
                from scipy import sparse

                return sparse.hstack([sparse.csr_array(part) for part in parts]).tocsr()
            return np.hstack([part if isinstance(part, np.ndarray) else part.toarray() for part in parts])
        case "OneHotEncoder" | "OrdinalEncoder" if step.handle_unknown == "error":
            known = [np.isin(X[:, k], categories) for k, categories in enumerate(step.categories_)]
            strange: NDArray[Any] = ~np.all(known, axis=0)
            lost |= strange
            X = np.where(strange[:, None], [categories[0] for categories in step.categories_], X).astype(X.dtype)
    return _finite(step.transform(X), lost)


def _finite(X: Any, lost: NDArray[Any]) -> Any:
    if isinstance(X, np.ndarray):
        bad: NDArray[Any] = ~np.asarray(np.isfinite(X).all(axis=1))
        lost |= bad
        return np.where(bad[:, None], X.dtype.type(0), X)
    bad = np.zeros(X.shape[0], dtype=bool)
    bad[X.tocoo().row[~np.isfinite(X.tocoo().data)]] = True
    lost |= bad
    X = X.tocsr(copy=True)
    X.data[np.repeat(bad, np.diff(X.indptr))] = 0
    return X


def _steps(estimator: Any) -> list[Any]:
    if _name(estimator) != "Pipeline":
        return [estimator]
    *before, last = (step for _, step in estimator.steps)
    return [*before, *_steps(last)]


def _listed(estimator: Any, names: set[str]) -> bool:
    name = _name(estimator)
    if name == "passthrough":
        return names is _TRANSFORMERS
    return name in names and bool(_ONLY_IF.get(name, lambda _: True)(estimator))


def _name(estimator: Any) -> str:
    """The class's name if it is scikit-learn's own."""
    if estimator is None or (isinstance(estimator, str) and estimator == "passthrough"):
        return "passthrough"
    kind = type(estimator)
    return kind.__name__ if kind.__module__.startswith("sklearn.") else ""


def _plain_neighbors(estimator: Any) -> bool:
    return estimator.weights in ("uniform", "distance") and estimator.metric in _METRICS


def _plain_columns(columns: Any) -> bool:
    """Whether the columns are named by their numbers, and every part is on the list."""
    parts = [(step, chosen) for _, step, chosen in columns.transformers]
    parts += [(columns.remainder, [])]
    return columns.transformer_weights is None and all(
        ((isinstance(step, str) and step == "drop") or _listed(step, _TRANSFORMERS))
        and isinstance(chosen, (list, tuple, slice, np.ndarray))
        and not any(isinstance(one, str) for one in (chosen if not isinstance(chosen, slice) else ()))
        for step, chosen in parts
    )


def _column_list(columns: Any) -> Any:
    return columns if isinstance(columns, slice) else np.asarray(list(columns))
