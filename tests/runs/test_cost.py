"""A run that publishes what its answers cost: settings, dry run, the number, its places, and refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from terrine.errors import InputError, LedgerError
from terrine.labeller import Labeller
from terrine.noise import SeededNoise
from terrine.published import PublishedGuarantee
from terrine.runs.config import PrivacyConfig, RunConfig, read_config, write_config
from terrine.runs.cost import publish_cost
from terrine.runs.cost_plan import cost_release_of, planned_within
from terrine.runs.dry_run import dry_run
from terrine.runs.factories import budget_of
from terrine.runs.local import Run

pytestmark = pytest.mark.filterwarnings("ignore::terrine.errors.TerrineWarning")
SETTINGS = """
[data]
name = "blobs"
[data.options]
n_private = 500
n_public = 60
n_test = 40
[teachers]
number = 20
kind = "logistic"
executor = "serial"
device = "cpu"
[privacy]
mechanism = "confident"
threshold = 12
sigma_check = 6
sigma_vote = 4
queries = 30
answers = 20
delta = 1e-5
accept_large_delta = true
publish_cost = true
[student]
kind = "supervised"
estimator = "sklearn.linear_model.LogisticRegression"
"""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(SETTINGS)
    return tmp_path / "run.toml"


def changed(path, old, new):
    path.write_text(path.read_text().replace(old, new))
    return path


def labeled(settings):
    run = Run.create(settings, "run")
    run.teach()
    run.vote()
    run.label()
    return run


def test_the_number_is_in_the_guarantee_the_card_and_the_report(settings, terrine, tmp_path):
    code, out, err = terrine("run", "run.toml")
    assert code == 0, err
    assert "After the fact: these " in out
    shown = json.loads((tmp_path / "run" / "guarantee.json").read_text())
    assert 0 < shown["cost"]["epsilon"] <= shown["epsilon"]
    assert shown["cost"]["wrong_with_chance"] == 1e-6
    assert json.loads(json.dumps(PublishedGuarantee.from_json(shown).to_json())) == shown
    words = PublishedGuarantee.from_json(shown).cost.in_words
    assert "it is not the guarantee" in words
    assert words in (tmp_path / "run" / "student" / "model_card.md").read_text()
    assert words in (tmp_path / "run" / "report.html").read_text()
    assert "published. The guaranteed ε pays for publishing it, once." in terrine("ledger", "show", "run")[1]
    assert terrine("ledger", "verify", "run").code == 0
    assert not list((tmp_path / "run").glob("*noise*"))


def test_stage_by_stage_and_again(settings, terrine, tmp_path):
    labeled(settings)
    assert "Next: terrine cost run" in terrine("label", "run")[1]
    code, out, _ = terrine("cost", "run")
    assert code == 0
    assert out.startswith("Guarantee: ε = ")
    first = json.loads(terrine("cost", "run", "--json")[1])
    assert first["cost"]["epsilon"] > 0
    entries = terrine("ledger", "verify", "run", "--json")[1]
    assert "Next: terrine learn run" in terrine("label", "run")[1]  # and the number stays in guarantee.json
    assert json.loads((tmp_path / "run" / "guarantee.json").read_text()) == first
    assert terrine("ledger", "verify", "run", "--json")[1] == entries


def test_a_run_without_it_is_refused_with_the_reason(settings, terrine):
    labeled(changed(settings, "publish_cost = true\n", ""))
    code, _, err = terrine("cost", "run")
    assert code != 0
    assert "must be fixed before the first answer" in err
    with pytest.raises(InputError, match=r"different privacy\.publish_cost, which cannot change any more"):
        Run.create(changed(settings, "accept_large", "publish_cost = true\naccept_large"), "run")
    assert "cost" not in json.loads((settings.parent / "run" / "guarantee.json").read_text())


def test_nothing_before_the_answers(settings):
    run = Run.create(settings, "run")
    run.teach()
    with pytest.raises(InputError, match="There are no answers yet"):
        publish_cost(run)


def test_answers_from_elsewhere_are_not_spoken_for(settings):
    """A service on the same ledger: its votes are not the run's."""
    run = Run.create(settings, "run")
    run.teach()
    with run.ledger() as ledger:
        rows = np.random.default_rng(0).normal(size=(1, *run.task.public.X.shape[1:]))
        Labeller(run.voters(), run.mechanism, ledger).label(rows, request_id="someone")
    run.vote()
    run.label()
    with pytest.raises(InputError, match="has other answers too"):
        publish_cost(run)
    with run.ledger() as ledger:
        assert ledger.cost.state() is None


