#!/usr/bin/env python3
"""`tamp run --races`: what bodies touch is what they declare. Clean on small networks that together run every rKernel family, as one
persistent kernel and as graphs; a body that reads or writes what it does not declare is caught.

    races_test.py TAMP [WORD...]
    races_test.py TAMP --random COUNT [SEED]     (by hand: random networks, a part of them as graphs)
"""
import dataclasses
import json
import pathlib
import re
import sys
import tempfile

import numpy as np
from onnx import TensorProto

import conformance
import harness
import many
import models as m
import models_test as nets
import random_test as random_test_of_all
import random_wide
import generate_test as generate
import bytes_rows_test as bytes_rows
import bytes_test
import quantised_models
import recurrent_test as recurrent
import transformers_test as transformers


def check_races(tamp, made, *options, code=0, says="", env=None):
    path = tamp.folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    done = tamp("run", path, "--device", "cpu", "--races", "--check", "--keep", tamp.folder / "kept", *options, code=code, says=says, env=env)
    if code == 0:
        assert re.search(r"^races   none: [1-9]\d* rTasks read", done.stdout, re.M), done.stdout
    return done


def eager_rows(tamp, **fields):
    """An H200 on which the parts of a row's feed-forward part cost nothing, so that small networks have them, too."""
    own = json.loads((harness.ROOT / "compiler/ir/vdevices/h200.json").read_text())
    own["costs"]["row_feed_forward"] = {"stream_share": 1e-6, "sum_us": 1e-6, "cells_us": 1e-6}
    path = tamp.folder / "eager_rows.json"
    path.write_text(json.dumps({key: value for key, value in {**own, **fields, "name": "own"}.items() if key != "gpus"}))
    return path


def slow_memory(tamp, **fields):
    """The same where reading weights takes so long that few bits are worth it in small networks, too."""
    return eager_rows(tamp, l2_bytes=1, dram_gb_per_s=10, **fields)


# --- networks ----------------------------------------------------------------------------------------------------------

def separable_behind_stem():
    """A convolution of three channels; a depthwise one that the pointwise one behind it computes on the way."""
    nodes = [m.node("Conv", ["x", "w1"], ["a"], "stem", pads=[1] * 4, strides=[2, 2]), m.node("Relu", ["a"], ["r"], "relu"),
             m.node("Conv", ["r", "w2"], ["d"], "depthwise", pads=[1] * 4, group=32), m.node("Conv", ["d", "w3"], ["y"], "pointwise")]
    return m.model(nodes, [nets.port("x", 1, 3, 33, 31)], [nets.port("y", 1, 48, 17, 16)],
                   [nets.weight("w1", 32, 3, 3, 3), nets.weight("w2", 32, 1, 3, 3), nets.weight("w3", 48, 32, 1, 1)])


def stem_of_a_batch():
    """A convolution of three channels, of which each vEU has several tiles; behind it, channels lie together."""
    nodes = [m.node("Conv", ["x", "w1"], ["a"], "stem", pads=[3] * 4, strides=[2, 2]), m.node("Relu", ["a"], ["r"], "relu"),
             m.node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]), m.node("Conv", ["p", "w2"], ["y"], "last")]
    return m.model(nodes, [nets.port("x", 6, 3, 38, 44)], [nets.port("y", 6, 32, 10, 11)],
                   [nets.weight("w1", 64, 3, 7, 7), nets.weight("w2", 32, 64, 1, 1)])


def bottlenecks():
    """Residual blocks: the last pointwise convolution of each and the first one of the next are a pair."""
    nodes = [m.node("Conv", ["x", "wf"], ["f"], "first", pads=[1] * 4), m.node("Relu", ["f"], ["rf"], "relu_f")]
    weights, x = [nets.weight("wf", 72, 8, 3, 3)], "rf"
    for i in range(4):
        for name, outputs, inputs, taps in (("a", 24, 72, 1), ("b", 24, 24, 3), ("c", 72, 24, 1)):
            weights.append(nets.weight(f"w{name}{i}", outputs, inputs, taps, taps))
        nodes += [m.node("Conv", [x, f"wa{i}"], [f"a{i}"], f"reduce{i}"), m.node("Relu", [f"a{i}"], [f"ra{i}"], f"relu_a{i}"),
                  m.node("Conv", [f"ra{i}", f"wb{i}"], [f"b{i}"], f"conv{i}", pads=[1] * 4), m.node("HardSwish", [f"b{i}"], [f"rb{i}"], f"swish{i}"),
                  m.node("Conv", [f"rb{i}", f"wc{i}"], [f"c{i}"], f"expand{i}"), m.node("Add", [f"c{i}", x], [f"s{i}"], f"add{i}"),
                  m.node("Relu", [f"s{i}"], [f"y{i}"], f"relu{i}")]
        x = f"y{i}"
    nodes.append(m.node("Conv", [x, "wl"], ["y"], "last", pads=[1] * 4))
    return m.model(nodes, [nets.port("x", 1, 8, 14, 13)], [nets.port("y", 1, 8, 14, 13)], [*weights, nets.weight("wl", 8, 72, 3, 3)])


