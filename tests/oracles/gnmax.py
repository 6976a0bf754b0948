"""Slow, trustworthy law and Renyi divergence of GNMax, to test the package against.

Shares no code with `terrine`. Counts may be real (the law is that of
argmax(counts + sigma * Z)); `multiplicity[i]` says how many equal classes entry i
stands for, and may be astronomically large: the attack on the worst case needs it.
"""

from collections.abc import Sequence

import mpmath as mp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr

Array = NDArray[np.float64]
Move = tuple[int, int]

HALF_WIDTH = 10.5  # every log-integrand is -(t - mode)**2 / 2 or lower: e**-55
MAX_STEP = 0.05
SERIES_TERMS = 40


def gnmax_log_probabilities(counts: ArrayLike, *, sigma: float, multiplicity: ArrayLike | None = None) -> Array:
    """log Pr[class i wins], of one class for each entry of counts, (n_classes,)."""
    means, weight = _standardise(counts, sigma, multiplicity)
    distinct, inverse = np.unique(means, return_inverse=True)
    merged = np.bincount(inverse, weights=weight)
    return np.array([_integral(distinct, merged, i)[0] for i in range(len(distinct))])[inverse]


def gnmax_divergence(
    counts: ArrayLike,
    move: Move,
    *,
    sigma: float,
    orders: ArrayLike,
    multiplicity: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """D(p(n) || p(n')) and D(p(n') || p(n)), n' = n - e_a + e_b, each (n_orders,)."""
    orders = np.asarray(orders, dtype=float)
    forward, reverse = _gnmax_log_excess(counts, move, sigma, orders, multiplicity)
    return _divergence(forward, orders), _divergence(reverse, orders)


def gnmax_worst_divergence(counts: ArrayLike, *, sigma: float, orders: ArrayLike) -> Array:
    """The larger direction of the worst move of one vote, (n_orders,)."""
    orders = np.asarray(orders, dtype=float)
    return np.max(
        [np.maximum(*gnmax_divergence(counts, move, sigma=sigma, orders=orders)) for move in distinct_moves(counts)],
        axis=0,
    )


def distinct_moves(counts: ArrayLike) -> list[Move]:
    """One move (a, b), counts[a] >= 1, for each pair of counts that has one."""
    counts = np.asarray(counts)
    found: dict[tuple[float, float], Move] = {}
    for a, count_a in enumerate(counts):
        for b, count_b in enumerate(counts):
            if a != b and count_a >= 1:
                found.setdefault((count_a, count_b), (a, b))
    return list(found.values())


def check_divergence(
    score: float, shift: float, *, threshold: float, sigma: float, orders: ArrayLike
) -> tuple[Array, Array]:
    """The bit `score + sigma * Z >= threshold` against score + shift, both ways."""
    orders = np.asarray(orders, dtype=float)
    excess = _check_log_excess((score - threshold) / sigma, shift / sigma, orders)
    return _divergence(excess[0], orders), _divergence(excess[1], orders)


def confident_divergence(
    counts: ArrayLike,
    move: Move,
    *,
    threshold: float,
    sigma_check: float,
    sigma_vote: float,
    orders: ArrayLike,
    multiplicity: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """Both directions for "no answer, or the winner": one law on m + 1 outcomes."""
    counts, orders = np.asarray(counts, dtype=float), np.asarray(orders, dtype=float)
    top, moved_top = counts.max(), moved(counts, move).max()
    position = (top - threshold) / sigma_check
    shift = (moved_top - top) / sigma_check
    check = _check_log_excess(position, shift, orders)
    vote = _gnmax_log_excess(counts, move, sigma_vote, orders, multiplicity)
    log_ratio = float(log_ndtr_difference(position, shift))
    forward, reverse = (
        _divergence(np.logaddexp(excess, log_ndtr(position) + c * log_ratio + answer), orders)
        for excess, answer, c in zip(check, vote, (1 - orders, orders), strict=True)
    )
    return forward, reverse


def moved(counts: ArrayLike, move: Move) -> Array:
    """The neighbour counts - e_a + e_b."""
    a, b = move
    neighbour = np.array(counts, dtype=float)
    neighbour[a] -= 1
    neighbour[b] += 1
    return neighbour


# --- the one-dimensional integral ---------------------------------------------------


def _standardise(counts: ArrayLike, sigma: float, multiplicity: ArrayLike | None) -> tuple[Array, Array]:
    counts = np.asarray(counts, dtype=float)
    weight = np.ones_like(counts) if multiplicity is None else np.asarray(multiplicity)
    return (counts - counts.max()) / sigma, weight.astype(float)


def _integral(means: Array, weight: Array, i: int, *, margin: float = 0.0) -> tuple[float, Array, Array]:
    """log p_i, the nodes, and log weights of the nodes (they sum to one)."""
    others = weight.copy()
    others[i] -= 1

    def hazard(t: float) -> Array:
        x = t - means
        return np.exp(-x * x / 2 - np.log(2 * np.pi) / 2 - log_ndtr(x))

    wall = np.sqrt(2 * np.log(weight.sum()))  # the best of k equals k: width 1 / wall
    low, high = means[i], means.max() + wall + 2
    while high - low > MAX_STEP:
        mode = (low + high) / 2
        if others @ hazard(mode) > mode - means[i]:
            low = mode
        else:
            high = mode
    mode = (low + high) / 2
    h = hazard(mode)
    curvature = 1 + others @ (h * (h + mode - means))
    step = min(MAX_STEP, 0.3 / np.sqrt(curvature), 0.25 / wall)
    half = int(np.ceil((HALF_WIDTH + margin) / step))
    t = mode + step * np.arange(-half, half + 1)
    log_f = -((t - means[i]) ** 2) / 2 + log_ndtr(t[:, None] - means) @ others
    log_sum = _log_sum_exp(log_f)
    return log_sum + np.log(step) - np.log(2 * np.pi) / 2, t, log_f - log_sum


def log_ndtr_difference(x: ArrayLike, shift: float) -> Array:
    """log Phi(x + shift) - log Phi(x), without cancellation in the left tail."""
    x = np.asarray(x, dtype=float)
    left = np.maximum(x, x + shift) < -1
    z = np.where(left, x, -2 - abs(shift))
    tail = -z * shift - shift * shift / 2
    tail += np.log(erfcx(-(z + shift) / np.sqrt(2)) / erfcx(-z / np.sqrt(2)))
    return np.where(left, tail, log_ndtr(x + shift) - log_ndtr(x))


# --- divergence as a sum of non-negative terms --------------------------------------


def _gnmax_log_excess(
    counts: ArrayLike,
    move: Move,
    sigma: float,
    orders: Array,
    multiplicity: ArrayLike | None,
) -> tuple[Array, Array]:
    a, b = move
    means, weight = _standardise(counts, sigma, multiplicity)
    if a == b or weight[a] != 1 or weight[b] != 1:
        raise ValueError(f"Expected a move between two single classes, got {move}.")
    rest = np.ones(len(means), dtype=bool)
    rest[[a, b]] = False
    distinct, inverse = np.unique(means[rest], return_inverse=True)
    merged = np.bincount(inverse, weights=weight[rest], minlength=len(distinct))
    means = np.concatenate([means[[a, b]], distinct])
    weight = np.concatenate([[1.0, 1.0], merged])

    s = 1 / sigma
    n_groups = len(means)
    log_p, log_r, delta = np.empty(n_groups), np.empty(n_groups), np.empty(n_groups)
    for i in range(n_groups):
        # The move shifts a mode by at most 2s, so the window covers both laws.
        log_p[i], t, log_w = _integral(means, weight, i, margin=2 * s)
        x, y = t - means[0], t - means[1]
        log_ratio = (-x * s if i == 0 else y * s if i == 1 else 0.0) * np.ones_like(t)
        log_ratio += -s * s / 2 if i == 0 else log_ndtr_difference(x, s)
        log_ratio += -s * s / 2 if i == 1 else log_ndtr_difference(y, -s)
        with np.errstate(over="ignore"):
            if np.abs(log_ratio).max() < 1:
                delta[i] = np.exp(log_w) @ np.expm1(log_ratio)
                log_r[i] = np.log1p(delta[i])
            else:
                log_r[i] = _log_sum_exp(log_w + log_ratio)
                delta[i] = np.expm1(log_r[i])

    # The likeliest class barely moves: its own integral would lose that to rounding.
    log_mass = log_p + np.log(weight)
    top = int(np.argmax(log_mass))
    with np.errstate(divide="ignore"):
        log_size = np.where(log_r > 30, log_r, np.log(np.abs(delta)))
    flow = np.sign(delta) * np.exp(log_mass + log_size - log_mass[top])
    change = -np.delete(flow, top).sum()
    if change > -0.5:
        delta[top], log_r[top] = change, np.log1p(change)
    return _log_excess(log_mass, log_r, delta, orders)


def _check_log_excess(position: float, shift: float, orders: Array) -> tuple[Array, Array]:
    sides = np.array([1.0, -1.0])
    log_p = log_ndtr(sides * position)
    log_r = np.array([float(log_ndtr_difference(side * position, side * shift)) for side in sides])
    with np.errstate(over="ignore"):
        return _log_excess(log_p, log_r, np.expm1(log_r), orders)


def _log_excess(log_p: Array, log_r: Array, delta: Array, orders: Array) -> tuple[Array, Array]:
    """log(E_p[r**c] - 1) for c = 1 - order (forward) and c = order (reverse)."""
    forward, reverse = (_log_sum_exp(log_p + _log_psi(c[:, None], log_r, delta)) for c in (1 - orders, orders))
    return forward, reverse


def _log_psi(c: Array, log_r: Array, delta: Array) -> Array:
    """log(r**c - 1 - c (r - 1)), non-negative since c(c - 1) > 0."""
    with np.errstate(all="ignore"):
        small = (np.abs(delta) < 0.25) & (np.abs(c * delta) < 0.25)
        d = np.where(small, delta, 0.0)
        term, total = np.ones_like(c * d), np.ones_like(c * d)
        for k in range(2, SERIES_TERMS):
            term = term * (c - k) * d / (k + 1)
            total = total + term
        series = np.log(c * (c - 1) / 2) + 2 * np.log(np.abs(d)) + np.log(total)

        power = c * log_r
        plain = np.log(np.expm1(power) - c * delta)
        peak = np.maximum(power, log_r)
        parts = np.exp(power - peak) - c * np.exp(log_r - peak) + (c - 1) * np.exp(-peak)
        large = peak + np.log(parts)
    return np.where(small, series, np.where(peak > 500, large, plain))


def _log_sum_exp(values: Array) -> Array:
    """Over the last axis."""
    peak = values.max(axis=-1, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(values - peak).sum(axis=-1)) + peak[..., 0]


def _divergence(log_excess: Array, orders: Array) -> Array:
    return np.logaddexp(0.0, log_excess) / (orders - 1)


# --- the same in mpmath, written from the definition --------------------------------


def mp_gnmax_probabilities(counts: Sequence[float], *, sigma: float, digits: int = 50) -> list[mp.mpf]:
    """Pr[class i wins] for each class."""
    with mp.workdps(digits + 10):
        means = [mp.mpf(count) / mp.mpf(sigma) for count in counts]
        return [+_mp_integral(means, i, digits) for i in range(len(means))]


def _mp_integral(means: list[mp.mpf], i: int, digits: int) -> mp.mpf:
    others = [mean for j, mean in enumerate(means) if j != i]

    def slope(t: mp.mpf) -> mp.mpf:
        return means[i] - t + sum(mp.npdf(t - mean) / mp.ncdf(t - mean) for mean in others)

    with mp.workdps(15):
        low, high = means[i], max(means) + 3 + len(means)
        while high - low > 0.1:
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) > 0 else (low, middle)
        mode = (low + high) / 2

    def density(t: mp.mpf) -> mp.mpf:
        return mp.npdf(t - means[i]) * mp.fprod(mp.ncdf(t - mean) for mean in others)

    width = mp.sqrt(2 * mp.log(10) * digits) + 1
    edges = [mode + width * k / 2 for k in range(-2, 3)]
    # mp.quad stops at an absolute error, so the integrand is scaled to about one.
    scale = density(mode)
    return scale * mp.quad(lambda t: density(t) / scale, edges, method="gauss-legendre")


def mp_gnmax_divergence(
    counts: Sequence[float],
    move: Move,
    *,
    sigma: float,
    orders: Sequence[float],
    digits: int = 50,
) -> tuple[list[mp.mpf], list[mp.mpf]]:
    """As gnmax_divergence, by log(sum p**order q**(1 - order)) / (order - 1)."""
    a, b = move
    neighbour = list(counts)
    neighbour[a] -= 1
    neighbour[b] += 1
    p = mp_gnmax_probabilities(counts, sigma=sigma, digits=digits)
    q = mp_gnmax_probabilities(neighbour, sigma=sigma, digits=digits)
    with mp.workdps(digits + 10):
        return (
            [mp_renyi_divergence(p, q, order=order) for order in orders],
            [mp_renyi_divergence(q, p, order=order) for order in orders],
        )


def mp_renyi_divergence(p: Sequence[mp.mpf], q: Sequence[mp.mpf], *, order: float) -> mp.mpf:
    """D_order(p || q) of two laws given in full."""
    order = mp.mpf(order)
    powers = (x**order * y ** (1 - order) for x, y in zip(p, q, strict=True))
    return mp.log(mp.fsum(powers)) / (order - 1)
