"""Commands over a run directory, as a user types them; the demonstration at a size for tests."""

from __future__ import annotations

import json
import re
import stat
import sys
import time

import numpy as np
import pytest

from terrine.cli import common
from terrine.runs import demo as demonstration
from terrine.runs.config import RunConfig

SETTINGS = """
[data]
name = "blobs"
[teachers]
number = 40
kind = "logistic"
executor = "serial"
[privacy]
mechanism = "confident"
threshold = 30
sigma_check = 12
sigma_vote = 7
queries = 120
answers = 90
delta = 1e-5
[student]
kind = "supervised"
estimator = "sklearn.linear_model.LogisticRegression"
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """The working folder, with run.toml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(SETTINGS)
    monkeypatch.setattr(common, "_EVERY", 3600.0)  # lines of progress come by the clock, more of them on a busy machine


def test_stage_by_stage(terrine, tmp_path):
    for command, words in (
        ("teach run.toml", "40 teachers, trained and kept"),
        ("vote run", "The votes are secret"),
        ("label run", "Guarantee: ε = "),
        ("learn run", "right on 500 test rows"),
        ("report run", "run/report.html"),
    ):
        code, out, err = terrine(*command.split())
        assert (code, err) == (0, "")
        assert words in out
    assert (tmp_path / "run" / "report.html").read_text().startswith("<!")
    assert "no problem found" in terrine("ledger", "verify", "run")[1]
    assert "ε, guaranteed" in terrine("ledger", "show", "run")[1]
    assert json.loads(terrine("ledger", "show", "run", "--json")[1])["queries"] <= 120


def test_all_at_once_and_as_json(terrine):
    code, out, _ = terrine("run", "run.toml", "--json")
    assert code == 0
    facts = json.loads(out)
    assert facts["guarantee"]["publishable"]
    assert facts["student"]["accuracy"] > 0.9
    again = json.loads(terrine("run", "run", "--json")[1])
    assert again["guarantee"] == facts["guarantee"]
    assert (facts["finished_before"], again["finished_before"]) == (False, True)
    out = terrine("run", "run").out
    assert out.startswith(
        "run was finished already: nothing was trained, asked or spent.\nIt rests on the private rows"
    )
    assert "Secret: partition.key, partition.npz, votes.npz and teachers/.\nKeep config.toml secret too" in out
    assert "answers.npz, ledger.sqlite (with the names of keys), ledger.json" in out
    assert "Every further run" not in out


def test_what_is_secret_needs_asking_for(terrine, tmp_path):
    terrine("teach", "run.toml")
    public = terrine("vote", "run", "--json")[1]
    assert set(json.loads(public)) == {"run", "teachers", "queries", "classes"}
    code, out, err = terrine("vote", "run", "--plot", "votes.png")
    assert (code, out) == (2, "")
    assert "--reveal" in err
    code, out, _ = terrine("vote", "run", "--reveal", "--plot", "votes.png")
    assert code == 0
    assert "depend on private votes" in " ".join(out.split())
    assert stat.S_IMODE((tmp_path / "votes.png").stat().st_mode) == 0o600
    assert json.loads(terrine("vote", "run", "--reveal", "--json")[1])["secret"].startswith("secret")


def test_owners_tally(terrine, tmp_path):
    (tmp_path / "two.toml").write_text(SETTINGS.replace("number = 40", "number = 40\nfirst_id = 40"))
    for name in ("run", "two"):
        terrine("teach", f"{name}.toml")
        assert terrine("vote", name, "--ballots", f"{name}.npz")[0] == 0
    assert "80 teachers of 2 owners" in terrine("tally", "run.npz", "two.npz", "--out", "run")[1]
    assert terrine("label", "run")[0] == 0
    code, _, err = terrine("tally", "run.npz", "run.npz", "--out", "votes.npz")
    assert code == 2
    assert "Teacher 0 is in two ballots" in err


