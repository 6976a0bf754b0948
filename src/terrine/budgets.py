"""What may be spent, fixed beforehand: numbers of queries and answers, a filter, one test, or one training. Public.

Spending is counted in whole numbers, so that no number of small charges can drift below the truth.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._validate import JsonObject
from terrine.accounting.costs import unit_costs
from terrine.accounting.curves import ORDERS, Guarantee, RdpCurve, delta_cost, guarantee, round_up
from terrine.accounting.profile_costs import CountAccountant, count_guarantee
from terrine.cost_release import CostRelease
from terrine.errors import InputError, OrderGridWarning
from terrine.mechanisms import Mechanism
from terrine.relations import Relation
from terrine.spending import (
    SCHEMA,
    Spending,
    canonical,
    has_check,
    mechanism_from_json,
    mechanism_from_text,
    mechanism_to_json,
)
from terrine.tested_budget import TestedBudget
from terrine.training_budget import TrainingBudget

__all__ = [
    "LARGEST_EPSILON",
    "SCHEMA",
    "UNIT_BITS",
    "Budget",
    "CostRelease",
    "CountBudget",
    "FilterBudget",
    "Spending",
    "TestedBudget",
    "TrainingBudget",
    "budget_from_json",
    "canonical",
    "difference",
    "has_check",
    "mechanism_from_json",
    "mechanism_from_text",
    "mechanism_to_json",
]

UNIT_BITS = 50  # a filter counts in 2^-50 nats: a float becomes a whole number of them exactly, or is rounded up
"""What a filter counts in: 2⁻⁵⁰ nats."""
LARGEST_EPSILON = 4096.0  # nats: 2^62 units fit a database's 64-bit integer
"""The largest epsilon of a filter."""


@dataclass(frozen=True)
class CountBudget:
    """One mechanism, and the most queries and answers it may give. The default: simple, and the best order is free.

    Args:
        mechanism: the only one that may answer.
        n_queries: the most queries that are put to the teachers, answered or not.
        n_answers: the most votes that are released (default: n_queries). Without a check every query is answered.
        delta: of the guarantee.
        relation: what neighboring data sets may differ in, as the partition says.
        accountant: "profile", privacy profiles where they give less than Rényi bounds; or "renyi", as budgets had it
            that were stored before there was a choice, and keep it.
        cost_release: pays for publishing, once, what the answers cost; None: nothing of the kind. Always by "renyi":
            a number's Rényi curve cannot be added to a privacy profile.
    """

    mechanism: Mechanism
    _: KW_ONLY
    n_queries: int
    n_answers: int | None = None  # never None once made
    delta: float
    relation: Relation = Relation.ONE_TEACHER
    accountant: CountAccountant = "profile"
    cost_release: CostRelease | None = None

    def __post_init__(self) -> None:
        mechanism_to_json(self.mechanism)
        queries = _validate.integer("n_queries", self.n_queries, at_least=1)
        answers = queries if self.n_answers is None else _validate.integer("n_answers", self.n_answers, at_least=1)
        if answers > queries:
            raise InputError(f"n_answers must be at most n_queries, got n_answers={answers}, n_queries={queries}.")
        if answers != queries and not has_check(self.mechanism):
            raise InputError(
                f"n_answers must be {queries}, the number of queries, got {answers}: a mechanism without a check "
                "answers every query."
            )
        object.__setattr__(self, "n_queries", queries)
        object.__setattr__(self, "n_answers", answers)
        object.__setattr__(self, "delta", _validate.between("delta", self.delta, 0.0, 1.0))
        object.__setattr__(self, "relation", Relation(self.relation))
        _validate.choice("accountant", self.accountant, ("profile", "renyi"))
        if self.cost_release is not None:
            self.cost_release.check(self.mechanism, delta=self.delta)
            object.__setattr__(self, "accountant", "renyi")

    @property
    def limit(self) -> Spending:
        return Spending(queries=self.n_queries, answers=self.n_answers or 0)

    @property
    def orders(self) -> NDArray[np.float64]:
        return ORDERS

    def guarantee(self) -> Guarantee:
        """Of everything that may ever be answered, and published, under this budget: the worst case."""
        if self.cost_release is not None:
            numbers: Any = {"n_queries": self.n_queries, "n_answers": self.n_answers, "delta": self.delta}
            return replace(self.cost_release.guarantee(self.mechanism, **numbers), relation=self.relation)
        found = count_guarantee(
            self.mechanism,
            n_queries=self.n_queries,
            n_answers=self.n_answers,
            delta=self.delta,
            accountant=self.accountant,
        )
        return replace(found, relation=self.relation)

    def price(self, mechanism: Mechanism, *, n_queries: int, n_answers: int) -> Spending:
        """What n_queries and n_answers are charged; a mechanism other than the budget's is refused."""
        if mechanism != self.mechanism:
            raise InputError(f"This budget pays for {self.mechanism} only, got {mechanism}.")
        return Spending(queries=n_queries, answers=n_answers)

    def holds(self, spent: Spending) -> bool:
        """Whether this spending is within the budget."""
        return 0 <= spent.queries <= self.limit.queries and 0 <= spent.answers <= self.limit.answers

    def room(self, spent: Spending, mechanism: Mechanism) -> int:
        """How many more queries fit if every one of them is answered."""
        return max(min(self.n_queries - spent.queries, (self.n_answers or 0) - spent.answers), 0)

    def remaining(self, spent: Spending) -> dict[str, float]:
        """What is left after ``spent``: numbers of queries and answers."""
        left = self.limit - spent
        return {"queries": left.queries, "answers": left.answers}

    def in_words(self, spending: Spending, *, left: bool = False) -> str:
        """What was spent, or is left, for people."""
        return f"{spending.queries} queries and {'' if left else 'up to '}{spending.answers} answers"

    def to_json(self) -> JsonObject:
        """The whole budget, as ledgers store and hash it; `budget_from_json` reads it."""
        # Only what was chosen: ledgers hash this text
        chosen: JsonObject = {} if self.accountant == "renyi" else {"accountant": self.accountant}
        if self.cost_release is not None:
            chosen["cost_release"] = self.cost_release.to_json()
        return {
            "schema": SCHEMA,
            "kind": "count",
            "mechanism": mechanism_to_json(self.mechanism),
            "n_queries": self.n_queries,
            "n_answers": self.n_answers,
            "delta": self.delta,
            "relation": self.relation.sentence,  # not its code: ledgers hash this text
            **chosen,
        }


