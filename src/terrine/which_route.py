"""Teachers or probe, at one epsilon, one delta and one neighbouring relation: chosen from public numbers alone.

`docs/which_route.md` says the rule in words, and where it is known to be wrong.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from terrine import _validate
from terrine._validate import JsonObject
from terrine.accounting.advice import ANSWERS_EACH
from terrine.errors import InputError, PlanError
from terrine.probe.settings import signal
from terrine.probe.sums import check_size
from terrine.relations import Relation
from terrine.training_budget import contributions_changed

RouteName = Literal["teachers", "probe"]
SCHEMA = "terrine.route/1"
# The rule's numbers, each by an argument in docs/which_route.md, and none by a data set
SIGNAL = 10.0  # of a class over the noise: below, a probe takes many rows of one class for another's
ROWS_A_FEATURE = 10.0  # of a teacher: its share then fixes a linear model nearly as well as all rows would
AGREE = 0.5  # of the teachers that the winner may be ahead by: an ordinary gap between the two largest counts
DEVIATIONS = 3.0  # of the noise, which that gap must be
SURE = 2.0  # standard errors that a rehearsal's difference must have, or the rule decides


@dataclass(frozen=True, kw_only=True)
class Check:
    """A number that a route needs to be large. Public.

    Attributes:
        what: in words.
    """

    what: str
    value: float
    needed: float

    @property
    def holds(self) -> bool:
        return self.value >= self.needed


@dataclass(frozen=True, kw_only=True)
class RouteOption:
    """One route, and what is expected of it. Public.

    Attributes:
        checks: all of them hold where the route is expected to do well.
        why_not: why it cannot be taken at all; else empty.
        accuracy: of its student on labeled public rows, by a rehearsal; None without one.
        error: the accuracy's standard error.
    """

    route: RouteName
    checks: tuple[Check, ...] = ()
    why_not: str = ""
    accuracy: float | None = None
    error: float | None = None

    @property
    def works(self) -> bool:
        return not self.why_not and all(one.holds for one in self.checks)


@dataclass(frozen=True, kw_only=True)
class RehearsedRoutes:
    """Both routes on labeled PUBLIC rows, fold by fold. Public, and not private: the noise was simulated.

    Attributes:
        teachers, probe: accuracy on each fold's rows held back; the same rows for both.
        n_labelled: rows that there were.
    """

    teachers: tuple[float, ...]
    probe: tuple[float, ...]
    n_labelled: int

    def __post_init__(self) -> None:
        if len(self.teachers) != len(self.probe) or len(self.probe) < 2:
            raise InputError("A rehearsal of routes has an accuracy of each route for each of at least two folds.")
        if not all(0 <= one <= 1 for one in (*self.teachers, *self.probe)):
            raise InputError("An accuracy is from 0 to 1.")

    @property
    def margin(self) -> float:
        """By how much the probe is right more often."""
        return _mean(self.probe) - _mean(self.teachers)

    @property
    def error(self) -> float:
        """Of the margin: its standard error over folds, and never below that of counting the labeled rows."""
        differences = [p - t for p, t in zip(self.probe, self.teachers, strict=True)]
        changed = max(abs(self.margin), 1 / self.n_labelled)  # at least as many rows are judged differently
        return max(_error(differences), math.sqrt(changed / self.n_labelled))

    @property
    def better(self) -> RouteName | None:
        """None where the difference is within the rehearsal's own noise."""
        if abs(self.margin) < SURE * self.error:
            return None
        return "probe" if self.margin > 0 else "teachers"

    def accuracy_of(self, route: RouteName) -> tuple[float, float]:
        """Mean over folds, and its standard error."""
        values = self.probe if route == "probe" else self.teachers
        return _mean(values), _error(values)


