"""Features learned from public rows alone: with them a teacher needs only a handful of private rows."""

from terrine.features.features import FeatureRecipe, Features, fit_features, representative_rows

__all__ = ["FeatureRecipe", "Features", "fit_features", "representative_rows"]
