"""What a run by the probe tells its user: steps and the sum that measures, the verdict, its files, further costs."""

from __future__ import annotations

import csv
import json
import math
import re
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from tests.runs.test_probe import SETTINGS, TEACHERS, clinic

from terrine.cli import common
from terrine.cli.runs import nothing_left
from terrine.errors import InputError, LedgerError
from terrine.ledger import Ledger
from terrine.measured import Measured
from terrine.published import PublishedProbe
from terrine.relations import Relation
from terrine.runs import probe_plan
from terrine.runs.directory import public_files, secret_files
from terrine.runs.dry_run import dry_run
from terrine.runs.opening import opened
from terrine.runs.route import choose
from terrine.runs.tasks import task_of
from terrine.students.verdict import about_test_rows
from terrine.which_route import RouteChoice

NAMES = ("No", "Yes")


def measured(right: tuple[float, float], wrong: tuple[float, float], *, noise: float = 10.0) -> Measured:
    found = Measured(
        right=sum(right), wrong=sum(wrong), right_by_class=right, wrong_by_class=wrong, noise=noise
    )  # fmt: skip
    return found.named(NAMES)


RARE = measured((1700, 200), (100, 400))  # 79% right; 'No' is 75% of all
GOOD = measured((1700, 550), (100, 50))
HIDDEN = measured((20, 5), (10, 5))


def published(**changes) -> PublishedProbe:
    return PublishedProbe(
        epsilon=1.0, delta=1e-5, basis="sums", relation=Relation.UNIT_ADDED, clip=0.2, noise=1.0, planned_units=100,
        features=3, labeled=10, **{"steps": 23, "steps_kept": 23, "measures": True, "measured": GOOD} | changes,
    )  # fmt: skip


def test_steps_and_the_sum_that_measures_are_counted_apart():
    assert "22 noisy sums of gradients and one that measured it: each unit" in published().in_words
    lost = published(steps_kept=21)
    assert "22 noisy sums of gradients (2 of them lost to kills) and one that measured it" in lost.in_words
    assert (lost.descent, lost.descent_kept) == (22, 20)
    lost = published(steps_kept=22, measured=None)
    assert "22 noisy sums of gradients and one to measure it, which was lost to a kill" in lost.in_words
    assert "23 noisy sums of gradients: each" in published(measures=False, measured=None).in_words


def test_files_of_older_versions_do_not_say_whether_a_sum_measures():
    old = {name: value for name, value in published().to_json().items() if name != "measures"}
    found = PublishedProbe.from_json(old)
    assert (found.measures, found.descent) == (False, 22)
    assert "measures" not in published(measures=False).to_json()


def test_what_is_counted_is_said():
    assert RARE.words.startswith("On the private rows, by one of the noisy sums, the probe is right about 79.2% (95%")
    assert "unit" not in RARE.words
    units = RARE.named(NAMES, units=True)
    assert "On the private units" in units.words
    assert "right about 79.2% of them (95%" in units.words
    assert "A unit is its rows, and counts by the share of them that are right." in units.words
    assert "A unit is all rows that share one patient_no" in RARE.named(NAMES, units=True, column="patient_no").words
    assert "hides how often the probe is right about its own private units" in HIDDEN.named(NAMES, units=True).words


def test_a_rare_class_is_ranked_by_its_probability():
    for said in ("by P(Yes), as the predictions file", "a larger ε may change little",
                 "which nothing here has measured",
                 'the pages "Use the student" and "Rare classes" of terrine'):  # fmt: skip
        assert said in RARE.words
        assert said not in GOOD.words
    assert "docs/" not in RARE.words  # a receiver has no such folder
    menu = Path("mkdocs.yml").read_text()
    assert all(f"- {page}: " in menu for page in ("Use the student", "Rare classes"))
    half = measured((500, 520), (500, 480))  # no class is rare: a ranking would be as poor
    assert not half.clear
    assert half.ranking(NAMES) == ""
    three = Measured(right=1700, wrong=400, right_by_class=(900, 790, 10), wrong_by_class=(100, 100, 200), noise=5.0)
    assert "by P(c)," in three.ranking("abc")
    assert three.warnings("abc") == ("The probe hardly ever finds 'c' among the private data.",)


