"""Every error and warning that terrine raises on purpose."""

from __future__ import annotations

import sys
import warnings
from types import FrameType


class TerrineError(Exception):
    """Base of all terrine errors; its message is one line, fit to show a user."""


class InputError(TerrineError, ValueError):
    """An argument or a file cannot be used; the message says why."""


class VotesError(InputError):
    """A vote file or array cannot be read as teachers' votes."""


class DataError(InputError):
    """Data, or a data set's file, is missing, damaged or not what was expected."""


class StoreError(InputError):
    """A store of teachers is missing, damaged or not the one that was expected."""


class LedgerError(InputError):
    """A ledger is missing, damaged, not the one that was expected, or cannot be written."""


class RequestError(LedgerError):
    """A request id was used before, for a different request."""


class BudgetError(TerrineError):
    """The budget has no room for a request; exit code 3 of the command line. A smaller request may fit.

    Attributes:
        requested, remaining: in words.
    """

    def __init__(self, requested: str, remaining: str) -> None:
        super().__init__(requested, remaining)
        self.requested = requested
        self.remaining = remaining

    def __str__(self) -> str:
        return f"Not enough budget. The request needs {self.requested}; left: {self.remaining}."


class QuotaError(BudgetError):
    """The account that a request is charged to has used up its quota; the budget itself may have room."""

    def __str__(self) -> str:
        return f"Not enough quota for this account. The request needs {self.requested}; left: {self.remaining}."


class TestedRowsError(InputError):
    """Rows that are not those of the one tested release that a ledger pays for; nothing was charged for them."""

    __test__ = False  # not a test class, whatever its name


class TestFailedError(TerrineError):
    """A tested release did not pass: nothing was published, and never will be; exit code 4 of the command line.

    Attributes:
        epsilon, delta: what is spent all the same.
        lost: the release was charged and cannot be finished, because the noise that was kept for it is gone.
    """

    __test__ = False  # not a test class, whatever its name

    def __init__(self, epsilon: float, delta: float, *, lost: bool = False) -> None:
        super().__init__(epsilon, delta)
        self.epsilon = epsilon
        self.delta = delta
        self.lost = lost

    def __str__(self) -> str:
        why = (
            "The tested release was charged, and the noise that was kept for it is not here any more, so that it "
            "counts as failed (if another machine began it, finish it there)"
            if self.lost
            else "The private test did not pass"
        )
        return (
            f"{why}. No answer was published and none ever will be from this ledger, and epsilon = {self.epsilon} at "
            f"delta = {self.delta:g} is spent. Asking again changes nothing. A new run, with a larger target or by "
            "worst case, adds its own epsilon and delta to these."
        )


class ServiceError(TerrineError):
    """A label service did not answer, or sent something that is not an answer."""


class TeachersError(TerrineError):
    """Teachers failed to learn, or on a query; why depends on private data and is withheld."""


class SecretError(TerrineError, TypeError):
    """Code tried to use a secret value as if it were public."""


class MissingDependencyError(TerrineError, ImportError):
    """An optional package is not installed; the message says how to install it."""


class WorkerError(TerrineError):
    """A worker process died too often on one task; the message names the task's index."""


class PlanError(TerrineError):
    """No plan meets the target under the stated assumptions."""


class TerrineWarning(UserWarning):
    """Base of all terrine warnings."""


class OrderGridWarning(TerrineWarning):
    """The best Rényi order sits at the edge of the grid: a wider grid may give a smaller epsilon."""


class DeltaWarning(TerrineWarning):
    """Delta is not below one over the number of records."""


class SpendingWarning(TerrineWarning):
    """Budget is about to be spent again, perhaps without meaning to."""


class AdviceWarning(TerrineWarning):
    """A plan, or what came of it, will probably serve the student or the people in the data badly."""


class UnreadWarning(TerrineWarning):
    """Cells of a table cannot be used as they stand: they count as missing, or as "other"."""


class PooledFitWarning(TerrineWarning):
    """Something was fitted to all private rows before they were dealt to teachers: the guarantee does not hold."""


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line that called into terrine, however deep this is inside."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "terrine":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level if frame is not None else 2)
