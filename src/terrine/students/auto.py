"""A student chosen by answers that it has not seen: a handful is tried by cross-validation, and the best is kept.

A student is made from released answers and public rows, so that trying several costs no privacy. The comparison is
part of what is known of the student, and stands in the report.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine.errors import InputError, TerrineError
from terrine.features import AnyFeatures, AutoFeatures, AutoRecipe, fit_auto
from terrine.features.auto import device_of
from terrine.students.consistency import MatchStudent
from terrine.students.features import FeatureStudent
from terrine.students.lessons import Lessons
from terrine.students.supervised import SupervisedStudent
from terrine.students.verdict import Verdict

if TYPE_CHECKING:
    from terrine.students.api import FittedStudent, Single

LINEAR, RELAYED, ITSELF = "linear", "net, taught by the linear one", "the probe itself"
CONSTANT = "always the commonest class"  # a bar that is shown, and never kept
_SHORT: dict[str, Any] = {"folds": 0, "steps": 1000}  # six times, so that each is short
_CALM: dict[str, Any] = {"entropy": 0.0, "balance": 0.0, "radius": 0.0, "fade": 0.0}  # it has labels of all rows
_SOFT = (1.0, 10.0)  # of logistic regression on rows of length 1
_SEED = 0  # of the folds
_MANY = 20_000  # public rows: with more, those without an answer are left out
_MOST_TREED = 20  # classes: each has trees of its own
_TELLING = 50  # labeled public rows: fewer tell nothing between two models
_FEW = 500  # answers: with more, a model's own guesses add little to them


@dataclass(frozen=True, kw_only=True)
class AutoStudent:
    """Several students, tried on folds of the answers; the one that is right most often on answers left out is kept.

    Candidates: linear discriminants and logistic regression on features, self-training, on plain rows boosted trees,
    and on images, where there is a GPU, a net that agrees with itself on distorted images.

    Attributes:
        features: as the teachers have them; None: made from the public rows, without an encoder.
        folds: of the answers.
        nets: "yes", "no", or "auto": where there is a GPU.
        balanced, min_per_class: as of a `SupervisedStudent`.
    """

    features: AnyFeatures | None = None
    folds: int = 5
    nets: Literal["auto", "yes", "no"] = "auto"
    balanced: bool = False
    min_per_class: int = 0

    def __post_init__(self) -> None:
        if self.features is not None and not isinstance(self.features, AnyFeatures):
            raise InputError(
                f"features must be what fit_auto or as_features gives, got {type(self.features).__name__}."
            )
        _validate.integer("folds", self.folds, at_least=2)
        _validate.choice("nets", self.nets, ("auto", "yes", "no"))
        if not isinstance(self.balanced, bool):
            raise InputError(f"balanced must be True or False, got {self.balanced!r}.")
        _validate.integer("min_per_class", self.min_per_class, at_least=0)


Fit = Callable[["Single", Lessons], "FittedStudent"]
Hits = NDArray[np.float64]  # 1 where a row is told right


def fit_chosen(settings: AutoStudent, given: Lessons, *, seed: int, fit: Fit) -> FittedStudent:
    """The best of the candidates, taught on all answers; what was compared is in its settings.

    Args:
        fit: teaches one of them.
    """
    tried = candidates(settings, given, seed=seed)

    def taught(name: str, some: Lessons) -> FittedStudent:
        if name == RELAYED:
            return _relayed(tried[name], some, linear=tried[LINEAR], fit=fit)
        return fit(tried[name], some)

    right = _right(tried, given, given.labels, folds=settings.folds, taught=taught, fit=fit)
    best = LINEAR if right is None else max(right, key=lambda name: right[name].mean())
    made = taught(best, given)
    kept = {**made.about.settings, "student": type(settings).__name__, "chosen": best}
    verdict = None
    if right is not None:
        bar = given.labels == np.bincount(given.labels).argmax()
        kept["compared"] = _leads({**right, CONSTANT: bar.astype(float)}, on=LINEAR)
        if right[best].mean() <= bar.mean():
            kept["below_constant"] = True
        kept["compared_on"] = f"answers that they had not seen, in {settings.folds} folds"
        verdict = Verdict.of(right[best] > 0, given.labels, classes=given.classes, judged_on="left_out")
    return replace(made, about=replace(made.about, settings=kept, verdict=verdict))


def fit_beside(
    own: FittedStudent, settings: AutoStudent, given: Lessons, truth: NDArray[np.int64], *, seed: int, fit: Fit
) -> FittedStudent:
    """A model whose labels are the lessons, or a student of them that is right more often where the truth is known.

    The labels themselves cannot tell which of the two is better: the model agrees with all of them.

    Args:
        own: the model. It is kept unless a student leads by more than twice the lead's standard error.
        truth: (n_answered,) class indices of labeled public rows, -1 where unknown. No student learns from them.
    """
    known = int((truth >= 0).sum())
    tried = candidates(settings, given, seed=seed)
    right = None

    def taught(name: str, some: Lessons) -> FittedStudent:
        if name == RELAYED:
            return _relayed(tried[name], some, linear=tried[LINEAR], fit=fit)
        return fit(tried[name], some)

    if known >= _TELLING:
        right = _right(tried, given, truth, folds=settings.folds, taught=taught, fit=fit)
    if right is None:
        return own
    judged = np.flatnonzero(truth >= 0)
    found = _leads(
        {ITSELF: (own.predict(given.rows[given.answered[judged]]) == truth[judged]).astype(float), **right}, on=ITSELF
    )
    best = max(found, key=lambda name: found[name]["lead"])
    if found[best]["lead"] <= 2 * found[best]["error"]:
        best = ITSELF
    made = own if best == ITSELF else taught(best, given)
    said = f"{known:,} labeled public rows, which the students had not learned from, in {settings.folds} folds"
    more = {"chosen": best, "compared": found, "compared_on": said, "compared_with": ITSELF}
    return replace(made, about=replace(made.about, settings={**made.about.settings, **more}))


def candidates(settings: AutoStudent, given: Lessons, *, seed: int) -> dict[str, Single]:
    """By name; the plain linear one first."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    same: dict[str, Any] = {"balanced": settings.balanced}
    if not isinstance(given.rows, np.ndarray) and settings.features is None:
        learner = LogisticRegression(max_iter=1000)
        return {LINEAR: SupervisedStudent(estimator=learner, **same)}
    features = settings.features
    if features is None:
        features = fit_auto(given.rows, recipe=AutoRecipe(encoder="no"), seed=seed)
    plain = isinstance(features, AutoFeatures) and not features.of_images

    def on_features(estimator: Any, **more: Any) -> FeatureStudent:
        return FeatureStudent(features=features, estimator=estimator, **same, **more)

    linear = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5)
    found: dict[str, Single] = {
        LINEAR: on_features(linear),
        "linear, less shrunk": on_features(LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2)),
        **{f"logistic, C = {c:g}": on_features(LogisticRegression(C=c, max_iter=1000)) for c in _SOFT},
    }
    if len(given.rows) <= _MANY and len(given.answered) <= _FEW:
        found["linear, self-training"] = on_features(linear, self_training=True)
    if plain and len(given.classes) <= _MOST_TREED:
        trees = GradientBoostingClassifier(
            n_estimators=100, learning_rate=0.05, max_depth=3, subsample=0.5, max_features=0.3
        )
        found["boosted trees"] = SupervisedStudent(estimator=trees, **same)
    if given.of_images and (settings.nets == "yes" or (settings.nets == "auto" and device_of("auto") != "cpu")):
        found |= {"net": MatchStudent(**same, **_SHORT), RELAYED: MatchStudent(**same, **_SHORT, **_CALM)}
    return found


