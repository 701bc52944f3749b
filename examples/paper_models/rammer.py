"""The six networks of the Rammer paper, with the sizes of its artifact (artifacts/models in the branch osdi20_artifact of microsoft/nnfusion, MIT
licence; described here in this builder's words): batch 1. What TensorFlow pads "SAME" has its exact pads here, and inputs are channels first.
"""
import math

from network import Network


def same(size, kernel, stride):
    """TensorFlow's "SAME" of one axis: pads in front and behind."""
    total = max(0, (math.ceil(size / stride) - 1) * stride + kernel - size)
    return total // 2, total - total // 2


def same_pads(net, x, kernel, stride):
    (top, bottom), (left, right) = (same(size, kernel, stride) for size in net.shapes[x][2:])
    return [top, left, bottom, right]


# --- convolutional networks --------------------------------------------------------------------------------------------------


def resnext():
    """ResNeXt-29 16x64d for CIFAR: a block has 16 separate branches, where other definitions have one convolution of 16 groups."""
    net = Network("rammer_resnext")
    conv_norm = lambda x, channels, kernel, stride=1, pad=0: net.batch_norm(net.conv(x, channels, kernel, stride, pad, bias=False))

    def block(x, channels, stride):
        branches = [net.relu(conv_norm(net.relu(conv_norm(x, 64, 1, stride)), 64, 3, pad=1)) for _ in range(16)]
        if stride == 2:
            missing = channels - net.shapes[x][1]
            x = net.pad(net.average_pool(x, 2, 2, 0), [0, missing // 2, 0, 0, 0, missing - missing // 2, 0, 0])
        return net.relu(net.add(conv_norm(net.concat(*branches), channels, 1), x))

    x = net.relu(conv_norm(net.input("input", [1, 3, 32, 32]), 64, 3, pad=1))
    for stage, channels in enumerate((64, 128, 256)):
        for n in range(3):
            x = block(x, channels, 2 if stage > 0 and n == 0 else 1)
    x = net.global_average_pool(x)
    net.output(net.dense(net.reshape(x, [1, 256]), 10, bias=False))
    return net


def nasnet():
    """NASNet-A for CIFAR: 18 cells, 32 filters, a reduction before cells 6 and 12."""
    net = Network("rammer_nasnet")

    def conv_norm(x, channels, name="pointwise"):
        return net.batch_norm(net.conv(x, channels, 1, bias=False, name=name))

    def separable(x, kernel, channels, stride):
        for s in (stride, 1):
            x = net.relu(x)
            inputs = net.shapes[x][1]
            x = net.conv(x, inputs, kernel, s, same_pads(net, x, kernel, s), groups=inputs, bias=False, name="depthwise")
            x = conv_norm(x, channels)
        return x

    def halved(x, channels):
        """Two convolutions, of every other pixel and of those between them."""
        x = net.relu(x)
        shifted = net.cut(net.cut(net.pad(x, [0, 0, 0, 0, 0, 0, 1, 1]), 2, 1), 3, 1)
        parts = [net.conv(net.average_pool(y, 1, 2, 0), channels // 2, 1, bias=False, name="pointwise") for y in (x, shifted)]
        return net.batch_norm(net.concat(*parts))

    def operation(kind, x, channels, stride):
        if kind.startswith("sep"):
            return separable(x, int(kind[3:]), channels, stride)
        if kind == "none":
            return x if net.shapes[x][1] == channels and stride == 1 else conv_norm(net.relu(x), channels)
        pads = same_pads(net, x, 3, stride)
        y = net.max_pool(x, 3, stride, pads) if kind == "max" else net.average_pool(x, 3, stride, pads, count_include_pad=0)
        return y if net.shapes[y][1] == channels else conv_norm(y, channels)

    def cell(x, before, channels, pairs, stride, used):
        """`pairs`: (operation, state, operation, state); the states that none of them uses are the result, all but `used`."""
        if before is None:
            before = x
        elif net.shapes[before][2] != net.shapes[x][2]:
            before = halved(before, channels)
        elif net.shapes[before][1] != channels:
            before = conv_norm(net.relu(before), channels)
        states = [conv_norm(net.relu(x), channels), before]
        for left, i, right, j in pairs:
            states.append(net.add(*(operation(kind, states[n], channels, stride if n < 2 else 1) for kind, n in ((left, i), (right, j)))))
        kept = [state for n, state in enumerate(states) if n not in used]
        return net.concat(*(y if net.shapes[y][1] == channels else conv_norm(net.relu(y), channels) for y in kept))

    normal = [("sep5", 0, "sep3", 1), ("sep5", 1, "sep3", 1), ("avg", 0, "none", 1), ("avg", 1, "avg", 1), ("sep3", 0, "none", 0)]
    reduction = [("sep5", 0, "sep7", 1), ("max", 0, "sep7", 1), ("avg", 0, "sep5", 1), ("none", 3, "avg", 2), ("sep3", 2, "max", 0)]
    x = net.batch_norm(net.conv(net.input("input", [1, 3, 32, 32]), 96, 3, pad=1, bias=False))
    made, channels = [None, x], 32
    for n in range(18):
        if n in (6, 12):
            channels *= 2
            made.append(cell(made[-1], made[-2], channels, reduction, 2, used={0, 1, 2}))
        made.append(cell(made[-1], made[-2], channels, normal, 1, used={0}))
    x = net.global_average_pool(net.relu(made[-1]))
    net.output(net.dense(net.reshape(x, [1, net.shapes[x][1]]), 10))
    return net


def alexnet():
    net = Network("rammer_alexnet")
    conv = lambda x, *args, **kwargs: net.relu(net.conv(x, *args, **kwargs))
    x = net.max_pool(conv(net.input("input", [1, 3, 227, 227]), 64, 11, 4))
    x = net.max_pool(conv(x, 192, 5, pad=2))
    x = net.max_pool(conv(conv(conv(x, 384, 3, pad=1), 384, 3, pad=1), 256, 3, pad=1))
    x = net.reshape(x, [1, math.prod(net.shapes[x])])
    for outputs in (4096, 4096, 1000):
        x = net.relu(net.dense(x, outputs))
    net.output(x)
    return net


# --- recurrent networks, unrolled as their frameworks do it ------------------------------------------------------------------


class Layer:
    """An LSTM layer, cell by cell. `separate`: a matrix for each gate and operand; else one for both operands and all gates."""

    def __init__(self, net, name, inputs, hidden, separate=False):
        self.net, self.name, self.hidden, self.separate = net, name, hidden, separate
        bound = math.sqrt(3 / (inputs + hidden))
        # The forget gate's bias is near 1.
        bias = lambda gate: (0.9, 1.1) if gate == "f" else (-0.1, 0.1)
        if separate:
            self.parts = {gate: (net.weight(f"{name}.w_{gate}", [inputs, hidden], -bound, bound),
                                 net.weight(f"{name}.u_{gate}", [hidden, hidden], -bound, bound),
                                 net.weight(f"{name}.b_{gate}", [hidden], *bias(gate))) for gate in "ijfo"}
        else:
            self.matrix = net.weight(f"{name}.matrix", [inputs + hidden, 4 * hidden], -bound, bound)
            self.bias = net.weight(f"{name}.bias", [4 * hidden], -0.1, 0.1)
        self.macs = 4 * hidden * (inputs + hidden)
        self.h = self.c = net.zeros([1, hidden])

    def gates(self, x):
        net, shape = self.net, [1, self.hidden]
        if self.separate:
            sums = {}
            for gate, (w, u, b) in self.parts.items():
                products = [net.node("MatMul", [of, matrix], shape, 1.0, name=f"{self.name}_product") for of, matrix in ((x, w), (self.h, u))]
                sums[gate] = net.node("Add", [net.node("Add", products, shape, 1.0, name="sum"), b], shape, 1.0, name="sum")
            return sums
        both = net.concat(x, self.h)
        product = net.node("MatMul", [both, self.matrix], [1, 4 * self.hidden], 1.0, name=f"{self.name}_product")
        total = net.node("Add", [product, self.bias], [1, 4 * self.hidden], 1.0, name="sum")
        return dict(zip("ijfo", net.split(total, 4)))

    def step(self, x):
        net, shape = self.net, [1, self.hidden]
        apply = lambda op, *of: net.node(op, list(of), shape, 0.3)
        g = self.gates(x)
        i, j, f, o = apply("Sigmoid", g["i"]), apply("Tanh", g["j"]), apply("Sigmoid", g["f"]), apply("Sigmoid", g["o"])
        self.c = apply("Add", apply("Mul", f, self.c), apply("Mul", i, j))
        self.h = apply("Mul", o, apply("Tanh", self.c))
        net.macs += self.macs
        return self.h


def lstm():
    net = Network("rammer_lstm")
    source = net.input("input", [100, 1, 256])
    layers = [Layer(net, f"layer{n}", 256, 256, separate=True) for n in range(10)]
    for step in range(100):
        x = net.row(source, step)
        for layer in layers:
            x = layer.step(x)
    net.output(x)
    return net


def seq2seq():
    """The decoder's output is its next input; its first is the last cell state of the encoder."""
    net = Network("rammer_seq2seq")
    source = net.input("input", [100, 1, 128])
    encoder = [Layer(net, f"encoder{n}", 128, 128) for n in range(8)]
    for step in range(100):
        x = net.row(source, step)
        for layer in encoder:
            x = layer.step(x)
    decoder = [Layer(net, f"decoder{n}", 128, 128) for n in range(4)]
    x, words = encoder[-1].c, []
    for _ in range(30):
        for layer in decoder:
            x = layer.step(x)
        words.append(x)
    net.output(net.concat(*words, axis=0))
    return net


def deepspeech2():
    net = Network("rammer_deepspeech2")
    x = net.input("input", [1, 1, 300, 171])
    x = net.batch_norm(net.relu6(net.conv(x, 32, (41, 11), 2, (20, 5), bias=False)))
    x = net.batch_norm(net.relu6(net.conv(x, 32, (21, 11), (2, 1), (10, 5), bias=False)))
    steps, width = net.shapes[x][2], net.shapes[x][1] * net.shapes[x][3]
    x = net.reshape(net.transpose(x, [2, 0, 3, 1]), [steps, 1, width])
    layers = [Layer(net, f"layer{n}", width if n == 0 else 256, 256) for n in range(7)]
    rows = []
    for step in range(steps):
        y = net.row(x, step)
        for layer in layers:
            y = layer.step(y)
        rows.append(y)
    net.output(net.dense(net.batch_norm(net.concat(*rows, axis=0)), 29))
    return net


NETWORKS = {"resnext": resnext, "nasnet": nasnet, "alexnet": alexnet, "deepspeech2": deepspeech2, "lstm": lstm, "seq2seq": seq2seq}
