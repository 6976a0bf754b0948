"""The labeller: charged before it is drawn, kept before it leaves, one answer per query for ever, no secret out."""

from __future__ import annotations

import pickle
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from terrine.budgets import CountBudget, FilterBudget
from terrine.datasets.data import PrivateData, PublicData
from terrine.errors import BudgetError, InputError, RequestError, SecretError, TeachersError
from terrine.labeller import KeptVotes, Labeller
from terrine.ledger import Ledger
from terrine.ledger.store import METADATA
from terrine.mechanisms import ABSTAIN, ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Outcome, answer
from terrine.noise import SecureNoise, SeededNoise
from terrine.partition import ROW_REPLACED, UNIT_ANY, partition
from terrine.teachers import SklearnTeacher, fit_teachers
from terrine.votes import Votes

CONFIDENT = ConfidentGNMax(threshold=12, sigma_check=6, sigma_vote=8)  # 20 teachers: about half pass, labels are chance
INTERACTIVE = InteractiveGNMax(threshold=6, sigma_check=6, sigma_vote=8, student_confidence=0.6)
MECHANISMS = {"lnmax": LNMax(scale=8), "gnmax": GNMax(sigma=8), "confident": CONFIDENT, "interactive": INTERACTIVE}
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
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


def labeller(path, mechanism=CONFIDENT, *, n_queries=1000, n_answers=None, rng=None, voters=None, **options):
    budget = CountBudget(mechanism, n_queries=n_queries, n_answers=n_answers, delta=1e-5)
    return Labeller(voters or kept(), mechanism, Ledger(path, budget=budget), rng=rng, **options)


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
    def test_it_answers_as_the_mechanism_does(self, mechanism, path):
        """With one seed: the labeller adds nothing of its own."""
        asked = labeller(path, mechanism, rng=SeededNoise(7))
        got = put(asked, range(50), "a")
        proba = PROBA[:50] if mechanism is INTERACTIVE else None
        plain = answer(mechanism, Votes(COUNTS[:50], n_teachers=20), rng=SeededNoise(7), student_proba=proba)
        np.testing.assert_array_equal(got.labels, plain.labels)
        np.testing.assert_array_equal(got.outcomes, plain.outcomes)
        assert got.mechanism is mechanism
        assert not got.secure
        assert not asked.ledger.entries()[0].secure
        assert not asked.ledger.summary()["secure"]

    def test_the_same_query_has_the_same_answer_under_any_request_and_after_reopening(self, mechanism, path):
        asked = labeller(path, mechanism)
        first = put(asked, range(60), "a")
        assert first.secure
        before = spent(asked.ledger)
        assert before == (60, first.n_answered)
        again = [put(asked, range(60), "a"), put(asked, range(60), "b")]
        asked.ledger.close()
        again.append(put(labeller(path, mechanism), range(60), "c"))
        backwards = put(labeller(path, mechanism), range(59, -1, -1), "d")
        for other in again:
            np.testing.assert_array_equal(other.labels, first.labels)
            np.testing.assert_array_equal(other.outcomes, first.outcomes)  # ⊥ is remembered too
        np.testing.assert_array_equal(backwards.labels[::-1], first.labels)
        assert spent(asked.ledger) == before
        assert asked.ledger.verify() == []

    def test_what_is_new_is_charged_and_what_is_known_is_not(self, mechanism, path):
        asked = labeller(path, mechanism)
        first = put(asked, range(10, 20), "a")
        both = put(asked, range(5, 25), "b")
        np.testing.assert_array_equal(both.labels[5:15], first.labels)
        assert spent(asked.ledger) == (20, both.n_answered)

    def test_a_row_twice_in_a_batch_is_one_query(self, mechanism, path):
        asked = labeller(path, mechanism)
        got = put(asked, [3, 4, 3, 3, 4], "a")
        assert got.labels.tolist() == [got.labels[0], got.labels[1], got.labels[0], got.labels[0], got.labels[1]]
        assert spent(asked.ledger)[0] == 2


