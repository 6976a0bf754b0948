"""Features of plain rows as the first nodes of an ONNX model, in front of the classifier that learned on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from terrine._optional import require
from terrine.errors import InputError
from terrine.features import AutoFeatures
from terrine.features.auto import COMPONENTS, QUANTILES
from terrine.features.ramps import FAR
from terrine.students.onnx import EXPORTABLE, ROWS

_SEEN = "seen"
_TINY = 1e-30


def with_features(model: Any, features: Any) -> Any:
    """The same model from rows in place of features; only features of plain rows have such a form."""
    if not isinstance(features, AutoFeatures) or features.of_images:
        raise InputError(f"A student on features of images has no ONNX form here. {EXPORTABLE}.")
    onnx = require("onnx", use="Exporting a student to ONNX", extra="onnx")
    helper, graph = onnx.helper, model.graph
    width = int(np.prod(features.row_shape))
    constants: dict[str, Any] = {"row_width": np.array([0, width], dtype=np.int64)}
    nodes = [helper.make_node("Reshape", [ROWS, "row_width"], ["row_flat"])]

    def step(kind: str, inputs: list[str], output: str, **how: Any) -> None:
        nodes.append(helper.make_node(kind, inputs, [output], **how))

    if features.parts == (QUANTILES,):
        arrays = features.arrays(QUANTILES)
        varying = max(1, int(np.isfinite(arrays["scale"]).sum()))
        constants |= {"places": arrays["places"], "lows": arrays["lows"], "reach": arrays["highs"] - arrays["lows"]}
        constants |= {"none": 0.0, "all": 1.0, "middle": arrays["middle"], "scale": arrays["scale"]}
        constants |= {"near": -FAR, "far": FAR, "length": np.sqrt(varying)}
        step("Gather", ["row_flat", "places"], "picked", axis=1)
        step("Sub", ["picked", "lows"], "begun")
        step("Div", ["begun", "reach"], "way")
        step("Clip", ["way", "none", "all"], "pieces")
        step("Concat", ["row_flat", "pieces"], "wide", axis=1)
        step("Sub", ["wide", "middle"], "centered")
        step("Div", ["centered", "scale"], "even")
        step("Clip", ["even", "near", "far"], "clipped")
        step("Div", ["clipped", "length"], _SEEN)
    else:
        arrays = features.arrays(COMPONENTS)
        constants |= {"mean": arrays["mean"], "matrix": arrays["matrix"], "tiny": _TINY}
        step("Sub", ["row_flat", "mean"], "centered")
        step("MatMul", ["centered", "matrix"], "parts")
        step("ReduceL2", ["parts"], "long", axes=[1], keepdims=1)
        step("Max", ["long", "tiny"], "length")
        step("Div", ["parts", "length"], _SEEN)
    for name, value in constants.items():
        array = np.asarray(value)
        array = array if array.dtype == np.int64 else array.astype(np.float32)
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for node in graph.node:  # what began with rows now begins with features
        node.input[:] = [_SEEN if name == ROWS else name for name in node.input]
    for node in reversed(nodes):
        graph.node.insert(0, node)
    del graph.input[:]
    graph.input.append(helper.make_tensor_value_info(ROWS, onnx.TensorProto.FLOAT, ["n", *features.row_shape]))
    return model
