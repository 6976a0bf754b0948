"""What a ledger's answers cost, published: paid for by the budget, charged first, drawn once, kept for ever."""

from __future__ import annotations

import json
import math
import stat

import numpy as np
import pytest
from tests import postgres
from tests.ledger.tampering import tampered

from terrine.accounting.costs import budget_curve, cost, unit_costs
from terrine.accounting.curves import RdpCurve, guarantee
from terrine.budgets import CountBudget, TestedBudget, budget_from_json, canonical, difference
from terrine.cost_release import CostRelease, PublishedCost
from terrine.errors import InputError, LedgerError
from terrine.labeller import KeptVotes, Labeller, noise_file
from terrine.labeller.cost import draw_cost
from terrine.labeller.noise_file import NoiseFile
from terrine.ledger import Ledger
from terrine.ledger.cost import NAME
from terrine.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax
from terrine.noise import KeptNoise, SecureNoise, SeededNoise
from terrine.release.sanitize import Sanitizer
from terrine.votes import Votes

where = postgres.where
MECHANISM = GNMax(sigma=10)
N = 30
X = np.arange(2.0 * N).reshape(N, 2)
VOTES = Votes(np.tile([190, 6, 4], (N, 1)), n_teachers=200)
RELEASE = CostRelease.for_answers(MECHANISM, n_queries=N, n_answers=None, delta=1e-5)
BUDGET = CountBudget(MECHANISM, n_queries=N, delta=1e-5, cost_release=RELEASE)
ABOUT = "ab" * 32
STORED = (
    '{"cost_release":{"beta":0.04,"delta":1e-06,"order":8.5,"sigma":6.5},"delta":1e-05,"kind":"count","mechanism":'
    '{"kind":"gnmax","sigma":10.0},"n_answers":30,"n_queries":30,"relation":"one teacher\'s votes change, on any of '
    'the queries","schema":"terrine.budget/1"}'
)


def answered(folder, *, rng=None, budget=BUDGET):
    ledger = Ledger(folder / "ledger.sqlite" if hasattr(folder, "mkdir") else folder, budget=budget)
    Labeller(KeptVotes(X, VOTES), MECHANISM, ledger, rng=rng).label(X, request_id="a")
    return ledger


def drawn(ledger, **options):
    return draw_cost(ledger, asked=ABOUT, votes=lambda: VOTES, **options)


def noise_files(folder):
    return [path for path in folder.iterdir() if "noise" in path.name]


# ---- the budget


def test_the_guarantee_is_that_of_answers_and_number_together():
    answers = budget_curve(MECHANISM, n_queries=N, n_answered=N, delta=1e-5)
    sanitizer = Sanitizer(order=RELEASE.order, beta=RELEASE.beta, sigma=RELEASE.sigma, delta=RELEASE.delta)
    both = RdpCurve(answers.orders, answers.epsilons + sanitizer.rdp(answers.orders))
    found = BUDGET.guarantee()
    assert found.epsilon == pytest.approx(guarantee(both, delta=1e-5).epsilon, rel=1e-12)
    assert found.epsilon > CountBudget(MECHANISM, n_queries=N, delta=1e-5, accountant="renyi").guarantee().epsilon
    assert "plus the release of one number" in found.basis
    assert "spent whether the number is published or not" in found.notes[-1]
    assert BUDGET.accountant == "renyi"  # profiles and Rényi curves do not add up


def test_a_budget_comes_back_from_json_and_others_keep_their_text():
    assert budget_from_json(json.loads(canonical(BUDGET.to_json()))) == BUDGET
    assert canonical(budget_from_json(json.loads(STORED)).to_json()) == STORED
    assert "cost_release" not in CountBudget(MECHANISM, n_queries=N, delta=1e-5).to_json()
    plain = CountBudget(MECHANISM, n_queries=N, delta=1e-5)
    assert "(cost_release=None, not cost_release={" in difference(plain, BUDGET)
    assert difference(BUDGET, BUDGET) is None


@pytest.mark.parametrize("damage", [{"sigma": "6"}, {"sigma": -1.0}, {"order": 1.0}, {"beta": 0.0}, {"delta": 0.5}])
def test_a_damaged_release_is_refused(damage):
    stored = json.loads(STORED)
    stored["cost_release"] |= damage
    with pytest.raises(InputError):
        budget_from_json(stored)


@pytest.mark.parametrize(
    "mechanism", [LNMax(scale=9), InteractiveGNMax(threshold=3, sigma_check=4, sigma_vote=5, student_confidence=0.9)]
)
def test_mechanisms_that_have_no_such_bound_are_refused(mechanism):
    for made in (
        lambda: CostRelease.for_answers(mechanism, n_queries=N, n_answers=None, delta=1e-5),
        lambda: CountBudget(mechanism, n_queries=N, delta=1e-5, cost_release=RELEASE),
    ):
        with pytest.raises(InputError, match="can be published of answers by GNMax or ConfidentGNMax"):
            made()


