"""Answers are known by who gave them: other teachers, or other names, never get them; the same find them again."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from terrine.budgets import CountBudget
from terrine.datasets import PrivateData
from terrine.errors import InputError, RequestError
from terrine.labeller import KeptVotes, Labeller, Question
from terrine.ledger import Ledger
from terrine.mechanisms import GNMax, InteractiveGNMax
from terrine.noise import SeededNoise
from terrine.partitioning import Partition, new_key, partition, write_shares
from terrine.runs.local import REQUEST, Run
from terrine.teachers import CentroidTeacher, SklearnTeacher, TeacherEnsemble, fit_teachers, poll_teachers
from terrine.votes import Ballots, Votes, tally

KEY = bytes(range(32))
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(300, 3)), RNG.integers(0, 3, size=300)
PUBLIC = RNG.normal(size=(30, 3))
GN, ALONG = GNMax(sigma=4), InteractiveGNMax(threshold=6, sigma_check=6, sigma_vote=8, student_confidence=0.6)
CLASSES = ("ash", "birch", "cedar")
LINEAR = SklearnTeacher(estimator=LogisticRegression())
OLD_RUN = Path(__file__).parent / "data" / "run_805b8dc.tar.gz"


def taught(how: Callable[..., Any] = fit_teachers, *given: Any, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "X": X,
        "y": Y,
        "unit": None,
        "key": KEY,
        "n_teachers": 10,
        "teacher": CentroidTeacher(),
        "classes": CLASSES,
        "seed": 0,
        "first_id": 0,
    } | changes
    data = PrivateData(settings.pop("X"), settings.pop("y"), unit=settings.pop("unit"))
    shares = partition(data, n_teachers=settings.pop("n_teachers"), key=settings.pop("key"))
    return how(data, shares, settings.pop("teacher"), *given, **settings)


OTHERS: dict[str, dict[str, Any]] = {
    "another row": {"X": np.vstack([X[:-1], [[9.0, 9.0, 9.0]]])},
    "another label": {"y": [*Y[:-1], (Y[-1] + 1) % 3]},
    "another key": {"key": bytes(32)},
    "units": {"unit": np.arange(300) // 2},
    "another number of teachers": {"n_teachers": 11},
    "another seed": {"seed": 1},
    "another setting": {"teacher": CentroidTeacher(similarity=0.1)},
    "another kind": {"teacher": LINEAR},
    "other names": {"classes": ("ash", "birch", "oak")},
    "names in another order": {"classes": ("birch", "ash", "cedar")},
    "another first id": {"first_id": 10},
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.sqlite", budget=CountBudget(GN, n_queries=100, delta=1e-5)) as made:
        yield made


def asked(ledger: Ledger) -> int:
    return int(ledger.summary().queries)


@pytest.mark.parametrize("name", OTHERS)
def test_another_ensemble_or_other_names_are_asked_anew(name: str, ledger: Ledger) -> None:
    mine, other = taught(), taught(**OTHERS[name])
    Labeller(mine, GN, ledger).label(PUBLIC, request_id="mine")
    assert asked(ledger) == 30
    with pytest.raises(RequestError, match="for other rows, teachers or classes"):
        Labeller(other, GN, ledger).label(PUBLIC, request_id="mine")
    assert asked(ledger) == 30
    Labeller(other, GN, ledger).label(PUBLIC, request_id="other")
    assert asked(ledger) == 60
    (stopped,) = Labeller(other, GN, ledger).label_each([Question(PUBLIC, "mine")])
    assert isinstance(stopped, RequestError)
    Labeller(mine, GN, ledger).label(PUBLIC[::-1], request_id="mine again")
    assert asked(ledger) == 60


def test_the_same_script_after_a_kill_finds_its_answers(ledger: Ledger) -> None:
    class Killed(BaseException):
        pass

    def killed(share: float) -> None:
        raise Killed

    with pytest.raises(Killed):
        Labeller(taught(), GN, ledger, at_once=10).label(PUBLIC, request_id="a", progress=killed)
    before = dict(ledger.recall_each(queries_of(ledger), ())[0])
    assert len(before) == asked(ledger) == 10
    answers = Labeller(taught(), GN, ledger, at_once=10).label(PUBLIC, request_id="a")
    assert asked(ledger) == 30
    after = ledger.recall_each(queries_of(ledger), ())[0]
    assert {query: after[query] for query in before} == before
    assert sorted(answers.labels[:10]) == sorted(one.label for one in before.values())


def queries_of(ledger: Ledger) -> list[str]:
    lines = [json.loads(line) for line in ledger.export()]
    return [line["query"] for line in lines if "query" in line]


@pytest.mark.usefixtures("by_renyi")
def test_an_interactive_question_knows_its_teachers_too(tmp_path: Path) -> None:
    proba = np.full((30, 3), 1 / 3)
    with Ledger(tmp_path / "l.sqlite", budget=CountBudget(ALONG, n_queries=100, delta=1e-5)) as ledger:
        for k, voters in enumerate((taught(), taught(), taught(seed=1))):
            Labeller(voters, ALONG, ledger).label(PUBLIC, request_id=str(k), student_proba=proba)
        assert asked(ledger) == 60


def test_every_way_to_the_same_teachers_is_the_same_identity(tmp_path: Path) -> None:
    one = taught()
    assert re.fullmatch("[0-9a-f]{64}", one.identity)
    assert taught(store=tmp_path / "store").identity == one.identity
    loaded = TeacherEnsemble.load(tmp_path / "store", CentroidTeacher())
    assert loaded.identity == loaded.in_memory().identity == one.identity
    votes = taught(poll_teachers, PUBLIC)
    votes.save(tmp_path / "votes.npz")
    for same in (votes, votes[:5], one.vote(PUBLIC), Votes.load(tmp_path / "votes.npz")):
        assert same.voters == one.identity
    assert KeptVotes(PUBLIC, votes).identity == one.identity
    assert len({taught(**changes).identity for changes in OTHERS.values()} | {one.identity}) == len(OTHERS) + 1


def test_shares_on_disk_and_saved_partitions_have_one_too(tmp_path: Path) -> None:
    data = PrivateData(X, Y)
    shares = partition(data, n_teachers=10, key=KEY)
    shares.save(tmp_path / "partition.npz")
    files = write_shares(data, shares, tmp_path / "shares")
    found = [
        fit_teachers(files, one, CentroidTeacher(), classes=CLASSES, seed=0).identity
        for one in (shares, Partition.load(tmp_path / "partition.npz"))
    ]
    assert found[0] == found[1] != ""
    assert (tmp_path / "partition.npz").stat().st_mode & 0o777 == 0o600


def test_owners_who_vote_together_are_known_together(tmp_path: Path) -> None:
    owners = [taught(key=new_key(), first_id=10 * k).ballots(PUBLIC) for k in range(3)]
    owners[0].save(tmp_path / "ballots.npz")
    owners[0] = Ballots.load(tmp_path / "ballots.npz")
    assert tally(owners).voters == tally(owners[::-1]).voters != ""
    assert tally(owners[:2]).voters != tally(owners).voters
    nameless = Ballots(owners[2].choices, ids=owners[2].ids, n_classes=3, queries=owners[2].queries, relation="a")
    nameless.relation = owners[0].relation
    assert tally([owners[0], nameless]).voters == ""


def test_an_identity_tells_nothing_of_what_it_is_taken_of(ledger: Ledger) -> None:
    """Whoever guesses all private rows and settings, but not the key, cannot check the guess; nor is it printed."""
    one = taught()
    shares = partition(PrivateData(X, Y), n_teachers=10, key=KEY)
    for secret in (KEY, shares._secret):
        assert secret.hex() not in one.identity
        assert secret.hex() not in repr(shares)
    guessed = Partition(
        shares.assignment, n_teachers=10, method=shares.method, relation=shares.relation, secret=bytes(32)
    )
    assert fit_teachers(PrivateData(X, Y), guessed, CentroidTeacher(), classes=CLASSES, seed=0).identity != one.identity
    Labeller(one, GN, ledger).label(PUBLIC, request_id="a")
    text = "\n".join(ledger.export())
    assert one.identity not in text
    assert hashlib.sha256(X.tobytes()).hexdigest() not in text


class Custom:
    """Voters of one's own."""

    n_teachers, row_shape = 10, (3,)

    def __init__(self, *classes: str, identity: Any = None) -> None:
        self.classes = classes
        if identity is not None:
            self.identity = identity

    def vote(self, rows: np.ndarray) -> Votes:
        return Votes(np.tile([10, 0, 0], (len(rows), 1)), n_teachers=10)


