"""PATEClassifier: the whole of PATE behind scikit-learn's fit and predict."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from terrine import _validate
from terrine.accounting.advice import Units, advise
from terrine.accounting.curves import Guarantee
from terrine.accounting.planning import plan
from terrine.budgets import Budget, has_check
from terrine.datasets import PrivateData, PublicData
from terrine.datasets.encoding import encoded_new, encoded_private, encoder_for
from terrine.datasets.given import any_rows, array_rows, private_rows
from terrine.datasets.labels import indices_of, named_classes
from terrine.datasets.rows import RowKind, Rows, as_rows, kind_of, matched, numbers, takes_nan, takes_tables
from terrine.datasets.rows import with_nan as where_nan
from terrine.datasets.synthetic import synthetic_votes
from terrine.datasets.tables import Frame, is_frame
from terrine.errors import AdviceWarning, InputError, SpendingWarning
from terrine.executors import Executor
from terrine.labeller import KeptVotes, Labeller
from terrine.labeller.voters import repeats
from terrine.ledger import Ledger, ledger_place
from terrine.mechanisms import ABSTAIN, Answers, Mechanism
from terrine.partitioning import new_key, partition, public_units
from terrine.published import LedgerHead, PublishedGuarantee
from terrine.runs.fit_rounds import ask_planned, refuse_alone, wanted_rounds
from terrine.runs.plan_rounds import PlannedRound, filter_of
from terrine.schema import Schema, read_table
from terrine.students import SupervisedStudent, fit_student, judged, try_student, warn_of
from terrine.teachers import SklearnTeacher, poll_teachers
from terrine.teachers.pooled import warn_of_pooled_fit
from terrine.tested_route import STANDINS, Route, planned_route
from terrine.votes import Votes


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
        route: "tested" publishes all answers together if a private test says that they cost no more than ``target``,
            and raises TestFailedError if it does not; epsilon and delta are spent either way. None: by worst case.
        target: the tested route's epsilon, beside ``mechanism``; with ``epsilon`` it is planned, to give as many right
            answers as the worst case would at that epsilon.
        method: "hashed" or "balanced" shares.
        min_units: fewer people than this in a share are refused.
        planned_units: a public guess of how many people (or rows) there are, to judge the plan by. Where the
            neighboring relation makes the true number public (no ``unit``, or balanced shares), that is used instead.
        accept_large_delta: go on where delta is not below one over the number of units.
        ledger: a file or URL that keeps the budget: all fits with it share one budget. None: the environment's
            TERRINE_LEDGER, if it is set; else every fit has a budget, and a guarantee, of its own.
        executor: Serial() (the default), Processes() or Ray().
        random_state: public seed of teachers, student and choice of queries. The noise and the partition are never
            seeded.

    Attributes:
        classes_: as given.
        guarantee_: what may be published: epsilon, delta, and between which neighbors. There is none (InputError)
            where the ledger ever answered with seeded noise: such answers are not private.
        answers_: (n_queries,) what the teachers released; of rounds, what they say together of each row that was asked.
        rounds_: what each round released; empty without ``rounds``.
        student_: the fitted student.
        schema_, encoder_: what made numbers of the tables; None where rows were taken as they are.

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
        classes: Sequence[Any] | None = None,
        n_teachers: int = 100,
        delta: float | None = None,
        mechanism: Mechanism | None = None,
        rounds: int | Sequence[tuple[Mechanism, int, int]] | None = None,
        n_queries: int | None = None,
        n_answers: int | None = None,
        route: Literal["tested"] | None = None,
        target: float | None = None,
        epsilon: float | None = None,
        consensus: float = 0.8,
        method: Literal["hashed", "balanced"] = "hashed",
        min_units: int = 1,
        planned_units: int | None = None,
        accept_large_delta: bool = False,
        ledger: str | Path | None = None,
        executor: Executor | None = None,
        random_state: int = 0,
    ) -> None:
        self.teacher = teacher
        self.student = student
        self.schema = schema
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
        learners = [self._teacher(), self._student()]
        estimators = [getattr(one, "estimator", None) for one in learners]
        tags.input_tags.sparse = all(one is not None and get_tags(one).input_tags.sparse for one in estimators)
        tags.input_tags.allow_nan = all(map(_takes_nan, learners))
        return tags

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        X_public: Any = None,
        unit: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Teach, ask, and train the student.

        Args:
            X: private rows. Nothing may have been fitted to them before (no pooled scaling): see docs/pitfalls.md.
            y: their labels, each among ``classes``.
            X_public: unlabeled rows of the same kind that anyone may see.
            unit: whom each row belongs to; without it every row is its own unit.
            groups: the same, as scikit-learn calls it.
        """
        if self.rounds is None:
            refuse_alone(self.mechanism)
        warn_of_pooled_fit(self)
        if getattr(self, "_is_clone", False):
            warnings.warn(
                "A copy of a PATEClassifier is being fitted, as hyper-parameter searches and cross-validation do: "
                "every fit spends its epsilon again, and the guarantee of the whole search is their sum.",
                SpendingWarning,
                stacklevel=2,
            )
        if unit is not None and groups is not None:
            raise InputError("Give unit or groups, which are two names of the same thing, and not both.")
        if X_public is None:
            raise InputError("X_public is missing: give unlabeled rows that anyone may see.")
        if self.delta is None:
            raise InputError("delta is missing: give a number below 1 / number of people.")
        seed = _validate.integer("random_state", self.random_state, at_least=0)
        learners = [_table_estimator(one) for one in (self._teacher(), self._student())]
        self.encoder_ = encoder_for(self.schema, X, X_public, learners=learners)
        self.schema_ = None if self.encoder_ is None else self.encoder_.schema
        names, self.classes_ = self._classes()
        data, public = self._data(X, y, X_public, groups if unit is None else unit)
        rounds = self._rounds(len(names), len(public))
        route = _first(rounds) if rounds else self._planned(len(names), len(public))
        mechanism, n_queries, n_answers = route.mechanism, route.n_queries, route.n_answers
        self._advise(route, data=data, n_classes=len(names), n_public=len(public))
        everything = PublicData(public, nan_ok=True)
        try_student(self._student(), everything, classes=names, n_answers=n_answers or n_queries, keep=False)
        shares = partition(
            data, n_teachers=self.n_teachers, method=self.method, key=new_key(), min_units=self.min_units
        )
        sizes = {"n_teachers": self.n_teachers, "n_classes": len(names)}
        assumed = self.consensus if self.mechanism is None else None  # with a mechanism nobody chose a consensus
        budget: Budget
        order = np.random.default_rng([seed, 1]).permutation(len(public))
        if rounds:
            budget = replace(filter_of(rounds, delta=self.delta), relation=shares.relation)
            asked = order[: sum(one.n_queries for one in rounds)]
        else:
            budget = route.budget(delta=self.delta, **sizes, relation=shares.relation, consensus=assumed)
            asked = np.sort(order[:n_queries])
        questions = PublicData(public[asked], nan_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix="terrine-") as folder,  # for a ledger that is nowhere else
            Ledger(place := ledger_place(self.ledger, folder), budget=budget) as ledger,
        ):
            ledger.secrets = ledger.secrets or Path(folder)
            votes = poll_teachers(
                data, shares, self._teacher(), questions, classes=names, seed=seed, executor=self.executor
            )
            voters, request = KeptVotes(questions, votes, classes=names), f"fit {new_key().hex()[:16]}"
            if rounds:
                found = ask_planned(
                    rounds,
                    public,
                    asked,
                    voters=voters,
                    ledger=ledger,
                    request_id=request,
                    learn=lambda known: fit_student(
                        self._student(), everything, known.labels, classes=names, seed=seed
                    ),
                )
                known = found.known
                answers = replace(known, labels=known.labels[asked], outcomes=known.outcomes[asked])
            else:
                answers = Labeller(voters, mechanism, ledger).label(questions, request_id=request)
            paid = ledger.summary()
        self.rounds_ = found.given if rounds else ()
        lessons = np.full(len(public), ABSTAIN, dtype=np.int64)
        lessons[asked] = answers.labels
        student = fit_student(self._student(), everything, lessons, classes=names, seed=seed)
        student = judged(student, self._student(), everything, lessons, seed=seed)
        warn_of(student, everything, lessons)
        self.student_ = student if self.encoder_ is None else replace(student, extra=self.encoder_.files())
        self.answers_: Answers = answers
        shown, secure = paid.budget.guarantee(), answers.secure and paid.secure
        self._guarantee = shown if secure else None
        outside = Path(folder) not in Path(place).parents
        facts: dict[str, Any] = {
            "n_teachers": self.n_teachers,
            "ledger": LedgerHead(id=paid.ledger_id, head=paid.head) if outside else None,
        }
        if rounds:
            self._published = found.published(shown, public, secure=secure, **facts)
            return self
        self._published = PublishedGuarantee.of(
            shown,
            replace(answers, secure=secure),
            fresh=~repeats(questions.X),
            queries_at_most=n_queries,
            answers_at_most=budget.limit.answers,
            test=paid.test,
            **facts,
        )
        return self

    def save(self, folder: str | Path) -> None:
        """Write the student for its receiver: with the guarantee on its card and, of tables, schema and encoder.

        `terrine predict FOLDER new.csv --out p.csv` and `terrine.load_student(folder)` apply it to new rows.
        """
        check_is_fitted(self, "student_")
        self.student_.save(folder, card=self._published.to_json())

    @property
    def guarantee_(self) -> Guarantee:
        check_is_fitted(self, "student_")
        if self._guarantee is None:
            raise InputError(
                "There is no guarantee: the ledger has answered with seeded noise, which is for experiments. Begin a "
                "new ledger."
            )
        return self._guarantee

    def predict(self, X: Any) -> NDArray[Any]:
        """(n_rows,) labels, among ``classes``."""
        best = np.argmax(self.predict_proba(X), axis=1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n_rows, n_classes), in the order of ``classes_``; a table's columns are matched by name."""
        check_is_fitted(self, "student_")
        proba: NDArray[np.float64] = self.student_.predict_proba(self._new_rows(X))
        return proba

    def _new_rows(self, X: Any) -> Any:
        if self.encoder_ is not None:
            return encoded_new(self.encoder_, X)
        kind = self._kind
        rows: Any
        if kind.columns and is_frame(X):
            rows = matched(as_rows("X", X), kind, name="X", like="the rows it was fitted on")
            if self._as_numbers:
                rows = numbers(rows, who=type(self).__name__)
        elif kind.kind != "array" and not self._as_numbers:
            rows = matched(as_rows("X", X), kind, name="X", like="the rows it was fitted on")
        else:
            _check_feature_names(self, X, reset=False)
            rows = array_rows("X", X, nan_ok=_takes_nan(self._student()))
            if rows.shape[1] != self.n_features_in_:
                raise InputError(
                    f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting "
                    f"{self.n_features_in_} features as input."
                )
        return rows

    def _classes(self) -> tuple[tuple[str, ...], NDArray[Any]]:
        listed = () if self.schema_ is None else self.schema_.classes
        if self.classes is None and not listed:
            raise InputError("classes is missing: give a list of all labels there can be.")
        names, values = named_classes(listed if self.classes is None else self.classes)
        if listed and names != listed:
            raise InputError("classes and the schema's classes differ: give them in one of the two.")
        return names, values

    def _data(self, X: Any, y: ArrayLike, X_public: Any, unit: Any) -> tuple[PrivateData, Rows]:
        """Private rows with their labels, and public rows, as teachers and student take them."""
        if self.encoder_ is not None:
            columns = list(self.encoder_.schema.columns)
            self.n_features_in_, self.feature_names_in_ = len(columns), np.array(columns, dtype=object)
            public = self.encoder_.transform(read_table(X_public), role="X_public")
            return encoded_private(self.encoder_, X, y, classes=self.classes_, unit=unit), public
        rows, found = self._prepared(X, X_public)
        labels = indices_of(y, self.classes_)
        if len(labels) != len(rows):
            raise InputError("y must have one label for each row of X, and has a different number.")
        return PrivateData(rows, labels, unit=unit, nan_ok=True), found

    def _prepared(self, X: Any, X_public: Any) -> tuple[Rows, Rows]:
        """Private and public rows as teachers and student take them: the one place where rows are made ready.

        A table of numbers alone becomes an array, its columns matched by name, if nobody asks for its names.
        """
        learners = [self._teacher(), self._student()]
        nan_ok = all(map(_takes_nan, learners))
        public: Rows
        rows = any_rows("X", X)
        self.__dict__.pop("feature_names_in_", None)
        self._as_numbers = False
        if rows is None:
            _check_feature_names(self, X, reset=True)
            rows, public = private_rows(X, nan_ok=nan_ok), array_rows("X_public", X_public, nan_ok=nan_ok)
            if public.shape[1:] != rows.shape[1:]:
                raise InputError(f"X_public must have the features of X, {rows.shape[1:]}, got {public.shape[1:]}.")
        else:
            public = matched(as_rows("X_public", X_public), kind_of(rows), name="X_public", like="X")
        self._kind: RowKind = kind_of(rows)
        self.n_features_in_ = int((*rows.shape, 1)[1])
        if isinstance(rows, Frame) and isinstance(public, Frame):
            self.feature_names_in_ = np.array(rows.names, dtype=object)
            for part in (rows, public):
                if not nan_ok and (where := where_nan(part)):
                    raise InputError(
                        f"Input X contains NaN: there are missing numbers in {where}, and the teacher or the student "
                        "takes none; use Pipelines with SimpleImputer, or schema=draft(read_table(X_public)). Nothing "
                        "was taught or spent."
                    )
            for one in learners:
                if not _takes_tables(one):
                    numbers(rows, who=type(getattr(one, "estimator", one)).__name__)  # refuses what is no number
            self._as_numbers = not any(_wants_names(one) for one in learners) and all(
                column.kind == "number" for column in rows.columns
            )
            if self._as_numbers:
                return numbers(rows, who=""), numbers(public, who="")
        return rows, public

    def _rounds(self, n_classes: int, n_public: int) -> tuple[PlannedRound, ...]:
        """The rounds, where there are several: from public inputs only."""
        if self.rounds is None:
            return ()
        if (self.mechanism, self.n_queries, self.n_answers) != (None, None, None):
            raise InputError("rounds stand in the place of mechanism, n_queries and n_answers: leave these out.")
        if (self.route, self.target) != (None, None):
            raise InputError("rounds are charged by worst case: leave out route and target.")
        return wanted_rounds(
            self.rounds,
            epsilon=self.epsilon,
            delta=self.delta or 0.0,
            standin=self._standin(n_classes),
            n_public=n_public,
        )

    def _planned(self, n_classes: int, n_public: int) -> Route:
        """What answers, how often it is asked and may answer, and the test if one decides: from public inputs only."""
        if self.route not in (None, "tested"):
            raise InputError(f'route must be "tested" or None, got {self.route!r}.')
        if (self.target is None) == (self.route == "tested" and self.mechanism is not None):
            raise InputError('target is the epsilon of route="tested" with a mechanism: give both, or neither.')
        if (self.mechanism is None) == (self.epsilon is None):
            given = "neither was" if self.mechanism is None else "both were"
            raise InputError(f"Give mechanism, or epsilon for a plan, and not both; {given} given.")
        most = n_public if self.n_queries is None else _validate.integer("n_queries", self.n_queries, at_least=1)
        if most > n_public:
            raise InputError(f"n_queries must be at most {n_public}, the rows of X_public, got {most}.")
        if self.mechanism is not None:
            answers = self.n_answers if has_check(self.mechanism) else None
            return Route(mechanism=self.mechanism, n_queries=most, n_answers=answers, target=self.target)
        if self.n_answers is not None:
            raise InputError("n_answers needs mechanism: with epsilon a plan chooses it. Leave it out.")
        standin = self._standin(n_classes, n_queries=400 if self.route is None else STANDINS)
        found = plan(standin=standin, epsilon=self.epsilon or 0.0, delta=self.delta or 0.0, max_queries=most)
        if self.route is not None:
            return planned_route(found, standin=standin, max_queries=most)
        return Route(mechanism=found.mechanism, n_queries=found.n_queries, n_answers=found.n_answers)

    def _standin(self, n_classes: int, *, n_queries: int = 400) -> Votes:
        """Public votes of the consensus that is assumed."""
        sizes = {"n_queries": n_queries, "n_classes": n_classes, "n_teachers": self.n_teachers}
        return synthetic_votes(**sizes, consensus=self.consensus)

    def _advise(self, route: Route, *, data: PrivateData, n_classes: int, n_public: int) -> None:
        """Refuse what cannot work and warn of what hardly will, from public numbers only."""
        known = public_units(data, method=self.method)
        number = known if known is not None else self.planned_units
        assumed = None if self.epsilon is None else self.consensus  # with a mechanism nobody chose a consensus
        found = advise(
            mechanism=route.mechanism,
            n_queries=route.n_queries,
            n_answers=route.n_answers or route.n_queries,
            delta=_validate.between("delta", self.delta, 0.0, 1.0),
            n_teachers=self.n_teachers,
            n_classes=n_classes,
            n_public=n_public,
            units=None if number is None else Units(number=number, public=known is not None),
            standin=None if assumed is None else self._standin(n_classes),
            consensus=assumed,
            accept_large_delta=self.accept_large_delta,
            target=route.target,
        )
        found.check()
        for one in found.warnings:
            warnings.warn(str(one), AdviceWarning, stacklevel=3)

    def _teacher(self) -> Any:
        from sklearn.ensemble import RandomForestClassifier

        teacher = RandomForestClassifier() if self.teacher is None else self.teacher
        return SklearnTeacher(estimator=teacher) if isinstance(teacher, BaseEstimator) else teacher

    def _student(self) -> Any:
        from sklearn.ensemble import RandomForestClassifier

        student = RandomForestClassifier() if self.student is None else self.student
        return SupervisedStudent(estimator=student) if isinstance(student, BaseEstimator) else student


def _takes_nan(learner: Any) -> bool:
    return hasattr(learner, "estimator") and takes_nan(learner.estimator)


def _takes_tables(learner: Any) -> bool:
    estimator = _table_estimator(learner)
    return estimator is not None and takes_tables(estimator)


def _table_estimator(learner: Any) -> Any:
    """The scikit-learn estimator that may be given a table; None where the learner takes arrays only."""
    return learner.estimator if isinstance(learner, SklearnTeacher | SupervisedStudent) else None


def _wants_names(learner: Any) -> bool:
    """Whether columns may be asked for by name: inside a Pipeline they may."""
    return _takes_tables(learner) and hasattr(learner.estimator, "get_params") and _has_pipeline(learner.estimator)


def _has_pipeline(estimator: Any) -> bool:
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline

    inside = (estimator, *estimator.get_params(deep=True).values())
    return any(isinstance(one, (Pipeline, ColumnTransformer)) for one in inside)


def _first(rounds: Sequence[PlannedRound]) -> Route:
    return Route(mechanism=rounds[0].mechanism, n_queries=rounds[0].n_queries, n_answers=rounds[0].n_answers)
