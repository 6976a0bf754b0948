"""PATEClassifier: private learning behind scikit-learn's fit and predict, by teachers or by a probe."""

from __future__ import annotations

from terrine.estimator.classifier import PATEClassifier

__all__ = ["PATEClassifier"]
