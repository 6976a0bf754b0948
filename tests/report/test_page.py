"""The report: everything is on it, nothing secret, nothing from outside, and it is well-formed and readable."""

from __future__ import annotations

import copy
import math
import re
import stat
import sys
import tomllib
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from markupsafe import Markup

from terrine.errors import InputError, MissingDependencyError, SecretError
from terrine.relations import Relation
from terrine.report.charts import spending, ticks
from terrine.report.page import WATERMARK, _template, _upwards, write_report
from terrine.sensitive import Sensitive
from terrine.votes import Ballots, Votes

QUERIES = list(range(0, 641, 20))
SECRET = {
    "consensus": {"edges": [0.0, 0.5, 0.9, 1.0], "queries": [4711, 77, 1312]},
    "mean_top_vote": 217.43,
    "mean_teacher_accuracy": 0.81927,
    "plurality_accuracy": 0.97611,
    "answers_right": 0.98733,
    "exact": {"epsilon": 0.61734, "order": 23.5, "accountant": "exact"},
    "baseline": {"accuracy": 0.99412, "kind": "forest on all rows"},
}
SECRET_NUMBERS = ["4,711", "1,312", "217.4", "81.9%", "97.6%", "98.7%", "0.618", "23.5", "99.4%", "forest on all rows"]


