"""DP-SGD at the same (ε, δ): what a user would pick instead of teachers, on MNIST and UCI Adult.

Run: python experiments/dpsgd.py --features FEATURES.npz
         (needs mnist/ and adult/ under $TERRINE_DATA, Opacus, and features of MNIST's images that were learned from its
         public ones, which benchmarks/features_gpu.py writes; 15 minutes on a busy core)
     python experiments/dpsgd.py --page   (trains nothing: PATE's results as they are now, beside those that are kept)
Writes docs/results/dpsgd.md and .json. Schedules are chosen on the labels of the public rows with seeds of their own,
nothing is chosen on the test rows. Noise and sampling are seeded to be repeated: such models are not private.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import torch
from dp_accounting.pld import PLDAccountant
from numpy.typing import NDArray
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from provenance import record
from recipes import adult_teacher
from tables import RESULTS as OUT
from tables import markdown, percent, spread, up
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from terrine.accounting.curves import round_up
from terrine.datasets import Task as Data
from terrine.datasets import load
from terrine.features.edges import edges
from terrine.partitioning import partition

DELTA = 1e-5
CLIP = 1.0  # the longest gradient of one row
MOMENTUM = 0.9
LEARNED = "features of public images"
ERROR = 0.002  # of ε, in Opacus' accountant and in the search for the noise
ADDED, REPLACED = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, dp_accounting.NeighboringRelation.REPLACE_ONE


@dataclass(frozen=True, kw_only=True)
class Schedule:
    batch: int  # rows in a step, expected
    epochs: int
    rate: float  # of learning


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A network on some features, the schedules to choose from, and the one it has without privacy."""

    inputs: str
    hidden: int  # units of a tanh layer; 0: a linear model
    schedules: tuple[Schedule, ...]
    plain: Schedule

    def network(self, n_inputs: int, n_classes: int) -> nn.Module:
        if not self.hidden:
            return nn.Linear(n_inputs, n_classes)
        return nn.Sequential(nn.Linear(n_inputs, self.hidden), nn.Tanh(), nn.Linear(self.hidden, n_classes))

    @property
    def name(self) -> str:
        return f"{self.hidden} tanh units on {self.inputs}" if self.hidden else f"linear on {self.inputs}"


@dataclass(frozen=True, kw_only=True)
class Task:
    data: str
    epsilons: tuple[float, ...]
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    learners: tuple[Learner, ...]


LONG = Schedule(batch=4096, epochs=40, rate=2.0)
SHORT = (Schedule(batch=1024, epochs=5, rate=2.0), Schedule(batch=4096, epochs=20, rate=2.0))
FAST = (Schedule(batch=4096, epochs=5, rate=10.0), Schedule(batch=4096, epochs=20, rate=4.0))
GENTLE = (Schedule(batch=1024, epochs=5, rate=1.0), Schedule(batch=4096, epochs=20, rate=1.0))
DIGITS, PEOPLE = Schedule(batch=256, epochs=15, rate=0.2), Schedule(batch=256, epochs=10, rate=0.05)
TASKS = (
    Task(
        data="mnist",
        epsilons=(0.05, 0.1, 0.3, 1.0, 2.0),
        seeds=(0, 1, 2),
        tuning_seeds=(100,),
        learners=(
            Learner(
                inputs="edges", hidden=0, schedules=(Schedule(batch=4096, epochs=20, rate=1.0), LONG), plain=DIGITS
            ),
            Learner(
                inputs="edges",
                hidden=64,
                schedules=(Schedule(batch=4096, epochs=20, rate=0.5), Schedule(batch=4096, epochs=40, rate=1.0)),
                plain=DIGITS,
            ),
            Learner(inputs=LEARNED, hidden=0, schedules=FAST, plain=DIGITS),
        ),
    ),
    Task(
        data="adult",
        epsilons=(0.3, 0.9, 2.0),
        seeds=(0, 1, 2, 3, 4),
        tuning_seeds=(100, 101),
        learners=(
            Learner(inputs="encoded", hidden=0, schedules=SHORT, plain=PEOPLE),
            Learner(inputs="encoded", hidden=16, schedules=GENTLE, plain=PEOPLE),
            Learner(inputs="ramps", hidden=0, schedules=SHORT, plain=PEOPLE),
            Learner(inputs="ramps", hidden=16, schedules=GENTLE, plain=PEOPLE),
        ),
    ),
)


