"""The command line: library verbs, no logic of its own.

Exit codes: 0 ok, 2 bad input (one line), 3 budget exhausted.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from terrine import __version__, _validate
from terrine.accounting.costs import Bound, cost, expected_answered, expected_cost, worst_case_cost
from terrine.accounting.curves import ORDERS, Conversion, RdpCurve, guarantee, round_up
from terrine.accounting.planning import Plan, evaluate, plan, rule_of_thumb
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError, TerrineError, TerrineWarning
from terrine.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Mechanism
from terrine.votes import Votes

SECRET = "secret: depends on private votes"
MechanismName = Literal["confident", "gnmax", "lnmax", "interactive"]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Delta = Annotated[float, typer.Option(help="The delta of (epsilon, delta); below one over the number of records.")]

app = typer.Typer(
    name="terrine",
    help="Private learning by PATE, with an epsilon you can defend.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line; a user's mistake becomes one line and exit code 2."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TerrineWarning)
        try:
            code = app(prog_name="terrine", standalone_mode=False)
        except TerrineError as error:
            code = _complain(str(error))
        except typer.TyperException as error:
            code = _complain(error.format_message())
        except (KeyboardInterrupt, typer.Abort):
            code = _complain("Interrupted.", 130)
    for warning in caught:
        print(f"terrine: warning: {warning.message}", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int = 2) -> int:
    print(f"terrine: {' '.join(message.split())}", file=sys.stderr)
    return code


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"terrine {__version__}")
        raise typer.Exit()


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
        float | None, typer.Option(help="interactive: reinforce above this probability (0.9 unless given).")
    ] = None,
    queries: Annotated[int | None, typer.Option(help="Use the first so many rows (default: all).")] = None,
    answers: Annotated[
        int | None, typer.Option(help="Worst case for at most so many answers (default: every query is answered).")
    ] = None,
    accountant: Annotated[Literal["paper"], typer.Option(help="Data-dependent accountant.")] = "paper",
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
    plot: Annotated[Path | None, typer.Option(help="Write a plot of epsilon by queries (.png, .svg, .pdf).")] = None,
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Also show numbers that depend on the private votes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What answering these votes costs: the publishable worst case and, with --reveal, the data-dependent cost."""
    votes = Votes.load(votes_file, kind="predictions" if predictions else "histograms", n_classes=classes)
    if queries is not None:
        queries = _validate.integer("--queries", queries, at_least=1)
        if queries > len(votes):
            raise InputError(f"Expected --queries of at most {len(votes)} (rows in {votes_file.name}), got {queries}.")
        votes = votes[:queries]
    chosen = _mechanism(
        mechanism,
        threshold=threshold,
        sigma_check=sigma_check,
        sigma_vote=sigma_vote,
        sigma=sigma,
        scale=scale,
        student_confidence=0.9 if mechanism == "interactive" and student_confidence is None else student_confidence,
    )
    if (mechanism == "interactive") != (student_proba is not None):
        raise InputError("Expected --student-proba with --mechanism interactive and with no other.")
    _analyze(
        votes,
        chosen,
        n_answers=answers,
        delta=delta,
        accountant=accountant,
        conversion=conversion,
        bound=bound,
        orders=_parse_orders(orders),
        records=records,
        proba=_load_proba(student_proba, len(votes)),
        plot=plot,
        reveal=reveal,
        as_json=as_json,
    )


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
    max_queries: Annotated[int | None, typer.Option(help="How many public inputs there are to ask about.")] = None,
    min_accuracy: Annotated[float, typer.Option(help="Share of answers that must name the plurality.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Threshold, noise and number of queries for a budget, from public inputs only."""
    if (standin is None) == (consensus is None):
        raise InputError(
            "Expected either --consensus (an assumption) or --standin (public votes), not both, not neither."
        )
    if standin is not None:
        votes = Votes.load(standin)
        for name, given, found in (("--teachers", teachers, votes.n_teachers), ("--classes", classes, votes.n_classes)):
            if given is not None and given != found:
                raise InputError(f"Expected {name} {found} (as in {standin.name}), got {given}.")
    elif teachers is None or classes is None or consensus is None:
        raise InputError("Expected --teachers and --classes with --consensus, got one of them missing.")
    else:
        votes = synthetic_votes(n_queries=400, n_classes=classes, n_teachers=teachers, consensus=consensus)
    proposal = plan(standin=votes, epsilon=epsilon, delta=delta, max_queries=max_queries, min_accuracy=min_accuracy)
    start = evaluate(
        rule_of_thumb(n_teachers=votes.n_teachers),
        standin=votes,
        epsilon=epsilon,
        delta=delta,
        max_queries=max_queries,
    )
    chosen = proposal.mechanism
    command = (
        f"terrine analyze VOTES --mechanism confident --threshold {chosen.threshold:g} "
        f"--sigma-check {chosen.sigma_check:g} --sigma-vote {chosen.sigma_vote:g} "
        f"--queries {proposal.n_queries} --answers {proposal.n_answers} --delta {delta:g}"
    )
    if as_json:
        _print_json({**_plan_row(proposal), "rule_of_thumb": _plan_row(start), "analyze": command})
        return
    table = Table(
        title=f"A plan for ε = {epsilon:g} at δ = {delta:g} with {votes.n_teachers} teachers", title_style="bold"
    )
    table.add_column("")
    table.add_column("proposed", justify="right", style="bold")
    table.add_column("rule of thumb", justify="right")
    for label, key in (
        ("threshold (votes)", "threshold"),
        ("noise of the check (votes)", "sigma_check"),
        ("noise of an answer (votes)", "sigma_vote"),
        ("queries to put", "n_queries"),
        ("answers at most", "n_answers"),
        ("answers that name the plurality", "right_answers"),
        ("… as a share of the answers", "accuracy"),
        ("checks' share of the budget", "check_share"),
        ("ε, worst case over all votes", "epsilon"),
    ):
        table.add_row(label, *(_cell(key, _plan_row(p)[key]) for p in (proposal, start)))
    console = Console()
    console.print(table)
    console.print("Fix these numbers before the first query: the guarantee is for at most so many queries and answers.")
    console.print("Check it against your votes:")
    print(f"  {command}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plot.")] = Path("demo"),
    as_json: Json = False,
) -> None:
    """The privacy analysis of a built-in synthetic vote set, with its table and plot: nothing to download."""
    out.mkdir(parents=True, exist_ok=True)
    votes = synthetic_votes(n_queries=1000, n_classes=10, n_teachers=250, consensus=0.9)
    if not as_json:
        print("250 imagined teachers vote on 1,000 queries in 10 classes (synthetic: nobody's data, so all is shown).")
    _analyze(
        votes,
        ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40),
        n_answers=600,
        delta=1e-5,
        accountant="paper",
        conversion="tight",
        bound="argmax",
        orders=ORDERS,
        records=60_000,
        proba=None,
        plot=out / "epsilon.png",
        reveal=True,
        as_json=as_json,
    )


