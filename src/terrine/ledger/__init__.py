"""Durable spending: what was reserved before noise was drawn, what was settled after, and every answer given."""

from terrine.ledger.entries import Ask, Entry, Head, Kept, Proof, Reservation, TreeHead
from terrine.ledger.ledger import Ledger
from terrine.ledger.place import ledger_place

__all__ = ["Ask", "Entry", "Head", "Kept", "Ledger", "Proof", "Reservation", "TreeHead", "ledger_place"]
