"""Rounds on a real ledger: what they cost, what a rerun costs, which label counts, and where the budget ends."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from terrine.accounting.costs import worst_case_cost
from terrine.accounting.curves import guarantee
from terrine.budgets import CountBudget, FilterBudget, Spending
from terrine.datasets.blobs import blobs
from terrine.errors import BudgetError, InputError, RequestError
from terrine.labeller import KeptVotes, Labeller
from terrine.ledger import Ledger
from terrine.mechanisms import ABSTAIN, ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Outcome
from terrine.noise import SeededNoise
from terrine.partitioning import partition
from terrine.runs.interactive import Round, UnaskedWarning, fit_interactive, paper_mechanisms, plan_filter
from terrine.students import SupervisedStudent, fit_student
from terrine.teachers import SklearnTeacher, poll_teachers

DOCS = Path(__file__).parents[2] / "docs"
STUDENT = SupervisedStudent(estimator=LogisticRegression())
TASK = blobs(n_private=1500, n_public=240, n_test=300, spread=0.6)
FIRST = ConfidentGNMax(threshold=35, sigma_check=8, sigma_vote=4)  # of 50 teachers
SECOND = InteractiveGNMax(threshold=25, sigma_check=8, sigma_vote=4, student_confidence=0.8)
ROUNDS = (Round(mechanism=FIRST, rows=np.arange(60)), Round(mechanism=SECOND, rows=np.arange(40, 240)))
PLANNED = ((FIRST, 60, 60), (SECOND, 200, 200))


@pytest.fixture(scope="module")
def votes():
    shares = partition(TASK.private, n_teachers=50, key=bytes(32))
    teacher = SklearnTeacher(estimator=LogisticRegression())
    return poll_teachers(TASK.private, shares, teacher, TASK.public.X, classes=TASK.classes, seed=0)


@pytest.fixture
def ask(votes, tmp_path):
    """Rounds under a budget, on a ledger that is opened anew from its file."""

    def call(rounds=ROUNDS, *, budget=None, rng=None, student=STUDENT, **options):
        ledger = Ledger(tmp_path / "ledger.sqlite", budget=budget)
        kept = KeptVotes(TASK.public, votes, classes=TASK.classes)
        taught = fit_interactive(
            student,
            TASK.public,
            rounds,
            labeller=lambda mechanism: Labeller(kept, mechanism, ledger, rng=rng),
            classes=TASK.classes,
            seed=0,
            **options,
        )
        return taught, float(ledger.spent().epsilons[0])

    return call


def charged(budget, *given):
    """Nats of (mechanism, Answers), from what came out alone."""
    prices = [budget.price(one, n_queries=len(got), n_answers=got.n_answered) for one, got in given]
    return sum(prices, Spending()).charge / 2**50


def test_two_rounds_are_charged_within_the_filter_and_no_more_than_they_gave(ask):
    budget = plan_filter(PLANNED, delta=1e-5)
    taught, spent = ask(budget=budget)
    first, second = taught.rounds
    assert (len(first), len(second)) == (60, 200)
    assert spent == pytest.approx(charged(budget, (FIRST, first), (SECOND, second)), rel=1e-9)
    assert 0 < spent <= budget.limit.charge / 2**50
    assert first.n_answered
    assert second.n_answered < 100  # of 200: the student knows most of them
    assert (second.outcomes == Outcome.REINFORCED).sum() > 50
    assert (taught.student.predict(TASK.test_X) == TASK.test_y).mean() > 0.9


class Killed(BaseException):
    """No handler of ours sees it."""


def test_after_a_kill_between_rounds_the_same_call_goes_on_and_pays_once(ask):
    budget = plan_filter(PLANNED, delta=1e-5)

    def kill(share):
        assert share == 0.5
        raise Killed

    with pytest.raises(Killed):
        ask(budget=budget, progress=kill)
    done = []
    taught, spent = ask(progress=done.append)
    assert done == [0.5, 1.0]
    assert spent == pytest.approx(charged(budget, *zip((FIRST, SECOND), taught.rounds, strict=True)), rel=1e-9)
    again, spent_again = ask()
    assert spent_again == spent
    for one, other in zip(taught.rounds, again.rounds, strict=True):
        np.testing.assert_array_equal(one.labels, other.labels)
        np.testing.assert_array_equal(one.outcomes, other.outcomes)
    np.testing.assert_array_equal(taught.labels, again.labels)
    np.testing.assert_array_equal(taught.student.predict_proba(TASK.test_X), again.student.predict_proba(TASK.test_X))


def test_a_request_id_stands_for_its_rows(ask):
    ask(budget=plan_filter(PLANNED, delta=1e-5))
    other = [ROUNDS[0], Round(mechanism=SECOND, rows=np.arange(100, 240))]
    with pytest.raises(RequestError):
        ask(other)
    assert len(ask(other, request_id="another")[0].rounds) == 2


def test_whose_label_counts(ask, votes):
    """Round one answers with much noise, round two with next to none, and again about rows of round one."""
    noisy, sharp = GNMax(sigma=40), InteractiveGNMax(threshold=20, sigma_check=1, sigma_vote=1, student_confidence=0.5)
    rounds = [Round(mechanism=noisy, rows=np.arange(100)), Round(mechanism=sharp, rows=np.arange(30, 240))]
    taught, _ = ask(rounds, budget=FilterBudget(epsilon=4000, delta=1e-5, order=2), rng=SeededNoise(1))
    one, two = np.full(240, ABSTAIN), np.full(240, ABSTAIN)
    one[:100], two[30:] = (given.labels for given in taught.rounds)
    outcome = np.full(240, Outcome.UNASKED)
    outcome[30:] = taught.rounds[1].outcomes
    by_teachers, reinforced = outcome == Outcome.TEACHERS, outcome == Outcome.REINFORCED
    was_answered = np.arange(240) < 100
    sure = fit_student(STUDENT, TASK.public, one, classes=TASK.classes, seed=0).predict(TASK.public.X)
    cases = {
        "answered anew": (by_teachers & was_answered, votes.counts.argmax(1)),
        "answered for the first time": (by_teachers & ~was_answered, votes.counts.argmax(1)),
        "reinforced, but answered before": (reinforced & was_answered, one),
        "reinforced": (reinforced & ~was_answered, sure),
        "not asked again": (np.arange(240) < 30, one),
    }
    for name, (where, expected) in cases.items():
        assert where.sum() >= 3, name
        np.testing.assert_array_equal(taught.labels[where], expected[where], err_msg=name)
    changed = by_teachers & was_answered & (one != two)
    assert changed.any()  # a later answer replaced another one
    assert (sure != one)[reinforced & was_answered].any()  # an answer was kept against the student
    assert (taught.labels[outcome == Outcome.ABSTAINED] == one[outcome == Outcome.ABSTAINED]).all()


def test_a_reinforced_label_gives_way_to_a_third_rounds_answer(ask):
    rounds = [*ROUNDS, Round(mechanism=GNMax(sigma=40), rows=np.arange(40, 240))]
    taught, _ = ask(rounds, budget=FilterBudget(epsilon=4000, delta=1e-5, order=2), rng=SeededNoise(1))
    second, third = taught.rounds[1:]
    assert (second.labels != third.labels)[second.outcomes == Outcome.REINFORCED].any()
    np.testing.assert_array_equal(taught.labels[40:], third.labels)


def test_when_round_one_took_everything_its_student_comes_back(ask):
    round_one = Round(mechanism=GNMax(sigma=8), rows=np.arange(60))
    budget = plan_filter([(round_one.mechanism, 60, 60)], delta=1e-5)
    with pytest.warns(UnaskedWarning, match=r"The budget has no room for round 2 \(left: "):
        taught, spent = ask([round_one, ROUNDS[1], ROUNDS[0]], budget=budget)
    (first,) = taught.rounds
    assert spent == pytest.approx(budget.limit.charge / 2**50)
    assert (first.outcomes == Outcome.TEACHERS).all()
    np.testing.assert_array_equal(taught.labels, np.append(first.labels, np.full(180, ABSTAIN)))
    assert (taught.student.predict(TASK.test_X) == TASK.test_y).mean() > 0.8
    with pytest.warns(UnaskedWarning):
        again, spent_again = ask([round_one, ROUNDS[1]])
    np.testing.assert_array_equal(again.labels, taught.labels)
    assert spent_again == spent


def test_where_round_two_is_cut_short_what_was_answered_is_learned(ask):
    """A check costs a ninth of a check with an answer: with no answer at all 5 such queries make room for 45."""
    every = GNMax(sigma=8)
    budget = plan_filter([(every, 60, 60), (SECOND, 5, 5)], delta=1e-5)
    with pytest.warns(UnaskedWarning, match=r"ran out in round 2: \d+ of its 200 rows were not"):
        taught, spent = ask([Round(mechanism=every, rows=np.arange(60)), ROUNDS[1]], budget=budget)
    second = taught.rounds[1]
    unasked = second.outcomes == Outcome.UNASKED
    assert 150 <= unasked.sum() <= 195
    assert (second.labels[unasked] == ABSTAIN).all()
    assert spent <= budget.limit.charge / 2**50
    learned = (second.outcomes == Outcome.TEACHERS) | (second.outcomes == Outcome.REINFORCED)
    assert (taught.labels[40:][learned] != ABSTAIN).all()
    assert taught.student.about.n_answered == (taught.labels != ABSTAIN).sum()


def test_without_budget_for_round_one_there_is_no_student(ask):
    budget = plan_filter([(SECOND, 1, 0)], delta=1e-5)
    with pytest.raises(BudgetError, match=r"^Not enough budget\. [^\n]*$"):
        ask(budget=budget)


BAD_ROUNDS = [
    ([], "Give at least one round."),
    ([ROUNDS[1]], "Round 1 uses InteractiveGNMax, which needs a student"),
    ([ROUNDS[0], Round(mechanism=SECOND, rows=[240])], "rows of round 2 must be from 0 to 239, got 240."),
    ([ROUNDS[0], Round(mechanism=SECOND, rows=[-1])], "rows of round 2 must be from 0 to 239, got -1."),
    ([ROUNDS[0], Round(mechanism=SECOND, rows=[])], "rows of round 2 must be a list of at least one row's index"),
    ([ROUNDS[0], Round(mechanism=SECOND, rows=[0.5])], "index, got shape (1,), dtype float64."),
    ([ROUNDS[0], Round(mechanism=SECOND, rows=np.ones(240, bool))], "index, got shape (240,), dtype bool."),
    ([ROUNDS[0], Round(mechanism=SECOND, rows=[[0, 1]])], "index, got shape (1, 2), dtype int64."),
    (
        [ROUNDS[0], Round(mechanism="GNMax", rows=[0])],
        "mechanism must be LNMax, GNMax, ConfidentGNMax or InteractiveGNMax, got str.",
    ),
]


@pytest.mark.parametrize(("rounds", "message"), BAD_ROUNDS)
def test_a_bad_round_is_refused_before_any_is_charged(ask, tmp_path, rounds, message):
    budget = FilterBudget(epsilon=3, delta=1e-5, order=5)
    with pytest.raises(InputError, match=re.escape(message)):
        ask(rounds, budget=budget)
    assert Ledger(tmp_path / "ledger.sqlite").spent().epsilons.max() == 0


def test_so_is_a_budget_for_one_mechanism(ask, tmp_path):
    with pytest.raises(InputError, match="This budget pays for"):
        ask(budget=CountBudget(FIRST, n_queries=100, delta=1e-5))
    assert Ledger(tmp_path / "ledger.sqlite").spent().epsilons.max() == 0


def test_so_are_two_ledgers(votes, tmp_path):
    budget = FilterBudget(epsilon=3, delta=1e-5, order=5)
    ledgers = {
        mechanism: Ledger(tmp_path / f"{k}.sqlite", budget=budget) for k, mechanism in enumerate((FIRST, SECOND))
    }
    kept = KeptVotes(TASK.public, votes)
    with pytest.raises(InputError, match=r"^All rounds must be paid from one ledger; "):
        fit_interactive(
            STUDENT,
            TASK.public,
            ROUNDS,
            labeller=lambda mechanism: Labeller(kept, mechanism, ledgers[mechanism]),
            classes=TASK.classes,
            seed=0,
        )


@pytest.mark.parametrize(("rng", "noise"), [(None, "secure"), (SeededNoise(0), "seeded: the guarantee does not hold")])
def test_the_students_card_says_what_drew_the_noise(ask, rng, noise):
    taught, _ = ask(budget=plan_filter(PLANNED, delta=1e-5), rng=rng)
    assert taught.student.about.noise == noise


PLANS = {
    "the paper's Glyph": (tuple(zip(paper_mechanisms(n_teachers=5000), (6000, 10000), (3400, 900), strict=True)), 1e-8),
    "small": (((FIRST, 60, 30), (SECOND, 200, 20)), 1e-5),
    "four kinds": (((LNMax(scale=60), 5, 5), (GNMax(sigma=40), 30, 30), (FIRST, 10, 0), (SECOND, 9, 9)), 1e-6),
    "one answer": (((GNMax(sigma=500), 1, 1),), 1e-3),
    "far too much": (((GNMax(sigma=2), 1000, 1000),), 1e-5),
}


@pytest.mark.parametrize(("rounds", "delta"), PLANS.values(), ids=PLANS)
def test_the_planned_filter_is_the_smallest_there_is(rounds, delta):
    """Against the conversion of summed worst-case curves on 4,000 orders and the ledger's whole numbers."""
    found = plan_filter(rounds, delta=delta)
    orders = np.append(1 + np.geomspace(0.05, 5000, 4000), found.order)
    curves = [worst_case_cost(one, n_queries=n, n_answered=a, orders=orders) for one, n, a in rounds]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "far too much" is best at the grid's edge
        smallest = guarantee(sum(curves[1:], curves[0]), delta=delta).epsilon
    assert smallest * (1 - 1e-9) <= found.epsilon <= smallest * (1 + 1e-5)
    prices = [found.price(one, n_queries=n, n_answers=a) for one, n, a in rounds]
    spent = sum(prices, Spending())
    assert found.holds(spent)
    for one, n, a in rounds:  # not one query more
        assert found.room(spent, one) == 0
        assert not found.holds(spent + found.price(one, n_queries=1, n_answers=0 if a < n else 1))
    less = FilterBudget(epsilon=found.epsilon * (1 - 1e-9), delta=delta, order=found.order)
    assert not less.holds(spent)


