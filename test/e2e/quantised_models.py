"""Small float networks with fixed random weights, what onnxruntime.quantization makes of them, and pairs of QuantizeLinear and DequantizeLinear put into random
networks (random_model.py). For quantised_test.py."""
import dataclasses
import logging
import pathlib
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper, shape_inference

import models as m
import random_model

OPSET = 17
CALIBRATED = 8  # inputs that a static quantisation sees


class Net:
    """A network node by node; its weights are random numbers of its own."""

    def __init__(self, seed, shape):
        self.random, self.nodes, self.weights, self.shape = np.random.default_rng(seed), [], [], shape

    def weight(self, *shape, scale=None):
        name = f"w{len(self.weights)}"
        scale = np.sqrt(2 / np.prod(shape[1:])) if scale is None else scale
        self.weights.append(m.constant(name, self.random.standard_normal(shape) * scale))
        return name

    def constant(self, values, dtype=np.float32):
        name = f"w{len(self.weights)}"
        self.weights.append(m.constant(name, values, dtype))
        return name

    def add(self, op, *operands, outputs=1, domain=None, **attributes):
        names = [f"t{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(m.node(op, list(operands), names, f"{op.lower()}{len(self.nodes)}", domain, **attributes))
        return names[0]

    def conv(self, x, channels, out, kernel=3, stride=1, group=1):
        return self.add("Conv", x, self.weight(out, channels // group, kernel, kernel), self.weight(out, scale=0.1), kernel_shape=[kernel] * 2, strides=[stride] * 2,
                        pads=[kernel // 2] * 4, group=group)

    def linear(self, x, size, out):
        return self.add("Add", self.add("MatMul", x, self.weight(size, out, scale=size ** -0.5)), self.weight(out, scale=0.1))

    def model(self, last, shape):
        assert self.nodes[-1].output[0] == last
        self.nodes[-1].output[0] = "y"
        return m.model(self.nodes, [m.value("x", self.shape)], [m.value("y", shape)], self.weights, OPSET)

    def inputs(self):
        return np.random.default_rng(7).standard_normal((CALIBRATED, *self.shape)).astype(np.float32)


def classifier():
    """Residual sums, depthwise convolutions, pools, a fully connected layer."""
    net = Net(1, [1, 3, 16, 16])
    x = net.add("Relu", net.conv("x", 3, 16, stride=2))
    y = net.conv(net.add("Relu", net.conv(x, 16, 16)), 16, 16)
    x = net.add("MaxPool", net.add("Relu", net.add("Add", x, y)), kernel_shape=[2, 2], strides=[2, 2])
    low, high = net.constant(0), net.constant(6)
    x = net.add("Clip", net.conv(x, 16, 32, kernel=1), low, high)
    x = net.add("Clip", net.conv(x, 32, 32, group=32), low, high)
    x = net.conv(x, 32, 24, kernel=1)
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net, net.model(net.add("Gemm", x, net.weight(10, 24), net.weight(10, scale=0.1), transB=1), [1, 10])


def blocks(batch=1):
    """Maps that fill a GPU: a residual block of three convolutions and one around a depthwise convolution, each with a sum that is quantised."""
    net = Net(6, [batch, 3, 48, 48])
    x = net.add("Relu", net.conv("x", 3, 64, stride=2))
    y = net.add("Relu", net.conv(x, 64, 32, kernel=1))
    y = net.conv(net.add("Relu", net.conv(y, 32, 32)), 32, 64, kernel=1)
    x = net.add("Relu", net.add("Add", x, y))
    low, high = net.constant(0), net.constant(6)
    y = net.add("Clip", net.conv(x, 64, 96, kernel=1), low, high)
    y = net.add("Clip", net.conv(y, 96, 96, group=96), low, high)
    x = net.add("Add", net.conv(y, 96, 64, kernel=1), x)
    x = net.add("Relu", net.conv(x, 64, 128, stride=2))
    x = net.conv(net.conv(x, 128, 128, group=128), 128, 128, kernel=1)
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net, net.model(net.add("Gemm", x, net.weight(40, 128), net.weight(40, scale=0.1), transB=1), [batch, 40])


def segmenter():
    """Grouped convolutions, Concat, gates, and the way back to all pixels."""
    net = Net(2, [1, 4, 12, 12])
    x = net.conv("x", 4, 16)
    x = net.add("Mul", x, net.add("Sigmoid", x))
    y = net.add("AveragePool", net.add("HardSwish", net.conv(x, 16, 32, group=4)), kernel_shape=[2, 2], strides=[2, 2])
    y = net.add("Relu", net.conv(y, 32, 16))
    y = net.add("ConvTranspose", y, net.weight(16, 8, 2, 2, scale=0.2), net.weight(8, scale=0.1), kernel_shape=[2, 2], strides=[2, 2])
    return net, net.model(net.conv(net.add("Concat", y, x, axis=1), 24, 5, kernel=1), [1, 5, 12, 12])


def excited():
    """As MobileNetV3: hard-swish between convolutions, and a squeeze-and-excitation of a depthwise one."""
    net = Net(8, [1, 3, 24, 24])

    def hard_swish(x):
        return net.add("HardSwish", x)
    x = hard_swish(net.conv("x", 3, 16, stride=2))
    y = hard_swish(net.conv(hard_swish(net.conv(x, 16, 64, kernel=1)), 64, 64, group=64))
    gate = net.add("GlobalAveragePool", y)
    gate = net.add("HardSigmoid", net.conv(net.add("Relu", net.conv(gate, 64, 16, kernel=1)), 16, 64, kernel=1), alpha=1 / 6, beta=0.5)
    x = net.add("Add", net.conv(net.add("Mul", y, gate), 64, 16, kernel=1), x)
    y = net.conv(x, 16, 96, kernel=1)
    y = net.add("Mul", y, net.add("Sigmoid", y))
    x = net.add("Flatten", net.add("GlobalAveragePool", hard_swish(net.conv(y, 96, 48, kernel=1))))
    return net, net.model(net.add("Gemm", x, net.weight(20, 48), net.weight(20, scale=0.1), transB=1), [1, 20])


def perceptron():
    net = Net(3, [2, 48])
    x = net.add("Relu", net.add("Gemm", "x", net.weight(64, 48), net.weight(64, scale=0.1), transB=1))
    x = net.add("Relu", net.add("Gemm", x, net.weight(64, 64, scale=0.2), net.weight(64, scale=0.1)))
    return net, net.model(net.linear(x, 64, 10), [2, 10])


def transformer(rows=8, width=32, heads=2):
    net = Net(4, [1, rows, width])

    def norm(x):
        return net.add("LayerNormalization", x, net.constant(np.ones(width)), net.constant(np.zeros(width)), axis=-1)

    def split(x, perm):
        return net.add("Transpose", net.add("Reshape", x, net.constant([1, rows, heads, width // heads], np.int64)), perm=perm)

    n = norm("x")
    q, k, v = (split(net.linear(n, width, width), perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    scores = net.add("Mul", net.add("MatMul", q, k), net.constant((width // heads) ** -0.5))
    mixed = net.add("Transpose", net.add("MatMul", net.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    x = net.add("Add", "x", net.linear(net.add("Reshape", mixed, net.constant([1, rows, width], np.int64)), width, width))
    h = net.linear(norm(x), width, 2 * width)
    half = net.add("Mul", h, net.constant(0.5))
    gelu = net.add("Mul", half, net.add("Add", net.add("Erf", net.add("Div", h, net.constant(2 ** 0.5))), net.constant(1)))
    return net, net.model(net.add("Add", x, net.linear(gelu, 2 * width, width)), [1, rows, width])


def recurrent(cell):
    net = Net(5, [5, 1, 16])
    gates = {"LSTM": 4, "GRU": 3}[cell]
    operands = ["x", net.weight(1, gates * 24, 16, scale=0.2), net.weight(1, gates * 24, 24, scale=0.2), net.weight(1, 2 * gates * 24, scale=0.1)]
    rows = net.add("Squeeze", net.add(cell, *operands, outputs=1, hidden_size=24), net.constant([1], np.int64))
    return net, net.model(net.linear(rows, 24, 12), [5, 1, 12])


# --- quantised by ONNX Runtime ---------------------------------------------------------------------------------------


class Reader:
    def __init__(self, inputs):
        self.left = iter(inputs)

    def get_next(self):
        values = next(self.left, None)
        return None if values is None else {"x": values}


def quantised(net, model, way):
    """`way`: "dynamic", or the format, the types of activations and weights, whether weights have a scale for each channel, and whether MatMul alone is quantised:
    "qdq u8 s8 channel", "qdq s8 s8 products". Of u8 with s8 the weights have 7 bits, since ONNX Runtime's own sums overflow on processors without VNNI otherwise."""
    from onnxruntime import quantization
    types = {"u8": quantization.QuantType.QUInt8, "s8": quantization.QuantType.QInt8}
    words = way.split()
    logging.getLogger().setLevel(logging.ERROR)  # it advises preprocessing, model by model
    with tempfile.TemporaryDirectory(prefix="tamp-quantised-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given, made = pathlib.Path(folder) / "float.onnx", pathlib.Path(folder) / "quantised.onnx"
        given.write_bytes(shape_inference.infer_shapes(model).SerializeToString())
        if words[0] == "dynamic":
            quantization.quantize_dynamic(given, made, weight_type=types[words[1]], reduce_range=True)
        else:
            form = {"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}[words[0]]
            quantization.quantize_static(given, made, Reader(net.inputs()), quant_format=form, activation_type=types[words[1]], weight_type=types[words[2]],
                                         op_types_to_quantize=["MatMul"] if "products" in words else None, extra_options={"ActivationSymmetric": "symmetric" in words},
                                         per_channel="channel" in words, reduce_range=words[1] == "u8" and words[2] == "s8")
        return onnx.load(made)


def answers(model, inputs):
    """ONNX Runtime's, without and with its own optimisations: both are right."""
    found = []
    for level in (onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level, options.log_severity_level, options.intra_op_num_threads = level, 3, 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found.append(session.run(None, inputs))
    return found


# --- compared in steps -------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Steps:
    share: float = 0  # of elements that differ by half a step or more
    most: float = 0   # by so many


def step_of(model, name, values):
    """Of an output: the scale that it is multiplied by at last; where there is none, what a quantisation of it to 8 bits would have."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if name in node.output and node.op_type == "DequantizeLinear" and node.input[1] in constants:
            return float(numpy_helper.to_array(constants[node.input[1]]).max())
    return max(1e-6, float(values.max() - values.min()) / 255) if values.dtype.kind == "f" else 1.0


def steps_between(model, found, expected):
    worst = Steps()
    for port, got, values in zip(model.graph.output, found, expected):
        assert got.shape == values.shape and got.dtype == values.dtype, f"'{port.name}' is {got.dtype}{list(got.shape)}, expected {values.dtype}{list(values.shape)}"
        off = np.abs(got.astype(np.float64) - values.astype(np.float64)) / step_of(model, port.name, values)
        off = np.where(np.isfinite(off), off, np.inf)
        worst = Steps(max(worst.share, float((off >= 0.5).mean())), max(worst.most, float(off.max())))
    return worst


def nearest(model, found, right):
    return min((steps_between(model, found, expected) for expected in right), key=lambda steps: (round(steps.most), steps.share))


# --- pairs of Q and DQ in random networks ------------------------------------------------------------------------------


WEIGHTED = {"Conv": 0, "MatMul": 1, "Gemm": 0}  # the axis of a weight's scales


def random_quantised(seed):
    """The model and its input."""
    model, random = random_model.make(seed), np.random.default_rng([seed, 3])
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = random.standard_normal(shape).astype(np.float32)
    values = {"x": x, **all_values(model, x)}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    made, pairs, weights = [], {}, {}

    def constant(name, array):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def pair(name):
        """Name of what stands for the tensor when it was quantised, or its own."""
        if random.random() < 0.4:
            return name
        dtype = random.choice([np.uint8, np.int8])
        low, high = min(0.0, float(values[name].min())), max(0.0, float(values[name].max()))
        scale = np.float32(max(high - low, 1e-3) / 255)
        zero = np.clip(np.round(-low / scale) + np.iinfo(dtype).min, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)
        operands = [constant(f"{name}.scale", scale), constant(f"{name}.zero", zero)]
        made.append(helper.make_node("QuantizeLinear", [name, *operands], [f"{name}.q"], f"{name}.q"))
        made.append(helper.make_node("DequantizeLinear", [f"{name}.q", *operands], [f"{name}.dq"], f"{name}.dq"))
        return f"{name}.dq"

    def weight(name, axis):
        array = numpy_helper.to_array(constants[name])
        if random.random() < 0.3:
            return name
        channels = random.random() < 0.6
        largest = np.abs(array).max(axis=tuple(i for i in range(array.ndim) if i != axis)) if channels else np.abs(array).max()
        scale = np.maximum(largest / 127, 1e-6).astype(np.float32)
        shaped = scale.reshape([-1 if i == axis else 1 for i in range(array.ndim)]) if channels else scale
        whole = np.clip(np.round(array / shaped), -127, 127).astype(np.int8)
        operands = [constant(f"{name}.q", whole), constant(f"{name}.scale", scale), constant(f"{name}.zero", np.zeros_like(scale, np.int8))]
        made.append(helper.make_node("DequantizeLinear", operands, [f"{name}.dq"], f"{name}.dq", axis=axis))
        return f"{name}.dq"

    pairs["x"] = pair("x")
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            if name in pairs:
                node.input[i] = pairs[name]
            elif name in constants and node.op_type in WEIGHTED and i == 1:
                weights[name] = weights.get(name) or weight(name, WEIGHTED[node.op_type])
                node.input[i] = weights[name]
        made.append(node)
        for name in node.output:
            if name:
                pairs[name] = pair(name)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in made]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    for port in model.graph.output:
        port.name = pairs[port.name]
    return model, x


def all_values(model, x):
    names = [name for node in model.graph.node for name in node.output if name]
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    del whole.graph.output[:]
    whole.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    session = onnxruntime.InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(None, {"x": x})))


def in_few_bits(made, bits, block=32, zeros=False):
    """The model with MatMulNBits instead of each MatMul by a constant matrix; `zeros`: numbers have zero points."""
    made = onnx.ModelProto.FromString(made.SerializeToString())
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    most, nodes = (1 << bits) - 1, []
    for node in made.graph.node:
        w = weights.get(node.input[1]) if node.op_type == "MatMul" else None
        if w is None or w.ndim != 2 or w.dtype != np.float32:
            nodes.append(node)
            continue
        (k, n), blocks = w.shape, -(-w.shape[0] // block)
        columns = np.pad(w.T, [(0, 0), (0, blocks * block - k)]).reshape(n, blocks, block)
        low, high = np.minimum(columns.min(2), 0), np.maximum(columns.max(2), 0)
        scales = ((high - low) / most if zeros else 2 * np.maximum(-low, high) / most).astype(np.float32) + np.float32(1e-6)
        zero = np.rint(-low / scales).astype(np.int64) if zeros else np.full((n, blocks), 1 << (bits - 1))
        numbers = np.clip(np.rint(columns / scales[..., None]).astype(np.int64) + zero[..., None], 0, most)
        bytes_of = lambda values: values.astype(np.uint8) if bits == 8 else (values[..., ::2] | values[..., 1::2] << 4).astype(np.uint8)
        operands = [bytes_of(numbers), scales, *([bytes_of(np.pad(zero, [(0, 0), (0, blocks % 2)]) if bits == 4 else zero)] if zeros else [])]
        names = [f"{node.input[1]}.{len(nodes)}.{part}" for part in ("numbers", "scales", "zeros")][:len(operands)]
        made.graph.initializer.extend(numpy_helper.from_array(values, name) for values, name in zip(operands, names))
        nodes.append(helper.make_node("MatMulNBits", [node.input[0], *names], node.output, node.name, domain="com.microsoft", K=k, N=n, bits=bits, block_size=block))
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in made.graph.initializer if tensor.name in used]
    del made.graph.initializer[:]
    made.graph.initializer.extend(kept)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made
