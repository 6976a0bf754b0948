"""Commands on votes alone: analyze, plan."""

from __future__ import annotations

import dataclasses
import re
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from terrine import _validate
from terrine.accounting.advice import Units, advise
from terrine.accounting.costs import Bound
from terrine.accounting.curves import Conversion, round_up
from terrine.accounting.planning import PlanAccountant, evaluate, least_noise, plan, rule_of_thumb
from terrine.budgets import mechanism_to_json
from terrine.cli.common import Delta, Json, Reveal, app, print_json, progress_bar
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError, OrderGridWarning
from terrine.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Mechanism
from terrine.release.analysis import AnalysisSettings, VotesAccountant, analyze_votes
from terrine.release.plan_tested import plan_tested
from terrine.release.tested import publishable_guarantee, tested_guarantee
from terrine.report.plots import plot_analysis
from terrine.report.tables import (
    plan_row,
    print_advice,
    print_analysis,
    print_plan,
    print_route,
    route_row,
    route_settings,
)
from terrine.votes import Votes

_ORDERS = 10_000  # at most, in a span
_POINTS = 100  # of a plot
_PUBLIC_ROWS = 1_000_000  # for a plan of rounds that is not told how many there are
MechanismName = Literal["confident", "gnmax", "lnmax", "interactive"]


