"""Functions take a settings object where they would take more than seven arguments; results have types of their own."""

from __future__ import annotations

import ast
from pathlib import Path

import terrine

PACKAGE = Path(terrine.__file__).parent
MOST = 7

# Commands of the command line have an option each, and are not counted. The rest: why it stays.
LONGER = {
    "estimator/classifier.PATEClassifier.__init__": "scikit-learn: a parameter each, so that they can be searched over",
    "release/tested.sanitize": "called from outside by these names",
    "release/tested.tested_guarantee": "called from outside by these names",
    "release/tested.publishable_guarantee": "called from outside by these names",
    "teachers/ensemble.fit_teachers": "called from outside by these names",
    "teachers/ensemble.poll_teachers": "takes what fit_teachers takes",
    "datasets/blobs.blobs": "data.options of a run's settings, by name",
    "runs/interactive.fit_interactive": "one more than seven: fit_student's, and who asks",
    "students/label_filter.believed": "one more than seven",
    "accounting/advice.advise": "public numbers of a plan, each by its name",
    "which_route.choose_route": "public numbers of a plan, each by its name",
    "runs/rehearse_routes.rehearse_routes": "what a fit takes, by name",
    "runs/rehearsal.rehearse": "a grid, by name",
    "runs/rehearsal._cell": "one cell of the grid",
    "teachers/ensemble._prepared": "one more than seven: what fit_teachers and poll_teachers share",
    "cli/begin._settings": "of one command",
    "teachers/modules._train": "one more than seven",
}
# Rooms whose public functions neither take nor give dict[str, Any], and what is left to do there.
TYPED = ("accounting/", "release/", "ledger/", "labeller/", "runs/", "report/", "published.", "budgets.", "relations.")
UNTYPED = {
    "runs/base.write_json",
    "runs/base.read_json",
    "runs/facts.public_facts",
    "runs/facts.secret_facts",
    "runs/probe_facts.probe_facts",
    "runs/factories.estimator_of",
    "runs/local.Run.baseline",
    "runs/baseline.on_private_rows",
    "report/tables.print_data_set",
    "report/plots.rehearsal_plot",
    "report/tables.print_rehearsal",
    "report/tables.print_demo",
    "report/tables.plan_row",
    "report/tables.route_row",
    "ledger/backends.Postgres.options",
    "ledger/backends.Sqlite.options",
    "ledger/entries.Entry.flat",
    "ledger/store.Store.header",
    "ledger/transaction.Transaction.key_rows",
    "ledger/transaction.Transaction.revocation_rows",
}


def functions(folder: Path):
    """Every function with its name, module and class in front."""

    def inside(node: ast.AST, name: str):
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}.{inner.name}", inner
            elif isinstance(inner, ast.ClassDef):
                yield from inside(inner, f"{name}.{inner.name}")

    for path in sorted(folder.rglob("*.py")):
        where = path.relative_to(folder).with_suffix("").as_posix()
        yield from inside(ast.parse(path.read_text(encoding="utf-8")), where)


def arguments(node: ast.FunctionDef) -> list[ast.arg]:
    given = node.args
    return [one for one in (*given.posonlyargs, *given.args, *given.kwonlyargs) if one.arg not in ("self", "cls")]


def test_long_lists_of_arguments_are_settings_objects():
    found = {name for name, node in functions(PACKAGE) if len(arguments(node)) > MOST and not name.startswith("cli/")}
    assert found <= set(LONGER)


def test_public_results_have_types_of_their_own():
    def is_public(name: str) -> bool:
        parts = name.split(".")[1:]
        return not any(part.startswith("_") for part in parts) and parts[-1] not in ("to_json", "from_json")

    found = set()
    for name, node in functions(PACKAGE):
        words = [ast.unparse(one) for one in (*(a.annotation for a in arguments(node)), node.returns) if one]
        if any("dict[str, Any]" in one for one in words) and name.startswith(TYPED):
            found.add(name)
    assert {name for name in found if is_public(name)} <= UNTYPED
