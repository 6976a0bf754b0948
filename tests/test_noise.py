"""The sampler: its law and scale, its lattice, its room, and who may stand in for it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from terrine.errors import InputError
from terrine.noise import LATTICE_BITS, UNIT, SecureNoise, SeededNoise, as_noise, require_room, to_lattice

SAMPLERS = [SecureNoise(), SeededNoise(7)]
LAWS = [("gaussian", "sigma", stats.norm, 100_000), ("laplace", "scale", stats.laplace, 200_000)]


def run(program: str) -> str:
    """What a fresh interpreter prints."""
    arguments = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout


def draw(noise, law: str, n: int, size: float) -> np.ndarray:
    return noise.gaussian((n,), sigma=size) if law == "gaussian" else noise.laplace((n,), scale=size)


@pytest.mark.parametrize("noise", SAMPLERS, ids=repr)
@pytest.mark.parametrize(("law", "parameter", "reference", "n"), LAWS, ids=lambda x: x if isinstance(x, str) else "")
def test_the_raw_noise_has_its_law_and_scale(noise, law, parameter, reference, n):
    """Kolmogorov-Smirnov: p > 1e-12 at the true scale, and less where the noise is a tenth too small or too large."""
    votes = draw(noise, law, n, 7.0) / UNIT
    assert stats.kstest(votes, reference(scale=7.0).cdf).pvalue > 1e-12
    for wrong in (0.9, 1.1):
        assert stats.kstest(votes * wrong, reference(scale=7.0).cdf).pvalue < 1e-12


@pytest.mark.parametrize("noise", SAMPLERS, ids=repr)
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_draws_are_int64_and_use_the_lowest_bits(noise, law):
    steps = draw(noise, law, 4096, 40.0)
    assert steps.dtype == np.int64
    low = np.bincount(steps & 7, minlength=8)
    assert stats.chisquare(low).pvalue > 1e-12
    assert stats.chisquare(np.bincount((2 * steps) & 7, minlength=8) + 1).pvalue < 1e-12  # a coarser lattice fails
    assert np.unique(steps).size == steps.size


@pytest.mark.parametrize("noise", SAMPLERS, ids=repr)
def test_shapes_and_bad_scales(noise):
    assert noise.gaussian((2, 3, 4), sigma=1.0).shape == (2, 3, 4)
    assert noise.laplace((5,), scale=1.0).shape == (5,)
    assert noise.gaussian((0, 4), sigma=1.0).shape == (0, 4)
    for bad in (0, -1.0, float("nan"), float("inf"), True, "40"):
        with pytest.raises(InputError, match="sigma must"):
            noise.gaussian((1,), sigma=bad)
        with pytest.raises(InputError, match="scale must"):
            noise.laplace((1,), scale=bad)


@pytest.mark.parametrize("noise", SAMPLERS, ids=repr)
def test_below_is_uniform(noise):
    drawn = [noise.below(5) for _ in range(5000)]
    assert all(type(d) is int for d in drawn)
    assert stats.chisquare(np.bincount(drawn, minlength=5)).pvalue > 1e-12
    assert set(drawn) == set(range(5))


def test_draws_of_one_call_and_of_two_are_independent():
    first, second = SecureNoise().gaussian((2, 5000), sigma=10.0) / UNIT
    third = SecureNoise().gaussian((5000,), sigma=10.0) / UNIT
    for a, b in ((first, second), (first, third), (first[1:], first[:-1])):
        assert stats.pearsonr(a, b).pvalue > 1e-12


def test_a_forked_process_draws_other_noise():
    program = """
        import os
        from terrine.noise import SecureNoise
        SecureNoise().gaussian((3,), sigma=10.0)  # warm: what a fork would copy
        child = os.fork() == 0
        print(SecureNoise().gaussian((3,), sigma=10.0).tolist(), flush=True)
        if not child:
            os.wait()
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    parent, child = result.stdout.splitlines()
    assert parent != child


def test_a_seed_fixes_the_draws_and_the_secure_sampler_has_none():
    for law in ("gaussian", "laplace"):
        same = [draw(SeededNoise(3), law, 50, 10.0) for _ in range(2)]
        np.testing.assert_array_equal(*same)
        assert (draw(SeededNoise(4), law, 50, 10.0) != same[0]).any()
        assert (draw(SecureNoise(), law, 50, 10.0) != draw(SecureNoise(), law, 50, 10.0)).all()