@pytest.mark.parametrize("noise", [SecureNoise, SeededNoise])
def test_everything_is_on_disk_before_a_vote_is_cast_or_noise_drawn(path, monkeypatch, noise):
    """What another process would see in the file, at the moment that teachers vote and that noise is drawn."""
    seen = []

    def look(what):
        with Ledger(path) as other:
            seen.append((what, spent(other), other.summary()["unsettled"]))

    class Watched(KeptVotes):
        def vote(self, X):
            look("vote")
            return super().vote(X)

    asked = labeller(
        path, rng=None if noise is SecureNoise else SeededNoise(0), voters=Watched(X, Votes(COUNTS, n_teachers=20))
    )
    drawn = noise.gaussian
    monkeypatch.setattr(
        noise, "gaussian", lambda self, shape, *, sigma: (look("draw"), drawn(self, shape, sigma=sigma))[1]
    )
    got = put(asked, range(7), "a")
    assert seen == [(what, (7, 7), 7) for what in ("vote", "draw", "draw")]  # the check's noise, the answers' noise
    look("after")
    assert seen[-1] == ("after", (7, got.n_answered), 0)


def test_a_request_id_belongs_to_its_rows(path):
    asked = labeller(path)
    put(asked, range(5), "a")
    for rows in (range(6), range(4), [1, 0, 2, 3, 4]):
        with pytest.raises(RequestError, match="Expected the rows that request 'a' asked about before, got others"):
            put(asked, rows, "a")
    put(asked, range(5), "b")  # known rows alone: no reservation, and still tied to them
    with pytest.raises(RequestError):
        put(asked, range(4), "b")
    assert spent(asked.ledger)[0] == 5


def test_rows_are_compared_by_value_and_not_by_layout(path):
    asked = labeller(path, GNMax(sigma=100))
    rows = X[:4].copy()
    rows[0, 0, 0] = 0.0
    zero = rows.copy()
    zero[0, 0, 0] = -0.0
    assert rows.tobytes() != zero.tobytes()
    asked._ensemble = KeptVotes(rows, Votes(COUNTS[:4], n_teachers=20))
    first = asked.label(rows, request_id="a").labels
    wide = np.empty((4, 2, 6), dtype=np.float32)
    wide[:, :, ::2] = rows
    same = [zero, rows.astype(">f4"), np.asfortranarray(rows), wide[:, :, ::2], PublicData(rows), rows.tolist()]
    for k, other in enumerate(same[:-1]):
        np.testing.assert_array_equal(asked.label(other, request_id=f"same-{k}").labels, first)
    assert spent(asked.ledger)[0] == 4
    with pytest.raises(InputError, match="Expected rows that were voted on, got another in row 0"):
        asked.label(same[-1], request_id="doubles")  # float64 is another question


def test_another_mechanism_is_another_question(path):
    ledger = Ledger(path, budget=FilterBudget(epsilon=20, delta=1e-5, order=3))
    for k, mechanism in enumerate((GNMax(sigma=40), GNMax(sigma=41), GNMax(sigma=40))):
        Labeller(kept(), mechanism, ledger).label(X[:3], request_id=str(k))
    assert spent(ledger) == (6, 6)
    assert ledger.verify() == []


def test_for_the_interactive_mechanism_the_student_is_part_of_the_question(path):
    asked = labeller(path, INTERACTIVE)
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


def test_the_default_run_is_sliced_so_that_all_its_answers_are_used(path):
    """More queries than answers: never more are reserved than there are answers left, and none of these is wasted."""
    always = ConfidentGNMax(threshold=-1000, sigma_check=6, sigma_vote=8)
    asked = labeller(path, always, n_queries=150, n_answers=40)
    got = put(asked, range(100), "a")
    assert got.outcomes.tolist() == [Outcome.TEACHERS] * 40 + [Outcome.UNASKED] * 60
    assert (got.labels[40:] == ABSTAIN).all()
    assert repr(got) == (
        "Answers(100 queries, 40 answered by the teachers, 0 reinforced, 0 withheld, 60 never asked for want of budget)"
    )
    np.testing.assert_array_equal(put(asked, range(100), "a").outcomes, got.outcomes)  # the same once more
    assert spent(asked.ledger) == (40, 40)
    mixed = put(asked, range(30, 50), "b")
    assert mixed.outcomes.tolist() == [Outcome.TEACHERS] * 10 + [Outcome.UNASKED] * 10
    with pytest.raises(BudgetError, match="got 5 queries and up to 5 answers; what is left: 110 queries and 0 answers"):
        put(asked, range(50, 55), "c")
    assert asked.ledger.verify() == []


