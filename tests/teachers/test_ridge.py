"""Ridge teachers: the book's leave-one-out, a choice inside the share, isolation, and shares with little in them."""

from __future__ import annotations

import numpy as np
import pytest
import safetensors.numpy
from sklearn.linear_model import Ridge, RidgeClassifier
from tests.teachers.tasks import KEY

from terrine._ridge import solve
from terrine.datasets import PrivateData
from terrine.errors import InputError, StoreError
from terrine.executors import Processes
from terrine.partitioning import partition
from terrine.teachers import RidgeTeacher, fit_teachers, poll_teachers

N_CLASSES, WIDTH = 5, 30
CENTRES = np.random.default_rng(0).standard_normal((N_CLASSES, WIDTH))
TEACHER = RidgeTeacher(chunk=3)


def rows(n, *, seed=0, noise=1.5):
    rng = np.random.default_rng(seed)
    y = rng.integers(N_CLASSES, size=n)
    return (CENTRES[y] + noise * rng.standard_normal((n, WIDTH))).astype(np.float32), y


def fit(shares, *, teacher=TEACHER):
    return teacher.fit(shares, ids=range(len(shares)), n_classes=N_CLASSES, seed=3)


X, Y = rows(700)
QUERIES, TRUTH = rows(300, seed=1)
SIZES = [12, 12, 12, 40, 40, 9, 25, 60, 60, 60]  # below and above the number of features, alike and not
ENDS = np.cumsum(SIZES)
SHARES = [(X[e - n : e], Y[e - n : e]) for e, n in zip(ENDS, SIZES, strict=True)]


@pytest.mark.parametrize("n", [10, 60])
def test_leaving_out_is_by_the_book(n):
    """Each row left out in turn, by scikit-learn's own ridge: as often right, and the same weights in the end."""
    x, y = X[:n].astype(np.float64), Y[:n]
    total = np.square(x - x.mean(axis=0)).sum()
    for ridge in (0.001, 0.1, 1.0):
        found = solve(x[None], np.eye(N_CLASSES)[y][None], ridges=(ridge,), spare=0.0)
        right = 0
        for k in range(n):
            rest = np.arange(n) != k
            book = Ridge(alpha=ridge * total).fit(x[rest], np.eye(N_CLASSES)[y][rest])
            right += int(book.predict(x[k : k + 1]).argmax() == y[k])
        assert found.accuracy[0] == pytest.approx(right / n)
        whole = Ridge(alpha=ridge * total).fit(x, np.eye(N_CLASSES)[y])
        assert np.allclose(found.weights[0].T, whole.coef_, atol=1e-9)
        assert np.allclose(found.bias[0], whole.intercept_, atol=1e-9)


def test_the_ridge_is_the_smallest_that_is_nearly_as_good():
    x, y = X[:60].astype(np.float64)[None], np.eye(N_CLASSES)[Y[:60]][None]
    ridges = TEACHER.ridges
    right = np.array([solve(x, y, ridges=(one,), spare=0.0).accuracy[0] for one in ridges])
    error = np.sqrt(right.max() * (1 - right.max()) / 60)
    assert right.max() - right.min() > error  # a choice worth making
    for spare in (0.0, 1.0, 2.0):
        found = solve(x, y, ridges=ridges, spare=spare)
        assert found.ridges[0] == min(r for r, a in zip(ridges, right, strict=True) if a >= right.max() - spare * error)


def test_votes_are_those_of_ridge_regression_by_the_book():
    teacher = RidgeTeacher(ridges=(0.01,))
    votes = teacher.predict(fit(SHARES, teacher=teacher), QUERIES)
    for k, (x, y) in enumerate(SHARES):
        if len(np.unique(y)) == N_CLASSES:
            alpha = 0.01 * np.square(x - x.mean(axis=0, dtype=np.float64)).sum()
            book = RidgeClassifier(alpha=alpha).fit(x.astype(np.float64), y)
            scores = np.sort(book.decision_function(QUERIES), axis=1)
            sure = scores[:, -1] - scores[:, -2] > 1e-4
            assert (votes[k] == book.predict(QUERIES))[sure].all()


