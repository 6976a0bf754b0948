"""Mechanism x votes -> Rényi curve. The only room where mechanisms meet the theorems.

`worst_case_cost` is public. Whatever reads votes returns `Sensitive`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

_CELLS = 2_000_000  # (queries x orders, or queries x classes) held at once


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
        bound: "argmax", the cost of releasing the winner alone [TERRINE, Thm. 1 and 2]; "gaussian", that of the
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
    basis = "the paper's data-dependent bound on these votes (one direction)"

    def curve(rdp: Callable[[Array], Array], logs: Array, weights: Array, of: str = basis) -> RdpCurve:
        return RdpCurve(orders, _weighted_sum(rdp, logs, weights, n_orders=orders.size), of)

    every = np.ones(len(votes))
    match mechanism:
        case LNMax(scale=scale):
            log_q = _by_query(votes, lambda counts: theorems.log_q_laplace(counts, scale=scale))
            return Sensitive(curve(lambda q: theorems.rdp_lnmax(q, scale=scale, orders=orders), log_q, every))
        case GNMax(sigma=sigma):
            log_q = _by_query(votes, lambda counts: theorems.log_q_gaussian(counts, sigma=sigma))
            return Sensitive(curve(lambda q: theorems.rdp_gnmax(q, sigma=sigma, orders=orders), log_q, every))
        case ConfidentGNMax(sigma_check=sigma_check, sigma_vote=sigma_vote):
            if expected:
                basis = "expected cost on these votes, as in the paper's tables: not a guarantee"
            log_p = _log_pr_answered(mechanism, votes, student_proba)
            log_q = _by_query(votes, lambda counts: theorems.log_q_gaussian(counts, sigma=sigma_vote))
            check = curve(lambda p: theorems.rdp_threshold(p, sigma=sigma_check, orders=orders), log_p, every, of=basis)
            vote = curve(
                lambda q: theorems.rdp_gnmax(q, sigma=sigma_vote, orders=orders),
                log_q,
                np.exp(log_p) if expected else every,
                of=basis,
            )
            return Sensitive(check + vote)
    raise InputError(f"Expected a mechanism, got {type(mechanism).__name__}.")


def _log_pr_answered(mechanism: ConfidentGNMax, votes: Votes, student_proba: ArrayLike | None) -> Array:
    if isinstance(mechanism, InteractiveGNMax) != (student_proba is not None):
        raise InputError("Expected student_proba for InteractiveGNMax and for no other mechanism.")
    proba = None if student_proba is None else validated_proba(student_proba, votes)
    score = check_scores(votes, proba) / UNIT
    return theorems.log_pr_answered(score, threshold=mechanism.threshold, sigma=mechanism.sigma_check)


def _blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Runs of rows that keep a (rows x columns) temporary in bounded memory."""
    size = max(1, _CELLS // n_columns)
    return (slice(start, start + size) for start in range(0, n_rows, size))


def _by_query(votes: Votes, log_q: Callable[[NDArray[np.int64]], Array]) -> Array:
    return np.concatenate([log_q(votes.counts[block]) for block in _blocks(len(votes), votes.n_classes)])


def _weighted_sum(rdp: Callable[[Array], Array], logs: Array, weights: Array, *, n_orders: int) -> Array:
    """Σ weight·rdp(log) over queries, (n_orders,): equal queries are one query with a weight."""
    distinct, where = np.unique(logs, return_inverse=True)
    weight = np.bincount(where, weights=weights, minlength=distinct.size)
    total = np.zeros(n_orders)
    for block in _blocks(distinct.size, n_orders):
        total += weight[block] @ rdp(distinct[block])
    return total
