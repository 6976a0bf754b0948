"""A trained probe: public weights, and what they say of rows."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from terrine import _validate
from terrine._blocks import blocks
from terrine._files import write_atomically
from terrine._validate import other_schema
from terrine.accounting.curves import Guarantee
from terrine.errors import InputError, StoreError
from terrine.measured import Measured
from terrine.probe.settings import SCHEMA, ProbeSettings

_BLOCK = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class Probe:
    """Multinomial logistic regression on public features, learned privately. All of it is public.

    Attributes:
        weights: (n_features + 1, n_classes), the constant's last.
        settings: as it was trained.
        steps_kept: noisy sums that were kept; the others were lost by kills.
        guarantee: of the training; None where seeded noise was drawn: then nothing is guaranteed.
        measured: how often it is right about its own private rows; None where that was not asked for, or lost.
    """

    weights: NDArray[np.float64] = field(repr=False)
    settings: ProbeSettings
    steps_kept: int
    guarantee: Guarantee | None
    measured: Measured | None = None

    @property
    def descent_kept(self) -> int:
        """Steps of the descent that were kept: of the sums all but the one that measures."""
        return self.steps_kept - int(self.measured is not None)

    def predict_proba(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """(n, n_classes) for public rows: any number of them costs nothing more."""
        if features.ndim != 2 or features.shape[1] != self.settings.n_features:
            raise InputError(f"features must have {self.settings.n_features} columns.")
        found = np.empty((len(features), self.settings.n_classes))
        for at, block in blocks(features, _BLOCK):
            logits = (block.astype(np.float64) * self.settings.scale) @ self.weights[:-1] + self.weights[-1] / 2
            found[at] = softmax(logits, axis=1)[: at.stop - at.start]
        return found

    def predict(self, features: NDArray[Any]) -> NDArray[np.int64]:
        """(n,) numbers of classes."""
        result: NDArray[np.int64] = self.predict_proba(features).argmax(axis=1).astype(np.int64)
        return result

    def save(self, path: str | Path) -> None:
        """As one .npz file."""
        told = {"settings": self.settings.to_json(), "steps_kept": self.steps_kept}
        told["guarantee"] = None if self.guarantee is None else self.guarantee.to_json()
        if self.measured is not None:
            told["measured"] = asdict(self.measured)
        about = np.array(json.dumps(told))
        write_atomically(
            Path(path), lambda file: np.savez(file, schema=np.array(SCHEMA), weights=self.weights, about=about)
        )

    @classmethod
    def load(cls, path: str | Path) -> Probe:
        """A probe that `save` wrote; nothing in the file is executed."""
        try:
            with np.load(path, allow_pickle=False) as found:
                arrays = dict(found)
        except (OSError, ValueError, BadZipFile, zlib.error) as error:
            raise StoreError(
                f"{path} cannot be read as a probe: {type(error).__name__}. Put back the file that the training wrote."
            ) from None
        if other := other_schema(arrays, SCHEMA):
            raise StoreError(f"{path} is not a probe of schema {SCHEMA}: it has {other}.")
        about = json.loads(str(arrays["about"]))
        guarantee = about["guarantee"]
        return cls(
            weights=arrays["weights"],
            settings=ProbeSettings.from_json(about["settings"]),
            steps_kept=int(about["steps_kept"]),
            guarantee=None if guarantee is None else Guarantee.from_json(guarantee),
            measured=None if about.get("measured") is None else _validate.from_json(Measured, about["measured"]),
        )