def _analyze(
    votes: Votes,
    mechanism: Mechanism,
    *,
    n_answers: int | None,
    delta: float,
    accountant: Literal["paper"],
    conversion: Conversion,
    bound: Bound,
    orders: Any,
    records: int | None,
    proba: Any,
    plot: Path | None,
    reveal: bool,
    as_json: bool,
) -> None:
    worst = guarantee(
        worst_case_cost(mechanism, n_queries=len(votes), n_answered=n_answers, orders=orders, bound=bound),
        delta=delta,
        conversion=conversion,
        n_records=records,
    )
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
        "relation": worst.relation,
    }
    if reveal:
        expected = expected_cost(mechanism, votes, orders=orders, student_proba=proba)
        data_dependent = guarantee(expected, delta=delta, conversion=conversion).reveal()
        every = cost(mechanism, votes, orders=orders, accountant=accountant, student_proba=proba)
        result |= {
            "accountant": accountant,
            "epsilon": data_dependent.epsilon,
            "order": data_dependent.order,
            "epsilon_if_every_query_is_answered": guarantee(every, delta=delta, conversion=conversion).reveal().epsilon,
            "expected_answered": expected_answered(mechanism, votes, student_proba=proba).reveal(),
            "basis": data_dependent.basis,
            "notes": list(data_dependent.notes),
            "secret": SECRET,
        }
    if plot is not None:
        _plot(plot, votes, mechanism, result, orders=orders, proba=proba, reveal=reveal, console=not as_json)
        result["plot"] = str(plot)
    if as_json:
        _print_json(result)
    else:
        _print_analysis(result)


