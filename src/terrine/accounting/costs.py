"""Mechanism x votes -> Rényi curve. The only room where mechanisms meet the theorems.

`worst_case_cost` is public. Whatever reads votes returns `Sensitive`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.accounting import theorems
from terrine.accounting.argmax import rdp_argmax, rdp_check
from terrine.accounting.curves import ORDERS, WIDE_ORDERS, Conversion, RdpCurve, epsilons_at
from terrine.accounting.exact import Exact
from terrine.errors import InputError
from terrine.mechanisms import (
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Mechanism,
    check_scores,
    validated_proba,
)
from terrine.noise import UNIT, to_lattice
from terrine.sensitive import Sensitive
from terrine.votes import Votes

Array = NDArray[np.float64]
Bound = Literal["argmax", "gaussian"]
Accountant = Literal["exact", "sanitizable", "paper"]
Progress = Callable[[float], object]
ByOrder = Callable[..., Iterable[Array]]

_CELLS = 1_000_000  # queries x classes held at once


@dataclass(frozen=True, kw_only=True, eq=False)
class CostSettings:
    """How data-dependent costs are counted, as for `cost`; ``expected`` gives those of `expected_cost`."""

    orders: ArrayLike = field(default_factory=lambda: ORDERS)
    accountant: Accountant = "exact"
    expected: bool = False


def worst_case_cost(
    mechanism: Mechanism,
    *,
    n_queries: int,
    n_answered: int | None = None,
    orders: ArrayLike = ORDERS,
    bound: Bound = "argmax",
) -> RdpCurve:
    """What at most ``n_queries`` checks and ``n_answered`` answers can cost, whatever the votes are. Public.

    Both numbers must be fixed before the first query; then it holds under adaptive queries too.

    Args:
        mechanism: any of the four.
        n_queries: queries put to the mechanism.
        n_answered: the most votes that are released (default: every query). Mechanisms without a check
            answer every query.
        orders: Rényi orders above 1.
        bound: "argmax", what releasing the winner alone costs [TERRINE, Thm. 1] [TERRINE, Thm. 2]; "gaussian", the
            whole noisy histogram, order/sigma² [PATE18, Prop. 8].
    """
    n_queries = _validate.integer("n_queries", n_queries, at_least=0)
    orders = _validate.orders(orders)
    _validate.choice("bound", bound, ("argmax", "gaussian"))
    if n_answered is None:
        n_answered = n_queries
    elif isinstance(mechanism, LNMax | GNMax) and n_answered != n_queries:
        raise InputError(
            f"n_answered must be {n_queries}, the number of queries, got {n_answered}: a mechanism "
            "without a check answers every query."
        )
    n_answered = _validate.integer("n_answered", n_answered, at_least=0)
    if n_answered > n_queries:
        raise InputError(f"n_answered must be at most n_queries, got n_answered={n_answered}, n_queries={n_queries}.")
    basis = f"worst case over all votes, {bound} bound"

    def winner(sigma: float) -> RdpCurve:
        rdp = rdp_argmax(sigma=sigma, orders=orders) if bound == "argmax" else orders / sigma**2
        return RdpCurve(orders, rdp, basis)

    def check(sigma: float) -> RdpCurve:
        rdp = rdp_check(sigma=sigma, orders=orders) if bound == "argmax" else orders / (2 * sigma**2)
        return RdpCurve(orders, rdp, basis)

    match mechanism:
        case LNMax(scale=scale):
            pure = theorems.rdp_pure(epsilon=2 / scale, orders=orders)
            return RdpCurve(orders, pure, "worst case over all votes, pure DP of the Laplace maximum") * n_queries
        case GNMax(sigma=sigma):
            return winner(sigma) * n_queries
        case ConfidentGNMax(sigma_check=sigma_check, sigma_vote=sigma_vote):
            return check(sigma_check) * n_queries + winner(sigma_vote) * n_answered
    raise InputError(
        f"mechanism must be LNMax, GNMax, ConfidentGNMax or InteractiveGNMax, got {type(mechanism).__name__}."
    )


def budget_curve(
    mechanism: Mechanism,
    *,
    n_queries: int,
    n_answered: int | None = None,
    delta: float,
    bound: Bound = "argmax",
    conversion: Conversion = "tight",
) -> RdpCurve:
    """`worst_case_cost` at the orders that suit this delta: the paper's, or more of them where its largest is the best.

    So a budget whose best order is among the paper's has the epsilon that it always had.
    """
    delta = _validate.between("delta", delta, 0.0, 1.0)
    _validate.choice("conversion", conversion, ("tight", "classic"))
    numbers: Any = {"n_queries": n_queries, "n_answered": n_answered, "bound": bound}
    curve = worst_case_cost(mechanism, **numbers)
    epsilons = epsilons_at(curve.orders, curve.epsilons, delta=delta, conversion=conversion)
    if curve.orders[np.argmin(epsilons)] < curve.orders.max() or not curve.epsilons.any():
        return curve
    return worst_case_cost(mechanism, **numbers, orders=WIDE_ORDERS)


def unit_costs(mechanism: Mechanism, *, orders: ArrayLike = ORDERS) -> tuple[RdpCurve, RdpCurve]:
    """What one check and one answer cost by worst case; without a check it costs nothing. Public."""
    if isinstance(mechanism, ConfidentGNMax):
        check = worst_case_cost(mechanism, n_queries=1, n_answered=0, orders=orders)
        return check, worst_case_cost(GNMax(sigma=mechanism.sigma_vote), n_queries=1, orders=orders)
    answer = worst_case_cost(mechanism, n_queries=1, orders=orders)
    return answer * 0, answer


def cost(
    mechanism: Mechanism,
    votes: Votes,
    *,
    orders: ArrayLike = ORDERS,
    accountant: Accountant = "exact",
    student_proba: ArrayLike | None = None,
    progress: Progress | None = None,
) -> Sensitive[RdpCurve]:
    """Data-dependent cost of putting this batch of queries, fixed beforehand, to the mechanism. Secret.

    It is a statement about these votes, not a guarantee of the mechanism.

    Args:
        accountant: "exact", the largest divergence to any neighbor, both directions, the check and the answer as one
            mechanism [TERRINE, Thm. 4] [TERRINE, Thm. 5]; "sanitizable" [TERRINE, Thm. 7] and "paper" [PATE18, Thm. 6]:
            bounds in one direction that are functions of q alone, with check and answer both charged on every query.
            LNMax has the bound of 2017 only.
        student_proba: (n_queries, n_classes), for InteractiveGNMax only.
        progress: called now and then with the share of the work that is done.
    """
    how = CostSettings(orders=orders, accountant=accountant)
    (total,) = running_cost(mechanism, votes, how, stops=[len(votes)], student_proba=student_proba, progress=progress)
    return total


def expected_cost(
    mechanism: Mechanism,
    votes: Votes,
    *,
    orders: ArrayLike = ORDERS,
    accountant: Literal["sanitizable", "paper"] = "paper",
    student_proba: ArrayLike | None = None,
) -> Sensitive[RdpCurve]:
    """The number of the paper's tables: check + Pr[answered]·answer, summed over queries. Secret.

    For reproduction and planning. An expectation is not a Rényi bound (docs/math.md, Erratum 2): never a guarantee.
    """
    _validate.choice("accountant", accountant, ("sanitizable", "paper"))
    how = CostSettings(orders=orders, accountant=accountant, expected=True)
    (total,) = running_cost(mechanism, votes, how, stops=[len(votes)], student_proba=student_proba)
    return total


def running_cost(
    mechanism: Mechanism,
    votes: Votes,
    how: CostSettings,
    *,
    stops: Sequence[int],
    student_proba: ArrayLike | None = None,
    progress: Progress | None = None,
) -> list[Sensitive[RdpCurve]]:
    """`cost` (or `expected_cost`) of the first ``stops[0]``, ``stops[1]``, ... queries, in one pass. Secret."""
    accountant, expected = how.accountant, how.expected
    _validate.choice("accountant", accountant, ("exact", "sanitizable", "paper"))
    proba = _checked(mechanism, votes, student_proba)
    if not len(stops) or stops[0] < 1 or (np.diff(stops) < 0).any() or stops[-1] > len(votes):
        raise InputError(f"stops must be ascending whole numbers from 1 to {len(votes)}.")
    segment = np.searchsorted(np.asarray(stops), np.arange(len(votes)), side="right")  # of each query
    orders = _validate.orders(how.orders)
    if accountant == "exact" and isinstance(mechanism, GNMax | ConfidentGNMax):
        sums, fallbacks = _exact_sums(mechanism, votes, orders, segment, len(stops), proba, progress)
        basis = "exact divergence on these votes (both directions)"
        if fallbacks:
            basis += f"; the worst case for {fallbacks} queries whose ratios are beyond floating point"
    else:
        sums = _bound_sums(mechanism, votes, how, segment, len(stops), proba)
        if isinstance(mechanism, LNMax):
            basis = "the 2017 data-dependent bound on these votes (one direction)"
        elif expected and isinstance(mechanism, ConfidentGNMax):
            basis = f"expected cost on these votes, as in the paper's tables, {accountant} bound: not a guarantee"
        else:
            basis = f"the {accountant} data-dependent bound on these votes (one direction)"
    curves = accumulate(RdpCurve(orders, row, basis) for row in sums)
    return [Sensitive(curve) for curve in curves]


def expected_answered(
    mechanism: Mechanism, votes: Votes, *, student_proba: ArrayLike | None = None
) -> Sensitive[float]:
    """How many of these queries the teachers would answer on average. Secret."""
    proba = _checked(mechanism, votes, student_proba)
    if isinstance(mechanism, LNMax | GNMax):
        return Sensitive(float(len(votes)))
    return Sensitive(float(np.exp(_log_pr_answered(mechanism, votes, proba)).sum()))


def _checked(mechanism: Mechanism, votes: Votes, student_proba: ArrayLike | None) -> Array | None:
    """The student's probabilities, once mechanism and votes are seen to be what they should."""
    if not isinstance(votes, Votes):
        raise InputError(f"votes must be a Votes object, got {type(votes).__name__}.")
    if not isinstance(mechanism, LNMax | GNMax | ConfidentGNMax):
        raise InputError(
            f"mechanism must be LNMax, GNMax, ConfidentGNMax or InteractiveGNMax, got {type(mechanism).__name__}."
        )
    if isinstance(mechanism, InteractiveGNMax) != (student_proba is not None):
        raise InputError("InteractiveGNMax needs student_proba; no other mechanism takes it.")
    return None if student_proba is None else validated_proba(student_proba, votes)


