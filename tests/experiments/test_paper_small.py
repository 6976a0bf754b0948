"""Small nets of the paper's students: looking on changes nothing, who gets which labels, and verdicts in pairs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "experiments"))
    yield
    sys.path.remove(str(ROOT / "experiments"))


@pytest.fixture
def small() -> ModuleType:
    return importlib.import_module("paper_small")


@pytest.fixture
def compare() -> ModuleType:
    return importlib.import_module("compare")


def bars(n: int, *, seed: int) -> tuple[Any, Any]:
    """Images with a bar above (class 0) or below (class 1)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = rng.integers(0, 40, (n, 8, 8), dtype=np.uint8)
    for k, label in enumerate(y):
        X[k, 4 * label : 4 * label + 4] += np.uint8(150)
    return X, y


@pytest.mark.parametrize("name", ["VAT alone", "GAN alone"])
def test_to_look_on_changes_no_student(small: ModuleType, name: str) -> None:
    """The accuracies of a training are those of the student that would have come without them."""
    (X, y), (test, test_y) = bars(60, seed=0), bars(40, seed=1)
    net = small.learners(small.TOY)[name]
    seen = small.watched(net, (X, test), y, test_y, n_classes=2, seed=3)
    blind = small.taught(net, X, y, n_classes=2, seed=3)
    again = small.taught(net, X, y, n_classes=2, seed=3, look=lambda one, done: None)
    for key, weights in blind.weights.items():
        assert (weights == again.weights[key]).all()
    assert seen["accuracy"] == (blind.predict(test) == test_y).mean()
    assert seen["steps"] == [1, 21]
    assert len(seen["curve"]) == 2


def test_labels_are_flipped_to_other_classes(small: ModuleType) -> None:
    labels = np.arange(200) % 10
    for share, n in ((0.0, 0), (0.2, 40), (1.0, 200)):
        found = small.flipped(labels, share, n_classes=10, seed=0)
        assert (found != labels).sum() == n
        assert set(found) <= set(range(10))


def test_images_of_a_quarter_of_the_pixels(small: ModuleType) -> None:
    image = np.zeros((1, 4, 4), dtype=np.uint8)
    image[0, :2, 2:] = 100
    assert small.halved(image).tolist() == [[[0, 100], [0, 0]]]


def test_learners_differ_in_what_they_are_compared_by_alone(small: ModuleType) -> None:
    by = small.learners(small.Size())
    for other in ("GAN alone", "supervised alone", "VAT, distorted", "supervised, distorted"):
        for name in ("channels", "depth", "steps", "batch", "learning_rate", "averaging", "wrong", "fade", "balance"):
            assert getattr(by[other], name) == getattr(by["VAT alone"], name), (other, name)
    assert by["supervised, distorted"].view == by["VAT, distorted"].view
    alone = by["supervised alone"]
    assert (alone.consistency, alone.entropy, alone.radius) == (0, 0, 0)


def test_mechanisms_are_the_paper_s_as_shares_of_the_teachers(small: ModuleType) -> None:
    assert vars(small.shared(5000)) == {"threshold": 1000, "sigma_check": 500, "sigma_vote": 100}


def test_a_small_glyph_has_votes_by_how_many_records_are_wrong(small: ModuleType) -> None:
    from terrine.datasets.glyph import _small_glyphs

    size = replace(small.TOY, symbols=8, each=40)
    known = small.small_glyph(_small_glyphs(), seed=0, size=size)
    assert known.public.shape == (60, 14, 14)
    assert known.true.max() < 8
    assert list(known.votes) == list(small.WRONG)
    for counts in known.votes.values():
        assert (counts.sum(axis=1) == 12).all()
    assert known.one_right["no private record wrong"] > known.one_right["30% of private records wrong"]


def test_pairs_have_student_s_interval(compare: ModuleType) -> None:
    from scipy import stats

    one, other = [0.80, 0.90, 0.70], [0.78, 0.87, 0.69]
    apart, half = compare.paired(one, other)
    interval = stats.ttest_rel(one, other).confidence_interval(0.95)
    assert (apart - half, apart + half) == pytest.approx((interval.low, interval.high))
    assert compare.paired([0.8], [0.7])[1] is None
    tight = [0.80, 0.90, 0.70], [0.785, 0.885, 0.686]
    assert compare.better(*tight, by=compare.paired) is True  # as two samples they would not differ
    assert compare.better(*tight) is None


def test_claims_have_no_verdict_without_runs() -> None:
    claims = importlib.import_module("claims_small")
    found = claims.rows_of_small(claims.numbers([]))
    assert {row[2] for row in found} == {"**not tested**"}


def test_a_claim_on_training_is_decided_by_the_whole_of_it() -> None:
    claims = importlib.import_module("claims_small")
    looks = [["net", step, [0.90, 0.92], [0.80, 0.82]] for step in (21, 41)]
    _, said, verdict = claims.training([*looks, ["net", 61, [0.80, 0.80], [0.81, 0.81]]])
    assert verdict == "**confirmed**"
    assert "ahead at 2 of 3 looks" in said
