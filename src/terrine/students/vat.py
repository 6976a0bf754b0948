"""Virtual adversarial training: predictions stay the same in the direction in which they would change most.

Miyato et al., "Virtual adversarial training", TPAMI 2019, with its entropy term; the paper's student for many classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from terrine import _validate
from terrine.students import nets
from terrine.students.nets import NetSettings, Progress, torch_or_say


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
        few = {"channels": (16, 32, 64), "batch": 32, "public_batch": 64, "learning_rate": 5e-3, "averaging": 0.98}
        return cls(**{**few, "steps": 700, **settings})


def train_vat(
    settings: VATStudent,
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
        any_ = torch.randint(len(x), (public_batch,), device=device)
        seen = nets.distort(torch.cat((x[answered[some]], x[any_])), settings.view)
        adam.zero_grad(set_to_none=True)
        log_p = net(seen).log_softmax(1)
        free, public = log_p[batch:], seen[batch:]
        worst = net(nets.adversarial(net, public, free.detach(), settings.radius)).log_softmax(1)
        loss = trust * nets.told(log_p[:batch], labels[some], settings.wrong) + rise * (
            settings.smoothness * nets.apart(free.detach(), worst)
            + settings.entropy * nets.unsure(free)
            + settings.balance * nets.unbalanced(free, running, shares)
        )
        loss.backward()
        adam.step()
        nets.follow(average, net, settings.averaging)

    nets.repeat(step, times=settings.steps, before=before, device=device, progress=progress)
    return average