def test_voters_of_ones_own_are_known_by_names_and_number_or_by_an_identity_they_bring(ledger: Ledger) -> None:
    ids = count()

    def ask(voters: Custom) -> int:
        Labeller(voters, GN, ledger).label(PUBLIC[:10], request_id=str(next(ids)))
        return asked(ledger)

    assert [ask(Custom("a", "b", "c")) for _ in range(2)] == [10, 10]
    assert ask(Custom("a", "c", "b")) == 20
    assert [ask(Custom("a", "b", "c", identity="mine")) for _ in range(2)] == [30, 30]
    assert ask(Custom("a", "b", "c", identity="yours")) == 40
    more = Custom("a", "b", "c")
    more.n_teachers = 11
    more.vote = lambda rows: Votes(np.tile([11, 0, 0], (len(rows), 1)), n_teachers=11)  # type: ignore[method-assign]
    assert ask(more) == 50
    with pytest.raises(InputError, match="identity must be text, got int"):
        Labeller(Custom("a", "b", identity=7), GN, ledger)


# Run directories


def unpacked(folder: Path) -> Path:
    """A run of 40 questions that commit 805b8dc made, and that was killed after 16 answers."""
    with tarfile.open(OLD_RUN) as file:
        file.extractall(folder, filter="data")
    config = folder / "run" / "config.toml"
    config.write_text(config.read_text().replace("@HERE@", str(folder)))
    return folder / "run"


