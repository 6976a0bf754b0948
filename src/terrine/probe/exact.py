"""A unit's clipped gradient in whole numbers: a function of its own rows and the public weights, bit for bit.

Features, weights and residuals are whole numbers, held as float64. Every product and every sum here stays below 2^53,
where floats are whole numbers exactly, so that neither order nor block nor thread nor device can change a result; what
is rounded is rounded element by element, by operations that IEEE 754 defines to the last bit. No exponential is taken
of data: a table of whole numbers stands in for it.

In these numbers a feature's step is 2^-12, a residual's 2^-18, and so a gradient's 2^-30. `docs/math.md`,
[TERRINE, Lemma 20], has the bounds that the constants here keep.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]  # of whole numbers
Ints = NDArray[np.int64]

FEATURE_BITS, RESIDUAL_BITS, WEIGHT_BITS = 12, 18, 16
LATTICE_BITS = FEATURE_BITS + RESIDUAL_BITS
LONGEST = 8.0  # a row's features are shortened to this length; mean length 1 is what they should have
BIAS = 2 ** (FEATURE_BITS - 1)  # the constant feature, 1/2
LARGEST_WEIGHT = 2.0**12
LARGEST_CLIP = 2**31  # of the lattice: its square is an int64
MOST_FEATURES, MOST_CLASSES, MOST_NUMBERS = 2**16 - 1, 2**12, 2**20
MOST_ROWS = 4096  # of a unit that count: its first ones
BLOCK = 4096  # rows, or those of one unit
_ROOM = 2**22  # numbers of whole gradients in memory at once

_CAP = int(LONGEST) ** 2 << (2 * FEATURE_BITS)  # 2^30, the square of the longest
_ONE = 1 << RESIDUAL_BITS  # a probability of 1
_STEP_BITS = 12  # of the table's argument
_FINER = FEATURE_BITS + WEIGHT_BITS - _STEP_BITS  # bits that logits have more
_TABLE_BITS = 30  # of its values
_TABLE = 1 << 17
_LIMB = 15
_GRAM = 32  # rows of a unit up to which pairs of rows are cheaper than the whole gradient


def products_are_exact(multiply: Callable[[Floats, Floats], Floats]) -> bool:
    """Whether a machine's matrix product makes no error of whole numbers at the limits; some emulate float64."""
    rng = np.random.default_rng(0)
    one, other = rng.integers(-(2**15), 2**15, (64, 512)), rng.integers(-(2**28), 2**28, (512, 8))
    found = multiply(one.astype(np.float64), other.astype(np.float64))
    return bool((found == one @ other).all())  # the latter in 64-bit integers


def features(rows: NDArray[np.generic], *, scale: float) -> tuple[Floats, NDArray[np.bool_]]:
    """(n, p + 1) whole numbers with the constant, and which rows are usable; the others are 0.

    A row that is not finite is not usable. One that is too long is shortened, by itself.
    """
    given = np.asarray(rows, dtype=np.float64) * scale
    usable = np.asarray(np.isfinite(given).all(axis=1))
    given[~usable] = 0.0
    np.clip(given, -LONGEST, LONGEST, out=given)
    given *= 1 << FEATURE_BITS
    np.rint(given, out=given)
    squares = np.einsum("ij,ij->i", given, given)
    if (long := squares > _CAP).any():
        shorter = np.sqrt(_CAP / squares[long]) * (1 - 2.0**-40)
        given[long] = np.trunc(given[long] * shorter[:, None])
        usable = np.logical_and(usable, np.einsum("ij,ij->i", given, given) <= _CAP)
    found = np.empty((len(given), given.shape[1] + 1))
    found[:, :-1], found[:, -1] = given, BIAS
    found[~usable] = 0.0
    return found, usable


