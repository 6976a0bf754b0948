"""UCI Adult: adult.data private, the first half of adult.test public, the second half for testing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from terrine.datasets import files
from terrine.datasets.data import PrivateData, PublicData, Task
from terrine.errors import DataError

CLASSES = ("<=50K", ">50K")
MISSING = "?"

# The columns in the files' order. Every list and scale is from UCI's documentation (adult.names), none from the data:
# a number is divided by a public constant, or its logarithm is ("log"); a name becomes one column per listed value.
# fnlwgt, the census's sampling weight, says nothing of a person and is left out.
_Numeric = tuple[str, float]
COLUMNS: dict[str, _Numeric | tuple[str, ...] | None] = {
    "age": ("linear", 100.0),
    "workclass": (
        *("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay"),
        *("Never-worked", MISSING),
    ),
    "fnlwgt": None,
    "education": (
        *("Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc", "9th", "7th-8th"),
        *("12th", "Masters", "1st-4th", "10th", "Doctorate", "5th-6th", "Preschool"),
    ),
    "education-num": ("linear", 16.0),
    "marital-status": (
        *("Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent"),
        "Married-AF-spouse",
    ),
    "occupation": (
        *("Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty"),
        *("Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving"),
        *("Priv-house-serv", "Protective-serv", "Armed-Forces", MISSING),
    ),
    "relationship": ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
    "race": ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
    "sex": ("Female", "Male"),
    "capital-gain": ("log", 99_999.0),
    "capital-loss": ("log", 9_999.0),
    "hours-per-week": ("linear", 100.0),
    "native-country": (
        *("United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany", "Outlying-US(Guam-USVI-etc)"),
        *("India", "Japan", "Greece", "South", "China", "Cuba", "Iran", "Honduras", "Philippines", "Italy", "Poland"),
        *("Jamaica", "Vietnam", "Mexico", "Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador"),
        *("Taiwan", "Haiti", "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia"),
        *("El-Salvador", "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands", MISSING),
    ),
}

_ADDRESS = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"


def _file(name: str, raw: str) -> files.DataFile:
    return files.DataFile(path=f"adult/{name}", sha256=(raw,), urls=(f"{_ADDRESS}/{name}",))


FILES = (
    _file("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    _file("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
)


def load_adult(*, progress: files.Progress | None = None) -> Task:
    """Rows of float32 features, as `feature_names` names them."""
    (X, y), (held_X, held_y) = (read_adult(files.get(file, progress=progress)) for file in FILES)
    half = len(held_y) // 2
    return Task(
        name="adult",
        private=PrivateData(X, y),
        public=PublicData(held_X[:half]),
        public_y=held_y[:half],
        test_X=held_X[half:],
        test_y=held_y[half:],
        classes=CLASSES,
    )


def feature_names() -> tuple[str, ...]:
    """A name for every column of X."""
    names: list[str] = []
    for column, coding in COLUMNS.items():
        match coding:
            case None:
                continue
            case (str(), float()):
                names.append(column)
            case _:
                names.extend(f"{column}={value}" for value in coding)
    return tuple(names)


def read_adult(path: str | Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features and labels of a file in UCI's format; an empty line and one that starts with | are no rows."""
    path = Path(path)
    lines = files.read(path).decode("ascii", errors="replace").splitlines()
    numbered = [(n, line) for n, line in enumerate(lines, start=1) if line.strip() and not line.startswith("|")]
    rows = [[cell.strip() for cell in line.rstrip(".").split(",")] for _, line in numbered]
    for (n, _), row in zip(numbered, rows, strict=True):
        if len(row) != len(COLUMNS) + 1:
            raise DataError(f"{path}: line {n} must have {len(COLUMNS) + 1} columns, got {len(row)}.")
    if not rows:
        raise DataError(f"{path}: the file has no rows.")
    numbers = [n for n, _ in numbered]
    *features, labels = zip(*rows, strict=True)
    blocks = [
        _encode(path, column, coding, cells, numbers)
        for (column, coding), cells in zip(COLUMNS.items(), features, strict=True)
        if coding is not None
    ]
    y = _indices(path, "income", CLASSES, labels, numbers)
    return np.column_stack(blocks), y


def _encode(
    path: Path, column: str, coding: _Numeric | tuple[str, ...], cells: tuple[str, ...], numbers: list[int]
) -> NDArray[np.float32]:
    match coding:
        case (str() as law, float() as scale):
            values = np.array([float(cell) if cell.isdigit() else np.nan for cell in cells])
            if (bad := np.isnan(values)).any():
                raise DataError(f"{path}: line {numbers[np.argmax(bad)]}, column {column}: not a number.")
            scaled = values / scale if law == "linear" else np.log1p(values) / np.log1p(scale)
            return scaled.astype(np.float32)[:, None]
        case _:
            return np.eye(len(coding), dtype=np.float32)[_indices(path, column, coding, cells, numbers)]


def _indices(
    path: Path, column: str, values: tuple[str, ...], cells: tuple[str, ...], numbers: list[int]
) -> NDArray[np.int64]:
    index = {value: i for i, value in enumerate(values)}
    found = np.array([index.get(cell, -1) for cell in cells], dtype=np.int64)
    if (found < 0).any():
        line = numbers[int(np.argmax(found < 0))]
        raise DataError(f"{path}: line {line}, column {column}: not one of the {len(values)} values that UCI lists.")
    return found
