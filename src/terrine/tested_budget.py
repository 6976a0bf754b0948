"""A budget for one tested release: what a ledger is made with before there are votes. Public."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._validate import JsonObject
from terrine.accounting.curves import Guarantee, delta_cost
from terrine.errors import InputError
from terrine.mechanisms import ConfidentGNMax, GNMax, Mechanism
from terrine.relations import Relation
from terrine.release.sanitize import delta_shares
from terrine.release.tested import ConditionalGuarantee, TestSettings, check_target, conditional, overhead
from terrine.spending import SCHEMA, Spending, mechanism_to_json

TESTED = (
    "This is a tested release. All answers are published together if a private test passes, and none of them if it "
    "fails; epsilon and delta are spent either way. Any later release about the same people, by whichever route, adds "
    "its own epsilon and delta to these."
)


@dataclass(frozen=True)
class TestedBudget:
    """One tested release: all answers together if a private one-bit test passes, nothing if it fails.

    Epsilon and delta are spent either way, whole, before a vote is looked at. A ledger with this budget is what fixes
    the target before the votes: it pays for one draw and for nothing else.

    Args:
        mechanism: GNMax or ConfidentGNMax.
        n_queries, n_answers: as in CountBudget; all of them are asked at once.
        target, delta: the guarantee, whatever the test says.
        n_teachers, n_classes: of the votes.
        order, share, delta_release: the test's own numbers, as `tested_guarantee` takes them.
        relation: what neighboring data sets may differ in, as the partition says.
        pass_chance: that the test passes, by plan: an estimate from public stand-in votes, None where nothing is
            assumed about votes. It decides nothing.

    [TERRINE, Thm. 13]
    """

    __test__ = False  # not a test class, whatever its name

    mechanism: GNMax | ConfidentGNMax
    _: KW_ONLY
    n_queries: int
    n_answers: int | None = None  # this and the next None are filled in when it is made
    target: float
    delta: float
    n_teachers: int
    n_classes: int
    order: float | None = None
    share: float = 0.8
    delta_release: float | None = None
    relation: Relation = Relation.ONE_TEACHER
    pass_chance: float | None = None

    def __post_init__(self) -> None:
        mechanism_to_json(self.mechanism)
        if self.n_answers is None:
            object.__setattr__(self, "n_answers", self.n_queries)
        for name, least in (("n_queries", 1), ("n_answers", 1), ("n_teachers", 1), ("n_classes", 2)):
            object.__setattr__(self, name, _validate.integer(name, getattr(self, name), at_least=least))
        object.__setattr__(self, "delta", _validate.between("delta", self.delta, 0.0, 1.0))
        object.__setattr__(self, "relation", Relation(self.relation))
        if self.pass_chance is not None and not 0 <= _validate.number("pass_chance", self.pass_chance) <= 1:
            raise InputError(f"pass_chance must be from 0 to 1, got {self.pass_chance}.")
        found = self.fixed
        object.__setattr__(self, "target", found.epsilon)
        object.__setattr__(self, "order", float(found.order))
        object.__setattr__(self, "share", float(self.share))
        object.__setattr__(self, "delta_release", found.delta_release)

    @property
    def fixed(self) -> ConditionalGuarantee:
        """What the release claims, and how it tests."""
        test = TestSettings(
            target=self.target,
            delta=self.delta,
            order=self.order,
            share=self.share,
            delta_release=self.delta_release,
        )
        return _conditional(self.mechanism, test, self.n_teachers, self.n_classes, self.n_queries, self.n_answers or 0)

    def check(self) -> None:
        """Refuse a target that the worst case meets without a test: for those who make a ledger."""
        numbers: Any = {"n_queries": self.n_queries, "n_answers": self.n_answers, "delta": self.delta}
        check_target(self.mechanism, target=self.target, **numbers)

    @property
    def limit(self) -> Spending:
        return Spending(queries=self.n_queries, answers=self.n_answers or 0)

    @property
    def orders(self) -> NDArray[np.float64]:
        return np.array([self.fixed.order])

    @property
    def rdp(self) -> float:
        """Of the whole release at its order, in nats: checks, test and answers."""
        found = self.fixed
        delta_answers, _ = delta_shares(self.delta, found.delta_release)
        return overhead(self.mechanism, n_queries=self.n_queries, order=found.order, delta=delta_answers) + (
            found.budget - delta_cost(order=found.order, delta=delta_answers)
        )

    def guarantee(self) -> Guarantee:
        """(target, delta): of the one release and of its bit, whether the test passes or fails."""
        found = self.fixed
        return Guarantee(
            epsilon=found.epsilon,
            delta=found.delta,
            order=found.order,
            basis=(
                f"tested release: at most {self.n_queries} queries and {self.n_answers} answers, published all "
                "together if a private test, fixed beforehand, shows that they cost no more, and not at all "
                "otherwise"
            ),
            relation=self.relation,
            notes=(TESTED, chance_words(self)),
        )

    def price(self, mechanism: Mechanism, *, n_queries: int, n_answers: int) -> Spending:
        """What n_queries and n_answers are charged; a mechanism other than the budget's is refused."""
        if mechanism != self.mechanism:
            raise InputError(f"This budget pays for {self.mechanism} only, got {mechanism}.")
        return Spending(queries=n_queries, answers=n_answers)

    def holds(self, spent: Spending) -> bool:
        """Nothing, or all of it."""
        return spent in (Spending(), self.limit)

    def room(self, spent: Spending, mechanism: Mechanism) -> int:
        """All queries, until they are charged."""
        return self.n_queries if spent == Spending() else 0

    def remaining(self, spent: Spending) -> dict[str, float]:
        """All of the one release, or nothing."""
        left = self.limit - spent
        return {"queries": left.queries, "answers": left.answers}

    def in_words(self, spending: Spending, *, left: bool = False) -> str:
        """What was spent, or is left, for people."""
        if left:
            return "the whole release" if spending == self.limit else "nothing: the one release is charged"
        return f"one release of {self.n_queries} queries"

    def to_json(self) -> JsonObject:
        """The whole budget, as ledgers store and hash it; `budget_from_json` reads it."""
        return {
            "schema": SCHEMA,
            "kind": "tested",
            "mechanism": mechanism_to_json(self.mechanism),
            "n_queries": self.n_queries,
            "n_answers": self.n_answers,
            "target": self.target,
            "delta": self.delta,
            "n_teachers": self.n_teachers,
            "n_classes": self.n_classes,
            "order": self.order,
            "share": self.share,
            "delta_release": self.delta_release,
            "relation": self.relation.sentence,  # not its code: ledgers hash this text
            "pass_chance": self.pass_chance,
        }