def _relayed(student: Single, given: Lessons, *, linear: Single, fit: Fit) -> FittedStudent:
    """A net taught by the linear student, whose labels of all public rows are steadier than single answers."""
    labels = fit(linear, given).predict(given.rows)
    made = fit(student, replace(given, answered=np.arange(len(labels)), labels=labels))
    return replace(made, about=replace(made.about, n_answered=len(given.answered), n_learned=len(given.answered)))


def left_out(student: Single, given: Lessons, *, folds: int, fit: Fit) -> Hits | None:
    """(n_answered,) whether a student that was taught without an answer predicts it; None: the answers are too few."""
    right = _right(
        {LINEAR: student}, given, given.labels, folds=folds, taught=lambda _, some: fit(student, some), fit=fit
    )
    return None if right is None else right[LINEAR]


def _leads(right: dict[str, Hits], *, on: str) -> dict[str, dict[str, float]]:
    """By candidate: the share that it predicts, its lead on one of them, and that lead's standard error."""
    return {
        name: {
            "right": float(hits.mean()),
            "lead": float((hits - right[on]).mean()),
            "error": float((hits - right[on]).std() / np.sqrt(len(hits))),
        }
        for name, hits in right.items()
    }


def _right(
    tried: dict[str, Single],
    given: Lessons,
    truth: NDArray[np.int64],
    *,
    folds: int,
    taught: Callable[[str, Lessons], FittedStudent],
    fit: Fit,
) -> dict[str, Hits] | None:
    """By candidate: whether it is right about each answered row whose truth is known (not below 0), when left out.

    A candidate that cannot learn from a part of the answers is not there; None where the linear one cannot.
    """
    judged, every = np.flatnonzero(truth >= 0), np.arange(len(given.answered))
    order = judged[np.random.default_rng(_SEED).permutation(len(judged))]
    parts = np.array_split(order, min(folds, len(order)))
    right: dict[str, Hits] = {}
    on_features = _on_features(tried[LINEAR], given)
    for name, student in tried.items():
        hits = np.zeros(len(every))
        whole = on_features if isinstance(student, FeatureStudent) else given
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for part in parts:
                    rest = np.setdiff1d(every, part)
                    some = replace(whole, answered=whole.answered[rest], labels=whole.labels[rest])
                    made = fit(student.plain(), some) if isinstance(student, FeatureStudent) else taught(name, some)
                    hits[part] = made.predict(whole.rows[whole.answered[part]]) == truth[part]
        except TerrineError:
            if name == LINEAR:
                return None
            continue
        right[name] = hits[judged]
    return right


