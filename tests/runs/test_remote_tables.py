"""A run by URL on a table: whose schema its columns are read by is said, or asked for."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.service.tasks import Service, TinyTeachers, client_of, free_port

from terrine import read_table
from terrine.errors import AdviceWarning, InputError
from terrine.runs.config import PublicDataConfig, RemoteConfig
from terrine.runs.remote import RemoteRun
from terrine.runs.tasks import public_task_of
from terrine.schema import Encoder, draft
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
