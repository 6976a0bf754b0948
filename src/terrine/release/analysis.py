"""What answering a set of votes costs: the library's side of `terrine analyze`.

Public numbers only, unless ``reveal`` asks for those that depend on the votes. None of them is a guarantee: a file of
votes does not show what was fixed before it was made, nor what has been published of it (`WhatIf`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
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
from terrine.accounting.curves import ORDERS, WIDE_ORDERS, Conversion, guarantee
from terrine.accounting.profile_votes import profile_of_votes
from terrine.errors import InputError
from terrine.mechanisms import ConfidentGNMax, LNMax, Mechanism
from terrine.relations import Relation
from terrine.release.tested import ConditionalGuarantee, publishable_guarantee
from terrine.release.what_if import WhatIf, if_counted, if_tested
from terrine.votes import Votes

SECRET = "secret: depends on private votes"


VotesAccountant = Literal["exact", "profile", "sanitizable", "paper"]


@dataclass(frozen=True, kw_only=True, eq=False)
class AnalysisSettings:
    """How costs are counted: public, and chosen before votes are read.

    Attributes:
        n_answers: the worst case is for at most this many answers; for one to every query if left out.
        accountant: of the cost on these votes. The bounds ("paper", "sanitizable") are given as the expectations of the
            paper's tables, "exact" as the divergence that it is, "profile" as the privacy profile's epsilon.
        orders: Rényi orders; if left out the paper's, and for the worst case those of `budget_curve`.
        tested: a tested release, to be compared with the worst case.
    """

    delta: float
    n_answers: int | None = None
    accountant: VotesAccountant = "exact"
    conversion: Conversion = "tight"
    bound: Bound = "argmax"
    orders: ArrayLike | None = None
    n_records: int | None = None
    tested: ConditionalGuarantee | None = None


@dataclass(frozen=True, kw_only=True)
class CostOfVotes:
    """What depends on the votes, revealed by their owner: secret."""

    accountant: VotesAccountant
    epsilon: float
    order: float | None
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
    """What these queries would cost; ``on_these_votes`` is secret.

    Attributes:
        worst_case: whatever the votes are.
        tested: the tested release that was asked about.
    """

    mechanism: Annotated[Mechanism, PlainValidator(_mechanism)]
    n_teachers: int
    n_classes: int
    queries: int
    answers_at_most: int
    delta: float
    conversion: Conversion
    bound: Bound
    worst_case: WhatIf
    tested: WhatIf | None = None
    on_these_votes: CostOfVotes | None = None
    by_query: EpsilonByQuery | None = None

    @property
    def data_independent_epsilon(self) -> float:
        """Of the worst case."""
        return self.worst_case.epsilon

    @property
    def data_independent_order(self) -> float | None:
        """Of the worst case."""
        return self.worst_case.order

    def to_json(self) -> JsonObject:
        """The secret numbers, if there are any, stand beside the public ones with a "secret" that says so."""
        found, relation = asdict(self), self.worst_case.relation
        found["mechanism"] = {"name": type(self.mechanism).__name__, **asdict(self.mechanism)}
        found["worst_case"] = self.worst_case.to_json()
        found["tested"] = None if self.tested is None else self.tested.to_json()
        found |= {
            "data_independent_epsilon": self.data_independent_epsilon,
            "data_independent_order": self.data_independent_order,
            "relation": str(relation),
            "neighbors": relation.sentence,
        }
        if secret := found.pop("on_these_votes"):
            found |= {name: value for name, value in secret.items() if value is not None} | {"secret": SECRET}
        return {name: value for name, value in found.items() if value is not None or name not in ("tested", "by_query")}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """From what `to_json` wrote, or an older version, which called one of the what-ifs "publishable"."""
        if not isinstance(value, dict):
            raise InputError(f"Analysis: an object is expected, got {type(value).__name__}.")
        found = {**value, "on_these_votes": value if "secret" in value else None}
        if isinstance(value.get("publishable"), dict):
            found |= _older(value)
        for name in ("worst_case", "tested"):
            if isinstance(one := found.get(name), dict):
                found[name] = one | {"condition": one.get("if")}
        return _validate.from_json(cls, found)


def _older(value: JsonObject) -> JsonObject:
    """The what-ifs of an analysis that was stored with the one it would have published."""
    shown, queries, answers = value["publishable"], value.get("queries"), value.get("answers_at_most")
    if not isinstance(queries, int) or not isinstance(answers, int):
        return {}
    counts = {"n_queries": queries, "n_answers": answers}
    worst = {**shown, "route": "worst case", "if": if_counted(**counts)}
    if shown.get("route") != "tested":
        return {"worst_case": worst}
    worst |= {
        "epsilon": value.get("data_independent_epsilon"),
        "order": value.get("data_independent_order"),
        "basis": f"worst case over all votes, {value.get('bound')} bound",
        "relation": str(Relation.ONE_TEACHER),
        "notes": (),
    }
    return {"worst_case": worst, "tested": shown | {"if": if_tested(**counts)}}


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
    """What these votes would cost by worst case and, with ``reveal``, the data-dependent cost.

    Args:
        student_proba: (n_queries, n_classes), for InteractiveGNMax only.
        reveal: add what depends on the votes: the result is then secret.
        n_points: of `EpsilonByQuery`, at most; 0: none.
    """
    delta, conversion, tested = settings.delta, settings.conversion, settings.tested
    orders = _validate.orders(ORDERS if settings.orders is None else settings.orders)
    n, n_answers = len(votes), settings.n_answers
    worst = publishable_guarantee(
        mechanism,
        n_queries=n,
        n_answers=n_answers,
        delta=delta,
        orders=settings.orders,
        bound=settings.bound,
        conversion=conversion,
        n_records=settings.n_records,
    )
    if tested is not None:  # refuses one that was made for other numbers
        publishable_guarantee(mechanism, n_queries=n, delta=delta, tested=tested)
    stops = np.unique(np.linspace(1, n, min(n, n_points)).astype(np.int64)).tolist() if n_points else [n]
    secret, revealed = None, None
    if reveal:
        by_profile = settings.accountant == "profile"
        accountant: Accountant = "exact" if settings.accountant == "profile" else settings.accountant
        how = CostSettings(orders=orders, accountant=accountant, expected=accountant != "exact")
        costs = running_cost(mechanism, votes, how, stops=stops, student_proba=student_proba, progress=progress)
        # Sensitive until it is converted, so that a warning about these votes stays in the notes.
        found = guarantee(costs[-1], delta=delta, conversion=conversion).reveal()
        if by_profile:
            found = profile_of_votes(mechanism, votes, delta=delta, student_proba=student_proba).reveal()
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
    worst_orders = WIDE_ORDERS if settings.orders is None else orders

    def worst_cases(bound: Bound) -> tuple[float, ...]:
        has_check = isinstance(mechanism, ConfidentGNMax)
        answered = [-(-k * answers_at_most // n) if has_check else k for k in stops]
        costs = (
            worst_case_cost(mechanism, n_queries=k, n_answered=a, orders=worst_orders, bound=bound)
            for k, a in zip(stops, answered, strict=True)
        )
        epsilons = (one.epsilon(delta=delta, conversion=conversion) for one in costs)
        # By Rényi bounds: what the whole budget promises holds for a part of it too
        return tuple(min(one, worst.epsilon) if bound == settings.bound else one for one in epsilons)

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
        worst_case=WhatIf.of(worst, route="worst case", condition=if_counted(n_queries=n, n_answers=answers_at_most)),
        tested=None
        if tested is None
        else WhatIf.of(tested, route="tested", condition=if_tested(n_queries=n, n_answers=tested.n_answers)),
        on_these_votes=secret,
        by_query=by_query,
    )
