"""A run's settings: read, written back, and refused by the key that is wrong."""

from __future__ import annotations

import pytest

from terrine.accounting.planning import least_noise
from terrine.errors import InputError
from terrine.runs.config import PrivacyConfig, differences, read_config, write_config
from terrine.runs.factories import planned

GOOD = """
seed = 7
[data]
private = "rows.csv"
public = "public.csv"
classes = ["no", "yes"]
label = "ill"
unit = "patient"
[data.categories]
"blood group" = ["0", "A", "B", "AB"]
[teachers]
number = 50
kind = "sklearn"
estimator = "sklearn.svm.SVC"
options = { C = 2.0, kernel = "rbf", nested = { a = [1, 2] } }
[privacy]
mechanism = "confident"
threshold = 35
sigma_check = 20.5
sigma_vote = 10
queries = 200
answers = 80
delta = 1e-6
"""


def written(folder, text=GOOD):
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_files_are_found_beside_the_settings(tmp_path):
    config = read_config(written(tmp_path))
    assert config.data.private == tmp_path / "rows.csv"
    assert config.teachers.options["C"] == 2.0
    assert config.seed == 7


def test_what_is_written_reads_back_the_same(tmp_path):
    config = read_config(written(tmp_path))
    other = tmp_path / "elsewhere"
    other.mkdir()
    assert read_config(written(other, write_config(config))) == config


def test_whole_numbers_for_floats_and_lists_for_shapes_are_taken(tmp_path):
    config = read_config(written(tmp_path, GOOD.replace('label = "ill"', "image_shape = [3, 4]")))
    assert config.data.image_shape == (3, 4)
    assert config.privacy.sigma_vote == 10.0
    assert PrivacyConfig.model_validate_json(config.privacy.model_dump_json(exclude_none=True)) == config.privacy


def test_differences_are_named(tmp_path):
    one = read_config(written(tmp_path))
    assert differences(one, one) == []
    other = read_config(written(tmp_path, GOOD.replace("C = 2.0", "C = 3.0").replace("queries = 200", "queries = 201")))
    assert differences(one, other) == ["privacy.queries", "teachers.options.C"]


PLAN = GOOD[: GOOD.index("[privacy]")] + "[privacy]\nepsilon = 1.0\ndelta = 1e-6\nconsensus = 0.9\n"


@pytest.mark.usefixtures("by_renyi")
def test_a_plan_may_stand_for_the_numbers(tmp_path):
    config = read_config(written(tmp_path, PLAN))
    assert config.privacy.mechanism is None
    surer = read_config(written(tmp_path, PLAN + "min_accuracy = 0.995\n"))
    usual, sure = (planned(one, n_classes=10, n_public=5000) for one in (config, surer))
    assert sure.sigma_vote < usual.sigma_vote  # less noise, so that answers more often name the plurality


QUESTIONS = GOOD[: GOOD.index("[privacy]")] + '[privacy]\nmechanism = "gnmax"\nqueries = 30\ndelta = 1e-6\n'


def test_an_epsilon_may_stand_for_the_noise_of_gnmax(tmp_path):
    privacy = read_config(written(tmp_path, QUESTIONS + "epsilon = 0.5\n")).privacy
    assert privacy.wants_plan
    found = planned(read_config(written(tmp_path, QUESTIONS + "epsilon = 0.5\n")), n_classes=2, n_public=100)
    assert not found.wants_plan
    assert (found.mechanism, found.queries, found.delta) == ("gnmax", 30, 1e-6)
    assert found.sigma == least_noise(n_queries=30, epsilon=0.5, delta=1e-6).sigma
    for wrong, words in (("", "needs `sigma`"), ("epsilon = 0.5\nsigma = 3.0\n", "takes no `sigma`")):
        with pytest.raises(InputError, match=words):
            read_config(written(tmp_path, QUESTIONS + wrong))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("number = 50", "numbr = 50", "There is no key teachers.numbr; did you mean teachers.number?"),
        ("[teachers]", "[teacher]", "There is no key teacher; did you mean teachers?"),
        ('label = "ill"', 'clases = ["a"]', "There is no key data.clases; did you mean data.classes?"),
        ("[teachers]", "[teachers]\nzzz = 1", "There is no key teachers.zzz. Known: number, kind,"),
        ('classes = ["no", "yes"]', "classes = [0, 1]", '`data.classes[0]` must be text, e.g. "0".'),
        ('classes = ["no", "yes"]', "classes = [true, false]", '`data.classes[0]` must be text, e.g. "true".'),
        ('classes = ["no", "yes"]', 'classes = ["0"]', "`data.classes` must be a list of at least 2, got 1."),
        ('kind = "sklearn"', 'kind = "tree"', "`teachers.kind` must be 'forest', 'boosting',"),
        (
            'options = { C = 2.0, kernel = "rbf", nested = { a = [1, 2] } }',
            "options = 3",
            "`teachers.options` must be a table, got 3.",
        ),
        ("delta = 1e-6", "", "run.toml: privacy.delta is missing."),
        ("delta = 1e-6", "delta = 1.5", "`privacy.delta` must be below 1, got 1.5."),
        ("threshold = 35", "", '[privacy]: mechanism = "confident" needs `threshold`.'),
        ("answers = 80", "epsilon = 1.0", '[privacy]: mechanism = "confident" takes no `epsilon`: leave it out.'),
        ("queries = 200", "queries = 200\nmin_accuracy = 0.9", 'mechanism = "confident" takes no `min_accuracy`'),
        ('public = "public.csv"', "", "[data]: `public` is missing"),
        (
            'private = "rows.csv"',
            'name = "mnist"',
            "[data]: give `name` for a built-in data set, or `private` and `public`",
        ),
        (
            'estimator = "sklearn.svm.SVC"',
            "",
            '[teachers]: kind = "sklearn" needs `estimator`, e.g. "sklearn.svm.SVC".',
        ),
        ('private = "rows.csv"', 'private = "a\\u0000b"', "data.private must be a file name, and has a null character"),
        ("queries = 200", "queries = true", "`privacy.queries` must be a whole number, without quotes, got True."),
        ("queries = 200", 'queries = "7"', "`privacy.queries` must be a whole number, without quotes, got '7'."),
        ("sigma_vote = 10", "sigma_vote = true", "`privacy.sigma_vote` must be a number, without quotes"),
        ("number = 50", "number = true", "`teachers.number` must be a whole number"),
        ('label = "ill"', "image_shape = [3, true]", "`data.image_shape[1]` must be a whole number"),
        ("seed = 7", "seed = ", "run.toml is not TOML in UTF-8: "),
        ("seed = 7", "seed = 7,5  # half", "column 9): seed = 7,5  # half. Numbers are written with a point: 1.0, not"),
        (
            "queries = 200",
            'queries = 200\nask = "representative"',
            'privacy.ask = "representative" needs a [features] table',
        ),
    ],
)
def test_a_wrong_key_is_named_in_one_line(tmp_path, old, new, words):
    assert old in GOOD
    with pytest.raises(InputError) as caught:
        read_config(written(tmp_path, GOOD.replace(old, new)))
    assert words in str(caught.value)
    assert "run.toml" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"There is no .*nothing\.toml\. Give"):
        read_config(tmp_path / "nothing.toml")
    with pytest.raises(InputError, match="is a folder"):
        read_config(tmp_path)
