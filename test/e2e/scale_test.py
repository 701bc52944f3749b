#!/usr/bin/env python3
"""Time, memory and stack of `tamp compile` by the size of the network: networks of test/bench/compile_scale.py at two sizes, n and 4 n.
What is compared are seconds of the processor, of which 4 n may take 8 times as many as n: n log n stays far below, n squared far above."""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

import harness

sys.path.insert(0, str(harness.ROOT / "test" / "bench"))
import compile_scale as scale

SMALL_STACK_KB = 256  # recursion over some thousand nodes does not fit
MOST_TIMES = 8.0
SETTLED = 0.05  # seconds: starting takes as much

# The first n and the most bytes of the .cu that each further node may add.
SIZES = {
    scale.elementwise: (5000, 200), scale.views: (3000, 10), scale.split: (400, 1200), scale.dense: (12, 12000), scale.dense_input: (12, 14000),
    scale.diamonds: (1500, 300), scale.residual: (40, 8000), scale.products: (120, 6000), scale.transformer: (4, 25000)
}


def compiled(tamp, kind, n):
    """Seconds and the size of the source: the least seconds of two runs, where one could mislead."""
    model, out = tamp.folder / f"{kind.__name__}{n}.onnx", tamp.folder / f"out{n}"
    kind(n).write(model)
    words = [tamp.program, "compile", str(model), "-o", str(out), "-q", "--vdevice", "cpu"]
    seconds, _, message = scale.compile_once(words, SMALL_STACK_KB)
    assert not message, f"{kind.__name__}({n}): {message}"
    return seconds, (out / f"{model.stem}.cu").stat().st_size


def grows(kind):

    def test(tamp):
        n, bytes_per_node = SIZES[kind]
        small, large = compiled(tamp, kind, n), compiled(tamp, kind, 4 * n)
        if large[0] > MOST_TIMES * (small[0] + SETTLED):  # once more: another program may have been in the way
            small, large = (min(a, compiled(tamp, kind, size)) for a, size in ((small, n), (large, 4 * n)))
        assert large[0] <= MOST_TIMES * (small[0] + SETTLED), f"{n}: {small[0]:.2f} s, {4 * n}: {large[0]:.2f} s"
        grown = (large[1] - small[1]) / (3 * n)
        assert grown <= bytes_per_node, f"the source grows by {grown:.0f} bytes a node, {bytes_per_node} are expected at most"

    test.__name__ = f"test_{kind.__name__}_grows_as_its_nodes"
    return test


def one_step(elements):
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [elements]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "big", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_memory_does_not_grow_with_elements(tamp):
    model = tamp.folder / "big.onnx"
    onnx.save(one_step((1 << 31) - 1), model)
    seconds, megabytes, message = scale.compile_once([tamp.program, "compile", str(model), "-o", str(tamp.folder / "out"), "--vdevice", "h200"], None)
    assert not message and megabytes < 200 and seconds < 5, f"{message}: {seconds:.1f} s, {megabytes:.0f} MB"


def products_of_halves(folder, tensors, rows=4096, columns=8448):
    """A chain of products, whose matrices of 66 MB are ranges of one file, each from a byte of its own on. Every second one is transposed."""
    size, step = rows * columns * 2, 4096
    halves = np.random.default_rng(1).integers(0, 0x2c00, (size + tensors * step) // 2, np.uint16)  # up to 1/16
    halves.tofile(folder / "halves.bin")
    nodes, initializers = [], []
    for i in range(tensors):
        matrix = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT16, dims=[rows, columns], data_location=TensorProto.EXTERNAL)
        for key, text in (("location", "halves.bin"), ("offset", i * step), ("length", size)):
            matrix.external_data.add(key=key, value=str(text))
        initializers.append(matrix)
        if i % 2 == 1:
            nodes.append(helper.make_node("Transpose", [f"w{i}"], [f"turned{i}"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}" if i % 2 == 0 else f"turned{i}"], [f"x{i + 1}"]))
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, rows])] for name in ("x0", f"x{tensors}"))
    graph = helper.make_graph(nodes, "halves", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_weights_are_never_all_in_memory(tamp):
    """Of each of some matrices there may be the file's 66 MB, 132 MB of floats, and 66 MB that are written; 660 MB are written in all. Two and two are
    packed together, as the products of a row's feed-forward part."""
    model = tamp.folder / "halves.onnx"
    onnx.save(products_of_halves(tamp.folder, 10), model)
    words = [tamp.program, "compile", str(model), "-o", str(tamp.folder / "out"), "--vdevice", "h200", "--precision", "fp16"]
    _, megabytes, message = scale.compile_once(words, None)
    assert not message and megabytes < 264 * (os.cpu_count() + 5), f"{message}: {megabytes:.0f} MB"
    assert (tamp.folder / "out" / "halves.weights").stat().st_size > 10 * (66 << 20)


def call_in_if(depth):
    """Functions that call each other from a branch, `depth` deep."""

    def graph(name, node):
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [4])])

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = [helper.make_function("local", "F0", ["x"], ["y"], [helper.make_node("Relu", ["x"], ["y"])], opsets)]
    for d in range(1, depth):
        condition = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [], [True]))
        branches = {"then_branch": graph("then", helper.make_node(f"F{d - 1}", ["x"], ["t"], domain="local")),
                    "else_branch": graph("else", helper.make_node("Neg", ["x"], ["e"]))}
        functions.append(helper.make_function("local", f"F{d}", ["x"], ["y"], [condition, helper.make_node("If", ["c"], ["y"], **branches)], opsets))
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    main = helper.make_graph([helper.make_node(f"F{depth - 1}", ["x"], ["y"], domain="local")], "main", value[:1], value[1:])
    return helper.make_model(main, functions=functions, opset_imports=opsets, ir_version=8)


def test_bodies_nest_within_a_limit(tamp):
    for depth, says in ((32, ""), (60, "functions and control flow nest deeper than 64, which is the limit")):
        model = tamp.folder / f"nest{depth}.onnx"
        onnx.save(call_in_if(depth), model)
        words = [tamp.program, "compile", str(model), "-o", str(tamp.folder / f"out{depth}"), "-q", "--vdevice", "cpu"]
        _, _, message = scale.compile_once(words, SMALL_STACK_KB)
        assert message.endswith(says) and bool(message) == bool(says), f"{depth} deep: {message or 'compiles'}"


if __name__ == "__main__":
    sys.exit(harness.main(list(map(grows, SIZES)) + harness.tests_of(globals())))
