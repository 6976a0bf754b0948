"""Will it work? What a plan gives a teacher, a student and an attacker, in plain words and from public numbers only.

Every finding follows from arguments that are public. The number of private units is an argument only where the
neighbouring relation makes it public; otherwise it is a number that somebody planned with.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from terrine import _validate
from terrine.accounting.costs import worst_case_cost
from terrine.accounting.curves import guarantee, round_up
from terrine.accounting.planning import expected_answers
from terrine.errors import InputError, OrderGridWarning
from terrine.mechanisms import ConfidentGNMax, GNMax, LNMax, Mechanism
from terrine.votes import Votes

Severity = Literal["refuse", "warn", "info"]

FEW_UNITS = 10  # of a teacher: fewer seldom teach anything, and never more classes than units
ANSWERS_EACH = 5  # of a class: fewer seldom teach a student
WEAK_EPSILON = 10.0
ACCURATE = 0.8  # share of answers that name the plurality, below which a student learns mostly noise
# Of a probe, mu times units: docs/probe.md, Too few units, says what was tried
LOST_SIGNAL, WEAK_SIGNAL = 16.0, 70.0
_EXPECT = ((450.0, "a few points below"), (150.0, "clearly below"), (WEAK_SIGNAL, "well below"))
TOO_FEW = ("fewer_answers_than_classes", "few_answers")
OF_NOISE_ALONE = (
    "This plan is about noise alone: it does not say whether your columns predict the label, nor that a rare class "
    "will ever be named."
)
DELTA_UNKNOWN_UNITS = 1e-3  # without a number of units: fewer than 1,000 units hardly make an ensemble


def consensus_for(units_per_teacher: float) -> float:
    """What to assume where nothing is known of the task: docs/guides/epsilon.md, Consensus."""
    return 0.8 if units_per_teacher >= 100 else 0.7 if units_per_teacher >= 30 else 0.6


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a plan means.

    Attributes:
        code: which, for programs.
        severity: "refuse": a run stops before anything is taught or spent; "warn"; "info".
        says: one sentence.
        advice: what to do; empty where there is nothing to do.
    """

    code: str
    severity: Severity
    says: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.says} {self.advice}".strip()


