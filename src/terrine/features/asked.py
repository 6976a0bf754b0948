"""How an encoder of a user's own is asked, row by row, and whether its rows meet where more are given at once.

An encoder's result for a row must not depend on the rows beside it: one private row would otherwise reach the teachers
of others. No trial can show that it never does, so that a row is given alone; where more are given at once, because the
user asks for it, that is tried on public rows, with odd ones among them. Equal rows are encoded once. What an encoder
says, and that it fails on a row, is not heard: that row counts as zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.datasets.rows import Rows, Texts, as_rows, row_digests
from terrine.errors import InputError
from terrine.features.loaders import Loaded
from terrine.sensitive import unheard

_TRIED = 256  # public rows that an encoder is tried on
_TRIED_FIXED = 32  # of an encoder that takes a fixed number of rows, of which each is then given that often
_ALONE = 8  # of them, one by one
_ROUNDING = 2e-3  # of a row's largest number: more is no rounding, even in half precision
_WIDEST = 20_000  # numbers for a row
_ODD = (0.0, 1e30, -1e30, 1e-30, 1e4, np.inf, np.nan)
_ODD_TEXTS = ("", "a", "odd " * 5000, "x" * 20_000, "\x00\n\t", "東京" * 300)


def tried(encoder: Loaded, rows: Rows, *, block: int | None) -> tuple[int, int]:
    """How many rows to give at once, and how many numbers come back; refuses an encoder whose rows meet.

    Public rows are encoded in order, in another order and company, with odd rows beside them, a few alone, and in order
    again. Where no block was asked for and company matters in the last digits, each row is given alone from now on.
    """
    size, fixed = block or encoder.block, encoder.fixed
    most = _TRIED_FIXED if fixed and size == 1 else _TRIED
    some = _distinct(rows[np.linspace(0, len(rows) - 1, min(len(rows), 2 * most)).astype(np.int64)])[0]
    some = some[: max(2, min(most, len(some)))]
    first = _heard(encoder, some[: min(size, len(some))], block=size)
    width = first.shape[1]

    def given(which: NDArray[np.int64], size: int) -> NDArray[np.float32]:
        found = np.empty((len(which), width), dtype=np.float32)
        for start in range(0, len(which), size):
            part = which[start : start + size]
            found[start : start + size] = _heard(encoder, some[part], block=size, width=width)
        return found

    order = np.arange(len(some))
    once = given(order, size)
    if not same(once, given(order, size)):
        raise InputError(
            f"{encoder.name} gives different numbers for the same rows when it is asked again: it is random, or it "
            "keeps something of the rows that it saw. Take out what is random, or fix its seed at every call."
        )
    if size > 1:
        mixed = np.random.default_rng(0).permutation(len(some))
        other = given(mixed, size)[np.argsort(mixed)]
        few = np.linspace(0, len(some) - 1, min(_ALONE, len(some))).astype(np.int64)
        try:
            alone = once[few] if fixed else given(few, 1)
        except InputError:  # it needs others beside it
            alone = np.full((len(few), width), np.inf, dtype=np.float32)
        meet = not (same(once, other) and same(once[few], alone))
        rounds = not meet and not (once == other).all()
        if not meet and not rounds:
            meet = not _same_beside_odd(encoder, some[: size - 1], once[: size - 1], block=size)
        if meet:
            raise InputError(
                f"{encoder.name} gives a row different numbers when other rows stand beside it: one private row would "
                "reach every teacher. Leave block out, so that it sees one row at a time; or give an encoder without "
                "statistics of a batch (a module in eval mode)."
            )
        if rounds and block is not None:
            raise InputError(
                f"{encoder.name} gives a row numbers that differ in the last digits at another place among {size} "
                "rows: one private row would reach every teacher. Leave block out, so that it sees one row at a time."
            )
        size = 1 if rounds else size
    if len(some) > 1 and (once == once[0]).all():
        raise InputError(
            f"{encoder.name} gives the same numbers for all public rows, each by itself: it tells none of them apart."
        )
    return size, width


def _same_beside_odd(encoder: Loaded, some: Rows, known: NDArray[np.float32], *, block: int) -> bool:
    """Whether public rows have the same numbers, bit for bit, with an odd row in front of them or behind."""
    for odd in _odd_like(some):
        for front in (True, False):
            together = _joined(odd, some) if front else _joined(some, odd)
            with unheard():
                found = _attempt(encoder, together, block=block, width=known.shape[1])
            if found is not None and (found[1:] if front else found[:-1]).tobytes() != known.tobytes():
                return False  # where it fails on such a block, each row is given alone
    return True


def _odd_like(rows: Rows) -> list[Rows]:
    """Single rows that nobody expects; of tables there are none."""
    if isinstance(rows, Texts):
        return [as_rows("odd", [text]) for text in _ODD_TEXTS]
    if not isinstance(rows, np.ndarray):
        return []
    if rows.dtype.kind != "f":
        return [np.full_like(rows[:1], value) for value in (0, 1, np.iinfo(rows.dtype).max)]
    whole = [np.full_like(rows[:1], value) for value in _ODD]
    with np.errstate(over="ignore"):
        return [*whole, rows[:1] * rows.dtype.type(1e4)]


def _joined(one: Rows, other: Rows) -> Rows:
    if isinstance(one, Texts) and isinstance(other, Texts):
        return as_rows("rows", [*one.native().tolist(), *other.native().tolist()])
    return np.concatenate([np.asarray(one), np.asarray(other)])


def _heard(encoder: Loaded, rows: Rows, *, block: int, width: int | None = None) -> NDArray[np.float32]:
    """Numbers of public rows; what is wrong with them is said."""
    try:
        found = encoder.apply(_filled(rows, shape := encoder.fixed or block))
    except InputError:
        raise
    except Exception as error:  # whatever it raises, about public rows
        said = " ".join(str(error).split())[:300]
        raise InputError(f"{encoder.name} fails on the public rows ({type(error).__name__}: {said}).") from error
    numbers = _numbers(found, shape)
    if numbers is None:
        got = getattr(found, "shape", None)
        raise InputError(
            f"{encoder.name} must give an array (rows, numbers), a row for each of {shape} given, got "
            f"{type(found).__name__ if got is None else f'shape {tuple(got)}'}."
        )
    if width is not None and numbers.shape[1] != width:
        raise InputError(f"{encoder.name} must give {width} numbers for every row, got {numbers.shape[1]}.")
    if numbers.shape[1] > _WIDEST:
        raise InputError(
            f"{encoder.name} gives {numbers.shape[1]:,} numbers for a row, and at most {_WIDEST:,} are taken. Follow "
            "it by one that reduces them, such as TruncatedSVD."
        )
    if not np.isfinite(numbers).all():
        raise InputError(f"{encoder.name} gives nan or inf for a public row.")
    return numbers[: len(rows)]


def encoded(encoder: Loaded, rows: Rows, *, block: int, width: int) -> NDArray[np.float32]:
    """(n, width): equal rows are encoded once; a row that the encoder fails on counts as zeros."""
    some, place = _distinct(rows)
    found = np.zeros((len(some), width), dtype=np.float32)
    for start in range(0, len(some), block):
        part = some[start : start + block]
        numbers = _attempt(encoder, part, block=block, width=width)
        if numbers is None:  # one of them is odd: each is alone, in a block of its own
            each = [_attempt(encoder, part[k : k + 1], block=block, width=width) for k in range(len(part))]
            numbers = np.concatenate([np.zeros((1, width), np.float32) if one is None else one for one in each])
        found[start : start + len(part)] = numbers
    found[~np.isfinite(found).all(axis=1)] = 0
    return found[place]


def _attempt(encoder: Loaded, rows: Rows, *, block: int, width: int) -> NDArray[np.float32] | None:
    shape = encoder.fixed or block
    try:
        numbers = _numbers(encoder.apply(_filled(rows, shape)), shape)
    except KeyboardInterrupt:
        raise
    except BaseException:  # an odd row: what of, is not said; a panic of a library in Rust is no Exception
        return None
    return None if numbers is None or numbers.shape[1] != width else numbers[: len(rows)]


def _filled(rows: Rows, block: int) -> Rows:
    """Always ``block`` rows: the first of them again and again behind the last."""
    which = np.zeros(block, dtype=np.int64)
    which[: len(rows)] = np.arange(len(rows))
    filled = rows[which]
    return filled + 0 if isinstance(filled, np.ndarray) and filled.dtype.kind == "f" else filled  # one zero


def _numbers(found: Any, n: int) -> NDArray[np.float32] | None:
    """(n, width) float32; None if it is anything else."""
    if hasattr(found, "detach"):
        found = found.detach().cpu().float().numpy()
    if hasattr(found, "toarray"):
        found = found.toarray()
    numbers = np.asarray(found)
    if numbers.ndim < 2 or len(numbers) != n or numbers.dtype.kind not in "biuf" or not numbers.size:
        return None
    with np.errstate(all="ignore"):
        return numbers.reshape(n, -1).astype(np.float32)


def _distinct(rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
    """Different rows, in the order of their first, and which of them each row is."""
    seen: dict[bytes, int] = {}
    first: list[int] = []
    place = np.empty(len(rows), dtype=np.int64)
    for k, digest in enumerate(row_digests(rows)):
        if digest not in seen:
            seen[digest] = len(first)
            first.append(k)
        place[k] = seen[digest]
    return (rows if len(first) == len(rows) else rows[np.array(first)]), place


def same(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Whether numbers differ by rounding at most."""
    largest = np.abs(one).max(axis=1, keepdims=True)
    return bool((np.abs(one - other) <= _ROUNDING * largest + 1e-6).all())
