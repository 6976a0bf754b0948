"""What teachers and students share: estimators with their seeds, names and files, and files of arrays.

Nothing in a file is executed on loading: skops refuses types that are not listed, safetensors holds numbers alone.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._optional import require
from terrine.errors import InputError, StoreError

# Parts of scikit-learn's estimators that skops does not list by itself: they hold numbers, or compute with them
_PARTS = (
    "sklearn.tree._tree.Tree",
    "sklearn._loss.",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neighbors._kd_tree.",
    "sklearn.neighbors._ball_tree.",
    "sklearn.metrics._dist_metrics.",
    "sklearn.neural_network._stochastic_optimizers.",
    "numpy.dtype",  # an encoder's or a vectorizer's
    "numpy.interp",  # of a FunctionTransformer
)


def check_classifier(estimator: Any) -> None:
    from sklearn.base import BaseEstimator, is_classifier

    if not isinstance(estimator, BaseEstimator) or not is_classifier(estimator):
        raise InputError(f"estimator must be a scikit-learn classifier, got {type(estimator).__name__}.")


def seeded_clone(estimator: Any, seed: int | Sequence[int]) -> Any:
    """An unfitted copy whose parameters named ``random_state``, however deep, come from ``seed``."""
    from sklearn.base import clone

    model = clone(estimator)
    state = int(np.random.SeedSequence(seed).generate_state(1)[0])
    return model.set_params(**{name: state for name in model.get_params() if _is_seed(name)})


def estimator_settings(estimator: Any) -> dict[str, Any]:
    """What decides what it becomes, but for seeds: in plain values, the same in every process."""
    values = estimator.get_params(deep=True).items()
    named = {f"estimator.{name}": _named(value) for name, value in values if not _is_seed(name)}
    return {"estimator": type(estimator).__name__, **named}


def _is_seed(name: str) -> bool:
    return name.split("__")[-1] == "random_state"


def _named(value: Any) -> Any:
    """A parameter's value in plain words; what is inside an estimator has its own name."""
    if isinstance(value, (list, tuple)):
        return [_named(item) for item in value]
    if hasattr(value, "get_params"):
        return type(value).__name__
    return getattr(value, "__qualname__", None) or repr(value)


def dump_estimators(models: Any, *, compress: bool = False) -> bytes:
    """A skops file; refuses at once what `load_estimators` would refuse later."""
    compression = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED  # a tenth of the size, as fast
    data = bytes(_skops().dumps(models, compression=compression))
    _trusted(data)
    return data


def load_estimators(data: bytes) -> Any:
    """What a skops file holds; refuses types that are neither skops' nor scikit-learn's own."""
    skops = _skops()
    try:
        return skops.loads(data, trusted=_trusted(data))
    except StoreError:
        raise
    except Exception:  # skops and zipfile raise many types for damaged files
        raise StoreError("The skops file of models is damaged, or not one. Use a copy as it was saved.") from None


def _trusted(data: bytes) -> list[str]:
    """The types in a skops file that are on our list and not on skops' own; foreign ones are refused by name."""
    found: list[str] = _skops().get_untrusted_types(data=data)
    foreign = [name for name in found if not name.startswith(_PARTS)]
    if foreign:
        raise StoreError(f"The models hold types that are not trusted, and are not loaded: {foreign[:3]}.")
    return found


_WITH_TORCH = "sklearn.externals.array_api_compat.torch"


def _skops() -> Any:
    """skops imports every package of scikit-learn; the one that would import PyTorch, which takes seconds, is hidden
    from it: it defines no estimator."""
    hides = "skops.io" not in sys.modules and _WITH_TORCH not in sys.modules
    if hides:
        sys.modules[_WITH_TORCH] = None  # type: ignore[assignment] # to import it is an ImportError, which is passed over
    try:
        return require("skops.io", use="Keeping a scikit-learn model", extra="keep")
    finally:
        if hides and sys.modules.get(_WITH_TORCH, False) is None:
            del sys.modules[_WITH_TORCH]


def dump_arrays(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file: the same bytes for the same arrays and metadata, whose order the format leaves open."""
    data = bytes(_safetensors().save(dict(arrays), None if metadata is None else dict(metadata)))
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    if "__metadata__" in header:
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that arrays begin at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text + data[end:]


def load_arrays(data: bytes, *, what: str) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file; ``what`` they are is said of a damaged one."""
    safetensors = _safetensors()
    try:
        return dict(safetensors.load(data))
    except Exception:  # safetensors raises its own type for whatever is wrong
        raise StoreError(
            f"The safetensors file of {what} is damaged, or not one. Use a copy as it was saved."
        ) from None


def load_described(data: bytes, *, what: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays of a safetensors file, and its metadata."""
    arrays = load_arrays(data, what=what)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])  # as the format has it; it was read before
    return arrays, {str(name): str(value) for name, value in (header.get("__metadata__") or {}).items()}


def _safetensors() -> Any:
    return require("safetensors.numpy", use="Keeping a model's arrays", extra="keep")