def units_at_once(n_rows: int, dimension: int, *, block: int) -> int:
    """How many units with ``n_rows`` rows each make a block: memory is bounded, whatever rows units have."""
    most = max(block // n_rows, 1)
    return most if n_rows <= _GRAM else max(min(most, _ROOM // dimension), 1)


def are_whole(weights: Floats) -> bool:
    """Whether weights are as `whole_weights` makes them."""
    limit = LARGEST_WEIGHT * (1 << WEIGHT_BITS)
    return bool((np.abs(weights) <= limit).all() and (weights == np.rint(weights)).all())


def whole_weights(weights: Floats) -> Floats:
    """Public weights as whole numbers; too large ones are cut."""
    cut = np.clip(np.nan_to_num(weights), -LARGEST_WEIGHT, LARGEST_WEIGHT)
    result: Floats = np.rint(cut * (1 << WEIGHT_BITS))
    return result


@cache
def table() -> Ints:
    """Of exp(-i / 4096) in units of 2^-30, by decimals: the same on every machine."""
    bits = 96
    with decimal.localcontext() as context:
        context.prec = 60
        fine, coarse = (
            [int((decimal.Decimal(-i * step) / (1 << _STEP_BITS)).exp() * (1 << bits)) for i in range(n)]
            for n, step in ((512, 1), (_TABLE // 512, 512))
        )
    shift = 2 * bits - _TABLE_BITS
    values = [(one * other + (1 << (shift - 1))) >> shift for one in coarse for other in fine]
    found = np.array(values, dtype=np.int64)
    found.setflags(write=False)
    return found


def residuals(rows: Floats, weights: Floats, labels: Ints, usable: NDArray[np.bool_]) -> Floats:
    """(n, n_classes): probability less label, in units of 2^-18; 0 of rows that are not usable."""
    logits = (rows @ weights).astype(np.int64)  # in units of 2^-28
    behind = logits.max(axis=1, keepdims=True) - logits
    places = (behind + (1 << (_FINER - 1))) >> _FINER
    odds = table()[np.minimum(places, _TABLE - 1)]
    found: Floats = np.rint((odds << RESIDUAL_BITS).astype(np.float64) / odds.sum(axis=1, keepdims=True))
    found[np.arange(len(found)), np.where(usable, labels, 0)] -= _ONE
    found[~usable] = 0.0
    return found


def clipped(rows: Floats, found: Floats, *, clip: int) -> Floats:
    """Residuals of units, so that the sum over a unit's rows of features x residuals has at most length ``clip``.

    That sum is the unit's mean gradient, shortened where it is longer. Its length is computed exactly, before and after
    rounding; what is still too long then, which takes rounding errors that all point one way, is 0.

    Args:
        rows: (n_units, n_rows, p + 1); found: (n_units, n_rows, n_classes).
    """
    n_rows, n_classes = found.shape[1:]
    mean = np.rint(found / n_rows)
    products = _products(rows)
    high, low = _squared_length(rows, mean, products)
    within = _at_most(high, low, clip)
    length = np.sqrt(np.maximum(high, 1) * float(1 << _LIMB) + low)
    # Twice what rounding adds to the length, by far, if its errors are of either sign
    longest = np.sqrt(np.einsum("uij,uij->ui", rows, rows).max(axis=1))
    slack = 2.0 * np.sqrt(float(n_rows * n_classes)) * longest
    shorter = np.maximum(clip - slack, 0.0) / (length * n_rows)
    result: Floats = np.where(within[:, None, None], mean, np.rint(found * shorter[:, None, None]))
    fits = _at_most(*_squared_length(rows, result, products), clip)
    result[~fits] = 0.0
    return result


def _products(rows: Floats) -> Ints | None:
    """Of all pairs of a unit's rows; None for units of many rows."""
    n_rows = rows.shape[1]
    if n_rows > _GRAM:
        return None
    found: Floats = np.einsum("uij,uij->ui", rows, rows)[:, :, None] if n_rows == 1 else rows @ rows.transpose(0, 2, 1)
    return found.astype(np.int64)


def _squared_length(rows: Floats, found: Floats, products: Ints | None) -> tuple[Ints, Ints]:
    """Of each unit's sum of features x residuals, exactly: high x 2^15 + low, 0 <= low < 2^15."""
    if products is not None:  # the sum over pairs of (features . features) x (residuals . residuals)
        others = (found @ found.transpose(0, 2, 1)).astype(np.int64)
        high = ((products >> _LIMB) * others).sum(axis=(1, 2))
        low = ((products & ((1 << _LIMB) - 1)) * others).sum(axis=(1, 2))
    else:
        whole = (rows.transpose(0, 2, 1) @ found).astype(np.int64)
        top, bottom = whole >> 17, whole & ((1 << 17) - 1)
        low = ((top * bottom).sum(axis=(1, 2)) << 18) + (bottom * bottom).sum(axis=(1, 2))
        high = (top * top).sum(axis=(1, 2)) << (34 - _LIMB)
    return high + (low >> _LIMB), low & ((1 << _LIMB) - 1)


def _at_most(high: Ints, low: Ints, clip: int) -> NDArray[np.bool_]:
    top, bottom = clip**2 >> _LIMB, clip**2 & ((1 << _LIMB) - 1)
    result: NDArray[np.bool_] = (high < top) | ((high == top) & (low <= bottom))
    return result
