"""The labeller: charged before it is drawn, kept before it leaves, one answer per query for ever, no secret out."""

from __future__ import annotations

import json
import pickle
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests import postgres
from tests.postgres import MEMORY, on_server, rows

from terrine.budgets import CountBudget, FilterBudget
from terrine.datasets.data import PrivateData, PublicData
from terrine.errors import BudgetError, InputError, LedgerError, QuotaError, RequestError, SecretError, TeachersError
from terrine.labeller import KeptVotes, Labeller, Question
from terrine.labeller import labeller as labeller_module
from terrine.ledger import Ledger
from terrine.ledger.tables import METADATA
from terrine.mechanisms import ABSTAIN, Answers, ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Outcome, answer
from terrine.noise import SecureNoise, SeededNoise
from terrine.partitioning import partition
from terrine.relations import Relation
from terrine.teachers import SklearnTeacher, fit_teachers
from terrine.votes import Votes

CONFIDENT = ConfidentGNMax(threshold=12, sigma_check=6, sigma_vote=8)  # 20 teachers: about half pass, labels are chance
INTERACTIVE = InteractiveGNMax(threshold=6, sigma_check=6, sigma_vote=8, student_confidence=0.6)
MECHANISMS = {"lnmax": LNMax(scale=8), "gnmax": GNMax(sigma=8), "confident": CONFIDENT, "interactive": INTERACTIVE}
where = postgres.where
N = 200
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2, 3)).astype(np.float32)
COUNTS = RNG.multinomial(20, [0.5, 0.2, 0.2, 0.1], size=N)
PROBA = RNG.dirichlet([0.3] * 4, size=N)


@pytest.fixture
def path():
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder) / "ledger.sqlite"


def kept(rows=slice(None)):
    return KeptVotes(X[rows], Votes(COUNTS[rows], n_teachers=20))


def labeller(where, mechanism=CONFIDENT, *, n_queries=1000, n_answers=None, rng=None, voters=None, **options):
    budget = CountBudget(mechanism, n_queries=n_queries, n_answers=n_answers, delta=1e-5)
    return Labeller(voters or kept(), mechanism, Ledger(where, budget=budget), rng=rng, **options)


def put(labeller, rows, request_id, **options):
    """Rows by their indices; the student is asked along where the mechanism has one."""
    if isinstance(labeller.mechanism, InteractiveGNMax):
        options.setdefault("student_proba", PROBA[rows])
    return labeller.label(X[rows], request_id=request_id, **options)


def spent(ledger):
    entries = ledger.entries()
    return (entries[-1].total.queries, entries[-1].total.answers) if entries else (0, 0)


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
class TestContract:
    def test_it_answers_as_the_mechanism_does(self, mechanism, where):
        """With one seed: the labeller adds nothing of its own."""
        asked = labeller(where, mechanism, rng=SeededNoise(7))
        got = put(asked, range(50), "a")
        proba = PROBA[:50] if mechanism is INTERACTIVE else None
        plain = answer(mechanism, Votes(COUNTS[:50], n_teachers=20), rng=SeededNoise(7), student_proba=proba)
        np.testing.assert_array_equal(got.labels, plain.labels)
        np.testing.assert_array_equal(got.outcomes, plain.outcomes)
        assert got.mechanism is mechanism
        assert not got.secure
        assert not asked.ledger.entries()[0].secure
        assert not asked.ledger.summary().secure

    def test_the_same_query_has_the_same_answer_under_any_request_and_after_reopening(self, mechanism, where):
        asked = labeller(where, mechanism)
        first = put(asked, range(60), "a")
        assert first.secure
        before = spent(asked.ledger)
        assert before == (60, first.n_answered)
        again = [put(asked, range(60), "a"), put(asked, range(60), "b")]
        asked.ledger.close()
        again.append(put(labeller(where, mechanism), range(60), "c"))
        backwards = put(labeller(where, mechanism), range(59, -1, -1), "d")
        for other in again:
            np.testing.assert_array_equal(other.labels, first.labels)
            np.testing.assert_array_equal(other.outcomes, first.outcomes)  # ⊥ is remembered too
        np.testing.assert_array_equal(backwards.labels[::-1], first.labels)
        assert spent(asked.ledger) == before
        assert asked.ledger.verify() == []

    def test_what_is_new_is_charged_and_what_is_known_is_not(self, mechanism, where):
        asked = labeller(where, mechanism)
        first = put(asked, range(10, 20), "a")
        both = put(asked, range(5, 25), "b")
        np.testing.assert_array_equal(both.labels[5:15], first.labels)
        assert spent(asked.ledger) == (20, both.n_answered)

    def test_a_row_twice_in_a_batch_is_one_query(self, mechanism, where):
        asked = labeller(where, mechanism)
        got = put(asked, [3, 4, 3, 3, 4], "a")
        assert got.labels.tolist() == [got.labels[0], got.labels[1], got.labels[0], got.labels[0], got.labels[1]]
        assert spent(asked.ledger)[0] == 2


