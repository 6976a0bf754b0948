"""The page of claims.py, from its JSON: verdicts follow from the numbers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from claims_glyph import rows_of_glyph, split_table
from claims_small import rows_of_small
from votesets import files_table, markdown

from terrine.accounting.curves import round_up

KINDS = {"paper": "the paper's bound", "exact": "exact", "worst": "worst case"}


def verdict(holds: Iterable[bool]) -> str:
    found = list(holds)
    return "**confirmed**" if all(found) else "**depends**" if any(found) else "**refuted**"


def eps(found: Any) -> str:
    """Of a search's result, or a number."""
    value = found["epsilon"] if isinstance(found, dict) else found
    return "none" if value is None else round_up(value, 3 if value >= 0.1 else 4)


def how(found: dict[str, Any] | None) -> str:
    return "–" if found is None else ", ".join(f"{v:,.0f}" if v >= 100 else f"{v:.3g}" for v in found["mechanism"])


def cheaper(rows: list[dict[str, Any]], one: str, other: str, kinds: Iterable[str] = KINDS) -> list[bool]:
    """Where both are there: is the first one's epsilon smaller?"""
    pairs = [(row[f"{one}_{kind}"], row[f"{other}_{kind}"]) for row in rows for kind in kinds]
    numbers = [[p["epsilon"] if isinstance(p, dict) else p for p in pair] for pair in pairs]
    return [first < second for first, second in numbers if first is not None and second is not None]


def ratios(rows: list[dict[str, Any]], one: str, other: str, kind: str) -> str:
    found = []
    for row in rows:
        first, second = row[f"{one}_{kind}"], row[f"{other}_{kind}"]
        if first is not None and second is not None:
            first, second = (p["epsilon"] if isinstance(p, dict) else p for p in (first, second))
            found.append(second / first)
    if not found:
        return "–"
    least, most = min(found), max(found)
    return f"{least:.1f}" if f"{least:.1f}" == f"{most:.1f}" else f"{least:.1f} to {most:.1f}"


