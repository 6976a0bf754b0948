"""What a probe measured of itself, where noise is a large part of it."""

from __future__ import annotations

import numpy as np

from terrine.measured import Measured


def drawn(sizes: np.ndarray, noise: float, seed: int) -> Measured:
    rng = np.random.default_rng(seed)
    right, wrong = (part * sizes + noise * rng.standard_normal(len(sizes)) for part in (0.9, 0.1))
    return Measured(
        right=float(right.sum()),
        wrong=float(wrong.sum()),
        right_by_class=tuple(right.tolist()),
        wrong_by_class=tuple(wrong.tolist()),
        noise=noise,
    )


def test_the_commonest_of_many_classes_is_not_made_by_the_noise() -> None:
    told = [drawn(np.full(10, 92.0), 40.0, seed).shares for seed in range(200)]
    assert abs(np.mean([max(one) for one in told if one is not None]) - 0.1) < 0.03  # 0.19 without the rule
    uneven = np.array([600.0, *[60.0] * 9])
    told = [drawn(uneven, 40.0, seed).shares for seed in range(200)]
    assert (
        abs(np.mean([max(one) for one in told if one is not None]) - 600 / 1140) < 0.06
    )  # drawn toward the others a little


def test_two_classes_and_little_noise_stay_as_they_are() -> None:
    shares = drawn(np.array([300.0, 700.0]), 0.0, 0).shares
    assert shares is not None
    assert np.allclose(shares, (0.3, 0.7))
    shares = drawn(np.array([5.0, 15.0, 30.0, 50.0]) * 1000, 1.0, 0).shares
    assert shares is not None
    assert np.allclose(shares, (0.05, 0.15, 0.3, 0.5), atol=1e-3)
    flat = drawn(np.full(4, 1000.0), 0.0, 0).shares
    assert flat == (0.25,) * 4
