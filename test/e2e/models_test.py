#!/usr/bin/env python3
"""Whole models on the stand-in, compared with ONNX Runtime: compiled, built with g++, and run three times in different
orders of the vEUs; the outputs of all three must be bitwise equal. The order comes from a seed (TAMP_SEED), another one for
each model and policy.

    models_test.py TAMP [WORD...]
"""
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnxruntime

import harness
import models as m

DEVICE = "cpu"  # gpu_test.py has it changed
REPEATS = 3
LIMIT = {"fp32": 1e-4, "tf32": 5e-3, "fp16": 2e-3, "bf16": 2e-2}


def random(name, *shape):
    generator = np.random.default_rng(sum(name.encode()) * 1000003 + int(np.prod(shape)))
    return generator.standard_normal(shape, dtype=np.float32)


def weight(name, *shape):
    """He-scaled, so that activations stay of order 1 through any depth."""
    return m.constant(name, random(name, *shape) * np.sqrt(2 / np.prod(shape[1:])).astype(np.float32))


def port(name, *shape):
    return m.value(name, list(shape))


# --- the models ------------------------------------------------------------------------------------------------------

def lone_relu():
    return m.relu()


def conv_odd():
    """Nothing is a multiple of a tile; asymmetric pads, strides and dilations."""
    return m.model(
        [m.node("Conv", ["x", "w1", "b1"], ["a"], "c1", pads=[0, 1, 2, 1], strides=[2, 1]), m.node("LeakyRelu", ["a"], ["b"], "l1", alpha=0.1),
         m.node("Conv", ["b", "w2"], ["c"], "c2", dilations=[2, 2], pads=[2, 2, 2, 2]), m.node("Relu", ["c"], ["y"], "r2")],
        [port("x", 2, 5, 13, 11)], [port("y", 2, 17, 7, 11)],
        [weight("w1", 7, 5, 3, 3), m.constant("b1", random("b1", 7)), weight("w2", 17, 7, 3, 3)])


