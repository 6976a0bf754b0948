"""A tested release through a Labeller: charged whole before votes are looked at, drawn once, published or not."""

from __future__ import annotations

import json
import os
import stat

import numpy as np
import pytest
from tests import postgres

from terrine.budgets import CountBudget, Spending, TestedBudget, budget_from_json, canonical
from terrine.errors import InputError, LedgerError, QuotaError, RequestError, TestedRowsError, TestFailedError
from terrine.labeller import KeptVotes, Labeller, Question, noise_file
from terrine.labeller.noise_file import NoiseFile
from terrine.ledger import Ledger
from terrine.ledger.entries import LEDGER_SCHEMA, header_digest
from terrine.ledger.tested import RELEASE
from terrine.mechanisms import ConfidentGNMax, GNMax, Outcome, answer
from terrine.noise import COIN, KeptNoise, SecureNoise, SeededNoise, tie_range, uniform
from terrine.votes import Votes

CONFIDENT = ConfidentGNMax(threshold=120, sigma_check=40, sigma_vote=10)
where = postgres.where
N = 60
X = np.arange(N * 2, dtype=np.float64).reshape(N, 2)
STRONG, WEAK = [190, 6, 4], [70, 66, 64]  # the first passes with chance 0.999, the second with 1e-6


@pytest.fixture(autouse=True)
def a_fair_coin_that_lands(monkeypatch):
    """On its middle: what passes with chance 0.999 passes, what fails with chance 0.999999 fails."""
    monkeypatch.setattr(noise_file, "uniform", lambda source, n: n // 2 if n == COIN else uniform(source, n))


def budget(mechanism=CONFIDENT, **changes):
    numbers = {"n_queries": N, "target": 2.5, "delta": 1e-5, "n_teachers": 200, "n_classes": 3, **changes}
    return TestedBudget(mechanism, **numbers)


def votes(row):
    return Votes(np.tile(row, (N, 1)), n_teachers=200)


def labeller(folder, row=STRONG, *, rng=None, rows=X, **changes):
    found = budget(**changes)
    ledger = Ledger(folder / "ledger.sqlite", budget=found)
    return Labeller(KeptVotes(rows, votes(row)), found.mechanism, ledger, rng=rng)


def noise_files(folder):
    return [path for path in folder.iterdir() if "noise" in path.name]


# ---- the budget


def test_a_budget_comes_back_from_json_and_says_what_it_is():
    one = budget(n_answers=40)
    assert budget_from_json(json.loads(canonical(one.to_json()))) == one
    assert canonical(budget_from_json(one.to_json()).to_json()) == canonical(one.to_json())
    shown = one.guarantee()
    assert (shown.epsilon, shown.delta) == (2.5, 1e-5)
    assert "published all together" in shown.basis
    assert "epsilon and delta are spent either way" in shown.notes[0]
    assert "adds its own epsilon and delta" in shown.notes[0]


def test_a_stored_budget_keeps_its_meaning():
    """What a ledger's header holds, and its hash, byte for byte."""
    stored = (
        '{"delta":1e-05,"delta_release":1e-06,"kind":"tested","mechanism":{"kind":"confident","sigma_check":40.0,'
        '"sigma_vote":10.0,"threshold":120.0},"n_answers":40,"n_classes":3,"n_queries":60,"n_teachers":200,'
        '"order":10.5,"pass_chance":0.95,"relation":"one teacher\'s votes change, on any of the queries",'
        '"schema":"terrine.budget/1","share":0.8,"target":2.0}'
    )
    found = budget_from_json(json.loads(stored))
    assert canonical(found.to_json()) == stored
    assert (found.target, found.order, found.n_answers) == (2.0, 10.5, 40)
    assert found.fixed.cap == pytest.approx(0.7993060136107424, rel=1e-9)
    header = {"schema": LEDGER_SCHEMA, "ledger_id": "0" * 32, "budget": stored}
    assert header_digest(header) == "c63971891d6d7fd395900377d5e83fd460a2feaf2fbccaf075f9e1a6639043be"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": 0.3}, "which delta and the checks cost before any answer"),
        ({"n_teachers": 10, "mechanism": GNMax(sigma=40), "target": 0.7}, "10 teachers are too few"),
        ({"n_answers": 61}, "n_answers must be at most 60, got 61."),
        ({"mechanism": GNMax(sigma=10), "n_answers": 30}, "n_answers must be 60, as every query is answered, got 30."),
        ({"delta_release": 1e-5}, "delta_release is a part of delta"),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        budget(**changes)


def test_a_target_that_needs_no_test_makes_no_ledger(tmp_path):
    with pytest.raises(InputError, match="which needs no test"):
        Ledger(tmp_path / "ledger.sqlite", budget=budget(target=50.0))
    assert not (tmp_path / "ledger.sqlite").exists()


# ---- what leaves


def test_a_release_that_passes(tmp_path):
    one = labeller(tmp_path)
    given = one.label(X, request_id="a")
    assert given.secure
    assert given.n_answered > 50
    assert (given.labels[given.outcomes == Outcome.TEACHERS] == 0).all()
    assert noise_files(tmp_path) == []
    again = labeller(tmp_path).label(X, request_id="b")
    assert (again.labels == given.labels).all()
    some = one.label(X[5:9], request_id="c")  # rows that are released have their answers, in any request
    assert (some.labels == given.labels[5:9]).all()
    with one.ledger as ledger:
        assert ledger.verify() == []
        found = ledger.summary()
        assert (found.test, found.queries, found.answers) == ("passed", N, N)
        assert found.answered + found.withheld == N
        assert found.to_json()["test"] == "passed"
        assert [entry.kind for entry in ledger.entries()] == ["reserve", "settle"]
        assert ledger.spent().epsilons[0] == pytest.approx(budget().rdp)
        assert ledger.request("a").settled
        assert ledger.request("a").queries == N


@pytest.mark.parametrize("mechanism", [ConfidentGNMax(threshold=40, sigma_check=40, sigma_vote=10), GNMax(sigma=10)])
def test_a_release_that_fails_leaves_nothing_and_fails_for_ever(tmp_path, mechanism):
    one = labeller(tmp_path, WEAK, mechanism=mechanism)
    for name in "abc":
        with pytest.raises(TestFailedError) as caught:
            one.label(X, request_id=name)
        assert str(caught.value).startswith("The private test did not pass. No answer was published")
        assert "epsilon = 2.5 at delta = 1e-05 is spent" in str(caught.value)
        assert "adds its own epsilon and delta" in str(caught.value)
    assert noise_files(tmp_path) == []
    with pytest.raises(TestFailedError):  # the same with votes that would pass: there is no second draw
        labeller(tmp_path, STRONG, mechanism=mechanism).label(X, request_id="a")
    with one.ledger as ledger:
        assert ledger.verify() == []
        assert ledger.summary().test == "failed"
        assert ledger.outcomes() == {"answered": 0, "withheld": 0, "reinforced": 0}
        lines = [json.loads(line) for line in ledger.export()]
        assert [line["record"] for line in lines] == ["header", "entry", "entry"]
        assert ledger.remaining() == {"queries": 0, "answers": 0}


def test_rows_that_repeat_share_an_answer(tmp_path):
    rows = X.copy()
    rows[1] = rows[0]
    given = labeller(tmp_path, rows=rows).label(rows, request_id="a")
    assert given.labels[0] == given.labels[1]
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.verify() == []


def test_at_most_the_answers_that_were_fixed(tmp_path):
    given = labeller(tmp_path, n_answers=10, target=1.5).label(X, request_id="a")
    assert given.n_answered == 10
    assert (given.outcomes[30:] == Outcome.ABSTAINED).all()


def test_seeded_noise_is_said_by_the_ledger(tmp_path):
    given = labeller(tmp_path, rng=SeededNoise(0)).label(X, request_id="a")
    assert not given.secure
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert not ledger.summary().secure
        assert ledger.verify() == []


# ---- what is refused before any charge


@pytest.mark.parametrize("rows", [X[:-1], X[:1], np.concatenate((X, X[:1]))])
def test_other_numbers_of_rows_are_refused(tmp_path, rows):
    one = labeller(tmp_path)
    with pytest.raises(TestedRowsError, match="exactly 60 rows, asked all at once, and there are"):
        one.label(rows, request_id="a")
    assert one.ledger.entries() == []
    assert noise_files(tmp_path) == []


def test_after_the_charge_no_other_rows(tmp_path):
    more = np.concatenate((X, X + 1000))
    found = budget()
    ledger = Ledger(tmp_path / "ledger.sqlite", budget=found)
    one = Labeller(KeptVotes(more, Votes(np.tile(STRONG, (2 * N, 1)), n_teachers=200)), CONFIDENT, ledger)
    one.label(more[:N], request_id="a")
    with pytest.raises(TestedRowsError, match="these are other rows"):
        one.label(more[N:], request_id="b")
    with pytest.raises(RequestError):
        one.label(more[N:], request_id="a")
    given = one.label_each([Question(more[:N], "c"), Question(more[N:], "d"), Question(more[:3], "e")])
    assert [type(item).__name__ for item in given] == ["Answers", "TestedRowsError", "Answers"]
    assert len(ledger.entries()) == 2


def test_a_quota_that_is_too_small_is_refused(tmp_path):
    one = labeller(tmp_path)
    with pytest.raises(QuotaError):
        one.label(X, request_id="a", account="x", quota=N - 1)
    assert one.ledger.entries() == []
    assert len(one.label(X, request_id="a", account="x", quota=N)) == N


def test_teachers_and_classes_must_be_those_of_the_budget(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite", budget=budget())
    with pytest.raises(InputError, match="fixed for 200 teachers, and there are 199"):
        Labeller(KeptVotes(X, Votes([[189, 6, 4]] * N, n_teachers=199)), CONFIDENT, ledger)
    with pytest.raises(InputError, match="fixed for 3 classes, and there are 4"):
        Labeller(KeptVotes(X, Votes([[190, 5, 4, 1]] * N, n_teachers=200)), CONFIDENT, ledger)


def test_labellers_that_ask_at_the_same_time_get_one_release(tmp_path):
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    row = [150, 40, 10]  # a quarter of the queries is withheld, by chance
    labeller(tmp_path, row, target=2.6).ledger.close()
    together = Barrier(4)

    def ask(k):
        one = labeller(tmp_path, row, target=2.6)
        together.wait()
        return one.label(X, request_id=f"request {k}")

    with ThreadPoolExecutor(4) as pool:
        given = list(pool.map(ask, range(4)))
    assert all((one.labels == given[0].labels).all() for one in given)
    assert noise_files(tmp_path) == []
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.verify() == []
        assert len(ledger.entries()) == 2


@pytest.mark.parametrize("left", [None, bytes(100)], ids=["gone", "overwritten"])
def test_one_that_finishes_while_another_writes_its_noise(tmp_path, monkeypatch, left):
    """Whoever finishes destroys all noise, that which another process is still putting in place as well."""
    one, other = labeller(tmp_path), labeller(tmp_path)
    write, given = noise_file.write_once, []

    def interrupted(path, content, **options):
        monkeypatch.setattr(noise_file, "write_once", write)
        given.append(other.label(X, request_id="other"))
        if left is None:
            raise FileNotFoundError(path)
        path.write_bytes(left)

    monkeypatch.setattr(noise_file, "write_once", interrupted)
    assert (one.label(X, request_id="one").labels == given[0].labels).all()
    assert noise_files(tmp_path) == []
    with one.ledger as ledger:
        assert len(ledger.entries()) == 2


def test_no_place_for_noise_is_said_and_charges_nothing(tmp_path):
    one = labeller(tmp_path)
    one._releasing._file = NoiseFile(tmp_path / "missing", one.ledger.id, one.ledger.budget)
    with pytest.raises(FileNotFoundError):
        one.label(X, request_id="a")
    assert one.ledger.entries() == []


class Watched(KeptVotes):
    """Calls ``then`` when it is asked to vote."""

    def __init__(self, then, **options):
        super().__init__(X, votes(STRONG), **options)
        self.then = then

    def vote(self, rows):
        self.then()
        return super().vote(rows)


def test_nobody_votes_before_the_charge(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite", budget=budget()) as ledger:
        seen = []
        voters = Watched(lambda: seen.append([entry.kind for entry in ledger.entries()]))
        Labeller(voters, CONFIDENT, ledger).label(X, request_id="a")
    assert seen == [["reserve"]]


def test_other_rows_never_get_the_noise_of_a_release_that_was_broken_off(tmp_path):
    def killed():
        raise KeyboardInterrupt

    with Ledger(tmp_path / "ledger.sqlite", budget=budget()) as ledger:
        with pytest.raises(KeyboardInterrupt):
            Labeller(Watched(killed), CONFIDENT, ledger).label(X, request_id="a")
        (left,) = noise_files(tmp_path)
        content = left.read_bytes()
        with pytest.raises(TestedRowsError, match="these are other rows"):
            labeller(tmp_path, rows=X + 1).label(X + 1, request_id="b")
        assert left.read_bytes() == content
        assert labeller(tmp_path).label(X, request_id="a").n_answered > 50
        assert ledger.verify() == []


# ---- the ledger


def test_every_other_way_to_charge_or_settle_is_refused(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite", budget=budget()) as ledger:
        with pytest.raises(LedgerError, match="pays for one tested release, all of it at once, and for nothing else"):
            ledger.reserve(CONFIDENT, n_queries=1, request_id="a")
        with pytest.raises(LedgerError, match="for nothing else"):
            ledger.reserve_some(CONFIDENT, n_queries=N, request_id="a", digest="d")
        with pytest.raises(LedgerError, match="was not charged"):
            ledger.tested.settle(None)
        labeller(tmp_path).label(X, request_id="a")
        with pytest.raises(LedgerError):
            ledger.settle(RELEASE, n_answered=0)
        assert ledger.tested.settle(None) == "passed"  # the first bit stays
        assert ledger.verify() == []
    other = Ledger(tmp_path / "other.sqlite", budget=CountBudget(CONFIDENT, n_queries=N, delta=1e-5))
    with pytest.raises(LedgerError, match="has no budget for a tested release"):
        _ = other.tested


def test_nothing_that_depends_on_votes_is_shown_before_the_bit(tmp_path):
    """Charged and not settled: the ledger is the same whatever the votes are."""
    shown = []
    for name, row in (("strong", STRONG), ("weak", WEAK)):
        folder = tmp_path / name
        folder.mkdir()
        one = labeller(folder, row)
        one._releasing._file.draw(SecureNoise())
        request = one._request(Question(X, "a"))
        one.ledger.tested.charge(request.ask, noise="n" * 32, secure=True)
        found = one.ledger.summary()
        shown.append((found.test, found.queries, found.answers, found.unsettled, found.answered, found.withheld))
        shown[-1] += (one.ledger.entries()[0].asked, noise_files(folder)[0].stat().st_size)
        assert stat.S_IMODE(noise_files(folder)[0].stat().st_mode) == 0o600
    assert shown[0] == shown[1]
    assert shown[0][:4] == ("open", N, N, N)


def test_an_audit_sees_a_bit_and_answers_that_are_not_right(tmp_path):
    import sqlite3

    labeller(tmp_path, WEAK, mechanism=GNMax(sigma=10)).ledger.close()
    one = labeller(tmp_path, WEAK, mechanism=GNMax(sigma=10))
    with pytest.raises(TestFailedError):
        one.label(X, request_id="a")
    one.ledger.close()
    with sqlite3.connect(tmp_path / "ledger.sqlite") as raw:
        raw.execute("INSERT INTO terrine_answers VALUES ('ab', 0, 1, 1, 2)")
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert any("answers are not the ones" in line for line in ledger.verify())


def test_the_audit_knows_every_rule_of_a_release(tmp_path):
    from types import SimpleNamespace

    from terrine.ledger.tested import problems

    one = labeller(tmp_path)
    one.label(X, request_id="a")
    reserved, settled = one.ledger.entries()
    rules = budget()

    def said(entry, **changes):
        from dataclasses import replace

        return list(problems(replace(entry, **changes), SimpleNamespace(), rules))

    assert said(reserved) == said(settled) == []
    assert said(reserved, request_id="run") == ["is not of the one release that this ledger pays for"]
    assert said(reserved, part=2) == ["is not of the one release that this ledger pays for"]
    assert said(settled, n_answers=3) == ["does not charge the whole release"]
    assert said(reserved, answers_digest="") == ["does not name its noise"]
    assert said(settled, asked="") == ["does not say whether the test passed", "keeps answers of a test that failed"]
    assert said(settled, asked="failed") == ["keeps answers of a test that failed"]
    assert not rules.holds(Spending(queries=N, answers=1))


# ---- the noise


def test_a_release_whose_noise_is_gone_counts_as_failed(tmp_path):
    one = labeller(tmp_path)
    name, _ = one._releasing._file.draw(SecureNoise())
    one.ledger.tested.charge(one._request(Question(X, "a")).ask, noise=name, secure=True)
    kept = one._releasing._file.path.read_bytes()
    one._releasing._file.path.unlink()
    for _ in range(2):
        with pytest.raises(TestFailedError, match="the noise that was kept for it is not here any more") as caught:
            one.label(X, request_id="a")
        assert caught.value.lost
        assert noise_files(tmp_path) == []  # and none is drawn again
    one._releasing._file.draw(SecureNoise())
    with pytest.raises(TestFailedError):  # nor is other noise taken
        one.label(X, request_id="a")
    one._releasing._file.path.write_bytes(kept)
    assert len(one.label(X, request_id="a")) == N  # found again: it is still the one draw


def test_a_damaged_noise_file_charges_nothing(tmp_path):
    one = labeller(tmp_path)
    one._releasing._file.path.write_bytes(b"x" * 100)
    with pytest.raises(LedgerError, match=r"is damaged\. Nothing was charged"):
        one.label(X, request_id="a")
    assert one.ledger.entries() == []


def test_answers_and_bit_are_a_function_of_votes_and_noise(tmp_path):
    for mechanism in (CONFIDENT, GNMax(sigma=10)):
        found = budget(mechanism)
        file = NoiseFile(tmp_path, mechanism.__class__.__name__, found)
        name, secure = file.draw(SecureNoise())
        assert secure
        assert file.draw(SecureNoise()) == (name, secure)  # it is drawn once
        drawn = [found.fixed._draw(votes(STRONG), file.load(name)).reveal() for _ in range(2)]
        assert (drawn[0][0].labels == drawn[1][0].labels).all()
        assert drawn[0][1] == drawn[1][1]
        assert file.load("0" * 32) is None
        size = file.path.stat().st_size
        os.link(file.path, tmp_path / "other-name")
        file.destroy()
        assert not file.path.exists()
        assert (tmp_path / "other-name").read_bytes() == bytes(size)
        (tmp_path / "other-name").unlink()


def test_kept_noise_serves_each_draw_once_and_for_its_own_release():
    steps = np.arange(6).reshape(3, 2)
    noise = KeptNoise([(4.0, steps)], ties=[5, 7], coin=9, secure=True)
    assert (noise.gaussian((2, 2), sigma=4.0) == steps[:2]).all()
    with pytest.raises(InputError, match="not drawn for this release"):
        noise.gaussian((2, 2), sigma=4.0)
    for shape, sigma in (((4, 2), 4.0), ((2, 3), 4.0), ((2, 2), 5.0)):
        with pytest.raises(InputError, match="not drawn for this release"):
            KeptNoise([(4.0, steps)], ties=[], coin=0, secure=True).gaussian(shape, sigma=sigma)
    with pytest.raises(InputError, match="Laplace"):
        noise.laplace((1,), scale=1.0)
    assert [noise.below(2), noise.below(COIN), noise.below(3)] == [1, 9, 1]
    assert "secret" in repr(noise)


def test_ties_by_tickets_are_uniform():
    assert tie_range(10) == 2520
    assert all(tie_range(150) % n == 0 for n in range(1, 151))
    source = SeededNoise(0)
    drawn = np.array([uniform(source, tie_range(6)) for _ in range(6000)])
    assert drawn.max() < 60
    for n in range(2, 7):
        counts = np.bincount(drawn % n, minlength=n)
        assert (np.abs(counts - 6000 / n) < 5 * np.sqrt(6000 / n)).all()
    tied = Votes(np.tile([5, 5, 0], (3, 1)), n_teachers=10)
    zeros = np.zeros((3, 3), dtype=np.int64)
    noise = KeptNoise([(1.0, zeros)], ties=[0, 1, 2], coin=0, secure=True)
    assert answer(GNMax(sigma=1.0), tied, rng=noise).labels.tolist() == [0, 1, 0]


# ---- on a server, and on several machines


def test_a_release_on_a_file_and_on_a_server(where, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    found = budget()
    kept = KeptVotes(X, votes(STRONG))
    if str(where).startswith("postgresql"):
        with pytest.raises(InputError, match="secrets=FOLDER"):
            Labeller(kept, CONFIDENT, Ledger(where, budget=found))
    one = Labeller(kept, CONFIDENT, Ledger(where, budget=found, secrets=here))
    name, secure = one._releasing._file.draw(SecureNoise())
    one.ledger.tested.charge(one._request(Question(X, "a")).ask, noise=name, secure=secure)
    other = Labeller(kept, CONFIDENT, Ledger(where, secrets=there))
    with pytest.raises(TestFailedError, match="if another machine began it, finish it there"):
        other.label(X, request_id="b")
    assert one.ledger.summary().test == "open"  # nothing is written: the one draw can still be finished
    given = one.label(X, request_id="a")
    assert (other.label(X, request_id="b").labels == given.labels).all()
    assert noise_files(here) == noise_files(there) == []
    assert one.ledger.verify() == []
    for ledger in (one.ledger, other.ledger):
        ledger.close()
