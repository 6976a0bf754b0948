"""Whatever is sent: no 5xx, no traceback, nothing charged for what is refused, memory bounded."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
from tests.service.tasks import Server, bearer, budget_for, rows_of

from terrine import Ledger
from terrine.service.keys import Keys

SOAK = os.environ.get("TERRINE_SOAK") == "1"
BODIES = 10_000 if SOAK else 300


def test_schemathesis(tmp_path, record_property):
    """Requests made from the OpenAPI document, good and bad; what comes back is what the document says."""
    where, examples = tmp_path / "l.sqlite", 300 if SOAK else 12
    Ledger(where, budget=budget_for(1_000_000)).close()
    key = Keys(where).create("fuzz")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    with Server(where, log=tmp_path / "log") as server:
        command = [Path(sys.executable).parent / "schemathesis", "run", f"{server.url}/openapi.json"]
        command += ["--header", f"Authorization: Bearer {key}", "--checks", checks, "--seed", "1", "--no-color"]
        command += ["--max-examples", str(examples), "--mode", "all", "--exclude-path", "/metrics"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=1800, check=False)
        assert done.returncode == 0, done.stdout[-4000:]
        assert httpx.get(f"{server.url}/readyz").status_code == 200
    assert "Traceback" not in (tmp_path / "log").read_text()
    assert Ledger(where).verify() == []
    record_property("examples for each operation and phase", examples)


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def json_body(rng):
    good = {"request_id": f"r{rng.random()}", "rows": rows_of(3, seed=rng.randrange(99)).tolist()}
    odd = [None, True, "x", "", -1, 1e308, 10**30, [], {}, [[]], [None], [[1, 2], [3]], {"a": [1]}, "\ud83d", [["nan"]]]
    match rng.randrange(9):
        case 0:
            good["rows"][rng.randrange(3)] = rng.choice(odd)
        case 1:
            good["rows"][1][0] = rng.choice([None, "x", [1], {}, 1e300, True and "y"])
        case 2:
            good[rng.choice(["request_id", "rows"])] = rng.choice([value for value in odd if value != "x"])
        case 3:
            good[rng.choice(["sigma", "__proto__", "student_proba", "ROWS"])] = rng.choice(odd[2:])
        case 4:
            del good[rng.choice(["request_id", "rows"])]
        case 5:
            deep = rng.choice([50, 500, 20_000])
            return b'{"request_id": "a", "rows": ' + b"[" * deep + b"1" + b"]" * rng.choice([deep, deep - 1]) + b"}"
        case 6:
            return json.dumps(good).replace("]", rng.choice([", NaN]", ", Infinity]", ",]", "", "]]"]), 1).encode()
        case 7:
            text = bytearray(json.dumps(good).encode())
            for _ in range(rng.randrange(1, 4)):
                text[rng.randrange(len(text))] = rng.choice([0, 0xFF, 0xC3, 0x22, 0x5C])
            return bytes(text)
        case 8:
            return b'{"request_id": "big", "rows": [' + b"[1,1,1]," * rng.choice([10, 30_000]) + b"[1,1,1]]}"
    return json.dumps(good).encode()


def npy_body(rng):
    good = npy(rows_of(3, seed=rng.randrange(99)))
    match rng.randrange(8):
        case 0:
            return good[: rng.randrange(len(good))]
        case 1:
            return good + bytes(rng.randrange(1, 100))
        case 2:
            dtype = rng.choice(["O", "U4", "S3", "c16", "M8[s]", "m8[D]", "g", "V8"])
            return npy(np.zeros((3, 2), dtype=dtype))
        case 3:
            return npy(np.full((3, 2), rng.choice([np.nan, np.inf, -np.inf, 1e300])))
        case 4:
            return npy(np.zeros(rng.choice([(), (2,), (0, 2), (3, 3), (1, 3, 2), (2, 0), (1,) * 20]), dtype=np.float32))
        case 5:
            text = bytearray(good)
            for _ in range(rng.randrange(1, 6)):
                text[rng.randrange(10, 128)] = rng.randrange(256)
            return bytes(text)
        case 6:
            sizes = rng.choice(["99999999999, 2", "-1, 2", "2, 99999999999999999999", "1e3, 2", "True, 2", "3, 2, 1"])
            header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({sizes}), }}".encode().ljust(117) + b"\n"
            return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(24)
        case _:
            return bytes(rng.randrange(256) for _ in range(rng.randrange(200)))


def memory(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_malformed_bodies(tmp_path, record_property):
    where, rng = tmp_path / "l.sqlite", random.Random(5)
    Ledger(where, budget=budget_for(1_000_000)).close()
    key = Keys(where).create("fuzz")
    statuses, charged = {}, 0
    with Server(where, log=tmp_path / "log") as server, httpx.Client(base_url=server.url, timeout=30) as http:
        before = memory(server.process.pid)
        for k in range(BODIES):
            as_npy = rng.random() < 0.5
            body = npy_body(rng) if as_npy else json_body(rng)
            kind = {"Content-Type": "application/x-npy" if as_npy else "application/json"}
            where_to = {"request_id": f"n{k}"} if as_npy else {}
            response = http.post("/v1/labels", params=where_to, content=body, headers={**bearer(key), **kind})
            statuses[response.status_code] = statuses.get(response.status_code, 0) + 1
            if response.status_code == 200:  # a flipped bit may leave a good body
                charged += len(response.json()["labels"])
                continue
            assert response.status_code in (400, 409, 413, 422), (response.status_code, body[:200])
            assert set(response.json()["error"]) == {"code", "message"}
        grown = memory(server.process.pid) - before
        assert http.get("/readyz").status_code == 200
    assert "Traceback" not in (tmp_path / "log").read_text()
    with Ledger(where) as ledger:
        assert ledger.summary()["queries"] <= charged
        assert ledger.verify() == []
    assert sum(count for status, count in statuses.items() if status != 200) > 0.8 * BODIES
    assert grown < 200 << 20
    record_property("malformed bodies", BODIES)
    record_property("statuses", statuses)
    record_property("memory grew by MiB", round(grown / 2**20))
