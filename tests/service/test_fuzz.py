"""Whatever is sent: no 5xx, no traceback, nothing charged for what is refused, memory bounded."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
from tests.service.tasks import Server, Service, budget_for, rows_of
from tests.soak import amount

from terrine import Ledger
from terrine.service.app import Limits
from terrine.service.keys import Keys

CASES = amount(1000, soak=100_000)
RAW_CASES = amount(60, soak=2000)


def test_schemathesis(tmp_path, record_property):
    """Requests made from the OpenAPI document, good and bad; what comes back is what the document says."""
    where, examples = tmp_path / "l.sqlite", amount(6, soak=300)
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


SIZES = ["0", "1", "2", "3", "-1", "True", "False", "1.0", "1e3", "'3'", "None", "()", "2**3", "99999999999", "9" * 30]
DTYPES = [
    "<f4",
    ">f4",
    "<f8",
    "<f2",
    "|b1",
    "?",
    "<i8",
    "<u8",
    "|u1",
    "<c8",
    "O",
    "V0",
    "V8",
    "S3",
    "U2",
    "M8[s]",
    "f0",
    "",
    "f4,f4",
]
DESCRS = [
    "[('a', '<f4')]",
    "[]",
    "('<f4', (2,))",
    "('<f4', ())",
    "3",
    "None",
    "{}",
    "'<f4' * 9",
    "['<f4']",
    "[('a', [('b', 'f4')])]",
]


def header_body(rng):
    """An .npy whose header is well formed as text, and of whatever shape, dtype and order."""
    shape = "(" + "".join(f"{rng.choice(SIZES)}, " for _ in range(rng.choice([0, 1, 2, 2, 2, 3, 65]))) + ")"
    descr = repr(rng.choice(DTYPES)) if rng.random() < 0.7 else rng.choice(DESCRS)
    fields = {"descr": descr, "fortran_order": rng.choice(["False", "True", "0", "2", "None"]), "shape": shape}
    if rng.random() < 0.1:
        fields[rng.choice(["more", "shape", "descr"])] = rng.choice(["1", "()"])
    if rng.random() < 0.1:
        del fields[rng.choice(list(fields))]
    text = ("{" + ", ".join(f"'{name}': {value}" for name, value in fields.items()) + ", }").encode()
    text += b" " * rng.choice([0, 10, 60, 5000]) + b"\n"
    version, width = rng.choice([(b"\x01\x00", 2), (b"\x02\x00", 4), (b"\x03\x00", 4), (b"\x00\x00", 2)])
    length = len(text) if rng.random() < 0.9 else rng.choice([0, 1, len(text) + 1, 65535])
    return b"\x93NUMPY" + version + length.to_bytes(width, "little") + text + bytes(rng.choice([0, 4, 8, 16, 24, 48]))


def long_body(rng):
    """Beyond what is parsed at once: numbers, brackets and worse in whatever order."""
    unit = rng.choice(
        [b"[0,1],", b'["a"],', b"[],", b"{},", b"[1e5,-0.5],", b"[[1,2]],", b"1,", b"[1,2]", b"[true,1],", b"[1,2,3],"]
    )
    rows = b"[" + unit * (20_000 // len(unit)) + rng.choice([unit[:-1], b"[0,1]", b"", b"[", b"]"]) + b"]"
    for _ in range(rng.choice([0, 0, 1, 3])):
        at = rng.randrange(len(rows))
        rows = (
            rows[:at]
            + rng.choice([b"[", b"]", b",", b" ", b"1", b"-", b"e", b'"', b"}", b"\xff", b"null"])
            + rows[at + 1 :]
        )
    more = rng.choice(
        [
            b"",
            b', "rows": [[1,2]]',
            b', "student_proba": null',
            b', "student_proba": ' + rows,
            b', "x": 1',
            b"}",
            b",",
            b" x",
        ]
    )
    return (
        b'{"request_id": '
        + rng.choice([b'"long"', b"1", b"null", b'"\\ud800"', b"[1]", b'"'])
        + b', "rows": '
        + rows
        + more
        + b"}"
    )


def odd_headers(rng, key):
    """The request's headers: most as they should be."""
    kinds = [
        "application/json",
        "application/x-npy",
        "application/json; charset=utf-16",
        "APPLICATION/X-NPY",
        "",
        ";",
        "text/plain",
        "application/x-npy;\xff",
    ]
    keys = [
        f"Bearer {key}",
        f"bearer {key}",
        f"Bearer  {key}",
        "Bearer",
        "",
        "Bearer terrine_",
        f"Bearer {key}\xff",
        "Basic YTpi",
        f"Bearer {key[:-1]}",
        "\xe4" * 300,
    ]
    lengths = ["-1", "x", "", "1e3", "\xb2", "9" * 40, "+3", " 3", "0x10", "1, 1"]
    found = {"content-type": rng.choice(kinds), "authorization": rng.choice(keys) if rng.random() < 0.3 else keys[0]}
    if rng.random() < 0.3:
        found["content-length"] = rng.choice(lengths)
    if rng.random() < 0.2:
        del found[rng.choice(list(found))]
    return found


