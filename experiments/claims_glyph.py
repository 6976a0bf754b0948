"""Claims that rest on paper_glyph.py: each with our numbers and a verdict.

Students are compared by their seeds (compare.py): what does not differ beyond chance supports nothing.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import mean
from typing import Any

from compare import NOT_HERE, NOT_TESTED, better, decided
from votesets import markdown

from terrine.accounting.curves import round_up

Claim = list[str]  # what is claimed, our numbers, verdict
LINK = "([Glyph](paper_glyph.md))"
SHORT, FEATURES, MANY_LABELS = "VAT, short", "Features", "supervised, many labels"
PLURALITY, TRUTH, EVEN = "plurality, first questions", "truth, first questions", "plurality, as many of each class"
BASE, MANY = "a million private images, labels as recorded", "200,000 labels: as recorded"
BASE_TRUE = "a million private images, true labels"
OPEN = {"MNIST, plurality, first rows": "plurality without noise", "MNIST, truth, first rows": "true labels"}


def rows_of_glyph(g: dict[str, Any]) -> list[Claim]:
    found = [
        confident(g),
        interactive(g),
        rounds(g),
        fixed_set(g),
        imbalance(g),
        many(g),
        mislabelled(g),
        open_labels(g),
        *open_on_mnist(g),
    ]
    return [*found, *learners(g)]


def student(g: dict[str, Any], setting: str, learner: str, score: str = "accuracy_recorded") -> list[float] | None:
    """By seed."""
    rows = [row for row in [*g["table"], *g["others"]] if (row["setting"], row["learner"]) == (setting, learner)]
    return rows[0][score] if rows else None


def of(g: dict[str, Any], who: str, learner: str) -> list[float]:
    """By seed, on the symbols drawn: one of the rows of 4,000 labels."""
    found: list[float] = next(r["accuracy"] for r in g["apart"] if (r["who"], r["learner"]) == (who, learner))
    return found


def pair(g: dict[str, Any], one: str, other: str) -> tuple[str, list[bool | None]]:
    """Two settings of the table by learner, on recorded labels, as the paper scores."""
    said, cases = [], []
    for learner in dict.fromkeys(row["learner"] for row in g["table"]):
        first, second = (student(g, setting, learner) for setting in (one, other))
        if first and second:
            said.append(f"{learner} {mean(first):.1%} against {mean(second):.1%}")
            cases.append(better(first, second))
    nets = {"table": g.get("resnets", []), "others": []}  # by teachers of the paper's kind, what was trained
    for learner in dict.fromkeys(row["learner"] for row in nets["table"]):
        first, second = (student(nets, setting, learner) for setting in (one, other))
        if first and second:
            said.append(f"by ResNet-32 teachers, {learner} {mean(first):.1%} against {mean(second):.1%}")
            cases.append(better(first, second))
    return "on recorded labels " + "; ".join(said), cases


def confident(g: dict[str, Any]) -> Claim:
    said, cases = pair(g, "Confident-GNMax", "LNMax")
    moderate, plain = of(g, "Confident, T = 3500", SHORT), of(g, "LNMax", SHORT)
    said += (
        f"; with 4,000 answers each and the check of round one, nets {mean(moderate):.1%} against {mean(plain):.1%} "
    )
    claim = "Confident-GNMax's student is better than LNMax's (Table 1's Glyph rows: 75.5% against 72.4%)"
    return [claim, f"{said}of the symbols drawn {LINK}", decided([*cases, better(moderate, plain)])]


def interactive(g: dict[str, Any]) -> Claim:
    said, cases = pair(g, "Interactive-GNMax, two rounds", "LNMax")
    claim = "Two rounds with Interactive-GNMax give a better student than LNMax (73.2% against 72.4%)"
    return [claim, f"{said} {LINK}", decided(cases)]


def rounds(g: dict[str, Any]) -> Claim:
    first, second, total = g["rounds"]
    said = f"at the paper's parameters the rounds cost {round_up(first)} and {round_up(second)}, together "
    said += (
        f"{round_up(total)}, by the paper's accountant; no other split was tried, so nothing says that it is the best"
    )
    return ["Two rounds are best when they cost about the same", f"{said} {LINK}", NOT_TESTED]


def fixed_set(g: dict[str, Any]) -> Claim:
    said, falls = [], []
    for images in dict.fromkeys(row["images"] for row in g["split"]):
        values = [(row["teachers"], row["worst"][1]) for row in g["split"] if row["images"] == images]
        falls += [b is not None and (a is None or b < a) for (_, a), (_, b) in pairwise(values)]
        by = ", ".join(f"{'–' if value is None else round_up(value)} ({m:,})" for m, value in values)
        said.append(f"{images:,} images: {by}")
    what = f"worst-case ε of 4,000 answers 82% right, by number of teachers: {'; '.join(said)} {LINK}"
    return ["More teachers help where they split a fixed set (Figure 4, right)", what, decided(falls)]


def imbalance(g: dict[str, Any]) -> Claim:
    by = {(row["who"], row["k"]): row["accuracy"] for row in g["stages"]}
    numbers = sorted(k for who, k in by if who == PLURALITY and (EVEN, k) in by)
    said = ", ".join(f"{mean(by[PLURALITY, k]):.1%} → {mean(by[EVEN, k]):.1%} ({k:,})" for k in numbers)
    ten = g["inputs"]["until_each_class_has"]["10"]
    what = f"students on features, questions as they come → as many answers of each class: {said}; ten of each class "
    what += f"come with {ten:,} questions, in place of 1,500 {LINK}"
    verdict = decided([better(by[EVEN, k], by[PLURALITY, k]) for k in numbers])
    return ["Class imbalance asks for more questions", what, verdict]


def many(g: dict[str, Any]) -> Claim:
    some, base = (student(g, setting, MANY_LABELS) or [] for setting in (MANY, BASE))
    best = max(mean(row["accuracy_recorded"]) for row in g["table"])
    what = (
        f"on recorded labels {mean(some):.1%} against {mean(base):.1%} with a million; the best student of the table "
    )
    what += f"has {best:.1%}; these are recorded labels, not answers of teachers {LINK}"
    below = decided([better(base, some)])
    if len(some) < 2 and mean(some) < mean(base):
        below = "below, by one seed"
    return ["200,000 plain labels stay below the baseline (77% against 82.2%)", what, below]


def mislabelled(g: dict[str, Any]) -> Claim:
    seen = g["inputs"]["recorded"]
    said = (
        f"top vote {seen['wrong']['top']:.1%} where the recorded label is wrong, {seen['right']['top']:.1%} elsewhere"
    )
    with_them, without = (student(g, setting, MANY_LABELS, "accuracy") for setting in (BASE, BASE_TRUE))
    if with_them and without:
        said += f"; without privacy a net has {mean(with_them):.1%} with them and {mean(without):.1%} with true labels"
    said += "; in our Glyph labels are wrong by chance, whatever the image looks like, so the teachers cannot tell"
    return ["Mislabelled inputs cost more privacy: the teachers agree less on them", f"{said} {LINK}", NOT_HERE]


def open_labels(g: dict[str, Any]) -> Claim:
    said, cases = [], []
    for learner in (SHORT, FEATURES):
        private = [of(g, who, learner) for who in ("LNMax", "Confident, T = 1000", "Confident, T = 3500")]
        free = [of(g, who, learner) for who in (PLURALITY, TRUTH)]
        cases += [better(mine, theirs) for mine in private for theirs in free]
        mine, theirs = (", ".join(f"{mean(one):.1%}" for one in some) for some in (private, free))
        said.append(f"{learner}: {mine} against {theirs}")
    what = "LNMax, Confident-GNMax of T = 1000 and T = 3500, against plurality and truth: "
    return ["… the same on Glyph, with 4,000 labels", f"{what}{'; '.join(said)} {LINK}", decided(cases)]


def open_on_mnist(g: dict[str, Any]) -> list[Claim]:
    """VAT at full size by the paper's votes: where it was trained."""
    by = {row["setting"]: row["accuracy"] for row in g.get("open", []) if len(row["accuracy"]) > 1}
    mine = by.get("MNIST, Confident-GNMax")
    others = [(what, by[name]) for name, what in OPEN.items() if name in by]
    if not mine or not others:
        return []
    said = ", ".join(f"{what} {mean(one):.2%}" for what, one in others)
    what = f"VAT, {len(mine)} seeds: private answers {mean(mine):.2%}; {said} {LINK}"
    verdict = decided([better(mine, one) for _, one in others])
    return [["… the same on MNIST by the paper's votes, with nets of full size", what, verdict]]


