"""terrine: learn from private data through noisy votes, with a differential-privacy guarantee you can defend."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from terrine.accounting.costs import cost, expected_answered, expected_cost, worst_case_cost
    from terrine.accounting.curves import ORDERS, Guarantee, RdpCurve, guarantee
    from terrine.accounting.planning import Plan, least_noise, plan
    from terrine.budgets import CountBudget, FilterBudget, TestedBudget, TrainingBudget
    from terrine.datasets.data import PrivateData, PublicData
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
        UnreadWarning,
    )
    from terrine.estimator import PATEClassifier
    from terrine.labeller import Labeller
    from terrine.ledger import Ledger
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
    from terrine.partitioning import new_key, partition
    from terrine.probe import Probe, ProbeRows, ProbeSettings, fit_probe
    from terrine.release.smooth import smooth_sensitivity
    from terrine.release.tested import publishable_guarantee, sanitize, tested_guarantee
    from terrine.runs.local import Run
    from terrine.schema import Encoder, Schema, draft, read_table
    from terrine.sensitive import Sensitive
    from terrine.students import SupervisedStudent, fit_student, load_student
    from terrine.teachers import SklearnTeacher, TeacherEnsemble, fit_teachers, poll_teachers
    from terrine.votes import Votes, tally

__version__ = "0.1.0"

# Loaded when first asked for: importing terrine stays fast.
_LATER = {
    "ABSTAIN": "mechanisms",
    "AdviceWarning": "errors",
    "Answers": "mechanisms",
    "BudgetError": "errors",
    "ConfidentGNMax": "mechanisms",
    "CountBudget": "budgets",
    "Encoder": "schema",
    "FilterBudget": "budgets",
    "GNMax": "mechanisms",
    "Guarantee": "accounting.curves",
    "InputError": "errors",
    "InteractiveGNMax": "mechanisms",
    "LNMax": "mechanisms",
    "Labeller": "labeller",
    "Ledger": "ledger",
    "LedgerError": "errors",
    "ORDERS": "accounting.curves",
    "Outcome": "mechanisms",
    "PATEClassifier": "estimator",
    "Plan": "accounting.planning",
    "PooledFitWarning": "errors",
    "PrivateData": "datasets.data",
    "Probe": "probe",
    "ProbeRows": "probe",
    "ProbeSettings": "probe",
    "PublicData": "datasets.data",
    "RdpCurve": "accounting.curves",
    "Run": "runs.local",
    "Schema": "schema",
    "SecureNoise": "noise",
    "SeededNoise": "noise",
    "Sensitive": "sensitive",
    "SklearnTeacher": "teachers",
    "SpendingWarning": "errors",
    "SupervisedStudent": "students",
    "TeacherEnsemble": "teachers",
    "TerrineError": "errors",
    "TestFailedError": "errors",
    "TestedBudget": "budgets",
    "TrainingBudget": "budgets",
    "UnreadWarning": "errors",
    "Votes": "votes",
    "answer": "mechanisms",
    "cost": "accounting.costs",
    "draft": "schema",
    "expected_answered": "accounting.costs",
    "expected_cost": "accounting.costs",
    "fit_probe": "probe",
    "fit_student": "students",
    "fit_teachers": "teachers",
    "guarantee": "accounting.curves",
    "least_noise": "accounting.planning",
    "load_student": "students",
    "new_key": "partitioning",
    "partition": "partitioning",
    "plan": "accounting.planning",
    "poll_teachers": "teachers",
    "publishable_guarantee": "release.tested",
    "read_table": "schema",
    "sanitize": "release.tested",
    "smooth_sensitivity": "release.smooth",
    "synthetic_votes": "datasets.synthetic",
    "tally": "votes",
    "tested_guarantee": "release.tested",
    "worst_case_cost": "accounting.costs",
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
    "UnreadWarning",
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
