#!/usr/bin/env python3
"""Loops and branches of run time (docs/howto/loops.md), on the stand-in, against ONNX Runtime and numpy.

    loops_test.py TAMP [WORD...]
"""
import re
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import harness
import models as m
from mutants_test import mutate
from padded_test import saved, valid_outputs

I64, BOOL = TensorProto.INT64, TensorProto.BOOL
WIDTH, WORDS, END = 32, 50, 7


def node(op, inputs, outputs, **attributes):
    return m.node(op, inputs, outputs, "n_" + outputs[0], **attributes)


def weights(rng, *shape):
    return rng.standard_normal(shape) / np.sqrt(shape[0])


def body(nodes, carried, results, constants=()):
    """The body of a Loop: `carried` and `results` are ports; its condition comes in as `c` and goes out as `go`."""
    return helper.make_graph(nodes, "body", [m.value("i", [], I64), m.value("c", [], BOOL), *carried], [m.value("go", [], BOOL), *results], list(constants))


def branch(nodes, result, shape):
    return helper.make_graph(nodes, "branch", [], [m.value(result, shape)])


def newton():
    """Square roots of 64 numbers, until none changes by more than 1e-4."""
    steps = body([node("Div", ["a", "x"], ["q"]), node("Add", ["x", "q"], ["s"]), node("Mul", ["s", "half"], ["next"]),
                  node("Sub", ["next", "x"], ["d"]), node("Abs", ["d"], ["size"]), node("ReduceMax", ["size"], ["most"], keepdims=0),
                  node("Greater", ["most", "least"], ["go"])],
                 [m.value("x", [64])], [m.value("next", [64])], [m.constant("half", 0.5), m.constant("least", 1e-4)])
    loop = node("Loop", ["any", "yes", "a"], ["y"], body=steps)
    return m.model([loop], [m.value("a", [64])], [m.value("y", [64])], [m.ints("any", np.iinfo(np.int64).max), m.constant("yes", True, np.bool_)])


def greedy(rng, most=20):
    """Tokens until one is the end: a recurrent step, scores, the best of them."""
    steps = body([node("Gather", ["words", "token"], ["e"]), node("MatMul", ["h", "u"], ["hu"]), node("Add", ["e", "hu"], ["s"]),
                  node("Tanh", ["s"], ["h_next"]), node("MatMul", ["h_next", "o"], ["scores"]),
                  node("ArgMax", ["scores"], ["token_next"], axis=1, keepdims=0), node("Equal", ["token_next", "end"], ["ends"]),
                  node("Not", ["ends"], ["goes"]), node("Squeeze", ["goes", "first"], ["go"]), node("Identity", ["token_next"], ["out"])],
                 [m.value("token", [1], I64), m.value("h", [1, WIDTH])], [m.value("token_next", [1], I64), m.value("h_next", [1, WIDTH]), m.value("out", [1], I64)],
                 [m.constant("words", 6 * weights(rng, WORDS, WIDTH)), m.constant("u", 1.5 * weights(rng, WIDTH, WIDTH)),
                  m.constant("o", weights(rng, WIDTH, WORDS)), m.ints("end", [END]), m.ints("first", [0])])
    loop = node("Loop", ["most", "yes", "t0", "h0"], ["last", "h_last", "tokens"], body=steps)
    return m.model([loop], [m.value("t0", [1], I64), m.value("h0", [1, WIDTH])],
                   [m.value("last", [1], I64), m.value("h_last", [1, WIDTH]), m.value("tokens", ["n", 1], I64)],
                   [m.constant("most", most, np.int64), m.constant("yes", True, np.bool_)])


