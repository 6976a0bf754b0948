"""The page at /, in a real browser on a real server."""

from __future__ import annotations

import math
import re
from importlib.resources import files

import httpx
import numpy as np
import pytest
from tests.service import tasks
from tests.service.browser import Tab, chromium, expect
from tests.service.tasks import Service, bearer, free_port, label, rows_of

from terrine import FilterBudget, Ledger
from terrine.relations import Relation
from terrine.service.app import Limits

MARK_UP = "<img src=x onerror=\"document.title='got in'\"><b>bold</b>"


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def tab(browser):
    """Opens tabs; none may complain, and requests fail only where a test says so."""
    opened = []

    def open_tab(*args, **kwargs):
        opened.append(Tab(browser, *args, **kwargs))
        return opened[-1]

    yield open_tab
    for one in opened:
        one.close()
    assert [one.complaints for one in opened] == [[] for _ in opened]


@pytest.fixture
def service(tmp_path):
    return Service(tmp_path / "ledger.sqlite", queries=200, answers=100, seeded=False)


def ask(url, key, n, *, withheld=0, seed=0):
    rows = np.concatenate([rows_of(n, seed=seed), rows_of(withheld, agree=0.5, seed=seed + 1000)])
    with httpx.Client(base_url=url) as http:
        found = label(http, rows, f"request {seed}", key=key)
    assert found.status_code == 200, found.text


def test_an_unknown_key_is_told_so_in_one_line(service, tab):
    with service.serving() as url:
        one = tab(url)
        for key, said in (
            ("terrine_0123456789ab_nobody", "This key is not in use."),
            ("ключ", "This is not an API key"),
            (service.key[:-1], "This key is not in use."),
        ):
            one.enter(key).sees("#door-said", said)
            assert not one.page.locator("#board").is_visible()
        expect(one.page.get_by_label("API key")).to_be_focused()
        assert one.page.evaluate("sessionStorage.length") == 0
        assert len(one.refusals) == 2  # of 401
        one.enter(service.key).sees("#gauge-share", "0%")
        assert one.text("#door-said") == ""
        assert not one.page.locator("#door").is_visible()


def test_a_clients_key_shows_the_budget_and_no_other_key(service, tab):
    with service.serving() as url:
        one = tab(url).enter(service.key)
        one.sees("#no-spending", "No question has been charged yet")
        assert not one.page.locator("#chart").is_visible()
        ask(url, service.key, 30, withheld=50)
        # No reload, no help: the page looks every two seconds.
        one.sees("#gauge-share", "40.0%")  # of the queries, which are scarcer here
        budget = httpx.get(f"{url}/v1/budget", headers=bearer(service.key)).json()
        assert one.text("#counts").replace("\n", " ") == (
            "Questions charged 80 of at most 200; 120 left Answers charged 30 of at most 100; 70 left "
            "Room for 70 new questions if all are answered"
        )
        assert one.text("#words") == budget["words"]
        assert re.findall(r"\w+\D+(\d+)\s+([\d.]+%)", one.text("#outcomes")) == [("30", "37.5%"), ("50", "62.5%")]
        one.sees("#readout", "80 questions and 30 answers charged, 40.0% of the budget")
        assert one.text("#no-usage") == "Only an admin’s key shows how much each key used. This is a client’s key."
        assert not one.page.locator("#usage").is_visible()
        assert one.text("#holder") == "someone, client"
        meter = one.page.get_by_role("meter", name="Share of the budget spent")
        assert meter.get_attribute("aria-valuetext") == "40.0% of the budget is spent"
        assert one.text("#notices") == ""
        # The key is in this tab's storage and nowhere else.
        assert one.page.evaluate("Object.values(sessionStorage)") == [service.key]
        assert one.page.evaluate("[localStorage.length, document.cookie, location.href]") == [0, "", f"{url}/"]
        assert service.key not in one.page.content()
        assert one.refusals == []
        one.page.reload()
        one.sees("#gauge-share", "40.0%")
        one.page.get_by_role("button", name="Forget key").click()
        expect(one.page.get_by_label("API key")).to_be_focused()
        assert one.page.evaluate("sessionStorage.length") == 0
        one.page.reload()
        expect(one.page.get_by_label("API key")).to_be_visible()