class Rows(Dataset[Any]):
    """Rows that are taken a batch at a time: Opacus' loader stays, its Python loop over rows goes."""

    def __init__(self, X: Tensor, y: Tensor) -> None:
        self.X, self.y = X, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.X[index], self.y[index]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        return self.X[indices], self.y[indices]


@cache
def noise_multiplier(*, epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    return float(
        get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=delta,
            sample_rate=sample_rate,
            steps=steps,
            accountant="prv",
            epsilon_tolerance=ERROR,
            eps_error=ERROR,
        )
    )


def train(
    X: Tensor,
    y: Tensor,
    learner: Learner,
    schedule: Schedule,
    *,
    n_classes: int,
    epsilon: float | None,
    delta: float,
    seed: int,
) -> tuple[nn.Module, dict[str, Any]]:
    """A network trained by DP-SGD (without privacy if epsilon is None), and what Opacus says that it cost."""
    torch.manual_seed(seed)
    network = learner.network(X.shape[1], n_classes).to(X.device)
    model, criterion = network, nn.CrossEntropyLoss()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=schedule.rate, momentum=MOMENTUM)
    loader: Any = DataLoader(Rows(X, y), batch_size=schedule.batch, shuffle=True, collate_fn=_as_it_is)
    steps = schedule.epochs * len(loader)
    sample_rate = 1 / len(loader)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus: no secure noise, which is so, for it is seeded; PyTorch: its hooks
        engine = PrivacyEngine(accountant="prv")
        if epsilon is not None:
            noise = noise_multiplier(epsilon=epsilon, delta=delta, sample_rate=sample_rate, steps=steps)
            # "ghost": lengths of gradients from a layer's inputs and outputs, the same clipping for less memory
            model, optimizer, criterion, loader = engine.make_private(
                module=model, optimizer=optimizer, criterion=criterion, data_loader=loader,
                noise_multiplier=noise, max_grad_norm=CLIP, poisson_sampling=True, grad_sample_mode="ghost",
            )  # fmt: skip
        for _ in range(schedule.epochs):
            for rows, labels in loader:
                optimizer.zero_grad()
                criterion(model(rows), labels).backward()
                optimizer.step()
        if epsilon is None:
            return network, {}
        ((noise, sample_rate, steps),) = engine.accountant.history
        spent = engine.accountant.get_epsilon(delta=delta, eps_error=ERROR)
    return network, {"noise": noise, "sample_rate": sample_rate, "steps": steps, "epsilon_opacus": float(spent)}


def _as_it_is(batch: Any) -> Any:
    return batch


def outside_epsilon(relation: Any, *, noise: float, sample_rate: float, steps: int, delta: float) -> float:
    """dp-accounting's ε of this number of steps, by privacy loss distributions."""
    accountant = PLDAccountant(relation)
    step = dp_accounting.PoissonSampledDpEvent(sample_rate, dp_accounting.GaussianDpEvent(noise))
    return float(accountant.compose(step, steps).get_epsilon(delta))


def right(network: nn.Module, X: Tensor, y: NDArray[np.int64]) -> float:
    with torch.no_grad():
        return float((network(X).argmax(dim=1).numpy() == y).mean())


