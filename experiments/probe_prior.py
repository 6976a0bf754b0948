"""Would teachers help a probe? Their answers where the probe is unsure, both as good as they could ever be.

    TERRINE_DATA=FOLDER python experiments/probe_prior.py OUT [--draw]

A probe as a student's prior (Interactive-GNMax) would spend a part of epsilon on the probe and ask teachers only about
public rows that it is unsure of. Here each has all of epsilon: where the teachers' answers are no better even then than
the probe's own labels of those rows, no split of epsilon can help. The plurality without noise stands beside them.
OUT has the features and votes of `battery.py`. Labels of public rows are used to report alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from battery import Battery, n_teachers, noise_per_root
from battery_probe import Linear
from provenance import record
from tables import RESULTS, markdown

from terrine.executors import Serial
from terrine.mechanisms import GNMax, answer
from terrine.noise import SeededNoise
from terrine.votes import Votes

TASKS = ("mnist", "fashion", "adult", "heritage", "census", "clinc150-minilm")
EPSILONS, PARTS, SEEDS = (0.3, 1.0), (0.05, 0.1, 0.2, 0.4), (0, 1, 2)
RELATION = "UNIT_REPLACED"  # of which teachers have more: a probe pays twice
COMMAND = "python experiments/probe_prior.py OUT"


def compared(name: str, out: Path) -> list[dict[str, Any]]:
    """By epsilon and share of the rows that the probe is least sure of: how often it and the plurality are right."""
    first = Battery(name, 0, out, Serial(), "no")
    linear, truth = Linear(first), first.data.public_y
    assert truth is not None
    m = n_teachers(first.data)
    counts, found = first.votes(m), []
    votes = counts.argmax(axis=1)
    for epsilon in EPSILONS:
        settings = linear.by_rule(epsilon, RELATION)
        rows: dict[float, list[tuple[float, ...]]] = {part: [] for part in PARTS}
        each = noise_per_root(epsilon, first.data.delta, out)
        for seed, weights in zip(SEEDS, linear.fitted(settings, epsilon, RELATION, SEEDS), strict=True):
            logits = linear.logits(first.seen("public"), weights, settings)
            ordered = np.sort(logits, axis=1)
            guesses, order = logits.argmax(axis=1), np.argsort(ordered[:, -1] - ordered[:, -2], kind="stable")
            for part in PARTS:
                some = order[: int(part * len(order))]
                noisy, asked = votes.copy(), Votes(counts[some], n_teachers=m)
                sigma = each * math.sqrt(len(some))
                noisy[some] = answer(GNMax(sigma=sigma), asked, rng=SeededNoise(seed)).labels
                right = [float((one[some] == truth[some]).mean()) for one in (guesses, noisy, votes)]
                rows[part].append((*right, len(some) / len(truth) * (right[1] - right[0])))
        for part, told in rows.items():
            names = ("probe", "answers", "votes", "gain")
            means = dict(zip(names, np.mean(told, axis=0).tolist(), strict=True))
            found.append({"task": name, "epsilon": epsilon, "part": part, **means})
    return found


def page(found: list[dict[str, Any]]) -> str:
    best = {
        (one["task"], one["epsilon"]): max(
            (other["gain"] for other in found if (other["task"], other["epsilon"]) == (one["task"], one["epsilon"])),
        )
        for one in found
    }
    told = [
        [
            one["task"],
            f"{one['epsilon']:g}",
            f"{one['part']:.0%}",
            f"{100 * one['probe']:.1f}",
            f"{100 * one['answers']:.1f}",
            f"{100 * one['votes']:.1f}",
            f"{100 * one['gain']:+.1f}",
        ]
        for one in found
    ]
    helped = sorted({task for (task, _), gain in best.items() if gain > 0})
    head = ["task", "ε", "least sure rows", "probe right there", "answers", "plurality, no noise", "gain, all rows"]
    return "\n".join(
        [
            "# Would teachers help a probe?",
            "",
            "A probe could be the prior of Interactive-GNMax: a part of ε for the probe, the rest for teachers, who",
            "are asked only where the probe is unsure. This table grants both more than they could have: each has all",
            "of ε (a unit replaced; as many answers of GNMax as there are least sure rows). Shares of public rows that",
            f"are right, in percent; means over {len(SEEDS)} seeds of the noise, votes of one seed, settings of the",
            "[battery](battery.md). The gain is of replacing the probe's labels of these rows by the answers.",
            "",
            f"```\nTERRINE_DATA=FOLDER {COMMAND}\n```",
            "",
            markdown(head, told),
            "",
            f"The largest gain that any of these parts gives is {100 * max(best.values()):.1f} points, on "
            f"{len(helped)} of {len({task for task, _ in best})} tasks there is one at all"
            f"{' (' + ', '.join(helped) + ')' if helped else ''}, and it is before either part has paid for the other.",
            "Where the plurality without noise is much better than the probe, answers that are private are not. So",
            "terrine has no such mixture: a run takes one route.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", help="the folder of battery.py")
    parser.add_argument("--draw", action="store_true", help="the page from its JSON")
    given = parser.parse_args()
    kept = RESULTS / "probe_prior.json"
    if not given.draw:
        assert os.environ["TERRINE_DATA"]
        found = [one for name in TASKS for one in compared(name, given.out)]
        kept.write_text(json.dumps(found, indent=1) + "\n")
        record("probe_prior", COMMAND)
    (RESULTS / "probe_prior.md").write_text(page(json.loads(kept.read_text())))


if __name__ == "__main__":
    main()