def case(rng, key):
    """Method, path, query, headers and the pieces of a body."""
    make = rng.choice([json_body, npy_body, header_body, header_body, long_body])
    body = make(rng)
    kind = "application/x-npy" if make in (npy_body, header_body) else "application/json"
    headers = {"authorization": f"Bearer {key}", "content-type": kind}
    if rng.random() < 0.2:
        headers = odd_headers(rng, key)
    query = f"request_id=n{rng.random()}" if kind.endswith("npy") else ""
    if rng.random() < 0.05:
        query = rng.choice(
            [
                "request_id=",
                "request_id=" + "a" * 181,
                "request_id=%ff",
                "request_id=a&request_id=b",
                "%",
                "&&",
                "request_id=%00",
            ]
        )
    method, path = "POST", "/v1/labels"
    if rng.random() < 0.03:
        method, path = rng.choice(
            [
                ("GET", "/v1/labels"),
                ("POST", "/v1/labels/"),
                ("POST", "//"),
                ("PUT", "/v1/budget"),
                ("HEAD", "/"),
                ("GET", "/v1/requests/\udcff"),
                ("GET", "/v1/requests/a\x00"),
            ]
        )
    cuts = sorted(rng.randrange(len(body) + 1) for _ in range(rng.choice([0, 0, 1, 5])))
    pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    return method, path, query, headers, pieces


async def send(app, state, method, path, query, headers, pieces):
    """One request to the app, as a server would put it; its status and body."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": b"", "query_string": query.encode("latin-1"), "root_path": "", "state": dict(state),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    parts, told = iter(pieces), []

    async def receive():
        piece = next(parts, None)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": piece is not pieces[-1]}

    async def sent(message):
        told.append(message)

    await app(scope, receive, sent)
    return told[0]["status"], b"".join(message.get("body", b"") for message in told[1:])


def memory(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Faults(logging.Handler):
    """Log lines of the service that name a fault of its own."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.lines, self.found = 0, []

    def emit(self, record):
        self.lines += 1
        if "fault" in record.facts:
            self.found.append(record.facts)


def test_malformed_bodies(tmp_path, record_property, monkeypatch):
    """Bodies, and headers around them, of all shapes and types, through the whole app."""
    service, rng = Service(tmp_path / "l.sqlite", queries=10_000_000, limits=Limits(pace=0, rate=1e9)), random.Random(5)
    log, faults = logging.getLogger("terrine.service"), Faults()
    monkeypatch.setattr(log, "handlers", [faults])
    monkeypatch.setattr(log, "propagate", False)
    monkeypatch.setattr(log, "level", logging.INFO)
    logging.Logger.manager._clear_cache()
    statuses, charged = {}, 0

    async def all_of_them():
        nonlocal charged
        app = service.make()
        async with app.router.lifespan_context(app) as state:
            for _ in range(CASES):
                given = case(rng, service.key)
                status, body = await send(app, state, *given)
                statuses[status] = statuses.get(status, 0) + 1
                if status == 200 and given[0] == "POST":
                    charged += len(json.loads(body)["labels"])
                elif status >= 400 and given[0] != "HEAD":
                    assert status in (400, 401, 404, 405, 409, 413, 415, 422), (status, given, body)
                    assert set(json.loads(body)["error"]) == {"code", "message"}

    before = memory(os.getpid())
    asyncio.run(all_of_them())
    grown = memory(os.getpid()) - before
    logging.Logger.manager._clear_cache()
    assert (faults.lines, faults.found) == (CASES, [])
    with Ledger(service.where) as ledger:
        assert ledger.summary().queries <= charged
        assert ledger.verify() == []
    assert sum(count for status, count in statuses.items() if status >= 400) > 0.8 * CASES
    assert grown < 200 << 20
    record_property("malformed bodies", CASES)
    record_property("statuses", dict(sorted(statuses.items())))
    record_property("memory grew by MiB", round(grown / 2**20))


CHUNKED = b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nAuthorization: KEY\r\nTransfer-Encoding: chunked\r\n\r\n"
RAW = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    CHUNKED + b"5\r\nabcde\r\n0\r\n\r\n",
    CHUNKED + b"zz\r\n",
    CHUNKED + b"ffffffffffffffffffff\r\n",
    b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nAuthorization: KEY\r\nTransfer-Encoding: gzip\r\n\r\nabc",
    b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nAuthorization: \xff\xfe\r\n\r\n",
    b"POST /v1/labels HTTP/1.0\r\n\r\n",
    b"GET http://[::1/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /%ff%00 HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000,
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nabcde",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * 5,
]


def test_malformed_http(tmp_path, record_property):
    """Bytes that are no request, or an odd one: an answer or an end, and the server goes on."""
    where, rng = tmp_path / "l.sqlite", random.Random(7)
    Ledger(where, budget=budget_for(1000)).close()
    key = Keys(where).create("fuzz")
    statuses = {}
    with Server(where, log=tmp_path / "log") as server:
        before = memory(server.process.pid)
        for k in range(RAW_CASES):
            sent = bytearray(RAW[k % len(RAW)].replace(b"KEY", f"Bearer {key}".encode()))
            if k >= len(RAW):
                for _ in range(rng.randrange(4)):
                    sent[rng.randrange(min(len(sent), 300))] = rng.choice([0, 10, 13, 32, 58, 255, 45, 48])
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
                with contextlib.suppress(ConnectionError):
                    connection.sendall(sent)
                    connection.shutdown(socket.SHUT_WR)
                told = b""
                with contextlib.suppress(ConnectionError):
                    while piece := connection.recv(65536):
                        told += piece
            status = int(told.split(b" ", 2)[1]) if told.startswith(b"HTTP/1.1 ") else 0
            statuses[status] = statuses.get(status, 0) + 1
            assert status < 500, (sent[:300], told)
        grown = memory(server.process.pid) - before
        assert httpx.get(f"{server.url}/readyz").status_code == 200
    assert "Traceback" not in (tmp_path / "log").read_text()
    assert Ledger(where).summary().queries == 0
    assert grown < 100 << 20
    assert statuses[400] > len(RAW) // 3
    record_property("malformed HTTP", RAW_CASES)
    record_property("HTTP statuses", dict(sorted(statuses.items())))