def test_an_admins_key_shows_every_keys_use_and_names_stay_text(service, tab):
    nosy = service.keys.create(MARK_UP, role="admin", quota=40)
    service.keys.create("old", quota=0)
    service.keys.revoke("old")
    with service.serving() as url:
        ask(url, nosy, 10)
        one = tab(url).enter(nosy)
        one.sees("#keys", "someone")
        rows = [row.locator("th, td").all_inner_texts() for row in one.page.locator("#keys tr").all()]
        assert [row[:6] for row in rows] == [
            ["someone", "client", "0", "0", "none", "–"],
            ["the owner", "admin", "0", "0", "none", "–"],
            [MARK_UP, "admin", "10", "10", "40", "25.0%"],
            ["old", "client", "0", "0", "0", "–"],
        ]
        assert [row[6].split(" ")[0] for row in rows] == ["in", "in", "in", "revoked"]
        assert one.text("#holder") == f"{MARK_UP}, admin"
        assert one.page.title() == "Privacy budget: terrine"
        assert one.page.locator("main img, main b b").count() == 0
        # What an admin saw is gone for the next key in the same tab.
        one.page.get_by_role("button", name="Forget key").click()
        assert one.page.locator("#keys tr").count() == 0
        one.enter(service.key).sees("#holder", "someone, client")
        assert not one.page.locator("#usage").is_visible()
        assert one.refusals == []


def test_an_exhausted_budget_is_said_with_what_is_still_answered(service, tab):
    with service.serving() as url:
        one = tab(url).enter(service.key)
        one.sees("#gauge-share", "0%")
        ask(url, service.key, 100)
        one.look_again().sees("#notices", "The budget is used up.")
        one.sees("#notices", "A question that was answered before still gets the same answer")
        one.sees("#gauge-share", "100%")
        one.sees("#counts", "no new question")
        assert one.page.locator("#gauge-fill").get_attribute("stroke-dasharray") == "100.00 100"
        assert one.page.locator("#notices").get_attribute("role") == "status"  # it is read out
        one.sees("#chart", "the whole budget")


def test_a_lost_connection_keeps_the_numbers_and_comes_back(service, tab):
    port = free_port()
    with service.serving(port) as url:
        ask(url, service.key, 20)
        one = tab(url).enter(service.key)
        one.sees("#gauge-share", "20.0%")
        expect(one.page.locator("#state")).to_be_empty()
    one.sees("#state", "Connection lost")
    assert re.fullmatch(r"Connection lost, last update \d\d:\d\d:\d\d; trying again", one.text("#state"))
    assert one.text("#gauge-share") == "20.0%"
    one.sees("#updated", "Not live")
    with service.serving(port):
        ask(url, service.key, 20, seed=1)
        one.sees("#gauge-share", "40.0%")  # by itself
        expect(one.page.locator("#state")).to_be_empty()
        one.sees("#updated", "Live, last update")
    assert one.refusals


def test_a_revoked_key_leads_back_to_the_form(service, tab):
    with service.serving() as url:
        one = tab(url).enter(service.key)
        one.sees("#gauge-share", "0%")
        service.keys.revoke("someone")
        one.sees("#door-said", "This key was revoked.")
        assert not one.page.locator("#board").is_visible()
        assert one.page.evaluate("sessionStorage.length") == 0


def test_who_asks_too_often_waits_and_tries_again(tmp_path, tab):
    service = Service(tmp_path / "ledger.sqlite", limits=Limits(pace=0, rate=1), seeded=False)
    with service.serving() as url:
        one = tab(url).enter(service.key)  # three requests at once, of two that are allowed
        one.sees("#state", "The service gets too many requests; trying again")
        one.sees("#gauge-share", "0%")
        assert all("429" in refusal for refusal in one.refusals)


def test_a_filter_budget_and_seeded_noise(tmp_path, tab, monkeypatch):
    epsilon = 12.5
    monkeypatch.setattr(tasks, "budget_for", lambda *_: FilterBudget(epsilon=epsilon, delta=2.5e-5, order=2.0))
    service = Service(tmp_path / "ledger.sqlite", seeded=True)
    with service.serving() as url:
        one = tab(url).enter(service.key)
        room = httpx.get(f"{url}/v1/budget", headers=bearer(service.key)).json()["room"]
        assert 2 < room < 20
        one.sees("#counts", f"{room} new questions")
        one.sees("#counts", "100% a Rényi cost of")
        one.sees("#delta", "at δ = 2.5 × 10⁻⁵")
        ask(url, service.key, room)
        one.look_again().sees("#notices", "Nothing is protected: the noise was seeded.")
        one.sees("#notices", "The rest of the budget is smaller than the cost of one question.")
        assert Ledger(service.where).remaining()["share"] > 0
        assert one.text("#gauge-share") != "100%"


def test_what_the_guarantee_means_is_never_understated(service, tab):
    with service.serving() as url:
        guarantee = httpx.get(f"{url}/v1/budget", headers=bearer(service.key)).json()["guarantee"]
        one = tab(url).enter(service.key)
        one.sees("#meaning", "For a person in the private data")
        shown = float(re.search(r"ε = ([\d.]+)", one.text("#epsilon")).group(1))
        assert guarantee["epsilon"] <= shown < guarantee["epsilon"] + 0.0011
        right = float(re.search(r"at most ([\d.]+)% of cases", one.text("#meaning")).group(1)) / 100
        factor = math.exp(guarantee["epsilon"])
        assert (factor + guarantee["delta"]) / (factor + 1) <= right <= 1
        assert one.text("#relation") == Relation.ONE_TEACHER.sentence
    script = files("terrine.service").joinpath("dashboard.js").read_text()
    for relation in Relation:
        assert f"  {relation}:\n" in script


