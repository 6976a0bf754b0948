"""A probe that is as sure as it is right: a factor on its logits, from what it measured and public rows.

Clipped gradients and few steps leave a probe too sure of frequent classes, or not sure enough of many. The factor makes
its mean largest probability on the public rows the measured share of private rows that it is right about: both numbers
are public, so that it costs nothing, and no prediction changes, since all logits of a row grow or shrink together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from terrine.probe.model import Probe

_MOST = 30.0  # the factor is not above this, nor below its inverse
_ROWS = 20_000  # public rows that it is found by, at most
_VAGUE = 0.2  # an interval of the accuracy that is wider tells too little
_HALVINGS = 40


def sureness(probe: Probe, public: NDArray[Any]) -> float:
    """The factor on the logits; 1 where the probe did not measure itself, or the noise hides how right it is.

    Args:
        public: features of public rows, which should be of the same kind as the private ones.
    """
    measured = probe.measured
    if measured is None or measured.accuracy is None or measured.interval is None or len(public) == 0:
        return 1.0
    low, high = measured.interval
    if high - low > _VAGUE:
        return 1.0
    some = public[np.linspace(0, len(public) - 1, min(len(public), _ROWS)).astype(np.int64)]
    logits = np.log(np.maximum(probe.predict_proba(some), np.finfo(np.float64).tiny))
    below, above = 1 / _MOST, _MOST
    for _ in range(_HALVINGS):  # the mean grows with the factor
        middle = float(np.sqrt(below * above))
        if softmax(middle * logits, axis=1).max(axis=1).mean() < measured.accuracy:
            below = middle
        else:
            above = middle
    return float(f"{np.sqrt(below * above):.3g}")  # three digits are the same on every machine
