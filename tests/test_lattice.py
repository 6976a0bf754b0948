"""docs/math.md, "Noise on a lattice": how near discrete noise with uniform tie-breaking is to the continuous law."""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import pytest


def effective_tail(*, sigma: mp.mpf, h: mp.mpf) -> Callable[[mp.mpf], mp.mpf]:
    """c -> Pr[X + U > c], X discrete Gaussian on h·Z, U uniform on (-h/2, h/2)."""
    reach = int(20 * sigma / h)
    weights = {k: mp.exp(-((k * h) ** 2) / (2 * sigma**2)) for k in range(-reach, reach + 1)}
    above, total = {}, mp.mpf(0)
    for k in range(reach, -reach - 1, -1):
        above[k] = total
        total += weights[k]

    def tail(c: mp.mpf) -> mp.mpf:
        cell = int(mp.floor(c / h + mp.mpf(1) / 2))  # the cell of the step density that holds c
        return (above[cell] + weights[cell] * ((cell + mp.mpf(1) / 2) * h - c) / h) / total

    return tail


@pytest.mark.parametrize(("sigma", "h"), [(4, 1 / 8), (10, 1 / 4), (1, 1 / 64)])
def test_both_tails_match_the_gaussian_within_e_to_the_eta(sigma: float, h: float) -> None:
    """Within e^±eta, eta = h²(t²+1)/(4 sigma²), for |c| <= t sigma; and not within a quarter of it everywhere."""
    t = 6
    assert h * (t + 1) <= sigma / 4
    with mp.workdps(40):
        sigma, h = mp.mpf(sigma), mp.mpf(h)
        eta = h**2 * (t**2 + 1) / (4 * sigma**2)
        tail, worst = effective_tail(sigma=sigma, h=h), mp.mpf(0)
        for i in range(-48, 49):
            c = t * sigma * mp.mpf(i) / 48 + h * mp.mpf(i % 5) / 7  # on and off the cells' edges
            if abs(c) <= t * sigma:
                exact = mp.ncdf(-c / sigma)
                worst = max(worst, abs(mp.log(tail(c) / exact)))
        assert worst <= eta
        assert worst >= eta / 4


@pytest.mark.parametrize("ratio", [1 / 8, 1 / 100])
def test_discrete_laplace_tails_are_second_order(ratio: float) -> None:
    """At cell edges the tail of discrete Laplace plus uniform is 1/cosh(h/2b) of the continuous one."""
    with mp.workdps(40):
        x = mp.mpf(ratio)  # h/b
        r = mp.exp(-x)
        for k in range(0, 200, 7):
            discrete = r ** (k + 1) / (1 + r)
            continuous = mp.exp(-(k + mp.mpf(1) / 2) * x) / 2
            assert abs(discrete / continuous * mp.cosh(x / 2) - 1) < mp.mpf(10) ** -35
            assert abs(mp.log(discrete / continuous)) <= x**2 / 8