def test_the_line_can_be_read_by_pointer_and_keys(service, tab):
    with service.serving() as url:
        for seed in range(3):
            ask(url, service.key, 10, withheld=10, seed=seed)
        one = tab(url).enter(service.key)
        one.sees("#readout", "Latest")
        slider = one.page.get_by_role("slider", name="Time of the numbers below")
        slider.press("Home")
        first = one.text("#readout")
        assert ": 0 questions" in first  # the key was made before anything was asked
        assert slider.get_attribute("aria-valuetext") == first
        slider.press("End")
        one.sees("#readout", "60 questions and 30 answers charged, 30.0% of the budget")
        slider.press("Escape")
        one.sees("#readout", "Latest")
        box = slider.bounding_box()
        one.page.mouse.move(box["x"] + 60, box["y"] + 100)
        one.sees("#readout", ": 0 questions")
        one.page.mouse.move(1, 1)
        one.sees("#readout", "Latest")
        one.page.get_by_text("The numbers behind the line").click()
        shown = one.page.locator("#chart-rows tr").all_inner_texts()
        spent = [int(row.split("\t")[1]) for row in shown]
        assert spent == sorted(spent)
        assert spent[-1] == 60
        # Nothing that was reserved and given back is in it.
        assert [row.split("\t")[3] for row in shown][-1] == "30.0%"
        assert all(int(row.split("\t")[2]) <= 30 for row in shown)


def test_the_head_can_be_copied(service, tab):
    with service.serving() as url:
        ask(url, service.key, 3)
        head = str(Ledger(service.where).head())
        one = tab(url, permissions=["clipboard-read", "clipboard-write"]).enter(service.key)
        one.sees("#head", f"{head[:10]}…{head[-8:]}")
        one.page.get_by_role("button", name="Copy the head").click()
        one.sees("#copied", "Copied")
        assert one.page.evaluate("navigator.clipboard.readText()") == head
        one.page.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        one.page.get_by_role("button", name="Copy the head").click()  # as over plain http
        one.sees("#copied", "Selected")
        assert one.page.evaluate("getSelection().toString()") == head


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1280, False)])
def test_it_can_be_read_by_all(tmp_path, tab, width, dark):
    service = Service(tmp_path / "ledger.sqlite", queries=100, answers=20)  # seeded: both boxes are there
    service.keys.create("a_name_of_many_letters_" * 4, quota=7)
    with service.serving() as url:
        one = tab(url, width=width, dark=dark, reduced_motion="reduce")
        assert min(ratio for _, ratio in one.contrasts()) >= 4.5
        ask(url, service.key, 20)
        one.enter(service.admin).sees("#keys", "a_name")
        one.sees("#notices", "The budget is used up.")
        expect(one.page.get_by_role("heading", name="What is spent")).to_be_focused()
        one.page.get_by_text("The numbers behind the line").click()
        contrasts = one.contrasts()
        assert len(contrasts) > 60
        assert [(words, ratio) for words, ratio in contrasts if ratio < 4.5] == []
        assert one.page.evaluate("document.documentElement.scrollWidth") <= width
        assert one.page.evaluate("getComputedStyle(document.querySelector('#gauge-fill')).transitionDuration") == "0s"
        # Every control, table and region has a name; ids are what they say.
        for role in ("button", "textbox", "slider", "meter", "table", "region"):
            found = one.page.get_by_role(role).count()
            assert found == one.page.get_by_role(role, name=re.compile(r"\w")).count(), role
        assert one.page.evaluate("document.querySelectorAll('[style], script:not([src])').length") == 0
        ids = one.page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
        assert len(ids) == len(set(ids))
        small = (
            "[...document.querySelectorAll('button')].filter((one) => one.checkVisibility() && one.offsetHeight < 44)"
        )
        assert one.page.evaluate(f"{small}.length") == 0


def test_the_page_loads_nothing_from_elsewhere():
    folder = files("terrine.service")
    html = folder.joinpath("dashboard.html").read_text()
    assert not re.search(r"<style|\bstyle=|\son\w+=|https?:", html)
    for name in ("dashboard.js", "dashboard.chart.js", "dashboard.words.js"):
        script = folder.joinpath(name).read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|localStorage", script)
        assert set(re.findall(r"https?://\S+?\"", script)) <= {'http://www.w3.org/2000/svg"'}