def test_the_rules_give_numbers_of_four_digits():
    for epsilon in (0.3, 1.0, 5.0):
        found, exact = CostRelease.by_rule(epsilon=epsilon, delta=1e-6), Sanitizer.by_rule(epsilon=epsilon, delta=1e-6)
        for name in ("order", "beta", "sigma", "delta"):
            value = getattr(found, name)
            assert value == float(f"{value:.4g}")
            assert value == pytest.approx(getattr(exact, name), rel=1e-3)


# ---- the number


def test_one_number_for_ever(tmp_path):
    ledger = answered(tmp_path)
    assert ledger.summary().cost == "unpublished"
    before, spent = ledger.summary(), ledger.spent()
    first = drawn(ledger)
    assert first.secure
    assert first.number > 0
    assert noise_files(tmp_path) == []
    for _ in range(3):
        assert drawn(Ledger(tmp_path / "ledger.sqlite", budget=BUDGET)) == first
    other = draw_cost(ledger, asked=ABOUT, votes=lambda: pytest.fail("looked at votes again"))
    assert other == first
    after = ledger.summary()
    assert (after.cost, after.to_json()["cost"]) == ("published", "published")
    assert (after.queries, after.answers, after.unsettled) == (before.queries, before.answers, 0)
    assert [entry.kind for entry in ledger.entries()][-2:] == ["cost", "number"]
    added = ledger.spent().epsilons - spent.epsilons
    assert added == pytest.approx(RELEASE.curve(ledger.spent().orders).epsilons)
    assert ledger.verify() == []
    assert ledger.verify_recent() == []
    assert after.guarantee == before.guarantee


def test_the_number_is_above_the_truth_and_says_so(tmp_path):
    exact = cost(MECHANISM, VOTES, orders=[RELEASE.order]).reveal().epsilons[0]
    state = drawn(answered(tmp_path))
    assert state.number >= exact
    whole = BUDGET.guarantee()
    shown = PublishedCost.of(
        state.number, RELEASE, whole=whole, checks=RELEASE.checks(MECHANISM, n_queries=N), answered=N
    )
    at = [RELEASE.order]
    truth = RdpCurve(at, [exact + RELEASE.curve(np.array(at)).epsilons[0]])
    assert guarantee(truth, delta=9e-6).epsilon <= shown.epsilon <= whole.epsilon
    assert "not the guarantee" in shown.in_words
    assert f"except with chance {RELEASE.delta:g}" in shown.in_words


def test_checks_are_charged_their_worst_case():
    confident = ConfidentGNMax(threshold=120, sigma_check=30, sigma_vote=10)
    found = RELEASE.checks(confident, n_queries=40)
    assert found.epsilons[0] == pytest.approx(40 * unit_costs(confident, orders=[RELEASE.order])[0].epsilons[0])
    whole = CountBudget(confident, n_queries=40, n_answers=30, delta=1e-5, cost_release=RELEASE).guarantee()
    few, many = (
        PublishedCost.of(0.1, RELEASE, whole=whole, checks=RELEASE.checks(confident, n_queries=n), answered=3)
        for n in (10, 40)
    )
    assert few.epsilon < many.epsilon


@pytest.mark.parametrize("number", [math.inf, 1e9])
def test_a_number_that_says_nothing_is_the_guarantee(number):
    whole = BUDGET.guarantee()
    shown = PublishedCost.of(number, RELEASE, whole=whole, checks=RELEASE.checks(MECHANISM, n_queries=N), answered=N)
    assert shown.epsilon == whole.epsilon
    assert (shown.rdp is None) == math.isinf(number)


def test_no_answer_costs_little(tmp_path):
    state = draw_cost(answered(tmp_path), asked=ABOUT, votes=lambda: None)
    assert 0 < state.number < 1e-6


def test_the_noise_has_the_scale_that_was_paid_for(tmp_path):
    """Over many ledgers: the mean and spread of the logarithm, in units of the noise."""
    logs, noise = [], SeededNoise(3)
    for k in range(400):
        file = NoiseFile(tmp_path, f"{k:032d}", RELEASE)
        name, _ = file.draw(noise)
        logs.append(math.log(RELEASE.draw(VOTES, mechanism=MECHANISM, noise=file.load(name)).reveal()))
        file.destroy()
    spread = np.std(logs) / (RELEASE.beta * RELEASE.sigma)
    assert 0.85 < spread < 1.15


def test_seeded_noise_voids_the_guarantee(tmp_path):
    ledger = answered(tmp_path)
    assert ledger.summary().secure
    assert not drawn(ledger, rng=SeededNoise(0)).secure
    assert not ledger.summary().secure


def test_the_same_on_a_server(where, tmp_path):
    ledger = Ledger(where, budget=BUDGET, secrets=tmp_path)
    Labeller(KeptVotes(X, VOTES), MECHANISM, ledger).label(X, request_id="a")
    first = drawn(ledger)
    assert drawn(ledger) == first
    assert ledger.verify() == []


# ---- refusals