def test_what_is_measured_warns():
    rare = measured((1790, 20), (10, 580))
    assert rare.warnings(NAMES) == (
        "It is not clear that the probe is better than a constant: about the private data it is right about 75.4%, and "
        "always saying 'No' about 75.0%.",
        "The probe hardly ever finds 'Yes' among the private data.",
    )
    assert GOOD.warnings(NAMES) == ()
    assert HIDDEN.warnings(NAMES) == (HIDDEN.words,)
    assert "hardly any private label is spelled as in `classes`: look with terrine check" in HIDDEN.words
    assert "PATEClassifier.check" in HIDDEN.words


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, begun with settings of a name of its own, with test rows from the public file."""
    here = tmp_path_factory.mktemp("words")
    clinic(here)
    with (here / "test.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (here / "public.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, ["age", "city", "smokes"], extrasaction="ignore")
        out.writeheader()
        out.writerows(rows * 2)
    (here / "run2.toml").write_text(SETTINGS)
    return here


@pytest.fixture
def here(finished, terrine, monkeypatch):
    monkeypatch.chdir(finished)
    if not (finished / "a run").exists():
        done = terrine("run", "run2.toml", "--out", "a run")
        assert done.code == 0
        (finished / "out.txt").write_text(done.out)
    return finished


def test_console_card_and_report_say_the_same(here, terrine):
    run = opened(here / "a run")
    steps, shown = run.plan.settings.steps, run.guarantee()
    out, report = (here / "out.txt").read_text(), (run.folder / "report.html").read_text()
    page = (run.folder / "student" / "model_card.md").read_text()
    assert (shown.measures, shown.steps) == (True, steps + 1)
    for said in (out, page):
        assert f"{steps} noisy sums of gradients and one that measured it" in said
    assert f'<dd class="big number">{steps}</dd><dd class="small">noisy steps of one model, and one more' in report
    assert f"the whole training of {steps} steps, the sum that measures and everything" in report
    assert f"of which {steps} were made; one more noisy sum is for measuring" in report
    assert "Neighbors" in report
    # of itself and on test rows, both
    assert "A unit is all rows that share one who" in out
    for said in (page, report):
        assert "On the private units, by one of the noisy sums" in said
        assert "More than half of them are rows of the public file: the number is for rows of that kind." in said
        assert "They measure rows of the public kind, from which private rows may differ." in said
    assert "test rows" in page
    card = json.loads((run.folder / "student" / "card.json").read_text())
    assert card["test_rows"].startswith("More than half")
    assert card["measured"] == asdict(shown)["measured"] | {
        "right_by_class": list(shown.measured.right_by_class),
        "wrong_by_class": list(shown.measured.wrong_by_class),
    }
    assert f"| steps_kept | {steps} |" in page


def test_the_report_names_the_settings_as_they_were_given(here):
    report = (here / "a run" / "report.html").read_text()
    assert "terrine run run2.toml --out &#39;a run&#39;\nterrine report &#39;a run&#39;" in report
    first = (here / "a run" / "config.toml").read_text().splitlines()[0]
    assert first == "# settings: run2.toml"


def test_every_file_is_public_or_secret_at_the_end(here, terrine):
    folder = here / "a run"
    assert (
        "ledger.sqlite (with the names of keys), ledger.json, encoder/, features.safetensors"
        in (here / "out.txt").read_text()
    )
    known = {one.rstrip("/") for one in public_files(folder) + secret_files(folder)} | {"config.toml"}
    assert known == {path.name for path in folder.iterdir()}


def test_a_dry_run_with_another_epsilon_says_what_is_charged_and_what_both_add_up_to(here, terrine):
    (here / "more.toml").write_text(SETTINGS.replace("epsilon = 4.0", "epsilon = 1.0"))
    code, out, _ = terrine("run", "more.toml", "--dry-run", "--out", "a run")
    assert code == 0
    said = " ".join(out.split())
    assert "a run is charged already, for ε = 4.000 at δ = 1e-05, with a different privacy.epsilon" in said
    assert "terrine run refuses these settings there" in said
    assert "name a new folder with --out" in said
    assert "both then add up, to ε = 5.000 and δ = 2e-05" in said
    facts = json.loads(terrine("run", "more.toml", "--dry-run", "--out", "a run", "--json").out)
    assert "is charged already" in facts["charged_already"]
    assert terrine("run", "more.toml", "--out", "a run").code == 2
    assert "charged already" not in terrine("run", "run2.toml", "--dry-run", "--out", "a run").out


@pytest.mark.parametrize("command", ["teach", "run"])
def test_a_ledger_of_other_settings_is_refused_and_leaves_no_directory(here, terrine, command, monkeypatch):
    ledger = here / "a run" / "ledger.sqlite"
    (here / "less.toml").write_text(SETTINGS.replace("epsilon = 4.0", "epsilon = 3.0"))
    code, _, err = terrine(command, "less.toml", TERRINE_LEDGER=str(ledger))
    assert code == 2
    assert "ε = 4.000 at δ = 1e-05 by unit_any, not ε = 3.000" in err
    assert not (here / "less").exists()
    (here / "same.toml").write_text(SETTINGS)
    code, _, err = terrine(command, "same.toml", TERRINE_LEDGER=str(ledger))
    assert code == 2
    assert "another run's is charged to it, with the same settings. Go on in that run's folder" in err
    assert not (here / "same").exists()
    monkeypatch.setattr(probe_plan, "public_scale", lambda _: 0.123)  # the same budget, and rows of another length
    (here / "other.toml").write_text(SETTINGS)
    code, _, err = terrine(command, "other.toml", TERRINE_LEDGER=str(ledger))
    assert code == 2
    assert "for one with other settings. Epsilon, delta, relation, planning number" in err
    assert "what differs is one of these, which are now: n_features" in err
    assert "scale 0.123" in err
    assert not (here / "other").exists()


@pytest.mark.parametrize("kept", ["service.json", "ledger-head.json", "request.json", "round-1.npz", "partition.npz"])
def test_what_a_service_answered_stays_where_its_ledger_is_refused(tmp_path, monkeypatch, kept):
    """Its answers are charged there, and the head tells of a ledger that was turned back."""
    monkeypatch.chdir(tmp_path)

    @nothing_left(Path("a.toml"), None)
    def refused(name: str) -> None:
        Path("a").mkdir()
        (Path("a") / name).touch()
        raise LedgerError("refused")

    for name in ("run.toml", kept):
        with pytest.raises(LedgerError):
            refused(name)
        assert Path("a").exists() == (name == kept)


def test_a_directory_that_was_there_stays(here, terrine):
    (here / "there").mkdir(exist_ok=True)
    (here / "less.toml").write_text(SETTINGS.replace("epsilon = 4.0", "epsilon = 3.0"))
    assert (
        terrine("teach", "less.toml", "--out", "there", TERRINE_LEDGER=str(here / "a run" / "ledger.sqlite")).code == 2
    )
    assert (here / "there").is_dir()


AUTO = SETTINGS.replace('unit = "who"\n', 'ignore = ["who"]\n').replace(
    'route = "probe"', 'route = "auto"\nmechanism = "gnmax"\nconsensus = 0.8\nneighbors = "unit_added"'
)


def test_auto_takes_a_row_that_is_added_where_it_takes_the_probe(tmp_path, monkeypatch, terrine):
    clinic(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(AUTO + TEACHERS)
    found = dry_run("run.toml")
    assert (found.choice.route, found.guarantee.relation) == ("probe", Relation.ROW_ADDED)
    replaced = AUTO.replace('neighbors = "unit_added"\n', "").replace("units_planned = 400", "units_planned = 800")
    (tmp_path / "replaced.toml").write_text(replaced + TEACHERS)
    out = " ".join(terrine("run", "replaced.toml", "--dry-run").out.split())
    assert 'With neighbors = "unit_added" in [privacy], and units_planned in [data] (a public number) half the' in out
    assert "nothing else need change. The guarantee is then for one row that is added or removed." in out
    assert "As the settings are, ε also hides whether a row that is known to be in the data says" in out
    epsilon, delta = (
        float(found) for found in re.search(r"costs up to ε = ([\d.]+) at δ = ([\d.e-]+)\.", out).groups()
    )
    assert 0 <= epsilon - 2 * found.guarantee.epsilon < 1e-3
    exact = (1 + math.exp(found.guarantee.epsilon)) * found.guarantee.delta
    assert exact <= delta < 1.12 * exact
    assert "Yes or No, say" not in out
    code, _, err = terrine("teach", "run.toml")
    assert code == 0, err
    assert opened(tmp_path / "run").plan.budget.relation == Relation.ROW_ADDED


def test_auto_refuses_a_row_that_is_added_where_it_takes_teachers(tmp_path, monkeypatch):
    from terrine.runs import route
    from terrine.runs.config import read_settings

    clinic(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(AUTO + TEACHERS)
    settings = read_settings("run.toml")
    task = task_of(settings.data)
    found: RouteChoice = choose(settings, task)
    monkeypatch.setattr(route, "choose_route", lambda **_: replace(found, route="teachers"))
    with pytest.raises(InputError, match='teachers, which route = "auto" takes here: there is no unit column'):
        choose(settings, task)


@pytest.mark.parametrize("kind", ["table", "arrays", "folder"])
def test_a_dry_run_asks_for_a_check_with_the_whole_command(tmp_path, monkeypatch, terrine, kind):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    settings = SETTINGS.replace('test = "test.csv"\n', "")
    if kind == "table":
        clinic(tmp_path)
        asked = "terrine schema public.csv --label ill --classes no,yes --unit who > schema.toml && terrine check"
    elif kind == "arrays":
        X = rng.normal(size=(400, 5))
        np.savez(tmp_path / "private.npz", X=X, y=np.where(X[:, 0] > 0, "yes", "no"), unit=np.arange(400))
        np.savez(tmp_path / "public.npz", X=X[:100] + 1)
        settings = settings.replace(".csv", ".npz").replace('label = "ill"\n', "").replace('unit = "who"\n', "")
        asked = 'python -c \'import numpy; print(numpy.unique(numpy.load("private.npz")["y"], return_counts=True))\''
    else:
        from PIL import Image

        for side, names in (("private", ("no", "yes")), ("public", ("",))):
            for name in names:
                (tmp_path / side / name).mkdir(parents=True, exist_ok=True)
                for k in range(60):
                    pixels = rng.integers(255, size=(8, 8)).astype(np.uint8)
                    Image.fromarray(pixels).save(tmp_path / side / name / f"{k}_x.png")
        settings = settings.replace(".csv", "").replace('label = "ill"\n', "image_shape = [8, 8]\n")
        settings = settings.replace('unit = "who"', "unit = '^([^_]+)_'")
        asked = ""
    (tmp_path / "run.toml").write_text(settings)
    code, out, err = terrine("run", "run.toml", "--dry-run")
    assert code == 0, err
    assert ("Are the classes spelled as in" in out) == bool(asked)
    assert asked in out


def test_what_takes_a_while_says_so_once(monkeypatch, capsys):
    monkeypatch.setattr(common, "_EVERY", 0.05)
    with common.takes_a_while("making features"):
        time.sleep(0.4)
    with common.takes_a_while("nothing"):
        pass
    time.sleep(0.2)
    assert capsys.readouterr().err == "making features ...\n"


@pytest.mark.parametrize("public", [False, True])
def test_features_have_a_line_of_their_own_without_a_share_that_tells_how_many_rows(tmp_path, monkeypatch, public):
    from terrine.runs.config import read_settings
    from terrine.runs.probe import ProbeRun

    clinic(tmp_path)
    monkeypatch.chdir(tmp_path)
    replaced = SETTINGS.replace('unit = "who"\n', 'ignore = ["who"]\n').replace("planned = 400", "planned = 800")
    (tmp_path / "run.toml").write_text(replaced if public else SETTINGS)
    run, told = ProbeRun.create(read_settings("run.toml"), tmp_path / "run"), []
    run.prepare(progress=told.append)
    assert run.plan.budget.relation == (Relation.ROW_REPLACED if public else Relation.UNIT_ANY)
    assert told == ([1.0] if public else [])
    assert not (run.folder / "ledger.sqlite").exists()  # nothing is charged yet
    monkeypatch.setattr(ProbeRun, "_seen", lambda *_, **__: pytest.fail("features were made twice"))
    run.teach()
    with Ledger(run.folder / "ledger.sqlite") as ledger:
        assert ledger.training.state() is not None


def test_lines_of_progress_without_a_share_tell_the_time_alone(monkeypatch, capsys):
    monkeypatch.setattr(common, "_EVERY", 0.05)
    with common.progress_bar("features", quiet=False):
        time.sleep(0.2)
    assert capsys.readouterr().err.splitlines()[0] == "features: 0 s"


def test_what_test_rows_measure():
    rows = np.arange(600.0).reshape(300, 2)
    assert about_test_rows(rows + 0.5, rows) == (
        "They measure rows of the public kind, from which private rows may differ."
    )
    assert "are rows of the public file" in about_test_rows(rows, rows)
    assert about_test_rows(rows[:20] + 0.5, rows).endswith("may differ, and are 20 only.")


def test_a_weak_epsilon_hides_nothing_of_two_steps_and_the_dry_run_says_so(tmp_path, monkeypatch, terrine):
    clinic(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(SETTINGS.replace("epsilon = 4.0", "epsilon = 30.0"))
    code, out, err = terrine("run", "run.toml", "--dry-run")
    assert code == 0, err
    assert "costs up to ε = 60.000 at δ = 1." in " ".join(out.split())
