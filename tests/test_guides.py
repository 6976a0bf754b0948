"""What the guides say is so: answers by teachers and ε, people for a probe, δ, neighbors, the level of a rare class."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import subprocess
import sys
from inspect import signature
from math import ceil, exp
from pathlib import Path

import pandas as pd
import pytest

from terrine import PATEClassifier
from terrine.accounting.advice import WEAK_SIGNAL
from terrine.cli.begin import delta_for, init_command
from terrine.probe.settings import signal
from terrine.relations import Relation
from terrine.report.page import _meaning
from terrine.which_route import SIGNAL

ROOT = Path(__file__).parents[1]
GUIDES, LEVEL = ROOT / "docs" / "guides", ROOT / "benchmarks" / "results" / "probe_level.json"
TOP = LEVEL.with_name("probe_top.json")
COUNTS = [(100, 2.0), (250, 1.0)]  # a cell takes up to minutes


def table(text: str) -> list[list[str]]:
    """The first one: its head, the line under it, its rows."""
    found = re.search(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert found is not None
    return [line.strip("| ").split(" | ") for line in found[0].splitlines()]


def cells() -> dict[tuple[int, float], str]:
    """Answers, by teachers and ε."""
    page = (GUIDES / "rows_and_teachers.md").read_text(encoding="utf-8")
    lines = table(page.split("## By teachers")[1])
    epsilons = [float(head.removeprefix("ε = ")) for head in lines[0][1:]]
    return {
        (int(line[0].replace(",", "")), epsilon): cell.replace(",", "")
        for line in lines[2:]
        for epsilon, cell in zip(epsilons, line[1:], strict=True)
    }


def test_the_table_has_teachers_and_epsilons() -> None:
    found = cells()
    assert len(found) == 12
    assert set(COUNTS) <= set(found)


@pytest.mark.soak
@pytest.mark.parametrize(("teachers", "epsilon"), COUNTS)
def test_a_budget_buys_the_answers_of_the_table(teachers, epsilon, terrine) -> None:
    (command,) = re.findall(r"`terrine (plan .*?)`", (GUIDES / "rows_and_teachers.md").read_text())
    words = command.split()
    words[words.index("--teachers") + 1], words[words.index("--epsilon") + 1] = str(teachers), str(epsilon)
    code, out, err = terrine(*words, "--json")
    assert code == 0, err
    (expected,) = re.findall(r'"expected_answers": ([\d.]+)', out)
    assert f"{float(expected):.0f}" == cells()[teachers, epsilon]


def test_guesses_are_rounded_up() -> None:
    """As the report says them."""
    page = (GUIDES / "epsilon.md").read_text()
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) in 100 \|", page, flags=re.MULTILINE)
    assert len(rows) == 6
    for epsilon, right in rows:
        guarantee = {"epsilon": float(epsilon), "delta": 1e-6, "relation": "unit_any"}
        assert f"{right}%" == _meaning(guarantee, None)["guess_words"]
    said = dict(rows)
    assert f"right at most {said['1']} times in 100" in page
    concepts = (GUIDES.parent / "concepts.md").read_text()
    assert f"at most {said['1']} at 1, {said['2']} at 2, {said['4']} at 4]" in concepts
    neighbors = (GUIDES / "neighbors.md").read_text()
    assert f"at most {said['1']} times in 100" in neighbors
    assert f"up to {said['2']} times in 100" in neighbors  # two steps at ε = 1


def test_what_a_rare_secret_can_become() -> None:
    """Odds times e^ε, rounded up."""
    page = (GUIDES / "epsilon.md").read_text()
    rows = table(page.split("**A secret that is rare.**")[1])[2:]
    assert [row[0] for row in rows] == ["1 in 100", "3 in 100", "50 in 100"]
    for before, *after in rows:
        percent = int(before.split()[0])
        odds = [percent / (100 - percent) * exp(epsilon) for epsilon in (1, 2)]
        assert after == [f"{ceil(1000 * one / (1 + one)) / 10:.1f} in 100" for one in odds]
    most = {before: after for before, *after in rows}["3 in 100"]
    assert "at most **{}** at ε = 1, and {} at ε = 2".format(*most) in page
    for other in (GUIDES / "neighbors.md", GUIDES.parent / "faq.md"):
        assert f"can come to think at most {most[0]}" in other.read_text()


def test_the_texts_for_a_manager_have_their_guesses() -> None:
    """At ε = 1 and at the ε that init writes."""
    page = (GUIDES / "epsilon.md").read_text()
    said = dict(re.findall(r"^\| ([\d.]+) \| ([\d.]+) in 100 \|", page, flags=re.MULTILINE))
    quoted = re.findall(r"At \*\*ε = (\d)\*\*.*\n\n> (.*)\n", page)
    assert [epsilon for epsilon, _ in quoted] == ["1", "2"]
    assert signature(init_command).parameters["epsilon"].default == 2.0
    for epsilon, text in quoted:
        assert f"at most {said[epsilon]} times in 100" in text


def test_neighbors_are_named_as_the_console_names_them() -> None:
    rows = table((GUIDES / "neighbors.md").read_text())[2:]
    assert len(rows) == 5
    for sentence, _, code, size in rows:
        relation = Relation(code.strip("`"))
        assert sentence == relation.sentence
        assert (size == "public") == relation.size_is_public


def test_a_change_in_two_steps_costs_what_the_guide_says() -> None:
    page = (GUIDES / "neighbors.md").read_text()
    (times,) = re.findall(r"\(1 \+ e\^ε\) δ: ([\d.]+) times at ε = 1, ([\d.]+) times at ε = 2", page)
    assert times == tuple(f"{ceil(10 * (1 + exp(epsilon))) / 10}" for epsilon in (1, 2))


def test_people_that_a_probe_needs() -> None:
    page = (GUIDES / "rows_and_teachers.md").read_text()
    head, _, *rows = table(page.split("## By a probe")[1])
    relations = {"changed": Relation.UNIT_ANY, "added": Relation.UNIT_ADDED}
    columns = [re.fullmatch(r"ε = ([\d.]+), (\w+)", name) for name in head[1:]]
    assert len(rows) == 4
    assert len(columns) == 5
    for row in rows:
        for n_classes in map(int, row[0].split(" or ")):
            for column, said in zip(columns, row[1:], strict=True):
                assert column is not None
                mu = signal(epsilon=float(column[1]), delta=1e-5, planned_units=1, relation=relations[column[2]])
                assert int(said.replace(",", "")) == ceil(max(SIGNAL * n_classes, WEAK_SIGNAL) / mu)
    few = {"epsilon": 2.0, "delta": 1e-4, "planned_units": 368}
    strengths = [signal(**few, relation=relation) for relation in (Relation.UNIT_ANY, Relation.UNIT_ADDED)]
    assert "a strength of {:.0f} by default, where 100 are needed, and of {:.0f} with".format(*strengths) in page


def test_delta_is_one_rule() -> None:
    rows = table((GUIDES / "epsilon.md").read_text().split("## δ")[1])[2:]
    for people, delta in rows:
        assert delta_for(int(people.replace(",", ""))) == pytest.approx(float(delta))
        assert delta_for(int(people.replace(",", "")) + 1) == pytest.approx(float(delta) / 10)


def test_a_planning_number_that_is_off_costs_less_than_a_point() -> None:
    found = [one for one in json.loads(LEVEL.read_text()) if one["share"] > 0.2]
    true = {one["units"]: one["right"] for one in found if one["planned_over_true"] == 1}
    off = [one for one in found if one["planned_over_true"] in (0.5, 2)]
    assert sorted(true) == [1000, 3000, 10_000]
    assert len(off) == 6
    assert all(abs(one["right"] - true[one["units"]]) < 0.01 for one in off)
    assert all(abs(one["right"] - true[one["units"]]) < 0.02 for one in found)  # a quarter and four times too


def test_the_level_of_a_rare_class() -> None:
    page = (GUIDES / "rare_classes.md").read_text()
    found = [one for one in json.loads(LEVEL.read_text()) if one["share"] < 0.2]
    before, after = ([f"{one[name]:.1%}" for one in found] for name in ("mean_probability", "mean_when_sure"))
    assert "{} with 1,000 people, {} with 3,000 and {} with 10,000".format(*before) in page
    assert "and {}, {} and {} after that".format(*after) in page


def test_the_sum_of_the_first_rows_is_no_forecast() -> None:
    rows = table((GUIDES / "rare_classes.md").read_text().split("### At the top")[1])[2:]
    names = ["mean_probability"]
    names += [f"{what}_of_first_{k}" for k in ("100", "fifteenth") for what in ("probability", "share")]
    for row, one in zip(rows, json.loads(TOP.read_text()), strict=True):
        assert row == [f"{one['share']:.0%}", f"{one['units']:,}", *(f"{one[name]:.1%}" for name in names)]


def test_a_run_from_pandas_can_be_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terrine) -> None:
    patients(tmp_path / "made.csv", 3000)
    patients(tmp_path / "other.csv", 300, private=False)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (GUIDES / "production.md").read_text(), flags=re.DOTALL)
    (block,) = (one for one in blocks if "begin_run" in one)
    tables = {"private": pd.read_csv("made.csv"), "public": pd.read_csv("other.csv")}
    exec(compile(block, "production.md", "exec"), tables)
    assert terrine("keys", "create", "run", "--name", "team 1").code == 0
    served = tables["run"].served(tables["run"].ledger())
    assert served.classes == ("benign", "malignant")


def test_what_sureness_gains() -> None:
    page = (GUIDES.parent / "probe.md").read_text()
    found = [one for one in json.loads(LEVEL.read_text()) if one["share"] > 0.2 and one["planned_over_true"] == 1]
    pairs = [f"from {one['loss']:.3f} to {one['loss_when_sure']:.3f}" for one in found]
    assert "{} with 1,000 people, {} with 3,000 and {} with 10,000".format(*pairs) in page
    assert all(one["loss_when_sure"] < one["loss"] for one in json.loads(LEVEL.read_text()))


@pytest.mark.parametrize("unit", [True, False], ids=["patients", "rows"])
def test_neighbors_are_switched_as_the_guide_says(unit: bool, tmp_path: Path, terrine) -> None:
    patients(tmp_path / "private.csv", 1500)
    patients(tmp_path / "public.csv", 300, private=False)
    settings = tmp_path / "run.toml"
    files = ["--private", tmp_path / "private.csv", "--public", tmp_path / "public.csv", "--out", settings]
    classes = ["--label", "diagnosis", "--classes", "benign,malignant", "--units", "1500"]
    assert terrine("init", *files, *classes, *(["--unit", "patient"] if unit else [])).code == 0
    page, text = (GUIDES / "neighbors.md").read_text(), settings.read_text()
    line, privacy = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    assert f"\n# {line.strip()}" in text
    if unit:
        text = text.replace(f"# {line.strip()}", line.strip())
    else:
        text = re.sub(r"\[teachers\].*(?=\[student\])", privacy, text, flags=re.DOTALL)
    settings.write_text(text)
    code, out, err = terrine("run", settings, "--dry-run")
    assert code == 0, err
    assert ("one unit is added or removed" if unit else "one row is added or removed") in out


def test_neighbors_in_python_are_as_the_guide_says() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (GUIDES / "neighbors.md").read_text(), flags=re.DOTALL)
    rng = random.Random(0)
    X = [[rng.gauss(0, 1), rng.gauss(0, 1)] for _ in range(1200)]
    y = ["ill" if one[0] > 0 else "well" for one in X]
    for line, unit, relation in zip(
        block.splitlines(), (list(range(1000)), None), (Relation.UNIT_ADDED, Relation.ROW_ADDED), strict=True
    ):
        model = eval(line, {"PATEClassifier": PATEClassifier, "classes": ["ill", "well"]})
        assert model.plan(X[:1000], y[:1000], X_public=X[1000:], unit=unit).guarantee.relation == relation


def patients(path: Path, n: int, *, first: int = 0, private: bool = True) -> None:
    rng = random.Random(first)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", "ward", *["patient", "diagnosis"] * private])
        for k in range(n):
            ill = rng.random() < 0.4
            ward = rng.choice(["north", "south"] if ill else ["east", "north"])
            own = [f"p{first + k}", "malignant" if ill else "benign"] if private else []
            out.writerow([round(rng.gauss(50 + 12 * ill, 8)), ward, *own])


@pytest.mark.soak
def test_owners_go_the_way_of_the_guide(tmp_path: Path) -> None:
    patients(tmp_path / "a.csv", 2000)
    patients(tmp_path / "b.csv", 2000, first=10_000)
    patients(tmp_path / "public.csv", 300, private=False)
    page = (GUIDES / "owners.md").read_text()
    (teachers,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    settings = (
        '[data]\nprivate = "a.csv"\npublic = "public.csv"\nlabel = "diagnosis"\nclasses = ["benign", "malignant"]\n'
        f'unit = "patient"\nunits_planned = 2000\n[teachers]\nkind = "logistic"\n{teachers}'
        '[privacy]\nmechanism = "gnmax"\nepsilon = 2.0\ndelta = 1e-5\nqueries = 60\n[student]\nkind = "supervised"\n'
    )
    (tmp_path / "a.toml").write_text(settings)
    (tmp_path / "b.toml").write_text(settings.replace("a.csv", "b.csv").replace("first_id = 0", "first_id = 50"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "terrine").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m terrine "$@"\n')
    (tmp_path / "bin" / "terrine").chmod(0o755)
    (commands,) = re.findall(r"```\n(terrine teach .*?)```", page, flags=re.DOTALL)
    own = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "100 teachers of 2 owners" in done.stdout
    assert json.loads((tmp_path / "a" / "guarantee.json").read_text())["n_teachers"] == 100
