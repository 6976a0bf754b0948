"""Rounds of a run: their plan, which rows each asks, and the student's probabilities, kept before they are asked with.

A student that is trained again may think otherwise, and its probabilities are part of a question: `round-2.proba.npz`
is on disk before round 2 is asked, and no later student changes it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from terrine._files import write_atomically, write_once
from terrine._toml import toml_value
from terrine.accounting.advice import Advice, about_epsilon
from terrine.accounting.curves import Guarantee, delta_cost
from terrine.budgets import UNIT_BITS, CountBudget, FilterBudget, Spending, has_check
from terrine.datasets import Task
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError
from terrine.labeller import KeptVotes, Labeller
from terrine.mechanisms import Answers, ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Mechanism, Outcome
from terrine.published import LedgerHead, PublishedGuarantee, PublishedRound
from terrine.relations import Relation
from terrine.runs.base import Answered, Progress, load_answers, read_json, save_answers, write_json
from terrine.runs.config import RoundConfig, RunConfig, read_settings
from terrine.runs.interactive import Asker, Round, ask_rounds, checked_rounds, merged, opinion_of
from terrine.runs.plan_rounds import CONFIDENCE, PlannedRound, RoundWish, filter_of, plan_rounds
from terrine.runs.ready import advice_of

if TYPE_CHECKING:
    from terrine.runs.local import Run

_POINTS = 80  # of the curve of spending
_SCHEMA = "terrine.opinion/1"


class RoundsPlan(BaseModel):
    """What plan.json holds of a run in rounds: the rounds with all their numbers, and the filter that pays for them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rounds: list[RoundConfig] = Field(min_length=1)
    epsilon: float = Field(gt=0)
    order: float = Field(gt=1)

    @property
    def planned(self) -> list[PlannedRound]:
        return [planned_of(one) for one in self.rounds]

    @property
    def limit(self) -> Spending:
        """Questions and answers of all rounds together, at most."""
        return Spending(
            queries=sum(one.n_queries for one in self.planned), answers=sum(one.n_answers for one in self.planned)
        )

    def budget(self, *, delta: float, relation: Relation = Relation.ONE_TEACHER) -> FilterBudget:
        return FilterBudget(epsilon=self.epsilon, delta=delta, order=self.order, relation=relation)

    def first(self, *, delta: float) -> CountBudget:
        """Round 1 alone: what there is to say of answers before any student has learned."""
        one = self.planned[0]
        return CountBudget(one.mechanism, n_queries=one.n_queries, n_answers=one.n_answers, delta=delta)


def planned_of(one: RoundConfig) -> PlannedRound:
    """A round's settings, with all their numbers, as the round."""
    mechanism: Mechanism
    match one.mechanism:
        case "gnmax":
            mechanism = GNMax(sigma=one.sigma or 0.0)
        case "lnmax":
            mechanism = LNMax(scale=one.scale or 0.0)
        case _:
            numbers: Any = {name: getattr(one, name) for name in ("threshold", "sigma_check", "sigma_vote")}
            sure = CONFIDENCE if one.student_confidence is None else one.student_confidence
            mechanism = (
                ConfidentGNMax(**numbers)
                if one.mechanism == "confident"
                else InteractiveGNMax(**numbers, student_confidence=sure)
            )
    queries = one.queries or 0
    answers = queries if one.answers is None or not has_check(mechanism) else one.answers
    if answers > queries:
        raise InputError(f"answers of a round must be at most its queries, {queries}, got {answers}.")
    return PlannedRound(mechanism=mechanism, n_queries=queries, n_answers=answers)


def settings_of(one: PlannedRound) -> RoundConfig:
    """The round as settings, to be written down."""
    kinds = {ConfidentGNMax: "confident", InteractiveGNMax: "interactive", GNMax: "gnmax", LNMax: "lnmax"}
    found = {**asdict(one.mechanism), "mechanism": kinds[type(one.mechanism)], "queries": one.n_queries}
    return RoundConfig.model_validate(found | ({"answers": one.n_answers} if has_check(one.mechanism) else {}))


def toml_of(rounds: Sequence[PlannedRound], *, delta: float) -> str:
    """The rounds as they stand in a run's settings."""
    lines = ["[privacy]", f"delta = {toml_value(delta)}"]
    for one in rounds:
        numbers = settings_of(one).model_dump(exclude_none=True)
        lines += ["", "[[rounds]]", *(f"{name} = {toml_value(value)}" for name, value in numbers.items())]
    return "\n".join(lines)


