"""Any module as a teacher: one after the other or stacked, nothing crosses, nothing outside is disturbed."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import safetensors.numpy
import torch
from tests.soak import amount
from tests.teachers.tasks import CLASSES, MODULES, QUICK, images, mixed, prints, prints_of, shares_of, task

from terrine.datasets import PrivateData
from terrine.errors import InputError, MissingDependencyError, StoreError
from terrine.executors import Processes
from terrine.teachers import ModuleRecipe, ModuleTeacher, TeacherEnsemble, fit_teachers, modules
from terrine.teachers.architectures import mlp, resnet32, two_conv

X, Y = images(200)
SHARES = [(X[:100], Y[:100]), (X[100:130], Y[100:130]), (X[130:], Y[130:])]
STACKED = replace(MODULES, stacked=True)
WAYS = {"alone": MODULES, "stacked": STACKED}
BRIEF = {way: replace(teacher, recipe=replace(QUICK, steps=8)) for way, teacher in WAYS.items()}


def fit(teacher, shares=SHARES, *, ids=(0, 1, 2), seed=5, n_classes=4):
    return teacher.fit(shares, ids=ids, n_classes=n_classes, seed=seed)


def farthest(some, others):
    assert some.keys() == others.keys()
    return max(abs(some[name] - others[name]).max() for name in some)


# One after the other, and stacked


@pytest.mark.parametrize(
    ("module", "recipe"),
    [
        (
            partial(mlp, hidden=(16, 8)),
            ModuleRecipe(steps=40, batch=16, optimiser="adam", learning_rate=0.01, flip=True),
        ),
        (partial(two_conv, channels=(4, 8), hidden=16), replace(QUICK, weight_decay=1e-3)),
        (partial(mixed, dropout=0.0), replace(QUICK, clip=0.5, flip=True, schedule="constant")),
        (partial(resnet32, width=4, norm="group"), ModuleRecipe(steps=3, batch=8, learning_rate=0.01)),
        (partial(resnet32, width=4), ModuleRecipe(steps=3, batch=8, learning_rate=0.01)),
    ],
    ids=["mlp", "two_conv", "mixed", "resnet-group", "resnet-batch"],
)
def test_stacked_teachers_are_those_taught_one_after_the_other(module, recipe):
    teacher = ModuleTeacher(module=module, recipe=recipe, device="cpu", stacked=False)
    alone, stacked = fit(teacher), fit(replace(teacher, stacked=True))
    assert farthest(alone, stacked) < 1e-3
    untaught = fit(replace(teacher, recipe=replace(recipe, steps=1)))
    assert farthest(alone, untaught) > 1e-2
    both = [replace(teacher, stacked=way).predict(alone, X) for way in (False, True)]
    assert (both[0] == both[1]).mean() > 0.99


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("neighbour", ["changed", "added", "removed", "emptied", "infinite"])
def test_one_share_does_not_reach_the_other_teachers(way, neighbour):
    """Bit for bit: with batch statistics, dropout, shifts and a clip, the share in the middle of its chunk."""
    shares = [(rows.astype(np.float32) / 255, y) for rows, y in SHARES]
    rows, y = shares[1]
    match neighbour:
        case "changed":
            other = np.concatenate([1 - rows[:1], rows[1:]]), np.concatenate([(y[:1] + 1) % 4, y[1:]])
        case "added":
            other = np.concatenate([rows, 1 - rows[:1]]), np.append(y, 0)
        case "removed":
            other = rows[1:], y[1:]
        case "emptied":
            other = rows[:0], y[:0]
        case _:
            other = np.full_like(rows, np.inf), y
    before, after = fit(BRIEF[way], shares), fit(BRIEF[way], [shares[0], other, shares[2]])
    assert [a == b for a, b in zip(prints_of(before), prints_of(after), strict=True)] == [True, False, True]
    votes = [WAYS[way].predict(models, shares[0][0]) for models in (before, after)]
    assert (votes[0][[0, 2]] == votes[1][[0, 2]]).all()


@pytest.mark.parametrize("way", WAYS)
def test_each_teacher_sees_its_own_records_only(way, monkeypatch):
    """Records carry their owner and number; sizes differ, and every record is drawn in time."""
    sizes = [1, 40, 3, 17]
    shares = [(np.arange(n)[:, None] + 100.0 * k, np.arange(n) % 4) for k, n in enumerate(sizes)]
    seen: list[list[set[int]]] = []  # of each forward pass, of each teacher in it
    honest = modules._scores

    def look(module, state, x, *more):
        seen.append([set(rows.flatten().int().tolist()) for rows in x])
        return honest(module, state, x, *more)

    monkeypatch.setattr(modules, "_scores", look)
    recipe = ModuleRecipe(steps=40, batch=16, learning_rate=1e-6)
    teacher = ModuleTeacher(module=partial(mlp, hidden=()), recipe=recipe, device="cpu", stacked=way == "stacked")
    fit(teacher, shares, ids=range(4))
    runs = [[seen_[k] for seen_ in seen] for k in range(4)] if way == "stacked" else np.array(seen).reshape(4, 40)
    assert [set().union(*run) for run in runs] == [{100 * k + i for i in range(n)} for k, n in enumerate(sizes)]


@pytest.mark.parametrize("way", BRIEF)
def test_randomness_is_of_the_seed_and_the_ids(way):
    alike = [SHARES[0]] * 3
    found = prints_of(fit(BRIEF[way], alike))
    assert found == prints_of(fit(BRIEF[way], alike))
    others = prints_of(fit(BRIEF[way], alike, seed=6)) + prints_of(fit(BRIEF[way], alike, ids=(3, 4, 5)))
    assert len({*found, *others}) == 9


def test_stacked_dropout_is_drawn_for_each_teacher_and_by_the_seed():
    seeds = []
    for seed in (5, 5, 6):
        with modules._apart("cpu"):
            keys = modules.teacher_keys(seed, [0, 1], "cpu")
            module, state = STACKED._first(keys, 4, (8, 8), "cpu")
            seeds.append(torch.initial_seed())
            twins = {name: tensor[:1].expand_as(tensor).clone() for name, tensor in state.items()}
            first, second = modules._scores(module, twins, torch.ones(2, 16, 1, 8, 8), True, 4)
        assert (first != second).any()
    assert seeds[0] == seeds[1] != seeds[2]


_ONCE = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))


def always_the_same(n_classes, row_shape):
    return _ONCE


def test_a_factory_that_hands_out_one_module_carries_nothing_over():
    first = {name: tensor.clone() for name, tensor in _ONCE.state_dict().items()}
    teacher = ModuleTeacher(module=always_the_same, recipe=QUICK, device="cpu")
    together, alone = fit(teacher), fit(teacher, [SHARES[2]], ids=[2])
    teacher.predict(together, X)
    assert prints_of(together)[2] == prints_of(alone)[0]
    assert all(torch.equal(tensor, first[name]) for name, tensor in _ONCE.state_dict().items())
    assert _ONCE.training


@pytest.mark.parametrize("way", WAYS)
def test_generators_threads_and_gradients_are_left_as_they_were(way, monkeypatch):
    teacher = BRIEF[way]
    torch.manual_seed(77)
    before = torch.get_rng_state()
    asked: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    with torch.no_grad():
        models = fit(teacher)
        assert not torch.is_grad_enabled()
    teacher.loads(teacher.dumps(models))
    teacher.predict(models, X)
    assert torch.equal(torch.get_rng_state(), before)
    assert asked[::2] == [1] * (len(asked) // 2)
    assert asked[1::2] == [5] * (len(asked) // 2)


# Votes


@pytest.mark.parametrize("way", WAYS)
def test_empty_and_one_class_shares_vote_as_they_must(way):
    shares = [(X[:0], Y[:0]), (X[Y == 2], Y[Y == 2]), SHARES[0]]
    votes = WAYS[way].predict(fit(WAYS[way], shares), X)
    assert votes.dtype == np.int16
    assert (votes[2] == Y).mean() > 0.7
    untaught = replace(WAYS[way], recipe=ModuleRecipe(steps=1, learning_rate=1e-9))
    for found in (votes, untaught.predict(fit(untaught, shares), X)):
        assert (found[0] == 0).all()
        assert (found[1] == 2).all()


@pytest.mark.parametrize("way", WAYS)
def test_a_vote_does_not_depend_on_the_other_rows(way):
    """Batch statistics are those of training, and training leaves them where the share is."""
    models = fit(WAYS[way])
    assert models["state.1.num_batches_tracked"].tolist() == [QUICK.steps] * 3
    assert (abs(models["state.1.running_mean"][0] - models["state.1.running_mean"][1]) > 0).all()
    whole = WAYS[way].predict(models, X)
    parts = [WAYS[way].predict(models, X[i : i + 37]) for i in range(0, 200, 37)]
    assert (np.concatenate(parts, axis=1) == whole).all()
    assert (WAYS[way].predict(models, X[::-1].copy())[:, ::-1] == whole).all()
    assert WAYS[way].predict(models, X[:0]).shape == (3, 0)


def test_rows_of_numbers_and_colour_images():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=150)
    rows = rng.normal(size=(150, 5)) + np.eye(3, 5)[y] * 4
    teacher = ModuleTeacher(module=partial(mlp, hidden=(8,)), recipe=ModuleRecipe(steps=100), device="cpu")
    models = fit(teacher, [(rows[:100], y[:100])], ids=[0], n_classes=3)
    assert (teacher.predict(models, rows[100:])[0] == y[100:]).mean() > 0.9
    assert (teacher.predict(models, rows.astype(np.float32)) == teacher.predict(models, rows)).all()
    colour = rng.integers(0, 100, size=(150, 8, 8, 3), dtype=np.uint8)
    colour[np.arange(150), :, :, y] += 120
    models = fit(MODULES, [(colour[:100], y[:100])], ids=[0], n_classes=3)
    assert (MODULES.predict(models, colour[100:])[0] == y[100:]).mean() > 0.9


def test_a_module_sees_channels_first_in_zero_to_one():
    colour = np.arange(2 * 4 * 6 * 3, dtype=np.uint8).reshape(2, 4, 6, 3)
    seen = modules._seen(torch.from_numpy(colour)[None])[0]
    assert torch.equal(seen, torch.from_numpy(colour).permute(0, 3, 1, 2) / 255)
    grey = torch.rand(1, 2, 4, 6)
    assert torch.equal(modules._seen(grey)[0], grey[0][:, None])
    rows = torch.rand(1, 2, 7)
    assert torch.equal(modules._seen(rows), rows)


# Recipes


def test_schedules():
    def rates(**settings):
        recipe = ModuleRecipe(steps=8, learning_rate=1.0, **settings)
        return [round(recipe.rate(step), 6) for step in range(8)]

    assert rates(schedule="constant") == [1.0] * 8
    assert rates(schedule="steps", decay_at=(0.25, 0.5)) == [1.0] * 2 + [0.1] * 2 + [0.01] * 4
    cosine = rates()
    assert cosine[0] == 1.0
    assert cosine[4] == 0.5
    assert 0 < cosine[7] < 0.05


@pytest.mark.parametrize(
    "recipe",
    [
        replace(QUICK, shift=0, weight_decay=0.01, clip=0.5),
        ModuleRecipe(steps=20, batch=8, optimiser="adam", learning_rate=0.01, momentum=0.8, weight_decay=0.1),
    ],
    ids=["sgd", "adam"],
)
def test_a_teacher_is_what_a_plain_loop_gives(recipe):
    """torch's own optimisers, clip, loss and seed, on the records that were drawn."""
    rows, labels = torch.from_numpy(X[:100, None] / np.float32(255)), torch.from_numpy(Y[:100])
    key = modules.teacher_keys(5, [3], "cpu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(key))
        net = mixed(4, (8, 8))
        settings = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay}
        if recipe.optimiser == "sgd":
            optimiser = torch.optim.SGD(net.parameters(), momentum=recipe.momentum, **settings)
        else:
            optimiser = torch.optim.AdamW(net.parameters(), betas=(recipe.momentum, 0.999), **settings)
        for step in range(recipe.steps):
            optimiser.param_groups[0]["lr"] = recipe.rate(step)
            which = (modules.uniform(key, step, recipe.batch * 4).view(-1, 4)[:, 0] * 100).long()
            optimiser.zero_grad()
            loss = torch.nn.CrossEntropyLoss(label_smoothing=recipe.smoothing)
            loss(net(rows[which]), labels[which]).backward()
            if recipe.clip is not None:
                torch.nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
            optimiser.step()
    models = fit(replace(MODULES, recipe=recipe), [SHARES[0]], ids=[3])
    for name, tensor in net.state_dict().items():
        assert np.allclose(models[f"state.{name}"][0], tensor.numpy(), atol=1e-4), name


