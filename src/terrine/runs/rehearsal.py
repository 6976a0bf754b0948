"""A rehearsal on labeled public rows: how well teachers agree and a student learns, at no cost in privacy.

Nothing private is read. Noise comes from a seed, so that a rehearsal can be repeated; nothing it gives is private.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.accounting.planning import most_questions, plan
from terrine.datasets import PrivateData, PublicData
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError, PlanError, TerrineError
from terrine.executors import Executor
from terrine.mechanisms import ABSTAIN, Mechanism, answer
from terrine.noise import SeededNoise
from terrine.partitioning import Partition
from terrine.relations import Relation
from terrine.runs.config import RunConfig
from terrine.runs.factories import executor_of, student_of, teacher_of
from terrine.runs.features import features_of
from terrine.runs.features_config import takes_texts
from terrine.runs.tasks import labelled_of
from terrine.students import Student, fit_student
from terrine.teachers import Teacher, poll_teachers
from terrine.votes import Votes

Progress = Callable[[float], object]
LEAST = 40  # labeled rows: a half teaches, a quarter is asked about, a quarter tests


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """One number of teachers with one epsilon.

    Attributes:
        rows_per_teacher: that each pretended teacher learned from.
        overlap: whether teachers shared rows because there were too few: they then agree more than real ones would.
        consensus: mean share of the teachers that chose the class with the most votes.
        plurality_accuracy: share of the questions where that class was right.
        n_queries, n_answers: as planned for epsilon; both 0 where it pays for none.
        n_answered: how many were answered, with simulated noise.
        answer_accuracy: share of the answers that were right; None without answers.
        student_accuracy: on rows that were held back; None where no student could learn.
        never_predicted: classes that the student named for none of them.
        why_not: why there is no student, in words; else empty.
    """

    n_teachers: int
    epsilon: float
    rows_per_teacher: int
    overlap: bool
    consensus: float
    plurality_accuracy: float
    n_queries: int
    n_answers: int
    n_answered: int
    answer_accuracy: float | None
    student_accuracy: float | None
    never_predicted: tuple[str, ...]
    why_not: str


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What came of a rehearsal; all of it public, and none of it private: the noise was simulated.

    Attributes:
        cells: by number of teachers, then by epsilon.
        n_labelled, n_asked, n_test: rows that there were, that were asked about, and that tested the student.
        planned_units: what the teachers' shares were scaled to; None: the labeled rows were shared out.
        without_privacy: accuracy of the student's learner on the true labels of the rows that were asked about.
    """

    cells: tuple[Rehearsed, ...]
    classes: tuple[str, ...]
    delta: float
    n_labelled: int
    n_asked: int
    n_test: int
    planned_units: int | None
    without_privacy: float | None
    seed: int

    @property
    def best(self) -> Rehearsed | None:
        """The student that was right most often; among equals that of the smaller epsilon."""
        learned = [one for one in self.cells if one.student_accuracy is not None]
        return min(learned, key=lambda one: (-(one.student_accuracy or 0.0), one.epsilon), default=None)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "cells": [asdict(one) for one in self.cells], "noise": "simulated: not private"}


