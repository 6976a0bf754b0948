"""Which rows get which labels in paper_glyph.py, how its students are compared, and what its page says of gaps."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "experiments"))
    yield
    sys.path.remove(str(ROOT / "experiments"))


@pytest.fixture
def settings() -> ModuleType:
    return importlib.import_module("paper_glyph_settings")


@pytest.fixture
def compare() -> ModuleType:
    return importlib.import_module("compare")


@pytest.fixture
def known(settings: ModuleType) -> Any:
    """Votes of 50 teachers: all agree on even rows, on odd ones 20 are for the next class; row 2 is wrong."""
    size, rng = settings.TOY, np.random.default_rng(0)
    true = rng.integers(0, 150, size.public)
    said, rows = true[: size.queries].copy(), np.arange(size.queries)
    said[2] = (said[2] + 1) % 150
    counts = np.zeros((size.queries, 150), dtype=np.int16)
    counts[rows, said] = np.where(rows % 2, 30, 50)
    counts[rows, (said + 1) % 150] += np.where(rows % 2, 20, 0).astype(np.int16)
    blank = {"public": None, "label": true, "test": None, "test_true": true, "test_label": true, "features": ()}
    return settings.Known(size=size, path="", out=Path(), true=true, votes={"counts": counts}, **blank)


def labels(settings: ModuleType, known: Any, setting: str) -> Any:
    found, _ = settings.labels_of(settings.Job(setting=setting, learner=settings.VAT, seed=0), known)
    return found


def test_the_table_has_the_paper_s_numbers(settings: ModuleType) -> None:
    size = settings.SIZES["full"]
    counts = np.full((12_000, 2), 2500)
    assert vars(settings.mechanism(settings.CONFIDENT, counts, size)) == {
        "threshold": 1000.0, "sigma_check": 500.0, "sigma_vote": 100.0,
    }  # fmt: skip
    first, second = settings.mechanism(settings.BOTH, counts, size), settings.second_round(size)
    assert (first.threshold, first.sigma_check, first.sigma_vote) == (3500, 1500, 100)
    assert (second.threshold, second.sigma_check, second.sigma_vote) == (3500, 2000, 200)
    assert [settings.questions(name, size) for name in settings.TABLE] == [4000, 12_000, 12_000, 6000, 8000]
    rows = settings.second_rows(size)
    assert (rows[0], len(rows)) == (6000, 10_000)
    assert size.scale == 1


def test_the_threshold_of_the_text_withholds_1300_of_12000(settings: ModuleType) -> None:
    from scipy.special import ndtr

    size = settings.SIZES["full"]
    counts = np.random.default_rng(0).integers(0, 5001, size=(12_000, 1))
    threshold = settings.withheld_as_the_text(counts, size)
    withheld = (1 - ndtr((counts[:, 0] - threshold) / 500)).sum()
    assert withheld == pytest.approx(1300, abs=70)  # a step of 50 votes is some 120 questions


def test_labels_of_4000_answers_are_those_of_whom_they_say(settings: ModuleType, known: Any) -> None:
    k = settings.scaled(settings.K, known.size)
    plurality = known.votes["counts"].argmax(axis=1)
    for who in settings.TAKEN:
        found = labels(settings, known, settings.taken(who, settings.K))
        rows = np.flatnonzero(found >= 0)
        assert rows.max() < known.size.queries
        if who.startswith("truth"):
            assert (found[rows] == known.true[rows]).all()
        if who.startswith("plurality"):
            assert (found[rows] == plurality[rows]).all()
        if "wrong answers left out" in who:
            assert set(range(k)) - set(rows) == {2}
        elif who not in (settings.SHARES_BACK, settings.LN):
            assert len(rows) == k


def test_rows_that_stand_for_what_the_check_answered_are_those_it_answered(settings: ModuleType, known: Any) -> None:
    by = {who: labels(settings, known, settings.taken(who, settings.K)) >= 0 for who in settings.TAKEN}
    assert (by[settings.MODERATE] == by[settings.PLURALITY_THERE]).all()
    assert (by[settings.MODERATE] == by[settings.TRUTH_THERE]).all()
    assert not (by[settings.MODERATE] == by[settings.PLURALITY_ALL]).all()


def test_as_many_of_each_class(settings: ModuleType) -> None:
    classes = np.repeat([0, 1, 2], [60, 30, 10])
    rows = settings.even(classes, np.random.default_rng(0).permutation(100), 45)
    assert np.bincount(classes[rows]).tolist() in ([18, 17, 10], [17, 18, 10])
    assert len(set(rows)) == 45


def test_shares_of_the_classes_are_restored(settings: ModuleType) -> None:
    classes = np.array([0] * 80 + [1] * 20)
    rows = settings.matched(classes, np.arange(100), np.array([0.5, 0.5]), 20)
    assert np.bincount(classes[rows]).tolist() == [10, 10]


def test_a_difference_has_welch_s_interval(compare: ModuleType) -> None:
    from scipy import stats

    one, other = [0.80, 0.82, 0.81], [0.75, 0.79, 0.74]
    apart, half = compare.difference(one, other)
    interval = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert (apart - half, apart + half) == pytest.approx((interval.low, interval.high))
    assert compare.difference([0.8], other)[1] is None


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ([0.90, 0.91, 0.90], [0.80, 0.81, 0.80], True),
        ([0.80, 0.81, 0.80], [0.90, 0.91, 0.90], False),
        ([0.90, 0.80, 0.85], [0.84, 0.86, 0.82], None),  # within chance
        ([0.802, 0.802], [0.800, 0.800], None),  # a trifle
        ([0.9], [0.8], None),  # one seed
    ],
)
def test_only_what_is_beyond_chance_and_a_trifle_counts(compare: ModuleType, one: Any, other: Any, found: Any) -> None:
    assert compare.better(one, other) is found


def test_a_verdict_says_how_many_cases_differ(compare: ModuleType) -> None:
    assert compare.decided([True, True]) == "**confirmed**"
    assert compare.decided([False]) == "**refuted**"
    assert compare.decided([True, False, None]) == "**depends** in the 2 of 3 cases that differ"
    assert compare.decided([None, None]).startswith("**undecided**")


def test_the_page_names_what_was_not_run() -> None:
    page = importlib.import_module("paper_glyph_page")
    found = json.loads((ROOT / "docs" / "results" / "paper_glyph.json").read_text())
    without = {**found, "others": [], "mnist": [], "table": [], "ensembles": []}
    without.pop("resnets", None)
    assert page.missing(without).count("- `") == len(page.TO_COME) + 1
    rows = [{"learner": name, "setting": name} for name in page.TO_COME]
    nets = {"table": rows, "others": [], "ensembles": [{"kind": "ResNet-32"}]}
    assert page.missing({**found, "resnets": nets}).count("- `") == 1  # more teachers than there are
    assert "more ResNet-32" in page.missing({**found, "resnets": nets})


def test_claims_that_were_not_tried_have_no_verdict() -> None:
    claims = importlib.import_module("claims_glyph")
    found = json.loads((ROOT / "docs" / "results" / "claims.json").read_text())["glyph"]
    gone = {**found, "others": [row for row in found["others"] if row["learner"] == claims.MANY_LABELS]}
    gone["table"] = [row for row in found["table"] if row["learner"] != "supervised alone"]
    verdicts = {row[0]: row[2] for row in claims.rows_of_glyph(gone)}
    assert verdicts["Semi-supervision is instrumental"] == "**not tested**"
    assert verdicts["Two rounds are best when they cost about the same"] == "**not tested**"
    assert verdicts["Mislabelled inputs cost more privacy: the teachers agree less on them"].startswith("**cannot")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A file of 150 symbols in six faces, votes on them, and sizes at which what wants a GPU takes a moment."""
    pytest.importorskip("torch")
    from terrine.datasets.fonts import Glyphs

    settings, rng, folder = importlib.import_module("paper_glyph_settings"), np.random.default_rng(0), tmp_path_factory
    out = folder.mktemp("glyphs")
    X = np.zeros((900, 28, 28), dtype=np.uint8)
    X[:, 8:20, 8:20] = rng.integers(0, 256, (900, 12, 12))
    y, face = np.tile(np.arange(150), 6), np.repeat(np.arange(6), 150)
    names = "".join(map(chr, range(0x4E00, 0x4E00 + 150)))
    Glyphs(X=X, y=y, face=face, symbols=names, fonts=tuple("abcdef")).save(out / "glyphs.npz")
    counts = rng.multinomial(50, np.ones(150) / 150, 150).astype(np.int16)
    many = {name: rng.integers(0, 150, 220) for name in ("plurality", "noisy")}
    np.savez(out / "paper_glyph_votes.npz", counts=counts, **many)
    few = {"public": 200, "all_public": 220, "test": 20, "queries": 150, "baseline": 220}
    once = {"steps": 1, "short": 1, "gan": 1, "many": 1, "resnet_queries": 4, "resnet_each": 4}
    return out, settings.replace(settings.TOY, **few, **once)


