"""The label service before and after, side by side in one run; wrk sends.

python benchmarks/service.py [--before REV] [--quick]    # needs wrk and git; PostgreSQL too, where the machine has one

Both versions are served by their own `terrine serve`: its sockets, server, logs and limits, with the pace on unless a
row says otherwise. Teachers are trivial, so that what is measured is the service: keys, parsing, charging, keeping,
answering. Every query is new: none is answered from what is kept. The two take turns, and medians are compared.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
FEATURES = 64
BATCH = 1000
CONNECTIONS = 64
POLLERS = 60
WITHOUT = "TERRINE_BENCHMARK_WITHOUT"

SINGLE = """
local thread, n = 0, 0
function setup(t) t:set("id", thread); thread = thread + 1 end
function init() wrk.headers["Authorization"] = "Bearer KEY"; wrk.headers["Content-Type"] = "application/json" end
local rest = string.rep(",0.5", FEATURES - 3)
function request()
  n = n + 1
  local body = string.format('{"request_id":"%d-%d-TAG","rows":[[%d,%d,TAG%s]]}', id, n, id, n, rest)
  return wrk.format("POST", "/v1/labels", nil, body)
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
  return wrk.format("POST", string.format("/v1/labels?request_id=TAG-%d-%d", id, n), nil, body)