@pytest.mark.parametrize("noise", [SecureNoise, SeededNoise])
def test_everything_is_on_disk_before_a_vote_is_cast_or_noise_drawn(where, monkeypatch, noise):
    """What another process would see in the file, at the moment that teachers vote and that noise is drawn."""
    seen = []

    def look(what):
        with Ledger(where) as other:
            seen.append((what, spent(other), other.summary().unsettled))

    class Watched(KeptVotes):
        def vote(self, X):
            look("vote")
            return super().vote(X)

    asked = labeller(
        where, rng=None if noise is SecureNoise else SeededNoise(0), voters=Watched(X, Votes(COUNTS, n_teachers=20))
    )
    drawn = noise.gaussian
    monkeypatch.setattr(
        noise, "gaussian", lambda self, shape, *, sigma: (look("draw"), drawn(self, shape, sigma=sigma))[1]
    )
    got = put(asked, range(7), "a")
    assert seen == [(what, (7, 7), 7) for what in ("vote", "draw", "draw")]  # the check's noise, the answers' noise
    look("after")
    assert seen[-1] == ("after", (7, got.n_answered), 0)


def test_a_request_id_belongs_to_its_rows(where):
    asked = labeller(where)
    put(asked, range(5), "a")
    for others in (range(6), range(4), [1, 0, 2, 3, 4]):
        with pytest.raises(RequestError, match="Request 'a' was used before, for other rows"):
            put(asked, others, "a")
    put(asked, range(5), "b")  # known rows alone: no reservation, and still tied to them
    with pytest.raises(RequestError):
        put(asked, range(4), "b")
    assert spent(asked.ledger)[0] == 5


def test_rows_are_compared_by_value_and_not_by_layout(where):
    asked = labeller(where, GNMax(sigma=100))
    rows = X[:4].copy()
    rows[0, 0, 0] = 0.0
    zero = rows.copy()
    zero[0, 0, 0] = -0.0
    assert rows.tobytes() != zero.tobytes()
    asked._ensemble = KeptVotes(rows, Votes(COUNTS[:4], n_teachers=20))
    first = asked.label(rows, request_id="a").labels
    wide = np.empty((4, 2, 6), dtype=np.float32)
    wide[:, :, ::2] = rows
    same = [zero, rows.astype(">f4"), np.asfortranarray(rows), wide[:, :, ::2], PublicData(rows), rows.astype(float)]
    for k, other in enumerate([*same, rows.tolist(), json.loads(json.dumps(rows.tolist()))]):
        np.testing.assert_array_equal(asked.label(other, request_id=f"same-{k}").labels, first)
    assert spent(asked.ledger)[0] == 4
    with pytest.raises(InputError, match="Row 0 was never voted on"):
        asked.label(np.nextafter(rows, 2), request_id="nearly")


