"""A run by URL on a table: whose schema its columns are read by is said, or asked for."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.service.tasks import Service, TinyTeachers, client_of, free_port

from terrine import read_table
from terrine.errors import AdviceWarning, DataError, InputError, UnreadWarning
from terrine.runs.config import PublicDataConfig, RemoteConfig
from terrine.runs.remote import RemoteRun
from terrine.runs.tasks import public_task_of
from terrine.schema import Encoder, draft
from terrine.service.client import RemoteLabeller
from terrine.service.encoder_files import EncoderFiles

CLASSES = ("benign", "malignant")


@pytest.fixture
def public(tmp_path: Path) -> Path:
    lines = ["age,ward", *(f"{20 + k // 2},{('east', 'north')[k % 2]}" for k in range(40))]
    (tmp_path / "public.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "public.csv"


def test_a_table_without_the_owner_s_schema_is_warned_of(public: Path) -> None:
    settings = PublicDataConfig.model_validate({"public": public})
    with pytest.warns(AdviceWarning, match=r"public\.csv are read by a draft .* name it in data\.schema"):
        public_task_of(settings, classes=CLASSES)


def test_with_it_rows_are_the_owner_s_numbers_and_nothing_is_said(public: Path) -> None:
    schema = public.with_name("schema.toml")
    schema.write_text(draft(read_table(public)).to_toml().replace("high = 40", "high = 120"))
    assert "high = 120" in schema.read_text()
    settings = PublicDataConfig.model_validate({"public": public, "schema": schema})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = public_task_of(settings, classes=CLASSES).public.X
    assert rows[:, 0].max() < 0.55  # the draft's own bound would have put it near 1


class Owner:
    """A service whose teachers learned from a table, and what they were asked."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        words = ["fell", "home", "chest", "pain", "short", "breath", "monday", "came", "check", "at", "the", "with"]
        self.rows = [["age", "ward", "note"]]
        for _ in range(300):
            note = " ".join(rng.choice(words, 6))
            self.rows.append([str(rng.integers(20, 90)), str(rng.choice(["east", "north", ""])), note])
        self.folder = folder
        table = read_table(self.file("owner.csv", self.rows))
        self.encoder = Encoder.fit(draft(table), table)
        self.teachers = Asked(len(self.encoder.transform(table)[0]))
        self.port = free_port()
        self.service = Service(
            folder / "ledger.sqlite", voters=self.teachers, encoder=EncoderFiles(self.encoder.files()), queries=60
        )

    def file(self, name: str, rows: list[list[str]]) -> Path:
        (self.folder / name).write_text("\n".join(",".join(row) for row in rows) + "\n")
        return self.folder / name

    def run(self, **data: object) -> RemoteRun:
        labels = {"url": f"http://127.0.0.1:{self.port}", "queries": 50}
        given = {"data": data, "labels": labels, "student": {"estimator": "sklearn.linear_model.LogisticRegression"}}
        return RemoteRun.create(RemoteConfig.model_validate(given), self.folder / "run")


class Asked(TinyTeachers):
    def __init__(self, n: int) -> None:
        self.row_shape, self.seen = (n,), []  # type: ignore[assignment]

    def vote(self, X):
        self.seen.append(np.array(X))
        return super().vote(np.column_stack([np.arange(len(X)) % 4, np.full(len(X), 0.98)]))


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    made = Owner(tmp_path)
    monkeypatch.setenv("TERRINE_API_KEY", made.service.key)
    with made.service.serving(made.port):
        yield made
    made.service.close()


def test_teachers_are_asked_about_their_owner_s_numbers(owner: Owner) -> None:
    """A part of the rows, in another order of columns: a draft, or weights, of its own would give other numbers."""
    some = [[note, age, ward] for age, ward, note in owner.rows[:81]]
    public = owner.file("public.csv", some)
    run = owner.run(public=public)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AdviceWarning)
        run.label()
    wanted = owner.encoder.transform(read_table(public))[np.sort(run.asked())]
    asked = np.concatenate(owner.teachers.seen)
    assert {row.tobytes() for row in wanted} == {row.tobytes() for row in asked}
    table = read_table(public)
    own = Encoder.fit(draft(table), table).transform(table)
    assert own.shape != wanted.shape or not np.isclose(own[np.sort(run.asked())], wanted).all()
    assert RemoteRun(run.folder).task.encoder.files() == owner.encoder.files()  # kept: the service is not asked again


