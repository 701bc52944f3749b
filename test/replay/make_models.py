#!/usr/bin/env python3
"""Makes those models of the replay that are no parts of real networks: what such networks seldom have."""
import pathlib
import sys

import numpy as np
from onnx import TensorProto

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "e2e"))

import models as m
import transformers_test
from models_test import port, weight
from skeleton import skeleton


def bytes_of(name, *shape):
    return m.constant(name, np.random.RandomState(len(name)).randint(-63, 64, shape), np.int8)



SCALES = [m.constant("xs", 0.04), m.constant("xz", 121, np.uint8), m.constant("ys", 0.3), m.constant("yz", 130, np.uint8), m.constant("ws", 0.015), m.constant("wz", 0, np.int8)]


def quantised():
    """As ONNX Runtime's quantiser writes networks: integers between convolutions, and weights of a product."""
    nodes = [m.node("QuantizeLinear", ["x", "xs", "xz"], ["q"], "quantize"),
             m.node("QLinearConv", ["q", "xs", "xz", "k1", "ws", "wz", "ys", "yz"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
             m.node("QLinearConv", ["c1", "ys", "yz", "k2", "ws", "wz", "ys", "yz"], ["c2"], "conv2", pads=[1, 1, 1, 1], strides=[2, 2]),
             m.node("DequantizeLinear", ["c2", "ys", "yz"], ["c"], "dequantize"),
             m.node("GlobalAveragePool", ["c"], ["means"], "means"), m.node("Flatten", ["means"], ["rows"], "flatten"),
             m.node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], "weights"), m.node("MatMul", ["rows", "wf"], ["y"], "product")]
    constants = [*SCALES, bytes_of("k1", 32, 16, 3, 3), bytes_of("k2", 64, 32, 3, 3), bytes_of("w", 64, 128)]
    return m.model(nodes, [port("x", 1, 16, 28, 28)], [port("y", 1, 128)], constants, opset=13)


def quantised_rows():
    """Products of integers whose scales are found at run time, as in quantised transformers."""
    nodes = []
    for i, (x, y) in enumerate((("x", "hidden"), ("positive", "z"))):
        nodes += [m.node("DynamicQuantizeLinear", [x], [f"q{i}", f"s{i}", f"z{i}"], f"quantize{i}"), m.node("MatMulInteger", [f"q{i}", f"w{i}", f"z{i}"], [f"i{i}"], f"product{i}"),
                  m.node("Cast", [f"i{i}"], [f"f{i}"], f"cast{i}", to=TensorProto.FLOAT), m.node("Mul", [f"s{i}", "ws"], [f"t{i}"], f"scale{i}"), m.node("Mul", [f"f{i}", f"t{i}"], [y], f"scaled{i}")]
        nodes += [m.node("Relu", ["hidden"], ["positive"], "relu")] if i == 0 else [m.node("Add", ["x", "z"], ["y"], "sum")]
    constants = [SCALES[4], bytes_of("w0", 128, 512), bytes_of("w1", 512, 128)]
    return m.model(nodes, [port("x", 1, 16, 128)], [port("y", 1, 16, 128)], constants, opset=13)


def detection():
    """A pyramid of two levels, scores and boxes, those that stay, and their pixels: results whose sizes are known at run time."""
    conv = lambda x, y, kernel, **attributes: m.node("Conv", [x, f"w_{y}"], [y], y, pads=[kernel // 2] * 4, **attributes)
    nodes = [conv("x", "fine_in", 3, strides=[2, 2]), m.node("Relu", ["fine_in"], ["fine"], "fine"), conv("fine", "coarse_in", 3, strides=[2, 2]),
             m.node("Relu", ["coarse_in"], ["coarse"], "coarse"), m.node("Resize", ["coarse", "", "scales"], ["up"], "up", mode="nearest"), conv("fine", "lateral", 1),
             m.node("Add", ["up", "lateral"], ["level"], "level"), conv("level", "logits", 1), m.node("Sigmoid", ["logits"], ["maps"], "sigmoid"), conv("level", "deltas", 1),
             m.node("Reshape", ["maps", "as_scores"], ["scores"], "scores"), m.node("Reshape", ["deltas", "as_boxes"], ["flat"], "flat"),
             m.node("Transpose", ["flat"], ["boxes"], "boxes", perm=[0, 2, 1]), m.node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["chosen"], "nms"),
             m.node("TopK", ["scores", "five"], ["best", "where"], "top", axis=2), m.node("RoiAlign", ["level", "regions", "images"], ["pixels"], "align", output_height=7, output_width=7, sampling_ratio=2)]
    constants = [weight("w_fine_in", 32, 3, 3, 3), weight("w_coarse_in", 64, 32, 3, 3), weight("w_lateral", 64, 32, 1, 1), weight("w_logits", 3, 64, 1, 1), weight("w_deltas", 4, 64, 1, 1),
                 m.constant("scales", [1, 1, 2, 2]), m.ints("as_scores", [0, 3, -1]), m.ints("as_boxes", [0, 4, -1]), m.ints("most", [20]), m.constant("overlap", [0.5]), m.constant("least", [0.3]),
                 m.ints("five", [5]), m.constant("regions", [[1, 2, 20, 21], [4, 3, 12, 30]]), m.ints("images", [0, 0])]
    outputs = [m.value("chosen", [None, 3], TensorProto.INT64), port("best", 1, 3, 5), m.value("where", [1, 3, 5], TensorProto.INT64), port("pixels", 2, 64, 7, 7)]
    return m.model(nodes, [port("x", 1, 3, 64, 64)], outputs, constants)


def half():
    """A network whose own type is f16."""
    return transformers_test.in_type(transformers_test.vit(batch=1, hidden=128), TensorProto.FLOAT16)


def gru():
    """Two directions, and a projection of what they say."""
    nodes = [m.node("Transpose", ["x"], ["steps"], "steps", perm=[1, 0, 2]), m.node("GRU", ["steps", "w", "r", "b"], ["both"], "gru", hidden_size=96, direction="bidirectional", linear_before_reset=1),
             m.node("Transpose", ["both"], ["rows"], "rows", perm=[2, 0, 1, 3]), m.node("Reshape", ["rows", "joined"], ["states"], "states"), m.node("MatMul", ["states", "p"], ["y"], "projection")]
    constants = [weight("w", 2, 288, 64), weight("r", 2, 288, 96), weight("b", 2, 576), weight("p", 192, 32), m.ints("joined", [0, 0, 192])]
    return m.model(nodes, [port("x", 1, 20, 64)], [port("y", 1, 20, 32)], constants)


def main():
    for make in (quantised, quantised_rows, detection, half, gru):
        path = HERE / f"{make.__name__}.onnx"
        path.write_bytes(skeleton(make(), {}).SerializeToString())
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
