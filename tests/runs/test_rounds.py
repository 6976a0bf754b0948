"""Rounds in a run's settings: which rows they ask, under which budget, what is kept and what is said of them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from terrine.budgets import FilterBudget, Spending
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError, PlanError
from terrine.ledger import Ledger
from terrine.mechanisms import ABSTAIN, ConfidentGNMax, InteractiveGNMax, Outcome
from terrine.runs.base import load_answers
from terrine.runs.config import read_config, write_config
from terrine.runs.dry_run import dry_run
from terrine.runs.facts import public_facts, secret_facts, write_run_report
from terrine.runs.local import Run
from terrine.runs.plan_rounds import RoundWish, filter_of, plan_rounds, wishes
from terrine.runs.rounds import rounds_on
from terrine.students import load_student

SETTINGS = """
seed = 3
[data]
name = "blobs"
[teachers]
number = 40
kind = "logistic"
executor = "serial"
[privacy]
delta = 1e-5
[[rounds]]
mechanism = "confident"
threshold = 30
sigma_check = 12
sigma_vote = 6
queries = 120
answers = 60
[[rounds]]
mechanism = "interactive"
threshold = 20
sigma_check = 12
sigma_vote = 6
student_confidence = 0.8
queries = 200
answers = 20
[student]
kind = "supervised"
estimator = "sklearn.linear_model.LogisticRegression"
"""
PLANNED = """
seed = 3
[data]
name = "blobs"
[teachers]
number = 40
kind = "logistic"
executor = "serial"
[privacy]
delta = 1e-5
epsilon = 4.0
consensus = 0.9
[[rounds]]
mechanism = "confident"
share = 0.6
[[rounds]]
mechanism = "interactive"
[student]
estimator = "sklearn.linear_model.LogisticRegression"
"""


@pytest.fixture
def settings(tmp_path):
    def write(text=SETTINGS, **changes):
        for old, new in changes.values():
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "run.toml"
        path.write_text(text)
        return path

    return write


def whole(run):
    run.teach()
    run.vote()
    run.label()
    run.learn()
    return run


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rounds")
    (folder / "run.toml").write_text(SETTINGS)
    return whole(Run.create(folder / "run.toml", folder / "r"))


def test_the_whole_way(done):
    shown = done.guarantee()
    first, second = shown.rounds
    assert isinstance(first.mechanism, ConfidentGNMax)
    assert isinstance(second.mechanism, InteractiveGNMax)
    assert (first.queries_at_most, first.answers_at_most) == (120, 60)
    assert first.answered <= 60
    assert second.answered <= 20
    assert first.answered + first.withheld + first.unasked == 120
    assert second.answered + second.reinforced + second.withheld + second.unasked == 200
    assert second.reinforced > 100
    assert shown.answered == first.answered + second.answered
    assert shown.secure_noise
    assert done.student_result().accuracy > 0.95
    assert json.loads(json.dumps(shown.to_json())) == json.loads((done.folder / "guarantee.json").read_text())
    assert type(shown).from_json(shown.to_json()) == shown


def test_one_filter_pays_for_all_rounds(done):
    shown = done.guarantee()
    with done.ledger() as ledger:
        assert isinstance(ledger.budget, FilterBudget)
        assert ledger.budget.relation == shown.relation == "row_replaced"
        assert (shown.epsilon, shown.order) == (ledger.budget.epsilon, ledger.budget.order)
        prices = [
            ledger.budget.price(
                one.mechanism, n_queries=one.answered + one.withheld + one.reinforced, n_answers=one.answered
            )
            for one in shown.rounds
        ]
        spent = sum(prices, Spending())
        assert ledger.spent().epsilons[0] == pytest.approx(spent.charge / 2**50, rel=1e-9)
        assert ledger.summary().reinforced == shown.rounds[1].reinforced
        allowed = [
            ledger.budget.price(one.mechanism, n_queries=one.queries_at_most, n_answers=one.answers_at_most)
            for one in shown.rounds
        ]
        assert ledger.budget.holds(sum(allowed, Spending()))
        assert not ledger.budget.holds(sum(allowed, ledger.budget.price(SMALLEST, n_queries=1, n_answers=0)))


SMALLEST = ConfidentGNMax(threshold=30, sigma_check=12, sigma_vote=6)


def test_rounds_ask_fresh_rows_first_and_the_teachers_vote_once(done):
    first, second = (load_answers(done.folder / f"round-{k}.npz")[0] for k in (1, 2))
    assert not set(first) & set(second)
    np.testing.assert_array_equal(np.concatenate((first, second)), done.asked())
    assert len(done.vote()) == 320


def test_when_all_rows_are_asked_a_round_begins_again(settings, tmp_path):
    run = Run.create(settings(queries=("queries = 200", "queries = 450")), tmp_path / "r")
    asked = run.asked()
    assert sorted(asked) == list(range(500))
    first, second = rounds_on(asked, run.rounds.planned)
    assert len(set(second.rows)) == 450
    assert set(first.rows) | set(second.rows) == set(range(500))
    assert len(set(first.rows) & set(second.rows)) == 70


def test_the_student_learns_from_all_rounds_and_the_teachers_label_counts(done):
    rows, known = done.released()
    by_row = dict(zip(rows.tolist(), known.labels.tolist(), strict=True))
    for k in (1, 2):
        asked, answers = load_answers(done.folder / f"round-{k}.npz")
        for row, label in zip(asked[answers.labels != ABSTAIN], answers.labels[answers.labels != ABSTAIN], strict=True):
            assert by_row[int(row)] == label
    assert load_student(done.folder / "student").about.n_answered == (known.labels != ABSTAIN).sum()
    assert (known.outcomes == Outcome.REINFORCED).sum() == done.guarantee().rounds[1].reinforced


def test_a_second_time_costs_and_changes_nothing(done):
    with done.ledger() as ledger:
        before = ledger.summary()
    kept = (done.folder / "round-2.proba.npz").read_bytes()
    answers = load_answers(done.folder / "answers.npz")[1]
    again = Run(done.folder)
    again.label()
    assert (again.released()[1].labels == answers.labels).all()
    assert (done.folder / "round-2.proba.npz").read_bytes() == kept
    with done.ledger() as ledger:
        assert ledger.summary() == before


def test_an_opinion_that_was_changed_is_refused(done, tmp_path):
    import shutil

    shutil.copytree(done.folder, tmp_path / "r")
    (tmp_path / "r" / "round-2.proba.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"round-2\.proba\.npz is damaged, or for other rows\. Put it back: round 2"):
        Run(tmp_path / "r").label()


def test_a_run_without_one_answer_goes_on_with_an_even_opinion(settings, tmp_path):
    run = Run.create(settings(threshold=("threshold = 30", "threshold = 900")), tmp_path / "r")
    run.teach()
    run.label()
    with np.load(tmp_path / "r" / "round-2.proba.npz") as kept:
        assert (kept["proba"] == 1 / 3).all()
    assert run.guarantee().rounds[0].answered == 0


def test_it_is_said_in_plain_words(done, terrine):
    code, out, err = terrine("ledger", "show", done.folder)
    assert code == 0, err
    assert "Round 1: Confident-GNMax: at most 120 questions and 60 answers; " in out
    assert re.search(r"Round 2: Interactive-GNMax: .*\d+ answered, \d+ kept the student's own label, \d+ withheld", out)
    write_run_report(done)
    page = (done.folder / "report.html").read_text()
    assert "asked in 2 rounds" in page
    assert "Interactive-GNMax: at most 200 questions and 20 answers" in page
    assert "kept the student&#39;s own label" in page
    card = (done.folder / "student" / "model_card.md").read_text()
    assert "| round 2 | Interactive-GNMax: threshold 20 votes" in card
    code, out, err = terrine("label", done.folder)
    assert code == 0, err
    assert "Round 2: Interactive-GNMax" in out
    facts = public_facts(done)
    assert facts["spending"]["epsilon"][-1] <= done.guarantee().epsilon
    assert facts["answers"]["reinforced"] == done.guarantee().reinforced
    assert "exact" not in secret_facts(done).reveal()


def test_a_dry_run_says_the_same_and_writes_nothing(settings, tmp_path, terrine):
    path = settings()
    found = dry_run(path)
    assert found.guarantee.epsilon == pytest.approx(11.2173, abs=1e-3)
    assert [(one.n_queries, one.n_answers) for one in found.rounds] == [(120, 60), (200, 20)]
    code, out, err = terrine("run", path, "--dry-run")
    assert code == 0, err
    assert "round 2" in out
    assert "at most 200 questions and 20 answers" in out
    assert list(tmp_path.iterdir()) == [path]


def test_a_plan_meets_its_epsilon_and_stays(settings, tmp_path):
    run = Run.create(settings(PLANNED), tmp_path / "r")
    budget = run.rounds.budget(delta=1e-5)
    assert 0.95 * 4 < budget.epsilon <= 4
    kept = (tmp_path / "r" / "plan.json").read_bytes()
    again = Run.create(settings(PLANNED), tmp_path / "r")
    assert again.rounds == run.rounds
    whole(run)
    assert run.guarantee().epsilon == budget.epsilon
    assert (tmp_path / "r" / "plan.json").read_bytes() == kept


def test_rounds_may_be_corrected_until_the_teachers_have_voted(settings, tmp_path):
    run = Run.create(settings(), tmp_path / "r")
    run.teach()
    assert run.rounds.planned[1].n_queries == 200
    run = Run.create(settings(queries=("queries = 200", "queries = 150")), tmp_path / "r")
    assert run.rounds.planned[1].n_queries == 150
    run.vote()
    with pytest.raises(
        InputError, match=r"any more: the teachers have voted.*Every run on the same people spends its own"
    ):
        Run.create(settings(), tmp_path / "r")


def test_what_is_written_reads_back_the_same(settings, tmp_path):
    for text in (SETTINGS, PLANNED):
        config = read_config(settings(text))
        (tmp_path / "again.toml").write_text(write_config(config))
        assert read_config(tmp_path / "again.toml") == config


REFUSED = {
    "interactive first": (
        ('mechanism = "confident"', 'mechanism = "interactive"'),
        'the first of [[rounds]] is "interactive", which needs a student',
    ),
    "a number is missing": (
        ("sigma_check = 12\nsigma_vote = 6\nqueries = 120", "sigma_vote = 6\nqueries = 120"),
        'round 1 of [[rounds]]: mechanism = "confident" needs `sigma_check`',
    ),
    "a number too many": (
        ("queries = 120", "queries = 120\nsigma = 3"),
        'round 1 of [[rounds]]: mechanism = "confident" takes no `sigma`: leave it out',
    ),
    "a share without epsilon": (("queries = 120", "queries = 120\nshare = 0.5"), "takes no `share`"),
    "both": (("delta = 1e-5", 'delta = 1e-5\nmechanism = "gnmax"\nsigma = 3.0\nqueries = 5'), "leave it out"),
    "tested": (("delta = 1e-5", 'delta = 1e-5\nroute = "tested"\ntarget = 1.0'), "and no [[rounds]]"),
    "the cost of rounds": (("delta = 1e-5", "delta = 1e-5\npublish_cost = true"), "publish_cost"),
    "misspelled": (
        ("answers = 20", "answer = 20"),
        "There is no key rounds[1].answer; did you mean rounds[1].answers",
    ),
    "none": (("[[rounds]]", "[[other]]"), "There is no key other"),
    "too many answers": (("answers = 60", "answers = 121"), "answers of a round must be at most its queries, 120, got"),
    "too many rows": (("queries = 200", "queries = 501"), "queries of round 2 must be at most 500, the public rows"),
}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED)
def test_bad_rounds_are_refused_in_words(settings, change, words):
    with pytest.raises(InputError, match=re.escape(words)):
        dry_run(settings(change=change))


def test_bad_plans_are_refused_in_words(settings):
    for change, words in (
        (("share = 0.6", "share = 0.6\nsigma_vote = 3"), "takes no `sigma_vote` beside an `epsilon`"),
        (('mechanism = "confident"', 'mechanism = "gnmax"'), "is not planned from `epsilon`"),
        (('mechanism = "interactive"', 'mechanism = "interactive"\nshare = 0.6'), "add up to more than 1"),
        (("consensus = 0.9\n", ""), "needs `consensus`"),
    ):
        with pytest.raises(InputError, match=re.escape(words)):
            dry_run(settings(PLANNED, change=change))


@pytest.mark.parametrize("n_rounds", [1, 2, 3])
def test_planned_rounds_fit_their_filter_and_use_it(n_rounds):
    votes = synthetic_votes(n_queries=400, n_classes=10, n_teachers=250, consensus=0.9)
    found = plan_rounds(wishes(n_rounds), standin=votes, epsilon=2.0, delta=1e-5, n_public=5000)
    assert len(found) == n_rounds
    assert 1.9 < filter_of(found, delta=1e-5).epsilon <= 2.0
    assert [type(one.mechanism) for one in found] == [ConfidentGNMax] + [InteractiveGNMax] * (n_rounds - 1)


def test_a_larger_share_is_more_answers_and_questions_are_limited():
    votes = synthetic_votes(n_queries=400, n_classes=10, n_teachers=250, consensus=0.9)
    given = {"standin": votes, "epsilon": 2.0, "delta": 1e-5, "n_public": 5000}
    small, large = (
        plan_rounds([RoundWish(kind="confident", share=share), RoundWish(kind="interactive")], **given)
        for share in (0.3, 0.8)
    )
    assert small[0].n_answers < large[0].n_answers
    assert small[1].n_answers > large[1].n_answers
    few = plan_rounds([RoundWish(kind="confident", max_queries=50), RoundWish(kind="interactive")], **given)
    assert few[0].n_queries <= 50
    with pytest.raises(PlanError, match="does not pay for 2 rounds"):
        plan_rounds(wishes(2), **(given | {"epsilon": 0.02}))
    with pytest.raises(InputError, match="cannot be interactive"):
        plan_rounds([RoundWish(kind="interactive")], **given)


def test_terrine_plan_prints_what_a_run_takes(settings, tmp_path, terrine):
    words = "plan --epsilon 3 --delta 1e-5 --teachers 250 --classes 3 --consensus 0.9 --rounds 2 --max-queries 500"
    code, out, err = terrine(*words.split())
    assert code == 0, err
    printed = out[out.rindex("[privacy]") :]
    path = settings(SETTINGS[: SETTINGS.index("[privacy]")].replace("number = 40", "number = 250") + printed)
    found = dry_run(path)
    assert 2.85 < found.guarantee.epsilon <= 3
    code, out, _ = terrine(*words.split(), "--json")
    facts = json.loads(out)
    assert facts["epsilon"] == found.guarantee.epsilon
    assert facts["rounds"][1]["kind"] == "interactive"
    assert terrine(*words.split(), "--route")[0] == 2


def test_a_ledger_of_another_plan_is_refused(done, tmp_path):
    with Ledger(tmp_path / "other.sqlite", budget=FilterBudget(epsilon=2, delta=1e-5, order=8)) as other:
        assert other.id
    from terrine.errors import LedgerError

    with pytest.raises(LedgerError):
        done.ledger(tmp_path / "other.sqlite")
