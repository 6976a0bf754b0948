"""What a run may publish of its guarantee: the guarantee itself, and how many questions had which outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator

from terrine._validate import JsonObject
from terrine.accounting.curves import Guarantee
from terrine.budgets import TrainingBudget, mechanism_from_json, mechanism_to_json
from terrine.cost_release import PublishedCost
from terrine.errors import InputError
from terrine.measured import Measured
from terrine.mechanisms import Answers, InteractiveGNMax, Mechanism, Outcome

_COUNTED = {"answered": Outcome.TEACHERS, "withheld": Outcome.ABSTAINED, "unasked": Outcome.UNASKED}
_NAMES = {"lnmax": "LNMax", "gnmax": "GNMax", "confident": "Confident-GNMax", "interactive": "Interactive-GNMax"}


def _mechanism(value: Any) -> Mechanism | None:
    return None if value is None else mechanism_from_json(value)


@dataclass(frozen=True, kw_only=True)
class LedgerHead:
    """The ledger that paid, and its newest entry at the time."""

    id: str
    head: str


@dataclass(frozen=True, kw_only=True)
class PublishedRound:
    """One of several rounds: what it might ask, and what came of it. Counts are of distinct questions.

    Attributes:
        reinforced: questions for which the student kept its own label, since no answer was released.
        unasked: never put to the teachers, since the round had all its answers, or there was no budget left.
    """

    mechanism: Annotated[Mechanism, PlainValidator(mechanism_from_json)]
    queries_at_most: int
    answers_at_most: int
    answered: int
    reinforced: int
    withheld: int
    unasked: int
    repeated: int = 0

    @classmethod
    def of(
        cls, answers: Answers | None, *, fresh: NDArray[np.bool_], mechanism: Mechanism, answers_at_most: int
    ) -> PublishedRound:
        """What a round released; None: the budget ended before it."""
        outcomes = np.full(len(fresh), int(Outcome.UNASKED)) if answers is None else answers.outcomes
        named = {**_COUNTED, "reinforced": Outcome.REINFORCED}
        return cls(
            mechanism=mechanism,
            queries_at_most=len(fresh),
            answers_at_most=answers_at_most,
            repeated=int((~fresh).sum()),
            **{name: int((outcomes[fresh] == one).sum()) for name, one in named.items()},
        )

    def to_json(self) -> JsonObject:
        return {**vars(self), "mechanism": mechanism_to_json(self.mechanism)}

    @property
    def plan_in_words(self) -> str:
        return round_in_words(self.mechanism, self.queries_at_most, self.answers_at_most)

    @property
    def in_words(self) -> str:
        """What came of it, in a line."""
        own = f", {self.reinforced:,} kept the student's own label" if self.mechanism_is_interactive else ""
        never = f", {self.unasked:,} not asked" if self.unasked else ""
        return f"{self.answered:,} answered{own}, {self.withheld:,} withheld{never}"

    @property
    def mechanism_is_interactive(self) -> bool:
        return isinstance(self.mechanism, InteractiveGNMax)


def round_in_words(mechanism: Mechanism, n_queries: int, n_answers: int) -> str:
    """What a round may do, in a line."""
    kind = _NAMES[str(mechanism_to_json(mechanism)["kind"])]
    return f"{kind}: at most {n_queries:,} questions and {n_answers:,} answers"


@dataclass(frozen=True, kw_only=True)
class PublishedGuarantee(Guarantee):
    """A guarantee with what it covers: what guarantee.json holds. All of it is public.

    Attributes:
        mechanism: what answered; None where several did, in ``rounds``.
        queries_at_most, answers_at_most: what the guarantee allows; fixed before the first question.
        n_queries, n_answers: of the whole budget of a label service; None elsewhere.
        answered, withheld, unasked: distinct questions, as the ledger counts them.
        repeated: rows that repeat an earlier row of the run: they share its answer, and cost nothing. 0 in files of
            versions that counted them among the others.
        secure_noise: whether all noise that the ledger paid for was drawn by the secure sampler; else nothing holds.
        why_unasked: "budget_exhausted" or "quota_exhausted", where a label service said so.
        service: the label service that answered, if one did.
        test: of a tested release, "passed" or "failed"; None by worst case.
        rounds: of a run in rounds, in order; all other counts are their sums, and ``reinforced`` is one of them.
        cost: what these answers cost, where that was published: after the fact, and not the guarantee.
    """

    mechanism: Annotated[Mechanism | None, PlainValidator(_mechanism)] = None
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
    rounds: tuple[PublishedRound, ...] = ()
    reinforced: int | None = None
    cost: PublishedCost | None = None

    def __post_init__(self) -> None:
        if (self.mechanism is None) != bool(self.rounds):
            raise InputError("A guarantee names the mechanism that answered, or the rounds in which several did.")

    @classmethod
    def of_rounds(cls, guarantee: Guarantee, rounds: Sequence[PublishedRound], *, secure: bool, **facts: Any) -> Self:
        """What a guarantee covered in several rounds; ``facts`` as in `of`."""
        names = ("queries_at_most", "answers_at_most", "answered", "withheld", "unasked", "reinforced", "repeated")
        counts: Any = {name: sum(getattr(one, name) for one in rounds) for name in names}
        return cls(**vars(guarantee), **{**counts, **facts}, rounds=tuple(rounds), secure_noise=secure)

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

    def with_cost(self, cost: PublishedCost, *, ledger: LedgerHead, secure: bool) -> Self:
        """The same, with the number that was published beside the answers."""
        said = () if self.cost is None else (self.cost.in_words,)
        notes = (*(note for note in self.notes if note not in said), cost.in_words)
        return replace(self, cost=cost, notes=notes, ledger=ledger, secure_noise=self.secure_noise and secure)

    def to_json(self) -> JsonObject:
        mechanism = None if self.mechanism is None else mechanism_to_json(self.mechanism)
        found = super().to_json() | {"mechanism": mechanism, "publishable": self.secure_noise}
        found["rounds"] = [one.to_json() for one in self.rounds] or None
        return {name: value for name, value in found.items() if value is not None or name == "order"}


@dataclass(frozen=True, kw_only=True)
class PublishedProbe(Guarantee):
    """The guarantee of a probe's training, with what it covers: what guarantee.json of such a run holds. Public.

    Attributes:
        steps: noisy sums that were paid for, of gradients and the one that measures; ``steps_kept`` of them were made,
            the others were lost to kills. Cards, reports and sentences say `descent`, which is without that one.
        measures: whether the last of them measures, and is no step of the descent; files of older versions do not say.
        clip, noise: the longest contribution of a unit to a sum, and the noise's standard deviation, in one measure.
        planned_units: what stood in for the number of units, which may be private.
        features: numbers that the probe sees of a row.
        labeled: public rows that it labeled; any number of them costs nothing more.
        measured: how often it is right about the private rows, by one of the sums.
        secure_noise: whether all noise was drawn by the secure sampler; else nothing holds.
        route: "probe".
        service: the label service whose probe it is, if one labeled the rows.
    """

    steps: int
    steps_kept: int
    clip: float
    noise: float
    planned_units: int
    features: int
    labeled: int
    secure_noise: bool = True
    ledger: LedgerHead | None = None
    route: str = "probe"
    service: str | None = None
    measured: Measured | None = None
    measures: bool = False

    @classmethod
    def of(
        cls, budget: TrainingBudget, *, lattice: float, classes: Sequence[str], unit: str | None = None, **facts: Any
    ) -> Self:
        """What a budget's guarantee covered.

        Args:
            lattice: steps of the budget's lattice in one unit of length.
            classes, unit: their names, and that of the column that says whose row it is: for what is said of
                ``measured``.
            facts: the fields that do not follow from the budget.
        """
        numbers: Any = {"steps": budget.steps, "clip": budget.clip / lattice, "noise": budget.noise / lattice}
        made = cls(**vars(budget.guarantee()), **numbers, planned_units=budget.planned_units, **facts)
        if made.measured is None:
            return made
        return replace(made, measured=made.measured.named(classes, units=made.relation.of_units, column=unit))

    @property
    def descent(self) -> int:
        """Noisy sums of gradients that were paid for: all but the one that measures."""
        return self.steps - self._measuring

    @property
    def descent_kept(self) -> int:
        """Those of them that were made."""
        return self.steps_kept - int(self.measured is not None)

    @property
    def _measuring(self) -> int:
        return int(self.measures or self.measured is not None)

    @property
    def in_words(self) -> str:
        """How the probe learned, in a line."""
        lost = self.descent - self.descent_kept
        said = f" ({lost:,} of them lost to kills)" if lost else ""
        if self._measuring:
            made = self.measured is not None
            said += " and one that measured it" if made else " and one to measure it, which was lost to a kill"
        what = "noisy sums" if self.service is not None and not self._measuring else "noisy sums of gradients"
        return (
            f"{self.descent:,} {what}{said}: each unit adds at most {self.clip:.3g}, the noise has "
            f"standard deviation {self.noise:.3g}"
        )

    def to_json(self) -> JsonObject:
        mechanism = {"kind": "noisy_sums", "steps": self.steps, "clip": self.clip, "noise": self.noise}
        found = super().to_json() | {"mechanism": mechanism, "publishable": self.secure_noise}
        if self.measured is not None:
            found["measured"] = asdict(self.measured)
        if not self.measures:
            del found["measures"]
        return {name: value for name, value in found.items() if value is not None or name == "order"}
