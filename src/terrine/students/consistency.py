"""Students that are consistent: what a net sees in a public row, it must see in a changed view of that row.

`VATStudent`: the row moved a small step in the direction in which the prediction changes most (virtual adversarial
training, Miyato et al., TPAMI 2019, with its entropy term; the paper's student for many classes). `MatchStudent`: also
the row strongly distorted at random (UDA, Xie et al., 2020), and answers that nets trained without them contradict are
left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from terrine import _validate
from terrine._optional import require_torch
from terrine.students import nets
from terrine.students.nets import Distortion, NetSettings, Progress

_STRONG = Distortion(rotate=20, zoom=0.2, shear=0.2, shift=3, erase=0.3, jitter=0.1)
_SMALL: dict[str, Any] = {
    "channels": (16, 32, 64),
    "batch": 32,
    "public_batch": 64,
    "learning_rate": 5e-3,
    "averaging": 0.98,
    "steps": 700,
}
_PAPER_EPOCHS, _PAPER_PUBLIC, _PAPER_BATCH = 400, 100_000, 128
_PAPER: dict[str, Any] = {
    "depth": 2,
    "steps": _PAPER_EPOCHS * _PAPER_PUBLIC // _PAPER_BATCH,
    "public_batch": _PAPER_BATCH,
    "learning_rate": 6e-5,
    "schedule": "constant",
    "weight_decay": 0.0,
    "averaging": 0.0,
    "wrong": 0.0,
    "fade": 0.0,
    "view": Distortion(rotate=0, zoom=0, shear=0, shift=0, jitter=0),
    "balance": 0.0,
    "rise": 0.0,
}


@dataclass(frozen=True, kw_only=True)
class VATStudent(NetSettings):
    """A net that also learns from the rows without an answer, by virtual adversarial training.

    Attributes:
        radius: of the adversarial step: its root mean square, where a pixel's range, or a feature's deviation, is 1.
        smoothness, entropy, balance: weights of the three terms on all public rows: predictions do not change within
            the radius, are sure, and the classes have the shares that they have among the answers.
        rise: share of the training over which these weights rise to their full size.

    The other settings are those of `NetSettings`.
    """

    radius: float = 0.107
    smoothness: float = 1.0
    entropy: float = 1.0
    balance: float = 1.0
    rise: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.positive("radius", self.radius)
        for name in ("smoothness", "entropy", "balance", "rise"):
            nets.at_least_0(self, name)

    @classmethod
    def small(cls, **settings: Any) -> VATStudent:
        """About a minute on two cores for a few thousand 28 x 28 images; ``settings`` change single ones."""
        return cls(**{**_SMALL, **settings})

    @classmethod
    def paper(cls, **settings: Any) -> VATStudent:
        """The paper's Glyph student: Adam at 6e-5 for 400 epochs; ``settings`` change single ones.

        An epoch is its 100,000 public images, in batches of 128: give other ``steps`` for another number of rows. It
        prints neither the net (six convolutions here), batch, radius nor weights (Miyato et al.'s, with their entropy
        term), and names no augmentation, averaging or weight decay (none here).
        """
        return cls(**{**_PAPER, **settings})


@dataclass(frozen=True, kw_only=True)
class MatchStudent(NetSettings):
    """A net that also learns from the rows without an answer, by agreeing with itself on distorted rows.

    Attributes:
        strong: how rows are distorted for the second look; for the first it is ``view``.
        consistency, entropy, balance: weights of the three terms on all public rows: the looks agree, predictions are
            sure, and the classes have the shares that they have among the answers.
        radius: of the step to a third look, an adversarial one as in `VATStudent`; 0 for none.
        rise: share of the training over which these weights rise to their full size.

    The other settings are those of `NetSettings`.
    """

    folds: int = 2
    strong: Distortion = field(default=_STRONG)
    consistency: float = 1.0
    entropy: float = 1.0
    balance: float = 1.0
    radius: float = 0.107
    rise: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        nets.given_view(self, "strong")
        for name in ("consistency", "entropy", "balance", "radius", "rise"):
            nets.at_least_0(self, name)

    @classmethod
    def small(cls, **settings: Any) -> MatchStudent:
        """About a minute on two cores for a few thousand 28 x 28 images; ``settings`` change single ones."""
        return cls(**{**_SMALL, "folds": 0, "radius": 0.0, **settings})


def train_consistency(
    settings: VATStudent | MatchStudent,
    x: Any,
    answered: Any,
    labels: Any,
    *,
    fresh: Callable[[], Any],
    device: str,
    progress: Progress | None,
) -> Any:
    """A net trained on rows ``x``, of which ``answered`` have ``labels``."""
    torch = require_torch()
    if isinstance(settings, MatchStudent):
        strong, weight = settings.strong, settings.consistency
    else:
        strong, weight = None, settings.smoothness
    net = fresh()
    average, adam = nets.averaged(net), nets.optimiser(net, weight_decay=settings.weight_decay)
    shares = nets.class_shares(labels, net[-1].out_features)
    answered, labels = nets.balanced(settings, answered, labels)
    running = shares.clone()
    trust, rise = torch.ones((), device=device), torch.zeros((), device=device)
    batch, public_batch = settings.batch, settings.public_batch

    def before(done: float) -> None:
        nets.schedule(adam, settings, done)
        trust.fill_(nets.faded(settings.fade, done))
        rise.fill_(min(1.0, done / settings.rise) if settings.rise > 0 else 1.0)

    def step() -> None:
        some = torch.randint(len(answered), (batch,), device=device)
        public = x[torch.randint(len(x), (public_batch,), device=device)]
        seen = nets.distort(torch.cat((x[answered[some]], public)), settings.view)
        plain = seen[batch:]
        if strong is not None:
            seen = torch.cat((seen, nets.distort(public, strong)))
        adam.zero_grad(set_to_none=True)
        log_p = net(seen).log_softmax(1)
        free = log_p[batch : batch + public_batch]
        target = free.detach()
        views = [] if strong is None else [log_p[batch + public_batch :]]
        if settings.radius > 0:
            views.append(net(nets.adversarial(net, plain, target, settings.radius)).log_softmax(1))
        loss = trust * nets.cross_entropy(log_p[:batch], labels[some], settings.wrong) + rise * (
            weight * sum(nets.kl_divergence(target, view) for view in views)
            + settings.entropy * nets.entropy(free)
            + settings.balance * nets.unbalanced(free, running, shares)
        )
        loss.backward()
        adam.step()
        nets.follow(average, net, settings.averaging)

    nets.repeat(step, times=settings.steps, before=before, device=device, progress=progress)
    return average
