"""A run on one page: a self-contained HTML file that a manager and a reviewer can read. No script, no network."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import cache
from importlib.resources import files
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from terrine import _validate
from terrine._files import write_atomically
from terrine._optional import require
from terrine.accounting.advice import ANSWERS_EACH
from terrine.accounting.curves import round_up
from terrine.errors import InputError, SecretError
from terrine.relations import Relation
from terrine.report import charts

WATERMARK = "SECRET: depends on private votes. Do not publish."
CLASSES_SHOWN = 200  # if there are more, the page shows the first 200 and says how many it left out
SECRETS = (
    "consensus",
    "mean_top_vote",
    "mean_teacher_accuracy",
    "plurality_accuracy",
    "answers_right",
    "exact",
    "baseline",
)

# By neighboring relation: what is protected, what nobody can tell about it, and who may come several times.
_PROTECTED = {
    Relation.ROW_REPLACED: (
        "row",
        "a given row was in the private data, or a different row in its place",
        "A person with several rows",
    ),
    Relation.UNIT_REPLACED: (
        "unit",
        "a given unit (say, a person with all of their rows) was in the private data, or a different unit in its place",
        "Several units, such as a family, or one person under two names",
    ),
    Relation.UNIT_ANY: (
        "unit",
        "a given unit (say, a person with all of their rows) was in the private data, was not, or was there with "
        "different rows",
        "Several units, such as a family, or one person under two names",
    ),
    Relation.UNIT_ADDED: (
        "unit",
        "a given unit (say, a person with all of their rows) was in the private data, or was not",
        "Several units, such as a family, or one person under two names",
    ),
    Relation.ROW_ADDED: (
        "row",
        "a given row was in the private data, or was not",
        "A person with several rows",
    ),
    Relation.ONE_TEACHER: (
        "teacher",
        "a given teacher, which learned from one share of the private data, voted as it did or differently",
        "A person with rows in several shares",
    ),
}
_OTHER = (
    "difference",
    "the private data were these, or data that differ from these in one way: ",
    "Several such differences at once",
)

_HOW = {
    "confident": (
        "First a check: does the largest count, plus noise of standard deviation {sigma_check:g} votes, reach "
        "{threshold:g} votes? If not, there is no answer. If so, noise of standard deviation {sigma_vote:g} votes is "
        "added to every count, and the class with the largest noisy count is the answer."
    ),
    "interactive": (
        "First a check: do the votes differ from the student's own prediction by {threshold:g} votes, after noise of "
        "standard deviation {sigma_check:g} votes? If so, noise of standard deviation {sigma_vote:g} votes is added to "
        "every count, and the class with the largest noisy count is the answer. If not, a student that is surer than "
        "{student_confidence:g} keeps its own label; a student that is less sure gets no answer."
    ),
    "gnmax": (
        "Noise of standard deviation {sigma:g} votes is added to every count, and the class with the largest noisy "
        "count is the answer."
    ),
    "lnmax": (
        "Laplace noise of scale {scale:g} votes is added to every count, and the class with the largest noisy count is "
        "the answer."
    ),
}


def write_report(path: str | Path, facts: Mapping[str, Any], *, secret: Mapping[str, Any] | None = None) -> None:
    """Write the report of a run, whole or not at all.

    Args:
        path: where to; it ends in .html.
        facts: public, plain values (docs/report.md lists them). A Sensitive value, Votes or an array is refused,
            however deep it is nested.
        secret: values that depend on private votes, revealed by their owner. The page then warns on every screen and
            every printed page, and only its owner may read the file (mode 0600).
    """
    path = Path(path)
    if path.suffix != ".html":
        raise InputError(f"A report's file name must end in .html, got {path.name}.")
    shown = _plain(facts, "facts")
    revealed = None if secret is None else _plain(secret, "secret")
    text = _render(_view(shown, revealed)).encode("utf-8", "replace")
    write_atomically(path, lambda file: file.write(text), mode=None if secret is None else 0o600)


def _plain(value: Any, where: str) -> Any:
    """A copy made of dict, list, str, int, float, bool and None alone; the way in for every value on the page."""
    match value:
        case None | bool():
            return value
        case Integral():
            return int(value)
        case Real():
            return float(value)
        case Mapping():
            if not all(type(key) is str for key in value):
                raise InputError(f"The keys of {where} must be text.")
            return {_printable(key): _plain(inner, f"{where}.{key}"[:80]) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner, f"{where}[{i}]") for i, inner in enumerate(value)]
        case _ if type(value) is str:  # a subclass may call itself safe HTML
            return _printable(value)
    raise SecretError(
        f"{where} must be plain and public (numbers, words, lists and dicts of them), got {type(value).__name__}. "
        "To show a secret, its owner reveals it and passes it as secret=."
    )


def _printable(text: str) -> str:
    return "".join(c if c >= " " or c in "\n\t" else "�" for c in text)


def _render(view: dict[str, Any]) -> str:
    template = _template()
    from jinja2 import UndefinedError

    try:
        return str(template.render(view))
    except UndefinedError as error:
        raise InputError(f"A fact of the report is missing: {error}. docs/report.md lists them.") from None


@cache
def _template() -> Any:
    jinja2 = require("jinja2", use="A report", extra="report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "whole": lambda n: f"{int(n):,}",
        "percent": _percent,
        "up": round_up,
        "costs": _upwards,
        "setting": _setting,
        "without": lambda values, *names: {name: value for name, value in values.items() if name not in names},
    }
    return environment.from_string(files("terrine.report").joinpath("template.html").read_text(encoding="utf-8"))


def _view(facts: dict[str, Any], secret: dict[str, Any] | None) -> dict[str, Any]:
    """What the template shows: the facts, and what follows from them in words."""
    try:
        guarantee, student = facts["guarantee"], facts["student"]
        view = {
            "advice": [],
            "probe": None,
            "served": bool((facts.get("probe") or {}).get("service")),
            "is_probe": bool(student) and (student.get("settings") or {}).get("student") == "Probe",
            "tested": None,
            "rounds": [],
            **facts,
            "made_words": _moment(facts["made"]),
            "watermark": WATERMARK,
            "meaning": _meaning(guarantee, facts["data"].get("unit")),
            **(_of_answers(facts) if facts.get("probe") is None else _of_labels(facts)),
            "per_class": None if student is None else _per_class(student["per_class"]),
            "interval": None if student is None else _interval(student),
            "judged_on": None if student is None else [_judged_on(one) for one in student.get("verdicts") or ()],
            "secret": None if secret is None else _secret(secret),
        }
    except KeyError as error:
        raise InputError(f"A fact of the report is missing: {error}. docs/report.md lists them.") from None
    return view


_JUDGED = {
    "left_out": "each left out when it was predicted",
    "learned": "that the student learned from, which flatters it",
}


def _judged_on(verdict: Mapping[str, Any]) -> str:
    """By whose labels a verdict is: on test rows alone does it say who is right."""
    if verdict["judged_on"] == "test":
        return f"right, on {verdict['n']:,} labeled test rows"
    what = "labels of the probe" if verdict.get("of_probe") else "released answers"
    return f"agreement, with {verdict['n']:,} {what}, {_JUDGED[verdict['judged_on']]}"


def _of_answers(facts: dict[str, Any]) -> dict[str, Any]:
    """What a run with teachers shows: questions, answers, and what they cost."""
    answers = facts["answers"]
    return {
        "asked": _asked(answers),
        "how": _how(facts["mechanism"]),
        "hows": [_how(one["mechanism"]) for one in facts.get("rounds", [])],
        "flow": charts.flow(*_flow_notes(facts)),
        "spent": _spent(facts["spending"], facts["guarantee"]["epsilon"]),
        "balance": _balance(answers["by_class"], answers["answered"]),
    }


def _of_labels(facts: dict[str, Any]) -> dict[str, Any]:
    """What a run by the probe shows in their place."""
    data, probe, answers, student = facts["data"], facts["probe"], facts["answers"], facts["student"]
    notes = [
        "with labels" if data["n_private"] is None else f"{data['n_private']:,} rows",
        f"{probe['features']:,} of a row",
        "one of a unit",
        f"{probe['steps']:,} of them",
        "in every step",
        f"{answers['labeled']:,} labels",
        "none yet" if student is None else student["kind"],
    ]
    public = f"{data['n_public']:,}, no labels"
    return {
        "flow": charts.flow(notes, public, way=charts.BY_PROBE),
        "balance": _balance(answers["by_class"], answers["labeled"]),
    }


def _meaning(guarantee: dict[str, Any], column: str | None) -> dict[str, Any]:
    """What (epsilon, delta) means in words; every number is rounded against us.

    If two neighboring data sets are equally likely, nobody guesses which one it was right more often than
    (e^ε + δ)/(e^ε + 1). Seeing an (ε, δ)-private release tells no more than a draw that reveals everything with chance
    δ and otherwise changes the odds by a factor of at most e^ε (Kairouz, Oh and Viswanath, 2015: any such release can
    be made from that draw).
    """
    delta = _validate.between("guarantee.delta", guarantee["delta"], 0.0, 1.0)
    if _validate.number("guarantee.epsilon", guarantee["epsilon"]) < 0:
        raise InputError("guarantee.epsilon must be at least 0, got a negative number.")
    epsilon = round_up(guarantee["epsilon"])
    # Of the epsilon as it is shown, so that a reader who checks finds the same.
    factor = math.exp(min(float(epsilon), 50.0)) * (1 + 1e-12)
    guess = min((factor + delta) / (factor + 1), 1.0)
    relation = Relation(guarantee["relation"])
    unit, whether, several = _PROTECTED.get(relation, _OTHER)
    if column is not None:
        whether = whether.replace("(say, a person with all of their rows)", f"(one {column}: all rows that share it)")
    return {
        "epsilon": epsilon,
        "delta": _upwards(delta, plain=-2),
        "chance": f"1 in {_one_in(delta)}",
        "factor": round_up(factor, 2) if factor < 100 else f"{math.ceil(factor):,}" if factor < 1e6 else None,
        "guess": min(guess, 1.0),
        "guess_words": round_up(100 * guess, 1 if guess < 0.99 else 3).replace("100.000", "100") + "%",
        "reliable": guess <= 0.95,
        "unit": unit,
        "whether": whether + (relation.sentence if unit == "difference" else ""),
        "neighbors": relation.sentence,
        "size_is_public": relation.size_is_public,
        "several": several,
    }


def _asked(answers: dict[str, Any]) -> list[dict[str, Any]]:
    """How many questions had each outcome; outcomes that never happened are left out."""
    kinds = (
        ("answered", "answered", "a noisy winner of the vote was released"),
        ("reinforced", "student's own", "the teachers did not differ enough from the student, which kept its label"),
        ("withheld", "withheld", "the check did not pass, so no answer was released"),
        (
            "unasked",
            "not asked",
            "the budget, or a key's quota, had no room: no noise was drawn, nothing was charged",
        ),
        ("unreleased", "not published", "the release's private test did not pass; it is charged all the same"),
    )
    total = max(sum(answers.get(key, 0) for key, *_ in kinds), 1)
    found = [(key, name, about, answers.get(key, 0)) for key, name, about in kinds]
    return [
        {"key": key, "name": name, "about": about, "queries": n, "share": n / total}
        for key, name, about, n in found
        if n or key == "answered"
    ]


def _how(mechanism: dict[str, Any] | None) -> str | None:
    if mechanism is None:  # several, in rounds
        return None
    words = _HOW.get(mechanism["kind"])
    return None if words is None else words.format(**mechanism)


def _flow_notes(facts: dict[str, Any]) -> tuple[list[str], str]:
    data, teachers, answers, student = facts["data"], facts["teachers"], facts["answers"], facts["student"]
    number = f"{teachers['number']:,}"
    notes = [
        "with labels" if data["n_private"] is None else f"{data['n_private']:,} rows",
        f"{number}, disjoint",
        f"{number} × {teachers['kind']}",
        "secret counts",
        "adds noise",
        f"{answers['answered']:,} labels",
        "none yet" if student is None else student["kind"],
    ]
    return notes, f"{data['n_public']:,}, no labels"


def _spent(spending: dict[str, Any], limit: float) -> dict[str, Any] | None:
    queries, epsilon, answered = spending["queries"], spending["epsilon"], spending["answered"]
    if not len(queries) == len(epsilon) == len(answered):
        raise InputError("The lists queries, epsilon and answered in facts.spending must have one length.")
    if not queries:
        return None
    last = len(queries) - 1
    some = sorted({round(i * last / 16) for i in range(17)})
    rows = [{"queries": queries[i], "answered": answered[i], "epsilon": round_up(epsilon[i])} for i in some]
    return {"chart": charts.spending(queries, epsilon, limit=limit), "rows": rows, "now": rows[-1]}


def _balance(by_class: dict[str, int], answered: int) -> dict[str, Any]:
    most = max([1, *by_class.values()])
    rows = [
        {"label": name, "share": n / most, "value": f"{n:,}", "about": _percent(n / answered) if answered else ""}
        for name, n in list(by_class.items())[:CLASSES_SHOWN]
    ]
    never = sum(n == 0 for n in by_class.values())
    few = [name for name, n in by_class.items() if 0 < n < ANSWERS_EACH][:CLASSES_SHOWN]
    return {"columns": _columns(rows), "never": never, "few": few, "hidden": len(by_class) - len(rows)}


def _per_class(accuracy: dict[str, float | None] | None) -> dict[str, Any] | None:
    if accuracy is None:
        return None
    rows = [
        {"label": name, "share": share or 0.0, "value": "no rows" if share is None else _percent(share), "about": ""}
        for name, share in list(accuracy.items())[:CLASSES_SHOWN]
    ]
    known = sorted((share, name) for name, share in accuracy.items() if share is not None)
    lowest = [{"label": name, "value": _percent(share)} for share, name in known[:3]] if len(known) > 3 else []
    return {"columns": _columns(rows), "lowest": lowest, "hidden": len(accuracy) - len(rows)}


def _columns(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Few classes are one table, many are up to three beside each other."""
    tables = 1 if len(rows) <= 8 else 2 if len(rows) <= 24 else 3
    each = max(1, math.ceil(len(rows) / tables))
    return [rows[start : start + each] for start in range(0, len(rows), each)]