def summary(r: dict[str, Any]) -> list[list[str]]:
    rows = []
    lnmax = cheaper(r["lnmax"], "gnmax", "lnmax", ("paper", "worst"))
    rows.append(
        [
            "At equal accuracy GNMax costs less than LNMax",
            f"ε smaller by {ratios(r['lnmax'], 'gnmax', 'lnmax', 'paper')} times by the papers' own bounds, by "
            f"{ratios(r['lnmax'], 'gnmax', 'lnmax', 'worst')} times by worst case ([1](#gnmax-against-lnmax))",
            verdict(lnmax),
        ]
    )
    tail = r["tails"]
    rows.append(
        [
            "At a gap of 4σ the plurality loses with chance e⁻⁴ = 0.018 (LNMax), e⁻¹⁶ ≈ 10⁻⁷ (GNMax)",
            f"{tail['lnmax']:.3f} (LNMax, union bound) and {tail['gnmax']:.4f} (GNMax, exact for two classes): the "
            "plurality loses less often under GNMax, but the difference is much smaller than claimed",
            verdict([tail["gnmax"] < 1e-6]),
        ]
    )
    quarter = r["quartered"]
    rows.append(
        [
            "Against LNMax, Confident-GNMax at least quarters ε, at higher accuracy (Figure 1, of different votes)",
            "; ".join(
                f"{q['votes']['name']}, {q['answers']:,} answers: {eps(q['lnmax'])} → {eps(q['epsilon'])} by the "
                f"papers' bounds ({q['lnmax'] / q['epsilon']:.1f} times; exact {eps(q['exact'])}, "
                f"{q['lnmax'] / q['exact']:.1f} times), right {q['lnmax_accuracy']:.1%} → {q['accuracy']:.1%}"
                for q in quarter
            ),
            verdict(q["lnmax"] / q["epsilon"] >= bound for q in quarter for bound in (1, 4)),
        ]
    )
    beats = cheaper(r["confident"], "confident", "gnmax")
    beyond = [row for row in r["confident"] if row["gnmax_paper"] is None and row["confident_paper"] is not None]
    rows.append(
        [
            "Confident-GNMax beats GNMax",
            "for the same number of answers at the same accuracy, ε is smaller by "
            + ", ".join(f"{ratios(r['confident'], 'confident', 'gnmax', kind)} ({KINDS[kind]})" for kind in KINDS)
            + f" times; in {len(beyond)} of {len(r['confident'])} cases GNMax never reaches the accuracy "
            "([2](#confident-gnmax-against-gnmax))",
            verdict(beats),
        ]
    )
    inter = cheaper(r["interactive"], "interactive", "confident")
    rows.append(
        [
            "Interactive-GNMax is cheaper than Confident-GNMax once there is a student",
            "if both correct the same number of a simulated student's labels, ε is smaller by "
            + ", ".join(f"{ratios(r['interactive'], 'interactive', 'confident', k)} ({KINDS[k]})" for k in KINDS)
            + " times ([3](#interactive-gnmax-against-confident-gnmax))",
            verdict(inter),
        ]
    )
    falls, said = [], []
    for task in ("MNIST", "Glyph"):
        found = [row for row in r["teachers"] if row["votes"]["task"] == task and row["confident_worst"]]
        values = [row["confident_worst"]["epsilon"] for row in found]
        falls += [after < before for before, after in pairwise(values)]
        if len(found) > 1:
            said.append(
                f"{task}: {found[0]['answers']:,} answers {found[0]['accuracy']:.1%} right, worst-case ε "
                + ", ".join(f"{eps(row['confident_worst'])} ({row['votes']['teachers']:,})" for row in found)
            )
        else:
            said.append(f"{task}: too few ensembles to compare")
    rows.append(
        [
            "More teachers help as long as each can learn (Glyph: each with the same number of images)",
            "; ".join(said) + " ([4](#teachers))",
            verdict(falls),
        ]
    )
    share = [row[f"{name}_paper"] for row in r["checks"] for name in ("moderate", "aggressive")]
    rows.append(
        [
            "A third to a half of the budget goes into checks",
            "of the Rényi cost by the paper's bound, moderate and aggressive check: "
            + "; ".join(
                f"{row['votes']['name']} {row['moderate_paper']:.0%} and {row['aggressive_paper']:.0%} (worst case "
                f"{row['moderate_worst']:.1%} and {row['aggressive_worst']:.1%})"
                for row in r["checks"]
            ),
            verdict(0.3 <= value <= 0.55 for value in share),
        ]
    )
    rows.append(
        [
            "The aggressive check culls queries with poor consensus completely, the moderate one mostly",
            "share of answers that fewer than half of the teachers chose, no check → moderate → aggressive: "
            + "; ".join(
                f"{row['votes']['name']} "
                + " → ".join(f"{row[key]:.1%}" for key in ("weak_all", "moderate_weak", "aggressive_weak"))
                for row in r["checks"]
            )
            + "; *completely*: below 1%",
            verdict(row["aggressive_weak"] < 0.01 for row in r["checks"]),
        ]
    )
    rows.append(
        [
            "Answers that cost little are more often right",
            "share of right answers, from the cheapest to the most expensive quarter of the questions (exact cost): "
            + "; ".join(f"{s['votes']['name']} " + ", ".join(f"{v:.1%}" for v in s["right"]) for s in r["synergy"])
            + "; the most expensive quarter makes up "
            + ", ".join(f"{s['share'][3]:.0%}" for s in r["synergy"])
            + " of the cost; the first three quarters hardly differ, the most expensive one is right less often",
            verdict(s["right"][3] < min(s["right"][:3]) for s in r["synergy"]),
        ]
    )
    fails = [row for row in r["corollary"] if row["exact"] > row["printed"]]
    rows.append(
        [
            "Three separated counts: (λ, exp(−2λ/σ²)/λ)-RDP at λ = gap/4",
            f"the exact divergence is above it in {len(fails)} of {len(r['corollary'])} cases, by up to "
            f"{max((row['exact'] / row['printed'] for row in fails), default=0):.0f} times, with gaps of at least "
            f"{min((row['gap'] / row['sigma'] ** 2 for row in fails), default=0):.0f} σ²; below it in the other cases "
            "([5](#three-separated-counts))",
            "**refuted** as stated" if fails else verdict([True]),
        ]
    )
    first = r["composition"][0]
    most = r["composition"][-1]
    rows.append(
        [
            "Standard advanced composition gives 8.42 and 10.14 for the last two rows of Table 1",
            f"advanced composition gives {eps(first['advanced'])} for the first row; Rényi composition without votes "
            f"gives {eps(first['classic'])} for it (near the number printed for the second row) and at most "
            f"{eps(most['classic'])} for the second; by worst case they are {eps(first['worst'])} and "
            f"{eps(r['composition'][1]['worst'])} "
            "([6](#composition-without-votes))",
            verdict([abs(first["classic"] - 8.42) < 0.05 or abs(first["advanced"] - 8.42) < 0.05]),
        ]
    )
    won = {kind: [row["answers"] > row[kind] for row in r["labels"]] for kind in ("first_plurality", "first_truth")}
    rows.append(
        [
            "Private labels train a better student than the same number of non-private labels",
            "on Adult, answers that passed a check, against non-private labels of the same number of first rows, in "
            f"{len(r['labels'])} cases of settings and students: better than the teachers' plurality without noise in "
            f"{sum(won['first_plurality'])}, better than true labels in {sum(won['first_truth'])} "
            "([7](#private-and-open-labels))",
            verdict([*won["first_plurality"], *won["first_truth"]]),
        ]
    )
    return [*rows, *rows_of_glyph(r["glyph"]), *rows_of_small(r["small"])]


