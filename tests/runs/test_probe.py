"""A run by the private probe: settings, the whole way, again for nothing, after kills, and nothing private shown."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from tests.labeller.kills import doomed
from tests.ledger.test_kill import fork, outcome
from tests.soak import amount

from terrine.errors import InputError, LedgerError, StoreError
from terrine.ledger import Ledger
from terrine.probe import Probe
from terrine.probe.settings import signal
from terrine.probe.sureness import sureness
from terrine.relations import Relation
from terrine.runs.config import PrivacyConfig, ProbeConfig, RunConfig, differences, read_settings, write_config
from terrine.runs.directory import public_files, secret_files
from terrine.runs.dry_run import dry_run
from terrine.runs.facts import public_facts, write_run_report
from terrine.runs.local import Run
from terrine.runs.opening import begin_run, opened
from terrine.runs.probe import ProbeRun
from terrine.runs.remote import RemoteRun
from terrine.students import load_student

SETTINGS = """
[data]
private = "private.csv"
public = "public.csv"
test = "test.csv"
label = "ill"
classes = ["no", "yes"]
unit = "who"
units_planned = 400
[privacy]
route = "probe"
epsilon = 4.0
delta = 1e-5
"""
TEACHERS = """
[teachers]
number = 10
kind = "ridge"
executor = "serial"
keep = false
"""
PROBE, AUTO = 'route = "probe"', 'route = "auto"\nmechanism = "gnmax"\n'
COLUMNS = ["age", "city", "smokes"]
pytestmark = pytest.mark.usefixtures("by_renyi")  # of teachers: a probe has its own accountant


def clinic(folder: Path, *, seed: int = 0, n: int = 800, labeled: float = 0.0) -> None:
    """A table with words and blanks, two rows a person; ``labeled``: the share of public rows with a label."""
    draw = random.Random(seed)

    def row(k: int) -> dict[str, object]:
        ill = draw.random() < 0.45
        return {
            "age": "" if draw.random() < 0.05 else round(draw.gauss(45 + 20 * ill, 10)),
            "city": "" if draw.random() < 0.05 else draw.choice(["Rome", "Oslo"] if ill else ["Cork", "Oslo"]),
            "smokes": "yes" if draw.random() < (0.7 if ill else 0.2) else "no",
            "who": f"p{k // 2}",
            "ill": "yes" if ill else "no",
        }

    def save(name: str, columns: list[str], rows: list[dict[str, object]]) -> None:
        with (folder / name).open("w", newline="") as file:
            out = csv.DictWriter(file, columns, extrasaction="ignore")
            out.writeheader()
            out.writerows(rows)

    save("private.csv", [*COLUMNS, "who", "ill"], [row(k) for k in range(n)])
    draw.seed(99)
    public = [row(k) for k in range(300)]
    for one in public:
        if draw.random() >= labeled:
            one["ill"] = ""
    save("public.csv", [*COLUMNS, *(["ill"] if labeled else [])], public)
    save("test.csv", [*COLUMNS, "ill"], [row(k) for k in range(200)])


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clinic(tmp_path)
    (tmp_path / "run.toml").write_text(SETTINGS)
    return tmp_path


def whole(run: ProbeRun) -> None:
    run.teach()
    run.label()
    run.learn()


STAGES = ("created", "taught", "labeled", "finished")


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Callable[[str], Path]:
    """The run of SETTINGS up to a stage, made once; not to be changed. Its data lie beside it."""
    place = tmp_path_factory.mktemp("kept")
    clinic(place)
    (place / "run.toml").write_text(SETTINGS)
    made: dict[str, Path] = {}

    def up_to(stage: str) -> Path:
        if stage not in made:
            folder = place / stage
            if stage == "created":
                ProbeRun.create(read_settings(place / "run.toml"), folder)
            else:
                shutil.copytree(up_to(STAGES[STAGES.index(stage) - 1]), folder)
                run = ProbeRun(folder)
                {"taught": run.teach, "labeled": run.label, "finished": run.learn}[stage]()
            made[stage] = folder
        return made[stage]

    return up_to


@pytest.fixture
def run_at(kept, here) -> Callable[..., ProbeRun]:
    """The run at a stage, in this test's folder; the data here are the same, and its settings name those beside it."""

    def call(stage: str, name: str = "r") -> ProbeRun:
        return ProbeRun(Path(shutil.copytree(kept(stage), here / name)))

    return call


def changed(here: Path, *pairs: tuple[str, str], more: str = "") -> Path:
    text = SETTINGS + more
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    (here / "changed.toml").write_text(text)
    return here / "changed.toml"


