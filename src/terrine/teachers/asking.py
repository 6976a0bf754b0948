"""How a fitted scikit-learn model is asked: a vote is a function of share and row, in calls that no share decides.

A model that raises on some rows would have to be asked again, and how often tells of its share. So a closed list of
estimators is asked in calls whose number and shape are public: rows that such a model cannot take are found before, or
between its steps, and vote for class 0. Every other estimator is asked one row at a time, whatever happens.

Rows may be arrays, or texts, sparse rows and tables (`terrine.datasets.rows`), which go the same way.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._blocks import blocks
from terrine.datasets.rows import Rows, SparseRows, Texts
from terrine.datasets.tables import Frame

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
_VECTORIZERS = {"TfidfVectorizer", "CountVectorizer", "HashingVectorizer"}  # they take every text
_TRANSFORMERS = (
    _ELEMENTWISE
    | _VECTORIZERS
    | {
        "TfidfTransformer",
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
)
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
    "OneHotEncoder": lambda e: e.handle_unknown in ("error", "ignore", "infrequent_if_exist"),
    "OrdinalEncoder": lambda e: e.handle_unknown in ("error", "use_encoded_value"),
    **dict.fromkeys(_VECTORIZERS, lambda e: _plain_text(e)),
    "Pipeline": lambda e: all(_listed(step, _TRANSFORMERS) for _, step in e.steps),
    "ColumnTransformer": lambda e: _plain_columns(e),
}


def is_listed(estimator: Any) -> bool:
    """Whether it is asked many rows at a time: by its type and settings alone, which are public."""
    from sklearn import get_config

    *before, last = _steps(estimator)
    if get_config()["transform_output"] not in (None, "default"):
        return False  # steps would hand on tables
    return _listed(last, _CLASSIFIERS) and all(_listed(step, _TRANSFORMERS) for step in before)


def ask(model: Any, rows: Rows) -> NDArray[np.int16]:
    """(n_rows,) votes of a model whose estimator is listed.

    What still raises does so on any finite rows, since rows that could cause it were set aside before. It is
    its share's doing, and every row has its vote for class 0.
    """
    steps = _steps(model)
    if _name(steps[-1]) in _BY_ROW and all(_is_elementwise(step) for step in steps[:-1]):
        return _asked(steps, rows)
    votes = np.zeros(len(rows), dtype=np.int16)
    size = _SMALL if _name(steps[-1]) in ("KNeighborsClassifier", "RadiusNeighborsClassifier") else BLOCK
    for at, block in blocks(rows, size) if isinstance(rows, np.ndarray) else _filled(rows, size):
        votes[at] = _asked(steps, block)[: at.stop - at.start]
    return votes


def _filled(rows: SparseRows | Texts | Frame, size: int) -> Iterator[tuple[slice, Rows]]:
    """As `blocks`, for rows that are no arrays: the last block is filled up with its first row."""
    for start in range(0, len(rows), size):
        places = np.arange(start, start + size)
        yield slice(start, min(start + size, len(rows))), rows[np.where(places < len(rows), places, start)]


def ask_each(model: Any, rows: Rows) -> NDArray[np.int16]:
    """(n_rows,) votes, one call for each row, whether it raises or not."""
    votes = [_indices(model, _native(rows[k : k + 1])) for k in range(len(rows))]
    return np.array([0 if vote is None else vote[0] for vote in votes], dtype=np.int16)


def ask_in_halves(model: Any, rows: Rows) -> NDArray[np.int16]:
    """(n_rows,) votes, as many rows in a call as do not raise: fast, but its time tells which rows raise."""
    found = _indices(model, _native(rows))
    if found is not None:
        return found
    if len(rows) < 2:
        return np.zeros(len(rows), dtype=np.int16)
    half = len(rows) // 2
    return np.concatenate([ask_in_halves(model, rows[:half]), ask_in_halves(model, rows[half:])])


def _asked(steps: list[Any], rows: Rows) -> NDArray[np.int16]:
    lost = np.zeros(len(rows), dtype=bool)
    try:
        X: Any = rows.native() if isinstance(rows, SparseRows | Texts) else rows
        for step in steps[:-1]:
            X = _transformed(step, X, lost)
        model = steps[-1]
        if _name(model) in _TREES:
            X = _matrix(X).astype(np.float32)
        X = _native(_fit_for(model, X, lost))
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
    """The step's rows; those that it cannot take, or makes something infinite of, are lost and 0."""
    match _name(step):
        case "passthrough":
            return X
        case "Pipeline":
            for _, inner in step.steps:
                X = _transformed(inner, X, lost)
            return X
        case "ColumnTransformer":
            chosen = [(inner, _part(X, columns)) for _, inner, columns in step.transformers_ if inner != "drop"]
            parts = [_matrix(_transformed(inner, part, lost)) for inner, part in chosen if part is not None]
            if step.sparse_output_:
                from scipy import sparse

                return sparse.hstack([sparse.csr_array(part) for part in parts]).tocsr()
            return np.hstack([part if isinstance(part, np.ndarray) else part.toarray() for part in parts])
        case "OneHotEncoder" | "OrdinalEncoder" if step.handle_unknown == "error":
            X = _known(step.categories_, X, lost)
        case name if name in _VECTORIZERS:
            missing = np.array([not isinstance(one, str) for one in X], dtype=bool)
            lost |= missing
            return step.transform(["" if gone else one for one, gone in zip(X, missing, strict=True)])
    return _finite(step.transform(_native(_fit_for(step, X, lost))), lost, nan_ok=True)


