"""A semi-supervised GAN with feature matching: the paper's student for MNIST and SVHN.

Salimans et al., "Improved techniques for training GANs", 2016: a classifier of K classes is also the judge of what is
real, by the sum of its exponentiated scores, and the generator matches the mean of the classifier's features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from terrine import _validate
from terrine._optional import require_torch
from terrine.students import nets
from terrine.students.nets import Distortion, NetSettings, Progress

_LATENT = 64  # random numbers that the generator makes an image of
_PAPER: dict[str, Any] = {
    "consistency": 0.0,
    "entropy": 0.0,
    "balance": 0.0,
    "rise": 0.0,
    "wrong": 0.0,
    "fade": 0.0,
    "weight_decay": 0.0,
    "learning_rate": 3e-3,
    "view": Distortion(rotate=0, zoom=0, shear=0, shift=0, jitter=0.3),
}
_MOMENTUM = 0.5  # as is usual for GANs: what the other side did a few steps ago is out of date


@dataclass(frozen=True, kw_only=True)
class GANStudent(NetSettings):
    """A classifier of images that also learns to tell public images from a generator's.

    Attributes:
        generator_channels: of the generator's coarsest stage; half as many in the next.
        realness: weight of telling real from made-up images.
        consistency, entropy, balance: weights of three terms on public images: two distorted looks at one agree,
            predictions are sure, and the classes have the shares that they have among the answers; all 0 is Salimans
            et al.'s.
        rise: share of the training over which these three weights rise to their full size.

    The other settings are those of `NetSettings`. Rows of features are refused: use `VATStudent` or `MatchStudent`.
    """

    norm: str = "group"
    learning_rate: float = 2e-3
    view: Distortion = field(default=Distortion(jitter=0.2))
    generator_channels: int = 64
    realness: float = 0.5
    consistency: float = 1.0
    entropy: float = 1.0
    balance: float = 1.0
    rise: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.integer("generator_channels", self.generator_channels, at_least=2)
        for name in ("realness", "consistency", "entropy", "balance", "rise"):
            nets.at_least_0(self, name)

    @classmethod
    def paper(cls, **settings: Any) -> GANStudent:
        """As the paper has it for MNIST and SVHN, Salimans et al.'s losses alone; ``settings`` change single ones.

        The paper prints no more than that. Noise on the input and Adam's rate are those of Salimans et al. for MNIST.
        """
        return cls(**{**_PAPER, **settings})


def train_gan(
    settings: GANStudent,
    x: Any,
    answered: Any,
    labels: Any,
    *,
    fresh: Callable[[], Any],
    device: str,
    progress: Progress | None,
) -> Any:
    """A net trained on images ``x``, of which ``answered`` have ``labels``."""
    torch = require_torch()
    softplus = torch.nn.functional.softplus
    net, generator = fresh(), _generator(tuple(x.shape[1:]), settings.generator_channels).to(device)
    features = net[0]
    average, adam = nets.averaged(net), nets.optimiser(net, weight_decay=settings.weight_decay, momentum=_MOMENTUM)
    forger = nets.optimiser(generator, weight_decay=0.0, momentum=_MOMENTUM)
    shares = nets.class_shares(labels, net[-1].out_features)
    answered, labels = nets.balanced(settings, answered, labels)
    running = shares.clone()
    trust, rise = torch.ones((), device=device), torch.zeros((), device=device)
    batch, public_batch = settings.batch, settings.public_batch

    def before(done: float) -> None:
        nets.schedule(adam, settings, done)
        nets.schedule(forger, settings, done, share=0.5)
        trust.fill_(nets.faded(settings.fade, done))
        rise.fill_(min(1.0, done / settings.rise) if settings.rise > 0 else 1.0)

    def real() -> Any:
        return x[torch.randint(len(x), (public_batch,), device=device)]

    def forged() -> Any:
        images = generator(torch.randn(public_batch, _LATENT, device=device))
        return images + settings.view.jitter * torch.randn_like(images)

    def step() -> None:
        some = torch.randint(len(answered), (batch,), device=device)
        with torch.no_grad():
            made_up = forged()
        public = real()
        looks = (x[answered[some]], public, public) if settings.consistency > 0 else (x[answered[some]], public)
        seen = nets.distort(torch.cat(looks), settings.view)
        adam.zero_grad(set_to_none=True)
        scores = net(torch.cat((seen, made_up)))
        realness = scores.logsumexp(1)  # log odds of being real
        free = scores[batch : batch + public_batch].log_softmax(1)
        judged = softplus(-realness[batch : batch + public_batch]) + softplus(realness[-public_batch:])
        again = scores[-2 * public_batch : -public_batch].log_softmax(1)  # the same look where there is one only
        loss = (
            trust * nets.cross_entropy(scores[:batch].log_softmax(1), labels[some], settings.wrong)
            + settings.realness * judged.mean()
            + rise
            * (
                settings.consistency * nets.kl_divergence(free.detach(), again)
                + settings.entropy * nets.entropy(free)
                + settings.balance * nets.unbalanced(free, running, shares)
            )
        )
        loss.backward()
        adam.step()
        forger.zero_grad(set_to_none=True)
        with torch.no_grad():
            wanted = features(nets.distort(real(), settings.view)).mean(0)
        (features(forged()).mean(0) - wanted).square().mean().backward()
        forger.step()
        nets.follow(average, net, settings.averaging)

    nets.repeat(step, times=settings.steps, before=before, device=device, progress=progress)
    return average


def _generator(shape: tuple[int, ...], channels: int) -> Any:
    """From random numbers to images in [0, 1] of ``shape`` (channels, height, width)."""
    nn = require_torch().nn
    depth, height, width = shape
    low, high = -(-height // 4), -(-width // 4)
    return nn.Sequential(
        nn.Linear(_LATENT, channels * low * high, bias=False),
        nn.BatchNorm1d(channels * low * high),
        nn.ReLU(),
        nn.Unflatten(1, (channels, low, high)),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(channels, channels // 2, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels // 2),
        nn.ReLU(),
        nn.Upsample(size=(height, width)),
        nn.Conv2d(channels // 2, depth, 3, padding=1),
        nn.Sigmoid(),
    )