@dataclass(frozen=True, kw_only=True)
class Units:
    """How many units (people, or rows where a row is its own unit) there are, as far as that is public.

    Attributes:
        number: how many.
        public: True: the neighbouring relation makes the true number public; False: a number to plan with.
    """

    number: int
    public: bool

    def __post_init__(self) -> None:
        _validate.integer("units", self.number, at_least=1)


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What a plan means; all of it public.

    Attributes:
        units: what was assumed about the number of units; None: nothing.
        units_per_teacher: on average.
        expected_answers: how many answers to expect; None without an assumption about votes.
        expected_accuracy: share of them that name the class that most teachers choose.
        consensus: the assumption: share of teachers that agree on an ordinary row; None where votes stood in for it.
    """

    findings: tuple[Finding, ...]
    units: Units | None
    units_per_teacher: float | None
    expected_answers: float | None
    expected_accuracy: float | None
    consensus: float | None

    @property
    def refusals(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.severity == "refuse")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.severity == "warn")

    @property
    def infos(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.severity == "info")

    def check(self) -> None:
        """Raise InputError where something is refused."""
        if self.refusals:
            raise InputError(f"{' '.join(map(str, self.refusals))} Nothing was taught or spent.")

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"findings": [asdict(one) for one in self.findings]}


def advise(
    *,
    mechanism: Mechanism,
    n_queries: int,
    n_answers: int,
    delta: float,
    n_teachers: int | None = None,
    n_classes: int | None = None,
    n_public: int | None = None,
    units: Units | None = None,
    standin: Votes | None = None,
    consensus: float | None = None,
    accept_large_delta: bool = False,
    target: float | None = None,
    instead: Callable[[], str] = str,
) -> Advice:
    """Look at a plan from all sides that public numbers show.

    Args:
        mechanism, n_queries, n_answers: what answers, how often it is asked and may answer at most.
        delta: of the guarantee.
        n_teachers, n_classes, n_public: None where not known; what needs them is then left out.
        units: how many units the teachers share.
        standin: PUBLIC votes that stand in for the teachers'; None: nothing is assumed about votes.
        consensus: the assumption that ``standin`` was made from, to name it.
        accept_large_delta: a delta that is too large is then a warning.
        target: epsilon of a tested release, which claims that in place of the worst case.
        instead: where the answers are too few, what would give more, in a sentence.
    """
    share = None if units is None or n_teachers is None else units.number / n_teachers
    expected = accuracy = None
    if standin is not None and isinstance(mechanism, ConfidentGNMax | GNMax | LNMax):
        rate, accuracy = expected_answers(mechanism, standin=standin)
        expected = min(float(n_answers), n_queries * rate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrderGridWarning)  # said where the guarantee is given
        worst = worst_case_cost(mechanism, n_queries=n_queries, n_answered=n_answers)
        epsilon = guarantee(worst, delta=delta).epsilon
    found = [
        *_about_units(units, share, n_teachers, n_classes),
        *_about_delta(delta, units, accept=accept_large_delta),
        *about_epsilon(epsilon if target is None else target),
        *_about_public_rows(n_queries, n_public),
        *_about_answers(n_queries, n_answers, expected, accuracy, n_classes, consensus, standin),
    ]
    if any(one.code in TOO_FEW for one in found):
        more = instead()
        found = [replace(one, advice=f"{one.advice} {more}".strip()) if one.code in TOO_FEW else one for one in found]
    order = ("refuse", "warn", "info")
    return Advice(
        findings=tuple(sorted(found, key=lambda one: order.index(one.severity))),
        units=units,
        units_per_teacher=share,
        expected_answers=expected,
        expected_accuracy=accuracy,
        consensus=consensus,
    )


def advise_probe(
    *, signal: float, epsilon: float, delta: float, units: Units, enough: float | None, accept_large_delta: bool = False
) -> Advice:
    """Whether a probe can learn anything from this number of units.

    Args:
        signal: the number of units times what one of them may show, in Gaussian differential privacy.
        enough: an epsilon with which the units are enough; None where there is none below 10.
    """
    found = [*_about_signal(signal, epsilon, units, enough), *_about_delta(delta, units, accept=accept_large_delta)]
    found += about_epsilon(epsilon)
    order = ("refuse", "warn", "info")
    return Advice(
        findings=tuple(sorted(found, key=lambda one: order.index(one.severity))),
        units=units,
        units_per_teacher=None,
        expected_answers=None,
        expected_accuracy=None,
        consensus=None,
    )


def _about_signal(signal: float, epsilon: float, units: Units, enough: float | None) -> list[Finding]:
    what = f"{units.number:,} units{'' if units.public else ' (planned)'}"
    if signal >= WEAK_SIGNAL:
        says = (
            f"The probe learns from {what}. At ε = {epsilon:g} all of them together are about {signal:,.0f} times as "
            f"strong as the noise: expect its accuracy {next(words for least, words in _EXPECT if signal >= least)} "
            "that of a linear model without privacy."
        )
        return [Finding(code="units", severity="info", says=says)]
    least = units.number * WEAK_SIGNAL / signal
    tens = 10 ** math.floor(math.log10(least))
    more = f"About {math.ceil(least / tens) * tens:,} units" + ("" if enough is None else f", or ε = {enough:g},")
    advice = f"{more} would be enough."
    if signal < LOST_SIGNAL:
        says = (
            f"{what} are too few for a probe at ε = {epsilon:g}: the noise would hide what they have in common, and "
            "the probe would be hardly better than always naming the commonest class."
        )
        return [Finding(code="signal_lost", severity="refuse", says=says, advice=advice)]
    says = f"{what} are few for a probe at ε = {epsilon:g}: it will learn little more than which classes are common."
    return [Finding(code="signal_weak", severity="warn", says=says, advice=advice)]


def _about_units(
    units: Units | None, share: float | None, n_teachers: int | None, n_classes: int | None
) -> list[Finding]:
    if units is None:
        return [
            Finding(
                code="units_unknown",
                severity="info",
                says="The number of units (people, or rows) is not given, so whether the teachers have enough to learn "
                "from, and whether δ is small enough, could not be checked.",
                advice="Give a planning number: units_planned under [data], --units or planned_units=.",
            )
        ]
    if share is None or n_teachers is None:
        return []
    what = f"{units.number:,} units{'' if units.public else ' (planned)'} for {n_teachers:,} teachers"
    if share < 1:
        return [
            Finding(
                code="more_teachers_than_units",
                severity="refuse",
                says=f"There are more teachers than units: {what}.",
                advice=f"Use at most {max(1, units.number // FEW_UNITS):,} teachers.",
            )
        ]
    each = f"about {share:,.0f}" if share >= FEW_UNITS else f"about {share:.1f}"
    says = f"A teacher learns from {each} units: {what}."
    least = max(FEW_UNITS, n_classes or 0)
    if share < least:
        fewer = max(1, units.number // least)
        why = f"fewer than the {n_classes} classes" if n_classes == least > FEW_UNITS else "very few"
        return [
            Finding(
                code="few_units",
                severity="warn",
                says=f"{says[:-1]}, which is {why}.",
                advice=f"Use at most {fewer:,} teachers, or let them see features learned from public rows.",
            )
        ]
    return [Finding(code="units", severity="info", says=says)]


def _about_delta(delta: float, units: Units | None, *, accept: bool) -> list[Finding]:
    if units is None:
        if delta < DELTA_UNKNOWN_UNITS:
            return []
        says = f"δ = {delta:g} is too large: it must be far below one over the number of units."
    elif delta < 1 / units.number:
        return []
    else:
        many = math.floor(delta * units.number)
        whom = "one of them" if many < 2 else f"{many:,} of them"
        says = f"δ = {delta:g} is too large for {units.number:,} units: it would allow publishing {whom} outright."
    most = DELTA_UNKNOWN_UNITS / 100 if units is None else 0.1 / units.number
    return [
        Finding(
            code="delta_large",
            severity="warn" if accept else "refuse",
            says=says,
            advice=f"Use a δ of at most {10.0 ** math.floor(math.log10(most) + 1e-9):g}"
            + ("." if accept else ", or set accept_large_delta if you mean it."),
        )
    ]


def about_epsilon(epsilon: float) -> list[Finding]:
    """Whether a guarantee is a weak one."""
    if epsilon <= WEAK_EPSILON:
        return []
    return [
        Finding(
            code="epsilon_weak",
            severity="warn",
            says=f"ε = {round_up(epsilon)} is a weak guarantee: an attacker's odds may grow more than "
            f"{math.exp(WEAK_EPSILON):,.0f} times.",
            advice="Use more noise, fewer questions or more teachers; ε of 1 to 3 is usual.",
        )
    ]


def _about_public_rows(n_queries: int, n_public: int | None) -> list[Finding]:
    if n_public is None or n_queries <= n_public:
        return []
    return [
        Finding(
            code="public_rows",
            severity="refuse",
            says=f"{n_queries:,} questions are planned, but there are only {n_public:,} public rows to ask about.",
            advice=f"Ask at most {n_public:,} questions, or add public rows.",
        )
    ]


def _about_answers(
    n_queries: int,
    n_answers: int,
    expected: float | None,
    accuracy: float | None,
    n_classes: int | None,
    consensus: float | None,
    standin: Votes | None,
) -> list[Finding]:
    found = []
    if expected is not None and accuracy is not None:
        assumed = "votes like the stand-ins" if consensus is None else f"{consensus:.0%} agreement on an ordinary row"
        says = (
            f"Of {n_queries:,} questions about {expected:,.0f} would be answered, and about {accuracy:.0%} of the "
            f"answers would name the class that most teachers choose, assuming {assumed}."
        )
        if accuracy < ACCURATE:
            more = "The noise is too large for these teachers: use more of them, fewer questions or a larger ε."
            found.append(Finding(code="inaccurate_answers", severity="warn", says=says, advice=more))
        else:
            found.append(Finding(code="answers", severity="info", says=says))
    elif standin is None:
        found.append(
            Finding(
                code="consensus_unknown",
                severity="info",
                says="No consensus is assumed, so the number of right answers could not be estimated.",
                advice="Set consensus, the share of teachers that you expect to agree on an ordinary row.",
            )
        )
    if n_classes is None:
        return found
    answers = float(n_answers) if expected is None else expected
    some = "at most" if expected is None else "about"
    more = "Use a larger ε, more teachers or more public rows, or merge rare classes."
    if answers < n_classes:
        found.append(
            Finding(
                code="fewer_answers_than_classes",
                severity="refuse",
                says=f"This plan gives {some} {answers:,.0f} answers for {n_classes:,} classes: a student cannot learn "
                "every class.",
                advice=more,
            )
        )
    elif answers < ANSWERS_EACH * n_classes:
        found.append(
            Finding(
                code="few_answers",
                severity="warn",
                says=f"This plan gives {some} {answers:,.0f} answers for {n_classes:,} classes, fewer than "
                f"{ANSWERS_EACH} a class: a student will probably learn little.",
                advice=more,
            )
        )
    return found
