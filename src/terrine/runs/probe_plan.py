"""What a run by the private probe trains and spends: from public numbers alone, fixed before the first step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from terrine.accounting.advice import WEAK_SIGNAL, Advice, Finding, Units, advise_probe
from terrine.budgets import TrainingBudget, budget_from_json
from terrine.datasets import PrivateData, PublicData
from terrine.errors import InputError
from terrine.partitioning import public_units
from terrine.probe import ProbeSettings, components_by_rule, public_scale
from terrine.probe.settings import signal
from terrine.relations import Relation
from terrine.runs.config import ProbeConfig, RunConfig
from terrine.runs.features_config import FeaturesConfig

if TYPE_CHECKING:
    from terrine.features import AnyFeatures

SCHEMA = "terrine.probe-plan/1"
_UNBALANCED = Finding(
    code="balanced_unused",
    severity="warn",
    says="student.balanced = true changes nothing where the probe itself is kept as the student: it is for students "
    "that learn from labels.",
    advice="Rank rows by the probability of the rare class, and act on the first of them; or leave `balanced` out.",
)
_EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)  # to advise
Method = Literal["hashed", "balanced"]


@dataclass(frozen=True, kw_only=True)
class People:
    """Whom the guarantee of a run is for, and how many of them are planned with. All of it is public.

    Attributes:
        relation: what neighbors differ in.
        units: None where no number is known that may be shown.
    """

    relation: Relation
    units: Units | None

    @property
    def planned(self) -> int:
        """The planning number, which a probe cannot do without."""
        if self.units is None:
            raise InputError(
                "data.units_planned is missing: about how many people (or rows, where a row is its own) there are. "
                "The probe's steps and noise follow from it, and the true number is private. Give a number from "
                "public knowledge, such as an annual report, and do not count your private rows."
            )
        return self.units.number


def people_of(private: PrivateData, settings: RunConfig | ProbeConfig) -> People:
    """The relation that the settings ask for, or their own; the true number of units only where it is public by it."""
    method: Method = settings.teachers.partition if isinstance(settings, RunConfig) else "hashed"
    known: int | None = None
    if settings.privacy.neighbors == "unit_added":
        relation = Relation.ROW_ADDED if private.unit is None else Relation.UNIT_ADDED
    else:
        known = public_units(private, method=method)
        relation = Relation.UNIT_ANY if known is None else Relation.UNIT_REPLACED
        relation = Relation.ROW_REPLACED if private.unit is None else relation
    number = settings.data.units_planned if known is None else known
    return People(relation=relation, units=None if number is None else Units(number=number, public=known is not None))


def check_neighbors(private: PrivateData, settings: RunConfig) -> None:
    """Refuse `unit_added` where teachers do not have it: where a unit that is added moves others to other teachers."""
    if settings.privacy.neighbors is None:
        return
    chosen = ', which route = "auto" takes here' if settings.privacy.route == "auto" else ""
    why = f'privacy.neighbors = "unit_added" does not hold for these teachers{chosen}: '
    if private.unit is None:
        raise InputError(
            f"{why}there is no unit column, and a row that is added moves others to other teachers. Name the unit's "
            'column, leave `neighbors` out, or set route = "probe", where each row is a unit.'
        )
    if settings.teachers.partition != "hashed":
        raise InputError(
            f'{why}partition = "balanced" deals units out in turn, so that one more moves others to other teachers. '
            'Use partition = "hashed", or leave `neighbors` out.'
        )


def covered(relation: Relation, settings: RunConfig) -> Relation:
    """What the budget of teachers with this relation is for: their own, or a part of it that the settings ask for."""
    if settings.privacy.neighbors is None:
        return relation
    if not relation.covers(Relation.UNIT_ADDED):
        raise InputError(f'privacy.neighbors = "unit_added" does not hold here: {relation.sentence}. Leave it out.')
    return Relation.UNIT_ADDED


def features_config(settings: ProbeConfig, people: People) -> FeaturesConfig:
    """As the settings ask for them, with as many components as this budget can make use of."""
    asked = settings.features
    if asked.kind != "auto":
        return asked
    privacy = settings.privacy
    most = components_by_rule(
        epsilon=privacy.epsilon, delta=privacy.delta, planned_units=people.planned, relation=people.relation
    )
    return FeaturesConfig(kind="auto", options={"in_all": most, **asked.options})


@dataclass(frozen=True, kw_only=True)
class ProbePlan:
    """How a run's probe learns, and the budget that pays for it.

    Attributes:
        settings: steps, rate, clip and scale.
        budget: as the ledger's header will hold it.
    """

    settings: ProbeSettings
    budget: TrainingBudget

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "settings": self.settings.to_json(), "budget": self.budget.to_json()}

    @classmethod
    def from_json(cls, value: Any) -> ProbePlan:
        if value.get("schema") != SCHEMA:
            raise InputError(f"the plan does not have the schema {SCHEMA}.")
        budget = budget_from_json(value["budget"])
        if not isinstance(budget, TrainingBudget):
            raise InputError("the plan is not that of a probe: its budget does not pay for a training.")
        return cls(settings=ProbeSettings.from_json(value["settings"]), budget=budget)


def plan_probe(settings: ProbeConfig, people: People, public: PublicData, features: AnyFeatures, k: int) -> ProbePlan:
    """Steps, rate, clip and noise by the rule of `ProbeSettings.by_rule`.

    Args:
        public: the public rows, whose features set the scale.
        k: classes.
    """
    privacy = settings.privacy
    numbers: dict[str, Any] = {
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "planned_units": people.planned,
        "relation": people.relation,
    }
    scale = public_scale(seen_by_probe(features, public))
    sizes: dict[str, Any] = {"n_features": features.n_features, "n_classes": k, "scale": scale}
    found = ProbeSettings.by_rule(**sizes, **numbers)
    if privacy.measure is not False:
        found = found.measuring()
    return ProbePlan(settings=found, budget=found.budget(**numbers))


def seen_by_probe(features: AnyFeatures, rows: PublicData) -> Any:
    """(n_rows, n_features) of public rows."""
    found = features.transform(rows.X)
    return found.reshape(len(found), -1)


def advice_on_probe(settings: ProbeConfig, people: People) -> Advice:
    """Whether a probe can learn anything, from public numbers."""
    privacy, planned = settings.privacy, people.planned
    assert people.units is not None
    given: dict[str, Any] = {"delta": privacy.delta, "planned_units": planned, "relation": people.relation}
    larger = (one for one in _EPSILONS if one > privacy.epsilon)
    found = advise_probe(
        signal=signal(epsilon=privacy.epsilon, **given),
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        units=people.units,
        enough=next((one for one in larger if signal(epsilon=one, **given) >= WEAK_SIGNAL), None),
        accept_large_delta=privacy.accept_large_delta,
    )
    if settings.student.kind != "auto" or not settings.student.balanced:
        return found
    return replace(found, findings=(*found.refusals, *found.warnings, _UNBALANCED, *found.infos))