def test_a_dry_run(terrine, tmp_path):
    code, out, _ = terrine("run", "run.toml", "--dry-run")
    assert code == 0
    assert "ε of the budget" in out
    assert "publishable" not in out  # nothing was released
    assert "A teacher learns from about 50 units" in out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("delta = 1e-5", "delta = 0.5", "δ = 0.5 is too large for 2,000 units"),
        ("answers = 90", "answers = 2", "at most 2 answers for 3 classes"),
        ("number = 40", "number = 2001\nmin_units = 0", "more teachers than units"),
        ("queries = 120", "queries = 501", "only 500 public rows"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_taught(terrine, tmp_path, old, new, words):
    (tmp_path / "run.toml").write_text(SETTINGS.replace(old, new))
    code, out, err = terrine("run", "run.toml", "--dry-run", "--json")
    assert code == 2
    assert words in err
    assert [one["severity"] for one in json.loads(out)["advice"]["findings"]].count("refuse") == 1
    code, out, err = terrine("run", "run.toml")
    assert (code, out) == (2, "")
    assert words in err
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"config.toml"}
    (tmp_path / "run.toml").write_text(SETTINGS)  # corrected, in the same directory
    assert terrine("teach", "run.toml")[0] == 0


def test_warnings_come_first_and_stand_in_the_report(terrine, tmp_path):
    (tmp_path / "run.toml").write_text(SETTINGS.replace("answers = 90", "answers = 14"))
    code, out, err = terrine("run", "run.toml", "--json")
    assert code == 0
    assert err.startswith("terrine: warning: This plan gives at most 14 answers for 3 classes")
    assert json.loads(out)["guarantee"]["answers_at_most"] == 14
    assert "fewer than 5 a class" in (tmp_path / "run" / "report.html").read_text()


def test_499_rows_with_25_teachers_are_not_planned_calmly(terrine, tmp_path):
    text = SETTINGS[: SETTINGS.index("[teachers]")] + (
        'options = {n_private = 499, n_classes = 2}\n[teachers]\nnumber = 25\nkind = "logistic"\n'
        "[privacy]\nepsilon = 1.0\ndelta = 1e-5\nconsensus = 0.85\n"
    )
    (tmp_path / "run.toml").write_text(text)
    code, out, err = terrine("run", "run.toml", "--dry-run")
    assert code == 2
    assert "No. This plan gives" in out
    assert "a student cannot learn every class" in err