def turns():
    """Of a batch so large that each rTask of bodies without products makes several turns."""
    nodes = [m.node("Conv", ["x", "w1"], ["a"], "first"), m.node("Relu", ["a"], ["r"], "relu"),
             m.node("Conv", ["r", "w2"], ["d"], "depthwise", pads=[1] * 4, group=64), m.node("Relu", ["d"], ["e"], "between"),
             m.node("MaxPool", ["e"], ["p"], "pool", kernel_shape=[3, 3], pads=[1] * 4), m.node("GlobalAveragePool", ["p"], ["y"], "average")]
    return m.model(nodes, [nets.port("x", 24, 16, 20, 20)], [nets.port("y", 24, 64, 1, 1)],
                   [nets.weight("w1", 64, 16, 1, 1), nets.weight("w2", 64, 1, 3, 3)])


def separable_residual():
    """Of 44 channels, which lie as 48 where they are of 16 bits: a filter of five taps and a residual, then one with a stride of two."""
    nodes = [m.node("Conv", ["x", "w1"], ["a"], "stem", pads=[1] * 4, strides=[2, 2]), m.node("Relu", ["a"], ["r"], "relu"),
             m.node("Conv", ["r", "w2"], ["d"], "depthwise", pads=[2] * 4, group=44), m.node("Conv", ["d", "w3"], ["p"], "pointwise"),
             m.node("Add", ["p", "r"], ["s"], "add"), m.node("Conv", ["s", "w4"], ["e"], "strided", pads=[1] * 4, strides=[2, 2], group=44),
             m.node("Relu", ["e"], ["t"], "between"), m.node("Conv", ["t", "w5"], ["y"], "last")]
    return m.model(nodes, [nets.port("x", 1, 3, 33, 31)], [nets.port("y", 1, 20, 9, 8)],
                   [nets.weight("w1", 44, 3, 3, 3), nets.weight("w2", 44, 1, 5, 5), nets.weight("w3", 44, 44, 1, 1), nets.weight("w4", 44, 1, 3, 3),
                    nets.weight("w5", 20, 44, 1, 1)])


def many_pixels():
    """Pointwise convolutions of few channels in three images: 24 to 72 and back with a residual, and to 200, which are two blocks of the ring."""
    nodes = [m.node("Conv", ["x", "w1"], ["a"], "stem", pads=[1] * 4), m.node("Relu", ["a"], ["r"], "relu"), m.node("Conv", ["r", "w2"], ["b"], "wider"),
             m.node("HardSwish", ["b"], ["h"], "swish"), m.node("Conv", ["h", "w3"], ["c"], "narrower"), m.node("Add", ["c", "r"], ["s"], "add"),
             m.node("Conv", ["s", "w4"], ["d"], "widest"), m.node("Relu", ["d"], ["t"], "behind"), m.node("Conv", ["t", "w5"], ["y"], "last", pads=[1] * 4, strides=[2, 2])]
    return m.model(nodes, [nets.port("x", 3, 3, 26, 23)], [nets.port("y", 3, 8, 13, 12)],
                   [nets.weight("w1", 24, 3, 3, 3), nets.weight("w2", 72, 24, 1, 1), nets.weight("w3", 24, 72, 1, 1), nets.weight("w4", 200, 24, 1, 1), nets.weight("w5", 8, 200, 3, 3)])


def open_rows():
    """Rows of which each run says how many there are, and their mean."""
    nodes = [m.node("MatMul", ["x", "w"], ["t"]), m.node("ReduceMean", ["t"], ["y"], axes=[1], keepdims=0)]
    return m.model(nodes, [m.value("x", [1, "rows", 8])], [m.value("t", [1, "rows", 8]), m.value("y", [1, 8])], [m.constant("w", np.eye(8))])


def padded_pixels():
    """Depthwise convolutions of 39 channels, which lie as 40: whole vectors are read, the last of them with the padding."""
    nodes = [m.node("Conv", ["x", "w1"], ["a"], "stem", pads=[1] * 4), m.node("Relu", ["a"], ["r"], "relu"),
             m.node("Conv", ["r", "w2"], ["d"], "depthwise", pads=[1] * 4, group=39), m.node("Conv", ["r", "w3"], ["e"], "dilated", pads=[2] * 4, dilations=[2, 2], group=39),
             m.node("Add", ["d", "e"], ["s"], "add"), m.node("Conv", ["s", "w4"], ["y"], "pointwise")]
    return m.model(nodes, [nets.port("x", 1, 3, 19, 17)], [nets.port("y", 1, 48, 19, 17)],
                   [nets.weight("w1", 39, 3, 3, 3), nets.weight("w2", 39, 1, 3, 3), nets.weight("w3", 39, 1, 3, 3), nets.weight("w4", 48, 39, 1, 1)])


