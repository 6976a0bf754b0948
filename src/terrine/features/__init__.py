"""Features learned from public rows alone: with them a teacher needs only a handful of private rows."""

from terrine.features.auto import AutoFeatures, AutoRecipe, fit_auto
from terrine.features.choice import choose_features
from terrine.features.encoders import AnyFeatures, EncoderFeatures, as_features, load_features
from terrine.features.features import FeatureRecipe, Features, fit_features, representative_rows
from terrine.features.scattering import Scattering

__all__ = [
    "AnyFeatures",
    "AutoFeatures",
    "AutoRecipe",
    "EncoderFeatures",
    "FeatureRecipe",
    "Features",
    "Scattering",
    "as_features",
    "choose_features",
    "fit_auto",
    "fit_features",
    "load_features",
    "representative_rows",
]
