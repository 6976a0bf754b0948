"""A user's own encoder, whatever it is, as one function from a block of rows to numbers; no pickle is ever read."""

from __future__ import annotations

import copy
import hashlib
import importlib
import io
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._models import dump_estimators, estimator_settings, load_estimators, seeded_clone
from terrine._optional import require, require_torch
from terrine.datasets.rows import Rows, Texts, seen_by
from terrine.errors import DataError, InputError, MissingDependencyError, StoreError
from terrine.features.auto import device_of

CALLABLE, SKLEARN, MODULE, TORCHSCRIPT = "callable", "sklearn", "torch module", "torchscript"
ONNX, SENTENCES = "onnx", "sentence-transformers"

_MEANT = (
    "Give an .onnx file, a TorchScript file (.pt), a .skops file of a scikit-learn transformer, or the folder of a "
    "sentence-transformers model"
)
_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
    "tensor(string)": np.object_,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """An encoder that is ready to be asked.

    Attributes:
        kind: which of the six.
        name: what it is called on a card: public.
        digest: sha256 of what decides its numbers; of a callable, of its name alone.
        apply: (n, ...) rows to (n, features).
        carried: what a file of features keeps of it; None: whoever loads that file must give the encoder again.
        block: how many rows it is given at once: one, but for what has no way to let rows meet.
        fixed: how many rows it takes, and no other number; None: any.
    """

    kind: str
    name: str
    digest: str
    apply: Callable[[Rows], Any]
    carried: bytes | None = None
    block: int = 1
    fixed: int | None = None


def of_callable(function: Callable[..., Any], *, name: str | None = None) -> Loaded:
    """A function of the user's own: it is given an array, a list of texts, or a table as it came."""
    said = name or _qualified(function)
    return Loaded(kind=CALLABLE, name=said, digest=_sha(CALLABLE, said), apply=lambda rows: function(native(rows)))


def of_transformer(transformer: Any, public: Rows, *, seed: int) -> Loaded:
    """A copy of a scikit-learn transformer; one that is not fitted is fitted on the public rows."""
    from sklearn.exceptions import NotFittedError

    kind = type(transformer).__name__
    model = copy.deepcopy(transformer)  # whatever is done to the user's own later
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.transform(_table(model, public[:2]))
    except NotFittedError:
        model = seeded_clone(transformer, seed)
        try:
            model.fit(_table(model, public))
        except (ValueError, TypeError, AttributeError) as error:  # of public rows: its own words may be shown
            raise InputError(
                f"{kind} cannot be fitted on the public rows: {_words(error)}. One that needs labels must be fitted "
                "before, on labeled public rows."
            ) from None
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{kind} cannot transform the public rows: {_words(error)}.") from None
    return _fitted(model)


def _fitted(model: Any) -> Loaded:
    import joblib  # type: ignore[import-untyped]

    name = type(model).__name__
    carried: bytes | None = None
    try:
        carried = dump_estimators(model, compress=True)
    except (StoreError, MissingDependencyError):
        pass
    except Exception:  # skops raises many types for what it does not know
        carried = None
    try:
        inside = str(joblib.hash(model, hash_name="sha1"))
    except pickle.PicklingError:  # a function without a name in it
        inside = repr(estimator_settings(model))
    digest = _sha(SKLEARN, inside)
    return Loaded(
        kind=SKLEARN,
        name=name,
        digest=digest,
        apply=lambda rows: model.transform(_table(model, rows)),
        carried=carried,
    )


def of_module(module: Any, *, device: str) -> Loaded:
    """A copy of a PyTorch module, in eval mode; it sees what a `ModuleTeacher`'s module sees."""
    mine = copy.deepcopy(module).eval()
    digest = hashlib.sha256(f"{MODULE} {type(module).__qualname__} {mine!r}".encode())
    for name, tensor in sorted(mine.state_dict().items()):
        array = np.ascontiguousarray(tensor.detach().cpu().float().numpy())
        digest.update(f"{name} {tuple(array.shape)} ".encode() + array.tobytes())
    return Loaded(
        kind=MODULE,
        name=_qualified(type(module)),
        digest=digest.hexdigest(),
        apply=_forward(mine, device_of(device)),
    )


