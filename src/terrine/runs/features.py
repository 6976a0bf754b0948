"""Features as a run's settings ask for them: made once, from public rows alone, and kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from terrine.datasets import PublicData
from terrine.errors import InputError
from terrine.runs.features_config import FeaturesConfig

if TYPE_CHECKING:
    from terrine.features import AnyFeatures


def features_of(
    settings: FeaturesConfig, public: PublicData, *, seed: int, device: str, kept: Path | None = None
) -> AnyFeatures:
    """What teachers and student see of rows.

    Args:
        public: the rows that they are learned from.
        device: that of the teachers.
        kept: a file to keep them in, or to read them from if it is there.
    """
    from terrine.features import AutoFeatures, AutoRecipe, FeatureRecipe, Features, fit_auto, fit_features
    from terrine.features.edges import Edges

    if settings.kind == "edges":
        return Edges(row_shape=public.X.shape[1:])
    made: Features | AutoFeatures
    if kept is not None and kept.is_file():
        return (AutoFeatures if settings.kind == "auto" else Features).load(kept)
    try:
        if settings.kind == "auto":
            made = fit_auto(public, recipe=AutoRecipe(**settings.options), seed=seed, device=device)
        else:
            made = fit_features(public, recipe=FeatureRecipe(**settings.options), seed=seed, device=device)
    except TypeError as error:
        raise InputError(f"features.options: {error}.") from None
    if kept is not None:
        made.save(kept)
    return made
