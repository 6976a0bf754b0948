"""Page and picture of paper_small.py, from its JSON; and which of the paper's claims it speaks to."""

from __future__ import annotations

from statistics import mean
from typing import Any

from compare import better, in_points, paired
from matplotlib.ticker import PercentFormatter
from tables import markdown, percent, spread
from votesets import BLUE, GREEN, GREY, ORANGE, RED, canvas, save

from terrine.accounting.curves import round_up

Runs = list[dict[str, Any]]
AGGREGATORS = {"LNMax": GREY, "GNMax": BLUE, "Confident-GNMax": ORANGE}
ROWS_OF_TABLE_1 = {"LNMax, 100 answers": GREEN, "LNMax, 1,000 answers": RED}
STOPS = (41, 101, 201, 401)  # steps at which the page has an accuracy
RECORDED = "12% of private records wrong, as recorded"
PLAIN = "supervised alone"
RIVALS = (
    ("VAT against the GAN", "VAT alone", "GAN alone"),
    ("semi-supervised against supervised", "VAT alone", "supervised alone"),
    ("semi-supervised against supervised", "GAN alone", "supervised alone"),
    ("semi-supervised against supervised", "VAT, distorted", "supervised, distorted"),
    ("semi-supervised against supervised", "VAT alone, twice as long", "supervised alone, twice as long"),
)
WHO = ("Confident-GNMax", "LNMax, 1,000 answers", "LNMax, 100 answers")
OPEN = ("plurality, same rows", "truth, same rows", "plurality, first rows", "truth, first rows")
STUDENTS = ("linear", "forest", "VAT")


def of(runs: Runs, part: str, setting: str, learner: str) -> Runs:
    """By seed."""
    wanted = (part, setting, learner)
    found = [run for run in runs if (run["part"], run["setting"], run["learner"]) == wanted]
    return sorted(found, key=lambda run: run["seed"])


def scores(runs: Runs, part: str, setting: str, learner: str, key: str = "accuracy") -> list[float]:
    return [run[key] for run in of(runs, part, setting, learner)]


def average(some: Runs, key: str) -> float:
    return mean(run[key] for run in some)


def seeds(runs: Runs, part: str) -> int:
    return len({run["seed"] for run in runs if run["part"] == part})


# Figure 1, left


def at(some: Runs, step: int) -> list[float]:
    """By seed: the accuracy after so many steps."""
    return [run["curve"][run["steps"].index(step)] for run in some]


def duels(runs: Runs) -> list[tuple[str, int, list[float], list[float]]]:
    """Confident-GNMax's student and LNMax's with as many answers, all along the training."""
    found = []
    for learner in learners_of(runs, "training"):
        mine, theirs = (of(runs, "training", name, learner) for name in ("Confident-GNMax", "LNMax"))
        if mine and theirs and len(mine) == len(theirs):
            found += [(learner, step, at(mine, step), at(theirs, step)) for step in mine[0]["steps"] if step > 1]
    return found


def learners_of(runs: Runs, part: str) -> list[str]:
    return list(dict.fromkeys(run["learner"] for run in runs if run["part"] == part))


def training_table(runs: Runs) -> str:
    header = ["answers by", "answers (right)", "ε, the paper's accountant", "learner"]
    header += [f"after {step - 1} steps" for step in STOPS] + ["in the end"]
    body = []
    for learner in learners_of(runs, "training"):
        for setting in (*AGGREGATORS, *ROWS_OF_TABLE_1):
            some = of(runs, "training", setting, learner)
            if not some:
                continue
            said = f"{average(some, 'answers'):,.0f} ({average(some, 'answers_right'):.1%})"
            row = [setting, said, round_up(average(some, "epsilon")), learner]
            row += [f"{mean(at(some, step)):.1%}" for step in STOPS]
            body.append([*row, percent(spread([run["accuracy"] for run in some]))])
    return markdown(header, body)


def draw(runs: Runs) -> None:
    learners = learners_of(runs, "training")
    if not learners:
        return
    figure, axes = canvas(1, len(learners), size=(5.5 * len(learners), 3.6))
    for panel, learner in zip(axes[0], learners, strict=True):
        for setting, color in {**AGGREGATORS, **ROWS_OF_TABLE_1}.items():
            some = of(runs, "training", setting, learner)
            if not some:
                continue
            x = some[0]["steps"]
            style = "-" if setting in AGGREGATORS else "--"
            panel.plot(x, [mean(at(some, step)) for step in x], style, color=color, lw=1.8, label=setting)
        panel.set(title=learner, xlabel="steps of the training", ylabel="student is right", xlim=(0, None))
        panel.set_ylim(0.6, 1)
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        panel.legend(frameon=False, fontsize=8)
    save(figure, "paper_small")


