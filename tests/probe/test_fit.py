"""A probe learns on a ledger: what it costs, what is kept, and what is refused."""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import os
import shutil
import time
from contextlib import suppress

import numpy as np
import pytest
from scipy.stats import chi2
from sklearn.linear_model import LogisticRegression
from tests import postgres
from tests.ledger.tampering import tampered

from terrine import GNMax, Ledger, SeededNoise
from terrine.budgets import CountBudget, TrainingBudget, budget_from_json, canonical, difference
from terrine.errors import InputError, LedgerError
from terrine.labeller import KeptVotes, Labeller
from terrine.noise import UNIT, KeptNoise, SecureNoise
from terrine.probe import (
    Probe,
    ProbeRows,
    ProbeSettings,
    components_by_rule,
    fit_probe,
    public_scale,
    rehearse_probe,
)
from terrine.probe import fit as fit_module
from terrine.probe.descent import Descent
from terrine.probe.outputs import OutputFiles
from terrine.probe.sums import gradient_sum
from terrine.relations import Relation
from terrine.report.tables import print_ledger
from terrine.students import SupervisedStudent, fit_student, load_student
from terrine.training_budget import contributions_changed
from terrine.votes import Votes

where = postgres.where
N, P = 3000, 8
SETTINGS = ProbeSettings(n_features=P, n_classes=3, steps=12)
BUDGET = SETTINGS.budget(epsilon=2.0, delta=1e-5, planned_units=N, relation=Relation.ROW_ADDED)


def task(n_classes=3, n=N):
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n)
    X = (np.eye(n_classes, P)[y] + 0.5 * rng.normal(size=(n, P))) / 2
    return X, y


def rows(n_classes=3):
    X, y = task(n_classes)
    return ProbeRows(X, y, n_classes=n_classes)


class Stopped(Exception):
    pass


def stop_after(last):
    def progress(step, steps):
        if step == last:
            raise Stopped

    return progress


def trained(folder, *, budget=BUDGET, settings=SETTINGS, **options):
    with Ledger(folder / "ledger.sqlite", budget=budget) as ledger:
        return fit_probe(options.pop("rows", None) or rows(), settings=settings, ledger=ledger, **options)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_learns_and_says_what_it_costs(tmp_path, n_classes):
    X, y = task(n_classes)
    settings = ProbeSettings(n_features=P, n_classes=n_classes, steps=20, scale=public_scale(X[:500]))
    budget = settings.budget(epsilon=1.0, delta=1e-5, planned_units=N, relation=Relation.ROW_ADDED)
    seen = []
    made = trained(
        tmp_path, budget=budget, settings=settings, rows=rows(n_classes), progress=lambda *at: seen.append(at)
    )
    assert (made.predict(X) == y).mean() > 0.8
    assert made.predict_proba(X).sum(axis=1) == pytest.approx(1)
    assert seen == [(k, 20) for k in range(1, 21)]
    assert made.steps_kept == 20
    assert 0.999 < made.guarantee.epsilon <= 1.0
    assert made.guarantee.relation == Relation.ROW_ADDED
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.verify() == ledger.verify_recent() == []
        found = ledger.summary()
        assert (found.queries, found.remaining, found.secure) == (20, {"steps": 0}, True)
        assert found.guarantee == made.guarantee
        assert ledger.spent().epsilon(delta=1e-5) > made.guarantee.epsilon
    assert [path.name for path in tmp_path.iterdir() if "noise" in path.name] == []


def test_a_ledger_shows_steps(tmp_path, capsys):
    trained(tmp_path)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        print_ledger(ledger.summary(), ledger.accounts())
    said = capsys.readouterr().out
    assert "noisy sums charged" in said
    assert "question" not in said


def test_students_learn_from_its_labels(tmp_path):
    X, y = task()
    made = trained(tmp_path)
    student = fit_student(
        SupervisedStudent(estimator=LogisticRegression()), X, made.predict(X), classes=("a", "b", "c"), seed=0
    )
    student.save(tmp_path / "student", card=made.guarantee.to_json())
    assert (student.predict(X) == y).mean() > 0.7
    assert load_student(tmp_path / "student").card.epsilon == made.guarantee.epsilon


