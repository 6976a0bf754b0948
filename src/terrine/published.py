"""What a run may publish of its guarantee: the guarantee itself, and how many questions had which outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator

from terrine._validate import JsonObject
from terrine.accounting.curves import Guarantee
from terrine.budgets import mechanism_from_json, mechanism_to_json
from terrine.errors import InputError
from terrine.mechanisms import Answers, Mechanism, Outcome

_COUNTED = {"answered": Outcome.TEACHERS, "withheld": Outcome.ABSTAINED, "unasked": Outcome.UNASKED}


@dataclass(frozen=True, kw_only=True)
class LedgerHead:
    """The ledger that paid, and its newest entry at the time."""

    id: str
    head: str


@dataclass(frozen=True, kw_only=True)
class PublishedGuarantee(Guarantee):
    """A guarantee with what it covers: what guarantee.json holds. All of it is public.

    Attributes:
        queries_at_most, answers_at_most: what the guarantee allows; fixed before the first question.
        n_queries, n_answers: of the whole budget of a label service; None elsewhere.
        answered, withheld, unasked: distinct questions, as the ledger counts them.
        repeated: rows that repeat an earlier row of the run: they share its answer, and cost nothing. 0 in files of
            versions that counted them among the others.
        secure_noise: whether all noise that the ledger paid for was drawn by the secure sampler; else nothing holds.
        why_unasked: "budget_exhausted" or "quota_exhausted", where a label service said so.
        service: the label service that answered, if one did.
        test: of a tested release, "passed" or "failed"; None by worst case.
    """

    mechanism: Annotated[Mechanism, PlainValidator(mechanism_from_json)]
    n_teachers: int
    queries_at_most: int
    answers_at_most: int
    answered: int
    withheld: int
    unasked: int
    n_queries: int | None = None
    n_answers: int | None = None
    repeated: int = 0
    secure_noise: bool = True
    why_unasked: str | None = None
    service: str | None = None
    ledger: LedgerHead | None = None
    test: str | None = None

    @classmethod
    def of(cls, guarantee: Guarantee, answers: Answers, *, fresh: NDArray[np.bool_], **facts: Any) -> Self:
        """What a guarantee covered.

        Args:
            fresh: (n_queries,) whether a question is one of its own, and no repeat of one before it.
            facts: the fields that do not follow from the others.
        """
        if not isinstance(guarantee, Guarantee):
            raise InputError(f"Only a budget's guarantee can be published, got {type(guarantee).__name__}.")
        counts: Any = {name: int((answers.outcomes[fresh] == one).sum()) for name, one in _COUNTED.items()}
        found: Any = {"repeated": int((~fresh).sum()), "mechanism": answers.mechanism, "secure_noise": answers.secure}
        return cls(**vars(guarantee), **counts, **found, **facts)

    def to_json(self) -> JsonObject:
        found = super().to_json() | {"mechanism": mechanism_to_json(self.mechanism), "publishable": self.secure_noise}
        return {name: value for name, value in found.items() if value is not None}