def test_a_budget_without_it_pays_for_none(tmp_path):
    ledger = answered(tmp_path, budget=CountBudget(MECHANISM, n_queries=N, delta=1e-5))
    with pytest.raises(LedgerError, match="must be fixed before the first answer"):
        drawn(ledger)
    with pytest.raises(LedgerError, match=r"made with a different budget: ε = .*cost_release="):
        Ledger(tmp_path / "ledger.sqlite", budget=BUDGET)
    assert ledger.summary().cost is None
    assert "cost" not in ledger.summary().to_json()


def test_a_ledger_has_one_kind_of_release(tmp_path):
    with pytest.raises(LedgerError, match="has no budget for a tested release"):
        answered(tmp_path).tested.state()
    confident = ConfidentGNMax(threshold=120, sigma_check=40, sigma_vote=10)
    tested = TestedBudget(confident, n_queries=60, target=2.5, delta=1e-5, n_teachers=200, n_classes=3)
    with pytest.raises(LedgerError, match="does not pay for publishing"):
        Ledger(tmp_path / "other.sqlite", budget=tested).cost.state()


def test_nothing_before_the_answers(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite", budget=BUDGET)
    with pytest.raises(LedgerError, match="no answers yet"):
        drawn(ledger)
    assert ledger.entries() == []
    with pytest.raises(LedgerError, match="was not charged"):
        ledger.cost.keep(1.0)


def test_other_answers_get_no_second_number(tmp_path):
    ledger = answered(tmp_path)
    first = drawn(ledger)
    with pytest.raises(LedgerError, match="other answers cost, and pays for one number only"):
        draw_cost(ledger, asked="cd" * 32, votes=lambda: VOTES)
    assert ledger.cost.charge(asked="cd" * 32, noise="other", secure=True) == first
    assert ledger.cost.keep(99.0) == first


def test_a_request_of_the_same_name_is_a_request(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite", budget=BUDGET)
    labeller = Labeller(KeptVotes(X, VOTES), MECHANISM, ledger)
    labeller.label(X[:9], request_id=NAME)
    first = drawn(ledger)
    labeller.label(X[9:], request_id="rest")
    assert drawn(ledger) == first
    assert ledger.request(NAME).queries == 9
    assert ledger.verify() == []


def test_lost_noise_is_not_drawn_again(tmp_path, monkeypatch):
    ledger = answered(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        draw_cost(ledger, asked=ABOUT, votes=_interrupted)
    (left,) = noise_files(tmp_path)
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
    assert ledger.summary().cost == "charged"
    content = left.read_bytes()
    left.unlink()
    for _ in range(2):
        with pytest.raises(LedgerError, match="is not on this machine"):
            drawn(ledger)
    assert noise_files(tmp_path) == []
    left.write_bytes(content)  # the machine that has it can still finish
    assert drawn(ledger).number > 0


def test_one_that_finishes_while_another_writes_its_noise(tmp_path, monkeypatch):
    ledger, write, given = answered(tmp_path), noise_file.write_once, []

    def interrupted(path, content, **options):
        monkeypatch.setattr(noise_file, "write_once", write)
        given.append(drawn(ledger))
        raise FileNotFoundError(path)

    monkeypatch.setattr(noise_file, "write_once", interrupted)
    assert drawn(ledger) == given[0]
    assert noise_files(tmp_path) == []


def _interrupted():
    raise KeyboardInterrupt


def test_what_is_no_sampler_or_has_no_folder_is_refused(tmp_path):
    ledger = answered(tmp_path)
    with pytest.raises(InputError, match="rng must be a sampler"):
        drawn(ledger, rng=KeptNoise([], ties=[], coin=0, secure=True))
    ledger.secrets = None
    with pytest.raises(InputError, match="this ledger is on a server"):
        drawn(ledger, rng=SecureNoise())
    assert ledger.cost.state() is None


# ---- the audit


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("asked = 'much' WHERE kind = 'number'", "does not hold a number above 0"),
        ("asked = '-1.0' WHERE kind = 'number'", "does not hold a number above 0"),
        ("asked = 'nan' WHERE kind = 'number'", "does not hold a number above 0"),
        ("asked = '' WHERE kind = 'cost'", "does not name the answers or the noise"),
        ("answers_digest = '' WHERE kind = 'cost'", "does not name the answers or the noise"),
        ("request_id = 'another' WHERE kind = 'cost'", "keeps a number that was not charged before"),
        ("part = 2 WHERE kind = 'number'", "is not the one publication"),
        ("secure = 0 WHERE kind = 'number'", "with other noise than was charged"),
        ("n_answers = 1 WHERE kind = 'cost'", "is not the one publication"),
    ],
)
def test_an_audit_sees_what_is_wrong(tmp_path, change, found):
    with answered(tmp_path) as ledger:
        drawn(ledger)
    assert found in tampered(tmp_path, f"UPDATE terrine_entries SET {change}")


def test_an_audit_sees_a_number_that_no_budget_paid_for(tmp_path):
    with answered(tmp_path, budget=CountBudget(MECHANISM, n_queries=N, delta=1e-5)) as ledger:
        assert ledger.verify() == []
    lines = tampered(tmp_path, "UPDATE terrine_entries SET kind = 'number' WHERE kind = 'settle'")
    assert "publishes a cost, which the budget does not pay for" in lines
