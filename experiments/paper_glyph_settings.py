"""What paper_glyph.py runs: sizes, mechanisms, which rows get which labels, learners, and the order of the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from glyph_students import NET
from scipy.special import ndtr

from terrine.mechanisms import ABSTAIN, ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, answer
from terrine.noise import SeededNoise
from terrine.students import Distortion, GANStudent, MatchStudent, VATStudent
from terrine.votes import Votes

DELTA = 1e-8
SEEDS = range(3)
K = 4000  # answers of the experiment that takes the aggregators apart


@dataclass(frozen=True, kw_only=True)
class Size:
    """Numbers of images, teachers, questions and steps."""

    public: int = 100_000
    all_public: int = 200_000
    test: int = 50_000
    queries: int = 25_000  # whose votes are kept
    teachers: int = 5000
    each: int = 3000
    feature_steps: int = 3000
    fixed_queries: int = 4000  # of ensembles that split a fixed set
    # images, teachers, steps
    ensembles: tuple[tuple[int, int, int], ...] = (
        (15_000_000, 5000, 1500),
        (15_000_000, 1000, 3000),
        (15_000_000, 500, 3000),
        (15_000_000, 100, 6000),
        (1_500_000, 100, 3000),
        (1_500_000, 500, 1500),
        (1_500_000, 1000, 1500),
        (1_500_000, 5000, 1000),
    )
    resnets: int = 100
    resnet_each: int = 13_000  # as the paper's 5,000 teachers have
    resnet_steps: int = 4000  # at most
    resnet_queries: int = 16_000
    lanes: int = 25
    timed: int = 30  # steps that are timed first
    least: int = 50  # steps of a teacher, or it is left out
    steps: int = 3000  # of students
    short: int = 1500  # of students that are compared among one another
    gan: int = 3000
    many: int = 6000  # with many labels
    epochs: int = 400  # of the public images: the paper's VAT
    some_epochs: int = 16  # of these, where 400 would take too long
    baseline: int = 1_000_000
    small: bool = False  # nets of a few channels
    as_many: bool = False  # questions as with 5,000 teachers, with fewer
    auto: int = 0  # public images that features are learned from where there is no GPU
    asked: float = 1.0  # share of them, then

    @property
    def scale(self) -> float:
        """Of thresholds, noise and numbers of questions, against the paper's."""
        return self.teachers / 5000


TOY = Size(
    public=600, all_public=700, test=100, queries=400, teachers=50, each=20, feature_steps=1, fixed_queries=100,
    ensembles=((1000, 50, 10), (1000, 10, 10)), resnets=2, resnet_each=20, resnet_steps=1,
    resnet_queries=400, lanes=2, timed=1, least=1, steps=4, short=3, gan=3, many=3, epochs=1, some_epochs=1,
    baseline=700, small=True, asked=0.01,
)  # fmt: skip
TRIAL = Size(resnets=25, resnet_each=500, resnet_queries=500)  # of the residual nets alone, to time them
AGAIN = Size(ensembles=Size().ensembles[:1])  # the votes of the 5,000 alone
CPU = Size(public=16_000, auto=10_000)  # students that want no GPU, by the votes of residual nets
SIZES = {"full": Size(), "again": AGAIN, "toy": TOY, "trial": TRIAL, "cpu": CPU}

