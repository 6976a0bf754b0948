"""What answering a set of votes costs, as one table of numbers: the library's side of `terrine analyze`.

Public numbers only, unless ``reveal`` asks for those that depend on the votes.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.accounting.costs import Accountant, Bound, Progress, expected_answered, running_cost, worst_case_cost
from terrine.accounting.curves import ORDERS, Conversion, RdpCurve, guarantee
from terrine.mechanisms import ConfidentGNMax, LNMax, Mechanism
from terrine.release.tested import ConditionalGuarantee, publishable_guarantee
from terrine.report.plots import epsilon_by_query
from terrine.sensitive import Sensitive
from terrine.votes import Votes

SECRET = "secret: depends on private votes"


def analyze_votes(
    votes: Votes,
    mechanism: Mechanism,
    *,
    delta: float,
    n_answers: int | None = None,
    accountant: Accountant = "exact",
    conversion: Conversion = "tight",
    bound: Bound = "argmax",
    orders: ArrayLike = ORDERS,
    n_records: int | None = None,
    student_proba: NDArray[np.float64] | None = None,
    tested: ConditionalGuarantee | None = None,
    plot: Path | None = None,
    reveal: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The publishable worst case and, with ``reveal``, the data-dependent cost; JSON-ready.

    Args:
        n_answers: worst case for at most so many answers; every query unless given.
        tested: the tested route, if it was chosen before the votes were read.
        plot: write epsilon by query to this file.
        reveal: add what depends on the votes, marked as secret. The bounds ("paper", "sanitizable") are given as the
            expectations of the paper's tables, "exact" as the divergence that it is.
    """
    orders = _validate.orders(orders)
    worst = publishable_guarantee(
        mechanism,
        n_queries=len(votes),
        n_answers=n_answers,
        delta=delta,
        orders=orders,
        bound=bound,
        conversion=conversion,
        n_records=n_records,
    )
    shown = publishable_guarantee(mechanism, n_queries=len(votes), delta=delta, tested=tested) if tested else worst
    result: dict[str, Any] = {
        "mechanism": {"name": type(mechanism).__name__, **dataclasses.asdict(mechanism)},
        "n_teachers": votes.n_teachers,
        "n_classes": votes.n_classes,
        "queries": len(votes),
        "answers_at_most": len(votes) if n_answers is None else n_answers,
        "delta": delta,
        "conversion": conversion,
        "bound": bound,
        "data_independent_epsilon": worst.epsilon,
        "data_independent_order": worst.order,
        "publishable": {
            "route": "tested" if tested else "worst case",
            "epsilon": shown.epsilon,
            "delta": shown.delta,
            "order": shown.order,
            "why": shown.basis,
        },
        "relation": worst.relation,
    }
    n = len(votes)
    stops = np.unique(np.linspace(1, n, min(n, 100)).astype(np.int64)) if plot is not None else np.array([n])
    curves: list[RdpCurve] | None = None
    if reveal:
        secrets = running_cost(
            mechanism,
            votes,
            stops=stops.tolist(),
            orders=orders,
            accountant=accountant,
            student_proba=student_proba,
            expected=accountant != "exact",
            progress=progress,
        )
        curves = [secret.reveal() for secret in secrets]
        # Wrapped again, so that a warning about these votes stays in the notes.
        on_these_votes = guarantee(Sensitive(curves[-1]), delta=delta, conversion=conversion).reveal()
        result |= {
            "accountant": accountant,
            "epsilon": on_these_votes.epsilon,
            "order": on_these_votes.order,
            "expected_answered": expected_answered(mechanism, votes, student_proba=student_proba).reveal(),
            "basis": on_these_votes.basis,
            "notes": list(on_these_votes.notes),
            "secret": SECRET,
        }
        if tested is not None:
            result["pass_chance"] = tested.pass_chance(votes).reveal()
    if plot is not None:
        _plot(plot, mechanism, result, stops=stops, orders=orders, curves=curves)
        result["plot"] = str(plot)
    return result


def _plot(
    path: Path, mechanism: Mechanism, result: dict[str, Any], *, stops: Any, orders: Any, curves: list[RdpCurve] | None
) -> None:
    """Epsilon after 1, 2, ..., n queries, answers growing in proportion to the number fixed beforehand."""
    n, delta = result["queries"], result["delta"]
    convert = {"delta": delta, "conversion": result["conversion"]}

    def worst(bound: Bound) -> Any:
        has_check = isinstance(mechanism, ConfidentGNMax)
        answered = [-(-int(k) * result["answers_at_most"] // n) if has_check else int(k) for k in stops]
        return np.array(
            [
                worst_case_cost(mechanism, n_queries=int(k), n_answered=a, orders=orders, bound=bound).epsilon(
                    **convert
                )
                for k, a in zip(stops, answered, strict=True)
            ]
        )

    epsilon_by_query(
        path,
        queries=stops,
        worst_case=worst("argmax"),
        gaussian=None if isinstance(mechanism, LNMax) else worst("gaussian"),
        revealed=None if curves is None else np.array([one.epsilon(**convert) for one in curves]),
        revealed_label=f"on these votes, {result.get('accountant')} accountant (secret)",
        delta=delta,
        title=f"{result['mechanism']['name']}, {result['n_teachers']:,} teachers, {result['n_classes']} classes",
    )
