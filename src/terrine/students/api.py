"""Fit a student to what was released, and read a kept one back."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.datasets import PublicData
from terrine.datasets.rows import numbers
from terrine.datasets.tables import Frame
from terrine.errors import AdviceWarning, DataError, InputError, StoreError, TerrineWarning, warn_caller
from terrine.features import EncoderFeatures
from terrine.mechanisms import ABSTAIN, Answers
from terrine.students import features as on_features
from terrine.students import neural, supervised
from terrine.students.auto import AutoStudent, compared_with_linear, fit_chosen, left_out
from terrine.students.auto import fit_beside as beside
from terrine.students.consistency import MatchStudent, VATStudent, train_consistency
from terrine.students.features import FeatureStudent, FittedOnFeatures, fit_on_features
from terrine.students.fitted import read_folder
from terrine.students.gan import GANStudent, train_gan
from terrine.students.label_filter import Train
from terrine.students.lessons import Lessons, lessons
from terrine.students.nets import NetSettings, Progress
from terrine.students.neural import FittedNet, fit_net
from terrine.students.supervised import FittedEstimator, SupervisedStudent, fit_estimator
from terrine.students.verdict import Judged, Verdict, is_probe, seldom_predicted, warnings_of

Single = SupervisedStudent | FeatureStudent | VATStudent | GANStudent | MatchStudent
Student = Single | AutoStudent
"""Settings of a student: what `fit_student` takes."""
FittedStudent = FittedEstimator | FittedOnFeatures | FittedNet
"""A student that has learned: what `fit_student` and `load_student` return."""
_LOOKED_AT = 10_000  # public rows, at most about twice that: a class that is rarer is rare indeed
_FOLDS, _MOST_LEFT_OUT, _SEED = 5, 5_000, 0  # of answers that judge a student: enough for a difference of 2 points


def fit_student(
    student: Student,
    public: PublicData | ArrayLike,
    answers: Answers | ArrayLike,
    *,
    classes: Sequence[str],
    seed: int,
    progress: Progress | None = None,
) -> FittedStudent:
    """Train a student on public rows and released labels. It sees nothing else, so it costs no privacy.

    Args:
        student: which learner, and its settings.
        public: all public rows, answered or not: uint8 images (n, height, width[, channels]) or features (n, d); for a
            SupervisedStudent also sparse rows, texts or a table.
        answers: a class index, or ABSTAIN = -1, for each public row or for the first of them.
        classes: names, in the order of the class indices.
        seed: decides all randomness; on a CPU the same seed and number of threads give the same student, bit for bit.
        progress: called with the share done.
    """
    if not isinstance(student, Student):
        raise InputError(f"student must be a student's settings, such as VATStudent(), got {type(student).__name__}.")
    seed = _validate.integer("seed", seed, at_least=0)
    given = lessons(public, answers, classes=classes, min_per_class=student.min_per_class)
    if (given.labels == given.labels[0]).all():
        return _constant(given, seed=seed)
    if isinstance(student, AutoStudent):
        if isinstance(given.rows, Frame) and not _by_encoder(student):
            given = replace(given, rows=numbers(given.rows, who=type(student).__name__))
        result = fit_chosen(student, given, seed=seed, fit=lambda one, some: _taught(one, some, seed=seed))
        if progress is not None:
            progress(1.0)
        return result
    made = _taught(student, given, seed=seed, progress=progress)
    if isinstance(student, NetSettings) and student.steps > 1 and isinstance(given.rows, np.ndarray):
        made = compared_with_linear(made, given, seed=seed, fit=lambda one, some: _taught(one, some, seed=seed))
    return made


def fit_beside(
    own: FittedStudent,
    student: AutoStudent,
    public: PublicData | ArrayLike,
    labels: ArrayLike,
    *,
    truth: ArrayLike,
    classes: Sequence[str],
    seed: int,
) -> FittedStudent:
    """A model that labeled all public rows, or a student of these labels that is better by labeled public rows.

    Args:
        own: the model; kept unless a student leads by more than twice the lead's standard error.
        student: the students to try.
        labels: the model's, a class index for each public row.
        truth: class indices of public rows that somebody labeled, -1 for the others: they judge, and teach nobody.
    """
    given = lessons(public, labels, classes=classes, min_per_class=0)
    if (given.labels == given.labels[0]).all():
        return own
    given = replace(given, rows=numbers(given.rows, who=type(student).__name__), noise=own.about.noise)
    known = np.asarray(truth, dtype=np.int64)
    return beside(own, student, given, known, seed=seed, fit=lambda one, some: _taught(one, some, seed=seed))


def _by_encoder(student: Student) -> bool:
    """Whether an encoder of the user's own takes the rows as they are."""
    return isinstance(getattr(student, "features", None), EncoderFeatures)


