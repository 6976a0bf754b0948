"""Tables for people: what the command line prints without --json."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from terrine.accounting.advice import Advice
from terrine.accounting.consensus import Consensus
from terrine.accounting.curves import round_up
from terrine.accounting.planning import Plan
from terrine.budgets import Spending, TestedBudget, TrainingBudget
from terrine.ledger.views import Summary
from terrine.mechanisms import ConfidentGNMax
from terrine.published import PublishedGuarantee
from terrine.release.analysis import Analysis
from terrine.release.plan_tested import TestedPlan
from terrine.tested_budget import tested_words


def _by(order: float | None) -> str:
    return "privacy profile" if order is None else f"order {order:g}"


def print_analysis(result: Analysis) -> None:
    """What these answers would cost; what depends on the votes is marked as secret."""

    def add(label: str, value: str, about: str = "") -> None:
        table.add_row(label, value, about)

    table = Table(title="What these answers would cost", title_style="bold")
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.show_header = False
    mechanism, worst, tested, secret = result.mechanism, result.worst_case, result.tested, result.on_these_votes
    settings = dataclasses.asdict(mechanism).items()
    add("mechanism", type(mechanism).__name__, ", ".join(f"{key}={value:g}" for key, value in settings))
    add("questions", f"{result.queries:,}", f"{result.n_teachers:,} teachers, {result.n_classes} classes")
    if isinstance(mechanism, ConfidentGNMax):
        add("answers, at most", f"{result.answers_at_most:,}", "fixed beforehand; --answers")
    add(
        "ε if fixed beforehand",
        f"[bold]{round_up(worst.epsilon)}[/bold]",
        f"δ={worst.delta:g}, worst case, {_by(worst.order)}, {result.bound} bound",
    )
    if tested is not None:
        add(
            "ε of a tested release",
            f"[bold]{round_up(tested.epsilon)}[/bold]",
            f"δ={tested.delta:g}, {_by(tested.order)}; if its test fails, nothing is published",
        )
    if secret is not None:
        table.add_section()
        add("[red]secret[/red]", "", "[red]the lines below depend on private votes: do not publish them[/red]")
        add("answers, expected", f"{secret.expected_answered:,.1f}", "")
        add(
            "ε on these votes",
            round_up(secret.epsilon),
            f"{secret.accountant} accountant, {result.conversion} conversion, {_by(secret.order)}",
        )
        add("", "", secret.basis)
        if secret.pass_chance is not None:
            add("test would pass", f"{secret.pass_chance:.0%}", "chance, on these votes; choose no target by it")
        for note in secret.notes:
            add("note", "", note)
    console = Console()
    console.print(table)
    for name, one in (("", worst), (" of a tested release", tested)):
        if one is not None:
            console.print(f"ε = {round_up(one.epsilon)}{name} would hold if {escape(one.condition)}.")
    console.print(
        "A file of votes does not show that: this is a plan, and no guarantee. What a run, a service or a "
        "PATEClassifier releases has one, because its ledger fixed the budget first."
    )
    console.print(f"Neighbors: {worst.relation.sentence}. Epsilons are rounded up.")
    if secret is None:
        console.print("Numbers that depend on the votes are not shown; --reveal shows them.")


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
        ("questions to ask", "n_queries"),
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
    table.add_row("license", facts["licence"])
    for file in facts["files"]:
        table.add_row("file", escape(f"{file['path'] or file['file']}{'' if file['sha256_ok'] else ' (missing)'}"))
    Console().print(table)


def print_route(tested: TestedPlan | None, proposal: Plan) -> None:
    """Whether a tested release is expected to give a smaller epsilon."""
    console = Console()
    if tested is None:
        console.print("Tested route: not possible with this number of questions. Use the worst case.")
        return
    worst = round_up(proposal.guarantee.epsilon)
    if not tested.pays:
        console.print(
            f"Tested route: not expected to pay. For the same number of right answers, votes like these would pass a "
            f"test at ε = {round_up(tested.target)}; the worst case is ε = {worst}."
        )
        return
    console.print(
        f"Tested route: expected to pay. For the same number of right answers ({tested.right_answers:,.0f}, "
        f"{tested.accuracy:.1%} of the answers), votes like these would pass a test at ε = {round_up(tested.target)} "
        f"with chance {tested.pass_chance:.0%}; the worst case is ε = {worst}. If the test fails, nothing is published."
    )


def route_settings(tested: TestedPlan, *, delta: float, consensus: float | None) -> str:
    """What a run's TOML file needs for this tested release."""
    assumed = [] if consensus is None else [f"consensus = {consensus!r}"]
    mechanism = [f"{name} = {value!r}" for name, value in dataclasses.asdict(tested.mechanism).items()]
    return "\n".join(
        [
            "[privacy]",
            'route = "tested"',
            f"target = {round_up(tested.target)}",
            f"delta = {delta!r}",
            'mechanism = "confident"',
            *mechanism,
            f"queries = {tested.n_queries}",
            f"answers = {tested.n_answers}",
            f"order = {tested.order!r}",
            f"share = {tested.share!r}",
            *assumed,
        ]
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


def print_consensus(found: Consensus) -> None:
    """How well the teachers agree: secret, asked for by the owner."""
    table = Table(title="How well the teachers agree", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.add_row("[red]secret[/red]", "", "[red]these lines depend on private votes: do not publish them[/red]")
    table.add_row("mean top vote", f"{found.mean_top_vote:,.1f}", f"of {found.n_teachers:,} teachers")
    if found.plurality_accuracy is not None:
        table.add_row("plurality right", f"{found.plurality_accuracy:.1%}", "compared with the public rows' labels")
        table.add_row("a teacher right", f"{found.mean_teacher_accuracy:.1%}", "on average")
    for low, high, n in zip(found.edges[:-1], found.edges[1:], found.queries, strict=True):
        if n:
            bar = "█" * max(1, round(40 * n / max(found.queries)))
            table.add_row(f"{low:.0%} to {high:.0%} agree", f"{n:,}", bar)
    Console().print(table)


def print_ledger(found: Summary, accounts: Mapping[str, Spending]) -> None:
    """A ledger's summary, and what was spent on whose behalf."""
    table = Table(title="What was spent of the budget", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    guarantee = found.guarantee
    table.add_row(
        "ε, guaranteed" if found.secure else "ε, had the noise been secure",
        f"[bold]{round_up(guarantee.epsilon)}[/bold]",
        f"δ={guarantee.delta:g}, for all answers that are ever given",
    )
    table.add_row("neighbors", "", escape(guarantee.relation.sentence))
    if isinstance(found.budget, TrainingBudget):
        table.add_row(
            "noisy sums charged", f"{found.queries:,}", "of one training; labels by its probe cost nothing more"
        )
    else:
        table.add_row("questions charged", f"{found.queries:,}", "")
        table.add_row("answers charged", f"{found.answers:,}", "")
    for name, left in found.remaining.items():
        table.add_row(f"{'noisy sums' if name == 'steps' else name} left", f"{left:,.6g}", "")
    if found.unsettled:
        table.add_row("unsettled", f"{found.unsettled:,}", "by requests that did not finish; they stay charged")
    for name, spent in sorted(accounts.items()):
        if name:
            table.add_row(f"by {escape(name)}", f"{spent.queries:,}", f"questions, {spent.answers:,} answers")
    if not found.secure:
        table.add_row(
            "[red]insecure[/red]",
            "",
            "[red]seeded noise was drawn: these answers are not private, and nothing is guaranteed[/red]",
        )
    Console().print(table)
    if isinstance(found.budget, TestedBudget):
        for words in tested_words(found.budget, test=found.test):
            print(f"- {words}")
    if found.cost is not None:
        print(f"What the answers cost: {found.cost}. The guaranteed ε pays for publishing it, once.")
    print(f"Head: {found.head}")  # on a line of its own: to be kept, whatever the terminal's width


def print_advice(advice: Advice) -> None:
    """Whether a plan will work, in words."""
    console = Console()
    console.print("[bold]Will it work?[/bold]")
    for one in advice.findings:
        mark = {"refuse": "[red]No.[/red] ", "warn": "[yellow]Warning.[/yellow] ", "info": ""}[one.severity]
        console.print(f"- {mark}{escape(str(one))}")


def print_rehearsal(facts: dict[str, Any]) -> None:
    """A rehearsal's grid, as `Rehearsal.to_json` gives it."""
    table = Table(title=f"Rehearsal on {facts['n_labelled']:,} labeled public rows", title_style="bold")
    for name in ("teachers", "rows each", "agree", "ε", "questions", "answers", "answers right", "student right"):
        table.add_column(name, justify="right")
    for one in facts["cells"]:
        right, student = one["answer_accuracy"], one["student_accuracy"]
        table.add_row(
            f"{one['n_teachers']:,}",
            f"{one['rows_per_teacher']:,}{'*' if one['overlap'] else ''}",
            f"{one['consensus']:.0%}",
            f"{one['epsilon']:g}",
            f"{one['n_queries']:,}",
            f"{one['n_answered']:,}",
            "" if right is None else f"{right:.1%}",
            one["why_not"] if student is None else f"{student:.1%}",
        )
    Console().print(table)
    if facts["without_privacy"] is not None:
        print(f"The same learner on the true labels, without privacy: {facts['without_privacy']:.1%}.")
    if facts["planned_units"] is not None:
        print("It takes each planned unit for one row. If a person has several rows, your teachers will see more rows.")
    if any(one["overlap"] for one in facts["cells"]):
        print("* There are too few labeled rows for disjoint shares of that size: the teachers share rows, and agree")
        print("  somewhat more than yours will.")
    if rare := sorted({name for one in facts["cells"] for name in one["never_predicted"]}):
        print(f"Never predicted by some of these students: {', '.join(rare[:10])}{', …' if len(rare) > 10 else ''}.")
    print(f"At δ = {facts['delta']:g}, with simulated noise, on public rows only: a rehearsal costs no privacy.")


def print_demo(shown: PublishedGuarantee, facts: dict[str, Any]) -> None:
    """The result of the demonstration."""
    student, baseline = facts["student"], facts["baseline"]
    table = Table(title="The result", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    low, high = student["interval"]
    right = f"[bold]{student['accuracy']:.1%}[/bold]"
    table.add_row("student", right, f"right on {student['n_test']:,} test images ({low:.1%} to {high:.1%})")
    table.add_row("without privacy", f"{baseline['accuracy']:.1%}", baseline["kind"])
    table.add_row("answers given", f"{shown.answered:,}", f"of {shown.queries_at_most:,} questions asked")
    epsilon = f"[bold]{round_up(shown.epsilon)}[/bold]"
    table.add_row("ε, publishable", epsilon, f"δ={shown.delta:g}, worst case: whatever the votes are")
    Console().print(table)
    factor = round_up(math.exp(shown.epsilon), 1)
    print(f"Neighbors: {shown.relation.sentence}. Seeing the published")
    print(f"files changes the odds between two neighbors by a factor of at most {factor}, except with a chance of")
    print(f"{shown.delta:g}. With private images you would publish only the student, the guarantee and the report.")
    print(f"Report: {facts['report']}")
