"""What a ledger is made of. All of it is public."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from terrine.budgets import Spending

LEDGER_SCHEMA = "terrine.ledger/1"
ENTRY_SCHEMA = "terrine.entry/1"
RESERVE, SETTLE = "reserve", "settle"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line, written once and never changed.

    Attributes:
        seq: 1, 2, 3, ... without a gap.
        time: UTC.
        kind: "reserve": charged its worst case before noise is drawn; "settle": lowered to what public outcomes show.
        request_id, part: whose; a request that is sliced, or tried again after a crash, has several parts.
        mechanism: as JSON.
        n_queries, n_answers: charged for this part from here on; so is ``charge``, at a filter's order in 2^-50 nats.
        secure: False where seeded noise was used.
        total: charged for the whole ledger from here on.
    """

    seq: int
    time: str
    kind: str
    request_id: str
    part: int
    mechanism: str
    n_queries: int
    n_answers: int
    charge: int
    secure: bool
    total: Spending
    schema: str = ENTRY_SCHEMA

    @property
    def spending(self) -> Spending:
        return Spending(queries=self.n_queries, answers=self.n_answers, charge=self.charge)


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Room for so many queries and their answers: charged, and good for one draw of noise."""

    request_id: str
    part: int
    n_queries: int


class Kept(NamedTuple):
    """An answer that was given once and is given again to whoever asks the same."""

    label: int
    outcome: int
    secure: bool