def test_the_whole_way(here, terrine):
    code, out, err = terrine("run", "run.toml")
    assert (code, err) == (0, "")
    assert "300 public rows were labeled: all of them. Labels cost nothing more." in out
    assert "Guarantee: ε = 4.000 at δ = 1e-05; neighbors: one unit is added, removed or changed." in out
    run = opened(here / "run")
    assert isinstance(run, ProbeRun)
    assert run.student_result().accuracy > 0.75
    shown = json.loads((run.folder / "guarantee.json").read_text())
    assert (shown["route"], shown["relation"], shown["labeled"], shown["publishable"]) == (
        "probe",
        "unit_any",
        300,
        True,
    )
    assert "n_teachers" not in shown
    right = shown["measured"]["right"] / (shown["measured"]["right"] + shown["measured"]["wrong"])
    assert f"the probe is right about {min(right, 1):.1%}" in out
    assert 0.6 < right <= 1.1
    with run.ledger() as ledger:
        assert ledger.verify() == []
        assert shown["epsilon"] == ledger.budget.guarantee().epsilon <= 4.0
        assert shown["ledger"]["head"] == str(ledger.head())
    card = json.loads((run.folder / "student" / "card.json").read_text())
    assert (card["relation"], card["unit"], card["private"]) == ("unit_any", "unit", True)
    assert (card["mechanism"], card["parameters"]["steps"]) == ("noisy_sums", shown["steps"])
    page = (run.folder / "student" / "model_card.md").read_text()
    assert card["unit_column"] == "who"
    assert "each `who` of the private data: all rows that share it" in page
    assert "noisy sums of gradients" in page
    assert card["measured"] == shown["measured"]
    assert "teacher" not in page
    report = (run.folder / "report.html").read_text()
    assert "a given unit (one who: all rows that share it) was in the private data, was not" in report
    assert "and the student is the probe itself." in report
    assert "terrine run run.toml\nterrine report run" in report
    assert "One unit can move a sum by a fixed length only" in report
    assert "vote" not in report
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in run.folder.iterdir()}
    assert stat.S_IMODE(run.folder.stat().st_mode) == 0o700
    assert modes["private.sha256"] == 0o600
    assert not any("noise" in name for name in modes)

    *_, may, secret, config, further = out.splitlines()
    paid = next(run.folder.glob("training-*")).name
    assert may == (
        "You may publish, from run: student/, report.html, guarantee.json, student.json, answers.npz, probe.npz, "
        f"{paid}/, ledger.sqlite (with the names of keys), ledger.json, encoder/, features.safetensors, "
        "rows.json and plan.json."
    )
    assert secret == "Secret: private.sha256."
    assert config == "Keep config.toml secret too: it names your files by their full paths."
    told = {one.rstrip("/") for one in public_files(run.folder) + secret_files(run.folder)}
    assert told | {"config.toml"} == {path.name for path in run.folder.iterdir()}
    assert str(here) in (run.folder / "config.toml").read_text()
    assert further == "Every further run on the same people adds its own epsilon and delta to these."
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file() and path.suffix != ".html"}
    (here / "private.csv").write_bytes((here / "private.csv").read_bytes() + b"40,Rome,yes,p9,no\n")  # a new row
    code, again, _ = terrine("run", "run.toml")
    said = (
        "run was finished already: nothing was trained, asked or spent.",
        "It rests on the private rows as they were when it was made; what changed in them since is not used.",
    )
    assert (code, again.splitlines()) == (0, [*said, *out.splitlines()[:-1]])
    assert all(
        path.read_bytes() == content for path, content in before.items() if path.suffix not in (".sqlite", ".npz")
    )
    code, found, _ = terrine("run", "run", "--json")
    assert code == 0
    assert json.loads(found)["guarantee"] == shown
    assert terrine("ledger", "verify", "run").code == 0
    assert "of one training" in terrine("ledger", "show", "run").out


def test_what_is_measured_is_left_out_where_the_settings_say_so(here, terrine):
    path = changed(here, ("delta = 1e-5", "delta = 1e-5\nmeasure = false"))
    code, out, _ = terrine("run", path, "--out", here / "run")
    run = opened(here / "run")
    assert (code, run.guarantee().measured, run.probe().measured) == (0, None, None)
    assert "On the private rows" not in out
    assert run.plan.budget.steps == run.plan.settings.steps


