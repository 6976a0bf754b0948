"""Tiny teachers, and the service over them: in this process, or as a real server in another."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import uvicorn

from terrine import ConfidentGNMax, CountBudget, Ledger, Votes
from terrine.noise import SeededNoise
from terrine.service import wire
from terrine.service.app import Limits, make_app
from terrine.service.keys import Keys
from terrine.service.parsing import RowFormat

CLASSES = ("cat", "dog", "cow", "emu")
N_TEACHERS = 100
MECHANISM = ConfidentGNMax(threshold=70, sigma_check=3, sigma_vote=3)
FORMAT = RowFormat(shape=(2,), dtype="float32")


class TinyTeachers:
    """Rows are (class, share that agrees): what they vote is plain from the row, and nothing is trained."""

    n_teachers, classes, row_shape = N_TEACHERS, CLASSES, (2,)

    def vote(self, X):
        counts = np.zeros((len(X), len(CLASSES)), dtype=np.int64)
        rows, k = np.arange(len(X)), X[:, 0].astype(int) % len(CLASSES)
        agree = np.round(np.clip(X[:, 1], 0, 1) * N_TEACHERS).astype(int)
        counts[rows, k] += agree
        counts[rows, (k + 1) % len(CLASSES)] += N_TEACHERS - agree
        return Votes(counts, n_teachers=N_TEACHERS)


def rows_of(n, *, agree=0.98, seed=0):
    """Distinct rows on which so large a share of the teachers agrees."""
    rng = np.random.default_rng(seed)
    share = agree + rng.uniform(0, 0.0049, n)  # distinct; the same count
    return np.column_stack([rng.integers(0, len(CLASSES), n), share]).astype(np.float32)


def budget_for(n_queries, n_answers=None):
    return CountBudget(MECHANISM, n_queries=n_queries, n_answers=n_answers or n_queries, delta=1e-5)


class Service:
    """The app over a ledger, with a client's and an admin's key; `start` serves it on a port from a thread."""

    def __init__(
        self, where, *, queries=1000, answers=None, limits=None, quota=None, voters=None, seeded=True, encoder=None
    ):
        self.where = where
        self.ledger = Ledger(where, budget=budget_for(queries, answers))
        self.keys = Keys(where)
        self.key = self.keys.create("someone", quota=quota)
        self.admin = self.keys.create("the owner", role="admin")
        self.limits = limits or Limits(pace=0, rate=1e6)
        self.voters = voters or TinyTeachers()
        self.rows = RowFormat(shape=self.voters.row_shape, dtype="float32", encoder=encoder)
        self.rng = SeededNoise(7) if seeded else None

    def make(self):
        return make_app(
            self.voters,
            MECHANISM,
            Ledger(self.where),
            Keys(self.where),
            rows=self.rows,
            limits=self.limits,
            rng=self.rng,
        )

    @contextmanager
    def serving(self, port=0):
        """A real server on a port of this machine."""
        config = uvicorn.Config(self.make(), **wire.settings(log_config=None))
        server = uvicorn.Server(config)
        listening = socket.create_server(("127.0.0.1", port))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
            listening.close()

    def close(self):
        """Let go of the database, so that its files may be moved."""
        self.ledger.close()
        self.keys.close()

    @contextmanager
    def client(self):
        with self.serving() as url, client_of(url) as client:
            yield client


def wait_until(true, *, seconds=120.0):
    """For as long as a busy machine may take."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def wait_until_ready(process, url, *, told=lambda: "the server ended"):
    """Until a server that was started as a process answers."""

    def ready():
        assert process.poll() is None, told()
        asked = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)  # to ask costs it little
        try:
            asked.request("GET", "/readyz")
            return asked.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            asked.close()

    wait_until(ready)


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def client_of(url, key=None, **more):
    """A client that reads no certificates, which would take it longer than to ask."""
    headers = {} if key is None else bearer(key)
    return httpx.Client(base_url=url, headers=headers, verify=False, timeout=60, **more)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


PROGRAM = """
import json, os, sys
sys.path.insert(0, {root!r})
import uvicorn
from terrine import Ledger
from terrine.service.app import Limits, make_app
from terrine.service import wire
from terrine.service.keys import Keys
from tests.service.tasks import FORMAT, MECHANISM, TinyTeachers
where, port = os.environ["TERRINE_LEDGER"], int(sys.argv[1])
limits = Limits(**json.loads(sys.argv[2]))
app = make_app(TinyTeachers(), MECHANISM, Ledger(where), Keys(where), rows=FORMAT, limits=limits)
uvicorn.run(app, host="127.0.0.1", port=port, **wire.settings(log_level="warning"))
"""


class Server:
    """The service in a process of its own, over a ledger that is there; secure noise. To be killed."""

    def __init__(self, where, *, port=None, log=None, limits=None):
        self.where, self.port, self.log = str(where), port or free_port(), log
        self.limits = {"pace": 0, "rate": 1e6, **(limits or {})}
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self, *, wait=True):
        root = str(Path(__file__).parents[2])
        with open(os.devnull if self.log is None else self.log, "ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM.format(root=root), str(self.port), json.dumps(self.limits)],
                env={**os.environ, "TERRINE_LEDGER": self.where},
                stdout=out,
                stderr=out,
            )
        if wait:
            wait_until_ready(self.process, self.url)
        return self

    def kill(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()


def label(http, rows, request_id, *, key, **more):
    sent = {"request_id": request_id, "rows": np.asarray(rows).tolist(), **more}
    return http.post("/v1/labels", content=json.dumps(sent), headers=bearer(key))
