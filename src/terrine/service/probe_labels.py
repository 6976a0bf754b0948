"""A trained probe in the place of teachers: its training was paid for, and a label is a function of its row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from terrine._validate import JsonObject
from terrine.errors import InputError, TeachersError, TerrineError
from terrine.labeller import Question
from terrine.mechanisms import Answers, Outcome
from terrine.service.parsing import RowFormat


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeLabels:
    """Labels any number of rows: nothing is charged, drawn or kept. All of it is public.

    Args:
        predict: (n,) numbers of classes for n rows, each by itself.
        classes: what labels are called.
        rows: what ``predict`` takes.
        secure: whether all noise of the training was drawn by the secure sampler.
        facts: how the probe was trained, as `schemas.Training` has it.
        measured: how right it is, as `schemas.Measured` has it.
    """

    predict: Callable[[NDArray[np.generic]], NDArray[np.int64]]
    classes: tuple[str, ...]
    rows: RowFormat
    secure: bool
    facts: JsonObject
    measured: JsonObject | None = None

    def label_each(self, requests: Sequence[Question]) -> list[Answers | TerrineError]:
        """As `Labeller.label_each`; all rows are looked at together."""
        sizes = [len(np.asarray(one.X)) for one in requests]
        try:
            with np.errstate(all="ignore"):  # of huge numbers, which have a label too
                found = self.predict(np.concatenate([np.asarray(one.X) for one in requests]))
        except TerrineError:
            raise
        except Exception as error:
            raise TeachersError(f"The probe failed to label the rows ({type(error).__name__}).") from None
        parts = np.split(found, np.cumsum(sizes)[:-1])
        return [
            self._given(labels) if one.student_proba is None else InputError("A probe takes no student_proba.")
            for one, labels in zip(requests, parts, strict=True)
        ]

    def _given(self, labels: NDArray[np.int64]) -> Answers:
        outcomes = np.full(len(labels), int(Outcome.TEACHERS), dtype=np.int64)
        return Answers(labels=labels, outcomes=outcomes, mechanism=None, secure=self.secure)
