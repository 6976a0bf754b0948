"""Releasing f(D) + SS(D)·N(0, sigma²): the corrected theorem against the divergence itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

from terrine.accounting.theorems import rdp_gnss
from terrine.errors import InputError

# (order, beta, sigma) of the paper's Table 2 and the cost by the corrected theorem; as printed it gives .518, .536, ...
GNSS = {
    "mnist": (14, 0.0329, 6.23, 1.607),
    "svhn": (7.5, 0.0533, 4.88, 0.634),
    "adult": (15.5, 0.0310, 7.92, 1.763),
    "glyph": (20.5, 0.0205, 11.9, 0.417),
    "interactive 1": (50, 0.009, 26.4, 0.340),
    "interactive 2": (50, 0.008, 38.7, 0.0875),
}


@pytest.mark.parametrize("name", GNSS)
def test_rdp_gnss_gives_the_corrected_numbers(name: str) -> None:
    order, beta, sigma, expected = GNSS[name]
    got = rdp_gnss(order=order, beta=beta, sigma=sigma)
    assert got == pytest.approx(expected, abs=0.5 * 10.0 ** -len(str(expected).split(".")[1]))


@pytest.mark.parametrize(
    ("order", "beta", "sigma"),
    [
        *(case[:3] for case in GNSS.values()),
        *(
            (order, share / order, sigma)
            for order in (1.5, 10.0)
            for share in (0.05, 0.3, 0.5)
            for sigma in (0.7, 20.0)
        ),
    ],
)
def test_rdp_gnss_is_the_largest_divergence(order: float, beta: float, sigma: float) -> None:
    """N(0, sigma²) against N(d, (r sigma)²), e^-beta <= r <= e^beta, d <= min(1, r), by brute integration.

    Order 1/(2 beta), where the printed theorem has its pole, is among the cases.
    """
    x = np.linspace(-400 * sigma, 400 * sigma, 40_001)
    log_p = -0.5 * (x / sigma) ** 2
    largest = 0.0
    for log_r in np.linspace(-beta, beta, 21):
        width = sigma * math.exp(log_r)
        for share in (0.0, 0.5, 1.0):
            d = share * min(1.0, math.exp(log_r))
            log_q = -0.5 * ((x - d) / width) ** 2 - log_r
            log_f = order * log_p + (1 - order) * log_q
            peak = log_f.max()
            mass = np.exp(log_f - peak).sum() * (x[1] - x[0]) / (sigma * math.sqrt(2 * math.pi))
            largest = max(largest, (peak + math.log(mass)) / (order - 1))
    assert rdp_gnss(order=order, beta=beta, sigma=sigma) == pytest.approx(largest, rel=1e-8)


@pytest.mark.parametrize("order", [1.5, 14.0, 500.0])
def test_at_and_beyond_its_pole_it_is_refused(order: float) -> None:
    pole = -0.5 * math.log1p(-1 / order)  # order (1 - e^(-2 beta)) = 1
    assert math.isfinite(rdp_gnss(order=order, beta=pole * (1 - 1e-9), sigma=5.0))
    for beta in (pole * (1 + 1e-9), 2 * pole, 1000.0):
        with pytest.raises(InputError, match=r"order\*\(1 - exp\(-2 beta\)\) must be below 1, got "):
            rdp_gnss(order=order, beta=beta, sigma=5.0)


def test_with_a_constant_scale_it_is_the_gaussian_mechanism() -> None:
    assert rdp_gnss(order=14, beta=1e-12, sigma=3.0) == pytest.approx(14 / (2 * 3.0**2), rel=1e-9)


@pytest.mark.parametrize("name", ["beta", "sigma"])
@pytest.mark.parametrize("value", [0.0, -1.0])
def test_what_must_be_positive_is_refused_otherwise(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name} must be above 0, got {value}"):
        rdp_gnss(**{"beta": 0.01, "sigma": 5.0, "order": 14.0, name: value})