def test_a_table_is_asked_about_as_it_is(owner: Owner) -> None:
    """By Python, in other orders and kinds, and by curl: all of them are the same questions."""
    names, *cells = owner.rows[:31]
    numbers = owner.encoder.transform(read_table(owner.file("some.csv", owner.rows[:31])))
    given = {name: [row[k] for row in cells] for k, name in enumerate(names)}
    frame = pd.DataFrame(given).astype({"age": float})[["note", "age", "ward"]].assign(extra=0)
    records = [dict(zip(names, row, strict=True)) | {"age": int(row[0])} for row in cells]
    records = [row | {"ward": row["ward"] or None} for row in records]
    labeller = RemoteLabeller(f"http://127.0.0.1:{owner.port}", key=owner.service.key)
    first = labeller.label(numbers, request_id="numbers")
    spent = labeller.budget().queries
    for X in (frame.drop(columns="extra"), given, records, read_table(given)):
        again = labeller.label(X, request_id=f"{type(X).__name__}")
        assert (again.labels == first.labels).all()
    with client_of(labeller.url, owner.service.key) as client:
        told = client.post("/v1/labels", json={"request_id": "curl", "rows": records}).json()
    assert told["labels"] == labeller.names_of(first)
    assert labeller.budget().queries == spent  # they were asked before
    asked = np.unique(np.concatenate(owner.teachers.seen), axis=0)
    assert len(asked) == len(np.unique(numbers, axis=0))
    with pytest.raises(DataError, match=r'X: not in the schema: "extra"\. Name columns as the owner\'s table does'):
        labeller.label(frame, request_id="more")
    with pytest.raises(InputError, match=r"X must have rows of shape .* Give the table itself"):
        labeller.label(numbers[:, :2], request_id="less")
    names_only = replace(first, labels=np.array([2, -1]), outcomes=np.array([0, 1]))
    assert labeller.names_of(names_only) == [labeller.classes[2], None]


LARGE = [{"age": k, "ward": "east", "note": "x" * 500} for k in range(40)]  # longer than what is read at once


@pytest.mark.parametrize(
    ("rows", "status", "words"),
    [
        (LARGE, 200, ""),
        ([{"age": 30, "ward": "east"}], 422, 'rows: missing: "note". Name columns as the owner'),
        ([{"age": 30, "ward": "east", "note": ""}, {"age": 30}], 422, "row 2 must have the column names of row 1"),
        ([{"age": 30, "ward": "east", "note": ""}, [1, 2]], 422, "row 2 must have the column names of row 1"),
        ([{"age": [30], "ward": "east", "note": ""}], 422, "row 1, column 'age': a cell must be text, a number"),
        ([{"age": 10**30, "ward": "east", "note": ""}], 422, "row 1, column 'age': a cell must be text, a number"),
        ([{}], 422, "A table needs at least one column"),
        ([[1.0, 2.0]], 422, "Rows of a table may be sent as JSON objects by column name, or made numbers by GET"),
        (LARGE * 60, 422, "1048576 bytes of a table's rows in JSON; send fewer rows"),
        ([{"age": 1, "ward": "east", "note": ""}] * 10_001, 422, "rows must hold 1 to 10000 rows, got 10001"),
    ],
)
def test_rows_of_a_table_over_http(owner: Owner, rows: list, status: int, words: str) -> None:
    with client_of(f"http://127.0.0.1:{owner.port}", owner.service.key) as client:
        found = client.post("/v1/labels", json={"request_id": "a", "rows": rows})
    assert found.status_code == status
    if words:
        assert found.json()["error"]["code"] == "bad_rows"
        assert words in found.json()["error"]["message"]
    else:
        assert len(found.json()["labels"]) == len(rows)


def test_cells_that_cannot_be_read_are_told_or_refused_before_anything_is_charged(owner: Owner) -> None:
    rows = [{"age": 30 + k, "ward": "east", "note": f"a note {k}"} for k in range(4)]
    rows[1]["age"], rows[2]["ward"] = "old", "EAST"
    ask = {"request_id": "a", "rows": rows}
    with client_of(f"http://127.0.0.1:{owner.port}", owner.service.key) as client:
        told = client.post("/v1/labels", json=ask).json()
        assert client.post("/v1/labels", json=ask).json() == told
        fine = client.post("/v1/labels", json={"request_id": "b", "rows": rows[:1]}).json()
        spent = client.get("/v1/budget").json()["queries"]
        refused = client.post("/v1/labels", json={"request_id": "c", "rows": [{**rows[0], "age": "young"}]})
        new = client.post("/v1/labels", json={"request_id": "d", "rows": [{**rows[0], "ward": "Ost"}] * 2}).json()
        beyond = client.post("/v1/labels", json={"request_id": "e", "rows": [{**rows[0], "age": 9000}] * 2})
    assert len(told["labels"]) == 4
    assert fine["odd_cells"] == []
    age, ward = told["odd_cells"]
    assert {**age, "message": ""} == {
        "column": "age", "what": "unreadable", "cells": 1, "of": 4, "first_row": 2, "message": ""
    }  # fmt: skip
    assert "is not a number, the first in row 2: 'old'. It counts as missing. The schema has numbers" in age["message"]
    assert (ward["column"], ward["what"], ward["first_row"]) == ("ward", "unknown", 3)
    assert 'It counts as "other". The schema lists' in ward["message"]
    assert "(perhaps \"east\" for 'EAST')" in ward["message"]
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad_rows")
    why = refused.json()["error"]["message"]
    assert "1 of 1 cells that are not blank is not a number, the first in row 1: 'young'" in why
    assert "Nothing was asked, and nothing charged" in why
    assert beyond.status_code == 422
    assert "2 of 2 cells that are not blank are beyond the bounds" in beyond.json()["error"]["message"]
    assert [one["what"] for one in new["odd_cells"]] == ["unknown"]  # a new ward is no reason to refuse
    assert owner.service.ledger.summary().queries == spent + 1  # of "Ost" alone