def test_rates_are_used():
    """One step of plain gradient descent, and the same at twice the rate, go the same way twice as far."""
    still = ModuleRecipe(steps=1, learning_rate=0.1, schedule="constant", momentum=0.0)
    teacher = ModuleTeacher(module=partial(mlp, hidden=()), recipe=still, device="cpu")
    near, far, first = (
        fit(replace(teacher, recipe=replace(still, learning_rate=rate)))["state.1.weight"] for rate in (0.1, 0.2, 1e-12)
    )
    assert np.allclose(far - first, 2 * (near - first), atol=1e-6)
    assert abs(near - first).max() > 1e-3


@pytest.mark.parametrize("way", [False, True])
def test_each_teacher_is_clipped_by_its_own_norm(way):
    still = ModuleRecipe(steps=1, learning_rate=1.0, schedule="constant", momentum=0.0)
    teacher = ModuleTeacher(module=partial(mlp, hidden=()), recipe=still, device="cpu", stacked=way)
    shares = [(rows * np.float32(scale), y) for (rows, y), scale in zip(SHARES, (1e-4, 1.0, 1e3), strict=True)]
    first, free, clipped = (
        fit(replace(teacher, recipe=recipe), shares)
        for recipe in (replace(still, learning_rate=1e-12), still, replace(still, clip=2.0))
    )

    def lengths(models):
        moves = [(models[name] - first[name]).reshape(3, -1) for name in ("state.1.weight", "state.1.bias")]
        return np.linalg.norm(np.concatenate(moves, axis=1), axis=1)

    assert (lengths(free)[1:] > 3).all()
    assert lengths(free)[0] < 2
    assert np.allclose(lengths(clipped), np.minimum(lengths(free), 2), rtol=1e-3)


