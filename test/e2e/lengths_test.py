#!/usr/bin/env python3
"""Lengths of run time (docs/howto/lengths.md): small models in one program, run on the stand-in at several lengths, each against ONNX Runtime.

    lengths_test.py TAMP [WORD...]
"""
import dataclasses
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import harness
import many
import models as m
import models_test

RANGES = {"L": (1, 24), "S": (5, 21), "K": (1, 10), "B": (1, 3)}  # symbols of all models here: two texts, frames or pixels, a batch
TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float16): TensorProto.FLOAT16, np.dtype(np.int64): TensorProto.INT64,
         np.dtype(np.int32): TensorProto.INT32, np.dtype(np.bool_): TensorProto.BOOL, np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8,
         np.dtype(np.float64): TensorProto.DOUBLE}


@dataclasses.dataclass
class Case:
    """`inputs`: name -> shape of numbers and symbols, or (shape, dtype, smallest, largest) of integers."""
    name: str
    nodes: list
    inputs: dict
    outputs: list
    constants: list
    opset: int = 17

    def spec(self, name):
        given = self.inputs[name]
        return given if isinstance(given, tuple) else (given, np.float32, -1, 1)

    def model(self):
        inputs = [m.value(name, self.spec(name)[0], TYPES[np.dtype(self.spec(name)[1])]) for name in self.inputs]
        return m.model(self.nodes, inputs, [onnx.ValueInfoProto(name=name) for name in self.outputs], self.constants, opset=self.opset)

    def data(self, rng, at):
        arrays = []
        for name in self.inputs:
            shape, dtype, low, high = self.spec(name)
            extents = [at[d] if isinstance(d, str) else d for d in shape]
            if np.issubdtype(dtype, np.floating):
                arrays.append(rng.standard_normal(extents).astype(dtype))
            else:
                # Lowest and highest may be lengths themselves.
                low, high = (at[v] if isinstance(v, str) else v for v in (low, high))
                arrays.append(rng.integers(low, high, extents, endpoint=True).astype(dtype))
        return arrays


RNG = np.random.default_rng(0)


def weight(name, *shape):
    return m.constant(name, RNG.standard_normal(shape) / np.sqrt(shape[0]))


def n(op, inputs, outputs, **attributes):
    return m.node(op, inputs.split(" ") if isinstance(inputs, str) else inputs, outputs.split(" "), "n_" + outputs.split(" ")[0], **attributes)


def one(name, op, shape=("B", "L", 8), constants=(), operands=(), opset=17, results="y", **attributes):
    """One node of x. The shape is one of floats, or of Case.inputs."""
    inputs = {"x": shape if isinstance(shape[0], list) else list(shape)}
    return Case(name, [n(op, ["x", *operands], results, **attributes)], inputs, results.split(" "), list(constants), opset)


def runs(case, at, rng):
    """Inputs, and what ONNX Runtime makes of them."""
    made = case.model()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    arrays = case.data(rng, at)
    return arrays, session.run(None, dict(zip(case.inputs, arrays)))


def merged(cases):
    """All of one opset; symbols keep their names."""
    model = many.merge([many.Part(case.name, case.model(), []) for case in cases])
    for entry in model.graph.input:
        for dim in entry.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = dim.dim_param.split("/", 1)[1]
    return model


def used(cases):
    symbols = {d for case in cases for name in case.inputs for d in case.spec(name)[0] if isinstance(d, str)}
    return {name: RANGES[name] for name in sorted(symbols)}


def dim_words(ranges):
    return [word for name, (least, most) in ranges.items() for word in ("--dim", f"{name}={least}:{most}")]


# --- the models ------------------------------------------------------------------------------------------------------

I64, F16 = np.int64, np.float16


def encoder():
    """Heads by a Reshape from Shape, positions cut to the length, a mask from the caller."""
    nodes = [n("Shape", "ids", "shape"), n("Gather", "shape zero", "batch", axis=0), n("Gather", "shape one", "length", axis=0),
             n("Unsqueeze", "batch ax0", "b1"), n("Unsqueeze", "length ax0", "l1"), n("Concat", "b1 l1 heads size", "split", axis=0), n("Concat", "b1 l1 width", "whole", axis=0),
             n("Gather", "words ids", "e", axis=0), n("Slice", "table zeros l1 ones", "pos"), n("Add", "e pos", "h"),
             n("MatMul", "h wq", "q0"), n("MatMul", "h wk", "k0"), n("MatMul", "h wv", "v0")]
    for k in "qkv":
        nodes += [n("Reshape", f"{k}0 split", f"{k}1"), n("Transpose", f"{k}1", f"{k}2", perm=[0, 2, 1, 3])]
    nodes += [n("Transpose", "k2", "kt", perm=[0, 1, 3, 2]), n("MatMul", "q2 kt", "s"), n("Div", "s root", "s1"), n("Unsqueeze", "mask ax12", "m4"),
              n("Cast", "m4", "mf", to=TensorProto.FLOAT), n("Sub", "onef mf", "m1"), n("Mul", "m1 low", "m2"), n("Add", "s1 m2", "s2"), n("Softmax", "s2", "p", axis=-1),
              n("MatMul", "p v2", "a"), n("Transpose", "a", "at", perm=[0, 2, 1, 3]), n("Reshape", "at whole", "a1"), n("MatMul", "a1 wo", "o"), n("Add", "o h", "r"),
              n("LayerNormalization", "r g", "y", axis=-1), n("Gather", "y zero", "first", axis=1), n("MatMul", "first wo", "pooled0"), n("Tanh", "pooled0", "pooled")]
    constants = [m.ints("zero", 0), m.ints("one", 1), m.ints("ax0", [0]), m.ints("ax12", [1, 2]), m.ints("heads", [2]), m.ints("size", [8]), m.ints("width", [16]), m.ints("zeros", [0]),
                 m.ints("ones", [0]), m.constant("root", 2.83), m.constant("onef", 1), m.constant("low", -10000), m.constant("g", np.ones(16)), weight("words", 30, 16), weight("table", 40, 16),
                 *(weight(w, 16, 16) for w in ("wq", "wk", "wv", "wo"))]
    return Case("encoder", nodes, {"ids": (["B", "L"], I64, 0, 29), "mask": (["B", "L"], I64, 1, 1)}, ["y", "pooled"], constants)


