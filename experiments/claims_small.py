"""Claims on students whose full size wants a GPU, from the small nets of paper_small.py; none is the paper's size."""

from __future__ import annotations

from statistics import mean
from typing import Any

from compare import NOT_TESTED, better, decided, in_points, paired
from paper_small_page import PLAIN, Runs, average, duels, of, open_pairs, rivals, wrong_settings

LINK = "([small nets](paper_small.md))"


def numbers(runs: Runs) -> dict[str, Any]:
    """What the verdicts rest on: by seed, in pairs."""
    wrong = []
    for setting in wrong_settings(runs):
        some = of(runs, "glyph", setting, PLAIN)
        keys = ("plurality_right", "top_share", "epsilon", "accuracy")
        by_seed = {"epsilons": [run["epsilon"] for run in some]}
        wrong.append({"records": setting, **{key: average(some, key) for key in keys}, **by_seed})
    return {"training": duels(runs), "rivals": rivals(runs), "open": open_pairs(runs), "wrong": wrong}


def rows_of_small(found: dict[str, Any]) -> list[list[str]]:
    return [
        training(found["training"]),
        learners(found["rivals"], "VAT against the GAN", "VAT beats a semi-supervised GAN (50 symbols of Glyph)"),
        learners(found["rivals"], "semi-supervised against supervised", "Semi-supervision is instrumental (the same)"),
        mislabeled(found["wrong"]),
        private(found["open"]),
    ]  # fmt: skip


def training(looks: list[Any]) -> list[str]:
    """Looks at one training are not so many experiments: the verdict is by learner, over the whole of it."""
    claim = "Accuracy is higher throughout training with Confident-GNMax than with LNMax (Figure 1, left; here MNIST)"
    if not looks:
        return [claim, "–", NOT_TESTED]
    said, cases = [], []
    for learner in dict.fromkeys(look[0] for look in looks):
        pairs = [(mine, theirs) for name, _, mine, theirs in looks if name == learner]
        ahead = sum(mean(mine) > mean(theirs) for mine, theirs in pairs)
        whole = [[mean(values) for values in zip(*side, strict=True)] for side in zip(*pairs, strict=True)]
        cases.append(better(*whole, by=paired))
        said.append(f"{learner}: ahead at {ahead} of {len(pairs)} looks, over all of them "
                    f"{in_points(*whole, by=paired)} points")  # fmt: skip
    return [claim, f"as many answers of each, the paper's votes; {'; '.join(said)} {LINK}", decided(cases)]


def learners(pairs: list[Any], what: str, claim: str) -> list[str]:
    mine = [pair for pair in pairs if pair[0] == what]
    if not mine:
        return [claim, "–", NOT_TESTED]
    said = [f"{one} less {other} {in_points(a, b, by=paired)}" for _, one, other, a, b in mine]
    verdict = decided([better(a, b, by=paired) for *_, a, b in mine])
    return [claim, f"points on recorded labels: {'; '.join(said)} {LINK}", verdict]


def mislabeled(rows: list[Any]) -> list[str]:
    claim = "Mislabeled inputs cost more privacy (small Glyph: the same images, fewer or more wrong records)"
    if not rows:
        return [claim, "–", NOT_TESTED]
    said = "; ".join(
        f"{row['records']}: top vote {row['top_share']:.1%}, ε {row['epsilon']:.1f}, student {row['accuracy']:.1%}"
        for row in rows
    )
    none, *others = rows
    cases = [better(row["epsilons"], none["epsilons"], by=paired) for row in others]
    return [claim, f"{said} (the paper's accountant, 250 teachers) {LINK}", decided(cases)]


def private(pairs: list[Any]) -> list[str]:
    claim = "Private labels train a better student than as many open ones: on MNIST, by the paper's votes"
    if not pairs:
        return [claim, "–", NOT_TESTED]
    cases = [better(mine, theirs, by=paired) for *_, mine, theirs in pairs]
    said = f"{len(pairs)} cases of mechanisms, students and open labels: private answers are better in "
    said += f"{cases.count(True)}, worse in {cases.count(False)}, within chance in {cases.count(None)}; the means of "
    apart = [mean(mine) - mean(theirs) for *_, mine, theirs in pairs]
    said += f"the differences go from {100 * min(apart):+.1f} to {100 * max(apart):+.1f} points {LINK}"
    return [claim, said.replace("-", "−"), decided(cases)]
