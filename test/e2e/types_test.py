#!/usr/bin/env python3
"""Element types at run time, on the stand-in: functions, casts, data movement, indices and reductions of every type against numpy, and
quantised products against ONNX Runtime. A model has many nodes, as it is the g++ run that costs; results of one type are joined into one
output.

    types_test.py TAMP [WORD...]
"""
import json
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import harness
import models as m

WHOLE = {"int8": np.int8, "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16, "int32": np.int32, "uint32": np.uint32, "int64": np.int64,
         "uint64": np.uint64}
FLOAT = {"float16": np.float16, "float": np.float32, "double": np.float64}
ALL = {**WHOLE, **FLOAT, "bool": np.bool_}
SHAPE = [2, 3, 4]


def onnx_type(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


class Net:
    """Nodes with the results that numpy expects of them."""

    def __init__(self):
        self.nodes, self.ports, self.constants, self.inputs, self.results = [], [], [], {}, {}
        self.model = None  # as of check()

    def input(self, name, values):
        self.inputs[name] = values
        self.ports.append(m.value(name, list(values.shape), onnx_type(values.dtype)))
        return name

    def constant(self, values):
        name = f"c{len(self.constants)}"
        self.constants.append(m.constant(name, values, np.asarray(values).dtype))
        return name

    def add(self, op, operands, expected, **attributes):
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(m.node(op, operands, [name], name, **attributes))
        if expected is not None:
            expected = np.asarray(expected)
            self.results.setdefault(np.dtype(expected.dtype), []).append((name, expected))
        return name

    def check(self, tamp, opset=18, reference=True):
        """All results of a type are one output. `reference`: tamp compares them with its own, too."""
        outputs, expected = [], {}
        for dtype, results in list(self.results.items()):
            parts = []
            for name, values in results:
                parts.append(f"{name}_flat")
                self.nodes.append(m.node("Reshape", [name, self.constant(np.array([-1], np.int64))], [parts[-1]], parts[-1]))
            out = f"out_{dtype}"
            expected[out] = results
            self.nodes.append(m.node("Concat", parts, [out], out, axis=0))
            outputs.append(m.value(out, [sum(values.size for _, values in results)], onnx_type(dtype)))
        made = m.model(self.nodes, self.ports, outputs, self.constants, opset=opset)
        self.model = made
        (tamp.folder / "model.onnx").write_bytes(made.SerializeToString())
        arguments = []
        for name, values in self.inputs.items():
            np.save(tamp.folder / f"{name}.npy", values)
            arguments += ["--input", f"{name}={name}.npy"]
        tamp("run", "model.onnx", "--device", "cpu", "--precision", "fp32", *["--check"] * reference, "--output-dir", "out", *arguments)
        files = json.loads((tamp.folder / "out" / "outputs.json").read_text())
        for out, results in expected.items():
            got, at = np.load(tamp.folder / "out" / files[out]), 0
            for name, values in results:
                part, at = got[at:at + values.size].reshape(values.shape), at + values.size
                assert part.dtype == values.dtype, f"{name} is {part.dtype}, expected {values.dtype}"
                if values.dtype.kind == "f":
                    tolerance = {2: 1e-3, 4: 1e-5, 8: 1e-12}[values.dtype.itemsize]
                    np.testing.assert_allclose(part, values, rtol=tolerance, atol=1e-7, err_msg=name)
                else:
                    np.testing.assert_array_equal(part, values, err_msg=name)


def values_of(dtype, seed):
    """With the ends of the type, zeros, and for floats infinities and NaN."""
    rng = np.random.default_rng(seed)
    if dtype == np.bool_:
        return rng.integers(0, 2, SHAPE).astype(np.bool_)
    if np.dtype(dtype).kind == "f":
        values = rng.normal(0, 3, SHAPE).astype(dtype)
        values.flat[:5] = [0, np.inf, -np.inf, np.nan, -0.0]
        return values
    info = np.iinfo(dtype)
    values = rng.integers(-9 if info.min < 0 else 0, 9, SHAPE).astype(dtype)
    values.flat[:4] = [info.min, info.max, 0, info.max - 1]
    rng.shuffle(values.reshape(-1))
    return values


def move(net, x, y, a, b, condition, indices):
    """Data movement of x and y, whose values are a and b."""
    net.add("Where", [condition, x, y], np.where(net.inputs[condition], a, b))
    net.add("Transpose", [x], a.transpose(2, 0, 1), perm=[2, 0, 1])
    ints = lambda *values: net.constant(np.array(values, np.int64))
    net.add("Slice", [x, ints(3, 2), ints(-9, 0), ints(2, 1), ints(-2, -1)], a[:, 2:0:-1, 3::-2])
    net.add("Concat", [x, y, x], np.concatenate([a, b, a], 1), axis=1)
    net.add("Pad", [x, ints(0, 1, 0, 1, 0, 2), net.constant(np.array(1, a.dtype))], np.pad(a, [(0, 1), (1, 0), (0, 2)], constant_values=1))
    net.add("Pad", [x, ints(0, 0, 1, 0, 2, 1)], np.pad(a, [(0, 0), (0, 2), (1, 1)], "edge"), mode="edge")
    net.add("Gather", [x, indices], np.take(a, net.inputs[indices], 1), axis=1)
    net.add("Gather", [x, ints(0, 3, 1, -1)], np.take(a, [0, 3, 1, -1], 2), axis=2)
    net.add("Expand", [x, ints(2, 2, 3, 4)], np.broadcast_to(a, [2, 2, 3, 4]))
    net.add("Tile", [x, ints(1, 2, 1)], np.tile(a, [1, 2, 1]))


def common(dtypes):
    net = Net()
    rng = np.random.default_rng(1)
    condition = net.input("condition", rng.integers(0, 2, [3, 1]).astype(np.bool_))
    indices = net.input("indices", np.array([[2, -1], [0, -3]], np.int32))
    names = {}
    for n, (name, dtype) in enumerate(dtypes.items()):
        names[name] = (net.input(f"x_{name}", values_of(dtype, n)), net.input(f"y_{name}", values_of(dtype, n + 50)))
    for x, y in names.values():
        move(net, x, y, net.inputs[x], net.inputs[y], condition, indices)
    return net, names


def test_integers(tamp):
    net, names = common(WHOLE)
    with np.errstate(all="ignore"):
        for name, (x, y) in names.items():
            a, b = net.inputs[x], net.inputs[y]
            for op, expected in [("Add", a + b), ("Sub", a - b), ("Mul", a * b), ("Mod", np.mod(a, b)), ("Min", np.minimum(a, b)),
                                 ("Max", np.maximum(a, b)), ("BitwiseAnd", a & b), ("BitwiseOr", a | b), ("BitwiseXor", a ^ b),
                                 ("Equal", a == b), ("Less", a < b), ("GreaterOrEqual", a >= b)]:
                net.add(op, [x, y], expected)
            net.add("Mod", [x, y], np.fmod(a, b), fmod=1)
            towards_zero = np.array([0 if d == 0 else abs(int(c)) // abs(int(d)) * (1 if (c < 0) == (d < 0) else -1)
                                     for c, d in zip(a.flat, b.flat)], object).reshape(a.shape)
            net.add("Div", [x, y], np.array([int(v) & (2 ** (8 * a.itemsize) - 1) for v in towards_zero.flat], f"u{a.itemsize}")
                    .view(a.dtype).reshape(a.shape))
            net.add("BitwiseNot", [x], ~a)
            net.add("Sign", [x], np.sign(a))
            if a.dtype.kind == "u":
                few = net.input(f"few_{name}", (values_of(np.uint8, 7) % 8).astype(a.dtype))
                net.add("BitShift", [x, few], a << net.inputs[few], direction="LEFT")
                net.add("BitShift", [x, few], a >> net.inputs[few], direction="RIGHT")
            else:
                net.add("Neg", [x], -a)
                net.add("Abs", [x], np.abs(a))
            net.add("ReduceSum", [x, net.constant(np.array([0, 2], np.int64))], a.sum((0, 2), dtype=a.dtype), keepdims=0)
            net.add("ReduceProd", [x], a.prod(2, dtype=a.dtype), axes=[2], keepdims=0)
            net.add("ReduceMax", [x], a.max(1, keepdims=True), axes=[1])
            net.add("ReduceMin", [x], a.min(keepdims=True))
        for op, f in [("MatMul", np.matmul)]:
            for name in ("int32", "uint32", "int64", "uint64"):
                (x, y), dtype = names[name], WHOLE[name]
                turned = net.add("Transpose", [y], None, perm=[0, 2, 1])
                net.add(op, [x, turned], f(net.inputs[x], net.inputs[y].transpose(0, 2, 1)).astype(dtype))
    # The bodies of ReduceProd and others are of opset 13, where axes are an attribute: opset 18 would make them operands.
    for node in net.nodes:
        if node.op_type in ("ReduceProd", "ReduceMax"):
            axes = next(attribute for attribute in node.attribute if attribute.name == "axes")
            node.input.append(net.constant(np.array(axes.ints, np.int64)))
            node.attribute.remove(axes)
    net.check(tamp)


def test_floats(tamp):
    net, names = common(FLOAT)
    with np.errstate(all="ignore"):
        for name, (x, y) in names.items():
            a, b = net.inputs[x], net.inputs[y]
            wide = a.astype(np.float64)
            for op, expected in [("Add", a + b), ("Mul", a * b), ("Div", a / b), ("Max", np.maximum(a, b)), ("Less", a < b), ("Equal", a == b)]:
                net.add(op, [x, y], expected)
            for op, f in [("Exp", np.exp), ("Tanh", np.tanh), ("Floor", np.floor), ("Round", np.rint), ("Asinh", np.arcsinh), ("Atan", np.arctan),
                          ("Sqrt", np.sqrt), ("Sigmoid", lambda v: 1 / (1 + np.exp(-v))), ("Sign", np.sign)]:
                net.add(op, [x], f(wide).astype(a.dtype))
            net.add("IsNaN", [x], np.isnan(a))
            net.add("IsInf", [x], np.isneginf(a), detect_positive=0)
            finite = net.add("Clip", [net.add("Where", [net.add("IsNaN", [x], None), y, x], None), net.constant(np.array(-5, a.dtype)),
                                      net.constant(np.array(5, a.dtype))], None)
            values = np.clip(np.where(np.isnan(a), b, a), a.dtype.type(-5), a.dtype.type(5))
            axis = net.constant(np.array([2], np.int64))
            if not np.isnan(values).any():
                sums = values.astype(np.float64)
                net.add("ReduceSum", [finite, axis], sums.sum(2).astype(a.dtype), keepdims=0)
                net.add("ReduceMean", [finite, axis], sums.mean(2).astype(a.dtype), keepdims=0)
                net.add("ReduceL2", [finite, axis], np.sqrt((sums * sums).sum(2)).astype(a.dtype), keepdims=0)
                net.add("ReduceMax", [finite, axis], values.max(2), keepdims=0)
                turned = net.add("Transpose", [finite], None, perm=[0, 2, 1])
                net.add("MatMul", [finite, turned], np.matmul(sums, sums.transpose(0, 2, 1)).astype(a.dtype))
    net.check(tamp)


def test_casts(tamp):
    """From every type to every type, of numbers that both have, and of those that wrap."""
    net = Net()
    with np.errstate(all="ignore"):
        for source, dtype in ALL.items():
            values = np.array([0, 1, 2, 77, 127, 3, 0, 100], np.int64)
            if np.dtype(dtype).kind == "f":
                values = values * 1.0 + np.array([0, 0.5, 0, 0.25, 0, 0.75, 0, 0])
            elif np.dtype(dtype).kind == "i":
                values = values * np.array([1, -1, 1, -1, 1, 1, -1, 1])
            elif np.dtype(dtype).kind == "u":
                values = values + 128 * (values == 127)
            x = net.input(f"x_{source}", values.astype(dtype))
            for target in ALL.values():
                net.add("Cast", [x], net.inputs[x].astype(target), to=onnx_type(target))
    net.check(tamp)


def test_wide_scalars(tamp):
    """Scalars keep their own type on the way from a constant to the body: bounds, paddings, fillings and indices that a narrower type does not hold.
    Attributes of ONNX are of f32, whose value a double takes over as it is."""
    net = Net()
    huge, least = 2 ** 62 + 1, -2 ** 63
    x = net.input("x", np.array([-1e300, 1e300, 7, -1e-300, 16777217.25, 0.1, 1e39, -np.inf, np.nan]))
    i = net.input("i", np.array([least, 2 ** 63 - 1, huge, -huge, 9007199254740993, 0, -7], np.int64))
    u = net.input("u", np.array([0, 2 ** 64 - 1, 2 ** 63 + 1, 9007199254740993], np.uint64))
    a, whole, natural = net.inputs[x], net.inputs[i], net.inputs[u]
    lowest, most = np.finfo(np.float64).min, np.finfo(np.float64).max
    number = lambda value: net.constant(np.array(value, np.float64))
    ints = lambda *values: net.constant(np.array(values, np.int64))
    for low, high in ((None, 5.0), (-3.0, None), (-1e100, 1e100), (0.1, 0.3), (-16777217.0, 16777217.0), (None, None), (-np.inf, 1e300), (-5.0, 5.0), (9e200, 1e100)):
        operands = [x, "" if low is None else number(low), "" if high is None else number(high)]
        net.add("Clip", operands, np.minimum(np.maximum(a, lowest if low is None else low), most if high is None else high))
    for source, values, bounds in ((i, whole, [(-huge, huge), (None, 9007199254740993), (-9007199254740993, None)]), (u, natural, [(9007199254740993, 2 ** 63 + 5), (None, 2 ** 64 - 2)])):
        for low, high in bounds:
            same = lambda value: net.constant(np.array(value, values.dtype))
            bounded = np.maximum(values, np.array(low, values.dtype)) if low is not None else values
            bounded = np.minimum(bounded, np.array(high, values.dtype)) if high is not None else bounded
            net.add("Clip", [source, "" if low is None else same(low), "" if high is None else same(high)], bounded)
    for source, values, fill in ((x, a, 1e300), (x, a, 0.1), (i, whole, huge), (i, whole, 9007199254740993), (u, natural, 2 ** 64 - 1)):
        fill = np.array(fill, values.dtype)
        net.add("Pad", [source, ints(1, 2), net.constant(fill)], np.pad(values, (1, 2), constant_values=fill))
        net.add("Where", [net.constant(np.arange(len(values)) % 2 == 0), source, net.constant(fill)], np.where(np.arange(len(values)) % 2 == 0, values, fill))
        pair = net.constant(np.array([values.dtype.type(3), fill]))
        net.add("OneHot", [net.input(f"at_{len(net.nodes)}", np.array([0, 2], np.int64)), ints(3), pair], np.where(np.eye(3, dtype=bool)[[0, 2]], fill, values.dtype.type(3)))
        net.add("ScatterElements", [source, net.input(f"to_{len(net.nodes)}", np.array([1], np.int64)), net.constant(fill.reshape(1))], np.concatenate([values[:1], fill.reshape(1), values[2:]]))
    f = lambda value: np.float64(np.float32(value))
    finite = net.input("finite", np.array([[-3, -0.1, 0.1, 16777217.25, 1e100, -1e100]]))
    b = net.inputs[finite]
    net.add("LeakyRelu", [finite], np.where(b < 0, b * f(0.1), b), alpha=0.1)
    net.add("Elu", [finite], np.where(b < 0, f(0.1) * np.expm1(np.minimum(b, 0)), b), alpha=0.1)
    net.add("ThresholdedRelu", [finite], np.where(b > f(0.1), b, 0), alpha=0.1)
    net.add("Shrink", [finite], np.where(b < -f(0.3), b + f(0.1), np.where(b > f(0.3), b - f(0.1), 0)), bias=0.1, lambd=0.3)
    net.add("Add", [finite, net.add("ConstantOfShape", [ints(6)], None, value=m.constant("fill", [1e300], np.float64))], b + 1e300)
    net.add("Add", [i, net.add("ConstantOfShape", [ints(7)], None, value=m.constant("fill", [huge], np.int64))], whole + huge)
    net.add("Add", [finite, net.add("Range", [number(1e17), number(1e17 + 96), number(16)], None)], b + 1e17 + 16 * np.arange(6))
    net.add("Add", [i, net.add("Range", [net.constant(np.array(v, np.int64)) for v in (huge, huge + 7, 1)], None)], whole + huge + np.arange(7))
    net.add("CumSum", [i, net.constant(np.array(0, np.int64))], np.cumsum(whole))
    net.add("Mul", [net.add("Trilu", [finite], None), number(1e200)], np.triu(b) * 1e200)
    net.add("Equal", [i, net.constant(np.array(9007199254740992, np.int64))], whole == 9007199254740992)
    net.add("Less", [u, net.constant(np.array(2 ** 63 + 2, np.uint64))], natural < 2 ** 63 + 2)
    net.add("Gemm", [finite, net.constant(np.eye(6) * 3)], f(0.1) * b * 3, alpha=0.1)
    net.add("Mean", [finite, number(1e100)], (b + 1e100) / 2)
    net.check(tamp)


def test_truths(tamp):
    """bool goes in and comes out as a byte; a chain of f32 and bool is one rOperator."""
    net = Net()
    rng = np.random.default_rng(3)
    p, q = (net.input(name, rng.integers(0, 2, SHAPE).astype(np.bool_)) for name in "pq")
    x = net.input("x", rng.normal(size=SHAPE).astype(np.float32))
    a, b, v = (net.inputs[name] for name in (p, q, x))
    for op, expected in [("And", a & b), ("Or", a | b), ("Xor", a ^ b), ("Equal", a == b)]:
        net.add(op, [p, q], expected)
    net.add("Not", [p], ~a)
    positive = net.add("Greater", [x, net.constant(np.float32(0))], None)
    both = net.add("And", [positive, p], None)
    net.add("Where", [both, x, net.constant(np.float32(-1))], np.where((v > 0) & a, v, np.float32(-1)))
    net.add("Cast", [net.add("Or", [positive, q], None)], ((v > 0) | b).astype(np.float32), to=TensorProto.FLOAT)
    move(net, p, q, a, b, net.input("condition", rng.integers(0, 2, [3, 1]).astype(np.bool_)), net.input("indices", np.array([1, -1], np.int64)))
    net.check(tamp)


def test_many_elements(tamp):
    """More elements than threads: several of a thread at a time, rows of a Gather in pieces of 16 bytes where they are whole and aligned."""
    net, rng = Net(), np.random.default_rng(5)
    some = lambda dtype, *shape: (rng.normal(size=shape) * 9 if np.dtype(dtype).kind == "f" else rng.integers(0, 2 if dtype == np.bool_ else 99, shape)).astype(dtype)
    condition = net.input("condition", some(np.bool_, 3, 1, 41))
    places = {name: net.input(name, rng.integers(-40, 40, [7, 31]).astype(dtype)) for name, dtype in (("int32", np.int32), ("int64", np.int64))}
    for name in ("float", "float16", "double", "int64", "uint64", "int8", "bool"):
        dtype = ALL[name]
        x, y = (net.input(f"{port}_{name}", some(dtype, *shape)) for port, shape in (("x", (3, 80, 41)), ("y", (80, 1))))
        net.add("Where", [condition, x, y], np.where(net.inputs[condition], net.inputs[x], net.inputs[y]))
    i, j = (net.input(port, some(np.int32, 3, 80, 41) - 50) for port in ("i", "j"))
    net.add("Add", [i, j], net.inputs[i] + net.inputs[j])
    # Sums of products: by a thread each where there are results for all threads of the vDevice, else by a warp each.
    for name, rows in (("int32", 40), ("int32", 3), ("double", 40), ("double", 3)):
        a, b = (net.input(f"{port}_{name}_{rows}", some(ALL[name], *shape)) for port, shape in (("a", (rows, 37)), ("b", (37, 41))))
        net.add("MatMul", [a, b], net.inputs[a] @ net.inputs[b])
    f, zero = net.inputs["x_float"], net.constant(np.float32(0))
    chosen = net.add("And", [net.add("Greater", ["x_float", zero], None), condition], None)
    net.add("Where", [chosen, "x_float", net.constant(np.float32(-1))], np.where((f > 0) & net.inputs[condition], f, np.float32(-1)))
    # An index outside of x takes the nearest element, which the reference refuses.
    for name, width in (("float", 48), ("float", 47), ("float16", 96), ("double", 26), ("uint8", 160)):
        for at, indices in places.items():
            rows = net.input(f"rows_{name}_{width}_{at}", some(ALL[name], 2, 20, width))
            taken = net.inputs[indices].astype(np.int64)
            taken = np.clip(np.where(taken < 0, taken + 20, taken), 0, 19)
            net.add("Gather", [rows, indices], np.take(net.inputs[rows], taken, 1), axis=1)
    net.check(tamp, reference=False)
    tamp("compile", "model.onnx", "-o", "kept", "--vdevice", "cpu", "--precision", "fp32")
    names = [rop["rkernel"] for rop in json.loads((tamp.folder / "kept" / "model.rprogram.json").read_text())["rops"]]
    assert {"typed_map<8>", "typed_gather<rows>", "typed_gather"} <= set(names), names
    source = (tamp.folder / "kept" / "model.cu").read_text()
    assert all(f"/*LANES=*/{lanes}" in source for lanes in (1, 32)), "a product of many results, or of few, has another body"


def test_quantised_products(tamp):
    """Quantised products, convolutions, and what leads there and back give ONNX Runtime's bits. (Weights of 7 bits: on processors without
    VNNI ONNX Runtime's sums of two products saturate.)"""
    rng = np.random.default_rng(4)
    x = (rng.normal(size=[5, 40]) * 3).astype(np.float32)
    weights, scales = rng.integers(-63, 64, [40, 7]).astype(np.int8), rng.uniform(0.01, 0.02, 7).astype(np.float32)
    nodes = [m.node("QuantizeLinear", ["x", "xs", "xz"], ["q"], "quantize"),
             m.node("MatMulInteger", ["q", "w", "xz"], ["product"], "integer"),
             m.node("QLinearMatMul", ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"], "qlinear"),
             m.node("DequantizeLinear", ["w", "scales"], ["wf"], "weights", axis=1),
             m.node("DequantizeLinear", ["q", "xs", "xz"], ["xf"], "dequantize"),
             m.node("MatMul", ["xf", "wf"], ["z"], "matmul"),
             m.node("DynamicQuantizeLinear", ["x"], ["d", "ds", "dz"], "dynamic"),
             m.node("Reshape", ["q", "image"], ["qi"], "images"),
             m.node("ConvInteger", ["qi", "k", "xz"], ["ci"], "conv_integer", pads=[1, 0, 1, 2], strides=[2, 1], group=2),
             m.node("QLinearConv", ["qi", "xs", "xz", "k", "ks", "kz", "ys", "yz", "kb"], ["cq"], "qlinear_conv", dilations=[1, 2], group=2)]
    constants = [m.constant("xs", 0.04), m.constant("xz", 121, np.uint8), m.constant("w", weights, np.int8), m.constant("ws", 0.015),
                 m.constant("wz", 0, np.int8), m.constant("ys", 0.3), m.constant("yz", 130, np.uint8), m.constant("scales", scales), m.ints("image", [1, 4, 5, 10]),
                 m.constant("k", rng.integers(-63, 64, [6, 2, 3, 3]), np.int8), m.constant("ks", rng.uniform(0.01, 0.02, 6)),
                 m.constant("kz", np.zeros(6), np.int8), m.constant("kb", rng.integers(-900, 900, 6), np.int32)]
    outputs = {"q": ([5, 40], TensorProto.UINT8), "product": ([5, 7], TensorProto.INT32), "y": ([5, 7], TensorProto.UINT8),
               "z": ([5, 7], TensorProto.FLOAT), "d": ([5, 40], TensorProto.UINT8), "ds": ([], TensorProto.FLOAT), "dz": ([], TensorProto.UINT8),
               "ci": ([1, 6, 3, 10], TensorProto.INT32), "cq": ([1, 6, 3, 6], TensorProto.UINT8)}
    made = m.model(nodes, [m.value("x", [5, 40])], [m.value(name, *port) for name, port in outputs.items()], constants, opset=13)
    (tamp.folder / "model.onnx").write_bytes(made.SerializeToString())
    np.save(tamp.folder / "x.npy", x)
    tamp("run", "model.onnx", "--device", "cpu", "--precision", "fp32", "--check", "--output-dir", "out", "--input", "x=x.npy")
    files = json.loads((tamp.folder / "out" / "outputs.json").read_text())
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for name, expected in zip(outputs, session.run(None, {"x": x})):
        got = np.load(tamp.folder / "out" / files[name])
        assert got.dtype == expected.dtype, name
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(got, expected, err_msg=name)


# --- normalisations and pools of double -------------------------------------------------------------------------------

def softmax(x, axes):
    power = np.exp(x - x.max(axes, keepdims=True))
    return power / power.sum(axes, keepdims=True)


def normalized(x, axes, epsilon=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + np.float64(np.float32(epsilon)))


def test_normalisations_of_double(tamp):
    net, rng = Net(), np.random.default_rng(11)
    x = net.input("x", rng.normal(0, 3, [2, 6, 4, 5]))
    a = net.inputs[x]
    for axis in (1, -1):
        net.add("Softmax", [x], softmax(a, axis), axis=axis)
        net.add("LogSoftmax", [x], np.log(softmax(a, axis)), axis=axis)
    large = net.input("large", np.array([[1e5, 1e5 + 1, -1e5], [0, -np.inf, 3]]))  # exp() alone would overflow
    net.add("Softmax", [large], softmax(net.inputs[large], 1), axis=1)
    scale, bias, mean = rng.normal(size=(3, 6))
    variance = rng.random(6) + 0.1
    per_channel = [net.constant(values) for values in (scale, bias, mean, variance)]
    channels = [values[:, None, None] for values in (scale, bias, mean, variance)]
    net.add("LayerNormalization", [x, net.constant(scale[:5]), net.constant(bias[:5])], normalized(a, -1) * scale[:5] + bias[:5], axis=-1)
    net.add("InstanceNormalization", [x, *per_channel[:2]], normalized(a, (2, 3)) * channels[0] + channels[1])
    net.add("BatchNormalization", [x, *per_channel], (a - channels[2]) / np.sqrt(channels[3] + np.float64(np.float32(1e-5))) * channels[0] + channels[1])
    net.add("MeanVarianceNormalization", [x], normalized(a, (0, 2, 3), 1e-18))
    squares = np.pad(a * a, [(0, 0), (2, 2), (0, 0), (0, 0)])
    window = sum(squares[:, i:i + 6] for i in range(5))
    net.add("LRN", [x], a / (1 + np.float64(np.float32(2e-4)) / 5 * window) ** 0.75, size=5, alpha=2e-4, beta=0.75, bias=1.0)
    net.check(tamp, opset=17)


def test_group_and_rms_normalisation_of_double(tamp):
    net, rng = Net(), np.random.default_rng(12)
    x = net.input("x", rng.normal(0, 3, [2, 6, 5]))
    a, scale, bias = net.inputs[x], rng.normal(size=6), rng.normal(size=6)
    groups = normalized(a.reshape(2, 3, 2, 5), (2, 3)).reshape(2, 6, 5)
    net.add("GroupNormalization", [x, net.constant(scale), net.constant(bias)], groups * scale[:, None] + bias[:, None], num_groups=3)
    rms = np.sqrt((a * a).mean(-1, keepdims=True) + np.float64(np.float32(1e-5)))
    net.add("RMSNormalization", [x, net.constant(scale[:5])], a / rms * scale[:5], axis=-1)
    net.check(tamp, opset=23)


def windows(x, fill, kernel, strides, pads, dilations=(1, 1)):
    """Of the last two dimensions: an array of what every window sees, its elements in the last dimension; `pads` before and after each."""
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
    counts = [(padded.shape[2 + d] - (kernel[d] - 1) * dilations[d] - 1) // strides[d] + 1 for d in range(2)]
    taps = [padded[:, :, i * dilations[0]:i * dilations[0] + (counts[0] - 1) * strides[0] + 1:strides[0], j * dilations[1]:j * dilations[1] + (counts[1] - 1) * strides[1] + 1:strides[1]]
            for i in range(kernel[0]) for j in range(kernel[1])]
    return np.stack(taps, -1)


def test_pools_of_double(tamp):
    net, rng = Net(), np.random.default_rng(13)
    x = net.input("x", rng.normal(0, 3, [2, 3, 9, 8]))
    a = net.inputs[x]
    net.add("MaxPool", [x], windows(a, -np.inf, (3, 2), (2, 1), [(1, 1), (0, 1)]).max(-1), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    net.add("MaxPool", [x], windows(a, -np.inf, (2, 2), (1, 1), [(0, 0), (0, 0)], (3, 2)).max(-1), kernel_shape=[2, 2], dilations=[3, 2])
    net.add("AveragePool", [x], np.nanmean(windows(a, np.nan, (3, 3), (2, 2), [(1, 1), (1, 1)]), -1), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    net.add("AveragePool", [x], windows(a, 0, (3, 3), (2, 2), [(1, 1), (1, 1)]).mean(-1), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, count_include_pad=1)
    hanging = np.nanmean(windows(a, np.nan, (2, 3), (2, 3), [(0, 1), (0, 1)]), -1)  # the last windows hang over the end
    net.add("AveragePool", [x], hanging, kernel_shape=[2, 3], strides=[2, 3], ceil_mode=1)
    net.add("LpPool", [x], (np.abs(windows(a, 0, (2, 2), (2, 2), [(0, 0), (0, 0)])) ** 3).sum(-1) ** (1 / 3), kernel_shape=[2, 2], strides=[2, 2], p=3)
    net.add("GlobalAveragePool", [x], a.mean((2, 3), keepdims=True))
    net.add("GlobalMaxPool", [x], a.max((2, 3), keepdims=True))
    net.add("GlobalLpPool", [x], np.sqrt((a * a).sum((2, 3), keepdims=True)), p=2)
    net.add("GlobalLpPool", [x], (np.abs(a) ** 3).sum((2, 3), keepdims=True) ** (1 / 3), p=3)
    volume = net.input("volume", rng.normal(size=[1, 2, 4, 5, 6]))
    v = net.inputs[volume]
    net.add("MaxPool", [volume], v.reshape(1, 2, 2, 2, 5, 3, 2).max((3, 6)), kernel_shape=[2, 1, 2], strides=[2, 1, 2])
    line = net.input("line", np.array([[[1, np.nan, 2, 3, -5, 4]]]))
    net.add("MaxPool", [line], np.array([[[np.nan, 3, 4]]]), kernel_shape=[2], strides=[2])
    for name, dtype in (("bytes", np.int8), ("counts", np.uint8)):
        whole = net.input(name, rng.integers(-9 if dtype == np.int8 else 0, 9, [1, 2, 4, 6]).astype(dtype))
        net.add("MaxPool", [whole], net.inputs[whole].reshape(1, 2, 2, 2, 3, 2).max((3, 5)), kernel_shape=[2, 2], strides=[2, 2])
    net.check(tamp)


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
