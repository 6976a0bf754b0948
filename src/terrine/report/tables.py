"""Tables for people: what the command line prints without --json."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from terrine.accounting.curves import round_up
from terrine.accounting.planning import Plan
from terrine.accounting.routes import TestedPlan


def print_analysis(result: dict[str, Any]) -> None:
    """The result of `analyze_votes`."""

    def add(label: str, value: str, about: str = "") -> None:
        table.add_row(label, value, about)

    table = Table(title="What these answers cost", title_style="bold")
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.show_header = False
    mechanism = dict(result["mechanism"])
    name = mechanism.pop("name")
    add("mechanism", name, ", ".join(f"{key}={value:g}" for key, value in mechanism.items()))
    add("queries", f"{result['queries']:,}", f"{result['n_teachers']:,} teachers, {result['n_classes']} classes")
    answered = result["answers_at_most"]
    if name in ("ConfidentGNMax", "InteractiveGNMax"):
        add("answers, at most", f"{answered:,}", "fixed beforehand; --answers")
    shown = result["publishable"]
    tested = shown["route"] == "tested"
    add(
        "ε, publishable",
        f"[bold]{round_up(shown['epsilon'])}[/bold]",
        f"δ={shown['delta']:g}, order {shown['order']:g}, "
        + ("tested: nothing leaves if the test fails" if tested else f"worst case, {result['bound']} bound"),
    )
    if tested:
        add("ε, worst case", round_up(result["data_independent_epsilon"]), "what needs no test, for comparison")
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
        if "pass_chance" in result:
            add("test would pass", f"{result['pass_chance']:.0%}", "chance, on these votes")
        for note in result["notes"]:
            add("note", "", note)
    console = Console()
    console.print(table)
    console.print(f"Publishable: {escape(shown['why'])}.")
    console.print(f"Neighbours: {result['relation']}. Epsilons are rounded up.")
    if "secret" not in result:
        console.print("Numbers that depend on the votes are withheld; --reveal shows them.")
    if "plot" in result:
        console.print(f"Plot: {escape(result['plot'])}")


def print_plan(proposal: Plan, start: Plan, *, title: str) -> None:
    """A proposal beside the rule of thumb it started from."""
    table = Table(title=title, title_style="bold")
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
        ("ε, exact, on votes like the stand-ins", "exact_epsilon"),
    ):
        if key == "exact_epsilon" and proposal.exact_epsilon is None:
            continue
        table.add_row(label, *(_cell(key, plan_row(p)[key]) for p in (proposal, start)))
    Console().print(table)


def print_data_set(facts: dict[str, Any]) -> None:
    """What `terrine.datasets.describe` says."""
    table = Table(title=f"Data set {facts['name']}", title_style="bold")
    table.show_header = False
    table.add_column()
    table.add_column()
    for split, size in facts["sizes"].items():
        table.add_row(f"{split} rows", f"{size:,}")
    table.add_row("a row", facts["row"])
    table.add_row(
        "classes",
        f"{facts['n_classes']}: {escape(', '.join(facts['classes'][:12]))}{'' if facts['n_classes'] <= 12 else ', …'}",
    )
    table.add_row("licence", facts["licence"])
    for file in facts["files"]:
        table.add_row("file", escape(f"{file['path'] or file['file']}{'' if file['sha256_ok'] else ' (missing)'}"))
    Console().print(table)


def print_route(tested: TestedPlan | None, proposal: Plan) -> None:
    """Whether a tested release would be expected to pay."""
    console = Console()
    if tested is None:
        console.print("Tested route: not possible with the queries there are; keep to the worst case.")
        return
    worst = round_up(proposal.guarantee.epsilon)
    if not tested.pays:
        console.print(
            f"Tested route: not expected to pay. For as many right answers votes like these would pass a test at "
            f"ε = {round_up(tested.target)}, against {worst} by worst case."
        )
        return
    console.print(
        f"Tested route: expected to pay. For as many right answers ({tested.right_answers:,.0f}, "
        f"{tested.accuracy:.1%} of the answers) votes like these would pass a test at ε = {round_up(tested.target)} "
        f"with chance {tested.pass_chance:.0%}, against {worst} by worst case. If the test fails, nothing leaves."
    )


def route_row(tested: TestedPlan) -> dict[str, Any]:
    """A tested plan as flat numbers, for JSON."""
    return {
        **dataclasses.asdict(tested.mechanism),
        "n_queries": tested.n_queries,
        "n_answers": tested.n_answers,
        "right_answers": tested.right_answers,
        "accuracy": tested.accuracy,
        "target": tested.target,
        "worst_case": tested.worst_case,
        "pass_chance": tested.pass_chance,
        "order": tested.order,
        "share": tested.share,
        "pays": tested.pays,
    }


def plan_row(proposal: Plan) -> dict[str, Any]:
    """A plan as flat numbers, for JSON and for the table."""
    return {
        **dataclasses.asdict(proposal.mechanism),
        "n_queries": proposal.n_queries,
        "n_answers": proposal.n_answers,
        "right_answers": proposal.right_answers,
        "accuracy": proposal.accuracy,
        "check_share": proposal.check_share,
        "epsilon": proposal.guarantee.epsilon,
        "exact_epsilon": proposal.exact_epsilon,
        "delta": proposal.guarantee.delta,
    }


def _cell(key: str, value: float) -> str:
    if key.endswith("epsilon"):
        return round_up(value)
    if key in ("accuracy", "check_share"):
        return f"{value:.1%}"
    return f"{value:,.0f}" if key in ("n_queries", "n_answers", "right_answers") else f"{value:g}"