@dataclass(frozen=True, kw_only=True)
class FilterBudget:
    """Any mechanisms, until the sum of their worst cases at one Rényi order, fixed beforehand, is used up.

    Args:
        epsilon, delta: the guarantee. It is that of the whole budget, however little of it is spent.
        order: above 1; `rule_of_thumb_order` knows a good one.
        relation: what neighboring data sets may differ in, as the partition says.
    """

    epsilon: float
    delta: float
    order: float
    relation: Relation = Relation.ONE_TEACHER

    def __post_init__(self) -> None:
        epsilon = _validate.positive("epsilon", self.epsilon)
        if epsilon > LARGEST_EPSILON:
            raise InputError(f"epsilon must be at most {LARGEST_EPSILON:g}, got {epsilon:g}.")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", _validate.between("delta", self.delta, 0.0, 1.0))
        object.__setattr__(self, "order", float(_validate.orders(_validate.number("order", self.order))[0]))
        object.__setattr__(self, "relation", Relation(self.relation))
        if self.limit.charge <= 0:
            needed = delta_cost(order=self.order, delta=self.delta)
            raise InputError(
                f"epsilon must be above {round_up(needed)}, got {epsilon:g}: delta={self.delta:g} alone takes that "
                f"much at order={self.order:g}, before any answer. Take a larger epsilon, delta or order."
            )

    @property
    def limit(self) -> Spending:
        """The largest Rényi cost at the order whose conversion gives at most epsilon; any number of queries."""
        return Spending(charge=_largest_charge(self.epsilon, self.delta, self.order))

    @property
    def orders(self) -> NDArray[np.float64]:
        return np.array([self.order])

    def guarantee(self) -> Guarantee:
        """(epsilon, delta): that of the whole budget. What has been spent so far is no guarantee."""
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            order=self.order,
            basis=(
                f"Rényi filter at order {self.order:g}, fixed beforehand: before it is answered every query is charged "
                "its worst case over all votes, argmax bound, and the sum never exceeds the budget"
            ),
            relation=self.relation,
        )

    def price(self, mechanism: Mechanism, *, n_queries: int, n_answers: int) -> Spending:
        """What n_queries and n_answers are charged, every one of them rounded up."""
        check, answer = _unit_prices(mechanism, self.order)
        return Spending(queries=n_queries, answers=n_answers, charge=n_queries * check + n_answers * answer)

    def holds(self, spent: Spending) -> bool:
        """Whether this spending is within the budget."""
        return 0 <= spent.charge <= self.limit.charge

    def room(self, spent: Spending, mechanism: Mechanism) -> int:
        """How many more queries fit if every one of them is answered."""
        return max(self.limit.charge - spent.charge, 0) // sum(_unit_prices(mechanism, self.order))

    def remaining(self, spent: Spending) -> dict[str, float]:
        """What is left after ``spent``: nats at the order, and their share of the budget."""
        left = self.limit.charge - spent.charge
        return {"rdp": left / 2**UNIT_BITS, "order": self.order, "share": left / self.limit.charge}

    def in_words(self, spending: Spending, *, left: bool = False) -> str:
        """What was spent, or is left, for people."""
        nats = spending.charge / 2**UNIT_BITS
        shown = f"{math.floor(nats * 1e6) / 1e6:.6f}" if left else round_up(nats, 6)
        cost = f"a Rényi cost of {shown} at order {self.order:g}"
        return cost if left else f"{spending.queries} queries at {cost}"

    def to_json(self) -> JsonObject:
        """The whole budget, as ledgers store and hash it; `budget_from_json` reads it."""
        return {
            "schema": SCHEMA,
            "kind": "filter",
            "epsilon": self.epsilon,
            "delta": self.delta,
            "order": self.order,
            "relation": self.relation.sentence,  # not its code: ledgers hash this text
        }


