"""A run by the tested route: its ledger is older than its votes, and a test that fails leaves a bit, nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest

from terrine.errors import InputError, LedgerError, PlanError, TestFailedError
from terrine.labeller import noise_file
from terrine.mechanisms import ConfidentGNMax
from terrine.noise import COIN, uniform
from terrine.release.plan_tested import TestedPlan
from terrine.report.tables import route_settings
from terrine.runs import local
from terrine.runs.base import load_answers
from terrine.runs.config import read_config
from terrine.runs.dry_run import dry_run
from terrine.runs.facts import write_run_report
from terrine.runs.local import Run
from terrine.runs.tested import tested_facts

pytestmark = pytest.mark.usefixtures("by_renyi")
PRIVACY = """
route = "tested"
target = 2.2
mechanism = "confident"
threshold = 60
sigma_check = 40
sigma_vote = 10
queries = 60
delta = 1e-5
"""


def settings(folder, *, spread=0.5, privacy=PRIVACY, number=200, keep="false", name="run.toml"):
    path = folder / name
    path.write_text(
        f"""
[data]
name = "blobs"
[data.options]
n_private = 4000
n_public = 100
n_test = 50
spread = {spread}
[teachers]
number = {number}
kind = "lda"
executor = "serial"
keep = {keep}
min_units = 0
[privacy]
{privacy}
[student]
kind = "supervised"
estimator = "sklearn.linear_model.LogisticRegression"
"""
    )
    return path


@pytest.fixture(autouse=True)
def a_fair_coin_that_lands(monkeypatch):
    monkeypatch.setattr(noise_file, "uniform", lambda source, n: n // 2 if n == COIN else uniform(source, n))


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_a_run_that_passes(tmp_path, monkeypatch):
    run = Run.create(settings(tmp_path, privacy=PRIVACY + "consensus = 0.9"), tmp_path / "run")
    seen, real = [], local.poll_teachers

    def voting(*arguments, **options):
        seen.append(names(run.folder))
        return real(*arguments, **options)

    monkeypatch.setattr(local, "poll_teachers", voting)
    run.teach()
    run.vote()
    assert {"ledger.json", "ledger.sqlite"} <= seen[0]  # the target is fixed before anyone votes
    assert "votes.npz" not in seen[0]
    answers = run.label()
    assert answers.secure
    assert answers.n_answered > 30
    shown = run.guarantee()
    assert (shown.epsilon, shown.test) == (2.2, "passed")
    assert "By plan the test passes with a chance of 99.9%" in shown.notes[1]
    run.learn()
    card = (run.folder / "student" / "model_card.md").read_text()
    assert "none of them if it fails" in card
    assert "By plan the test passes with a chance of" in card
    page = write_run_report(run).read_text()
    for words in ("A tested release", "The test passed, and the answers were published", "adds its own ε and δ"):
        assert words in page, words
    assert "The test did not pass" not in page
    again = Run(run.folder).label()
    np.testing.assert_array_equal(again.labels, answers.labels)
    assert [name for name in names(run.folder) if "noise" in name] == []


def test_a_run_that_fails_leaves_one_bit(tmp_path):
    run = Run.create(settings(tmp_path, spread=30.0), tmp_path / "run")
    run.teach()
    for _ in range(2):
        with pytest.raises(TestFailedError, match="adds its own epsilon and delta"):
            Run(run.folder).label()
    with pytest.raises(TestFailedError, match="none ever will be from this ledger"):  # and not: get them first
        run.learn()
    left = names(run.folder)
    assert not {"answers.npz", "student"} & left
    assert [name for name in left if "noise" in name] == []
    shown = run.guarantee()
    assert (shown.test, shown.epsilon, shown.answered, shown.withheld) == ("failed", 2.2, 0, 0)
    page = write_run_report(run).read_text()
    for words in ("The test did not pass: nothing was published", "not published", "is unknown: nothing was assumed"):
        assert words in page, words
    assert tested_facts(run)["failed"]
    assert "secret" in write_run_report(run, reveal=True).name
    with run.ledger() as ledger:
        assert ledger.verify() == []
        assert ledger.outcomes() == {"answered": 0, "withheld": 0, "reinforced": 0}


def test_the_command_ends_with_its_own_exit_code(tmp_path, terrine, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings(tmp_path, spread=30.0)
    for _ in range(2):
        code, out, err = terrine("run", "run.toml")
        assert code == 4
        assert "The private test did not pass. No answer was published" in err
        assert "answered" not in out
    assert (tmp_path / "run" / "report.html").is_file()
    assert terrine("report", "run").code == 0
    code, out, _ = terrine("ledger", "show", "run")
    assert code == 0
    assert "The test did not pass" in out
    assert json.loads(terrine("ledger", "show", "run", "--json").out)["test"] == "failed"
    code, out, _ = terrine("run", "run.toml", "--dry-run")
    assert code == 0
    for words in (
        "of a tested release",
        "If the test fails, nothing is published",
        "How likely",
        "adds its own ε and δ",
    ):
        assert words in " ".join(out.split()), words


def test_votes_that_are_older_than_the_ledger_are_refused(tmp_path):
    run = Run.create(settings(tmp_path), tmp_path / "run")
    run.teach()
    run.vote()
    for name in ("ledger.json", "ledger.sqlite"):
        (run.folder / name).unlink()
    with pytest.raises(LedgerError, match="the teachers voted before the target was fixed"):
        Run(run.folder).label()
    assert not (run.folder / "ledger.json").exists()


def test_a_crash_after_the_bit_gives_the_same_answers(tmp_path, monkeypatch):
    run = Run.create(settings(tmp_path), tmp_path / "run")
    run.teach()
    kept = []

    def crash(path, rows, answers):
        kept.append(answers)
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(local, "save_answers", crash)
        with pytest.raises(KeyboardInterrupt):
            run.label()
    answers = Run(run.folder).label()
    np.testing.assert_array_equal(answers.labels, kept[0].labels)
    np.testing.assert_array_equal(load_answers(run.folder / "answers.npz")[1].labels, answers.labels)


def test_noise_that_was_lost_is_not_drawn_again(tmp_path, monkeypatch):
    run = Run.create(settings(tmp_path), tmp_path / "run")
    run.teach()

    def crash(self, votes, noise):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr("terrine.release.tested.ConditionalGuarantee._draw", crash)
        with pytest.raises(KeyboardInterrupt):
            run.label()
    (noise,) = [path for path in run.folder.iterdir() if "noise" in path.name]
    noise.unlink()
    with pytest.raises(TestFailedError, match="counts as failed"):
        Run(run.folder).label()
    assert not {"answers.npz", "guarantee.json"} & names(run.folder)


def test_the_ledger_needs_no_private_data(tmp_path, monkeypatch):
    """A service opens it where the data may be gone."""
    run = Run.create(settings(tmp_path, keep="true"), tmp_path / "run")
    run.teach()
    run.ledger().close()

    def gone(*_, **__):
        raise AssertionError("the data were read")

    monkeypatch.setattr(local, "task_of", gone)
    with Run(run.folder).ledger() as ledger:
        assert ledger.budget.n_classes == 3
        assert ledger.secrets == run.folder


# ---- settings


@pytest.mark.parametrize(
    ("privacy", "message"),
    [
        (PRIVACY.replace("target = 2.2", ""), "needs `target`, the epsilon to claim"),
        (PRIVACY.replace('route = "tested"', ""), "takes no `target`: leave it out"),
        (
            'route = "tested"\nmechanism = "lnmax"\nscale = 20\nqueries = 10\ntarget = 1\ndelta = 1e-5',
            "takes mechanism",
        ),
        ('route = "tested"\nmechanism = "gnmax"\nepsilon = 1\nqueries = 10\ndelta = 1e-5', "takes mechanism"),
        ('route = "tested"\nepsilon = 1\nconsensus = 0.9\ntarget = 1\ndelta = 1e-5', "takes no `target`"),
        ('route = "tested"\nepsilon = 1\ndelta = 1e-5', "needs `consensus`"),
        (PRIVACY.replace("2.2", "50.0"), "which needs no test"),
        (PRIVACY.replace("2.2", "0.2"), "which delta and the checks cost"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, privacy, message):
    with pytest.raises(InputError, match=message):
        dry_run(settings(tmp_path, privacy=privacy))


def test_a_route_is_planned_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("terrine.runs.factories.STANDINS", 1_000)
    monkeypatch.setattr("terrine.release.plan_tested._ORDERS", (22.7,))
    monkeypatch.setattr("terrine.release.plan_tested._SEARCH", ([(1.0, 1.0, 1.0), (1.0, 1.0, 0.8)],))
    privacy = 'route = "tested"\nepsilon = 2\nconsensus = 0.95\nqueries = 100\ndelta = 1e-5'
    run = Run.create(settings(tmp_path, privacy=privacy, number=1000), tmp_path / "run")
    found = run.config.privacy
    kept = json.loads((run.folder / "plan.json").read_text())
    assert (kept["route"], kept["target"], kept["queries"]) == ("tested", found.target, found.queries)
    assert found.target < 1.5
    with run.ledger() as ledger:
        assert ledger.budget.target == found.target
        assert ledger.budget.pass_chance > 0.8
    assert dry_run(tmp_path / "run.toml").guarantee.epsilon == found.target
    few = settings(tmp_path, privacy=privacy, number=50, name="few.toml")
    with pytest.raises(PlanError, match="worst case is"):
        dry_run(few)


def test_what_a_plan_prints_can_be_pasted(tmp_path):
    plan = TestedPlan(
        mechanism=ConfidentGNMax(threshold=60.0, sigma_check=40.0, sigma_vote=10.0),
        n_queries=60,
        n_answers=55,
        order=11.5,
        share=0.8,
        target=2.1996,
        worst_case=4.0,
        pass_chance=0.95,
        accuracy=0.99,
        right_answers=50.0,
    )
    text = route_settings(plan, delta=1e-5, consensus=0.9)
    path = settings(tmp_path, privacy=text.removeprefix("[privacy]\n"))
    found = read_config(path).privacy
    assert (found.route, found.target, found.order, found.share) == ("tested", 2.2, 11.5, 0.8)
    assert (found.queries, found.answers, found.consensus) == (60, 55, 0.9)
    assert dry_run(path).guarantee.epsilon == 2.2


def test_the_plan_command_prints_these_settings(terrine, monkeypatch):
    import tomllib

    from terrine.runs.config import PrivacyConfig

    monkeypatch.setattr("terrine.release.plan_tested._SEARCH", ([(1.0, 1.0, 1.0), (1.0, 1.0, 0.8)],))
    monkeypatch.setattr("terrine.release.plan_tested._ORDERS", (38.0,))
    asked = ["plan", "--epsilon", 1.0, "--delta", 1e-6, "--teachers", 5000, "--classes", 10, "--consensus", 0.95]
    asked += ["--max-queries", 300, "--route"]
    printed = terrine(*asked).out
    text = "[privacy]" + printed.partition("[privacy]")[2].partition("\n  ")[0]
    found = PrivacyConfig.model_validate(tomllib.loads(text)["privacy"])
    assert (found.route, found.mechanism, found.consensus) == ("tested", "confident", 0.95)
    assert json.loads(terrine(*asked, "--json").out)["settings"] == text
