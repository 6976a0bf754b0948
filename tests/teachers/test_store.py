"""A store: resumed, verified, refused by name, private to its owner, and a full disk."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.teachers.tasks import CLASSES, LINEAR, NETS, TEACHERS, images, shares_of, task

from terrine import _files
from terrine.datasets import PrivateData
from terrine.errors import StoreError
from terrine.executors import Processes
from terrine.partitioning import partition
from terrine.teachers import SklearnTeacher, TeacherEnsemble, fit_teachers

DATA = task()
X = images(50, seed=1)[0]
NAMES = [f"teachers-00000{a}-00000{b}" for a, b in ((0, 2), (3, 5), (6, 6))]


def teach(folder, *, data=DATA, shares=None, teacher=LINEAR, seed=0, classes=CLASSES, executor=None):
    shares = shares or shares_of(data)
    return fit_teachers(data, shares, teacher, classes=classes, seed=seed, store=folder, executor=executor)


@pytest.fixture
def calls(monkeypatch):
    """Ids of teachers that are trained."""
    seen: list[int] = []
    fit = SklearnTeacher.fit

    def counted(self, shares, *, ids, **more):
        seen.extend(ids)
        return fit(self, shares, ids=ids, **more)

    monkeypatch.setattr(SklearnTeacher, "fit", counted)
    return seen


@pytest.fixture
def folder(tmp_path):
    teach(tmp_path / "store")
    return tmp_path / "store"


def test_files_are_whole_private_and_named(folder):
    names = [f"{name}.skops{end}" for name in NAMES for end in ("", ".failed", ".sha256")]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names, "manifest.json"])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    digest = (folder / f"{NAMES[0]}.skops.sha256").read_text().split()[0]
    assert digest == hashlib.sha256((folder / f"{NAMES[0]}.skops").read_bytes()).hexdigest()


@pytest.mark.parametrize("name", TEACHERS)
def test_a_stored_ensemble_votes_as_one_in_memory_and_can_be_loaded(tmp_path, name):
    kept = teach(tmp_path / "store", teacher=TEACHERS[name])
    votes = fit_teachers(DATA, shares_of(DATA), TEACHERS[name], classes=CLASSES, seed=0).vote(X).counts
    assert (kept.vote(X).counts == votes).all()
    loaded = TeacherEnsemble.load(tmp_path / "store", replace(TEACHERS[name], chunk=1))
    assert (loaded.n_teachers, loaded.classes, loaded.relation) == (7, CLASSES, kept.relation)
    assert (loaded.vote(X).counts == votes).all()


def test_resuming_trains_only_what_is_missing(folder, calls):
    votes = teach(folder).vote(X).counts
    assert calls == []
    (folder / f"{NAMES[1]}.skops").unlink()
    (folder / f"{NAMES[2]}.skops.sha256").unlink()  # killed between the two files
    seen: list[float] = []
    shares = shares_of(DATA)
    again = fit_teachers(DATA, shares, LINEAR, classes=CLASSES, seed=0, store=folder, progress=seen.append)
    assert calls == [0, 1, 3, 4, 5, 6]  # first two on made-up rows
    assert seen == [2 / 3, 1.0]
    assert (again.vote(X).counts == votes).all()


def test_what_a_killed_run_left_half_written_is_swept_away(folder):
    (folder / f".{NAMES[0]}.skops.abc.tmp").write_bytes(b"half")
    teach(folder)
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("end", ["", ".sha256"])
@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:9] + b"\xff" + b[10:]])
def test_a_damaged_file_is_refused_by_name(folder, end, damage):
    path = folder / f"{NAMES[1]}.skops{end}"
    path.write_bytes(damage(path.read_bytes()))
    for use in (lambda: teach(folder).vote(X), lambda: TeacherEnsemble.load(folder, LINEAR)):
        with pytest.raises(StoreError, match=rf"{NAMES[1]}\.skops .*damaged, or from elsewhere\. Delete it"):
            use()


def test_a_chunk_of_another_store_or_place_is_refused_by_name(folder, tmp_path):
    teach(tmp_path / "other", seed=1)
    for end in ("", ".sha256"):
        shutil.copy(tmp_path / "other" / f"{NAMES[0]}.skops{end}", folder)
    with pytest.raises(StoreError, match=rf"{NAMES[0]}\.skops .*from elsewhere"):
        TeacherEnsemble.load(folder, LINEAR)
    for end in ("", ".sha256"):
        shutil.copy(tmp_path / "other" / f"{NAMES[0]}.skops{end}", tmp_path / "other" / f"{NAMES[1]}.skops{end}")
    with pytest.raises(StoreError, match=rf"{NAMES[1]}\.skops .*from elsewhere"):
        TeacherEnsemble.load(tmp_path / "other", LINEAR)


def test_an_unfinished_store_is_not_loaded(folder):
    (folder / f"{NAMES[2]}.skops").unlink()
    with pytest.raises(StoreError, match=rf"{NAMES[2]}\.skops are missing"):
        TeacherEnsemble.load(folder, LINEAR)


def test_other_settings_are_refused_by_their_name(folder):
    weaker = SklearnTeacher(estimator=LogisticRegression(C=0.5), chunk=3)
    for key, other in {
        "seed=0, not 1": {"seed": 1},
        "chunk=3, not 2": {"teacher": replace(LINEAR, chunk=2)},
        "classes=": {"classes": ("d", "c", "b", "a")},
        "n_teachers=7, not 5": {"shares": shares_of(DATA, 5)},
        r"estimator\.C=.*, not '0\.5'": {"teacher": weaker},
        "recipe|teacher=|estimator=": {"teacher": NETS},
        "relation=": {"shares": partition(DATA, n_teachers=7, key=bytes(32), method="balanced")},
    }.items():
        with pytest.raises(StoreError, match=f"made with ({key})") as caught:
            teach(folder, **other)
        assert "\n" not in str(caught.value)
    with pytest.raises(StoreError, match=r"estimator\.C"):
        TeacherEnsemble.load(folder, weaker)


def test_other_rows_or_shares_are_refused_without_a_word_about_them(folder):
    labels = DATA.y.copy()
    labels[3] = (labels[3] + 1) % 4
    secret = json.loads((folder / "manifest.json").read_text())["data"]
    for other in (
        {"shares": partition(DATA, n_teachers=7, key=bytes(32), min_units=0)},
        {"data": PrivateData(DATA.X, labels, unit=DATA.unit)},
        {"data": task(seed=1)},
    ):
        with pytest.raises(StoreError, match="made for other rows or shares") as caught:
            teach(folder, **other)
        assert secret not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "terrine.votes/1"}', "\xff"])
def test_a_manifest_of_something_else_is_refused(folder, text):
    (folder / "manifest.json").write_bytes(text.encode("latin-1"))
    for use in (lambda: teach(folder), lambda: TeacherEnsemble.load(folder, LINEAR)):
        with pytest.raises(StoreError, match=r"manifest"):
            use()


def test_a_manifest_that_lacks_something_is_refused(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    for key in ("n_teachers", "classes", "row_shape", "chunk", "relation"):
        (folder / "manifest.json").write_text(json.dumps({k: v for k, v in manifest.items() if k != key}))
        with pytest.raises(StoreError, match="manifest"):
            TeacherEnsemble.load(folder, LINEAR)


def test_teachers_without_a_manifest_are_not_adopted(folder):
    (folder / "manifest.json").unlink()
    with pytest.raises(StoreError, match=r"no manifest\.json that says what they are"):
        teach(folder)
    with pytest.raises(StoreError, match=r"manifest\.json is missing"):
        TeacherEnsemble.load(folder, LINEAR)


def test_a_full_disk_is_said_and_the_store_goes_on(tmp_path, monkeypatch, calls):
    honest, written = os.fsync, []

    def full(descriptor):
        written.append(descriptor)
        if len(written) > 8:  # the manifest, a chunk, its failures and its hash, each with its folder
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        honest(descriptor)

    monkeypatch.setattr(_files.os, "fsync", full)
    with pytest.raises(
        StoreError, match=rf"write {NAMES[1]}\.skops to .*No space left on device.*continues from there"
    ):
        teach(tmp_path / "store")
    monkeypatch.setattr(_files.os, "fsync", honest)
    assert not list((tmp_path / "store").glob(".*"))
    del calls[:]
    votes = teach(tmp_path / "store").vote(X).counts
    assert calls == [0, 1, 3, 4, 5, 6]
    assert (votes == fit_teachers(DATA, shares_of(DATA), LINEAR, classes=CLASSES, seed=0).vote(X).counts).all()


def test_a_store_that_cannot_be_written_by_workers_is_said(folder):
    (folder / f"{NAMES[1]}.skops").unlink()
    (folder / f"{NAMES[1]}.skops").mkdir()
    (folder / f"{NAMES[1]}.skops.sha256").unlink()
    with pytest.raises(StoreError, match=rf"write {NAMES[1]}\.skops to"):
        teach(folder, executor=Processes(n_workers=1))


def test_the_same_bytes_from_the_same_nets(tmp_path):
    for place in ("one", "two"):
        teach(tmp_path / place, teacher=NETS)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    assert np.isin(".safetensors", [path.suffix for path in (tmp_path / "one").iterdir()])