def test_a_client_warns_of_cells_that_cannot_be_read(owner: Owner) -> None:
    labeller = RemoteLabeller(f"http://127.0.0.1:{owner.port}", key=owner.service.key)
    frame = pd.DataFrame({"age": ["30", "31,5", "32"], "ward": ["east", "Ost", "north"], "note": ["a", "b", "c"]})
    with pytest.warns(UnreadWarning) as found:
        labeller.label(frame, request_id="a")
    assert [Path(one.filename).name for one in found] == ["test_remote_tables.py"] * 2
    age, ward = (str(one.message) for one in found)
    assert 'X, column "age": 1 of 3 cells that are not blank is not a number, the first in row 2' in age
    assert 'X, column "ward": 1 of 3 cells that are not blank is not in the schema\'s list' in ward
    spent = labeller.budget().queries
    with pytest.raises(InputError, match=r'decimal mark "\." \(these look as if it were ","\)\. Nothing was asked'):
        labeller.label(frame.assign(age=["30,5", "31,5", "32"]), request_id="b")
    assert labeller.budget().queries == spent


def test_a_run_by_url_tells_them_too(owner: Owner) -> None:
    header, *rows = owner.rows[:81]
    odd = [["old", *row[1:]] if k < 3 else row for k, row in enumerate(rows)]
    run = owner.run(public=owner.file("public.csv", [header, *odd]))
    with pytest.warns(UnreadWarning, match=r'public\.csv, column "age": 3 of 80 .* the first in line 2'):
        assert run.task is not None
    worse = [["old", *row[1:]] if k < 60 else row for k, row in enumerate(rows)]
    owner.file("public.csv", [header, *worse])
    with pytest.raises(InputError, match=r"60 of 80 .* Nothing was asked"):
        assert RemoteRun(run.folder).task is not None
    assert not owner.teachers.seen


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["age", "ward", "notes"], 'rows[0]: there is no column "notes"; did you mean "note"?'),
        (["Age", "WARD", "nte"], '"Age"; did you mean "age"? there is no column "WARD"; did you mean "ward"?'),
        (["x", "y", "z"], 'rows[0]: missing: "age", "ward", "note". Name columns as the owner\'s table does'),
    ],
)
def test_misspelt_columns_over_http(owner: Owner, names: list[str], words: str) -> None:
    with client_of(f"http://127.0.0.1:{owner.port}", owner.service.key) as client:
        found = client.post("/v1/labels", json={"request_id": "a", "rows": [dict.fromkeys(names, 30)]})
        many = [{f"agee{k}" + "x" * 2000: 1 for k in range(400)}]
        assert client.post("/v1/labels", json={"request_id": "a", "rows": many}).status_code == 422
    assert (found.status_code, found.json()["error"]["code"]) == (422, "bad_rows")
    assert words in found.json()["error"]["message"]
    assert "line of column names" not in found.json()["error"]["message"]


def test_a_schema_of_another_kind_is_refused_before_anything_is_asked(owner: Owner) -> None:
    public = owner.file("public.csv", owner.rows[:81])
    schema = owner.folder / "schema.toml"
    schema.write_text(re.sub(r"high = \d+", "high = 120", owner.encoder.schema.to_toml()))
    assert "high = 120" in schema.read_text()
    with pytest.raises(InputError, match=r"schema\.toml is not the schema of the service: .* Nothing was asked"):
        owner.run(public=public, schema=schema).label()
    assert not owner.teachers.seen


def test_a_damaged_encoder_is_refused(owner: Owner) -> None:
    run = owner.run(public=owner.file("public.csv", owner.rows[:81]))
    assert run.task is not None
    (run.folder / "encoder" / "encoder.npz").write_bytes(b"no weights")
    with pytest.raises(InputError, match=r"encoder is damaged\. Delete it"):
        RemoteRun(run.folder).label()
    assert not owner.teachers.seen


def test_a_service_of_arrays_has_none(tmp_path: Path) -> None:
    made = Service(tmp_path / "ledger.sqlite")
    with made.serving() as url, client_of(url, made.key) as client, client_of(url) as stranger:
        assert client.get("/v1/about").json()["encoder"] is None
        assert client.get("/v1/encoder").json()["error"]["code"] == "no_encoder"
        assert stranger.get("/v1/encoder").status_code == 401
    made.close()
