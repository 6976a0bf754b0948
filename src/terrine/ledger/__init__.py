"""Durable spending: what was reserved before noise was drawn, what was settled after, and every answer given."""

from terrine.ledger.entries import Ask, Entry, Head, Kept, Proof, Reservation, TreeHead
from terrine.ledger.ledger import Ledger

__all__ = ["Ask", "Entry", "Head", "Kept", "Ledger", "Proof", "Reservation", "TreeHead"]