def test_images_are_moved_and_mirrored_by_their_own_numbers():
    rows = torch.from_numpy(X[:3])[None]
    middle = torch.full((1, 3, 3), 0.5)
    recipe = ModuleRecipe(shift=2, flip=True)
    assert torch.equal(modules._moved(rows, middle, recipe), rows)
    draw = torch.tensor([[[0.0, 0.5, 0.9], [0.5, 0.99, 0.9], [0.5, 0.5, 0.1]]])
    up, left, mirror = modules._moved(rows, draw, recipe)[0].numpy()
    assert (up[2:] == X[0, :-2]).all()
    assert (up[:2] == 0).all()
    assert (left[:, :-2] == X[1, :, 2:]).all()
    assert (left[:, -2:] == 0).all()
    assert (mirror == X[2, :, ::-1]).all()
    colour = torch.rand(1, 3, 5, 7, 3)
    assert torch.equal(modules._moved(colour, draw, recipe)[0, 2], colour[0, 2].flip(1))
    assert torch.equal(modules._moved(rows, draw, replace(recipe, flip=False))[0, 2], rows[0, 2])
    assert modules._moved(rows, draw, ModuleRecipe()) is rows


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"batch": 0},
        {"shift": 0.5},
        {"optimiser": "lion"},
        {"schedule": "linear"},
        {"learning_rate": 0.0},
        {"decay_by": 0.0},
        {"clip": 0.0},
        {"momentum": 1.0},
        {"weight_decay": -1.0},
        {"smoothing": 1.0},
        {"flip": 1},
        {"decay_at": (0.5,)},
        {"decay_at": (), "schedule": "steps"},
        {"decay_at": (0.5, 0.25), "schedule": "steps"},
        {"decay_at": (0.5, 1.0), "schedule": "steps"},
    ],
)
def test_a_recipe_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))} (must|goes)"):
        ModuleRecipe(**wrong)