def decoder():
    """A causal mask from Range and Trilu."""
    nodes = [n("Shape", "x", "shape"), n("Gather", "shape one", "length", axis=0), n("Unsqueeze", "length ax0", "l1"), n("Concat", "l1 l1", "square", axis=0), n("ConstantOfShape", "square", "lows", value=m.constant("v", [-1e9])),
             n("Trilu", "lows up", "mask", upper=1), n("Range", "nil length one", "at"), n("Gather", "table at", "pos", axis=0), n("Add", "x pos", "h"), n("MatMul", "h wq", "q"), n("MatMul", "h wk", "k"), n("MatMul", "h wv", "v"),
             n("Transpose", "k", "kt", perm=[0, 2, 1]), n("MatMul", "q kt", "s"), n("Add", "s mask", "s1"), n("Softmax", "s1", "p", axis=-1), n("MatMul", "p v", "a"), n("Gather", "a last", "y", axis=1),
             n("Slice", "a minus end axis", "tail")]
    constants = [m.ints("one", 1), m.ints("nil", 0), m.ints("ax0", [0]), m.ints("up", 1), m.ints("last", -1), m.ints("minus", [-1]), m.ints("end", [2**62]), m.ints("axis", [1]), weight("table", 30, 16), *(weight(w, 16, 16) for w in ("wq", "wk", "wv"))]
    return Case("decoder", nodes, {"x": ["B", "L", 16]}, ["a", "y", "tail"], constants)


def cross():
    nodes = [n("Transpose", "k", "kt", perm=[0, 2, 1]), n("MatMul", "q kt", "s"), n("Mul", "s c", "s1"), n("Softmax", "s1", "p", axis=-1), n("MatMul", "p k", "y")]
    return Case("cross", nodes, {"q": ["B", "K", 16], "k": ["B", "L", 16]}, ["y"], [m.constant("c", 0.25)])


def recurrent(op, direction, lengths=False, layers=1, state=False):
    gates, ways, hidden = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if direction == "bidirectional" else 1, 6
    nodes, constants, x, outputs = [], [], "x", []
    inputs = {"x": ["L", "B", 5]}
    if lengths:
        inputs["n"] = (["B"], np.int32, 1, "L")
    for i in range(layers):
        width = 5 if i == 0 else hidden * ways
        constants += [m.constant(f"w{i}", RNG.standard_normal((ways, gates * hidden, width)) / 2), m.constant(f"r{i}", RNG.standard_normal((ways, gates * hidden, hidden)) / 2)]
        nodes.append(n(op, [x, f"w{i}", f"r{i}", "", "n" if lengths else "", *(["start"] if state else [])], f"y{i} h{i}", hidden_size=hidden, direction=direction))
        nodes += [n("Transpose", f"y{i}", f"t{i}", perm=[0, 2, 1, 3]), n("Reshape", f"t{i} s", f"x{i + 1}")]
        x, outputs = f"x{i + 1}", [*outputs, f"h{i}"]
    if state:
        inputs["start"] = [ways, "B", hidden]
    return Case(f"{op} {direction}{' lengths' * lengths}{' state' * state} {layers}", nodes, inputs, [x, *outputs], [*constants, m.ints("s", [0, 0, -1])])


def conv1(name, shape=("B", 4, "S"), kernel=3, **attributes):
    return one(name, "Conv", shape, [m.constant("w", RNG.standard_normal((6, 4, kernel)) / 3)], ["w"], kernel_shape=[kernel], **attributes)


def conv2(name, shape=("B", 3, "S", "K"), **attributes):
    return one(name, "Conv", shape, [m.constant("w", RNG.standard_normal((8, 3, 3, 3)) / 5), weight("b", 8)], ["w", "b"], kernel_shape=[3, 3], **attributes)