def test_rows_of_any_number_type_are_the_same_question_if_their_values_are(path):
    """Bytes, whole numbers, halves, floats, doubles, JSON: every one is exact as a double."""
    whole = np.arange(12).reshape(3, 4) % 7
    voters = KeptVotes(whole.astype(np.uint8), Votes([[9, 8, 3]] * 3, n_teachers=20))
    asked = labeller(path, GNMax(sigma=1000), voters=voters)
    first = asked.label(whole.astype(np.uint8), request_id="bytes")
    kinds = ("i1", "<i2", ">i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8")
    for k, same in enumerate([*(whole.astype(kind) for kind in kinds), whole.tolist(), (whole * 1.0).tolist()]):
        np.testing.assert_array_equal(asked.label(same, request_id=f"{k}").labels, first.labels)
    assert spent(asked.ledger)[0] == 3
    flags = whole % 2 == 0
    voters = KeptVotes(flags, Votes([[9, 8, 3]] * 3, n_teachers=20))
    assert voters.find(flags.astype(np.float32)) == voters.find(flags)
    with pytest.raises(InputError, match="Row 0 was never voted on"):
        voters.find(whole)


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_a_whole_number_that_no_double_holds_is_refused(path, kind):
    fine = np.array([[0, 2**53], [1, 2]], dtype=kind)
    voters = KeptVotes(fine, Votes([[9, 11]] * 2, n_teachers=20))
    asked = labeller(path, GNMax(sigma=10), voters=voters)
    assert len(asked.label(fine, request_id="a")) == 2
    with pytest.raises(InputError, match="Row 1 holds a whole number above 2\\^53"):
        asked.label(np.array([[1, 2], [3, 2**53 + 1]], dtype=kind), request_id="b")
    assert spent(asked.ledger)[0] == 2


def test_another_mechanism_is_another_question(where):
    ledger = Ledger(where, budget=FilterBudget(epsilon=20, delta=1e-5, order=3))
    for k, mechanism in enumerate((GNMax(sigma=40), GNMax(sigma=41), GNMax(sigma=40))):
        Labeller(kept(), mechanism, ledger).label(X[:3], request_id=str(k))
    assert spent(ledger) == (6, 6)
    assert ledger.verify() == []


def test_for_the_interactive_mechanism_the_student_is_part_of_the_question(where):
    asked = labeller(where, INTERACTIVE)
    first = put(asked, range(40), "a")
    assert {int(outcome) for outcome in first.outcomes} == {0, 1, 2}
    assert spent(asked.ledger) == (40, first.n_answered)  # a reinforced label is no released vote
    nearly = PROBA[:40] + 2.0**-60
    np.testing.assert_array_equal(put(asked, range(40), "b", student_proba=nearly).labels, first.labels)
    assert spent(asked.ledger)[0] == 40
    with pytest.raises(RequestError):
        put(asked, range(40), "a", student_proba=PROBA[40:80])
    put(asked, range(40), "c", student_proba=PROBA[40:80])
    assert spent(asked.ledger)[0] == 80


def test_the_default_run_is_sliced_so_that_all_its_answers_are_used(where):
    """More queries than answers: never more are reserved than there are answers left, and none of these is wasted."""
    always = ConfidentGNMax(threshold=-1000, sigma_check=6, sigma_vote=8)
    asked = labeller(where, always, n_queries=150, n_answers=40)
    got = put(asked, range(100), "a")
    assert got.outcomes.tolist() == [Outcome.TEACHERS] * 40 + [Outcome.UNASKED] * 60
    assert (got.labels[40:] == ABSTAIN).all()
    assert repr(got) == (
        "Answers(100 queries, 40 answered by the teachers, 0 reinforced, 0 withheld, "
        "60 never asked: no room in the budget or quota)"
    )
    np.testing.assert_array_equal(put(asked, range(100), "a").outcomes, got.outcomes)  # the same once more
    assert spent(asked.ledger) == (40, 40)
    mixed = put(asked, range(30, 50), "b")
    assert mixed.outcomes.tolist() == [Outcome.TEACHERS] * 10 + [Outcome.UNASKED] * 10
    with pytest.raises(BudgetError, match="needs 5 queries and up to 5 answers; left: 110 queries and 0 answers"):
        put(asked, range(50, 55), "c")
    assert asked.ledger.verify() == []


