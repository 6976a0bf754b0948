"""What every budget counts in, and how a mechanism is written down. Public."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from terrine._validate import JsonObject
from terrine.errors import InputError
from terrine.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Mechanism

SCHEMA = "terrine.budget/1"
"""The tag of a stored budget's format."""

_KINDS: dict[str, type[LNMax | GNMax | ConfidentGNMax]] = {
    "lnmax": LNMax,
    "gnmax": GNMax,
    "confident": ConfidentGNMax,
    "interactive": InteractiveGNMax,
}


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(value: Mapping[str, Any]) -> str:
    """JSON with one spelling: what is stored, compared and hashed."""
    return _CANONICAL.encode(value)


def mechanism_to_json(mechanism: Mechanism) -> JsonObject:
    """As in {"kind": "gnmax", "sigma": 40.0}."""
    for kind, known in _KINDS.items():
        if type(mechanism) is known:  # a subclass may answer otherwise than it is charged
            return {"kind": kind, **{name: value + 0.0 for name, value in asdict(mechanism).items()}}
    raise InputError(
        f"mechanism must be LNMax, GNMax, ConfidentGNMax or InteractiveGNMax, got {type(mechanism).__name__}."
    )


def mechanism_from_json(value: Any) -> Mechanism:
    """What `mechanism_to_json` returned; anything else is refused."""
    try:
        known = dict(value)
        return _KINDS[known.pop("kind")](**known)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError):
        raise InputError(
            'This JSON does not describe a mechanism: it must have a known "kind" and that kind\'s numbers.'
        ) from None


@lru_cache(maxsize=64)
def mechanism_from_text(text: str) -> Mechanism:
    """From `canonical` JSON, as a ledger's entries have it."""
    return mechanism_from_json(json.loads(text))


@dataclass(frozen=True, kw_only=True)
class Spending:
    """A number of checks and answers, and what a filter charges for them.

    Attributes:
        queries: put to the teachers; each is one check, where the mechanism has one.
        answers: released votes, or votes that may be released.
        charge: Rényi cost at a filter's order in units of 2^-50 nats, each step rounded up; 0 under a count budget.
    """

    queries: int = 0
    answers: int = 0
    charge: int = 0

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            queries=self.queries + other.queries,
            answers=self.answers + other.answers,
            charge=self.charge + other.charge,
        )

    def __sub__(self, other: Spending) -> Spending:
        return Spending(
            queries=self.queries - other.queries,
            answers=self.answers - other.answers,
            charge=self.charge - other.charge,
        )


def has_check(mechanism: Mechanism) -> bool:
    """Whether a query may go unanswered; else queries and answers are the same number."""
    return isinstance(mechanism, ConfidentGNMax)
