"""The service's verbs and refusals: what is answered is charged, and what is refused is not."""

from __future__ import annotations

import gc
import io
import json
import time
from urllib.parse import quote

import numpy as np
import pytest
from tests.service.tasks import CLASSES, Service, TinyTeachers, bearer, label, rows_of, wait_until

from terrine import Ledger
from terrine.errors import OrderGridWarning
from terrine.ledger.merkle import EMPTY, is_consistent, is_included
from terrine.relations import Relation
from terrine.service.app import Limits


@pytest.fixture
def service(tmp_path):
    return Service(tmp_path / "ledger.sqlite")


@pytest.fixture
def http(service):
    with service.client() as client:
        yield client


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    """A service that every test may ask what it refuses."""
    service = Service(tmp_path_factory.mktemp("refusing") / "ledger.sqlite")
    with service.client() as http:
        yield service, http


def npy(rows):
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


def send_npy(http, body, key, request_id="a"):
    headers = {**bearer(key), "Content-Type": "application/x-npy"}
    return http.post("/v1/labels", params={"request_id": request_id}, content=body, headers=headers)


def charged(service):
    return Ledger(service.where).summary().queries


def error_of(response):
    found = response.json()
    assert set(found) == {"error"}
    assert set(found["error"]) == {"code", "message"} | (
        {"requested", "left"} if response.status_code == 402 else set()
    )
    assert "\n" not in found["error"]["message"]
    return response.status_code, found["error"]["code"]


def test_labels_are_answered_and_charged(service, http):
    X = np.concatenate([rows_of(20), rows_of(5, agree=0.4)])
    found = label(http, X, "a", key=service.key)
    assert found.status_code == 200
    told = found.json()
    assert told["request_id"] == "a"
    assert told["outcomes"] == ["answered"] * 20 + ["withheld"] * 5
    assert told["labels"] == [CLASSES[int(k)] for k in X[:20, 0]] + [None] * 5
    assert told["secure"] is False  # seeded, for this test
    summary = Ledger(service.where).summary()
    assert (summary.queries, summary.answers, summary.unsettled) == (25, 20, 0)


def test_the_same_question_is_free_in_any_request_and_format(service, http):
    X = rows_of(30, agree=0.7)  # on the threshold: half are withheld
    first = label(http, X, "a", key=service.key).json()
    assert 2 < first["outcomes"].count("withheld") < 28
    for again in (
        label(http, X, "a", key=service.key),
        label(http, X.astype(np.float64), "b", key=service.admin),
        send_npy(http, npy(X), service.key, "c"),
        send_npy(http, npy(np.asfortranarray(X.astype(np.float64))), service.key, "d"),
        send_npy(http, npy(X.astype(">f4")), service.key, "e"),
    ):
        assert again.status_code == 200, again.text
        assert again.json()["labels"] == first["labels"]
        assert again.json()["outcomes"] == first["outcomes"]
    assert charged(service) == 30


def test_a_request_id_belongs_to_its_rows_and_its_key(service, http):
    assert label(http, rows_of(3), "a", key=service.key).status_code == 200
    assert error_of(label(http, rows_of(3, seed=1), "a", key=service.key)) == (409, "request_conflict")
    assert label(http, rows_of(3, seed=1), "a", key=service.admin).status_code == 200  # another's "a"
    state = http.get("/v1/requests/a", headers=bearer(service.key)).json()
    assert state == {"request_id": "a", "queries": 3, "answers": 3, "settled": True}
    assert error_of(http.get("/v1/requests/b", headers=bearer(service.key))) == (404, "unknown_request")


