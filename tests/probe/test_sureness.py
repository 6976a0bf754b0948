"""A probe is as sure as it measured itself to be right, at no cost and without another prediction."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from terrine.measured import Measured
from terrine.probe import Probe, ProbeSettings
from terrine.probe.sureness import sureness

RNG = np.random.default_rng(0)
PUBLIC = RNG.normal(size=(4000, 3)).astype(np.float32)
WEIGHTS = np.array([[3.0, -3.0], [0.5, -0.5], [0.0, 0.0], [4.0, -4.0]])


def probe(*, right: float | None, of: float = 10_000, noise: float = 5.0) -> Probe:
    settings = ProbeSettings(n_features=3, n_classes=2, scale=1.0, clip=0.2, steps=10)
    measured = None
    if right is not None:
        n = right * of
        measured = Measured(right=n, wrong=of - n, right_by_class=(n, 0.0), wrong_by_class=(0.0, of - n), noise=noise)
    return Probe(weights=WEIGHTS, settings=settings, steps_kept=10, guarantee=None, measured=measured)


@pytest.mark.parametrize("right", [0.7, 0.9, 0.97])
def test_the_mean_largest_probability_is_the_measured_accuracy(right: float) -> None:
    one = probe(right=right)
    factor = sureness(one, PUBLIC)
    before = one.predict_proba(PUBLIC)
    after = softmax(factor * np.log(before), axis=1)
    assert after.max(axis=1).mean() == pytest.approx(right, abs=0.002)
    assert (after.argmax(axis=1) == before.argmax(axis=1)).all()


def test_probabilities_that_are_true_stay_as_they_are() -> None:
    """Labels drawn by the probe's own probabilities: it is right as often as it is sure."""
    proba = probe(right=None).predict_proba(PUBLIC)
    assert sureness(probe(right=float(proba.max(axis=1).mean())), PUBLIC) == pytest.approx(1.0, abs=0.02)


def test_nothing_is_changed_where_little_is_known() -> None:
    assert sureness(probe(right=None), PUBLIC) == 1.0
    assert sureness(probe(right=0.9, of=40, noise=30.0), PUBLIC) == 1.0
    assert sureness(probe(right=0.9), PUBLIC[:0]) == 1.0


def test_odd_weights_end_in_a_number() -> None:
    one = probe(right=0.999)
    flat = Probe(weights=np.zeros((4, 2)), settings=one.settings, steps_kept=10, guarantee=None, measured=one.measured)
    assert 1 / 31 < sureness(flat, PUBLIC) < 31
    huge = Probe(
        weights=1e6 * WEIGHTS, settings=one.settings, steps_kept=10, guarantee=None, measured=probe(right=0.6).measured
    )
    assert 1 / 31 < sureness(huge, PUBLIC) < 31