def test_a_unit_that_is_replaced_takes_twice_the_noise():
    both = [
        SETTINGS.budget(epsilon=1.0, delta=1e-5, planned_units=N, relation=one).noise
        for one in (Relation.UNIT_ADDED, Relation.UNIT_ANY, Relation.UNIT_REPLACED, Relation.ROW_REPLACED)
    ]
    assert both[1:] == pytest.approx([2 * both[0]] * 3, rel=1e-6)
    for relation in (Relation.ONE_TEACHER, Relation("one hospital is left out")):
        with pytest.raises(InputError, match="A probe has no teachers"):
            contributions_changed(relation)


def test_a_stop_goes_on_and_a_second_call_gives_the_same(tmp_path):
    with pytest.raises(Stopped):
        trained(tmp_path, progress=stop_after(5))
    folder = next(tmp_path.glob("training-*"))
    before = {path.name: path.read_bytes() for path in folder.glob("step-*")}
    assert len(before) == 5
    first, again = trained(tmp_path), trained(tmp_path)
    assert (first.weights == again.weights).all()
    assert first.steps_kept == 12
    assert before.items() <= {path.name: path.read_bytes() for path in folder.glob("step-*")}.items()


def test_a_step_that_was_begun_and_has_no_output_is_lost_and_stays_charged(tmp_path):
    with pytest.raises(Stopped):
        trained(tmp_path, progress=stop_after(2))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.training.begin(3, secure=True)
    made = trained(tmp_path)
    assert made.steps_kept == 11
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert sorted(ledger.training.state().outputs) == [1, 2, *range(4, 13)]
        assert ledger.summary().queries == 12
        assert ledger.verify() == []
    assert made.guarantee == BUDGET.guarantee()


@pytest.mark.parametrize("fails", ["gradient_sum", "gaussian"])
def test_what_fails_before_a_step_is_begun_loses_nothing(tmp_path, monkeypatch, fails):
    """No memory on a GPU, no worker, no OpenDP: the step is made by the next call."""

    def failing(*_, **__):
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(*((fit_module, fails) if fails == "gradient_sum" else (SecureNoise, fails)), failing)
        with pytest.raises(Stopped):
            trained(tmp_path)
    assert trained(tmp_path).steps_kept == 12


def test_two_copies_of_a_folder_never_show_two_sums_under_one_noise(tmp_path, monkeypatch):
    """Copied at every file that is made sure of, as a backup or a clone may be, and finished there with other rows."""
    settings = ProbeSettings(n_features=P, n_classes=3, steps=2)
    budget = settings.budget(epsilon=2.0, delta=1e-5, planned_units=N, relation=Relation.ROW_ADDED)
    X, y = task()
    some, others = ProbeRows(X[:100], y[:100], n_classes=3), ProbeRows(X[100:200], y[100:200], n_classes=3)
    here, copies = tmp_path / "here", []
    here.mkdir()
    real, sums = os.fsync, {}

    def copied(descriptor):
        real(descriptor)
        copies.append(tmp_path / f"copy-{len(copies)}")
        shutil.copytree(here, copies[-1])

    def summed(rows, given, **options):
        found = gradient_sum(rows, given, **options)
        sums[rows is some, given.weights.tobytes()] = found.reveal().ravel()
        return found

    monkeypatch.setattr(fit_module, "gradient_sum", summed)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", copied)
        trained(here, budget=budget, settings=settings, rows=some)
    outputs = {}
    compared = 0
    for folder in [here, *copies]:
        if folder != here:
            if not (folder / "ledger.sqlite").exists():
                continue
            with suppress(LedgerError):  # every step was lost
                trained(folder, budget=budget, settings=settings, rows=others)
        for path in folder.glob("training-*/step-*.out"):
            outputs[folder, path.stem] = np.frombuffer(path.read_bytes()[-8 * budget.dimension :], dtype="<i8")
    gaps = [one - other for (ours, one), (theirs, other) in itertools.combinations(sums.items(), 2)]
    for (_, one), (_, other) in itertools.combinations(outputs.items(), 2):
        if (one != other).any():
            compared += 1
            assert not any((one - other == sign * gap).all() for gap in gaps for sign in (1, -1))
    assert compared > 5