def test_a_request_of_any_id_can_be_read_back(service, http):
    """With a slash too; an id that clients or proxies change in an address goes into the query."""
    for name in ("a/b", "/a", "a/", "?x=1", "#", "%2F", "ü ☃", "/", "a//b", ".", "..", "a/../b"):
        label(http, [[0, 0.98]], name, key=service.key)
        asked = [http.get("/v1/requests", params={"request_id": name}, headers=bearer(service.key))]
        if not {"", ".", ".."} & set(name.strip("/").split("/")):
            asked.append(http.get(f"/v1/requests/{quote(name, safe='')}", headers=bearer(service.key)))
        for state in asked:
            assert (state.status_code, state.json()["request_id"]) == (200, name), name


def test_an_exhausted_budget(tmp_path):
    service = Service(tmp_path / "ledger.sqlite", queries=10)
    with service.client() as http:
        X = rows_of(30)
        told = label(http, X[:8], "a", key=service.key).json()
        part = label(http, X[8:13], "b", key=service.key).json()
        assert part["outcomes"] == ["answered"] * 2 + ["unasked"] * 3
        refused = label(http, X[13:16], "c", key=service.key)
        assert error_of(refused) == (402, "budget_exhausted")
        assert "0 queries" in refused.json()["error"]["message"]
        assert refused.json()["error"]["left"] == {"queries": 0, "answers": 0}
        assert refused.json()["error"]["requested"] == 3
        assert part["why_unasked"] == "budget_exhausted"
        assert label(http, X[:8], "d", key=service.key).json()["labels"] == told["labels"]
        budget = http.get("/v1/budget", headers=bearer(service.key)).json()
        assert budget["share_spent"] == 1.0
        assert budget["left"] == {"queries": 0, "answers": 0}
    assert charged(service) == 10


def test_a_quota(tmp_path):
    service = Service(tmp_path / "ledger.sqlite", queries=100, quota=5)
    with service.client() as http:
        assert label(http, rows_of(4), "a", key=service.key).status_code == 200
        part = label(http, rows_of(3, seed=1), "b", key=service.key).json()
        assert part["outcomes"][1:] == ["unasked"] * 2
        assert part["why_unasked"] == "quota_exhausted"  # the budget has room
        refused = label(http, rows_of(3, seed=2), "c", key=service.key)
        assert error_of(refused) == (402, "quota_exhausted")
        assert (refused.json()["error"]["requested"], refused.json()["error"]["left"]) == (3, {"queries": 0})
        assert "quota" in refused.json()["error"]["message"]
        assert label(http, rows_of(3, seed=2), "c", key=service.admin).status_code == 200
        used = http.get("/v1/usage", headers=bearer(service.admin)).json()["keys"]
        assert {one["name"]: (one["queries"], one["quota"]) for one in used} == {
            "someone": (5, 5),
            "the owner": (3, None),
        }


def test_the_budget_in_numbers_and_words(service, http):
    before = http.get("/v1/budget", headers=bearer(service.key)).json()
    assert before["head"].startswith("2:")  # two keys were made
    label(http, np.concatenate([rows_of(40), rows_of(10, agree=0.5)]), "a", key=service.key)
    time.sleep(0.3)  # numbers are remembered for a moment
    found = http.get("/v1/budget", headers=bearer(service.key)).json()
    assert (found["queries"], found["answers"], found["open"]) == (50, 40, 0)
    assert (found["answered"], found["withheld"], found["reinforced"]) == (40, 10, 0)
    assert found["share_spent"] == pytest.approx(0.05)
    with pytest.warns(OrderGridWarning):  # so little noise: epsilon is in the hundreds
        assert found["guarantee"]["epsilon"] == service.ledger.budget.guarantee().epsilon
    assert found["head"] == str(Ledger(service.where).head())
    assert found["ledger_id"] == Ledger(service.where).id
    assert "50 of at most 1,000 questions" in found["words"]
    points = http.get("/v1/history", headers=bearer(service.key)).json()["points"]
    assert points[-1]["queries"] == 50