def made_up(n_classes=10, **changes):
    names = [str(k) for k in range(n_classes)]
    facts = {
        "title": "mnist",
        "made": "2026-11-15T14:00:00Z",
        "terrine": "0.1.0",
        "guarantee": {
            "epsilon": 0.9301,
            "delta": 1e-5,
            "order": 17.5,
            "basis": "worst case over all votes, argmax bound",
            "relation": "row_replaced",
            "notes": ["A note on the guarantee."],
        },
        "insecure": False,
        "data": {
            "name": "mnist",
            "rows": "(28, 28) uint8",
            "classes": names,
            "n_public": 9000,
            "n_test": 1000,
            "n_private": 60000,
        },
        "teachers": {"number": 250, "kind": "forest", "settings": {"n_estimators": 100}, "partition": "hashed"},
        "mechanism": {"kind": "confident", "threshold": 200.0, "sigma_check": 150.0, "sigma_vote": 40.0},
        "queries_at_most": 640,
        "answers_at_most": 300,
        "answers": {
            "asked": 600,
            "answered": 283,
            "withheld": 317,
            "unasked": 40,
            "by_class": {name: 28 + k % 3 for k, name in enumerate(names)},
        },
        "spending": {
            "queries": QUERIES,
            "epsilon": [0.9 * math.sqrt(n / 640) for n in QUERIES],
            "answered": [n * 283 // 640 for n in QUERIES],
        },
        "per_query": {"check": 0.0002, "answer": 0.00412341},
        "student": {
            "kind": "vat",
            "settings": {"epochs": 40},
            "accuracy": 0.9893,
            "n_test": 1000,
            "interval": [0.98059, 0.99411],
            "per_class": {name: 0.9 + 0.001 * k / n_classes for k, name in enumerate(names)},
        },
        "config": 'seed = 0\n\n[data]\nname = "mnist"\n',
        "versions": {"python": "3.12", "numpy": "2.4.6"},
        "commands": ["terrine run mnist.toml"],
    }
    return facts | changes


class Page(HTMLParser):
    """A page's tags, attributes and text; anything that does not nest fails."""

    VOID = frozenset({"meta", "br", "hr", "img", "input", "link"})

    def __init__(self, html):
        super().__init__()
        self.html, self.open, self.tags, self.words = html, [], [], []
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = re.sub(r"\s+", " ", "".join(self.words))

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs)
        self.tags.append((tag, dict(attrs), tuple(self.open)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert "svg" in self.open
        self.tags.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes, _ in self.tags if name == tag]

    def values(self, attribute):
        return [attributes[attribute] for _, attributes, _ in self.tags if attribute in attributes]


def page(tmp_path, facts, secret=None):
    path = tmp_path / "report.html"
    write_report(path, facts, secret=secret)
    return Page(path.read_text(encoding="utf-8"))


VARIANTS = {
    "whole": lambda: (made_up(), None),
    "secret": lambda: (made_up(), SECRET),
    "insecure": lambda: (made_up(insecure=True), None),
    "no student": lambda: (made_up(student=None, per_query=None), None),
    "two classes": lambda: (made_up(2), None),
    "many classes": lambda: (made_up(150), None),
    "hostile": lambda: (hostile(made_up()), None),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_well_formed_and_reaches_nothing_outside(tmp_path, variant):
    found = page(tmp_path, *VARIANTS[variant]())
    assert len(found.html.encode()) < 300_000
    names = found.values("id")
    assert len(set(names)) == len(names)
    for reference in (" ".join(found.values("aria-labelledby"))).split():
        assert reference in names
    assert all(link["href"][0] == "#" and link["href"][1:] in names for link in found.all("a"))
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & {tag for tag, *_ in found.tags}
    assert not [name for _, attributes, _ in found.tags for name in attributes if name.startswith("on")]
    assert not {"src", "srcset", "xlink:href", "action"} & {name for _, a, _ in found.tags for name in a}
    style = re.search(r"<style>(.*?)</style>", found.html, re.S).group(1)
    assert "@import" not in style
    assert "url(" not in style
    assert all(attributes["fill"].startswith("url(#flow-") for attributes in found.all("rect") if "fill" in attributes)
    if variant != "hostile":
        assert "://" not in found.html


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_can_be_read_by_all(tmp_path, variant):
    found = page(tmp_path, *VARIANTS[variant]())
    levels = [int(tag[1]) for tag, *_ in found.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(cell.get("scope") in ("row", "col") for cell in found.all("th"))
    assert len(found.all("caption")) == len(found.all("table"))
    drawings = found.all("svg")
    assert drawings
    titles = [attributes["id"] for tag, attributes, inside in found.tags if tag == "title" and "svg" in inside]
    for drawing, title in zip(drawings, titles, strict=True):
        assert drawing["role"] == "img"
        assert title in drawing["aria-labelledby"].split()
    assert found.all("html")[0]["lang"] == "en"
    for scrolled in (a for _, a, _ in found.tags if a.get("role") == "region"):
        assert scrolled["tabindex"] == "0"
        assert scrolled["aria-label"]


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_light_and_dark_have_contrast(tmp_path):
    html = page(tmp_path, made_up()).html
    palettes = [
        dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in re.findall(r":root \{([^}]*--[^}]*)\}", html)
    ]
    assert len(palettes) == 2
    for colours in palettes:
        for text, ground, least in (
            *((text, ground, 4.5) for text in ("ink", "muted", "accent") for ground in ("paper", "soft")),
            ("alarm", "paper", 4.5),
            ("alarm", "alarm-wash", 4.5),
            ("accent", "wash", 3.0),
        ):
            dark, light = sorted((luminance(colours[text]), luminance(colours[ground])))
            assert (light + 0.05) / (dark + 0.05) >= least, (text, ground)
    assert "@media print" in html
    assert "@media screen and (prefers-color-scheme: dark)" in html  # paper stays light


def test_a_page_says_the_day_only(tmp_path):
    found = page(tmp_path, made_up(made="2026-11-15"))
    assert "15 November 2026" in found.text
    assert "00:00" not in found.text


def test_every_part_is_there(tmp_path):
    found = page(tmp_path, made_up())
    for words in (
        "Report of a private learning run",
        "15 November 2026, 14:00 UTC",
        "cannot reliably tell whether a given row was in the private data, or a different row in its place",
        "ε = 0.931",
        "δ = 10⁻⁵",
        "1 in 100,000",
        "worst case over all votes, argmax bound",
        "A note on the guarantee.",
        Relation.ROW_REPLACED.sentence,
        "98.9%",
        "Lowest: 0 (90.0%), 1 (90.0%), 2 (90.0%)",
        "98.0% and 99.5%",  # rounded outwards
        "60,000",
        "9,000",
        "250 × forest",
        "250 of kind forest",
        "only noisy winners cross here",
        "plus noise of standard deviation 150 votes, reach 200 votes?",
        "n_estimators",
        "not asked",
        "283 answers",
        "Where too few teachers agree, the mechanism withholds the answer",
        "progress, not a guarantee",
        "the guarantee: ε = 0.931",
        "Cost of one question",
        "0.00413",  # one answer's cost, rounded up
        "1.24",
        "What is not protected",
        "A person with several rows.",
        'name = "mnist"',
        "terrine run mnist.toml",
        "numpy",
        "its ε adds to this one",
    ):
        assert words in found.text, words
    sections = [attributes["id"] for attributes in found.all("section")]
    assert sections == ["protected", "made", "student", "answers", "cost", "limits", "again"]


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.93, 0.9300000001, 1.9999, 2.1415, 4.0, 8.0, 12.5, 30.0, 900.0])
@pytest.mark.parametrize("delta", [0.3, 2.5e-4, 1e-5, 1.23456e-9])
def test_what_epsilon_means_is_never_understated(tmp_path, epsilon, delta):
    facts = made_up()
    facts["guarantee"] |= {"epsilon": epsilon, "delta": delta}
    found = page(tmp_path, facts)
    shown = float(re.search(r"ε = ([\d.]+)", found.text).group(1))
    assert epsilon <= shown < epsilon + 0.0011
    # The best guess between two cases with even odds, by the law that no (ε, δ) pair can beat
    likelier = math.exp(min(epsilon, 100)) / (1 + math.exp(min(epsilon, 100)))
    best = delta + (1 - delta) * likelier
    bound = float(re.search(r"nobody is right in more than ([\d.]+)% of all cases", found.text).group(1)) / 100
    assert min(best, 1.0) <= bound <= 1.0
    assert bound < best + 0.0025
    factor = re.search(r"a factor of at most eε = ([\d.,]+?)\.? ", found.text)
    if factor is None:
        assert math.exp(min(epsilon, 100)) > 0.99e6
        assert "more than a million" in found.text
    else:
        assert float(factor.group(1).replace(",", "")) >= math.exp(epsilon)
    assert ("cannot reliably tell" in found.text) == (bound <= 0.95)
    one_in = int(re.search(r"a chance of 1 in ([\d,]+)", found.text).group(1).replace(",", ""))
    assert 1 / one_in >= delta * (1 - 1e-12)
    assert f"δ = {_upwards(delta, plain=-2)}" in found.text


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.0002, "0.0002"), (0.00412341, "0.00413"), (1.3671, "1.37"), (1e-5, "0.00001"), (99.99, "100")],
)
def test_costs_round_up(value, shown):
    assert _upwards(value) == shown