def rounds_in_words(folder: Path) -> list[str]:
    """Of a run directory: what each round may ask and, once it has, what came of it; empty where it has no rounds."""
    if not (folder / "config.toml").is_file() or not isinstance(
        given := read_settings(folder / "config.toml"), RunConfig
    ):
        return []
    if given.rounds is None or not (folder / "plan.json").is_file():
        return []
    path = folder / "guarantee.json"
    if path.is_file():
        shown = PublishedGuarantee.from_json(read_json(path, "terrine label")).rounds
        return [f"{one.plan_in_words}; {one.in_words}" for one in shown]
    plan = RoundsPlan.model_validate_json((folder / "plan.json").read_bytes())
    return [one.in_words for one in plan.planned]


def plan_of(config: RunConfig, *, n_classes: int, n_public: int) -> RoundsPlan:
    """The rounds of a run's settings and their filter, from public inputs only."""
    privacy, rounds = config.privacy, config.rounds or []
    if privacy.epsilon is None:
        planned = [planned_of(one) for one in rounds]
    else:
        assert privacy.consensus is not None
        wanted = [
            RoundWish(
                kind="interactive" if one.mechanism == "interactive" else "confident",
                share=one.share,
                max_queries=one.queries,
                student_confidence=CONFIDENCE if one.student_confidence is None else one.student_confidence,
            )
            for one in rounds
        ]
        standin = synthetic_votes(
            n_queries=400, n_classes=n_classes, n_teachers=config.teachers.number, consensus=privacy.consensus
        )
        accurate = {} if privacy.min_accuracy is None else {"min_accuracy": privacy.min_accuracy}
        planned = list(
            plan_rounds(
                wanted, standin=standin, epsilon=privacy.epsilon, delta=privacy.delta, n_public=n_public, **accurate
            )
        )
    for k, one in enumerate(planned, start=1):
        if one.n_queries > n_public:
            raise InputError(f"queries of round {k} must be at most {n_public}, the public rows, got {one.n_queries}.")
    found = filter_of(planned, delta=privacy.delta)
    return RoundsPlan(rounds=[settings_of(one) for one in planned], epsilon=found.epsilon, order=found.order)


def kept_plan(folder: Path, config: RunConfig, *, task: Callable[[], Task]) -> RoundsPlan:
    """The plan of a run directory: made once, then read without a look at the data."""
    path = folder / "plan.json"
    if not path.is_file():
        side = task()
        found = plan_of(config, n_classes=len(side.classes), n_public=len(side.public))
        text = found.model_dump_json(indent=2, exclude_none=True)
        write_atomically(path, lambda file: file.write(text.encode()))
    try:
        return RoundsPlan.model_validate_json(path.read_bytes())
    except ValidationError:
        raise InputError(
            f"{path} is damaged. Put it back; a run that has not asked anything yet plans again if it is deleted."
        ) from None


def advice_on(config: RunConfig, plan: RoundsPlan, task: Task) -> Advice:
    """What the plan means: of the first round's answers, which must teach a student, and of the whole epsilon."""
    found = advice_of(config, plan.first(delta=config.privacy.delta), task)
    said = [one for one in found.findings if one.code != "epsilon_weak"]
    return replace(found, findings=(*said, *about_epsilon(plan.epsilon)))


def rounds_on(asked: NDArray[np.int64], planned: Sequence[PlannedRound]) -> list[Round]:
    """Which rows each round asks, a public choice made beforehand: fresh ones first, from the start when all are asked.

    Args:
        asked: rows that any round asks, in the order of the run's settings.
    """
    found, start = [], 0
    for one in planned:
        rows = asked[(start + np.arange(one.n_queries)) % len(asked)]
        found.append(Round(mechanism=one.mechanism, rows=rows, n_answers=one.n_answers))
        start += one.n_queries
    return found


def ask_kept(
    run: Answered, rounds: Sequence[Round], askers: Sequence[Asker], *, request_id: str, progress: Progress | None
) -> list[Answers]:
    """What each round released; goes on where it stopped, and never asks a question with a second opinion."""
    rows = run.task.public.X

    def opinion(k: int, known: Answers) -> NDArray[np.float64]:
        return kept_opinion(run, k, rounds[k - 1].rows, known)

    checked = checked_rounds(rounds, n_rows=len(rows))
    return ask_rounds(checked, rows, askers, request_id=request_id, opinion=opinion, progress=progress)


