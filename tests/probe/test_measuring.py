"""The sum that measures: exact, within the clip for each unit, and right about how often the probe is right."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.probe.test_exact import Setting, Unit, squared
from tests.probe.test_fit import BUDGET, SETTINGS, N, P, Stopped, rows, stop_after, task, trained
from tests.soak import amount

from terrine import Ledger, SeededNoise
from terrine.errors import InputError
from terrine.measured import Measured
from terrine.probe import Probe, ProbeRows, ProbeSettings, exact, measuring
from terrine.probe.measuring import measured_of, measured_sum
from terrine.probe.sums import Step
from terrine.relations import Relation

MEASURED = replace(SETTINGS, measured=True)
PAYS = MEASURED.budget(epsilon=2.0, delta=1e-5, planned_units=N, relation=Relation.ROW_ADDED)


def total(setting, units, ids):
    X = np.concatenate([np.empty((0, setting.p)), *(unit.X for unit in units)])
    y = np.concatenate([np.empty(0), *(unit.y for unit in units)])
    given = np.repeat(np.asarray(ids, dtype=np.int64), [unit.n for unit in units])
    return measured_sum(ProbeRows(X, y, given, n_classes=setting.c), setting.step).reveal()


def by_hand(setting, unit):
    """A unit's contribution, in fractions, row by row."""
    c, one = setting.c, measuring._each(setting.step.clip)
    counts = [0] * (2 * c)
    for x, label in zip(unit.X, unit.y, strict=True):
        if not (np.isfinite(x * setting.step.scale).all() and label in range(c)):
            continue
        found, usable = exact.features(x[None], scale=setting.step.scale)
        if not usable[0]:
            continue
        logits = [
            sum(int(a) * int(w) for a, w in zip(found[0], column, strict=True)) for column in setting.step.weights.T
        ]
        counts[int(label) + (0 if logits.index(max(logits)) == label else c)] += 1
    told = [int(Fraction(one * count, unit.n)) for count in counts] if unit.n else counts
    padding = [0] * ((setting.p + 1) * c - 2 - 2 * c)
    return np.array([sum(told[:c]), sum(told[c:]), *told, *padding])


def check(seed):
    rng = np.random.default_rng(seed)
    setting = Setting(rng)
    setting.p = max(setting.p, 2)
    setting.step = setting.step._replace(
        weights=exact.whole_weights(rng.normal(size=(setting.p + 1, setting.c)) * rng.choice([0.0, 1.0, 1e7]))
    )
    units = [Unit(rng, setting.p, setting.c) for _ in range(rng.integers(0, 5))]
    one = Unit(rng, setting.p, setting.c)
    ids = rng.permutation(100)[: len(units) + 1]
    with np.errstate(all="ignore"):
        moved = total(setting, [*units, one], ids) - total(setting, units, ids[:-1])
        np.testing.assert_array_equal(moved, by_hand(setting, one))
    assert squared(moved) <= setting.step.clip**2
    return bool(moved.any())


def test_a_unit_adds_its_shares_exactly_and_the_clip_at_most():
    assert sum(check(seed) for seed in range(amount(150, soak=3000))) > 50


def test_the_check_sees_a_contribution_that_is_too_long(monkeypatch):
    monkeypatch.setattr(measuring, "_each", lambda clip: clip)
    with pytest.raises(AssertionError):
        [check(seed) for seed in range(100)]


def test_it_is_about_as_right_as_it_says(tmp_path):
    X, y = task()
    made = trained(tmp_path, settings=MEASURED, budget=PAYS)
    found, truth = made.measured, made.predict(X) == y
    assert found.accuracy == pytest.approx(truth.mean(), abs=6 * 2 * found.noise / N)
    low, high = found.interval
    assert low < truth.mean() < high
    for k in range(3):
        assert found.right_by_class[k] == pytest.approx((truth & (y == k)).sum(), abs=6 * found.noise)
        assert found.shares[k] == pytest.approx((y == k).mean(), abs=0.03)
    said = str(found.named("abc"))
    assert f"the probe is right about {found.accuracy:.1%} (95% interval" in said
    assert "clearly" not in said
    assert found.right == pytest.approx(sum(found.right_by_class))
    assert found.wrong == pytest.approx(sum(found.wrong_by_class))
    assert made.guarantee.epsilon <= 2.0
    assert (made.steps_kept, PAYS.steps) == (13, BUDGET.steps + 1)
    assert PAYS.noise > BUDGET.noise
    path = tmp_path / "probe.npz"
    made.save(path)
    assert Probe.load(path).measured == found


def test_a_stop_before_the_last_sum_goes_on_and_a_lost_one_is_not_made_again(tmp_path):
    with pytest.raises(Stopped):
        trained(tmp_path, settings=MEASURED, budget=PAYS, progress=stop_after(12))
    made = trained(tmp_path, settings=MEASURED, budget=PAYS)
    again = trained(tmp_path, settings=MEASURED, budget=PAYS)
    assert made.measured == again.measured is not None
    assert (made.weights == again.weights).all()
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(Stopped):
        trained(other, settings=MEASURED, budget=PAYS, progress=stop_after(12))
    with Ledger(other / "ledger.sqlite") as ledger:
        assert ledger.training.begin(13, secure=True)
    lost = trained(other, settings=MEASURED, budget=PAYS)
    assert (lost.steps_kept, lost.measured) == (12, None)