def test_small_numbers_are_powers_of_ten():
    assert [_upwards(x, plain=-2) for x in (1e-5, 2.5e-6, 1.23456e-9, 0.05)] == [
        "10⁻⁵",
        "2.5 × 10⁻⁶",
        "1.24 × 10⁻⁹",
        "0.05",
    ]


def hostile(facts):
    """Mark-up wherever there is a word."""
    bad = "\"'></td></table></code></pre></title></style></svg><script>alert(1)</script>"
    bad += "<img src=http://x onerror=y>&\x00\ud800"
    names = [f"{bad}{k}" for k in range(3)]
    for part, key in (
        (facts, "title"),
        (facts, "made"),
        (facts, "terrine"),
        (facts, "config"),
        (facts["data"], "name"),
    ):
        part[key] = bad
    facts["guarantee"] |= {"basis": bad, "relation": bad, "notes": [bad]}
    facts["data"] |= {"classes": names, "rows": bad}
    facts["teachers"] |= {"kind": bad, "partition": bad, "settings": {bad: bad, "deep": {"list": [bad]}}}
    facts["mechanism"] = {"kind": bad, bad: bad}
    facts["answers"]["by_class"] = dict.fromkeys(names, 3)
    facts["student"] |= {"kind": bad, "settings": {bad: bad}, "per_class": dict.fromkeys(names, 0.5)}
    return facts | {"versions": {bad: bad}, "commands": [bad]}


def test_words_are_words_and_never_mark_up(tmp_path):
    found = page(tmp_path, hostile(made_up()))
    assert "<script>alert(1)</script>" in found.text
    assert not {"script", "img"} & {tag for tag, *_ in found.tags}
    assert "\x00" not in found.html