def inception():
    """Four branches side by side, joined by Concat: the graph that wavefronts are for."""
    nodes = [m.node("Conv", ["x", "w1"], ["b1"], "c1"),
             m.node("Conv", ["x", "w2"], ["a2"], "c2"), m.node("Relu", ["a2"], ["r2"], "r2"), m.node("Conv", ["r2", "w3"], ["b2"], "c3", pads=[1, 1, 1, 1]),
             m.node("Conv", ["x", "w4"], ["a3"], "c4"), m.node("Relu", ["a3"], ["r3"], "r3"), m.node("Conv", ["r3", "w5"], ["b3"], "c5", pads=[2, 2, 2, 2]),
             m.node("MaxPool", ["x"], ["a4"], "p1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), m.node("Conv", ["a4", "w6"], ["b4"], "c6"),
             m.node("Concat", ["b1", "b2", "b3", "b4"], ["j"], "join", axis=1), m.node("Relu", ["j"], ["y"], "r4")]
    weights = [weight("w1", 8, 12, 1, 1), weight("w2", 6, 12, 1, 1), weight("w3", 10, 6, 3, 3), weight("w4", 4, 12, 1, 1), weight("w5", 5, 4, 5, 5), weight("w6", 7, 12, 1, 1)]
    return m.model(nodes, [port("x", 1, 12, 9, 9)], [port("y", 1, 30, 9, 9)], weights)


def mobile():
    """Inverted residual with squeeze-and-excite: pointwise, depthwise, a gate, a skip connection."""
    nodes = [m.node("Conv", ["x", "we"], ["e0"], "expand"), m.node("HardSwish", ["e0"], ["e"], "hs"),
             m.node("Conv", ["e", "wd"], ["d0"], "depthwise", group=24, pads=[1, 1, 1, 1]), m.node("Clip", ["d0", "zero", "six"], ["d"], "relu6"),
             m.node("GlobalAveragePool", ["d"], ["p"], "squeeze"), m.node("Conv", ["p", "w1"], ["s1"], "se1"), m.node("Relu", ["s1"], ["s2"], "ser"),
             m.node("Conv", ["s2", "w2"], ["s3"], "se2"), m.node("Sigmoid", ["s3"], ["gate"], "sig"), m.node("Mul", ["d", "gate"], ["g"], "excite"),
             m.node("Conv", ["g", "wp"], ["q"], "project"), m.node("Add", ["q", "x"], ["y"], "skip")]
    weights = [weight("we", 24, 8, 1, 1), weight("wd", 24, 1, 3, 3), weight("w1", 6, 24, 1, 1), weight("w2", 24, 6, 1, 1), weight("wp", 8, 24, 1, 1),
               m.constant("zero", 0.0), m.constant("six", 6.0)]
    return m.model(nodes, [port("x", 1, 8, 7, 7)], [port("y", 1, 8, 7, 7)], weights)


def excited():
    """Squeeze-and-excite of two images: behind a depthwise convolution of odd sizes, and behind a grouped one, whose channels end within a block."""
    squeeze = lambda x, n, act, gate: [
        m.node("GlobalAveragePool", [x], [f"p{n}"], f"pool{n}"), m.node("Conv", [f"p{n}", f"u{n}", f"ub{n}"], [f"h{n}"], f"first{n}"), *act(f"h{n}", f"i{n}"),
        m.node("Conv", [f"i{n}", f"v{n}", f"vb{n}"], [f"k{n}"], f"second{n}"), m.node(gate, [f"k{n}"], [f"g{n}"], f"gate{n}"),
        m.node("Mul", [f"g{n}", x] if n == 1 else [x, f"g{n}"], [f"y{n}"], f"excite{n}")]
    relu = lambda a, b: [m.node("Relu", [a], [b], f"act_{b}")]
    silu = lambda a, b: [m.node("Sigmoid", [a], [f"s{a}"], f"sig_{b}"), m.node("Mul", [a, f"s{a}"], [b], f"act_{b}")]
    nodes = [m.node("Conv", ["x", "wd", "bd"], ["d0"], "depthwise", group=40, pads=[2] * 4, strides=[2, 2]), m.node("HardSwish", ["d0"], ["d1"], "hs"),
             *squeeze("d1", 1, relu, "HardSigmoid"), m.node("Conv", ["y1", "wg", "bg"], ["c0"], "grouped", group=2, pads=[1] * 4), *relu("c0", "c1"),
             *squeeze("c1", 2, silu, "Sigmoid"), m.node("Conv", ["y2", "wp"], ["y"], "project")]
    sizes = [(40, 10), (38, 7)]
    weights = [weight("wd", 40, 1, 5, 5), weight("wg", 38, 20, 3, 3), weight("wp", 9, 38, 1, 1), *(m.constant(n, random(n, c)) for n, c in (("bd", 40), ("bg", 38)))]
    for n, (channels, hidden) in enumerate(sizes, 1):
        weights += [weight(f"u{n}", hidden, channels, 1, 1), weight(f"v{n}", channels, hidden, 1, 1), m.constant(f"ub{n}", random(f"ub{n}", hidden)),
                    m.constant(f"vb{n}", random(f"vb{n}", channels))]
    return m.model(nodes, [port("x", 2, 40, 13, 11)], [port("y", 2, 9, 7, 6)], weights)


def summed():
    """Squeeze-and-excite of two images behind a grouped convolution and behind a pointwise one, whose channels are multiples of four."""
    nodes = [m.node("Conv", ["x", "wg", "bg"], ["c0"], "grouped", group=4, pads=[1] * 4, strides=[2, 2]), m.node("Relu", ["c0"], ["c"], "relu"),
             m.node("GlobalAveragePool", ["c"], ["p1"], "pool1"), m.node("Conv", ["p1", "u1", "ub"], ["h1"], "first1"), m.node("Relu", ["h1"], ["i1"], "inner1"),
             m.node("Conv", ["i1", "v1"], ["k1"], "second1"), m.node("Sigmoid", ["k1"], ["g1"], "gate1"), m.node("Mul", ["g1", "c"], ["y1"], "excite1"),
             m.node("Conv", ["y1", "wp"], ["e0"], "pointwise"), m.node("HardSwish", ["e0"], ["e"], "hs"), m.node("ReduceMean", ["e"], ["p2"], "pool2", axes=[2, 3]),
             m.node("Conv", ["p2", "u2"], ["h2"], "first2"), m.node("HardSwish", ["h2"], ["i2"], "inner2"), m.node("Conv", ["i2", "v2", "vb"], ["k2"], "second2"),
             m.node("HardSigmoid", ["k2"], ["g2"], "gate2"), m.node("Mul", ["e", "g2"], ["y"], "excite2")]
    weights = [weight("wg", 40, 6, 3, 3), m.constant("bg", random("bg", 40)), weight("u1", 7, 40, 1, 1), m.constant("ub", random("ub", 7)), weight("v1", 40, 7, 1, 1),
               weight("wp", 92, 40, 1, 1), weight("u2", 23, 92, 1, 1), weight("v2", 92, 23, 1, 1), m.constant("vb", random("vb", 92))]
    return m.model(nodes, [port("x", 2, 24, 17, 13)], [port("y", 2, 92, 9, 7)], weights)


def pooled():
    """The end of a classifier, of two images: a residual and an activation, a global pooling and a Gemm. The channels are a multiple of four."""
    nodes = [m.node("Conv", ["x", "w1", "b1"], ["a0"], "c1", pads=[1] * 4), m.node("Relu", ["a0"], ["a"], "r1"), m.node("Conv", ["a", "w2", "b2"], ["c"], "c2"),
             m.node("Add", ["c", "x"], ["s"], "skip"), m.node("Relu", ["s"], ["r"], "r2"), m.node("GlobalAveragePool", ["r"], ["p"], "pool"),
             m.node("Flatten", ["p"], ["f"], "flat"), m.node("Gemm", ["f", "w3", "b3"], ["y"], "fc", transB=1)]
    weights = [weight("w1", 40, 100, 3, 3), weight("w2", 100, 40, 1, 1), weight("w3", 37, 100), *(m.constant(n, random(n, c)) for n, c in (("b1", 40), ("b2", 100), ("b3", 37)))]
    return m.model(nodes, [port("x", 2, 100, 9, 7)], [port("y", 2, 37)], weights)


def batch_norm():
    """Conv, BatchNormalization, residual, average pooling, Gemm."""
    norm = [m.constant("scale", random("scale", 16)), m.constant("shift", random("shift", 16)), m.constant("mean", random("mean", 16)),
            m.constant("var", np.abs(random("var", 16)) + 0.5)]
    nodes = [m.node("Conv", ["x", "w1"], ["c1"], "c1", pads=[1, 1, 1, 1]), m.node("BatchNormalization", ["c1", "scale", "shift", "mean", "var"], ["n1"], "bn"),
             m.node("Relu", ["n1"], ["r1"], "r1"), m.node("Conv", ["r1", "w2"], ["c2"], "c2", pads=[1, 1, 1, 1]), m.node("Add", ["c2", "r1"], ["s"], "add"),
             m.node("Relu", ["s"], ["r2"], "r2"), m.node("AveragePool", ["r2"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
             m.node("Flatten", ["p"], ["f"], "flat"), m.node("Gemm", ["f", "w3", "b3"], ["y"], "fc", transB=1)]
    return m.model(nodes, [port("x", 1, 3, 10, 10)], [port("y", 1, 13)],
                   [weight("w1", 16, 3, 3, 3), weight("w2", 16, 16, 3, 3), weight("w3", 13, 400), m.constant("b3", random("b3", 13)), *norm])


def attention():
    """Two heads of self-attention: MatMul of two activations, Softmax, Reshape, Transpose."""
    nodes = []
    for name in "qkv":
        nodes += [m.node("MatMul", ["x", f"w{name}"], [f"{name}0"], f"m{name}"), m.node("Reshape", [f"{name}0", "heads"], [f"{name}1"], f"r{name}"),
                  m.node("Transpose", [f"{name}1"], [f"{name}2"], f"t{name}", perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])]
    nodes += [m.node("MatMul", ["q2", "k2"], ["s0"], "scores"), m.node("Div", ["s0", "root"], ["s1"], "scale"), m.node("Softmax", ["s1"], ["p"], "softmax", axis=-1),
              m.node("MatMul", ["p", "v2"], ["o0"], "mix"), m.node("Transpose", ["o0"], ["o1"], "to", perm=[0, 2, 1, 3]),
              m.node("Reshape", ["o1", "flat"], ["o2"], "ro"), m.node("MatMul", ["o2", "wo"], ["o3"], "out"), m.node("Add", ["o3", "x"], ["y"], "skip")]
    weights = [weight(f"w{name}", 24, 24) for name in "qkvo"] + [m.ints("heads", [1, 9, 2, 12]), m.ints("flat", [1, 9, 24]), m.constant("root", 12 ** 0.5)]
    return m.model(nodes, [port("x", 1, 9, 24)], [port("y", 1, 9, 24)], weights)


def reductions():
    """Several outputs, broadcasting, reductions over several axes, Slice with steps, Pad, LRN, a 1-D convolution."""
    nodes = [m.node("ReduceMean", ["x"], ["mean"], "mean", axes=[2], keepdims=1), m.node("Sub", ["x", "mean"], ["c"], "centre"),
             m.node("ReduceMax", ["c"], ["most"], "most", axes=[1, 2], keepdims=0), m.node("Slice", ["c", "starts", "ends", "axes", "steps"], ["s"], "slice"),
             m.node("Pad", ["s", "pads"], ["p"], "pad"), m.node("Conv", ["p", "w"], ["v"], "conv1d"), m.node("Tanh", ["v"], ["t"], "tanh"),
             m.node("LRN", ["c4"], ["n"], "lrn", size=3), m.node("Unsqueeze", ["c", "last"], ["c4"], "up")]
    nodes[-1], nodes[-2] = nodes[-2], nodes[-1]
    weights = [m.ints("starts", [10]), m.ints("ends", [-100]), m.ints("axes", [2]), m.ints("steps", [-2]), m.ints("pads", [0, 0, 1, 0, 0, 2]), m.ints("last", [3]),
               weight("w", 6, 5, 3)]
    return m.model(nodes, [port("x", 2, 5, 11)], [port("most", 2), port("t", 2, 6, 7), port("n", 2, 5, 11, 1)], weights)


def through():
    """An output that is an input, constants of all kinds as outputs, one made twice over, an input that nobody reads, a product that is
    added to itself."""
    nodes = [m.node("Identity", ["x"], ["same"], "id"), m.node("Relu", ["x"], ["r"], "r1"), m.node("Identity", ["r"], ["again"], "id2"),
             m.node("MatMul", ["x", "w"], ["p"], "product"), m.node("Relu", ["p"], ["q"], "r2"), m.node("Add", ["q", "q"], ["twice"], "twice")]
    weights = [m.constant("k", random("k", 2, 2)), m.constant("w", random("w", 5, 4)), m.constant("k_i64", np.arange(3) - 2**40, np.int64),
               m.constant("k_bool", [True, False, True], np.bool_), m.constant("k_f16", np.arange(3001) / 7, np.float16),
               m.constant("k_u8", np.arange(70003) % 251, np.uint8), m.constant("k_f64", 1 / 3, np.float64)]
    constants = [m.value(k.name, list(k.dims), k.data_type) for k in weights if k.name != "w"]
    return m.model(nodes, [port("x", 3, 5), port("unread", 2)], [port("same", 3, 5), port("r", 3, 5), port("again", 3, 5), port("twice", 3, 4), *constants], weights)


def deep():
    """Forty small layers: more waves and events than vEUs."""
    nodes, weights, last = [], [], "x"
    for i in range(40):
        nodes += [m.node("MatMul", [last, f"w{i}"], [f"a{i}"], f"m{i}"), m.node("Tanh", [f"a{i}"], [f"t{i}"], f"t{i}")]
        weights.append(weight(f"w{i}", 20, 20))
        last = f"t{i}"
    return m.model(nodes, [port("x", 3, 20)], [port(last, 3, 20)], weights)


SMALL = [lone_relu, conv_odd, inception, mobile, excited, summed, batch_norm, attention, reductions, through, deep]


# --- running them ----------------------------------------------------------------------------------------------------

def compare(got, expected, limit, name):
    assert got.shape == expected.shape and got.dtype == expected.dtype, f"{name}: {got.dtype}{got.shape}, expected {expected.dtype}{expected.shape}"
    if got.dtype != np.float32:
        assert (got == expected).all(), f"{name}: {got}, expected {expected}"
        return
    error = np.linalg.norm((got - expected).ravel()) / (np.linalg.norm(expected.ravel()) or 1)
    assert error <= limit, f"{name}: relative L2 distance {error:.2e} from ONNX Runtime, limit {limit:.0e}"


def check_model(tamp, path, *options, seed=1, precision="fp32", given=None):
    """Runs the model three times on the stand-in and compares every output with ONNX Runtime. Inputs that are not given are
    random."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs = {entry.name: random(entry.name, *entry.shape) for entry in session.get_inputs()} | (given or {})
    arguments = []
    for index, (name, values) in enumerate(inputs.items()):
        np.save(tamp.folder / f"in{index}.npy", values)
        arguments += ["--input", f"{name}=in{index}.npy"]
    done = tamp("run", path, "--device", DEVICE, "--repeat", REPEATS, "--check", "--precision", precision, "--output-dir", "out", *arguments, *options,
                env={"TAMP_SEED": str(seed)})
    assert f"of {REPEATS} runs, all bitwise equal" in done.stdout, done.stdout
    files = json.loads((tamp.folder / "out" / "outputs.json").read_text())
    expected = session.run(None, inputs)
    assert list(files) == [entry.name for entry in session.get_outputs()]
    for entry, values in zip(session.get_outputs(), expected):
        compare(np.load(tamp.folder / "out" / files[entry.name]), values, LIMIT[precision], entry.name)


def small_test(make, policy, seed):
    def test(tamp):
        path = tamp.folder / f"{make.__name__}.onnx"
        path.write_bytes(make().SerializeToString())
        check_model(tamp, path, "--policy", policy, seed=seed)
    test.__name__ = f"test_{make.__name__}_{policy}"
    return test


def precision_test(make):
    def test(tamp):
        path = tamp.folder / f"{make.__name__}.onnx"
        path.write_bytes(make().SerializeToString())
        check_model(tamp, path, seed=11, precision="tf32")
    test.__name__ = f"test_{make.__name__}_tf32"
    return test


def execution_test(make, precision, policy):
    """Both executions run the same bodies on the same rTasks, so their answers are the same bytes."""
    def test(tamp):
        path = tamp.folder / f"{make.__name__}.onnx"
        path.write_bytes(make().SerializeToString())
        answers = []
        for execution in ("persistent", "graph"):
            check_model(tamp, path, "--execution", execution, "--policy", policy, seed=31, precision=precision)
            files = json.loads((tamp.folder / "out" / "outputs.json").read_text())
            answers.append({name: (tamp.folder / "out" / file).read_bytes() for name, file in files.items()})
        assert answers[0] == answers[1]
    test.__name__ = f"test_{make.__name__}_executions_agree_{precision}_{policy}"
    return test


def launches_of(tamp, make, *options):
    """Of graph execution: what the rProgram says of its launches, which the stand-in has run and found right."""
    path = tamp.folder / f"{make.__name__}.onnx"
    path.write_bytes(make().SerializeToString())
    check_model(tamp, path, "--execution", "graph", "--keep", "kept", *options, seed=33)
    source = (tamp.folder / "kept" / f"{make.__name__}.cu").read_text()
    launches = json.loads((tamp.folder / "kept" / f"{make.__name__}.rprogram.json").read_text())["launches"]
    steps = source[source.index("kSteps[] ="):]
    assert re.findall(r"(true|false)},$", steps[:steps.index("};")], re.M) == ["true" if launch["dependent"] else "false" for launch in launches]
    return launches


def test_a_chain_is_launched_as_programmatic_dependents(tamp):
    launches = launches_of(tamp, conv_odd)
    assert len(launches) >= 2 and [launch["dependent"] for launch in launches] == [False] + [True] * (len(launches) - 1), launches
    said = tamp("inspect", "kept").stdout
    assert f"launches    {len(launches)} kernels on 1 stream, {len(launches) - 1} of them programmatic dependents" in said, said


def test_forks_and_joins_keep_full_edges(tamp):
    launches = launches_of(tamp, inception)
    last = {}
    for number, launch in enumerate(launches):
        assert launch["dependent"] == (launch["after"] == [last.get(launch["stream"])]), (number, launches)
        last[launch["stream"]] = number
    assert any(launch["dependent"] for launch in launches) and any(len(launch["after"]) > 1 for launch in launches), launches


def test_a_vdevice_without_them_has_no_programmatic_dependents(tamp):
    assert not any(launch["dependent"] for launch in launches_of(tamp, conv_odd, "--vdevice", "a100"))


def test_merged_convolutions(tamp):
    """Of a module of Inception; what is merged may differ between the executions, so the answers may."""
    path = tamp.folder / "inception.onnx"
    path.write_bytes(inception().SerializeToString())
    for execution in ("persistent", "graph"):
        check_model(tamp, path, "--execution", execution, "--policy", "ios-merge", seed=33, precision="fp32")


def test_example_squeezenet_graph_execution(tamp):
    check_model(tamp, example(tamp, "squeezenet1_0"), "--execution", "graph", seed=32)


def example(tamp, name):
    subprocess.run([sys.executable, harness.ROOT / "examples" / "make_weights.py", harness.ROOT / "examples" / "models" / f"{name}.onnx", "--into", tamp.folder],
                   check=True, stdout=subprocess.DEVNULL)
    return pathlib.Path(tamp.folder) / f"{name}.onnx"


def test_example_mnist_mlp(tamp):
    check_model(tamp, example(tamp, "mnist_mlp"), seed=21)


def test_example_squeezenet(tamp):
    check_model(tamp, example(tamp, "squeezenet1_0"), seed=22)


def test_example_resnet18(tamp):
    check_model(tamp, example(tamp, "resnet18"), seed=23)


def boxed():
    """Convolutions whose inputs come as boxes on an H200."""
    nodes = [m.node("Conv", ["x", "w1"], ["a"], "c1", pads=[1, 1, 1, 1]), m.node("Relu", ["a"], ["r"], "r1"),
             m.node("Conv", ["r", "w2"], ["b"], "c2", pads=[1, 1, 1, 1]), m.node("Add", ["b", "r"], ["y"], "skip")]
    return m.model(nodes, [port("x", 1, 64, 14, 14)], [port("y", 1, 64, 14, 14)], [weight("w1", 64, 64, 3, 3), weight("w2", 64, 64, 3, 3)])


def smooth():
    """Products by wgmma on an H200, each behind it an activation that has code of its own there; 63 channels are padded ones."""
    nodes = [m.node("Conv", ["x", "w0"], ["r0"], "c0"), m.node("Relu", ["r0"], ["r"], "relu"), m.node("Conv", ["r", "w1"], ["a0"], "c1"), m.node("HardSwish", ["a0"], ["a"], "hs"), m.node("Conv", ["a", "w2"], ["b0"], "c2"),
             m.node("Sigmoid", ["b0"], ["s"], "sig"), m.node("Mul", ["b0", "s"], ["b"], "silu"), m.node("Conv", ["b", "w3"], ["c0"], "c3"),
             m.node("Div", ["c0", "root"], ["d"], "div"), m.node("Erf", ["d"], ["e"], "erf"), m.node("Add", ["e", "one"], ["f"], "add"),
             m.node("Mul", ["c0", "f"], ["g"], "mul"), m.node("Mul", ["g", "half"], ["c"], "gelu"), m.node("Conv", ["c", "w4"], ["y"], "c4")]
    weights = [*(weight(f"w{i}", 256, 256, 1, 1) for i in range(4)), weight("w4", 63, 256, 1, 1),
               m.constant("root", 2**0.5), m.constant("one", 1.0), m.constant("half", 0.5)]
    return m.model(nodes, [port("x", 1, 256, 55, 55)], [port("y", 1, 63, 55, 55)], weights)


def check_compiled_for_gpu(tamp, path, vdevice, holds):
    """What nvcc would get runs on the stand-in, whatever the number of vEUs, and can be checked from its folder alone. gpu_test.py has it run on the GPU."""
    name = path.stem
    tamp("compile", path, "-o", name, "--vdevice", vdevice)
    source = (tamp.folder / name / f"{name}.cu").read_text()
    for part in holds:
        assert part in source, f"{name}.cu lacks {part!r}"
    done = tamp("run", name, "--device", DEVICE, "--check")
    assert f"vDevice {vdevice}" in done.stdout and ": good, " in done.stdout, done.stdout
    return done


def test_mnist_mlp_compiled_for_h200(tamp):
    path = example(tamp, "mnist_mlp")
    check_compiled_for_gpu(tamp, path, "h200", ["vDevice h200 (sm_90a; ", "): 132 vEUs", "precision tf32"])
    # The folder knows its model: by name, and by what is in it.
    elsewhere = tamp.folder / "elsewhere"
    elsewhere.mkdir()
    for file in ("mnist_mlp.onnx", "mnist_mlp.bin"):
        (tamp.folder / file).rename(elsewhere / file)
    checking = ["run", "mnist_mlp", "--device", "cpu", "--check"]
    tamp(*checking, code=1, says="--model FILE")
    weights = bytearray((elsewhere / "mnist_mlp.bin").read_bytes())
    weights[1000] ^= 1
    (elsewhere / "mnist_mlp.bin").write_bytes(weights)
    tamp(*checking, "--model", "elsewhere/mnist_mlp.onnx", code=1, says="has changed since")
    tamp("run", elsewhere / "mnist_mlp.onnx", "--check", "--model", "elsewhere/mnist_mlp.onnx", code=1, says="--model is for a folder")


def test_boxes_compiled_for_h200(tamp):
    path = tamp.folder / "boxed.onnx"
    path.write_bytes(boxed().SerializeToString())
    check_compiled_for_gpu(tamp, path, "h200", ["132 vEUs", "kInputStages = 3", ".input = "])


def test_smooth_activations_compiled_for_h200(tamp):
    path = tamp.folder / "smooth.onnx"
    path.write_bytes(smooth().SerializeToString())
    check_compiled_for_gpu(tamp, path, "h200", ["/*Math=*/rk::Wide<rk::Tf32>"])


def test_boxes_where_each_thread_arrives(tamp):
    """How racecheck wants it (docs/sanitizers.md): barriers that count threads instead of groups of them."""
    path = tamp.folder / "boxed.onnx"
    path.write_bytes(boxed().SerializeToString())
    asked = tamp.folder / "asked"
    env = harness.with_gxx(tamp, f'words.append("-DTAMP_EACH_THREAD_ARRIVES"); pathlib.Path({str(asked)!r}).touch()')
    done = tamp("run", path, "--device", "cpu", "--vdevice", "h200", "--check", env=env)
    assert ": good, " in done.stdout and asked.exists(), done.stdout


def test_small_network_compiled_for_rtx5090(tamp):
    path = tamp.folder / "batch_norm.onnx"
    path.write_bytes(batch_norm().SerializeToString())
    check_compiled_for_gpu(tamp, path, "rtx5090", ["(sm_120; ", "): 170 vEUs"])


def test_other_orders_give_the_same_answer(tamp):
    """Three seeds of their own, for the model with the most side by side."""
    path = tamp.folder / "inception.onnx"
    path.write_bytes(inception().SerializeToString())
    for seed in (2, 3, 4):
        check_model(tamp, path, seed=seed)


def test_symbolic_dimensions_take_their_value_from_dim(tamp):
    made = m.model([m.node("MatMul", ["x", "w"], ["a"], "m"), m.node("Relu", ["a"], ["y"], "r")], [port("x", "batch", 6)], [port("y", "batch", 10)], [weight("w", 6, 10)])
    path = tamp.folder / "batched.onnx"
    path.write_bytes(made.SerializeToString())
    tamp("run", path, "--device", "cpu", "--check", "--dim", "batch=5", "--output-dir", "out")
    assert np.load(tamp.folder / "out" / "y.npy").shape == (5, 10)
    tamp("run", path, "--device", "cpu", code=1, says="batch")


def cached(layers):
    """As a decoder has them: keys and values of each layer come in and go out."""
    nodes, state = [], "x"
    for n in range(layers):
        nodes += [m.node("Add", [f"k{n}", state], [f"keys{n}"], f"add{n}"), m.node("Mul", [f"v{n}", f"keys{n}"], [f"values{n}"], f"mul{n}"),
                  m.node("Sub", [f"values{n}", state], [f"d{n}"], f"sub{n}"), m.node("Tanh", [f"d{n}"], [f"h{n}"], f"tanh{n}")]
        state = f"h{n}"
    nodes.append(m.node("MatMul", [state, "w"], ["y"], "last"))
    caches = lambda *names: [port(f"{name}{n}", 3, 8) for n in range(layers) for name in names]
    return m.model(nodes, [port("x", 3, 8), *caches("k", "v")], [*caches("keys", "values"), port("y", 3, 5)], [weight("w", 8, 5)])


def test_hundreds_of_inputs_and_outputs(tamp):
    """130 ports, whose addresses are all in shared memory, and 322, the last of which are only in the kernel's parameter."""
    for layers, seed in [(32, 41), (80, 42)]:
        path = tamp.folder / f"layers{layers}.onnx"
        path.write_bytes(cached(layers).SerializeToString())
        for execution in ("persistent", "graph"):
            check_model(tamp, path, "--execution", execution, "--vdevice", "h200", seed=seed, precision="fp32")


def all_tests():
    tests = [small_test(make, policy, seed) for seed, (make, policy) in enumerate((make, policy) for make in SMALL for policy in ("wavefront", "sequential"))]
    tests += [execution_test(make, "fp32", "wavefront") for make in SMALL]
    tests += [execution_test(inception, "fp32", policy) for policy in ("greedy", "ios-parallel", "list")]
    tests += [execution_test(conv_odd, "tf32", "wavefront"), execution_test(pooled, "tf32", "wavefront"), execution_test(inception, "tf32", "sequential")]
    return tests + [precision_test(make) for make in (conv_odd, inception, excited, summed, pooled, attention)] + harness.tests_of(globals())


if __name__ == "__main__":
    sys.exit(harness.main(all_tests()))
