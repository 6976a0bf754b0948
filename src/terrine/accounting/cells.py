"""What one answer or one check can be, as cells of positions, each with a bound that holds at all of its positions.

An answer's pair of laws depends on two numbers, a check's on one (`argmax.py`). Over a cell the laws are close to a
mixture of those at its corners, so that for a convex profile the expectation of one more answer is at most the largest
at a corner plus what the difference can do: [TERRINE, Lemma 14]. Everything here is public, and a choice of cells can
only cost tightness.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from terrine.accounting.argmax import log_outcomes

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Guide:
    """A convex profile by which cells are made as small as needed, and no smaller.

    Attributes:
        value, slope: of the profile, by α.
        at: (n_points,) α at which it is looked at.
        excess: (n_points,) how much more than at the best corner a cell may cost there, relative.
        floor: what a cell may cost in any case.
    """

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    at: Array
    excess: Array
    floor: float


PRECISION = 2e-11  # relative, of log_outcomes and log_ndtr; Arb confirms it in tests/accounting/test_cells_certified.py
FAR = 8.5  # beyond it a noisy count is on one side but for a chance of 1e-17, which is charged
DEEP = 4.0  # beyond it, both counts above all others, the others win with a chance of at most 1e-9
_SQRT2 = math.sqrt(2)
_SQRT3 = math.sqrt(3)


@dataclass(frozen=True, eq=False)
class Cells:
    """Corners and terms of cells that together hold every pair of laws that one answer can be.

    Attributes:
        p: (n_cells, 4, 3) probabilities before the move, by corner and outcome, rounded up.
        log_ratio: (n_cells, 4, 3) of the probabilities after to those before, rounded down.
        ends: (n_cells, 6) the smallest and largest log-ratio of each outcome in the cell.
        mass, moved: (n_cells, 6) what a cell adds to its corners: at every end r, mass·D(r) + moved·G(r), where the
            laws inside are no mixture of those at the corners. [TERRINE, Lemma 14]
    """

    p: Array
    log_ratio: Array
    ends: Array
    mass: Array
    moved: Array


@dataclass(frozen=True, eq=False)
class _Rough:
    """Cells that are still to be halved; arrays end in an axis of cells.

    Attributes:
        box: (4, n) low and high of the first position, then of the second.
        log_p, log_r: (n_corners, n_outcomes, n).
        mass, moved: (2, n_outcomes, n), by position: how far the laws are from a mixture of the corners'.
        low, high: (n_outcomes, n), of log-ratios anywhere in the cell.
    """

    box: Array
    log_p: Array
    log_r: Array
    mass: Array
    moved: Array
    low: Array
    high: Array

    def pick(self, which: NDArray[np.bool_]) -> _Rough:
        return _Rough(**{name: values[..., which] for name, values in vars(self).items()})


def _density(t: Array) -> Array:
    result: Array = np.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)
    return result


def _largest(power: int, low: Array, high: Array) -> Array:
    """Of |φ|, |φ'| or |φ''| on an interval, by power 0, 1, 2: at an end or where the next derivative is 0."""
    times: tuple[Callable[[Array], Array | float], ...] = (lambda t: 1.0, lambda t: t, lambda t: 1 - t * t)

    def of(t: Array) -> Array:
        return times[power](t) * _density(t)

    best = np.maximum(abs(of(low)), abs(of(high)))
    for at in ((0.0,), (-1.0, 1.0), (-_SQRT3, 0.0, _SQRT3))[power]:
        best = np.where((low < at) & (at < high), np.maximum(best, abs(of(np.array(at)))), best)
    return best


