#!/usr/bin/env python3
"""Weights of few bits, and the operators of ONNX Runtime's quantiser, on the stand-in: against ONNX Runtime, or against numpy where that
lacks an operator or a type. A model has many nodes, as it is the g++ run that costs.

    weights_only_test.py TAMP [WORD...]
"""
import json
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime import quantization

import harness
import models as m
import quantised_models
import races_test
import transformers_test

MICROSOFT = "com.microsoft"


class Net:
    """Nodes of which each has an output of its own. `expected`: of numpy, by output; the others are ONNX Runtime's."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.ports, self.outputs, self.constants, self.inputs, self.expected = [], [], [], [], {}, {}

    def input(self, name, values):
        self.inputs[name] = values
        self.ports.append(m.value(name, list(values.shape), helper.np_dtype_to_tensor_dtype(values.dtype)))
        return name

    def constant(self, values, dtype=None):
        name = f"c{len(self.constants)}"
        self.constants.append(m.constant(name, values, dtype or np.asarray(values).dtype))
        return name

    def packed(self, onnx_type, shape, raw):
        """A tensor of a type that numpy lacks."""
        name = f"c{len(self.constants)}"
        self.constants.append(helper.make_tensor(name, onnx_type, shape, bytes(raw), raw=True))
        return name

    def random(self, shape, low, high, dtype):
        return self.rng.integers(low, high, shape).astype(dtype)

    def scales(self, shape, dtype=np.float32):
        return (self.rng.integers(1, 9, shape) / 64).astype(dtype)

    def node(self, op, operands, domain=MICROSOFT, **attributes):
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(m.node(op, operands, [name], name, domain=domain, **attributes))
        return name

    def add(self, op, operands, dtype, domain=MICROSOFT, expected=None, **attributes):
        name = self.node(op, operands, domain, **attributes)
        self.outputs.append((name, dtype))
        if expected is not None:
            self.expected[name] = np.asarray(expected)
        return name

    def check(self, tamp, opset=21, steps=1):
        """`steps`: by how many an integer may differ, where ONNX Runtime rounds a product earlier."""
        ports = [m.value(name, None, helper.np_dtype_to_tensor_dtype(np.dtype(dtype))) for name, dtype in self.outputs]
        made = m.model(self.nodes, self.ports, ports, self.constants, opset=opset, ir=10)
        made.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
        (tamp.folder / "model.onnx").write_bytes(made.SerializeToString())
        arguments = []
        for name, values in self.inputs.items():
            np.save(tamp.folder / f"{name}.npy", values)
            arguments += ["--input", f"{name}={name}.npy"]
        tamp("run", "model.onnx", "--device", "cpu", "--precision", "fp32", "--check", "--output-dir", "out", *arguments)
        files = json.loads((tamp.folder / "out" / "outputs.json").read_text())
        wanted = dict(self.expected)
        theirs = [name for name, _ in self.outputs if name not in wanted]
        if theirs:  # without the nodes that it lacks
            needed, nodes = set(theirs), []
            for node in reversed(self.nodes):
                if needed & set(node.output):
                    needed.update(node.input)
                    nodes.insert(0, node)
            del made.graph.node[:], made.graph.output[:]
            made.graph.node.extend(nodes)
            made.graph.output.extend(port for port in ports if port.name in theirs)
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3  # says nothing of constants that are left over
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
            wanted.update(zip(theirs, session.run(theirs, {port.name: self.inputs[port.name] for port in session.get_inputs()})))
        for name, dtype in self.outputs:
            got, reference = np.load(tamp.folder / "out" / files[name]), wanted[name]
            assert got.shape == reference.shape and got.dtype == reference.dtype, (name, got.shape, got.dtype, reference.shape, reference.dtype)
            difference = np.abs(got.astype(np.float64) - reference.astype(np.float64)).max()
            largest = np.abs(reference.astype(np.float64)).max()
            allowed = steps if np.dtype(dtype).kind in "iu" else largest * (2e-3 if np.dtype(dtype) == np.float16 else 1e-5)
            assert difference <= allowed, f"{name} differs by {difference}, of numbers up to {largest}"


def bits_of(values, bits):
    """Numbers of `bits` bits along the last dimension as bytes, the first in the lowest bits; a row ends with zeros."""
    values = np.asarray(values).astype(np.int64) & ((1 << bits) - 1)
    in_byte = 8 // bits
    rest = -values.shape[-1] % in_byte
    values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, rest)])
    groups = values.reshape(*values.shape[:-1], -1, in_byte)
    return (groups << (np.arange(in_byte) * bits)).sum(-1).astype(np.uint8)


def add_n_bits(net, a, k, n, bits, block, zeros=None, bias=False, dtype=np.float32, groups=None, flat=False, numpy=False):
    blocks = -(-k // block)
    q = net.random([n, blocks * block], 0, 1 << bits, np.int64)
    scales = net.scales([n, blocks], dtype)
    zero = np.full([n, blocks], 1 << (bits - 1), np.float64)
    operands = [a, net.constant(bits_of(q, bits).reshape(n, blocks, block * bits // 8)), net.constant(scales.reshape(-1) if flat else scales)]
    operands += ["", "", ""]
    if zeros == "packed":
        zero = net.random([n, blocks], 0, 1 << bits, np.int64)
        operands[3] = net.constant(bits_of(zero, bits))
    if zeros == "float":
        zero = (net.rng.integers(0, 4 << bits, [n, blocks]) / 4).astype(dtype)
        operands[3] = net.constant(zero)
    if groups is not None:
        operands[4] = net.constant(np.array(groups, np.int32))
    added = net.scales([n], dtype) if bias else np.zeros(n, dtype)
    if bias:
        operands[5] = net.constant(added)
    while not operands[-1]:
        operands.pop()
    block_of = np.array(groups) if groups is not None else np.arange(k) // block
    weights = ((q[:, :k] - zero[:, block_of]) * scales[:, block_of].astype(np.float64)).astype(dtype)
    expected = (net.inputs[a].astype(np.float64) @ weights.T.astype(np.float64) + added).astype(dtype) if numpy else None
    net.add("MatMulNBits", operands, dtype, expected=expected, K=k, N=n, bits=bits, block_size=block)


def test_n_bits(tamp):
    net = Net(1)
    a = net.input("a", net.random([3, 128], -4, 5, np.float32))
    b = net.input("b", net.random([2, 3, 40], -4, 5, np.float32))
    for bits, block in [(4, 16), (4, 32), (4, 128), (8, 32), (2, 32)]:
        add_n_bits(net, a, 128, 24, bits, block, numpy=bits == 2)
        add_n_bits(net, a, 128, 7, bits, block, zeros="packed", bias=True, numpy=bits == 2)
    for bits in (4, 8, 2):  # K is not a multiple of the block
        add_n_bits(net, b, 40, 9, bits, 16, zeros="packed", flat=bits == 4, numpy=True)
        add_n_bits(net, b, 40, 9, bits, 16, zeros="float", numpy=True)
    add_n_bits(net, b, 40, 5, 4, 16, zeros="packed", groups=[(7 * k + 1) % 3 for k in range(40)], numpy=True)
    net.check(tamp)


def test_n_bits_of_halves(tamp):
    net = Net(2)
    a = net.input("a", net.random([3, 64], -4, 5, np.float16))
    add_n_bits(net, a, 64, 16, 4, 32, dtype=np.float16, numpy=True)
    add_n_bits(net, a, 64, 16, 8, 16, zeros="packed", bias=True, dtype=np.float16, numpy=True)
    add_n_bits(net, a, 64, 16, 4, 32, zeros="float", dtype=np.float16, numpy=True)
    net.check(tamp)


def test_bnb4(tamp):
    net = Net(3)
    a = net.input("a", net.random([3, 50], -4, 5, np.float32))
    for kind in (0, 1):
        count = 50 * 12
        operands = [a, net.constant(net.random([count // 2], 0, 256, np.uint8)), net.constant(net.scales([-(-count // 32)]))]
        net.add("MatMulBnb4", operands, np.float32, K=50, N=12, block_size=32, quant_type=kind)
    net.check(tamp)


TYPES = {"int4": (TensorProto.INT4, 4, -8, 8), "uint4": (TensorProto.UINT4, 4, 0, 16), "int8": (TensorProto.INT8, 8, -128, 128),
         "uint8": (TensorProto.UINT8, 8, 0, 256)}


def quantised(net, name, shape, axis, block, zeros, dtype=np.float32):
    """Operands of a DequantizeLinear, and what numpy makes of them. block None: a scale for each element of `axis`; 0: one."""
    onnx_type, bits, low, high = TYPES[name]
    per = list(shape)
    if block:
        per[axis] = -(-shape[axis] // block)
    q, scales = net.random(shape, low, high, np.int64), net.scales(per if block else [] if block == 0 else [shape[axis]], dtype)
    zero = net.random(scales.shape, low, high, np.int64) if zeros else np.zeros(scales.shape, np.int64)

    def pack(values):
        return net.packed(onnx_type, values.shape, bits_of(values.reshape(-1), bits))

    def spread(values):
        if block:
            return np.take(np.repeat(values, block, axis), np.arange(shape[axis]), axis)
        return values if values.ndim == 0 else values.reshape([-1 if d == axis else 1 for d in range(len(shape))])
    operands = [pack(q), net.constant(scales)] + ([pack(zero)] if zeros else [])
    return operands, ((q - spread(zero)).astype(np.float32) * spread(scales).astype(np.float32)).astype(dtype)


def test_dequantize_by_blocks(tamp):
    net = Net(4)
    a = net.input("a", net.random([3, 40], -4, 5, np.float32))
    b = net.input("b", net.random([3, 24], -4, 5, np.float32))
    for name in TYPES:
        for axis, block in [(0, 8), (1, 8), (0, 16), (-1, 16), (0, None), (1, None), (0, 0)]:
            operands, values = quantised(net, name, [40, 24], axis % 2, block, zeros=axis == 0)
            attributes = {"axis": axis, "block_size": block} if block else {"axis": axis}
            w = net.node("DequantizeLinear", operands, "", **attributes)
            net.add("MatMul", [a, w], np.float32, "", expected=net.inputs["a"] @ values)
            if axis == 1:
                net.add("Gemm", [b, w], np.float32, "", expected=net.inputs["b"] @ values.T, transB=1)
    operands, values = quantised(net, "int4", [3, 5, 7], 1, 2, True)  # an odd count, three dimensions, the last block is short
    net.add("DequantizeLinear", operands, np.float32, "", expected=values, axis=1, block_size=2)
    operands, values = quantised(net, "uint4", [3, 5], 1, 5, True, np.float16)
    net.add("DequantizeLinear", operands, np.float16, "", expected=values, axis=1, block_size=5)
    net.check(tamp)


def test_blocks_at_run_time(tamp):
    net = Net(5)
    x = net.input("x", (net.random([3, 20], -400, 400, np.float32) / 8).astype(np.float32))
    q = net.input("q", net.random([3, 20], -128, 128, np.int8))
    scales = net.constant(net.scales([3, 3]))
    zeros = net.constant(net.random([3, 3], -5, 5, np.int8))
    net.add("QuantizeLinear", [x, scales, zeros], np.int8, "", axis=1, block_size=8)
    net.add("DequantizeLinear", [q, scales, zeros], np.float32, "", axis=1, block_size=8)
    for onnx_type, low, high in [(TensorProto.INT4, -8, 7), (TensorProto.UINT4, 0, 15)]:
        zero = net.packed(onnx_type, [], [3])
        scale = net.constant(np.float32(2))
        four = net.node("QuantizeLinear", [x, scale, zero], "")
        expected = (np.clip(np.round(net.inputs["x"] / 2) + 3, low, high) - 3) * 2
        net.add("DequantizeLinear", [four, scale, zero], np.float32, "", expected=expected)
        net.add("Cast", [net.node("Reshape", [four, net.constant(np.array([-1], np.int64))], "")], np.int8, "",
                expected=(expected / 2 + 3).astype(np.int8).reshape(-1), to=TensorProto.INT8)
    net.check(tamp)


EIGHTS = [TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ]


def test_floats_of_eight_bits(tamp):
    """All finite numbers of each type as weights; and rounding to it at run time, of numbers at and around halfway."""
    net = Net(6)
    a = net.input("a", net.random([2, 16], -4, 5, np.float32))
    spread = np.concatenate([np.linspace(-70000, 70000, 301), np.linspace(-500, 500, 301), np.linspace(-1, 1, 257), np.linspace(-0.02, 0.02, 257)])
    x = net.input("x", spread.astype(np.float32))
    for n, onnx_type in enumerate(EIGHTS):
        dtype = helper.tensor_dtype_to_np_dtype(onnx_type)
        numbers = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
        patterns = np.where(np.isfinite(numbers), np.arange(256), 0).astype(np.uint8)
        numbers = patterns.view(dtype).astype(np.float32).reshape(16, 16)
        w = net.node("DequantizeLinear", [net.packed(onnx_type, [16, 16], patterns), net.constant(np.float32(0.25))], "")
        net.add("MatMul", [a, w], np.float32, "", expected=net.inputs["a"] @ (numbers / 4))
        net.add("Cast", [net.packed(onnx_type, [256], patterns)], np.float32, "", expected=numbers.reshape(-1), to=TensorProto.FLOAT)
        narrow = net.node("Cast", [x], "", to=onnx_type)
        largest = np.abs(numbers).max()
        expected = np.clip(net.inputs["x"], -largest, largest).astype(dtype).astype(np.float32)
        net.add("Cast", [narrow], np.float32, "", expected=expected, to=TensorProto.FLOAT)
        zero = net.packed(onnx_type, [], [0])
        scale = net.constant(np.float32(2))
        q = net.node("QuantizeLinear", [x, scale, zero], "")
        expected = np.clip(net.inputs["x"] / 2, -largest, largest).astype(dtype).astype(np.float32) * 2
        net.add("DequantizeLinear", [q, scale, zero], np.float32, "", expected=expected)
    net.check(tamp)


def test_gather_block_quantized(tamp):
    net = Net(7)
    ids = net.input("ids", net.random([2, 3], 0, 20, np.int64))
    for name in ("int4", "uint4"):
        for zeros in (False, True):
            operands, _ = quantised(net, name, [20, 32], 1, 16, zeros)
            net.add("GatherBlockQuantized", [operands[0], ids, *operands[1:]], np.float32, block_size=16, quantize_axis=1)
    for bits in (4, 8):
        q, zero = net.random([20, 32], 0, 1 << bits, np.int64), net.random([20, 2], 0, 1 << bits, np.int64)
        operands = [net.constant(bits_of(q, bits)), ids, net.constant(net.scales([20, 2]))]
        net.add("GatherBlockQuantized", operands, np.float32, block_size=16, quantize_axis=1, bits=bits)
        net.add("GatherBlockQuantized", [*operands, net.constant(bits_of(zero, bits))], np.float32, block_size=16, quantize_axis=1, bits=bits)
    # A decoder's embedding and its head: one tensor.
    x = net.input("x", net.random([1, 32], -4, 5, np.float32))
    b, scales = net.constant(bits_of(net.random([20, 32], 0, 16, np.int64), 4).reshape(20, 2, 8)), net.constant(net.scales([20, 2]))
    table = net.node("Reshape", [b, net.constant(np.array([20, 16], np.int64))], "")
    net.add("GatherBlockQuantized", [table, ids, scales], np.float32, block_size=16, quantize_axis=1)
    net.add("MatMulNBits", [x, b, scales], np.float32, K=32, N=20, bits=4, block_size=16)
    net.check(tamp)


def q_input(net, name, shape, dtype):
    info = np.iinfo(dtype)
    return [net.input(name, net.random(shape, info.min, info.max + 1, dtype)), net.constant(np.float32(0.125)), net.constant(dtype(info.max // 2))]


def test_q_linear(tamp):
    for dtype in (np.uint8, np.int8):
        net = Net(8)
        x, y = q_input(net, "x", [2, 4, 6, 6], dtype), q_input(net, "y", [4, 1, 6], dtype)
        to = [net.constant(np.float32(0.25)), net.constant(dtype(7))]
        small = [net.constant(np.float32(1 / 256)), net.constant(dtype(0 if dtype == np.uint8 else -128))]
        net.add("QLinearAdd", [*x, *y, *to], dtype)
        net.add("QLinearMul", [*x, *y, *to], dtype)
        net.add("QLinearSigmoid", [*x, *small], dtype)
        net.add("QLinearLeakyRelu", [*x, *to], dtype, alpha=0.25)
        net.add("QLinearConcat", [*to, *x, *x], dtype, axis=1)
        net.add("QLinearAveragePool", [*x, *to], dtype, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
        net.add("QLinearAveragePool", [*x, *to], dtype, kernel_shape=[2, 2], strides=[2, 2], channels_last=1)
        net.add("QLinearGlobalAveragePool", [*x, *to], dtype)
        net.add("QLinearGlobalAveragePool", [*x, *to], dtype, channels_last=1)
        net.add("QLinearSoftmax", [*x, *small], dtype, axis=-1, opset=13)
        net.add("QLinearSoftmax", [*x, *small], dtype, axis=2, opset=11)
        chosen = net.input("chosen", net.random([2, 4, 6, 1], 0, 2, np.bool_))
        net.add("QLinearWhere", [chosen, *x, *y, *to], dtype)
        net.check(tamp)


def test_q_products(tamp):
    net = Net(9)
    a = q_input(net, "a", [5, 24], np.uint8)
    b = net.constant(net.random([24, 8], -128, 128, np.int8))
    turned = net.constant(net.random([8, 24], -128, 128, np.int8))
    scales, zeros = net.constant(net.scales([8])), net.constant(net.random([8], -3, 4, np.int8))
    one, none = net.constant(np.float32(0.25)), net.constant(np.int8(2))
    c = net.constant(net.random([8], -500, 500, np.int32))
    to = [net.constant(np.float32(16)), net.constant(np.uint8(120))]
    net.add("QGemm", [*a, b, scales, zeros, c, *to], np.uint8)
    net.add("QGemm", [*a, turned, one, none, c, *to], np.uint8, transB=1, alpha=0.5)
    net.add("QGemm", [*a, b, scales, zeros], np.float32)
    bias = net.constant(net.scales([8]))
    net.add("MatMulIntegerToFloat", [a[0], b, a[1], scales, a[2], zeros, bias], np.float32)
    net.add("MatMulIntegerToFloat", [a[0], b, a[1], one], np.float32)
    x = net.input("x", (net.random([5, 24], -40, 90, np.float32) / 16).astype(np.float32))
    net.add("DynamicQuantizeMatMul", [x, b, scales, zeros, bias], np.float32)
    net.add("DynamicQuantizeMatMul", [x, b, one], np.float32)
    net.add("QuantizeLinear", [x, one, none], np.int8)
    net.add("DequantizeLinear", [b, scales, zeros], np.float32, axis=1)
    net.check(tamp)


def test_network_of_q_operators(tamp):
    """What onnxruntime.quantization makes of a network, in its form of operators that take integers."""
    rng = np.random.default_rng(11)
    nodes = [m.node("Conv", ["x", "k"], ["a"], "conv", pads=[1] * 4), m.node("Relu", ["a"], ["b"]),
             m.node("Conv", ["b", "k2"], ["c"], "conv2", pads=[1] * 4), m.node("Add", ["b", "c"], ["d"]),
             m.node("AveragePool", ["d"], ["e"], kernel_shape=[2, 2], strides=[2, 2]), m.node("LeakyRelu", ["e"], ["l"]),
             m.node("Concat", ["e", "l"], ["cc"], axis=1), m.node("GlobalAveragePool", ["cc"], ["g"]), m.node("Flatten", ["g"], ["f"]),
             m.node("Gemm", ["f", "w", "bias"], ["h"]), m.node("Sigmoid", ["h"], ["s"]), m.node("Softmax", ["s"], ["y"])]
    weights = [m.constant(name, rng.normal(size=shape) / 3) for name, shape in
               [("k", [8, 3, 3, 3]), ("k2", [8, 8, 3, 3]), ("w", [16, 10]), ("bias", [10])]]
    made = m.model(nodes, [m.value("x", [1, 3, 8, 8])], [m.value("y", [1, 10])], weights)
    (tamp.folder / "float.onnx").write_bytes(made.SerializeToString())

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.left = iter([{"x": rng.normal(size=[1, 3, 8, 8]).astype(np.float32)} for _ in range(4)])

        def get_next(self):
            return next(self.left, None)
    x = rng.normal(size=[1, 3, 8, 8]).astype(np.float32)
    np.save(tamp.folder / "x.npy", x)
    path = tamp.folder / "model.onnx"
    for kind in (quantization.QuantType.QInt8, quantization.QuantType.QUInt8):
        quantization.quantize_static(tamp.folder / "float.onnx", path, Reader(), quant_format=quantization.QuantFormat.QOperator,
                                     activation_type=quantization.QuantType.QUInt8, weight_type=kind, per_channel=kind == quantization.QuantType.QInt8)
        expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        tamp("run", "model.onnx", "--device", "cpu", "--precision", "fp32", "--input", "x=x.npy", "--output-dir", "out")
        got = np.load(tamp.folder / "out" / json.loads((tamp.folder / "out" / "outputs.json").read_text())["y"])
        assert np.array_equal(got, expected), np.abs(got - expected).max()


def test_weights_beyond_the_folding_limit(tamp):
    """A vocabulary's weights, 96 MiB as floats: unpacking is not folding."""
    net = Net(10)
    a = net.input("a", net.random([1, 256], -4, 5, np.float32))
    add_n_bits(net, a, 256, 98304, 4, 32, zeros="packed", numpy=True)
    net.check(tamp)


