"""The only privacy-critical sampler.

Noise lives on a lattice of 2^-40 votes and is held as int64 multiples of it, so that scores are
exact integers: no float rounding stands between the analysis and what is drawn. `docs/math.md`,
"Noise on a lattice", shows why the continuous analysis covers it.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._optional import require
from terrine.errors import InputError

LATTICE_BITS = 40
UNIT = 2**LATTICE_BITS  # lattice steps in one vote
SMALLEST = 1e-6  # votes
LARGEST = 2.0**22  # votes: UNIT * LARGEST = 2^62 leaves int64 room for a sum of two
COIN = 2**60  # a test's chances are whole multiples of 1/COIN


def to_lattice(votes: NDArray[Any] | float) -> NDArray[np.int64]:
    """Public or integral values in votes as whole lattice steps."""
    result: NDArray[np.int64] = np.floor(np.asarray(votes, dtype=np.float64) * UNIT + 0.5).astype(np.int64)
    return result


def require_room(*, largest_count: float, scale: float) -> None:
    """Refuse, from public numbers, what the lattice cannot hold: an int64 overflow, or noise near its step.

    Noise beyond 64 scales never comes; below 10^-6 votes the continuous analysis would not cover the lattice.
    """
    if scale < SMALLEST:
        raise InputError(f"Noise must be at least {SMALLEST:g} votes, got {scale:g}.")
    if abs(largest_count) + 64 * scale >= LARGEST:
        raise InputError(
            f"Teachers (or threshold) + 64 x noise scale must be below {LARGEST:.0f} votes, got "
            f"{abs(largest_count) + 64 * scale:.0f}. Take fewer teachers or less noise."
        )


class SecureNoise:
    """OpenDP's exact discrete Gaussian and Laplace samplers over cryptographic randomness: the default."""

    secure = True

    def gaussian(self, shape: tuple[int, ...], *, sigma: float) -> NDArray[np.int64]:
        """Discrete Gaussian of standard deviation ``sigma`` votes, in lattice steps."""
        require_room(largest_count=0, scale=_validate.positive("sigma", sigma))
        return _draw("gaussian", sigma, shape)

    def laplace(self, shape: tuple[int, ...], *, scale: float) -> NDArray[np.int64]:
        """Discrete Laplace of scale ``scale`` votes, in lattice steps."""
        require_room(largest_count=0, scale=_validate.positive("scale", scale))
        return _draw("laplace", scale, shape)

    def below(self, n: int) -> int:
        """Uniform in 0..n-1."""
        return secrets.randbelow(n)

    def __repr__(self) -> str:
        return "SecureNoise()"


class SeededNoise:
    """A seeded numpy sampler for experiments: NOT private, and every result it touches says so."""

    secure = False

    def __init__(self, seed: int | np.random.Generator) -> None:
        try:
            self._generator = np.random.default_rng(seed)
        except (TypeError, ValueError):
            raise InputError(f"seed must be a whole number of at least 0 or a numpy Generator, got {seed!r}.") from None

    def gaussian(self, shape: tuple[int, ...], *, sigma: float) -> NDArray[np.int64]:
        """In steps of the lattice, rounded to the nearest."""
        require_room(largest_count=0, scale=_validate.positive("sigma", sigma))
        return to_lattice(self._generator.normal(0.0, sigma, shape))

    def laplace(self, shape: tuple[int, ...], *, scale: float) -> NDArray[np.int64]:
        """In steps of the lattice, rounded to the nearest."""
        require_room(largest_count=0, scale=_validate.positive("scale", scale))
        return to_lattice(self._generator.laplace(0.0, scale, shape))

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        return int(self._generator.integers(n))

    def __repr__(self) -> str:
        return "SeededNoise(insecure)"