def test_the_ledger_proves_that_it_goes_on_from_a_head(service, http):
    def proof(first, second):
        sent = {"first": first, "second": second}
        return http.get("/v1/ledger/consistency", params=sent, headers=bearer(service.key))

    before = http.get("/v1/budget", headers=bearer(service.key)).json()
    for k in range(5):
        label(http, rows_of(3, seed=k), f"{k}", key=service.key)
    after = http.get("/v1/budget", headers=bearer(service.key)).json()
    (first, old), (second, new) = (shown["head"].split(":") for shown in (before, after))
    found = proof(first, second).json()
    assert found["root"] == after["root"]
    sizes = {"first": int(first), "second": int(second)}
    assert is_consistent(**sizes, first_root=before["root"], root=after["root"], path=found["path"])
    for digest, index, path in ((old, int(first), "first_path"), (new, int(second), "second_path")):
        within = {"index": index - 1, "size": int(second), "root": after["root"]}
        assert is_included(digest, **within, path=found[path])
    assert proof(0, 0).json()["root"] == EMPTY
    for wrong in ((second, first), (0, int(second) + 1), (-1, 1), ("x", 1), (1 << 62, 1 << 62), (None, 1)):
        refused = proof(*wrong)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad_request")


def test_what_the_service_is(service, http):
    found = http.get("/v1/about", headers=bearer(service.key)).json()
    assert found["classes"] == list(CLASSES)
    assert (found["row_shape"], found["dtype"], found["n_teachers"]) == ([2], "float32", 100)
    assert found["mechanism"]["kind"] == "confident"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/budget",
        "/v1/ledger/consistency?first=0&second=1",
        "/v1/about",
        "/v1/history",
        "/v1/usage",
        "/v1/requests/a",
    ],
)
def test_no_key_or_a_wrong_one(refusing, path):
    service, http = refusing
    wrong = service.key[:-4] + ("AAAA" if not service.key.endswith("AAAA") else "BBBB")
    for headers in ({}, bearer("terrine_x"), bearer(wrong), {"Authorization": "Basic abc"}, bearer("ä".encode())):
        response = http.get(path, headers=headers)
        assert error_of(response) == (401, "unknown_key")
        assert response.headers["WWW-Authenticate"] == "Bearer"


def test_a_revoked_key_is_refused_within_a_second(service, http):
    assert http.get("/v1/budget", headers=bearer(service.key)).status_code == 200
    service.keys.revoke("someone")
    time.sleep(1.1)
    assert error_of(http.get("/v1/budget", headers=bearer(service.key))) == (401, "unknown_key")


def test_a_client_is_no_admin(service, http):
    assert error_of(http.get("/v1/usage", headers=bearer(service.key))) == (403, "not_an_admin")


