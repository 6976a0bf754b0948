"""PATEClassifier: private learning, by PATE or by a probe, behind scikit-learn's fit and predict."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from terrine import _validate
from terrine.accounting.curves import Guarantee
from terrine.datasets.encoding import encoder_for
from terrine.datasets.labels import known_indices, named_classes
from terrine.errors import InputError, SpendingWarning
from terrine.estimator.by_probe import advice_on, charged_training, learn_by_probe, plan_by_probe
from terrine.estimator.by_teachers import learn_by_teachers, plan_by_teachers
from terrine.estimator.checking import checked
from terrine.estimator.columns import named_by, refuse_extra, taken, without
from terrine.estimator.learners import nan_is_taken, student_of, table_estimator, teacher_of
from terrine.estimator.people import People, check_route, people_of, refuse_row_added
from terrine.estimator.plan import FitPlan, charged_already, warn_of_measured
from terrine.estimator.rows import both_sides, new_rows, refuse_private
from terrine.estimator.seen import FeatureInput, Sides, features_of, sides_of, wanted
from terrine.executors import Executor
from terrine.mechanisms import Mechanism
from terrine.relations import Relation
from terrine.runs.fit_rounds import refuse_alone
from terrine.runs.rehearse_routes import rehearse_routes
from terrine.schema import Schema
from terrine.sensitive import Sensitive
from terrine.teachers.pooled import warn_of_pooled_fit
from terrine.which_route import RouteChoice, choose_route


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """What a plan and a fit begin with."""

    sides: Sides
    people: People
    names: tuple[str, ...]
    teacher: Any
    student: Any
    labels: NDArray[np.int64] | None
    seed: int
    by_probe: bool


class PATEClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Learn from private rows; predict with a student that saw public rows and noisy votes only.

    Args:
        teacher: a scikit-learn classifier (or Pipeline, which then learns inside one share), or one of terrine's
            teachers (default: a random forest).
        student: a scikit-learn classifier or one of terrine's students (default: a random forest).
        schema: what the columns of tables are, public: a Schema, or the path of a schema.toml. None: a draft from
            X_public alone, where teacher and student could not take its columns as they are (words, dates, categories,
            blanks), and neither is a Pipeline. False: rows as they are, always. See docs/schema.md.
        classes: all labels there can be, public: reading them off private labels would leak (default: the schema's).
        n_teachers: how many teachers the private rows are dealt to.
        delta: of the guarantee; below one over the number of private records.
        mechanism: what answers, with ``n_queries`` and ``n_answers``; or None, for a plan from ``epsilon`` and the
            share of teachers assumed to agree, ``consensus``.
        rounds: ask in rounds, the later ones with the student of those before: a number, planned from ``epsilon`` and
            ``consensus``; or a list of (mechanism, n_queries, n_answers), the first one not InteractiveGNMax.
        n_queries: how many public rows are asked about (default: all, or as many as the plan gives).
        n_answers: how many are answered at most (default: all that pass the check).
        features: what teachers, probe and student see of a row, a public function of each: "auto", made from the
            public rows by `fit_auto`; fitted features; or an encoder, as `as_features` takes it: a function, a
            scikit-learn transformer (one that is not fitted is fitted on the public rows), a net, a path. Never one
            that saw private rows. None: the rows as they are, or by the routes "probe" and "auto" as "auto".
        route: "teachers" (the default, None, says the same) answer questions and are charged by worst case. "tested"
            publishes all answers together if a private test says that they cost no more than ``target``, and raises
            TestFailedError if it does not; epsilon and delta are spent either way. "probe": no teachers, but a linear
            model on features, trained with noise; it labels any number of rows at no further cost. "auto": teachers or
            probe, by public numbers: see docs/which_route.md.
        target: the tested route's epsilon, beside ``mechanism``; with ``epsilon`` it is planned, to give as many right
            answers as the worst case would at that epsilon.
        method: "hashed" or "balanced" shares.
        min_units: fewer people than this in a share are refused (default: 1 where their number is public, else 0, since
            one person could decide whether there is a refusal).
        planned_units: about how many people (or rows) there are, to judge the plan by: a round number that does not
            come from counting your rows, and so not len(df), but from what anyone may know (an annual report). Where
            the neighboring relation makes the true number public (no ``unit``, or balanced shares), that is used
            instead. A probe divides by it, and needs one.
        neighbors: "unit_added": a unit (of rows without ``unit``, by a probe, a row) is added or removed. A probe then
            pays half of what a replaced unit costs; teachers need ``unit`` and hashed shares, and route="auto" is
            refused where it takes teachers without them. None: as the shares have
            it: any change of one unit (hashed), or one replaced (balanced, or rows without units).
        measure: by a probe, one more of its noisy sums tells how often it is right about the private rows: see
            ``measured_``. Epsilon stays what it is, and the noise grows by a few percent.
        accept_large_delta: go on where delta is not below one over the number of units.
        ledger: a file or URL that keeps the budget: all fits with it share one budget. None: the environment's
            TERRINE_LEDGER, if it is set; else every fit has a budget, and a guarantee, of its own. A file's own folder
            also gets, by a probe, ``training-ID/`` (what each step released, public) and ``training-ID.private.sha256``
            (by which changed private rows are noticed: secret, mode 0600). Keep them beside the ledger: a fit goes on,
            or gives the same student again, by all three.
        executor: Serial() (the default), Processes() or Ray().
        random_state: public seed of teachers, student and choice of queries. The noise and the partition are never
            seeded.

    Attributes:
        classes_ (NDArray): as given.
        guarantee_: what may be published: epsilon, delta, and between which neighbors. There is none (InputError)
            where the ledger ever answered with seeded noise: such answers are not private.
        answers_ (Answers | None): (n_queries,) what the teachers released; of rounds, what they say together of each
            row that was asked. None by a probe.
        probe_ (Probe | None): the trained probe; None by teachers.
        measured_ (Measured | None): how often the probe is right about the private rows, with noise, covered by the
            guarantee; None by teachers, and where the sum was lost.
        route_ (RouteChoice | None): with route="auto" the RouteChoice: which route was taken and why; else None.
        features_ (AnyFeatures | None): what is seen of rows; None: the rows themselves.
        rounds_ (tuple): the Answers of each round; empty without ``rounds``.
        student_ (FittedStudent): the fitted student.
        schema_ (Schema | None): what the columns of the tables are; None where rows were taken as they are.
        encoder_ (Encoder | None): what made numbers of the tables, by the schema.

    Rows may be arrays of numbers, scipy sparse matrices, lists of texts, or tables of pandas, polars or pyarrow, whose
    columns are matched by name in any order. Numbers without blanks are taken as they are. Text, categories, dates and
    missing numbers become numbers by a public schema; no private cell is refused then, and a row whose label is missing
    or unknown keeps its place without one. Or they want a teacher and a student that take them, such as Pipelines: a
    teacher's encoders and vocabularies are then fitted inside one share.

    Every fit on the same people spends its epsilon again; epsilons of fits add up.

    Examples:
        >>> spam = PATEClassifier(classes=["ham", "spam"], n_teachers=100, delta=1e-5, epsilon=2.0)
    """

    def __init__(
        self,
        teacher: Any = None,
        student: Any = None,
        *,
        schema: Schema | str | Path | Literal[False] | None = None,
        features: Any = None,
        classes: Sequence[Any] | None = None,
        n_teachers: int = 100,
        delta: float | None = None,
        mechanism: Mechanism | None = None,
        rounds: int | Sequence[tuple[Mechanism, int, int]] | None = None,
        n_queries: int | None = None,
        n_answers: int | None = None,
        route: Literal["teachers", "tested", "probe", "auto"] | None = None,
        target: float | None = None,
        epsilon: float | None = None,
        consensus: float = 0.8,
        method: Literal["hashed", "balanced"] = "hashed",
        min_units: int | None = None,
        planned_units: int | None = None,
        neighbors: Literal["unit_added"] | None = None,
        measure: bool = True,
        accept_large_delta: bool = False,
        ledger: str | Path | None = None,
        executor: Executor | None = None,
        random_state: int = 0,
    ) -> None:
        self.teacher = teacher
        self.student = student
        self.schema = schema
        self.features = features
        self.classes = classes
        self.n_teachers = n_teachers
        self.delta = delta
        self.mechanism = mechanism
        self.rounds = rounds
        self.n_queries = n_queries
        self.n_answers = n_answers
        self.route = route
        self.target = target
        self.epsilon = epsilon
        self.consensus = consensus
        self.method = method
        self.min_units = min_units
        self.planned_units = planned_units
        self.neighbors = neighbors
        self.measure = measure
        self.accept_large_delta = accept_large_delta
        self.ledger = ledger
        self.executor = executor
        self.random_state = random_state

    def __sklearn_clone__(self) -> Self:
        copy: Self = super().__sklearn_clone__()
        copy._is_clone = True
        return copy

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if wanted(self) is not None:
            return tags
        learners = [teacher_of(self.teacher, on_features=False), student_of(self.student)]
        estimators = [getattr(one, "estimator", None) for one in learners]
        tags.input_tags.sparse = all(one is not None and get_tags(one).input_tags.sparse for one in estimators)
        tags.input_tags.allow_nan = all(map(nan_is_taken, learners))
        return tags

    def fit(
        self,
        X: Any,
        y: ArrayLike | str,
        X_public: Any = None,
        unit: ArrayLike | str | None = None,
        groups: ArrayLike | str | None = None,
        y_public: ArrayLike | None = None,
    ) -> Self:
        """Teach, ask, and train the student.

        Args:
            X: private rows. Nothing may have been fitted to them before (no pooled scaling): see docs/pitfalls.md.
            y: their labels, among ``classes``; or the name of the column of X that has them. A row with another
                label, or with a number that is not finite where the learners take none, keeps its place and is not
                learned from: nothing is said of it.
            X_public: unlabeled rows of the same kind that anyone may see.
            unit: whom each row belongs to, or the name of a column of X; without it every row is its own unit.
            groups: the same, as scikit-learn calls it.
            y_public: labels of public rows, None where a row has none: with route="auto" both routes are rehearsed on
                them, and the better one is taken. Nobody's privacy is in them.
        """
        if getattr(self, "_is_clone", False):
            warnings.warn(
                "A copy of a PATEClassifier is being fitted, as hyper-parameter searches and cross-validation do: "
                "every fit spends its epsilon again, and the guarantee of the whole search is their sum.",
                SpendingWarning,
                stacklevel=2,
            )
        before: Any = vars(self).get("_published")
        if before is not None and before.ledger is None:
            warnings.warn(
                "This PATEClassifier was fitted before, on a budget that no ledger keeps: where the private rows are "
                "of the same people, the epsilons and deltas of both fits add up. Fits that name one file as ledger "
                "share one budget.",
                SpendingWarning,
                stacklevel=2,
            )
        ready = self._ready(X, y, X_public, unit, groups, y_public)
        common: dict[str, Any] = {"names": ready.names, "seed": ready.seed}
        if ready.by_probe:
            own = None if self.student is None else ready.student
            found = learn_by_probe(self, ready.sides, ready.people, student=own, labels=ready.labels, **common)
        else:
            common |= {"teacher": ready.teacher, "student": ready.student}
            found = learn_by_teachers(self, ready.sides, ready.people, **common)
        self.student_ = found.student if self.encoder_ is None else replace(found.student, extra=self.encoder_.files())
        self.answers_, self.rounds_, self.probe_ = found.answers, found.rounds, found.probe
        self._guarantee, self._published = found.guarantee, found.published
        self.measured_ = getattr(found.published, "measured", None)
        warn_of_measured(self.measured_, ready.names)
        return self

    def check(
        self,
        X: Any,
        y: ArrayLike | str,
        X_public: Any = None,
        unit: ArrayLike | str | None = None,
        groups: ArrayLike | str | None = None,
        y_public: ArrayLike | None = None,
    ) -> Sensitive[str]:
        """What is odd in the private rows, as `terrine check` tells it; nothing is taught, spent or kept.

        It takes what `fit` takes. Labels that are not in ``classes``, classes that no row has, rows of nobody and, of
        tables with a schema, cells that it does not know: no later message says of them, since others could see it.
        The text is a secret, as the rows are: ``print(model.check(...).reveal())`` shows it, for your eyes only.
        """
        model = copy(self)  # nothing of a check stays
        label = y if isinstance(y, str) else getattr(y, "name", None)
        X, y, X_public, unit, groups = model._by_name(X, y, X_public, unit, groups)
        encoder = None
        if X_public is not None:
            refuse_extra(X, X_public, schema=self.schema)
            encoder = encoder_for(self.schema, X, X_public, learners=[table_estimator(one) for one in self._learners()])
        model.schema_ = None if encoder is None else encoder.schema
        _, classes = model._classes()
        names = (label if isinstance(label, str) else None, model._unit_column)
        whose = groups if unit is None else unit
        return checked(X, y, whose, classes=classes, schema=model.schema_, names=names)

    def plan(
        self,
        X: Any,
        y: ArrayLike | str,
        X_public: Any = None,
        unit: ArrayLike | str | None = None,
        groups: ArrayLike | str | None = None,
        y_public: ArrayLike | None = None,
    ) -> FitPlan:
        """What `fit` with the same arguments would take, promise and probably give; it teaches and spends nothing.

        Print it; `route`, `guarantee`, `advice` and `choice` (of route="auto") are there for programs. What `fit`
        would refuse is refused here too, and what the ledger has charged already is said. Of the private rows only
        what is public anyway has a say; but units are looked at one by one, and a missing one is refused.
        """
        model = copy(self)  # nothing of a plan stays
        ready = model._ready(X, y, X_public, unit, groups, y_public)
        sides, people, n_classes = ready.sides, ready.people, len(ready.names)
        if ready.by_probe:
            advice = advice_on(model, people)
            advice.check()
            settings, budget = plan_by_probe(model, sides, people, n_classes=n_classes)
            charged = charged_training(model, sides, settings, budget)
            return FitPlan(
                route="probe", guarantee=budget.guarantee(), advice=advice, choice=model.route_, charged=charged
            )
        planned = plan_by_teachers(model, people, n_classes=n_classes, n_public=len(sides.public))
        return FitPlan(
            route="tested" if model.route == "tested" else "teachers",
            guarantee=planned.budget.guarantee(),
            advice=planned.advice,
            choice=model.route_,
            charged=charged_already(self.ledger, planned.budget),
        )

    def _ready(self, X: Any, y: Any, X_public: Any, unit: Any, groups: Any, y_public: Any) -> _Ready:
        """All that comes before a plan: settings and rows checked, features made, the route chosen."""
        given = X, X_public
        label, whose = (one if isinstance(one, str) else None for one in (y, groups if unit is None else unit))
        X, y, X_public, unit, groups = self._by_name(X, y, X_public, unit, groups)
        check_route(self, unit=groups if unit is None else unit)
        if self.rounds is None:
            refuse_alone(self.mechanism)
        warn_of_pooled_fit(self)
        if unit is not None and groups is not None:
            raise InputError("Give unit or groups, which are two names of the same thing, and not both.")
        if X_public is None:
            raise InputError("X_public is missing: give unlabeled rows that anyone may see.")
        if self.delta is None:
            raise InputError("delta is missing: give a number below 1 / number of people.")
        seed = _validate.integer("random_state", self.random_state, at_least=0)
        refuse_private(*given)
        teacher, learners = teacher_of(self.teacher, on_features=wanted(self) is not None), self._learners()
        refuse_extra(X, X_public, schema=self.schema)
        encoder = encoder_for(self.schema, X, X_public, learners=[table_estimator(one) for one in learners])
        self.schema_ = None if encoder is None else encoder.schema
        names, self.classes_ = self._classes()
        if encoder is not None:  # what it is saved with knows the label and the unit, so that new tables may have them
            self.schema_ = encoder.schema.with_roles(label=label, classes=names, unit=whose)
            encoder = replace(encoder, schema=self.schema_)
        self.encoder_ = encoder
        if self.schema_ is not None and unit is None and groups is None:
            self._unit_column = self.schema_.unit
        data, public = both_sides(self, X, y, X_public, groups if unit is None else unit, learners=learners)
        people = people_of(self, data)
        labels = self._public_labels(y_public, n_public=len(public))
        self.features_ = features_of(self, public, people, labels=labels)
        sides = sides_of(self.features_, data, public)
        student = student_of(self.student, self.features_)
        self.route_ = self._chosen(sides, people, labels, names=names, teacher=teacher, student=student, seed=seed)
        return _Ready(
            sides=sides,
            people=people,
            names=names,
            teacher=teacher,
            student=student,
            labels=labels,
            seed=seed,
            by_probe=self.route == "probe" or (self.route_ is not None and self.route_.route == "probe"),
        )

    def save(self, folder: str | Path) -> None:
        """Write the student for its receiver: with the guarantee on its card and, of tables, schema and encoder.

        `terrine predict FOLDER new.csv --out p.csv` and `terrine.load_student(folder)` apply it to new rows.
        """
        check_is_fitted(self, "student_")
        self.student_.save(folder, card={**self._published.to_json(), "unit_column": self._unit_column})

    @property
    def guarantee_(self) -> Guarantee:
        check_is_fitted(self, "student_")
        if self._guarantee is None:
            raise InputError(
                "There is no guarantee: the ledger has answered with seeded noise, which is for experiments. Begin a "
                "new ledger."
            )
        return self._guarantee

    def predict(self, X: Any, *, accept_unreadable: bool = False) -> NDArray[Any]:
        """(n_rows,) labels, among ``classes``.

        Args:
            X: new rows. Of a table with a schema, cells that cannot be used are warned of (`UnreadWarning`).
            accept_unreadable: go on where hardly a cell of a column can be used.
        """
        best = np.argmax(self.predict_proba(X, accept_unreadable=accept_unreadable), axis=1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def predict_proba(self, X: Any, *, accept_unreadable: bool = False) -> NDArray[np.float64]:
        """(n_rows, n_classes), in the order of ``classes_``; a table's columns are matched by name. As `predict`."""
        check_is_fitted(self, "student_")
        rows = new_rows(self, without(X, self._apart), accept_unreadable=accept_unreadable)
        proba: NDArray[np.float64] = self.student_.predict_proba(rows)
        return proba

    def _learners(self) -> list[Any]:
        """What is given the rows as they are: features, or teacher and student."""
        if wanted(self) is not None:
            return [FeatureInput()]
        return [teacher_of(self.teacher, on_features=False), student_of(self.student)]

    def _by_name(self, X: Any, y: Any, X_public: Any, *whose: Any) -> tuple[Any, ...]:
        """Labels and units by name are taken out of the tables: of private, public and new rows alike."""
        self._apart = tuple(one for one in (y, *whose) if isinstance(one, str))
        self._unit_column = named_by(whose)
        y, *whose_values = (taken(X, one, role="X") if isinstance(one, str) else one for one in (y, *whose))
        return (without(X, self._apart), y, without(X_public, self._apart), *whose_values)

    def _classes(self) -> tuple[tuple[str, ...], NDArray[Any]]:
        listed = () if self.schema_ is None else self.schema_.classes
        if self.classes is None and not listed:
            raise InputError("classes is missing: give a list of all labels there can be.")
        names, values = named_classes(listed if self.classes is None else self.classes)
        if listed and names != listed:
            raise InputError("classes and the schema's classes differ: give them in one of the two.")
        return names, values

    def _public_labels(self, y_public: Any, *, n_public: int) -> NDArray[np.int64] | None:
        """(n_public,) class indices of public rows, -1 where there is no label."""
        if y_public is None:
            return None
        if self.route != "auto" and wanted(self) != "auto" and self.route != "probe":
            raise InputError(
                'y_public has no use here: it helps route="auto" to choose, and features="auto". Leave it out.'
            )
        found = known_indices(y_public, self.classes_)
        if len(found) != n_public:
            raise InputError("y_public must have one label for each row of X_public (None where a row has none).")
        return found if (found >= 0).any() else None

    def _chosen(
        self,
        sides: Sides,
        people: People,
        labels: NDArray[np.int64] | None,
        *,
        names: tuple[str, ...],
        teacher: Any,
        student: Any,
        seed: int,
    ) -> RouteChoice | None:
        """Teachers or probe, from public numbers and labeled public rows; None where the route was given."""
        if self.route != "auto":
            return None
        plan: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "relation": people.relation}
        assert people.units is not None  # `people_of` refuses a fit without
        number = people.units.number
        rehearsed = None
        if labels is not None:
            rehearsed = rehearse_routes(
                sides.public.X,
                labels,
                seen=sides.seen_public.X,
                classes=names,
                teacher=teacher,
                student=student,
                n_teachers=self.n_teachers,
                planned_units=number,
                seed=seed,
                executor=self.executor,
                **plan,
            )
        found = choose_route(
            planned_units=number,
            n_classes=len(names),
            n_features=sides.seen_public.X.shape[1],
            n_public=len(sides.public),
            n_teachers=self.n_teachers,
            rehearsed=rehearsed,
            **plan,
        )
        if found.route == "teachers" and people.relation == Relation.ROW_ADDED:
            refuse_row_added()
        return found