def test_resnets_start_and_go_on_to_votes(tiny: Any) -> None:
    out, size = tiny
    importlib.import_module("paper_glyph").resnets(str(out / "glyphs.npz"), out, size, seconds=1)
    [row] = json.loads((out / "paper_glyph_teachers.json").read_text())
    assert (row["kind"], row["teachers"], row["questions"]) == ("ResNet-32", 2, 4)
    with np.load(out / "paper_glyph_resnets.npz") as kept:
        assert (kept["counts"].sum(axis=1) == 2).all()


def test_resnets_go_on_where_they_ended_and_the_first_vote_on_everything(tiny: Any, tmp_path: Path) -> None:
    out, size = tiny
    script, four = importlib.import_module("paper_glyph"), {"resnets": 4, "least": 1}
    size = replace(size, **four)
    script.resnets(str(out / "glyphs.npz"), tmp_path, replace(size, resnets=2), seconds=60, everywhere=60)
    (tmp_path / script.RESNETS).rename(tmp_path / script.SOME)  # as if it had been ended before the second wave
    script.resnets(str(out / "glyphs.npz"), tmp_path, size, seconds=60)
    wide, row = json.loads((tmp_path / "paper_glyph_teachers.json").read_text())
    assert (wide["teachers"], wide["questions"], row["teachers"], row["questions"]) == (2, 220, 4, 4)
    assert len(row["steps_by_wave"]) == 2
    with np.load(tmp_path / script.EVERYWHERE) as kept:
        assert (kept["teachers"], len(kept["noisy"]), len(kept["plurality"])) == (2, 220, 220)
    assert (np.load(tmp_path / script.RESNETS)["counts"].sum(axis=1) == 4).all()


