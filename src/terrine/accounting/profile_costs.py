"""Mechanism and numbers of queries and answers -> the worst case by privacy profiles. Public.

Computed once and kept: the profile of a number of answers under some noise is the same for everyone, and takes seconds
to minutes. It is kept in the folder TERRINE_CACHE (default: terrine in the user's cache folder).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from terrine import _validate
from terrine._files import write_atomically
from terrine.accounting.cells import Cells, Guide, check_cells, left_out, pair_cell, winner_cells
from terrine.accounting.costs import budget_curve
from terrine.accounting.curves import Guarantee, delta_notes, guarantee
from terrine.accounting.profile import PrivacyProfile, composed, product_epsilon
from terrine.mechanisms import ConfidentGNMax, GNMax, LNMax, Mechanism
from terrine.relations import Relation

Array = NDArray[np.float64]
_Key = dict[str, str | int]

# Who is told how far a profile is: set by a program with a person in front of it
WATCHER: ContextVar[Callable[[float], object] | None] = ContextVar("terrine_profile_watcher", default=None)
VERSION = 2  # of what is kept: a change of cells or recursion is a new number
LEAST_NOISE = 1.0  # votes: with less, and so with epsilons that mean little, Rényi bounds have to do
LEAST_STEPS, MOST_STEPS = 8, 20_000  # answers or checks: fewer gain nothing, more would take hours
LARGEST_EPSILON = 12.0  # by Rényi bounds: beyond, a few percent less would not be worth minutes
_LARGEST_REACH = 40.0
_EXCESS = 0.01  # a cell may cost this much more than the best position
_FINE = 12  # points of the grid in one standard deviation of one answer's privacy loss
_FEW = 100  # answers: fewer are not yet like a Gaussian
_WINNER, _CHECK = 1.132, 0.799  # that deviation, times the noise: the square roots of 2·0.64 and of 2/π


CountAccountant = Literal["profile", "renyi"]


def count_guarantee(
    mechanism: Mechanism,
    *,
    n_queries: int,
    n_answers: int | None = None,
    delta: float,
    accountant: CountAccountant = "profile",
    n_records: int | None = None,
) -> Guarantee:
    """What at most n_queries checks and n_answers answers, fixed beforehand, cost at worst: public.

    Args:
        accountant: "profile", the smaller of the Rényi bound and the privacy profile's; or "renyi" alone.
        n_records: where given, a delta that is not below 1/n_records draws a warning.
    """
    _validate.choice("accountant", accountant, ("profile", "renyi"))
    curve = budget_curve(mechanism, n_queries=n_queries, n_answered=n_answers, delta=delta)
    answers = "" if n_answers is None else f" and {n_answers} answers"
    fixed = f"for at most {n_queries} queries{answers} fixed beforehand: it does not depend on the votes"
    if accountant == "profile" and curve.epsilon(delta=delta) < LARGEST_EPSILON:
        answered = n_queries if n_answers is None else n_answers
        epsilon = profile_epsilon(mechanism, n_queries=n_queries, n_answers=answered, delta=delta)
        if epsilon < curve.epsilon(delta=delta):
            return Guarantee(
                epsilon=epsilon,
                delta=delta,
                order=None,
                basis=f"worst case over all votes, privacy profile, {fixed}",
                relation=Relation.ONE_TEACHER,
                notes=delta_notes(delta=delta, n_records=n_records),
            )
    return guarantee(curve.renamed(f"{curve.basis}, {fixed}"), delta=delta, n_records=n_records)


@lru_cache(maxsize=1024)
def profile_epsilon(mechanism: Mechanism, *, n_queries: int, n_answers: int, delta: float) -> float:
    """Epsilon at delta of at most n_queries checks and n_answers answers, whatever the votes are; rounded up.

    Both numbers must be fixed beforehand. inf where the recursion is not made for the numbers. [TERRINE, Thm. 16]
    """
    parts = []
    match mechanism:
        case LNMax(scale=scale):
            parts = [("pure", 2 / scale, n_queries)]
        case GNMax(sigma=sigma):
            parts = [("winner", 1 / sigma, n_queries)]
        case ConfidentGNMax(sigma_check=sigma_check, sigma_vote=sigma_vote):
            parts = [("check", 1 / sigma_check, n_queries), ("winner", 1 / sigma_vote, n_answers)]
    found = [profile(kind, shift, n, delta) for kind, shift, n in parts]
    if any(one is None for one in found):
        return math.inf
    one, *others = (part for part in found if part is not None)
    # What a lattice in place of real numbers adds is far less than these margins (docs/math.md, "Noise on a lattice").
    return product_epsilon(one, others[0] if others else None, delta=delta * (1 - 1e-6)) * (1 + 1e-9)


def about_epsilon(mechanism: GNMax | ConfidentGNMax, *, n_queries: int, n_answers: int, delta: float) -> float:
    """`profile_epsilon` to about a percent, at once: that of a Gaussian as spread out. For searches; no bound."""
    if isinstance(mechanism, GNMax):
        spread = n_queries * (_WINNER / mechanism.sigma) ** 2
    else:
        check, vote = _CHECK / mechanism.sigma_check, _WINNER / mechanism.sigma_vote
        spread = n_queries * check**2 + n_answers * vote**2
    return (1.006 + 0.95 / max(n_answers, 1)) * _gaussian_epsilon(math.sqrt(spread), delta)  # seen from 10 to 1,000


@lru_cache(maxsize=256)
def profile(kind: str, shift: float, n: int, delta: float) -> PrivacyProfile | None:
    """Of n answers ("winner"), checks ("check") or Laplace maxima ("pure"); None where it would take too long.

    Args:
        shift: one over the noise, in votes; the pure epsilon of a Laplace maximum.
        delta: of the guarantee that it is for; the grid reaches a thousandth of it.
    """
    if not LEAST_STEPS <= n <= MOST_STEPS or shift > 1 / LEAST_NOISE:
        return None
    deviation = shift * {"winner": _WINNER, "check": _CHECK, "pure": 1.0}[kind]
    reach = _gaussian_epsilon(deviation * math.sqrt(n) * 1.03, delta * 1e-3)
    if reach > _LARGEST_REACH:
        return None
    step = deviation / _FINE
    key: _Key = {"version": VERSION, "kind": kind, "shift": shift.hex(), "n": n, "delta": delta.hex()}
    if (kept := _kept(key, step)) is not None:
        return kept
    cells = _cells(kind, shift, deviation, n, delta)
    charged = 0.0 if kind == "pure" else left_out(shift)
    found = composed(
        cells, n, step=step, n_points=math.ceil(reach / step) + 1, left_out=charged, progress=WATCHER.get()
    )
    _keep(key, found)
    return found


def _cells(kind: str, shift: float, deviation: float, n: int, delta: float) -> Cells:
    if kind == "pure":
        likely = 1 / (1 + math.exp(-shift))
        return pair_cell((likely, 1 - likely), (1 - likely, likely))
    guides = [
        _guide(deviation * math.sqrt(n), max(share, 1 / n), n=n, delta=delta)
        for share in ((0.35, 1.0) if n <= _FEW else (0.1, 0.35, 1.0))
    ]
    return winner_cells(shift, guides) if kind == "winner" else check_cells(shift, guides)


def _guide(mu: float, share: float, *, n: int, delta: float) -> Guide:
    """The profile when a share of the answers is left, as a Gaussian's, where it matters for epsilon at delta.

    Of many answers that is around the share of that epsilon: what is far from it is reached with a small chance, and
    may cost more.
    """
    value, slope = gaussian_profile(mu * math.sqrt(share))
    if n <= _FEW:
        epsilons = np.linspace(0.0, _gaussian_epsilon(mu * math.sqrt(share), 1e-2 * delta), 16)
        excess = np.full(16, _EXCESS)
    else:
        middle = share * _gaussian_epsilon(mu, delta)
        spread = mu * math.sqrt(share * (1 - share) + 0.01)
        epsilons = np.linspace(max(middle - 3 * spread, 0.0), middle + 3 * spread, 16)
        excess = _EXCESS * np.exp(0.4 * ((epsilons - middle) / spread) ** 2)
    return Guide(value, slope, np.exp(epsilons), excess, floor=1e-3 * delta / n)


def gaussian_profile(mu: float) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """The profile of a Gaussian whose mean moves by mu deviations, and its slope. [DRS22, Cor. 2.13]"""

    def value(alpha: Array) -> Array:
        epsilon = np.log(alpha)
        result: Array = ndtr(mu / 2 - epsilon / mu) - alpha * ndtr(-mu / 2 - epsilon / mu)
        return result

    def slope(alpha: Array) -> Array:
        result: Array = -ndtr(-mu / 2 - np.log(alpha) / mu)
        return result

    return value, slope


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """Where that profile is delta: by bisection, as a guide only."""

    def small(epsilon: float) -> bool:
        first, second = float(log_ndtr(mu / 2 - epsilon / mu)), float(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
        return first + math.log(-math.expm1(min(second - first, -1e-300))) <= math.log(delta)

    low, high = 0.0, mu * mu / 2 + 40 * mu
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if small(middle) else (middle, high)
    return high


def _place(key: _Key) -> Path | None:
    folder = os.environ.get("TERRINE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "terrine"
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    try:
        return Path(folder).expanduser() / "profiles" / f"{name}.npz"
    except RuntimeError:  # no home
        return None


def _digest(key: _Key, found: PrivacyProfile) -> str:
    head = json.dumps({**key, "step": found.step.hex(), "start": found.start}, sort_keys=True)
    return hashlib.sha256(head.encode() + found.values.tobytes()).hexdigest()


def _kept(key: _Key, step: float) -> PrivacyProfile | None:
    """As `_keep` wrote it; what is damaged is computed again."""
    path = _place(key)
    try:
        if path is None:
            return None
        with np.load(path, allow_pickle=False) as file:
            found = PrivacyProfile(step, int(file["start"]), np.asarray(file["values"], dtype=np.float64))
            return found if str(file["digest"]) == _digest(key, found) else None
    except Exception:  # numpy and zipfile raise many types for damaged files
        return None


def _keep(key: _Key, found: PrivacyProfile) -> None:
    path = _place(key)
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = _digest(key, found)
        write_atomically(path, lambda file: np.savez(file, start=found.start, values=found.values, digest=digest))
    except OSError:  # a cache that cannot be written costs time only
        return