LNMAX, CONFIDENT, TEXT, HEAD, BOTH = (
    "LNMax",
    "Confident-GNMax",
    "Confident-GNMax, more withheld and more noise",
    "GNMax, 8,000 answers, ε = 0.8",
    "Interactive-GNMax, two rounds",
)
TABLE = (LNMAX, CONFIDENT, TEXT, BOTH, HEAD)
# Who answers the first K of the rows that it answers, or whose labels stand there in its place
LN, LOW, MODERATE = "LNMax", "Confident, T = 1000", "Confident, T = 3500"
PLURALITY_THERE, TRUTH_THERE = "plurality, where T = 3500 answered", "truth, where T = 3500 answered"
PLURALITY_ALL, TRUTH_ALL = "plurality, first questions", "truth, first questions"
PLURALITY_RIGHT = "plurality, first questions, wrong answers left out"
EVEN, SHARES_BACK = "plurality, as many of each class", "plurality, where T = 3500 answered, class shares of all"
TAKEN = (LN, LOW, MODERATE, PLURALITY_ALL, PLURALITY_THERE, SHARES_BACK, EVEN, PLURALITY_RIGHT, TRUTH_ALL, TRUTH_THERE)
MANY_PLURALITY, MANY_NOISY = "200,000 labels: plurality", "200,000 labels: GNMax, σ = 100"
MANY_RECORDED, MANY_TRUE = "200,000 labels: as recorded", "200,000 labels: true"
MANY = (MANY_PLURALITY, MANY_NOISY, MANY_RECORDED, MANY_TRUE)
BASE, BASE_TRUE = "a million private images, labels as recorded", "a million private images, true labels"
FIRST_100, THEIRS_100 = "MNIST, LNMax, the first 100 rows", "MNIST, LNMax, the 100 rows of the paper's student"
PRIVATE, OPEN, OPEN_TRUTH = "MNIST, Confident-GNMax", "MNIST, plurality, first rows", "MNIST, truth, first rows"
MNIST = (FIRST_100, THEIRS_100, PRIVATE, OPEN, OPEN_TRUTH)


def learner_of(name: str, size: Size) -> Any:
    """A learner's settings."""
    found = LEARNERS[name](size)
    return replace(found, channels=(4, 8), batch=8, public_batch=8) if size.small else found


def taken(who: str, k: int) -> str:
    return f"{k:,} answers: {who}"


VAT, SHORT, PLAIN_VAT, SUPERVISED, FEATURES = "VAT", "VAT, short", "VAT alone", "supervised alone", "Features"
AUTO = "Features, no GPU"  # by `terrine.fit_auto`: scattering and small pieces
EPOCHS, SOME_EPOCHS = "VAT alone, 400 epochs", "VAT alone, the paper's rate, 16 of its 400 epochs"
GAN, SALIMANS, NET_OF_ALL = "GAN", "GAN of Salimans et al.", "supervised, many labels"
MNIST_GAN, MNIST_SALIMANS, MNIST_VAT = "GAN, MNIST", "GAN of Salimans et al., MNIST", "VAT, MNIST"
SMALL_SALIMANS, SMALL_GAN = "small GAN of Salimans et al., MNIST", "small GAN, MNIST"  # without a GPU
NOTHING = Distortion(rotate=0, zoom=0, shear=0, shift=0, jitter=0)


def _alone(net: VATStudent, *, steps: int) -> VATStudent:
    """Miyato et al.'s: cross-entropy and smoothness, and nothing that is ours."""
    return replace(net, steps=steps, view=NOTHING, wrong=0.0, fade=0.0, entropy=0.0, balance=0.0, rise=0.0)


def _supervised(*, steps: int, batch: int = 256) -> MatchStudent:
    """The same net by cross-entropy on the answers and their distorted views."""
    none = {"folds": 0, "consistency": 0.0, "entropy": 0.0, "balance": 0.0, "radius": 0.0, "fade": 0.0}
    like = {"channels": NET.channels, "depth": NET.depth, "view": NET.view, "wrong": NET.wrong}
    return MatchStudent(**none, **like, strong=NOTHING, steps=steps, batch=batch, public_batch=2)


def _gan(*, steps: int, plain: bool, images: int) -> GANStudent:
    """Ours, or with the losses of Salimans et al. alone."""
    if plain:
        return GANStudent(steps=steps, batch=images, public_batch=images, consistency=0.0, entropy=0.0, balance=0.0,
                          fade=0.0, wrong=0.0)  # fmt: skip
    return GANStudent(steps=steps, batch=images, public_batch=images)