def rehearse(
    X: ArrayLike,
    y: ArrayLike,
    *,
    classes: Sequence[str],
    teacher: Teacher,
    student: Student,
    n_teachers: Sequence[int],
    epsilons: Sequence[float],
    delta: float,
    seed: int,
    mechanism: Literal["confident", "gnmax"] = "confident",
    planned_units: int | None = None,
    see: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    split: Sequence[NDArray[np.int64]] | None = None,
) -> Rehearsal:
    """Play PATE on labeled PUBLIC rows, for every number of teachers and every epsilon.

    Args:
        X, y: public rows and their class indices. Never private ones: what comes out is not protected.
        classes: names, in the order of the class indices.
        teacher, student: as in the run to come.
        n_teachers, epsilons: the grid.
        delta: of the guarantees.
        seed: decides the split, the teachers, the noise and the student.
        mechanism: what answers: one that withholds unsure answers, or GNMax, which answers every question.
        planned_units: how many units the private data are planned to have: each pretended teacher learns from
            planned_units / n_teachers rows, as far as there are that many. Where there are too few for all teachers,
            their shares overlap. None: the labeled rows are shared out.
        see: what teachers see of rows, a public function of each.
        progress: called with the share done.
        split: rows that teach, are asked about, and test (default: a half and two quarters, by the seed).
    """
    seed = _validate.integer("seed", seed, at_least=0)
    teams = [_validate.integer("n_teachers", m, at_least=1) for m in n_teachers]
    budgets = [_validate.positive("epsilon", epsilon) for epsilon in epsilons]
    if not teams or not budgets:
        raise InputError("Give at least one number of teachers and one epsilon to rehearse with.")
    if planned_units is not None:
        planned_units = _validate.integer("planned_units", planned_units, at_least=1)
    data, names = PrivateData(np.asarray(X), y), tuple(str(name) for name in classes)
    if len(data) < LEAST:
        raise InputError(f"A rehearsal needs at least {LEAST} labeled public rows, got {len(data)}.")
    if (data.y >= len(names)).any():
        raise InputError("A labeled row has a class index that is not below the number of classes.")
    if split is None:
        order = np.random.default_rng([seed, 0]).permutation(len(data))
        split = np.split(order, [len(order) // 2, len(order) * 3 // 4])
    taught, asked, held = split
    seen = data.X if see is None else see(data.X)
    cells: list[Rehearsed] = []

    def told(done: float) -> None:
        if progress is not None:
            progress(done)

    def voting(place: int) -> Progress:
        return lambda share: told((place + 0.8 * share) / len(teams))

    for place, m in enumerate(teams):
        size = min(len(taught), max(1, (planned_units or len(taught)) // m))
        rows = _shares(taught, m, size, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            votes = poll_teachers(
                PrivateData(seen[rows.ravel()], data.y[rows.ravel()]),
                Partition(
                    np.repeat(np.arange(m), size), n_teachers=m, method="balanced", relation=Relation.ROW_REPLACED
                ),
                teacher,
                PublicData(seen[asked]),
                classes=names,
                seed=seed,
                executor=executor,
                progress=voting(place),
            )
            for k, epsilon in enumerate(budgets):
                budget = {"epsilon": epsilon, "delta": delta, "max_queries": len(asked)}
                found = _cell(votes, data, asked, held, names, student, mechanism, budget, seed=seed)
                cells.append(
                    Rehearsed(
                        n_teachers=m, epsilon=epsilon, rows_per_teacher=size, overlap=m * size > len(taught), **found
                    )
                )
                told((place + 0.8 + 0.2 * (k + 1) / len(budgets)) / len(teams))
    _, without = _learned(data, asked, data.y[asked], held, names, student, seed=seed)
    return Rehearsal(
        cells=tuple(cells),
        classes=names,
        delta=delta,
        n_labelled=len(data),
        n_asked=len(asked),
        n_test=len(held),
        planned_units=planned_units,
        without_privacy=without,
        seed=seed,
    )


def rehearse_run(
    config: RunConfig,
    *,
    labelled: Path | None,
    n_teachers: Sequence[int],
    epsilons: Sequence[float],
    units: int | None = None,
    progress: Progress | None = None,
) -> Rehearsal:
    """A rehearsal with a run's teachers and student; its private file is not opened.

    Args:
        labelled: a file of labeled public rows; None with a built-in data set, which brings them.
        units: a planning number; else the one in the settings.
    """
    X, y, classes = labelled_of(config.data, labelled, texts=takes_texts(config.features))
    features: Any = None
    if config.features is not None:
        features = features_of(config.features, PublicData(X), seed=config.seed, device=config.teachers.device)
    return rehearse(
        X,
        y,
        classes=classes,
        teacher=teacher_of(config.teachers),
        student=student_of(config.student, features=None if features is None else lambda: features),
        n_teachers=n_teachers,
        epsilons=epsilons,
        delta=config.privacy.delta,
        seed=config.seed,
        mechanism="gnmax" if config.privacy.mechanism == "gnmax" else "confident",
        planned_units=config.data.units_planned if units is None else units,
        see=None if features is None else features.transform,
        executor=executor_of(config.teachers),
        progress=progress,
    )


def _shares(rows: NDArray[np.int64], m: int, size: int, *, seed: int) -> NDArray[np.int64]:
    """(m, size) rows of each teacher: disjoint where there are enough, else each drawn without repeats."""
    rng = np.random.default_rng([seed, 1])
    if m * size <= len(rows):
        return rng.permutation(rows)[: m * size].reshape(m, size)
    return np.stack([rng.choice(rows, size=size, replace=False) for _ in range(m)])


def _cell(
    votes: Votes,
    data: PrivateData,
    asked: NDArray[np.int64],
    held: NDArray[np.int64],
    classes: tuple[str, ...],
    student: Student,
    mechanism: Literal["confident", "gnmax"],
    budget: dict[str, Any],
    *,
    seed: int,
) -> dict[str, Any]:
    """Plan by the consensus that was found, answer with simulated noise, and train the student."""
    counts, truth = votes.counts, data.y[asked]
    consensus = float(counts.max(axis=1).mean() / votes.n_teachers)
    found: dict[str, Any] = {
        "consensus": consensus,
        "plurality_accuracy": float((counts.argmax(axis=1) == truth).mean()),
        "n_queries": 0,
        "n_answers": 0,
        "n_answered": 0,
        "answer_accuracy": None,
        "student_accuracy": None,
        "never_predicted": (),
        "why_not": "",
    }
    standin = synthetic_votes(
        n_queries=400,
        n_classes=len(classes),
        n_teachers=votes.n_teachers,
        consensus=min(max(consensus, 0.01), 0.99),
    )
    noise: Mechanism
    try:
        if mechanism == "gnmax":
            noise, n_queries = most_questions(standin=standin, **budget)
            n_answers = n_queries
        else:
            chosen = plan(standin=standin, **budget)
            noise, n_queries, n_answers = chosen.mechanism, chosen.n_queries, chosen.n_answers
    except PlanError:
        return found | {"why_not": "this ε pays for no answers"}
    labels = np.full(len(asked), ABSTAIN, dtype=np.int64)
    labels[:n_queries] = answer(noise, votes[:n_queries], rng=SeededNoise(seed)).labels
    labels[np.cumsum(labels != ABSTAIN) > n_answers] = ABSTAIN
    given = labels != ABSTAIN
    found |= {"n_queries": n_queries, "n_answers": n_answers, "n_answered": int(given.sum())}
    if given.any():
        found["answer_accuracy"] = float((labels == truth)[given].mean())
    try:
        never, accuracy = _learned(data, asked, labels, held, classes, student, seed=seed)
    except TerrineError:
        return found | {"why_not": "the answers are too few to learn from"}
    return found | {"never_predicted": never, "student_accuracy": accuracy}


def _learned(
    data: PrivateData,
    asked: NDArray[np.int64],
    labels: NDArray[np.int64],
    held: NDArray[np.int64],
    classes: tuple[str, ...],
    student: Student,
    *,
    seed: int,
) -> tuple[tuple[str, ...], float]:
    """Classes that the student never names on the rows held back, and how often it is right there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = fit_student(student, PublicData(data.X[asked]), labels, classes=classes, seed=seed)
        guesses = fitted.predict(data.X[held])
    named = set(guesses.tolist())
    never = tuple(name for k, name in enumerate(classes) if k not in named)
    return never, float((guesses == data.y[held]).mean())