def _taught(student: Single, given: Lessons, *, seed: int, progress: Progress | None = None) -> FittedStudent:
    if not isinstance(student, SupervisedStudent) and not _by_encoder(student):
        given = replace(given, rows=numbers(given.rows, who=type(student).__name__))
    train: Train
    match student:
        case SupervisedStudent() | FeatureStudent():
            result: FittedStudent = (
                fit_estimator(student, given, seed=seed)
                if isinstance(student, SupervisedStudent)
                else fit_on_features(student, given, seed=seed)
            )
            if progress is not None:
                progress(1.0)
            return result
        case VATStudent() | MatchStudent():
            train = train_consistency
        case GANStudent():
            if not given.of_images:
                raise DataError(
                    "A GANStudent needs uint8 images (n, height, width[, channels]), got rows of shape "
                    f"{given.row_shape}, dtype {given.rows.dtype}. VATStudent and MatchStudent take rows of features."
                )
            train = train_gan
    return fit_net(student, given, seed=seed, train=train, progress=progress)


def _constant(given: Lessons, *, seed: int) -> FittedEstimator:
    """All answers name one class: they were paid for, and a student that names it is all that can be learned."""
    from sklearn.dummy import DummyClassifier

    only = given.classes[int(given.labels[0])]
    warn_caller(
        f"All {len(given.labels):,} answers name {only!r}, so that the student always predicts it. Ask about more "
        "rows, or choose public rows in which the classes are less rare.",
        AdviceWarning,
    )
    return fit_estimator(SupervisedStudent(estimator=DummyClassifier(strategy="prior")), given, seed=seed)


def judged(
    made: FittedStudent, student: Student, public: PublicData | ArrayLike, answers: Answers | ArrayLike, *, seed: int
) -> FittedStudent:
    """The same student, beside always naming the commonest class, by the answers: its ``about.verdict``.

    Each answer is left out of a student that predicts it, five at a fifth of the answers. A net would take five times
    as long to train: it is judged by the very answers that it learned from, which flatters it, and so is a student of
    answers that are too few to leave any out.

    Args:
        made: of ``student``, ``public``, ``answers`` and ``seed``, by `fit_student`.
    """
    if made.about.verdict is not None:
        return made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TerrineWarning)  # said when it was taught
        given = lessons(public, answers, classes=made.classes, min_per_class=0)
    if not isinstance(student, SupervisedStudent):
        given = replace(given, rows=numbers(given.rows, who=type(student).__name__))
    hits, several = None, bool((given.labels != given.labels[0]).any())
    if several and isinstance(student, SupervisedStudent | FeatureStudent):
        some = np.random.default_rng(_SEED).permutation(len(given.labels))[:_MOST_LEFT_OUT]
        part = replace(given, answered=given.answered[some], labels=given.labels[some])
        hits = left_out(student, part, folds=_FOLDS, fit=lambda one, rest: _taught(one, rest, seed=seed))
        given = given if hits is None else part
    right = made.predict(given.rows[given.answered]) == given.labels if hits is None else hits > 0
    how: Judged = "learned" if hits is None else "left_out"
    verdict = Verdict.of(right, given.labels, classes=made.classes, judged_on=how)
    return replace(made, about=replace(made.about, verdict=verdict))


def rarely_named(
    student: FittedStudent, public: PublicData | ArrayLike, answered: NDArray[np.int64] | None
) -> tuple[tuple[str, ...], dict[str, tuple[float, float]]]:
    """Classes that a student names for none of the public rows; and those that it names too seldom.

    Args:
        answered: (n_classes,) how many answers name each class; None: not known, and no class is too seldom.

    Returns:
        Names; and by name the class's share of the predictions, and of the answers.
    """
    rows = (public if isinstance(public, PublicData) else PublicData(public)).X
    found = student.predict(rows[:: max(1, len(rows) // _LOOKED_AT)])
    shares = np.bincount(found, minlength=len(student.classes)) / len(found)
    never = tuple(name for k, name in enumerate(student.classes) if not shares[k])
    return never, {} if answered is None else seldom_predicted(shares, answered, classes=student.classes)


def warn_of(student: FittedStudent, public: PublicData | ArrayLike, labels: NDArray[np.int64]) -> None:
    """Warn where a student is no better than a constant, by ``about.verdict``, or names a class too seldom.

    Args:
        labels: class indices of released answers, ABSTAIN = -1 elsewhere.
    """
    answered = np.bincount(labels[labels != ABSTAIN], minlength=len(student.classes))
    never, seldom = rarely_named(student, public, answered)
    verdicts = [] if student.about.verdict is None else [student.about.verdict]
    for one in warnings_of(verdicts, seldom=seldom, never=never, by_probe=is_probe(student.about.settings)):
        warn_caller(one, AdviceWarning)


def load_student(folder: str | Path, *, encoder: Any = None) -> FittedStudent:
    """A student as `save` wrote it, with its ``card`` and its ``extra`` files.

    Every file is compared with its sha256, and nothing is executed.

    Args:
        encoder: of a student whose folder does not carry its encoder: the file or folder of a model, the module or the
            function, or its name as "package.module:function". It is checked to be the same.
    """
    kept = read_folder(folder)
    match kept.kind:
        case neural.KIND:
            return FittedNet.restore(kept)
        case supervised.KIND:
            return FittedEstimator.restore(kept)
        case on_features.KIND:
            return FittedOnFeatures.restore(kept, Path(folder), encoder=encoder)
    raise StoreError(
        f"{folder} holds a student of an unknown kind, {kept.kind!r}. A newer terrine may have written it."
    )