def test_each_stage_is_a_command(here, terrine):
    code, out, _ = terrine("teach", "run.toml")
    assert code == 0
    assert out.splitlines()[-1] == "Next: terrine label run"
    assert "Neighbors: one unit is added, removed or changed." in out
    code, _, err = terrine("vote", "run")
    assert code == 2
    assert "nobody votes in it" in err
    assert terrine("label", "run").out.splitlines()[-1] == "Next: terrine learn run"
    assert terrine("run", "run", "--dry-run").out.startswith("run was begun, and its budget is fixed.")
    assert terrine("learn", "run").out.splitlines()[-1] == "Next: terrine report run"
    for source in ("run", "run.toml"):
        said = terrine("run", source, "--dry-run").out
        assert said.startswith("run is finished, and what it costs is spent.")
        assert "spelled as in" not in said
    other = changed(here, ("epsilon = 4.0", "epsilon = 5.0"))
    assert "is finished" not in terrine("run", other, "--dry-run").out
    changed(here)
    assert terrine("report", "run").out.strip() == str(Path("run/report.html"))
    for words in (("report", "run", "--reveal"), ("run", "run", "--reveal"), ("teach", "run", "--reveal")):
        code, _, err = terrine(*words)
        assert code == 2
        assert "Leave it out" in err
    code, out, _ = terrine("teach", "run", "--json")
    assert json.loads(out)["route"] == "probe"
    assert terrine("cost", "run").code == terrine("rehearse", "run").code == 2