def beams(rng, beam=4, most=12):
    """Beam search: the best continuations of all beams go on, until all of them end."""
    steps = body([node("Gather", ["words", "token"], ["e"]), node("MatMul", ["h", "u"], ["hu"]), node("Add", ["e", "hu"], ["s"]), node("Tanh", ["s"], ["made"]),
                  node("MatMul", ["made", "o"], ["scores"]), node("LogSoftmax", ["scores"], ["logs"], axis=1), node("Unsqueeze", ["total", "one"], ["column"]),
                  node("Add", ["column", "logs"], ["sums"]), node("Reshape", ["sums", "flat"], ["all"]), node("TopK", ["all", "beams"], ["total_next", "best"]),
                  node("Div", ["best", "count"], ["from"]), node("Mod", ["best", "count"], ["token_next"]), node("Gather", ["made", "from"], ["h_next"]),
                  node("Gather", ["text", "from"], ["texts"]), node("Equal", ["places", "i"], ["here"]), node("Unsqueeze", ["token_next", "one"], ["tokens"]),
                  node("Where", ["here", "tokens", "texts"], ["text_next"]), node("Equal", ["token_next", "end"], ["ends"]), node("Cast", ["ends"], ["ended"], to=1),
                  node("ReduceMin", ["ended"], ["least"], keepdims=0), node("Less", ["least", "half"], ["go"])],
                 [m.value("token", [beam], I64), m.value("h", [beam, WIDTH]), m.value("total", [beam]), m.value("text", [beam, most], I64)],
                 [m.value("token_next", [beam], I64), m.value("h_next", [beam, WIDTH]), m.value("total_next", [beam]), m.value("text_next", [beam, most], I64)],
                 [m.constant("words", 5 * weights(rng, WORDS, WIDTH)), m.constant("u", weights(rng, WIDTH, WIDTH)), m.constant("o", weights(rng, WIDTH, WORDS)),
                  m.ints("one", [1]), m.ints("flat", [-1]), m.ints("beams", [beam]), m.ints("count", WORDS), m.ints("places", [range(most)]), m.ints("end", END),
                  m.constant("half", 0.5)])
    loop = node("Loop", ["most", "yes", "t0", "h0", "s0", "q0"], ["last", "h_last", "scores", "texts"], body=steps)
    return m.model([loop], [m.value("t0", [beam], I64), m.value("h0", [beam, WIDTH]), m.value("s0", [beam]), m.value("q0", [beam, most], I64)],
                   [m.value("scores", [beam]), m.value("texts", [beam, most], I64)], [m.ints("most", most), m.constant("yes", True, np.bool_)])


def recurrent(rng):
    """As many steps of a recurrent network as an input says."""
    steps = body([node("Gather", ["x", "i"], ["xi"]), node("MatMul", ["xi", "w"], ["xw"]), node("MatMul", ["h", "u"], ["hu"]),
                  node("Add", ["xw", "hu"], ["s"]), node("Tanh", ["s"], ["h_next"]), node("Identity", ["c"], ["go"])],
                 [m.value("h", [1, WIDTH])], [m.value("h_next", [1, WIDTH])],
                 [m.constant("w", weights(rng, WIDTH, WIDTH)), m.constant("u", weights(rng, WIDTH, WIDTH))])
    loop = node("Loop", ["length", "", "h0"], ["y"], body=steps)
    return m.model([loop, node("MatMul", ["y", "v"], ["z"])], [m.value("x", [30, 1, WIDTH]), m.value("length", [], I64), m.value("h0", [1, WIDTH])],
                   [m.value("z", [1, WIDTH])], [m.constant("v", weights(rng, WIDTH, WIDTH))])


def fibonacci():
    """Two values that change places."""
    steps = body([node("Add", ["a", "b"], ["s"]), node("Identity", ["b"], ["b_next"]), node("Identity", ["c"], ["go"])],
                 [m.value("a", [], I64), m.value("b", [], I64)], [m.value("b_next", [], I64), m.value("s", [], I64)])
    loop = node("Loop", ["length", "", "a0", "b0"], ["y", "z"], body=steps)
    ports = [m.value("length", [1], I64), m.value("a0", [], I64), m.value("b0", [], I64)]
    return m.model([loop], ports, [m.value("y", [], I64), m.value("z", [], I64)])


def skipped(rng):
    """A residual block that runs if an input says so."""
    block = branch([node("MatMul", ["x", "w"], ["xw"]), node("Relu", ["xw"], ["r"]), node("MatMul", ["r", "v"], ["rv"]), node("Add", ["rv", "x"], ["t"])], "t", [4, WIDTH])
    other = branch([node("Identity", ["x"], ["e"])], "e", [4, WIDTH])
    return m.model([node("If", ["c"], ["y"], then_branch=block, else_branch=other), node("Tanh", ["y"], ["z"])],
                   [m.value("c", [], BOOL), m.value("x", [4, WIDTH])], [m.value("z", [4, WIDTH])],
                   [m.constant("w", weights(rng, WIDTH, 64)), m.constant("v", weights(rng, 64, WIDTH))])


