#!/usr/bin/env python3
"""Compiles synthetic networks of n nodes, n doubling, and prints seconds, memory and the slope.

    compile_scale.py TAMP [KIND...] [--from N] [--to N] [--limit SECONDS] [--stack KB] [--vdevice V] [--precision P] [--repeat R]

A kind is one shape of graph, KINDS lists them. A row has the nodes, the seconds of `tamp compile`, its largest memory, the bytes of the
.cu, and the slope since the row before: the power of n that the seconds grow with, 1.0 where twice the nodes take twice as long. A kind
ends when a run takes longer than the limit. With --stack all runs under that limit of the stack, as `ulimit -s` sets it."""
import argparse
import math
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Net:
    """A model under construction: each method adds one node and returns the name of its result."""

    def __init__(self):
        self.nodes, self.constants, self.inputs, self.outputs = [], [], [], []

    def input(self, *shape):
        self.inputs.append(helper.make_tensor_value_info(f"x{len(self.inputs)}", TensorProto.FLOAT, shape))
        return self.inputs[-1].name

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(numpy.asarray(array), name))
        return name

    def uniform(self, *shape):
        scale = 1 / math.sqrt(math.prod(shape[1:]) or 1)
        return self.constant(numpy.random.RandomState(len(self.constants)).uniform(-scale, scale, shape).astype(numpy.float32))

    def add(self, kind, *operands, results=1, **attributes):
        names = [f"n{len(self.nodes)}" if results == 1 else f"n{len(self.nodes)}_{i}" for i in range(results)]
        self.nodes.append(helper.make_node(kind, list(operands), names, name=f"node{len(self.nodes)}", **attributes))
        return names[0] if results == 1 else names

    def output(self, *names):
        self.outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]

    def write(self, path):
        graph = helper.make_graph(self.nodes, "scale", self.inputs, self.outputs, self.constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8), path)


def elementwise(n):
    """One chain of elementwise steps, every fourth with a second operand."""
    net = Net()
    x, shift = net.input(8, 64), net.uniform(64)
    for i in range(n):
        x = net.add("Add", x, shift) if i % 4 == 0 else net.add(("Tanh", "Sigmoid", "Relu")[i % 4 - 1], x)
    net.output(x)
    return net


def views(n):
    """One chain of Transposes and Reshapes."""
    net = Net()
    x = net.input(4, 6, 8)
    shapes = [net.constant(numpy.array(shape, numpy.int64)) for shape in ((8, 24), (4, 6, 8))]
    for i in range(n):
        x = view(net, x, shapes, i % 4)
    net.output(net.add("Relu", x))
    return net