@pytest.mark.parametrize("at_once", [5, 512])
def test_slices_stop_at_the_last_answer_and_no_query_before_it_is_skipped(where, at_once):
    asked = labeller(where, n_queries=190, n_answers=30, at_once=at_once)
    got = put(asked, range(N), "a")
    asked_rows = got.outcomes != Outcome.UNASKED
    last = int(asked_rows.sum())
    assert asked_rows[:last].all()
    assert got.n_answered == 30
    assert got.outcomes[last - 1] == Outcome.TEACHERS
    assert spent(asked.ledger) == (last, 30)
    left = 30
    for entry in asked.ledger.entries():
        if entry.kind == "reserve":
            assert entry.n_queries <= min(left, at_once)
        else:
            left -= entry.n_answers
    assert asked.ledger.verify() == []


def test_a_filter_is_sliced_too_and_never_runs_over(where):
    budget = FilterBudget(epsilon=1.0, delta=1e-5, order=20)
    mechanism = ConfidentGNMax(threshold=12, sigma_check=150, sigma_vote=40)
    asked = Labeller(kept(), mechanism, Ledger(where, budget=budget))
    got = put(asked, range(N), "a")
    assert 0 < (got.outcomes == Outcome.UNASKED).sum() < N
    left = budget.limit - asked.ledger.entries()[-1].total
    assert 0 <= left.charge < budget.price(mechanism, n_queries=1, n_answers=1).charge
    assert asked.ledger.verify() == []


def test_teachers_vote_once_on_a_row_however_small_the_slices(where):
    voters = Counted(X, Votes(COUNTS, n_teachers=20))
    got = put(labeller(where, n_queries=N, n_answers=30, voters=voters, at_once=64), range(N), "a")
    done = int((got.outcomes != Outcome.UNASKED).sum())
    assert done <= sum(voters.asked) <= done + 64


def test_who_loses_a_race_throws_its_own_draw_away_and_has_paid(where):
    """A second labeller answers the same rows while the first one's teachers vote."""
    mechanism = GNMax(sigma=1000)  # labels are pure chance

    class Slow(KeptVotes):
        def vote(self, X):
            self.other = put(labeller(where, mechanism), range(5, 45), "faster")
            return super().vote(X)

    voters = Slow(X, Votes(COUNTS, n_teachers=20))
    slow = labeller(where, mechanism, voters=voters)
    got = put(slow, range(40), "slower")
    np.testing.assert_array_equal(got.labels[5:], voters.other.labels[:35])
    assert spent(slow.ledger) == (80, 80)
    np.testing.assert_array_equal(put(slow, range(40), "slower").labels, got.labels)
    assert slow.ledger.verify() == []


class Failing(KeptVotes):
    """Teachers that fail on their first call, with a vote in the message."""

    failure: BaseException | None = ValueError("teacher 3 voted 7919")

    def vote(self, X):
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return super().vote(X)


def test_teachers_that_fail_say_nothing_and_what_was_reserved_stays_charged(where):
    asked = labeller(where, voters=Failing(X, Votes(COUNTS, n_teachers=20)))
    with pytest.raises(TeachersError, match=r"failed to vote \(ValueError\)\. Why is withheld") as caught:
        put(asked, range(4), "a")
    assert caught.value.__context__ is None
    assert "7919" not in "".join(traceback.format_exception(caught.value))
    assert spent(asked.ledger) == (4, 4)
    got = put(asked, range(4), "a")  # a retry reserves anew
    assert spent(asked.ledger) == (8, 4 + got.n_answered)
    assert [(entry.kind, entry.part) for entry in asked.ledger.entries()] == [
        ("reserve", 1),
        ("reserve", 2),
        ("settle", 2),
    ]
    assert asked.ledger.verify() == []


def test_a_retry_that_does_not_fit_is_refused(where):
    asked = labeller(where, n_queries=5, voters=Failing(X, Votes(COUNTS, n_teachers=20)))
    with pytest.raises(TeachersError):
        put(asked, range(5), "a")
    with pytest.raises(BudgetError, match="left: 0 queries and 0 answers"):
        put(asked, range(5), "a")
    assert len(asked.ledger.entries()) == 1


def test_an_interrupt_stays_one_and_leaves_the_charge(where):
    voters = Failing(X, Votes(COUNTS, n_teachers=20))
    voters.failure = KeyboardInterrupt()
    asked = labeller(where, voters=voters)
    with pytest.raises(KeyboardInterrupt):
        put(asked, range(5), "a")
    assert spent(asked.ledger) == (5, 5)


