"""A small builder of ONNX networks: one method a layer. It keeps the shape of every tensor and a guess of its mean square, so that weights can be
drawn from a range that keeps all activations near 1, and it counts multiply-adds. Weights lie beside the model, in NAME.bin; NAME.weights.json
says how examples/make_weights.py draws them, on any machine alike.
"""
import json
import math

from onnx import TensorProto, helper

OPSET = 17


class Network:
    def __init__(self, name):
        self.name = name
        self.nodes, self.inputs, self.outputs, self.constants, self.weights = [], [], [], [], []
        self.shapes, self.powers = {}, {}  # of tensors; powers: their mean square, about
        self.macs = 0
        self.names = {}

    # --- the pieces ----------------------------------------------------------------------------------------------------

    def unique(self, name):
        count = self.names[name] = self.names.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"

    def input(self, name, shape):
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return self.tensor(name, shape, 1.0)

    def output(self, x, name="output"):
        self.nodes.append(helper.make_node("Identity", [x], [name], name=f"to_{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[x]))
        self.tensor(name, self.shapes[x], self.powers[x])

    def tensor(self, name, shape, power):
        self.shapes[name], self.powers[name] = list(shape), power
        return name

    def node(self, op, inputs, shape, power, name=None, **attributes):
        name = self.unique(name or op.lower())
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return self.tensor(name, shape, power)

    def weight(self, name, shape, low, high):
        self.weights.append({"name": name, "shape": list(shape), "low": round(low, 6), "high": round(high, 6)})
        return name

    def integers(self, name, values):
        """An int64 constant; a number gives a scalar. The same name again is the same constant."""
        if name not in self.shapes:
            self.shapes[name] = [] if isinstance(values, int) else [len(values)]
            self.constants.append(helper.make_tensor(name, TensorProto.INT64, self.shapes[name], [values] if isinstance(values, int) else values))
        return name

    # --- layers of convolutional networks ------------------------------------------------------------------------------

    def conv(self, x, channels, kernel, stride=1, pad=0, groups=1, bias=True, name="conv"):
        """`kernel`, `stride`: a number or (height, width); `pad`: a number, (height, width), or all four as ONNX has them."""
        name = self.unique(name)
        (kh, kw), (sh, sw), pads = pair(kernel), pair(stride), four(pad)
        batch, inputs, h, w = self.shapes[x]
        shape = [batch, channels, (h + pads[0] + pads[2] - kh) // sh + 1, (w + pads[1] + pads[3] - kw) // sw + 1]
        fan_in = inputs // groups * kh * kw
        bound = math.sqrt(3 / (fan_in * self.powers[x]))
        operands = [x, self.weight(f"{name}.weight", [channels, inputs // groups, kh, kw], -bound, bound)]
        if bias:
            operands.append(self.weight(f"{name}.bias", [channels], -0.1, 0.1))
        self.macs += math.prod(shape) * fan_in
        self.nodes.append(helper.make_node("Conv", operands, [name], name=name, kernel_shape=[kh, kw], strides=[sh, sw], pads=pads, group=groups))
        return self.tensor(name, shape, 1.0)

    def batch_norm(self, x, name="norm"):
        name, channels, power = self.unique(name), self.shapes[x][1], self.powers[x]
        ranges = {"scale": (0.8, 1.2), "bias": (-0.1, 0.1), "mean": (-0.1, 0.1), "variance": (0.8 * power, 1.2 * power)}
        operands = [x] + [self.weight(f"{name}.{part}", [channels], *ends) for part, ends in ranges.items()]
        self.nodes.append(helper.make_node("BatchNormalization", operands, [name], name=name))
        return self.tensor(name, self.shapes[x], 1.0)

    def relu(self, x):
        return self.node("Relu", [x], self.shapes[x], self.powers[x] / 2)

    def relu6(self, x):
        for limit, value in (("zero", 0.0), ("six", 6.0)):
            if limit not in self.shapes:
                self.shapes[limit] = []
                self.constants.append(helper.make_tensor(limit, TensorProto.FLOAT, [], [value]))
        return self.node("Clip", [x, "zero", "six"], self.shapes[x], self.powers[x] / 2, name="relu6")

    def pool(self, op, x, kernel, stride, pad, power, **attributes):
        pads = four(pad)
        batch, channels, h, w = self.shapes[x]
        extent = lambda size, begin, end: (size + begin + end - kernel) // stride + 1
        shape = [batch, channels, extent(h, pads[0], pads[2]), extent(w, pads[1], pads[3])]
        return self.node(op, [x], shape, power, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, **attributes)

    def max_pool(self, x, kernel=3, stride=2, pad=0):
        return self.pool("MaxPool", x, kernel, stride, pad, 1.5 * self.powers[x])

    def average_pool(self, x, kernel=3, stride=1, pad=1, count_include_pad=1):
        return self.pool("AveragePool", x, kernel, stride, pad, self.powers[x] / (2 if kernel > 1 else 1), count_include_pad=count_include_pad)

    def global_average_pool(self, x):
        return self.node("GlobalAveragePool", [x], self.shapes[x][:2] + [1, 1], self.powers[x] / 2)

    def add(self, *terms):
        if len(terms) == 1:
            return terms[0]
        return self.node("Add" if len(terms) == 2 else "Sum", list(terms), self.shapes[terms[0]], sum(self.powers[x] for x in terms))

    def concat(self, *terms, axis=1):
        extents = [self.shapes[x][axis] for x in terms]
        shape = list(self.shapes[terms[0]])
        shape[axis] = sum(extents)
        return self.node("Concat", list(terms), shape, sum(self.powers[x] * n for x, n in zip(terms, extents)) / sum(extents), axis=axis)

    def dense(self, x, outputs, bias=True, name="dense"):
        """[rows, inputs] -> [rows, outputs]"""
        name = self.unique(name)
        rows, inputs = self.shapes[x]
        bound = math.sqrt(3 / (inputs * self.powers[x]))
        operands = [x, self.weight(f"{name}.weight", [inputs, outputs], -bound, bound)]
        if bias:
            operands.append(self.weight(f"{name}.bias", [outputs], -0.1, 0.1))
        self.macs += rows * inputs * outputs
        self.nodes.append(helper.make_node("Gemm", operands, [name], name=name))
        return self.tensor(name, [rows, outputs], 1.0)

    # --- shapes --------------------------------------------------------------------------------------------------------

    def reshape(self, x, shape):
        target = self.integers("shape_" + "x".join(map(str, shape)), shape)
        return self.node("Reshape", [x, target], shape, self.powers[x])

    def transpose(self, x, order):
        return self.node("Transpose", [x], [self.shapes[x][d] for d in order], self.powers[x], perm=order)

    def pad(self, x, pads):
        """With zeros; `pads` as ONNX has them."""
        rank = len(self.shapes[x])
        shape = [n + pads[d] + pads[d + rank] for d, n in enumerate(self.shapes[x])]
        return self.node("Pad", [x, self.integers("pads_" + "_".join(map(str, pads)), pads)], shape, self.powers[x])

    def cut(self, x, axis, begin):
        """All from `begin` on."""
        shape = list(self.shapes[x])
        shape[axis] -= begin
        bounds = [self.integers(f"cut_{what}_{value}", [value]) for what, value in (("begin", begin), ("end", 2**31), ("axis", axis))]
        return self.node("Slice", [x, *bounds], shape, self.powers[x])

    def row(self, x, index):
        """Element `index` of the first axis."""
        return self.node("Gather", [x, self.integers(f"index_{index}", index)], self.shapes[x][1:], self.powers[x], name="row", axis=0)

    def split(self, x, parts):
        """Along the last axis, into equal parts."""
        shape = self.shapes[x][:-1] + [self.shapes[x][-1] // parts]
        names = [self.unique(f"{x}.{part}") for part in range(parts)]
        self.nodes.append(helper.make_node("Split", [x], names, name=self.unique("split"), axis=-1))
        return [self.tensor(name, shape, self.powers[x]) for name in names]

    def zeros(self, shape):
        name = "zeros_" + "x".join(map(str, shape))
        if name not in self.shapes:
            self.constants.append(helper.make_tensor(name, TensorProto.FLOAT, shape, [0.0] * math.prod(shape)))
            self.tensor(name, shape, 0.0)
        return name

    # --- files ---------------------------------------------------------------------------------------------------------

    def save(self, folder):
        """Writes NAME.onnx and NAME.weights.json; the weights are for examples/make_weights.py."""
        offset, initializers = 0, list(self.constants)
        for weight in self.weights:
            tensor = TensorProto(name=weight["name"], dims=weight["shape"], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
            size = 4 * math.prod(weight["shape"])
            for key, value in (("location", f"{self.name}.bin"), ("offset", offset), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
            offset += size
            initializers.append(tensor)
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, producer_name="tamp paper_models")
        path = folder / f"{self.name}.onnx"
        path.write_bytes(model.SerializeToString())
        lines = ",\n".join("  " + json.dumps(weight) for weight in self.weights)
        path.with_suffix(".weights.json").write_text(f'{{"file": "{self.name}.bin", "tensors": [\n{lines}\n]}}\n')
        return path

    def count(self, op, depthwise=None):
        """How many nodes; `depthwise`: only convolutions that are, or are not."""
        nodes = [node for node in self.nodes if node.op_type == op]
        if depthwise is not None:
            nodes = [node for node in nodes if (helper.get_node_attr_value(node, "group") > 1) == depthwise]
        return len(nodes)

    def parameters(self):
        return sum(math.prod(weight["shape"]) for weight in self.weights)


def pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def four(pad):
    return [*pair(pad), *pair(pad)] if isinstance(pad, int) or len(pad) == 2 else list(pad)
