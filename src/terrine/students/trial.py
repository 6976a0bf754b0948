"""A student tried on public rows with made-up labels, before answers are paid for: what is wrong with it shows here."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.datasets import PublicData
from terrine.errors import InputError, MissingDependencyError, TerrineError
from terrine.students.api import Student, fit_student, load_student
from terrine.students.auto import AutoStudent
from terrine.students.nets import NetSettings

_EACH = 10  # rows of a class: enough for a cross-validation inside
_MOST = 5_000  # rows, where a student needs more than the fewest
_LETTERS = 400


def try_student(
    student: Student, public: PublicData | NDArray[Any], *, classes: Sequence[str], n_answers: int, keep: bool
) -> None:
    """Refuse a student that could not learn from answers, or not be kept; nets are tried for one step, "auto" in two
    folds.

    Args:
        public: the rows it will learn from, or some of them.
        n_answers: how many answers it will get at most.
        keep: whether it is to be saved.
    """
    rows = (public if isinstance(public, PublicData) else PublicData(public)).X
    least = student.min_per_class * len(classes)
    if least > n_answers:
        raise InputError(
            f"The student wants min_per_class = {student.min_per_class} answers of each of {len(classes)} classes, "
            f"{least:,} in all, and there will be at most {n_answers:,}. Nothing was taught or spent. Lower "
            "min_per_class, or plan for more answers."
        )
    short: Student = replace(student, steps=1) if isinstance(student, NetSettings) else student
    if isinstance(short, AutoStudent):
        short = replace(short, folds=2)  # on made-up labels which one is best says nothing
    said = ""
    for n in _sizes(max(_EACH, student.min_per_class), len(classes)):
        labels = np.arange(n, dtype=np.int64) % len(classes)
        some = rows[np.random.default_rng(0).integers(len(rows), size=n)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = fit_student(short, PublicData(some, nan_ok=True), labels, classes=classes, seed=0)
                if keep:
                    with tempfile.TemporaryDirectory(prefix="terrine-") as folder:
                        fitted.save(folder, card={})
                        fitted = load_student(folder, encoder=getattr(student, "features", None))
                fitted.predict(some[:1])
            return
        except MissingDependencyError:
            raise
        except Exception as error:
            words = " ".join(str(error).split())[:_LETTERS].rstrip(".")
            said = words if isinstance(error, TerrineError) else f"{type(error).__name__}: {words}"
    raise InputError(
        f"The student cannot be used. On public rows with made-up labels it failed with: {said}. Nothing was taught or "
        "spent. Change the student's settings."
    )


def _sizes(each: int, n_classes: int) -> list[int]:
    """A few rows of every class, then ten times as many."""
    fewest = each * n_classes
    return sorted({fewest, max(fewest, min(10 * fewest, _MOST))})