def _curvatures(box: Array) -> Array:
    """(3, 4, n) bounds on |p_uu|, |p_vv|, |p_vuu|, |p_vvv| of the outcomes a, b and another, over boxes (u, v).

    The counts are x = u + v and y = u − v above the largest other one. By the closed forms of the first derivatives,
    p_u = φ(x)Φ(−y) for a, and p_v = 2ψ + φ(x)Φ(−y) with ψ = φ(√2 v)Φ(√2 u)/√2, and the triangle inequality.
    """
    u0, u1, v0, v1 = box
    x0, x1, y0, y1 = u0 + v0, u1 + v1, u0 - v1, u1 - v0
    x_most, y_most = np.maximum(abs(x0), abs(x1)), np.maximum(abs(y0), abs(y1))
    a0, a1, b0, b1 = _SQRT2 * u0, _SQRT2 * u1, _SQRT2 * v0, _SQRT2 * v1
    both = _largest(0, a0, a1) * _largest(0, b0, b1)  # φ(x)φ(y)
    flow = ndtr(a1) / _SQRT2
    first = 2 * _SQRT2 * _largest(1, b0, b1) * flow  # 4|v|ψ
    second = 4 * _largest(2, b0, b1) * flow  # |8v² − 4|ψ
    xs, ys = _largest(1, x0, x1) * ndtr(-y0), _largest(1, y0, y1) * ndtr(-x0)
    xss, yss = _largest(2, x0, x1) * ndtr(-y0), _largest(2, y0, y1) * ndtr(-x0)
    return np.array(
        [
            (xs + both, first + xs + both, xss + y_most * both, second + xss + (y_most + 2 * x_most) * both),
            (ys + both, first + ys + both, yss + x_most * both, second + yss + (x_most + 2 * y_most) * both),
            (
                xs + ys + 2 * both,
                xs + ys + 2 * both,
                xss + yss + (x_most + y_most) * both,
                xss + yss + 3 * (x_most + y_most) * both,
            ),
        ]
    )


def _log_p(u: Array, v: Array) -> Array:
    return np.stack(log_outcomes(u + v, u - v))


def _plane(box: Array, shift: float) -> _Rough:
    """Cells of the plane: four corners, three outcomes."""
    u0, u1, v0, v1 = box
    squares = np.stack([(u1 - u0) ** 2, (v1 - v0) ** 2])[:, None] / 8  # of linear interpolation's error
    near = _curvatures(box)[:, :2].swapaxes(0, 1)
    swept = _curvatures(np.stack([u0, u1, v0 - shift, v1]))[:, 2:].swapaxes(0, 1)
    u = (u0 + u1) / 2
    # The Hessian of log p is between -I and 0 (a Gaussian's mass of a convex set): log r rises with v, and moves by at
    # most shift with u.
    spread = shift * (u1 - u0) / 2 + 4 * PRECISION
    corners = [(a, b) for a in (u0, u1) for b in (v0, v1)]
    log_p = np.stack([_log_p(a, b) for a, b in corners])
    after = np.stack([_log_p(a, b - shift) for a, b in corners])
    return _Rough(
        box=box,
        log_p=log_p,
        log_r=after - log_p,
        mass=squares * near,
        moved=squares * swept * shift,
        low=_log_p(u, v0 - shift) - _log_p(u, v0) - spread,
        high=_log_p(u, v1 - shift) - _log_p(u, v1) + spread,
    )


def _line(box: Array, shift: float) -> _Rough:
    """Cells of one position t: passed with chance Φ(t), after the move Φ(t − shift)."""
    t0, t1 = box[:2]
    square = (t1 - t0) ** 2 / 8
    ends = np.stack([t0, t1])
    log_p = np.stack([log_ndtr(ends), log_ndtr(-ends)], axis=1)
    log_r = np.stack([log_ndtr(ends - shift), log_ndtr(shift - ends)], axis=1) - log_p
    none = np.zeros((2, len(t0)))
    return _Rough(
        box=box,
        log_p=log_p,
        log_r=log_r,
        mass=np.stack([np.broadcast_to(square * _largest(1, t0, t1), (2, len(t0))), none]),
        moved=np.stack([np.broadcast_to(square * shift * _largest(2, t0 - shift, t1), (2, len(t0))), none]),
        low=log_r.min(axis=0) - 4 * PRECISION,  # Φ is log-concave: the ratios are monotone in t
        high=log_r.max(axis=0) + 4 * PRECISION,
    )