def large_filters():
    """The first half of a ConvNeXt block, and the next one's: threads share the 7x7 filters' rows, and rows of 64 channels are normalised side by side."""
    norm = lambda x, n: [m.node("Transpose", [x], [f"t{n}"], f"last{n}", perm=[0, 2, 3, 1]), m.node("LayerNormalization", [f"t{n}", "s", "b"], [f"n{n}"], f"norm{n}", axis=-1),
                         m.node("Transpose", [f"n{n}"], [f"c{n}"], f"first{n}", perm=[0, 3, 1, 2])]
    nodes = [m.node("Conv", ["x", "w0"], ["a"], "stem"), m.node("Conv", ["a", "w1", "b"], ["d"], "wide", pads=[3] * 4, group=64), *norm("d", 1),
             m.node("Conv", ["c1", "w2"], ["e"], "pointwise"), m.node("Add", ["e", "a"], ["r"], "add"),
             m.node("Conv", ["r", "w3", "b"], ["f"], "strided", pads=[3] * 4, strides=[2, 2], group=64), *norm("f", 2), m.node("Conv", ["c2", "w2"], ["y"], "last")]
    weights = [nets.weight("w0", 64, 8, 1, 1), nets.weight("w1", 64, 1, 7, 7), nets.weight("w2", 64, 64, 1, 1), nets.weight("w3", 64, 1, 7, 7),
               *(m.constant(name, nets.random(name, 64)) for name in "sb")]
    return m.model(nodes, [nets.port("x", 1, 8, 23, 25)], [nets.port("y", 1, 64, 12, 13)], weights)


def long_rows():
    """Normalisations of few long rows: a map as one group, as exporters write it, another one as groups of odd channels, and single channels."""
    nodes = [m.node("Conv", ["x", "w1"], ["a"], "first"), m.node("Reshape", ["a", "flat"], ["r"], "flatten"),
             m.node("InstanceNormalization", ["r", "one", "zero"], ["n"], "norm"), m.node("Reshape", ["n", "map"], ["u"], "back"),
             m.node("Mul", ["u", "s"], ["k"], "scale"), m.node("Add", ["k", "b"], ["g"], "shift"), m.node("Conv", ["g", "w2"], ["c"], "second"),
             m.node("GroupNormalization", ["c", "s20", "b20"], ["d"], "groups", num_groups=4), m.node("Conv", ["d", "w3"], ["e"], "third"),
             m.node("InstanceNormalization", ["e", "s5", "b5"], ["y"], "channels")]
    weights = [nets.weight("w1", 16, 8, 1, 1), nets.weight("w2", 20, 16, 1, 1), nets.weight("w3", 5, 20, 1, 1), m.ints("flat", [0, 1, -1]), m.ints("map", [1, 16, 53, 48]),
               m.constant("one", np.ones(1, np.float32)), m.constant("zero", np.zeros(1, np.float32)), m.constant("s", nets.random("s", 16, 1, 1)),
               m.constant("b", nets.random("b", 16, 1, 1)), *(m.constant(name, nets.random(name, int(name[1:]))) for name in ("s20", "b20", "s5", "b5"))]
    return m.model(nodes, [nets.port("x", 1, 8, 53, 48)], [nets.port("y", 1, 5, 53, 48)], weights, opset=21)


def element_types():
    """One rOperator of each plain body for other types than f32, an output that is a constant, and a GridSample."""
    nodes = [m.node("Add", ["i", "j"], ["sum"], "add"), m.node("Transpose", ["i"], ["turned"], "transpose"), m.node("Pad", ["sum", "pads"], ["padded"], "pad"),
             m.node("Gather", ["f", "at"], ["rows"], "gather"), m.node("ReduceSum", ["sum", "axes"], ["total"], "reduce"),
             m.node("MatMulInteger", ["b", "wm"], ["product"], "matmul"), m.node("ConvInteger", ["image", "wc"], ["conved"], "conv", pads=[1] * 4),
             m.node("GridSample", ["picture", "grid"], ["sampled"], "sample"), m.node("Identity", ["axes"], ["constant"], "constant")]
    inputs = [m.value("i", [5, 7], TensorProto.INT32), m.value("j", [5, 7], TensorProto.INT32), nets.port("f", 6, 5), m.value("at", [4], TensorProto.INT64),
              m.value("b", [3, 8], TensorProto.UINT8), m.value("image", [1, 4, 5, 6], TensorProto.UINT8), nets.port("picture", 1, 3, 6, 5),
              nets.port("grid", 1, 4, 4, 2)]
    outputs = [m.value("turned", [7, 5], TensorProto.INT32), m.value("padded", None, TensorProto.INT32), nets.port("rows", 4, 5), m.value("total", None, TensorProto.INT32),
               m.value("product", None, TensorProto.INT32), m.value("conved", None, TensorProto.INT32), nets.port("sampled", 1, 3, 4, 4),
               m.value("constant", None, TensorProto.INT64)]
    weights = [m.ints("pads", [0, 1, 2, 0]), m.ints("axes", [1]), m.constant("wm", [[1, -2, 3]] * 8, "int8"), m.constant("wc", [[[[1, 2], [3, -4]]] * 4] * 3, "int8")]
    return m.model(nodes, inputs, outputs, weights)