def _small(gan: GANStudent) -> GANStudent:
    return replace(gan, channels=(16, 32, 64), generator_channels=32)


LEARNERS: dict[str, Callable[[Size], Any]] = {
    VAT: lambda size: replace(NET, steps=size.steps),
    SHORT: lambda size: replace(NET, steps=size.short),
    PLAIN_VAT: lambda size: _alone(NET, steps=size.steps),
    EPOCHS: lambda size: VATStudent.paper(steps=max(1, size.epochs * size.public // 128)),  # its preset's batches
    SOME_EPOCHS: lambda size: VATStudent.paper(steps=max(1, size.some_epochs * size.public // 128)),
    SUPERVISED: lambda size: _supervised(steps=size.steps),
    NET_OF_ALL: lambda size: _supervised(steps=size.many, batch=512),
    GAN: lambda size: replace(
        _gan(steps=min(size.gan, 2000), plain=False, images=128), channels=NET.channels, depth=NET.depth
    ),
    SALIMANS: lambda size: replace(
        _gan(steps=min(size.gan, 2000), plain=True, images=128), channels=NET.channels, depth=NET.depth
    ),
    MNIST_GAN: lambda size: GANStudent(steps=size.gan, folds=2),
    MNIST_SALIMANS: lambda size: _gan(steps=size.gan, plain=True, images=64),
    MNIST_VAT: lambda size: VATStudent(steps=min(size.gan, 2000)),
    SMALL_SALIMANS: lambda size: _small(_gan(steps=min(size.gan, 1500), plain=True, images=64)),
    SMALL_GAN: lambda size: _small(_gan(steps=min(size.gan, 1500), plain=False, images=64)),
}


@dataclass(frozen=True, kw_only=True)
class Job:
    setting: str
    learner: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Known:
    """Images, the symbols drawn and the labels recorded, votes and features of the public and the test split."""

    size: Size
    path: str
    out: Path
    public: Any
    true: Any
    label: Any
    test: Any
    test_true: Any
    test_label: Any
    votes: dict[str, Any]
    features: tuple[Any, ...]

    def rare(self, symbols: Any) -> Any:
        """Which of these are of the third of the classes that are drawn least."""
        shares = np.bincount(self.test_true, minlength=150)
        return np.isin(symbols, np.argsort(shares, kind="stable")[:50])


def by_teachers(setting: str) -> bool:
    """Whether the labels are made of the teachers' votes on Glyph."""
    return setting in (*TABLE, MANY_PLURALITY, MANY_NOISY) or " answers: " in setting


def scaled(n: float, size: Size) -> int:
    return round(n * (size.asked if size.as_many else size.scale))


def questions(setting: str, size: Size) -> int:
    """Public rows that a setting of the table asks about, in its first round."""
    return scaled({LNMAX: 4000, CONFIDENT: 12_000, TEXT: 12_000, BOTH: 6000, HEAD: 8000}[setting], size)


def confident(threshold: float, sigma_check: float, sigma_vote: float, size: Size) -> ConfidentGNMax:
    """Of the paper's numbers, which are for 5,000 teachers."""
    s = size.scale
    return ConfidentGNMax(threshold=threshold * s, sigma_check=sigma_check * s, sigma_vote=sigma_vote * s)


def withheld_as_the_text(counts: Any, size: Size) -> float:
    """The threshold at which 1,300 of 12,000 questions are expected to be withheld, to 50 votes, with σ₁ = 500."""
    top = counts[: questions(TEXT, size)].max(axis=1) / size.scale
    grid = np.arange(500.0, 5001.0, 50.0)
    kept = np.array([ndtr((top - threshold) / 500).mean() for threshold in grid])
    return float(grid[np.argmin(np.abs(kept - (1 - 1300 / 12_000)))])


def mechanism(setting: str, counts: Any, size: Size) -> LNMax | GNMax | ConfidentGNMax:
    """Of a setting of the table; of two rounds, the first."""
    match setting:
        case "LNMax":
            return LNMax(scale=100 * size.scale)
        case "GNMax, 8,000 answers, ε = 0.8":
            return GNMax(sigma=674.9 * size.scale)
        case "Confident-GNMax":
            return confident(1000, 500, 100, size)
        case "Interactive-GNMax, two rounds":
            return confident(3500, 1500, 100, size)
        case _:
            return confident(withheld_as_the_text(counts, size), 500, 200, size)


def second_round(size: Size) -> InteractiveGNMax:
    first = confident(3500, 2000, 200, size)
    return InteractiveGNMax(**vars(first), student_confidence=0.9)


def second_rows(size: Size) -> Any:
    start = questions(BOTH, size)
    return np.arange(start, start + scaled(10_000, size))


def labels_of(job: Job, known: Known) -> tuple[Any, dict[str, Any]]:
    """A label, or ABSTAIN, for every public row, and facts about them."""
    size, votes = known.size, known.votes
    if job.setting in MANY:
        return votes["plurality" if job.setting == MANY_PLURALITY else "noisy"].astype(np.int64), {}
    counts = votes["counts"].astype(np.int64)
    labels = np.full(size.public, ABSTAIN, dtype=np.int64)
    if job.setting in TABLE:
        n = questions(job.setting, size)
        how = mechanism(job.setting, counts, size)
        given = answer(how, Votes(counts[:n], n_teachers=size.teachers), rng=SeededNoise(job.seed))
        labels[:n] = given.labels
        return labels, {"questions": n, "mechanism": [float(v) for v in vars(how).values()]}
    number, who = job.setting.split(" answers: ")
    rows, said = first_answers(who, int(number.replace(",", "")), counts, known, job.seed)
    labels[rows] = said
    return labels, {"questions": int(rows.max()) + 1}


def first_answers(who: str, k: int, counts: Any, known: Known, seed: int) -> tuple[Any, Any]:
    """Rows, and their labels: the first k that ``who`` answers, of the questions whose votes are kept."""
    size, plurality = known.size, counts.argmax(axis=1)
    k = scaled(k, size)
    everyone = np.arange(len(counts))
    rng = np.random.default_rng([seed, 19])
    match who:
        case "plurality, first questions":
            return everyone[:k], plurality[:k]
        case "truth, first questions":
            return everyone[:k], known.true[:k]
        case "plurality, first questions, wrong answers left out":
            right = everyone[:k][(plurality == known.true[: len(counts)])[:k]]
            return right, plurality[right]
        case "plurality, as many of each class":
            rows = even(plurality, rng.permutation(everyone), k)
            return rows, plurality[rows]
    how: Any = LNMax(scale=100 * size.scale)
    if who != LN:
        how = confident(*((1000, 500, 100) if who == LOW else (3500, 1500, 100)), size)
    given = answer(how, Votes(counts, n_teachers=size.teachers), rng=SeededNoise(seed)).labels
    answered = np.flatnonzero(given != ABSTAIN)
    if who == SHARES_BACK:
        rows = matched(plurality, answered, np.bincount(plurality, minlength=150) / len(counts), k)
        return rows, plurality[rows]
    rows = answered[:k]
    there = {PLURALITY_THERE: plurality, TRUTH_THERE: known.true}
    return rows, there.get(who, given)[rows]


def even(classes: Any, order: Any, k: int) -> Any:
    """k rows, as many of every class as there are, in this order."""
    rank = np.empty(len(order), dtype=np.int64)
    for c in np.unique(classes):
        mine = order[classes[order] == c]
        rank[mine] = np.arange(len(mine))
    return np.sort(order[np.argsort(rank[order], kind="stable")[:k]])


def matched(classes: Any, rows: Any, shares: Any, k: int) -> Any:
    """About k of these rows, the first of each class, with these shares of the classes."""
    found = []
    for c in range(len(shares)):
        mine = rows[classes[rows] == c]
        found.append(mine[: round(k * shares[c])])
    return np.sort(np.concatenate(found))


def mnist_labels(job: Job, true: Any, folder: Path) -> Any:
    """Of MNIST's 9,000 public rows, by the paper's votes."""
    counts = np.load(folder / "mnist_250_teachers.npy").astype(np.int64)
    labels = np.full(len(true), ABSTAIN, dtype=np.int64)
    if job.setting in (FIRST_100, THEIRS_100):
        theirs = np.load(folder / "mnist_250_teachers_100_indices_used_by_student.npy").astype(np.int64)
        rows = theirs if job.setting == THEIRS_100 else np.arange(100)
        votes = Votes(counts[rows], n_teachers=250)
        labels[rows] = answer(LNMax(scale=20), votes, rng=SeededNoise(job.seed)).labels
        return labels
    how = ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40)
    given = answer(how, Votes(counts[:640], n_teachers=250), rng=SeededNoise(job.seed)).labels
    if job.setting == PRIVATE:
        labels[:640] = given
        return labels
    k = int((given != ABSTAIN).sum())
    labels[:k] = counts[:k].argmax(axis=1) if job.setting == OPEN else true[:k]
    return labels


def _jobs(*pairs: tuple[str, str], seeds: range = SEEDS) -> list[Job]:
    return [Job(setting=setting, learner=learner, seed=seed) for seed in seeds for setting, learner in pairs]


STAGES = (250, 500, 1000, 2000, 4000, 8000, 12_000)
GROUPS: dict[str, list[Job]] = {  # each by worth
    "features": _jobs(
        *((setting, FEATURES) for setting in TABLE),
        *((taken(who, K), FEATURES) for who in TAKEN),
        *((taken(who, k), FEATURES) for who in (LN, LOW, MODERATE, PLURALITY_ALL, EVEN) for k in STAGES if k != K),
    ),
    "table": _jobs(*((setting, VAT) for setting in TABLE)),
    "apart": _jobs(*((taken(who, K), SHORT) for who in TAKEN)),
    "paper": _jobs(*((setting, PLAIN_VAT) for setting in (CONFIDENT, LNMAX, BOTH))),
    "epochs": _jobs((CONFIDENT, EPOCHS), (LNMAX, EPOCHS), (BOTH, EPOCHS), seeds=range(1)),
    "rate": _jobs((CONFIDENT, SOME_EPOCHS), seeds=range(1)),
    "plain": _jobs((LNMAX, SUPERVISED), (CONFIDENT, SUPERVISED)),
    "gan": _jobs((CONFIDENT, SALIMANS), (CONFIDENT, GAN), seeds=range(2)),
    "many": _jobs((MANY_NOISY, NET_OF_ALL), (MANY_PLURALITY, NET_OF_ALL), seeds=range(2)),
    "stages": _jobs(*((taken(who, k), SHORT) for k in (1000, 2000) for who in (LN, LOW, MODERATE)), seeds=range(2)),
    "mnist": _jobs((THEIRS_100, MNIST_SALIMANS), (FIRST_100, MNIST_SALIMANS), (FIRST_100, MNIST_GAN))
    + _jobs(*((setting, MNIST_VAT) for setting in (PRIVATE, OPEN, OPEN_TRUTH))),
    "auto": _jobs(*((setting, AUTO) for setting in TABLE))
    + _jobs(*((taken(who, k), AUTO) for who in (PLURALITY_ALL, TRUTH_ALL) for k in (K, 12_000)), seeds=range(1)),
    "small": _jobs((FIRST_100, SMALL_SALIMANS), (FIRST_100, SMALL_GAN), (THEIRS_100, SMALL_SALIMANS)),
    "baseline": _jobs((BASE, NET_OF_ALL), (BASE_TRUE, NET_OF_ALL), (MANY_RECORDED, NET_OF_ALL), (MANY_TRUE, NET_OF_ALL),
                      seeds=range(2)),
}  # fmt: skip
