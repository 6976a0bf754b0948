"""What clients send, as arrays: JSON or .npy, never pickle. Every fault is one line.

Parsing takes memory in proportion to the body, whatever is in it: shapes are known beforehand, a body of another shape
is refused before anything is built from it, and numbers go into the array a block at a time.
"""

from __future__ import annotations

import io
import math
import re
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from terrine.errors import InputError
from terrine.labeller import Question
from terrine.schema.checking import Unread
from terrine.service.encoder_files import EncoderFiles

NPY = "application/x-npy"
FIELDS = ("request_id", "rows", "student_proba")
SMALL = 1 << 14  # bytes: a JSON body up to this may become Python objects at once
TABLE = 1 << 20  # bytes of JSON with rows of a table, which become Python objects at once
_BLOCK = 1 << 16  # bytes of JSON that become Python objects, and numbers that are checked, at a time
_HEADER = 4096  # bytes of a .npy header
_TEXT = 4096  # bytes of a name or an id in JSON
_SIZES = (1, 2, 4, 8)
_CELLS = (str, int, float, bool, type(None))

_SPACE = re.compile(rb"[ \t\r\n]*+")
_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\.)*+"')
_ARRAY = re.compile(rb"\[[][0-9eE+.,\- \t\r\ntrufals]*+")  # whatever may stand in an array of numbers, true and false
_NUMBERS = b"0123456789eE+-. \t\r\ntrufals"
# Rows as objects. Inside a string the quotes would have a backslash before them.
_OBJECTS = re.compile(rb'"rows"[ \t\r\n]*+:[ \t\r\n]*+\[[ \t\r\n]*+\{')
_FLAT = bytes.maketrans(b"[]", b"  ")


class BodyError(InputError):
    """A body that cannot be read at all; rows that do not fit are an InputError."""