def of_path(path: Path, public: Rows, *, seed: int, device: str) -> Loaded:
    """A file or folder; what may hold code of somebody else's in a pickle is refused by its name or its inside."""
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder. {_MEANT}.")
    if path.is_dir():
        from terrine.features.sentences import of_folder

        return of_folder(path, device=device)
    suffix, data = path.suffix.lower(), path.read_bytes()
    match suffix:
        case ".onnx":
            return of_onnx(data, name=path.name)
        case ".pt" | ".pth" | ".ts" | ".torchscript":
            return of_torchscript(data, name=path.name, device=device)
        case ".skops":
            model = load_estimators(data)
            if not hasattr(model, "transform"):
                raise DataError(f"{path.name} holds a {type(model).__name__}, which transforms nothing.")
            return of_transformer(model, public, seed=seed)
        case ".pkl" | ".pickle" | ".joblib" | ".bin":
            raise DataError(f"{path.name} is a pickle, and a pickle runs code when it is read. {_MEANT}.")
    raise DataError(f"{path.name}: files that end in {suffix or 'nothing'} are not read as encoders. {_MEANT}.")


def of_torchscript(data: bytes, *, name: str, device: str) -> Loaded:
    """A TorchScript file: no pickle of Python's, but a program of its own; a receiver has to trust who made it."""
    torch = require_torch()
    if not _holds_code(data):
        raise DataError(
            f"{name} is no TorchScript file. What torch.save writes is a pickle, which runs code when it is read, or "
            "weights without their module. Load weights into the module yourself, with torch.load(..., "
            "weights_only=True), and give the module; or export it to ONNX."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that TorchScript is old
            module = torch.jit.load(io.BytesIO(data), map_location="cpu").eval()
    except Exception:  # torch raises many types for damaged files
        raise DataError(f"{name}: the file is damaged, or no TorchScript file.") from None
    return Loaded(
        kind=TORCHSCRIPT, name=name, digest=_sha(TORCHSCRIPT, data), apply=_forward(module, device_of(device))
    )


def _holds_code(data: bytes) -> bool:
    """Whether a zip archive is TorchScript's, which has code of its own language in it."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = [name.split("/", 1)[-1] for name in archive.namelist()]
    except zipfile.BadZipFile:
        return False
    return "constants.pkl" in names and any(name.startswith("code/") for name in names)


def of_onnx(data: bytes, *, name: str) -> Loaded:
    """An ONNX file with one input, the rows; its first output of two axes or more is taken."""
    onnx = require("onnx", use="An ONNX encoder", extra="onnx")
    runtime = require("onnxruntime", use="An ONNX encoder", extra="onnx")
    try:
        model = onnx.load_model_from_string(data)
    except Exception:  # protobuf's own types
        raise DataError(f"{name}: the file is damaged, or not ONNX.") from None
    if _elsewhere(model):
        raise DataError(f"{name} keeps weights in files beside it. Save it as one file, without external data.")
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # what it says of a row goes nowhere
    try:
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own types
        raise DataError(f"{name}: onnxruntime cannot run it ({type(error).__name__}: {_words(error)}).") from None
    if len(session.get_inputs()) != 1:
        wanted = ", ".join(one.name for one in session.get_inputs())
        raise InputError(
            f"{name} takes {len(session.get_inputs())} inputs ({wanted}), and an encoder takes one, the rows. For "
            "texts give the folder of a sentence-transformers model."
        )
    [given] = session.get_inputs()
    if given.type not in _TYPES:
        raise InputError(f"{name} takes {given.type}; rows are {', '.join(_TYPES)}.")
    outputs = [one.name for one in session.get_outputs() if len(one.shape or ()) != 1]
    if not outputs:
        raise InputError(f"{name} has no output with a list of numbers for each row.")

    def apply(rows: Rows) -> Any:
        return session.run(outputs[:1], {given.name: _tensor(rows, _TYPES[given.type])})[0]

    size = given.shape[0] if given.shape and isinstance(given.shape[0], int) else None
    return Loaded(
        kind=ONNX,
        name=name,
        digest=_sha(ONNX, data),
        apply=apply,
        carried=data,
        fixed=size,
    )


def _elsewhere(part: Any) -> bool:
    """Whether a part of a model, or anything in it, however deep, reads weights from other files."""
    if getattr(part, "data_location", 0) == 1 or len(getattr(part, "external_data", ())):
        return True
    found = [value for field, value in part.ListFields() if field.message_type is not None]
    return any(_elsewhere(one) for value in found for one in ((value,) if hasattr(value, "ListFields") else value))


def restored(kind: str, name: str, data: bytes) -> Loaded:
    """An encoder from what a file of features carries of it."""
    match kind:
        case "onnx":
            return of_onnx(data, name=name)
        case "sklearn":
            return _fitted(load_estimators(data))
    raise DataError(f"Encoders of the kind {kind!r} are not kept in files of features.")


def imported(name: str) -> Callable[..., Any]:
    """What "package.module:function" stands for: it is imported, as code of the user's own."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", name):
        raise InputError(f'A function is named as "package.module:function", got {name!r}.')
    where, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(where), function, None)
    except ImportError as error:
        raise InputError(
            f"{where} cannot be imported ({error}). Install it, or name its folder in PYTHONPATH, as in "
            "PYTHONPATH=. terrine run run.toml."
        ) from None
    if not callable(found):
        raise InputError(f"{where} has no function {function}.")
    made: Callable[..., Any] = found
    return made