# A small Glyph


def glyph_table(runs: Runs) -> str:
    header = ["learner", "answers (right)", "student, symbols drawn", "student, labels recorded"]
    body = []
    for learner in learners_of(runs, "glyph"):
        some = of(runs, "glyph", RECORDED, learner)
        said = f"{average(some, 'answers'):,.0f} ({average(some, 'answers_right'):.1%})"
        found = [percent(spread([run[key] for run in some])) for key in ("accuracy", "accuracy_recorded")]
        body.append([learner, said, *found])
    return markdown(header, body)


def rivals(runs: Runs) -> list[tuple[str, str, str, list[float], list[float]]]:
    """What is compared, which two learners, and their scores on recorded labels by seed."""
    found = []
    for what, one, other in RIVALS:
        mine, theirs = (scores(runs, "glyph", RECORDED, who, "accuracy_recorded") for who in (one, other))
        if mine and len(mine) == len(theirs):
            found.append((what, one, other, mine, theirs))
    return found


def rivals_table(runs: Runs) -> str:
    header = ["what", "one", "other", "difference in points (95%)"]
    body = [[what, a, b, in_points(mine, theirs, by=paired)] for what, a, b, mine, theirs in rivals(runs)]
    return markdown(header, body)


def wrong_settings(runs: Runs) -> list[str]:
    names = dict.fromkeys(run["setting"] for run in runs if run["part"] == "glyph")
    return sorted(names, key=lambda name: not name.startswith("no "))


def wrong_table(runs: Runs) -> str:
    header = ["private records", "a teacher is right", "plurality is right", "mean top vote", "answers (right)",
              "ε, the paper's accountant", "student (supervised alone), symbols drawn"]  # fmt: skip
    body = []
    for setting in wrong_settings(runs):
        some = of(runs, "glyph", setting, PLAIN)
        row = [setting, *(f"{average(some, key):.1%}" for key in ("one_right", "plurality_right", "top_share"))]
        row.append(f"{average(some, 'answers'):,.0f} ({average(some, 'answers_right'):.1%})")
        body.append([*row, round_up(average(some, "epsilon")), percent(spread([run["accuracy"] for run in some]))])
    return markdown(header, body)


# Private and open labels on MNIST


def open_pairs(runs: Runs) -> list[tuple[str, str, str, list[float], list[float]]]:
    """Whose answers, which student, what they are compared with, and accuracies by seed."""
    found = []
    for who in WHO:
        for learner in STUDENTS:
            mine = scores(runs, "open", f"{who}: answers", learner)
            for other in OPEN:
                theirs = scores(runs, "open", f"{who}: {other}", learner)
                if mine and len(mine) == len(theirs):
                    found.append((who, learner, other, mine, theirs))
    return found


def open_table(runs: Runs) -> str:
    header = ["answers by", "student", "private answers", *(f"private less {name}" for name in OPEN)]
    body = []
    for who in WHO:
        for learner in STUDENTS:
            pairs = [pair for pair in open_pairs(runs) if pair[:2] == (who, learner)]
            if not pairs:
                continue
            by = {other: in_points(mine, theirs, by=paired) for _, _, other, mine, theirs in pairs}
            body.append(
                [who, learner, f"{mean(pairs[0][3]):.2%}", *(by.get(name, "as the same rows") for name in OPEN)]
            )
    return markdown(header, body)


def flips_table(runs: Runs) -> str:
    start = "Confident-GNMax: truth, "
    names = dict.fromkeys(run["setting"] for run in runs if run["part"] == "open" and run["setting"].endswith("wrong"))
    header = ["student", "no wrong answer", *(f"{name.removeprefix(start)}, points" for name in names)]
    body = []
    for learner in STUDENTS:
        none = scores(runs, "open", f"{start}same rows", learner)
        by = [scores(runs, "open", name, learner) for name in names]
        if none and all(len(some) == len(none) for some in by):
            body.append([learner, f"{mean(none):.2%}", *(in_points(some, none, by=paired) for some in by)])
    return markdown(header, body)