def test_the_planned_filter_says_for_whom_it_holds():
    assert (
        plan_filter([(FIRST, 1, 1)], delta=1e-5, relation="one patient").guarantee().relation.sentence == "one patient"
    )


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        ([], "Give at least one round."),
        ([(FIRST, 5, 5), (FIRST, 5, 6)], "n_answers of round 2 must be at most 5, as it has 5 queries, got 6."),
        ([(GNMax(sigma=4), 5, 4)], "n_answers of round 1 must be 5, as it has 5 queries, got 4."),
        ([(FIRST, 0, 0)], "n_queries of round 1 must be a whole number of at least 1"),
        ([(FIRST, 1, -1)], "n_answers of round 1 must be a whole number of at least 0"),
        ([(GNMax(sigma=0.5), 10**6, 10**6)], "These rounds cost an epsilon of 4096 or more."),
        ([("GNMax", 1, 1)], "mechanism must be LNMax, GNMax, ConfidentGNMax or InteractiveGNMax, got str."),
    ],
)
def test_bad_plans_are_refused(rounds, message):
    with pytest.raises(InputError, match=re.escape(message)):
        plan_filter(rounds, delta=1e-5)


def test_the_example_in_the_docs_runs(tmp_path, monkeypatch, capsys):
    page = (DOCS / "students.md").read_text()
    (example,) = re.findall(r"## Interactive rounds\n.*?```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnaskedWarning)  # the noise may answer more than was planned
        exec(compile(example, "students.md", "exec"), found := {})
    assert len(found["taught"].rounds) == 2
    assert (found["taught"].student.predict(found["task"].test_X) == found["task"].test_y).mean() > 0.9
    assert str(found["budget"].guarantee()) in capsys.readouterr().out
    assert Ledger(tmp_path / "ledger.sqlite").spent().epsilons[0] > 0