def biased():
    """Bodies that read a bias where the weights file has it: a depthwise and a grouped convolution, and a product of two activations."""
    nodes = [m.node("Conv", ["x", "w1", "b1"], ["d"], "depthwise", pads=[2] * 4, group=8, dilations=[2, 2]),
             m.node("Conv", ["x", "w2", "b2"], ["y"], "grouped", group=2), m.node("Conv", ["d", "w3", "b3"], ["z"], "odd", group=4),
             m.node("MatMul", ["p", "q"], ["pq"], "product"), m.node("Add", ["pq", "b4"], ["r"], "shift")]
    inputs = [nets.port("x", 1, 8, 9, 7), nets.port("p", 2, 5, 6), nets.port("q", 2, 6, 7)]
    outputs = [nets.port("y", *[None] * 4), nets.port("z", *[None] * 4), nets.port("r", 2, 5, 7)]
    weights = [nets.weight("w1", 8, 1, 3, 3), nets.weight("w2", 8, 4, 3, 3), nets.weight("w3", 12, 2, 2, 2)]
    return m.model(nodes, inputs, outputs, weights + [m.constant(f"b{i + 1}", nets.random(f"b{i + 1}", n)) for i, n in enumerate([8, 8, 12, 7])])


def pixels():
    """One rOperator of each body over windows and regions that is not a convolution."""
    nodes = [m.node("Resize", ["x", "", "scales"], ["larger"], "resize", mode="linear"),
             m.node("RoiAlign", ["x", "rois", "of"], ["aligned"], "align", output_height=2, output_width=3, sampling_ratio=2),
             m.node("MaxRoiPool", ["x", "regions"], ["pooled"], "regions", pooled_shape=[2, 2]),
             m.node("MaxPool", ["x"], ["p", "places"], "pool", kernel_shape=[2, 2], strides=[2, 2]), m.node("MaxUnpool", ["p", "places"], ["back"], "unpool", kernel_shape=[2, 2], strides=[2, 2])]
    weights = [m.constant("scales", np.array([1, 1, 1.5, 2], np.float32)), m.constant("rois", np.array([[0, 0, 3, 4], [1, 1, 5, 5]], np.float32)), m.ints("of", [0, 0]),
               m.constant("regions", np.array([[0, 0, 0, 3, 4], [0, 1, 1, 5, 5]], np.float32))]
    return m.model(nodes, [nets.port("x", 1, 5, 6, 8)], [nets.port(name, *[None] * 4) for name in ("larger", "aligned", "pooled", "back")], weights)


def order():
    """Bodies that order elements or take and put them by places, and a normalisation."""
    nodes = [m.node("TopK", ["x", "k"], ["most", "where"], "topk"), m.node("TopK", ["line", "k"], ["first", "places"], "of_a_line"), m.node("CumSum", ["x", "one"], ["sums"], "sums"),
             m.node("ScatterElements", ["x", "at", "u"], ["put"], "put", axis=1), m.node("LayerNormalization", ["x", "scale"], ["even"], "norm", axis=-1)]
    inputs = [nets.port("x", 37, 50), m.value("at", [37, 4], TensorProto.INT64), nets.port("u", 37, 4), nets.port("line", 1, 3001)]
    outputs = [nets.port("most", 37, 3), m.value("where", [37, 3], TensorProto.INT64), nets.port("first", 1, 3), m.value("places", [1, 3], TensorProto.INT64), nets.port("sums", 37, 50), nets.port("put", 37, 50), nets.port("even", 37, 50)]
    return m.model(nodes, inputs, outputs, [m.ints("k", [3]), m.ints("one", [1]), m.constant("scale", nets.random("scale", 50))])


def shared_rows():
    """Rows of 2, 6 and 78 channels that end within a vector: beside other tensors' elements, and beside nobody's."""
    nodes = [m.node("Relu", ["x"], ["r"], "relu"), m.node("Concat", ["r", "x", "r", "x"], ["y"], "join", axis=3), m.node("Neg", ["r"], ["n"], "neg"),
             m.node("Conv", ["p", "w1"], ["a"], "wide", pads=[1] * 4), m.node("Sin", ["a"], ["s"], "sin"), m.node("Add", ["s", "a"], ["t"], "add"),
             m.node("Conv", ["t", "w2"], ["z"], "behind"), m.node("Concat", ["q", "t"], ["u"], "beside", axis=1), m.node("Neg", ["t"], ["v"], "neg2")]
    inputs = [nets.port("x", 7, 5, 3, 2), nets.port("p", 1, 8, 9, 7), nets.port("q", 1, 6, 9, 7)]
    outputs = [nets.port("y", 7, 5, 3, 8), nets.port("n", 7, 5, 3, 2), *(nets.port(name, *[None] * 4) for name in "zuv")]
    return m.model(nodes, inputs, outputs, [nets.weight("w1", 78, 8, 3, 3), nets.weight("w2", 8, 78, 1, 1)])


def bounded():
    """Results whose size only the run knows, and a sample of three dimensions."""
    nodes = [m.node("NonZero", ["x"], ["places"], "places"), m.node("NonMaxSuppression", ["boxes", "scores", "most"], ["chosen"], "chosen"),
             m.node("GridSample", ["volume", "grid"], ["sampled"], "sample")]
    inputs = [nets.port("x", 5, 7), nets.port("boxes", 1, 9, 4), nets.port("scores", 1, 2, 9), nets.port("volume", 1, 2, 3, 4, 5), nets.port("grid", 1, 2, 3, 4, 3)]
    outputs = [m.value("places", [2, "n"], TensorProto.INT64), m.value("chosen", ["k", 3], TensorProto.INT64), nets.port("sampled", 1, 2, 2, 3, 4)]
    return m.model(nodes, inputs, outputs, [m.ints("most", [4])], opset=20)


