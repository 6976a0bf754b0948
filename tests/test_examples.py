"""The examples' settings: each is read and goes through a dry run; one's own table and images run whole."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from tests.conftest import need

from terrine import ConfidentGNMax, GNMax, publishable_guarantee
from terrine.datasets import svhn
from terrine.runs.config import read_settings
from terrine.schema import Schema

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = {path.stem: path for path in sorted(FOLDER.glob("*.toml")) if path.stem != "schema"}  # that is csv's
DATA = Path(os.environ.get("TERRINE_DATA", "../shared/data")).resolve()
RNG = np.random.default_rng(0)


def needed(*names: str) -> None:
    for name in names:
        if not (DATA / name).is_file():
            need(f"{name} under $TERRINE_DATA")


def table(folder: Path) -> None:
    """private.csv of 2,000 patients, so that no share is empty, public.csv, test.csv."""

    def rows(n: int, *, patient: bool, label: bool) -> list[list[str]]:
        result = [["admitted", "age", "bmi", "ward", *["patient"] * patient, *["diagnosis"] * label]]
        for k in range(n):
            ill = RNG.random() < 0.4
            bmi = "" if RNG.random() < 0.1 else f"{RNG.normal(25 + 4 * ill, 3):.1f}"
            ward = ("north", "south", "west")[RNG.integers(3)]
            row = [f"{RNG.integers(1, 29):02}.06.2023", f"{RNG.normal(50 + 12 * ill, 8):.0f}", bmi, ward]
            result.append([*row, *[f"p{k // 2}"] * patient, *["malignant" if ill else "benign"] * label])
        return result

    for name, n in (("private", 4000), ("public", 500), ("test", 300)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows(n, patient=name == "private", label=name != "public"))


def images(folder: Path) -> None:
    """800 people with an image of either side, so that no share is empty, and 250 public images."""

    def save(name: str, *, left: bool) -> None:
        pixels, start = RNG.integers(0, 120, size=(32, 32)), int(RNG.integers(1, 6)) + (0 if left else 16)
        pixels[8:24, start : start + 10] += 100
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name)

    for person in range(800):
        for side in ("left", "right"):
            save(f"private/{side}/p{person:03}_{side}.png", left=side == "left")
    for k in range(250):
        save(f"public/{k:03}.png", left=k % 2 == 0)


def house_numbers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SVHN's three files with black images."""
    monkeypatch.setenv("TERRINE_DATA", str(folder))
    (folder / "svhn").mkdir(parents=True)
    for part, n in (("TRAIN", 300), ("EXTRA", 20), ("TEST", svhn.N_PUBLIC + 20)):
        file = getattr(svhn, part)
        black = {"X": np.zeros((32, 32, 3, n), np.uint8), "y": np.arange(n)[:, None] % 10 + 1}
        savemat(folder / file.path, black, do_compression=True)
        sha256 = hashlib.sha256((folder / file.path).read_bytes()).hexdigest()
        monkeypatch.setattr(svhn, part, dataclasses.replace(file, sha256=(sha256,)))


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """An example in a folder of its own, with data of its kind: real where the machine has them, else made."""

    def copy(name: str) -> Path:
        text = EXAMPLES[name].read_text(encoding="utf-8")
        monkeypatch.setenv("TERRINE_DATA", str(DATA))
        match name:
            case "csv":
                table(tmp_path)
                (tmp_path / "schema.toml").write_text((FOLDER / "schema.toml").read_text(encoding="utf-8"))
            case "images":
                images(tmp_path)
            case "adult":
                needed("adult/adult.data.gz", "adult/adult.test.gz")
            case "mnist" | "mnist_few" | "rounds":
                needed(*(f"mnist/{part}-ubyte.gz" for part in ("train-images-idx3", "train-labels-idx1",
                                                               "t10k-images-idx3", "t10k-labels-idx1")))  # fmt: skip
            case "glyph":  # a million images take a minute to draw; the dry run reads none of them
                needed("glyph/glyph_debian_1000faces.npz")
                text, once = re.subn(r"n_private = [\d_]+, n_public = [\d_]+, n_test = [\d_]+",
                                     "n_private = 2_000, n_public = 12_000, n_test = 10", text)  # fmt: skip
                assert once == 1
            case "svhn":
                house_numbers(tmp_path / "data", monkeypatch)
        (tmp_path / f"{name}.toml").write_text(text)
        return tmp_path / f"{name}.toml"

    return copy


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_can_be_read(name):
    assert read_settings(EXAMPLES[name]).student.kind