def view(net, x, shapes, step):
    if step in (1, 3):
        return net.add("Reshape", x, shapes[step // 2])
    return net.add("Transpose", x, perm=[2, 0, 1] if step == 0 else [1, 0])


def split(n):
    """One Split into n parts, each with a step of its own, joined again."""
    net = Net()
    parts = net.add("Split", net.input(1, 4 * n), net.constant(numpy.full(n, 4, numpy.int64)), results=n, axis=1)
    net.output(net.add("Concat", *[net.add(("Relu", "Tanh")[i % 2], part) for i, part in enumerate(parts)], axis=1))
    return net


def split_outputs(n):
    """One Split whose parts are the network's results."""
    net = Net()
    net.output(*net.add("Split", net.input(1, 4 * n), net.constant(numpy.full(n, 4, numpy.int64)), results=n, axis=1))
    return net


def dense(n):
    """DenseNet's block of n layers: each convolves the results of all layers before it."""
    net = Net()
    x = net.add("Conv", net.input(1, 16, 14, 14), net.uniform(64, 16, 3, 3), pads=[1, 1, 1, 1])
    net.output(net.add("Relu", dense_block(net, x, n)))
    return net


def dense_input(n):
    """The same where the network's input is the first operand of each Concat, and the last Concat the network's output."""
    net = Net()
    net.output(dense_block(net, net.input(1, 64, 14, 14), n))
    return net


def dense_block(net, x, n):
    maps, channels, growth = [x], 64, 32
    for _ in range(n):
        x = net.add("Concat", *maps, axis=1)
        scale, shift, mean, variance = (net.constant(numpy.full(channels, value, numpy.float32)) for value in (0.9, 0.1, 0.05, 1.1))
        x = net.add("Relu", net.add("BatchNormalization", x, scale, shift, mean, variance))
        x = net.add("Relu", net.add("Conv", x, net.uniform(4 * growth, channels, 1, 1)))
        maps.append(net.add("Conv", x, net.uniform(growth, 4 * growth, 3, 3), pads=[1, 1, 1, 1]))
        channels += growth
    return net.add("Concat", *maps, axis=1)


def fan_out(n):
    """One tensor with n readers, whose results are joined."""
    net = Net()
    x = net.input(1, 64)
    net.output(net.add("Concat", *[net.add("MatMul", x, net.uniform(64, 8)) for _ in range(n)], axis=1))
    return net


def outputs(n):
    """A chain all of whose results are results of the network."""
    net = Net()
    x = net.input(1, 64)
    for i in range(n):
        x = net.add(("Tanh", "Sigmoid")[i % 2], x)
        net.output(x)
    return net


def residual(n):
    """n residual blocks of two convolutions."""
    net = Net()
    x = net.input(1, 16, 8, 8)
    for _ in range(n):
        y = net.add("Relu", net.add("Conv", x, net.uniform(16, 16, 3, 3), net.uniform(16), pads=[1, 1, 1, 1]))
        x = net.add("Relu", net.add("Add", x, net.add("Conv", y, net.uniform(16, 16, 3, 3), net.uniform(16), pads=[1, 1, 1, 1])))
    net.output(x)
    return net


def products(n):
    """n matrix products with a step between."""
    net = Net()
    x = net.input(4, 32)
    for _ in range(n):
        x = net.add("Tanh", net.add("MatMul", x, net.uniform(32, 32)))
    net.output(x)
    return net


def transformer(n):
    """n transformer layers."""
    net, rows, width, heads = Net(), 16, 64, 4
    x = net.input(1, rows, width)
    apart = net.constant(numpy.array([1, rows, heads, width // heads], numpy.int64))
    together = net.constant(numpy.array([1, rows, width], numpy.int64))
    scale = net.constant(numpy.float32((width / heads)**-0.5))

    def product(x, width, further):
        return net.add("Add", net.add("MatMul", x, net.uniform(width, further)), net.uniform(further))

    def normalised(x):
        return net.add("LayerNormalization", x, net.constant(numpy.ones(width, numpy.float32)), net.uniform(width), axis=-1)

    for _ in range(n):
        y = normalised(x)
        q, k, v = (net.add("Transpose", net.add("Reshape", product(y, width, width), apart), perm=perm)
                   for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        p = net.add("Softmax", net.add("Mul", net.add("MatMul", q, k), scale), axis=-1)
        y = net.add("Reshape", net.add("Transpose", net.add("MatMul", p, v), perm=[0, 2, 1, 3]), together)
        x = net.add("Add", x, product(y, width, width))
        y = product(normalised(x), width, 4 * width)
        x = net.add("Add", x, product(net.add("Mul", y, net.add("Sigmoid", y)), 4 * width, width))
    net.output(x)
    return net


def constants(n):
    """n products of constants, each of 2 * 256^3 operations, added to the input."""
    net = Net()
    a, x = net.uniform(256, 256), net.input(256, 256)
    for i in range(n):
        a = net.add("MatMul", a, net.uniform(256, 256) if i < 8 else f"c{1 + i % 8}")
        if i % 64 == 63:
            x = net.add("Add", x, a)
    net.output(net.add("Add", x, a))
    return net


def big(n):
    """Two steps on a tensor of n * 1024 elements."""
    net = Net()
    net.output(net.add("Tanh", net.add("Relu", net.input(1024, n))))
    return net


def diamonds(n):
    """A chain in which every result is read twice, so that there are 2^n ways from the input to the output."""
    net = Net()
    x = net.input(1, 64)
    for i in range(n // 3):
        x = net.add("Add", net.add("Tanh", x), net.add("Sigmoid", x))
    net.output(x)
    return net


# The first n and the last n of each kind.
KINDS = {
    elementwise: (1250, 20000), views: (1250, 20000), split: (1000, 16000), split_outputs: (1000, 16000), dense: (25, 200),
    fan_out: (250, 4000), outputs: (1250, 20000), residual: (125, 2000), products: (250, 4000), transformer: (8, 128),
    dense_input: (25, 200), constants: (375, 3000), big: (1 << 12, 1 << 21), diamonds: (1250, 20000)
}


def compile_once(words, stack_kb):
    """The seconds of processor time, the largest memory in MB, and the message if it is refused."""

    def limit():
        if stack_kb:
            resource.setrlimit(resource.RLIMIT_STACK, (stack_kb << 10, resource.RLIM_INFINITY))

    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=limit)
    text = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    message = "" if status == 0 else (text.strip().splitlines() or [f"status {status}"])[-1]
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, message


def measure(args, kind, n, folder):
    model = folder / "scale.onnx"
    kind(n).write(model)
    words = [args.tamp, "compile", model, "-o", folder / "out", "-q", "--vdevice", args.vdevice]
    words += ["--precision", args.precision] if args.precision else []
    runs = [compile_once([str(word) for word in words], args.stack) for _ in range(args.repeat)]
    source = folder / "out" / "scale.cu"
    return min(runs) + (source.stat().st_size if source.exists() else 0,)


def rows_of(args, kind):
    low, high = KINDS[kind]
    n, before = args.first or low, None
    while n <= (args.last or high):
        with tempfile.TemporaryDirectory() as folder:
            seconds, memory, message, size = measure(args, kind, n, pathlib.Path(folder))
        slope = f"{math.log2(seconds / before):.2f}" if before else ""
        print(f"{kind.__name__:14}{n:9}{seconds:9.2f}{memory:9.0f}{size / 1e6:9.2f}{slope:>7}  {message}", flush=True)
        if seconds > args.limit:
            break
        n, before = 2 * n, seconds


def main():
    by_name = {kind.__name__: kind for kind in KINDS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tamp")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(by_name))
    parser.add_argument("--from", dest="first", type=int)
    parser.add_argument("--to", dest="last", type=int)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--stack", type=int, metavar="KB")
    parser.add_argument("--vdevice", default="h200")
    parser.add_argument("--precision")
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    unknown = [name for name in args.kinds if name not in by_name]
    if unknown:
        sys.exit(f"no kind '{unknown[0]}'; there are {', '.join(by_name)}")
    print(f"{'kind':14}{'n':>9}{'seconds':>9}{'MB':>9}{'.cu MB':>9}{'slope':>7}")
    for name in args.kinds or by_name:
        rows_of(args, by_name[name])


if __name__ == "__main__":
    main()