def _on_features(linear: Single, given: Lessons) -> Lessons:
    """The same lessons with features in place of rows, made once for all candidates that learn from them."""
    if not isinstance(linear, FeatureStudent):
        return given
    if len(given.rows) <= _MANY:
        return replace(given, rows=linear.features.transform(given.rows))
    rows = linear.features.transform(given.rows[given.answered])
    return replace(given, rows=rows, answered=np.arange(len(rows)))


def compared_with_linear(made: FittedStudent, given: Lessons, *, seed: int, fit: Fit) -> FittedStudent:
    """The same student; where it is right less often than a plain linear one, its settings say so.

    The linear one is judged by answers left out, the student by the very answers that it learned from: if it does not
    even lead then, it has unlearned what the answers say.
    """
    plain = left_out(candidates(AutoStudent(nets="no"), given, seed=seed)[LINEAR], given, folds=5, fit=fit)
    right = float((made.predict(given.rows[given.answered]) == given.labels).mean())
    if plain is None or right >= plain.mean():
        return made
    said = (
        f"it agrees with {right:.1%} of the answers that it learned from, and a linear student with "
        f'{plain.mean():.1%} of answers that it had not seen. Choose student = "auto".'
    )
    return replace(made, about=replace(made.about, settings={**made.about.settings, "below_linear": said}))
