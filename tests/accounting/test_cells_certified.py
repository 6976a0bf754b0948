"""What the cells rest on, against Arb and forty digits: the laws, their derivatives, and the range of the ratios."""

import mpmath as mp
import numpy as np
import pytest
from flint import arb
from scipy.special import log_ndtr
from tests.oracles import argmax_arb
from tests.oracles.argmax_arb import ROOT2
from tests.soak import amount

from terrine.accounting.cells import DEEP, FAR, PRECISION, _curvatures, _deep, _line, _log_p, _plane


def law(u, v):
    """The three outcomes at middle u and half difference v, enclosed by Arb (whose own axes are √2 times these)."""
    return argmax_arb._Winner(2.0, ROOT2, arb(1)).law(ROOT2 * arb(v), ROOT2 * arb(u))


def positions(rng, n):
    return zip(rng.uniform(-FAR, DEEP, n), rng.uniform(-FAR - 1, FAR, n), strict=True)


def test_the_laws_are_as_precise_as_is_charged():
    rng = np.random.default_rng(0)
    for u, v in positions(rng, amount(60, soak=2000)):
        ours = np.exp(_log_p(np.array([u]), np.array([v])))[:, 0]
        for mine, true in zip(ours, law(u, v), strict=True):
            assert abs(arb(mine) / true - 1) < PRECISION / 4, (u, v)
    for t in rng.uniform(-2 * FAR, FAR, 50):
        with mp.workdps(40):
            assert abs(mp.mpf(float(log_ndtr(t))) - mp.log(mp.ncdf(mp.mpf(t)))) < PRECISION / 4


def mp_law(u, v):
    x, y = u + v, u - v
    ends = [0, max(x, y, 0) + 2, max(x, y, 0) + 14]
    a, b = (mp.quad(lambda t, i=i, j=j: mp.npdf(t - i) * mp.ncdf(t - j), ends) for i, j in ((x, y), (y, x)))
    return a, b, mp.ncdf(-x) * mp.ncdf(-y)


def test_the_derivatives_stay_below_their_bounds():
    """By differences of forty-digit laws at points of small and large boxes."""
    rng = np.random.default_rng(1)
    step, tightest = mp.mpf(10) ** -6, 0.0
    with mp.workdps(30):
        for _ in range(amount(3, soak=100)):
            u, v = rng.uniform(-2, 3), rng.uniform(-2, 2)
            widths = rng.uniform(0, 0.3, 2)
            box = np.array([[u - widths[0]], [u + widths[0]], [v - widths[1]], [v + widths[1]]])
            bounds = _curvatures(box)[..., 0]
            a, b = (mp.mpf(rng.uniform(low, high)) for low, high in zip(box[::2, 0], box[1::2, 0], strict=True))
            at = {
                (i, j): mp_law(a + i * step, b + j * step)
                for i in (-1, 0, 1)
                for j in (-2, -1, 0, 1, 2)
                if i == 0 or abs(j) < 2
            }
            for k in range(3):
                found = {key: value[k] for key, value in at.items()}
                uu = {j: found[1, j] - 2 * found[0, j] + found[-1, j] for j in (-1, 0, 1)}
                derivatives = (
                    uu[0] / step**2,
                    (found[0, 1] - 2 * found[0, 0] + found[0, -1]) / step**2,
                    (uu[1] - uu[-1]) / (2 * step**3),
                    (found[0, 2] - 2 * found[0, 1] + 2 * found[0, -1] - found[0, -2]) / (2 * step**3),
                )
                for value, bound in zip(derivatives, bounds[k], strict=True):
                    assert abs(value) <= bound * (1 + 1e-6) + 1e-8
                    tightest = max(tightest, float(abs(value) / bound))
    assert tightest > 0.3  # they are bounds, and not far from it


@pytest.mark.parametrize("shift", [0.01, 0.2, 1.0])
def test_ratios_stay_within_their_range(shift):
    rng = np.random.default_rng(2)
    low_u, low_v = rng.uniform(-FAR, DEEP - 2, 400), rng.uniform(-FAR, FAR - 2, 400)
    widths = rng.uniform(0.01, 2.0, (2, 400))
    box = np.stack([low_u, low_u + widths[0], low_v, low_v + widths[1]])
    rough = _plane(box, shift)
    for _ in range(20):
        u, v = low_u + widths[0] * rng.random(400), low_v + widths[1] * rng.random(400)
        log_r = _log_p(u, v - shift) - _log_p(u, v)
        assert (log_r >= rough.low - 1e-9).all()
        assert (log_r <= rough.high + 1e-9).all()


@pytest.mark.parametrize("shift", [0.02, 0.5])
def test_the_laws_are_near_the_mixture_of_their_corners(shift):
    """|p − p̃| and |(q − p) − (q̃ − p̃)| in random cells of the plane, of the deep part and of the line."""
    rng = np.random.default_rng(3)
    n = 300
    width, at = rng.uniform(0.02, 0.8, (2, n)), rng.random((2, n))
    low = np.stack([rng.uniform(-4, DEEP - 1, n), rng.uniform(-4, 4, n)])
    box = np.stack([low[0], low[0] + width[0], low[1], low[1] + width[1]])
    u, v = low + width * at
    weights = np.stack([a * b for a in (1 - at[0], at[0]) for b in (1 - at[1], at[1])])
    _near(_plane(box, shift), weights, np.exp(_log_p(u, v)), np.exp(_log_p(u, v - shift)))
    ends = np.stack([1 - at[1], at[1]])
    line = np.stack([low[1], low[1] + width[1], 0 * u, 0 * u])
    _near(_line(line, shift), ends, *(np.exp([log_ndtr(w), log_ndtr(-w)]) for w in (v, v - shift)))
    beyond = DEEP + rng.exponential(2.0, n)
    _near(_deep(line, shift), ends, np.exp(_log_p(beyond, v)), np.exp(_log_p(beyond, v - shift)))


def _near(rough, weights, p, q):
    corners = np.exp(rough.log_p)
    mixed = np.einsum("cn,cin->in", weights, corners)
    moved = np.einsum("cn,cin->in", weights, corners * np.exp(rough.log_r))
    assert (abs(p - mixed) <= rough.mass.sum(axis=0) + 1e-13).all()
    assert (abs(q - p - moved + mixed) <= rough.moved.sum(axis=0) + 1e-13).all()
    with np.errstate(divide="ignore"):
        log_r = np.log(q) - np.log(p)
    assert (log_r >= rough.low - 1e-9).all()
    assert (log_r <= rough.high + 1e-9).all()