def any_shares(run: Path) -> Path:
    """Its settings for a new run: shares are by a new key, and one of them may be empty."""
    config = run / "config.toml"
    config.write_text(config.read_text().replace("min_units = 1", "min_units = 0"))
    return config


def test_a_run_of_before_goes_on_with_the_answers_it_has(tmp_path: Path) -> None:
    run = Run(unpacked(tmp_path))
    with run.ledger() as ledger:
        assert asked(ledger) == 16
        before = ledger.recall_each(queries_of(ledger), ())[0]
    run.teach()  # finds the teachers as they are
    assert run.ensemble().identity == run.vote().voters == ""
    answers = run.label()
    with run.ledger() as ledger:
        assert asked(ledger) == 40  # 24 more, and none twice
        after = ledger.recall_each(queries_of(ledger), ())[0]
        assert ledger.verify() == []
    assert len(after) == 40
    assert {query: after[query] for query in before} == before
    assert answers.n_answered == 40
    assert (Run(run.folder).label().labels == answers.labels).all()
    with run.ledger() as ledger:
        assert asked(ledger) == 40


def test_what_was_begun_before_is_not_anothers(tmp_path: Path) -> None:
    """An ensemble with an identity, under the name and with the rows of the old request: refused, not answered."""
    run = Run(unpacked(tmp_path))
    rows = run.task.public.X[run.asked()]
    votes = Votes(np.tile([20, 0], (40, 1)), n_teachers=20)
    votes.voters = "somebody else"
    with run.ledger() as ledger:
        for classes in (("no", "yes"), ("yes", "no")):
            labeller = Labeller(KeptVotes(rows, votes, classes=classes), run.mechanism, ledger)
            with pytest.raises(RequestError, match="other rows, teachers or classes"):
                labeller.label(rows, request_id=REQUEST)
        assert asked(ledger) == 16


def test_a_service_over_a_run_of_before_charges_for_what_it_answers_anew(tmp_path: Path) -> None:
    """Its answers were known by no voters: asking the run's kept teachers again is a question of its own, and paid."""
    run = Run(unpacked(tmp_path))
    X = run.task.public.X[run.asked()][:4]
    with run.ledger() as ledger:
        labeller = Labeller(run.voters(), run.mechanism, ledger)
        (first,) = labeller.label_each([Question(X, "client 1")])
        (again,) = labeller.label_each([Question(X, "client 2")])
        assert asked(ledger) == 20
        assert (first.labels == again.labels).all()


def test_a_new_run_and_its_service_share_answers(tmp_path: Path) -> None:
    run = Run.create(any_shares(unpacked(tmp_path)), tmp_path / "new")
    run.teach()
    answers = run.label()
    assert run.ensemble().identity == run.vote().voters == run.voters().identity != ""
    X = run.task.public.X[run.asked()]
    with run.ledger() as ledger:
        (given,) = Labeller(run.voters(), run.mechanism, ledger).label_each([Question(X, "client")])
        assert (given.labels == answers.labels).all()
        assert asked(ledger) == 40


def test_seeded_noise_anywhere_in_the_ledger_voids_a_runs_guarantee(tmp_path: Path) -> None:
    run = Run.create(any_shares(unpacked(tmp_path)), tmp_path / "new")
    run.teach()
    one = np.full((1, 2), 99.0)
    voters = KeptVotes(one, Votes([[20, 0]], n_teachers=20), classes=run.task.classes)
    with run.ledger() as ledger:
        Labeller(voters, run.mechanism, ledger, rng=SeededNoise(0)).label(one, request_id="an experiment")
    assert not run.label().secure
    assert run.guarantee().secure_noise is False
    run.learn()
    assert "NOT PRIVATE" in (run.folder / "student" / "model_card.md").read_text()


def test_the_old_run_is_as_it_was_made() -> None:
    """The fixture itself: under the old key, and without secret, identity or voters."""
    with tarfile.open(OLD_RUN) as file:
        names = file.getnames()
        manifest = json.load(file.extractfile("run/teachers/manifest.json"))  # type: ignore[arg-type]
    assert {"run/ledger.sqlite", "run/votes.npz", "run/partition.npz"} <= set(names)
    assert "identity" not in manifest


def test_the_old_key_is_the_one_of_before(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as database:
        (digest,) = database.execute("SELECT digest FROM terrine_requests WHERE request_id = 'run'").fetchone()
    run = Run(folder)
    rows = run.task.public.X[run.asked()]
    with run.ledger() as ledger:
        labeller = Labeller(KeptVotes(rows, run.vote(), classes=run.task.classes), run.mechanism, ledger)
        queries = labeller._queries(rows, None, labeller._before or "")
        assert hashlib.sha256("".join(queries).encode()).hexdigest() == digest
