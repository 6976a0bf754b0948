"""Consistency: what a net sees in a public row, it must see in the row distorted, at random and against it.

UDA (Xie et al., 2020) and virtual adversarial training in one, made to bear wrong answers: those that nets trained
without them contradict are left out, and the rest fade.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from terrine.students import nets
from terrine.students.nets import Distortion, NetSettings, Progress, torch_or_say

_STRONG = Distortion(rotate=20, zoom=0.2, shear=0.2, shift=3, erase=0.3, jitter=0.1)


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
        few = {"channels": (16, 32, 64), "batch": 32, "public_batch": 64, "learning_rate": 5e-3, "averaging": 0.98}
        return cls(**{**few, "steps": 700, "folds": 0, "radius": 0.0, **settings})


def train_match(
    settings: MatchStudent,
    x: Any,
    answered: Any,
    labels: Any,
    *,
    fresh: Callable[[], Any],
    device: str,
    progress: Progress | None,
) -> Any:
    """A net trained on rows ``x``, of which ``answered`` have ``labels``."""
    torch = torch_or_say()
    net = fresh()
    average, adam = nets.averaged(net), nets.optimiser(net, weight_decay=settings.weight_decay)
    shares = nets.class_shares(labels, net[-1].out_features)
    running = shares.clone()
    trust, rise = torch.ones((), device=device), torch.zeros((), device=device)
    batch, public_batch = settings.batch, settings.public_batch

    def before(done: float) -> None:
        nets.schedule(adam, settings.learning_rate, done)
        trust.fill_(nets.faded(settings.fade, done))
        rise.fill_(min(1.0, done / settings.rise) if settings.rise > 0 else 1.0)

    def step() -> None:
        some = torch.randint(len(answered), (batch,), device=device)
        public = x[torch.randint(len(x), (public_batch,), device=device)]
        first = nets.distort(torch.cat((x[answered[some]], public)), settings.view)
        second = nets.distort(public, settings.strong)
        adam.zero_grad(set_to_none=True)
        log_p = net(torch.cat((first, second))).log_softmax(1)
        free = log_p[batch : batch + public_batch]
        apart = nets.apart(free.detach(), log_p[batch + public_batch :])
        if settings.radius > 0:
            worst = nets.adversarial(net, first[batch:], free.detach(), settings.radius)
            apart = apart + nets.apart(free.detach(), net(worst).log_softmax(1))
        loss = trust * nets.told(log_p[:batch], labels[some], settings.wrong) + rise * (
            settings.consistency * apart
            + settings.entropy * nets.unsure(free)
            + settings.balance * nets.unbalanced(free, running, shares)
        )
        loss.backward()
        adam.step()
        nets.follow(average, net, settings.averaging)

    nets.repeat(step, times=settings.steps, before=before, device=device, progress=progress)
    return average
