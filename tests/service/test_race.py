"""Many clients, two servers, one budget: never one answer more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from tests import postgres
from tests.service.tasks import Server, budget_for, client_of
from tests.soak import amount

from terrine import Ledger
from terrine.service.keys import Keys

CLIENTS = 64
ANSWERS = amount(64, soak=1000)


def test_sixty_four_clients_two_servers_one_budget(record_property):
    where = postgres.server().database()
    Ledger(where, budget=budget_for(ANSWERS)).close()
    key = Keys(where).create("everyone")

    def client(url, k):
        answered, refused = 0, []
        with client_of(url, key) as http:
            for number in range(ANSWERS):
                row = [0.0, float(np.float32(0.95 + (k * ANSWERS + number) * 1e-7))]
                response = http.post("/v1/labels", json={"request_id": f"{k} {number}", "rows": [row]})
                if response.status_code == 200:
                    answered += response.json()["outcomes"] == ["answered"]
                else:
                    refused.append((response.status_code, response.json()["error"]["code"]))
                if len(refused) == 2:
                    break
        return answered, refused

    with Server(where) as one, Server(where) as two, ThreadPoolExecutor(CLIENTS) as pool:
        urls = [(one.url, two.url)[k % 2] for k in range(CLIENTS)]
        found = list(pool.map(client, urls, range(CLIENTS)))
    total = sum(answered for answered, _ in found)
    assert total == ANSWERS
    assert {told for _, refused in found for told in refused} == {(402, "budget_exhausted")}
    assert all(len(refused) == 2 for _, refused in found)
    with Ledger(where) as ledger:
        assert ledger.summary().remaining == {"queries": 0, "answers": 0}
        assert ledger.verify() == []
    record_property("clients", CLIENTS)
    record_property("answers, of as many", total)