def test_what_is_not_measured_has_the_digest_that_it_had():
    """Ledgers name settings by it."""
    assert SETTINGS.digest() == "3d8311606071a86653f7b33b00fe5b6744789ae91dafbd3fe07a4e775b4d90ff"
    assert "measured" not in SETTINGS.to_json()
    assert MEASURED.digest() != SETTINGS.digest()
    assert ProbeSettings.from_json(json.loads(json.dumps(MEASURED.to_json()))) == MEASURED
    assert ProbeSettings.from_json(SETTINGS.to_json()) == SETTINGS
    with pytest.raises(InputError, match="no room"):
        ProbeSettings(n_features=1, n_classes=2, measured=True)


def test_an_interval_covers_the_truth_as_often_as_it_says():
    """Over units that happen to be there, and noise: 95%, within what 2,000 draws allow."""
    rng, share, n, noise, covered = np.random.default_rng(0), 0.8, 1500, 12.0, 0
    for _ in range(2000):
        right = rng.binomial(n, share)
        one = Measured(
            right=right + rng.normal(0, noise),
            wrong=n - right + rng.normal(0, noise),
            right_by_class=(right,),
            wrong_by_class=(n - right,),
            noise=noise,
        )
        low, high = one.interval
        covered += low <= share <= high
    assert 0.93 < covered / 2000 < 0.97


def test_what_is_no_better_than_a_constant_says_so():
    one = Measured(right=770.0, wrong=230.0, right_by_class=(740.0, 30.0), wrong_by_class=(10.0, 220.0), noise=4.0)
    said = str(one.named(["no", "yes"]))
    assert "so that it is not clearly better. It finds 12% of 'yes' (7 to 17%), 99% of 'no' (97 to 100%)." in said


def test_a_class_that_the_noise_hides_is_named_too():
    """Nothing was said of fraud, at right -0.72 and wrong 374."""
    one = Measured(
        right=9000.0, wrong=480.0, right_by_class=(9000.72, -0.72), wrong_by_class=(106.0, 374.0), noise=40.0
    ).named(["ok", "fraud"])
    assert one.found[1] is None
    assert "It finds 99% of 'ok' (98 to 99%)" in one.words or "It finds 99% of 'ok'" in one.words
    assert "Of what the noise nearly hides it finds at most 18% of 'fraud'." in one.words
    assert "which nothing here has measured: sort new rows by P(fraud)" in one.words
    none = replace(one, wrong_by_class=(106.0, 60.0)).named(["ok", "fraud"])
    assert "How much of 'fraud' it finds the noise hides." in none.words
    few = replace(one, right_by_class=(9000.0, 40.0), wrong_by_class=(100.0, 400.0)).named(["ok", "fraud"])
    assert "of 'fraud' (0 to " in few.words
    assert "so perhaps none)" in few.words
    never = replace(one, noise=20.0, right_by_class=(9000.0, -20.0), wrong_by_class=(106.0, 210.0))
    assert any("hardly ever finds 'fraud'" in said for said in never.warnings(["ok", "fraud"]))
    assert "docs/" not in one.words
    assert 'the pages "Use the student" and "Rare classes" of terrine\'s documentation' in one.words


def test_two_measurements_of_one_number_agree_and_have_less_noise():
    """Least squares, over draws: each number is unbiased, with the deviation that it says."""
    rng, n, clip, noise = np.random.default_rng(0), 4, 2**30, 2**33
    truth = np.array([900.0, 50.0, 30.0, 20.0, 5.0, 10.0, 30.0, 40.0])
    exact_sum = measuring._each(clip) * np.concatenate([[truth[:4].sum(), truth[4:].sum()], truth])
    made = [
        measured_of((exact_sum + noise * rng.standard_normal(10)).astype(np.int64), n_classes=n, clip=clip, noise=noise)
        for _ in range(4000)
    ]
    told = np.array([[one.right, one.wrong, *one.right_by_class, *one.wrong_by_class] for one in made])
    off = told - np.concatenate([[truth[:4].sum(), truth[4:].sum()], truth])
    assert (np.abs(off.mean(axis=0)) < 5 * made[0].noise / 4000**0.5).all()
    assert off.std(axis=0) == pytest.approx(made[0].noise, rel=0.06)
    assert (np.abs(told[:, 0] - told[:, 2:6].sum(axis=1)) < 1e-6).all()


def test_what_noise_hides_is_not_told():
    few = Measured(right=30.0, wrong=-5.0, right_by_class=(20.0, 1.0), wrong_by_class=(1.0, 1.0), noise=5.0)
    assert (few.accuracy, few.interval, few.shares) == (None, None, None)
    assert "too few to tell" in str(few.named("ab"))


def test_it_is_secret_until_there_is_noise():
    X, y = task()
    step = Step(exact.whole_weights(np.zeros((P + 1, 3))), 1.0, 2**30)
    found = measured_sum(ProbeRows(X, y, n_classes=3), step)
    assert repr(found).startswith("<Sensitive")
    told = measured_of(found.reveal(), n_classes=3, clip=2**30, noise=2**30)
    assert told.right + told.wrong == pytest.approx(N, rel=1e-6)
    assert told.right == pytest.approx((y == 0).sum(), rel=1e-6)  # all logits are equal: the first class


def test_seeded_noise_is_drawn_for_it_too(tmp_path):
    made = trained(tmp_path, settings=MEASURED, budget=PAYS, rng=SeededNoise(0))
    assert made.guarantee is None
    assert made.measured.right != rows().n_classes