def test_an_older_ledger_beside_newer_outputs_is_refused(tmp_path):
    """Else outputs of seeded noise could pass for those of a secure training."""
    with pytest.raises(Stopped):
        trained(tmp_path, progress=stop_after(2))
    shutil.copytree(tmp_path, tmp_path / "backup")
    trained(tmp_path, rng=SeededNoise(0))
    for path in tmp_path.glob("ledger.sqlite*"):
        path.unlink()
    shutil.copy(tmp_path / "backup" / "ledger.sqlite", tmp_path)
    with pytest.raises(LedgerError, match="an older ledger was restored"):
        trained(tmp_path)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.training.state().begun == 2


def test_an_output_that_was_there_when_a_step_was_killed_stays(tmp_path):
    with pytest.raises(Stopped):
        trained(tmp_path, progress=stop_after(2))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        name = ledger.id
        assert ledger.training.begin(3, secure=True)
    files = OutputFiles(tmp_path, name, 27)
    files.write(3, np.arange(27))  # killed before the ledger had it
    X, y = task()
    trained(tmp_path, rows=ProbeRows(X[:100], y[:100], n_classes=3))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert (files.read(3, ledger.training.state().outputs[3]) == np.arange(27)).all()
    assert files.write(3, np.ones(27, dtype=np.int64)) == files.found(3)
    assert files.read(3, files.found(3))[5] == 5


@pytest.mark.parametrize("content", [b"", b"terrine.output/1\n", b"no output" * 99])
def test_a_file_that_is_no_output_is_refused_before_the_ledger_names_it(tmp_path, content):
    with pytest.raises(Stopped):
        trained(tmp_path, progress=stop_after(2))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.training.begin(3, secure=True)
    path = next(tmp_path.glob("training-*")) / "step-00003.out"
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="was changed"):
        trained(tmp_path)
    path.unlink()
    assert trained(tmp_path).steps_kept == 11


def test_the_noise_has_the_scale_that_was_paid_for(tmp_path):
    """Rows that count as absent add nothing: the outputs are the noise. Wrong scales would be seen."""
    settings = ProbeSettings(n_features=1000, n_classes=3, steps=2)
    budget = settings.budget(epsilon=1.0, delta=1e-5, planned_units=10, relation=Relation.ROW_ADDED)
    absent = ProbeRows(np.full((5, 1000), np.nan), np.zeros(5), n_classes=3)
    trained(tmp_path, budget=budget, settings=settings, rows=absent)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        files = OutputFiles(tmp_path, ledger.id, budget.dimension)
        drawn = np.concatenate([files.read(k, digest) for k, digest in ledger.training.state().outputs.items()])
    assert len(drawn) == 2 * 3003
    assert len(np.unique(drawn)) == len(drawn)
    for factor, fits in ((1.0, True), (0.9, False), (1.1, False)):
        sum_of_squares = float((drawn.astype(float) ** 2).sum()) / (factor * budget.noise) ** 2
        tail = min(chi2.sf(sum_of_squares, len(drawn)), chi2.cdf(sum_of_squares, len(drawn)))
        assert (tail > 1e-9) == fits


def test_the_same_on_a_server(where, tmp_path):
    with Ledger(where, budget=BUDGET, secrets=tmp_path) as ledger:
        with pytest.raises(Stopped):
            fit_probe(rows(), settings=SETTINGS, ledger=ledger, progress=stop_after(3))
        assert fit_probe(rows(), settings=SETTINGS, ledger=ledger).steps_kept == 12
        assert ledger.verify() == []


def test_neither_ledger_nor_files_tell_how_long_a_step_took(tmp_path):
    with pytest.raises(Stopped):
        trained(tmp_path, progress=stop_after(2))
    time.sleep(0.01)
    trained(tmp_path)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        lines = [json.loads(line) for line in ledger.export()]
        assert ledger.verify() == []
    assert len({line["time"] for line in lines if line.get("kind") in ("train", "begun", "output")}) == 1
    assert len({path.stat().st_mtime for path in [*tmp_path.glob("training-*"), *tmp_path.glob("training-*/*")]}) == 1


def test_seeded_noise_has_no_guarantee(tmp_path):
    made = trained(tmp_path, rng=SeededNoise(0))
    assert made.guarantee is None
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert not ledger.summary().secure
    assert trained(tmp_path).guarantee is None  # whatever comes later


