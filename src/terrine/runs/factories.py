"""Settings to the things they name: rows, mechanism, teachers, executor."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from terrine.accounting.planning import least_noise, most_questions, plan
from terrine.budgets import CountBudget, TestedBudget
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError, PlanError
from terrine.executors import Executor, Processes, Ray, Serial
from terrine.mechanisms import ConfidentGNMax, GNMax, LNMax, Mechanism
from terrine.relations import Relation
from terrine.runs.config import (
    PrivacyConfig,
    RunConfig,
    Settings,
    StudentConfig,
    TeachersConfig,
)
from terrine.runs.cost_plan import cost_release_of, planned_within
from terrine.runs.features import check_encoders
from terrine.runs.more_answers import with_more_teachers
from terrine.runs.tested import planned_privacy, tested_budget
from terrine.teachers import ConvRecipe, ConvTeacher, SklearnTeacher, Teacher
from terrine.tested_route import STANDINS

if TYPE_CHECKING:
    from terrine.features import AnyFeatures

_ESTIMATORS = {
    "forest": "sklearn.ensemble.RandomForestClassifier",
    "boosting": "sklearn.ensemble.GradientBoostingClassifier",
    "logistic": "sklearn.linear_model.LogisticRegression",
    "lda": "sklearn.discriminant_analysis.LinearDiscriminantAnalysis",
}


def planned(config: RunConfig, *, n_classes: int, n_public: int) -> PrivacyConfig:
    """Mechanism and numbers of queries and answers for a budget, from public inputs only."""
    privacy, n_teachers = config.privacy, config.teachers.number
    assert privacy.epsilon is not None
    if privacy.publish_cost:
        return planned_within(config, lambda one: planned(one, n_classes=n_classes, n_public=n_public), budget_of)
    kept = privacy.model_dump(include={"delta", "ask"})
    if privacy.mechanism == "gnmax" and privacy.queries is not None:
        noise = least_noise(n_queries=privacy.queries, epsilon=privacy.epsilon, delta=privacy.delta)
        return PrivacyConfig(**kept, mechanism="gnmax", sigma=noise.sigma, queries=privacy.queries)
    assert privacy.consensus is not None
    budget: dict[str, Any] = {
        "standin": synthetic_votes(
            n_queries=400, n_classes=n_classes, n_teachers=n_teachers, consensus=privacy.consensus
        ),
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "max_queries": min(n_public, privacy.queries or n_public),
        **privacy.model_dump(include={"min_accuracy"}, exclude_none=True),
    }
    if privacy.mechanism == "gnmax":
        try:
            noise, n_queries = most_questions(**budget)
        except PlanError as error:
            more = with_more_teachers(config, n_classes=n_classes, n_public=n_public)
            raise PlanError(f"{error} {more}".strip()) from None
        return PrivacyConfig(**kept, mechanism="gnmax", sigma=noise.sigma, queries=n_queries)
    if privacy.route == "tested":
        sizes = {"n_queries": STANDINS, "n_classes": n_classes, "n_teachers": n_teachers}
        budget["standin"] = synthetic_votes(**sizes, consensus=privacy.consensus)
        return planned_privacy(plan(**budget), privacy, standin=budget["standin"], max_queries=budget["max_queries"])
    found = plan(**budget)
    numbers = {"queries": found.n_queries, "answers": found.n_answers}
    return PrivacyConfig.model_validate({**kept, **asdict(found.mechanism), **numbers, "mechanism": "confident"})


def mechanism_of(privacy: PrivacyConfig) -> Mechanism:
    match privacy.mechanism:
        case "confident":
            names = ("threshold", "sigma_check", "sigma_vote")
            return ConfidentGNMax(**{name: getattr(privacy, name) for name in names})
        case "gnmax":
            return GNMax(sigma=privacy.sigma or 0.0)
        case "lnmax":
            return LNMax(scale=privacy.scale or 0.0)
    raise InputError("privacy.mechanism is not set, and nothing is planned yet: make a run directory first.")


def budget_of(privacy: PrivacyConfig, *, relation: Relation = Relation.ONE_TEACHER) -> CountBudget:
    assert privacy.queries is not None
    mechanism, answers = mechanism_of(privacy), privacy.answers if privacy.mechanism == "confident" else None
    return CountBudget(
        mechanism,
        n_queries=privacy.queries,
        n_answers=answers,
        delta=privacy.delta,
        relation=relation,
        cost_release=cost_release_of(privacy, mechanism),
    )


def any_budget_of(
    config: RunConfig, *, n_classes: int, relation: Relation = Relation.ONE_TEACHER
) -> CountBudget | TestedBudget:
    """Of settings whose plan is filled in, by the route that they choose."""
    if config.privacy.route == "tested":
        return tested_budget(config, mechanism_of(config.privacy), n_classes=n_classes, relation=relation)
    return budget_of(config.privacy, relation=relation)


def teacher_of(settings: TeachersConfig) -> Teacher:
    chunk: dict[str, Any] = {} if settings.chunk is None else {"chunk": settings.chunk}
    try:
        match settings.kind:
            case "conv":
                default = {"chunk": 250 if _gpu(settings.device) else 10}
                return ConvTeacher(recipe=ConvRecipe(**settings.options), device=settings.device, **(default | chunk))
            case "centroid":
                from terrine.teachers.centroids import CentroidTeacher

                return CentroidTeacher(**settings.options, **chunk)
            case "ridge":
                from terrine.teachers.ridge import RidgeTeacher

                return RidgeTeacher(**settings.options, **chunk)
            case "module":
                from terrine.runs.modules import module_teacher

                return module_teacher(settings, chunk=settings.chunk or (100 if _gpu(settings.device) else 16))
            case _:
                name = settings.estimator or _ESTIMATORS[settings.kind]
                return SklearnTeacher(estimator=estimator_of(name, settings.options), **chunk)
    except TypeError as error:
        raise InputError(f"teachers.options: {error}.") from None


def estimator_of(name: str, options: dict[str, Any]) -> Any:
    """A scikit-learn estimator by its dotted name."""
    module, _, kind = name.rpartition(".")
    if not name.startswith("sklearn."):
        raise InputError(
            f'estimator must be the dotted name of a class in scikit-learn, e.g. "sklearn.svm.SVC", got {name!r}.'
        )
    try:
        return getattr(importlib.import_module(module), kind)(**options)
    except (ImportError, AttributeError):
        raise InputError(
            f"scikit-learn has no {name!r}. Give an estimator by its dotted name, e.g. sklearn.svm.SVC."
        ) from None
    except TypeError as error:
        raise InputError(f"The options do not fit {kind}: {error}.") from None


def student_of(settings: StudentConfig, *, features: Callable[[], AnyFeatures] | None = None) -> Any:
    """A student's settings; one on features asks for them."""
    from terrine import students

    balanced: dict[str, Any] = {"balanced": True} if settings.balanced else {}
    try:
        match settings.kind:
            case "auto":
                seen = None if features is None else features()
                return students.AutoStudent(features=seen, **settings.options, **balanced)
            case "vat":
                presets = {"small": students.VATStudent.small, "paper": students.VATStudent.paper}
                made = presets.get(settings.preset or "", students.VATStudent)
                return made(**settings.options, **balanced)
            case "gan":
                gan = students.GANStudent.paper if settings.preset == "paper" else students.GANStudent
                return gan(**settings.options, **balanced)
            case "match":
                return students.MatchStudent(**settings.options, **balanced)
            case "features":
                assert features is not None
                name = settings.estimator
                estimator = None if name is None else estimator_of(name, settings.options)
                return students.FeatureStudent(
                    features=features(), estimator=estimator, self_training=settings.self_training, **balanced
                )
            case _:
                name = settings.estimator or _ESTIMATORS["forest"]
                estimator = estimator_of(name, settings.options)
                return students.SupervisedStudent(estimator=estimator, self_training=settings.self_training, **balanced)
    except TypeError as error:
        raise InputError(f"student.options: {error}.") from None


def check_options(config: Settings) -> None:
    """Refuse options of teachers and student that they do not have: before anything is written or spent."""
    if isinstance(config, RunConfig):
        teacher_of(config.teachers)
        if config.features is not None and config.features.own:
            check_encoders(config.features)
    check_student(config.student)


def check_student(settings: StudentConfig) -> None:
    if settings.kind == "probe":
        return
    if settings.kind != "features":
        student_of(settings)
    elif settings.estimator is not None:
        student_of(settings.model_copy(update={"kind": "supervised"}))  # the same estimator, without features


def executor_of(settings: TeachersConfig) -> Executor:
    match settings.executor:
        case "serial":
            return Serial()
        case "ray":
            return Ray()
    if _gpu(settings.device) and settings.kind in ("conv", "module"):
        return Serial()  # one GPU, one process
    return Processes() if settings.workers is None else Processes(n_workers=settings.workers)


def _gpu(device: str) -> bool:
    if device != "auto":
        return device.startswith("cuda")
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
