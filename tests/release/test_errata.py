"""docs/math.md, Erratum 10: what the paper's proofs say of smooth sensitivity, and what is true."""

from __future__ import annotations

import numpy as np
import pytest

from terrine.accounting import theorems
from terrine.errors import InputError
from terrine.release.smooth import paper_profile

SIGMA, ORDER, CLASSES = 40.0, 14.0, 10


def test_above_q0_the_local_sensitivity_falls() -> None:
    """Proposition 14, last bullet, has it non-decreasing."""
    log_q0 = theorems.log_q0(sigma=SIGMA, order=ORDER)
    log_q = np.linspace(log_q0, -0.05, 300)[1:]
    below = theorems.log_lower(log_q, sigma=SIGMA, n_classes=CLASSES)
    steps = ORDER / SIGMA**2 - theorems.rdp_gnmax(below, sigma=SIGMA, orders=ORDER)[:, 0]
    assert (np.diff(steps) <= 1e-15).all()
    assert steps[0] > 1e-4 > steps[-1] == 0
    profile = paper_profile(sigma=SIGMA, order=ORDER, n_classes=CLASSES, n_teachers=250)
    assert (np.diff(np.exp(profile.at(log_q))) <= 1e-12).all()


def test_a_histogram_that_dominates_has_the_smaller_q() -> None:
    """Lemma 18 concludes the opposite: (10, 4, 0) has every prefix sum of gaps at least that of (10, 5, 0)."""
    gaps = np.cumsum([[0, 6, 10], [0, 5, 10]], axis=1)
    assert (gaps[0] >= gaps[1]).all()
    more, less = np.exp(theorems.log_q_gaussian([[10, 4, 0], [10, 5, 0]], sigma=2.0))
    assert (round(more, 3), round(less, 3)) == (0.017, 0.039)


def test_local_sensitivity_is_no_probability() -> None:
    """Theorem 20's proof compares it with q1 and q0: above q0 it is below q1, which would be the wrong case."""
    profile = paper_profile(sigma=SIGMA, order=ORDER, n_classes=CLASSES, n_teachers=250)
    log_q = profile.fall + 0.01
    assert np.exp(profile.at(np.array([log_q])))[0] < np.exp(profile.rise)
    assert log_q > profile.fall > profile.rise


def test_the_condition_on_q0_is_checked() -> None:
    """B_U(q0) < 1: with a vote of noise one move takes q from q0 to 1."""
    log_q0 = theorems.log_q0(sigma=1.0, order=1.5)
    assert theorems.log_upper(log_q0, sigma=1.0, n_classes=10)[0] == 0
    with pytest.raises(InputError, match=r"Condition B_U\(q0\) < 1 does not hold .*, or more noise\."):
        paper_profile(sigma=1.0, order=1.5, n_classes=10, n_teachers=250)
    paper_profile(sigma=40.0, order=1.5, n_classes=10, n_teachers=250)
