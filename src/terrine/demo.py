"""The built-in demonstration: PATE from private images to a published student, with nothing to download."""

from __future__ import annotations

from terrine.config import RunConfig

# Symbols in the faces that matplotlib ships. Teachers see edges, a fixed public function of an image. All numbers were
# chosen before the votes were read, from what `terrine plan` proposes for teachers of whom 80% agree.
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
        "privacy": {
            "mechanism": "confident",
            "threshold": 350,
            "sigma_check": 150,
            "sigma_vote": 70,
            "queries": 1_000,
            "answers": 700,
            "delta": 1e-6,
        },
        "student": {"kind": "vat", "preset": "small"},
    }
)