def test_a_mean_is_taken_over_the_planned_number():
    output = np.full(27, 2**30, dtype=np.int64)
    moved = []
    for planned in (10, 100):
        descent = Descent(SETTINGS, planned_units=planned)
        descent.add(1, output)
        moved.append(descent.weights[0, 0])
    assert moved == pytest.approx([-16 / 0.3 / 10, -16 / 0.3 / 100])


def test_later_iterates_are_averaged():
    descent = Descent(ProbeSettings(n_features=1, n_classes=2, steps=4, momentum=0.0), planned_units=1)
    for step, size in enumerate((1, 1, 1, 3), start=1):
        descent.add(step, np.full(4, size * 2**30, dtype=np.int64))
        if step == 2:
            assert (descent.average() == descent.weights).all()
    assert descent.average()[0, 0] == pytest.approx(-16 / 0.3 * (3 + 6) / 2)


def test_a_probe_is_kept_and_read_again(tmp_path):
    made = trained(tmp_path)
    made.save(tmp_path / "probe.npz")
    again = Probe.load(tmp_path / "probe.npz")
    X, _ = task()
    assert (again.predict_proba(X) == made.predict_proba(X)).all()
    assert (again.predict_proba(X[:1]) == made.predict_proba(X)[:1]).all()
    assert (again.settings, again.steps_kept, again.guarantee) == (made.settings, 12, made.guarantee)
    np.savez(tmp_path / "other.npz", weights=made.weights)
    for name in ("other.npz", "ledger.sqlite", "none.npz"):
        with pytest.raises(InputError, match="probe"):
            Probe.load(tmp_path / name)


def test_the_rule_goes_farther_where_more_is_known():
    plan = {"delta": 1e-5, "n_features": 50, "n_classes": 10}
    few, many = (ProbeSettings.by_rule(epsilon=1.0, planned_units=n, **plan) for n in (5_000, 60_000))
    tight = ProbeSettings.by_rule(epsilon=0.1, planned_units=60_000, **plan)
    replaced = ProbeSettings.by_rule(epsilon=1.0, planned_units=10_000, relation=Relation.UNIT_REPLACED, **plan)
    assert (few.steps, few.rate) == (34, 8.6) == (replaced.steps, replaced.rate)
    assert (many.steps, many.rate) == (119, 30.0)
    assert (tight.steps, tight.rate) == (41, 10.0)
    assert components_by_rule(epsilon=1.0, delta=1e-5, planned_units=60_000) == 1608
    assert components_by_rule(epsilon=0.1, delta=1e-5, planned_units=10) == 16


def test_a_rehearsal_has_the_noise_of_the_training_per_unit():
    X, y = task()
    plan = {"epsilon": 0.5, "delta": 1e-5}
    right = {}
    for planned in (200, 200_000):
        settings = ProbeSettings.by_rule(n_features=P, n_classes=3, planned_units=planned, **plan)
        budget = settings.budget(planned_units=planned, **plan)
        made = [
            rehearse_probe(ProbeRows(X, y, n_classes=3), settings=settings, budget=budget, n_units=N, seed=seed)
            for seed in (0, 0, 1)
        ]
        assert (made[0].weights == made[1].weights).all()
        assert (made[0].weights != made[2].weights).any()
        assert made[0].guarantee is None
        right[planned] = np.mean([(one.predict(X) == y).mean() for one in made])
    assert right[200] < 0.8 < right[200_000]


# ---- what is refused


def test_other_settings_are_refused_and_nothing_is_drawn(tmp_path):
    with pytest.raises(Stopped):
        trained(tmp_path, progress=stop_after(2))
    other = ProbeSettings(n_features=P, n_classes=3, steps=12, rate=1.0)
    with pytest.raises(LedgerError, match=r"charged for one with other settings.*n_classes 3, scale 1, rate 1"):
        trained(tmp_path, settings=other)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.training.state().begun == 2


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"steps": 13}, "The settings have steps 13"),
        ({"clip": 0.2}, "clip in lattice steps 214748364"),
        ({"n_features": 9}, "features 9, and the rows have 8"),
        ({"n_classes": 4}, "classes 4, and the rows have 3"),
    ],
)
def test_settings_rows_and_budget_must_agree(tmp_path, changed, words):
    settings = ProbeSettings(**{**SETTINGS.to_json(), **changed})
    with pytest.raises(InputError, match=words):
        trained(tmp_path, settings=settings)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.training.state() is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"clip": 2.1}, "clip must be"), ({"clip": 1e-4}, "clip must be"), ({"momentum": 1.0}, "momentum must be")],
)
def test_settings_that_cannot_be(changed, words):
    with pytest.raises(InputError, match=words):
        ProbeSettings(**{**SETTINGS.to_json(), **changed})