class KeptNoise:
    """Noise that was drawn before, for a release that a crash may break off: drawn once, and used as often as needed.

    How much there is depends on public numbers only. A tie takes the next of as many tickets as there are rows, each
    uniform below a multiple of every number of classes that can be tied.

    Args:
        gaussians: (sigma, steps) in the order in which they are asked for; the first rows serve fewer rows.
        ties: tickets, below ``tie_range(n_classes)``.
        coin: below COIN, for the one test of the release.
        secure: of the sampler that drew them.
    """

    def __init__(
        self, gaussians: Sequence[tuple[float, NDArray[np.int64]]], *, ties: Sequence[int], coin: int, secure: bool
    ) -> None:
        self.secure = secure
        self._gaussians, self._ties, self._coin = iter(gaussians), iter(ties), iter([coin])

    def gaussian(self, shape: tuple[int, ...], *, sigma: float) -> NDArray[np.int64]:
        """The next, for as many rows or fewer."""
        kept, steps = next(self._gaussians, (0.0, np.zeros(0, dtype=np.int64)))
        if kept != sigma or steps.shape[1:] != shape[1:] or len(steps) < shape[0]:
            raise InputError("This noise was not drawn for this release.")
        return steps[: shape[0]]

    def laplace(self, shape: tuple[int, ...], *, scale: float) -> NDArray[np.int64]:
        raise InputError("No Laplace noise is kept: a tested release takes GNMax or ConfidentGNMax.")

    def below(self, n: int) -> int:
        """Uniform in 0..n-1: the coin for COIN, a ticket for a tie."""
        return next(self._coin) if n == COIN else next(self._ties) % n

    def __repr__(self) -> str:
        return "KeptNoise(secret)"


def tie_range(n_classes: int) -> int:
    """The least number that every number of tied classes divides."""
    return math.lcm(*range(1, n_classes + 1))


def uniform(noise: SecureNoise | SeededNoise, n: int) -> int:
    """Uniform in 0..n-1, for an n of any size: 32 bits at a time, drawn again where they do not divide evenly."""
    words = -(-n.bit_length() // 32) + 1
    whole = 1 << (32 * words)
    while True:
        found = sum(noise.below(1 << 32) << (32 * k) for k in range(words))
        if found < whole - whole % n:
            return found % n


Noise = SecureNoise | SeededNoise | KeptNoise


def as_noise(rng: Noise | np.random.Generator | None) -> Noise:
    """None is the secure sampler; a numpy Generator is wrapped and marked insecure."""
    match rng:
        case None:
            return SecureNoise()
        case SecureNoise() | SeededNoise() | KeptNoise():
            return rng
        case np.random.Generator():
            return SeededNoise(rng)
    raise InputError(
        f"rng must be SecureNoise(), SeededNoise(seed), a numpy Generator or None (secure), got {type(rng).__name__}."
    )


@lru_cache(maxsize=32)
def _measurement(law: str, scale: float) -> Any:
    # Not opendp.prelude, which imports scikit-learn and Polars too: two seconds
    mod, domains, metrics, measurements = (
        require(f"opendp.{name}", use="Secure noise", extra=None)
        for name in ("mod", "domains", "metrics", "measurements")
    )
    mod.enable_features("contrib")
    domain = domains.vector_domain(domains.atom_domain(T="i64"))  # plain int means i32 there and would overflow
    if law == "gaussian":
        return measurements.make_gaussian(domain, metrics.l2_distance(T="i64"), scale=scale * UNIT)
    return measurements.make_laplace(domain, metrics.l1_distance(T="i64"), scale=scale * UNIT)


def _draw(law: str, scale: float, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Vector calls, one per core: OpenDP adds noise to zeros, some 12 µs a draw, and releases Python's lock."""
    zeros = np.zeros(math.prod(shape), dtype=np.int64)
    if zeros.size == 0:
        return zeros.reshape(shape)
    measurement = _measurement(law, scale)
    parts = np.array_split(zeros, min(os.cpu_count() or 1, zeros.size // 1000 + 1))
    if len(parts) == 1:  # a few draws cost less than starting a thread
        return np.array(measurement(zeros), dtype=np.int64).reshape(shape)
    with ThreadPoolExecutor(len(parts)) as pool:
        drawn = [np.array(part, dtype=np.int64) for part in pool.map(measurement, parts)]
    return np.concatenate(drawn).reshape(shape)
