"""Neighbours: what two private data sets may differ in, so that at most one teacher's votes differ.

A guarantee compares two neighbours. Programs read the code, people the sentence.
"""

from __future__ import annotations

from enum import StrEnum

from terrine.errors import InputError

_OWN = "own: "  # before words of an owner's own, which no code stands for


class Relation(StrEnum):
    """A code, as JSON has it; ``Relation(...)`` takes the sentence too, which is what older files hold.

    Any other text is a relation in an owner's own words: its code is ``own: `` and these words.

    Examples:
        >>> Relation("one unit is added, removed or changed")
        <Relation.UNIT_ANY: 'unit_any'>
        >>> Relation("one hospital is left out").sentence
        'one hospital is left out'
    """

    UNIT_ANY = "unit_any"
    UNIT_REPLACED = "unit_replaced"
    ROW_REPLACED = "row_replaced"
    ONE_TEACHER = "one_teacher"
    UNIT_ADDED = "unit_added"
    ROW_ADDED = "row_added"

    @property
    def sentence(self) -> str:
        """For people."""
        return _SENTENCES.get(self) or self.removeprefix(_OWN)

    @property
    def size_is_public(self) -> bool:
        """Whether all neighbours have as many units, or rows, as the private data."""
        return self in (Relation.UNIT_REPLACED, Relation.ROW_REPLACED)

    @property
    def of_units(self) -> bool:
        """Whether it is about units with all their rows, and not about single rows."""
        return self in (Relation.UNIT_ANY, Relation.UNIT_ADDED, Relation.UNIT_REPLACED)

    def covers(self, other: Relation) -> bool:
        """Whether a guarantee for these neighbors is one for the other's too: a changed unit may be a missing one."""
        return self == other or (self, other) == (Relation.UNIT_ANY, Relation.UNIT_ADDED)

    @classmethod
    def _missing_(cls, value: object) -> Relation:
        if not isinstance(value, str) or not value.removeprefix(_OWN):
            raise InputError(f"relation must say in words what neighbors differ in, got {type(value).__name__}.")
        for known, sentence in _SENTENCES.items():
            if value.removeprefix(_OWN) == sentence:
                return known
        own = str.__new__(cls, _OWN + value.removeprefix(_OWN))
        own._name_, own._value_ = "OWN", str(own)
        return own


_SENTENCES = {
    Relation.UNIT_ANY: "one unit is added, removed or changed",
    Relation.UNIT_REPLACED: "one unit is replaced by another; the number of units is public",
    Relation.ROW_REPLACED: "one row is replaced by another; the number of rows is public",
    Relation.ONE_TEACHER: "one teacher's votes change, on any of the queries",
    Relation.UNIT_ADDED: "one unit is added or removed, with all its rows",
    Relation.ROW_ADDED: "one row is added or removed",
}