def gated():
    """Squeeze-and-excite whose gate is a result, too: in four rOperators."""
    model = nets.mobile()
    model.graph.output.append(nets.port("gate", 1, 24, 1, 1))
    return model


def gang():
    return recurrent.one("LSTM", (3, 1, 256), 256, results=("Y", "Yc"))


def quantised_blocks():
    """Weights with scales, results that are rounded, and sums that are scaled and rounded."""
    net, floats = quantised_models.blocks()
    return quantised_models.quantised(net, floats, "qdq s8 s8 channel")


CLEAN = [  # name, model, options, how the names of the rKernels begin that it must run
    ("boxes", nets.boxed, ["--vdevice", "h200"], "staged_conv_tf32 implicit_gemm_tf32"),
    ("separable", separable_behind_stem, ["--vdevice", "h200"], "patch_conv separable_conv"),
    ("mobile", nets.mobile, ["--vdevice", "h200"], "depthwise_squeeze excite direct"),
    ("gated", gated, ["--vdevice", "h200"], "depthwise<4 direct elementwise reduce_sum"),
    ("excited", nets.excited, ["--vdevice", "h200"], "depthwise_squeeze_16bit squeeze_16bit excite_16bit"),
    ("narrow_excited", nets.excited, ["--vdevice", "h200", "--precision", "fp16"], "depthwise_squeeze_16bit squeeze_16bit excite_16bit"),
    ("summed", nets.summed, ["--vdevice", "h200"], "staged_conv_tf32 excite_of_sums_16bit"),
    ("narrow_summed", nets.summed, ["--vdevice", "h200", "--precision", "fp16"], "staged_conv_fp16 excite_of_sums_16bit"),
    ("pooled", nets.pooled, ["--vdevice", "h200"], "staged_conv_tf32 gemv_of_sums_16bit"),
    ("narrow_pooled", nets.pooled, ["--vdevice", "h200", "--precision", "fp16"], "staged_conv_fp16 gemv_of_sums_16bit"),
    ("pooled_graph", nets.pooled, ["--vdevice", "h200", "--execution", "graph"], "staged_conv_tf32 gemv_of_sums_16bit"),
    ("padded_pixels", padded_pixels, ["--vdevice", "h200"], "depthwise<4"),
    ("open_rows", open_rows, ["--vdevice", "h200", "--dim", "rows=2:40", "--at", "rows=7"], "ended_copy"),
    ("large_filters", large_filters, ["--vdevice", "h200"], "depthwise_boxes depthwise<4 normalize<rows staged_conv_tf32"),
    ("narrow_large_filters", large_filters, ["--vdevice", "h200", "--precision", "fp16"], "depthwise_boxes depthwise<4 normalize<rows"),
    ("long_rows", long_rows, ["--vdevice", "h200"], "normalize<split"),
    ("narrow_long_rows", long_rows, ["--vdevice", "h200", "--precision", "fp16"], "normalize<split"),
    ("biased", biased, [], "depthwise direct matmul_direct"),
    ("conv_odd", nets.conv_odd, [], "implicit_gemm_fp32"),
    ("inception", nets.inception, ["--precision", "tf32"], "pool implicit_gemm_tf32"),
    ("batch_norm", nets.batch_norm, ["--precision", "fp16"], "staged_conv_fp16"),
    ("narrow", nets.inception, ["--vdevice", "h200", "--precision", "fp16"], "staged_conv_fp16 pool"),
    ("narrow_separable", separable_residual, ["--vdevice", "h200", "--precision", "fp16"], "patch_conv separable_conv"),
    ("quantised", quantised_blocks, ["--vdevice", "h200", "--precision", "fp16"], "patch_quantised staged_conv_fp16 separable_conv"),
    *((f"bytes_streamed_{kind}", lambda made=made: made.finished()[0], ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder)], "streamed_conv_fp16") for kind, made in (("plain", bytes_test.pointwise("u8", 128)), ("again", bytes_test.again("s8", 6)))),
    ("streamed", many_pixels, ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder), "--precision", "fp16"], "streamed_conv_fp16"),
    ("bytes_of_sums", lambda: bytes_test.residual("s8", 1, 3).finished()[0], ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder)], "staged_conv_fp16"),
    *((f"bytes_of_eights_{kind}", lambda kind=kind, kernel=kernel: bytes_test.concat(kind, (24, 40), kernel).finished()[0], ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder)], "staged_conv_fp16") for kind, kernel in (("u8", 1), ("s8", 3))),
    ("bytes_of_tables", lambda: bytes_test.again("s8", 3).finished()[0], ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder)], "staged_conv_fp16"),
    *((f"bytes_of_gates_{number}", lambda number=number: bytes_test.excited(*bytes_test.EXCITED[number][:-1]).finished()[0], ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder)], rkernels)
      for number, rkernels in ((0, "depthwise_sums excite_rounded_of_sums"), (3, "depthwise_sums excite_rounded<"), (5, "channel_sums excite_rounded<"), (7, "channel_sums excite_rounded_of_sums"))),
    *((f"bytes_of_means_{number}", lambda number=number: bytes_test.head(*bytes_test.HEADS[number]).finished()[0], ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder)], "channel_sums rounded_head_16bit") for number in (1, 3)),
    ("bytes_of_an_image", lambda: bytes_test.image("s8", 7, 2, (31, 29), True).finished()[0], ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder)], "patch_quantised"),
    ("bytes_of_pixels", lambda: bytes_test.pixels("u8").finished()[0], ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder)], "patch_strip_fp16 depthwise_strips"),
    ("bytes_of_rows", lambda: bytes_rows.quantised(lambda: bytes_rows.encoder(33, 64, 2, 2), "qdq s8 s8 symmetric")[0], ["--vdevice", "h200", "--precision", "fp16"],
     "normalize<quantised attention_rounded_once elementwise staged_conv_fp16"),
    ("bytes_kept", lambda: bytes_rows.quantised(lambda: bytes_rows.encoder(21, 80, 8, behind=False), "qdq u8 s8")[0], ["--vdevice", "h200", "--precision", "fp16"],
     "normalize<quantised attention_rounded<"),
    ("bytes_of_chains", lambda: bytes_rows.chained("u8", 44, (128, 9, 250)).finished()[0], ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder)], "elementwise staged_conv_fp16"),
    *((f"bytes_of_{name}", lambda made=made: bytes_rows.gates(*made).finished()[0], ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder)], "elementwise staged_conv_fp16")
      for name, made in (("blocks", ("s8", 44, (0, 0, 7), 3)), ("large_blocks", ("u8", 40, (100, 9, 128), 8)))),
    ("bytes_pooled", lambda: bytes_rows.pooled("s8", -5, 3, 2, 1).finished()[0], ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder)], "pool<strips"),
    ("bytes_walked", lambda: bytes_rows.pooled("u8", 31, 3, 1, 1, 4, (60, 44)).finished()[0], ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder)], "pool<walks"),
    ("bytes_averaged", lambda: bytes_rows.averaged("u8", 4).finished()[0], ["--vdevice", lambda tamp: bytes_test.few_sms(tamp.folder)], "pool<4"),
    ("patches", transformers.stem, ["--vdevice", "h200"], "patch_normalize staged_conv"),
    ("narrow_patches", transformers.stem, ["--vdevice", "h200", "--precision", "fp16"], "patch_normalize staged_conv_fp16"),
    ("merged_stages", transformers.merged_stages, ["--vdevice", "h200", "--records", "none"], "patch_normalize normalize<rows"),
    ("narrow_merged_stages", lambda: transformers.merged_stages(2), ["--vdevice", "h200", "--precision", "fp16", "--records", "none"], "patch_normalize staged_conv_fp16"),
    ("stem_of_a_batch", stem_of_a_batch, ["--vdevice", "cpu", "--precision", "tf32"], "patch_strip_tf32"),
    ("narrow_stem_of_a_batch", stem_of_a_batch, ["--vdevice", "cpu", "--precision", "fp16"], "patch_strip_fp16"),
    ("bottlenecks", bottlenecks, ["--vdevice", "h200"], "pointwise_pair_tf32"),
    ("narrow_bottlenecks", bottlenecks, ["--vdevice", "h200", "--precision", "fp16"], "pointwise_pair_fp16"),
    ("turns", turns, ["--vdevice", "cpu", "--precision", "fp16"], "depthwise_strips pool<walks reduce"),
    ("narrow_gated", gated, ["--vdevice", "h200", "--precision", "bf16"], "depthwise<4 gemv elementwise"),
    ("narrow_transformer", transformers.vit, ["--vdevice", "h200", "--precision", "fp16"], "attention normalize<rows staged_conv_fp16"),
    ("attention", nets.attention, [], "matmul_direct softmax"),
    ("transformer", transformers.vit, ["--vdevice", "h200"], "attention normalize<rows staged_conv_fp16"),
    ("feed_forward", lambda: transformers.feed_forwards(96, (1, 77)), ["--vdevice", "h200"], "feed_forward_fp16"),
    ("feed_forward_on_clusters", lambda: transformers.feed_forwards(192, (1, 69), 2), ["--vdevice", "h200", "--precision", "bf16", "--records", "none"], "feed_forward_bf16"),
    ("self_attention", lambda: transformers.attended_windows(3, 7), ["--vdevice", "h200", "--precision", "fp16"], "self_attention_fp16"),
    ("self_attention_of_floats", lambda: transformers.attended_windows(2, 6), ["--vdevice", "h200"], "self_attention_fp16"),
    ("wide_transformer", transformers.vit, ["--vdevice", "h200", "--activations", "fp32"], "attention normalize<rows staged_conv_tf32"),
    ("transformer_graph", transformers.vit, ["--vdevice", "h200", "--execution", "graph"], "attention normalize<rows"),
    ("decoder_step", transformers.decoder_step, ["--vdevice", "h200"], "attention_step<64,"),
    ("decoder_step_of_shares", lambda: transformers.decoder_step(3000), ["--vdevice", "h200", "--precision", "fp16"], "attention_step<64,"),
    ("cached_step", lambda: transformers.cached_step(2000, 64), ["--vdevice", "h200"], "attention_step<64,"),
    ("narrow_cached_step", lambda: transformers.in_type(transformers.cached_step(300, 128), TensorProto.FLOAT16), ["--vdevice", "h200", "--precision", "fp16"], "attention_step<128>"),
    ("decoder_step_graph", transformers.decoder_step, ["--vdevice", "h200", "--precision", "fp32", "--execution", "graph"], "attention_step<64,"),
    ("one_token", transformers.one_token, ["--vdevice", "h200"], "gemv_row_16bit attention_step"),
    ("narrow_one_token", transformers.one_token, ["--vdevice", "h200", "--precision", "bf16"], "gemv_row_16bit"),
    ("gated_feed_forward", lambda: transformers.llama(64, 45, 1), ["--vdevice", "h200", "--precision", "fp16"], "gated_feed_forward"),
    ("row_feed_forward", transformers.one_token, ["--vdevice", eager_rows], "row_feed_forward"),
    ("narrow_row_feed_forward", lambda: transformers.one_token(128, 1), ["--vdevice", eager_rows, "--precision", "fp16"], "row_feed_forward"),
    ("dynamic", lambda: quantised_models.quantised(*quantised_models.classifier(), "dynamic s8"), ["--vdevice", "h200", "--precision", "fp16"], "quantise"),
    ("quantised_transformer", lambda: quantised_models.quantised(*quantised_models.transformer(), "qdq s8 s8 channel"), ["--vdevice", "h200", "--precision", "fp16"], "attention_rounded_once normalize<quantised elementwise"),
    ("quantised_transformer_fp32", lambda: quantised_models.quantised(*quantised_models.transformer(), "qdq s8 s8 channel"), ["--vdevice", "h200", "--precision", "fp32"], "softmax normalize<quantised"),
    ("quantised_wide_heads", lambda: quantised_models.quantised(*quantised_models.transformer(19, 96, 1), "qdq u8 s8"), ["--vdevice", "h200", "--precision", "fp16"], "attention_rounded<"),
    ("quantised_products", lambda: quantised_models.quantised(*quantised_models.transformer(), "qdq s8 s8 products"), ["--vdevice", "h200", "--precision", "fp16"], "attention_rounded normalize<quantised"),
    ("row_of_4_bits", lambda: quantised_models.in_few_bits(transformers.one_token(), 4), ["--vdevice", slow_memory, "--precision", "fp16"], "gemv_row_4bit attention_step"),
    ("row_feed_forward_of_8_bits", lambda: quantised_models.in_few_bits(transformers.one_token(128, 1), 8, 64, zeros=True), ["--vdevice", lambda tamp: slow_memory(tamp, sms=12, sms_in_clusters=12), "--precision", "fp16"], "row_feed_forward_8bit gemv_row_8bit"),
    ("shared_rows", shared_rows, [], "elementwise"),
    ("reductions", nets.reductions, [], "reduce lrn indexed_copy direct"),
    ("gang", gang, ["--vdevice", "h200"], "recurrent_gang"),
    ("recurrent_direct", lambda: recurrent.one("GRU", (2, 2, 5), 3), ["--vdevice", "t4"], "recurrent_direct"),
    ("element_types", element_types, [], "typed_map typed_copy typed_gather typed_reduce typed_matmul typed_conv byte_copy grid_sample"),
    ("pixels", pixels, [], "resample roi_align max_roi_pool pool_indices max_unpool"),
    ("bounded", bounded, [], "typed_non_zero non_max_suppression volume_sample"),
    ("order", order, [], "typed_top_k typed_cumulate typed_scatter normalize"),
    ("tokens", generate.decoder, ["--generate"], "next_token"),
    ("excited_graph", nets.excited, ["--vdevice", "h200", "--execution", "graph"], "depthwise_squeeze squeeze excite"),
]


