"""Linear models on the battery's features by noisy sums: the probe by its rule, the same descent tuned, and DP-SGD.

Cells are as those of `battery.py`. The probe's steps are computed in ordinary floats here, on a GPU where there is one;
the library's whole numbers differ from them by rounding. The noise is seeded, and nothing here is private, but for
`secure`: one fit a task by `fit_probe` itself, with a ledger.
Tuned: steps, rate and clip chosen from a grid for each task, epsilon and relation by labels of public rows (IMDB: of
1,000 test rows that are not scored), at no charge. The probe's rule sees no label.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import battery_sgd
import numpy as np
import torch
from battery import COMPARED_WITH, Battery, Rows, auc, balanced, n_teachers
from battery_sgd import Schedule
from numpy.typing import NDArray
from scipy.optimize import minimize

from terrine import Ledger
from terrine.features import AutoFeatures
from terrine.features.auto import QUANTILES
from terrine.probe import ProbeRows, ProbeSettings, components_by_rule, fit_probe, public_scale
from terrine.probe.exact import LATTICE_BITS
from terrine.relations import Relation
from terrine.students import linear_on_features
from terrine.students.lessons import SEEDED, Lessons

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WAYS, CLIPS = (0.3, 1.0, 3.0), (0.2, 1.0)  # steps x rate, times the rule's, and clips, to choose from
TUNING_SEED = 100
BLOCK = 2048 if DEVICE == "cpu" else 65_536  # rows
KNOWN = 1000  # labeled public rows by which a student of the probe is chosen


class Descending:
    """Private rows with the constant, and the sum of their clipped gradients.

    Of a unit with several rows the mean gradient is clipped; its length is from all pairs of its rows.
    """

    def __init__(self, X: Rows, y: NDArray[np.int64], unit: Any, *, scale: float, n_classes: int) -> None:
        self.rows = torch.tensor(with_constant(X, scale), device=DEVICE)
        self._y, self._n_classes = torch.tensor(y, device=DEVICE), n_classes
        self._squares = self.rows.square().sum(1)
        self.n_units, self._unit = len(y), None
        if unit is not None:
            _, of, counts = np.unique(unit, return_inverse=True, return_counts=True)
            self.n_units, self._unit = len(counts), torch.tensor(of, device=DEVICE)
            self._each = torch.tensor(counts[of].astype(np.float32), device=DEVICE)[:, None]
            order, found = np.argsort(of, kind="stable"), [np.zeros((2, 0), dtype=np.int64)]
            for apart in range(1, int(counts.max())):
                same = np.flatnonzero(of[order[apart:]] == of[order[:-apart]])
                found.append(np.stack([order[same], order[same + apart]]))
            self._one, self._other = torch.tensor(np.concatenate(found, axis=1), device=DEVICE)
            self._products = torch.cat(
                [
                    (self.rows[one] * self.rows[other]).sum(1)
                    for one, other in zip(self._one.split(BLOCK), self._other.split(BLOCK), strict=True)
                ]
            )

    def total(self, weights: Any, clip: float) -> Any:
        """Of all units, (n_features + 1, n_classes)."""
        if self._unit is None:
            found = torch.zeros_like(weights)
            for rows, y, squares in self._blocks():
                left = _left(rows, y, weights)
                left *= (clip / (left.square().sum(1) * squares).sqrt().clamp_min(1e-9)).clamp_max(1.0)[:, None]
                found += rows.T @ left
            return found
        left = torch.cat([_left(rows, y, weights) for rows, y, _ in self._blocks()]) / self._each
        square = torch.zeros(self.n_units, device=DEVICE)
        square.index_add_(0, self._unit, left.square().sum(1) * self._squares)
        pairs = self._products * (left[self._one] * left[self._other]).sum(1)
        square.index_add_(0, self._unit[self._one], 2 * pairs)
        shorter = (clip / square.clamp_min(1e-18).sqrt()).clamp_max(1.0)
        return self.rows.T @ (left * shorter[self._unit][:, None])

    def loss(self, weights: Any, ridge: float) -> tuple[float, NDArray[np.float64]]:
        """Cross-entropy plus ridge, and its gradient."""
        found, off = torch.zeros_like(weights), 0.0
        for rows, y, _ in self._blocks():
            left = _left(rows, y, weights)
            off -= float((left[torch.arange(len(left)), y] + 1).clamp_min(1e-30).log().sum())
            found += rows.T @ left
        loss = off / len(self._y) + ridge * float(weights.square().sum())
        return loss, (found / len(self._y) + 2 * ridge * weights).flatten().double().cpu().numpy()

    def _blocks(self) -> Any:
        return zip(self.rows.split(BLOCK), self._y.split(BLOCK), self._squares.split(BLOCK), strict=True)


def _left(rows: Any, y: Any, weights: Any) -> Any:
    """Probability less label."""
    found = (rows @ weights).softmax(1)
    found[torch.arange(len(found), device=DEVICE), y] -= 1
    return found


def with_constant(X: Rows, scale: float) -> Rows:
    return np.concatenate([X * np.float32(scale), np.full((len(X), 1), 0.5, dtype=np.float32)], axis=1)


def descend(rows: Descending, settings: ProbeSettings, *, noise: float, seed: int) -> Rows:
    """Weights after the library's steps, in floats; ``noise`` is its deviation in a sum's coordinate."""
    rng = np.random.default_rng(seed)
    weights = torch.zeros((settings.n_features + 1, settings.n_classes), device=DEVICE)
    speed, total = torch.zeros_like(weights), torch.zeros_like(weights)
    for step in range(1, settings.steps + 1):
        drawn = torch.tensor(rng.standard_normal(tuple(weights.shape), dtype=np.float32), device=DEVICE)
        speed = settings.momentum * speed + (rows.total(weights, settings.clip) + noise * drawn) / rows.n_units
        weights = weights - settings.rate / settings.clip * speed
        if step > settings.steps // 2:
            total += weights
    made: Rows = (total / (settings.steps - settings.steps // 2)).cpu().numpy()
    return made


@dataclasses.dataclass(frozen=True)
class Linear:
    """A battery's task as a linear model sees it."""

    battery: Battery

    @property
    def seed(self) -> int:
        return self.battery.seed

    @cached_property
    def planned(self) -> int:
        data = self.battery.data
        return len(data.y) if data.unit is None else len(np.unique(data.unit))

    def facts(self) -> dict[str, Any]:
        """Public numbers of the task, which choose a route."""
        data = self.battery.data
        return {
            "task": self.battery.name,
            "kind": "facts",
            "planned_units": self.planned,
            "delta": data.delta,
            "n_classes": data.n_classes,
            "n_features": self.battery.features().n_features,
            "n_public": len(data.public),
            "n_teachers": n_teachers(data),
            "parts": list(self.battery.features().parts),
        }

    def numbers(self, epsilon: float, relation: str) -> dict[str, Any]:
        delta = self.battery.data.delta
        return {"epsilon": epsilon, "delta": delta, "planned_units": self.planned, "relation": Relation[relation]}

    def by_rule(self, epsilon: float, relation: str) -> ProbeSettings:
        plan = self.numbers(epsilon, relation)
        public = self.cut(self.battery.seen("public"), self.each(components_by_rule(**plan)))
        given = {"n_features": public.shape[1], "n_classes": self.battery.data.n_classes, **plan}
        return ProbeSettings.by_rule(scale=public_scale(public), **given)

    def each(self, most: int) -> int | None:
        """Components of each set of features that make so many in all; a table's columns are all kept: they are not
        ordered by size, as components are."""
        parts = self.battery.features().parts
        return None if parts == (QUANTILES,) else -(-most // len(parts))

    def cut(self, rows: Rows, each: int | None) -> Rows:
        """The largest components of each set."""
        parts = self.battery.features().parts
        if each is None:
            return rows
        sets = np.array_split(rows, len(parts), axis=1)  # all have as many
        return np.concatenate([one[:, :each] for one in sets], axis=1)

    def kept(self, rows: Rows, settings: ProbeSettings) -> Rows:
        """The features that these settings are for."""
        return self.cut(rows, settings.n_features // len(self.battery.features().parts))

    def rows(self, settings: ProbeSettings) -> Descending:
        data, private = self.battery.data, self.kept(self.battery.seen("private"), settings)
        return Descending(private, data.y, data.unit, scale=settings.scale, n_classes=data.n_classes)

    def fitted(self, settings: ProbeSettings, epsilon: float, relation: str, seed: int) -> Rows:
        budget = settings.budget(**self.numbers(epsilon, relation))
        return descend(self.rows(settings), settings, noise=budget.noise / 2**LATTICE_BITS, seed=seed)

    def logits(self, X: Rows, weights: Any, settings: ProbeSettings) -> NDArray[np.float32]:
        found: NDArray[np.float32] = with_constant(self.kept(X, settings), settings.scale) @ weights
        return found

    def scored(self, see: Callable[[Rows], NDArray[np.float32]]) -> dict[str, Any]:
        """Of what gives logits for features."""
        data = self.battery.data
        X, y = self.battery.scored()
        logits = see(X)
        guesses = logits.argmax(axis=1)
        found = {"accuracy": float((guesses == y).mean()), "balanced": balanced(guesses, y)}
        if data.n_classes == 2:
            found["auc"] = auc(logits[:, 1] - logits[:, 0], y)
        if data.public_y is not None:
            found["on_public"] = float((see(self.battery.seen("public")).argmax(axis=1) == data.public_y).mean())
        return found

    def probe(self, epsilon: float, relation: str) -> dict[str, Any]:
        settings = self.by_rule(epsilon, relation)
        return self._told("probe", epsilon, relation, settings, self.fitted(settings, epsilon, relation, self.seed))

    def tuned(self, epsilon: float, relation: str) -> dict[str, Any]:
        rule = self.by_rule(epsilon, relation)
        X, y = self.battery.labelled()
        tried = []
        for way in WAYS:
            for clip in CLIPS:
                longer, root = dataclasses.replace(rule, clip=clip), math.sqrt(way)
                one = dataclasses.replace(longer, steps=max(round(rule.steps * root), 1), rate=rule.rate * root)
                weights = self.fitted(one, epsilon, relation, TUNING_SEED)
                tried.append((float((self.logits(X, weights, one).argmax(axis=1) == y).mean()), way, clip, one))
        best = max(tried, key=lambda found: found[0])[-1]
        made = self.fitted(best, epsilon, relation, self.seed)
        compared = [[way, clip, right] for right, way, clip, _ in tried]
        return {**self._told("tuned", epsilon, relation, best, made), "compared": compared}

    def student(self, epsilon: float, relation: str) -> dict[str, Any]:
        """The probe, or a student of its labels of all public rows: chosen as a run does, by labeled public rows."""
        settings, battery = self.by_rule(epsilon, relation), self.battery
        weights, truth = self.fitted(settings, epsilon, relation, self.seed), battery.data.public_y
        assert truth is not None  # without a labeled public row the student is the probe itself
        logits = self.logits(battery.seen("public"), weights, settings)
        known = np.random.default_rng([self.seed, 2]).permutation(len(truth))[:KNOWN]
        judged = np.full(len(truth), -1, dtype=np.int64)
        judged[known] = truth[known]

        def own(features: AutoFeatures, public: Rows, classes: list[str]) -> Any:
            widened = self.widened(weights, settings)
            given = Lessons(public, np.arange(len(public)), logits.argmax(axis=1), tuple(classes), SEEDED)
            return linear_on_features(
                features, widened[:-1] * settings.scale, widened[-1] / 2, given, seed=self.seed, settings={}
            )

        found = battery.taught(logits.argmax(axis=1), own=own, truth=judged)
        kind = "student-nets" if battery.nets else "student"
        return {**self._about(kind, epsilon, relation, settings), "labelled": len(known), **found}

    def widened(self, weights: Rows, settings: ProbeSettings) -> NDArray[np.float64]:
        """Weights for all features, 0 for those that the probe does without."""
        parts, n = len(self.battery.features().parts), self.battery.features().n_features
        if settings.n_features == n:
            return weights.astype(np.float64)
        each = settings.n_features // parts
        places = np.concatenate([place[:each] for place in np.array_split(np.arange(n), parts)])
        found = np.zeros((n + 1, weights.shape[1]))
        found[places], found[-1] = weights[:-1], weights[-1]
        return found

    def _told(self, kind: str, epsilon: float, relation: str, settings: ProbeSettings, weights: Rows) -> dict[str, Any]:
        scores = self.scored(lambda X: self.logits(X, weights, settings))
        return {**self._about(kind, epsilon, relation, settings), **scores}

    def _about(self, kind: str, epsilon: float, relation: str, settings: ProbeSettings) -> dict[str, Any]:
        found = {"task": self.battery.name, "kind": kind, "epsilon": epsilon, "relation": relation, "seed": self.seed}
        found |= {"parts": list(self.battery.features().parts), "components": settings.n_features}
        return {**found, "steps": settings.steps, "rate": settings.rate, "clip": settings.clip}

    def sgd(self, epsilon: float) -> dict[str, Any]:
        """Poisson samples of rows, clip 1, momentum 0.9: a row added or removed, by noise from Opacus' accountant."""
        data, rule = self.battery.data, self.by_rule(epsilon, "UNIT_ADDED")
        X = torch.tensor(self.kept(self.battery.seen("private"), rule) * np.float32(rule.scale), device=DEVICE)
        y = torch.tensor(data.y, device=DEVICE)
        noises = json.loads((self.battery.out / battery_sgd.TABLE).read_text())

        def taught(schedule: Schedule, seed: int) -> Callable[[Rows], NDArray[np.float32]]:
            noise = noises[battery_sgd.key(len(y), schedule, epsilon, data.delta)]
            made = battery_sgd.weights(X, y, schedule, n_classes=data.n_classes, noise=noise, seed=seed).cpu().numpy()

            def see(rows: Rows) -> NDArray[np.float32]:
                logits: NDArray[np.float32] = self.kept(rows, rule) * np.float32(rule.scale) @ made[:-1] + made[-1]
                return logits

            return see

        return self._by_schedule("sgd", epsilon, taught)

    def opacus(self, epsilon: float) -> dict[str, Any]:
        """The same by Opacus itself."""
        from dpsgd import Learner, train

        data, rule = self.battery.data, self.by_rule(epsilon, "UNIT_ADDED")
        X = torch.tensor(self.kept(self.battery.seen("private"), rule) * np.float32(rule.scale), device=DEVICE)
        y = torch.tensor(data.y, device=DEVICE)

        def taught(schedule: Schedule, seed: int) -> Callable[[Rows], NDArray[np.float32]]:
            learner = Learner(inputs="the same", hidden=0, schedules=(), plain=schedule)
            given: dict[str, Any] = {"n_classes": data.n_classes, "epsilon": epsilon, "delta": data.delta}
            network, _ = train(X, y, learner, schedule, seed=seed, **given)

            def see(rows: Rows) -> NDArray[np.float32]:
                with torch.no_grad():
                    seen = torch.tensor(self.kept(rows, rule) * np.float32(rule.scale), device=DEVICE)
                    logits: NDArray[np.float32] = network(seen).cpu().numpy()
                return logits

            return see

        return self._by_schedule("opacus", epsilon, taught)

    def _by_schedule(
        self, kind: str, epsilon: float, taught: Callable[[Schedule, int], Callable[[Rows], NDArray[np.float32]]]
    ) -> dict[str, Any]:
        """With the schedule that labels choose."""
        known, truth = self.battery.labelled()
        tried = [
            (float((taught(schedule, TUNING_SEED)(known).argmax(axis=1) == truth).mean()), schedule)
            for schedule in battery_sgd.SCHEDULES
        ]
        best = max(tried, key=lambda found: found[0])[1]
        return {
            "task": self.battery.name,
            "kind": kind,
            "epsilon": epsilon,
            "relation": "UNIT_ADDED",
            "parts": list(self.battery.features().parts),
            "schedule": dataclasses.asdict(best),
            "compared": [[dataclasses.asdict(schedule), right] for right, schedule in tried],
            "seed": self.seed,
            **self.scored(taught(best, self.seed)),
        }

    def secure(self, epsilon: float) -> dict[str, Any]:
        """By the library, with a ledger and OpenDP's noise: this one is private as it says, were the data so."""
        data, start = self.battery.data, time.perf_counter()
        relation = "ROW_ADDED" if data.unit is None else "UNIT_ADDED"
        settings = self.by_rule(epsilon, relation).measuring()
        private = self.kept(self.battery.seen("private"), settings)
        rows = ProbeRows(private, data.y, data.unit, n_classes=data.n_classes)
        plan = self.numbers(epsilon, relation)
        with tempfile.TemporaryDirectory() as folder:
            ledger = Ledger(Path(folder) / "probe.sqlite", budget=settings.budget(**plan))
            made = fit_probe(rows, settings=settings, ledger=ledger)
        assert made.guarantee is not None
        assert made.measured is not None
        weights = made.weights.astype(np.float32)
        return {
            "task": self.battery.name,
            "kind": "secure",
            "epsilon": epsilon,
            "relation": relation,
            "seed": self.seed,
            "parts": list(self.battery.features().parts),
            "guarantee": made.guarantee.to_json(),
            "measured": made.measured.accuracy,
            "interval": made.measured.interval,
            "seconds": time.perf_counter() - start,
            **self.scored(lambda X: self.logits(X, weights, settings)),
        }

    def without_privacy(self) -> dict[str, Any]:
        """Logistic regression on the same features and all private rows, its ridge chosen by the same labels."""
        data, public = self.battery.data, self.battery.seen("public")
        settings = ProbeSettings(
            n_features=public.shape[1], n_classes=data.n_classes, scale=public_scale(public), clip=2.0
        )
        rows, (X, y) = self.rows(settings), self.battery.labelled()
        shape = (settings.n_features + 1, data.n_classes)
        best, found, start = -1.0, {}, np.zeros(shape).ravel()
        for ridge in COMPARED_WITH:  # each from where the last one ended

            def off(flat: NDArray[np.float64], ridge: float = ridge) -> tuple[float, NDArray[np.float64]]:
                return rows.loss(torch.tensor(flat.reshape(shape).astype(np.float32), device=DEVICE), ridge)

            start = minimize(off, start, jac=True, method="L-BFGS-B", options={"maxiter": 60}).x
            now = start.reshape(shape).astype(np.float32)
            right = float((self.logits(X, now, settings).argmax(axis=1) == y).mean())
            if right > best:
                best = right
                found = {"ridge": ridge, **self.scored(lambda X, w=now: self.logits(X, w, settings))}
        parts = list(self.battery.features().parts)
        return {"task": self.battery.name, "kind": "linear", "seed": self.seed, "parts": parts, **found}
