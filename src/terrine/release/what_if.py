"""An epsilon that would hold if something had been done first. It is not a guarantee, and its type says so."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, Self

from terrine._validate import JsonObject
from terrine.accounting.curves import Guarantee, round_up
from terrine.relations import Relation

Route = Literal["worst case", "tested"]


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """(epsilon, delta) under a condition that a file of votes cannot show. No `Guarantee`: nothing that is published
    takes it.

    A guarantee is what a budget promises for all that its ledger lets out (``CountBudget(...).guarantee()``, a run's
    guarantee.json). A what-if is the same arithmetic for votes that no ledger is known to have charged.

    Attributes:
        condition: what would make it true, as the rest of a sentence that begins with "if".
    """

    epsilon: float
    delta: float
    order: float | None
    route: Route
    condition: str
    basis: str
    relation: Relation
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", Relation(self.relation))

    @classmethod
    def of(cls, promised: Guarantee, *, route: Route, condition: str) -> Self:
        """What a budget would promise, had it been fixed in time."""
        return cls(
            epsilon=promised.epsilon,
            delta=promised.delta,
            order=promised.order,
            route=route,
            condition=condition,
            basis=promised.basis,
            relation=promised.relation,
            notes=promised.notes,
        )

    def __str__(self) -> str:
        return f"what if: ({round_up(self.epsilon)}, {self.delta:g})-DP, if {self.condition} [{self.basis}]"

    def to_json(self) -> JsonObject:
        """The condition's key is "if"."""
        found = asdict(self)
        found["if"] = found.pop("condition")
        return found | {"relation": str(self.relation), "neighbors": self.relation.sentence}


def if_counted(*, n_queries: int, n_answers: int) -> str:
    """The condition of a worst case."""
    return (
        f"at most {n_queries:,} questions and {n_answers:,} answers had been fixed in a ledger before the first vote, "
        "and nothing else of these votes had been published"
    )


def if_tested(*, n_queries: int, n_answers: int) -> str:
    """The condition of a tested release."""
    return (
        f"this target, at most {n_queries:,} questions and {n_answers:,} answers had been fixed in a ledger before the "
        "first vote, and the answers were published only if its one test passed"
    )
