"""The parts that nets are trained with, and which answers are doubted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.students.tasks import NETS, QUARTERS, accuracy, few, quarters

from terrine.students import Distortion, GANStudent, MatchStudent, VATStudent, fit_student, nets
from terrine.students.label_filter import _dealt, kept_of
from terrine.students.nets import NetSettings, _of_size

pytestmark = pytest.mark.usefixtures("alone")

NONE = Distortion(rotate=0, zoom=0, shear=0, shift=0, erase=0, jitter=0)


def test_no_distortion_changes_nothing_and_each_kind_does():
    x = torch.rand(4, 1, 12, 12)
    torch.testing.assert_close(nets.distort(x, NONE), x, atol=1e-5, rtol=0)
    for name in ("rotate", "zoom", "shear", "shift", "erase", "jitter"):
        size = 20.0 if name == "rotate" else 0.5
        changed = nets.distort(x, Distortion(**{**vars(NONE), name: size}))
        assert changed.shape == x.shape
        assert ((changed - x).abs().amax(dim=(1, 2, 3)) > 1e-3).all(), name


def test_a_shift_moves_by_pixels_and_an_erased_square_has_its_side():
    x = torch.zeros(200, 1, 21, 21)
    x[:, :, 10, 10] = 1
    moved = nets.distort(x, Distortion(**{**vars(NONE), "shift": 3}))
    row = (moved.sum(dim=(1, 3)) * torch.arange(21)).sum(1)
    assert 2.5 < (row - 10).abs().max() <= 3.001
    blank = 1 - nets.distort(torch.ones(200, 1, 21, 21), Distortion(**{**vars(NONE), "erase": 0.4}))
    sides = blank.amax(dim=2).sum(dim=(1, 2))
    assert 7 <= sides.max() <= 9  # 0.4 of 21 pixels; less at an edge


def test_pixels_and_features_as_tensors():
    images = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    x = nets.as_float(nets.as_tensor(images, None, "cpu"))
    assert x.shape == (2, 1, 3, 4)
    assert float(x[1, 0, 2, 3]) == pytest.approx(23 / 255)
    scale = (np.array([1.0, 2.0], np.float32), np.array([2.0, 4.0], np.float32))
    assert nets.as_tensor(np.array([[3.0, 2.0]]), scale, "cpu").tolist() == [[1.0, 0.0]]


def test_losses_are_what_they_are_called():
    p, q = torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([[0.5, 0.25, 0.25]])
    told = 0.7 * (1 - 0.1) + 0.3 * 0.05  # the answer is right, or one of two wrong ones
    assert float(nets.cross_entropy(p.log(), torch.tensor([0]), 0.1)) == pytest.approx(-math.log(told))
    assert float(nets.cross_entropy(p.log(), torch.tensor([0]), 0.0)) == pytest.approx(-math.log(0.7))
    divergence = 0.7 * math.log(0.7 / 0.5) + 0.2 * math.log(0.2 / 0.25) + 0.1 * math.log(0.1 / 0.25)
    assert float(nets.kl_divergence(p.log(), q.log())) == pytest.approx(divergence)
    entropy = -sum(v * math.log(v) for v in (0.7, 0.2, 0.1))
    assert float(nets.entropy(p.log())) == pytest.approx(entropy)
    surest = torch.tensor([[0.0, -200.0, -200.0]]).log_softmax(1)
    assert torch.isfinite(nets.cross_entropy(surest, torch.tensor([1]), 0.0))


def test_a_class_that_is_predicted_too_often_is_pushed_down():
    scores = torch.zeros(8, 3)
    scores[:, 0] = 5.0
    scores.requires_grad_()
    shares = nets.class_shares(torch.tensor([0, 1, 2]), 3)
    assert shares.tolist() == pytest.approx([1 / 3] * 3)
    running = shares.clone()
    for _ in range(50):
        loss = nets.unbalanced(scores.log_softmax(1), running, shares)
    loss.backward()
    assert running[0] > 0.9
    assert (scores.grad[:, 0] > 0).all()
    assert (scores.grad[:, 1:] < 0).all()


def test_an_average_follows():
    net = torch.nn.Linear(2, 2)
    average = nets.averaged(net)
    before = average.weight.clone()
    with torch.no_grad():
        net.weight.add_(1.0)
    nets.follow(average, net, 0.9)
    torch.testing.assert_close(average.weight, before + 0.1)
    assert not average.weight.requires_grad


def test_learning_rates_and_the_answers_weight():
    adam = nets.optimiser(torch.nn.Linear(2, 2), weight_decay=0.0)
    rates = []
    for done in (0.0, 0.025, 0.05, 0.525, 1.0):
        nets.schedule(adam, NetSettings(learning_rate=0.1), done)
        rates.append(float(adam.param_groups[0]["lr"]))
        nets.schedule(adam, NetSettings(learning_rate=0.1, schedule="constant"), done, share=0.5)
        assert float(adam.param_groups[0]["lr"]) == pytest.approx(0.05)
    assert rates == pytest.approx([0, 0.05, 0.1, 0.05, 0])
    assert [nets.faded(0.5, done) for done in (0, 0.25, 0.5, 0.9)] == [1, 0.5, 0.02, 0.02]
    assert nets.faded(0, 0.9) == 1


def test_an_adversarial_step_has_its_size_and_does_more_harm_than_a_random_one():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
    x = torch.randn(50, 16)
    with torch.no_grad():
        log_p = net(x).log_softmax(1)
    worst = nets.adversarial(net, x, log_p, 0.3)
    torch.testing.assert_close((worst - x).square().mean(1).sqrt(), torch.full((50,), 0.3))
    with torch.no_grad():
        harm = float(nets.kl_divergence(log_p, net(worst).log_softmax(1)))
        random = [
            float(nets.kl_divergence(log_p, net(x + _of_size(torch.randn_like(x), 0.3)).log_softmax(1)))
            for _ in range(20)
        ]
    assert harm > 2 * max(random)
    assert (_of_size(torch.zeros(1, 3), 3.0) == 0).all()


def test_answers_that_are_likelier_wrong_than_right_are_left_out_but_half_of_each_class_stays():
    labels = np.array([0, 0, 0, 0, 1, 1, 2])
    p = np.array([0.9, 0.8, 0.7, 0.001, 0.001, 0.0, 0.0])
    # wrong / (n_classes - 1) = 0.05: an answer stays above p of about 0.053
    assert kept_of(p, labels, wrong=0.1, n_classes=3).tolist() == [True, True, True, False, True, False, True]
    assert kept_of(np.array([0.04, 0.06, 0.5]), np.zeros(3, int), wrong=0.1, n_classes=3).tolist() == [
        False,
        True,
        True,
    ]


def test_folds_share_every_class():
    labels = np.repeat([0, 1, 2], [7, 4, 1])
    fold = _dealt(labels[::-1], 2)[::-1]
    for label in (0, 1):
        counts = np.bincount(fold[labels == label], minlength=2)
        assert abs(counts[0] - counts[1]) <= 1


def test_small_settings_are_settings():
    assert VATStudent.small(steps=5).steps == 5
    assert VATStudent.small().channels == (16, 32, 64)
    assert MatchStudent.small(folds=2).folds == 2


def test_a_net_of_groups_predicts_each_row_by_itself():
    X, y = quarters()
    student = fit_student(NETS["gan"], X, few(y, 5), classes=QUARTERS, seed=0)
    np.testing.assert_allclose(student.predict_proba(X)[:3], student.predict_proba(X[:3]), atol=1e-6)


@pytest.mark.parametrize("made", [VATStudent.paper, GANStudent.paper], ids=["vat", "gan"])
def test_the_paper_s_students_learn(made):
    """At their own losses, schedule and views, with a rate for a few hundred steps."""
    X, y = quarters(200)
    short = {"steps": 150, "channels": (8, 8), "batch": 16, "public_batch": 16, "learning_rate": 3e-3, "device": "cpu"}
    student = fit_student(made(**short), X, few(y, 10), classes=QUARTERS, seed=0)
    assert accuracy(student, X, y) > 0.7