def leaves(value, path=()):
    """Where there is a plain value: every key, the first of every list."""
    if isinstance(value, dict) and value:
        return [leaf for key, inner in value.items() for leaf in leaves(inner, (*path, key))]
    if isinstance(value, list) and value:
        return leaves(value[0], (*path, 0))
    return [path]


def planted(facts, path, value):
    facts = copy.deepcopy(facts)
    part = facts
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return facts


SECRETS = {
    "Sensitive": lambda: Sensitive(4711.0),
    "Votes": lambda: Votes([[3, 1]], n_teachers=4),
    "Ballots": lambda: Ballots([[0, 1], [0, 0]], ids=[100, 101], n_classes=2, queries="0" * 64, relation="one row"),
    "ndarray": lambda: np.array([4711]),
    "Markup": lambda: Markup("<b>4711</b>"),
    "bytes": lambda: b"4711",
    "set": lambda: {4711},
    "function": lambda: len,
}


@pytest.mark.parametrize("kind", SECRETS)
def test_what_is_not_plain_is_refused_everywhere(tmp_path, kind):
    path = tmp_path / "report.html"
    wheres = leaves(made_up(2))
    assert len(wheres) > 40
    for where in wheres:
        for value in (SECRETS[kind](), [[SECRETS[kind]()]], {"inner": SECRETS[kind]()}):
            with pytest.raises(SecretError) as caught:
                write_report(path, planted(made_up(2), where, value))
            assert "4711" not in str(caught.value)
            assert "facts." in str(caught.value)
    with pytest.raises(SecretError):
        write_report(path, made_up() | {"extra": SECRETS[kind]()})
    for where in leaves(SECRET):
        with pytest.raises(SecretError):
            write_report(path, made_up(), secret=planted(SECRET, where, SECRETS[kind]()))
    assert list(tmp_path.iterdir()) == []