def _interval(student: dict[str, Any]) -> str | None:
    """The interval, rounded outwards."""
    interval = student.get("interval")
    if interval is None:
        return None
    low, high = (Decimal(repr(float(end))) * 100 for end in interval)
    ends = (low.quantize(Decimal("0.1"), ROUND_FLOOR), high.quantize(Decimal("0.1"), ROUND_CEILING))
    return f"{ends[0]}% to {ends[1]}%"


def _secret(secret: dict[str, Any]) -> dict[str, Any]:
    if unknown := [key for key in secret if key not in SECRETS]:
        raise InputError(f"secret may hold {', '.join(SECRETS)}; got {unknown[0]!r}.")
    shown: dict[str, Any] = dict.fromkeys(SECRETS) | secret
    if shown["consensus"] is not None:
        edges, queries = shown["consensus"]["edges"], shown["consensus"]["queries"]
        most = max([1, *queries])
        shown["consensus"] = [
            [
                {"label": f"{low:.0%} to {high:.0%}", "share": n / most, "value": f"{n:,}", "about": ""}
                for low, high, n in zip(edges[:-1], edges[1:], queries, strict=True)
            ]
        ]
    return shown


def _moment(text: str) -> str:
    """2026-11-15 in words, or 2026-11-15T14:00:00Z, as older facts have it."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if len(text) == len("2026-11-15"):
        return f"{moment.day} {moment:%B %Y}"
    zone = "" if moment.tzinfo is None else f" {moment.tzname()}"
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"


def _percent(share: float) -> str:
    return f"{float(share):.1%}"


def _upwards(value: float, *, plain: int = -6) -> str:
    """Three digits, never below the value; below 10 to the power of ``plain`` as in 2.5 × 10⁻⁷."""
    exact = Decimal(repr(float(value)))
    if not exact:
        return "0"
    step = Decimal(1).scaleb(exact.adjusted() - 2)
    raised = (exact / step).to_integral_value(ROUND_CEILING) * step
    power = raised.adjusted()
    if power >= plain:
        return f"{raised.normalize():f}"
    digits = f"{raised.scaleb(-power).normalize():f}"
    tens = "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return tens if digits == "1" else f"{digits} × {tens}"


def _one_in(chance: float) -> str:
    """The n of a chance of 1 in n, rounded down: the chance is never understated."""
    return f"{int((1 / Decimal(repr(chance))).to_integral_value(ROUND_FLOOR)):,}"


def _setting(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case None:
            return "none"
        case float():
            return f"{value:g}" if float(f"{value:g}") == value else repr(value)
        case dict() | list():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)