def test_a_step_of_residual_nets_is_torch_s_own_sgd() -> None:
    torch = pytest.importorskip("torch")
    device = importlib.import_module("paper_glyph_device")
    nets = device.ResidualNets(lanes=1, each=20, batch=20)
    images = torch.randint(0, 256, (20, 28, 28), dtype=torch.uint8, generator=torch.manual_seed(0))
    labels = torch.arange(20)
    nets.begin(images, labels, seed=3)
    torch.manual_seed(3_000_009)
    alone = device.resnet32(device.CLASSES, (28, 28)).train()
    torch.manual_seed(5)
    nets.train(1)
    torch.manual_seed(5)
    which = torch.randint(20, (20,))
    sgd = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    torch.nn.functional.cross_entropy(alone(images[which][:, None].float() / 255), labels[which]).backward()
    sgd.step()
    for mine, used, theirs in zip(nets.weights[0], nets.used[0], alone.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-3)
        assert torch.equal(mine, used)


@pytest.mark.parametrize("waiting", [True, False])
def test_students_by_residual_nets_wait_for_their_votes(settings: ModuleType, waiting: bool, tmp_path: Path) -> None:
    script = importlib.import_module("paper_glyph")
    work = script.Work(path="", out=tmp_path, keep=tmp_path, size=replace(settings.TOY, as_many=True))
    jobs = {s: settings.Job(setting=s, learner=settings.VAT, seed=0)
            for s in (settings.LNMAX, settings.MANY_NOISY, settings.FIRST_100, settings.BASE)}  # fmt: skip
    if not waiting:
        (tmp_path / script.RESNETS).touch()
    found = {setting for setting, job in jobs.items() if script.ended(job, work)}
    assert found == {settings.FIRST_100, settings.BASE, *(() if waiting else (settings.LNMAX,))}


