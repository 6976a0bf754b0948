"""A run by URL on a table: whose schema its columns are read by is said, or asked for."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from terrine import read_table
from terrine.errors import AdviceWarning
from terrine.runs.config import PublicDataConfig
from terrine.runs.tasks import public_task_of
from terrine.schema import draft

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
