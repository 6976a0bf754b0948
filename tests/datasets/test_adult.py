"""Adult: sizes, public coding, the split; wrong lines are refused by number and never shown."""

from __future__ import annotations

import numpy as np
import pytest

from terrine.datasets import adult, load
from terrine.errors import DataError

FILES = ("adult/adult.data.gz", "adult/adult.test.gz")
ROW = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, Cuba, "
    "<=50K"
)


def test_the_split_and_the_classes(real_data):
    folder = real_data(*FILES)
    task = load("adult")
    assert (len(task.private), len(task.public), len(task.test_y)) == (32_561, 8_140, 8_141)
    X, y = adult.read_adult(folder / FILES[1])
    np.testing.assert_array_equal(np.concatenate([task.public.X, task.test_X]), X)  # in order, each row once
    np.testing.assert_array_equal(np.concatenate([task.public_y, task.test_y]), y)
    assert task.private.y.mean() == pytest.approx(0.2408, abs=1e-4)
    assert np.concatenate([task.private.y, y]).mean() == pytest.approx(0.2393, abs=1e-4)  # as adult.names says


def test_features_are_in_public_ranges_and_every_name_is_one_of_its_list(real_data):
    real_data(*FILES)
    task = load("adult")
    names = adult.feature_names()
    assert task.private.X.shape[1] == len(names) == 107
    assert task.private.X.dtype == np.float32
    for X in (task.private.X, task.public.X, task.test_X):
        assert X.min() >= 0
        assert X.max() <= 1
    groups = {}
    for k, name in enumerate(names):
        if "=" in name:
            groups.setdefault(name.split("=")[0], []).append(k)
    assert set(groups) == {column for column, coding in adult.COLUMNS.items() if coding and len(coding) > 2} | {"sex"}
    for columns in groups.values():
        np.testing.assert_array_equal(task.private.X[:, columns].sum(axis=1), 1)
    missing = task.private.X[:, [k for k, name in enumerate(names) if name.endswith("=?")]]
    assert missing.sum(axis=0).tolist() == [1836, 1843, 583]  # workclass, occupation, native-country


def test_the_rows_are_those_of_the_papers_votes(real_data):
    folder = real_data(*FILES, "votes/adult_250_teachers.npy")
    plurality = np.load(folder / "votes/adult_250_teachers.npy").argmax(axis=1)
    task = load("adult")
    assert (plurality == np.concatenate([task.public_y, task.test_y])).mean() == pytest.approx(0.8440, abs=5e-5)


def test_one_row_is_coded_as_documented(tmp_path):
    (tmp_path / "x").write_text(f"|1x3 Cross validator\n{ROW}.\n\n")
    X, y = adult.read_adult(tmp_path / "x")
    row = dict(zip(adult.feature_names(), X[0].tolist(), strict=True))
    assert y.tolist() == [0]
    assert row["age"] == pytest.approx(0.39)
    assert row["education-num"] == pytest.approx(13 / 16)
    assert row["capital-gain"] == pytest.approx(np.log(2175) / np.log(100_000))
    assert {name for name, value in row.items() if value == 1} == {
        *("workclass=State-gov", "education=Bachelors", "marital-status=Never-married", "occupation=Adm-clerical"),
        *("relationship=Not-in-family", "race=White", "sex=Male", "native-country=Cuba"),
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (ROW.replace("39", "old"), "line 3, column age: not a number"),
        (ROW.replace("Male", "Zyx"), "line 3, column sex: not one of the 2 values that UCI lists"),
        (ROW.replace("<=50K", "Zyx"), "line 3, column income: not one of the 2 values"),
        (ROW + ", Zyx", "line 3 must have 15 columns, got 16"),
    ],
)
def test_a_wrong_line_is_named_and_not_shown(tmp_path, line, message):
    (tmp_path / "x").write_text(f"{ROW}\n\n{line}\n")
    with pytest.raises(DataError, match=message) as caught:
        adult.read_adult(tmp_path / "x")
    assert "Zyx" not in str(caught.value)


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "x").write_text("\n")
    with pytest.raises(DataError, match="has no rows"):
        adult.read_adult(tmp_path / "x")