def rops_of(tamp):
    return json.loads((tamp.folder / "kept" / "model.rprogram.json").read_text())["rops"]


def clean_test(name, make, options, rkernels):
    def test(tamp):
        check_races(tamp, make(), *(option(tamp) if callable(option) else option for option in options))
        names = [rop["rkernel"] for rop in rops_of(tamp)]
        for wanted in rkernels.split():
            assert any(name.startswith(wanted) for name in names), f"no rKernel {wanted}, but {names}"
    test.__name__ = f"test_{name}_is_clean"
    return test


def test_every_family_is_run_by_a_network_above(tamp):
    families = re.findall(r"^ *X\((\w+)\)", (harness.ROOT / "kernels/catalogue.cpp").read_text(), re.M)
    assert len(families) > 20, families
    rkernels = " ".join(case[3] for case in CLEAN).split()
    missing = [family for family in families if not any(name.startswith(family) for name in rkernels)]
    assert not missing, f"families of kernels/catalogue.cpp that no network of CLEAN runs: {missing}"


# --- wrong bodies ----------------------------------------------------------------------------------------------------

def with_wrong_body(tamp, before, after, name="model.cu"):
    """An environment whose g++ first changes the text of the generated source, as if the body had been written so."""
    return harness.with_gxx(tamp, f"""
source, = pathlib.Path(".").glob({name!r})
text = source.read_text()
if {after!r} not in text:
    assert text.count({before!r}) == 1, text.count({before!r})
    source.write_text(text.replace({before!r}, {after!r}))
""")