@pytest.mark.parametrize("at_once", [1, 7, 512])
def test_slices_stop_at_the_last_answer_and_no_query_before_it_is_skipped(path, at_once):
    asked = labeller(path, n_queries=190, n_answers=30, at_once=at_once)
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


def test_a_filter_is_sliced_too_and_never_runs_over(path):
    budget = FilterBudget(epsilon=1.0, delta=1e-5, order=20)
    mechanism = ConfidentGNMax(threshold=12, sigma_check=150, sigma_vote=40)
    asked = Labeller(kept(), mechanism, Ledger(path, budget=budget))
    got = put(asked, range(N), "a")
    assert 0 < (got.outcomes == Outcome.UNASKED).sum() < N
    left = budget.limit - asked.ledger.entries()[-1].total
    assert 0 <= left.charge < budget.price(mechanism, n_queries=1, n_answers=1).charge
    assert asked.ledger.verify() == []


def test_teachers_vote_once_on_a_row_however_small_the_slices(path):
    class Counted(KeptVotes):
        asked = 0

        def vote(self, X):
            self.asked += len(X)
            return super().vote(X)

    voters = Counted(X, Votes(COUNTS, n_teachers=20))
    got = put(labeller(path, n_queries=N, n_answers=30, voters=voters, at_once=64), range(N), "a")
    done = int((got.outcomes != Outcome.UNASKED).sum())
    assert done <= voters.asked <= done + 64


def test_who_loses_a_race_throws_its_own_draw_away_and_has_paid(path):
    """A second labeller answers the same rows while the first one's teachers vote."""
    mechanism = GNMax(sigma=1000)  # labels are pure chance

    class Slow(KeptVotes):
        def vote(self, X):
            self.other = put(labeller(path, mechanism), range(5, 45), "faster")
            return super().vote(X)

    voters = Slow(X, Votes(COUNTS, n_teachers=20))
    slow = labeller(path, mechanism, voters=voters)
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


def test_teachers_that_fail_say_nothing_and_what_was_reserved_stays_charged(path):
    asked = labeller(path, voters=Failing(X, Votes(COUNTS, n_teachers=20)))
    with pytest.raises(TeachersError, match=r"got a failure \(ValueError\); its message is withheld") as caught:
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


def test_a_retry_that_does_not_fit_is_refused(path):
    asked = labeller(path, n_queries=5, voters=Failing(X, Votes(COUNTS, n_teachers=20)))
    with pytest.raises(TeachersError):
        put(asked, range(5), "a")
    with pytest.raises(BudgetError, match="what is left: 0 queries and 0 answers"):
        put(asked, range(5), "a")
    assert len(asked.ledger.entries()) == 1


def test_an_interrupt_stays_one_and_leaves_the_charge(path):
    voters = Failing(X, Votes(COUNTS, n_teachers=20))
    voters.failure = KeyboardInterrupt()
    asked = labeller(path, voters=voters)
    with pytest.raises(KeyboardInterrupt):
        put(asked, range(5), "a")
    assert spent(asked.ledger) == (5, 5)


def test_votes_of_another_shape_are_refused_without_a_word_about_them(path):
    class Other(KeptVotes):
        def vote(self, X):
            return super().vote(X[:-1])

    with pytest.raises(TeachersError, match=r"a failure \(other votes\)"):
        put(labeller(path, voters=Other(X, Votes(COUNTS, n_teachers=20))), range(5), "a")


