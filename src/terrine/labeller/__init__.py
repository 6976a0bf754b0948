"""Where charging and answering meet, and nowhere else: reserve, vote, draw, keep, and only then return the answers."""

from terrine.labeller.labeller import Labeller, Question
from terrine.labeller.voters import KeptVotes, Voters

__all__ = ["KeptVotes", "Labeller", "Question", "Voters"]
