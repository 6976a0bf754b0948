"""Mean directions: exact votes, isolation, and teachers that do not know vote apart."""

from __future__ import annotations

import numpy as np
import pytest
import safetensors.numpy
from scipy.stats import chisquare
from tests.teachers.tasks import CENTROIDS, KEY

from terrine.datasets import PrivateData
from terrine.errors import InputError, StoreError
from terrine.partitioning import partition
from terrine.teachers import CentroidTeacher, poll_teachers

N_CLASSES, WIDTH = 10, 24
CENTRES = np.linalg.qr(np.random.default_rng(0).standard_normal((WIDTH, N_CLASSES)))[0].T


def rows(n, *, seed=0, noise=0.08, classes=N_CLASSES):
    """Rows around orthogonal directions, of any length, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    X = CENTRES[y] + noise * rng.standard_normal((n, WIDTH))
    return (X * rng.uniform(0.5, 2, size=(n, 1))).astype(np.float32), y


def fit(shares, *, ids=None, seed=3, teacher=CENTROIDS, n_classes=N_CLASSES):
    return teacher.fit(shares, ids=range(len(shares)) if ids is None else ids, n_classes=n_classes, seed=seed)


X, Y = rows(400)
QUERIES, TRUTH = rows(300, seed=1)
SHARES = [(X[k * 6 : k * 6 + 6], Y[k * 6 : k * 6 + 6]) for k in range(60)]


def test_votes_are_those_of_the_nearest_mean_by_the_book():
    votes = CENTROIDS.predict(fit(SHARES), QUERIES)
    unit = QUERIES / np.linalg.norm(QUERIES, axis=1, keepdims=True)
    for k, (x, y) in enumerate(SHARES):
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        present = np.unique(y)
        means = np.stack([x[y == c].mean(axis=0) for c in present])
        cosines = unit @ (means / np.linalg.norm(means, axis=1, keepdims=True)).T
        best = cosines.max(axis=1)
        near, far = best > CENTROIDS.similarity + 0.01, best < CENTROIDS.similarity - 0.01
        assert near.any()
        assert far.any()
        assert (votes[k, near] == present[cosines.argmax(axis=1)][near]).all()
        assert not np.isin(votes[k, far], present).any()


def test_a_handful_of_rows_is_enough():
    data = PrivateData(*rows(6000, seed=2))
    shares = partition(data, n_teachers=1000, key=KEY, method="balanced")
    votes = poll_teachers(data, shares, CentroidTeacher(), QUERIES, classes=range(N_CLASSES), seed=0)
    top = np.sort(votes.counts, axis=1)
    assert (votes.counts.argmax(axis=1) == TRUTH).all()
    assert (top[:, -1] - top[:, -2]).mean() > 400  # with 6 rows, some 4.7 of 10 classes each
    lookalikes = poll_teachers(
        data, shares, CentroidTeacher(similarity=-1), QUERIES, classes=range(N_CLASSES), seed=0
    ).counts
    gap = np.sort(lookalikes, axis=1)
    assert (gap[:, -1] - gap[:, -2]).mean() < (top[:, -1] - top[:, -2]).mean()


def test_a_vote_depends_on_its_row_and_its_teacher_alone():
    models = fit(SHARES)
    votes = CENTROIDS.predict(models, QUERIES)
    some = np.random.default_rng(4).permutation(300)[:77]
    assert (CENTROIDS.predict(models, QUERIES[some]) == votes[:, some]).all()
    assert (CENTROIDS.predict(models, np.tile(QUERIES, (16, 1)))[:, -300:] == votes).all()
    alone = fit(SHARES[7:8], ids=[7])
    assert (CENTROIDS.predict(alone, QUERIES) == votes[7]).all()
    assert (CENTROIDS.predict(fit(SHARES[::-1], ids=range(59, -1, -1)), QUERIES)[::-1] == votes).all()


def test_sums_are_exact_in_any_order():
    """Were they rounded, another order of the features would change some of these scores."""
    order = np.random.default_rng(5).permutation(WIDTH)
    models, moved = fit(SHARES), fit([(x[:, order], y) for x, y in SHARES])
    assert (models["means"][..., order] == moved["means"]).all()
    from terrine.teachers.centroids import _whole

    there, here = _whole(QUERIES[:, order]), _whole(QUERIES)
    a = moved["means"].reshape(-1, WIDTH).astype(np.float32) @ there.T
    b = models["means"].reshape(-1, WIDTH).astype(np.float32) @ here.T
    assert (a == b).all()
    exact = models["means"].reshape(-1, WIDTH).astype(np.int64) @ here.astype(np.int64).T
    assert (b == exact).all()


def test_one_share_does_not_reach_the_other_votes():
    votes = CENTROIDS.predict(fit(SHARES), QUERIES)
    x, y = SHARES[5]
    for changed in ((-x, (y + 1) % 10), (x[:3], y[:3]), (np.tile(x, (2, 1)), np.tile(y + 0, 2)), (x[:0], y[:0])):
        now = CENTROIDS.predict(fit([*SHARES[:5], changed, *SHARES[6:]]), QUERIES)
        others = np.arange(60) != 5
        assert (now[others] == votes[others]).all()


def test_who_does_not_know_votes_apart():
    """Shares of classes 0 to 3 alone, rows of class 4: uniform over the six others, by teacher and by row."""
    x, y = rows(30, classes=4, noise=0.02)
    shares = [(x, y)] * 200
    unknown = rows(400, seed=6, noise=0.02)
    stranger = unknown[0][unknown[1] == 4]
    assert len(stranger) > 20
    votes = CENTROIDS.predict(fit(shares), stranger)
    assert votes.min() == 4
    for part in (votes, votes[:, :1], votes[:1]):
        assert len(np.unique(part)) == 6
        assert chisquare(np.bincount(part.ravel(), minlength=10)[4:]).pvalue > 1e-4
    agree = (votes[:-1] == votes[1:]).mean()
    assert abs(agree - 1 / 6) < 0.03
    again = CENTROIDS.predict(fit(shares), stranger)
    assert (again == votes).all()
    other = CENTROIDS.predict(fit(shares, seed=4), stranger)
    assert abs((other == votes).mean() - 1 / 6) < 0.03
    close = np.nextafter(stranger, np.float32(9))  # the last bit of a feature is not another row
    assert (CENTROIDS.predict(fit(shares), close) == votes).mean() > 0.9


def test_who_has_seen_all_classes_draws_from_all():
    x, y = np.concatenate((CENTRES, -CENTRES[:1])), np.concatenate((np.arange(10), [0]))
    far = np.linalg.qr(np.concatenate((CENTRES, np.random.default_rng(0).standard_normal((1, WIDTH)))).T)[0].T[-1:]
    votes = CENTROIDS.predict(fit([(x, y)] * 300), far)
    assert len(np.unique(votes)) == 10


def test_empty_and_one_class_shares():
    one = (CENTRES[3:4], np.array([3]))
    votes = CENTROIDS.predict(fit([(CENTRES[:0], np.array([], dtype=int)), one]), CENTRES)
    assert (votes[0] == 0).all()
    assert votes[1, 3] == 3
    assert (np.delete(votes[1], 3) != 3).all()
    always = CentroidTeacher(similarity=-1)
    assert (always.predict(fit([one], teacher=always), QUERIES) == 3).all()
    blank = CENTROIDS.predict(fit([one]), np.zeros((2, WIDTH)))
    assert (blank != 3).all()  # a row without a direction is near nothing


def test_images_and_whole_numbers_are_rows_too():
    images = np.random.default_rng(0).integers(0, 256, size=(20, 4, 6), dtype=np.uint8)
    labels = np.arange(20) % 2
    models = fit([(images, labels)], n_classes=2)
    assert models["means"].shape == (1, 2, 24)
    flat = fit([(images.reshape(20, -1).astype(float), labels)], n_classes=2)
    assert all((models[name] == flat[name]).all() for name in models)


def test_what_is_stored_comes_back_and_other_arrays_are_refused():
    models = fit(SHARES)
    back = CENTROIDS.loads(CENTROIDS.dumps(models))
    assert all((back[name] == models[name]).all() and back[name].dtype == models[name].dtype for name in models)
    with pytest.raises(StoreError, match="is damaged, or not"):
        CENTROIDS.loads(b"nothing")
    for wrong in (
        {"means": models["means"]},
        models | {"means": models["means"].astype(np.float32)},
        models | {"seen": models["seen"][:, :5]},
        models | {"key": models["key"][:5]},
    ):
        data = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in wrong.items()})
        with pytest.raises(StoreError, match="does not hold the means"):
            CENTROIDS.loads(data)


def test_bad_input_is_said():
    for bad in ({"similarity": 1.5}, {"similarity": float("nan")}, {"similarity": "x"}, {"chunk": 0}):
        with pytest.raises(InputError, match=f"^{next(iter(bad))} .*must be"):
            CentroidTeacher(**bad)
    models = fit(SHARES)
    with pytest.raises(InputError, match="rows of 24 features, as the teachers were taught on, got 23"):
        CENTROIDS.predict(models, QUERIES[:, :23])
    with pytest.raises(InputError, match="real numbers"):
        CENTROIDS.predict(models, QUERIES.astype(str))
    with pytest.raises(InputError, match="at most 65536 features"):
        CENTROIDS.predict(models, np.ones((1, 65537)))
    assert CentroidTeacher(similarity=0.5).settings() != CENTROIDS.settings()