def _known(categories: list[NDArray[Any]], X: Any, lost: NDArray[Any]) -> NDArray[Any]:
    """Rows of categories that the share had; in others, which are lost, its first category stands in."""
    columns = [X.objects(k) for k in range(X.shape[1])] if isinstance(X, Frame) else list(X.T)
    strange = np.zeros(len(lost), dtype=bool)
    for column, known in zip(columns, categories, strict=True):
        if column.dtype.kind == "O" or np.asarray(known).dtype.kind == "O":
            seen = {_hashable(one) for one in known}
            strange |= np.array([_hashable(one) not in seen for one in column], dtype=bool)
        else:
            strange |= ~(np.isin(column, known) | (np.isnan(column) & np.isnan(known).any()))
    lost |= strange
    filled = [np.where(strange, known[0], column) for column, known in zip(columns, categories, strict=True)]
    if isinstance(X, Frame):
        missing = np.nan if X.library == "pandas" else None  # as the library's own columns read to an encoder
        held = np.empty(X.shape, dtype=object)
        for k, column in enumerate(filled):
            held[:, k] = [missing if one is None else one for one in column]
        return held.astype(np.float64) if all(column.kind == "number" for column in X.columns) else held
    return np.stack(filled, axis=1).astype(X.dtype)


def _hashable(value: Any) -> Any:
    return None if value is None or value != value else value


def _fit_for(step: Any, X: Any, lost: NDArray[Any]) -> Any:
    """Rows that the step takes: missing numbers only if it does."""
    from sklearn.utils import get_tags

    if isinstance(X, Frame) and all(column.kind == "number" for column in X.columns):
        X = _matrix(X)
    if isinstance(X, Frame) or (isinstance(X, np.ndarray) and X.dtype.kind not in "fc"):
        return X
    return _finite(X, lost, nan_ok=bool(get_tags(step).input_tags.allow_nan))


def _finite(X: Any, lost: NDArray[Any], *, nan_ok: bool) -> Any:
    unfit = np.isinf if nan_ok else lambda values: ~np.isfinite(values)
    if isinstance(X, np.ndarray):
        if X.dtype.kind not in "fc":
            return X
        bad: NDArray[Any] = np.asarray(unfit(X).any(axis=tuple(range(1, X.ndim))))
        if not bad.any():
            return X
        lost |= bad
        return np.where(bad.reshape(-1, *[1] * (X.ndim - 1)), X.dtype.type(0), X)
    bad = np.zeros(X.shape[0], dtype=bool)
    bad[X.tocoo().row[unfit(X.tocoo().data)]] = True
    lost |= bad
    X = X.tocsr(copy=True)
    X.data[np.repeat(bad, np.diff(X.indptr))] = 0
    return X