def test_seeded_noise_of_the_number_voids_the_guarantee(settings):
    run = labeled(settings)
    assert run.guarantee().secure_noise
    assert not publish_cost(run, rng=SeededNoise(0)).secure_noise


def test_lost_noise_leaves_the_answers(settings, monkeypatch):
    run = labeled(settings)
    with monkeypatch.context() as patched:
        patched.setattr(Run, "vote", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            publish_cost(run)
    (left,) = run.folder.glob("cost-noise-*")
    left.unlink()
    with pytest.raises(LedgerError, match="terrine learn goes on with them"):
        publish_cost(run)
    assert run.learn().accuracy is not None


def test_a_dry_run_says_what_it_adds(settings, terrine):
    found = dry_run(settings)
    plain = dry_run(changed(settings, "publish_cost = true\n", ""))
    assert found.guarantee.epsilon > plain.guarantee.epsilon
    assert plain.cost == ()
    assert "cost" not in plain.to_json()
    assert "paid for whether it is published or not" in found.cost[0]
    assert found.to_json()["cost"] == list(found.cost)
    changed(settings, "accept_large", "publish_cost = true\naccept_large")
    assert "One number, what these answers cost" in terrine("run", "run.toml", "--dry-run")[1]


def test_a_plan_is_made_again_until_both_fit(settings):
    asked = []

    def plan(config):
        asked.append(config.privacy.epsilon)
        assert not config.privacy.publish_cost
        return PrivacyConfig(mechanism="gnmax", queries=20, sigma=round(14 / asked[-1], 3), delta=1e-5)

    config = read_config(settings)
    wanted = {"epsilon": 4.0, "consensus": 0.9, "delta": 1e-5, "publish_cost": True}
    config = config.model_copy(update={"privacy": PrivacyConfig.model_validate(wanted)})
    found = planned_within(config, plan, budget_of)
    assert found.publish_cost
    assert 0.97 * 4.0 <= budget_of(found).guarantee().epsilon <= 4.0
    assert asked[0] == 0.8 * 4.0
    assert len(asked) > 1
    with pytest.raises(InputError, match="No plan was found"):
        planned_within(
            config, lambda one: PrivacyConfig(mechanism="gnmax", queries=20, sigma=0.1, delta=1e-5), budget_of
        )


@pytest.mark.soak
@pytest.mark.parametrize(
    "mechanism", ['mechanism = "gnmax"\nqueries = 20\nepsilon = 20.0\n', "epsilon = 20.0\nconsensus = 0.9\n"]
)
def test_a_plan_leaves_room_for_it(settings, mechanism):
    """Answers and number together keep to the epsilon of the settings."""
    text = settings.read_text()
    before, after = text.index('mechanism = "confident"'), text.index("delta = ")
    settings.write_text(text[:before] + mechanism + text[after:])
    run = Run.create(settings, "run")
    planned = run.config.privacy
    assert planned.publish_cost
    assert planned.epsilon is None
    assert 0.9 * 20 <= run.budget().guarantee().epsilon <= 20
    assert run.budget().cost_release == cost_release_of(planned, run.mechanism)


def test_settings(settings):
    config = read_config(settings)
    settings.write_text(write_config(config))
    assert read_config(settings) == config
    assert config.privacy.publish_cost
    hoped = RunConfig.model_validate(
        {**config.model_dump(), "privacy": {**config.privacy.model_dump(), "cost_epsilon": 1.0}}
    )
    assert cost_release_of(hoped.privacy, Run.create(hoped, "other").mechanism).order == pytest.approx(24.03)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("publish_cost = true", "cost_epsilon = 1.0", "`cost_epsilon` needs publish_cost = true"),
        ("publish_cost = true", 'publish_cost = true\nroute = "tested"\ntarget = 1.0', "does not go with route"),
        ("publish_cost = true", 'publish_cost = "yes"', "publish_cost"),
    ],
)
def test_settings_that_do_not_go_together(settings, old, new, words):
    with pytest.raises(InputError, match=words):
        read_config(changed(settings, old, new))


def test_laplace_noise_has_no_such_number(settings):
    text = settings.read_text()
    before, after = text.index('mechanism = "confident"'), text.index("delta = ")
    settings.write_text(f'{text[:before]}mechanism = "lnmax"\nscale = 8\nqueries = 20\n{text[after:]}')
    with pytest.raises(InputError, match="takes mechanism = "):
        read_config(settings)
