"""terrine: learn from private data through noisy votes, with a differential-privacy guarantee you can defend."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from terrine.accounting.costs import cost, expected_answered, expected_cost, worst_case_cost
from terrine.accounting.curves import ORDERS, Guarantee, RdpCurve, guarantee
from terrine.accounting.planning import Plan, least_noise, plan
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import (
    AdviceWarning,
    BudgetError,
    InputError,
    LedgerError,
    PooledFitWarning,
    SpendingWarning,
    TerrineError,
    TestFailedError,
)
from terrine.mechanisms import (
    ABSTAIN,
    Answers,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Outcome,
    answer,
)
from terrine.noise import SecureNoise, SeededNoise
from terrine.release.smooth import smooth_sensitivity
from terrine.release.tested import publishable_guarantee, sanitize, tested_guarantee
from terrine.sensitive import Sensitive
from terrine.votes import Votes, tally

if TYPE_CHECKING:
    from terrine.budgets import CountBudget, FilterBudget, TestedBudget, TrainingBudget
    from terrine.datasets.data import PrivateData, PublicData
    from terrine.estimator import PATEClassifier
    from terrine.labeller import Labeller
    from terrine.ledger import Ledger
    from terrine.partitioning import new_key, partition
    from terrine.probe import Probe, ProbeRows, ProbeSettings, fit_probe
    from terrine.runs.local import Run
    from terrine.schema import Encoder, Schema, draft, read_table
    from terrine.students import SupervisedStudent, fit_student, load_student
    from terrine.teachers import SklearnTeacher, TeacherEnsemble, fit_teachers, poll_teachers

__version__ = "0.1.0"

# Loaded when first asked for: importing terrine stays fast.
_LATER = {
    "CountBudget": "budgets",
    "Encoder": "schema",
    "FilterBudget": "budgets",
    "Labeller": "labeller",
    "Ledger": "ledger",
    "PATEClassifier": "estimator",
    "PrivateData": "datasets.data",
    "Probe": "probe",
    "ProbeRows": "probe",
    "ProbeSettings": "probe",
    "PublicData": "datasets.data",
    "Run": "runs.local",
    "Schema": "schema",
    "SklearnTeacher": "teachers",
    "SupervisedStudent": "students",
    "TeacherEnsemble": "teachers",
    "TestedBudget": "budgets",
    "TrainingBudget": "budgets",
    "draft": "schema",
    "fit_probe": "probe",
    "fit_student": "students",
    "fit_teachers": "teachers",
    "load_student": "students",
    "new_key": "partitioning",
    "partition": "partitioning",
    "poll_teachers": "teachers",
    "read_table": "schema",
}

__all__ = [
    "ABSTAIN",
    "ORDERS",
    "AdviceWarning",
    "Answers",
    "BudgetError",
    "ConfidentGNMax",
    "CountBudget",
    "Encoder",
    "FilterBudget",
    "GNMax",
    "Guarantee",
    "InputError",
    "InteractiveGNMax",
    "LNMax",
    "Labeller",
    "Ledger",
    "LedgerError",
    "Outcome",
    "PATEClassifier",
    "Plan",
    "PooledFitWarning",
    "PrivateData",
    "Probe",
    "ProbeRows",
    "ProbeSettings",
    "PublicData",
    "RdpCurve",
    "Run",
    "Schema",
    "SecureNoise",
    "SeededNoise",
    "Sensitive",
    "SklearnTeacher",
    "SpendingWarning",
    "SupervisedStudent",
    "TeacherEnsemble",
    "TerrineError",
    "TestFailedError",
    "TestedBudget",
    "TrainingBudget",
    "Votes",
    "answer",
    "cost",
    "draft",
    "expected_answered",
    "expected_cost",
    "fit_probe",
    "fit_student",
    "fit_teachers",
    "guarantee",
    "least_noise",
    "load_student",
    "new_key",
    "partition",
    "plan",
    "poll_teachers",
    "publishable_guarantee",
    "read_table",
    "sanitize",
    "smooth_sensitivity",
    "synthetic_votes",
    "tally",
    "tested_guarantee",
    "worst_case_cost",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"terrine.{_LATER[name]}"), name)
