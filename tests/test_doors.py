"""docs/doors.md: every door that its table names is gone through, on tiny data, as it is written there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from tests.service.tasks import Service, bearer

import terrine as front
from terrine import (
    ConfidentGNMax,
    FilterBudget,
    GNMax,
    Guarantee,
    InteractiveGNMax,
    Labeller,
    Ledger,
    PATEClassifier,
    PrivateData,
    new_key,
    partition,
    synthetic_votes,
)
from terrine.datasets import load
from terrine.errors import TestFailedError
from terrine.runs.config import RunConfig
from terrine.runs.facts import write_run_report
from terrine.runs.interactive import Round, fit_interactive
from terrine.runs.local import Run
from terrine.service.app import Limits, make_app
from terrine.service.keys import Keys
from terrine.service.parsing import RowFormat
from terrine.students import GANStudent, MatchStudent, SupervisedStudent, VATStudent
from terrine.teachers import CentroidTeacher, ConvRecipe, ConvTeacher, ModuleRecipe, ModuleTeacher
from terrine.teachers.architectures import mlp, resnet32

pytestmark = [  # too few of everything
    pytest.mark.usefixtures("by_renyi"),
    pytest.mark.filterwarnings("ignore::terrine.errors.TerrineWarning"),
    pytest.mark.filterwarnings("ignore:The number of unique classes:UserWarning"),
]

PAGE = Path(__file__).parents[1] / "docs" / "doors.md"
DOORS = ("library", "estimator", "run", "command", "service")


def table() -> dict[tuple[str, str], str]:
    """What stands in the page's cells, by part and door; without the empty ones."""
    found = {}
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    for row in rows[2:]:
        part, *cells = (cell.strip() for cell in row.strip("|").split(" | "))
        assert len(cells) == len(DOORS), part
        for door, cell in zip(DOORS, cells, strict=True):
            if cell != "–":
                code = re.fullmatch(r"`([^`]+)`", cell)
                assert code, f"{part}, {door}: a call or a command in code is expected, or –"
                found[part.strip(), door] = code[1]
    return found


TABLE = table()
BASE = """
[data]
name = "blobs"
[data.options]
n_private = 500
n_public = 60
n_test = 40
[teachers]
number = 20
kind = "ridge"
executor = "serial"
device = "cpu"
[privacy]
mechanism = "gnmax"
sigma = 4
queries = 30
delta = 1e-5
accept_large_delta = true
[student]
kind = "supervised"
estimator = "sklearn.linear_model.LogisticRegression"
"""


def doors(door: str) -> Any:
    named = [(part, code) for (part, one), code in TABLE.items() if one == door]
    return pytest.mark.parametrize(("part", "code"), named, ids=[part for part, _ in named])


def test_the_page_names_doors_of_all_kinds():
    assert {door for _, door in TABLE} == set(DOORS)
    assert len(TABLE) > 80


# ---- library


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the page's calls speak of."""
    task = load("blobs", n_private=500, n_public=60, n_test=40)
    drawn = np.random.default_rng(0)
    images = PrivateData(drawn.integers(0, 256, (80, 28, 28), dtype=np.uint8), drawn.integers(0, 3, 80))
    deal = partial(partition, method="balanced", key=new_key())
    first = ConfidentGNMax(threshold=12, sigma_check=6, sigma_vote=4)
    second = InteractiveGNMax(threshold=12, sigma_check=6, sigma_vote=4, student_confidence=0.9)
    given = {name: getattr(front, name) for name in front.__all__}
    return given | {
        **{kind.__name__: kind for kind in (LogisticRegression, RandomForestClassifier, GANStudent, MatchStudent)},
        **{kind.__name__: kind for kind in (VATStudent, CentroidTeacher, ConvRecipe, ConvTeacher)},
        **{kind.__name__: kind for kind in (ModuleRecipe, ModuleTeacher, mlp, resnet32, partial, fit_interactive)},
        "votes": synthetic_votes(n_queries=60, n_classes=3, n_teachers=20, consensus=0.9),
        "private": task.private,
        "many": load("blobs", n_private=1200, n_public=60, n_test=40).private,
        "shares": deal(task.private, n_teachers=20),
        "images": images,
        "image_shares": deal(images, n_teachers=4),
        "public": task.public.X,
        "public_images": images.X,
        "classes": task.classes,
        "answers": np.arange(60) % 3,
        "student": SupervisedStudent(estimator=LogisticRegression()),
        "rounds": [Round(mechanism=first, rows=np.arange(20)), Round(mechanism=second, rows=np.arange(40))],
    }