def test_the_owners_page_is_marked_and_closed_to_others(tmp_path):
    path = tmp_path / "report.html"
    write_report(path, made_up())
    public = path.read_text(encoding="utf-8")
    assert stat.S_IMODE(path.stat().st_mode) & 0o044  # as any new file
    write_report(path, made_up(), secret=SECRET)
    found = Page(path.read_text(encoding="utf-8"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert re.search(r"<title>(.*?)</title>", found.html).group(1).startswith(WATERMARK)
    bar, mark = ([a for _, a, _ in found.tags if a.get("class") == name] for name in ("secret-bar", "secret-mark"))
    assert len(bar) == len(mark) == 1
    assert found.text.count(WATERMARK) >= 3
    style = re.search(r"<style>(.*?)</style>", found.html, re.S).group(1)
    assert f'@page {{ @top-center {{ content: "{WATERMARK}"' in style  # every printed page
    for name in ("secret-bar", "secret-mark"):
        assert re.search(rf"\.{name} \{{ position: fixed", style)  # every screen
    for number in SECRET_NUMBERS:
        assert number in found.text, number
        assert number not in Page(public).text, number
    assert WATERMARK == "SECRET: depends on private votes. Do not publish."
    assert WATERMARK not in public
    assert "secret-bar" not in re.sub(r"<style>.*?</style>", "", public, flags=re.S)
    assert "A person who sees the student or the answers cannot" in found.text
    assert "this page is not covered" in found.text.lower()
    write_report(path, made_up())
    assert path.read_text(encoding="utf-8") == public


@pytest.mark.parametrize("only", SECRET)
def test_each_secret_value_is_optional(tmp_path, only):
    found = page(tmp_path, made_up(), {only: SECRET[only]})
    assert WATERMARK in found.text
    assert sum(number in found.text for number in SECRET_NUMBERS) in (1, 2)


def test_other_secret_values_are_refused(tmp_path):
    with pytest.raises(InputError, match="'votes'"):
        page(tmp_path, made_up(), {"votes": [4711]})
    assert WATERMARK in page(tmp_path, made_up(), {}).text


def test_what_is_not_known_is_said(tmp_path):
    facts = made_up(student=None, per_query=None)
    facts["data"] |= {"n_private": None, "n_test": None}
    facts["guarantee"]["relation"] = "unit_any"
    facts["spending"] = {"queries": [], "epsilon": [], "answered": []}
    found = page(tmp_path, facts)
    for words in ("No student has learned", "not shown", "none yet", "nothing has been spent"):
        assert words in found.text
    assert "Cost of one question" not in found.text
    assert "The size of the private data" not in found.text

    facts = made_up()
    facts["student"] |= {"accuracy": None, "n_test": None, "interval": None, "per_class": None}
    found = page(tmp_path, facts)
    assert "accuracy not measured" in found.text
    assert "By class" not in found.text
    assert "%" not in found.text[found.text.index("What the student can do") : found.text.index("How it learned")]

    facts = made_up()
    facts["student"]["per_class"]["3"] = None
    assert "no rows" in page(tmp_path, facts).text


def test_every_relation_has_words_of_its_own(tmp_path):
    leads = set()
    for relation in (*Relation, "one of two countries is left out"):
        facts = made_up()
        facts["guarantee"]["relation"] = str(relation)
        text = page(tmp_path, facts).text
        leads.add(re.search(r"cannot reliably tell whether (.*?)\. This holds", text).group(1))
        assert ("The guarantee treats it as public" in text) == ("is public" in Relation(relation).sentence)
    assert len(leads) == 7
    assert [lead for lead in leads if "in one way: " in lead] == [
        "the private data were these, or data that differ from these in one way: one of two countries is left out"
    ]


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [
        ({"kind": "gnmax", "sigma": 40.0}, "Noise of standard deviation 40 votes is added"),
        ({"kind": "lnmax", "scale": 20.0}, "Laplace noise of scale 20 votes"),
        (
            {"kind": "interactive", "threshold": 9.0, "sigma_check": 6.0, "sigma_vote": 8.0, "student_confidence": 0.6},
            "surer than 0.6 keeps its own label",
        ),
        ({"kind": "new", "thing": 1.5}, "thing"),
    ],
)
def test_mechanisms_in_words(tmp_path, mechanism, words):
    facts = made_up(mechanism=mechanism)
    facts["answers"] = {**facts["answers"], "withheld": 0, "unasked": 0, "reinforced": 17}
    found = page(tmp_path, facts)
    assert words in found.text
    assert "student's own" in found.text
    assert "withheld" not in found.text
    assert ("do not differ enough from the student" in found.text) == (mechanism["kind"] == "interactive")


def test_insecure_noise_is_shouted(tmp_path):
    found = page(tmp_path, made_up(insecure=True))
    assert "Seeded noise: not private." in found.text
    assert "Nothing is protected by this run" in found.text
    assert "which the guarantee covers" not in found.text
    assert "insecure" not in page(tmp_path, made_up()).values("id")


@pytest.mark.parametrize(("n_classes", "tables"), [(2, 1), (8, 1), (10, 2), (150, 3), (1000, 3)])
def test_any_number_of_classes(tmp_path, n_classes, tables):
    found = page(tmp_path, made_up(n_classes))
    assert len(re.findall("<caption[^>]*>Accuracy by class", found.html)) == tables
    assert ("more classes" in found.text) == (n_classes > 200)
    assert "800 more classes" in found.text or n_classes <= 200
    assert len(found.html.encode()) < 300_000


def test_classes_that_were_never_answered(tmp_path):
    facts = made_up()
    facts["answers"]["by_class"] |= {"3": 0, "4": 0}
    assert "2 of 10 classes were never answered" in page(tmp_path, facts).text
    facts["answers"] |= {"answered": 0, "by_class": dict.fromkeys(facts["data"]["classes"], 0)}
    assert "10 of 10 classes were never answered" in page(tmp_path, facts).text


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("guarantee", "epsilon"), math.inf, "finite"),
        (("guarantee", "epsilon"), -1.0, "guarantee.epsilon must be at least 0"),
        (("guarantee", "delta"), 0.0, "guarantee.delta"),
        (("spending", "answered"), [1], "facts.spending"),
        (("data",), {"name": "x"}, "classes|n_private"),
        (("data",), {5: "x"}, r"keys of facts\.data must be text"),
    ],
)
def test_bad_facts_leave_the_old_page(tmp_path, path, value, problem):
    old = page(tmp_path, made_up()).html
    with pytest.raises(InputError, match=problem):
        page(tmp_path, planted(made_up(), path, value))
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == old
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("missing", made_up())
def test_a_missing_fact_is_named(tmp_path, missing):
    facts = made_up()
    del facts[missing]
    with pytest.raises(InputError, match=missing):
        page(tmp_path, facts)


