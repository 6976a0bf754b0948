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
    for wrong, words in (("", "Expected sigma"), ("epsilon = 0.5\nsigma = 3.0\n", "Expected no sigma")):
        with pytest.raises(InputError, match=words):
            read_config(written(tmp_path, QUESTIONS + wrong))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("number = 50", "numbr = 50", "Expected no key teachers.numbr, got one; did you mean number?"),
        ("[teachers]", "[teacher]", "Expected no key teacher, got one; did you mean teachers?"),
        ("delta = 1e-6", "", "Expected privacy.delta, got none."),
        ("delta = 1e-6", "delta = 1.5", "Expected another privacy.delta: input should be less than 1, got '1.5'."),
        ("threshold = 35", "", 'Expected threshold with mechanism = "confident", got none in [privacy].'),
        ("answers = 80", "epsilon = 1.0", 'Expected no epsilon with mechanism = "confident" in [privacy].'),
        ("queries = 200", "queries = 200\nmin_accuracy = 0.9", 'Expected no min_accuracy with mechanism = "confident"'),
        ('public = "public.csv"', "", "private and public together"),
        ('private = "rows.csv"', 'name = "mnist"', "Expected either name (a built-in data set) or private"),
        ('estimator = "sklearn.svm.SVC"', "", 'Expected estimator with kind = "sklearn"'),
        ('private = "rows.csv"', 'private = "a\\u0000b"', "Expected a file name in data.private, got a null"),
        ("queries = 200", "queries = true", "Expected another privacy.queries: input should be a valid integer"),
        ("queries = 200", 'queries = "7"', "Expected another privacy.queries: input should be a valid integer"),
        ("sigma_vote = 10", "sigma_vote = true", "Expected another privacy.sigma_vote: input should be a valid number"),
        ("number = 50", "number = true", "Expected another teachers.number: input should be a valid integer"),
        ('label = "ill"', "image_shape = [3, true]", "Expected another data.image_shape.1: input should be a valid"),
        ("seed = 7", "seed = ", "Expected TOML, got:"),
        ("queries = 200", 'queries = 200\nask = "representative"', "Expected a [features] table of learned ones"),
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
    with pytest.raises(InputError, match="got no such file"):
        read_config(tmp_path / "nothing.toml")
    with pytest.raises(InputError, match="got a folder"):
        read_config(tmp_path)