def windows():
    stack = [n("Conv", "x w1", "a", pads=[1, 1], strides=[2]), n("Relu", "a", "b"), n("Conv", "b w2", "c", pads=[1, 1], strides=[2]), n("MaxPool", "c", "d", kernel_shape=[2], strides=[1], pads=[0, 1]), n("GlobalAveragePool", "d", "y")]
    stacked = Case("conv stack", stack, {"x": ["B", 4, "S"]}, ["d", "y"], [m.constant("w1", RNG.standard_normal((6, 4, 3)) / 3), m.constant("w2", RNG.standard_normal((6, 6, 3)) / 3)])
    depthwise = one("depthwise", "Conv", ("B", 8, "S", "L"), [m.constant("w", RNG.standard_normal((8, 1, 3, 3)))], ["w"], kernel_shape=[3, 3], pads=[1] * 4, group=8)
    return [conv1("conv1"), conv1("conv1 pads", pads=[1, 1]), conv1("conv1 strides", pads=[1, 1], strides=[2]), conv1("conv1 dilated", pads=[2, 2], dilations=[2]), conv1("conv1 wide", kernel=5, strides=[3], pads=[2, 0]),
            conv2("conv2", pads=[1] * 4), conv2("conv2 strides", ("B", 3, "S", 9), pads=[1] * 4, strides=[2, 2]), stacked, depthwise,
            one("max pool", "MaxPool", ("B", 4, "S", "L"), kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]), one("average", "AveragePool", ("B", 4, "S", 8), kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 1]),
            one("average with pads", "AveragePool", ("B", 4, "S"), kernel_shape=[4], pads=[1, 2], strides=[2], count_include_pad=1), one("global max", "GlobalMaxPool", ("B", 4, "S", "L")),
            one("max pool up", "MaxPool", ("B", 4, "S", 9), kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1), one("average up", "AveragePool", ("B", 4, "S", 8), kernel_shape=[3, 3], pads=[1, 0, 1, 0], strides=[2, 2], ceil_mode=1),
            Case("upsampled", [n("Resize", ["x", "", "s"], "u", mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"), n("Conv", "u w", "y", pads=[1] * 4)], {"x": ["B", 3, "S", 4]}, ["u", "y"],
                 [m.constant("s", [1, 1, 2, 2]), m.constant("w", RNG.standard_normal((4, 3, 3, 3)) / 5)]),
            Case("sampled", [n("GridSample", "x g", "y")], {"x": ["B", 3, 6, 6], "g": ["B", "L", 4, 2]}, ["y"], [])]


def reductions():
    cases = [one(op, op, opset=13, axes=[1], keepdims=i % 2) for i, op in enumerate(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceProd", "ReduceLogSumExp", "ReduceSumSquare"])]
    cases += [one("ReduceSum", "ReduceSum", constants=[m.ints("axes", [0, 1])], operands=["axes"], opset=13), one("mean of all", "ReduceMean", opset=13),
              one("integers", "ReduceMax", (["B", "L"], np.int32, -90, 90), opset=13, axes=[1]), one("halves", "ReduceMean", (["B", "L", 8], F16, 0, 0), opset=13, axes=[1])]
    return cases


def along():
    """Softmax, sums, orders and the like along the length."""
    return [one("Softmax", "Softmax", axis=1), one("LogSoftmax", "LogSoftmax", ("B", "L"), axis=1), one("CumSum", "CumSum", constants=[m.ints("a", 1)], operands=["a"]), one("CumSum back", "CumSum", constants=[m.ints("a", 1)], operands=["a"], reverse=1, exclusive=1),
            one("ArgMax", "ArgMax", axis=1), one("ArgMin", "ArgMin", ("B", "L"), axis=1, keepdims=0), one("TopK", "TopK", ("B", "S"), [m.ints("k", [3])], ["k"], results="y i", axis=1), one("TopK least", "TopK", ("B", "S"), [m.ints("k", [3])], ["k"], results="y i", axis=1, largest=0),
            one("InstanceNormalization", "InstanceNormalization", ("B", 4, "S"), [m.constant("s", RNG.standard_normal(4)), m.constant("b", RNG.standard_normal(4))], ["s", "b"]),
            Case("normalised rows", [n("ReduceMean", "x", "mu", axes=[1]), n("Sub", "x mu", "d"), n("Mul", "d d", "q"), n("ReduceMean", "q", "v", axes=[1]), n("Add", "v e", "ve"), n("Sqrt", "ve", "r"), n("Div", "d r", "y")], {"x": ["B", "L", 8]}, ["y"], [m.constant("e", 1e-5)])]


def moved():
    """What lies elsewhere: parts, pads, tokens, masks."""
    token = Case("class token", [n("Shape", "x", "s"), n("Gather", "s z", "b", axis=0), n("Unsqueeze", "b ax", "b1"), n("Concat", "b1 rest", "to", axis=0), n("Expand", "cls to", "c"), n("Concat", "c x", "h", axis=1), n("MatMul", "h w", "y"), n("ReduceMean", "y", "mu", axes=[1])],
                 {"x": ["B", "L", 8]}, ["y", "mu"], [m.ints("z", 0), m.ints("ax", [0]), m.ints("rest", [1, 8]), weight("cls", 1, 1, 8), weight("w", 8, 8)])
    expand = Case("expand", [n("Shape", "x", "s"), n("Expand", "v s", "e"), n("Mul", "e x", "y")], {"x": ["B", "L", 8]}, ["e", "y"], [weight("v", 8)])
    where = Case("where", [n("Where", "c x low", "a"), n("ReduceMax", "a", "y", axes=[1])], {"c": (["B", "L", 1], np.bool_, 0, 1), "x": ["B", "L", 8]}, ["a", "y"], [m.constant("low", -1e4)])
    einsum = Case("einsum", [n("Einsum", "q k", "s", equation="bqd,bkd->bqk"), n("Einsum", "s k", "y", equation="bqk,bkd->bqd")], {"q": ["B", "K", 8], "k": ["B", "L", 8]}, ["s", "y"], [])
    flat = Case("pixels in rows", [n("Reshape", "x to", "r"), n("Transpose", "r", "t", perm=[0, 2, 1]), n("MatMul", "t w", "y")], {"x": [2, 4, "L", 6]}, ["y"], [m.ints("to", [2, 4, -1]), weight("w", 4, 8)])
    parts = Case("parts", [n("Slice", "x two end one", "tail"), n("Slice", "x nil minus one", "head"), n("Slice", "x last end one", "few"), n("Slice", "x nil end one by", "odd"), n("Gather", "x index", "y", axis=1)], {"x": ["B", "S", 8]}, ["tail", "head", "few", "odd", "y"],
                 [m.ints("two", [2]), m.ints("nil", [0]), m.ints("end", [2**62]), m.ints("one", [1]), m.ints("minus", [-1]), m.ints("last", [-3]), m.ints("by", [2]), m.ints("index", [0, -2, 3])])
    pads = Case("pads", [n("Pad", "x around", "a"), n("Pad", "x front", "b", mode="reflect"), n("Pad", "x front", "c", mode="edge"), n("MatMul", "a w", "y")], {"x": ["B", "S", 8]}, ["a", "b", "c", "y"], [m.ints("around", [0, 2, 0, 0, 3, 0]), m.ints("front", [0, 2, 0, 0, 0, 0]), weight("w", 8, 8)])
    rows = Case("rows by number", [n("Gather", "x i", "y", axis=1)], {"x": ["B", "L", 8], "i": (["K"], I64, 0, 0)}, ["y"], [])
    halves = Case("halves", [n("MatMul", "x w", "h"), n("Relu", "h", "y")], {"x": (["B", "L", 8], F16, 0, 0)}, ["y"], [m.constant("w", RNG.standard_normal((8, 8)), F16)])
    words = Case("integers", [n("Mul", "a b", "p"), n("ReduceSum", "p ax", "y"), n("Equal", "a b", "same")], {"a": (["B", "L"], I64, -9, 9), "b": (["B", "L"], I64, -9, 9)}, ["y", "same"], [m.ints("ax", [1])])
    joined = Case("joined rows", [n("Shape", "ids", "s"), n("Concat", "s width", "to", axis=0), n("Reshape", "ids flat", "i"), n("Gather", "words i", "e"), n("Gemm", "e w c", "g"), n("Tanh", "g", "t"), n("Add", "t e", "u"),
                                n("LayerNormalization", "u o", "l", axis=-1), n("Softmax", "l", "p", axis=1), n("Split", "p", "left right", axis=1), n("Mul", "left right", "m"), n("Reshape", "m to", "y"), n("Softmax", "y", "z", axis=1)],
                  {"ids": (["B", "L"], I64, 0, 19)}, ["y", "z"], [m.ints("width", [4]), m.ints("flat", [-1]), weight("words", 20, 8), weight("w", 8, 8), weight("c", 8), m.constant("o", np.ones(8))])
    cache = Case("cache", [n("Concat", "past x", "k", axis=1), n("Transpose", "k", "kt", perm=[0, 2, 1]), n("MatMul", "x kt", "s"), n("Softmax", "s", "p", axis=-1), n("MatMul", "p k", "y"), n("Concat", "c past x c past", "all", axis=1)],
                 {"past": ["B", "L", 8], "x": ["B", 2, 8], "c": ["B", 1, 8]}, ["k", "y", "all"], [])
    counted = [n("Shape", "x", "s"), n("Gather", "s nil", "b", axis=0), n("Gather", "s one", "l", axis=0), n("Range", "nil b one", "rows"), n("Range", "nil l one", "places")]
    masks = Case("mask by number", [*counted, n("Unsqueeze", "rows at", "column"), n("Mul", "column l", "first"), n("Add", "first places", "index"), n("Reshape", "x flat", "row"), n("Gather", "row index", "m", axis=0), n("Neg", "m", "y")],
                 {"x": ["B", "L"]}, ["y"], [m.ints("nil", 0), m.ints("one", 1), m.ints("at", [1]), m.ints("flat", [-1])])
    scaled = Case("scaled by the length", [*counted, n("Cast", "l", "f", to=1), n("Sqrt", "f", "root"), n("Div", "x root", "a"), n("Mul", "places l", "squares"), n("Cast", "squares", "g", to=1), n("Add", "a g", "y")], {"x": ["B", "L"]}, ["y"],
                  [m.ints("nil", 0), m.ints("one", 1)])
    return [masks, scaled, token, cache, expand, where, einsum, flat, parts, pads, rows, joined, halves, words]


def reshaped():
    """Dimensions that a Reshape mixes: pixels in one row and back, rows of all texts."""
    pixels = Case("tokens of pixels", [n("Conv", "x w", "c", pads=[1] * 4, strides=[2, 1]), n("Reshape", "c row", "r"), n("Transpose", "r", "t", perm=[0, 2, 1]), n("MatMul", "t r", "s"), n("Softmax", "s", "p", axis=-1), n("MatMul", "p t", "a"), n("Concat", "first a", "y", axis=1),
                                       n("Transpose", "a", "at", perm=[0, 2, 1]), n("Shape", "c", "cs"), n("Reshape", "at cs", "back"), n("Relu", "back", "z")],
                  {"x": ["B", 3, "S", "K"], "first": ["B", 1, 4]}, ["z", "a"], [m.constant("w", RNG.standard_normal((4, 3, 3, 3)) / 5), m.ints("row", [0, 0, -1])])
    rows = Case("rows of all", [n("Reshape", "x rows", "r"), n("ReduceMax", "r", "most", axes=[0]), n("Gather", "r i", "few", axis=0), n("Reshape", "x fours", "q"), n("MatMul", "q w", "y")], {"x": ["B", "L", 8], "i": (["K"], I64, 0, 0)}, ["r", "most", "few", "y"],
                [m.ints("rows", [-1, 8]), m.ints("fours", [-1, 4]), weight("w", 4, 3)])
    shifted = Case("shifted rows", [n("Shape", "x", "s"), n("Pad", "x front", "p"), n("Slice", "s one two", "l"), n("Slice", "s two three", "k"), n("Add", "k one", "k1"), n("Concat", "minus k1 l", "to", axis=0), n("Reshape", "p to", "r"), n("Slice", "r one end one", "c"), n("Reshape", "c s", "y")],
                   {"x": ["B", "L", "K"]}, ["y"], [m.ints("front", [0, 0, 1, 0, 0, 0]), m.ints("minus", [-1]), m.ints("one", [1]), m.ints("two", [2]), m.ints("three", [3]), m.ints("end", [2**62])])
    return [pixels, rows, shifted]


def resized():
    up = Case("resized by a factor", [n("Resize", ["x", "", "s"], "y", mode="linear", coordinate_transformation_mode="half_pixel"), n("Resize", ["x", "", "s"], "z", mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")],
              {"x": ["B", 3, "S", 4]}, ["y", "z"], [m.constant("s", [1, 1, 1.5, 2])])
    cubic = Case("resized by cubic", [n("Resize", ["x", "", "s"], "y", mode="cubic", coordinate_transformation_mode="half_pixel")], {"x": ["B", 3, "S", 4]}, ["y"], [m.constant("s", [1, 1, 2, 2])])
    to = [n("Shape", "z", "zs"), n("Slice", "zs two four", "hw"), n("Shape", "x", "xs"), n("Slice", "xs nil two", "bc"), n("Concat", "bc hw", "sizes", axis=0)]
    like = Case("resized like another", [*to, *[n("Resize", ["x", "", "", "sizes"], f"y{i}", mode=mode, coordinate_transformation_mode=place, **more) for i, (mode, place, more) in enumerate(
        [("linear", "half_pixel", {}), ("linear", "align_corners", {}), ("linear", "asymmetric", {}), ("nearest", "asymmetric", {"nearest_mode": "floor"}), ("nearest", "half_pixel", {"nearest_mode": "round_prefer_floor"}), ("nearest", "half_pixel", {"nearest_mode": "ceil"})])]],
                {"x": ["B", 2, "S", 3], "z": [1, 1, "K", "L"]}, [f"y{i}" for i in range(6)], [m.ints("nil", [0]), m.ints("two", [2]), m.ints("four", [4])])
    return [up, cubic, like]


def numbered():
    return [Case("elements by number", [n("GatherElements", "x i", "y", axis=1)], {"x": ["B", "L", 4], "i": (["B", "K", 4], I64, -1, 0)}, ["y"], []),
            Case("scattered by a length", [n("ScatterElements", "x i u", "y", axis=0, reduction="add"), n("ScatterElements", "t i u", "z", axis=0, reduction="add")], {"x": ["L", 4], "t": [6, 4], "i": (["K", 4], I64, -1, 0), "u": ["K", 4]}, ["y", "z"], []),
            Case("reversed", [n("Slice", "x from to one by", "y"), n("CumSum", "y one1", "z")], {"x": ["B", "L", 8]}, ["y", "z"], [m.ints("from", [-1]), m.ints("to", [-(2**62)]), m.ints("one", [1]), m.ints("by", [-1]), m.ints("one1", 1)]),
            Case("a part of a table", [n("Shape", "x", "s"), n("Gather", "s one", "l", axis=0), n("Sub", "most l", "from"), n("Slice", "t from most nil", "p"), n("MatMul", "x p", "y")], {"x": ["B", "L", "L"]}, ["y"], [m.ints("one", [1]), m.ints("most", [30]), m.ints("nil", [0]), weight("t", 30, 4)])]


def recurrents():
    return [recurrent("LSTM", "forward"), recurrent("GRU", "reverse"), recurrent("LSTM", "bidirectional", layers=2), recurrent("GRU", "bidirectional", lengths=True), recurrent("LSTM", "forward", state=True), recurrent("RNN", "forward", lengths=True)]


def graph(nodes, values, results, constants=(), name="body"):
    """A body or a branch; `values` and `results` are names, of floats, or (name, type[, shape])."""
    def ports(given):
        return [helper.make_tensor_value_info(*((*port, None)[:3] if isinstance(port, tuple) else (port, TensorProto.FLOAT, None))) for port in given]

    return helper.make_graph(nodes, name, ports(values), ports(results), list(constants))


def step(nodes, values, results, constants=()):
    """The body of a Loop."""
    return graph(nodes, [("i", TensorProto.INT64, []), ("c", TensorProto.BOOL, []), *values], [("go", TensorProto.BOOL, []), *results], constants)


def cell(x, state="h", to="h_next", prefix=""):
    """One step of a recurrent network that is none of ONNX's."""
    return [n("MatMul", f"{x} {prefix}w", f"{prefix}xw"), n("MatMul", f"{state} {prefix}u", f"{prefix}hu"), n("Add", f"{prefix}xw {prefix}hu", f"{prefix}s"), n("Softmax", f"{prefix}s", f"{prefix}p", axis=-1), n("Tanh", f"{prefix}s", f"{prefix}t"),
            n("Mul", f"{prefix}p {prefix}t", to)]


def cell_weights(width=8, prefix=""):
    return [weight(f"{prefix}w", width, 8), weight(f"{prefix}u", 8, 8)]


SHAPE = [n("Shape", "x", "shape"), n("Gather", "shape zero", "length", axis=0)]
LOOP_CONSTANTS = [m.ints("zero", 0), m.ints("one", 1), m.constant("yes", True, np.bool_), m.ints("many", np.iinfo(np.int64).max)]


def loops():
    """Loops and branches of run time beside a length: what is in them ends there."""
    newton = step([n("Div", "a v", "q"), n("Add", "v q", "s"), n("Mul", "s half", "next"), n("Sub", "next v", "d"), n("Abs", "d", "size"), n("ReduceMax", "size", "most", keepdims=0), n("Greater", "most least", "go")],
                  ["v"], ["next"], [m.constant("half", 0.5), m.constant("least", 1e-3)])
    search = step([n("Gather", "words token", "e"), n("MatMul", "e wq", "q"), n("MatMul", "q kt", "s"), n("Softmax", "s", "att_next", axis=-1), n("MatMul", "att_next states", "context"), n("Add", "context h", "sum"), n("Tanh", "sum", "h_next"),
                   n("MatMul", "h_next wo", "scores"), n("ArgMax", "scores", "token_next", axis=1, keepdims=0), n("Equal", "places i", "here"), n("Where", "here token_next text", "text_next"), n("Equal", "token_next end", "ends"), n("Not", "ends", "goes"),
                   n("Squeeze", "goes first", "go")],
                  [("token", TensorProto.INT64), "h", "att", ("text", TensorProto.INT64)], [("token_next", TensorProto.INT64), "h_next", "att_next", ("text_next", TensorProto.INT64)],
                  [m.constant("words", 3 * RNG.standard_normal((20, 16))), weight("wq", 16, 16), weight("wo", 16, 20), m.ints("places", list(range(9))), m.ints("end", [7]), m.ints("first", [0])])
    searched = [n("MatMul", "x we", "states"), n("Transpose", "states", "kt", perm=[1, 0]), n("ReduceMean", "states", "h0", axes=[0], keepdims=1), n("ReduceMean", "kt", "att0", axes=[0], keepdims=1),
                n("Loop", "most yes t0 h0 att0 q0", "last h att text", body=search)]
    steps = step([n("MatMul", "h w", "hw"), n("Relu", "hw", "h_next"), n("Identity", "c", "go")], ["h"], ["h_next"], [weight("w", 8, 8)])
    then, other = graph([n("MatMul", "x w", "xw"), n("Softmax", "xw", "t", axis=1)], [], ["t"]), graph([n("MatMul", "x v", "xv"), n("Sigmoid", "xv", "e")], [], ["e"])
    skipped, kept = graph([n("MatMul", "y w", "yw"), n("ReduceMean", "yw", "mu", axes=[1]), n("Sub", "yw mu", "k")], [], ["k"]), graph([n("Identity", "y", "same")], [], ["same"])
    branches = [n("ReduceMax", "x", "top", keepdims=0), n("Greater", "top limit", "b"), n("If", "b", "y", then_branch=then, else_branch=other), n("If", "c", "z", then_branch=skipped, else_branch=kept)]
    return [Case("newton", [n("Abs", "x", "ax"), n("Add", "ax onef", "a"), n("Loop", "many yes a", "y", body=newton)], {"x": ["L"]}, ["y"], [*LOOP_CONSTANTS, m.constant("onef", 1)]),
            Case("search", searched, {"x": ["L", 16], "t0": ([1], I64, 0, 9), "q0": ([9], I64, 0, 0)}, ["h", "att", "text"], [*LOOP_CONSTANTS, m.ints("most", 9), weight("we", 16, 16)]),
            Case("trips", [n("Loop", "k  x", "y", body=steps), n("ReduceMax", "y", "z", axes=[1])], {"k": ([], I64, 0, 4), "x": ["B", "L", 8]}, ["y", "z"], []),
            Case("trips of joined rows", [n("Reshape", "x flat", "r"), n("Loop", "k  r", "rows", body=steps), n("Shape", "x", "shape"), n("Reshape", "rows shape", "y")], {"k": ([], I64, 0, 4), "x": ["B", "L", 8]}, ["y"], [m.ints("flat", [-1, 8])]),
            Case("branches", branches, {"x": ["B", "L", 8], "c": ([], np.bool_, 0, 1)}, ["z"], [weight("w", 8, 8), weight("v", 8, 8), m.constant("limit", 2)])]


def counted_loops():
    """As many iterations as a length says."""
    pieces = step([n("Gather", "x i", "xi"), *cell("xi"), n("Identity", "h_next", "out"), n("Identity", "c", "go")], ["h"], ["h_next", "out"], cell_weights())
    states = {"x": ["L", 3, 8], "h0": [3, 8]}
    # As tf2onnx writes it: a time of its own and a condition that compares it.
    timed = step([n("Gather", "x time", "xi"), *cell("xi"), n("Identity", "h_next", "out"), n("Sub", "time one", "time_next"), n("GreaterOrEqual", "time_next zero", "go")], [("time", TensorProto.INT64), "h"], [("time_next", TensorProto.INT64), "h_next", "out"], cell_weights())
    rest = step([n("Add", "i one", "j"), n("Unsqueeze", "j axis", "from"), n("Add", "from axis1", "to"), n("Slice", "x from to axis", "part"), n("Squeeze", "part axis", "xi"), *cell("xi"), n("Identity", "c", "go")], ["h"], ["h_next"],
                [*cell_weights(), m.ints("axis", [0]), m.ints("axis1", [1])])
    # Along both dimensions of pictures.
    inner = graph([n("Gather", "row j", "xj"), *cell("xj", "g", "g_next", "in_"), n("Identity", "g_next", "piece"), n("Identity", "c2", "go2")], [("j", TensorProto.INT64, []), ("c2", TensorProto.BOOL, []), "g"], [("go2", TensorProto.BOOL, []), "g_next", "piece"],
                  cell_weights(prefix="in_"))
    outer = step([n("Gather", "x i", "row"), n("Shape", "row", "across"), n("Gather", "across zero", "width", axis=0), n("Loop", "width  h", "h_next pieces", body=inner), n("Identity", "c", "go")], ["h"], ["h_next", "pieces"])
    early = step([n("Gather", "x i", "xi"), *cell("xi"), n("ReduceMax", "h_next", "most", keepdims=0), n("Less", "most limit", "go")], ["h"], ["h_next"], [*cell_weights(), m.constant("limit", 0.3)])
    # As torch scripts it: lists of tensors, of which one grows at its end, the other one in front.
    lists = step([n("SequenceAt", "xs i", "xi"), *cell("xi"), n("SequenceInsert", "hs h_next", "hs_next"), n("SequenceInsert", "back h_next zero", "back_next"), n("Identity", "c", "go")], [], [], cell_weights())
    for ports, names in ((lists.input, ("hs", "back", "h")), (lists.output, ("hs_next", "back_next", "h_next"))):
        ports.extend([*(helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None) for name in names[:2]), helper.make_tensor_value_info(names[2], TensorProto.FLOAT, None)])
    listed = [n("SplitToSequence", "x", "xs", axis=1, keepdims=0), n("SequenceLength", "xs", "length"), n("SequenceEmpty", "", "none"), n("Loop", "length yes none none h0", "hs back h", body=lists), n("ConcatFromSequence", "hs", "ys", axis=1, new_axis=1),
              n("ConcatFromSequence", "back", "zs", axis=-1), n("SequenceAt", "hs minus", "y")]
    listed[2].ClearField("input")
    then, other = graph([n("Loop", "length yes h0", "t ts", body=pieces)], [], ["ts"]), graph([n("Neg", "x", "e")], [], ["e"])
    return [Case("RNN as Loop", [*SHAPE, n("Loop", "length yes h0", "h ys", body=pieces), n("MatMul", "ys v", "z")], states, ["h", "ys", "z"], [*LOOP_CONSTANTS, weight("v", 8, 5)]),
            Case("RNN as a while loop", [*SHAPE, n("Sub", "length one", "last"), n("Loop", "many yes last h0", "end h ys", body=timed)], states, ["h", "ys"], LOOP_CONSTANTS),
            Case("RNN from the second on", [*SHAPE, n("Sub", "length one", "others"), n("Gather", "x zero", "h0", axis=0), n("Loop", "others  h0", "h", body=rest)], {"x": ["L", 3, 8]}, ["h"], LOOP_CONSTANTS),
            Case("loops along both", [*SHAPE, n("Loop", "length  h0", "h ys", body=outer)], {"x": ["L", "K", 3, 8], "h0": [3, 8]}, ["h", "ys"], LOOP_CONSTANTS),
            Case("RNN of lists", listed, {"x": [3, "L", 8], "h0": [3, 8]}, ["h", "ys", "zs", "y"], [*LOOP_CONSTANTS, m.ints("minus", -1)]),
            Case("RNN that stops", [*SHAPE, n("Loop", "length yes h0", "h", body=early)], states, ["h"], LOOP_CONSTANTS),
            Case("RNN in a branch", [*SHAPE, n("If", "c", "y", then_branch=then, else_branch=other)], {**states, "c": ([], np.bool_, 0, 1)}, ["y"], LOOP_CONSTANTS)]


def scans():
    def body(inputs, extra=()):
        return graph([*cell("x0"), *extra, n("Identity", "h_next", "out"), n("ReduceSum", "p axis", "total", keepdims=0)], ["h", *inputs], ["h_next", "out", "total"], [*cell_weights(), m.ints("axis", [1])])

    gated = body(["x0", "gate"])
    gated.node[5].input[1] = "gate"  # in place of the tanh
    frames = [n("Conv", "x k", "f", pads=[1, 1], strides=[2]), n("Scan", "h0 f", "h ys totals", body=body(["x0"]), num_scan_inputs=1, scan_input_axes=[2], scan_output_axes=[1, 0])]
    stepless = graph([n("Cos", "x0", "y0")], ["x0"], ["y0"])
    return [Case("Scan", [n("Scan", "h0 x", "h ys totals", body=body(["x0"]), num_scan_inputs=1)], {"h0": [3, 8], "x": ["L", 3, 8]}, ["h", "ys", "totals"], []),
            Case("Scan back", [n("Scan", "h0 x g", "h ys totals", body=gated, num_scan_inputs=2, scan_input_axes=[1, 0], scan_input_directions=[1, 0], scan_output_axes=[2, 0], scan_output_directions=[1, 0])],
                 {"h0": ["B", 8], "x": ["B", "L", 8], "g": ["L", "B", 8]}, ["h", "ys", "totals"], []),
            Case("Scan of frames", frames, {"h0": [2, 8], "x": [2, 4, "S"]}, ["h", "ys", "totals"], [m.constant("k", RNG.standard_normal((8, 4, 3)) / 3)]),
            Case("Scan without a state", [n("Scan", "x", "y", body=stepless, num_scan_inputs=1, scan_input_axes=[1])], {"x": [3, "L"]}, ["y"], [])]


def written_out():
    """Recurrent networks step by step, which become rOperators."""
    gates = [n("MatMul", "xi w", "gx"), n("MatMul", "h r", "gh"), n("Add", "gx gh", "g0"), n("Add", "g0 b", "g"), n("Split", "g", "g1 g2 g3 g4", axis=1), n("Sigmoid", "g1", "si"), n("Sigmoid", "g2", "so"), n("Sigmoid", "g3", "sf"), n("Tanh", "g4", "tg"),
             n("Mul", "sf k", "kept"), n("Mul", "si tg", "new"), n("Add", "kept new", "k_next"), n("Tanh", "k_next", "tk"), n("Mul", "so tk", "h_next"), n("Identity", "h_next", "out")]
    weights = [weight("w", 8, 32), weight("r", 8, 32), m.constant("b", RNG.standard_normal(32))]
    plain = [n("MatMul", "xi w", "gx"), n("MatMul", "h r", "gh"), n("Add", "gx gh", "g"), n("Tanh", "g", "h_next"), n("Identity", "h_next", "out")]
    loop = step([n("Gather", "x i", "xi"), *gates, n("Identity", "c", "go")], ["h", "k"], ["h_next", "k_next", "out"], weights)
    back = graph(gates, ["h", "k", "xi"], ["h_next", "k_next", "out"], weights)
    scan = graph(plain, ["h", "xi"], ["h_next", "out"], [weight("w", 8, 8), weight("r", 8, 8)])
    backwards = {"num_scan_inputs": 1, "scan_input_directions": [1], "scan_output_directions": [1]}
    return [Case("LSTM as Loop", [*SHAPE, n("Loop", "length yes h0 k0", "h k ys", body=loop)], {"x": ["L", 2, 8], "h0": [2, 8], "k0": [2, 8]}, ["h", "k", "ys"], LOOP_CONSTANTS),
            Case("LSTM as Scan", [n("Scan", "h0 k0 x", "h k ys", body=back, **backwards)], {"h0": ["B", 8], "k0": ["B", 8], "x": ["S", "B", 8]}, ["h", "k", "ys"], []),
            Case("layers of Scan", [n("Scan", "h0 x", "h1 y1", body=scan, num_scan_inputs=1), n("Scan", "h0 y1", "h2 y2", body=scan, **backwards), n("Add", "y1 y2", "y")], {"h0": [2, 8], "x": ["L", 2, 8]}, ["h1", "h2", "y"], [])]


WRITTEN_OUT = written_out()
LOOPS = [*loops(), *counted_loops(), *scans()]
ALL = [encoder(), decoder(), cross(), *windows(), *reductions(), *along(), *moved(), *reshaped(), *resized(), *numbered(), *recurrents()]


# --- compiled, built and run -----------------------------------------------------------------------------------------

class Program:
    """All cases in one program, in a folder."""

    def __init__(self, tamp, cases, vdevice, precision):
        self.cases, self.ranges, self.folder, self.precision = cases, used(cases), tamp.folder, precision
        (tamp.folder / "many.onnx").write_bytes(merged(cases).SerializeToString())
        words = ["compile", "many.onnx", "--name", "many", "-q", "--vdevice", vdevice, "--precision", precision, *dim_words(self.ranges)]
        tamp(*words, "-o", "made")
        self.words = words
        (tamp.folder / "main.cu").write_text(f'#define TAMP_LENGTHS\n#define TAMP_MODEL_HEADER "many.h"\n#define TAMP_MODEL many\n#include "made/many.cu"\n#include "{harness.ROOT}/runtime_stub/host/runner.cpp"\n')
        build = ["g++", "-std=c++20", "-O0", "-march=native", "-Wno-unknown-pragmas", "-DTAMP_CUDA_ON_CPU", "-I", harness.ROOT / "runtime_stub/cuda_on_cpu", "-I", "made", "-o", "runner", "-x", "c++", "main.cu", "-x", "none",
                 "-lboost_context"]
        if models_test.DEVICE == "cuda":  # gpu_test.py
            build = ["nvcc", "-std=c++20", "-O1", "-arch=sm_90a", "-w", "-I", harness.ROOT, "-I", "made", "-o", "runner", "main.cu"]
        done = many.call(build, tamp.folder, many.COMPILE_SECONDS)
        assert done.returncode == 0, done.stderr[-2000:]

    def check(self, at, rng):
        data = [runs(case, at, rng) for case in self.cases]
        wanted = [(case, name, values) for case, (_, results) in zip(self.cases, data) for name, values in zip(case.outputs, results)]
        words = ["./runner", "--weights", "made/many.weights", "--wait-budget", "3600", "--lengths", ",".join(str(at[name]) for name in self.ranges)]
        for i, values in enumerate(values for arrays, _ in data for values in arrays):
            (self.folder / f"in{i}").write_bytes(np.ascontiguousarray(values).tobytes())
            words += ["--input", f"in{i}"]
        for i in range(len(wanted)):
            words += ["--output", f"out{i}"]
        done = many.call(words, self.folder, many.RUN_SECONDS)
        assert done.returncode == 0, f"at {at}: {done.returncode}: {done.stderr[-1000:]}"
        for i, (case, name, values) in enumerate(wanted):
            raw = (self.folder / f"out{i}").read_bytes()
            assert len(raw) == values.nbytes, f"{case.name}: {name} has {len(raw)} bytes at {at}, wanted {values.shape}"
            found = np.frombuffer(raw, values.dtype).reshape(values.shape)
            bound = 3e-3 if self.precision != "fp32" or values.dtype == np.float16 else 2e-4
            scale = np.max(np.abs(values), initial=1, where=np.isfinite(values)) if values.dtype.kind == "f" else 1
            is_right = np.allclose(found, values, rtol=bound, atol=bound * scale, equal_nan=True) if values.dtype.kind == "f" else np.array_equal(found, values)
            assert is_right, f"{case.name}: {name} at {at}: {found.ravel()[:8]}, wanted {values.ravel()[:8]}"


def places(rng):
    """Smallest and largest values, and two between them."""
    yield {name: least for name, (least, _) in RANGES.items()}
    yield {name: most for name, (_, most) in RANGES.items()}
    for _ in range(2):
        yield {name: int(rng.integers(least, most + 1)) for name, (least, most) in RANGES.items()}


def check_all(tamp, vdevice, precision):
    """Opset 13 has reductions that opset 17 has, too; the rest is of opset 17."""
    for opset in (13, 17):
        cases = [case for case in ALL if case.opset == opset and not (precision != "fp32" and case.name == "halves")]
        program, rng = Program(tamp, cases, vdevice, precision), np.random.default_rng(opset)
        for at in places(rng):
            program.check(at, rng)
    return program


def test_models_at_every_length(tamp):
    program = check_all(tamp, "cpu", "fp32")
    tamp(*program.words, "-o", "again")
    for name in ("many.cu", "many.weights", "many.h", "many.rprogram.json"):
        assert (tamp.folder / "again" / name).read_bytes() == (tamp.folder / "made" / name).read_bytes(), name


def test_models_compiled_for_h200(tamp):
    check_all(tamp, "h200", "tf32")


def test_loops_at_every_length(tamp):
    """The smallest and the largest lengths and one more; for the H200 two others."""
    for seed, (vdevice, precision, first, count) in enumerate([("cpu", "fp32", 0, 3), ("h200", "tf32", 2, 2)]):
        program, rng = Program(tamp, LOOPS, vdevice, precision), np.random.default_rng(seed)
        for at in list(places(rng))[first : first + count]:
            program.check(at, rng)


def test_recurrent_networks_step_by_step(tamp):
    """They are recurrent rOperators and no loops, as where the number of steps is known; beside another loop, too."""
    for seed, (vdevice, precision, others) in enumerate([("cpu", "fp32", []), ("h200", "tf32", scans()[:1])]):
        program, rng = Program(tamp, [*WRITTEN_OUT, *others], vdevice, precision), np.random.default_rng(seed)
        text = (tamp.folder / "made" / "many.cu").read_text()
        assert "recurrent" in text and [f" enter({i}" in text for i in (0, 1)] == [len(others) == 1, False], vdevice
        for at in list(places(rng))[:3]:
            program.check(at, rng)


def test_ports_of_16_bits(tamp):
    """The caller's tensors are copied as they are and cast inside."""
    for opset in (13, 17):
        program, rng = Program(tamp, [case for case in ALL if case.opset == opset and case.name == "halves"], "h200", "fp16"), np.random.default_rng(opset)
        for at in places(rng):
            program.check(at, rng)


def test_what_is_touched_is_declared(tamp):
    cases = [case for case in [*ALL, *LOOPS] if case.name in ("encoder", "conv stack", "LSTM bidirectional 2", "parts", "search", "branches", "Scan back")]
    (tamp.folder / "many.onnx").write_bytes(merged(cases).SerializeToString())
    at = {"B": 2, "L": 7, "S": 9}
    tamp("run", "many.onnx", "--device", "cpu", *dim_words(used(cases)), *[word for name, value in at.items() for word in ("--at", f"{name}={value}")], "--races", "--check")


def test_a_batch_of_a_model_of_one(tamp):
    """--batch replaces the number that the model says."""
    nodes = [n("Conv", "x w", "c", pads=[1] * 4), n("Relu", "c", "r"), n("GlobalAveragePool", "r", "g"), n("Flatten", "g", "f"), n("MatMul", "f v", "y")]
    case = Case("batch", nodes, {"x": [1, 3, 8, 8]}, ["y"], [m.constant("w", RNG.standard_normal((6, 3, 3, 3)) / 5), weight("v", 6, 10)])
    (tamp.folder / "net.onnx").write_bytes(case.model().SerializeToString())
    tamp("compile", "net.onnx", "-o", "net", "--vdevice", "cpu", "--batch", "1:5", "--name", "net")
    for batch in (1, 3, 5):
        tamp("run", "net", "--device", "cpu", "--at", f"batch={batch}", "--check", "--model", "net.onnx")


def test_a_bucket_of_one_value(tamp):
    """It is a program of fixed size, beside one with a length."""
    case = next(case for case in ALL if case.name == "encoder")
    (tamp.folder / "net.onnx").write_bytes(case.model().SerializeToString())
    tamp("compile", "net.onnx", "-o", "net", "--vdevice", "cpu", "--dim", "L=1,6,12", "--dim", "B=2", "--name", "net")
    for length in (1, 4, 12):
        tamp("run", "net", "--device", "cpu", "--at", f"L={length}", "--check", "--model", "net.onnx")


X = {"x": ["B", "L", 8]}
REFUSED = [
    (Case("", [*SHAPE, n("Sub", "length one", "others"), n("Loop", "others  x", "v ys", body=step([n("Neg", "v", "w"), n("Identity", "w", "out"), n("Identity", "c", "go")], ["v"], ["w", "out"]))], {"x": ["L"]}, ["ys"], LOOP_CONSTANTS), "has a result without elements at L=1"),
    (Case("", [n("Concat", "x z", "y", axis=1)], {"x": ["B", "L", 8], "z": ["B", "K", 8]}, ["y"], []), "node 'n_y' (Concat) puts 'z' behind the end of 'x', and both end at lengths of run time"),
    (Case("", [n("Slice", "x a b one", "y")], X, ["y"], [m.ints("a", [0]), m.ints("b", [2]), m.ints("one", [1])]), "node 'n_y' (Slice)"),
    (Case("", [n("NonZero", "x", "y")], X, ["y"], []), "node 'n_y' ("),
    (Case("", [n("TopK", "x k", "y i", axis=1)], {"x": ["B", "S", 8]}, ["y", "i"], [m.ints("k", [5])]), None),
    (Case("", [n("TopK", "x k", "y i", axis=1)], {"x": ["B", "S", 8]}, ["y", "i"], [m.ints("k", [6])]), "with S=5"),
    (Case("", [n("Shape", "x", "s"), n("Concat", "b s", "to", axis=0), n("Resize", ["x4", "", "", "to"], "y", mode="cubic"), n("Unsqueeze", "x one", "x4")], {"x": ["S", "K"]}, ["y"], [m.ints("b", [1, 4]), m.ints("one", [0, 1])]), "node 'n_y' (Resample) has a constant 'n_y' whose numbers change with the length"),
    (Case("", [n("Pad", "x p", "y", mode="reflect")], X, ["y"], [m.ints("p", [0, 1, 0, 0, 1, 0])]), "'n_y' (Pad, opset 17): pads 1 and 1"),
    (Case("", [n("Relu", "x", "y")], {"x": ["B", "L", "S", "K"]}, ["y"], []), "input 'x' has more than two dimensions behind the first that end at lengths of run time"),
    (Case("", [n("Shape", "x", "s"), n("Gather", "s one", "l", axis=0), n("Sub", "most l", "d"), n("Expand", "v d", "e"), n("Relu", "x", "y")], X, ["y", "e"], [m.ints("one", [1]), m.ints("most", [30]), m.constant("v", 1)]), "output 'e' has a dimension that falls with a length"),
]


def test_values_in_steps(tamp):
    """A detector whose maps fit each other at every eighth height only."""
    nodes = [n("Conv", "x w", "a", pads=[1] * 4, strides=[2, 2]), n("Conv", "a v", "b", pads=[1] * 4, strides=[2, 2]), n("Resize", ["b", "", "s"], "u", mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"), n("Concat", "u a", "c", axis=1),
             n("Reshape", "c rows", "r0"), n("Reshape", "b rows", "r1"), n("Slice", "r0 nil four one", "r2"), n("Concat", "r2 r1", "y", axis=2)]
    case = Case("steps", nodes, {"x": ["B", 3, "H", "W"]}, ["y", "c"], [m.constant("w", RNG.standard_normal((4, 3, 3, 3)) / 5), m.constant("v", RNG.standard_normal((4, 4, 3, 3)) / 5), m.constant("s", [1, 1, 2, 2]),
                                                                       m.ints("rows", [0, 0, -1]), m.ints("nil", [0]), m.ints("four", [4]), m.ints("one", [1])])
    (tamp.folder / "net.onnx").write_bytes(case.model().SerializeToString())
    tamp("compile", "net.onnx", "-o", "net", "--vdevice", "cpu", "--dim", "H=8:24:8", "--dim", "W=8:16:8", "--dim", "B=2", "--name", "net")
    assert "'H' 8 to 24 in steps of 8" in tamp("inspect", "net").stdout
    for height, width in ((8, 16), (24, 8)):
        tamp("run", "net", "--device", "cpu", "--at", f"H={height}", "--at", f"W={width}", "--check", "--model", "net.onnx")
    tamp("run", "net", "--device", "cpu", "--at", "H=12", "--at", "W=8", "--check", "--model", "net.onnx", says="length 'H' is 12, allowed are 8 to 24 in steps of 8", code=1)
    tamp("compile", "net.onnx", "-o", "n", "--vdevice", "cpu", "--dim", "H=4:24:8", says="no multiples of its step", code=1)


def test_what_has_no_rule_is_refused_by_name(tamp):
    for case, says in REFUSED:
        (tamp.folder / "n.onnx").write_bytes(case.model().SerializeToString())
        tamp("compile", "n.onnx", "-o", "n", "--vdevice", "cpu", *dim_words(used([case])), says=says or "", code=0 if says is None else 2)


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