def wide_relu():
    """So many elements that several rTasks share them."""
    return m.model([m.node("Relu", ["x"], ["y"], "wide")], [nets.port("x", 256, 1024)], [nets.port("y", 256, 1024)])


def test_an_undeclared_read_is_caught(tamp):
    """Every rTask reads 16 bytes of what the next one works on; the answer is right all the same."""
    before = "static_load<kPartial>(args, from, i, scalar, near, row, column, values.inputs[i]);"
    after = ("{ " + before + " if (task.index == 0) values.inputs[i][0].x += "
             "0.0f * load1(from + (column[0] + args.groups_per_rtask) * 4); }")
    says = r"'wide' rTask 0 \(vEU \d+\), rKernel [^,]*<.*>, reads byte \d+ of port 0, element \d+ of buffer \d+ \('x'\), which it does not declare; it declares"
    done = check_races(tamp, wide_relu(), code=4, env=with_wrong_body(tamp, before, after))
    assert re.search(says, done.stderr), done.stderr


def test_an_undeclared_write_is_caught(tamp):
    """The first rTask stores what another one stores, too: the same values, so that the answer may well be right."""
    before = "store4(to, Operands::lowered(args, values.acc[g]));"
    after = before + " if (task.index == 0) store4(to + 4 * args.groups_per_rtask, values.acc[g]);"
    says = r"'wide' rTask 0 \(vEU \d+\), rKernel [^,]*<.*>, writes byte \d+ of port 1, element \d+ of buffer \d+ \('y'\), which it does not declare"
    done = check_races(tamp, wide_relu(), code=4, env=with_wrong_body(tamp, before, after))
    assert re.search(says, done.stderr), done.stderr