def native(rows: Rows) -> Any:
    """Rows as a function of the user's own is given them."""
    if isinstance(rows, np.ndarray):
        return rows
    return rows.native().tolist() if isinstance(rows, Texts) else rows.native()


def _table(model: Any, rows: Rows) -> Any:
    """Rows as scikit-learn takes them: numbers flat, texts as a list, a table as it came."""
    return rows.native().tolist() if isinstance(rows, Texts) else seen_by(model, rows)


def _forward(module: Any, device: str) -> Callable[[Rows], Any]:
    torch = require_torch()
    module = module.to(device)

    def apply(rows: Rows) -> Any:
        x = torch.from_numpy(_tensor(rows, np.float32)).to(device)
        with torch.inference_mode():
            found = module(x)
        return found.float().cpu().numpy()

    return apply


def _tensor(rows: Rows, dtype: Any) -> NDArray[Any]:
    """Rows for a net: floats as they are; images channels first, from 0 to 1; where bytes are wanted, as they are."""
    if isinstance(rows, Texts) and dtype is np.object_:
        texts: NDArray[Any] = rows.native()
        return texts
    if not isinstance(rows, np.ndarray):
        raise InputError("A net takes arrays of numbers; for texts give a sentence-transformers folder or a function.")
    if dtype is np.uint8:
        if rows.dtype != np.uint8:
            raise InputError(f"This net takes bytes (uint8), and the rows are {rows.dtype}.")
        return np.ascontiguousarray(rows)
    if rows.dtype == np.uint8 and rows.ndim in (3, 4):
        images = rows[..., None] if rows.ndim == 3 else rows
        return np.asarray(np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=dtype) / dtype(255))
    return np.ascontiguousarray(rows, dtype=dtype)


def _qualified(one: Any) -> str:
    name = getattr(one, "__qualname__", None) or getattr(one, "__name__", None)
    if name is None:  # functools.partial, or an object that is called
        return type(one).__name__
    return f"{getattr(one, '__module__', None) or ''}:{name}"


def _words(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")[:300]


def _sha(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)} ".encode() + data)
    return digest.hexdigest()
