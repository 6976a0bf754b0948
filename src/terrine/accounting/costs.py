"""Mechanism x votes -> Rényi curve. The only room where mechanisms meet the theorems.

`worst_case_cost` is public. Whatever reads votes returns `Sensitive`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.accounting import theorems
from terrine.accounting.argmax import rdp_argmax, rdp_check
from terrine.accounting.curves import ORDERS, RdpCurve
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
from terrine.noise import UNIT
from terrine.sensitive import Sensitive
from terrine.votes import Votes

Array = NDArray[np.float64]
Bound = Literal["argmax", "gaussian"]
Accountant = Literal["paper"]

_CELLS = 1_000_000  # queries x classes held at once


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
        n_answered: at most so many released votes (default: every query). Mechanisms without a check
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
            f"Expected n_answered={n_queries} (a mechanism without a check answers every query), "
            f"got n_answered={n_answered}."
        )
    n_answered = _validate.integer("n_answered", n_answered, at_least=0)
    if n_answered > n_queries:
        raise InputError(f"Expected n_answered <= n_queries, got n_answered={n_answered}, n_queries={n_queries}.")
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
    raise InputError(f"Expected a mechanism, got {type(mechanism).__name__}.")


def cost(
    mechanism: Mechanism,
    votes: Votes,
    *,
    orders: ArrayLike = ORDERS,
    accountant: Accountant = "paper",
    student_proba: ArrayLike | None = None,
) -> Sensitive[RdpCurve]:
    """Data-dependent cost of putting this batch of queries, fixed beforehand, to the mechanism. Secret.

    "paper": the paper's bounds, one direction only [PATE18, Thm. 6]; for the mechanisms with a check, the check and
    the answer are both charged on every query. It is a statement about these votes, not a guarantee of the
    mechanism.
    """
    _validate.choice("accountant", accountant, ("paper",))
    return _paper(mechanism, votes, orders, student_proba, expected=False)


def expected_cost(
    mechanism: Mechanism,
    votes: Votes,
    *,
    orders: ArrayLike = ORDERS,
    student_proba: ArrayLike | None = None,
) -> Sensitive[RdpCurve]:
    """The number of the paper's tables: check + Pr[answered]·answer, summed over queries. Secret.

    For reproduction and planning. An expectation is not a Rényi bound (docs/math.md, Erratum 2): never a guarantee.
    """
    return _paper(mechanism, votes, orders, student_proba, expected=True)


def expected_answered(
    mechanism: Mechanism, votes: Votes, *, student_proba: ArrayLike | None = None
) -> Sensitive[float]:
    """How many of these queries the teachers would answer on average. Secret."""
    if isinstance(mechanism, LNMax | GNMax):
        return Sensitive(float(len(votes)))
    return Sensitive(float(np.exp(_log_pr_answered(mechanism, votes, student_proba)).sum()))


def _paper(
    mechanism: Mechanism, votes: Votes, orders: ArrayLike, student_proba: ArrayLike | None, *, expected: bool
) -> Sensitive[RdpCurve]:
    orders = _validate.orders(orders)
    every = np.ones(len(votes))
    basis = "the paper's data-dependent bound on these votes (one direction)"
    if expected and isinstance(mechanism, ConfidentGNMax):
        basis = "expected cost on these votes, as in the paper's tables: not a guarantee"

    def gnmax(log_q: Array, sigma: float, weights: Array) -> RdpCurve:
        rdp = partial(theorems.gnmax_by_order, sigma=sigma, orders=orders)
        return RdpCurve(orders, _weighted_sum(rdp, log_q, weights), basis)

    match mechanism:
        case LNMax(scale=scale):
            log_q = _by_query(votes, partial(theorems.log_q_laplace, scale=scale))

            def lnmax(q: Array) -> Iterator[Array]:
                return (theorems.rdp_lnmax(q, scale=scale, orders=order)[:, 0] for order in orders)

            return Sensitive(RdpCurve(orders, _weighted_sum(lnmax, log_q, every), basis))
        case GNMax(sigma=sigma):
            return Sensitive(gnmax(_by_query(votes, partial(theorems.log_q_gaussian, sigma=sigma)), sigma, every))
        case ConfidentGNMax(sigma_check=sigma_check, sigma_vote=sigma_vote):
            log_p = _log_pr_answered(mechanism, votes, student_proba)
            log_q = _by_query(votes, partial(theorems.log_q_gaussian, sigma=sigma_vote))
            check = gnmax(theorems.log_q_threshold(log_p), sigma_check * math.sqrt(2), every)
            return Sensitive(check + gnmax(log_q, sigma_vote, np.exp(log_p) if expected else every))
    raise InputError(f"Expected a mechanism, got {type(mechanism).__name__}.")


def _log_pr_answered(mechanism: ConfidentGNMax, votes: Votes, student_proba: ArrayLike | None) -> Array:
    if isinstance(mechanism, InteractiveGNMax) != (student_proba is not None):
        raise InputError("Expected student_proba for InteractiveGNMax and for no other mechanism.")
    proba = None if student_proba is None else validated_proba(student_proba, votes)
    score = check_scores(votes, proba) / UNIT
    return theorems.log_pr_answered(score, threshold=mechanism.threshold, sigma=mechanism.sigma_check)


def _by_query(votes: Votes, log_q: Callable[[NDArray[np.int64]], Array]) -> Array:
    """One number per query, in runs of rows that keep temporaries small."""
    size = max(1, _CELLS // votes.n_classes)
    return np.concatenate([log_q(votes.counts[start : start + size]) for start in range(0, len(votes), size)])


def _weighted_sum(rdp_by_order: Callable[[Array], Iterable[Array]], logs: Array, weights: Array) -> Array:
    """Σ weight·rdp(log) over queries, (n_orders,): equal queries are one query with a weight."""
    distinct, where = np.unique(logs, return_inverse=True)  # ascending
    weight = np.bincount(where, weights=weights)
    return np.array([weight @ rdp for rdp in rdp_by_order(distinct)])
