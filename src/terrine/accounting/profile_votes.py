"""The privacy profile of given votes: what these very answers cost, by recursion over the queries. Secret.

A batch that is fixed beforehand: the laws of the queries multiply, and one teacher may move in another way on each of
them, so that the supremum over moves stands inside the recursion; one direction at a time. [TERRINE, Thm. 17]
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.blas import daxpy

from terrine import _validate
from terrine.accounting.costs import cost, offsets_of
from terrine.accounting.curves import ORDERS, Guarantee, guarantee
from terrine.accounting.divergence import Moves
from terrine.accounting.exact import Exact, Merged
from terrine.accounting.profile import ROUNDING, PrivacyProfile, convex, corner
from terrine.errors import InputError
from terrine.mechanisms import ConfidentGNMax, GNMax, Mechanism
from terrine.sensitive import Sensitive
from terrine.votes import Votes

Array = NDArray[np.float64]
_Laws = tuple[list[tuple[Array, Array]], int]  # (moves, outcomes) masses and log-ratios of a histogram; its queries

PRECISION = 1e-9  # relative, of masses and ratios: as for the Rényi divergences of the same laws
TINY = 1e-25  # outcomes with less chance are charged that chance
_POINTS = 6_000  # of the grid on either side of ε = 0
_BLUR = 1e-3  # of the variance of the privacy loss, at most, by interpolation


def profile_of_votes(
    mechanism: Mechanism,
    votes: Votes,
    *,
    delta: float,
    student_proba: ArrayLike | None = None,
) -> Sensitive[Guarantee]:
    """Epsilon of putting this batch of queries, fixed beforehand, to the mechanism, computed from its privacy profile.

    A statement about these votes, as `cost` with accountant="exact", whose epsilon it never exceeds; no guarantee of
    the mechanism. [TERRINE, Thm. 17]
    """
    if not isinstance(mechanism, GNMax | ConfidentGNMax):
        raise InputError(
            f"The profile of given votes is made for GNMax, ConfidentGNMax and InteractiveGNMax, not for "
            f"{type(mechanism).__name__}. Use the paper's accountant."
        )
    delta = _validate.between("delta", delta, 0.0, 1.0)
    curve = cost(mechanism, votes, orders=ORDERS, student_proba=student_proba)
    by_renyi = guarantee(curve, delta=delta).reveal()  # what follows from it stays inside a Sensitive
    laws, charged = _laws_of(mechanism, votes, student_proba)
    epsilon = math.inf
    if math.isfinite(charged) and 0 < by_renyi.epsilon < 40:
        spread = _variance(laws)
        reach = 1.3 * by_renyi.epsilon + 6 * math.sqrt(spread)
        n_queries = sum(times for _, times in laws)
        step = min(reach / 500, max(reach / _POINTS, math.sqrt(4 * _BLUR * spread / max(n_queries, 1))))
        epsilon = max(
            _composed(laws, step=step, n_points=math.ceil(reach / step), charged=charged, backwards=way).epsilon(delta)
            for way in (False, True)
        )
    if epsilon >= by_renyi.epsilon:
        return Sensitive(by_renyi)
    basis = "the privacy profile of these votes, both directions, the check and the answer as one mechanism"
    return Sensitive(
        Guarantee(epsilon=epsilon, delta=delta, order=None, basis=basis, relation=by_renyi.relation, notes=())
    )


def _laws_of(
    mechanism: GNMax | ConfidentGNMax, votes: Votes, student_proba: ArrayLike | None
) -> tuple[list[_Laws], float]:
    """The laws of every move of every distinct histogram; and what is charged beside them, inf if floats cannot."""
    check = None
    sigma = mechanism.sigma if isinstance(mechanism, GNMax) else mechanism.sigma_vote
    if isinstance(mechanism, ConfidentGNMax):
        check = (mechanism.sigma_check, mechanism.threshold)
    merged = Merged(votes.counts, offsets_of(mechanism, votes, student_proba))
    exact = Exact(
        sigma=sigma,
        orders=[2.0],
        sigma_check=None if check is None else check[0],
        threshold=None if check is None else check[1],
        ceiling=np.zeros(1),
    )
    found: list[_Laws] = []
    if exact.beyond_floats(merged, np.zeros(len(merged.queries), dtype=bool)).any():
        return found, math.inf
    charged = 0.0
    with np.errstate(all="ignore"):  # a warning would depend on the votes
        for batch in merged.batches(np.arange(len(merged.queries))):
            moves = Moves(batch, sigma=sigma, check=check)
            if not (np.abs(np.expm1(moves.log_total)) < 1e-10).all():
                return found, math.inf
            for h, queries in enumerate(batch.queries):
                pairs, lost = _pairs(moves, h)
                charged = max(charged, lost)
                found.append((pairs, len(queries)))
    return found, charged


def _pairs(moves: Moves, h: int) -> tuple[list[tuple[Array, Array]], float]:
    """(outcomes,) masses before and log-ratios of every move of a histogram, rare outcomes left out and charged."""
    pairs, lost = [], 0.0
    for move in np.flatnonzero(moves.allowed[h]):
        mass, log_r = moves.mass[h, :, move], moves.log_r[h, :, move]
        if moves.has_check:
            before = [float(np.exp(side[h, 0])) for side in moves.log_before]
            shift = [float(side[h, move]) for side in moves.log_shift]
            mass = np.append(mass * before[0], before[1])
            log_r = np.append(log_r + shift[0], shift[1])
        after = mass * np.exp(log_r)
        kept = (mass > TINY) & (after > TINY)
        lost = max(lost, float(mass[~kept].sum()), float(after[~kept].sum()))
        pairs.append((mass[kept], log_r[kept]))
    return pairs, lost + TINY


def _variance(laws: list[_Laws]) -> float:
    """Of the privacy loss, about: it sizes a grid."""
    return sum(times * max(float((p * r * r).sum()) for p, r in pairs) for pairs, times in laws)


def _composed(laws: list[_Laws], *, step: float, n_points: int, charged: float, backwards: bool) -> PrivacyProfile:
    stencils = [([_stencil(p, r, step, backwards) for p, r in pairs], times) for pairs, times in laws]
    pad = 2 + max((abs(k) for moves, _ in stencils for taps in moves for k, _ in taps), default=0)
    n = 2 * n_points + 1
    alphas = np.exp(step * np.arange(-n_points - pad, n_points + pad + 1))
    here = slice(pad, pad + n)
    values = np.maximum(1 - alphas, 0.0)
    for moves, times in stencils:
        for _ in range(times):
            best, row = np.zeros(n), np.empty(n)
            for taps in moves:
                row.fill(0.0)
                for k, weight in taps:
                    daxpy(values[pad + k : pad + k + n], row, a=weight)
                np.maximum(best, row, out=best)
            values[here] = np.minimum(best * (1 + ROUNDING) + charged * (1 + alphas[here]), 1.0)
            values[:pad] = 1 - (1 - values[pad]) * alphas[:pad] / alphas[pad]
            values[pad + n :] = values[pad + n - 1]
    return PrivacyProfile(step, -n_points, convex(alphas[here], values[here]))


def _stencil(p: Array, log_r: Array, step: float, backwards: bool) -> list[tuple[int, float]]:
    if backwards:
        p, log_r = p * np.exp(log_r), -log_r
    return corner((p * (1 + PRECISION)).tolist(), (log_r - PRECISION * np.abs(log_r) - 1e-15).tolist(), step)
