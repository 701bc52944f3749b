"""Random ONNX models for tests by hand: a dozen operators over every rKernel family, with shapes that no tile likes."""
import numpy as np

import models as m

UNARY = ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Abs", "Neg", "Exp"]


def is_recurrent(model):
    return any(node.op_type in ("LSTM", "GRU", "RNN") for node in model.graph.node)


class Maker:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.live = [], [], []  # live: name, shape

    def pick(self, *choices):
        return choices[self.random.integers(len(choices))]

    def number(self, low, high):
        return int(self.random.integers(low, high + 1))

    def weight(self, *shape):
        name = f"w{len(self.weights)}"
        scale = np.sqrt(2 / max(1, np.prod(shape[1:])))
        self.weights.append(m.constant(name, self.random.standard_normal(shape) * scale))
        return name

    def numbers(self, values):
        self.weights.append(m.ints(f"w{len(self.weights)}", values))
        return self.weights[-1].name

    def add(self, op, inputs, shape, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(m.node(op, inputs, [name], f"n{len(self.nodes)}", **attributes))
        self.live.append((name, list(shape)))

    def some(self, rank=None):
        """One of the newest tensors, of this rank."""
        fitting = [t for t in self.live if rank is None or len(t[1]) == rank]
        return fitting[-self.number(1, min(3, len(fitting)))] if fitting else None

    # --- what can be added; none where nothing fits ---

    def conv(self):
        if not (x := self.some(4)):
            return
        (n, c, h, w), kernel = x[1], self.pick(1, 1, 3, 3, 5)
        stride, pad = self.pick(1, 1, 2), self.number(0, kernel // 2)
        size = [(extent + 2 * pad - kernel) // stride + 1 for extent in (h, w)]
        if min(size) < 1:
            return
        kind = self.number(0, 3)
        group = c if kind == 0 else 2 if kind == 1 and c % 2 == 0 else 1
        out = c if kind == 0 else group * self.pick(3, 8, 16, 32, 33)
        self.add("Conv", [x[0], self.weight(out, c // group, kernel, kernel), self.weight(out)], [n, out, *size], strides=[stride] * 2, pads=[pad] * 4, group=group)

    def pool(self):
        x = self.some(4)
        if not x or min(x[1][2:]) < 3:
            return
        n, c, h, w = x[1]
        self.add(self.pick("MaxPool", "AveragePool"), [x[0]], [n, c, (h - 1) // 2 + 1, (w - 1) // 2 + 1], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])

    def unary(self):
        x = self.some()
        self.add(self.pick(*UNARY), [x[0]], x[1])

    def binary(self):
        x = self.some()
        same = [t for t in self.live if t[1] == x[1]]
        other = self.pick(*same)[0] if self.number(0, 1) else self.weight(*(extent if self.number(0, 1) else 1 for extent in x[1]))
        self.add(self.pick("Add", "Mul", "Sub", "Max"), [x[0], other], x[1])

    def concat(self):
        x = self.some(4)
        if not x:
            return
        fitting = [t for t in self.live if len(t[1]) == 4 and t[1][:1] + t[1][2:] == x[1][:1] + x[1][2:]]
        parts = [self.pick(*fitting) for _ in range(self.number(1, 3))] + [x]
        channels = sum(part[1][1] for part in parts)
        if channels <= 96:
            self.add("Concat", [part[0] for part in parts], [x[1][0], channels, *x[1][2:]], axis=1)

    def flatten(self):
        x = self.some(4)
        if x and np.prod(x[1]) <= 4096:
            self.add("Flatten", [x[0]], [x[1][0], int(np.prod(x[1][1:]))])

    def matmul(self):
        x = self.some(self.pick(2, 3))
        if x:
            out = self.pick(5, 16, 40)
            self.add("MatMul", [x[0], self.weight(x[1][-1], out)], [*x[1][:-1], out])

    def rows(self):
        x = self.some()
        axis = len(x[1]) - 1
        kind = self.number(0, 2)
        if kind == 0:
            self.add("Softmax", [x[0]], x[1], axis=axis)
        elif kind == 1:
            self.add("ReduceMean", [x[0]], [*x[1][:-1], 1], axes=[axis], keepdims=1)
        elif len(x[1]) > 1:
            self.add("LayerNormalization", [x[0], self.weight(x[1][-1])], x[1], axis=axis)

    def move(self):
        x = self.some()
        shape, kind = x[1], self.number(0, 3)
        if kind == 0:
            order = [int(i) for i in self.random.permutation(len(shape))]
            self.add("Transpose", [x[0]], [shape[i] for i in order], perm=order)
        elif kind == 1 and shape[-1] > 2:
            self.add("Slice", [x[0], self.numbers([1]), self.numbers([shape[-1]]), self.numbers([len(shape) - 1])], [*shape[:-1], shape[-1] - 1])
        elif kind == 2:
            self.add("Pad", [x[0], self.numbers([0] * (2 * len(shape) - 1) + [2])], [*shape[:-1], shape[-1] + 2])
        elif len(shape) == 4:
            self.add("Reshape", [x[0], self.numbers([shape[0], shape[1], -1])], [shape[0], shape[1], shape[2] * shape[3]])

    def recurrent(self):
        x = self.some(3)
        if not x or max(x[1]) > 64 or is_recurrent_already(self.nodes):
            return
        (steps, batch, size), hidden = x[1], self.pick(5, 16, 64)
        name = f"t{len(self.nodes)}"
        op, gates = self.pick(("LSTM", 4), ("GRU", 3), ("RNN", 1))
        self.nodes.append(m.node(op, [x[0], self.weight(1, gates * hidden, size), self.weight(1, gates * hidden, hidden)], ["", f"{name}"], f"n{len(self.nodes)}",
                                 hidden_size=hidden))
        self.live.append((name, [1, batch, hidden]))


def is_recurrent_already(nodes):
    return any(node.op_type in ("LSTM", "GRU", "RNN") for node in nodes)


def make(seed):
    maker = Maker(seed)
    shape = [maker.number(1, 2), maker.pick(3, 8, 32, 37), maker.number(5, 19), maker.number(5, 19)]
    maker.live.append(("x", shape))
    steps = [maker.conv] * 4 + [maker.pool, maker.unary, maker.unary, maker.binary, maker.binary, maker.concat, maker.flatten, maker.matmul, maker.rows, maker.move, maker.recurrent]
    while len(maker.nodes) < 9:
        steps[maker.number(0, len(steps) - 1)]()
    read = {name for node in maker.nodes for name in node.input}
    outputs = [m.value(name, out) for name, out in maker.live if name not in read and name != "x"]
    return m.model(maker.nodes, [m.value("x", shape)], outputs, maker.weights)