@doors("library")
def test_library(part, code, names, run_at, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "labeller=" in code:
        budget = FilterBudget(epsilon=200.0, delta=1e-5, order=3.0)
        ledger = Ledger(tmp_path / "rounds.sqlite", budget=budget)
        voters = front.fit_teachers(
            names["private"],
            names["shares"],
            front.SklearnTeacher(estimator=LogisticRegression()),
            classes=names["classes"],
            seed=0,
        )
        names = names | {"labeller": lambda mechanism: Labeller(voters, mechanism, ledger)}
    if "folder" in code:
        names = names | {"folder": run_at("finished").folder / "student"}
    if "public_images" in code:
        names = names | {"answers": names["answers"][:40]}
    assert eval(code, dict(names)) is not None  # the page's own words


# ---- estimator


@doors("estimator")
def test_estimator(part, code, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = "ConvTeacher" in code
    data = names["images"] if images else names["many"] if "tested" in code else names["private"]
    public = (names["public_images"] if images else names["public"]).astype(data.X.dtype)

    def tiny(*learners: Any, **options: Any) -> PATEClassifier:
        usual = {
            "student": LogisticRegression(),
            "classes": [0, 1, 2],
            "n_teachers": 4 if images else 20,
            "delta": 1e-5,
            "accept_large_delta": True,
        }
        if not {"epsilon", "rounds"} & set(options):
            usual |= {"mechanism": GNMax(sigma=4.0), "n_queries": 20}
        plain = {} if learners else {"teacher": LogisticRegression()}
        return PATEClassifier(*learners, **(plain | usual | options))

    made = tiny() if code.startswith("model.") else eval(code, names | {"PATEClassifier": tiny})
    try:
        model = made.fit(data.X, data.y, X_public=public)
    except TestFailedError:  # gone through as well: the test says no now and then
        assert "tested" in code
        return
    assert isinstance(model.guarantee_, Guarantee)
    if code.startswith("model."):
        assert eval(code, {"model": model}) is not None


# ---- run


def settings_of(code: str) -> RunConfig:
    """The tiny run with what a cell says: "[table] key = value, key = value; [table] ..."."""
    given = tomllib.loads(BASE)
    given["teachers"]["number"] = 3 if "glyph" in code else 20
    for list_of, name, body in re.findall(r"\[(\[?)(\w+)\]+ (.*?)(?:; (?=\[)|$)", code):
        values = tomllib.loads(f"x = {{{body}}}")["x"]
        if list_of:
            given.setdefault(name, []).append(values)
            given["privacy"] = {key: given["privacy"][key] for key in ("delta", "accept_large_delta")}
            continue
        kept = ("delta", "accept_large_delta", "number", "executor", "device")
        given[name] = {key: value for key, value in given.get(name, {}).items() if key in kept} | values
    return RunConfig.model_validate(given)


STAGES = ("created", "taught", "voted", "labeled", "finished")


def go_on(run: Run, stage: str) -> None:
    """One stage further, from the stage before."""
    try:
        match stage:
            case "taught":
                run.teach()
            case "voted":
                run.vote()
            case "labeled":
                run.label()
            case "finished":
                if run.config.privacy.route != "tested" or run.guarantee().test != "failed":
                    run.learn()
                write_run_report(run)
    except TestFailedError:  # gone through as well
        assert run.config.privacy.route == "tested"


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Callable[[str, str], Path]:
    """A run of these settings up to a stage, made once from the stage before; not to be changed."""
    made: dict[tuple[str, str], Path] = {}

    def up_to(stage: str, code: str) -> Path:
        if (stage, code) not in made:
            folder = tmp_path_factory.mktemp("door") / "run"
            if stage == "created":
                Run.create(settings_of(code), folder)
            else:
                shutil.copytree(up_to(STAGES[STAGES.index(stage) - 1], code), folder)
                go_on(Run(folder), stage)
            made[stage, code] = folder
        return made[stage, code]

    return up_to


@pytest.fixture
def run_at(kept, tmp_path) -> Callable[..., Run]:
    """A run at a stage, in this test's folder."""
    return lambda stage, code="": Run(shutil.copytree(kept(stage, code), tmp_path / "run"))


@doors("run")
def test_run(part, code, run_at):
    if code.startswith("["):
        run = run_at("finished", code)
        assert run.guarantee().secure_noise
        assert (run.folder / "student").is_dir() or run.guarantee().test == "failed"
    else:
        assert (run_at("finished").folder / code).exists()


# ---- command


@doors("command")
def test_command(part, code, names, run_at, tmp_path, monkeypatch, terrine):
    monkeypatch.chdir(tmp_path)
    np.save("votes.npy", names["votes"].counts)
    np.save("proba.npy", np.full((60, 3), 1 / 3))
    Path("run.toml").write_text(BASE)
    np.save("new.npy", names["public"][:5])
    first, *words = shlex.split(code)
    assert first == "terrine"
    settings = TABLE.get((part, "run"), "")
    if words[0] in ("teach", "vote", "learn"):  # a stage of the run in this row
        run_at({"teach": "created", "vote": "taught", "learn": "labeled"}[words[0]], settings)
    elif words[0] == "cost":
        run_at("finished", settings)
    elif "run" in words or "run/student" in words:
        run_at("finished")
    monkeypatch.setattr("terrine.release.plan_tested._SEARCH", ([(1.0, 1.0, 1.0)],))  # plan --route, in a second
    monkeypatch.setattr("terrine.release.plan_tested._ORDERS", (38.0,))
    left, out, err = terrine(*words)
    assert left == 0, err or out


# ---- service


class ServedRun(Service):
    """As `terrine serve` serves a run, without its pace."""

    def __init__(self, run: Run) -> None:
        self.run, self.ledger = run, run.ledger()
        self.keys = Keys(run.folder / "ledger.sqlite")

    def make(self) -> Any:
        voters = self.run.voters()
        rows = RowFormat(shape=voters.row_shape, dtype=voters.dtype)
        run = self.run
        mechanisms = [run.mechanism] if run.given.rounds is None else [one.mechanism for one in run.rounds.planned]
        return make_app(voters, mechanisms, self.ledger, self.keys, rows=rows, limits=Limits(pace=0, rate=1e6))


@doors("service")
def test_service(part, code, run_at):
    run = run_at("taught", TABLE[part, "run"] if TABLE[part, "run"].startswith("[") else "")
    service = ServedRun(run)
    key, (verb, path) = bearer(service.keys.create("someone")), code.split()
    with service.client() as client:
        if verb == "POST":
            n = run.config.privacy.queries if run.config.privacy.route == "tested" else 3  # one release of all rows
            asked = {"request_id": "a", "rows": np.asarray(run.task.public.X[:n]).tolist()}
            found = client.post(path, content=json.dumps(asked), headers=key)
            if run.config.privacy.route == "tested" and found.status_code == 410:  # gone through as well
                return
            assert len(found.json()["labels"]) == n
        else:
            found = client.get(path, headers=key)
    assert found.status_code == 200, found.text


def test_a_door_that_is_not_there_is_found_out():
    """The walkers can fail."""
    with pytest.raises(TypeError):
        eval("PATEClassifier(doors=2)", {"PATEClassifier": PATEClassifier})
    with pytest.raises(ValueError, match="vgg"):
        settings_of('[teachers] kind = "vgg"')