def features(data: Data, inputs: str, learned: Path | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(private, public, test) rows: every row a function of itself alone, fixed or learned from public rows."""
    rows = (data.private.X, data.public.X, data.test_X)
    match inputs:
        case name if name == LEARNED and learned is not None:
            with np.load(learned) as arrays:
                found = [arrays[part] for part in ("private", "public", "test")]
        case "edges":
            found = [edges(part) for part in rows]
        case "ramps":
            # All it would learn is the number of columns: a public row tells it
            ramps = adult_teacher().estimator[0].fit(data.public.X[:1])
            found = [ramps.transform(part) for part in rows]
        case _:
            found = list(rows)
    private, public, test = (torch.tensor(np.asarray(part, dtype=np.float32)) for part in found)
    return private, public, test


def measure(task: Task, data: Data, learned: Path) -> list[dict[str, Any]]:
    """Every learner at every ε, its schedule chosen on public rows, and without privacy (ε None)."""
    y = torch.tensor(np.asarray(data.private.y, dtype=np.int64))
    tables = {inputs: features(data, inputs, learned) for inputs in {learner.inputs: None for learner in task.learners}}
    rows = []
    for learner in task.learners:
        private, public, test = tables[learner.inputs]
        for epsilon in (*task.epsilons, None):
            to_learn = partial(train, private, y, learner, n_classes=len(data.classes), epsilon=epsilon, delta=DELTA)
            tuning = []
            for schedule in learner.schedules if epsilon is not None else ():
                scores = [right(to_learn(schedule, seed=seed)[0], public, data.public_y) for seed in task.tuning_seeds]
                tuning.append({"schedule": schedule, "public_accuracy": float(np.mean(scores))})
            schedule = max(tuning, key=lambda t: t["public_accuracy"])["schedule"] if tuning else learner.plain
            taught = [to_learn(schedule, seed=seed) for seed in task.seeds]
            network, spent = taught[0]  # all spend the same
            if spent:
                steps = {name: spent[name] for name in ("noise", "sample_rate", "steps")}
                spent["epsilon_outside"] = outside_epsilon(ADDED, **steps, delta=DELTA)
                spent["epsilon_replaced"] = outside_epsilon(REPLACED, **steps, delta=DELTA)
            row = {
                "learner": learner.name,
                "parameters": sum(p.numel() for p in network.parameters()),
                "epsilon": epsilon,
                "schedule": asdict(schedule),
                **spent,
                "accuracy": spread([right(network, test, data.test_y) for network, _ in taught]),
                "tuning": [t | {"schedule": asdict(t["schedule"])} for t in tuning],
            }
            rows.append(row)
            print(f"{task.data}, {learner.name}, ε = {epsilon}: {percent(row['accuracy'], interval=False)}", flush=True)
    return rows


def pate(data: str) -> list[dict[str, Any]]:
    """Students of docs/results whose noise was chosen without votes, each the learner that was best on public rows."""
    facts = json.loads((OUT / f"{data}_students.json").read_text())
    found = []
    for setting in facts["settings"]:
        if "plan" not in setting["chosen"]:
            continue
        if "students" in setting:  # Adult: chosen on public rows of their own
            name = setting["setting"]
            best = max(setting["students"], key=lambda student: np.mean(list(facts["tuning"][student].values())))
            student, epsilon, public = setting["students"][best]["answers"], setting["publishable_epsilon"], None
        else:
            name = setting["name"]
            row = max((r for r in facts["table"] if r["setting"] == name), key=lambda r: r["accuracy_public"])
            best, student, epsilon = row["learner"], row["student"], row["publishable_epsilon"]
            public = row["accuracy_public"]
        accuracy = {key: student[key] for key in ("mean", "deviation")}
        found.append({"name": f"{best}, {name}", "epsilon": epsilon, "accuracy": accuracy, "public": public})
    return found


def beside(students: list[dict[str, Any]], epsilon: float) -> str:
    """The student with the largest worst-case ε that is no larger; of several the best on public rows, not on test."""
    fit = [s for s in students if s["epsilon"] <= epsilon]
    if not fit:
        return "–"
    last = max(fit, key=lambda s: (s["epsilon"], s["public"] or 0.0))
    return f"{percent(last['accuracy'], interval=False)} (ε = {up(last['epsilon'])})"


def on_public(row: dict[str, Any]) -> float:
    """The accuracy on public rows that its schedule was chosen for."""
    return max(tried["public_accuracy"] for tried in row["tuning"])


def best_learners(task: dict[str, Any]) -> list[dict[str, Any]]:
    """For every ε the learner that was best on public rows: test rows choose nothing."""
    rows = [row for row in task["rows"] if row["epsilon"] is not None]
    return [max((r for r in rows if r["epsilon"] == e), key=on_public) for e in {r["epsilon"]: None for r in rows}]


def results_table(task: dict[str, Any]) -> str:
    with_pate = bool(task["pate"])
    header = ["learner", "parameters", "ε, a row added or removed", "ε, a row replaced", "accuracy ± deviation",
              "without privacy"]  # fmt: skip
    lines = [[*header, "PATE, a row replaced"] if with_pate else header]
    plain = {row["learner"]: row["accuracy"] for row in task["rows"] if row["epsilon"] is None}
    for row in task["rows"]:
        if row["epsilon"] is None:
            continue
        line = [
            row["learner"],
            f"{row['parameters']:,}",
            f"**{up(row['epsilon_opacus'])}**",
            up(row["epsilon_replaced"]),
            percent(row["accuracy"], interval=False),
            percent(plain[row["learner"]], interval=False),
        ]
        lines.append([*line, beside(task["pate"], row["epsilon_replaced"])] if with_pate else line)
    return markdown(lines[0], lines[1:])


def schedules_table(facts: dict[str, Any]) -> str:
    lines = [["data", "learner", "ε", "batch, epochs, rate", "on public rows", "chosen", "noise", "steps",
              "ε by Opacus", "ε by dp-accounting"]]  # fmt: skip
    for task in facts["tasks"]:
        for row in task["rows"]:
            for tried in row["tuning"]:
                chosen = tried["schedule"] == row["schedule"]
                batch, epochs, rate = tried["schedule"].values()
                costs = [f"{row['noise']:.3f}", f"{row['steps']:,}", round_up(row["epsilon_opacus"], 4),
                         round_up(row["epsilon_outside"], 4)]  # fmt: skip
                lines.append(
                    [task["data"], row["learner"], f"{row['epsilon']}", f"{batch:,}, {epochs}, {rate:g}",
                     f"{tried['public_accuracy']:.2%}", "yes" if chosen else "", *(costs if chosen else [""] * 4)]
                )  # fmt: skip
    return markdown(lines[0], lines[1:])


def reading(facts: dict[str, Any]) -> str:
    """One sentence for each task, from its own numbers."""
    said = []
    for task in facts["tasks"]:
        best = best_learners(task)
        numbers = (f"{r['accuracy']['mean']:.1%} at ε = {r['epsilon']} ({r['learner']})" for r in best)
        lines = [f"- **{task['data']}**, a row added or removed: DP-SGD is right on {', '.join(numbers)}."]
        # Compared under one relation, PATE's; each with what is nearest, if that is near
        for row in best if task["pate"] else ():
            epsilon = row["epsilon_replaced"]
            near = min(task["pate"], key=lambda s: (abs(np.log(s["epsilon"] / epsilon)), -(s["public"] or 0.0)))
            if max(near["epsilon"], epsilon) < 1.5 * min(near["epsilon"], epsilon):
                ours, theirs = percent(row["accuracy"], interval=False), percent(near["accuracy"], interval=False)
                public = (
                    ""
                    if near["public"] is None
                    else f" (on public rows {on_public(row):.2%}, of one run, and {near['public']:.2%})"
                )
                lines.append(
                    f"With a row replaced: DP-SGD {ours} at ε = {up(epsilon)}, PATE's student {theirs} at "
                    f"{up(near['epsilon'])}{public}."
                )
        said.append("\n  ".join(lines))
    return "\n".join(said)


PAGE = """# DP-SGD at the same ε

DP-SGD is the usual alternative to PATE: one network, trained on the private rows themselves with clipped gradients and
noise ([Opacus]{opacus}, Poisson sampling, its PRV accountant), δ = {delta:g}.

{reading}

The learner named is the one that was best on public rows.

```
python experiments/dpsgd.py --features FEATURES.npz
```

{results}

**Neighbours.** Opacus: *{added}*.
PATE on these data, which have no person ids: *{replaced}*.
To replace a row is to remove one and add one. The second ε is for the same training under PATE's neighbouring relation,
by dp-accounting: compare this one with PATE's ε. With person ids, hashed shares protect a person who is added, removed
or changed.

**Which to prefer.**

- DP-SGD needs no hundreds of teachers and no public rows (here its settings were chosen on public rows, and MNIST's
  features learned from them). If a small differentiable model on good features is enough, as on Adult, and you want one
  model only, start with DP-SGD.
- PATE needs public unlabeled rows of the same kind. Any learner can be a teacher, trees and black boxes included, and
  several owners can take part without pooling their rows. PATE can answer questions as a service. The student is any
  model of any size; once answers are paid for, you can train as many students on them as you like.

**How settings were chosen.** All settings of DP-SGD were chosen on the true labels of public rows ({n_tuning}), which
costs no ε; choosing on private rows would. The two schedules of each learner were kept from a wider search on the same
public rows and seeds, which the command does not repeat: 39 settings of linear models on Adult; 24 runs on edges and
other inputs of MNIST; 18 on features of public images. Five of the 24 used scattering features with a wrong
normalization, and one was a convolutional net with five epochs, so they say nothing against these two. The schedules of
tanh units on Adult are a guess. PATE's features, teachers, number of questions and students were chosen on the same
labels, its noise without votes.

**Features of public images.** The last learner on MNIST has the same features as PATE's teachers and student there;
they were learned from the 9,000 public images without labels. For both methods the features do most of the work, so
compare PATE with this learner.

Test rows: {tests}.
With 1,000 images an accuracy of 98% has a standard error of 0.4 points, which is not part of the spread: the learners
on MNIST can hardly be told apart. The spread is over {seeds} of noise, sampling and initial weights.
*Without privacy*: the same network and optimizer without clipping and noise, on one schedule that was not tuned, so it
is not an upper limit. Gradients are clipped at {clip:g}, momentum is {momentum:g}. The noise is seeded so that the
experiment can be repeated: these models are not private. ε rounds up.

The schedules that the command tried, on the labels of the public rows, seeds {tuning}; each row of the tables above has
one *yes*:

{schedules}
"""


def page(facts: dict[str, Any]) -> str:
    tasks = facts["tasks"]
    return PAGE.format(
        opacus=f"(https://opacus.ai) {facts['opacus']}",
        delta=facts["delta"],
        reading=reading(facts),
        results="\n\n".join(f"**{t['data']}**\n\n{results_table(t)}" for t in tasks),
        added=facts["relation"],
        replaced=tasks[0]["relation"],
        n_tuning=" and ".join(f"{t['n_public']:,}" for t in tasks),
        tests=", ".join(f"{t['n_test']:,} of {t['data']}" for t in tasks),
        seeds=" and ".join(f"{len(t['seeds'])} seeds ({t['data']})" for t in tasks),
        clip=CLIP,
        momentum=MOMENTUM,
        tuning=", ".join(f"{'–'.join(str(s) for s in t['tuning_seeds'])} ({t['data']})" for t in tasks),
        schedules=schedules_table(facts),
    )


def measured(learned: Path) -> dict[str, Any]:
    start, tasks = time.perf_counter(), []
    for task in TASKS:
        data = load(task.data)
        shares = partition(data.private, n_teachers=250, method="hashed", key=bytes(32))
        tasks.append(
            {
                "data": task.data,
                "n_private": len(data.private.y),
                "n_public": len(data.public_y),
                "n_test": len(data.test_y),
                "seeds": list(task.seeds),
                "tuning_seeds": list(task.tuning_seeds),
                "relation": shares.relation.sentence,
                "rows": measure(task, data, learned),
            }
        )
    return {
        "opacus": version("opacus"),
        "delta": DELTA,
        "relation": "one row is added or removed",
        "seconds": time.perf_counter() - start,
        "tasks": tasks,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="DP-SGD at the same epsilon and delta")
    parser.add_argument("--page", action="store_true", help="train nothing: write the page again from the JSON")
    parser.add_argument("--features", type=Path, help="of MNIST's images, by benchmarks/features_gpu.py")
    given = parser.parse_args()
    if given.page == (given.features is not None):
        parser.error("expected either --page or --features")
    torch.set_num_threads(1)
    facts = json.loads((OUT / "dpsgd.json").read_text()) if given.page else measured(given.features)
    for task in facts["tasks"]:
        task["pate"] = pate(task["data"])
    (OUT / "dpsgd.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    (OUT / "dpsgd.md").write_text(page(facts))
    if not given.page:
        record("dpsgd", "python experiments/dpsgd.py --features FEATURES.npz")
    print("\n\n".join(results_table(task) for task in facts["tasks"]))


if __name__ == "__main__":
    main()
