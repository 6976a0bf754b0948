"""A fit by teachers: a plan from public numbers, votes, answers on a ledger, a student of these."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from terrine import _validate
from terrine.accounting.advice import TOO_FEW, Advice, advise
from terrine.accounting.curves import Guarantee
from terrine.accounting.planning import plan
from terrine.budgets import Budget, has_check
from terrine.datasets import PublicData
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError
from terrine.estimator.people import People
from terrine.estimator.plan import heed
from terrine.estimator.seen import Sides
from terrine.labeller import KeptVotes, Labeller
from terrine.labeller.voters import repeats
from terrine.ledger import Ledger, ledger_place
from terrine.mechanisms import ABSTAIN, Answers
from terrine.partitioning import new_key, partition
from terrine.published import LedgerHead, PublishedGuarantee, PublishedProbe
from terrine.runs.fit_rounds import ask_planned, wanted_rounds
from terrine.runs.plan_rounds import PlannedRound, filter_of
from terrine.students import FittedStudent, Student, fit_student, judged, try_student, warn_of
from terrine.teachers import poll_teachers
from terrine.tested_route import STANDINS, Route, planned_route
from terrine.votes import Votes


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned:
    """What a fit ends with. All of it is public.

    Attributes:
        guarantee: None where seeded noise was drawn.
        answers, rounds: of teachers.
    """

    student: FittedStudent
    guarantee: Guarantee | None
    published: PublishedGuarantee | PublishedProbe
    answers: Answers | None = None
    rounds: tuple[Answers, ...] = ()
    probe: Any = None


def learn_by_teachers(
    model: Any, sides: Sides, people: People, *, names: tuple[str, ...], teacher: Any, student: Student, seed: int
) -> Learned:
    """Plan, partition, poll, answer, and train the student.

    Args:
        model: whose settings decide.
        names: of the classes.
    """
    public = sides.public.X
    planned = plan_by_teachers(model, people, n_classes=len(names), n_public=len(public))
    rounds, route, budget = planned.rounds, planned.route, planned.budget
    heed(planned.advice)
    try_student(student, sides.public, classes=names, n_answers=route.n_answers or route.n_queries, keep=False)
    shares = partition(
        sides.seen, n_teachers=model.n_teachers, method=model.method, key=new_key(), min_units=model.min_units
    )
    order = np.random.default_rng([seed, 1]).permutation(len(public))
    asked = order[: sum(one.n_queries for one in rounds)] if rounds else np.sort(order[: route.n_queries])
    questions = PublicData(public[asked], nan_ok=True)
    put = questions if sides.features is None else PublicData(sides.seen_public.X[asked])
    with (
        tempfile.TemporaryDirectory(prefix="terrine-") as folder,  # for a ledger that is nowhere else
        Ledger(place := ledger_place(model.ledger, folder), budget=budget) as ledger,
    ):
        ledger.secrets = ledger.secrets or Path(folder)
        votes = poll_teachers(sides.seen, shares, teacher, put, classes=names, seed=seed, executor=model.executor)
        voters, request = KeptVotes(questions, votes, classes=names), f"fit {new_key().hex()[:16]}"
        if rounds:
            found = ask_planned(
                rounds,
                public,
                asked,
                voters=voters,
                ledger=ledger,
                request_id=request,
                learn=lambda known: fit_student(student, sides.public, known.labels, classes=names, seed=seed),
            )
            known = found.known
            answers = replace(known, labels=known.labels[asked], outcomes=known.outcomes[asked])
        else:
            answers = Labeller(voters, route.mechanism, ledger).label(questions, request_id=request)
        paid = ledger.summary()
    lessons = np.full(len(public), ABSTAIN, dtype=np.int64)
    lessons[asked] = answers.labels
    made = fit_student(student, sides.public, lessons, classes=names, seed=seed)
    made = judged(made, student, sides.public, lessons, seed=seed)
    warn_of(made, sides.public, lessons)
    shown, secure = paid.budget.guarantee(), answers.secure and paid.secure
    outside = Path(folder) not in Path(place).parents
    facts: dict[str, Any] = {
        "n_teachers": model.n_teachers,
        "ledger": LedgerHead(id=paid.ledger_id, head=paid.head) if outside else None,
    }
    if rounds:
        published = found.published(shown, public, secure=secure, **facts)
    else:
        published = PublishedGuarantee.of(
            shown,
            replace(answers, secure=secure),
            fresh=~repeats(questions.X),
            queries_at_most=route.n_queries,
            answers_at_most=budget.limit.answers,
            test=paid.test,
            **facts,
        )
    return Learned(
        student=made,
        guarantee=shown if secure else None,
        published=published,
        answers=answers,
        rounds=found.given if rounds else (),
    )


@dataclass(frozen=True, kw_only=True)
class TeachersPlan:
    """From public inputs alone.

    Attributes:
        rounds: where there are several; else empty.
        route: what answers and how often; of rounds, in the first.
        budget: that pays for all of it.
    """

    rounds: tuple[PlannedRound, ...]
    route: Route
    budget: Budget
    advice: Advice


def plan_by_teachers(model: Any, people: People, *, n_classes: int, n_public: int) -> TeachersPlan:
    """What a fit would ask, what that costs, and whether it can work."""
    rounds = _rounds(model, n_classes, n_public)
    route = _first(rounds) if rounds else _planned(model, n_classes, n_public)
    advice = _advice(model, route, people, n_classes=n_classes, n_public=n_public)
    advice.check()
    budget: Budget
    if rounds:
        budget = replace(filter_of(rounds, delta=model.delta), relation=people.relation)
    else:
        assumed = model.consensus if model.mechanism is None else None  # with a mechanism nobody chose a consensus
        sizes = {"n_teachers": model.n_teachers, "n_classes": n_classes}
        budget = route.budget(delta=model.delta, **sizes, relation=people.relation, consensus=assumed)
    return TeachersPlan(rounds=rounds, route=route, budget=budget, advice=advice)


def _rounds(model: Any, n_classes: int, n_public: int) -> tuple[PlannedRound, ...]:
    """The rounds, where there are several: from public inputs only."""
    if model.rounds is None:
        return ()
    if (model.mechanism, model.n_queries, model.n_answers) != (None, None, None):
        raise InputError("rounds stand in the place of mechanism, n_queries and n_answers: leave these out.")
    if model.route == "tested" or model.target is not None:
        raise InputError("rounds are charged by worst case: leave out route and target.")
    return wanted_rounds(
        model.rounds,
        epsilon=model.epsilon,
        delta=model.delta or 0.0,
        standin=_standin(model, n_classes),
        n_public=n_public,
    )


def _planned(model: Any, n_classes: int, n_public: int) -> Route:
    """What answers, how often it is asked and may answer, and the test if one decides: from public inputs only."""
    tested = model.route == "tested"
    if (model.target is None) == (tested and model.mechanism is not None):
        raise InputError('target is the epsilon of route="tested" with a mechanism: give both, or neither.')
    if (model.mechanism is None) == (model.epsilon is None):
        given = "neither was" if model.mechanism is None else "both were"
        raise InputError(f"Give mechanism, or epsilon for a plan, and not both; {given} given.")
    most = n_public if model.n_queries is None else _validate.integer("n_queries", model.n_queries, at_least=1)
    if most > n_public:
        raise InputError(f"n_queries must be at most {n_public}, the rows of X_public, got {most}.")
    if model.mechanism is not None:
        answers = model.n_answers if has_check(model.mechanism) else None
        return Route(mechanism=model.mechanism, n_queries=most, n_answers=answers, target=model.target)
    if model.n_answers is not None:
        raise InputError("n_answers needs mechanism: with epsilon a plan chooses it. Leave it out.")
    standin = _standin(model, n_classes, n_queries=STANDINS if tested else 400)
    found = plan(standin=standin, epsilon=model.epsilon or 0.0, delta=model.delta or 0.0, max_queries=most)
    if tested:
        return planned_route(found, standin=standin, max_queries=most)
    return Route(mechanism=found.mechanism, n_queries=found.n_queries, n_answers=found.n_answers)


def _standin(model: Any, n_classes: int, *, n_queries: int = 400) -> Votes:
    """Public votes of the consensus that is assumed."""
    sizes = {"n_queries": n_queries, "n_classes": n_classes, "n_teachers": model.n_teachers}
    return synthetic_votes(**sizes, consensus=model.consensus)


def _advice(model: Any, route: Route, people: People, *, n_classes: int, n_public: int) -> Advice:
    """Whether the plan can work, from public numbers only."""
    assumed = None if model.epsilon is None else model.consensus  # with a mechanism nobody chose a consensus
    found = advise(
        mechanism=route.mechanism,
        n_queries=route.n_queries,
        n_answers=route.n_answers or route.n_queries,
        delta=_validate.between("delta", model.delta, 0.0, 1.0),
        n_teachers=model.n_teachers,
        n_classes=n_classes,
        n_public=n_public,
        units=people.units,
        standin=None if assumed is None else _standin(model, n_classes),
        consensus=assumed,
        accept_large_delta=model.accept_large_delta,
        target=route.target,
    )
    if model.epsilon is None or model.rounds is not None:
        return found
    other = ' Or give route="auto": a private probe may do with fewer people.'
    told = (replace(one, advice=one.advice + other) if one.code in TOO_FEW else one for one in found.findings)
    return replace(found, findings=tuple(told))


def _first(rounds: Sequence[PlannedRound]) -> Route:
    return Route(mechanism=rounds[0].mechanism, n_queries=rounds[0].n_queries, n_answers=rounds[0].n_answers)
