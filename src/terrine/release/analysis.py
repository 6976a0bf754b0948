"""What answering a set of votes costs: the library's side of `terrine analyze`.

Public numbers only, unless ``reveal`` asks for those that depend on the votes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import PlainValidator

from terrine import _validate
from terrine._validate import JsonObject
from terrine.accounting.costs import (
    Accountant,
    Bound,
    CostSettings,
    Progress,
    expected_answered,
    running_cost,
    worst_case_cost,
)
from terrine.accounting.curves import ORDERS, Conversion, Guarantee, guarantee
from terrine.errors import InputError
from terrine.mechanisms import ConfidentGNMax, LNMax, Mechanism
from terrine.release.tested import ConditionalGuarantee, publishable_guarantee
from terrine.votes import Votes

SECRET = "secret: depends on private votes"
Route = Literal["worst case", "tested"]


@dataclass(frozen=True, kw_only=True, eq=False)
class AnalysisSettings:
    """How costs are counted: public, and chosen before votes are read.

    Attributes:
        n_answers: the worst case is for at most this many answers; for one to every query if left out.
        accountant: of the cost on these votes. The bounds ("paper", "sanitizable") are given as the expectations of the
            paper's tables, "exact" as the divergence that it is.
        tested: the tested route, where it was chosen.
    """

    delta: float
    n_answers: int | None = None
    accountant: Accountant = "exact"
    conversion: Conversion = "tight"
    bound: Bound = "argmax"
    orders: ArrayLike = field(default_factory=lambda: ORDERS)
    n_records: int | None = None
    tested: ConditionalGuarantee | None = None


@dataclass(frozen=True, kw_only=True)
class CostOfVotes:
    """What depends on the votes, revealed by their owner: secret."""

    accountant: Accountant
    epsilon: float
    order: float
    expected_answered: float
    basis: str
    notes: tuple[str, ...]
    pass_chance: float | None = None  # of the tested route


@dataclass(frozen=True, kw_only=True)
class EpsilonByQuery:
    """Epsilon after 1, 2, ..., n queries, answers growing in proportion to the number fixed beforehand.

    Attributes:
        gaussian: the worst case of the whole noisy histogram; LNMax has none.
        revealed: on these votes. Secret.
    """

    queries: tuple[int, ...]
    worst_case: tuple[float, ...]
    gaussian: tuple[float, ...] | None
    revealed: tuple[float, ...] | None


def _mechanism(value: Any) -> Mechanism:
    kinds = {kind.__name__: kind for kind in get_args(Mechanism)}
    try:
        given = dict(value)
        found: Mechanism = kinds[given.pop("name")](**given)
        return found
    except (KeyError, TypeError, ValueError):
        raise ValueError("a mechanism's name and settings are expected") from None


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """What these queries cost: by worst case, and what may be published; ``on_these_votes`` is secret.

    Attributes:
        data_independent_epsilon, data_independent_order: of the worst case.
        publishable: what may be shown, and its ``basis`` says why: the worst case, or the tested route.
    """

    mechanism: Annotated[Mechanism, PlainValidator(_mechanism)]
    n_teachers: int
    n_classes: int
    queries: int
    answers_at_most: int
    delta: float
    conversion: Conversion
    bound: Bound
    data_independent_epsilon: float
    data_independent_order: float
    route: Route
    publishable: Guarantee
    on_these_votes: CostOfVotes | None = None
    by_query: EpsilonByQuery | None = None

    def to_json(self) -> JsonObject:
        """The secret numbers, if there are any, stand beside the public ones with a "secret" that says so."""
        found, relation = asdict(self), self.publishable.relation
        found["mechanism"] = {"name": type(self.mechanism).__name__, **asdict(self.mechanism)}
        found["publishable"] = {**self.publishable.to_json(), "route": self.route, "why": self.publishable.basis}
        found |= {"relation": str(relation), "neighbors": relation.sentence}
        if secret := found.pop("on_these_votes"):
            found |= {name: value for name, value in secret.items() if value is not None} | {"secret": SECRET}
        if found["by_query"] is None:
            del found["by_query"]
        return found

    @classmethod
    def from_json(cls, value: object) -> Self:
        if not isinstance(value, dict):
            raise InputError(f"Analysis: an object is expected, got {type(value).__name__}.")
        return _validate.from_json(cls, {**value, "on_these_votes": value if "secret" in value else None})


def analyze_votes(
    votes: Votes,
    mechanism: Mechanism,
    settings: AnalysisSettings,
    *,
    student_proba: NDArray[np.float64] | None = None,
    reveal: bool = False,
    n_points: int = 0,
    progress: Progress | None = None,
) -> Analysis:
    """The publishable worst case and, with ``reveal``, the data-dependent cost.

    Args:
        student_proba: (n_queries, n_classes), for InteractiveGNMax only.
        reveal: add what depends on the votes: the result is then secret.
        n_points: of `EpsilonByQuery`, at most; 0: none.
    """
    delta, conversion, tested = settings.delta, settings.conversion, settings.tested
    orders = _validate.orders(settings.orders)
    n, n_answers = len(votes), settings.n_answers
    worst = publishable_guarantee(
        mechanism,
        n_queries=n,
        n_answers=n_answers,
        delta=delta,
        orders=orders,
        bound=settings.bound,
        conversion=conversion,
        n_records=settings.n_records,
    )
    shown = publishable_guarantee(mechanism, n_queries=n, delta=delta, tested=tested) if tested else worst
    stops = np.unique(np.linspace(1, n, min(n, n_points)).astype(np.int64)).tolist() if n_points else [n]
    secret, revealed = None, None
    if reveal:
        how = CostSettings(orders=orders, accountant=settings.accountant, expected=settings.accountant != "exact")
        costs = running_cost(mechanism, votes, how, stops=stops, student_proba=student_proba, progress=progress)
        # Sensitive until it is converted, so that a warning about these votes stays in the notes.
        found = guarantee(costs[-1], delta=delta, conversion=conversion).reveal()
        revealed = tuple(one.reveal().epsilon(delta=delta, conversion=conversion) for one in costs)
        secret = CostOfVotes(
            accountant=settings.accountant,
            epsilon=found.epsilon,
            order=found.order,
            expected_answered=expected_answered(mechanism, votes, student_proba=student_proba).reveal(),
            basis=found.basis,
            notes=found.notes,
            pass_chance=None if tested is None else tested.pass_chance(votes).reveal(),
        )
    answers_at_most = n if n_answers is None else n_answers

    def worst_cases(bound: Bound) -> tuple[float, ...]:
        has_check = isinstance(mechanism, ConfidentGNMax)
        answered = [-(-k * answers_at_most // n) if has_check else k for k in stops]
        costs = (
            worst_case_cost(mechanism, n_queries=k, n_answered=a, orders=orders, bound=bound)
            for k, a in zip(stops, answered, strict=True)
        )
        return tuple(one.epsilon(delta=delta, conversion=conversion) for one in costs)

    by_query = None
    if n_points:
        gaussian = None if isinstance(mechanism, LNMax) else worst_cases("gaussian")
        by_query = EpsilonByQuery(
            queries=tuple(stops), worst_case=worst_cases("argmax"), gaussian=gaussian, revealed=revealed
        )
    return Analysis(
        mechanism=mechanism,
        n_teachers=votes.n_teachers,
        n_classes=votes.n_classes,
        queries=n,
        answers_at_most=answers_at_most,
        delta=delta,
        conversion=conversion,
        bound=settings.bound,
        data_independent_epsilon=worst.epsilon,
        data_independent_order=worst.order,
        route="tested" if tested else "worst case",
        publishable=Guarantee(**{one.name: getattr(shown, one.name) for one in fields(Guarantee)}),
        on_these_votes=secret,
        by_query=by_query,
    )