end
"""
POLL = """
function init() wrk.headers["Authorization"] = "Bearer KEY" end
"""


# What runs in a process of its own, with one version's package on its path.


def mechanism() -> Any:
    from terrine import ConfidentGNMax

    return ConfidentGNMax(threshold=700, sigma_check=150, sigma_vote=40)


def make_ledger(where: str, n: int) -> None:
    """A ledger of n entries of twenty accounts, each request reserved and settled through the ledger's own verbs."""
    from terrine import CountBudget, Ledger
    from terrine.ledger import Ask, Kept

    at_once, kept = 5000, Kept(1, 1, True)
    with Ledger(where, budget=CountBudget(mechanism(), n_queries=100_000_000, delta=1e-5)) as ledger:
        for start in range(0, n // 2, at_once):
            numbers = range(start, min(start + at_once, n // 2))
            asks = [
                Ask(request_id=f"made {k}", digest=f"{k:064x}", n_queries=1, account=f"account {k % 20}", quota=None)
                for k in numbers
            ]
            granted = ledger.reserve_each(mechanism(), asks, secure=True)
            ledger.keep_each([(one, {f"{k:064x}": kept}) for k, one in zip(numbers, granted, strict=True)])


def make_key(where: str) -> None:
    from terrine.service.keys import Keys

    print(Keys(where).create(f"load {time.time_ns()}"))


def serve(where: str, port: int, pace: float) -> None:
    """`terrine serve` of a run whose teachers are these."""
    for name in filter(None, os.environ.get(WITHOUT, "").split(",")):
        sys.modules[name] = None  # type: ignore[assignment]  # as if it were not installed
    from importlib import import_module

    from terrine import Ledger, Votes
    from terrine.cli import serving

    try:
        runs: Any = import_module("terrine.runs.local")
    except ImportError:  # as it was called before
        runs = import_module("terrine.run")

    class Trivial:
        n_teachers, classes, row_shape, dtype = 1000, tuple("abcdefghij"), (FEATURES,), "float32"

        def vote(self, X: Any) -> Votes:
            """A thousand teachers of one mind on most rows."""
            counts = np.zeros((len(X), 10), dtype=np.int64)
            k = X[:, 1].astype(int) % 10
            counts[np.arange(len(X)), k] = 900
            counts[np.arange(len(X)), (k + 1) % 10] += 100
            return Votes(counts, n_teachers=1000)

    class Run:
        def __init__(self, folder: Any) -> None:
            self.folder, self.mechanism = Path(folder), mechanism()

        def voters(self) -> Trivial:
            return Trivial()

        ensemble = voters

        def ledger(self, where: Any) -> Ledger:
            return Ledger(where)

    runs.Run = Run
    serving.serve(Path(tempfile.gettempdir()), ledger=where, port=port, rate=1e9, pace=pace)


# What measures.


class Version:
    """One tree of the package, and packages that its own `[service]` extra does not bring."""

    def __init__(self, name: str, source: Path, *, without: str = "") -> None:
        self.name, self._source, self._without = name, source, without

    def call(self, *words: Any) -> subprocess.Popen[str]:
        command = [sys.executable, __file__, *map(str, words)]
        environment = {**os.environ, "PYTHONPATH": str(self._source), "OMP_NUM_THREADS": "1", WITHOUT: self._without}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def told(self, *words: Any) -> str:
        process = self.call(*words)
        told = process.communicate()[0].strip()
        if process.returncode:
            raise SystemExit(f"{self.name}: {' '.join(map(str, words))} failed.")
        return told

    @contextmanager
    def served(self, where: str, *, pace: float = 0.02) -> Iterator[Served]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        start = time.perf_counter()
        process = self.call("--serve", where, port, pace)
        try:
            while True:
                if process.poll() is not None:
                    raise SystemExit(f"{self.name}: the server ended.")
                try:
                    with connected(port) as one:
                        one.request("GET", "/readyz")
                        if one.getresponse().status == 200:
                            break
                except OSError:
                    time.sleep(0.05)
            yield Served(port, process.pid, time.perf_counter() - start)
        finally:
            process.terminate()
            process.communicate()


class Served:
    def __init__(self, port: int, pid: int, seconds: float) -> None:
        self.port, self.pid, self.seconds = port, pid, seconds
        self.url = f"http://127.0.0.1:{port}"

    def mebibytes(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def connected(port: int) -> Iterator[http.client.HTTPConnection]:
    one = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        yield one
    finally:
        one.close()


def wrk(url: str, script: str, *, connections: int, seconds: float) -> dict[str, float]:
    """Requests per second, p50 and p99 in milliseconds; anything but 2xx ends the run."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", "-t", "2", "-c", str(connections), "-d", f"{seconds:g}s", "--latency", "--timeout", "30s"]
        done = subprocess.run([*command, "-s", file.name, url], capture_output=True, text=True, check=True)
    if "Non-2xx" in done.stdout:
        raise SystemExit(done.stdout)
    unit = {"us": 1e-3, "ms": 1.0, "s": 1e3}
    found = {
        name: float(value) * unit[u] for name, value, u in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)", done.stdout)
    }
    per_second = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    if per_second is None:
        raise SystemExit(done.stdout)
    return {"per_second": float(per_second[1]), "p50_ms": found["50"], "p99_ms": found["99"]}


@contextmanager
def polled(served: Served, key: str, seconds: float) -> Iterator[None]:
    """Half of the pollers on /metrics without a key, half on /v1/budget with one."""
    with ExitStack() as stack:
        polling = []
        for path in ("/metrics", "/v1/budget"):
            file = stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".lua"))
            file.write(POLL.replace("KEY", key) if path.startswith("/v1") else "")
            file.flush()
            command = ["wrk", "-t", "1", "-c", str(POLLERS // 2), "-d", f"{seconds:g}s", "--timeout", "120s"]
            polling.append(subprocess.Popen([*command, "-s", file.name, served.url + path], stdout=subprocess.DEVNULL))
        time.sleep(1.0)  # until they are under way
        try:
            yield
        finally:
            for one in polling:
                one.terminate()
                one.wait()


def latencies(served: Served, key: str, tag: str, *, calls: int) -> list[float]:
    """Milliseconds of one-row requests on one connection, one after another."""
    found = []
    with connected(served.port) as one:
        for k in range(calls):
            row = [time.time_ns() % 1e6, k, hash(tag) % 1e6, *([0.5] * (FEATURES - 3))]
            body = json.dumps({"request_id": f"{tag} {time.time_ns()} {k}", "rows": [row]})
            start = time.perf_counter()
            one.request("POST", "/v1/labels", body, {"Authorization": f"Bearer {key}"})
            response = one.getresponse()
            response.read()
            found.append(1000 * (time.perf_counter() - start))
            if response.status != 200:
                raise SystemExit(f"{tag}: status {response.status}")
    return found


def gets(served: Served, key: str, given: Any) -> list[float]:
    """Milliseconds of a request that needs no ledger, on one connection."""
    found = []
    with connected(served.port) as one:
        for _ in range(given.calls):
            start = time.perf_counter()
            one.request("GET", "/v1/about", headers={"Authorization": f"Bearer {key}"})
            one.getresponse().read()
            found.append(1000 * (time.perf_counter() - start))
    return found


def batches(served: Served, key: str, start: int, stop: int) -> None:
    """New rows, a thousand at a time."""
    rng = np.random.default_rng(start)
    with connected(served.port) as one:
        for number in range(start, stop, BATCH):
            file = io.BytesIO()
            np.save(file, rng.uniform(size=(BATCH, FEATURES)).astype(np.float32))
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/x-npy"}
            one.request("POST", f"/v1/labels?request_id=m{number}", file.getvalue(), headers)
            response = one.getresponse()
            response.read()
            if response.status != 200:
                raise SystemExit(f"memory: status {response.status}")


def bodies(folder: Path, *, threads: int, files: int) -> None:
    rng = np.random.default_rng(5)
    for thread in range(threads):
        for k in range(files):
            np.save(folder / f"{thread}-{k}.npy", rng.uniform(size=(BATCH, FEATURES)).astype(np.float32))


Make = Callable[[str], str]  # a place for a new ledger, by name
Found = dict[str, dict[str, list[Any]]]  # by metric and version


class Measured:
    """Values by metric and version, as rows of the after beside the before."""

    def __init__(self) -> None:
        self._found: Found = {}
        self._units: dict[str, str] = {}

    def add(self, metric: str, version: Version, value: float, unit: str, **more: float) -> None:
        self._units[metric] = unit
        self._found.setdefault(metric, {}).setdefault(version.name, []).append({"value": value, **more})

    def rows(self) -> list[dict[str, Any]]:
        rows = []
        for metric, versions in self._found.items():
            middle = {
                name: {field: statistics.median(one[field] for one in all_) for field in all_[0]}
                for name, all_ in versions.items()
            }
            row: dict[str, Any] = {"metric": metric, "unit": self._units[metric], **middle["after"]}
            if "before" in middle and middle["before"]["value"]:
                row |= {"before": middle["before"], "baseline": "the same before"}
                row["ratio"] = middle["after"]["value"] / middle["before"]["value"]
            rows.append(row)
        return rows


def load(name: str, versions: list[Version], make: Make, folder: Path, found: Measured, given: Any) -> None:
    """Requests a second, in turns on ledgers of their own."""
    places = {one.name: make(f"{name} {one.name}") for one in versions}
    keys = {}
    for one in versions:
        one.told("--make-ledger", places[one.name], 0)
        keys[one.name] = one.told("--make-key", places[one.name])
    for turn in range(given.rounds):
        for one in versions:
            with one.served(places[one.name]) as served:
                script = SINGLE.replace("FEATURES", str(FEATURES)).replace("KEY", keys[one.name])
                single = wrk(
                    served.url, script.replace("TAG", str(turn)), connections=CONNECTIONS, seconds=given.seconds
                )
                found.add(
                    f"{name}: one-row requests, {CONNECTIONS} connections",
                    one,
                    single.pop("per_second"),
                    "requests/s",
                    **single,
                )
                script = BATCHES.replace("KEY", keys[one.name]).replace("FOLDER", str(folder))
                script = script.replace("FILES", str(given.files)).replace("TAG", str(turn))
                if turn == 0:  # later the rows are known
                    batch = wrk(served.url, script, connections=8, seconds=given.seconds)
                    found.add(
                        f"{name}: .npy batches of {BATCH}, 8 connections",
                        one,
                        batch.pop("per_second") * BATCH,
                        "rows/s",
                        **batch,
                    )


def waits(name: str, versions: list[Version], make: Make, found: Measured, given: Any) -> None:
    """One connection: kept alive, and beside pollers on a ledger of many entries; and how long it takes to start."""
    n = given.entries
    for one in versions:
        where = make(f"{name} waits {one.name}")
        one.told("--make-ledger", where, n)
        key = one.told("--make-key", where)
        with one.served(where, pace=0.0) as served:
            found.add(f"{name}: start on {n} entries", one, served.seconds, "s")
            found.add(f"{name}: kept connection, GET /v1/about", one, statistics.median(gets(served, key, given)), "ms")
            kept = latencies(served, key, "kept", calls=given.calls)
            found.add(f"{name}: kept connection, one row, pace 0", one, statistics.median(kept), "ms")
        with one.served(where) as served:
            quiet = statistics.median(latencies(served, key, "quiet", calls=given.calls))
            with polled(served, key, seconds=600):
                busy = statistics.median(latencies(served, key, "busy", calls=given.calls))
            found.add(f"{name}: one row on {n} entries, quiet", one, quiet, "ms")
            found.add(
                f"{name}: one row on {n} entries, {POLLERS} pollers", one, busy, "ms", times_the_quiet=busy / quiet
            )


def memory(versions: list[Version], make: Make, found: Measured, given: Any) -> None:
    for one in versions:
        where = make(f"memory {one.name}")
        one.told("--make-ledger", where, 0)
        key = one.told("--make-key", where)
        with one.served(where) as served:
            done = 0
            for rows in (given.rows // 5, given.rows):
                batches(served, key, done, rows)
                done = rows
                found.add(f"memory after {rows} rows", one, served.mebibytes(), "MiB")


@contextmanager
def tree(revision: str) -> Iterator[Path]:
    """The package as it was."""
    with tempfile.TemporaryDirectory() as name:
        packed = subprocess.run(["git", "-C", str(ROOT), "archive", revision, "src"], capture_output=True, check=True)
        subprocess.run(["tar", "x", "-C", name], input=packed.stdout, check=True)
        yield Path(name) / "src"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("--before", default="805b8dc", help="a revision; none: only this tree is measured")
    asked.add_argument("--quick", action="store_true", help="a short form, to see that it runs; nothing is kept")
    asked.add_argument("--entries", type=int, help="of the ledger that pollers read (default: a million)")
    given = asked.parse_args()
    given.rounds, given.seconds, given.files = (1, 2, 60) if given.quick else (3, 12, 400)
    given.entries = given.entries or (2000 if given.quick else 1_000_000)
    given.calls, given.rows = (20, 10_000) if given.quick else (100, 500_000)
    found = Measured()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        versions = [Version("after", ROOT / "src")]
        if given.before != "none":
            source = stack.enter_context(tree(given.before))
            extra = subprocess.run(
                ["git", "-C", str(ROOT), "show", f"{given.before}:pyproject.toml"], capture_output=True, check=True
            ).stdout.decode()
            lacks = ",".join(name for name in ("httptools", "uvloop") if name not in extra)
            versions.insert(0, Version("before", source, without=lacks))
        bodies(folder, threads=2, files=given.files)

        def file(name: str) -> str:
            return str(folder / f"{name.replace(' ', '-')}.sqlite")

        load("SQLite", versions, file, folder, found, given)
        now = versions[-1:]  # before, a poll read the whole ledger: with 60 pollers a label took half a minute
        waits("SQLite", now, file, found, given)
        memory(now, file, found, given)
        if shutil.which("postgres") or list(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
            sys.path.insert(0, str(ROOT))
            from tests.postgres import Server

            server = Server()
            stack.callback(server.stop)
            load("PostgreSQL", versions, lambda _: server.database(), folder, found, given)
    if given.quick:
        for row in found.rows():
            print(json.dumps(row))
    else:
        from rows import write

        write("service", found.rows())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--serve", where, port, pace]:
            serve(where, int(port), float(pace))
        case ["--make-ledger", where, n]:
            make_ledger(where, int(n))
        case ["--make-key", where]:
            make_key(where)
        case _:
            main()
