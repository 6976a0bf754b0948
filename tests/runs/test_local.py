"""A run directory: the whole way once, again for nothing, after a kill, and refused where something is off."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from tests.soak import amount

from terrine.cli.runs import print_label
from terrine.errors import InputError, LedgerError, StoreError
from terrine.labeller import KeptVotes, Labeller
from terrine.ledger import Ledger
from terrine.mechanisms import ABSTAIN
from terrine.runs.base import load_answers, wilson
from terrine.runs.config import RemoteConfig, read_config, write_config
from terrine.runs.dry_run import dry_run
from terrine.runs.facts import _without_folders, public_facts, secret_facts, write_run_report
from terrine.runs.local import REQUEST, Run
from terrine.runs.remote import RemoteRun
from terrine.students import load_student
from terrine.votes import Ballots, tally

KILLS = amount(1, soak=10)
SETTINGS = """
seed = 3
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
sigma_vote = 6
queries = 120
answers = 90
delta = 1e-5
[student]
kind = "supervised"
estimator = "sklearn.linear_model.LogisticRegression"
"""


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(SETTINGS)
    return path


def whole(run: Run) -> None:
    run.teach()
    run.vote()
    run.label()
    run.learn()


def test_the_whole_way(settings, tmp_path):
    run = Run.create(settings, tmp_path / "r")
    whole(run)
    shown = run.guarantee()
    assert shown.secure_noise
    assert shown.epsilon == run.budget().guarantee().epsilon
    assert shown.answered <= 90
    assert json.loads((run.folder / "guarantee.json").read_text()) == json.loads(json.dumps(shown.to_json()))
    assert shown.to_json()["publishable"]
    assert run.student_result().accuracy > 0.95
    card = json.loads((run.folder / "student" / "model_card.json").read_text())
    assert card["guarantee"]["epsilon"] == shown.epsilon
    student = load_student(run.folder / "student")
    assert student.predict(run.task.test_X[:5]).shape == (5,)
    with run.ledger() as ledger:
        assert (student.card.ledger.id, student.card.ledger.seq) == (ledger.id, ledger.head().seq)
        assert student.card.ledger.hash == ledger.head().digest
    assert (student.card.epsilon, student.card.relation) == (shown.epsilon, shown.relation)
    assert (student.card.accuracy, student.card.n_queries, student.card.n_answers) == (
        run.student_result().accuracy,
        120,
        90,
    )
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in run.folder.iterdir()}
    assert stat.S_IMODE(run.folder.stat().st_mode) == 0o700
    assert all(modes[name] == 0o600 for name in ("partition.key", "partition.npz", "votes.npz"))


def test_a_second_time_costs_and_changes_nothing(settings, tmp_path):
    run = Run.create(settings, tmp_path / "r")
    whole(run)
    rows, answers = load_answers(run.folder / "answers.npz")
    with Ledger(run.folder / "ledger.sqlite") as ledger:
        before = ledger.summary()
    (run.folder / "answers.npz").unlink()
    again = Run.create(settings, tmp_path / "r")
    whole(again)
    same_rows, same = load_answers(run.folder / "answers.npz")
    assert (same.labels == answers.labels).all()
    assert (same_rows == rows).all()
    with Ledger(run.folder / "ledger.sqlite") as ledger:
        assert ledger.summary() == before
        assert ledger.verify() == []


def corrected(run: Run, settings, old: str, new: str) -> Run:
    settings.write_text(SETTINGS.replace(old, new))
    assert settings.read_text() != SETTINGS
    return Run.create(settings, run.folder)


def test_any_setting_may_be_corrected_before_something_is_taught(settings, tmp_path):
    run = Run.create(settings, tmp_path / "r")
    run.partition()
    run = corrected(run, settings, "number = 40", "number = 30")
    assert run.teach().n_teachers == 30
    assert corrected(run, settings, "number = 40", "number = 30\nworkers = 2\n").teach().n_teachers == 30


def test_the_budget_may_be_corrected_until_the_teachers_have_voted(settings, tmp_path):
    run = Run.create(settings, tmp_path / "r")
    run.teach()
    key = (run.folder / "partition.key").read_bytes()
    for words, change in (
        (r"different teachers\.number, .* teachers have been trained\. Put", ("number = 40", "number = 30")),
        (r"different seed, .*trained", ("seed = 3", "seed = 4")),
    ):
        with pytest.raises(InputError, match=words):
            corrected(run, settings, *change)
    run = corrected(run, settings, "threshold = 30", "threshold = 29")
    assert run.mechanism.threshold == 29
    assert (run.folder / "partition.key").read_bytes() == key
    run.vote()
    with pytest.raises(InputError, match=r"different privacy\.threshold, .*have voted"):
        corrected(run, settings, "threshold = 30", "threshold = 31")
    run.label()
    with pytest.raises(InputError, match=r"different privacy\.threshold, .*asked and charged"):
        corrected(run, settings, "threshold = 30", "threshold = 31")


def test_a_disk_that_is_too_small_is_refused_first(settings, tmp_path, monkeypatch):
    run = Run.create(settings, tmp_path / "r")
    monkeypatch.setattr("terrine.runs.ready.shutil.disk_usage", lambda _: SimpleNamespace(free=5_000_000))
    with pytest.raises(InputError, match=r"has 5 MB of free disk space, and this run needs about \d+ MB"):
        run.teach()
    assert not (run.folder / "partition.npz").exists()
    monkeypatch.undo()
    run.teach()


@pytest.mark.parametrize(
    ("student", "words"),
    [
        ("options = {C = -1.0}", "The student cannot be used.*'C' parameter"),
        ("options = {solver = 'none'}", "The student cannot be used.*'solver' parameter"),
    ],
)
def test_a_student_that_cannot_learn_is_refused_before_anything_is_taught_or_spent(settings, tmp_path, student, words):
    settings.write_text(SETTINGS.replace(STUDENT, STUDENT + student + "\n"))
    run = Run.create(settings, tmp_path / "r")
    with pytest.raises(InputError, match=words):
        run.teach()
    assert {path.name for path in run.folder.iterdir()} == {"config.toml"}
    settings.write_text(SETTINGS)
    whole(Run.create(settings, run.folder))


def people(tmp_path, n: int, *, partition: str, extra: str = "") -> Run:
    """A run on rows of n people, two rows each."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=2 * n)
    np.savez(tmp_path / f"{n}.npz", X=rng.normal(size=(2 * n, 3)) + 3 * y[:, None], y=y, unit=np.arange(2 * n) // 2)
    np.save(tmp_path / "public.npy", rng.normal(size=(200, 3)) + 3 * rng.integers(2, size=200)[:, None])
    where = f'private = "{n}.npz"\npublic = "public.npy"\nclasses = ["no", "yes"]\n{extra}'
    text = SETTINGS.replace('name = "blobs"', where).replace(
        "number = 40", f'number = 40\nmin_units = 0\npartition = "{partition}"'
    )
    (tmp_path / f"{n}.toml").write_text(text)
    return Run.create(tmp_path / f"{n}.toml", tmp_path / f"{partition}{n}")


def test_advice_never_depends_on_a_number_that_is_private(tmp_path):
    """39 people and 40 teachers would be refused, if the number could be told."""
    few, many = (people(tmp_path, n, partition="hashed").advice for n in (39, 4000))
    assert few == many
    assert few.units is None
    few.check()
    planned = [people(tmp_path, n, partition="hashed", extra="units_planned = 400").advice for n in (41, 4001)]
    assert planned[0] == planned[1]
    assert planned[0].units_per_teacher == 10


def test_advice_uses_the_number_that_the_relation_makes_public(tmp_path):
    found = people(tmp_path, 39, partition="balanced", extra="units_planned = 4000").advice
    assert (found.units.number, found.units.public) == (39, True)
    with pytest.raises(InputError, match="more teachers than units: 39 units for 40 teachers"):
        found.check()


def test_a_plan_is_made_anew_where_the_budget_is_corrected(settings, tmp_path, by_renyi):
    text = SETTINGS[: SETTINGS.index("[privacy]")] + "[privacy]\nepsilon = 3.0\nconsensus = 0.9\ndelta = 1e-5\n"
    settings.write_text(text)
    first = Run.create(settings, tmp_path / "r").config.privacy
    settings.write_text(text.replace("epsilon = 3.0", "epsilon = 2.0"))
    run = Run.create(settings, tmp_path / "r")
    assert run.config.privacy != first
    assert run.budget().guarantee().epsilon <= 2.0


def test_a_folder_of_something_else_is_left_alone(settings, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="is no run directory, and it is not empty"):
        Run.create(settings, other)
    with pytest.raises(InputError, match=r"no config\.toml"):
        Run(other)
    assert [path.name for path in other.iterdir()] == ["thesis.txt"]


def test_stages_say_what_is_missing(settings, tmp_path):
    run = Run.create(settings, tmp_path / "r")
    with pytest.raises(StoreError, match="terrine teach"):
        run.vote()
    with pytest.raises(InputError, match="terrine label"):
        run.learn()
    with pytest.raises(InputError, match="terrine label"):
        public_facts(run)


def test_votes_alone_without_keeping_teachers(settings, tmp_path):
    kept = Run.create(settings, tmp_path / "kept")
    kept.teach()
    settings.write_text(SETTINGS.replace('executor = "serial"', 'executor = "serial"\nkeep = false'))
    run = Run.create(settings, tmp_path / "r")
    (run.folder / "partition.key").write_bytes((kept.folder / "partition.key").read_bytes())
    whole(run)
    assert not (run.folder / "teachers").exists()
    assert (run.vote().counts == kept.vote().counts).all()


def test_a_plan_is_made_once_and_stays(settings, tmp_path, by_renyi):
    text = SETTINGS[: SETTINGS.index("[privacy]")] + "[privacy]\nepsilon = 3.0\nconsensus = 0.9\ndelta = 1e-5\n"
    settings.write_text(text)
    run = Run.create(settings, tmp_path / "r")
    assert run.config.privacy.mechanism == "confident"
    assert run.budget().guarantee().epsilon <= 3.0
    plan = (run.folder / "plan.json").read_bytes()
    assert Run.create(settings, tmp_path / "r").config == run.config
    assert (run.folder / "plan.json").read_bytes() == plan
    assert dry_run(settings).guarantee.epsilon == run.budget().guarantee().epsilon


def test_a_dry_run_writes_nothing(settings, tmp_path):
    facts = dry_run(settings)
    assert facts.n_queries == facts.to_json()["queries_at_most"] == 120
    assert facts.guarantee.epsilon > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.toml"]


def test_two_owners_vote_as_one(settings, tmp_path):
    one = Run.create(settings, tmp_path / "one")
    one.teach()
    settings.write_text(SETTINGS.replace("number = 40", "number = 40\nfirst_id = 40"))
    two = Run.create(settings, tmp_path / "two")
    two.teach()
    for run in (one, two):
        run.ballots().save(tmp_path / f"{run.folder.name}.npz")
    votes = tally([Ballots.load(tmp_path / name) for name in ("one.npz", "two.npz")])
    assert votes.n_teachers == 80
    assert (votes.counts == one.vote().counts + two.vote().counts).all()
    one.take_votes(votes)
    assert one.vote().n_teachers == 80
    with pytest.raises(InputError, match="are not on the rows and classes"):
        one.take_votes(votes[:5])
    with pytest.raises(InputError, match="are not on the rows and classes"):
        one.take_votes(one.vote())  # of which nobody knows what was asked


def test_votes_on_other_rows_or_after_the_answers_are_not_taken(settings, tmp_path):
    asked = {"one": "random", "two": "first"}
    runs = {}
    for name, ask in asked.items():
        settings.write_text(SETTINGS.replace("queries = 120", f'queries = 120\nask = "{ask}"'))
        runs[name] = Run.create(settings, tmp_path / name)
        runs[name].teach()
    votes = tally([runs["one"].ballots()])
    with pytest.raises(InputError, match="are not on the rows and classes"):
        runs["two"].take_votes(votes)
    assert not (runs["two"].folder / "votes.npz").exists()
    runs["one"].take_votes(votes)
    runs["one"].label()
    kept = (runs["one"].folder / "votes.npz").read_bytes()
    with pytest.raises(InputError, match="has answers already"):
        runs["one"].take_votes(votes)
    assert (runs["one"].folder / "votes.npz").read_bytes() == kept


def test_what_is_secret_is_secret(settings, tmp_path):
    run = Run.create(settings, tmp_path / "r")
    whole(run)
    secret = secret_facts(run)
    for hidden in (run.consensus(), secret):
        assert re.fullmatch(r"<Sensitive \w+: depends on private data; \.reveal\(\) shows it>", repr(hidden))
    facts = secret.reveal()
    assert {"exact", "consensus", "mean_top_vote", "plurality_accuracy", "answers_right", "baseline"} <= facts.keys()
    assert 0 < facts["exact"]["epsilon"] < run.guarantee().epsilon
    public = json.dumps(public_facts(run))
    assert "mean_top_vote" not in public
    assert str(facts["exact"]["epsilon"]) not in public


def test_the_number_of_people_is_shown_only_where_it_is_public(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    X = rng.normal(size=(400, 3)) + 3 * y[:, None]
    np.savez(tmp_path / "private.npz", X=X, y=y, unit=np.arange(400) // 2)
    np.save(tmp_path / "public.npy", rng.normal(size=(200, 3)) + 3 * rng.integers(2, size=200)[:, None])
    text = SETTINGS.replace('name = "blobs"', 'private = "private.npz"\npublic = "public.npy"\nclasses = ["no", "yes"]')
    (tmp_path / "own.toml").write_text(text.replace("number = 40", "number = 40\nmin_units = 0"))
    run = Run.create(tmp_path / "own.toml", tmp_path / "r")
    whole(run)
    facts = public_facts(run)
    assert facts["guarantee"]["relation"] == "unit_any"
    assert facts["data"]["n_private"] is None
    assert facts["student"]["accuracy"] is None
    shown = json.dumps({key: value for key, value in facts.items() if key not in ("config", "spending")})
    numbers = re.findall(r"[\d.]+", shown)  # whole ones: digits of another number are no count of people
    assert not {"400", "400.0"} & set(numbers)
    balanced = (tmp_path / "own.toml").read_text().replace("min_units = 0", 'partition = "balanced"')
    (tmp_path / "own.toml").write_text(balanced)
    run = Run.create(tmp_path / "own.toml", tmp_path / "b")
    whole(run)
    facts = public_facts(run)
    assert facts["guarantee"]["relation"] == "unit_replaced"
    assert facts["data"]["n_private"] is None  # of rows: another unit may have more of them


def test_answers_of_seeded_noise_are_not_publishable(settings, tmp_path):
    run = Run.create(settings, tmp_path / "r")
    run.teach()
    X = run.task.public.X[run.asked()]
    with run.ledger() as ledger:
        voters = KeptVotes(X, run.vote(), classes=run.task.classes)
        Labeller(voters, run.mechanism, ledger, rng=np.random.default_rng(0)).label(X, request_id=REQUEST)
    assert not run.label().secure  # the ledger has them, and gives the same for ever
    assert run.guarantee().secure_noise is False
    other = Run.create(settings, tmp_path / "other")
    other.teach()
    other.label()
    assert other.guarantee().secure_noise is True


def test_spending_ends_below_the_guarantee(settings, tmp_path):
    run = Run.create(settings, tmp_path / "r")
    whole(run)
    curve = public_facts(run)["spending"]
    assert curve["queries"][-1] <= 120
    assert np.all(np.diff(curve["epsilon"]) >= 0)
    assert curve["epsilon"][-1] <= run.guarantee().epsilon * (1 + 1e-9)


def own(tmp_path, **changes):
    """Settings over a small table of one's own, with some of its cells changed."""
    rng = np.random.default_rng(0)
    lines = ["age,weight,ill"]
    for k in range(300):
        ill = int(rng.integers(2))
        age = changes.get("age", {}).get(k, f"{40 + 20 * ill + rng.normal():.3f}")
        lines.append(f"{age},{70 + rng.normal():.3f},{changes.get('ill', {}).get(k, ('no', 'yes')[ill])}")
    (tmp_path / "private.csv").write_text("\n".join(lines) + "\n")
    header = changes.get("header", "age,weight")
    rows = [",".join(f"{v:.3f}" for v in rng.normal(50, 10, size=header.count(",") + 1)) for _ in range(150)]
    (tmp_path / "public.csv").write_text("\n".join([header, *rows]) + "\n")
    text = SETTINGS.replace(
        'name = "blobs"', 'private = "private.csv"\npublic = "public.csv"\nlabel = "ill"\nclasses = ["no", "yes"]'
    )
    text = text.replace("number = 40", 'number = 40\npartition = "balanced"')
    text = text.replace('kind = "logistic"', 'kind = "sklearn"\nestimator = "sklearn.tree.DecisionTreeClassifier"')
    (tmp_path / "own.toml").write_text(text)
    return tmp_path / "own.toml"


def test_a_column_that_is_in_one_file_only_is_named(tmp_path):
    path = own(tmp_path, header="age,weight,height")
    with pytest.raises(InputError, match=r'^private.csv: missing: "height"\. Rename or add columns') as caught:
        Run.create(path, tmp_path / "r").teach()
    assert len(str(caught.value).splitlines()) == 1
    assert sorted(file.name for file in (tmp_path / "r").iterdir()) == ["config.toml"]


@pytest.mark.parametrize("changes", [{"ill": {7: "maybe"}}, {"age": {3: "nan"}}, {"age": {3: ""}}, {"age": {3: "old"}}])
def test_an_odd_private_cell_stops_nothing_and_changes_its_own_row_alone(tmp_path, changes):
    plain = Run.create(own(tmp_path), tmp_path / "a")
    plain.teach()
    rows = plain.task.private
    odd = Run.create(own(tmp_path, **changes), tmp_path / "b")
    odd.teach()
    assert len(odd.task.private) == len(rows)
    assert (odd.task.private.X != rows.X).any(axis=1).sum() <= 1
    assert (odd.task.private.y != rows.y).sum() <= 1
    assert odd.partition().relation == plain.partition().relation


def test_own_data_go_the_whole_way(tmp_path):
    run = Run.create(own(tmp_path), tmp_path / "r")
    whole(run)
    assert run.student_result().accuracy is None
    assert run.guarantee().answered > 20


def with_units(tmp_path, unit, *, keep: str = "true", number: int = 10, method: str = "hashed"):
    """Settings over 300 private rows that belong to these units, or to none; the rows are always the same."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 2
    arrays = {"X": rng.normal(size=(300, 2)) + 3 * y[:, None], "y": y}
    np.savez(tmp_path / "private.npz", **arrays, **({} if unit is None else {"unit": np.asarray(unit)}))
    np.save(tmp_path / "public.npy", rng.normal(size=(150, 2)) + 1.5)
    text = SETTINGS.replace('name = "blobs"', 'private = "private.npz"\npublic = "public.npy"\nclasses = ["no", "yes"]')
    teachers = f'number = {number}\nkeep = {keep}\nmin_units = 0\npartition = "{method}"'
    (tmp_path / "units.toml").write_text(text.replace("number = 40", teachers))
    return tmp_path / "units.toml"


ROWS, FIVE = np.arange(300), np.arange(300) % 5


@pytest.mark.parametrize("keep", ["true", "false"])
@pytest.mark.parametrize("with_key", [True, False])
@pytest.mark.parametrize(("before", "after"), [(ROWS, FIVE), (None, FIVE), (FIVE, None)])
def test_units_that_are_put_right_later_are_not_dealt_as_before(tmp_path, before, after, with_key, keep):
    run = Run.create(with_units(tmp_path, before, keep=keep), tmp_path / "r")
    run.teach()
    assert (Run(run.folder).partition().assignment == run.partition().assignment).all()
    if not with_key:
        (run.folder / "partition.key").unlink()
        Run(run.folder).partition()
    with_units(tmp_path, after, keep=keep)
    with pytest.raises(InputError, match=r"The private data have changed since|rows in two shares"):
        Run(run.folder).teach() if keep == "true" else Run(run.folder).vote()


def test_units_of_other_names_are_not_dealt_as_before(tmp_path):
    """Each person is in one share still, but it is not the one that the key gives."""
    run = Run.create(with_units(tmp_path, FIVE), tmp_path / "r")
    run.partition()
    with_units(tmp_path, FIVE + 100)
    with pytest.raises(InputError, match="The private data have changed"):
        Run(run.folder).partition()


def owner(folder, unit, *, first_id: int, method: str) -> Run:
    folder.mkdir()
    path = with_units(folder, unit, method=method)
    path.write_text(path.read_text().replace("min_units = 0", f"min_units = 0\nfirst_id = {first_id}"))
    run = Run.create(path, folder / "r")
    run.teach()
    return run


def test_owners_with_other_neighbours_do_not_vote_as_one(tmp_path):
    persons = owner(tmp_path / "a", ROWS // 2, first_id=0, method="hashed")
    rows, more = (owner(tmp_path / name, None, first_id=k, method="balanced") for name, k in (("b", 10), ("c", 20)))
    assert persons.ballots().relation == persons.partition().relation
    with pytest.raises(InputError, match=r"different neighbors, 'one unit .*' and 'one row"):
        tally([persons.ballots(), rows.ballots()])
    with pytest.raises(InputError, match=r"in the sense of 'one unit .*', and the votes 'one row is replaced"):
        persons.take_votes(tally([rows.ballots(), more.ballots()]))
    rows.take_votes(tally([rows.ballots(), more.ballots()]))
    assert rows.vote().n_teachers == 20


def test_too_few_answers_of_a_class(settings, tmp_path):
    settings.write_text(SETTINGS.replace("threshold = 30", "threshold = 3000"))
    run = Run.create(settings, tmp_path / "r")
    run.teach()
    assert (run.label().labels == ABSTAIN).all()
    with pytest.raises(InputError, match="has an answer, so that there is nothing to learn"):
        run.learn()


PROGRAM = """
import sys
from terrine.runs.local import Run
run = Run.create(sys.argv[1], sys.argv[2])
print("started", flush=True)
run.teach(); run.vote(); run.label(); run.learn()
"""


def test_killed_at_random_moments_it_ends_the_same(settings, tmp_path):
    """Kills spread over the time that an undisturbed run takes."""
    command = [sys.executable, "-c", PROGRAM, str(settings)]
    start = time.monotonic()
    whole(Run.create(settings, tmp_path / "unbroken"))
    takes = time.monotonic() - start
    rng = random.Random(5)
    for _ in range(KILLS):
        with subprocess.Popen([*command, str(tmp_path / "r")], stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            program.stdout.readline()
            time.sleep(rng.random() * takes)
            program.send_signal(signal.SIGKILL)
    whole(Run.create(settings, tmp_path / "r"))
    resumed, unbroken = Run(tmp_path / "r"), Run(tmp_path / "unbroken")
    for name in ("epsilon", "delta", "order", "relation", "mechanism", "queries_at_most", "answers_at_most"):
        assert getattr(resumed.guarantee(), name) == getattr(unbroken.guarantee(), name)
    with Ledger(resumed.folder / "ledger.sqlite") as ledger:
        assert ledger.verify() == []
        assert ledger.summary().queries <= 120
        assert ledger.summary().answers <= 90
    assert load_answers(resumed.folder / "answers.npz")[1].n_answered <= 90
    assert not list(resumed.folder.rglob("*.tmp"))


def test_wilson_covers():
    low, high = wilson(50, 100)
    assert (round(low, 4), round(high, 4)) == (0.4038, 0.5962)
    assert wilson(100, 100)[1] == pytest.approx(1.0)


STUDENT = SETTINGS[SETTINGS.index("[student]") :]


@pytest.mark.parametrize(
    ("student", "words"),
    [
        ('kind = "supervised"\noptions = {n_estimator = 50}', "n_estimator"),
        (
            'kind = "supervised"\nestimator = "os.system"',
            r"dotted name of a class in scikit-learn, .* got 'os\.system'",
        ),
        ('kind = "supervised"\nestimator = "sklearn.svm.SVR"', "estimator must be a scikit-learn classifier, got SVR"),
        ('kind = "supervised"\nestimator = "sklearn.svm"', "The options do not fit svm"),
        ('kind = "features"\nestimator = "sklearn.svm.SVC"\noptions = {c = 1}', "The options do not fit SVC"),
        ('kind = "vat"\noptions = {step = 5}', r"student\.options: .*'step'"),
        ('kind = "vat"\noptions = {steps = "many"}', "steps must be a number"),
        ('kind = "vat"\noptions = {view = {spin = 5}}', "spin"),
        ('kind = "gan"\noptions = {zzz = 1}', "zzz"),
        ('kind = "match"\noptions = {strong = 3}', "strong"),
    ],
)
def test_a_student_that_cannot_be_is_refused_before_anything_is_spent(settings, tmp_path, student, words):
    text = SETTINGS.replace(STUDENT, f"[student]\n{student}\n")
    settings.write_text(text + ('[features]\nkind = "learned"\n' if "features" in student else ""))
    for act in (lambda: dry_run(settings), lambda: Run.create(settings, tmp_path / "r")):
        with pytest.raises(InputError, match=words) as caught:
            act()
        assert len(str(caught.value).splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]


def test_a_teacher_that_cannot_be_is_refused_by_a_dry_run(settings, tmp_path):
    settings.write_text(SETTINGS.replace('kind = "logistic"', 'kind = "logistic"\noptions = {c = 1}'))
    with pytest.raises(InputError, match="The options do not fit LogisticRegression: "):
        dry_run(settings)


def test_a_student_may_be_changed_until_it_has_learned(settings, tmp_path):
    run = Run.create(settings, tmp_path / "r")
    run.teach()
    run.label()
    charged = (run.folder / "answers.npz").read_bytes()
    settings.write_text(SETTINGS.replace(STUDENT, STUDENT + "options = {C = 2.0}\n"))
    run = Run.create(settings, tmp_path / "r")
    assert Run(tmp_path / "r").config.student.options == {"C": 2.0}
    run.label()
    assert (run.folder / "answers.npz").read_bytes() == charged
    run.learn()
    settings.write_text(SETTINGS)
    with pytest.raises(
        InputError, match=r"different student\.options, .*terrine learn SETTINGS\.toml --again --out .*/r"
    ):
        Run.create(settings, tmp_path / "r")
    settings.write_text(SETTINGS.replace(STUDENT, STUDENT + "options = {C = 2.0}\n").replace("seed = 3", "seed = 4"))
    with pytest.raises(InputError, match=r"different seed, .*asked and charged"):
        Run.create(settings, tmp_path / "r")


def test_label_looks_at_the_student_before_it_charges(settings, tmp_path):
    run = Run.create(settings, tmp_path / "r")
    run.teach()
    path = run.folder / "config.toml"
    path.write_text(path.read_text().replace("LogisticRegression", "LogisticRegresion"))
    with pytest.raises(InputError, match="scikit-learn has no "):
        Run(run.folder).label()
    assert not (run.folder / "ledger.sqlite").exists()


def test_a_run_of_a_services_labels_looks_at_its_student_too(tmp_path):
    given = {"data": {"name": "blobs"}, "labels": {"url": "http://127.0.0.1:9", "queries": 5}}
    config = RemoteConfig.model_validate({**given, "student": {"options": {"n_estimator": 50}}})
    with pytest.raises(InputError, match="n_estimator"):
        RemoteRun.create(config, tmp_path / "r")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_run_that_has_spent_never_makes_another_ledger(settings, tmp_path, monkeypatch, elsewhere):
    run = Run.create(settings, tmp_path / "r")
    run.teach()
    run.label()
    if elsewhere:
        monkeypatch.setenv("TERRINE_LEDGER", str(tmp_path / "typo.sqlite"))
    else:
        for left in run.folder.glob("ledger.sqlite*"):
            left.unlink()
        (run.folder / "ledger.sqlite").touch()
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"There is no ledger at "):
            Run(run.folder).label()
    assert not (tmp_path / "typo.sqlite").exists()
    if not elsewhere:
        assert (run.folder / "ledger.sqlite").read_bytes() == b""


@pytest.mark.usefixtures("by_renyi")
def test_a_ledger_of_another_run_or_budget_is_refused(settings, tmp_path):
    run, other = (Run.create(settings, tmp_path / name) for name in ("r", "other"))
    for one in (run, other):
        one.teach()
        one.ledger().close()
    with pytest.raises(LedgerError, match="would spend the budget twice"):
        run.ledger(other.folder / "ledger.sqlite")
    path = run.folder / "config.toml"
    path.write_text(path.read_text().replace("answers = 90", "answers = 91"))
    with pytest.raises(LedgerError, match="n_answers=90, not n_answers=91"):
        Run(run.folder).ledger()


@pytest.mark.usefixtures("by_renyi")
def test_a_kill_between_charge_and_answer_costs_a_tenth_at_most(settings, tmp_path, monkeypatch):
    start = SETTINGS.index("[privacy]")
    gnmax = '[privacy]\nmechanism = "gnmax"\nsigma = 6.0\nqueries = 120\ndelta = 1e-5\n'
    settings.write_text(SETTINGS[:start] + gnmax + STUDENT)
    run = Run.create(settings, tmp_path / "r")
    run.teach()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "keep_each", killed)
        with pytest.raises(KeyboardInterrupt):
            run.label()
    answers = Run(run.folder).label()
    assert answers.n_answered == 108
    assert run.guarantee().unasked == 12


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    (folder / "run.toml").write_text(SETTINGS)
    run = Run.create(folder / "run.toml", folder / "r")
    whole(run)
    return run.folder


@pytest.fixture
def run(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "r")
    return Run(tmp_path / "r")


@pytest.mark.parametrize("content", ["[1, 2]", "null", "3", "{}", '{"epsilon": "x", "ledger": 3, "kind": 1}', "{"])
def test_a_damaged_file_of_json_is_one_line(run, content):
    for name, act in (
        ("guarantee.json", lambda: public_facts(run)),
        ("student.json", lambda: public_facts(run)),
        ("ledger.json", run.label),
    ):
        kept = (run.folder / name).read_text()
        (run.folder / name).write_text(content)
        with pytest.raises(InputError, match=f"{name} is damaged") as caught:
            act()
        assert len(str(caught.value).splitlines()) == 1
        assert ("ledger_id" in str(caught.value)) == (name == "ledger.json")
        assert ("terrine label" in str(caught.value)) == (name == "guarantee.json")
        (run.folder / name).write_text(kept)
    assert public_facts(run)["student"]["kind"] == "supervised"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": np.arange(120) + 9999}, "that the data do not have"),
        ({"rows": np.zeros(120, dtype=np.int64)}, r"answers\.npz is damaged"),
        ({"rows": -np.arange(120)}, r"answers\.npz is damaged"),
        ({"labels": np.full(120, 7)}, "that the data do not have"),
        ({"labels": np.full(120, -2)}, r"answers\.npz is damaged"),
        ({"labels": np.zeros(3, dtype=np.int64)}, r"answers\.npz is damaged"),
        ({"labels": np.array(["a"] * 120)}, r"answers\.npz is damaged"),
        ({"labels": np.full(120, 0.5)}, r"answers\.npz is damaged"),
        ({"outcomes": np.full(120, 77)}, r"answers\.npz is damaged"),
        ({"rows": np.array(5), "labels": np.array(0), "outcomes": np.array(1)}, r"answers\.npz is damaged"),
    ],
)
def test_damaged_answers_are_one_line(run, change, words):
    path = run.folder / "answers.npz"
    with np.load(path) as found:
        np.savez(path, **{**found, **change})
    shutil.rmtree(run.folder / "student")
    for act in (run.learn, lambda: public_facts(run), lambda: secret_facts(run)):
        with pytest.raises(InputError, match=words) as caught:
            act()
        assert len(str(caught.value).splitlines()) == 1


def test_what_the_baseline_warns_of_is_not_heard(settings, tmp_path, recwarn):
    estimator = 'kind = "supervised"\nestimator = "sklearn.neural_network.MLPClassifier"\noptions = {max_iter = 1}\n'
    settings.write_text(SETTINGS.replace(STUDENT, f"[student]\n{estimator}"))
    found = Run.create(settings, tmp_path / "r").baseline()
    assert found is not None
    assert len(recwarn) == 0


@pytest.mark.usefixtures("by_renyi")
def test_a_repeated_row_is_one_question_wherever_it_is_counted(tmp_path, capsys):
    rng = np.random.default_rng(0)
    y = np.arange(1000) % 2
    np.savez(tmp_path / "private.npz", X=rng.normal(size=(1000, 3)) + 9 * y[:, None], y=y)
    distinct = rng.normal(size=(60, 3)) + 9 * (np.arange(60) % 2)[:, None]
    np.save(tmp_path / "public.npy", np.concatenate([distinct, distinct]))
    text = SETTINGS.replace('name = "blobs"', 'private = "private.npz"\npublic = "public.npy"\nclasses = ["no", "yes"]')
    (tmp_path / "own.toml").write_text(text.replace("answers = 90", 'answers = 60\nask = "first"'))
    run = Run.create(tmp_path / "own.toml", tmp_path / "r")
    whole(run)
    shown, facts = run.guarantee(), public_facts(run)
    with run.ledger() as ledger:
        paid = ledger.summary()
    assert load_answers(run.folder / "answers.npz")[1].n_answered > shown.answers_at_most  # every row has its answer
    assert shown.answered <= shown.answers_at_most
    assert (shown.answered, shown.withheld, shown.unasked, shown.repeated) == (paid.answered, paid.withheld, 0, 60)
    assert (shown.ledger.id, shown.ledger.head) == (paid.ledger_id, paid.head)
    counts = {"asked": 60, "answered": shown.answered, "withheld": shown.withheld, "unasked": 0, "repeated": 60}
    assert {name: facts["answers"][name] for name in counts} == counts
    assert sum(facts["answers"]["by_class"].values()) == shown.answered
    assert facts["spending"]["answered"][-1] == shown.answered
    assert facts["spending"]["epsilon"][-1] <= shown.epsilon * (1 + 1e-9)
    print_label(shown)
    assert "60 more rows repeat one of these queries: they share its answer, at no cost." in capsys.readouterr().out
    said = " ".join(write_run_report(run).read_text().split())
    assert "60 more rows repeat one of these questions" in said


def test_a_damaged_guarantee_is_named(settings, tmp_path):
    run = Run.create(settings, tmp_path / "r")
    path = run.folder / "guarantee.json"
    path.write_text('{"epsilon": 1}')
    with pytest.raises(InputError, match=r"guarantee.json is damaged \(.*delta.*\)\. Write it again"):
        run.guarantee()


def test_an_unknown_label_stops_nothing_where_teachers_see_features(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    y[7] = 9
    np.savez(tmp_path / "private.npz", X=rng.integers(0, 255, size=(80, 8, 8), dtype=np.uint8), y=y)
    np.save(tmp_path / "public.npy", rng.integers(0, 255, size=(150, 8, 8), dtype=np.uint8))
    own = 'private = "private.npz"\npublic = "public.npy"\nclasses = ["no", "yes"]\n[features]\nkind = "edges"'
    (tmp_path / "own.toml").write_text(SETTINGS.replace('name = "blobs"', own).replace("number = 40", "number = 4"))
    assert Run.create(tmp_path / "own.toml", tmp_path / "r")._private().y[7] == -1


def test_settings_are_shown_without_the_folders_of_an_owner(tmp_path):
    path = own(tmp_path)
    columns = '[columns]\nage = {kind = "number", low = 0, high = 99}'
    (tmp_path / "s.toml").write_text(f'label = "ill"\nclasses = ["no", "yes"]\n{columns}')
    path.write_text(path.read_text().replace('label = "ill"\nclasses = ["no", "yes"]', 'schema = "s.toml"'))
    shown = write_config(_without_folders(read_config(path)))
    assert 'schema = "s.toml"' in shown
    assert str(tmp_path) not in shown
