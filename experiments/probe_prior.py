"""Would teachers help a probe? Their answers where the probe is unsure, both as good as they could ever be.

    TERRINE_DATA=FOLDER python experiments/probe_prior.py OUT [--draw]

A probe as a student's prior (Interactive-GNMax) would spend a part of epsilon on the probe and ask teachers only about
public rows that it is unsure of. Here the probe has all of epsilon, and the teachers' plurality has no noise and costs
nothing: where even such answers are no better than the probe's own labels of those rows, no split of epsilon can help.
OUT has the features and votes of `battery.py`. Labels of public rows are used to report alone.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from battery import Battery, n_teachers
from battery_probe import Linear
from tables import RESULTS, markdown

from terrine.executors import Serial

TASKS = ("mnist", "fashion", "adult", "heritage", "census", "clinc150-minilm")
EPSILONS, PARTS, SEEDS = (0.3, 1.0), (0.05, 0.1, 0.2, 0.4), (0, 1, 2)
RELATION = "UNIT_REPLACED"  # of which teachers have more: a probe pays twice
COMMAND = "python experiments/probe_prior.py OUT"


def compared(name: str, out: Path) -> list[dict[str, Any]]:
    """By epsilon and share of the rows that the probe is least sure of: how often it and the plurality are right."""
    first = Battery(name, 0, out, Serial(), "no")
    linear, truth = Linear(first), first.data.public_y
    assert truth is not None
    votes = first.votes(n_teachers(first.data)).argmax(axis=1)
    found = []
    for epsilon in EPSILONS:
        settings = linear.by_rule(epsilon, RELATION)
        rows: dict[float, list[tuple[float, float, float]]] = {part: [] for part in PARTS}
        for weights in linear.fitted(settings, epsilon, RELATION, SEEDS):
            logits = linear.logits(first.seen("public"), weights, settings)
            ordered = np.sort(logits, axis=1)
            guesses, order = logits.argmax(axis=1), np.argsort(ordered[:, -1] - ordered[:, -2], kind="stable")
            for part in PARTS:
                some = order[: int(part * len(order))]
                mixed = guesses.copy()
                mixed[some] = votes[some]
                own, theirs = (float((one[some] == truth[some]).mean()) for one in (guesses, votes))
                rows[part].append((own, theirs, float((mixed == truth).mean() - (guesses == truth).mean())))
        for part, told in rows.items():
            own, theirs, gain = np.mean(told, axis=0).tolist()
            found.append({"task": name, "epsilon": epsilon, "part": part, "probe": own, "votes": theirs, "gain": gain})
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
            f"{100 * one['votes']:.1f}",
            f"{100 * one['gain']:+.1f}",
        ]
        for one in found
    ]
    helped = sorted({task for (task, _), gain in best.items() if gain > 0})
    head = ["task", "ε", "least sure rows", "probe right there", "plurality right there", "all public rows, gain"]
    return "\n".join(
        [
            "# Would teachers help a probe?",
            "",
            "A probe could be the prior of Interactive-GNMax: a part of ε for the probe, the rest for teachers, who",
            "are asked only where the probe is unsure. This table grants both more than they could have: the probe all",
            "of ε (a unit replaced), and the teachers' plurality no noise and no cost. Shares of public rows that are",
            f"right, in percent; means over {len(SEEDS)} seeds of the noise, votes of one seed, settings of the",
            "[battery](battery.md).",
            "",
            f"```\nTERRINE_DATA=FOLDER {COMMAND}\n```",
            "",
            markdown(head, told),
            "",
            f"The largest gain that any of these parts gives is {100 * max(best.values()):.1f} points, on "
            f"{len(helped)} of {len({task for task, _ in best})} tasks there is one at all"
            f"{' (' + ', '.join(helped) + ')' if helped else ''}, and it is before either part has paid for the other.",
            "So terrine has no such mixture: a run takes one route.",
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
    (RESULTS / "probe_prior.md").write_text(page(json.loads(kept.read_text())))


if __name__ == "__main__":
    main()
