"""Publishing what answers cost: one number per budget, its noise fixed beforehand, and what is said of it. Public.

The number is an upper bound, drawn with noise, on what the answers cost on the votes at hand. Drawing it costs epsilon
too, so that a budget includes it before the first answer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._validate import JsonObject
from terrine.accounting.costs import budget_curve, unit_costs, worst_case_cost
from terrine.accounting.curves import Guarantee, RdpCurve, guarantee, round_up
from terrine.errors import InputError
from terrine.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, Mechanism
from terrine.noise import Noise
from terrine.release.sanitize import Sanitizer, delta_shares
from terrine.sensitive import Sensitive
from terrine.votes import Votes

Array = NDArray[np.float64]

_HOPED = 0.5  # of the worst case: what answers cost on votes that mostly agree
INCLUDED = (
    "Epsilon includes the publication of one number, which says what these answers cost; it is spent whether the "
    "number is published or not."
)


@dataclass(frozen=True, kw_only=True)
class CostRelease:
    """One number, drawn once by the smooth majorant of the answers' cost; fixed with a budget before the first answer.

    Args:
        order: Rényi order at which the cost is bounded.
        beta: smoothness, as in `Sanitizer`.
        sigma: noise, in units of what one teacher can change.
        delta: chance that the number is below the truth; a part of the budget's delta.

    [TERRINE, Thm. 12]
    """

    order: float
    beta: float
    sigma: float
    delta: float

    def __post_init__(self) -> None:
        for name in ("order", "beta", "sigma", "delta"):
            object.__setattr__(self, name, float(_validate.number(name, getattr(self, name))))
        if not self._sanitizer.order == self.order:
            raise InputError(f"order must be a number above 1, got {self.order:g}.")

    @classmethod
    def by_rule(cls, *, epsilon: float, delta: float) -> CostRelease:
        """From the epsilon that one hopes for and the budget's delta, by the rules of thumb of `Sanitizer.by_rule`.

        Rounded, so that the same settings give the same budget on every machine.
        """
        found = Sanitizer.by_rule(epsilon=epsilon, delta=delta, delta_release=_rounded(delta / 10))
        return cls(
            order=_rounded(found.order), beta=_rounded(found.beta), sigma=_rounded(found.sigma), delta=found.delta
        )

    @classmethod
    def for_answers(
        cls, mechanism: Mechanism, *, n_queries: int, n_answers: int | None, delta: float, epsilon: float | None = None
    ) -> CostRelease:
        """For a budget of these answers; without an epsilon to hope for, half of their worst case stands in for it."""
        _check_mechanism(mechanism)
        if epsilon is None:
            worst = worst_case_cost(mechanism, n_queries=n_queries, n_answered=n_answers, bound="gaussian")
            epsilon = _HOPED * worst.epsilon(delta=delta)  # a closed form, the same on every machine
        return cls.by_rule(epsilon=_rounded(epsilon), delta=delta)

    @cached_property
    def _sanitizer(self) -> Sanitizer:
        return Sanitizer(order=self.order, beta=self.beta, sigma=self.sigma, delta=self.delta)

    def check(self, mechanism: Mechanism, *, delta: float) -> None:
        """Refuse a budget that it cannot be part of."""
        _check_mechanism(mechanism)
        delta_shares(delta, self.delta)

    def curve(self, orders: Array) -> RdpCurve:
        """What drawing the number costs, whatever it is."""
        return RdpCurve(orders, self._sanitizer.rdp(orders), "release of one number")

    def guarantee(self, mechanism: Mechanism, *, n_queries: int, n_answers: int | None, delta: float) -> Guarantee:
        """Of answers and number together: their worst cases, added at each Rényi order."""
        answers = budget_curve(mechanism, n_queries=n_queries, n_answered=n_answers, delta=delta)
        both = answers + self.curve(answers.orders)
        most = "" if n_answers is None else f" and {n_answers} answers"
        basis = (
            f"{answers.basis}, for at most {n_queries} queries{most} fixed beforehand, plus the release of one number "
            "that says what they cost: it does not depend on the votes"
        )
        found = guarantee(both.renamed(basis), delta=delta)
        return Guarantee(**{**vars(found), "notes": (*found.notes, INCLUDED)})

    @property
    def draws(self) -> list[tuple[float, tuple[int, ...]]]:
        """Sigma and shape of the noise that the number takes."""
        return [(self.beta * self.sigma, (1,))]

    def draw(self, votes: Votes | None, *, mechanism: Mechanism, noise: Noise) -> Sensitive[float]:
        """The number, for the votes behind answers (None: there were none). Secret until a charged ledger keeps it."""
        mechanism = _check_mechanism(mechanism)
        sigma = mechanism.sigma if isinstance(mechanism, GNMax) else mechanism.sigma_vote
        return Sensitive(self._sanitizer.upper_bound(votes, sigma_vote=sigma, rng=noise))

    def checks(self, mechanism: Mechanism, *, n_queries: int) -> RdpCurve:
        """Of all queries that may be put, by worst case, at the number's order."""
        return unit_costs(mechanism, orders=[self.order])[0] * n_queries

    def to_json(self) -> JsonObject:
        """As a budget stores it; `from_json` reads it."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> CostRelease:
        """What `to_json` returned; anything else is refused."""
        return _validate.from_json(cls, value)


@dataclass(frozen=True, kw_only=True)
class PublishedCost:
    """What was published of a run's cost: a statement after the fact, NOT a guarantee.

    Attributes:
        epsilon: what these answers and the number cost at most, on the votes at hand.
        delta: as of the guarantee.
        wrong_with_chance: chance, over the noise of the number, that epsilon is below the truth.
        answered: answers that it is about; all checks that the budget allows are charged their worst case.
        rdp, order: the number itself, a bound on the answers' Rényi cost at that order. None where it has none.
    """

    epsilon: float
    delta: float
    wrong_with_chance: float
    answered: int
    rdp: float | None
    order: float

    @classmethod
    def of(
        cls, number: float, release: CostRelease, *, whole: Guarantee, checks: RdpCurve, answered: int
    ) -> PublishedCost:
        """From the number and the checks' worst case at its order; never above what ``whole`` guarantees anyway."""
        rest, _ = delta_shares(whole.delta, release.delta)
        epsilon = whole.epsilon
        if np.isfinite(number):
            at = np.array([release.order])
            found = checks + RdpCurve(at, np.array([number])) + release.curve(at)
            epsilon = min(epsilon, found.epsilon(delta=rest))
        return cls(
            epsilon=epsilon,
            delta=whole.delta,
            wrong_with_chance=release.delta,
            answered=answered,
            rdp=number if np.isfinite(number) else None,
            order=release.order,
        )

    @property
    def in_words(self) -> str:
        return (
            f"After the fact: these {self.answered:,} answers and this number cost at most ε = "
            f"{round_up(self.epsilon)} at δ = {self.delta:g} on the votes that were cast, except with chance "
            f"{self.wrong_with_chance:g}. This describes what happened; it is not the guarantee, which is the larger ε."
        )


def _check_mechanism(mechanism: Mechanism) -> GNMax | ConfidentGNMax:
    if isinstance(mechanism, InteractiveGNMax) or not isinstance(mechanism, GNMax | ConfidentGNMax):
        raise InputError(
            f"The cost can be published of answers by GNMax or ConfidentGNMax, got {type(mechanism).__name__}, whose "
            "answers are charged their worst case."
        )
    return mechanism


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