# Settings and the store


def test_settings_name_the_module_its_parameters_and_the_recipe():
    settings = ModuleTeacher(module=partial(resnet32, width=8), recipe=QUICK).settings()
    assert settings["module"] == "terrine.teachers.architectures.resnet32"
    assert {name: value for name, value in settings.items() if name.startswith("module.")} == {
        "module.width": 8,
        "module.slope": 0.1,
        "module.norm": "batch",
    }
    assert settings["recipe.steps"] == 30
    assert settings == ModuleTeacher(module=resnet32, recipe=QUICK).settings() | {"module.width": 8}
    assert (
        settings
        == ModuleTeacher(
            module=partial(resnet32, width=8), recipe=QUICK, device="cpu", stacked=True, chunk=7
        ).settings()
    )
    recipes = [replace(QUICK, **{name: value}) for name, value in (("clip", None), ("flip", True), ("steps", 31))]
    found = [str(ModuleTeacher(module=mlp, recipe=recipe).settings()) for recipe in (QUICK, *recipes)]
    assert len(set(found)) == 4


def test_taught_in_processes_kept_in_a_store_and_back(tmp_path):
    """And a changed row, taught in this process, reaches no other teacher than its own."""
    data, teacher = task(), BRIEF["stacked"]
    shares = shares_of(data)
    some, store = Processes(n_workers=amount(1, soak=2)), tmp_path / "store"
    kept = fit_teachers(data, shares, teacher, classes=CLASSES, seed=5, executor=some, store=store)
    loaded = TeacherEnsemble.load(store, replace(teacher, chunk=1))
    votes = kept.vote(X).counts
    assert (votes.argmax(1) == Y).mean() > 0.5
    assert (loaded.vote(X).counts == votes).all()
    for other in (mlp, partial(mixed, channels=7)):
        with pytest.raises(StoreError, match="The store was made with module"):
            TeacherEnsemble.load(store, replace(teacher, module=other))
    rows = data.X.copy()
    rows[0] = 255 - rows[0]
    changed = fit_teachers(PrivateData(rows, data.y, unit=data.unit), shares, teacher, classes=CLASSES, seed=5)
    files = sorted(store.glob("*.safetensors"))
    before = [found for file in files for found in prints_of(teacher.loads(file.read_bytes()))]
    assert [k for k in range(7) if before[k] != prints(changed)[k]] == [shares.assignment[0]]


