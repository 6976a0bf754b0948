"""The arrows between the rooms: every import inside the package is in this table, or the test fails."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import terrine

PACKAGE = Path(terrine.__file__).parent

# room: the rooms it may import. A room is a module or a folder right under the package.
GROUND = {"errors", "_validate", "_files", "_blocks", "_ridge", "_optional", "_toml", "sensitive", "relations"}
DATA = GROUND | {"votes", "datasets"}
ANSWERS = GROUND | {"votes", "noise", "mechanisms"}
TAUGHT = {"datasets", "schema", "partitioning", "executors", "features", "teachers"}
BUDGETS = {"spending", "tested_budget", "training_budget", "cost_release", "budgets"}
CHARGED = ANSWERS | TAUGHT | BUDGETS | {"accounting", "release", "ledger", "labeller"}
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "_validate": {"errors"},
    "_files": {"errors"},
    "_blocks": set(),
    "_ridge": set(),
    "_optional": {"errors"},
    "_models": {"errors", "_optional"},
    "_toml": set(),
    "sensitive": {"errors"},
    "relations": {"errors"},
    "_pages": set(),
    "measured": {"_pages"},
    "noise": GROUND,
    "votes": GROUND,
    "mechanisms": GROUND | {"votes", "noise"},
    "accounting": ANSWERS,
    "release": ANSWERS | {"accounting"},
    "datasets": GROUND | {"votes", "schema"},
    "schema": GROUND,
    "partitioning": GROUND | {"datasets"},
    "executors": GROUND,
    "features": GROUND | {"_models", "datasets"},
    "teachers": DATA | {"_models", "partitioning", "executors"},
    "spending": GROUND | {"mechanisms"},
    "tested_budget": GROUND | {"mechanisms", "accounting", "release", "spending"},
    "training_budget": ANSWERS | {"accounting", "spending"},
    "cost_release": ANSWERS | {"accounting", "release"},
    "budgets": GROUND | {"mechanisms", "accounting", "release"} | BUDGETS - {"budgets"},
    "ledger": GROUND | BUDGETS | {"mechanisms", "accounting"},
    "labeller": ANSWERS | BUDGETS | {"accounting", "ledger", "datasets"},
    "probe": ANSWERS | BUDGETS | {"accounting", "ledger", "datasets", "executors", "measured"},
    "which_route": GROUND | {"accounting", "training_budget", "probe"},
    "students": ANSWERS | {"_models", "accounting", "datasets", "executors", "features", "measured", "schema"},
    "published": GROUND | {"mechanisms", "accounting", "budgets", "cost_release", "measured"},
    "report": GROUND | BUDGETS | {"mechanisms", "accounting", "release", "ledger", "published"},
    "tested_route": ANSWERS | BUDGETS | {"accounting", "release", "datasets"},
    "estimator": CHARGED | {"students", "probe", "measured", "published", "tested_route", "which_route", "runs"},
    "service": CHARGED | {"measured"},
    "runs": CHARGED | {"students", "probe", "published", "report", "service", "tested_route", "which_route"},
    "cli": CHARGED | {"students", "published", "report", "estimator", "runs", "service", "which_route", "__init__"},
    "__main__": {"cli"},
    "__init__": CHARGED | {"students", "probe", "report", "estimator", "runs", "service"},
}
LINES = 500


def room_of(module: list[str]) -> str:
    """The room of a dotted name below the package; the package itself is __init__."""
    return module[0] if module else "__init__"


def imported_rooms(path: Path, package: Path) -> set[str]:
    """Rooms that a file imports, wherever in it and however: absolute, relative, in a function, by import_module."""
    here = list(path.relative_to(package).with_suffix("").parts)
    name, found = package.name, set()

    def add(module: str, names: tuple[str, ...] = ()) -> None:
        parts = module.split(".")
        if parts[0] != name:
            return
        if len(parts) == 1 and names:  # from terrine import x: a room, or something that __init__ holds
            for inner in names:
                is_room = (package / inner).is_dir() or (package / f"{inner}.py").is_file()
                found.add(inner if is_room else "__init__")
        else:
            found.add(room_of(parts[1:]))

    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    add(alias.name)
            case ast.ImportFrom(module=module, names=names, level=0):
                add(module, tuple(alias.name for alias in names))
            case ast.ImportFrom(module=module, names=names, level=level):
                base = [name, *here][:-level]
                add(".".join([*base, module] if module else base), tuple(alias.name for alias in names))
            case ast.Call(func=ast.Name(id="import_module" | "__import__"), args=[ast.Constant(value=str(module)), *_]):
                add(module)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module)), *_]):
                add(module)
    return found


def problems(package: Path) -> list[str]:
    """What is wrong with the arrows and sizes of a package, in words."""
    found = []
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(package)
        room = room_of([where.parts[0].removesuffix(".py")])
        if room not in ARROWS:
            found.append(f"{where} is in no room")
            continue
        for other in sorted(imported_rooms(path, package) - ARROWS[room] - {room}):
            found.append(f"{where} ({room}) imports {other}")
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > LINES:
            found.append(f"{where} has {lines} lines")
    return found


def test_the_package_keeps_to_the_picture():
    assert problems(PACKAGE) == []


def test_the_table_names_no_arrow_upwards():
    def reach(room: str, seen: frozenset[str] = frozenset()) -> set[str]:
        assert room not in seen, f"a circle through {room}"
        return {room}.union(*(reach(other, seen | {room}) for other in ARROWS[room]))

    assert all(arrows <= ARROWS.keys() for arrows in ARROWS.values())
    assert all("cli" not in arrows or room == "__main__" for room, arrows in ARROWS.items())
    on_top = {"teachers", "students", "ledger", "labeller", "service", "run", "report", "cli", "datasets", "estimator"}
    assert not reach("accounting") & on_top
    assert "accounting" not in reach("mechanisms")
    for room in ARROWS:
        reach(room)


WAYS_TO_IMPORT = [
    "from terrine.teachers import ensemble",
    "import terrine.teachers.ensemble as t",
    "from terrine import teachers",
    "from ..teachers import ensemble",
    "from .. import teachers",
    "def f():\n    from ..teachers import ensemble",
    "if False:\n    import terrine.teachers",
    "import_module('terrine.teachers')",
    "importlib.import_module('terrine.teachers.ensemble')",
]


@pytest.mark.parametrize(
    ("file", "source", "problem"),
    [
        *(("accounting/bad.py", source, "(accounting) imports teachers") for source in WAYS_TO_IMPORT),
        ("accounting/__init__.py", "from ..teachers import ensemble", "(accounting) imports teachers"),
        ("accounting/bad.py", "from terrine import Votes", "(accounting) imports __init__"),
        ("mechanisms.py", "from .accounting.costs import cost", "(mechanisms) imports accounting"),
        ("votes.py", "import terrine", "(votes) imports __init__"),
        ("estimator.py", "from terrine.cli import app", "(estimator) imports cli"),
        ("helpers.py", "", "is in no room"),
        ("utils/thing.py", "", "is in no room"),
        ("votes.py", "x = 1\n" * 501, "has 501 lines"),
    ],
)
def test_the_checker_can_fail(tmp_path, file, source, problem):
    package = tmp_path / "terrine"
    for name in ("accounting/costs.py", "teachers/ensemble.py", "votes.py", "cli.py", "__init__.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("import numpy\nfrom os import path\n")
    (package / "accounting/fine.py").write_text("from . import costs\nfrom .costs import x\nfrom ..votes import y\n")
    assert problems(package) == []
    (package / file).parent.mkdir(exist_ok=True)
    (package / file).write_text(source)
    assert problems(package) == [f"{file} {problem}"]


def test_importing_terrine_is_light_and_fast():
    """It loads none of the heavy packages and adds half a second of work at most to scipy.special: best of three."""
    program = """
        import json, sys, time
        import scipy.special
        start = time.process_time()
        import terrine
        print(json.dumps([time.process_time() - start, sorted(sys.modules)]))
    """
    seconds = []
    for _ in range(3):
        arguments = [sys.executable, "-c", textwrap.dedent(program)]
        taken, modules = json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)
        seconds.append(taken)
        heavy = {"torch", "ray", "fastapi", "sklearn", "opendp", "matplotlib", "typer", "rich", "pyarrow", "sqlalchemy"}
        assert not heavy & {module.split(".")[0] for module in modules}
    assert min(seconds) < 0.5
