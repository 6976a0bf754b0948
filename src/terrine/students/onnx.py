"""Students as ONNX files: from rows, as float32 of the shape that `predict` takes, to class and probabilities.

Inputs and outputs: ``rows`` (n, ...) float32 (images with pixels from 0 to 255); ``label`` (n,) int64 class indices and
``probabilities`` (n, n_classes) float32. The names of the classes stand in the file's metadata.
"""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from terrine._files import write_atomically
from terrine._optional import require, require_torch
from terrine.errors import InputError, StoreError

if TYPE_CHECKING:
    from terrine.students.fitted import Fitted
    from terrine.students.nets import Scale

ROWS, LABEL, PROBABILITIES = "rows", "label", "probabilities"
EXPORTABLE = "An estimator that skl2onnx knows, on plain rows, can be exported, and so can every net"
_OPSET = 17
_USE = "Exporting a student to ONNX"


def write_onnx(student: Fitted, path: Path) -> None:
    model = student.to_onnx()
    said = {"classes": json.dumps(student.classes), "producer": "terrine"}
    if student.card is not None:
        said["card"] = json.dumps(student.card.to_json())
    require("onnx", use=_USE, extra="onnx").helper.set_model_props(model, said)
    data = model.SerializeToString()
    try:
        write_atomically(path, lambda file: file.write(data))
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}.") from error


def estimator_to_onnx(model: Any, *, row_shape: tuple[int, ...], n_classes: int) -> Any:
    """A fitted scikit-learn classifier of class indices; rows are flattened first, as `FittedEstimator` does."""
    skl2onnx = require("skl2onnx", use=_USE, extra="onnx")
    types = require("skl2onnx.common.data_types", use=_USE, extra="onnx")
    onnx = require("onnx", use=_USE, extra="onnx")
    compose = require("onnx.compose", use=_USE, extra="onnx")
    kind = type(model).__name__
    if not hasattr(model, "predict_proba"):
        raise InputError(f"{kind} gives no probabilities, so it has no ONNX form here. {EXPORTABLE}.")
    size = int(np.prod(row_shape))
    model = _as_logistic(model)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = skl2onnx.convert_sklearn(
                model,
                initial_types=[("flat", types.FloatTensorType([None, size]))],
                options={id(model): {"zipmap": False}},
                target_opset=_OPSET,
            )
    except Exception as error:  # skl2onnx raises its own types, and plain ones, for what it does not know
        raise InputError(f"skl2onnx cannot convert {kind} ({type(error).__name__}). {EXPORTABLE}.") from None
    made = compose.add_prefix(made, "sk_")  # its names and ours stay apart
    graph, helper, kinds = made.graph, onnx.helper, onnx.TensorProto
    [flat], (label, found) = ([one.name for one in ends] for ends in (graph.input, graph.output))
    # In front, rows of any shape become flat; behind, classes that were never answered get probability 0
    every = np.zeros((len(model.classes_), n_classes), dtype=np.float32)
    every[np.arange(len(model.classes_)), np.asarray(model.classes_)] = 1
    shape = np.array([0, size], dtype=np.int64)  # 0: as many rows as come in
    constants = {"flat_shape": shape, "every_class": every}
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    graph.node.insert(0, helper.make_node("Reshape", [ROWS, "flat_shape"], [flat]))
    graph.node.append(helper.make_node("MatMul", [found, "every_class"], [PROBABILITIES]))
    graph.node.append(helper.make_node("Identity", [label], [LABEL]))
    del graph.input[:], graph.output[:]
    graph.input.append(helper.make_tensor_value_info(ROWS, kinds.FLOAT, ["n", *row_shape]))
    graph.output.append(helper.make_tensor_value_info(LABEL, kinds.INT64, ["n"]))
    graph.output.append(helper.make_tensor_value_info(PROBABILITIES, kinds.FLOAT, ["n", n_classes]))
    return made


def _as_logistic(model: Any) -> Any:
    """Linear discriminants as the logistic regression with the same scores: skl2onnx doubles theirs of two classes."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression

    if type(model) is not LinearDiscriminantAnalysis:
        return model
    same = LogisticRegression()
    same.coef_, same.intercept_, same.classes_ = model.coef_, model.intercept_, model.classes_
    same.n_features_in_ = model.n_features_in_
    return same


def net_to_onnx(net: Any, *, row_shape: tuple[int, ...], scale: Scale | None) -> Any:
    """A net of `nets.build`, on a CPU; with a scale rows are features, without one images."""
    torch = require_torch()
    onnx = require("onnx", use=_USE, extra="onnx")

    class Whole(torch.nn.Module):  # type: ignore[misc, name-defined]
        """From rows as they are given to class and probabilities."""

        def __init__(self) -> None:
            super().__init__()
            self.net = net
            if scale is not None:
                for name, numbers in zip(("mean", "deviation"), scale, strict=True):
                    self.register_buffer(name, torch.from_numpy(np.array(numbers)))

        def forward(self, rows: Any) -> Any:
            if scale is not None:
                x = (rows - self.mean) / self.deviation
            else:
                x = (rows if len(row_shape) == 3 else rows.unsqueeze(-1)).permute(0, 3, 1, 2) / 255
            p = self.net(x).softmax(1)
            return p.argmax(1), p

    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # this exporter is called old; the new one needs a further package
        torch.onnx.export(
            Whole().eval(),
            (torch.zeros(2, *row_shape),),
            file,
            dynamo=False,
            opset_version=_OPSET,
            input_names=[ROWS],
            output_names=[LABEL, PROBABILITIES],
            dynamic_axes={name: {0: "n"} for name in (ROWS, LABEL, PROBABILITIES)},
        )
    return onnx.load_from_string(file.getvalue())