def _deep(box: Array, shift: float) -> _Rough:
    """Cells of v with u anywhere from DEEP on: nearly two classes, and a third with a tiny chance."""
    v0, v1 = box[:2]
    line = _line(np.stack([_SQRT2 * v0, _SQRT2 * v1, *box[2:]]), _SQRT2 * shift)
    # Φ(−x)Φ(−y) decreases in u and in |v|
    least = np.where((v0 - shift < 0) & (v1 > 0), 0.0, np.minimum(abs(v0 - shift), abs(v1)))
    third = ndtr(-DEEP - least) * ndtr(-DEEP + least) * (1 + 1e-9)
    rare = np.exp(np.minimum(line.log_p, line.log_p + line.log_r).min(axis=(0, 1)))
    blurred = -2 * np.log1p(-np.minimum(third / rare, 0.5))  # the quotient is below 1e-6 where |v| <= 5.5
    # log r of the third: a difference of two hazards, whose slope is below 1
    steep = shift * (2 * np.maximum(abs(v0), abs(v1)) + 2 * shift)
    extra = np.broadcast_to(third, (2, 1, len(v0)))
    nothing = np.zeros((1, len(v0)))
    return _Rough(
        box=box,
        log_p=np.concatenate([line.log_p, np.full_like(line.log_p[:, :1], -np.inf)], axis=1),
        log_r=np.concatenate([line.log_r, np.zeros_like(line.log_r[:, :1])], axis=1),
        mass=np.concatenate([line.mass + np.stack([nothing, nothing + third]), extra * [[[0.0]], [[1.0]]]], axis=1),
        moved=np.concatenate(
            [line.moved + np.stack([nothing, nothing + 2 * third]), extra * [[[0.0]], [[1.0]]]], axis=1
        ),
        low=np.concatenate([line.low - blurred, -steep[None]]),
        high=np.concatenate([line.high + blurred, steep[None]]),
    )


_Family = tuple[Callable[[Array, float], _Rough], Array, float]


def winner_cells(shift: float, guides: list[Guide]) -> Cells:
    """One answer of GNMax with noise 1/shift: any votes, any move, both directions. [TERRINE, Thm. 15]

    What is left out, with a chance of `left_out`, must be charged beside it.
    """
    families: list[_Family] = [
        (_plane, np.array([[-FAR, DEEP, -FAR, FAR]]).T, shift),
        (_deep, np.array([[DEEP - FAR, FAR - DEEP + shift, 0.0, 0.0]]).T, shift),
        # One of the two counts far below (a check of one count), or one far above (two classes, no others)
        (_line, np.array([[-FAR, FAR + shift, 0.0, 0.0]]).T, shift),
        (_line, np.array([[-2 * FAR, -6.0, 0.0, 0.0], [6.0, 2 * FAR, 0.0, 0.0]]).T, _SQRT2 * shift),
    ]
    return _refined(families, guides)


def check_cells(shift: float, guides: list[Guide]) -> Cells:
    """One threshold check with noise 1/shift, at any score, both directions. [TERRINE, Thm. 15]"""
    return _refined([(_line, np.array([[-FAR, FAR + shift, 0.0, 0.0]]).T, shift)], guides)


def pair_cell(p: tuple[float, float], q: tuple[float, float]) -> Cells:
    """One pair of laws on two outcomes; with its mirror image the family is closed under swapping."""
    before, after = np.array([p, q, p, q]), np.array([q, p, q, p])
    none = np.zeros((1, 6))
    return Cells(
        p=_padded(before[None], 0.0) * (1 + PRECISION),
        log_ratio=_padded(np.log(after / before)[None], 0.0) - 2 * PRECISION,
        ends=none,
        mass=none,
        moved=none,
    )


def left_out(shift: float) -> float:
    """The chance that positions beyond FAR, two at most, are not what their limits say; before or after the move."""
    return 2 * float(ndtr(shift - FAR)) * (1 + 1e-9)