def test_the_table_s_settings_are_what_init_writes(copied, terrine, monkeypatch):
    path = copied("csv")
    monkeypatch.chdir(path.parent)
    told, settings = path.read_text().split("# Settings of a run", 1)
    (command,) = re.findall(r"`terrine (init .*?)`", told.replace("\n#  ", ""), flags=re.DOTALL)
    (path.parent / "schema.toml").unlink()
    path.unlink()
    code, _, err = terrine(*command.split())
    assert code == 0, err
    assert path.read_text() == "# Settings of a run" + settings
    mine, kept = ((folder / "schema.toml").read_text() for folder in (path.parent, FOLDER))
    assert mine.split("[columns]")[0] == kept.split("[columns]")[0]  # bounds are those of the public rows
    assert set(Schema.from_toml(mine).columns) == set(Schema.from_toml(kept).columns)


LONG = (
    pytest.param(name, marks=pytest.mark.soak) for name in ("adult", "glyph", "svhn")
)  # thousands of answers: minutes


@pytest.mark.parametrize("name", ["csv", "images", "mnist", "mnist_few", *LONG])
def test_a_dry_run_says_what_it_would_cost(name, copied, terrine, request):
    if name in ("mnist", "images"):  # hundreds of answers: seconds
        request.getfixturevalue("by_renyi")
    path = copied(name)
    code, out, err = terrine("run", path, "--dry-run", "--json")
    assert (code, err) == (0, "")
    facts, settings = json.loads(out), read_settings(path)
    privacy, said = settings.privacy, facts["guarantee"]
    assert not path.with_suffix("").exists()  # nothing was written
    if privacy.route == "auto":
        assert facts["route"] == facts["choice"]["route"] == "probe"
        assert 0.99 * privacy.epsilon < said["epsilon"] <= privacy.epsilon
        return
    assert facts["teachers"] == settings.teachers.number
    kind = GNMax if privacy.mechanism == "gnmax" else ConfidentGNMax
    mechanism = kind(**{key: value for key, value in facts["mechanism"].items() if key != "kind"})
    counted = {"n_queries": facts["queries_at_most"], "n_answers": facts["answers_at_most"]}
    assert said["epsilon"] == publishable_guarantee(mechanism, **counted, delta=privacy.delta).epsilon
    assert said["delta"] == privacy.delta
    if privacy.epsilon is None:
        given = ConfidentGNMax(
            threshold=privacy.threshold, sigma_check=privacy.sigma_check, sigma_vote=privacy.sigma_vote
        )
        assert (mechanism, *counted.values()) == (given, privacy.queries, privacy.answers)
    else:
        assert 0.9 * privacy.epsilon < said["epsilon"] <= privacy.epsilon


def test_rounds_are_planned_for_their_epsilon(copied, terrine):
    code, out, err = terrine("run", copied("rounds"), "--dry-run", "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert [one["mechanism"]["kind"] for one in facts["rounds"]] == ["confident", "interactive"]
    assert 1.9 < facts["guarantee"]["epsilon"] <= 2.0
    assert facts["queries_at_most"] == sum(one["queries_at_most"] for one in facts["rounds"])


@pytest.mark.parametrize("name", ["csv", "images"])
def test_ones_own_data_run_whole(name, copied, terrine, monkeypatch):
    """A net is trained for a minute: a little of that, and all else in the file as it stands."""
    path = copied(name)
    if name == "images":
        brief, once = re.subn("steps = 700", "steps = 10", path.read_text())
        assert once == 1
        path.write_text(brief)
    monkeypatch.chdir(path.parent)
    code, out, err = terrine("run", path.name, "--json")
    assert code == 0, err
    facts, epsilon = json.loads(out), read_settings(path).privacy.epsilon
    assert facts["guarantee"]["publishable"]
    assert 0.9 * epsilon < facts["guarantee"]["epsilon"] <= epsilon
    assert facts["guarantee"]["relation"] == "unit_any"
    run = path.with_suffix("")
    assert (run / "report.html").is_file()
    assert (run / "student" / "model_card.md").is_file()
    if name == "csv":
        assert facts["student"]["accuracy"] > 0.65  # 60% are benign
