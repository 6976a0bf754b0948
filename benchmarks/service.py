"""The label service under load, against an empty endpoint and the bare labeller, all in one run; wrk sends.

python benchmarks/service.py        # needs wrk; a ledger on PostgreSQL too, where the machine has one

Teachers are trivial, so that what is measured is the service: keys, parsing, charging, keeping, answering. Every
query is new: none is answered from what is kept. The pace that hides how long answers take is on, as by default.
"""

from __future__ import annotations

import io
import multiprocessing
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from rows import write

from terrine import ConfidentGNMax, CountBudget, Labeller, Ledger, Votes
from terrine.service.app import Limits, make_app
from terrine.service.bodies import RowFormat
from terrine.service.keys import Keys

sys.path.insert(0, str(Path(__file__).parents[1]))

MECHANISM = ConfidentGNMax(threshold=700, sigma_check=150, sigma_vote=40)
FEATURES = 64
SECONDS = 12
CONNECTIONS = 64
BATCH = 1000

SINGLE = """
local thread, n = 0, 0
function setup(t) t:set("id", thread); thread = thread + 1 end
function init() wrk.headers["Authorization"] = "Bearer KEY"; wrk.headers["Content-Type"] = "application/json" end
local rest = string.rep(",0.5", FEATURES - 3)
function request()
  n = n + 1
  local body = string.format('{"request_id":"%d-%d-TAG","rows":[[%d,%d,TAG%s]]}', id, n, id, n, rest)
  return wrk.format("POST", "PATH", nil, body)
end
"""
BATCHES = """
local thread, n = 0, 0
function setup(t) t:set("id", thread); thread = thread + 1 end
function init() wrk.headers["Authorization"] = "Bearer KEY"; wrk.headers["Content-Type"] = "application/x-npy" end
function request()
  local file = io.open(string.format("FOLDER/%d-%d.npy", id, n % FILES), "rb")
  local body = file:read("*a")
  file:close()
  n = n + 1
  return wrk.format("POST", string.format("/v1/labels?request_id=%d-%d", id, n), nil, body)
end
"""


class Trivial:
    """A thousand teachers of one mind on most rows."""

    n_teachers, classes, row_shape = 1000, tuple("abcdefghij"), (FEATURES,)

    def vote(self, X: Any) -> Votes:
        counts = np.zeros((len(X), 10), dtype=np.int64)
        k = X[:, 1].astype(int) % 10
        counts[np.arange(len(X)), k] = 900
        counts[np.arange(len(X)), (k + 1) % 10] += 100
        return Votes(counts, n_teachers=1000)


class Told(BaseModel):
    request_id: str
    labels: list[str]


def empty_app() -> FastAPI:
    app = FastAPI()

    @app.post("/empty")
    async def empty() -> Told:
        return Told(request_id="a", labels=["a"])

    return app


def service_app(where: str) -> FastAPI:
    rows = RowFormat(shape=(FEATURES,), dtype="float32")
    return make_app(Trivial(), MECHANISM, Ledger(where), Keys(where), rows=rows, limits=Limits(rate=1e9))


def _serve(what: str, where: str, port: int) -> None:
    app = empty_app() if what == "empty" else service_app(where)
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


@contextmanager
def served(what: str, where: str = "") -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(what, where, port))
    process.start()
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            httpx.get(f"{url}/healthz")
            break
        except httpx.HTTPError:
            time.sleep(0.1)
    try:
        yield url
    finally:
        process.terminate()
        process.join()


def wrk(url: str, script: str, *, connections: int) -> dict[str, float]:
    """Requests per second, p50 and p99 in milliseconds; anything but 2xx ends the run."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", "-t", "2", "-c", str(connections), "-d", f"{SECONDS}s", "--latency", "--timeout", "30s"]
        done = subprocess.run([*command, "-s", file.name, url], capture_output=True, text=True, check=True)
    assert "Non-2xx" not in done.stdout, done.stdout
    unit = {"us": 1e-3, "ms": 1.0, "s": 1e3}
    found = {
        name: float(value) * unit[u] for name, value, u in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)", done.stdout)
    }
    per_second = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    assert per_second is not None
    return {"per_second": float(per_second[1]), "p50_ms": found["50"], "p99_ms": found["99"]}


def bare(where: str, *, rows: int) -> float:
    """Queries per second of the labeller itself, asked for so many rows at a time."""
    labeller = Labeller(Trivial(), MECHANISM, Ledger(where))
    rng, n, start = np.random.default_rng(rows), 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS / 2:
        X = rng.uniform(size=(rows, FEATURES)).astype(np.float32)
        labeller.label(X, request_id=f"bare {rows} {n}")
        n += 1
    return n * rows / (time.perf_counter() - start)


def bodies(folder: Path, *, threads: int, files: int) -> None:
    rng = np.random.default_rng(5)
    for thread in range(threads):
        for k in range(files):
            file = io.BytesIO()
            np.save(file, rng.uniform(size=(BATCH, FEATURES)).astype(np.float32))
            (folder / f"{thread}-{k}.npy").write_bytes(file.getvalue())


def measured(name: str, where: str, folder: Path, empty: float) -> list[dict[str, Any]]:
    budget = CountBudget(MECHANISM, n_queries=100_000_000, delta=1e-5)
    Ledger(where, budget=budget).close()
    key = Keys(where).create("load")
    one, many = bare(where, rows=1), bare(where, rows=BATCH)
    with served("service", where) as url:
        script = SINGLE.replace("FEATURES", str(FEATURES)).replace("KEY", key).replace("PATH", "/v1/labels")
        single = wrk(url, script.replace("TAG", "1"), connections=CONNECTIONS)
        script = BATCHES.replace("KEY", key).replace("FOLDER", str(folder)).replace("FILES", "400")
        batch = wrk(url, script, connections=8)
    slower = min(empty, one)
    return [
        {
            "metric": f"{name}: single queries, {CONNECTIONS} connections",
            "value": single["per_second"],
            "unit": "queries/s",
            "baseline": "the slower of an empty endpoint and the bare labeller",
            "ratio": single["per_second"] / slower,
            "empty endpoint": empty,
            "bare labeller": one,
            **single,
        },
        {
            "metric": f"{name}: .npy batches of {BATCH}, 8 connections",
            "value": batch["per_second"] * BATCH,
            "unit": "queries/s",
            "baseline": f"the bare labeller, {BATCH} at a time",
            "ratio": batch["per_second"] * BATCH / many,
            "bare labeller": many,
            **batch,
        },
    ]


def main() -> None:
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bodies(folder, threads=2, files=400)
        with served("empty") as url:
            script = SINGLE.replace("FEATURES", str(FEATURES)).replace("KEY", "x").replace("PATH", "/empty")
            empty = wrk(url, script.replace("TAG", "1"), connections=CONNECTIONS)["per_second"]
        found += measured("SQLite", str(folder / "ledger.sqlite"), folder, empty)
        if shutil.which("postgres") or list(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
            from tests.postgres import Server

            server = Server()
            try:
                found += measured("PostgreSQL", server.database(), folder, empty)
            finally:
                server.stop()
    write("service", found)


if __name__ == "__main__":
    main()