def learners(g: dict[str, Any]) -> list[Claim]:
    """VAT against a GAN, and with the rows without answers against without: as far as they were trained."""
    rivals = (
        ("VAT beats a semi-supervised GAN on Glyph", ("GAN of Salimans et al.", "GAN"), ("Confident-GNMax",)),
        ("Semi-supervision is instrumental", ("supervised alone",), ("Confident-GNMax", "LNMax")),
    )
    claims = []
    if g.get("resnets"):  # both students by the same teachers' votes
        g = {**g, "table": g["resnets"], "others": []}
    for name, others, settings in rivals:
        said, cases = [], []
        for setting, other in [(setting, other) for setting in settings for other in others]:
            theirs = student(g, setting, other)
            for mine in ("VAT", "VAT alone"):
                ours = student(g, setting, mine)
                if theirs and ours:
                    said.append(f"{setting}: {mine} {mean(ours):.1%}, {other} {mean(theirs):.1%}")
                    cases.append(better(ours, theirs))
        what = f"on recorded labels {'; '.join(said)} {LINK}" if said else f"wants a GPU; small nets are below {LINK}"
        claims.append([name, what, decided(cases) if said else NOT_TESTED])
    return claims


def split_table(g: dict[str, Any]) -> str:
    header = ["images", "teachers", "images each", "plurality is right", "ε, 70% right", "ε, 82% right"]
    body = [
        [f"{row['images']:,}", f"{row['teachers']:,}", f"{row['each']:,}", f"{row['plurality']:.1%}",
         *("–" if value is None else round_up(value) for value in row["worst"])]
        for row in g["split"]
    ]  # fmt: skip
    return markdown(header, body)