def test_the_student_predicts_and_is_exported(here, run_at, terrine):
    run_at("finished", "run")
    assert terrine("predict", "run", "test.csv", "--out", "p.csv").code == 0
    with Path("p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    run = opened(here / "run")
    probe = run.probe()
    factor = sureness(probe, run.features.transform(run.task.public.X))
    assert factor < 1  # it was too sure
    expected = softmax(factor * np.log(probe.predict_proba(run.features.transform(run.task.test_X))), axis=1)
    assert np.allclose([float(one["P(yes)"]) for one in rows], expected[:, 1], atol=1e-5)
    assert terrine("export", "run", "m.onnx").code == 0


@pytest.mark.parametrize("kind", ["probe", "supervised", "features"])
def test_other_students_learn_from_the_labels(here, kind, kept):
    settings = (kept("labeled").parent / "run.toml").read_text() + f'[student]\nkind = "{kind}"\n'
    (beside := kept("labeled").with_name(f"{kind}.toml")).write_text(settings)  # where the data are
    run = ProbeRun.create(read_settings(beside), Path(shutil.copytree(kept("labeled"), here / "r")))
    run.learn()
    assert run.student_result().accuracy > 0.7
    student = load_student(run.folder / "student")
    assert student.about.noise == "secure"
    assert student.about.settings["student"] == {"probe": "Probe", "features": "FeatureStudent"}.get(
        kind, "SupervisedStudent"
    )


def test_labeled_public_rows_compare_students_with_the_probe(here):
    clinic(here, labeled=0.5)
    run = ProbeRun.create(read_settings("run.toml"), here / "r")
    whole(run)
    settings = run.student_result().settings
    assert "the probe itself" in settings["compared"]
    assert settings["compared"]["the probe itself"]["lead"] == 0.0
    assert settings["compared_with"] == "the probe itself"
    lead = settings["compared"][settings["chosen"]]
    assert settings["chosen"] == "the probe itself" or lead["lead"] > 2 * lead["error"]
    write_run_report(run)
    assert "lead on the probe itself" in (run.folder / "report.html").read_text()


def test_without_labeled_public_rows_the_probe_is_kept(run_at):
    run = run_at("finished")
    settings = run.student_result().settings
    assert settings["student"] == "Probe"
    assert "compared" not in settings


def test_images_go_the_same_way(tmp_path):
    draw = np.random.default_rng(0)
    for name, n in (("private", 600), ("public", 150)):
        y = draw.integers(0, 2, n)
        X = draw.integers(0, 120, (n, 8, 8)).astype(np.uint8)
        X[y == 1, :, :4] += 100
        np.savez(tmp_path / f"{name}.npz", X=X, **({"y": y} if name == "private" else {}))
    (tmp_path / "run.toml").write_text(
        '[data]\nprivate = "private.npz"\npublic = "public.npz"\nclasses = ["a", "b"]\n'
        '[privacy]\nroute = "probe"\nepsilon = 3.0\ndelta = 1e-4\nneighbors = "unit_added"\n'
    )
    with pytest.raises(InputError, match=r"data\.units_planned is missing"):  # the number of rows is private by it
        dry_run(tmp_path / "run.toml")
    text = (tmp_path / "run.toml").read_text()
    (tmp_path / "run.toml").write_text(text.replace('neighbors = "unit_added"\n', ""))
    assert dry_run(tmp_path / "run.toml").plan.budget.planned_units == 600  # public: a row is replaced
    (tmp_path / "run.toml").write_text(text.replace("[privacy]", "units_planned = 500\n[privacy]"))
    run = begin_run(read_settings(tmp_path / "run.toml"), tmp_path / "r")
    whole(run)
    shown = run.guarantee()
    assert (shown.relation, shown.planned_units) == (Relation.ROW_ADDED, 500)
    card = json.loads((run.folder / "student" / "card.json").read_text())
    assert (card["relation"], card["unit"]) == ("row_added", "row")  # no unit column
    page = (run.folder / "student" / "model_card.md").read_text()
    assert "| protects | each row of the private data |" in page
    write_run_report(run)
    assert "a given row was in the private data, or was not" in (run.folder / "report.html").read_text()
    facts = public_facts(run)
    assert facts["data"]["n_private"] is None  # the number of rows is not public by this relation
    assert run.labels().shape == (150, 2)


def test_a_unit_added_takes_half_the_noise(here):
    added = dry_run(changed(here, ("delta = 1e-5", 'delta = 1e-5\nneighbors = "unit_added"')))
    own = dry_run(here / "run.toml")
    assert added.guarantee.relation == Relation.UNIT_ADDED
    ratio = (own.noise / own.plan.settings.sums**0.5) / (added.noise / added.plan.settings.sums**0.5)
    assert abs(ratio - 2) < 0.01


def test_a_dry_run_says_what_will_be_done_and_writes_nothing(here, terrine):
    before = sorted(path.name for path in here.iterdir())
    code, out, err = terrine("run", "run.toml", "--dry-run", "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert sorted(path.name for path in here.iterdir()) == before
    run = ProbeRun.create(read_settings("run.toml"), here / "run")
    assert facts["steps"] == run.plan.settings.steps
    assert facts["noise"] * 2**30 == pytest.approx(run.plan.budget.noise)
    assert (facts["guarantee"]["relation"], facts["planned_units"]) == ("unit_any", 400)
    code, out, _ = terrine("run", "run.toml", "--dry-run", "--plot", "plan.svg")
    assert code == 0
    assert 'With neighbors = "unit_added" in [privacy] half the noise would be enough for this ε;' in out
    assert "As the settings are, ε also hides whether the rows of a unit that is known to be in the data say '" in out
    assert "planned, from what" in out
    assert "it does not say whether your columns predict the label, nor that a rare class will ever be named" in out
    strength = signal(epsilon=4.0, delta=1e-5, planned_units=400, relation=Relation.UNIT_ANY)
    assert f"At ε = 4 all of them together are about {strength:,.0f} times as strong as the noise" in " ".join(
        out.split()
    )
    assert "Are the classes spelled as in private.csv?" in out
    assert (here / "plan.svg").exists()
    code, _, err = terrine("run", "run.toml", "--plot", "plan.svg")
    assert code == 2
    assert "--plot goes with --dry-run" in err


def test_what_balanced_does_not_do_is_said(here, terrine):
    settings = changed(here, more='[student]\nkind = "auto"\nbalanced = true\n')
    said = "student.balanced = true changes nothing where the probe itself is kept as the student"
    assert said in " ".join(terrine("run", settings, "--dry-run").out.split())
    assert f"terrine: warning: {said}" in terrine("teach", settings).err
    learns = changed(here, more='[student]\nkind = "supervised"\nbalanced = true\n')  # from labels: it does something
    assert said not in " ".join(terrine("run", learns, "--dry-run").out.split())


def test_too_few_units_are_refused_before_anything_is_spent(here, terrine):
    path = changed(here, ("epsilon = 4.0", "epsilon = 0.05"))
    code, _, err = terrine("run", path, "--out", "r")
    assert code == 2
    assert "400 units (planned) are too few for a probe at ε = 0.05" in err
    assert "Nothing was taught or spent." in err
    assert not (here / "r" / "ledger.json").exists()
    assert terrine("run", path, "--dry-run").code == 2
    changed(here)
    assert terrine("teach", path, "--out", "r").code == 0  # corrected, into the same directory


def test_a_large_delta_is_refused(here, terrine):
    path = changed(here, ("delta = 1e-5", "delta = 0.01"))
    code, _, err = terrine("run", path, "--out", "r")
    assert code == 2
    assert "δ = 0.01 is too large for 400 units" in err


@pytest.mark.parametrize(
    ("pairs", "more", "words"),
    [
        ((), TEACHERS, r"leave out \[teachers\]; or set route = \"auto\""),
        ((("epsilon = 4.0", "epsilon = 4.0\nconsensus = 0.9\nask = 'first'"),), "", "privacy.consensus, privacy.ask"),
        ((), "[[rounds]]\nmechanism = 'confident'\n", r"\[rounds\]"),
        ((("epsilon = 4.0\n", ""),), "", "privacy.epsilon is missing"),
        ((("epsilon = 4.0", "epsilon = 4.0\nepsilom = 3"),), "", "did you mean privacy.epsilon"),
        ((("epsilon = 4.0", "epsilon = 4.0\nneighbors = 'rows'"),), "", "'unit_added', got 'rows'"),
        ((('route = "probe"', 'route = "prob"'),), TEACHERS, "must be 'teachers', 'probe', 'tested' or 'auto'"),
        ((), '[student]\nkind = "probe"\nbalanced = true\n', "leave out `options` and `balanced`"),
        ((('route = "probe"', AUTO + "sigma = 3\nqueries = 5"), ("epsilon = 4.0\n", "")), TEACHERS, "at one `epsilon`"),
        ((('route = "probe"', AUTO + "consensus = 0.9\npublish_cost = true"),), TEACHERS, "takes no `publish_cost`"),
        ((('route = "probe"', "consensus = 0.9"),), TEACHERS + '[student]\nkind = "probe"\n', 'needs route = "probe"'),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused_by_name(here, pairs, more, words):
    with pytest.raises(InputError, match=words):
        read_settings(changed(here, *pairs, more=more))


def test_settings_are_read_back_as_they_were_written(here):
    config = read_settings("run.toml")
    assert isinstance(config, ProbeConfig)
    assert config.student.kind == config.features.kind == "auto"
    (here / "again.toml").write_text(write_config(config))
    assert read_settings("again.toml") == config


def test_the_route_of_teachers_is_the_one_without_a_name():
    common = {"delta": 1e-5, "mechanism": "gnmax", "sigma": 3.0, "queries": 5}
    one, other = (PrivacyConfig(**common, **more) for more in ({}, {"route": "teachers"}))
    assert one == other


def test_a_planning_number_is_needed(here, terrine):
    code, _, err = terrine("run", changed(here, ("units_planned = 400\n", "")), "--dry-run")
    assert code == 2
    assert "data.units_planned is missing" in err


def test_what_the_training_went_by_cannot_change(here):
    run = ProbeRun.create(read_settings("run.toml"), here / "r")
    run.teach()
    for old, new, key in (
        ("units_planned = 400", "units_planned = 500", "data.units_planned"),
        ("epsilon = 4.0", "epsilon = 3.0", "privacy.epsilon"),
    ):
        on_top = r".*This run's epsilon is charged already, and a new run on the same people spends its own on top\."
        with pytest.raises(InputError, match=f"different {key}, which cannot change any more: the training{on_top}"):
            ProbeRun.create(read_settings(changed(here, (old, new))), run.folder)
    ProbeRun.create(read_settings(changed(here, more='[student]\nkind = "probe"\n')), run.folder).label()


def test_until_then_a_setting_may_be_corrected(here):
    run = ProbeRun.create(read_settings("run.toml"), here / "r")
    first = run.plan
    again = ProbeRun.create(read_settings(changed(here, ("epsilon = 4.0", "epsilon = 3.0"))), run.folder)
    assert again.plan.budget.noise > first.budget.noise


def test_private_rows_that_changed_are_refused(here, monkeypatch):
    run = ProbeRun.create(read_settings("run.toml"), here / "r")
    stop_after(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        run.teach()
    monkeypatch.undo()
    monkeypatch.chdir(here)
    clinic(here, seed=1)
    with pytest.raises(InputError, match="private data have changed"):
        ProbeRun(run.folder).teach()
    clinic(here)
    assert ProbeRun(run.folder).teach().steps_kept > 3


def stop_after(monkeypatch, steps):
    from terrine.ledger.training import Training

    real = Training.begin

    def begin(self, step, **options):
        if step > steps:
            raise KeyboardInterrupt
        return real(self, step, **options)

    monkeypatch.setattr(Training, "begin", begin)


def test_no_private_count_is_in_a_public_file(here, terrine, monkeypatch):
    """Other private rows, another number of rows and units: only what the noise was drawn for differs."""
    monkeypatch.setenv("COLUMNS", "200")
    told = []
    for k, n in enumerate((800, 611)):
        clinic(here, seed=k, n=n)
        folder = here / f"r{k}"
        said = [terrine("run", "run.toml", *words) for words in (("--dry-run",), ("--dry-run", "--json"))]
        run = ProbeRun.create(read_settings("run.toml"), folder)
        whole(run)
        write_run_report(run)
        kept = (folder / "features.safetensors").read_bytes()
        size = 8 + int.from_bytes(kept[:8], "little")
        features = json.loads(kept[8:size]), kept[size:]  # its names come in any order
        public = [folder / name for name in ("config.toml", "plan.json")]
        public += sorted((folder / "encoder").iterdir())
        facts = public_facts(run)
        for name in ("title", "made", "student", "answers", "commands"):
            facts.pop(name)
        shown = run.guarantee().to_json() | {"ledger": None}
        measured = shown.pop("measured")  # with noise, which the guarantee covers
        assert measured["noise"] > 5
        assert facts["probe"].pop("measured")[1] == measured["words"]
        sizes = sorted(
            (path.name, path.stat().st_size) for path in (folder / f"training-{run.summary().ledger_id}").glob("*.out")
        )
        told.append(
            (
                [(one.code, one.out, one.err) for one in said],
                [*(path.read_bytes() for path in public), features],
                facts,
                shown,
                sizes,
            )
        )
    assert told[0] == told[1]


def work(folder: Path, step=lambda: None) -> None:
    os.environ["TERRINE_LEDGER"] = ""
    run = begin_run(read_settings("run.toml"), folder)
    whole(run)
    write_run_report(run)
    step()


def test_killed_at_many_points_it_goes_on_and_draws_nothing_twice(here):
    """The library's own test kills at every step of a training; here the run's files around it are killed too."""
    points = random.Random(0).sample(range(1, 420), amount(8, soak=120))
    folder = here / "killed"
    for point in points:
        if outcome(fork(doomed, work, point, folder)) and (folder / "ledger.json").exists():
            with Ledger(folder / "ledger.sqlite") as ledger:
                assert ledger.verify() == []
        elif (folder / "report.html").exists():
            folder = here / f"killed-{point}"
    if not (folder / "report.html").exists():
        assert not outcome(fork(work, folder))
    run = opened(folder)
    with run.ledger() as ledger:
        assert ledger.verify() == []
        state = ledger.training.state()
    probe = Probe.load(folder / "probe.npz")
    assert probe.steps_kept == len(state.outputs) == run.guarantee().steps_kept
    assert probe.steps_kept <= probe.settings.sums == state.begun
    assert (folder / "student" / "SHA256SUMS").is_file()
    assert not list(folder.glob("*noise*"))


def test_a_ledger_elsewhere(here, monkeypatch):
    monkeypatch.setenv("TERRINE_LEDGER", str(here / "mine.sqlite"))
    run = ProbeRun.create(read_settings("run.toml"), here / "r")
    whole(run)
    assert (here / "mine.sqlite").exists()
    assert not (run.folder / "ledger.sqlite").exists()
    monkeypatch.delenv("TERRINE_LEDGER")
    with pytest.raises(LedgerError, match="the ledger that pays for"):
        opened(run.folder).ledger()
    other = ProbeRun.create(read_settings("run.toml"), here / "other")
    monkeypatch.setenv("TERRINE_LEDGER", str(here / "mine.sqlite"))
    with pytest.raises(LedgerError):  # a second training on one ledger
        other.teach()


def test_a_probe_that_another_ledger_paid_for_is_not_given_this_guarantee(here, run_at):
    run = run_at("taught")
    kept = (run.folder / "probe.npz").read_bytes()
    less = ProbeRun.create(read_settings(changed(here, ("epsilon = 4.0", "epsilon = 2.0"))), here / "less")
    less.teach()
    (less.folder / "probe.npz").write_bytes(kept)
    with pytest.raises(InputError, match=r"probe\.npz is not the probe that the ledger of .*less paid for"):
        ProbeRun(less.folder).label()
    for name in ("ledger.json", "ledger.sqlite"):
        (run.folder / name).unlink()
    with pytest.raises(InputError, match=r"probe\.npz is not the probe that the ledger of .*r paid for"):
        ProbeRun(run.folder).label()  # by a new ledger, which paid for nothing
    assert not list(here.glob("*/guarantee.json"))
    twin = ProbeRun.create(read_settings(changed(here, ("epsilon = 4.0", "epsilon = 2.0"))), here / "twin")
    twin.teach()
    (less.folder / "probe.npz").write_bytes((twin.folder / "probe.npz").read_bytes())  # of the same settings and steps
    with pytest.raises(InputError, match=r"probe\.npz is not the probe that the ledger of .*less paid for"):
        ProbeRun(less.folder).label()
    (less.folder / "probe.npz").unlink()
    again = ProbeRun(less.folder)
    again.teach()
    assert again.label().shape == (300, 2)
    kept = (less.folder / "probe.npz").read_bytes()
    (less.folder / "probe.npz").write_bytes((twin.folder / "probe.npz").read_bytes())
    with pytest.raises(InputError, match=r"probe\.npz is not the probe that labeled the public rows"):
        ProbeRun(less.folder).learn()
    (less.folder / "probe.npz").write_bytes(kept)
    next(less.folder.glob("training-*/step-*3.out")).unlink()
    with pytest.raises(LedgerError, match=r"step-00003\.out is gone: it holds what step 3 of the training released"):
        again.label()


@pytest.mark.parametrize(
    ("name", "what"), [("plan.json", "is damaged"), ("guarantee.json", "is damaged"), ("answers.npz", "")]
)
def test_damaged_files_are_named(run_at, name, what):
    run = run_at("finished")
    (run.folder / name).write_text("{}")
    again = opened(run.folder)
    with pytest.raises(InputError, match=name):
        {"plan.json": lambda: again.plan, "guarantee.json": again.guarantee, "answers.npz": again.labels}[name]()


def test_stages_out_of_order_say_what_comes_first(run_at):
    with pytest.raises(StoreError, match="terrine teach"):
        run_at("created").label()
    with pytest.raises(InputError, match="terrine label"):
        run_at("taught", "taught").learn()


def test_a_route_is_chosen_once(here, terrine):
    path = changed(here, (PROBE, AUTO + "consensus = 0.9"), more=TEACHERS)
    code, out, err = terrine("run", path, "--dry-run", "--json")
    assert (code, err) == (0, "")
    choice = json.loads(out)["choice"]
    assert (choice["route"], choice["by"]) == ("probe", "rule")
    assert "Teachers or a probe?" in terrine("run", path, "--dry-run").out
    code, out, err = terrine("run", path, "--out", "r")
    assert (code, err) == (0, "")
    assert json.loads((here / "r" / "route.json").read_text()) == choice
    assert "Why a probe" in (here / "r" / "report.html").read_text()
    with pytest.raises(InputError, match="nobody is taught in it, and nobody votes"):
        Run(here / "r")
    path.write_text(path.read_text().replace("units_planned = 400", "units_planned = 9000"))
    code, _, err = terrine("run", path, "--out", "r")
    assert code == 2
    assert "cannot change any more" in err
    assert json.loads((here / "r" / "route.json").read_text()) == choice


def test_teachers_are_chosen_where_they_do(here, monkeypatch, terrine):
    from terrine.runs import route

    real = route.choose_route

    def teachers(**given):
        return real(**{**given, "planned_units": None})

    monkeypatch.setattr(route, "choose_route", teachers)
    path = changed(
        here,
        (PROBE, AUTO + "consensus = 0.9"),
        ("epsilon = 4.0", "epsilon = 14.0"),  # from 12 on no privacy profile, which takes seconds, is evaluated
        more=TEACHERS.replace("number = 10", "number = 40"),
    )
    run = begin_run(read_settings(path), here / "r")
    assert isinstance(run, Run)
    code, out, err = terrine("run", "r")
    assert code == 0, err
    assert "queries were answered" in out
    monkeypatch.undo()  # what was chosen stays, whatever the rule says later
    monkeypatch.chdir(here)
    assert isinstance(opened(here / "r"), Run)
    assert terrine("run", path, "--out", "r").code == 0
    path.write_text(path.read_text().replace("units_planned = 400\n", ""))  # as runs were once begun without it
    assert terrine("run", path, "--out", "r").code == 0


def test_routes_are_not_compared_without_a_planning_number(here, terrine):
    path = changed(here, (PROBE, AUTO + "consensus = 0.9"), ("units_planned = 400\n", ""), more=TEACHERS)
    for more in (["--dry-run"], ["--out", "r"]):
        code, out, err = terrine("run", path, *more)
        assert (code, out) == (2, "")
        assert "data.units_planned is missing" in err
        assert 'do not count your private rows; or set route = "teachers". Nothing was taught or spent.' in err
    assert not (here / "r" / "route.json").exists()
    changed(here, (PROBE, AUTO + "consensus = 0.9"), more=TEACHERS)
    assert terrine("teach", path, "--out", "r").code == 0  # corrected, into the same directory


def test_labeled_public_rows_rehearse_both_routes(here, terrine):
    clinic(here, labeled=1.0)
    path = changed(here, (PROBE, AUTO + "consensus = 0.9"), more=TEACHERS)
    code, out, err = terrine("run", path, "--dry-run", "--json")
    assert (code, err) == (0, "")
    choice = json.loads(out)["choice"]
    assert all(0.4 < one["accuracy"] < 1 for one in choice["options"])
    assert "300 labeled public rows" in choice["reason"]
    clinic(here, labeled=0.05)  # too few for it: the rule decides
    code, out, err = terrine("run", path, "--dry-run", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["choice"]["by"] == "rule"


def test_until_something_is_taught_the_choice_is_open(here):
    path = changed(here, (PROBE, AUTO + "consensus = 0.9"), more=TEACHERS)
    begin_run(read_settings(path), here / "r")
    first = (here / "r" / "route.json").read_text()
    path.write_text(path.read_text().replace("units_planned = 400", "units_planned = 900"))
    begin_run(read_settings(path), here / "r")
    assert (here / "r" / "route.json").read_text() != first


def test_a_damaged_choice_is_refused(here):
    begin_run(read_settings(changed(here, (PROBE, AUTO + "consensus = 0.9"), more=TEACHERS)), here / "r")
    (here / "r" / "route.json").write_text('{"route": "both"}')
    with pytest.raises(InputError, match=r"route.json is damaged"):
        opened(here / "r")


def with_teachers(here, *, route="", unit=True, partition="hashed"):
    text = SETTINGS.replace(
        'route = "probe"', 'neighbors = "unit_added"\nmechanism = "gnmax"\nsigma = 4.0\nqueries = 20'
    )
    text = text.replace("epsilon = 4.0\n", "").replace(
        'unit = "who"\n', 'unit = "who"\n' if unit else "ignore = ['who']\n"
    )
    (here / "t.toml").write_text(text + TEACHERS + f'partition = "{partition}"\n')
    return here / "t.toml"


def test_teachers_with_hashed_ids_have_a_unit_added(here, terrine):
    path = with_teachers(here)
    assert dry_run(path).guarantee.relation == Relation.UNIT_ADDED
    code, out, err = terrine("run", path, "--out", "r")
    assert code == 0, err
    assert "neighbors: one unit is added or removed, with all its rows" in out
    run = opened(here / "r")
    assert run.guarantee().relation == Relation.UNIT_ADDED
    with run.ledger() as ledger:
        assert ledger.budget.relation == Relation.UNIT_ADDED
        assert ledger.verify() == []
    assert json.loads(terrine("teach", "r", "--json")[1])["relation"] == "unit_added"  # the guarantee's


@pytest.mark.parametrize(
    ("options", "words"),
    [({"unit": False}, "there is no unit column"), ({"partition": "balanced"}, "deals units out in turn")],
)
def test_other_teachers_do_not(here, terrine, options, words):
    path = with_teachers(here, **options)
    for more in (("--dry-run",), ("--out", "r")):
        code, _, err = terrine("run", path, *more)
        assert code == 2
        assert words in err


def test_a_changed_unit_covers_an_added_one_and_not_the_other_way_round():
    assert Relation.UNIT_ANY.covers(Relation.UNIT_ADDED)
    assert not Relation.UNIT_ADDED.covers(Relation.UNIT_ANY)
    assert not Relation.UNIT_REPLACED.covers(Relation.UNIT_ADDED)
    assert not Relation.ROW_REPLACED.covers(Relation.UNIT_ADDED)
    assert Relation.ROW_REPLACED.covers(Relation.ROW_REPLACED)


def test_probe_and_remote_runs_are_told_apart(here):
    begin_run(read_settings("run.toml"), here / "r")
    with pytest.raises(InputError, match="nobody is taught"):
        Run(here / "r")
    with pytest.raises(InputError, match=r"labels\.url"):
        RemoteRun(here / "r")
    assert isinstance(read_settings(changed(here, (PROBE, AUTO + "consensus = 0.9"), more=TEACHERS)), RunConfig)
    assert differences(read_settings("run.toml"), read_settings("run.toml")) == []


def test_a_service_says_of_whom_a_measurement_is_as_its_owner_s_console_does(here, run_at, terrine):
    run_at("finished", "run")
    code, out, _ = terrine("run", "run")
    assert code == 0
    assert "A unit is all rows that share one who" in out
    run = ProbeRun(here / "run")
    with run.ledger() as ledger:
        served = run.served(ledger)
    assert served.measured["words"] == run.guarantee().measured.words
    assert "A unit is all rows that share one who" in served.measured["words"]
    assert served.facts["measures"] is True
    assert served.facts["steps"] == run.guarantee().steps == run.guarantee().descent + 1
