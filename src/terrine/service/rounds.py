"""Several mechanisms behind one address, on one ledger: a request names its round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from terrine.errors import InputError, TerrineError
from terrine.labeller import Labeller, Question
from terrine.mechanisms import Answers


@dataclass(frozen=True, eq=False)
class RoundQuestion(Question):
    """A question to the mechanism of a round; the first where the request does not say."""

    round: int = 1


class RoundLabellers:
    """A labeller for each round; they share teachers and ledger, and answer as one.

    Args:
        labellers: in the order of the rounds.
    """

    def __init__(self, labellers: Sequence[Labeller]) -> None:
        self._labellers = list(labellers)

    def label_each(self, requests: Sequence[Question]) -> list[Answers | TerrineError]:
        """As `Labeller.label_each`: what belongs to one round is charged and drawn together."""
        found: dict[int, Answers | TerrineError] = {}
        rounds = [getattr(one, "round", 1) for one in requests]
        for k, labeller in enumerate(self._labellers, start=1):
            places = [place for place, of in enumerate(rounds) if of == k]
            if places:
                given = labeller.label_each([requests[place] for place in places])
                found |= dict(zip(places, given, strict=True))
        n_rounds = len(self._labellers)
        return [found.get(place, no_such_round(of, n_rounds)) for place, of in enumerate(rounds)]


def no_such_round(given: object, n_rounds: int) -> InputError:
    many = "one round" if n_rounds == 1 else f"{n_rounds} rounds"
    return InputError(f"round must be a whole number from 1 to {n_rounds}: this service has {many}, got {given!r:.40}.")
