"""The paper's claims, each held against numbers from votes: confirmed, refuted, or it depends. Nothing is trained.

Run: python experiments/claims.py --votes FOLDER   (FOLDER as in figures.py, after it; some ten minutes)
     python experiments/claims.py --only glyph     (what rests on paper_glyph.json; no votes needed)
     python experiments/claims.py --only small     (what rests on paper_small.json; no votes needed)
     python experiments/claims.py --draw           (the page again, from the JSON)
Writes docs/results/claims.md and .json. Noise scales and thresholds are the best of a grid for each mechanism and each
accountant, chosen with the votes in view, which are of public data.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from claims_page import page
from claims_small import numbers
from provenance import record
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import spearmanr
from votesets import (
    DELTA,
    OUT,
    Array,
    VoteSet,
    at_accuracy,
    chance_right,
    confident,
    epsilon,
    glyph_sets,
    mnist_sets,
    paper_mnist,
    pr_answered,
    tidy,
)

from terrine import (
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    RdpCurve,
    Votes,
    cost,
    expected_cost,
    worst_case_cost,
)
from terrine.accounting.argmax import rdp_argmax, rdp_check
from terrine.accounting.curves import ORDERS, epsilons_at
from terrine.accounting.exact import rdp_check_exact, rdp_gnmax_exact
from terrine.accounting.theorems import log_q_gaussian, log_q_laplace, rdp_gnmax, rdp_threshold

GRID: Array = np.geomspace(1.5, 1500.0, 48)
SAMPLE = 1_000  # queries that parameters are chosen on
SHORTLIST = 4  # mechanisms whose exact cost is computed
ACCOUNTANTS = ("paper", "exact", "worst")
# Noise and gap of three separated counts
SEPARATED = [
    (1, 8), (1, 20), (2, 16), (2, 100), (4, 32), (4, 400), (10, 80), (10, 400), (40, 160), (40, 480), (100, 400),
    (100, 1200),
]  # fmt: skip


def rdp_laplace(*, scale: float, orders: Array) -> Array:
    """Two counts with Laplace noise, one vote each: Mironov (2017), Table II, twice."""
    a, b = orders / (2 * orders - 1), (orders - 1) / (2 * orders - 1)
    return 2 * np.logaddexp(np.log(a) + (orders - 1) / scale, np.log(b) - orders / scale) / (orders - 1)


def tails(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> dict[str, float]:
    """How often the plurality loses to one class that is four noise scales behind."""
    q = {"gnmax": log_q_gaussian([[400, 0]], sigma=100), "lnmax": log_q_laplace([[400, 0]], scale=100)}
    return {name: math.exp(value[0]) for name, value in q.items()}


def quartered(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """LNMax against Confident-GNMax, the last points of figures_progress."""
    panels = json.loads((OUT / "figures.json").read_text())["progress"]
    return [
        {
            "votes": panel["votes"],
            "answers": panel["answers"][-1],
            "lnmax": panel["lnmax"]["epsilon"][-1],
            **{key: panel["gnmax"][key][-1] for key in ("epsilon", "exact", "worst")},
            "lnmax_accuracy": panel["lnmax"]["accuracy"][-1],
            "accuracy": panel["gnmax"]["accuracy"][-1],
        }
        for panel in panels
    ]


def lnmax_against_gnmax(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """4,000 answers at equal accuracy, a point and three points below the plurality without noise."""
    rows = []
    for votes, low, high in (
        (glyph[max(glyph)], 0.005, 0.3),
        (paper_mnist(), 0.02, 0.8),
        (mnist[max(m for m in mnist if m <= 1_000)], 0.02, 0.8),
    ):
        part = votes.first(4_000)
        found: dict[str, list[dict[str, float]]] = {"lnmax": [], "gnmax": []}
        for scale in part.votes.n_teachers * np.geomspace(low, high, 12):
            public = {"n_queries": len(part.votes), "orders": GRID}
            for name, mechanism in (("lnmax", LNMax(scale=scale)), ("gnmax", GNMax(sigma=scale))):
                worst = worst_case_cost(mechanism, **public)
                if name == "lnmax":
                    least = np.minimum(worst.epsilons, len(part.votes) * rdp_laplace(scale=scale, orders=GRID))
                    worst = RdpCurve(GRID, least)
                row = {
                    "accuracy": chance_right(mechanism, part).mean(),
                    "paper": epsilon(expected_cost(mechanism, part.votes, orders=GRID), delta=part.delta),
                    "worst": epsilon(worst, delta=part.delta),
                }
                found[name].append(row)
        plurality = float((part.votes.counts.argmax(axis=1) == part.labels).mean())
        for below in (0.01, 0.03):
            values = {
                f"{name}_{key}": at_accuracy(points, key, plurality - below)
                for name, points in found.items()
                for key in ("paper", "worst")
            }
            rows.append({"votes": votes.about(), "accuracy": plurality - below, **values})
    return rows


@dataclass(frozen=True, kw_only=True)
class Found:
    """The best mechanism of a search: what it costs and gives."""

    epsilon: float
    accuracy: float
    queries: int
    answers: int
    mechanism: list[float]


class Search:
    """All Confident-GNMax of a grid (and GNMax, which has no check) on one vote set, by three accountants.

    Args:
        student: (SAMPLE, n_classes) public probabilities; the check then looks at what the student lacks.
    """

    def __init__(self, votes: VoteSet, *, exact: bool = True, student: Array | None = None) -> None:
        self.votes, self.m, self.available = votes, votes.votes.n_teachers, len(votes.votes)
        self.part, self.exact = votes.spread(SAMPLE), exact
        self.student = student
        counts = self.part.votes.counts
        self.score = counts.max(axis=1) if student is None else (counts - self.m * self.student).max(axis=1)
        self.sigmas = self.m * np.geomspace(0.008, 0.6, 14)
        self.right = np.stack([chance_right(GNMax(sigma=s), self.part) for s in self.sigmas])  # (sigmas, queries)
        self.vote = {
            "paper": [rdp_gnmax(log_q_gaussian(counts, sigma=s), sigma=s, orders=GRID) for s in self.sigmas],
            "worst": [rdp_argmax(sigma=s, orders=GRID) for s in self.sigmas],
        }
        if exact:
            self.vote["exact"] = [rdp_gnmax_exact(counts, sigma=s, orders=GRID) for s in self.sigmas]
        self.checks = [(None, math.inf)] if student is None else []
        for share in np.linspace(0.2, 1.4, 13):
            self.checks += [(share * self.m, s) for s in self.m * np.geomspace(0.04, 1.0, 8)]

    def best(
        self, accountant: str, wanted: Callable[[Array, Array], tuple[float, float]], *, check: bool
    ) -> Found | None:
        """The least epsilon of those for which ``wanted`` (answered, right) gives a number of queries that there are.

        ``wanted`` says, for a mechanism's chances per query, how many queries it takes (nan: never) and its accuracy.
        """
        candidates = []
        for threshold, sigma_check in self.checks:
            if (threshold is not None) != check:
                continue
            pr = np.ones(len(self.score)) if threshold is None else ndtr((self.score - threshold) / sigma_check)
            if pr.mean() < 1e-3:
                continue
            check_rdp = self._check(accountant, threshold, sigma_check, pr)
            for i, sigma in enumerate(self.sigmas):
                n_queries, accuracy = wanted(pr, self.right[i])
                if not n_queries <= self.available:
                    continue
                answered = (
                    pr.mean() * self.vote[accountant][i]
                    if accountant == "worst"
                    else pr @ self.vote[accountant][i] / len(pr)
                )
                value = self._epsilon(n_queries * (check_rdp + answered))
                numbers = [threshold, sigma_check, sigma] if check else [sigma]
                candidates.append(
                    Found(
                        epsilon=value,
                        accuracy=accuracy,
                        queries=math.ceil(n_queries),
                        answers=round(n_queries * pr.mean()),
                        mechanism=numbers,
                    )
                )
        candidates.sort(key=lambda found: found.epsilon)
        if accountant != "exact" or not check:
            return candidates[0] if candidates else None
        # Check and answer as one mechanism: no sum of two costs
        joint = [Found(**{**vars(found), "epsilon": self._joint(found)}) for found in candidates[:SHORTLIST]]
        return min(joint, key=lambda found: found.epsilon) if joint else None

    def _check(self, accountant: str, threshold: float | None, sigma: float, pr: Array) -> Array:
        if threshold is None:
            return np.zeros(GRID.size)
        if accountant == "worst":
            return rdp_check(sigma=sigma, orders=GRID)
        if accountant == "paper":
            return rdp_threshold(np.log(np.maximum(pr, 1e-300)), sigma=sigma, orders=GRID).mean(axis=0)
        return rdp_check_exact(self.score, threshold=threshold, sigma=sigma, orders=GRID).mean(axis=0)

    def _joint(self, found: Found) -> float:
        threshold, sigma_check, sigma_vote = found.mechanism
        settings = {"threshold": threshold, "sigma_check": sigma_check, "sigma_vote": sigma_vote}
        if self.student is None:
            total = cost(ConfidentGNMax(**settings), self.part.votes, orders=GRID)
        else:
            mechanism = InteractiveGNMax(**settings, student_confidence=0.9)
            total = cost(mechanism, self.part.votes, orders=GRID, student_proba=self.student)
        return self._epsilon(total.reveal().epsilons * found.queries / len(self.part.votes))

    def _epsilon(self, rdp: Array) -> float:
        return float(epsilons_at(GRID, rdp, delta=self.votes.delta, conversion="tight").min())


def answers_of(n_answers: int, accuracy: float) -> Callable[[Array, Array], tuple[float, float]]:
    """So many answers, at least so often right."""

    def wanted(pr: Array, right: Array) -> tuple[float, float]:
        found = float(pr @ right / pr.sum())
        return (n_answers / pr.mean() if found >= accuracy else math.nan), found

    return wanted


def found(best: Found | None) -> dict[str, Any] | None:
    return None if best is None else vars(best)


def both_routes(search: Search, wanted: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for accountant in ACCOUNTANTS if search.exact else ("paper", "worst"):
        for name, check in (("gnmax", False), ("confident", True)):
            result[f"{name}_{accountant}"] = found(search.best(accountant, wanted, check=check))
    return result


def confident_against_gnmax(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """The least epsilon for as many answers that are right as often: below the plurality's accuracy, and above it."""
    rows = []
    for votes, n_answers in (
        (paper_mnist(), 1_000),
        (mnist[250], 1_000),
        (mnist[5_000], 1_000),
        (glyph[max(glyph)], 4_000),
    ):
        search = Search(votes)
        plurality = search.part.about()["plurality"]
        for accuracy in (plurality - 0.01, plurality + min(0.03, 0.25 * (1 - plurality))):
            routes = both_routes(search, answers_of(n_answers, accuracy))
            rows.append({"votes": votes.about(), "answers": n_answers, "accuracy": accuracy, **routes})
    return rows


