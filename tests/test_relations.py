"""A relation has a code for programs and a sentence for people; files that hold the sentence still load."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

from terrine import CountBudget, FilterBudget, GNMax, Ledger, PrivateData
from terrine.budgets import budget_from_json
from terrine.errors import InputError
from terrine.partitioning import Partition, partition
from terrine.relations import Relation
from terrine.teachers import SklearnTeacher, TeacherEnsemble, fit_teachers
from terrine.votes import Ballots

# As version 0.1.0 wrote them, into ledgers, partitions, ballots and teachers' manifests: they never change.
SENTENCES = {
    "unit_any": "one unit is added, removed or changed",
    "unit_replaced": "one unit is replaced by another; the number of units is public",
    "row_replaced": "one row is replaced by another; the number of rows is public",
    "one_teacher": "one teacher's votes change, on any of the queries",
    "unit_added": "one unit is added or removed, with all its rows",
    "row_added": "one row is added or removed",
}


def test_every_relation_is_known_by_its_code_and_by_its_sentence():
    assert {str(one): one.sentence for one in Relation} == SENTENCES
    for code, sentence in SENTENCES.items():
        assert Relation(code) is Relation(sentence)
        assert json.loads(json.dumps(Relation(sentence))) == code
    assert [one for one in Relation if one.size_is_public] == [Relation.UNIT_REPLACED, Relation.ROW_REPLACED]


def test_words_of_ones_own_stay_as_they_are():
    own = Relation("one hospital is left out")
    assert (own, own.sentence) == ("own: one hospital is left out", "one hospital is left out")
    assert own not in list(Relation)
    assert own != Relation("one ward is left out")
    for again in (Relation(str(own)), copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        assert (again, again.sentence, hash(again)) == (own, own.sentence, hash(own))


@pytest.mark.parametrize("value", ["", "own: ", None, 3, b"unit_any"])
def test_what_says_nothing_is_refused(value):
    with pytest.raises(InputError, match="relation must say in words what neighbors differ in"):
        Relation(value)


@pytest.mark.parametrize("sentence", [*SENTENCES.values(), "one hospital is left out"])
@pytest.mark.parametrize("kind", ["count", "filter"])
def test_a_ledger_holds_the_sentence_as_it_always_did(sentence, kind, tmp_path):
    budgets = {
        "count": CountBudget(GNMax(sigma=9), n_queries=3, delta=1e-5, relation=Relation(sentence)),
        "filter": FilterBudget(epsilon=5, delta=1e-5, order=8, relation=Relation(sentence)),
    }
    stored = budgets[kind].to_json()
    assert stored["relation"] == sentence
    assert budget_from_json(stored) == budgets[kind]
    with Ledger(tmp_path / "ledger.sqlite", budget=budgets[kind]) as ledger:
        header = json.loads(next(ledger.export()))
        assert json.loads(header["budget"])["relation"] == sentence
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.budget.relation is Relation(sentence) or ledger.budget.relation == Relation(sentence)
        assert ledger.summary().to_json()["guarantee"]["neighbors"] == sentence


def rewritten(path, relation):
    """The file as an older version wrote it."""
    with np.load(path) as loaded:
        arrays = {name: loaded[name] for name in loaded.files}
    np.savez_compressed(path, **{**arrays, "relation": relation})


@pytest.mark.parametrize("code", ["unit_any", "unit_replaced", "row_replaced"])
def test_partitions_and_ballots_with_a_sentence_load(code, tmp_path):
    method = "hashed" if code == "unit_any" else "balanced"
    Partition([0, 1], n_teachers=2, method=method, relation=Relation(code)).save(tmp_path / "p.npz")
    Ballots([[0], [1]], ids=[0, 1], n_classes=2, queries="0" * 64, relation=Relation(code)).save(tmp_path / "b.npz")
    for load, name in ((Partition.load, "p.npz"), (Ballots.load, "b.npz")):
        assert load(tmp_path / name).relation is Relation(code)
        rewritten(tmp_path / name, SENTENCES[code])
        assert load(tmp_path / name).relation is Relation(code)


def test_teachers_keep_the_sentence_that_their_identity_is_a_hash_of(tmp_path):
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    data = PrivateData(rng.normal(size=(40, 2)), np.arange(40) % 2, unit=np.arange(40))
    shares = partition(data, n_teachers=2, key=bytes(32))
    teacher = SklearnTeacher(estimator=LogisticRegression())
    fit_teachers(data, shares, teacher, classes=("a", "b"), seed=0, store=tmp_path / "kept")
    manifest = json.loads((tmp_path / "kept" / "manifest.json").read_text())
    assert SENTENCES["unit_any"] in json.dumps(manifest)
    assert TeacherEnsemble.load(tmp_path / "kept", teacher).relation is Relation.UNIT_ANY