def test_a_unit_of_measure_changes_no_vote():
    votes = TEACHER.predict(fit(SHARES), QUERIES)
    scaled = TEACHER.predict(fit([(x * 1024, y) for x, y in SHARES]), QUERIES * 1024)
    assert (votes == scaled).all()


def test_a_teacher_is_the_same_whatever_is_stacked_beside_it():
    models = fit(SHARES)
    for k in range(len(SHARES)):
        alone = fit([SHARES[k]])
        assert all((alone[name][0] == models[name][k]).all() for name in models)
    backward = fit(SHARES[::-1])
    assert all((backward[name][::-1] == models[name]).all() for name in models)


def test_one_share_does_not_reach_the_other_votes():
    votes = TEACHER.predict(fit(SHARES), QUERIES)
    x, y = SHARES[1]
    for changed in ((-x, (y + 1) % 5), (x[:3], y[:3]), (x * 1e6, y), (x[:0], y[:0]), (x * 0, y)):
        now = TEACHER.predict(fit([SHARES[0], changed, *SHARES[2:]]), QUERIES)
        others = np.arange(len(SHARES)) != 1
        assert (now[others] == votes[others]).all()


def test_a_vote_depends_on_its_row_and_its_teacher_alone():
    models = fit(SHARES)
    votes = TEACHER.predict(models, QUERIES)
    some = np.random.default_rng(4).permutation(300)[:77]
    assert (TEACHER.predict(models, QUERIES[some]) == votes[:, some]).all()
    assert (TEACHER.predict(models, np.tile(QUERIES, (8, 1)))[:, -300:] == votes).all()


def test_shares_with_little_in_them():
    x, y = rows(8, seed=2)
    few = fit([(x[:0], y[:0]), (x[:1], np.array([3])), (x, np.full(8, 2)), (x[:2], np.array([4, 1]))])
    votes = TEACHER.predict(few, QUERIES)
    assert (votes[0] == 0).all()
    assert (votes[1] == 3).all()
    assert (votes[2] == 2).all()
    assert set(np.unique(votes[3])) == {1, 4}
    same = TEACHER.predict(fit([(np.ones((6, WIDTH), np.float32), np.array([0, 1, 1, 1, 2, 2]))]), QUERIES)
    assert (same == 1).all()  # rows that are one: the commonest class


def test_executors_and_chunks_change_nothing():
    data = PrivateData(X, Y)
    shares = partition(data, n_teachers=20, key=KEY)
    polled = [
        poll_teachers(data, shares, teacher, QUERIES, classes=range(N_CLASSES), seed=0, executor=executor).counts
        for teacher, executor in ((TEACHER, None), (RidgeTeacher(chunk=20), None), (TEACHER, Processes(n_workers=2)))
    ]
    assert (polled[0] == polled[1]).all()
    assert (polled[0] == polled[2]).all()
    assert (polled[0].argmax(axis=1) == TRUTH).mean() > 0.9


def test_a_store_gives_the_same_teachers_back(tmp_path):
    data = PrivateData(X, Y)
    shares = partition(data, n_teachers=6, key=KEY)
    kept = fit_teachers(data, shares, TEACHER, classes=range(N_CLASSES), seed=0, store=tmp_path / "teachers")
    polled = poll_teachers(data, shares, TEACHER, QUERIES, classes=range(N_CLASSES), seed=0)
    assert (kept.vote(QUERIES).counts == polled.counts).all()
    with pytest.raises(StoreError, match="weights of ridge teachers"):
        TEACHER.loads(safetensors.numpy.save({"weights": np.zeros((1, 2, 3), np.float32)}))


@pytest.mark.parametrize(
    ("settings", "words"), [({"ridges": ()}, "at least one"), ({"ridges": (0.0,)}, "ridges"), ({"chunk": 0}, "chunk")]
)
def test_wrong_settings_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        RidgeTeacher(**settings)


def test_rows_of_another_width_are_refused():
    with pytest.raises(InputError, match="30 features"):
        TEACHER.predict(fit(SHARES), QUERIES[:, :7])