Budget = CountBudget | FilterBudget | TestedBudget | TrainingBudget
"""Whatever a ledger can be made with."""


def budget_from_json(value: Any) -> Budget:
    """The budget that `to_json` wrote; anything else is refused in one line."""
    if not isinstance(value, Mapping) or value.get("schema") != SCHEMA:
        raise InputError(f"This is not a budget of schema {SCHEMA}.")
    known: dict[str, Any] = {name: field for name, field in value.items() if name not in ("schema", "kind")}
    kinds: dict[str, type[Budget]] = {
        "count": CountBudget,
        "filter": FilterBudget,
        "tested": TestedBudget,
        "training": TrainingBudget,
    }
    kind = kinds.get(str(value.get("kind")))
    if kind is CountBudget:
        known.setdefault("accountant", "renyi")  # of budgets from before there was a choice
        known.setdefault("cost_release", None)
        if known["cost_release"] is not None:
            known["cost_release"] = CostRelease.from_json(known["cost_release"])
    if kind is None or set(known) != {field.name for field in fields(kind)}:
        raise InputError(
            "This JSON does not describe a budget: its kind must be count, filter, tested or training, with exactly "
            "that kind's fields."
        )
    if "mechanism" in known:
        known["mechanism"] = mechanism_from_json(known["mechanism"])
    return kind(**known)


def difference(expected: Budget, got: Budget) -> str | None:
    """In which guarantee, and in which field first, two budgets differ, in words; None where they are equal."""
    ours, theirs = expected.to_json(), got.to_json()
    for name in ("kind", *(field.name for field in fields(expected) if field.name not in _NO_DIFFERENCE)):
        if ours.get(name) != theirs.get(name):
            field = f"{name}={_shown(ours.get(name))}, not {name}={_shown(theirs.get(name))}"
            field += " ((features + 1) x classes)" if name == "dimension" else ""
            first, other = _promised(expected), _promised(got)
            return field if first == other else f"{first}, not {other} ({field})"
    return None


SET_BACK = "Set what it was made with, or name a new ledger, whose ε and δ add to this one's."


def _promised(budget: Budget) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrderGridWarning)
        found = budget.guarantee()
    return f"ε = {round_up(found.epsilon)} at δ = {found.delta:g} by {found.relation}"


_NO_DIFFERENCE = ("pass_chance", "accountant")  # what is allowed is the same; what a ledger began with holds


def _shown(value: Any) -> str:
    return canonical(value) if isinstance(value, Mapping) else repr(value)


@lru_cache(maxsize=64)
def _largest_charge(epsilon: float, delta: float, order: float) -> int:
    """In units; found by the closed form, then lowered until the conversion itself agrees."""
    units = math.floor(math.ldexp(epsilon - delta_cost(order=order, delta=delta), UNIT_BITS))
    step = 1 << 8  # 2e-13 nats: less than the conversion's own margin
    while units > 0:
        curve = RdpCurve(np.array([order]), np.array([units / 2**UNIT_BITS]))
        if guarantee(curve, delta=delta).epsilon <= epsilon:
            return units
        units, step = units - step, step * 2
    return 0


@lru_cache(maxsize=256)
def _unit_prices(mechanism: Mechanism, order: float) -> tuple[int, int]:
    """Of one check and of one answer by worst case at the order, in units, rounded up."""
    check, answer = (
        math.ceil(math.ldexp(float(curve.epsilons[0]) * (1 + 2.0**-50), UNIT_BITS))
        for curve in unit_costs(mechanism, orders=[order])
    )
    return check, answer