@pytest.mark.parametrize("relation", [one for one in Relation if one != Relation.ONE_TEACHER])
@pytest.mark.parametrize("with_units", [False, True])
def test_neighbors_that_differ_in_what_rows_have(tmp_path, relation, with_units):
    """A row that is added to a unit moves a sum by up to two clips, where a budget for rows pays for one."""
    X, y = task()
    given = ProbeRows(X, y, np.arange(N) // 4 if with_units else None, n_classes=3)
    budget = SETTINGS.budget(epsilon=2.0, delta=1e-5, planned_units=N, relation=relation)
    if with_units == relation.startswith("unit"):
        assert trained(tmp_path, budget=budget, rows=given).guarantee.relation == relation
        return
    words = f'"{relation.sentence}", and the rows have {"" if with_units else "no "}units'
    with pytest.raises(InputError, match=words):
        trained(tmp_path, budget=budget, rows=given)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.training.state() is None
        ledger.training.charge(SETTINGS.digest())  # as before this was asked
    if not with_units:
        assert trained(tmp_path, budget=budget, rows=given).guarantee.relation == relation


def test_two_at_once_are_refused(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite", budget=BUDGET) as ledger:
        folder = OutputFiles(tmp_path, ledger.id, 27).made()
    with (folder / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LedgerError, match="Another process is training on this ledger"):
            trained(tmp_path)


def test_a_machine_that_comes_second_to_a_step_stops(tmp_path):
    """Else each of the two would learn from some of the steps."""
    with Ledger(tmp_path / "ledger.sqlite", budget=BUDGET) as ledger:

        def other(step, steps):
            if step == 2:
                ledger.training.begin(3, secure=True)

        with pytest.raises(LedgerError, match="Another machine has begun step 3"):
            fit_probe(rows(), settings=SETTINGS, ledger=ledger, progress=other)
        assert sorted(ledger.training.state().outputs) == [1, 2]
    assert trained(tmp_path).steps_kept == 11  # the other one was killed


def test_an_output_that_is_gone_or_changed_is_seen(tmp_path):
    trained(tmp_path)
    path = next(tmp_path.glob("training-*")) / "step-00004.out"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(LedgerError, match="was changed"):
        trained(tmp_path)
    path.unlink()
    with pytest.raises(LedgerError, match="is gone"):
        trained(tmp_path)


def test_where_every_step_was_lost_nothing_was_learned(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite", budget=BUDGET) as ledger:
        ledger.training.charge(SETTINGS.digest())
        for step in range(1, 13):
            ledger.training.begin(step, secure=True)
    with pytest.raises(LedgerError, match="Every step of the training was lost"):
        trained(tmp_path)


def test_its_ledger_pays_for_nothing_else(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite", budget=BUDGET) as ledger:
        with pytest.raises(InputError, match="pays for the training of a probe"):
            ledger.reserve(GNMax(sigma=40), n_queries=1, request_id="a")
        votes = KeptVotes(np.zeros((1, 2)), Votes(np.array([[3, 2]]), n_teachers=5))
        with pytest.raises(InputError, match="pays for the training of a probe"):
            Labeller(votes, GNMax(sigma=40), ledger)
        for step, words in ((1, "was not charged"), (2, "was not charged")):
            with pytest.raises(LedgerError, match=words):
                ledger.training.begin(step, secure=True)
        ledger.training.charge("ab" * 32)
        for call, words in (
            (lambda: ledger.training.begin(2, secure=True), "Step 2 cannot be begun"),
            (lambda: ledger.training.keep(1, "ab" * 32), "Step 1 was not begun"),
            (lambda: ledger.training.keep(1, "short"), "by its digest"),
            (lambda: ledger.training.charge("short"), "give their digest"),
        ):
            with pytest.raises(LedgerError, match=words):
                call()
        for step in range(1, 13):
            assert ledger.training.begin(step, secure=True)
            assert not ledger.training.begin(step, secure=True)
        with pytest.raises(LedgerError, match="Step 13 cannot be begun"):
            ledger.training.begin(13, secure=True)
        assert ledger.training.keep(1, "ab" * 32) == ledger.training.keep(1, "cd" * 32) == "ab" * 32
    with (
        Ledger(tmp_path / "other.sqlite", budget=CountBudget(GNMax(sigma=40), n_queries=9, delta=1e-5)) as other,
        pytest.raises(LedgerError, match="does not pay for the training of a probe"),
    ):
        _ = other.training


def test_a_sampler_and_a_folder_are_needed(tmp_path):
    with pytest.raises(InputError, match="rng must be a sampler"):
        trained(tmp_path, rng=KeptNoise([], ties=[], coin=0, secure=True))
    with Ledger(tmp_path / "ledger.sqlite", budget=BUDGET) as ledger:
        ledger.secrets = None
        with pytest.raises(InputError, match="this ledger is on a server"):
            fit_probe(rows(), settings=SETTINGS, ledger=ledger)


def test_public_rows_without_a_length_give_no_scale():
    assert public_scale(np.array([[3.0, 4.0], [np.nan, 1.0]])) == pytest.approx(0.2)
    with pytest.raises(InputError, match="no scale follows"):
        public_scale(np.zeros((3, 2)))


# ---- the budget and the audit


def test_a_budget_comes_back_from_json():
    again = budget_from_json(json.loads(canonical(BUDGET.to_json())))
    assert again == BUDGET
    assert difference(BUDGET, again) is None
    assert "planned_units=3000, not planned_units=9" in difference(
        BUDGET, TrainingBudget(**{**vars(BUDGET), "planned_units": 9})
    )
    with pytest.raises(InputError, match="does not describe a budget"):
        budget_from_json({**BUDGET.to_json(), "more": 1})
    with pytest.raises(InputError, match="below 2"):
        TrainingBudget(**{**vars(BUDGET), "planned_units": 2**40})
    with pytest.raises(InputError, match=r"noise must be at least 2\^21 lattice steps, got 2097151"):
        TrainingBudget(**{**vars(BUDGET), "noise": 2**21 - 1})
    assert SecureNoise().gaussian((1,), sigma=2**21 / UNIT).dtype == np.int64  # what a budget allows can be drawn
    assert math.isclose(BUDGET.guarantee().epsilon, 2.0, rel_tol=1e-6)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("asked = 'fast' WHERE kind = 'train'", "does not name the settings"),
        ("n_queries = 3 WHERE kind = 'train'", "is not of the one training"),
        ("request_id = 'another' WHERE kind = 'train'", "a training that was not charged before"),
        ("part = 99 WHERE kind = 'begun' AND part = 12", "is not a step that was paid for"),
        ("part = 99 WHERE kind = 'begun' AND part = 3", "begins a step out of turn"),
        ("request_id = 'another' WHERE kind = 'begun' AND part = 3", "of a step that was not begun"),
        ("answers_digest = '' WHERE kind = 'output' AND part = 3", "does not name its output"),
        ("secure = 0 WHERE kind = 'output' AND part = 3", "or not with this noise"),
        ("account = 'me' WHERE kind = 'output' AND part = 3", "is not of the one training"),
    ],
)
def test_an_audit_sees_what_is_wrong(tmp_path, change, found):
    trained(tmp_path)
    assert found in tampered(tmp_path, f"UPDATE terrine_entries SET {change}")


def test_an_audit_sees_a_training_that_no_budget_paid_for(tmp_path):
    budget = CountBudget(GNMax(sigma=40), n_queries=9, delta=1e-5)
    with Ledger(tmp_path / "ledger.sqlite", budget=budget) as ledger:
        ledger.reserve(GNMax(sigma=40), n_queries=1, request_id="a")
    lines = tampered(tmp_path, "UPDATE terrine_entries SET kind = 'train' WHERE kind = 'reserve'")
    assert "is about a training, which the budget does not pay for" in lines