@app.command()
def analyze(
    votes_file: Annotated[Path, typer.Argument(metavar="VOTES", help=".npy, .npz, .csv or .parquet file of votes.")],
    delta: Delta,
    mechanism: Annotated[MechanismName, typer.Option(help="How answers are released.")] = "confident",
    threshold: Annotated[float | None, typer.Option(help="Votes the noisy top count must reach.")] = None,
    sigma_check: Annotated[float | None, typer.Option(help="Noise of the threshold check, in votes.")] = None,
    sigma_vote: Annotated[float | None, typer.Option(help="Noise on each count of an answer, in votes.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Noise of gnmax, in votes.")] = None,
    scale: Annotated[float | None, typer.Option(help="Laplace scale of lnmax, in votes.")] = None,
    student_proba: Annotated[
        Path | None, typer.Option(help="interactive: .npy of the student's probabilities, a row per query.")
    ] = None,
    student_confidence: Annotated[
        float | None, typer.Option(help="interactive: reinforce above this probability (default: 0.9).")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option(help="Use only these rows, in this order: .npy of row numbers, from 0.")
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="Use only this number of rows, the first ones (default: all).")
    ] = None,
    answers: Annotated[
        int | None,
        typer.Option(help="Worst case for at most this number of answers (default: every query is answered)."),
    ] = None,
    accountant: Annotated[
        VotesAccountant,
        typer.Option(help="With --reveal: exact (Rényi), its privacy profile, or a bound as in the paper's tables."),
    ] = "exact",
    conversion: Annotated[Conversion, typer.Option(help="From Rényi to (epsilon, delta).")] = "tight",
    bound: Annotated[Bound, typer.Option(help="Worst case: winner only, or the whole noisy histogram.")] = "argmax",
    orders: Annotated[
        str | None, typer.Option(help="Rényi orders: a list '2,3.5,8' or whole numbers '2..9' (default: 298).")
    ] = None,
    records: Annotated[int | None, typer.Option(help="Number of private records: warns if delta is too large.")] = None,
    predictions: Annotated[
        bool, typer.Option("--predictions", help="The file holds predictions, a row per teacher.")
    ] = False,
    classes: Annotated[int | None, typer.Option(help="Number of classes; needed with --predictions.")] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Also ask what a tested release with this epsilon would need."),
    ] = None,
    teachers: Annotated[int | None, typer.Option(help="Number of teachers; needed with --target.")] = None,
    test_order: Annotated[float | None, typer.Option(help="With --target: Rényi order of the test.")] = None,
    test_share: Annotated[
        float | None,
        typer.Option(help="With --target: share of the rest that answers may cost, after the test (default: 0.8)."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a plot of epsilon by queries (.png, .svg, .pdf).")] = None,
    reveal: Reveal = False,
    as_json: Json = False,
) -> None:
    """What answering a file of votes would cost in privacy.

    Prints the epsilon that would hold had a ledger fixed these numbers before the first vote (no guarantee: a file does
    not show it) and, with --reveal, the cost computed from these votes, which is secret.
    """
    chosen = _mechanism(
        mechanism,
        threshold=threshold,
        sigma_check=sigma_check,
        sigma_vote=sigma_vote,
        sigma=sigma,
        scale=scale,
        student_confidence=0.9 if mechanism == "interactive" and student_confidence is None else student_confidence,
    )
    tested = None
    if target is not None:
        if teachers is None or classes is None or queries is None:
            raise InputError(
                "--target needs --teachers, --classes and --queries: all of it is fixed before the votes are read."
            )
        tested = tested_guarantee(  # before the file is opened
            chosen,
            target=target,
            delta=delta,
            n_teachers=teachers,
            n_classes=classes,
            n_queries=queries,
            n_answers=answers,
            order=test_order,
            share=0.8 if test_share is None else test_share,
        )
    elif (teachers, test_order, test_share) != (None,) * 3:
        raise InputError("--teachers, --test-order and --test-share need --target. Add it, or leave them out.")
    votes = Votes.load(votes_file, kind="predictions" if predictions else "histograms", n_classes=classes)
    if rows is not None:
        votes = _chosen_rows(votes, rows)
    if queries is not None:
        queries = _validate.integer("--queries", queries, at_least=1)
        if queries > len(votes):
            raise InputError(f"--queries must be at most {len(votes)}, the rows in {votes_file.name}, got {queries}.")
        votes = votes[:queries]
    if (mechanism == "interactive") != (student_proba is not None):
        raise InputError(
            "--mechanism interactive needs --student-proba."
            if student_proba is None
            else f"--student-proba needs --mechanism interactive; {mechanism} takes none."
        )
    with progress_bar(f"{accountant} accountant", quiet=as_json or not reveal) as progress:
        result = analyze_votes(
            votes,
            chosen,
            AnalysisSettings(
                delta=delta,
                n_answers=answers,
                accountant=accountant,
                conversion=conversion,
                bound=bound,
                orders=_parse_orders(orders),
                n_records=records,
                tested=tested,
            ),
            student_proba=_load_proba(student_proba, len(votes)),
            reveal=reveal,
            n_points=0 if plot is None else _POINTS,
            progress=progress,
        )
    if plot is not None:
        plot_analysis(result, plot)
    if as_json:
        print_json(result.to_json() | ({} if plot is None else {"plot": str(plot)}))
    else:
        print_analysis(result)
        if plot is not None:
            Console().print(f"Plot: {escape(str(plot))}")


@app.command("plan")
def plan_command(
    delta: Delta,
    epsilon: Annotated[float, typer.Option(help="The budget.")],
    teachers: Annotated[int | None, typer.Option(help="Number of teachers (with --consensus).")] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes (with --consensus).")] = None,
    consensus: Annotated[
        float | None, typer.Option(help="Assumed share of teachers that agree on an ordinary query, such as 0.9.")
    ] = None,
    standin: Annotated[
        Path | None, typer.Option(help="PUBLIC stand-in votes instead of an assumption; never the private ones.")
    ] = None,
    questions: Annotated[
        int | None, typer.Option(help="How many questions, each answered (GNMax): takes no assumption about votes.")
    ] = None,
    max_queries: Annotated[int | None, typer.Option(help="How many public inputs there are to ask about.")] = None,
    units: Annotated[
        int | None, typer.Option(help="About how many people (or rows) there are, from something public: do not count.")
    ] = None,
    accept_large_delta: Annotated[
        bool, typer.Option("--accept-large-delta", help="Plan with a delta that is not below 1/units all the same.")
    ] = False,
    min_accuracy: Annotated[
        float | None, typer.Option(help="Share of answers that must name the plurality (default: 0.95).")
    ] = None,
    accountant: Annotated[
        PlanAccountant,
        typer.Option(help="What must meet the budget: the worst case, or the exact cost."),
    ] = "worst-case",
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Plan this number of rounds with one budget: after the first the student is asked along."
        ),
    ] = None,
    wanted: Annotated[
        list[str] | None,
        typer.Option("--round", help="With --rounds, one for each: ANSWERS/QUERIES, for the least epsilon instead."),
    ] = None,
    route: Annotated[
        bool, typer.Option("--route", help="Also say whether the tested route would be expected to pay.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Find threshold, noise and number of questions for an epsilon.

    From public inputs only.
    """
    if [standin, consensus, questions].count(None) != 2:
        raise InputError(
            "Give exactly one of --consensus (an assumption), --standin (public votes) and --questions (each answered)."
        )
    known = None if units is None else Units(number=units, public=False)
    if questions is not None:
        others = [teachers, classes, max_queries, min_accuracy, rounds, wanted or None]
        if route or accountant != "worst-case" or others != [None] * 6:
            raise InputError(
                "--questions plans for the worst case, and takes none of --teachers, --classes, --max-queries, "
                "--min-accuracy, --accountant, --route, --rounds and --round. Leave them out."
            )
        _plan_questions(
            questions, epsilon=epsilon, delta=delta, units=known, accept_large_delta=accept_large_delta, as_json=as_json
        )
        return
    if standin is not None:
        votes = Votes.load(standin)
        for name, given, found in (("--teachers", teachers, votes.n_teachers), ("--classes", classes, votes.n_classes)):
            if given is not None and given != found:
                raise InputError(f"{name} is {given}, and {standin.name} has {found}. Leave it out.")
    elif teachers is None or classes is None or consensus is None:
        raise InputError("--consensus needs --teachers and --classes.")
    else:
        imagined = 10_000 if route else 400  # a test hangs on rare queries
        votes = synthetic_votes(n_queries=imagined, n_classes=classes, n_teachers=teachers, consensus=consensus)
    accurate = 0.95 if min_accuracy is None else min_accuracy
    if wanted and rounds is None:
        raise InputError("--round needs --rounds. Add --rounds, and --round ANSWERS/QUERIES for each of them.")
    if rounds is not None:
        if route or accountant != "worst-case":
            raise InputError("--rounds plans for the worst case: leave --route and --accountant out.")
        _plan_rounds(
            rounds,
            votes,
            wanted,
            epsilon=epsilon,
            delta=delta,
            max_queries=max_queries,
            min_accuracy=accurate,
            as_json=as_json,
            units=known,
            consensus=consensus,
            accept_large_delta=accept_large_delta,
        )
        return
    proposal = plan(
        standin=votes,
        epsilon=epsilon,
        delta=delta,
        max_queries=max_queries,
        min_accuracy=accurate,
        accountant=accountant,
    )
    start = evaluate(
        rule_of_thumb(n_teachers=votes.n_teachers),
        standin=votes,
        epsilon=epsilon,
        delta=delta,
        max_queries=max_queries,
        accountant=accountant,
    )
    for note in proposal.guarantee.notes:
        warnings.warn(note, OrderGridWarning, stacklevel=1)
    chosen = proposal.mechanism
    command = (
        f"terrine analyze VOTES --mechanism confident --threshold {chosen.threshold:g} "
        f"--sigma-check {chosen.sigma_check:g} --sigma-vote {chosen.sigma_vote:g} "
        f"--queries {proposal.n_queries} --answers {proposal.n_answers} --delta {delta!r}"
    )
    tested = None
    if route:
        with progress_bar("tested route", quiet=as_json) as progress:
            tested = plan_tested(
                proposal, standin=votes, max_queries=max_queries, min_accuracy=accurate, progress=progress
            )
    advice = advise(
        mechanism=chosen,
        n_queries=proposal.n_queries,
        n_answers=proposal.n_answers,
        delta=delta,
        n_teachers=votes.n_teachers,
        n_classes=votes.n_classes,
        n_public=max_queries,
        units=known,
        standin=votes,
        consensus=consensus,
        accept_large_delta=accept_large_delta,
    )
    if as_json:
        result = {**plan_row(proposal), "rule_of_thumb": plan_row(start), "analyze": command}
        result |= {"advice": advice.to_json()}
        if tested is not None and tested.pays:
            result |= {"settings": route_settings(tested, delta=delta, consensus=consensus)}
        print_json(result | ({"tested": None if tested is None else route_row(tested)} if route else {}))
        advice.check()
        return
    print_plan(proposal, start, title=f"A plan for ε = {epsilon:g} at δ = {delta:g} with {votes.n_teachers} teachers")
    print_advice(advice)
    console = Console()
    console.print(
        "Fix these numbers before the first query: the guarantee covers no more queries and answers than these."
    )
    console.print("What a file of votes would cost with these numbers:")
    print(f"  {command}")
    print("Confident-GNMax withholds unsure answers. terrine init writes gnmax, which answers all: fewer, but any row.")
    if route:
        print_route(tested, proposal)
        if tested is not None and tested.pays:
            print("In a run's settings, with this number of teachers, before anyone votes:")
            print(route_settings(tested, delta=delta, consensus=consensus))
            mechanism = tested.mechanism
            print(
                f"  terrine analyze VOTES --mechanism confident --threshold {mechanism.threshold:g} "
                f"--sigma-check {mechanism.sigma_check:g} --sigma-vote {mechanism.sigma_vote:g} "
                f"--queries {tested.n_queries} --answers {tested.n_answers} --delta {delta!r} "
                f"--target {round_up(tested.target)} --teachers {votes.n_teachers} --classes {votes.n_classes} "
                f"--test-order {tested.order:.5g} --test-share {tested.share:g}"
            )
    advice.check()


def _plan_rounds(
    n_rounds: int,
    votes: Votes,
    wanted: list[str] | None,
    *,
    epsilon: float,
    delta: float,
    max_queries: int | None,
    min_accuracy: float,
    as_json: bool,
    **told: Any,
) -> None:
    """``told`` is what `advise` takes of units, consensus and delta."""
    from terrine.runs.cheapest_rounds import cheapest_rounds, parsed_rounds
    from terrine.runs.plan_rounds import STUDENT_KNOWS, filter_of, plan_rounds, wishes
    from terrine.runs.rounds import toml_of

    n_public = max_queries or _PUBLIC_ROWS
    given: Any = {"standin": votes, "epsilon": epsilon, "delta": delta, "min_accuracy": min_accuracy}
    if wanted:
        found = cheapest_rounds(parsed_rounds(wanted, n_rounds=n_rounds, n_public=n_public), **given)
    else:
        found = plan_rounds(wishes(n_rounds), n_public=n_public, **given)
    budget, settings = filter_of(found, delta=delta), toml_of(found, delta=delta)
    advice = advise(  # of the first round, which must teach the student
        mechanism=found[0].mechanism,
        n_queries=found[0].n_queries,
        n_answers=found[0].n_answers,
        delta=delta,
        n_teachers=votes.n_teachers,
        n_classes=votes.n_classes,
        n_public=max_queries,
        standin=votes,
        **told,
    )
    if as_json:
        rounds = [
            {**mechanism_to_json(one.mechanism), "n_queries": one.n_queries, "n_answers": one.n_answers}
            for one in found
        ]
        print_json(
            {"rounds": rounds, "epsilon": budget.epsilon, "delta": delta, "order": budget.order, "toml": settings}
        )
        return
    print(f"A plan for ε = {epsilon:g} at δ = {delta:g} with {votes.n_teachers} teachers in {n_rounds} rounds:")
    for k, one in enumerate(found, start=1):
        print(f"Round {k}. {one.in_words}.")
    print(f"One budget pays for all rounds: ε = {round_up(budget.epsilon)} at δ = {delta:g}, whatever the votes are.")
    if n_rounds > 1:
        print(
            f"Later rounds assume that the student is sure of what most teachers choose for {STUDENT_KNOWS:.0%} of the "
            "rows. The guarantee does not."
        )
    print_advice(advice)
    print(f"In a run's settings, in the place of its [privacy]:\n\n{settings}")
    advice.check()


def _plan_questions(
    n_queries: int, *, epsilon: float, delta: float, units: Units | None, accept_large_delta: bool, as_json: bool
) -> None:
    chosen = least_noise(n_queries=n_queries, epsilon=epsilon, delta=delta)
    found = publishable_guarantee(chosen, n_queries=n_queries, delta=delta)
    command = (
        f"terrine analyze VOTES --mechanism gnmax --sigma {chosen.sigma:g} --queries {n_queries} --delta {delta!r}"
    )
    advice = advise(
        mechanism=chosen,
        n_queries=n_queries,
        n_answers=n_queries,
        delta=delta,
        units=units,
        accept_large_delta=accept_large_delta,
    )
    if as_json:
        result = {"sigma": chosen.sigma, "queries": n_queries, "epsilon": found.epsilon, "analyze": command}
        print_json({**result, "advice": advice.to_json()})
        advice.check()
        return
    console = Console()
    console.print(f"GNMax with sigma = {chosen.sigma:g} votes answers {n_queries} questions for", end=" ")
    console.print(f"ε = {round_up(found.epsilon)} at δ = {delta:g}, whatever the votes are.")
    print_advice(advice)
    console.print("An answer nearly always names the plurality where it leads by 5 sigma votes or more.")
    console.print("What a file of votes would cost with these numbers:")
    print(f"  {command}")
    advice.check()


def _mechanism(name: MechanismName, **given: float | None) -> Mechanism:
    """Build the mechanism from the options it takes; refuse missing ones and ones that would do nothing."""
    kind: Any = {"confident": ConfidentGNMax, "gnmax": GNMax, "lnmax": LNMax, "interactive": InteractiveGNMax}[name]
    wanted = [field.name for field in dataclasses.fields(kind)]
    for key, value in given.items():
        option = "--" + key.replace("_", "-")
        if key in wanted and value is None:
            raise InputError(f"--mechanism {name} needs {option}.")
        if key not in wanted and value is not None:
            raise InputError(f"--mechanism {name} takes no {option}: leave {option} {value:g} out.")
    result: Mechanism = kind(**{key: given[key] for key in wanted})
    return result


def _parse_orders(text: str | None) -> Any:
    if text is None:
        return None
    try:
        if span := re.fullmatch(r"\s*(\d+)\s*\.\.\s*(\d+)\s*", text):
            first, last = int(span[1]), int(span[2])
            if last - first >= _ORDERS:
                raise InputError(f"--orders must be at most {_ORDERS:,} numbers, got {text.strip()[:60]}.")
            return _validate.orders(np.arange(first, last + 1, dtype=np.float64))
        return _validate.orders([float(part) for part in text.split(",")])
    except (ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"--orders must be like '2,3.5,8' or '2..9', got {text[:60]!r}.") from None


def _load_array(path: Path) -> Any:
    """What an .npy file holds; None where it is no such file."""
    try:
        with path.open("rb") as file:
            return np.load(file, allow_pickle=False)
    except Exception:  # numpy raises many types for files that are not what they say
        return None


def _chosen_rows(votes: Votes, path: Path) -> Votes:
    rows = _load_array(path)
    if not isinstance(rows, np.ndarray) or rows.ndim != 1 or rows.dtype.kind not in "iu" or not rows.size:
        raise InputError(f"--rows must be an .npy file with a list of whole numbers; {path.name} is not.")
    if rows.min() < 0 or rows.max() >= len(votes):
        raise InputError(f"--rows must be from 0 to {len(votes) - 1}, the rows of the votes; {path.name} has others.")
    if len(np.unique(rows)) < len(rows):
        raise InputError(f"--rows names a row twice in {path.name}: a question that is repeated is answered once.")
    return Votes(votes.counts[rows], n_teachers=votes.n_teachers)


def _load_proba(path: Path | None, n_queries: int) -> Any:
    if path is None:
        return None
    proba = _load_array(path)
    if not isinstance(proba, np.ndarray) or proba.ndim != 2:
        raise InputError(
            f"--student-proba must be an .npy file with a row of probabilities per query; {path.name} is not."
        )
    return proba[:n_queries]
