"""Labels of any hashable type: text, numbers, truth values, dates, tuples; a class list of one kind."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine.errors import InputError
from terrine.schema.cells import choices
from terrine.schema.tables import as_text

_PLAIN = ("text", "number", "truth value")  # numpy holds lists of these as arrays


def named_classes(classes: Sequence[Any]) -> tuple[tuple[str, ...], NDArray[Any]]:
    """Names to vote by, and the labels themselves, (n_classes,)."""
    given = list(classes)
    kinds = {_kind(value) for value in given}
    different = len({_key(value) for value in given})
    if len(given) < 2 or different != len(given):
        raise InputError(
            f"classes must be at least 2 labels, all different, got {len(given)} with {different} different ones."
        )
    if len(kinds) > 1:
        raise InputError("classes must all be of one type: all text, all numbers, and so on.")
    if kinds <= set(_PLAIN):
        values = np.asarray(given)
        names = tuple(str(value) for value in values.tolist())
    else:
        values = _objects(given)
        names = tuple(map(str, given))
    if len(set(names)) != len(names):
        raise InputError("classes must be different labels when written as text, and two of them are alike.")
    return names, values


def known_indices(y: ArrayLike, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Class indices of labels; one that is missing, or not among the classes, is -1: nothing in a cell is refused.

    A label is known by its value, or else by how it is written, as in a file: 1.0 is the class "1".
    """
    if y is None:
        raise InputError(
            "PATEClassifier requires y to be passed, but the target y is None: give one label for each row of X (None "
            "where a row has none)."
        )
    given: Any = y.to_pylist() if hasattr(y, "to_pylist") else y if isinstance(y, Iterable) else np.asarray(y)
    if len(getattr(given, "shape", (0,))) != 1:
        given = np.asarray(given, dtype=object)
        if given.ndim != 2 or given.shape[1] != 1:
            raise InputError("y must hold one label per row, and is a table of several columns.")
        given = given[:, 0]
    _check_type(given, classes)
    each = list(given)
    places = {_key(value): k for k, value in enumerate(classes.tolist())}
    written = as_text(each)
    found = choices(written, as_text(classes.tolist()).tolist(), ())
    known = np.where(found.known & (written != ""), found.values, -1).astype(np.int64)
    for row, value in enumerate(each):
        try:
            known[row] = places.get(_key(value), known[row])
        except Exception:  # whatever a label's own hash raises says something of it
            continue
    return known


def _check_type(given: Any, classes: NDArray[Any]) -> None:
    """Refuse an array of numbers where no class is one: an array's type is no cell's."""
    dtype = getattr(given, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "iufc" and not any(map(_is_number, classes.tolist())):
        raise InputError(f"y holds numbers ({dtype}), and no class is one. Give labels as `classes` has them.")


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    held = np.empty(len(values), dtype=object)
    for k, value in enumerate(values):  # one by one: numpy would make a table of tuples
        held[k] = value
    return held


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bool, np.bool_)):
        return "truth value"
    if isinstance(value, (int, float, np.integer, np.floating)):
        return "number"
    if isinstance(value, (datetime.date, np.datetime64)):
        return "date"
    return type(value).__name__


def _key(value: Any) -> Any:
    """What two labels are compared by: 1 is not True, and a date is one whatever library holds it."""
    kind = _kind(value)
    if kind == "tuple":
        return kind, tuple(_key(one) for one in value)
    if kind == "date" and getattr(value, "tzinfo", None) is None:
        value = np.datetime64(value, "us").item()
    try:
        hash(value)
    except TypeError:
        raise InputError(f"classes must be hashable, such as text or numbers, got {kind}.") from None
    return kind, value