def test_a_box_from_elsewhere_is_caught(tamp):
    """The copies that a rTask's service warps make are its own: here they come from four rows below."""
    before = "static_cast<int32_t>(channel), place.w, place.h, place.image, count"
    says = r"'c2' rTask 0 \(vEU \d+\), rKernel staged_conv_tf32<.*>, reads byte \d+ of the arena, element \d+ of buffer \d+ \('r'\), which it does not declare"
    done = check_races(tamp, nets.boxed(), "--vdevice", "h200", code=4, env=with_wrong_body(tamp, before, before.replace("place.h", "place.h + 4")))
    assert re.search(says, done.stderr), done.stderr


def test_a_word_of_another_one_of_the_gang_is_caught(tamp):
    """A gang of several vEUs, of which the second one also publishes words that are not its own."""
    before = "cuda_on_cpu::publish(word, make_word(value, epoch));"
    after = before + " if (blockIdx.x == 1) cuda_on_cpu::publish(word + 128, make_word(value, epoch));"
    done = check_races(tamp, gang(), "--vdevice", "h200", code=4, env=with_wrong_body(tamp, before, after))
    assert [rop["rtasks"] > 2 for rop in rops_of(tamp) if rop["rkernel"].startswith("recurrent_gang")] == [True], rops_of(tamp)
    assert re.search(r"'n' rTask \d+ \(vEU 1\), rKernel recurrent_gang<.*>, writes .*, which it does not declare", done.stderr), done.stderr


def test_races_are_looked_for_on_the_stand_in_and_in_models_only(tamp):
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    tamp("compile", "relu.onnx", "-o", "relu")
    tamp("run", "relu", "--device", "cpu", "--races", code=1, says="--races needs the model")


# --- by hand ---------------------------------------------------------------------------------------------------------

def accepted(tamp, seeds, options, operators):
    """The random models of these seeds that tamp takes, in groups that fit into one program."""
    groups, ports = [[]], 0
    for seed in seeds:
        part, _ = random_wide.make(seed, operators)
        with tempfile.TemporaryDirectory(prefix="tamp-random-") as folder:
            try:
                many.compile_model(tamp.program, part.model, pathlib.Path(folder), options)
                needed = len(many.ports(part.model)) + len(many.output_types(pathlib.Path(folder))[0])  # counts of padded results included
            except many.Failure as failure:
                assert failure.kind == "refused", f"seed {seed}: {failure.text}"
                continue
        if ports + needed > many.MOST_PORTS:
            groups.append([])
            ports = 0
        groups[-1].append(part)
        ports += needed
    return [group for group in groups if group]


def random_test(first, seeds):
    """Several random models in one program: starting g++ is what each would cost."""
    def test(tamp):
        options = dataclasses.replace(random_test_of_all.setting(first), precision=["fp32", "tf32", "fp16"][first // len(seeds) % 3])
        for group in accepted(tamp, seeds, options, set(conformance.versions_of(tamp.program))):
            path = tamp.folder / "model.onnx"
            path.write_bytes(many.merge(group).SerializeToString())
            done = tamp("run", path, "--device", "cpu", "--races", *options.words())
            assert re.search(r"^races   none: [1-9]\d* rTasks read", done.stdout, re.M), done.stdout
            print(f"    {', '.join(part.name for part in group)}: none", flush=True)
    test.__name__ = f"test_random_{seeds[0]}_to_{seeds[-1]}"
    return test


def all_tests():
    if sys.argv[2:3] == ["--random"]:
        count, first = int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1
        sys.argv[2:] = []
        return [random_test(seed, range(seed, min(seed + 8, first + count))) for seed in range(first, first + count, 8)]
    return [clean_test(*case) for case in CLEAN] + harness.tests_of(globals())


if __name__ == "__main__":
    sys.exit(harness.main(all_tests()))
