"""Servers and databases killed under load: no answer without its charge, no charge twice, no answer changed.

One kill of each in `make test`; 200 of the server and 20 of PostgreSQL in `make soak`.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict

import httpx
import numpy as np
import pytest
from tests import postgres
from tests.service.tasks import CLASSES, MECHANISM, Server, TinyTeachers, budget_for, client_of, rows_of
from tests.soak import amount

from terrine import Labeller, Ledger
from terrine.ledger.entries import RESERVE, SETTLE
from terrine.service.keys import Keys

CLIENTS = amount(8, soak=16)
POOL = 3000  # distinct rows; some are asked often


class Load:
    """Clients that send until they are told to stop, each request again until it is answered."""

    def __init__(self, url, key):
        self.url, self.key = url, key
        self.X = np.concatenate([rows_of(POOL // 2, agree=0.98), rows_of(POOL - POOL // 2, agree=0.7, seed=1)])
        self.given = []  # (request_id, rows, labels, outcomes), as clients received them
        self.asked = {}
        self.stopping = threading.Event()
        self.failures = []
        self.threads = [threading.Thread(target=self._client, args=(k,), daemon=True) for k in range(CLIENTS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)
        assert not self.failures, self.failures[:3]

    def _client(self, k):
        rng, number = random.Random(k), 0
        with client_of(self.url, self.key) as http:
            while not self.stopping.is_set():
                number += 1
                rows = [rng.randrange(POOL) for _ in range(rng.choice((1, 1, 1, 4, 20)))]
                request_id = f"client {k} request {number}"
                self.asked[f"{self.key.split('_')[1]}/{request_id}"] = len(set(rows))
                self._send(http, request_id, rows)

    def _send(self, http, request_id, rows):
        sent = {"request_id": request_id, "rows": self.X[rows].tolist()}
        while not self.stopping.is_set():
            try:
                response = http.post("/v1/labels", json=sent)
            except httpx.HTTPError:
                time.sleep(0.1)  # the server is dead: the same request again
                continue
            if response.status_code == 200:
                told = response.json()
                self.given.append((request_id, rows, told["labels"], told["outcomes"]))
                return
            if response.status_code != 503:
                self.failures.append(response.text)
                return
            time.sleep(0.02)


def database(kind, tmp_path):
    if kind == "sqlite":
        return tmp_path / "ledger.sqlite"
    return postgres.server().database()


def check(where, load, *, kills):
    """What must be true however often and whenever something died."""
    with Ledger(where) as ledger:
        assert ledger.verify() == []
        before = ledger.summary()
        assert before.queries <= ledger.budget.n_queries
        settled, left = defaultdict(int), 0
        for entry in ledger.entries():
            if entry.kind == SETTLE:
                settled[entry.request_id] += entry.n_queries
        for request_id, queries in settled.items():
            assert queries <= load.asked[request_id], "charged twice"
        done = {(entry.request_id, entry.part) for entry in ledger.entries() if entry.kind == SETTLE}
        for entry in ledger.entries():
            left += entry.kind == RESERVE and (entry.request_id, entry.part) not in done
        # Every answer that a client holds is the one that the ledger keeps, and asking again costs nothing.
        rows = sorted({row for _, asked, _, _ in load.given for row in asked})
        kept = Labeller(TinyTeachers(), MECHANISM, ledger).label(load.X[rows], request_id="an auditor")
        label_of = dict(zip(rows, kept.labels.tolist(), strict=True))
        assert ledger.summary().queries == before.queries, "an answer was given that nobody paid for"
        for request_id, asked, labels, _ in load.given:
            for row, name in zip(asked, labels, strict=True):
                assert (None if label_of[row] < 0 else CLASSES[label_of[row]]) == name, request_id
    return left


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_server_is_killed(kind, tmp_path, record_property):
    kills = amount(1, soak=200)
    where = database(kind, tmp_path)
    Ledger(where, budget=budget_for(10_000_000)).close()
    key = Keys(where).create("load")
    server, rng = Server(where), random.Random(kind)
    server.start()
    try:
        with Load(server.url, key) as load:
            for _ in range(kills):
                time.sleep(rng.uniform(0.0, 0.6))
                server.kill()
                server.start()
            time.sleep(0.3)
    finally:
        server.kill()
    left = check(where, load, kills=kills)
    assert len(load.given) > kills
    record_property("kills of the server", kills)
    record_property("requests answered", len(load.given))
    record_property("parts left reserved by a kill", left)


def test_postgresql_is_killed(record_property):
    kills = amount(1, soak=20)
    database_server = postgres.Server()
    where = database_server.database()
    Ledger(where, budget=budget_for(10_000_000)).close()
    key = Keys(where).create("load")
    rng = random.Random(3)
    try:
        with Server(where) as server, Load(server.url, key) as load:
            for _ in range(kills):
                time.sleep(rng.uniform(0.3, 1.0))
                database_server.kill()
                time.sleep(rng.uniform(0.0, 0.5))
                database_server.start()
            before = len(load.given)
            end = time.monotonic() + 30
            while len(load.given) < before + 20 and time.monotonic() < end:
                time.sleep(0.05)
            assert len(load.given) >= before + 20, "the service did not recover"
        check(where, load, kills=kills)
    finally:
        database_server.stop()
    record_property("kills of PostgreSQL", kills)
    record_property("requests answered", len(load.given))