def more_teachers(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """The least epsilon for as many answers that are right as often, by number of teachers."""
    rows = []
    for sets, n_answers in ((mnist, 1_000), (glyph, 4_000)):
        accuracy = round(min(votes.spread(SAMPLE).about()["plurality"] for votes in sets.values()) - 0.005, 3)
        for votes in sets.values():
            routes = both_routes(Search(votes, exact=False), answers_of(n_answers, accuracy))
            rows.append({"votes": votes.about(), "answers": n_answers, "accuracy": accuracy, **routes})
    return rows


def interactive_against_confident(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """The least epsilon for half of the labels that the teachers could put right of a simulated student's."""
    largest, few, rng = glyph[max(glyph)], 5, np.random.default_rng(0)
    counts = largest.spread(SAMPLE).votes.counts
    weak = Votes([rng.multivariate_hypergeometric(row, few) for row in counts], n_teachers=few)
    rows = []
    for votes, student, name in (
        (mnist[5_000], paper_mnist().spread(SAMPLE).votes, "the paper's 250 teachers"),
        (largest, weak, f"{few} of the same teachers, drawn anew for every query"),
    ):
        part = votes.spread(SAMPLE)
        known = student.counts.argmax(axis=1) == part.labels
        gain = 0.5 * ((part.votes.counts.argmax(axis=1) == part.labels).mean() - known.mean())  # a query

        def wanted(
            pr: Array, right: Array, known: Any = known, target: float = gain * len(votes.votes)
        ) -> tuple[float, float]:
            each = float((pr * (right - known)).mean())
            return (target / each if each > 0 else math.nan), float(pr @ right / pr.sum())

        plain = Search(votes)
        row = {
            "votes": votes.about(),
            "student": name,
            "student_accuracy": known.mean(),
            "gain": gain * len(votes.votes),
        }
        row |= {f"confident_{kind}": found(plain.best(kind, wanted, check=True)) for kind in ACCOUNTANTS}
        shares = student.counts / student.n_teachers
        sure = np.eye(shares.shape[1])[student.counts.argmax(axis=1)]
        for opinion, proba in (("plurality", sure), ("vote shares", shares)):
            search = Search(votes, student=proba)
            ours = {f"interactive_{kind}": found(search.best(kind, wanted, check=True)) for kind in ACCOUNTANTS}
            rows.append({**row, "opinion": opinion, **ours})
    return rows


def corollary(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """exp(-2λ/σ²)/λ at λ = gap/4, for three counts that are a gap apart."""
    rows = []
    for sigma, gap in SEPARATED:
        order = gap / 4
        counts = np.array([[2 * gap, gap, *([0] * 8)]])
        rows.append(
            {
                "sigma": sigma,
                "gap": gap,
                "order": order,
                "printed": math.exp(-2 * order / sigma**2) / order,
                "theorem": float(rdp_gnmax(log_q_gaussian(counts, sigma=sigma), sigma=sigma, orders=order)[0, 0]),
                "exact": float(rdp_gnmax_exact(counts, sigma=sigma, orders=order)[0, 0]),
                "worst": float(rdp_argmax(sigma=sigma, orders=order)[0]),
            }
        )
    return rows


def gaussian_epsilon(*, shift: float, delta: float) -> float:
    """Of one Gaussian mechanism whose mean moves by ``shift`` standard deviations: Balle and Wang (2018), Thm. 8."""

    def excess(eps: float) -> float:
        return float(ndtr(shift / 2 - eps / shift) - math.exp(eps) * ndtr(-shift / 2 - eps / shift)) - delta

    return float(brentq(excess, 0.0, 60.0 * shift))


# Printed parameters: (checks, sigma_check, answers, sigma_vote) for every round
ROUNDS = {
    "Confident-GNMax": ("8.42", [(12_000, 500.0, 10_762, 100.0)]),
    "Interactive-GNMax, 10,422 answers": ("10.14", [(6_000, 1500.0, 3_400, 100.0), (10_000, 2000.0, 7_022, 200.0)]),
    "Interactive-GNMax, 4,341 answers": ("10.14", [(6_000, 1500.0, 3_400, 100.0), (10_000, 2000.0, 941, 200.0)]),
    "Interactive-GNMax, every query answered": (
        "10.14",
        [(6_000, 1500.0, 6_000, 100.0), (10_000, 2000.0, 10_000, 200.0)],
    ),
}


def composition(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """The last two rows of Table 1 by composition that looks at no votes."""
    rows, delta = [], DELTA["Glyph"]
    for name, (printed, rounds) in ROUNDS.items():
        steps = [(1 / check, n) for n, check, _, _ in rounds] + [(math.sqrt(2) / vote, n) for _, _, n, vote in rounds]
        each = [(gaussian_epsilon(shift=s, delta=delta / 2 / sum(n for _, n in steps)), n) for s, n in steps]
        squares, linear = (sum(n * f(e) for e, n in each) for f in (lambda e: e * e, lambda e: e * math.tanh(e / 2)))
        gaussian, winner = (
            sum(
                (
                    worst_case_cost(
                        ConfidentGNMax(threshold=0, sigma_check=check, sigma_vote=vote),
                        n_queries=n,
                        n_answered=answers,
                        orders=ORDERS,
                        bound=bound,
                    ).epsilons
                    for n, check, answers, vote in rounds
                ),
                np.zeros(ORDERS.size),
            )
            for bound in ("gaussian", "argmax")
        )
        rows.append(
            {
                "name": name,
                "printed": printed,
                "advanced": math.sqrt(2 * math.log(2 / delta) * squares) + linear,
                "classic": float(epsilons_at(ORDERS, gaussian, delta=delta, conversion="classic").min()),
                "tight": float(epsilons_at(ORDERS, gaussian, delta=delta, conversion="tight").min()),
                "worst": float(epsilons_at(ORDERS, winner, delta=delta, conversion="tight").min()),
            }
        )
    return rows


def checks(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """What the moderate and the aggressive check do: who passes, and what share of the Rényi cost they take."""
    rows = []
    for votes in (glyph[max(glyph)], mnist[5_000]):
        part, m = votes.first(6_000), votes.votes.n_teachers
        top = part.votes.counts.max(axis=1)
        row: dict[str, Any] = {"votes": votes.about(), "weak_all": (top < m / 2).mean()}
        for name, threshold in (("moderate", 0.7), ("aggressive", 1.0)):
            mechanism = confident(m, threshold=threshold)
            answered = pr_answered(mechanism, part.votes)
            both = expected_cost(mechanism, part.votes, orders=GRID).reveal().epsilons
            best = int(np.argmin(epsilons_at(GRID, both, delta=votes.delta, conversion="tight")))
            log_q = log_q_gaussian(part.votes.counts, sigma=mechanism.sigma_vote)
            vote = answered @ rdp_gnmax(log_q, sigma=mechanism.sigma_vote, orders=GRID[best])[:, 0]
            public = {"n_queries": len(part.votes), "orders": GRID}
            all_of = worst_case_cost(mechanism, n_answered=round(answered.sum()), **public).epsilons
            only = worst_case_cost(mechanism, n_answered=0, **public).epsilons
            at = int(np.argmin(epsilons_at(GRID, all_of, delta=votes.delta, conversion="tight")))
            row |= {
                f"{name}_answers": answered.sum(),
                f"{name}_weak": answered[top < m / 2].sum() / answered.sum(),
                f"{name}_paper": 1 - vote / both[best],
                f"{name}_worst": only[at] / all_of[at],
            }
        rows.append(row)
    return rows


def synergy(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """Are answers that cost little right more often?"""
    rows = []
    for votes in (glyph[max(glyph)], paper_mnist(), mnist[5_000]):
        part = votes.first(4_000)
        sigma = 0.02 * votes.votes.n_teachers if votes.task == "Glyph" else 0.16 * votes.votes.n_teachers
        right = chance_right(GNMax(sigma=sigma), part)
        price = rdp_gnmax_exact(part.votes.counts, sigma=sigma, orders=10.0)[:, 0]
        quarter = np.argsort(np.argsort(price, kind="stable")) * 4 // len(price)
        by = [float(right[quarter == i].mean()) for i in range(4)]
        share = [float(price[quarter == i].sum() / price.sum()) for i in range(4)]
        rows.append({"votes": votes.about(), "right": by, "share": share, "rank": spearmanr(price, right).statistic})
    return rows


def labels(*_: Any) -> list[dict[str, Any]]:
    """Adult's students (adult_students.py) on answers that passed a check, and on as many first rows' open labels."""
    settings = json.loads((OUT / "adult_students.json").read_text())["settings"]
    return [
        {"setting": s["setting"], "student": name, **{kind: found["mean"] for kind, found in by.items()}}
        for s in settings
        for name, by in s["students"].items()
        if "threshold" in s["mechanism"]
    ]


def on_glyph(*_: Any) -> dict[str, Any]:
    """What paper_glyph.py found that a claim rests on."""
    found = json.loads((OUT / "paper_glyph.json").read_text())
    two_rounds = next(row for row in found["table"] if "first_epsilon" in row and row["learner"] == "VAT")
    scores = ("accuracy", "accuracy_recorded")
    return {
        "table": [
            {**{key: row[key] for key in ("setting", "learner")}, **{key: row[key]["by_seed"] for key in scores}}
            for row in found["table"]
        ],
        "apart": [
            {"who": row["who"], "learner": row["learner"], "accuracy": row["accuracy"]["by_seed"]}
            for row in found["apart"]
        ],
        "split": [
            {
                **{key: row[key] for key in ("images", "teachers", "each", "plurality")},
                "worst": [at_accuracy(row["gnmax"], "worst", target) for target in SPLIT_AT],
            }
            for row in found["split"]
        ],
        "rounds": [two_rounds[key] for key in ("first_epsilon", "second_epsilon", "paper_epsilon")],
        "inputs": found["inputs"],
        "stages": [
            {"who": row["who"], "k": row["k"], "accuracy": row["accuracy"]["by_seed"]}
            for row in found["stages"]
            if row["learner"] == "Features"
        ],
        "others": [
            {"setting": row["setting"], "learner": row["learner"], **{key: row[key]["by_seed"] for key in scores}}
            for row in found["others"]
        ],
        "open": [{"setting": r["setting"], "accuracy": r["accuracy"]["by_seed"]} for r in found["mnist"]],
        "resnets": [
            {"setting": row["setting"], "learner": row["learner"], **{key: row[key]["by_seed"] for key in scores}}
            for name in ("table", "others")
            for row in found.get("resnets", {}).get(name, [])
        ],
    }


def on_small(*_: Any) -> dict[str, Any]:
    """What paper_small.py found that a claim rests on."""
    return numbers(json.loads((OUT / "paper_small.json").read_text())["runs"])


SPLIT_AT = (0.70, 0.82)  # share of right answers at which ensembles of a fixed set are compared
CLAIMS: dict[str, Callable[..., Any]] = {
    "labels": labels,
    "glyph": on_glyph,
    "small": on_small,
    "lnmax": lnmax_against_gnmax,
    "tails": tails,
    "quartered": quartered,
    "confident": confident_against_gnmax,
    "interactive": interactive_against_confident,
    "teachers": more_teachers,
    "corollary": corollary,
    "composition": composition,
    "checks": checks,
    "synergy": synergy,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="The paper's claims against votes")
    parser.add_argument("--votes", type=Path, help="folder of vote files")
    parser.add_argument("--only", choices=list(CLAIMS), help="compute one claim's numbers and keep the others")
    parser.add_argument("--draw", action="store_true", help="no votes: the page from the JSON")
    given = parser.parse_args()
    file = OUT / "claims.json"
    results = json.loads(file.read_text()) if (given.draw or given.only) and file.is_file() else {}
    if not given.draw:
        if given.votes is None and given.only not in ("labels", "glyph", "small"):
            parser.error("Give --votes FOLDER, or --draw to draw the page from the JSON.")
        sets = () if given.votes is None else (glyph_sets(given.votes), mnist_sets(given.votes))
        for name in [given.only] if given.only else CLAIMS:
            start = time.monotonic()
            results[name] = tidy(CLAIMS[name](*sets))
            print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
            file.write_text(json.dumps(results) + "\n")
    (OUT / "claims.md").write_text(page(results))
    if not (given.draw or given.only):
        record("claims", "python experiments/claims.py --votes FOLDER")
    print(page(results))


if __name__ == "__main__":
    main()