BAD_JSON = {
    "not JSON": (b"{", 400),
    "not an object": (b"[1]", 400),
    "bad UTF-8": (b'{"request_id": "\xff", "rows": [[1, 1]]}', 400),
    "nan": (b'{"request_id": "a", "rows": [[NaN, 1]]}', 400),
    "inf": (b'{"request_id": "a", "rows": [[1e999, 1]]}', 422),
    "deep": (b'{"request_id": "a", "rows": ' + b"[" * 5000 + b"]" * 5000 + b"}", 400),
    "no rows": (b'{"request_id": "a"}', 422),
    "empty rows": (b'{"request_id": "a", "rows": []}', 422),
    "ragged": (b'{"request_id": "a", "rows": [[1, 1], [1]]}', 422),
    "words": (b'{"request_id": "a", "rows": [["x", "y"]]}', 422),
    "other shape": (b'{"request_id": "a", "rows": [[1, 1, 1]]}', 422),
    "rows in an object": (b'{"request_id": "a", "rows": {"0": 1}}', 422),
    "a huge number": (b'{"request_id": "a", "rows": [[1, 1' + b"0" * 400 + b"]]}", 422),
    "larger than float32": (b'{"request_id": "a", "rows": [[1, 1e300]]}', 422),
    "no id": (b'{"rows": [[1, 1]]}', 422),
    "a number as id": (b'{"request_id": 1, "rows": [[1, 1]]}', 422),
    "a long id": (json.dumps({"request_id": "a" * 181, "rows": [[1, 1]]}).encode(), 422),
    "an id that cannot be printed": (b'{"request_id": "a\\u0000", "rows": [[1, 1]]}', 422),
    "an unknown field": (b'{"request_id": "a", "rows": [[1, 1]], "sigma": 0}', 422),
    "a student nobody asked for": (b'{"request_id": "a", "rows": [[1, 1]], "student_proba": [[1, 0, 0, 0]]}', 422),
    "a true number": (b'{"request_id": "a", "rows": [[true, "1"]]}', 422),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_bad_json(refusing, name):
    service, http = refusing
    body, status = BAD_JSON[name]
    response = http.post("/v1/labels", content=body, headers=bearer(service.key))
    assert error_of(response)[0] == status
    assert charged(service) == 0


def huge_header():
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 2), }"
    header = header + b" " * (118 - len(header) - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 24


BAD_NPY = {
    "nothing": (lambda: b"", 400),
    "no npy": (lambda: b"hello", 400),
    "truncated": (lambda: npy(rows_of(3))[:-3], 400),
    "too long": (lambda: npy(rows_of(3)) + b"\0", 400),
    "truncated header": (lambda: npy(rows_of(3))[:20], 400),
    "a huge shape": (huge_header, 400),
    "pickled": (lambda: npy(np.array([{"a": 1}, None], dtype=object)), 422),
    "text": (lambda: npy(np.array([["a", "b"]])), 422),
    "complex": (lambda: npy(rows_of(3).astype(complex)), 422),
    "long double": (lambda: npy(rows_of(3).astype(np.longdouble)), 422),
    "fields": (lambda: npy(np.zeros(3, dtype=[("a", "f4"), ("b", "f4")])), 422),
    "dates": (lambda: npy(np.zeros((3, 2), dtype="M8[s]")), 422),
    "nan": (lambda: npy(np.full((3, 2), np.nan, dtype=np.float32)), 422),
    "inf": (lambda: npy(np.full((3, 2), np.inf)), 422),
    "one row, no axis": (lambda: npy(rows_of(3)[0]), 422),
    "other shape": (lambda: npy(np.zeros((3, 5))), 422),
    "a scalar": (lambda: npy(np.float32(1)), 422),
    "no rows": (lambda: npy(np.zeros((0, 2), dtype=np.float32)), 422),
}


@pytest.mark.parametrize("name", BAD_NPY)
def test_bad_npy(refusing, name):
    service, http = refusing
    make, status = BAD_NPY[name]
    assert error_of(send_npy(http, make(), service.key))[0] == status
    assert charged(service) == 0


def test_other_refusals(tmp_path):
    service = Service(tmp_path / "l.sqlite", limits=Limits(pace=0, rate=1e6, body=4096, json=1024, rows=10))
    with service.client() as http:
        key = service.key
        assert error_of(label(http, rows_of(60), "a", key=key)) == (413, "body_too_large")
        pieces = (b"x" * 512 for _ in range(100))
        streamed = http.post("/v1/labels", content=pieces, headers=bearer(key))  # no length is told
        assert error_of(streamed) == (413, "body_too_large")
        assert streamed.headers["connection"] == "close"  # the rest of the body is in the way of a next request
        assert error_of(send_npy(http, npy(rows_of(11)), key)) == (422, "bad_rows")
        headers = {**bearer(key), "Content-Type": "text/plain"}
        assert error_of(http.post("/v1/labels", content=b"x", headers=headers)) == (415, "unknown_media_type")
        assert error_of(http.get("/v1/labels", headers=bearer(key))) == (405, "method_not_allowed")
        assert error_of(http.get("/nothing")) == (404, "not_found")
        assert error_of(send_npy(http, npy(rows_of(1)), key, request_id="")) == (422, "bad_request")
        without = {**bearer(key), "Content-Type": "application/x-npy"}
        assert error_of(http.post("/v1/labels", content=npy(rows_of(1)), headers=without)) == (422, "bad_request")
    assert charged(service) == 0


def test_too_many_requests(tmp_path):
    service = Service(tmp_path / "l.sqlite", limits=Limits(pace=0, rate=1))
    with service.client() as http:
        found = [http.get("/v1/about", headers=bearer(service.key)) for _ in range(8)]
        assert [one.status_code for one in found[:2]] == [200] * 2
        last = found[-1]
        assert error_of(last) == (429, "too_many_requests")
        assert int(last.headers["Retry-After"]) >= 1
        assert http.get("/v1/about", headers=bearer(service.admin)).status_code == 200  # another's is not used up


def test_teachers_that_fail_are_charged_and_tell_nothing(tmp_path):
    class Broken:
        n_teachers, classes, row_shape = 100, CLASSES, (2,)

        def vote(self, X):
            raise ValueError("teacher 17 said cow 4711 times")

    service = Service(tmp_path / "l.sqlite", voters=Broken())
    with service.client() as http:
        response = label(http, rows_of(3), "a", key=service.key)
        assert error_of(response) == (503, "teachers_failed")
        assert "4711" not in response.text
    assert charged(service) == 3
    assert Ledger(service.where).summary().unsettled == 3


def test_teachers_that_fail_after_the_time_is_up_leave_no_traceback(tmp_path, caplog):
    class Late(TinyTeachers):
        ended = False

        def vote(self, X):
            time.sleep(0.5)
            self.ended = True
            raise RuntimeError("a secret")

    late = Late()
    service = Service(tmp_path / "l.sqlite", voters=late, limits=Limits(seconds=0.1, pace=0))
    with service.client() as http:
        assert error_of(label(http, rows_of(3), "a", key=service.key)) == (503, "timeout")
        wait_until(lambda: late.ended)
        time.sleep(0.2)
        gc.collect()
        assert http.get("/healthz").status_code == 200
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_health_readiness_metrics_and_headers(service, http):
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ok"}
    label(http, rows_of(6), "a", key=service.key)
    page = http.get("/metrics")
    assert "terrine_epsilon " in page.text
    assert 'terrine_rows_total{outcome="answered"} 6.0' in page.text
    assert 'terrine_requests_total{route="/v1/labels",status="200"} 1.0' in page.text
    for response in (page, http.get("/"), http.get("/nothing")):
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"


def test_openapi_names_every_status_and_gives_examples(http):
    found = http.get("/openapi.json").json()
    labels = found["paths"]["/v1/labels"]["post"]
    assert set(labels["responses"]) == {"200", "400", "401", "402", "409", "410", "413", "415", "422", "429", "503"}
    assert labels["requestBody"]["content"]["application/json"]["example"]["rows"]
    assert "application/x-npy" in labels["requestBody"]["content"]


def test_openapi_names_every_relation(http):
    found = http.get("/openapi.json").json()["components"]["schemas"]["Guarantee"]["properties"]["relation"]
    for one in Relation:
        assert one.value in found["description"]


def test_openapi_says_how_long_each_kind_of_body_may_be(http):
    told = http.get("/openapi.json").json()["components"]["schemas"]["About"]["properties"]["bytes_at_most"]
    assert told["description"] == f"In one .npy body; JSON: at most {Limits().json >> 20} MiB."


def test_answers_leave_at_multiples_of_the_pace(tmp_path):
    service = Service(tmp_path / "l.sqlite", limits=Limits(pace=0.2, rate=1e6))
    with service.client() as http:
        took = []
        while len(took) < 4 or (min(took) > 0.35 and len(took) < 100):  # on a busy machine one misses its turn
            started = time.monotonic()
            label(http, rows_of(1, seed=len(took)), f"{len(took)}", key=service.key)
            took.append(time.monotonic() - started)
    assert min(took) > 0.19
    assert min(took) < 0.35