def offsets_of(mechanism: Mechanism, votes: Votes, student_proba: ArrayLike | None) -> Array | None:
    """(n_queries, n_classes) what Interactive-GNMax's check subtracts from the counts; None for the others. Public."""
    return _offsets(votes, _checked(mechanism, votes, student_proba))


def _offsets(votes: Votes, proba: Array | None) -> Array | None:
    return None if proba is None else to_lattice(votes.n_teachers * proba) / UNIT


def _exact_sums(
    mechanism: GNMax | ConfidentGNMax,
    votes: Votes,
    orders: Array,
    segment: NDArray[np.int64],
    n_segments: int,
    proba: Array | None,
    progress: Progress | None,
) -> tuple[Array, int]:
    """(segments, orders), and how many queries were charged the worst case instead."""
    if isinstance(mechanism, GNMax):
        exact = Exact(sigma=mechanism.sigma, orders=orders)
    else:
        exact = Exact(
            sigma=mechanism.sigma_vote,
            orders=orders,
            sigma_check=mechanism.sigma_check,
            threshold=mechanism.threshold,
        )
    offsets = _offsets(votes, proba)
    sums = np.zeros((n_segments, orders.size))
    for queries, costs in exact.by_histogram(votes.counts, offsets, progress=progress):
        weights = np.bincount(segment[queries], minlength=n_segments + 1)[:n_segments]
        sums[weights > 0] += weights[weights > 0, None] * costs
    return sums, exact.fallbacks


