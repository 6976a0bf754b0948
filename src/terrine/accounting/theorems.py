"""One function per numbered result. Arrays run (queries, orders); logs are natural; costs are in nats.

Every docstring ends with the citation that `docs/math.md` resolves: statement, conditions, errata.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtri_exp

from terrine import _validate
from terrine.accounting.argmax import rdp_argmax, rdp_check
from terrine.errors import InputError

Array = NDArray[np.float64]


def log1mexp(log_x: ArrayLike) -> Array:
    """log(1 - exp(log_x)) for log_x <= 0, to full relative precision at both ends."""
    log_x = np.asarray(log_x, dtype=np.float64)
    with np.errstate(divide="ignore"):
        result: Array = np.where(log_x > -math.log(2), np.log(-np.expm1(log_x)), np.log1p(-np.exp(log_x)))
    return result


def histograms(counts: ArrayLike) -> NDArray[np.int64]:
    """(n_queries, n_classes) as int64, so that gaps of unsigned votes cannot wrap."""
    raw = np.asarray(counts)
    if raw.ndim == 1:
        raw = raw[None, :]
    if raw.ndim != 2 or raw.shape[1] < 2:
        raise InputError(f"counts must have shape (n_queries, at least 2 classes), got {raw.shape}.")
    if not (np.issubdtype(raw.dtype, np.integer) or np.issubdtype(raw.dtype, np.floating)):
        raise InputError(f"counts must be whole numbers, got dtype {raw.dtype}.")
    with np.errstate(invalid="ignore"):
        whole = raw.astype(np.int64)
    if (raw < 0).any() or not np.array_equal(whole, raw):
        raise InputError("counts must be whole numbers of at least 0.")
    return whole


def _log_probabilities(name: str, values: ArrayLike) -> Array:
    result = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if result.ndim != 1 or np.isnan(result).any() or (result > 0).any():
        raise InputError(f"{name} must be a one-dimensional array of log-probabilities (at most 0).")
    return result


def _gaps(counts: ArrayLike) -> NDArray[np.int64]:
    """Distance of every losing class from the winner, (n_queries, n_classes - 1)."""
    ascending = np.sort(histograms(counts), axis=1)
    gaps: NDArray[np.int64] = ascending[:, -1:] - ascending[:, :-1]
    return gaps


def _log_union(log_terms: Array) -> Array:
    """Log of a union bound over the losing classes, nearest last; at most 1 - 1/m, what a tie of all gives."""
    largest = log_terms[:, -1]
    log_q = largest + np.log(np.exp(log_terms - largest[:, None]).sum(axis=1))
    result: Array = np.minimum(log_q, math.log1p(-1 / (log_terms.shape[1] + 1)))
    return result


def log_q_gaussian(counts: ArrayLike, *, sigma: float) -> Array:
    """Log of a bound on the probability that GNMax does not release the plurality.

    q = sum over the losing classes of Phi(-(n_top - n_j)/(sigma sqrt 2)), at most 1 - 1/m.

    Args:
        counts: (n_queries, n_classes) votes.
        sigma: standard deviation of the noise, in votes.

    Returns:
        (n_queries,)

    [PATE18, Prop. 7]
    """
    sigma = _validate.positive("sigma", sigma)
    gaps = _gaps(counts)
    return _log_union(log_ndtr(-gaps / (sigma * math.sqrt(2))))


def rdp_gnmax(log_q: ArrayLike, *, sigma: float, orders: ArrayLike) -> Array:
    """The paper's data-dependent Rényi bound of GNMax, D(M(D) ‖ M(D')) only, with its optimal mu_1 and mu_2.

    mu_2 = sigma sqrt(log 1/q), mu_1 = mu_2 + 1, eps_i = mu_i/sigma². It applies where q < 1,
    mu_1 >= order, mu_2 > 1, q e^eps_2 < 1 and q <= e^((mu_2 - 1) eps_2)/(mu_1/(mu_1-1) mu_2/(mu_2-1))^mu_2;
    elsewhere, and wherever it is larger, the bound is order/sigma².

    Args:
        log_q: (n_queries,) from `log_q_gaussian`.

    Returns:
        (n_queries, n_orders)

    [PATE18, Thm. 6] [PATE18, Prop. 8] [PATE18, Prop. 10]
    """
    return _in_order_given(log_q, orders, partial(gnmax_by_order, sigma=sigma))


def _in_order_given(log_q: ArrayLike, orders: ArrayLike, by_order: Callable[..., Iterator[Array]]) -> Array:
    """Sort, compute one order at a time, and put back: (n_queries, n_orders)."""
    log_q = _log_probabilities("log_q", log_q)
    ascending = np.argsort(log_q, kind="stable")
    orders = _validate.orders(orders)
    result = np.empty((log_q.size, orders.size))
    for column, bounds in enumerate(by_order(log_q[ascending], orders=orders)):
        result[ascending, column] = bounds
    return result


def _log_sum(first: Array, second: Array) -> Array:
    """log(e^first + e^second), as np.logaddexp but three times faster where exp and log1p are vectorized."""
    with np.errstate(invalid="ignore"):
        result: Array = np.maximum(first, second) + np.log1p(np.exp(-np.abs(first - second)))
    return result


def gnmax_by_order(log_q: Array, *, sigma: float, orders: Array) -> Iterator[Array]:
    """`rdp_gnmax` one order at a time, (n_queries,) each, for ``log_q`` in ascending order: bounded memory."""
    sigma = _validate.positive("sigma", sigma)
    variance = sigma**2
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mu2 = sigma * np.sqrt(-log_q)
        mu1 = mu2 + 1
        eps1, eps2 = mu1 / variance, mu2 / variance
        log_critical = (mu2 - 1) * eps2 - mu2 * (-np.log1p(-1 / mu1) - np.log1p(-1 / mu2))
        applies = np.isfinite(log_q) & (log_q < 0) & (mu2 > 1) & (log_q + eps2 < 0) & (log_q <= log_critical)
        log_1q = np.where(applies, log1mexp(log_q), np.nan)  # nan: fmin below then keeps order/sigma²
        log_a = log_1q - log1mexp((log_q + eps2) * (1 - 1 / mu2))
        log_b = eps1 - log_q / (mu1 - 1)
    sure = np.isneginf(log_q)  # a sure winner tells nothing
    # mu_1 descends, so that every order applies to a leading run of queries.
    for order, n in zip(orders, np.searchsorted(-mu1, -orders, side="right"), strict=True):
        first = log_1q[:n] + (order - 1) * log_a[:n]
        second = log_q[:n] + (order - 1) * log_b[:n]
        bounds = np.full(log_q.size, order / variance)
        np.fmin(bounds[:n], np.maximum(_log_sum(first, second), 0.0) / (order - 1), out=bounds[:n])
        bounds[sure] = 0.0
        yield bounds


# Orders mu_1 and mu_2 to choose from: fixed and public, so that the bound stays monotone in q.
MU_GRID: Array = np.geomspace(1.1, 4000.0, 80)


def rdp_gnmax_sanitizable(log_q: ArrayLike, *, sigma: float, orders: ArrayLike) -> Array:
    """`rdp_gnmax` tightened: eps_i from `rdp_argmax` instead of mu_i/sigma², the best of a fixed grid of (mu_1, mu_2).

    Still a non-decreasing function of q alone, and still D(M(D) ‖ M(D')) only.

    Returns:
        (n_queries, n_orders)

    [TERRINE, Thm. 7]
    """
    return _in_order_given(log_q, orders, partial(sanitizable_by_order, rdp=partial(rdp_argmax, sigma=sigma)))


def rdp_threshold_sanitizable(log_p: ArrayLike, *, sigma: float, orders: ArrayLike) -> Array:
    """The same for the threshold check, from `rdp_check`. [TERRINE, Thm. 7]"""
    rdp = partial(rdp_check, sigma=_validate.positive("sigma", sigma))
    return _in_order_given(log_q_threshold(log_p), orders, partial(sanitizable_by_order, rdp=rdp))


def sanitizable_by_order(log_q: Array, *, rdp: Callable[..., Array], orders: Array) -> Iterator[Array]:
    """One order at a time, (n_queries,) each, for any mechanism with data-independent cost ``rdp(orders=...)``."""
    eps, mu = rdp(orders=MU_GRID), MU_GRID
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        log_1q = log1mexp(log_q)[:, None]
        exponent = (log_q[:, None] + eps) * (1 - 1 / mu)
        log_a = np.where(exponent < 0, log_1q - log1mexp(np.minimum(exponent, 0.0)), np.inf)  # (queries, mu_2)
        log_b = eps - log_q[:, None] / (mu - 1)  # (queries, mu_1)
    # q must be below this for the bound to grow with q, (mu_1, mu_2)
    log_critical = (mu - 1) * eps + mu * (np.log1p(-1 / mu)[:, None] + np.log1p(-1 / mu))
    # For every mu_1 the best mu_2 that its condition allows
    best_a = np.stack([np.where(log_q[:, None] <= row, log_a, np.inf).min(axis=1) for row in log_critical], axis=1)
    sure, never = np.isneginf(log_q), log_q >= 0
    for order, independent in zip(orders, rdp(orders=orders), strict=True):
        usable = mu >= order
        with np.errstate(invalid="ignore"):  # of q = 0 and q = 1, which are put right below
            first = log_1q + (order - 1) * best_a[:, usable]
            second = log_q[:, None] + (order - 1) * log_b[:, usable]
        bounds = np.full(log_q.shape, independent)
        if usable.any():
            best = _log_sum(first, second).min(axis=1)
            bounds = np.where(never, independent, np.fmin(np.maximum(best, 0.0) / (order - 1), independent))
        bounds[sure] = 0.0
        yield bounds


def log_rdp_gnmax(log_q: ArrayLike, *, sigma: float, order: float) -> Array:
    """Log of `rdp_gnmax` at one order, right to full relative precision where the cost itself would underflow.

    Returns:
        (n_queries,)

    [PATE18, Thm. 6] [PATE18, Prop. 10]
    """
    log_q = _log_probabilities("log_q", log_q)
    sigma = _validate.positive("sigma", sigma)
    order = _one_order(order)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mu2 = sigma * np.sqrt(-log_q)
        mu1 = mu2 + 1
        eps1, eps2 = mu1 / sigma**2, mu2 / sigma**2
        log_critical = (mu2 - 1) * eps2 + mu2 * (np.log1p(-1 / mu1) + np.log1p(-1 / mu2))
        applies = (mu2 > 1) & (mu1 >= order) & (log_q + eps2 < 0) & (log_q <= log_critical)
        log_log_a = _log_log_a(log_q, eps=eps2, mu=mu2)
        log_b = eps1 - log_q / (mu1 - 1)
        bound = _log_rdp(log_q, log_log_a, log_b, order)
    log_independent = math.log(order / sigma**2)
    result: Array = np.where(applies, np.fmin(bound, log_independent), log_independent)
    return np.where(np.isneginf(log_q), -np.inf, result)


def log_rdp_sanitizable(log_q: ArrayLike, *, rdp: Callable[..., Array], orders: ArrayLike) -> Array:
    """Log of the sanitizable bound, for any mechanism with data-independent cost ``rdp(orders=...)``, precise in tails.

    Returns:
        (n_queries, n_orders)

    [TERRINE, Thm. 7]
    """
    log_q = _log_probabilities("log_q", log_q)
    orders = _validate.orders(orders)
    mu, eps, independent = MU_GRID, rdp(orders=MU_GRID), np.log(rdp(orders=orders))
    log_critical = (mu - 1) * eps + mu * (np.log1p(-1 / mu)[:, None] + np.log1p(-1 / mu))  # (mu_1, mu_2)
    result = np.empty((log_q.size, orders.size))
    for start in range(0, log_q.size, 4096):  # a few megabytes at a time
        part = log_q[start : start + 4096, None]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            log_log_a = np.where(part + eps < 0, _log_log_a(part, eps=eps, mu=mu), np.inf)
            log_b = eps - part / (mu - 1)
            best_a = np.stack([np.where(part <= row, log_log_a, np.inf).min(axis=1) for row in log_critical], axis=1)
            for column, order in enumerate(orders):
                usable = mu >= order
                bounds = _log_rdp(part, best_a[:, usable], log_b[:, usable], order)
                best = np.fmin.reduce(bounds, axis=1, initial=np.inf)
                result[start : start + 4096, column] = np.fmin(best, independent[column])
    result[log_q >= 0] = independent
    result[np.isneginf(log_q)] = -np.inf
    return result


def _log_log_a(log_q: Array, *, eps: Array, mu: Array) -> Array:
    """log log A of [PATE18, Thm. 6]: A = (1-q)/(1-x) with x = (q e^eps)^(1-1/mu) >= q, as log1p((x-q)/(1-x))."""
    log_x = (log_q + eps) * (1 - 1 / mu)
    return _log_log1p(log_x + log1mexp(np.minimum(log_q - log_x, 0.0)) - log1mexp(np.minimum(log_x, 0.0)))


def _log_rdp(log_q: Array, log_log_a: Array, log_b: Array, order: float) -> Array:
    """log of log((1-q) A^(order-1) + q B^(order-1))/(order-1): what both powers exceed 1 by, so nothing cancels."""
    log_excess = np.logaddexp(
        log1mexp(log_q) + _log_expm1(math.log(order - 1) + log_log_a),
        log_q + _log_expm1(np.log((order - 1) * log_b)),
    )
    return _log_log1p(log_excess) - math.log(order - 1)


def _log_expm1(log_y: Array) -> Array:
    """log(e^y - 1) from log y."""
    y = np.exp(log_y)
    return np.where(log_y < -30, log_y, y + log1mexp(-y))


def _log_log1p(log_x: Array) -> Array:
    """log log(1 + x) from log x."""
    return np.where(log_x < -30, log_x, np.log(np.logaddexp(0.0, log_x)))


def _one_order(order: float) -> float:
    return float(_validate.orders(_validate.number("order", order))[0])


def log_pr_answered(top: ArrayLike, *, threshold: float, sigma: float) -> Array:
    """Log-probability that the noisy top count (or interactive score) reaches the threshold.

    Args:
        top: (n_queries,) plurality counts or interactive scores.

    [PATE18, Alg. 1]
    """
    sigma = _validate.positive("sigma", sigma)
    threshold = _validate.number("threshold", threshold)
    result: Array = log_ndtr((np.asarray(top, dtype=np.float64) - threshold) / sigma)
    return result


def rdp_threshold(log_p: ArrayLike, *, sigma: float, orders: ArrayLike) -> Array:
    """The paper's data-dependent Rényi bound of the threshold check: `rdp_gnmax` at sqrt 2 sigma.

    q is the smaller of Pr[answered] and Pr[withheld]; the data-independent part is order/(2 sigma²).

    Args:
        log_p: (n_queries,) log-probabilities of an answer.

    Returns:
        (n_queries, n_orders)

    [PATE18, Thm. 6] [PATE18, Alg. 1]
    """
    sigma = _validate.positive("sigma", sigma)
    return rdp_gnmax(log_q_threshold(log_p), sigma=sigma * math.sqrt(2), orders=orders)


def log_q_threshold(log_p: ArrayLike) -> Array:
    """Log-probability of the check's less likely outcome, from that of an answer. [PATE18, Alg. 1]"""
    log_p = _log_probabilities("log_p", log_p)
    return np.minimum(log_p, log1mexp(log_p))


def log_q_laplace(counts: ArrayLike, *, scale: float) -> Array:
    """Log of a bound on the probability that LNMax does not release the plurality.

    q = sum over the losing classes of (2 + g)/(4 e^g), g = gap/scale; at most 1 - 1/m.

    [PATE17, Lemma 4]
    """
    scale = _validate.positive("scale", scale)
    g = _gaps(counts) / scale
    return _log_union(np.log(2 + g) - math.log(4) - g)


def rdp_pure(*, epsilon: float, orders: ArrayLike) -> Array:
    """Rényi bound of any pure epsilon-DP mechanism: min(epsilon² order/2, epsilon). [BS16, Prop. 3.3]"""
    epsilon = _validate.positive("epsilon", epsilon)
    return np.minimum(epsilon**2 * _validate.orders(orders) / 2, epsilon)


def rdp_lnmax(log_q: ArrayLike, *, scale: float, orders: ArrayLike) -> Array:
    """The 2017 data-dependent bound of LNMax, which is 2/scale-DP.

    With e = 2/scale and q < 1/(1 + e^e):
    log((1-q)((1-q)/(1 - e^e q))^(order-1) + q e^(e (order-1)))/(order - 1); min with `rdp_pure`.

    Returns:
        (n_queries, n_orders)

    [PATE17, Thm. 3]
    """
    log_q = _log_probabilities("log_q", log_q)
    scale = _validate.positive("scale", scale)
    orders = _validate.orders(orders)
    epsilon = 2 / scale
    result = np.tile(rdp_pure(epsilon=epsilon, orders=orders), (log_q.size, 1))
    result[np.isneginf(log_q)] = 0.0
    # q < 1/(1 + e^e) is the 2017 theorem's (e^e - 1)/(e^(2e) - 1)
    rows = np.flatnonzero(np.isfinite(log_q) & (log_q < -np.logaddexp(0.0, epsilon)))
    if rows.size:
        q = np.exp(log_q[rows, None])
        log_a = np.log1p(q * math.expm1(epsilon) / -np.expm1(log_q[rows, None] + epsilon))
        # log(1 + (1-q)(A^(order-1) - 1) + q(e^(epsilon (order-1)) - 1)): both terms at least 0, nothing cancels
        powers = ((orders - 1) * log_a, (orders - 1) * epsilon)
        excess = (1 - q) * np.expm1(np.minimum(powers[0], 500.0)) + q * np.expm1(np.minimum(powers[1], 500.0))
        large = np.logaddexp(np.log1p(-q) + powers[0], log_q[rows, None] + powers[1])
        log_sum = np.where(np.maximum(*powers) < 500, np.log1p(excess), large)
        result[rows] = np.minimum(result[rows], log_sum / (orders - 1))
    return result


def log_upper(log_q: ArrayLike, *, sigma: float, n_classes: int) -> Array:
    """B_U: an upper bound on log q at any neighbor, from log q here.

    (m-1) Phi(Phi^-1(q/(m-1)) + sqrt 2/sigma), at most 1.

    [PATE18, Prop. 21]
    """
    return np.minimum(_log_shifted(log_q, sigma=sigma, n_classes=n_classes, sign=1.0), 0.0)


def log_lower(log_q: ArrayLike, *, sigma: float, n_classes: int) -> Array:
    """B_L: a lower bound on log q at any neighbor, from log q here.

    (m-1) Phi(Phi^-1(q/(m-1)) - sqrt 2/sigma).

    [PATE18, Prop. 21]
    """
    return _log_shifted(log_q, sigma=sigma, n_classes=n_classes, sign=-1.0)


def _log_shifted(log_q: ArrayLike, *, sigma: float, n_classes: int, sign: float) -> Array:
    log_q = _log_probabilities("log_q", log_q)
    sigma = _validate.positive("sigma", sigma)
    log_losers = math.log(_validate.integer("n_classes", n_classes, at_least=2) - 1)
    shifted = log_losers + log_ndtr(ndtri_exp(np.minimum(log_q - log_losers, 0.0)) + sign * math.sqrt(2) / sigma)
    with np.errstate(invalid="ignore"):
        outward = shifted + sign * 1e-11 * np.abs(shifted)  # rounding of far tails: at most 2e-12 relative was seen
    result: Array = np.where(np.isfinite(shifted), outward, shifted)
    return result


def log_q0(*, sigma: float, order: float) -> float:
    """The critical log q: below it the data-dependent bound of GNMax is smaller than order/sigma².

    By bisection on `rdp_gnmax`, conditions included; the lower end of the last bracket.

    [PATE18, Cond. C5]
    """
    sigma = _validate.positive("sigma", sigma)
    order = _one_order(order)

    def helps(log_q: float) -> bool:
        return bool(rdp_gnmax(log_q, sigma=sigma, orders=order)[0, 0] < order / sigma**2)

    low, high = -1.0, 0.0
    while not helps(low):
        low, high = 2 * low, low
    while high - low > 1e-13 * -low:
        middle = (low + high) / 2
        low, high = (middle, high) if helps(middle) else (low, middle)
    return low


def rdp_gnss(*, beta: float, sigma: float, order: float) -> float:
    """Cost of releasing f(D) + SS(D)·N(0, sigma²), SS a beta-smooth sensitivity of f: the corrected theorem.

    max over r in {e^-beta, e^beta} of order·min(1, r²)/(2 sigma² u) + (order ln r - ln(u)/2)/(order - 1),
    u = 1 - order + order r² > 0; it needs order·(1 - e^(-2 beta)) < 1. The printed theorem loses a factor
    in the mean term and is too small.

    [PATE18, Thm. 23, corrected]
    """
    beta = _validate.positive("beta", beta)
    sigma = _validate.positive("sigma", sigma)
    order = _one_order(order)
    if order * -math.expm1(-2 * beta) >= 1:
        raise InputError(
            f"order*(1 - exp(-2 beta)) must be below 1, got {order * -math.expm1(-2 * beta):.4g} "
            f"(order={order:g}, beta={beta:g}). Take a smaller beta or order."
        )

    def cost(log_r: float) -> float:
        u = 1 + order * math.expm1(2 * log_r)
        mean = order * min(1.0, math.exp(2 * log_r)) / (2 * sigma**2 * u)
        return mean + (order * log_r - 0.5 * math.log(u)) / (order - 1)

    return max(cost(-beta), cost(beta))