@dataclass(frozen=True, kw_only=True)
class RouteChoice:
    """The route that was chosen, and why; all of it public.

    Attributes:
        reason: one sentence.
        options: of both routes, the teachers first.
        by: "rule", or "rehearsal" where labeled public rows decided.
    """

    route: RouteName
    reason: str
    options: tuple[RouteOption, ...]
    by: Literal["rule", "rehearsal"]
    epsilon: float
    delta: float
    relation: Relation
    planned_units: int | None

    def option(self, route: RouteName) -> RouteOption:
        return next(one for one in self.options if one.route == route)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """A table: route, what it needs, what it has, accuracy in the rehearsal."""
        found = []
        for one in self.options:
            chosen = f"{one.route} (chosen)" if one.route == self.route else one.route
            accuracy = "" if one.accuracy is None else f"{one.accuracy:.1%} ± {one.error or 0.0:.1%}"
            if one.why_not:
                found.append((chosen, one.why_not, "no", accuracy))
            for place, check in enumerate(one.checks):
                needs, has = f"{check.what}: {_number(check.needed)}", _number(check.value)
                found.append((chosen if not place else "", needs, has, accuracy if not place else ""))
            if not one.why_not and not one.checks:
                found.append((chosen, "", "", accuracy))
        return found

    def to_json(self) -> JsonObject:
        """As plain values."""
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, value: object) -> RouteChoice:
        """A choice that `to_json` wrote."""
        if not isinstance(value, dict) or value.get("schema") != SCHEMA:
            raise InputError(f"This is no choice of a route of schema {SCHEMA}.")
        return _validate.from_json(cls, value)


def choose_route(
    *,
    epsilon: float,
    delta: float,
    relation: Relation,
    planned_units: int | None,
    n_classes: int,
    n_features: int,
    n_public: int,
    n_teachers: int,
    rehearsed: RehearsedRoutes | None = None,
) -> RouteChoice:
    """Teachers, charged by worst case, or the probe.

    Args:
        epsilon, delta: what the route may cost.
        relation: what neighbors differ in: one and the same for both routes.
        planned_units: a public number of people, or of rows where each is its own; never a private count. None: the
            teachers, which can do without it.
        n_features: of a row, as teachers and probe see it.
        n_public: public rows.
        n_teachers: as planned.
        rehearsed: both routes on labeled public rows; where their difference is beyond its noise, it decides.
    """
    relation = Relation(relation)
    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.between("delta", delta, 0.0, 1.0)
    n_classes = _validate.integer("n_classes", n_classes, at_least=2)
    sizes = {"n_features": n_features, "n_public": n_public, "n_teachers": n_teachers}
    sizes = {name: _validate.integer(name, size, at_least=1) for name, size in sizes.items()}
    teachers, probe = RouteOption(route="teachers"), RouteOption(route="probe")
    if planned_units is not None:
        planned_units = _validate.integer("planned_units", planned_units, at_least=1)
        given: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "planned_units": planned_units}
        given["n_classes"] = n_classes
        teachers = RouteOption(route="teachers", checks=_of_teachers(**given, **sizes))
        probe = _of_probe(relation, n_features=sizes["n_features"], **given)
    if rehearsed is not None:
        teachers, probe = (_with_accuracy(one, rehearsed) for one in (teachers, probe))
    route, reason, by = _decide(teachers, probe, rehearsed, planned_units)
    return RouteChoice(
        route=route,
        reason=reason,
        options=(teachers, probe),
        by=by,
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        planned_units=planned_units,
    )


def _of_teachers(
    *,
    epsilon: float,
    delta: float,
    planned_units: int,
    n_classes: int,
    n_features: int,
    n_public: int,
    n_teachers: int,
) -> tuple[Check, ...]:
    """What votes need: answers for every class and for the student's features, through their noise, by taught teachers.

    The noise is that of GNMax by Gaussian differential privacy: one moved vote moves the counts by √2 in length, by
    any relation, so that Q answers with noise of √(2Q)/mu have what epsilon and delta allow.
    """
    questions = min(max(ANSWERS_EACH * n_classes, n_features), n_public)
    mu = signal(epsilon=epsilon, delta=delta, planned_units=1)
    noise_of_gap = math.sqrt(2) * math.sqrt(2 * questions) / mu
    return (
        Check(what="public rows for each class, on average", value=n_public / n_classes, needed=float(ANSWERS_EACH)),
        Check(
            what=f"lead of the winner over the noise, with {questions:,} questions",
            value=AGREE * n_teachers / noise_of_gap,
            needed=DEVIATIONS,
        ),
        Check(
            what="units of a teacher for each feature",
            value=planned_units / n_teachers / n_features,
            needed=ROWS_A_FEATURE,
        ),
    )


