"""A service over a ledger with one tested release: a batch of all its rows is one release; nothing else is charged."""

from __future__ import annotations

import numpy as np
import pytest
from tests.service.tasks import FORMAT, N_TEACHERS, Service, TinyTeachers, bearer, label, rows_of

from terrine import Ledger, TestedBudget
from terrine.errors import InputError, TestedRowsError, TestFailedError
from terrine.labeller import noise_file
from terrine.mechanisms import ConfidentGNMax
from terrine.noise import COIN, uniform
from terrine.service.app import Limits, make_app
from terrine.service.client import RemoteLabeller
from terrine.service.keys import Keys

N = 40
MECHANISM = ConfidentGNMax(threshold=30, sigma_check=20, sigma_vote=5)
BUDGET = TestedBudget(
    MECHANISM, n_queries=N, target=4.0, delta=1e-5, n_teachers=N_TEACHERS, n_classes=4, pass_chance=0.95
)


@pytest.fixture(autouse=True)
def a_fair_coin_that_lands(monkeypatch):
    monkeypatch.setattr(noise_file, "uniform", lambda source, n: n // 2 if n == COIN else uniform(source, n))


class Releasing(Service):
    def __init__(self, where, **options):
        Ledger(where, budget=BUDGET).close()
        self.where, self.ledger, self.keys = where, Ledger(where), Keys(where)
        self.key, self.admin = self.keys.create("someone"), self.keys.create("the owner", role="admin")
        self.limits = options.get("limits") or Limits(pace=0, rate=1e6)

    def make(self):
        given = {"rows": FORMAT, "limits": self.limits}
        return make_app(TinyTeachers(), MECHANISM, Ledger(self.where), Keys(self.where), **given)


@pytest.fixture
def service(tmp_path):
    return Releasing(tmp_path / "ledger.sqlite")


@pytest.fixture
def http(service):
    with service.client() as client:
        yield client


def code_of(response):
    return response.status_code, response.json()["error"]["code"]


def test_a_batch_of_all_rows_is_one_release(service, http):
    X = rows_of(N)
    about = http.get("/v1/about", headers=bearer(service.key)).json()
    assert about["one_release"] == N
    assert about["guarantee"]["epsilon"] == 4.0
    budget = http.get("/v1/budget", headers=bearer(service.key)).json()
    assert (budget["test"], budget["room"]) == ("unasked", N)
    assert "By plan the test passes with a chance of 95.0%" in budget["words"]
    assert code_of(label(http, X[:-1], "few", key=service.key)) == (422, "tested_rows")
    assert code_of(label(http, rows_of(N + 1), "many", key=service.key)) == (422, "tested_rows")
    assert Ledger(service.where).summary().queries == 0
    first = label(http, X, "a", key=service.key)
    assert first.status_code == 200, first.text
    assert first.json()["secure"]
    assert first.json()["outcomes"].count("answered") > N // 2
    for again in (label(http, X, "a", key=service.key), label(http, X, "b", key=service.admin)):
        assert again.json()["labels"] == first.json()["labels"]
    assert label(http, X[3:5], "c", key=service.admin).json()["labels"] == first.json()["labels"][3:5]
    assert code_of(label(http, rows_of(N, seed=1), "d", key=service.key)) == (422, "tested_rows")
    assert code_of(label(http, rows_of(N, seed=1), "a", key=service.key)) == (409, "request_conflict")
    state = http.get("/v1/requests/a", headers=bearer(service.key)).json()
    assert state == {"request_id": "a", "queries": N, "answers": N, "settled": True}
    with Ledger(service.where) as ledger:
        assert ledger.verify() == []
        assert ledger.summary().test == "passed"
    assert [path.name for path in service.where.parent.glob("*noise*")] == []


def test_a_test_that_fails_is_said_to_all_and_for_ever(service, http):
    X = rows_of(N, agree=0.52)
    for name in ("a", "a", "b"):
        found = label(http, X, name, key=service.key)
        assert code_of(found) == (410, "test_failed")
        error = found.json()["error"]
        assert (error["epsilon"], error["delta"], error["lost"]) == (4.0, 1e-5, False)
        assert "labels" not in found.text
    assert code_of(label(http, rows_of(N), "c", key=service.key)) == (422, "tested_rows")
    with Ledger(service.where) as ledger:
        assert ledger.verify() == []
        assert ledger.outcomes() == {"answered": 0, "withheld": 0, "reinforced": 0}
    budget = service.make().state.service.numbers.budget()
    assert budget.test == "failed"
    assert "no answer was published" in budget.words


def test_the_client_asks_a_release_whole_and_knows_its_errors(service):
    with service.serving() as url:
        client = RemoteLabeller(url, key=service.key, batch=7)
        with pytest.raises(TestedRowsError, match="exactly 40 rows"):
            client.label(rows_of(3), request_id="x")
        with pytest.raises(TestFailedError, match=r"epsilon = 4\.0 at delta = 1e-05 is spent"):
            client.label(rows_of(N, agree=0.52), request_id="a")


def test_requests_must_have_room_for_the_release(tmp_path):
    with pytest.raises(InputError, match="Serve with --rows 40"):
        Releasing(tmp_path / "ledger.sqlite", limits=Limits(rows=N - 1)).make()


def test_requests_that_arrive_together_are_one_release(service):
    from terrine.labeller import Labeller, Question

    X = rows_of(N)
    given = Labeller(TinyTeachers(), MECHANISM, service.ledger).label_each(
        [Question(X, "a"), Question(X[:5], "b"), Question(X, "c"), Question(rows_of(N, seed=3), "d")]
    )
    assert np.array_equal(given[0].labels, given[2].labels)
    assert np.array_equal(given[0].labels[:5], given[1].labels)
    assert isinstance(given[3], TestedRowsError)


def test_a_run_by_url_asks_one_release(tmp_path, service, monkeypatch):
    from terrine.runs.config import RemoteConfig
    from terrine.runs.facts import write_run_report
    from terrine.runs.remote import RemoteRun

    np.save(tmp_path / "public.npy", rows_of(N))
    monkeypatch.setenv("TERRINE_API_KEY", service.key)
    with service.serving() as url:
        labels = {"url": url, "queries": N, "batch": 5}
        given = {"data": {"public": tmp_path / "public.npy"}, "labels": labels}
        run = RemoteRun.create(RemoteConfig.model_validate(given), tmp_path / "run")
        assert len(run.label()) == N
    assert run.guarantee().epsilon == 4.0
    page = write_run_report(run).read_text()
    assert "A tested release" in page
    assert "adds its own epsilon and delta" in page
