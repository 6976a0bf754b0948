"""A ledger of a million entries: does a write, a poll, a start or an audit grow with it?

    python benchmarks/ledger.py            # a million entries, SQLite; some minutes
    python benchmarks/ledger.py 100000

Entries are made by the ledger's own verbs, several thousand in a transaction. Times are of this machine; the rows hold
ratios of the same run.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rows import seconds, write

from terrine.budgets import CountBudget
from terrine.ledger import Ask, Kept, Ledger
from terrine.mechanisms import GNMax, Outcome

MECHANISM = GNMax(sigma=40)
SMALL = 10_000  # entries of the ledger that the large one is compared with
ACCOUNTS = 20
AUDIT = """
import json, resource, sys, time
from terrine.ledger import Ledger
started = time.perf_counter()
with Ledger(sys.argv[1]) as ledger:
    found = getattr(ledger, sys.argv[2])()
assert found == [], found
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": time.perf_counter() - started, "MiB": peak}))
"""


def fill(ledger: Ledger, n_entries: int, *, at_once: int = 5000) -> None:
    """A reservation and a settlement for each request of one query, by one account after the other."""
    while (done := ledger.head().seq) < n_entries:
        n = min(at_once, (n_entries - done) // 2)
        names = [f"request {done + k}" for k in range(n)]
        asks = [
            Ask(request_id=name, digest=f"{k:064x}", n_queries=1, account=f"account {k % ACCOUNTS}")
            for k, name in enumerate(names)
        ]
        granted = ledger.reserve_each(MECHANISM, asks)
        answers = [{f"{done + k:064x}": Kept(k % 10, Outcome.TEACHERS, True)} for k in range(n)]
        ledger.keep_each([(one, kept) for one, kept in zip(granted, answers, strict=True)])  # type: ignore[misc]


def transaction(ledger: Ledger, name: str) -> float:
    """Median milliseconds of a reservation for 20 accounts."""
    times = []
    for k in range(30):
        asks = [
            Ask(request_id=f"{name} {k} {a}", digest="0", n_queries=1, account=f"account {a}", quota=10**9)
            for a in range(ACCOUNTS)
        ]
        started = time.perf_counter()
        ledger.reserve_each(MECHANISM, asks)
        times.append(time.perf_counter() - started)
    return 1000 * float(np.median(times))


def audited(path: Path, verb: str) -> dict[str, float]:
    """In a process of its own, whose largest memory is told."""
    done = subprocess.run([sys.executable, "-c", AUDIT, path, verb], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def main(n_entries: int) -> None:
    rows = []
    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for n in (SMALL, n_entries):
            path = Path(folder) / f"{n}.sqlite"
            with Ledger(path, budget=CountBudget(MECHANISM, n_queries=10 * n + 10_000, delta=1e-5)) as ledger:
                fill(ledger, n)
                found[n] = {
                    "transaction_ms": transaction(ledger, "timed"),
                    "summary_ms": 1000 * seconds(ledger.summary, repeats=10)[0],
                    "head_ms": 1000 * seconds(ledger.tree_head, repeats=10)[0],
                    "proof_ms": 1000 * seconds(lambda made=ledger, n=n: made.proof(n // 3, n), repeats=10)[0],
                    "accounts_ms": 1000 * seconds(ledger.accounts, repeats=10)[0],
                }
            for verb in ("verify_recent", "verify"):
                cost = audited(path, verb)
                found[n] |= {f"{verb}_s": cost["seconds"], f"{verb}_MiB": cost["MiB"]}
    for name, value in found[n_entries].items():
        ratio = value / found[SMALL][name]
        rows.append({"metric": name, "entries": n_entries, "value": round(value, 3), "ratio": round(ratio, 2)})
        rows[-1]["baseline"] = f"{SMALL} entries"
    write("ledger", rows)
    print(f"largest memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
