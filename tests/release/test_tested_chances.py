"""The table of chances: it ends whatever it is asked for, and Theorem 13's conditions hold for what it says."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.soak import amount

from terrine.errors import InputError
from terrine.release.tested_chances import LIKELY, ONE, chances

# Rounding alone raised the first chance, and steps of 0 went on for ever; each breaks a hypothesis as well
ENDLESS = [
    {
        "budget": 3.78763499388668e-09,
        "cap": 2.2350731078062027e-09,
        "order": 41.292608383766954,
        "first": 0.006737006000910032,
    },
    {
        "budget": 1.7327289379290047e-05,
        "cap": 1.4516001460734282e-05,
        "order": 1.0622751906090948,
        "first": 0.007477878556302388,
    },
    {
        "budget": 0.001029632611866022,
        "cap": 0.0009055254030930593,
        "order": 1.021817676135405,
        "first": 0.028422628646228607,
    },
]


@contextmanager
def seconds(n: float) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"more than {n} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, n)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def conditions(table: tuple[int, ...], *, budget: float, cap: float, order: float, first: float) -> bool:
    """Every hypothesis of Theorem 13, in 60 digits; the last chance holds for all that follow."""
    with mpmath.workdps(60):
        p = [mpmath.mpf(one) / ONE for one in table]
        p += [p[-1]] * 2
        lam, most = mpmath.mpf(order), (mpmath.mpf(order) - 1) * budget

        def moment(j: int, k: int) -> mpmath.mpf:
            told = p[j] ** lam * p[k] ** (1 - lam) * mpmath.exp((lam - 1) * cap)
            return mpmath.log((1 - p[j]) ** lam * (1 - p[k]) ** (1 - lam) + told)

        pairs = [(j, k) for j in range(1, len(p)) for k in (j - 1, j, j + 1) if k < len(p)]
        return bool(
            p[0] <= first
            and p == sorted(p)
            and p[-1] <= LIKELY
            and -mpmath.log(1 - p[1]) <= budget
            and all(moment(j, k) <= most for j, k in pairs)
        )


def powers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


@settings(max_examples=amount(60, soak=3000))
@given(
    budget=powers(-12, 9),
    share=st.one_of(st.floats(0, 1), powers(-12, 0).map(lambda x: 1 - x)),
    order=powers(-9, 9).map(lambda x: 1 + x),
    first=powers(-20, 0),
    longest=st.integers(0, 60),
)
def test_a_table_ends_and_keeps_every_condition_or_is_refused(
    budget: float, share: float, order: float, first: float, longest: int
) -> None:
    with seconds(5):
        try:
            table = chances(budget=budget, cap=share * budget, order=order, first=first, longest=longest)
        except InputError:
            return
    assert len(table) <= longest + 1
    assert conditions(table, budget=budget, cap=share * budget, order=order, first=first)


@pytest.mark.parametrize("given", ENDLESS)
def test_what_went_on_for_ever_is_refused(given: dict[str, float]) -> None:
    with seconds(5), pytest.raises(InputError, match="Test and answers need a budget"):
        chances(**given, longest=200)


def test_a_table_for_any_number_of_teachers_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny budget wants tiny steps: the table stops early, and its last chance holds for all that follow."""
    monkeypatch.setattr("terrine.release.tested_chances.LONGEST", 400)
    given = {"budget": 1e-9, "cap": 0.5e-9, "order": 30.0, "first": 1e-11}
    with seconds(5):
        table = chances(**given, longest=10**9)
    assert len(table) == 401
    assert table[-1] < LIKELY / 2 * ONE
    assert conditions(table, **given)


HYPOTHESES = {
    "the cap below the budget": {"cap": 0.7},
    "a cap": {"cap": -0.1},
    "the first chance at distance 1": {"budget": 0.01, "cap": 0.005, "first": 0.1},
    "an order": {"order": 1.0},
    "a budget": {"budget": 0.0},
    "numbers": {"budget": float("nan")},
    "a chance": {"first": 1.0},
    "finite": {"order": 1e300, "budget": 1e300},
}


@pytest.mark.parametrize("name", HYPOTHESES)
def test_a_hypothesis_that_does_not_hold_is_refused(name: str) -> None:
    good = {"budget": 0.7, "cap": 0.5, "order": 14.0, "first": 1e-6, "longest": 30}
    assert conditions(chances(**good), **{key: good[key] for key in ("budget", "cap", "order", "first")})
    with pytest.raises(InputError):
        chances(**good | HYPOTHESES[name])