def test_a_missing_package_is_said_before_anything_is_taught(terrine, tmp_path, monkeypatch):
    for missing, words in (
        ("skops.io", "needs skops to keep the student"),
        ("jinja2", "needs jinja2 to write the rep"),
    ):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, missing, None)
            for more in (["--dry-run"], []):
                code, _, err = terrine("run", "run.toml", *more)
                assert code == 2
                assert words in err
        assert not (tmp_path / "run" / "partition.npz").exists()
    assert terrine("teach", "run.toml")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["teach", "none.toml"], "There is no none.toml. Give"),
        (["vote", "."], "it has no config.toml"),
        (["keys", "create", "student", "--name", "a"], "a student's folder, not a run's"),
        (["label", "run.toml"], "terrine teach"),
        (["teach", ".", "--out", "x"], "Leave --out out."),
        (["ledger", "show", "none.sqlite"], "There is no ledger at"),
    ],
)
def test_mistakes_are_one_line(terrine, tmp_path, words, said):
    (tmp_path / "student").mkdir()
    (tmp_path / "student" / "model_card.json").write_text("{}")
    code, out, err = terrine(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_progress_is_told_in_a_pipe_too(monkeypatch, capfd):
    monkeypatch.setattr(common, "_EVERY", 0.01)
    with common.progress_bar("teaching", quiet=False) as told:
        told(0.5)
        deadline = time.monotonic() + 10
        shown = ""
        while "teaching: 50%, 0 s" not in shown and time.monotonic() < deadline:
            shown += capfd.readouterr().err
    assert "teaching: 50%, 0 s" in shown
    capfd.readouterr()
    with common.progress_bar("teaching", quiet=True) as told:
        told(0.5)
        time.sleep(0.05)
    assert capfd.readouterr().err == ""


def test_the_demonstration(terrine, tmp_path, monkeypatch):
    """The same stages and page, on a fiftieth of the images."""
    small = demonstration.DEMO.model_dump(exclude_none=True)
    small["data"]["options"] |= {"n_private": 2_400, "n_public": 300, "n_test": 100}
    small["teachers"] |= {"number": 12, "executor": "serial"}
    small["privacy"] |= {"queries": 300, "epsilon": 20.0}
    monkeypatch.setattr(demonstration, "DEMO", RunConfig.model_validate(small))
    monkeypatch.setattr(demonstration, "COMPARED", 500)
    code, out, _ = terrine("demo", "--out", "demo")
    assert code == 0
    for words in ("student", "without privacy", "answers given", "ε, publishable", "report.html"):
        assert words in out
    assert (tmp_path / "demo" / "report.html").is_file()


CSV = """
seed = 3
[data]
private = "private.npz"
public = "public.npy"
classes = ["a", "b"]
[teachers]
number = 10
kind = "sklearn"
estimator = "sklearn.{estimator}"
options = {options}
executor = "serial"
keep = {keep}
partition = "balanced"
[privacy]
mechanism = "gnmax"
sigma = 2
queries = 20
delta = 1e-5
[student]
kind = "supervised"
estimator = "sklearn.linear_model.LogisticRegression"
"""


@pytest.mark.parametrize("keep", ["true", "false"])
def test_one_cell_does_not_stop_a_run_and_only_the_owner_learns_of_it(terrine, tmp_path, keep):
    """The same words, exit code and files with a cell of 1e39 and without; --reveal tells how many teachers failed."""
    rng = np.random.default_rng(0)
    y = np.arange(201) % 2
    X = np.column_stack([rng.normal(y, 0.3), rng.normal(size=201)])
    np.save(tmp_path / "public.npy", X[:60])
    (tmp_path / "own.toml").write_text(
        CSV.format(estimator="ensemble.RandomForestClassifier", keep=keep, options="{n_estimators = 5}")
    )
    said, files = [], []
    for place, cell in enumerate((0.5, 1e39)):
        X[0, 0] = cell
        np.savez(tmp_path / "private.npz", X=X, y=y)
        out = tmp_path / f"out{place}"
        code, printed, error = terrine("run", "own.toml", "--out", out)
        assert code == 0
        said.append(
            (error, re.sub(r"\d+ queries|out\d", "", printed).split("The student agrees")[0])
        )  # then noise decides
        files.append(sorted(str(path.relative_to(out)) for path in out.rglob("*")))
        revealed = json.loads(terrine("run", out, "--reveal", "--json")[1])
        assert revealed["failed_teachers"] == place
        assert revealed["secret"] == "secret: depends on private rows"
        printed = terrine("vote", out, "--reveal")[1]
        assert f"{place} of 10 teachers could not learn" in printed
        assert "failed" not in terrine("run", out, "--json")[1]
        if keep == "true":
            assert f"{place} of 10 teachers could not learn" in terrine("teach", out, "--reveal")[1]
        else:
            assert stat.S_IMODE((out / "failed.json").stat().st_mode) == 0o600
        page = (out / "report.html").read_text()
        assert "could not learn" not in page
        assert "That this run was not refused" not in page  # hashed ids: no share is refused
    assert said[0] == said[1]
    assert files[0] == files[1]


def test_a_teacher_that_cannot_work_is_refused_before_a_private_row_is_dealt(terrine, tmp_path):
    np.savez(tmp_path / "private.npz", X=np.arange(40.0)[:, None], y=np.arange(40) % 2)
    np.save(tmp_path / "public.npy", -np.arange(30.0)[:, None])
    (tmp_path / "own.toml").write_text(CSV.format(estimator="naive_bayes.MultinomialNB", keep="true", options="{}"))
    code, _, error = terrine("run", "own.toml", "--out", tmp_path / "out")
    assert code == 2
    assert "public rows it failed with ValueError: Negative values in data" in error
    assert "Nothing was taught, written or spent" in error
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.toml"]
