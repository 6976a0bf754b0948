"""What clients send, as arrays: JSON or .npy, never pickle. Whatever is wrong with it is said in one line."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from terrine.errors import InputError

NPY = "application/x-npy"
_HEADER = 4096  # bytes of a .npy header
_SIZES = (1, 2, 4, 8)


class BodyError(InputError):
    """A body that cannot be read at all, as against rows that do not fit."""


@dataclass(frozen=True, eq=False)
class Asked:
    """What a request asks: public."""

    request_id: Any
    rows: NDArray[Any]
    student_proba: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class RowFormat:
    """What teachers take: public.

    Attributes:
        shape: of one row.
        dtype: that rows are given in; one that loses nothing may be sent instead.
    """

    shape: tuple[int, ...]
    dtype: str

    def rows(self, sent: NDArray[Any], *, at_most: int) -> NDArray[Any]:
        """The rows in the teachers' dtype, so that the same values are the same query however they were sent."""
        if sent.ndim != len(self.shape) + 1 or sent.shape[1:] != self.shape:
            raise InputError(f"Expected rows of shape {self.shape}, got an array of shape {sent.shape}.")
        if not 1 <= len(sent) <= at_most:
            raise InputError(f"Expected 1 to {at_most} rows, got {len(sent)}.")
        if sent.dtype.kind == "f" and not np.isfinite(sent).all():
            raise InputError("Expected finite numbers in rows, got nan or inf.")
        dtype = np.dtype(self.dtype)
        with np.errstate(all="ignore"):
            taken = sent.astype(dtype)
        if dtype.kind == "f":
            if not np.isfinite(taken).all():
                raise InputError(f"Expected numbers that fit {dtype.name} in rows, got larger ones.")
        elif not (taken == sent).all():
            raise InputError(f"Expected whole numbers that fit {dtype.name} in rows, got others.")
        return taken


def read_json(body: bytes) -> Asked:
    """{"request_id": ..., "rows": [[...], ...]}, and "student_proba" where a student is asked along."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise BodyError(f"Expected JSON, got: {str(error)[:200]}.") from None
    if not isinstance(value, dict):
        raise BodyError("Expected a JSON object, got something else.")
    unknown = sorted(set(value) - {"request_id", "rows", "student_proba"})
    if unknown:
        raise InputError(f"Expected request_id, rows and student_proba, got {unknown[0][:40]!r}.")
    if "rows" not in value:
        raise InputError("Expected rows, got none.")
    proba = value.get("student_proba")
    return Asked(
        request_id=value.get("request_id"),
        rows=_numbers("rows", value["rows"]),
        student_proba=None if proba is None else _numbers("student_proba", proba).astype(np.float64),
    )


def read_npy(body: bytes, *, request_id: str | None) -> Asked:
    """The rows as numpy.save writes them; the id is in the address."""
    file = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = read(file, max_header_size=_HEADER)
    except Exception:  # numpy raises many types for damaged headers
        raise BodyError("Expected an array as numpy.save writes it, got something else.") from None
    if dtype.kind not in "biuf" or dtype.itemsize not in _SIZES or dtype.subdtype is not None:
        raise InputError("Expected an array of numbers of at most 64 bits, got another dtype.")
    if any(not isinstance(size, int) or size < 0 for size in shape):
        raise BodyError("Expected an array's shape in the header, got something else.")
    if math.prod(shape) * dtype.itemsize != len(body) - file.tell():  # before any memory is taken for it
        raise BodyError("Expected as many bytes as the array's shape says, got more or fewer.")
    flat = np.frombuffer(body, dtype=dtype, offset=file.tell())
    rows = flat.reshape(shape, order="F" if fortran else "C")
    return Asked(request_id=request_id, rows=rows)


def _numbers(name: str, value: Any) -> NDArray[Any]:
    if not isinstance(value, list):
        raise InputError(f"Expected {name} to be a list of rows, got {type(value).__name__}.")
    try:
        found = np.array(value)
    except (ValueError, OverflowError):
        found = np.array("ragged")
    if found.dtype.kind not in "biuf":
        raise InputError(f"Expected {name} to be rows of numbers, all of one length, got something else.")
    return found
