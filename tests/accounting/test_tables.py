"""The paper's tables on its own votes, the worst cases of the same runs, and a million queries."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from terrine.accounting.costs import cost, expected_answered, expected_cost, worst_case_cost
from terrine.accounting.curves import ORDERS, guarantee
from terrine.mechanisms import ConfidentGNMax, LNMax
from terrine.votes import Votes


@dataclass(frozen=True)
class Run:
    """A row of the paper's tables, and what it costs by the paper's analysis and in the worst case."""

    n_queries: int
    mechanism: ConfidentGNMax
    delta: float
    answered: float
    paper: tuple[float, float]  # epsilon, best order
    worst_case: tuple[float, float]  # argmax, gaussian


def confident(threshold: float, sigma_check: float, sigma_vote: float) -> ConfidentGNMax:
    return ConfidentGNMax(threshold=threshold, sigma_check=sigma_check, sigma_vote=sigma_vote)


RUNS = {
    "mnist": Run(640, confident(200, 150, 40), 1e-5, 282.7, (1.999, 14.0), (2.142, 2.743)),
    "svhn": Run(8500, confident(300, 200, 40), 1e-6, 2969.1, (4.915, 7.5), (8.878, 11.555)),
    "adult": Run(1500, confident(300, 200, 40), 1e-5, 538.3, (1.678, 15.5), (3.024, 3.892)),
}
every_run = pytest.mark.parametrize("name", RUNS)


def votes_of(folder: Path, name: str, n_queries: int) -> Votes:
    return Votes.load(folder / f"{name}_250_teachers.npy")[:n_queries]


@every_run
def test_the_papers_table_comes_out(vote_files: Path, name: str) -> None:
    run = RUNS[name]
    votes = votes_of(vote_files, name, run.n_queries)
    assert expected_answered(run.mechanism, votes).reveal() == pytest.approx(run.answered, abs=0.05)
    got = guarantee(expected_cost(run.mechanism, votes), delta=run.delta, conversion="classic").reveal()
    epsilon, order = run.paper
    assert got.epsilon == pytest.approx(epsilon, abs=5e-4)
    assert got.order == order


def test_the_papers_lnmax_comes_out(vote_files: Path) -> None:
    votes = votes_of(vote_files, "mnist", 100)
    curves = (cost(LNMax(scale=20), votes, orders=orders, accountant="paper") for orders in (range(2, 10), ORDERS))
    few, many = (guarantee(curve, delta=1e-5, conversion="classic").reveal() for curve in curves)
    assert few.epsilon == pytest.approx(2.043, abs=5e-4)
    assert many.epsilon < few.epsilon


@every_run
def test_the_worst_cases_of_the_papers_runs(name: str) -> None:
    """At most 0.003 above the value of the theory, and never below it by more than its rounding."""
    run = RUNS[name]
    argmax, gaussian = (
        guarantee(
            worst_case_cost(run.mechanism, n_queries=run.n_queries, n_answered=round(run.answered), bound=bound),
            delta=run.delta,
        ).epsilon
        for bound in ("argmax", "gaussian")
    )
    assert run.worst_case[0] - 1e-3 <= argmax <= run.worst_case[0] + 3e-3
    assert gaussian == pytest.approx(run.worst_case[1], abs=5e-4)


MILLION = """
import numpy as np
from terrine import ConfidentGNMax, Votes
from terrine.accounting.costs import cost
p = [0.5, 0.2, 0.1, 0.05, 0.05, 0.02, 0.02, 0.02, 0.02, 0.02]
votes = Votes(np.random.default_rng(0).multinomial(250, p, size=1_000_000), n_teachers=250)
curve = cost(ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40), votes, accountant="paper").reveal()
assert curve.orders.size == 298 and (curve.epsilons > 0).all()
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
def test_a_million_queries_stay_below_a_gigabyte() -> None:
    run = subprocess.run([sys.executable, "-c", MILLION], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 2**20  # kB