def _refined(families: list[_Family], guides: list[Guide]) -> Cells:
    """Halve cells until each costs little more than the best corner of all, by each of the guides."""
    made, boxes, shift = families[0]
    start = _lattice(boxes)
    best = [_gains(made(start, shift), guide)[0].max(axis=0) for guide in guides]
    done: list[Cells] = []
    waiting = [(k, made(boxes, shift)) for k, (made, boxes, shift) in enumerate(families)]
    for depth in range(_DEEPEST + 1):
        found = [(k, rough, [_gains(rough, guide) for guide in guides]) for k, rough in waiting]
        for _, _, gains in found:
            best = [np.maximum(b, corner.max(axis=0)) for b, (corner, _) in zip(best, gains, strict=True)]
        waiting = []
        for k, rough, gains in found:
            over, first = np.zeros((2, rough.box.shape[1]), dtype=bool)
            for guide, most, (corner, terms) in zip(guides, best, gains, strict=True):
                allowed = most * (1 + guide.excess) + guide.floor
                over |= (corner + terms.sum(axis=0) > allowed).any(axis=1)
                first |= (terms[0] / allowed).max(axis=1) > (terms[1] / allowed).max(axis=1)
            over &= depth < _DEEPEST
            done.append(_cells(rough.pick(~over)))
            if over.any():
                made, _, shift = families[k]
                waiting.append((k, made(_halved(rough.box[:, over], first[over] | (made is not _plane)), shift)))
    return Cells(**{name: np.concatenate([getattr(some, name) for some in done]) for name in vars(done[0])})


_DEEPEST = 40


def _lattice(boxes: Array) -> Array:
    """Small boxes around the middle, where the best corner is, to begin with."""
    at = np.linspace(-1.5, 1.5, 13)
    u, v = (values.ravel() for values in np.meshgrid(np.linspace(-1.0, DEEP - 0.5, 19), at))
    box = np.stack([u - 0.01, u + 0.01, v - 0.01, v + 0.01])
    return box if boxes[2:].any() else np.stack([at - 0.01, at + 0.01, 0 * at, 0 * at])


def _halved(box: Array, first: NDArray[np.bool_]) -> Array:
    low, high = box.copy(), box.copy()
    a, b = (box[0] + box[1]) / 2, (box[2] + box[3]) / 2
    low[1], high[0] = np.where(first, a, box[1]), np.where(first, a, box[0])
    low[3], high[2] = np.where(first, box[3], b), np.where(first, box[2], b)
    return np.concatenate([low, high], axis=1)


def _gains(rough: _Rough, guide: Guide) -> tuple[Array, Array]:
    """What a cell adds to a profile: (n, n_points) at its best corner, and (2, n, n_points) beyond, by position."""
    g, slope, at = guide.value, guide.slope, guide.at
    here, steep = g(at), slope(at)
    ratio = np.exp(rough.log_r)[..., None] * at
    corner = (np.exp(rough.log_p)[..., None] * (g(ratio) - here - steep * (ratio - at))).sum(axis=1).max(axis=0)
    terms = np.zeros((2, *corner.shape))
    for log_r, inside in ((rough.low, rough.low < 0), (rough.high, rough.high > 0)):
        where = np.exp(log_r)[..., None] * at
        bend = np.maximum(here - g(where) - slope(where) * (at - where), 0.0) * inside[..., None]
        turn = abs(slope(where) - steep) * at * inside[..., None]
        terms += (rough.mass[..., None] * bend + rough.moved[..., None] * turn).sum(axis=1)
    return corner, terms


def _cells(rough: _Rough) -> Cells:
    two = 2 * len(rough.low)
    inside = np.stack([rough.low < 0, rough.high > 0], axis=1).reshape(two, -1).T
    ends = np.stack([rough.low, rough.high], axis=1).reshape(two, -1).T
    mass, moved = (np.repeat(values.sum(axis=0), 2, axis=0).T * inside for values in (rough.mass, rough.moved))
    six = [np.pad(values, ((0, 0), (0, 6 - values.shape[1]))) for values in (ends * inside, mass, moved)]
    return Cells(
        p=_padded(np.exp(rough.log_p).transpose(2, 0, 1) * (1 + PRECISION), 0.0),
        log_ratio=_padded(rough.log_r.transpose(2, 0, 1) - 2 * PRECISION, 0.0),
        ends=six[0],
        mass=six[1],
        moved=six[2],
    )


def _padded(values: Array, empty: float) -> Array:
    """To four corners, by repeating them, and three outcomes."""
    values = np.repeat(values, 4 // values.shape[1], axis=1)
    return np.pad(values, ((0, 0), (0, 0), (0, 3 - values.shape[2])), constant_values=empty)
