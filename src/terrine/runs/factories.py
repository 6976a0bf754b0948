"""Settings to the things they name: rows, mechanism, teachers, executor."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from terrine.accounting.planning import least_noise, plan
from terrine.budgets import CountBudget
from terrine.datasets import PrivateData, Task, load, read_private, read_public
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError
from terrine.executors import Executor, Processes, Ray, Serial
from terrine.mechanisms import ConfidentGNMax, GNMax, LNMax, Mechanism
from terrine.relations import Relation
from terrine.runs.config import (
    DataConfig,
    PrivacyConfig,
    PublicDataConfig,
    RunConfig,
    Settings,
    StudentConfig,
    TeachersConfig,
)
from terrine.teachers import ConvRecipe, ConvTeacher, SklearnTeacher, Teacher

if TYPE_CHECKING:
    from terrine.features import Features
    from terrine.features.edges import Edges

_ESTIMATORS = {
    "forest": "sklearn.ensemble.RandomForestClassifier",
    "boosting": "sklearn.ensemble.GradientBoostingClassifier",
    "logistic": "sklearn.linear_model.LogisticRegression",
    "lda": "sklearn.discriminant_analysis.LinearDiscriminantAnalysis",
}


def task_of(data: DataConfig) -> Task:
    """Read the data; what does not fit together is refused before anyone is taught."""
    if data.name is not None:
        return load(data.name, **data.options)
    assert data.private is not None
    assert data.classes is not None
    classes = tuple(data.classes)
    common = _reading(data)
    private = read_private(data.private, classes=classes, label=data.label, unit=data.unit, **common)
    return _own_task(data, private=private, classes=classes, ignore=(data.label, data.unit))


def labelled_of(data: DataConfig, file: Path | None) -> tuple[NDArray[Any], NDArray[np.int64], tuple[str, ...]]:
    """Labelled PUBLIC rows, for a rehearsal, and the names of the classes; the private file is not opened."""
    if data.name is not None:
        if file is not None:
            raise InputError("--labelled is for your own files; a built-in data set brings its own public labels.")
        found = load(data.name, **data.options)
        if found.public_y is None:
            raise InputError(f"The data set {data.name} has no labels for its public rows to rehearse with.")
        return found.public.X, found.public_y, found.classes
    if file is None:
        raise InputError("A rehearsal needs labelled public rows: name their file with --labelled.")
    assert data.classes is not None
    rows = read_private(file, classes=tuple(data.classes), label=data.label, **_reading(data))
    return rows.X, rows.y, tuple(data.classes)


def public_task_of(data: PublicDataConfig, *, classes: tuple[str, ...]) -> Task:
    """The public side alone, for a service's classes."""
    if data.name is not None:
        found = load(data.name, **data.options)
        if found.classes != classes:
            raise InputError(f"The classes of {data.name} are not those of the service, which has {len(classes)}.")
        return replace(found, private=None, public_y=None)
    return _own_task(data, private=None, classes=classes, ignore=(data.label,))


def _own_task(
    data: DataConfig | PublicDataConfig,
    *,
    private: PrivateData | None,
    classes: tuple[str, ...],
    ignore: tuple[str | None, ...],
) -> Task:
    assert data.public is not None
    common = _reading(data)
    public = read_public(data.public, ignore=[name for name in ignore if name is not None], **common)
    if data.test is None:
        return Task(private=private, public=public, classes=classes)
    test = read_private(data.test, classes=classes, label=data.label, **common)
    return Task(private=private, public=public, classes=classes, test_X=test.X, test_y=test.y)


def _reading(data: DataConfig | PublicDataConfig) -> dict[str, Any]:
    return {"columns": data.columns, "categories": data.categories, "image_shape": data.image_shape}


def planned(config: RunConfig, *, n_classes: int, n_public: int) -> PrivacyConfig:
    """Mechanism and numbers of queries and answers for a budget, from public inputs only."""
    privacy, n_teachers = config.privacy, config.teachers.number
    assert privacy.epsilon is not None
    kept = privacy.model_dump(include={"delta", "ask"})
    if privacy.mechanism == "gnmax":
        assert privacy.queries is not None
        noise = least_noise(n_queries=privacy.queries, epsilon=privacy.epsilon, delta=privacy.delta)
        return PrivacyConfig(**kept, mechanism="gnmax", sigma=noise.sigma, queries=privacy.queries)
    assert privacy.consensus is not None
    found = plan(
        standin=synthetic_votes(n_queries=400, n_classes=n_classes, n_teachers=n_teachers, consensus=privacy.consensus),
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        max_queries=min(n_public, privacy.queries or n_public),
        **privacy.model_dump(include={"min_accuracy"}, exclude_none=True),
    )
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
    raise InputError("Expected a mechanism, or a run directory where it is planned, got none.")


def budget_of(privacy: PrivacyConfig, *, relation: Relation = Relation.ONE_TEACHER) -> CountBudget:
    assert privacy.queries is not None
    answers = privacy.answers if privacy.mechanism == "confident" else None
    return CountBudget(
        mechanism_of(privacy), n_queries=privacy.queries, n_answers=answers, delta=privacy.delta, relation=relation
    )


def teacher_of(settings: TeachersConfig) -> Teacher:
    chunk = {} if settings.chunk is None else {"chunk": settings.chunk}
    try:
        match settings.kind:
            case "conv":
                default = {"chunk": 250 if _gpu(settings.device) else 10}
                return ConvTeacher(recipe=ConvRecipe(**settings.options), device=settings.device, **(default | chunk))
            case "centroid":
                from terrine.teachers.centroids import CentroidTeacher

                return CentroidTeacher(**settings.options, **chunk)
            case _:
                name = settings.estimator or _ESTIMATORS[settings.kind]
                return SklearnTeacher(estimator=estimator_of(name, settings.options), **chunk)
    except TypeError as error:
        raise InputError(f"Expected other teachers.options, got: {error}.") from None


def estimator_of(name: str, options: dict[str, Any]) -> Any:
    """A scikit-learn estimator by its dotted name."""
    module, _, kind = name.rpartition(".")
    if not name.startswith("sklearn."):
        raise InputError(f"Expected an estimator of scikit-learn, as sklearn.svm.SVC, got {name!r}.")
    try:
        return getattr(importlib.import_module(module), kind)(**options)
    except (ImportError, AttributeError):
        raise InputError(f"Expected an estimator of scikit-learn, got {name!r}, which it does not have.") from None
    except TypeError as error:
        raise InputError(f"Expected options of {kind}, got: {error}.") from None


def student_of(settings: StudentConfig, *, features: Callable[[], Features | Edges] | None = None) -> Any:
    """A student's settings; one on features asks for them."""
    from terrine import students

    balanced: dict[str, Any] = {"balanced": True} if settings.balanced else {}
    try:
        match settings.kind:
            case "vat":
                made = students.VATStudent.small if settings.preset == "small" else students.VATStudent
                return made(**settings.options, **balanced)
            case "gan":
                return students.GANStudent(**settings.options, **balanced)
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
        raise InputError(f"Expected other student.options, got: {error}.") from None


def check_options(config: Settings) -> None:
    """Refuse options of teachers and student that they do not have: before anything is written or spent."""
    if isinstance(config, RunConfig):
        teacher_of(config.teachers)
    check_student(config.student)


def check_student(settings: StudentConfig) -> None:
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
    if _gpu(settings.device) and settings.kind == "conv":
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
