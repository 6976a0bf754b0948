"""A probe behind the service: any number of labels, charged to nobody, from the public files of a run alone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from tests.runs.test_probe import SETTINGS, clinic
from tests.service.browser import Tab, chromium
from tests.service.tasks import Service, bearer, budget_for, label
from tests.service.test_serve import Serving

from terrine import Ledger
from terrine.cli import serving
from terrine.errors import InputError, TeachersError
from terrine.labeller import Question
from terrine.mechanisms import ABSTAIN, Outcome
from terrine.probe import Probe
from terrine.runs.base import load_answers
from terrine.runs.config import read_settings
from terrine.runs.opening import opened
from terrine.runs.probe import ProbeRun
from terrine.service.app import Limits, make_probe_app
from terrine.service.client import RemoteLabeller
from terrine.service.keys import Keys
from terrine.service.schemas import About, Budget
from terrine.students import load_student

SECRET = ("private.csv", "public.csv", "test.csv")
REMOTE = """
[data]
public = "public.npy"
[labels]
url = "URL"
queries = 200
[student]
kind = "supervised"
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that has learned and labeled, its data, and what it said of the public rows."""
    folder = tmp_path_factory.mktemp("probe")
    clinic(folder)
    text = SETTINGS
    for name in SECRET:
        text = text.replace(f'"{name}"', f'"{folder / name}"')
    (folder / "run.toml").write_text(text)
    run = ProbeRun.create(read_settings(folder / "run.toml"), folder / "run")
    run.teach()
    labels = run.label().argmax(axis=1)
    np.save(folder / "public.npy", run.task.public.X)
    for name in SECRET:
        (folder / name).rename(folder / f"away-{name}")
    return folder, run.task.public.X, labels


@pytest.fixture
def rows(trained):
    return trained[1]


@pytest.fixture
def folder(trained, tmp_path):
    return shutil.copytree(trained[0] / "run", tmp_path / "run")


class Probing(Service):
    """The app over a run directory; none of the data is there."""

    def __init__(self, folder, **options):
        self.folder, self.where = folder, folder / "ledger.sqlite"
        self.ledger, self.keys = Ledger(self.where), Keys(self.where)
        self.key, self.admin = self.keys.create("someone"), self.keys.create("the owner", role="admin")
        self.limits = options.get("limits") or Limits(pace=0, rate=1e6)

    def make(self):
        run = ProbeRun(self.folder)
        ledger = run.ledger()
        return make_probe_app(run.served(ledger), ledger, Keys(self.where), limits=self.limits)


@pytest.fixture
def service(folder):
    return Probing(folder)


def test_labels_by_the_command_and_a_client(folder, trained, terrine):
    _, X, expected = trained
    code, _, err = terrine("keys", "create", folder, "--name", "a", "--quota", "5")
    assert code == 2
    assert "--quota would limit nothing" in err
    made = terrine("keys", "create", folder, "--name", "a")
    assert made.code == 0, made.err
    assert "Labels cost nothing" in made.err
    instead = f"{folder / 'student'} (terrine learn {folder} makes it) may be given away instead, and gives prob"
    assert instead in made.err
    (key,) = made.out.split()
    assert json.loads(terrine("keys", "create", folder, "--name", "b", "--json").out)["left"] == {}
    entries = Ledger(folder / "ledger.sqlite").summary().entries
    assert not serving._has_other_student(folder)
    (folder / "student").mkdir()
    for kind in ("Probe", "AutoStudent"):
        settings = {"training": {"settings": {"student": kind}}}
        (folder / "student" / "model_card.json").write_text(json.dumps(settings))
        assert serving._has_other_student(folder) == (kind == "AutoStudent")
    with Serving(folder) as server:
        labeller = RemoteLabeller(server.url, key=key, batch=64)
        assert (labeller.route, labeller.mechanism, labeller.n_teachers) == ("probe", None, None)
        assert "a probe" in repr(labeller)
        given = labeller.label(X, request_id="all")
        with pytest.raises(InputError, match="student_proba"):
            labeller.label(X, request_id="other", student_proba=np.full((len(X), 2), 0.5))
        server.stop()
    said = server.said.splitlines()
    assert said[0].startswith("The probe and newest entries are intact.")
    assert said[1].startswith("Labels cost nothing")
    assert said[2] == f"Labels are the probe's. {folder / 'student'} is another model, which the service does not ask."
    assert f"{folder / 'student'} may be given away instead, and gives probabilities too." in said[3]
    assert said[3].endswith("The service gives classes alone.")
    assert said[4].startswith("To stop: Ctrl-C.")
    np.testing.assert_array_equal(given.labels, expected)
    assert (given.outcomes == Outcome.TEACHERS).all()
    assert given.secure
    assert given.mechanism is None
    assert repr(given) == "Answers(300 rows, labeled by a probe)"
    assert Ledger(folder / "ledger.sqlite").summary().entries == entries


def test_a_run_by_url(service, trained, tmp_path, terrine):
    text = REMOTE.replace("public.npy", str(trained[0] / "public.npy"))
    folder, key, expected = service.folder, service.key, trained[2]
    before = service.ledger.summary().entries
    with service.serving() as url:
        (tmp_path / "remote.toml").write_text(text.replace("URL", url))
        done = terrine("run", tmp_path / "remote.toml", "--out", tmp_path / "r", "--json", TERRINE_API_KEY=key)
        assert done.code == 0, done.err
        again = terrine("label", tmp_path / "r", TERRINE_API_KEY=key)
        assert again.code == 0, again.err
        rounds = text.replace("queries = 200\n", "").replace("URL", url) + "[[rounds]]\nqueries = 20\n" * 2
        (tmp_path / "rounds.toml").write_text(rounds)
        code, _, err = terrine("run", tmp_path / "rounds.toml", "--out", tmp_path / "s", TERRINE_API_KEY=key)
        assert code == 2
        assert "serves a probe, whose labels cost nothing: nothing needs rounds. Leave [[rounds]] out" in err
    assert service.ledger.summary().entries == before
    shown, own = json.loads(done.out)["guarantee"], json.loads((folder / "guarantee.json").read_text())
    names = ("epsilon", "delta", "relation", "basis", "mechanism", "steps_kept", "planned_units", "features", "route")
    names = (*names, "measured")
    assert {name: shown[name] for name in names} == {name: own[name] for name in names}
    assert (shown["publishable"], shown["labeled"], shown["service"]) == (True, 200, url)
    assert shown["ledger"]["id"] == own["ledger"]["id"]
    asked, answers = load_answers(tmp_path / "r" / "answers.npz")
    np.testing.assert_array_equal(answers.labels, expected[asked])
    assert "The service's probe labeled 200 public rows. Labels cost nothing more." in again.out
    report = (tmp_path / "r" / "report.html").read_text()
    assert "vote" not in report
    assert "learned from the probe’s labels of 200 public rows" in report
    assert "The service’s probe labeled 200 of the 300 public rows." in report
    card = load_student(tmp_path / "r" / "student").card
    assert (card.mechanism, card.relation, card.private) == ("noisy_sums", own["relation"], True)
    # Labels of a probe are no truth: nobody is called right
    page = (tmp_path / "r" / "student" / "model_card.md").read_text()
    (verdict,) = json.loads(done.out)["student"]["verdicts"]
    assert verdict["of_probe"]
    assert load_student(tmp_path / "r" / "student").about.verdict.of_probe
    for said in (page, card.verdicts[0].in_words):
        assert "of 200 labels of the probe left out when it was predicted" in said
        assert "agreement with the probe: it says nothing of how often the probe, or the student, is right" in said
    assert "agreement, with 200 labels of the probe" in report
    code, _, err = terrine("ledger", "show", tmp_path / "r")
    assert code == 2
    assert f"The ledger of {tmp_path / 'r'} is the service's, at {url}: this run has none." in err
    (tmp_path / "remote.toml").write_text(text.replace("URL", url).replace("= 200", "= 100"))
    code, _, err = terrine("run", tmp_path / "remote.toml", "--out", tmp_path / "r", TERRINE_API_KEY=key)
    assert code == 2
    assert "charged" not in err
    assert "begin a new run with --out. The service's labels cost nothing more." in err


def test_what_is_said_of_it(service, rows):
    with service.client() as http:
        found = label(http, rows[:3], "a", key=service.key)
        about = http.get("/v1/about", headers=bearer(service.key)).json()
        budget = http.get("/v1/budget", headers=bearer(service.key)).json()
        asked = http.get("/v1/requests/a", headers=bearer(service.key))
        history = http.get("/v1/history", headers=bearer(service.key)).json()
        usage = http.get("/v1/usage", headers=bearer(service.admin)).json()["keys"]
        metrics = http.get("/metrics").text
    assert found.json()["outcomes"] == ["answered"] * 3
    assert set(found.json()["labels"]) <= {"no", "yes"}
    assert (about["route"], about["n_teachers"], about["mechanism"]) == ("probe", None, None)
    shown = json.loads((service.folder / "guarantee.json").read_text())
    assert about["probe"] == {name: shown[name] for name in about["probe"]}
    assert about["guarantee"]["relation"] == budget["guarantee"]["relation"] == shown["relation"] == "unit_any"
    assert about["guarantee"]["epsilon"] == shown["epsilon"]
    assert (budget["queries"], budget["answers"], budget["room"], budget["open"]) == (0, 0, None, 0)
    assert (budget["share_spent"], budget["labels_free"]) == (None, True)
    assert next(iter(budget)) == "words"
    assert budget["left"] == {}  # not a number of steps, of which 0 would be left
    assert repr(Budget(**budget)).startswith("Budget(words='The training, and all labels together, have ε = ")
    assert str(Budget(**budget)).startswith("words=")
    assert about["measured"] == shown["measured"]
    assert About(**about).measured.read().words == shown["measured"]["words"] != ""
    assert "Labels cost nothing, however many rows they are of" in budget["words"]
    assert asked.status_code == 404
    assert "no request is kept" in asked.json()["error"]["message"]
    assert history == {"points": []}
    assert [(one["queries"], one["answers"]) for one in usage] == [(0, 0), (0, 0)]
    assert "terrine_queries_charged 0.0" in metrics


def test_a_row_has_one_label_whatever_is_asked_beside_it(service, rows, trained):
    with service.client() as http:
        for k, some in enumerate((rows, rows[:1], rows[7:20], rows[::-1][:40])):
            told = label(http, some, "the same id", key=service.key).json()["labels"]
            places = [range(300), [0], range(7, 20), range(299, 259, -1)][k]
            assert told == [("no", "yes")[trained[2][place]] for place in places]
        huge = np.full((2, rows.shape[1]), 1e30)
        assert None not in label(http, huge, "huge", key=service.key).json()["labels"]
        refused = {
            "round": http.post("/v1/labels?round=2", json={"request_id": "b", "rows": rows[:1].tolist()},
                               headers=bearer(service.key)),
            "proba": label(http, rows[:1], "b", key=service.key, student_proba=[[0.5, 0.5]]),
            "shape": label(http, rows[:1, :-1], "b", key=service.key),
        }  # fmt: skip
        assert {name: one.status_code for name, one in refused.items()} == dict.fromkeys(refused, 422)
        assert label(http, rows[:1], "b", key="terrine_nobody").status_code == 401


def test_one_request_that_is_refused_leaves_the_others(folder, rows, trained):
    run = ProbeRun(folder)
    probe = run.served(run.ledger())
    asked = [Question(rows[:2], "a"), Question(rows[2:3], "b", np.full((1, 2), 0.5)), Question(rows[3:5], "c")]
    first, second, third = probe.label_each(asked)
    assert isinstance(second, InputError)
    assert [*first.labels, *third.labels] == trained[2][[0, 1, 3, 4]].tolist()
    assert ABSTAIN not in first.labels

    def broken(X):
        raise ZeroDivisionError("row 3 is [1, 2]")

    with pytest.raises(TeachersError, match=r"^The probe failed to label the rows \(ZeroDivisionError\)\.$"):
        replace(probe, predict=broken).label_each(asked)


def test_a_probe_that_is_not_the_ledgers_is_refused(folder, refused_line):
    kept = (folder / "probe.npz").read_bytes()
    probe = Probe.load(folder / "probe.npz")
    replace(probe, settings=replace(probe.settings, rate=2 * probe.settings.rate)).save(folder / "probe.npz")
    assert "is not what the ledger's training made" in refused_line("serve", folder)
    replace(probe, weights=probe.weights * (1 + 2.0**-50)).save(folder / "probe.npz")
    assert "is not what the ledger's training made" in refused_line("serve", folder)
    (folder / "probe.npz").write_bytes(kept[:200] + b"x" + kept[201:])
    assert "cannot be read as a probe" in refused_line("serve", folder)
    (folder / "probe.npz").write_bytes(kept)
    features = (folder / "features.safetensors").read_bytes()
    (folder / "features.safetensors").write_bytes(features[:-1] + bytes([features[-1] ^ 1]))
    assert "is not the file that this run learned on" in refused_line("serve", folder)
    (folder / "features.safetensors").write_bytes(features)
    (folder / "rows.json").unlink()
    assert f"Make it with: terrine teach {folder}" in refused_line("serve", folder)


def test_what_rows_are_is_written_again(trained, tmp_path, monkeypatch):
    clinic(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(SETTINGS)
    run = ProbeRun.create(read_settings(tmp_path / "run.toml"), tmp_path / "run")
    run.teach()
    before = (run.folder / "rows.json").read_bytes()
    (run.folder / "rows.json").unlink()
    opened(run.folder).teach()
    assert (run.folder / "rows.json").read_bytes() == before


def test_nothing_is_served_or_charged_before_the_training(tmp_path, refused_line):
    clinic(tmp_path)
    text = SETTINGS
    for name in SECRET:
        text = text.replace(f'"{name}"', f'"{tmp_path / name}"')
    (tmp_path / "run.toml").write_text(text)
    run = ProbeRun.create(read_settings(tmp_path / "run.toml"), tmp_path / "run")
    for words in (("serve", run.folder), ("keys", "create", run.folder, "--name", "a")):
        assert f"Train it with: terrine teach {run.folder}" in refused_line(*words)
    assert not (run.folder / "ledger.json").exists()


@pytest.fixture
def refused_line(terrine):
    def call(*words):
        code, out, err = terrine(*words)
        assert (code, out) == (2, ""), err
        assert len(err.splitlines()) == 1
        return err

    return call


def test_a_ledger_of_answers_has_no_probe(service, tmp_path):
    ledger = Ledger(tmp_path / "other.sqlite", budget=budget_for(5))
    run = ProbeRun(service.folder)
    with pytest.raises(InputError, match="does not pay for the training"):
        make_probe_app(run.served(run.ledger()), ledger, Keys(ledger_file := tmp_path / "other.sqlite"))
    assert ledger_file.exists()


def test_the_dashboard_says_that_labels_cost_nothing(service, rows):
    with service.serving() as url, chromium() as browser:
        tab = Tab(browser, url)
        tab.enter(service.admin).sees("#words", "Labels cost nothing")
        tab.sees("#about", "A probe, one model that was trained with noise, labels rows in 2 classes.")
        assert tab.text("#spent-head") == "What labels cost"
        tab.sees("#meaning", "that person was in the private data")
        for hidden in ("#gauge", "#chart", "#time-head", "#outcomes", "#keys-head", "#notices strong"):
            assert tab.page.locator(hidden).filter(visible=True).count() == 0
        tab.close()
        assert tab.complaints == []
