"""The four aggregation mechanisms and the one function that answers with them.

A mechanism is public configuration only. The votes arrive as an argument and do not stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.errors import InputError
from terrine.noise import LARGEST, SMALLEST, UNIT, Noise, as_noise, require_room, to_lattice
from terrine.votes import Votes

ABSTAIN = -1
"""The label of a question that was not answered."""
NOISE_BOUNDS = (SMALLEST, LARGEST / 64)  # votes


def _noise(name: str, value: float) -> float:
    """A scale that the lattice can hold, give or take the number of teachers."""
    value = _validate.positive(name, value)
    least, most = NOISE_BOUNDS
    if not least <= value <= most:
        raise InputError(f"{name} must be from {least:g} to {most:g} votes, got {value:g}.")
    return value


@dataclass(frozen=True, kw_only=True)
class LNMax:
    """Release the class with the most votes after Laplace noise of ``scale`` votes on each count (PATE, 2017)."""

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _noise("scale", self.scale))


@dataclass(frozen=True, kw_only=True)
class GNMax:
    """Release the class with the most votes after Gaussian noise of ``sigma`` votes on each count."""

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _noise("sigma", self.sigma))


@dataclass(frozen=True, kw_only=True)
class ConfidentGNMax:
    """Answer by GNMax(sigma_vote) only where the top count plus noise of ``sigma_check`` reaches ``threshold``."""

    threshold: float
    sigma_check: float
    sigma_vote: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", _validate.number("threshold", self.threshold))
        object.__setattr__(self, "sigma_check", _noise("sigma_check", self.sigma_check))
        object.__setattr__(self, "sigma_vote", _noise("sigma_vote", self.sigma_vote))


@dataclass(frozen=True, kw_only=True)
class InteractiveGNMax(ConfidentGNMax):
    """Answer where the teachers disagree with the student; else reinforce a student that is sure of itself.

    The check's score is the largest excess of a count over ``n_teachers`` times the student's
    probability. Where the check fails and the student's top probability is above
    ``student_confidence``, the student's own label is returned; else the mechanism abstains.
    """

    student_confidence: float

    def __post_init__(self) -> None:
        super().__post_init__()
        confidence = _validate.number("student_confidence", self.student_confidence)
        if not 0 <= confidence <= 1:
            raise InputError(f"student_confidence must be from 0 to 1, got {confidence}.")
        object.__setattr__(self, "student_confidence", confidence)


Mechanism = LNMax | GNMax | ConfidentGNMax | InteractiveGNMax


class Outcome(IntEnum):
    """Where an answer came from."""

    ABSTAINED = 0
    TEACHERS = 1
    REINFORCED = 2  # the student's own label: no vote was released
    UNASKED = 3  # never put to the teachers, because budget or quota ran out: no noise was drawn, nothing was charged


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What a mechanism released: public, once it is paid for.

    Attributes:
        labels: (n_queries,) class index, or ABSTAIN = -1.
        outcomes: (n_queries,) an `Outcome` each.
        mechanism: what drew them; None where they are labels by a trained probe, for which nothing is drawn.
        secure: False where a seeded sampler drew the noise: such answers are not private.
    """

    labels: NDArray[np.int64]
    outcomes: NDArray[np.int64]
    mechanism: Mechanism | None
    secure: bool
    n_answered: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_answered", int(np.count_nonzero(self.outcomes == Outcome.TEACHERS)))

    @property
    def drawn_by(self) -> Mechanism:
        """The mechanism, where teachers voted; labels by a probe have none."""
        if self.mechanism is None:
            raise InputError("These are labels by a probe: nobody voted, and no mechanism drew them.")
        return self.mechanism

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        if self.mechanism is None:
            seeded = "" if self.secure else ", INSECURE: seeded noise, not private"
            return f"Answers({len(self)} rows, labeled by a probe{seeded})"
        reinforced = int((self.outcomes == Outcome.REINFORCED).sum())
        unasked = int((self.outcomes == Outcome.UNASKED).sum())
        never = f", {unasked} never asked: no room in the budget or quota" if unasked else ""
        warning = "" if self.secure else ", INSECURE: seeded noise, not private"
        return (
            f"Answers({len(self)} queries, {self.n_answered} answered by the teachers, {reinforced} reinforced, "
            f"{len(self) - self.n_answered - reinforced - unasked} withheld{never}{warning})"
        )


