"""One voice for bad arguments: ``sigma must be above 0, got -1.0.``"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine.errors import InputError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

JsonObject = dict[str, Any]  # what a frozen dataclass's to_json gives
T = TypeVar("T")


def number(name: str, value: Any) -> float:
    """A finite real number; booleans and strings are refused."""
    if isinstance(value, (bool, np.bool_, str, bytes)):
        raise InputError(f"{name} must be a number, got {value!r}.")
    try:
        result = float(value)
    except OverflowError:
        raise InputError(f"{name} must be finite, got a number too large for a float.") from None
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {type(value).__name__}.") from None
    if not math.isfinite(result):
        raise InputError(f"{name} must be finite, got {result}.")
    return result


def positive(name: str, value: Any) -> float:
    result = number(name, value)
    if result <= 0:
        raise InputError(f"{name} must be above 0, got {result}.")
    return result


def between(name: str, value: Any, low: float, high: float) -> float:
    """A number strictly between two others."""
    result = number(name, value)
    if not low < result < high:
        raise InputError(f"{name} must be above {low:g} and below {high:g}, got {result}.")
    return result


def integer(name: str, value: Any, *, at_least: int) -> int:
    if type(value) is int and at_least <= value < 2**53:
        return value  # as nearly all are
    result = number(name, value)
    if result != int(result) or result < at_least:
        raise InputError(f"{name} must be a whole number of at least {at_least}, got {value}.")
    return int(value)


def orders(values: ArrayLike) -> NDArray[np.float64]:
    """Rényi orders as a one-dimensional float array, each above 1."""
    try:
        result = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError("orders must be a list of numbers.") from None
    if result.ndim != 1 or result.size == 0:
        raise InputError(f"orders must be a list of at least one number, got shape {result.shape}.")
    bad = ~(np.isfinite(result) & (result > 1))
    if bad.any():
        raise InputError(f"Every order must be finite and above 1, got {result[bad][0]}.")
    return result


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}.")
    return str(value)


def other_schema(arrays: Mapping[str, NDArray[Any]], schema: str) -> str:
    """The schema of a file of arrays, "" if it is the right one. What is not text may be private and is not shown."""
    found = arrays.get("schema", np.zeros(0))
    if found.ndim or found.dtype.kind != "U":
        return "no readable schema"
    return "" if str(found) == schema else repr(str(found)[:40])


def from_json(kind: type[T], value: object) -> T:
    """A frozen dataclass from JSON values, each of its field's type; fields that it does not know are left out."""
    from pydantic import ValidationError

    try:
        adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]  # every class is hashable
        return adapter.validate_json(json.dumps(value, allow_nan=False), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where, why = ".".join(map(str, first["loc"])), first["msg"].lower()
    except (TypeError, ValueError):
        where, why = "", "values that JSON can hold are expected"
    raise InputError(f"{kind.__name__}: {where + ': ' if where else ''}{why}.")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