def kept_opinion(run: Answered, k: int, asked: NDArray[np.int64], known: Answers) -> NDArray[np.float64]:
    """The student's probabilities on the rows of round k: of a student trained now, unless they are on disk already."""
    from terrine.students import fit_student

    path, n_classes = run.folder / f"round-{k}.proba.npz", len(run.task.classes)
    if not path.is_file():
        public, (_, seed) = run.task.public, run.learner
        proba = opinion_of(
            lambda: fit_student(run.student(), public, known, classes=run.task.classes, seed=seed),
            public.X[asked],
            known,
            n_classes=n_classes,
        )
        file = io.BytesIO()
        np.savez_compressed(file, rows=asked, proba=proba, schema=_SCHEMA)
        write_once(path, file.getvalue())
    try:
        with np.load(path, allow_pickle=False) as kept:
            same = str(kept["schema"]) == _SCHEMA and np.array_equal(kept["rows"], asked)
            found: NDArray[np.float64] = kept["proba"]
            if not same or found.shape != (len(asked), n_classes) or found.dtype != np.float64:
                raise ValueError
    except Exception:  # numpy and zipfile raise many types for damaged files
        raise InputError(
            f"{path} is damaged, or for other rows. Put it back: round {k} may have been asked with it, and would be "
            "asked and charged again with any other."
        ) from None
    return found


def label_rounds(run: Run, *, progress: Progress | None, at_once: int) -> Answers:
    """`Run.label` in rounds, all of them paid from one ledger."""
    rows, X = run.asked(), run.task.public.X
    rounds = rounds_on(rows, run.rounds.planned)
    voters = KeptVotes(X[rows], run.vote(), classes=run.task.classes)
    budget = run.budget()
    with run.ledger() as ledger:
        askers = [
            Labeller(voters, one.mechanism, ledger, at_once=min(at_once, -(-len(one.rows) // 10))) for one in rounds
        ]
        given = ask_kept(run, rounds, askers, request_id="run", progress=progress)
        paid = ledger.summary()
    return keep_rounds(
        run,
        rounds,
        [replace(some, secure=some.secure and paid.secure) for some in given],
        rows=rows,
        guarantee=budget.guarantee(),
        n_teachers=voters.n_teachers,
        ledger=LedgerHead(id=paid.ledger_id, head=paid.head),
    )


def keep_rounds(
    run: Answered,
    rounds: Sequence[Round],
    given: Sequence[Answers],
    *,
    rows: NDArray[np.int64],
    guarantee: Guarantee,
    **facts: Any,
) -> Answers:
    """Write what each round released, what a student learns from all of them, and guarantee.json."""
    for k, (one, some) in enumerate(zip(rounds, given, strict=False), start=1):
        save_answers(run.folder / f"round-{k}.npz", one.rows, some)
    everything = merged(rounds, given, n_rows=len(run.task.public))
    known = replace(everything, labels=everything.labels[rows], outcomes=everything.outcomes[rows])
    save_answers(run.folder / "answers.npz", rows, known)
    shown = [
        PublishedRound.of(
            given[k] if k < len(given) else None,
            fresh=run.fresh(one.rows),
            mechanism=one.mechanism,
            answers_at_most=len(one.rows) if one.n_answers is None else one.n_answers,
        )
        for k, one in enumerate(rounds)
    ]
    published = PublishedGuarantee.of_rounds(guarantee, shown, secure=known.secure, **facts)
    write_json(run.folder / "guarantee.json", published.to_json())
    return known


def round_answers(run: Answered, n_rounds: int) -> list[Answers]:
    """What each round released to each question, as it was kept; the budget may have ended before the last one."""
    found = []
    for path in (run.folder / f"round-{k}.npz" for k in range(1, n_rounds + 1)):
        if path.is_file():
            rows, answers = load_answers(path)
            fresh = run.fresh(rows)
            found.append(replace(answers, labels=answers.labels[fresh], outcomes=answers.outcomes[fresh]))
    return found


def spending_in_rounds(given: Sequence[Answers], *, delta: float, order: float) -> dict[str, list[Any]]:
    """Worst-case epsilon at the filter's order as questions were put and answered: progress, not a guarantee."""
    budget = FilterBudget(epsilon=4096.0, delta=delta, order=order)
    steps = [
        budget.price(some.drawn_by, n_queries=1, n_answers=int(outcome == Outcome.TEACHERS))
        for some in given
        for outcome in some.outcomes[some.outcomes != Outcome.UNASKED].tolist()
    ]
    answered = np.concatenate(([0], np.cumsum([one.answers for one in steps]))).astype(int)
    charged = np.concatenate(([0.0], np.cumsum([one.charge / 2**UNIT_BITS for one in steps])))
    at = np.unique(np.linspace(0, len(steps), min(_POINTS, len(steps) + 1)).astype(int))
    start = max(delta_cost(order=order, delta=delta), 0.0)
    epsilon = [0.0 if n == 0 else start + float(charged[n]) for n in at]
    return {"queries": at.tolist(), "epsilon": epsilon, "answered": answered[at].tolist()}