def _of_probe(
    relation: Relation, *, epsilon: float, delta: float, planned_units: int, n_classes: int, n_features: int
) -> RouteOption:
    try:
        contributions_changed(relation)
        check_size(n_features=n_features, n_classes=n_classes)
        found = signal(epsilon=epsilon, delta=delta, planned_units=planned_units, relation=relation)
    except (InputError, PlanError) as error:
        return RouteOption(route="probe", why_not=str(error))
    check = Check(what="strength of all units over the noise", value=found, needed=SIGNAL * n_classes)
    return RouteOption(route="probe", checks=(check,))


def _with_accuracy(option: RouteOption, rehearsed: RehearsedRoutes) -> RouteOption:
    accuracy, error = rehearsed.accuracy_of(option.route)
    return RouteOption(route=option.route, checks=option.checks, why_not=option.why_not, accuracy=accuracy, error=error)


def _decide(
    teachers: RouteOption, probe: RouteOption, rehearsed: RehearsedRoutes | None, planned_units: int | None
) -> tuple[RouteName, str, Literal["rule", "rehearsal"]]:
    if planned_units is None:
        return "teachers", _UNPLANNED, "rule"
    if probe.why_not:
        return "teachers", f"A probe cannot be taken: {probe.why_not}", "rule"
    route, reason = _by_rule(teachers, probe)
    if rehearsed is None:
        return route, f"{reason}.", "rule"
    better, rows = rehearsed.better, f"{rehearsed.n_labelled:,} labeled public rows"
    if better is None:
        return route, f"{reason}; a rehearsal on {rows} found no difference beyond its own noise.", "rule"
    who = "the probe was" if better == "probe" else "the students of teachers were"
    how = f"by {abs(rehearsed.margin):.1%}, which is beyond the rehearsal's own noise."
    return better, f"On {rows} {who} right more often, {how}", "rehearsal"


def _by_rule(teachers: RouteOption, probe: RouteOption) -> tuple[RouteName, str]:
    if teachers.works:
        return "teachers", (
            "A teacher's share alone is enough to learn from, and the votes are clear of their noise: teachers may "
            "then be of any kind, where a probe is linear"
        )
    missing = next(one for one in teachers.checks if not one.holds)
    lacks = f"{_number(missing.value)} where {_number(missing.needed)} are needed ({missing.what})"
    if probe.works:
        return "probe", f"Teachers would have too little, {lacks}; a probe learns from all units at once"
    said = next(one for one in probe.checks if not one.holds)
    return "probe", (
        f"Neither route is expected to learn much: teachers have {lacks}, and the probe {_number(said.value)} where "
        f"{_number(said.needed)} are needed ({said.what}); a larger epsilon or more units would help, and a probe "
        "at least learns from all units at once"
    )


_UNPLANNED = (
    "No planning number was given, and a probe cannot do without one: give planned_units (units_planned in a run), "
    "about how many people there are, or rows where each is its own, from public knowledge and not by counting them."
)


def _mean(values: tuple[float, ...] | list[float]) -> float:
    return math.fsum(values) / len(values)


def _error(values: tuple[float, ...] | list[float]) -> float:
    mean = _mean(values)
    spread = math.fsum((one - mean) ** 2 for one in values) / (len(values) - 1)
    return math.sqrt(spread / len(values))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{float(f'{value:.2g}'):,g}"