def _native(X: Any) -> Any:
    """What a scikit-learn step is given."""
    return X.native() if isinstance(X, SparseRows | Texts | Frame) else X


def _matrix(X: Any) -> Any:
    """An array, or a sparse matrix: what is left of a table that no step has changed."""
    if not isinstance(X, Frame):
        return X
    if all(column.kind == "number" for column in X.columns):
        return np.stack(X.values, axis=1)
    return np.stack([X.objects(k) for k in range(X.shape[1])], axis=1)


def _part(X: Any, columns: Any) -> Any:
    """Some columns, as a ColumnTransformer chooses them; the values of one that is named alone; None if none are."""
    if isinstance(columns, (str, int)):
        alone = _part(X, [columns])
        return alone.objects(0) if isinstance(alone, Frame) else alone[:, 0]
    listed = columns if isinstance(columns, slice) else np.asarray(list(columns))
    if not isinstance(X, Frame):
        return X[:, listed] if len(np.arange(X.shape[1])[listed]) else None
    if isinstance(listed, np.ndarray) and listed.dtype.kind in "UO":
        places = [X.names.index(name) for name in listed]
    else:
        places = np.arange(X.shape[1])[listed if isinstance(listed, slice) or listed.size else []].tolist()
    return X.select(places) if places else None


def _steps(estimator: Any) -> list[Any]:
    if _name(estimator) != "Pipeline":
        return [estimator]
    *before, last = (step for _, step in estimator.steps)
    return [*before, *_steps(last)]


def _listed(estimator: Any, names: set[str]) -> bool:
    name = _name(estimator)
    if name == "passthrough":
        return names is _TRANSFORMERS
    if getattr(estimator, "_sklearn_output_config", {}).get("transform") not in (None, "default"):
        return False  # what it hands on are tables
    return name in names and bool(_ONLY_IF.get(name, lambda _: True)(estimator))


def _name(estimator: Any) -> str:
    """The class's name if it is scikit-learn's own."""
    if estimator is None or (isinstance(estimator, str) and estimator == "passthrough"):
        return "passthrough"
    kind = type(estimator)
    return kind.__name__ if kind.__module__.startswith("sklearn.") else ""


def _plain_neighbors(estimator: Any) -> bool:
    return estimator.weights in ("uniform", "distance") and estimator.metric in _METRICS


def _plain_text(vectorizer: Any) -> bool:
    """Whether texts are cut into words by scikit-learn's own code alone."""
    own = (vectorizer.preprocessor, vectorizer.tokenizer) == (None, None)
    accents = vectorizer.strip_accents in (None, "ascii", "unicode")
    return own and accents and isinstance(vectorizer.analyzer, str) and vectorizer.input == "content"


def _is_elementwise(step: Any) -> bool:
    """Whether what it makes of a row has the same bits whatever rows stand beside it."""
    match _name(step):
        case "Pipeline":
            return all(_is_elementwise(inner) for _, inner in step.steps)
        case "ColumnTransformer":
            parts = [inner for _, inner, _ in step.transformers_]
            return all((isinstance(one, str) and one == "drop") or _is_elementwise(one) for one in parts)
        case name:
            return name in _ELEMENTWISE | {"SimpleImputer", "passthrough"}


def _plain_columns(columns: Any) -> bool:
    """Whether the columns are chosen by number, name or type, and every part is on the list."""
    from sklearn.compose import make_column_selector

    parts = [(step, chosen) for _, step, chosen in columns.transformers]
    parts += [(columns.remainder, [])]
    return columns.transformer_weights is None and all(
        ((isinstance(step, str) and step == "drop") or _listed(step, _TRANSFORMERS))
        and isinstance(chosen, (str, int, list, tuple, slice, np.ndarray, make_column_selector))
        and not (isinstance(chosen, slice) and isinstance(chosen.start or chosen.stop, str))
        for step, chosen in parts
    )
