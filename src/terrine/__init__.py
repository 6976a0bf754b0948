"""terrine: learn from private data through noisy votes, with a differential-privacy guarantee you can defend."""

from terrine.accounting.costs import cost, expected_answered, expected_cost, worst_case_cost
from terrine.accounting.curves import ORDERS, Guarantee, RdpCurve, guarantee
from terrine.accounting.planning import Plan, plan
from terrine.accounting.release import publishable_guarantee, sanitize, tested_guarantee
from terrine.accounting.sensitivity import smooth_sensitivity
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import TerrineError
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
from terrine.sensitive import Sensitive
from terrine.votes import Votes, tally

__version__ = "0.1.0"

__all__ = [
    "ABSTAIN",
    "ORDERS",
    "Answers",
    "ConfidentGNMax",
    "GNMax",
    "Guarantee",
    "InteractiveGNMax",
    "LNMax",
    "Outcome",
    "Plan",
    "RdpCurve",
    "SecureNoise",
    "SeededNoise",
    "Sensitive",
    "TerrineError",
    "Votes",
    "answer",
    "cost",
    "expected_answered",
    "expected_cost",
    "guarantee",
    "plan",
    "publishable_guarantee",
    "sanitize",
    "smooth_sensitivity",
    "synthetic_votes",
    "tally",
    "tested_guarantee",
    "worst_case_cost",
]