BAD = [
    ({"X": [*X[:3].tolist(), [1]]}, "X as a rectangular array"),
    ({"X": X[:3, 0]}, r"Expected rows of shape \(2, 3\), got \(3,\)"),
    ({"X": np.full((1, 2, 3), np.nan, dtype=np.float32)}, "X to be finite"),
    ({"X": X[:3].astype(np.longdouble)}, "Expected rows of at most 64-bit floats"),
    ({"X": X[:3] + 1}, "Expected rows that were voted on, got another in row 0"),
    ({"X": X[:0]}, "at least one row"),
    ({"student_proba": PROBA[:3]}, "student_proba for InteractiveGNMax and for no other mechanism"),
    ({"request_id": "a\nb"}, "request_id to be 1 to 200 printable characters"),
    ({"request_id": 3}, "request_id to be 1 to 200 printable characters"),
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
        (None, "student_proba for InteractiveGNMax"),
        (PROBA[:2], r"student_proba of shape \(3, 4\), got \(2, 4\)"),
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
    with pytest.raises(InputError, match="Expected the budget's mechanism"):
        Labeller(kept(), GNMax(sigma=8), ledger)
    with pytest.raises(InputError, match="at_once"):
        Labeller(kept(), CONFIDENT, ledger, at_once=0)
    with pytest.raises(InputError, match="Expected rng to be SecureNoise"):
        Labeller(kept(), CONFIDENT, ledger, rng=3)
    far = ConfidentGNMax(threshold=2.0**22, sigma_check=6, sigma_vote=8)
    other = Ledger(path.with_name("far"), budget=CountBudget(far, n_queries=10, delta=1e-5))
    with pytest.raises(InputError, match=r"teachers \(or threshold\) \+ 64 x noise scale below"):
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
    with pytest.raises(InputError, match="Expected votes on 200 rows, got votes on 199"):
        KeptVotes(X, Votes(COUNTS[1:], n_teachers=20))
    with pytest.raises(InputError, match="Expected 4 classes, as were voted for, got 2"):
        KeptVotes(X, Votes(COUNTS, n_teachers=20), classes="ab")
    with pytest.raises(InputError, match="Expected votes to be a Votes object, got ndarray"):
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
    budget = CountBudget(mechanism, n_queries=20, delta=1e-5, relation=ROW_REPLACED)
    asked = Labeller(ensemble, mechanism, Ledger(path, budget=budget))
    got = asked.label([[0.0, 0.0], [6.0, 6.0]], request_id="a")
    assert got.labels.tolist() == [0, 1]
    assert "of 6 teachers, paid by <Ledger ledger.sqlite: CountBudget(" in repr(asked)
    other = Ledger(path.with_name("other"), budget=CountBudget(mechanism, n_queries=20, delta=1e-5, relation=UNIT_ANY))
    with pytest.raises(InputError, match=r"budget's neighbours \(one unit is added, removed or changed\), got others"):
        Labeller(ensemble, mechanism, other)


def test_no_vote_is_in_the_file_in_a_message_or_in_print(path):
    """Counts that nothing else would write: looked for in every cell, in the bytes, and in all that is said."""
    secrets = (1_234_577, 987_661, 541_237)
    counts = np.array([secrets, secrets[::-1], (secrets[1], secrets[0], secrets[2])])
    mechanism = ConfidentGNMax(threshold=1_000_000, sigma_check=500, sigma_vote=400)
    ledger = Ledger(path, budget=CountBudget(mechanism, n_queries=2, delta=1e-5))
    voters = KeptVotes(X[:3], Votes(counts, n_teachers=sum(secrets)))
    asked = Labeller(voters, mechanism, ledger)
    got = asked.label(X[:3], request_id="a")
    assert got.outcomes.tolist() == [Outcome.TEACHERS, Outcome.TEACHERS, Outcome.UNASKED]
    said = [repr(got), repr(asked), repr(ledger), str(ledger.entries()), str(ledger.summary()), repr(vars(asked))]
    for rows, error in ((X[3:6], InputError), (X[2:3], BudgetError)):
        with pytest.raises(error) as caught:
            asked.label(rows, request_id="b")
        said.append("".join(traceback.format_exception(caught.value)))
    written = b"".join(file.read_bytes() for file in path.parent.iterdir())
    raw = sqlite3.connect(path)
    cells = [cell for table in METADATA.tables for row in raw.execute(f"SELECT * FROM {table}") for cell in row]
    raw.close()
    assert len(cells) > 20
    assert b"terrine_entries" in written
    for secret in secrets:
        assert not any(str(secret) in text for text in [*said, *map(str, cells)])
        for spelling in (str(secret).encode(), secret.to_bytes(8, "little"), secret.to_bytes(8, "big")):
            assert spelling not in written


def test_progress_is_told_and_ends_at_one(path):
    told = []
    put(labeller(path, at_once=40), range(100), "a", progress=told.append)
    assert told == [0.4, 0.8, 1.0]


def test_importing_the_labeller_loads_no_database():
    program = (
        "import sys, terrine.labeller; assert not {'sqlalchemy', 'sqlite3', 'opendp', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
