"""Distinctive vote counts are planted; nothing that the service says, logs or stores contains them."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.service.tasks import CLASSES, MECHANISM, bearer, client_of, free_port, wait_until_ready

from terrine import Ledger, Votes
from terrine.service.keys import Keys

COUNTS = (73181, 31337, 40427, 8191)  # no sum or difference of them is a public number
PUBLIC = sum(COUNTS)  # the number of teachers

PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from tests.service.test_leak import Planted
from terrine.service.app import make_app, Limits
from terrine.service.keys import Keys
from terrine.service import wire
from terrine.service.middleware import JsonLines
from terrine import Ledger
from tests.service.tasks import FORMAT
from tests.service.test_leak import LEAKY
import logging, uvicorn
where, port = sys.argv[1], int(sys.argv[2])
handler = logging.StreamHandler()
handler.setFormatter(JsonLines())
logging.basicConfig(level=logging.DEBUG, handlers=[handler])
app = make_app(Planted(), LEAKY, Ledger(where), Keys(where), rows=FORMAT, limits=Limits(pace=0))
uvicorn.run(app, port=port, **wire.settings(log_config=None))
"""
LEAKY = type(MECHANISM)(threshold=60000, sigma_check=2000, sigma_vote=500)


class Planted:
    """Teachers with these counts; on rows of class 3 they fail, and their error says everything."""

    n_teachers, classes, row_shape = PUBLIC, CLASSES, (2,)

    def vote(self, X):
        counts = np.tile(COUNTS, (len(X), 1))
        counts[X[:, 1] < 0.5] = np.array(COUNTS)[[1, 0, 2, 3]] - [0, 30000, -30000, 0]  # too little agreement
        if (X[:, 0] == 3).any():
            raise ValueError(f"no way: {counts.tolist()}")
        if (X[:, 0] == 2).any():
            raise KeyError(*COUNTS)
        return Votes(counts, n_teachers=self.n_teachers)


def secrets_in(text):
    """Planted numbers, or numbers made of them, as words of their own."""
    planted = {*COUNTS, 43181, 70427, *(a - b for a in COUNTS for b in COUNTS if a > b)} - {PUBLIC}
    shares = {f"{count / PUBLIC:.4f}"[1:] for count in (*COUNTS, 43181, 70427)}
    found = [n for n in planted if re.search(rf"(?<![0-9a-zA-Z]){n}(?![0-9a-zA-Z])", text)]
    return found + [share for share in shares if re.search(rf"(?<![0-9a-zA-Z])0?{re.escape(share)}", text)]


def test_no_vote_leaves(tmp_path):
    from terrine import CountBudget

    where, log = tmp_path / "l.sqlite", tmp_path / "log"
    Ledger(where, budget=CountBudget(LEAKY, n_queries=40, delta=1e-5)).close()
    keys = Keys(where)
    key, admin = keys.create("a", quota=30), keys.create("b", role="admin")
    port = free_port()
    program = PROGRAM.format(root=str(Path(__file__).parents[2]))
    with log.open("wb") as out:
        server = subprocess.Popen([sys.executable, "-c", program, str(where), str(port)], stdout=out, stderr=out)
    said = []
    try:
        with client_of(f"http://127.0.0.1:{port}") as http:
            wait_until_ready(server, f"http://127.0.0.1:{port}", told=log.read_text)

            def ask(name, rows, whose=key):
                response = http.post("/v1/labels", json={"request_id": name, "rows": rows}, headers=bearer(whose))
                said.append(str(response.headers) + response.text)
                return response.status_code

            assert ask("answered", [[0, 0.9 + k / 1000] for k in range(8)]) == 200
            assert ask("withheld", [[0, 0.1 + k / 1000] for k in range(8)]) == 200
            assert ask("fails", [[3, 0.9]]) == 503
            assert ask("fails otherwise", [[2, 0.9]]) == 503
            assert ask("bad", [[0, 1, 2]]) == 422
            assert ask("conflict", [[0, 0.9]]) == 200
            assert ask("conflict", [[0, 0.8]]) == 409
            assert ask("quota", [[1, 0.9 + k / 1000] for k in range(30)]) == 200
            assert ask("quota again", [[1, 0.95 + k / 1000] for k in range(3)]) == 402
            assert ask("budget", [[1, 0.6 + k / 1000] for k in range(30)], admin) == 200
            assert ask("budget again", [[1, 0.7 + k / 1000] for k in range(3)], admin) == 402
            paths = ["/", "/dashboard.js", "/dashboard.css", "/metrics", "/readyz", "/healthz", "/openapi.json"]
            paths += ["/v1/about", "/v1/budget", "/v1/history", "/v1/usage", "/v1/requests/answered", "/nothing"]
            for path in paths:
                response = http.get(path, headers=bearer(admin))
                said.append(str(response.headers) + response.text)
            assert server.poll() is None
    finally:
        server.terminate()
        server.wait(30)
    with sqlite3.connect(where) as database:
        stored = "\n".join(database.iterdump())
    logged = log.read_text()
    assert '"route": "/v1/labels"' in logged
    assert secrets_in(f"top {COUNTS[0]}, share 0.4779") != []  # the search finds what it should
    for name, text in {"responses": "\n".join(said), "database": stored, "log": logged}.items():
        assert secrets_in(text) == [], name
    assert "Traceback" not in logged
    assert key.split("_", 2)[2] not in stored + logged
    with pytest.raises(AssertionError):
        assert secrets_in("\n".join([*said, str(COUNTS[1])])) == []
