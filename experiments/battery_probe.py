"""Linear models on the battery's features by noisy sums: the probe by its rule, the same descent tuned, and Opacus.

Cells are as those of `battery.py`. The probe's steps are computed in ordinary floats here; the library's whole numbers
differ from them by rounding. The noise is seeded, and nothing here is private, but for `secure`: one fit a task by
`fit_probe` itself, with a ledger.
Tuned: steps, rate and clip chosen from a grid for each task, epsilon and relation by labels of public rows (IMDB: of
1,000 test rows that are not scored), at no charge. The probe's rule sees no label.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from battery import COMPARED_WITH, Battery, Rows, auc, balanced, n_teachers, replaced_seed
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from terrine import Ledger
from terrine.features.auto import QUANTILES
from terrine.probe import ProbeRows, ProbeSettings, components_by_rule, fit_probe, public_scale
from terrine.probe.exact import LATTICE_BITS
from terrine.relations import Relation

WAYS, CLIPS = (0.3, 1.0, 3.0), (0.2, 1.0)  # steps x rate, times the rule's, and clips, to choose from
TUNING_SEED = 100
BLOCK = 2048  # rows
# Opacus: rows in a step, epochs, rate; to choose from by the same labels
SCHEDULES = ((4096, 5, 10.0), (4096, 20, 4.0), (4096, 20, 16.0))


class Descending:
    """Private rows with the constant, and the sum of their clipped gradients, in blocks that a cache holds.

    Of a unit with several rows the mean gradient is clipped; its length is from all pairs of its rows.
    """

    def __init__(self, X: Rows, y: NDArray[np.int64], unit: Any, *, scale: float, n_classes: int) -> None:
        self.rows, self._y, self._n_classes = with_constant(X, scale), y, n_classes
        self._squares = np.einsum("ij,ij->i", self.rows, self.rows)
        self.n_units, self._unit = len(y), None
        if unit is not None:
            _, self._unit, counts = np.unique(unit, return_inverse=True, return_counts=True)
            self.n_units, self._each = len(counts), counts[self._unit].astype(np.float32)[:, None]
            order, found = np.argsort(self._unit, kind="stable"), [np.zeros((2, 0), dtype=np.int64)]
            for apart in range(1, int(counts.max())):
                same = np.flatnonzero(self._unit[order[apart:]] == self._unit[order[:-apart]])
                found.append(np.stack([order[same], order[same + apart]]))
            self._one, self._other = np.concatenate(found, axis=1)
            self._products = np.einsum("ij,ij->i", self.rows[self._one], self.rows[self._other])

    def total(self, weights: Rows, clip: float) -> Rows:
        found = np.zeros_like(weights)
        if self._unit is None:
            for start in range(0, len(self._y), BLOCK):
                at = slice(start, start + BLOCK)
                left = self._left(at, weights)
                length = np.sqrt(np.einsum("ij,ij->i", left, left) * self._squares[at])
                left *= np.minimum(clip / np.maximum(length, 1e-9), 1)[:, None]
                found += self.rows[at].T @ left
            return found
        blocks = [slice(start, start + BLOCK) for start in range(0, len(self._y), BLOCK)]
        left = np.concatenate([self._left(at, weights) for at in blocks]) / self._each
        square = np.bincount(self._unit, np.einsum("ij,ij->i", left, left) * self._squares, self.n_units)
        pairs = self._products * np.einsum("ij,ij->i", left[self._one], left[self._other])
        square += np.bincount(self._unit[self._one], 2 * pairs, self.n_units)
        shorter = np.minimum(clip / np.sqrt(np.maximum(square, 1e-18)), 1).astype(np.float32)
        left *= shorter[self._unit][:, None]
        for at in blocks:
            found += self.rows[at].T @ left[at]
        return found

    def loss(self, weights: Rows, ridge: float) -> tuple[float, NDArray[np.float64]]:
        """Cross-entropy plus ridge, and its gradient."""
        found, off = np.zeros_like(weights), 0.0
        for start in range(0, len(self._y), BLOCK):
            at = slice(start, start + BLOCK)
            left = self._left(at, weights)
            off -= float(np.log(np.maximum(left[np.arange(len(left)), self._y[at]] + 1, 1e-30)).sum())
            found += self.rows[at].T @ left
        loss = off / len(self._y) + ridge * float((weights**2).sum())
        return loss, (found / len(self._y) + 2 * ridge * weights).ravel().astype(np.float64)

    def _left(self, at: slice, weights: Rows) -> Rows:
        """Probability less label."""
        found = softmax(self.rows[at] @ weights, axis=1)
        found[np.arange(len(found)), self._y[at]] -= 1
        return np.asarray(found, dtype=np.float32)


def with_constant(X: Rows, scale: float) -> Rows:
    return np.concatenate([X * np.float32(scale), np.full((len(X), 1), 0.5, dtype=np.float32)], axis=1)


def descend(rows: Descending, settings: ProbeSettings, *, noise: float, seed: int) -> Rows:
    """Weights after the library's steps, in floats; ``noise`` is its deviation in a sum's coordinate."""
    rng = np.random.default_rng(seed)
    weights = np.zeros((settings.n_features + 1, settings.n_classes), dtype=np.float32)
    speed, total = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, settings.steps + 1):
        drawn = rng.standard_normal(weights.shape, dtype=np.float32)
        found = rows.total(weights, settings.clip) + np.float32(noise) * drawn
        speed = np.float32(settings.momentum) * speed + found / np.float32(rows.n_units)
        weights = weights - np.float32(settings.rate / settings.clip) * speed
        if step > settings.steps // 2:
            total += weights
    return total / np.float32(settings.steps - settings.steps // 2)


@dataclasses.dataclass(frozen=True)
class Linear:
    """A battery's task as a linear model sees it."""

    battery: Battery

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

    def fitted(self, settings: ProbeSettings, epsilon: float, relation: str, seeds: tuple[int, ...]) -> list[Any]:
        budget = settings.budget(**self.numbers(epsilon, relation))
        rows = self.rows(settings)
        return [descend(rows, settings, noise=budget.noise / 2**LATTICE_BITS, seed=seed) for seed in seeds]

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

    def probe(self, epsilon: float, relation: str, seeds: tuple[int, ...]) -> dict[str, Any]:
        settings = self.by_rule(epsilon, relation)
        made = self.fitted(settings, epsilon, relation, seeds)
        return self._told("probe", epsilon, relation, settings, made, seeds)

    def fits(self, epsilon: float, relation: str, seeds: tuple[int, ...]) -> dict[str, Any]:
        """The probe, each seed with features of its own."""
        found = [Linear(self.battery.fitted_again(seed)).probe(epsilon, relation, (seed,)) for seed in seeds]
        listed = {name: [one[name][0] for one in found] for name, value in found[0].items() if isinstance(value, list)}
        return {**found[0], **listed, "kind": "fits"}

    def tuned(self, epsilon: float, relation: str, seeds: tuple[int, ...]) -> dict[str, Any]:
        rule = self.by_rule(epsilon, relation)
        X, y = self.battery.labelled()
        tried = []
        for way in WAYS:
            for clip in CLIPS:
                longer, root = dataclasses.replace(rule, clip=clip), math.sqrt(way)
                one = dataclasses.replace(longer, steps=max(round(rule.steps * root), 1), rate=rule.rate * root)
                weights = self.fitted(one, epsilon, relation, (TUNING_SEED,))[0]
                tried.append((float((self.logits(X, weights, one).argmax(axis=1) == y).mean()), way, clip, one))
        best = max(tried, key=lambda found: found[0])[-1]
        made = self.fitted(best, epsilon, relation, seeds)
        compared = [[way, clip, right] for right, way, clip, _ in tried]
        return {**self._told("tuned", epsilon, relation, best, made, seeds), "compared": compared}

    def student(self, epsilon: float, relation: str, seeds: tuple[int, ...]) -> dict[str, Any]:
        """Taught by the probe's labels of all public rows, which cost nothing more."""
        settings, found = self.by_rule(epsilon, relation), []
        for seed, weights in zip(seeds, self.fitted(settings, epsilon, relation, seeds), strict=True):
            labels = self.logits(self.battery.seen("public"), weights, settings).argmax(axis=1)
            found.append({**replaced_seed(self.battery, seed).taught(labels), "seed": seed})
        told = {"task": self.battery.name, "kind": "student", "epsilon": epsilon, "relation": relation}
        return {**told, "seeds": list(seeds), "students": found}

    def _told(
        self, kind: str, epsilon: float, relation: str, settings: ProbeSettings, made: list[Any], seeds: tuple[int, ...]
    ) -> dict[str, Any]:
        scores = [self.scored(lambda X, w=weights: self.logits(X, w, settings)) for weights in made]
        return {
            "task": self.battery.name,
            "kind": kind,
            "epsilon": epsilon,
            "relation": relation,
            "components": settings.n_features,
            "steps": settings.steps,
            "rate": settings.rate,
            "clip": settings.clip,
            "seeds": list(seeds),
            **{name: [one[name] for one in scores] for name in scores[0]},
        }

    def opacus(self, epsilon: float, seeds: tuple[int, ...]) -> dict[str, Any]:
        """Poisson samples of rows, clip 1, momentum 0.9: a row added or removed, by Opacus' PRV accountant."""
        from dpsgd import Learner, Schedule, train

        data, rule = self.battery.data, self.by_rule(epsilon, "UNIT_ADDED")
        X = torch.tensor(self.kept(self.battery.seen("private"), rule) * np.float32(rule.scale))
        y = torch.tensor(data.y)

        def taught(schedule: Schedule, seed: int) -> Callable[[Rows], NDArray[np.float32]]:
            learner = Learner(inputs="the same", hidden=0, schedules=(), plain=schedule)
            given: dict[str, Any] = {"n_classes": data.n_classes, "epsilon": epsilon, "delta": data.delta}
            network, _ = train(X, y, learner, schedule, seed=seed, **given)

            def see(rows: Rows) -> NDArray[np.float32]:
                with torch.no_grad():
                    seen = torch.tensor(self.kept(rows, rule) * np.float32(rule.scale))
                    logits: NDArray[np.float32] = network(seen).numpy()
                return logits

            return see

        known, truth = self.battery.labelled()
        tried = []
        for batch, epochs, rate in SCHEDULES:
            schedule = Schedule(batch=min(batch, len(y) // 2), epochs=epochs, rate=rate)
            right = float((taught(schedule, TUNING_SEED)(known).argmax(axis=1) == truth).mean())
            tried.append((right, schedule))
        best = max(tried, key=lambda found: found[0])[1]
        scores = [self.scored(taught(best, seed)) for seed in seeds]
        return {
            "task": self.battery.name,
            "kind": "opacus",
            "epsilon": epsilon,
            "relation": "UNIT_ADDED",
            "schedule": dataclasses.asdict(best),
            "compared": [[dataclasses.asdict(schedule), right] for right, schedule in tried],
            "seeds": list(seeds),
            **{name: [one[name] for one in scores] for name in scores[0]},
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
                return rows.loss(flat.reshape(shape).astype(np.float32), ridge)

            start = minimize(off, start, jac=True, method="L-BFGS-B", options={"maxiter": 60}).x
            now = start.reshape(shape).astype(np.float32)
            right = float((self.logits(X, now, settings).argmax(axis=1) == y).mean())
            if right > best:
                best = right
                found = {"ridge": ridge, **self.scored(lambda X, w=now: self.logits(X, w, settings))}
        return {"task": self.battery.name, "kind": "linear", **found}
