"""A caller's rows as an estimator takes them: private, public and new ones, by a schema or as they are.

What is known of them for later, their names, kind and number of columns, is kept in the estimator's attributes, as
scikit-learn has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import _check_feature_names

from terrine.datasets import PrivateData
from terrine.datasets.data import UNLABELLED
from terrine.datasets.encoding import encoded_new, encoded_private
from terrine.datasets.given import any_rows, array_rows, private_rows
from terrine.datasets.labels import known_indices
from terrine.datasets.rows import Rows, as_rows, kind_of, matched, numbers
from terrine.datasets.rows import with_nan as where_nan
from terrine.datasets.tables import Frame, is_frame
from terrine.errors import InputError, warn_caller
from terrine.estimator.learners import names_are_wanted, nan_is_taken, tables_are_taken
from terrine.schema import read_table

_WORK = 1_000_000  # steps in the search for an element that two views share


def refuse_private(X: Any, X_public: Any) -> None:
    """Refuse private rows as public ones: one object, or arrays that share memory."""
    shared = X is X_public
    if isinstance(X, np.ndarray) and isinstance(X_public, np.ndarray) and not shared:
        try:
            shared = np.shares_memory(X, X_public, max_work=_WORK)  # type: ignore[arg-type]  # numpy declares -1 and 0 alone
        except np.exceptions.TooHardError:  # views of odd steps: nobody knows
            shared = False
    if shared:
        raise InputError(
            "X_public has rows of X: they are the same object, or share memory. Public rows are used without any "
            "protection: give other rows, which anyone may see."
        )


def both_sides(
    model: Any, X: Any, y: ArrayLike, X_public: Any, unit: Any, *, learners: Sequence[Any]
) -> tuple[PrivateData, Rows]:
    """Private rows with their labels, and public rows, as what learns from them takes them."""
    encoder = model.encoder_
    if encoder is not None:
        columns = list(encoder.schema.columns)
        model.n_features_in_, model.feature_names_in_ = len(columns), np.array(columns, dtype=object)
        public = encoder.transform(read_table(X_public), role="X_public")
        drafted = model.schema is None
        return encoded_private(encoder, X, y, classes=model.classes_, unit=unit, drafted=drafted), public
    rows, odd, found = _prepared(model, X, X_public, learners)
    labels = known_indices(y, model.classes_)
    if getattr(y, "ndim", 1) == 2:
        told = "A column-vector y was passed when a 1d array was expected."
        warn_caller(told, DataConversionWarning)
    if len(labels) != len(rows):
        raise InputError("y must have one label for each row of X, and has a different number.")
    return PrivateData(rows, np.where(odd, UNLABELLED, labels), unit=unit, nan_ok=True, unlabelled_ok=True), found


def new_rows(model: Any, X: Any, *, accept_unreadable: bool = False) -> Any:
    """Rows to predict on, of the kind that the model was fitted on."""
    if model.encoder_ is not None:
        return encoded_new(model.encoder_, X, accept_unreadable=accept_unreadable)
    kind, who = model._kind, type(model).__name__
    rows: Any
    if kind.columns and is_frame(X):
        rows = matched(as_rows("X", X), kind, name="X", like="the rows it was fitted on")
        if model._as_numbers:
            rows = numbers(rows, who=who)
    elif kind.kind != "array" and not model._as_numbers:
        rows = matched(as_rows("X", X), kind, name="X", like="the rows it was fitted on")
    else:
        _check_feature_names(model, X, reset=False)
        rows = array_rows("X", X, nan_ok=model._nan_ok)
        if rows.shape[1] != model.n_features_in_:
            raise InputError(
                f"X has {rows.shape[1]} features, but {who} is expecting {model.n_features_in_} features as input."
            )
    return rows


def _prepared(
    model: Any, X: Any, X_public: Any, learners: Sequence[Any]
) -> tuple[Rows, NDArray[np.bool_] | bool, Rows]:
    """Private and public rows as teachers and student take them: the one place where rows are made ready.

    Between them, which private rows hold no usable number: they keep their place, and nobody learns from them.

    A table of numbers alone becomes an array, its columns matched by name, if nobody asks for its names.
    """
    nan_ok = all(map(nan_is_taken, learners))
    model._nan_ok = nan_is_taken(learners[-1])  # of new rows the student is asked alone
    public: Rows
    odd: NDArray[np.bool_] | bool = False
    rows = any_rows("X", X)
    model.__dict__.pop("feature_names_in_", None)
    model._as_numbers = False
    if rows is None:
        _check_feature_names(model, X, reset=True)
        (rows, odd), public = private_rows(X, nan_ok=nan_ok), array_rows("X_public", X_public, nan_ok=nan_ok)
        if public.shape[1:] != rows.shape[1:]:
            raise InputError(f"X_public must have the features of X, {rows.shape[1:]}, got {public.shape[1:]}.")
    else:
        public = matched(as_rows("X_public", X_public), kind_of(rows), name="X_public", like="X")
    model._kind = kind_of(rows)
    model.n_features_in_ = int((*rows.shape, 1)[1])
    if isinstance(rows, Frame) and isinstance(public, Frame):
        model.feature_names_in_ = np.array(rows.names, dtype=object)
        return _frames(model, rows, public, learners, nan_ok=nan_ok)
    return rows, odd, public


def _frames(
    model: Any, rows: Frame, public: Frame, learners: Sequence[Any], *, nan_ok: bool
) -> tuple[Frame | NDArray[Any], NDArray[np.bool_] | bool, Frame | NDArray[Any]]:
    odd: NDArray[np.bool_] | bool = False
    if not nan_ok:
        if where := where_nan(public):
            raise InputError(
                f"Input X_public contains NaN: there are missing numbers in {where}, and the teacher or the student "
                "takes none; use Pipelines with SimpleImputer, or schema=draft(read_table(X_public)). Nothing "
                "was taught or spent."
            )
        rows, odd = _whole(rows)
    for one in learners:
        if not tables_are_taken(one):
            numbers(rows, who=type(getattr(one, "estimator", one)).__name__)  # refuses what is no number
    model._as_numbers = not any(names_are_wanted(one) for one in learners) and all(
        column.kind == "number" for column in rows.columns
    )
    if model._as_numbers:
        return numbers(rows, who=""), odd, numbers(public, who="")
    return rows, odd, public


def _whole(rows: Frame) -> tuple[Frame, NDArray[np.bool_]]:
    """Private rows with 0 in the place of missing numbers, and which have any."""
    gone = [~np.isfinite(rows.values[k]) if column.kind == "number" else None for k, column in enumerate(rows.columns)]
    odd = np.zeros(len(rows), dtype=bool)
    for one in gone:
        if one is not None:
            odd |= one
    values = tuple(v if one is None else np.where(one, 0.0, v) for v, one in zip(rows.values, gone, strict=True))
    return Frame(rows.columns, values, rows.library), odd