@pytest.mark.parametrize("way", WAYS)
def test_bytes_come_back_and_others_are_refused(way):
    teacher = BRIEF[way]
    models = fit(teacher)
    data = teacher.dumps(models)
    assert teacher.dumps(teacher.loads(data)) == data
    assert (teacher.predict(teacher.loads(data), X) == teacher.predict(models, X)).all()
    for damaged in (b"", data[:50], data[:-1]):
        with pytest.raises(StoreError, match="is damaged, or not"):
            teacher.loads(damaged)
    name = "state.6.weight"
    for other in (
        {"weights": np.zeros(3)},
        {key: value for key, value in models.items() if key != name},
        models | {"state.7.weight": models[name]},
        models | {name: models[name][:, :, 1:]},
        models | {name: models[name][1:]},
        models | {name: models[name].astype(np.float64)},
        models | {"layout": models["layout"][:, :1]},
        models | {"layout": models["layout"] + [[0, 0, 4, 0]]},
        models | {"layout": models["layout"] + [[0], [1], [0]]},
        models | {"layout": models["layout"] - [[9, 0, 0, 0]]},
    ):
        with pytest.raises(StoreError, match=r"The weights are not those of tests\.teachers\.rows\.mixed"):
            teacher.loads(safetensors.numpy.save(other))


