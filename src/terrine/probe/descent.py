"""Weights as a public function of the outputs of the steps so far."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from terrine.probe import exact
from terrine.probe.settings import ProbeSettings

Array = NDArray[np.float64]


class Descent:
    """Where the descent is. A step that was lost moves nothing.

    Args:
        planned_units: the mean gradient is the noisy sum divided by this, never by the private number of units.
    """

    def __init__(self, settings: ProbeSettings, *, planned_units: int) -> None:
        self._settings, self._planned = settings, planned_units
        self.weights: Array = np.zeros((settings.n_features + 1, settings.n_classes))
        self._speed = np.zeros_like(self.weights)
        self._sum, self._n_averaged = np.zeros_like(self.weights), 0

    def add(self, step: int, output: NDArray[np.int64]) -> None:
        """The output of a step, counted from 1, as whole lattice steps."""
        settings = self._settings
        mean = output.reshape(self.weights.shape) / (float(self._planned) * 2.0**exact.LATTICE_BITS)
        self._speed = settings.momentum * self._speed + mean
        moved = self.weights - settings.rate / settings.clip * self._speed
        self.weights = np.clip(moved, -exact.LARGEST_WEIGHT, exact.LARGEST_WEIGHT)
        if step > settings.steps // 2:
            self._sum, self._n_averaged = self._sum + self.weights, self._n_averaged + 1

    def average(self) -> Array:
        """Of the weights after the later half of the steps; the last ones where all of those were lost."""
        return self._sum / self._n_averaged if self._n_averaged else self.weights