def test_votes_of_another_shape_are_refused_without_a_word_about_them(where):
    class Other(KeptVotes):
        def vote(self, X):
            return super().vote(X[:-1])

    with pytest.raises(TeachersError, match=r"failed to vote \(wrong number of votes\)"):
        put(labeller(where, voters=Other(X, Votes(COUNTS, n_teachers=20))), range(5), "a")


BAD = [
    ({"X": [*X[:3].tolist(), [1]]}, "The rows of X must all have the same length"),
    ({"X": X[:3, 0]}, r"X must have rows of shape \(2, 3\)"),
    ({"X": np.full((1, 2, 3), np.nan, dtype=np.float32)}, "X must be finite"),
    ({"X": X[:3].astype(np.longdouble)}, "Rows must be floats of at most 64 bits"),
    ({"X": X[:3] + 1}, "Row 0 was never voted on"),
    ({"X": X[:0]}, "at least one row"),
    ({"student_proba": PROBA[:3]}, "InteractiveGNMax needs student_proba; no other mechanism"),
    ({"request_id": "a\nb"}, "request_id must be text of 1 to 200 printable characters"),
    ({"request_id": 3}, "request_id must be text of 1 to 200 printable characters"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_what_can_be_refused_is_refused_before_anything_is_charged(path, options, message):
    asked = labeller(path)
    with pytest.raises(InputError, match=message) as caught:
        asked.label(**{"X": X[:3], "request_id": "a", **options})
    assert "\n" not in str(caught.value)
    assert asked.ledger.entries() == []


@pytest.mark.parametrize(
    ("proba", "message"),
    [
        (None, "InteractiveGNMax needs student_proba"),
        (PROBA[:2], r"student_proba must have shape \(3, 4\), got \(2, 4\)"),
        (PROBA[:3] * 2, "probabilities that sum to 1"),
    ],
)
def test_a_student_is_checked_before_anything_is_charged(path, proba, message):
    asked = labeller(path, INTERACTIVE)
    with pytest.raises(InputError, match=message):
        asked.label(X[:3], request_id="a", student_proba=proba)
    assert asked.ledger.entries() == []


def test_a_labeller_that_could_not_answer_is_refused_when_it_is_made(path):
    ledger = Ledger(path, budget=CountBudget(CONFIDENT, n_queries=10, delta=1e-5))
    with pytest.raises(InputError, match="This budget pays for"):
        Labeller(kept(), GNMax(sigma=8), ledger)
    with pytest.raises(InputError, match="at_once"):
        Labeller(kept(), CONFIDENT, ledger, at_once=0)
    with pytest.raises(InputError, match="rng must be SecureNoise"):
        Labeller(kept(), CONFIDENT, ledger, rng=3)
    far = ConfidentGNMax(threshold=2.0**22, sigma_check=6, sigma_vote=8)
    other = Ledger(path.with_name("far"), budget=CountBudget(far, n_queries=10, delta=1e-5))
    with pytest.raises(InputError, match=r"Teachers \(or threshold\) \+ 64 x noise scale must be below"):
        Labeller(kept(), far, other)


def test_kept_votes_are_found_by_their_rows():
    voters = kept()
    some = np.array([5, 3, 5])
    np.testing.assert_array_equal(voters.vote(X[some]).counts, COUNTS[some])
    assert (voters.n_teachers, voters.classes, voters.row_shape) == (20, ("0", "1", "2", "3"), (2, 3))
    assert KeptVotes(X, Votes(COUNTS, n_teachers=20), classes="abcd").classes == ("a", "b", "c", "d")
    assert repr(voters) == "<KeptVotes: 200 queries, 20 teachers; counts are secret>"
    with pytest.raises(SecretError):
        pickle.dumps(voters)
    with pytest.raises(InputError, match="There are 200 rows, and votes on 199"):
        KeptVotes(X, Votes(COUNTS[1:], n_teachers=20))
    with pytest.raises(InputError, match="The votes are on 4 classes, and classes names 2"):
        KeptVotes(X, Votes(COUNTS, n_teachers=20), classes="ab")
    with pytest.raises(InputError, match="votes must be a Votes object, got ndarray"):
        KeptVotes(X, COUNTS)


def test_teachers_label_for_a_budget_of_their_own_neighbours(path):
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 120)
    rows = rng.normal(size=(120, 2)) + 6 * y[:, None]
    data = PrivateData(rows, y)
    parts = partition(data, n_teachers=6, key=b"k" * 32)
    teacher = SklearnTeacher(estimator=LogisticRegression())
    ensemble = fit_teachers(data, parts, teacher, classes=["low", "high"], seed=0)
    mechanism = GNMax(sigma=0.5)
    budget = CountBudget(mechanism, n_queries=20, delta=1e-5, relation=Relation.ROW_REPLACED)
    asked = Labeller(ensemble, mechanism, Ledger(path, budget=budget))
    got = asked.label([[0.0, 0.0], [6.0, 6.0]], request_id="a")
    assert got.labels.tolist() == [0, 1]
    assert "of 6 teachers, paid by <Ledger ledger.sqlite: CountBudget(" in repr(asked)
    other = Ledger(
        path.with_name("other"), budget=CountBudget(mechanism, n_queries=20, delta=1e-5, relation=Relation.UNIT_ANY)
    )
    with pytest.raises(InputError, match=r"budget's neighbors \(one unit is added, removed or changed\) are not"):
        Labeller(ensemble, mechanism, other)


def test_no_vote_is_in_the_file_in_a_message_or_in_print(where):
    """Counts that nothing else would write: looked for in every cell, in the bytes, and in all that is said."""
    secrets = (1_234_577, 987_661, 541_237)
    counts = np.array([secrets, secrets[::-1], (secrets[1], secrets[0], secrets[2])])
    mechanism = ConfidentGNMax(threshold=1_000_000, sigma_check=500, sigma_vote=400)
    ledger = Ledger(where, budget=CountBudget(mechanism, n_queries=2, delta=1e-5))
    voters = KeptVotes(X[:3], Votes(counts, n_teachers=sum(secrets)))
    asked = Labeller(voters, mechanism, ledger)
    got = asked.label(X[:3], request_id="a")
    assert got.outcomes.tolist() == [Outcome.TEACHERS, Outcome.TEACHERS, Outcome.UNASKED]
    said = [repr(got), repr(asked), repr(ledger), str(ledger.entries()), str(ledger.summary()), repr(vars(asked))]
    for other, error in ((X[3:6], InputError), (X[2:3], BudgetError)):
        with pytest.raises(error) as caught:
            asked.label(other, request_id="b")
        said.append("".join(traceback.format_exception(caught.value)))
    cells = [cell for table in METADATA.tables for row in rows(where, f"SELECT * FROM {table}") for cell in row]
    assert len(cells) > 20
    for secret in secrets:
        assert not any(str(secret) in text for text in [*said, *map(str, cells)])
    if not on_server(where):
        written = b"".join(file.read_bytes() for file in Path(where).parent.iterdir())
        assert b"terrine_entries" in written
        for secret in secrets:
            for spelling in (str(secret).encode(), secret.to_bytes(8, "little"), secret.to_bytes(8, "big")):
                assert spelling not in written


def ask(rows, name, **options):
    return Question(X[rows], name, **options)


class Counted(KeptVotes):
    """Remembers how many rows each vote was about."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.asked = []

    def vote(self, X):
        self.asked.append(len(X))
        return super().vote(X)


def transactions(ledger):
    """What a ledger does from now on: "read" or "write"."""
    seen, begin = [], ledger._store._begin
    ledger._store._begin = lambda *, write: (seen.append("write" if write else "read"), begin(write=write))[1]
    return seen


def test_a_group_is_recalled_charged_voted_drawn_and_kept_once(where, monkeypatch):
    voters = Counted(X, Votes(COUNTS, n_teachers=20))
    asked = labeller(where, GNMax(sigma=1000), voters=voters)
    draws = []
    monkeypatch.setattr(
        labeller_module, "answer", lambda *given, **how: (draws.append(len(given[1])), answer(*given, **how))[1]
    )
    seen = transactions(asked.ledger)
    group = [ask(range(5 * k, 5 * k + 8), f"r{k}", account="ann" if k % 2 else "bob") for k in range(10)]
    given = asked.label_each(group)
    assert seen == ["read", "write", "write"]
    assert voters.asked == draws == [53]  # rows that two ask are drawn once
    assert spent(asked.ledger) == (53, 53)
    for k, got in enumerate(given):
        assert (got.outcomes == Outcome.TEACHERS).all()
        if k:
            np.testing.assert_array_equal(given[k - 1].labels[5:], got.labels[:3])
    charged = {name: one.queries for name, one in asked.ledger.accounts().items()}
    assert charged == {"bob": 8 + 4 * 5, "ann": 5 * 5}  # a row is charged to the first who asks it
    seen.clear()
    again = asked.label_each(group)
    assert seen == ["read"]
    for one, other in zip(given, again, strict=True):
        np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(put(asked, range(5, 13), "alone").labels, given[1].labels)
    assert asked.ledger.verify() == []


def test_one_request_of_a_group_is_answered_as_if_it_were_alone(where, path):
    for mechanism in MECHANISMS.values():
        groups = labeller(path.with_name(type(mechanism).__name__), mechanism, rng=SeededNoise(3))
        alone = labeller(path.with_name(f"{type(mechanism).__name__} alone"), mechanism, rng=SeededNoise(3))
        proba = PROBA[:30] if mechanism is INTERACTIVE else None
        (got,) = groups.label_each([ask(range(30), "a", student_proba=proba)])
        one = put(alone, range(30), "a")
        np.testing.assert_array_equal(got.labels, one.labels)
        np.testing.assert_array_equal(got.outcomes, one.outcomes)
    assert labeller(where).label_each([]) == []


def test_what_is_wrong_with_one_request_does_not_touch_the_others(where):
    asked = labeller(where)
    put(asked, range(3), "used")
    group = [
        ask(range(10, 14), "good"),
        Question(X[:3, 0], "shape"),
        Question("text", "text"),
        Question(X[:3] + 1, "unknown rows"),
        ask(range(3), "a\nb"),
        ask(range(3), "account", account="x" * 65),
        ask(range(3), "quota", quota=-1),
        ask(range(3), "student", student_proba=PROBA[:3]),
        ask(range(20, 24), "used"),
        ask(range(12, 18), "good"),
        ask(range(12, 18), "also good"),
        ask(range(3), "known"),
    ]
    given = asked.label_each(group)
    kinds = [Answers, *[InputError] * 3, *[InputError] * 4, RequestError, RequestError, Answers, Answers]
    for one, kind in zip(given, kinds, strict=True):
        assert isinstance(one, kind), one
    assert spent(asked.ledger)[0] == 3 + 8
    np.testing.assert_array_equal(given[0].labels[2:], given[10].labels[:2])
    np.testing.assert_array_equal(given[11].labels, put(asked, range(3), "used").labels)
    with pytest.raises(RequestError):
        put(asked, range(4), "known")  # known rows alone tie a request too
    assert asked.ledger.verify() == []


def test_a_row_goes_to_who_can_pay_for_it(where):
    asked = labeller(where, GNMax(sigma=1000), n_queries=20)
    group = [
        ask(range(6), "short", account="ann", quota=2),
        ask(range(4, 10), "long", account="bob", quota=100),
        ask(range(2), "none", account="eve", quota=0),
        ask(range(190, 193), "none left", account="eve", quota=0),
    ]
    short, long, none, refused = asked.label_each(group)
    assert short.outcomes.tolist() == [1, 1, 3, 3, 1, 1]  # its own two, and two that another paid for
    assert (long.outcomes == Outcome.TEACHERS).all()
    np.testing.assert_array_equal(none.labels, short.labels[:2])
    assert isinstance(refused, QuotaError)
    assert {name: one.queries for name, one in asked.ledger.accounts().items()} == {"ann": 2, "bob": 6}
    with pytest.raises(QuotaError, match="needs 3 queries; left: 0 of 2 queries"):
        put(asked, range(100, 103), "more", account="ann", quota=2)
    got = put(asked, range(100, 103), "more", account="ann", quota=4)
    assert got.outcomes.tolist() == [1, 1, 3]
    assert asked.ledger.verify() == []


def test_a_group_uses_up_the_budget_and_stops_there(where):
    """Settling gives room back, so a request that did not fit at first is asked after the others."""
    asked = labeller(where, n_queries=N, n_answers=30)
    given = asked.label_each([ask(range(20 * k, 20 * k + 20), f"{k}") for k in range(10)])
    answered = sum(one.n_answered for one in given if isinstance(one, Answers))
    assert answered == 30
    assert asked.ledger.summary().answers == 30
    assert sum(isinstance(one, Answers) for one in given) >= 3
    assert all(type(one) in (Answers, BudgetError) for one in given)
    queries = spent(asked.ledger)[0]
    done = sum(int((one.outcomes != Outcome.UNASKED).sum()) for one in given if isinstance(one, Answers))
    assert done == queries
    assert asked.ledger.verify() == []


def test_teachers_that_fail_on_one_requests_rows_answer_the_others(where):
    class Picky(KeptVotes):
        def vote(self, rows):
            if 7 in self.find(rows):
                raise ValueError("teacher 3 voted 7919")
            return super().vote(rows)

    asked = labeller(where, voters=Picky(X, Votes(COUNTS, n_teachers=20)))
    fine, bad, shared = asked.label_each([ask(range(3), "a"), ask(range(5, 9), "b"), ask([8, 9], "c")])
    assert isinstance(fine, Answers)
    assert isinstance(bad, TeachersError)
    assert bad.__context__ is None
    assert "7919" not in str(bad)
    assert (shared.outcomes != Outcome.UNASKED).all()  # row 8 was first asked with the bad one
    assert spent(asked.ledger)[0] == 3 + 4 + 1 + 1  # what was reserved for row 7 and its company stays charged
    assert asked.ledger.summary().unsettled == 4
    assert asked.ledger.verify() == []


def test_nobody_votes_for_a_request_that_nothing_was_charged_for(path):
    seen = []

    class Watched(KeptVotes):
        def vote(self, rows):
            seen.extend(self.find(rows))
            return super().vote(rows)

    voters = Watched(X, Votes(COUNTS, n_teachers=20))
    asked = labeller(path, GNMax(sigma=8), n_queries=3, voters=voters)
    first, second = asked.label_each([ask(range(3), "a"), ask(range(5, 9), "b")])
    assert first.n_answered == 3
    assert isinstance(second, BudgetError)
    assert sorted(seen) == [0, 1, 2]


def test_rows_of_one_type_are_voted_on_together_and_of_another_apart(path):
    """Teachers may read bytes otherwise than floats: a neighbour in the group must not change what they see."""

    class Typed(KeptVotes):
        def vote(self, rows):
            seen.append((rows.dtype.str, len(rows)))
            return super().vote(rows)

    seen = []
    whole = np.arange(40).reshape(10, 4)
    asked = labeller(path, GNMax(sigma=1000), voters=Typed(whole, Votes([[9, 11]] * 10, n_teachers=20)))
    given = asked.label_each(
        [
            Question(whole[:3].astype(np.uint8), "bytes"),
            Question(whole[2:5].astype(np.float32), "floats"),
            Question(whole[5:7].astype(np.uint8), "more bytes"),
        ]
    )
    assert all(isinstance(one, Answers) for one in given)
    assert sorted(seen) == [("<f4", 2), ("|u1", 5)]
    assert given[0].labels[2] == given[1].labels[0]


def test_a_ledger_that_cannot_be_written_is_every_requests_error(path):
    asked = labeller(path)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("DROP TABLE terrine_answers")
    given = asked.label_each([ask(range(3), "a"), Question(X[:2, 0], "shape"), ask(range(3), "b")])
    assert [type(one) for one in given] == [LedgerError, InputError, LedgerError]
    with pytest.raises(LedgerError, match="no such table"):
        put(asked, range(3), "a")


def test_progress_is_told_and_ends_at_one(where):
    told = []
    put(labeller(where, at_once=40), range(100), "a", progress=told.append)
    assert told == [0.4, 0.8, 1.0]


def test_importing_the_labeller_loads_no_database():
    heavy = {"sqlalchemy", "psycopg", "sqlite3", "opendp", "sklearn"}
    program = f"import sys, terrine.labeller; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
