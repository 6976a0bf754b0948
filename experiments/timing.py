"""What the time of a request tells of private data, through a real service at the default pace.

    python experiments/timing.py neighbors --requests 1600
    python experiments/timing.py scaled --requests 2000
    python experiments/timing.py neighbors --requests 100 --tree ../before   # another checkout's code

`neighbors`: 50 teachers that raise on a row with no neighbor in their share, requests of 32 rows that fewer or more
teachers fail on: the rank correlation of a request's time with the number of teachers that fail on some row of it.

`scaled`: scaled logistic regression, 256 rows near the largest float32; one teacher's share is there whole, or one half
of it twice, by a coin for each request. How often one request's time guesses the coin in the second
half of the requests, by the threshold that was best in the first.

Both print one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

N_TEACHERS = 50
CLASSES = ("a", "b", "c")
WIDTH = 8


def neighbors(n_requests: int, seed: int) -> dict[str, Any]:
    from scipy.stats import spearmanr
    from sklearn.neighbors import RadiusNeighborsClassifier

    rng = np.random.default_rng(seed)
    rows, labels = rng.normal(size=(N_TEACHERS * 60, WIDTH)), rng.integers(3, size=N_TEACHERS * 60)
    taught = teach(RadiusNeighborsClassifier(radius=3.0), rows, labels)
    # From where everyone has neighbors to where nobody has
    reach = rng.uniform(0.0, 2.2, size=(n_requests, 1, 1))
    asked = (rng.normal(size=(n_requests, 32, WIDTH)) * reach).astype(np.float32)
    failing = [failures(taught, request) for request in asked]
    took = np.array(list(times([taught], asked, np.zeros(n_requests, dtype=int))))
    found = spearmanr(took, failing).statistic if np.ptp(took) > 0 else 0.0
    return {
        "what": "rank correlation of time and number of failing teachers",
        "spearman": round(float(found), 4),
        "by_chance": round(3.3 / math.sqrt(n_requests), 4),
        "failing": [int(np.min(failing)), int(np.max(failing))],
        **described(took),
    }


def scaled(n_requests: int, seed: int) -> dict[str, Any]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(seed)
    rows, labels = 4 * rng.normal(size=(N_TEACHERS * 40, WIDTH)), rng.integers(3, size=N_TEACHERS * 40)
    rows[20:40] *= 1e-3  # half of teacher 0's: with the other half, the largest numbers stay finite when scaled
    halved = rows.copy()
    halved[:20] = rows[20:40]  # without it they overflow
    estimator = make_pipeline(StandardScaler(), LogisticRegression())
    both = [teach(estimator, some.astype(np.float32), labels) for some in (rows, halved)]
    largest = np.finfo(np.float32).max
    signs = rng.choice([-1.0, 1.0], size=(n_requests, 256, WIDTH))
    asked = (signs * largest * rng.uniform(0.5, 0.999, size=signs.shape)).astype(np.float32)
    coins = rng.permutation(np.arange(n_requests) % 2)
    took = np.array(list(times(both, asked, coins)))
    best = max(np.mean((took > at) == (coins == side)) for at in np.unique(took) for side in (0, 1))
    half = n_requests // 2
    threshold, side = max(
        ((at, side) for at in np.unique(took[:half]) for side in (0, 1)),
        key=lambda one: np.mean((took[:half] > one[0]) == (coins[:half] == one[1])),
    )
    return {
        "what": "share of guesses right, from the time of one request",
        "right": round(float(np.mean((took[half:] > threshold) == (coins[half:] == side))), 4),
        "right_in_hindsight": round(float(best), 4),
        "guesses": n_requests - half,
        "seconds_by_coin": [round(float(np.median(took[coins == coin])), 4) for coin in (0, 1)],
        **described(took),
    }


def described(took: np.ndarray) -> dict[str, Any]:
    return {
        "requests": len(took),
        "seconds": {f"p{q}": round(float(np.percentile(took, q)), 4) for q in (1, 50, 99)},
    }


def teach(estimator: Any, rows: np.ndarray, labels: np.ndarray) -> Any:
    """An ensemble whose teacher k has the k-th run of rows."""
    from terrine import PrivateData
    from terrine.relations import Relation
    from terrine.teachers import SklearnTeacher, fit_teachers

    partitioning = either("terrine.partitioning", "terrine.partition")
    shares = partitioning.Partition(
        np.repeat(np.arange(N_TEACHERS), len(rows) // N_TEACHERS),
        n_teachers=N_TEACHERS,
        method="balanced",
        relation=Relation.ROW_REPLACED,
    )
    teacher = SklearnTeacher(estimator=estimator, chunk=N_TEACHERS)
    return fit_teachers(PrivateData(rows.astype(np.float32), labels), shares, teacher, classes=CLASSES, seed=0)


def failures(taught: Any, request: np.ndarray) -> int:
    """How many teachers have no neighbors for some row."""
    (models,) = taught._models.values()
    found = 0
    for model in models:
        near = model.radius_neighbors(request, return_distance=False)
        found += any(len(one) == 0 for one in near)
    return found


def times(ensembles: list[Any], asked: np.ndarray, which: np.ndarray) -> Iterator[float]:
    """Seconds of each request, each put to the service over the ensemble that is named."""
    import httpx

    with tempfile.TemporaryDirectory() as folder:
        served = [service(taught, Path(folder) / f"{k}.sqlite", asked) for k, taught in enumerate(ensembles)]
        with ExitStack() as stack:
            found = [stack.enter_context(one) for one in served]
            for k, (url, key) in enumerate(found):  # warm
                post(httpx, url, key, asked[0] * 0.5 + k, "warm")
            clients = [httpx.Client(base_url=url, timeout=120, headers=bearer(key)) for url, key in found]
            for k, (rows, one) in enumerate(zip(asked, which, strict=True)):
                body = npy(rows)
                started = time.perf_counter()
                response = clients[one].post(f"/v1/labels?request_id={k}", content=body, headers=NPY)
                yield time.perf_counter() - started
                response.raise_for_status()
            for client in clients:
                client.close()


def either(now: str, before: str) -> Any:
    """A module by the name it has, or had in the checkout that is measured."""
    try:
        return import_module(now)
    except ImportError:
        return import_module(before)


NPY = {"Content-Type": "application/x-npy"}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def npy(rows: np.ndarray) -> bytes:
    import io

    out = io.BytesIO()
    np.save(out, rows)
    return out.getvalue()


def post(httpx: Any, url: str, key: str, rows: np.ndarray, name: str) -> None:
    where = f"{url}/v1/labels?request_id={name}"
    httpx.post(where, content=npy(rows), headers=bearer(key) | NPY, timeout=120).raise_for_status()


@contextmanager
def service(taught: Any, where: Path, asked: np.ndarray) -> Iterator[tuple[str, str]]:
    """A real server over these teachers, at the default pace; its address and a key."""
    import uvicorn

    from terrine import ConfidentGNMax, CountBudget, Ledger
    from terrine.service.app import Limits, make_app
    from terrine.service.keys import Keys

    RowFormat = either("terrine.service.parsing", "terrine.service.bodies").RowFormat
    mechanism = ConfidentGNMax(threshold=30, sigma_check=10, sigma_vote=10)
    Ledger(where, budget=CountBudget(mechanism, n_queries=2 * asked.shape[0] * asked.shape[1], delta=1e-6)).close()
    key = Keys(where).create("clock")
    rows = RowFormat(shape=asked.shape[2:], dtype="float32")
    app = make_app(taught, mechanism, Ledger(where), Keys(where), rows=rows, limits=Limits(rate=1e6, seconds=120))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", key
        finally:
            server.should_exit = True
            thread.join(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("neighbors", "scaled"))
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tree", type=Path, help="A checkout whose code is measured (default: the one installed).")
    given = parser.parse_args()
    if given.tree is not None:
        arguments = [given.what, "--requests", str(given.requests), "--seed", str(given.seed)]
        environment = {**os.environ, "PYTHONPATH": str(given.tree.resolve() / "src")}
        sys.exit(subprocess.run([sys.executable, __file__, *arguments], env=environment).returncode)
    warnings.simplefilter("ignore")
    started = time.monotonic()
    found = {"neighbors": neighbors, "scaled": scaled}[given.what](given.requests, given.seed)
    print(json.dumps({**found, "minutes": round((time.monotonic() - started) / 60, 2)}))


if __name__ == "__main__":
    main()