def both(rng):
    """Two branches; which one follows from the data."""
    then = branch([node("MatMul", ["x", "w"], ["xw"]), node("Relu", ["xw"], ["t"])], "t", [4, 64])
    other = branch([node("MatMul", ["x", "v"], ["xv"]), node("Sigmoid", ["xv"], ["e"])], "e", [4, 64])
    nodes = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Greater", ["sum", "zero"], ["c"]),
             node("If", ["c"], ["y"], then_branch=then, else_branch=other), node("MatMul", ["y", "u"], ["z"])]
    return m.model(nodes, [m.value("x", [4, WIDTH])], [m.value("z", [4, WIDTH])],
                   [m.constant("w", weights(rng, WIDTH, 64)), m.constant("v", weights(rng, WIDTH, 64)), m.constant("u", weights(rng, 64, WIDTH)), m.constant("zero", 0)])


def nested():
    """A loop and an If in a loop: i + 1 steps, then a sine or a cosine."""
    inner = helper.make_graph([node("Mul", ["v", "half"], ["v2"]), node("Add", ["v2", "w"], ["v_next"]), node("Identity", ["c2"], ["go2"])], "inner",
                              [m.value("j", [], I64), m.value("c2", [], BOOL), m.value("v", [16])], [m.value("go2", [], BOOL), m.value("v_next", [16])])
    steps = body([node("Add", ["i", "one"], ["trips"]), node("Loop", ["trips", "", "w"], ["u"], body=inner),
                  node("Mod", ["i", "two"], ["rest"]), node("Equal", ["rest", "none"], ["even"]),
                  node("If", ["even"], ["w_next"], then_branch=branch([node("Sin", ["u"], ["t"])], "t", [16]), else_branch=branch([node("Cos", ["u"], ["e"])], "e", [16])),
                  node("Identity", ["c"], ["go"])],
                 [m.value("w", [16])], [m.value("w_next", [16])],
                 [m.constant("one", 1, np.int64), m.constant("two", 2, np.int64), m.constant("none", 0, np.int64), m.constant("half", 0.5)])
    return m.model([node("Loop", ["n", "", "w0"], ["y"], body=steps)], [m.value("n", [], I64), m.value("w0", [16])], [m.value("y", [16])])


def stops(rng):
    """As many steps as there are rows of x, or until a state is near 1; all states."""
    steps = body([node("Gather", ["x", "i"], ["xi"]), node("MatMul", ["h", "u"], ["hu"]), node("Add", ["xi", "hu"], ["s"]), node("Tanh", ["s"], ["h_next"]),
                  node("ReduceMax", ["h_next"], ["most"], keepdims=0), node("Less", ["most", "limit"], ["go"]), node("Identity", ["h_next"], ["out"])],
                 [m.value("h", [1, WIDTH])], [m.value("h_next", [1, WIDTH]), m.value("out", [1, WIDTH])],
                 [m.constant("u", weights(rng, WIDTH, WIDTH)), m.constant("limit", 0.99)])
    nodes = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "first"], ["rows"]), node("Loop", ["rows", "yes", "h0"], ["y", "all"], body=steps)]
    return m.model(nodes, [m.value("x", ["rows", 1, WIDTH]), m.value("h0", [1, WIDTH])], [m.value("y", [1, WIDTH]), m.value("all", ["n", 1, WIDTH])],
                   [m.ints("first", 0), m.constant("yes", True, np.bool_)])


def check(tamp, made, *cases, options=()):
    """Runs every case three times; its results must be ONNX Runtime's."""
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for inputs in cases:
        found = valid_outputs(tamp, made, inputs, "--repeat", 3, *options)
        for name, wanted in zip((port.name for port in made.graph.output), session.run(None, inputs)):
            assert found[name].shape == wanted.shape, (name, found[name].shape, wanted.shape)
            np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5, err_msg=name)


def test_newton(tamp):
    x = np.linspace(0.5, 900, 64).astype(np.float32)
    check(tamp, newton(), {"a": x}, {"a": np.ones(64, np.float32)})


def test_greedy_search(tamp):
    rng = np.random.default_rng(1)
    made = greedy(rng)
    cases = [{"t0": np.array([t]), "h0": rng.standard_normal([1, WIDTH]).astype(np.float32)} for t in range(3)]
    check(tamp, made, *cases)