@dataclass(frozen=True)
class RowFormat:
    """What teachers take: public.

    Attributes:
        shape: of one row.
        dtype: that rows are given in; one that loses nothing may be sent instead.
        encoder: what makes such rows of a table's; None where they are of none.
    """

    shape: tuple[int, ...]
    dtype: str
    encoder: EncoderFiles | None = field(default=None, compare=False, repr=False)

    @property
    def advice(self) -> str:
        """What else may be sent."""
        if self.encoder is None:
            return ""
        return (
            " Rows of a table may be sent as JSON objects by column name, or made numbers by GET /v1/encoder, as "
            "RemoteLabeller makes them of a table."
        )

    def table(self, body: bytes) -> bool:
        """Whether a body has rows of a table, and these may be sent."""
        return self.encoder is not None and _OBJECTS.search(body) is not None

    def check(self, shape: tuple[Any, ...], *, at_most: int) -> None:
        """Refuse an array of another shape than rows have."""
        if shape[1:] != self.shape or len(shape) != len(self.shape) + 1:
            raise InputError(f"rows must be an array of shape (n, *{self.shape}), got {_shown(shape)}.{self.advice}")
        if not 1 <= shape[0] <= at_most:
            raise InputError(f"rows must hold 1 to {at_most} rows, got {shape[0]}.")

    def rows(self, sent: NDArray[Any], *, at_most: int) -> NDArray[Any]:
        """The rows in the teachers' dtype, so that the same values are the same query however they were sent."""
        self.check(sent.shape, at_most=at_most)
        return self.cast(sent)

    def cast(self, sent: NDArray[Any]) -> NDArray[Any]:
        """Numbers in the teachers' dtype, or a refusal."""
        if sent.size <= _BLOCK:
            return self._cast(sent)
        taken = np.empty(sent.shape, dtype=self.dtype)
        step = max(_BLOCK * len(sent) // sent.size, 1)
        for start in range(0, len(sent), step):
            taken[start : start + step] = self._cast(sent[start : start + step])
        return taken

    def _cast(self, sent: NDArray[Any]) -> NDArray[Any]:
        dtype = np.dtype(self.dtype)
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                taken = sent.astype(dtype)
            may_overflow = sent.dtype.kind == "f" or dtype.itemsize < 4
            if may_overflow and not np.isfinite(taken).all():
                if sent.dtype.kind == "f" and not np.isfinite(sent).all():
                    raise InputError("rows must be finite numbers, got nan or inf.")
                raise InputError(f"rows must be numbers that fit {dtype.name}; one is too large.")
            return taken
        if sent.dtype.kind == "f" and not np.isfinite(sent).all():
            raise InputError("rows must be finite numbers, got nan or inf.")
        with np.errstate(all="ignore"):
            taken = sent.astype(dtype)
        if not np.array_equal(taken, sent):
            raise InputError(f"rows must be whole numbers that fit {dtype.name}; one does not.{_pixels(sent, dtype)}")
        return taken


@dataclass(frozen=True, eq=False)
class TableQuestion(Question):
    """With what could not be read, where the rows are those of a table."""

    told: tuple[Unread, ...] = ()


def read_json(body: bytes, format: RowFormat, *, at_most: int, n_classes: int) -> Question:
    """{"request_id": ..., "rows": [[...], ...]}, and "student_proba" where a student is asked along.

    Where the owner's rows are a table, a row may be an object: cells by column name.

    Args:
        at_most: rows.
        n_classes: of each row of student_proba.
    """
    scores = RowFormat(shape=(n_classes,), dtype="float64")
    table = format.table(body)
    if table and len(body) > TABLE:
        raise InputError(f"A request may have {TABLE} bytes of a table's rows in JSON; send fewer rows.")
    if table or len(body) <= SMALL:
        value = _object(body)
        encoded = _encoded(value["rows"], format, at_most=at_most) if table else None
        rows, told = encoded or (_nested("rows", value["rows"], format, at_most=at_most), [])
        proba = value.get("student_proba")
        given = None if proba is None else _nested("student_proba", proba, scores, at_most=at_most)
        return TableQuestion(rows, value.get("request_id", ""), given, told=tuple(told))
    spans = _spans(body)
    _names(spans)
    request_id: Any = _text(body, *spans["request_id"]) if "request_id" in spans else None
    rows = _array("rows", body, spans["rows"], format, at_most=at_most)
    given = None
    if "student_proba" in spans and body[slice(*spans["student_proba"])] != b"null":
        given = _array("student_proba", body, spans["student_proba"], scores, at_most=at_most)
    return Question(rows, request_id, given)


def read_npy(body: bytes, format: RowFormat, *, at_most: int, request_id: Any) -> Question:
    """The rows as numpy.save writes them; the id is in the address."""
    file = io.BytesIO(body[: _HEADER + 16])
    try:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = read(file, max_header_size=_HEADER)
        start = file.tell()
    except Exception:  # numpy raises many types for damaged headers
        raise BodyError("The body's header cannot be read. Send an array as numpy.save writes it.") from None
    if dtype.kind not in "biuf" or dtype.itemsize not in _SIZES or dtype.subdtype is not None:
        raise InputError("rows must be numbers of at most 64 bits: floats, whole numbers or true and false.")
    if any(type(size) is not int or size < 0 for size in shape):  # bool is a kind of int
        raise BodyError("The shape in the header must be whole numbers of at least 0.")
    if math.prod(shape) * dtype.itemsize != len(body) - start:
        raise BodyError("The body must hold exactly the numbers that the shape in its header says.")
    format.check(shape, at_most=at_most)  # from here on its sizes are the teachers', and small
    sent = np.frombuffer(body, dtype=dtype, offset=start).reshape(shape, order="F" if fortran else "C")
    return Question(format.cast(sent), request_id)


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise BodyError(f"The body is not JSON: {str(error)[:200]}.") from None
    if not isinstance(value, dict):
        raise BodyError("The body must be a JSON object.")
    _names(value)
    return value


def _names(found: dict[str, Any]) -> None:
    for name in found:
        if name not in FIELDS:
            raise InputError(f"Unknown field {name[:40]!r}. The fields are request_id, rows and student_proba.")
    if "rows" not in found:
        raise InputError("rows is missing.")


def _nested(name: str, value: Any, format: RowFormat, *, at_most: int) -> NDArray[Any]:
    """An array from lists of a known shape; anything else is refused before numpy sees it."""
    if type(value) is not list:
        raise InputError(f"{name} must be a list of rows.")
    shape = (len(value), *format.shape)
    for size in format.shape:
        if not all(type(one) is list and len(one) == size for one in value):
            raise _misshapen(name, format)
        value = list(chain.from_iterable(value))
    if not 1 <= shape[0] <= at_most:
        raise InputError(f"{name} must hold 1 to {at_most} rows, got {shape[0]}.")
    return _numbers(name, value, format).reshape(shape)


def _encoded(value: Any, format: RowFormat, *, at_most: int) -> tuple[NDArray[Any], list[Unread]] | None:
    """Rows of a table as numbers, and what of them could not be read; None where they are none."""
    if format.encoder is None or type(value) is not list or not value or type(value[0]) is not dict:
        return None
    if len(value) > at_most:
        raise InputError(f"rows must hold 1 to {at_most} rows, got {len(value)}.")
    for k, row in enumerate(value, start=1):
        for name, cell in row.items() if type(row) is dict else ():
            if type(cell) not in _CELLS or (type(cell) is int and abs(cell) >= 1 << 63):
                raise InputError(
                    f"rows: row {k}, column {name[:60]!r}: a cell must be text, a number of at most 64 bits, true, "
                    "false or null."
                )
    numbers, told = format.encoder.read(value, role="rows")
    return format.rows(numbers, at_most=at_most), told


def _numbers(name: str, values: list[Any], format: RowFormat) -> NDArray[Any]:
    if not {*map(type, values)} <= {int, float, bool}:
        raise InputError(f"{name} must be numbers.")
    try:
        found = np.array(values)
    except OverflowError:
        found = np.array(None)
    if found.dtype.kind not in "biuf":
        raise InputError(f"{name} must be numbers that fit in 64 bits; one is too large.")
    return format.cast(found)


def _spans(body: bytes) -> dict[str, tuple[int, int]]:
    """Where the values of a JSON object of strings and arrays of numbers stand."""
    found: dict[str, tuple[int, int]] = {}
    at = _after(body, 0, b"{")
    while True:
        name = _text(body, at, _string_end(body, at))
        at = _after(body, _string_end(body, at), b":")
        if name in found:
            raise BodyError(f"The body has the field {name[:40]!r} twice.")
        array = _ARRAY.match(body, at)
        if array is not None:
            end = at + len(array[0].rstrip(b", \t\r\n"))
        elif body[at : at + 4] == b"null":
            end = at + 4
        elif body[at : at + 1] != b'"' and name in FIELDS:
            raise InputError(f"{name} must be {'text' if name == 'request_id' else 'a list of rows'}.")
        else:
            end = _string_end(body, at)
        found[name] = (at, end)
        at = _SPACE.match(body, end).end()  # type: ignore[union-attr]
        if body[at : at + 1] == b"}" and not body[at + 1 :].strip(b" \t\r\n"):
            return found
        if array is not None and body[at : at + 1] in (b'"', b"n", b"{") and body[end - 1 : end] != b"]":
            raise InputError(f"{name} must be numbers; byte {at} of the body is not one.")
        at = _after(body, at, b",")


def _after(body: bytes, at: int, mark: bytes) -> int:
    """Where the next token begins after this one."""
    at = _SPACE.match(body, at).end()  # type: ignore[union-attr]
    if body[at : at + 1] != mark:
        raise BodyError(
            f"The body must be a JSON object of request_id and numbers: byte {at} should be {mark.decode()!r}."
        )
    return _SPACE.match(body, at + 1).end()  # type: ignore[union-attr]


def _string_end(body: bytes, at: int) -> int:
    found = _STRING.match(body, at, at + _TEXT)
    if found is None:
        raise BodyError(f"The body must be a JSON object of request_id and numbers: byte {at} cannot be read.")
    return found.end()


def _text(body: bytes, start: int, end: int) -> Any:
    try:
        return from_json(body[start:end]) if end - start <= _TEXT else None
    except ValueError:
        raise BodyError(f"The body is not JSON: the text at byte {start} cannot be read.") from None


def _array(name: str, body: bytes, span: tuple[int, int], format: RowFormat, *, at_most: int) -> NDArray[Any]:
    """Numbers between brackets. Their brackets and commas are known from the shape, and are compared as bytes."""
    start, end = span
    row = b"0"
    for size in reversed(format.shape):
        row = b"[" + b",".join([row] * size) + b"]"
    one = row.replace(b"0", b"")
    marks = body[start:end].translate(None, _NUMBERS)
    n_rows, rest = divmod(len(marks) - 1, len(one) + 1)
    if rest or n_rows < 1 or n_rows > at_most:
        if marks[:1] == b"[" and not rest and n_rows > at_most:
            raise InputError(f"{name} must hold 1 to {at_most} rows, got more.")
        raise _misshapen(name, format)
    if marks != b"[" + (one + b",") * (n_rows - 1) + one + b"]" or body[end - 1 : end] != b"]":
        raise _misshapen(name, format)
    del marks
    found = np.empty(n_rows * math.prod(format.shape), dtype=format.dtype)
    done, at = 0, start + 1
    while at < end - 1:
        cut = end - 1 if end - 1 - at <= _BLOCK else body.rfind(b",", at, at + _BLOCK)
        if cut < 0:
            raise InputError(f"{name} must be numbers of at most {_BLOCK} digits.")
        try:
            values = from_json(b"[" + body[at:cut].translate(_FLAT) + b"]", allow_inf_nan=False)
        except ValueError:
            raise BodyError(f"The body is not JSON: {name} cannot be read between byte {at} and {cut}.") from None
        if done + len(values) > len(found):
            raise _misshapen(name, format)
        found[done : done + len(values)] = _numbers(name, values, format)
        done, at = done + len(values), cut + 1
    if done != len(found):
        raise _misshapen(name, format)
    return found.reshape(n_rows, *format.shape)


def _pixels(sent: NDArray[Any], dtype: np.dtype[Any]) -> str:
    """Where bytes are wanted and shares were sent, as of pixels: how to make the ones of the others."""
    if dtype != np.uint8 or sent.dtype.kind != "f" or not ((sent >= 0) & (sent <= 1)).all():
        return ""
    return ' Pixels from 0 to 1 become such in Python by (x * 255).round().astype("uint8").'


def _misshapen(name: str, format: RowFormat) -> InputError:
    return InputError(f"{name} must be rows of numbers, each of shape {format.shape}.{format.advice}")


def _shown(shape: tuple[Any, ...]) -> str:
    """A shape in a message, however long it is."""
    return f"an array of shape {shape}" if len(shape) <= 8 and all(size < 1 << 40 for size in shape) else "another"