def chance_words(budget: TestedBudget) -> str:
    if budget.pass_chance is None:
        return "How likely the test is to pass is unknown: nothing was assumed about how well the teachers agree."
    return (
        f"By plan the test passes with a chance of {budget.pass_chance:.1%}: an estimate from simulated votes of "
        "teachers that agree as assumed, made before the teachers voted."
    )


def tested_words(budget: TestedBudget, *, test: str | None = None) -> tuple[str, ...]:
    """What a tested release means, for every page and table that shows one; ``test`` as in a ledger's summary."""
    told = {
        "passed": ("The test passed, and the answers were published.",),
        "failed": ("The test did not pass: no answer was published, and none ever will be.",),
        "open": ("The release is charged and not finished: the same request again finishes it.",),
    }.get(test or "", ())
    return (
        f"This is a tested release of {budget.n_queries:,} questions. A private test looks at the votes: if the "
        f"answers cost no more than the target, ε = {budget.target}, which was fixed before the teachers voted, all of "
        "them are published together.",
        "If the test fails, nothing is published. ε and δ are spent either way, because even the result of the test "
        "says a little about the private data.",
        *told,
        chance_words(budget),
        "Any later release about the same people, by whichever route, adds its own ε and δ to these.",
    )


_conditional_cached = lru_cache(maxsize=64)(conditional)


def _conditional(
    mechanism: Mechanism, test: TestSettings, n_teachers: int, n_classes: int, n_queries: int, n_answers: int
) -> ConditionalGuarantee:
    """A second's work, done once."""
    return _conditional_cached(
        mechanism, test, n_teachers=n_teachers, n_classes=n_classes, n_queries=n_queries, n_answers=n_answers
    )
