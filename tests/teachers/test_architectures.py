"""The modules that come with the package: what they are made of, and that they learn."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from tests.teachers.tasks import images

from terrine.errors import InputError
from terrine.teachers import ModuleRecipe, ModuleTeacher
from terrine.teachers.architectures import PAPER_GLYPH, mlp, resnet32, two_conv

X, Y = images(160)
X_TEST, Y_TEST = images(300, seed=9)


def weighted(module):
    return [part for part in module.modules() if isinstance(part, (torch.nn.Conv2d, torch.nn.Linear))]


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_resnet32_has_32_layers_with_weights(norm):
    """Convolutions and the dense layer; shortcuts have none. Every one but the last is followed by a leaky ReLU."""
    net = resnet32(150, (28, 28), norm=norm)
    layers = weighted(net)
    assert len(layers) == 32
    assert [type(layer).__name__ for layer in layers] == ["Conv2d"] * 31 + ["Linear"]
    assert [layer.out_channels for layer in layers[:-1]] == [16] * 11 + [32] * 10 + [64] * 10
    slopes = [part.negative_slope for part in net.modules() if isinstance(part, torch.nn.LeakyReLU)]
    assert slopes == [0.1] * 31
    assert net(torch.zeros(2, 1, 28, 28)).shape == (2, 150)
    sizes: list[int] = []
    for layer in layers[:-1]:
        layer.register_forward_hook(lambda _, __, out: sizes.append(out.shape[-1]))
    net(torch.zeros(2, 1, 28, 28))
    assert sizes == [28] * 11 + [14] * 10 + [7] * 10


@pytest.mark.parametrize(
    ("module", "recipe"),
    [
        (partial(mlp, hidden=(16,), dropout=0.1), ModuleRecipe(steps=80, batch=16)),
        (partial(two_conv, channels=(8, 8), hidden=32, dropout=0.1), ModuleRecipe(steps=120, batch=16, shift=1)),
        (partial(resnet32, width=4), ModuleRecipe(steps=30, batch=16, learning_rate=0.1)),
    ],
    ids=["mlp", "two_conv", "resnet32"],
)
def test_they_learn(module, recipe):
    teacher = ModuleTeacher(module=module, recipe=recipe, device="cpu")
    votes = teacher.predict(teacher.fit([(X, Y)], ids=[0], n_classes=4, seed=0), X_TEST)
    assert (votes[0] == Y_TEST).mean() > 0.9


@pytest.mark.parametrize("module", [mlp, two_conv, resnet32])
def test_the_last_rows_of_a_batch_do_not_reach_the_first_when_voting(module):
    net = module(5, (12, 8, 3)).eval()
    rows = torch.rand(4, 3, 12, 8)
    other = torch.cat([rows[:2], 9 - rows[2:]])
    with torch.no_grad():
        assert net(rows).shape == (4, 5)
        assert torch.allclose(net(rows)[:2], net(other)[:2], atol=1e-6)
        assert not torch.allclose(net(rows)[2:], net(other)[2:], atol=1e-3)


def test_two_conv_and_mlp_are_as_they_say():
    assert [type(layer).__name__ for layer in weighted(two_conv(10, (28, 28)))] == ["Conv2d"] * 2 + ["Linear"] * 2
    assert [tuple(layer.weight.shape) for layer in weighted(mlp(3, (5,), hidden=(7, 6)))] == [(7, 5), (6, 7), (3, 6)]
    assert len(weighted(mlp(3, (4, 4), hidden=()))) == 1


def test_the_papers_schedule_for_glyph():
    rates = [PAPER_GLYPH.rate(step) for step in (0, 9_999, 10_000, 19_999, 20_000, 39_999)]
    assert np.allclose(rates, [0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert (PAPER_GLYPH.steps, PAPER_GLYPH.batch, PAPER_GLYPH.optimiser) == (40_000, 100, "sgd")
    assert PAPER_GLYPH.momentum > 0


@pytest.mark.parametrize("module", [two_conv, resnet32])
@pytest.mark.parametrize("shape", [(64,), (3, 28), (2, 2, 2, 2)])
def test_rows_that_are_no_images_are_refused(module, shape):
    with pytest.raises(InputError, match=r"Rows must be images \(height, width\[, channels\]\)"):
        module(10, shape)


def test_a_norm_that_is_none_is_refused():
    with pytest.raises(InputError, match="norm must be one of group, batch"):
        resnet32(10, (28, 28), norm="layer")