# What is refused


def not_a_module(n_classes, row_shape):
    return n_classes


def wrong_width(n_classes, row_shape):
    return mlp(n_classes + 1, row_shape)


class Pair(torch.nn.Linear):
    def __init__(self, n_classes, row_shape):
        super().__init__(8, n_classes)

    def forward(self, x):
        return super().forward(x), x


class Maker:
    """What it keeps would be in no manifest."""

    def make(self, n_classes, row_shape):
        return mlp(n_classes, row_shape)


def frozen(n_classes, row_shape):
    return mlp(n_classes, row_shape).requires_grad_(False)


def lazy(n_classes, row_shape):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(n_classes))


def looks_around(n_classes, row_shape):
    return torch.nn.Sequential(torch.nn.BatchNorm2d(1, track_running_stats=False), mlp(n_classes, row_shape))


@pytest.mark.parametrize("way", [False, True])
@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(
    ("module", "message"),
    [
        (not_a_module, r"not_a_module must return a torch\.nn\.Module, got int"),
        (wrong_width, r"scores of shape \(16, 4\), got \(16, 5\)"),
        (Pair, r"scores of shape \(16, 4\), got tuple"),
        (frozen, "a module with weights that can be trained"),
        (lazy, "has a lazy layer"),
        (looks_around, "track_running_stats.*GroupNorm"),
    ],
)
def test_a_wrong_factory_is_one_clear_error(module, message, way):
    with pytest.raises(InputError, match=message) as caught:
        fit(ModuleTeacher(module=module, recipe=QUICK, device="cpu", stacked=way))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "module",
    [
        lambda n_classes, row_shape: mlp(n_classes, row_shape),
        partial(lambda n_classes, row_shape, width: mlp(n_classes, row_shape), width=3),
        torch.nn.Linear(64, 4),
        partial(mlp, 4),
        images,
        Maker().make,
        "mlp",
        None,
    ],
)
def test_what_is_no_importable_function_of_classes_and_shape_is_refused(module):
    with pytest.raises(InputError, match=r"module must be a function of \(n_classes, row_shape\)"):
        ModuleTeacher(module=module)


def test_settings_that_cannot_be_named_are_refused():
    with pytest.raises(InputError, match="argument hidden must be a plain value"):
        ModuleTeacher(module=partial(mlp, hidden=np.array([3])))
    for wrong, message in (
        ({"device": "tpu"}, "device must be .*'tpu'"),
        ({"chunk": 0}, "chunk"),
        ({"stacked": "yes"}, "stacked must be .*'yes'"),
        ({"recipe": {}}, "ModuleRecipe, got dict"),
    ):
        with pytest.raises(InputError, match=message):
            ModuleTeacher(**{"module": mlp, **wrong})


def test_rows_that_do_not_fit_are_refused():
    rows = X.reshape(200, 64)
    with pytest.raises(InputError, match=r"shift and flip need images .*, got rows of shape \(64,\)"):
        fit(replace(MODULES, module=mlp), [(rows, Y)], ids=[0])
    with pytest.raises(InputError, match="one shape and dtype"):
        fit(MODULES, [(X, Y), (X / 255, Y)], ids=[0, 1])
    with pytest.raises(InputError, match="real numbers, got dtype <U1"):
        fit(MODULES, [(np.full((4, 8, 8), "a"), Y[:4])], ids=[0])
    models = fit(BRIEF["alone"])
    with pytest.raises(InputError, match=r"Each row must be uint8 of shape \(8, 8\), got float64"):
        MODULES.predict(models, X / 255)
    with pytest.raises(InputError, match=r"got uint8 of \(64,\)"):
        MODULES.predict(models, rows)


@pytest.mark.parametrize("way", WAYS)
def test_progress_rises_to_one(way):
    seen: list[float] = []
    WAYS[way].fit(SHARES, ids=range(3), n_classes=4, seed=0, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert len(seen) == (9 if way == "alone" else 3)


def test_without_torch_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'terrine\[torch\]'"):
        fit(MODULES)