PAGE = """# The paper's claims

Each claim is checked with votes on public data; those on students needed training. Where mechanisms are compared, each
gets its best noise, threshold and number of questions from a grid, chosen after looking at the votes. The verdicts
follow from the numbers: *confirmed* if every case supports the claim, *refuted* if none does, *depends* otherwise. Of
Glyph's students only differences count that are beyond half a point and beyond chance over seeds (95% by Welch's t,
each comparison by itself). Small nets stand in where the paper's size wants a GPU; their seeds are compared in pairs.

```
python experiments/figures.py --votes FOLDER
python experiments/claims.py --votes FOLDER
python experiments/claims.py --only glyph      # what rests on paper_glyph.json
python experiments/claims.py --only small      # what rests on paper_small.json
```

{summary}

ε is by the tight conversion at δ = 1e-8 (Glyph) or 1e-5 (MNIST), rounded up. *The paper's bound* is its expectation;
*exact* is the divergence of check and answer together on these votes. With private votes both are secret, and they are
not guarantees. The worst case holds for any votes, if a ledger fixed it; here it is by Rényi bounds, like the rest
([privacy profiles](../math.md#the-profile-accountant), as a budget is charged today, take off 5 to 9%). Made from:

{files}

## GNMax against LNMax

{lnmax}

4,000 answers. The worst case of LNMax is the smaller of pure ε-DP and the Rényi curve of Laplace noise on two counts
(Mironov 2017, Table II). The papers' bound for LNMax is the theorem of 2017, a looser analysis than that of GNMax. The
worst cases do not depend on votes.

## Confident-GNMax against GNMax

{confident}

Settings in votes: σ for GNMax; T, σ₁, σ₂ for Confident-GNMax. "none": with the questions of the file, no setting of the
grid reaches this accuracy. Noise scales of the grid are 1.39 times apart, so a difference of a few percent means
nothing.

## Interactive-GNMax against Confident-GNMax

{interactive}

A weaker ensemble plays the student. The student's opinion is that ensemble's plurality, held with certainty, or its
vote shares. *Labels put right*: right answers minus the student's own right labels, over the questions that the
teachers answer; the target is half of what the plurality would gain on all questions of the file. The cost of training
a student in a first round is not included.

## Teachers

{teachers}

Confident-GNMax, the smallest ε of a grid. On MNIST the teachers share 60,000 images: with twice the number of teachers,
each has half the images. On Glyph each teacher has 3,000 images, however many there are. A fixed set of Glyph's images,
split among more teachers, as in the paper:

{split}

GNMax, worst case, at 70% and 82% of the answers right; "–": not reached with any noise ([all of it](paper_glyph.md)).

## Three separated counts

{corollary}

Votes 2g, g, 0, …, 0 on ten classes; nats at λ = g/4. The paper's own proof gives exp(−(3λ+1)/σ²)/(λ−1) for the
direction it looks at, D(M(D)‖M(D')), which the printed formula covers. A Rényi guarantee also needs D(M(D')‖M(D)),
which falls only like exp(−λ/σ²)/λ times the tail of a Gaussian: if λ is several times σ², the printed bound is too
small. With the noise that the paper uses (σ = 40 and more), gaps never get that large.

## Composition without votes

{composition}

With the printed parameters. *Advanced*: the form of Kairouz, Oh and Viswanath; every step is an analytic Gaussian
(Balle and Wang), and the steps share half of δ. *Rényi*: λ/σ² for an answer and λ/(2σ₁²) for a check, by the conversion
of the paper's tables and by the tight one. *Worst case*: for the released winner alone, by the tight conversion;
a plan, as no ledger fixed it. The paper gives two numbers of answers for its last row; for the first of its two rounds
it says roughly 3,400.

## Private and open labels

{labels}

Mean accuracy of [Adult's students](adult_students.md) over five seeds. *First rows*: non-private labels of the same
number of rows, from the start of the public half. Compared with the teachers' plurality, noise and checks lose a
little. Compared with true labels it depends on the student: the forest, which overfits, learns better from private
answers than from the same number of true labels in {forest} settings, the other students in {others}.
"""


