"""Table 1's script: SVHN's student on made files of the published format, and the paper's rows from its votes."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat
from sklearn.neighbors import KNeighborsClassifier

from terrine.accounting.curves import round_up
from terrine.datasets import files, svhn
from terrine.students import SupervisedStudent
from terrine.votes import Votes

ROOT = Path(__file__).parents[1]


@pytest.fixture
def table1() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "experiments"))
    import table1

    yield table1
    sys.path.remove(str(ROOT / "experiments"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Small files of SVHN's format: a digit is a grey level, so that there is something to learn; the test labels."""
    monkeypatch.delenv("TERRINE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rng, found = np.random.default_rng(0), {}
    (files.cache() / "svhn").mkdir(parents=True)
    for part, n in (("TRAIN", 40), ("TEST", 180)):
        file, y = getattr(svhn, part), rng.integers(1, 11, size=(n, 1), dtype=np.uint8)
        X = np.broadcast_to(25 * (y[:, 0] % 10), (32, 32, 3, n)) + rng.integers(0, 9, size=(32, 32, 3, n))
        savemat(files.cache() / file.path, {"X": X.astype(np.uint8), "y": y})
        sha256 = hashlib.sha256((files.cache() / file.path).read_bytes()).hexdigest()
        monkeypatch.setattr(svhn, part, dataclasses.replace(file, sha256=(sha256,)))
        found[part] = y[:, 0] % 10
    monkeypatch.setattr(svhn, "N_PUBLIC", 120)
    return found["TEST"]


def test_students_of_svhn_learn_from_answers_where_its_pixels_are(table1: ModuleType, made: Any) -> None:
    votes = Votes(np.where(np.arange(10) == made[:, None], 250, 0), n_teachers=250)
    quick = SupervisedStudent(estimator=KNeighborsClassifier(3))
    found = table1.svhn_students(votes, net=quick, seeds=range(2))
    assert [key.split(", ")[0] for key in found] == ["SVHN"] * 3
    for student in found.values():
        assert len(student["by_seed"]) == 2
        assert 0.6 < student["mean"] <= 1  # a tenth by chance
    assert table1.accuracy(next(iter(found.values())), "VAT").endswith("VAT")


def test_the_paper_s_rows_come_from_its_votes(table1: ModuleType, vote_files: Path) -> None:
    votes = Votes.load(vote_files / "mnist_250_teachers.npy")
    lnmax, _, confident = table1.PRINTED[:3]
    assert round_up(table1.privacy(lnmax, votes)["paper_epsilon"]) == "2.043"
    found = table1.privacy(confident, votes)
    assert [round_up(found[k]) for k in ("paper_epsilon", "exact_epsilon", "publishable_epsilon")] == [
        "1.999",
        "0.923",
        "2.053",
    ]