def test_students_by_residual_nets_stand_beside_those_by_small_nets(settings: ModuleType, tmp_path: Path) -> None:
    """On the page too; and adding the same ones again changes nothing."""
    pytest.importorskip("torch")
    page, summary = (importlib.import_module(name) for name in ("paper_glyph_page", "paper_glyph_summary"))
    there = json.loads((ROOT / "docs" / "results" / "paper_glyph.json").read_text())
    run = {"learner": "VAT", "answers": 9, "answers_right": 1.0, "answers_recorded": 1.0, "accuracy_recorded": 0.5,
           "teachers_kind": "ResNet-32", "teachers": 50}  # fmt: skip
    runs = [
        {**run, "setting": settings.MANY_NOISY, "seed": k, "accuracy": 0.4 + 0.1 * k, "machine": "M"} for k in (0, 1)
    ]
    (tmp_path / "paper_glyph_resnet_runs_table.json").write_text(json.dumps(runs))
    mnist = [{"setting": settings.FIRST_100, "learner": "GAN, MNIST", "seed": 0, "answers": 100, "answers_right": 0.9,
              "accuracy": 0.9, "accuracy_public": 0.9, "machine": "M"}]  # fmt: skip
    (tmp_path / "paper_glyph_runs_table.json").write_text(json.dumps(mnist))
    row = {"kind": "ResNet-32", "teachers": 50, "each": 13_000, "steps": 7, "steps_by_wave": [7, 9], "questions": 4,
           "teacher_right": 0.5, "plurality_right": 0.6, "top_share": 0.7, "machine": "M"}  # fmt: skip
    (tmp_path / "paper_glyph_teachers.json").write_text(json.dumps([row]))
    np.savez(tmp_path / "paper_glyph_resnets.npz", counts=np.full((4, 2), 25))
    found = summary.added(there, tmp_path)
    assert {key: found[key] for key in there if key not in ("mnist", "machines", "resnets")} == {
        key: there[key] for key in there if key not in ("mnist", "machines", "resnets")
    }
    [many] = found["resnets"]["others"]
    assert (many["seeds"], many["teachers_kind"], many["accuracy"]["mean"]) == (2, "ResNet-32", 0.45)
    assert all(one in found["mnist"] for one in there["mnist"] if one["learner"] != "GAN, MNIST")
    said = page.page(found)
    assert "200,000 answers: GNMax, σ = 1, of 50 ResNet-32s" in said
    assert "7 to 9" in said
    assert summary.added(found, tmp_path) == found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", ["paper", "epochs", "rate", "plain", "gan", "many"])
def test_a_group_that_was_not_run_starts(tiny: Any, group: str) -> None:
    out, size = tiny
    script, settings = importlib.import_module("paper_glyph"), importlib.import_module("paper_glyph_settings")
    script.ready(str(out / "glyphs.npz"), out, out, size, nets=True, images=True)
    run = script.learned(settings.GROUPS[group][0])
    assert run["answers"] > 0
    assert 0 <= run["accuracy_recorded"] <= 1


@pytest.mark.filterwarnings("ignore")
def test_students_on_features_without_a_gpu(tiny: Any, settings: ModuleType, tmp_path: Path) -> None:
    """By the votes of residual nets, on features of exactly the images that were asked."""
    out, size = tiny
    script = importlib.import_module("paper_glyph")
    size = replace(size, auto=60, as_many=True, asked=0.01)
    path = str(out / "glyphs.npz")
    script.features(path, tmp_path, size)
    public, test = (np.load(tmp_path / f"auto_{split}.npy") for split in ("public", "test"))
    assert (len(public), len(test), public.shape[1]) == (size.public, size.test, test.shape[1])
    counts = np.random.default_rng(1).multinomial(8, np.ones(150) / 150, size.public).astype(np.int16)
    counts[np.arange(size.public), np.arange(size.public) % 10] += 42
    np.savez(tmp_path / script.RESNETS, counts=counts)
    script.ready(path, tmp_path, tmp_path, size, nets=False, images=True)
    jobs = {job.setting: job for job in settings.GROUPS["auto"] if job.seed == 0}
    for setting in (settings.LNMAX, settings.BOTH, settings.taken(settings.PLURALITY_ALL, settings.K)):
        run = script.learned(jobs[setting])
        assert (run["learner"], run["teachers_kind"], run["teachers"]) == (settings.AUTO, "ResNet-32", 50)
        assert 0 <= run["accuracy"] <= 1
    assert run["answers"] == 40


def test_features_without_a_gpu_want_their_size(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    script = importlib.import_module("paper_glyph")
    for words in (["features", "G", "O", "K"], ["learn", "G", "O", "K", "--resnets", "--groups", "auto"]):
        monkeypatch.setattr(sys, "argv", ["paper_glyph.py", *words])
        with pytest.raises(SystemExit):
            script.main()
        assert "--size cpu" in capsys.readouterr().err


def test_400_epochs_are_the_paper_s_schedule(settings: ModuleType) -> None:
    found = settings.learner_of(settings.EPOCHS, settings.SIZES["full"])
    assert found.steps * found.public_batch == 400 * 100_000
    assert (found.learning_rate, found.schedule, found.balance, found.fade) == (6e-5, "constant", 0, 0)
