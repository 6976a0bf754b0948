"""What teachers, probe and student see of rows: a public function of each, fixed or learned from public rows alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.datasets import PrivateData, PublicData
from terrine.datasets.rows import Rows
from terrine.errors import InputError
from terrine.estimator.people import People
from terrine.features import AnyFeatures, AutoRecipe, as_features, fit_auto
from terrine.probe import components_by_rule
from terrine.sensitive import unheard

_ROWS = 65_536  # private rows at a time


class FeatureInput:
    """Stands for features among learners: they take arrays of numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sides:
    """Private and public rows, and what is seen of them.

    Attributes:
        data, public: rows as the student takes them.
        seen, seen_public: as teachers and probe take them; the same where there are no features.
    """

    data: PrivateData
    public: PublicData
    features: AnyFeatures | None
    seen: PrivateData
    seen_public: PublicData


def wanted(model: Any) -> Any:
    """The features that were asked for; a probe cannot do without."""
    return "auto" if model.features is None and model.route in ("probe", "auto") else model.features


def features_of(model: Any, public: Rows, people: People, *, labels: NDArray[np.int64] | None) -> AnyFeatures | None:
    """Made or taken: from public rows and public numbers alone.

    Args:
        labels: of public rows, -1 where unknown; None: there are none.
    """
    given = wanted(model)
    if given is None:
        return None
    if isinstance(given, str) and given == "auto":
        if not isinstance(public, np.ndarray):
            raise InputError(
                f'features="auto" takes arrays of numbers, images and tables, and not {type(public).__name__}. Give an '
                "encoder as features (a function, a scikit-learn transformer, a model's folder), or embeddings in the "
                "place of the rows."
            )
        recipe = AutoRecipe()
        if model.route in ("probe", "auto") and people.units is not None:
            numbers: dict[str, Any] = {"epsilon": model.epsilon, "delta": model.delta, "relation": people.relation}
            recipe = AutoRecipe(in_all=components_by_rule(planned_units=people.units.number, **numbers))
        return fit_auto(PublicData(public), recipe=recipe, seed=int(model.random_state), labels=labels)
    return as_features(given, PublicData(public), seed=int(model.random_state))


def sides_of(features: AnyFeatures | None, data: PrivateData, public: Rows) -> Sides:
    """Rows beside what is seen of them; a private row whose features are not finite counts as zeros, without a word."""
    rows = PublicData(public, nan_ok=True)
    if features is None:
        return Sides(data=data, public=rows, features=None, seen=data, seen_public=rows)
    found = np.zeros((len(data), features.n_features), dtype=np.float32)
    with unheard():
        for start in range(0, len(data), _ROWS):
            some = features.transform(data.X[start : start + _ROWS])
            found[start : start + _ROWS] = some.reshape(len(some), -1)
        found[~np.isfinite(found).all(axis=1)] = 0
    seen = PrivateData(found, data.y, unit=data.unit, unlabelled_ok=True)
    own = features.transform(rows)
    return Sides(
        data=data, public=rows, features=features, seen=seen, seen_public=PublicData(own.reshape(len(own), -1))
    )
