"""A rehearsal on made-up rows: what is wrong with a teacher's settings is said in words that hold no private value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from terrine.errors import InputError, TerrineError
from terrine.teachers.estimators import SklearnTeacher
from terrine.teachers.modules import ModuleTeacher

_ROWS = 200
_EACH = 10  # rows of a class: enough for a cross-validation inside
_LETTERS = 400


def rehearse(teacher: Any, *, row_shape: tuple[int, ...], dtype: DTypeLike, n_classes: int) -> str:
    """Teach one teacher, if it brings code of others, on a few made-up rows, and let it vote.

    Settings of the wrong type or value are refused. Any other failure, which may be due to the rows, is handed back
    in words, for the message of one on private rows; nothing where there was none.
    """
    match teacher:
        case SklearnTeacher():
            tried: Any = teacher
        case ModuleTeacher():
            _, together = teacher._where()
            tried = replace(teacher, recipe=replace(teacher.recipe, steps=1), device="cpu", stacked=together)
        case _:
            return ""
    X, y = _made_up(row_shape, dtype, n_classes)
    try:
        tried.predict(tried.fit([(X, y)], ids=[0], n_classes=n_classes, seed=0), X[:1])
        return ""
    except TerrineError:
        raise
    except Exception as error:  # scikit-learn's InvalidParameterError is a TypeError
        kind, words = type(error), " ".join(str(error).split())[:_LETTERS].rstrip(".")
    if issubclass(kind, TypeError):
        raise InputError(f"Expected a teacher that can learn, got settings with which it cannot: {words}.")
    return f"; on {len(X)} made-up rows: {kind.__name__}: {words}"


def _made_up(shape: tuple[int, ...], dtype: DTypeLike, n_classes: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """A few rows of every class, always the same."""
    rng = np.random.default_rng(0)
    y = np.arange(n_classes * min(_EACH, max(1, _ROWS // n_classes)), dtype=np.int64) % n_classes
    kind = np.dtype(dtype).kind
    X = rng.random((len(y), *shape)) if kind == "f" else rng.integers(2 if kind == "b" else 10, size=(len(y), *shape))
    return X.astype(dtype), y