def _print_analysis(result: dict[str, Any]) -> None:
    def add(label: str, value: str, about: str = "") -> None:
        table.add_row(label, value, about)

    table = Table(title="What these answers cost", title_style="bold")
    for column, justify in (("", "left"), ("", "right"), ("", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    table.show_header = False
    mechanism = dict(result["mechanism"])
    name = mechanism.pop("name")
    add("mechanism", name, ", ".join(f"{key}={value:g}" for key, value in mechanism.items()))
    add("queries", f"{result['queries']:,}", f"{result['n_teachers']:,} teachers, {result['n_classes']} classes")
    answered = result["answers_at_most"]
    if name in ("ConfidentGNMax", "InteractiveGNMax"):
        add("answers, at most", f"{answered:,}", "fixed beforehand; --answers")
    add(
        "ε, worst case",
        f"[bold]{round_up(result['data_independent_epsilon'])}[/bold]",
        f"publishable; δ={result['delta']:g}, {result['bound']} bound, order {result['data_independent_order']:g}",
    )
    if "secret" in result:
        table.add_section()
        add("[red]secret[/red]", "", "[red]the lines below depend on private votes: do not publish them[/red]")
        add("answers, expected", f"{result['expected_answered']:,.1f}", "")
        add(
            "ε on these votes",
            round_up(result["epsilon"]),
            f"{result['accountant']} accountant, {result['conversion']} conversion, order {result['order']:g}",
        )
        add("", "", result["basis"])
        if answered == result["queries"] and name not in ("LNMax", "GNMax"):
            add("ε if all are answered", round_up(result["epsilon_if_every_query_is_answered"]), "")
        for note in result["notes"]:
            add("note", "", note)
    console = Console()
    console.print(table)
    console.print(f"Neighbours: {result['relation']}. Epsilons are rounded up.")
    if "secret" not in result:
        console.print("Numbers that depend on the votes are withheld; --reveal shows them.")
    if "plot" in result:
        console.print(f"Plot: {result['plot']}")


def _plot(
    path: Path,
    votes: Votes,
    mechanism: Mechanism,
    result: dict[str, Any],
    *,
    orders: Any,
    proba: Any,
    reveal: bool,
    console: bool,
) -> None:
    """Epsilon after 1, 2, ..., n queries, answers growing in proportion to the number fixed beforehand."""
    from rich.progress import track

    from terrine.report.plots import epsilon_by_query

    n = len(votes)
    points = np.unique(np.linspace(1, n, min(n, 100)).astype(np.int64))
    delta, conversion = result["delta"], result["conversion"]

    def epsilon(curve: RdpCurve) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TerrineWarning)
            return guarantee(curve, delta=delta, conversion=conversion).epsilon

    def worst(bound: Bound) -> Any:
        has_check = isinstance(mechanism, ConfidentGNMax)
        answered = [-(-int(k) * result["answers_at_most"] // n) if has_check else int(k) for k in points]
        return np.array(
            [
                epsilon(worst_case_cost(mechanism, n_queries=int(k), n_answered=a, orders=orders, bound=bound))
                for k, a in zip(points, answered, strict=True)
            ]
        )

    revealed = None
    if reveal:
        curve, revealed, start = None, [], 0
        for stop in track(points, description="epsilon by query", disable=not console, transient=True):
            rows = slice(start, int(stop))
            part = expected_cost(
                mechanism, votes[rows], orders=orders, student_proba=None if proba is None else proba[rows]
            ).reveal()
            curve = part if curve is None else curve + part
            revealed.append(epsilon(curve))
            start = int(stop)
    epsilon_by_query(
        path,
        queries=points,
        worst_case=worst("argmax"),
        gaussian=None if isinstance(mechanism, LNMax) else worst("gaussian"),
        revealed=None if revealed is None else np.array(revealed),
        revealed_label="on these votes, the paper's accountant (secret)",
        delta=delta,
        title=f"{result['mechanism']['name']}, {votes.n_teachers:,} teachers, {votes.n_classes} classes",
    )


def _mechanism(name: MechanismName, **given: float | None) -> Mechanism:
    """Build the mechanism from the options it takes; refuse missing ones and ones that would do nothing."""
    kind: Any = {"confident": ConfidentGNMax, "gnmax": GNMax, "lnmax": LNMax, "interactive": InteractiveGNMax}[name]
    wanted = [field.name for field in dataclasses.fields(kind)]
    for key, value in given.items():
        option = "--" + key.replace("_", "-")
        if key in wanted and value is None:
            raise InputError(f"Expected {option} with --mechanism {name}, got none.")
        if key not in wanted and value is not None:
            raise InputError(f"Expected no {option} with --mechanism {name}, got {option} {value:g}.")
    result: Mechanism = kind(**{key: given[key] for key in wanted})
    return result


def _parse_orders(text: str | None) -> Any:
    if text is None:
        return ORDERS
    if span := re.fullmatch(r"\s*(\d+)\s*\.\.\s*(\d+)\s*", text):
        return _validate.orders(np.arange(int(span[1]), int(span[2]) + 1))
    try:
        return _validate.orders([float(part) for part in text.split(",")])
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"Expected --orders such as '2,3.5,8' or '2..9', got {text!r}.") from None


def _load_proba(path: Path | None, n_queries: int) -> Any:
    if path is None:
        return None
    try:
        proba = np.load(path, allow_pickle=False)
    except (OSError, ValueError):
        raise InputError(f"Expected --student-proba to be an .npy file of numbers, got {path.name}.") from None
    return proba[:n_queries]


def _plan_row(proposal: Plan) -> dict[str, Any]:
    return {
        **dataclasses.asdict(proposal.mechanism),
        "n_queries": proposal.n_queries,
        "n_answers": proposal.n_answers,
        "right_answers": proposal.right_answers,
        "accuracy": proposal.accuracy,
        "check_share": proposal.check_share,
        "epsilon": proposal.guarantee.epsilon,
        "delta": proposal.guarantee.delta,
    }


def _cell(key: str, value: float) -> str:
    if key == "epsilon":
        return round_up(value)
    if key in ("accuracy", "check_share"):
        return f"{value:.1%}"
    return f"{value:,.0f}" if key in ("n_queries", "n_answers", "right_answers") else f"{value:g}"


def _print_json(result: dict[str, Any]) -> None:
    print(json.dumps(result, indent=2, allow_nan=False))
