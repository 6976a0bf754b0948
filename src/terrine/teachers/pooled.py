"""What was fitted to all private rows before the teachers got theirs: every teacher depends on every row then."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from sklearn.utils import get_tags

from terrine.errors import PooledFitWarning


def warn_of_pooled_fit(estimator: Any) -> None:
    """Look for a Pipeline among the callers that ends here, and whose earlier steps learned from all private rows."""
    from sklearn.pipeline import Pipeline

    frame, last = sys._getframe(2), estimator
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Pipeline) and owner is not last and owner.steps and owner.steps[-1][1] is last:
            learned = [name for name, step in owner.steps[:-1] if _learns(step)]
            if learned:
                warnings.warn(
                    f"The Pipeline's step {learned[0]!r} was fitted to all private rows before the teachers got "
                    "theirs, so that every teacher depends on every row and the guarantee does not hold. Put the step "
                    "inside the teacher and the student: PATEClassifier(teacher=make_pipeline(step, ...)).",
                    PooledFitWarning,
                    stacklevel=4,
                )
                return
            last = owner
        frame = frame.f_back  # type: ignore[assignment]


def _learns(step: Any) -> bool:
    """Whether a step's fit keeps anything of its rows."""
    if step is None or isinstance(step, str) or type(step).__name__ == "FrozenEstimator":
        return False
    inner = [
        *(one for _, one, *_ in getattr(step, "steps", ())),
        *(one for _, one, *_ in getattr(step, "transformers", ())),
        *(one for _, one, *_ in getattr(step, "transformer_list", ())),
    ]
    return any(map(_learns, inner)) if inner else bool(get_tags(step).requires_fit)