def test_beam_search(tamp):
    rng = np.random.default_rng(6)
    inputs = {"t0": np.array([1, 2, 3, 4]), "h0": rng.standard_normal([4, WIDTH]).astype(np.float32), "s0": np.array([0, -1, -2, -3], np.float32)}
    check(tamp, beams(rng), {**inputs, "q0": np.zeros([4, 12], np.int64)})


def test_length_of_run_time(tamp):
    rng = np.random.default_rng(2)
    made = recurrent(rng)
    x, h0 = rng.standard_normal([30, 1, WIDTH]).astype(np.float32), rng.standard_normal([1, WIDTH]).astype(np.float32)
    check(tamp, made, *({"x": x, "length": np.array(length), "h0": h0} for length in (0, 1, 30)))


def test_a_loop_that_may_end_before_its_length(tamp):
    rng = np.random.default_rng(7)
    made, h0 = stops(rng), np.zeros([1, WIDTH], np.float32)
    x = rng.standard_normal([12, 1, WIDTH]).astype(np.float32) / 4
    x[8] *= 20
    check(tamp, made, *({"x": x[:rows], "h0": h0} for rows in (1, 7, 12)), options=["--dim", "rows=1:20"])


def test_values_that_change_places(tamp):
    check(tamp, fibonacci(), *({"length": np.array([n]), "a0": np.array(0), "b0": np.array(1)} for n in (0, 1, 40)))


def test_if(tamp):
    rng = np.random.default_rng(3)
    x = rng.standard_normal([4, WIDTH]).astype(np.float32)
    check(tamp, skipped(rng), *({"c": np.array(c), "x": x} for c in (False, True)))
    check(tamp, both(rng), {"x": x}, {"x": -x})


def test_loops_in_loops(tamp):
    w0 = np.linspace(-1, 1, 16).astype(np.float32)
    check(tamp, nested(), *({"n": np.array(n), "w0": w0} for n in (0, 5)))


def test_races(tamp):
    rng = np.random.default_rng(4)
    for made, inputs in ((both(rng), {"x": np.ones([4, WIDTH], np.float32)}), (greedy(rng), {"t0": np.array([3]), "h0": np.ones([1, WIDTH], np.float32)})):
        tamp("run", "model.onnx", "--device", "cpu", "--precision", "fp32", "--races", *saved(tamp, made, inputs))


def test_a_wait_in_vain_names_the_iteration(tamp):
    saved(tamp, greedy(np.random.default_rng(1)), {})
    tamp("compile", "model.onnx", "-o", "out", "--vdevice", "cpu", "-q")
    # The loader's and the waiter's rows stay; a rTask in the loop does not signal.
    source = tamp.folder / "out" / "model.cu"
    text = source.read_text()
    begin = text.index(" enter(0,")
    row = re.compile(r" run\((r_\w+), ([^,]+), e_\w+").search(text, begin)
    source.write_text(text[:row.start()] + f" run({row[1]}, {row[2]}, kNo" + text[row.end():])
    done = tamp("run", "out", "--device", "cpu", code=3, says="waited in vain for event")
    assert re.search(r"wanted \d+, in iteration 1 of its loop", done.stderr), done.stderr


def test_refusals(tamp):
    rng = np.random.default_rng(5)
    saved(tamp, skipped(rng), {})
    tamp("compile", "model.onnx", "-o", "out", "--execution", "graph", code=2, says="is a loop of run time, supported: in one persistent kernel")
    grows = body([node("Concat", ["v", "v"], ["w"], axis=0), node("Identity", ["c"], ["go"])], [m.value("v", [None])], [m.value("w", [None])])
    saved(tamp, m.model([node("Loop", ["n", "", "x"], ["y"], body=grows)], [m.value("n", [], I64), m.value("x", [4])], [m.value("y", [None])]), {})
    tamp("compile", "model.onnx", "-o", "out", code=2, says="carried value 0 is f32[4] before an iteration and f32[8] behind it")
    stacks = body([node("Neg", ["v"], ["w"]), node("Identity", ["w"], ["out"]), node("Identity", ["c"], ["go"])], [m.value("v", [4])], [m.value("w", [4]), m.value("out", [4])])
    saved(tamp, m.model([node("Loop", ["n", "", "x"], ["y", "all"], body=stacks)], [m.value("n", [], I64), m.value("x", [4])], [m.value("y", [4]), m.value("all", [None, 4])]), {})
    tamp("compile", "model.onnx", "-o", "out", code=2, says="result 1 has as many entries as there are iterations")


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