def test_only_html(tmp_path):
    with pytest.raises(InputError, match=r"end in \.html, got report\.txt"):
        write_report(tmp_path / "report.txt", made_up())


def test_without_jinja2_it_says_how_to_install_it(tmp_path, monkeypatch):
    _template.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependencyError, match=r"terrine\[report\]"):
        page(tmp_path, made_up())


def test_the_template_is_installed():
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert "report/template.html" in settings["tool"]["setuptools"]["package-data"]["terrine"]


@pytest.mark.parametrize(
    ("top", "most", "found"),
    [(0, 5, [0.0]), (1.04, 5, [0, 0.5, 1.0]), (640, 8, [0, 100, 200, 300, 400, 500, 600]), (3, 4, [0, 1, 2, 3])],
)
def test_ticks_are_round(top, most, found):
    assert ticks(top, most) == found


@pytest.mark.parametrize("last", [1, 100, 1_000, 20_000, 1_000_000])
def test_no_label_of_the_questions_is_cut_off(last):
    """A label is centered on its tick: half of it must fit between the axis' end and the drawing's edge."""
    for drawing in spending([0, last], [0.0, 1.0], limit=2.0).split("</svg>")[:2]:
        width = float(re.search(r'viewBox="0 0 (\d+) ', drawing)[1])
        labels = re.findall(r'<text class="tick mid" x="([\d.]+)"[^>]*>([^<]+)<', drawing)
        assert labels[-1][1] == f"{last:,}"
        assert all(float(x) + 7.4 / 2 * len(words) <= width for x, words in labels)


def test_long_spending_stays_small(tmp_path):
    n = 20_000
    facts = made_up()
    facts["spending"] = {
        "queries": list(range(n)),
        "epsilon": [0.9 * k / n for k in range(n)],
        "answered": list(range(n)),
    }
    found = page(tmp_path, facts)
    assert len(found.html.encode()) < 100_000
    assert "19,999 questions" in found.text


def test_a_student_beside_a_constant_is_shown_and_one_below_it_is_not_called_best(tmp_path):
    facts = made_up()
    one = {"judged_on": "test", "n": 500, "commonest": "3", "right": 0.618, "constant": 0.604, "lead": 0.014}
    tried = {"right": 0.6, "lead": 0.0, "error": 0.0}
    facts["student"] |= {
        "verdicts": [one | {"interval": [-0.01, 0.038]}],
        "warnings": ["It is not clear that the student is better than a constant."],
        "settings": {"compared": {"linear": tried}, "compared_on": "answers", "chosen": "linear"},
    }
    write_report(tmp_path / "report.html", facts)
    plain = (tmp_path / "report.html").read_text()
    for words in (
        "Beside a constant",
        "60.4%",
        "+1.4 (-1.0 to +3.8) points",
        "<strong>Warning:</strong> It is not clear",
    ):
        assert words in plain
    assert "agreed with most answers and is kept" in plain
    assert "right, on 500 labeled test rows" in plain
    assert "Agreement is no accuracy" not in plain
    facts["student"]["settings"]["below_constant"] = True
    write_report(tmp_path / "report.html", facts)
    below = (tmp_path / "report.html").read_text()
    assert "agreed with most answers and is kept" not in below
    assert "always naming the commonest class agreed with at least as many answers as each of them" in below
    facts["student"]["verdicts"][0]["judged_on"] = "left_out"
    text = page(tmp_path, facts).text
    assert "agreement, with 500 released answers, each left out when it was predicted" in text
    assert "Agreement is no accuracy: the noise makes some of the answers wrong." in text