def _bound_sums(
    mechanism: Mechanism,
    votes: Votes,
    how: CostSettings,
    segment: NDArray[np.int64],
    n_segments: int,
    proba: Array | None,
) -> Array:
    """(segments, orders) of the bounds that are functions of q."""
    orders, accountant = _validate.orders(how.orders), how.accountant

    def total(by_order: ByOrder, logs: Array, weights: Array | None = None) -> Array:
        """Σ weight·rdp(log): equal queries are one query with a weight."""
        distinct, where = np.unique(logs, return_inverse=True)  # ascending
        cell = segment * distinct.size + where
        inside = segment < n_segments
        weight = np.bincount(
            cell[inside],
            weights=None if weights is None else weights[inside],
            minlength=n_segments * distinct.size,
        ).reshape(n_segments, distinct.size)
        return np.stack([weight @ rdp for rdp in by_order(distinct, orders=orders)], axis=1)

    def gnmax(sigma: float) -> ByOrder:
        if accountant == "sanitizable":
            return partial(theorems.sanitizable_by_order, rdp=partial(rdp_argmax, sigma=sigma))
        return partial(theorems.gnmax_by_order, sigma=sigma)

    match mechanism:
        case LNMax(scale=scale):

            def lnmax(log_q: Array, orders: Array) -> Iterator[Array]:
                return (theorems.rdp_lnmax(log_q, scale=scale, orders=order)[:, 0] for order in orders)

            return total(lnmax, _by_query(votes, partial(theorems.log_q_laplace, scale=scale)))
        case GNMax(sigma=sigma):
            return total(gnmax(sigma), _by_query(votes, partial(theorems.log_q_gaussian, sigma=sigma)))
        case ConfidentGNMax(sigma_check=sigma_check, sigma_vote=sigma_vote):
            log_p = _log_pr_answered(mechanism, votes, proba)
            log_q = _by_query(votes, partial(theorems.log_q_gaussian, sigma=sigma_vote))
            check: ByOrder = gnmax(sigma_check * math.sqrt(2))
            if accountant == "sanitizable":
                check = partial(theorems.sanitizable_by_order, rdp=partial(rdp_check, sigma=sigma_check))
            answered = np.exp(log_p) if how.expected else None
            return total(check, theorems.log_q_threshold(log_p)) + total(gnmax(sigma_vote), log_q, answered)
    raise InputError(
        f"mechanism must be LNMax, GNMax, ConfidentGNMax or InteractiveGNMax, got {type(mechanism).__name__}."
    )


def _log_pr_answered(mechanism: ConfidentGNMax, votes: Votes, proba: Array | None) -> Array:
    score = check_scores(votes, proba) / UNIT
    return theorems.log_pr_answered(score, threshold=mechanism.threshold, sigma=mechanism.sigma_check)


def _by_query(votes: Votes, log_q: Callable[[NDArray[np.int64]], Array]) -> Array:
    """One number per query, in runs of rows that keep temporaries small."""
    size = max(1, _CELLS // votes.n_classes)
    return np.concatenate([log_q(votes.counts[start : start + size]) for start in range(0, len(votes), size)])