@given(st.integers(-(2**51), 2**51))
def test_to_lattice_keeps_lattice_points_and_whole_votes(steps):
    assert to_lattice(steps / UNIT) == steps
    votes = steps % 2**22
    assert to_lattice(float(votes)) == votes * UNIT
    assert to_lattice(float(votes)).dtype == np.int64


@given(st.floats(-2000, 2000), st.integers(0, 1000))
def test_to_lattice_rounds_to_nearest_and_alike_at_every_whole_shift(votes, shift):
    assert abs(to_lattice(votes) / UNIT - votes) <= 0.5 / UNIT
    exact = int(votes * UNIT) / UNIT
    assert to_lattice(exact + shift) - to_lattice(exact) == shift * UNIT


def test_halves_round_up_whether_odd_or_even():
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5]) / UNIT
    assert to_lattice(halves).tolist() == [1, 2, 3, 0, -1]


def test_room_is_refused_from_public_numbers_before_an_int64_overflows():
    assert LATTICE_BITS == 40
    largest = 2**22 - 64 * 10 - 1
    require_room(largest_count=largest, scale=10.0)
    require_room(largest_count=-largest, scale=10.0)
    assert (largest + 64 * 10) * UNIT < 2**62
    for too_large in (largest + 1, -largest - 1, float("inf")):
        with pytest.raises(InputError, match=r"64 x noise scale must be below 4194304 votes, got"):
            require_room(largest_count=too_large, scale=10.0)
    with pytest.raises(InputError, match="got 4194304"):
        require_room(largest_count=0, scale=2**16)
    require_room(largest_count=0, scale=1e-6)
    with pytest.raises(InputError, match="Noise must be at least 1e-06 votes, got 9e-07"):
        require_room(largest_count=0, scale=9e-7)


def test_as_noise_takes_what_it_knows_and_nothing_else():
    assert isinstance(as_noise(None), SecureNoise)
    for noise in SAMPLERS:
        assert as_noise(noise) is noise
    wrapped = as_noise(np.random.default_rng(5))
    assert isinstance(wrapped, SeededNoise)
    np.testing.assert_array_equal(wrapped.gaussian((9,), sigma=1.0), SeededNoise(5).gaussian((9,), sigma=1.0))
    assert (as_noise(None).secure, wrapped.secure, SeededNoise(0).secure) == (True, False, False)
    assert (repr(SecureNoise()), repr(wrapped)) == ("SecureNoise()", "SeededNoise(insecure)")
    for other in (0, 7, "secure", np.random.RandomState(0), np.random, SecureNoise, object()):
        with pytest.raises(InputError, match=r"rng must be SecureNoise\(\).*, got "):
            as_noise(other)


def test_without_opendp_it_says_what_to_install_and_seeded_noise_still_works():
    program = """
        import sys
        sys.modules["opendp"] = None
        import terrine
        votes = terrine.Votes([[9, 1]], n_teachers=10)
        assert not terrine.answer(terrine.GNMax(sigma=1.0), votes, rng=terrine.SeededNoise(0)).secure
        try:
            terrine.answer(terrine.GNMax(sigma=1.0), votes, rng=None)
        except terrine.TerrineError as error:
            print(type(error).__name__, error, error.__cause__, sep="|")
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    kind, message, cause = result.stdout.strip().split("|")
    assert kind == "MissingDependencyError"
    assert message == "Secure noise needs opendp, which is not installed. Install it with: pip install opendp"
    assert cause == "None"


def test_secure_noise_and_kept_models_import_no_more_than_they_need():
    """OpenDP's prelude would bring scikit-learn and Polars, skops PyTorch: seconds of every program."""
    program = """
        import sys
        import terrine
        assert terrine.answer(terrine.GNMax(sigma=1.0), terrine.Votes([[9, 1]], n_teachers=10), rng=None).secure
        assert not {"sklearn", "polars", "pandas", "torch"} & set(sys.modules)
        from sklearn.tree import DecisionTreeClassifier
        from terrine._models import dump_estimators, load_estimators
        [tree] = load_estimators(dump_estimators([DecisionTreeClassifier().fit([[0], [1]], [0, 1])]))
        assert tree.predict([[1]]) == [1]
        assert not [name for name in sys.modules if name.startswith("torch")]
        assert None not in [sys.modules[name] for name in list(sys.modules) if name.startswith("sklearn")]
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
