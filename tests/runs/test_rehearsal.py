"""A rehearsal on labelled public rows: the grid, its shares, and that nothing private is opened."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from terrine.cli import main
from terrine.errors import InputError
from terrine.runs.rehearsal import Rehearsal, rehearse
from terrine.students import SupervisedStudent
from terrine.teachers import SklearnTeacher

pytestmark = pytest.mark.usefixtures("by_renyi")
CLASSES = ("ash", "birch")


def rows(n: int, *, apart: float = 3.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    return rng.normal(size=(n, 2)) + apart * y[:, None], y


def rehearsed(X, y, **changes) -> Rehearsal:
    settings = {
        "classes": CLASSES,
        "teacher": SklearnTeacher(estimator=LogisticRegression()),
        "student": SupervisedStudent(estimator=LogisticRegression()),
        "n_teachers": [30],
        "epsilons": [0.2, 4.0],
        "delta": 1e-5,
        "seed": 0,
    }
    return rehearse(X, y, **(settings | changes))


def test_the_grid():
    done = []
    found = rehearsed(*rows(1200), n_teachers=[10, 30], progress=done.append)
    assert [(one.n_teachers, one.epsilon) for one in found.cells] == [(10, 0.2), (10, 4.0), (30, 0.2), (30, 4.0)]
    best = found.best
    assert best.student_accuracy > 0.9
    assert best.answer_accuracy > 0.9
    assert best.consensus > 0.9
    assert 0 < best.n_answered <= best.n_answers <= best.n_queries <= found.n_asked
    little = found.cells[0]
    assert little.n_queries == 0
    assert little.student_accuracy is None
    assert little.why_not
    assert found.without_privacy > 0.95
    assert done == sorted(done)
    assert done[-1] == 1.0
    told = json.loads(json.dumps(found.to_json()))
    assert told["noise"] == "simulated: not private"
    assert len(told["cells"]) == 4


def test_gnmax_answers_every_question_that_it_plans_for():
    """As a run with that mechanism does; the other one withholds."""
    X, y = rows(1200, apart=1.0)
    every, some = (rehearsed(X, y, epsilons=[4.0], mechanism=name).cells[0] for name in ("gnmax", "confident"))
    assert every.n_answered == every.n_answers == every.n_queries > 0
    assert some.n_answered < some.n_queries


def test_a_seed_decides_it_all():
    X, y = rows(400)
    one, again, other = (rehearsed(X, y, epsilons=[4.0], seed=seed) for seed in (0, 0, 1))
    assert one == again
    assert one != other


def test_rows_that_are_hard_to_tell_apart_agree_less():
    easy, hard = (rehearsed(*rows(800, apart=apart), epsilons=[1.0]).cells[0] for apart in (3.0, 0.3))
    assert hard.consensus < easy.consensus - 0.1
    assert hard.plurality_accuracy < easy.plurality_accuracy - 0.1


@pytest.mark.parametrize(
    ("planned", "size", "overlap"), [(None, 20, False), (300, 10, False), (3000, 100, True), (60_000, 600, True)]
)
def test_shares_are_as_large_as_the_private_ones_will_be(planned, size, overlap):
    one = rehearsed(*rows(1200), epsilons=[1.0], planned_units=planned).cells[0]
    assert (one.rows_per_teacher, one.overlap) == (size, overlap)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_teachers": []}, "at least one number"),
        ({"epsilons": [0.0]}, "epsilon"),
        ({"n_teachers": [0]}, "n_teachers"),
    ],
)
def test_bad_settings(changes, words):
    with pytest.raises(InputError, match=words):
        rehearsed(*rows(100), **changes)


def test_too_few_rows():
    with pytest.raises(InputError, match="at least 40 labeled public rows, got 30"):
        rehearsed(*rows(30))


@pytest.fixture
def terrine(capsys, monkeypatch, tmp_path):
    """A folder with settings and labelled public rows; the private file is not there."""
    monkeypatch.chdir(tmp_path)
    X, y = rows(600)
    with (tmp_path / "labelled.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "tree"], *([*row, CLASSES[k]] for row, k in zip(X, y, strict=True))])
    with (tmp_path / "public.csv").open("w", newline="") as file:  # what the columns are is drafted from it
        csv.writer(file).writerows([["a", "b"], *X.tolist()])
    (tmp_path / "run.toml").write_text(
        '[data]\nprivate = "gone.csv"\npublic = "public.csv"\nclasses = ["ash", "birch"]\nlabel = "tree"\n'
        'units_planned = 300\n[teachers]\nnumber = 20\nkind = "logistic"\nexecutor = "serial"\n'
        "[privacy]\nepsilon = 1.0\ndelta = 1e-5\nconsensus = 0.8\n"
        '[student]\nestimator = "sklearn.linear_model.LogisticRegression"\n'
    )

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["terrine", "rehearse", "run.toml", *words])
        with pytest.raises(SystemExit) as left:
            main()
        shown = capsys.readouterr()
        return left.value.code, shown.out, shown.err

    return call


def test_on_the_command_line(terrine, tmp_path):
    grid = ["--teachers", "15,30", "--epsilons", "2", "--plot", "plot.png"]
    code, out, _ = terrine("--labelled", "labelled.csv", *grid)
    assert code == 0
    assert "costs no privacy" in out
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = terrine("--labelled", "labelled.csv", *grid, "--json")
    assert [one["rows_per_teacher"] for one in json.loads(out)["cells"]] == [20, 10]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "needs labeled public rows: name their file with --labelled"),
        (["--labelled", "labelled.csv", "--teachers", "2.5"], "--teachers must be a list of numbers"),
        (["--labelled", "labelled.csv", "--epsilons", "much"], "--epsilons must be a list of numbers"),
        (["--labelled", "labelled.csv", "--plot", "plot.doc"], "A plot file must end in"),
    ],
)
def test_mistakes_are_one_line(terrine, words, said):
    code, out, err = terrine(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