def page(found: dict[str, Any]) -> str:
    runs: Runs = found["runs"]
    all_along = duels(runs)
    clear = [better(mine, theirs, by=paired) for _, _, mine, theirs in all_along]
    answers = of(runs, "open", "Confident-GNMax: answers", "linear")
    return PAGE.format(
        seeds=", ".join(f"{seeds(runs, part)} ({part})" for part in ("training", "glyph", "open")),
        training=training_table(runs),
        looks=len(clear),
        ahead=sum(mean(mine) > mean(theirs) for _, _, mine, theirs in all_along),
        better=clear.count(True),
        worse=clear.count(False),
        glyph=glyph_table(runs),
        rivals=rivals_table(runs),
        wrong=wrong_table(runs),
        open=open_table(runs),
        flips=flips_table(runs),
        flip_rows=f"{average(answers, 'answers'):.0f}" if answers else "–",
    )


PAGE = """# The paper's students, at a size for one core

What the paper's figures and claims say of students, where their full size wants a GPU, tried with small nets and few
teachers. **Nothing here is the paper's own size**; it shows which way a comparison goes here, no more.

```
python experiments/paper_small.py training    # each: minutes of one core
python experiments/paper_small.py glyph
python experiments/paper_small.py open
python experiments/paper_small.py show        # this page, from the JSON
```

Seeds: {seeds}. A seed has its own noise, student and order of training, and on Glyph its own faces, records and
teachers too. Intervals of differences are 95%, by Student's t on differences seed by seed (both students of a pair
had the same rows), of each comparison by itself. A difference counts if it is beyond its interval and half a point.
Noise is seeded, so these answers are not private; ε of votes is secret on private data, and no guarantee.

## During training (Figure 1, left)

![a student's accuracy as it is trained, by who answered](paper_small.png)

{training}

MNIST, the paper's own votes (250 teachers): LNMax of scale 20, GNMax of σ = 40, Confident-GNMax of T = 200, σ₁ = 150,
σ₂ = 40 on 640 questions; LNMax and GNMax answer the first questions, as many as the check let through, and the last
rows are the numbers of answers of the paper's Table 1. 500 steps: **VAT on edges** is a net of two dense layers on
histograms of edges, **GAN** a net of two convolutions on images of 14 × 14 pixels; both learn from all 9,000 public
images too. Scored on 1,000 test images. ε is at δ = 1e-5 by the tight conversion.

The paper has accuracy *higher throughout training* with Confident-GNMax than with LNMax. With as many answers, at
{looks} looks during training (both learners, every 20 steps) Confident-GNMax's student is ahead in the mean at
{ahead}; beyond chance and half a point it is better at {better} and worse at {worse}.

## VAT, GAN, and no semi-supervision, on a small Glyph

{glyph}

{rivals}

50 of Glyph's 150 symbols (every third), 12% of all labels wrong; 250 linear teachers on edges, of 200 images each;
5,000 public images, of which 1,200 are asked about, 2,000 test images, for the student all of 14 × 14 pixels.
Confident-GNMax has the paper's numbers of Table 1 as shares of the teachers (T, σ₁, σ₂ = 0.2, 0.1, 0.02 of them), so
that answers are as good as with more teachers, and cost far more. Differences are on recorded labels, as the paper
scores. All are the same net of two convolutions, trained for 1,000 steps at the same rate (0.003, falling as a
cosine).

- **VAT alone**, **GAN alone**: the losses of Miyato et al. and of Salimans et al. and nothing else. **Supervised
  alone**: cross-entropy on the answers. *Distorted*: the same with images turned, scaled and moved at random.
- *Twice as long*: 2,000 steps. This was added when the other numbers were known.
- Tried first, with one seed, 64 public images a step and 600 steps: VAT alone 60.1%, GAN alone 55.0%, supervised alone
  64.6% of the symbols drawn; terrine's own VAT, which lets answers fade while the net still learns, 37.6%, and so it
  was left out. VAT alone with 1,500 such steps: 63.4%. Then steps and batches were set to what one core had time for.
- A GAN wants a larger net and longer training: that it loses here does not show that it would then.

## What mislabeled records cost

{wrong}

The same images and the same 250 shares; what changes is how many private records have a wrong label (as recorded:
half of the wrong ones have one fixed other symbol, the others any; 30%: any other symbol). The paper supposes that
mislabeled inputs cost privacy, as teachers agree less: ε of the same 1,200 questions says by how much.

## Private and open labels on MNIST

{open}

The paper's votes again, students on edges of images: **linear** discriminants, a **forest** of 100 trees, **VAT** as
above. *Same rows*: the answered rows with the plurality without noise, or with the truth, in place of the answers.
*First rows*: as many of the first rows, as one would label without a check. LNMax answers all it is asked, so that
its rows are the first ones.

## What wrong answers cost

{flips}

The {flip_rows} rows (mean) that Confident-GNMax answered, with true labels, of which a share was drawn at random and
given another class; differences to none wrong.
"""