def answer(
    mechanism: Mechanism,
    votes: Votes,
    *,
    rng: Noise | np.random.Generator | None,
    student_proba: ArrayLike | None = None,
) -> Answers:
    """Draw noise and release. It charges nothing: the Labeller does, before it calls this.

    Args:
        mechanism: LNMax, GNMax, ConfidentGNMax or InteractiveGNMax.
        votes: the teachers' votes.
        rng: SecureNoise() or None for OpenDP's sampler; SeededNoise(seed) or a numpy Generator for
            experiments, which marks the answers insecure.
        student_proba: (n_queries, n_classes), for InteractiveGNMax only.

    Returns:
        Answers with one label per query.
    """
    noise = as_noise(rng)
    if not isinstance(votes, Votes):
        raise InputError(f"votes must be a Votes object, got {type(votes).__name__}.")
    if isinstance(mechanism, InteractiveGNMax) != (student_proba is not None):
        raise InputError("InteractiveGNMax needs student_proba; no other mechanism takes it.")
    lattice = votes.counts * UNIT  # (n_queries, n_classes)
    match mechanism:
        case LNMax(scale=scale):
            require_room(largest_count=votes.n_teachers, scale=scale)
            labels = _argmax(lattice + noise.laplace(lattice.shape, scale=scale), noise)
            outcomes = np.full(len(votes), Outcome.TEACHERS, dtype=np.int64)
        case GNMax(sigma=sigma):
            labels = _gaussian_argmax(lattice, noise, sigma=sigma, n_teachers=votes.n_teachers)
            outcomes = np.full(len(votes), Outcome.TEACHERS, dtype=np.int64)
        case ConfidentGNMax(threshold=threshold, sigma_check=sigma_check, sigma_vote=sigma_vote):
            require_room(largest_count=votes.n_teachers + abs(threshold), scale=sigma_check)
            proba = None if student_proba is None else validated_proba(student_proba, votes)
            score = check_scores(votes, proba)
            passed = score + noise.gaussian(score.shape, sigma=sigma_check) >= to_lattice(threshold)
            # Winners are drawn for all, so that neither noise nor time tells one query from another.
            winners = _gaussian_argmax(lattice, noise, sigma=sigma_vote, n_teachers=votes.n_teachers)
            labels = np.where(passed, winners, ABSTAIN)
            outcomes = np.where(passed, Outcome.TEACHERS, Outcome.ABSTAINED).astype(np.int64)
            if isinstance(mechanism, InteractiveGNMax) and proba is not None:
                reinforced = ~passed & (proba.max(axis=1) > mechanism.student_confidence)
                labels[reinforced] = proba[reinforced].argmax(axis=1)
                outcomes[reinforced] = Outcome.REINFORCED
        case _:
            raise InputError(
                f"mechanism must be LNMax, GNMax, ConfidentGNMax or InteractiveGNMax, got {type(mechanism).__name__}."
            )
    return Answers(labels=labels, outcomes=outcomes, mechanism=mechanism, secure=noise.secure)


def check_scores(votes: Votes, student_proba: NDArray[np.float64] | None) -> NDArray[np.int64]:
    """What the threshold check looks at, in lattice steps: a moved vote changes it by at most one vote.

    The public n_teachers·p is rounded to the lattice before the private counts come in, so that
    rounding cannot stretch the sensitivity.
    """
    excess = votes.counts * UNIT
    if student_proba is not None:
        excess = excess - to_lattice(votes.n_teachers * student_proba)
    result: NDArray[np.int64] = excess.max(axis=1)
    return result


def validated_proba(student_proba: ArrayLike, votes: Votes) -> NDArray[np.float64]:
    """The student's probabilities: one finite, non-negative row per query that sums to 1."""
    try:
        proba = np.asarray(student_proba, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("student_proba must be a table of numbers.") from None
    if proba.shape != votes.counts.shape:
        raise InputError(f"student_proba must have shape {votes.counts.shape}, got {proba.shape}.")
    bad = ~np.isfinite(proba).all(axis=1) | (proba < 0).any(axis=1) | (np.abs(proba.sum(axis=1) - 1) > 1e-4)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"Every row of student_proba must hold probabilities that sum to 1; row {row} sums to "
            f"{proba[row].sum():.6g}."
        )
    return proba


def _gaussian_argmax(lattice: NDArray[np.int64], noise: Noise, *, sigma: float, n_teachers: int) -> NDArray[np.int64]:
    require_room(largest_count=n_teachers, scale=sigma)
    return _argmax(lattice + noise.gaussian(lattice.shape, sigma=sigma), noise)


def _argmax(scores: NDArray[np.int64], noise: Noise) -> NDArray[np.int64]:
    """Row-wise argmax with uniform tie-breaking: ties broken by index would bend the law to first order."""
    top = scores == scores.max(axis=1, keepdims=True, initial=np.iinfo(np.int64).min)
    labels = top.argmax(axis=1)
    for row in np.flatnonzero(top.sum(axis=1) > 1):
        tied = np.flatnonzero(top[row])
        labels[row] = tied[noise.below(tied.size)]
    result: NDArray[np.int64] = labels.astype(np.int64)
    return result