def test_rows_of_few_bits(tamp):
    """A token's products keep their weights in few bits, and the answers are those of tamp's reference."""
    vdevice = races_test.slow_memory(tamp, sms=12, sms_in_clusters=12)
    for bits, zeros, precision in ((4, False, "fp16"), (8, True, "tf32"), (4, True, "bf16")):
        made = quantised_models.in_few_bits(transformers_test.one_token(), bits, zeros=zeros)
        (tamp.folder / "row.onnx").write_bytes(made.SerializeToString())
        out = tamp("run", "row.onnx", "--device", "cpu", "--vdevice", vdevice, "--precision", precision, "--check", "--keep", f"kept{bits}{zeros}").stdout
        assert "good" in out, out
        names = " ".join(rop["rkernel"] for rop in json.loads((tamp.folder / f"kept{bits}{zeros}" / "row.rprogram.json").read_text())["rops"])
        assert f"gemv_row_{bits}bit" in names and f"row_feed_forward_{bits}bit" in names, names


def test_large_weights_stay_in_few_bits(tamp):
    """More than a MiB as floats, so that their bytes are made where they are read, and are looked at only because the model has numbers of few bits."""
    (tamp.folder / "row.onnx").write_bytes(quantised_models.in_few_bits(transformers_test.one_token(768, 1), 4).SerializeToString())
    tamp("compile", "row.onnx", "-q", "-o", "row", "--vdevice", races_test.slow_memory(tamp), "--precision", "fp16")
    names = [rop["rkernel"] for rop in json.loads((tamp.folder / "row" / "row.rprogram.json").read_text())["rops"]]
    assert sum(name.startswith("gemv_row_4bit") for name in names) >= 3, names  # queries, keys and values


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