def page(results: dict[str, Any]) -> str:
    r = results
    lnmax = [
        [row["votes"]["name"], f"{row['accuracy']:.1%}"]
        + [eps(row[f"{name}_{kind}"]) for kind in ("paper", "worst") for name in ("lnmax", "gnmax")]
        for row in r["lnmax"]
    ]
    confident = [
        [row["votes"]["name"], f"{row['answers']:,}", f"{row['accuracy']:.1%}"]
        + [eps(row[f"{name}_{kind}"]) for kind in KINDS for name in ("gnmax", "confident")]
        + [f"{how(row['gnmax_worst'])}; {how(row['confident_worst'])}"]
        for row in r["confident"]
    ]
    interactive = [
        [row["votes"]["name"], row["student"], row["opinion"], f"{row['student_accuracy']:.1%}", f"{row['gain']:,.0f}"]
        + [eps(row[f"{name}_{kind}"]) for kind in KINDS for name in ("confident", "interactive")]
        + [
            "; ".join(
                f"{row[f'{n}_exact']['answers']:,}" if row[f"{n}_exact"] else "–" for n in ("confident", "interactive")
            )
        ]
        for row in r["interactive"]
    ]
    teachers = [
        [
            row["votes"]["name"],
            f"{row['votes']['mean_accuracy']:.1%}",
            f"{row['answers']:,}",
            f"{row['accuracy']:.1%}",
            eps(row["confident_paper"]),
            eps(row["confident_worst"]),
            how(row["confident_worst"]),
        ]
        for row in r["teachers"]
    ]
    corollary = [
        [f"{row['sigma']:g}", f"{row['gap']:,}", f"{row['order']:g}"]
        + [f"{row[key]:.3g}" for key in ("printed", "theorem")]
        + [f"**{row['exact']:.3g}**" if row["exact"] > row["printed"] else f"{row['exact']:.3g}", f"{row['worst']:.3g}"]
        for row in r["corollary"]
    ]
    composition = [
        [row["name"], row["printed"], *(eps(row[key]) for key in ("advanced", "classic", "tight", "worst"))]
        for row in r["composition"]
    ]
    labels = [
        [row["setting"], row["student"]]
        + [f"{row[kind]:.2%}" for kind in ("answers", "first_plurality", "first_truth", "plurality", "truth")]
        for row in r["labels"]
    ]
    beaten = {
        forest: [row["answers"] > row["first_truth"] for row in r["labels"] if (row["student"] == "forest") == forest]
        for forest in (True, False)
    }
    named = ("quartered", "lnmax", "confident", "interactive", "teachers", "checks", "synergy")
    both = [f"{name}, {kind}" for kind in ("papers' bounds", "worst case") for name in ("LNMax", "GNMax")]
    pairs = [f"{name}, {kind}" for kind in KINDS.values() for name in ("GNMax", "Confident")]
    rounds = [f"{name}, {kind}" for kind in KINDS.values() for name in ("Confident", "Interactive")]
    return PAGE.format(
        summary=markdown(["claim", "our numbers", "verdict"], summary(r)),
        files=files_table([row["votes"] for name in named for row in r[name]]),
        lnmax=markdown(["votes", "right", *both], lnmax),
        confident=markdown(["votes", "answers", "right at least", *pairs, "settings by worst case"], confident),
        interactive=markdown(
            ["votes", "student", "its opinion", "it is right", "labels put right", *rounds, "expected answers (exact)"],
            interactive,
        ),
        teachers=markdown(
            [
                "votes",
                "a teacher is right",
                "answers",
                "right at least",
                "ε, paper's bound",
                "ε, worst case",
                "T, σ₁, σ₂",
            ],
            teachers,
        ),
        forest=f"{sum(beaten[True])} of {len(beaten[True])}",
        others=f"{sum(beaten[False])} of {len(beaten[False])}",
        labels=markdown(
            [
                "answers by",
                "student",
                "private answers",
                "plurality, first rows",
                "truth, first rows",
                "plurality, the answered rows",
                "truth, the answered rows",
            ],
            labels,
        ),
        split=split_table(r["glyph"]),
        corollary=markdown(
            ["σ", "gap g", "order λ", "printed", "the paper's theorem", "exact", "worst case"], corollary
        ),
        composition=markdown(
            ["", "printed", "advanced", "Rényi, classic", "Rényi, tight", "worst case (if fixed beforehand)"],
            composition,
        ),
    )
