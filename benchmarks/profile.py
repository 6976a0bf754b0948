"""Worst cases by privacy profiles against Rényi bounds, in one run: epsilon, time the first time and from the cache.

One process, one thread, an empty cache; CPU seconds beside the clock's, since a machine may be busy.
Run: python benchmarks/profile.py [--svhn]   (SVHN takes minutes)
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable

from rows import write

from terrine import ConfidentGNMax, GNMax
from terrine.accounting import profile_costs
from terrine.accounting.profile_costs import count_guarantee

MNIST = ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40)
OTHERS = ConfidentGNMax(threshold=300, sigma_check=200, sigma_vote=40)
BUDGETS: dict[str, tuple[GNMax | ConfidentGNMax, int, int | None, float]] = {
    "30 answers at 211.9 votes of noise": (GNMax(sigma=211.9), 30, None, 1e-5),
    "270 answers at 100 votes of noise": (GNMax(sigma=100.0), 270, None, 1e-5),
    "MNIST, 640 checks, 283 answers": (MNIST, 640, 283, 1e-5),
    "Adult, 1,500 checks, 538 answers": (OTHERS, 1500, 538, 1e-5),
}
LONG = {"SVHN, 8,500 checks, 2,969 answers": (OTHERS, 8500, 2969, 1e-6)}


def timed(function: Callable[[], float]) -> tuple[float, float, float]:
    """What it gives, seconds of the clock and of the CPU."""
    start, cpu = time.perf_counter(), time.process_time()
    found = function()
    return found, time.perf_counter() - start, time.process_time() - cpu


def measured(
    mechanism: GNMax | ConfidentGNMax, n_queries: int, n_answers: int | None, delta: float
) -> dict[str, float]:
    def epsilon(accountant: profile_costs.CountAccountant) -> float:
        counts = {"n_queries": n_queries, "n_answers": n_answers}
        return count_guarantee(mechanism, **counts, delta=delta, accountant=accountant).epsilon

    renyi, _, renyi_cpu = timed(lambda: epsilon("renyi"))
    first, clock, cpu = timed(lambda: epsilon("profile"))
    profile_costs.profile_epsilon.cache_clear()
    profile_costs.profile.cache_clear()
    again, cached, _ = timed(lambda: epsilon("profile"))
    return {
        "value": first,
        "ratio": first / renyi,
        "renyi_epsilon": renyi,
        "delta": delta,
        "first_s": round(clock, 2),
        "first_cpu_s": round(cpu, 2),
        "cached_s": round(cached, 3),
        "renyi_cpu_s": round(renyi_cpu, 2),
        "difference_from_cache": again - first,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--svhn", action="store_true")
    budgets = BUDGETS | (LONG if parser.parse_args().svhn else {})
    rows = []
    with tempfile.TemporaryDirectory() as empty:
        os.environ["TERRINE_CACHE"] = empty
        for name, (mechanism, n_queries, n_answers, delta) in budgets.items():
            about = {"metric": f"worst case by profile, {name}", "unit": "epsilon", "baseline": "Rényi, argmax bound"}
            rows.append(about | measured(mechanism, n_queries, n_answers, delta))
            print(rows[-1], flush=True)
    write("profile", rows)


if __name__ == "__main__":
    main()
