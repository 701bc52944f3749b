#!/usr/bin/env python3
"""`tamp run --check` against test data (--against DIR) and rOperator by rOperator (--each).

    check_test.py TAMP [WORD...]
"""
import json
import re
import shutil
import sys

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

import harness
import models as m
import quantised_models as quantised
import races_test as races
import transformers_test as transformers
from transformers_test import Net, named


def network():
    """A view between two nodes, and a chain that is fused."""
    weights = [m.constant("w", np.random.default_rng(1).standard_normal((8, 3, 3, 3)) * 0.2), m.constant("f", np.random.default_rng(2).standard_normal((8, 6)) * 0.3)]
    nodes = [m.node("Conv", ["x", "w"], ["a"], "conv1", pads=[1] * 4), m.node("Relu", ["a"], ["b"], "relu1"), m.node("Transpose", ["b"], ["c"], "last", perm=[0, 2, 3, 1]),
             m.node("MatMul", ["c", "f"], ["d"], "fc"), m.node("Softmax", ["d"], ["y"], "soft", axis=-1), m.node("Sigmoid", ["d"], ["z"], "sig")]
    return m.model(nodes, [m.value("x", [1, 3, 5, 7])], [m.value("y", [1, 5, 7, 6]), m.value("z", [1, 5, 7, 6])], weights)


def write_set(folder, inputs, outputs):
    folder.mkdir(parents=True)
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for i, values in enumerate(tensors):
            (folder / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(values), "").SerializeToString())


def convolutions(channels, pixels, count):
    weights = [m.constant(f"w{i}", np.random.default_rng(i).standard_normal((channels, channels, 3, 3)) * 0.05) for i in range(count)]
    values = ["x", *[f"r{i}" for i in range(count - 1)], "y"]
    nodes = []
    for i in range(count):
        nodes += [m.node("Conv", [values[i], f"w{i}"], [f"c{i}"], f"conv{i}", pads=[1] * 4), m.node("Relu", [f"c{i}"], [values[i + 1]], f"relu{i}")]
    shape = [1, channels, pixels, pixels]
    return m.model(nodes, [m.value("x", shape)], [m.value("y", shape)], weights)


def test_numbering_veus_by_where_their_blocks_are_changes_no_answer(tamp):
    """The stand-in numbers them from behind. A network of convolutions that fill all vEUs has such a numbering, one of a single small one has none.
    That the program goes by its table is seen from one that says that all blocks are vEU 0: what the others should compute is missing."""
    for count, numbered in ((9, "true"), (1, "false")):
        name = f"convolutions{count}"
        (tamp.folder / f"{name}.onnx").write_bytes(convolutions(32, 16, count).SerializeToString())
        tamp("run", f"{name}.onnx", "--device", "cpu", "--vdevice", "cpu", "--precision", "tf32", "--check", "--repeat", 3, "--keep", name)
        assert f"/*veus_by_sm=*/{numbered}" in (tamp.folder / name / f"{name}.cu").read_text()
    source = tamp.folder / "convolutions9" / "convolutions9.cu"
    right, wrong = "veus[blocks[v]] = static_cast<uint32_t>(v);", "veus[blocks[v]] = 0;"
    assert source.read_text().count(right) == 1, "place_veus has another text; change this test"
    source.write_text(source.read_text().replace(right, wrong))
    shown = tamp("run", "convolutions9", "--device", "cpu", "--check", code=4, says="convolutions9: outputs differ from the reference").stdout
    assert re.search(r"\d+ NaN", shown), shown


def test_a_body_that_begins_early_waits_for_its_inputs(tamp):
    """Bodies without boxes begin before their Waits have passed, and wait themselves. A program whose await_inputs does nothing is wrong, also on
    the stand-in: so every test that checks an answer would see a body that says it waits and does not."""
    nodes = [m.node("Conv", ["x", "w"], ["a"], "conv"), m.node("Relu", ["a"], ["r"], "relu"), m.node("MaxPool", ["r"], ["y"], "pool", kernel_shape=[3, 3], pads=[1] * 4)]
    model = m.model(nodes, [m.value("x", [1, 16, 20, 20])], [m.value("y", [1, 32, 20, 20])], [m.constant("w", np.random.default_rng(3).standard_normal((32, 16, 1, 1)))])
    (tamp.folder / "pooled.onnx").write_bytes(model.SerializeToString())
    tamp("run", "pooled.onnx", "--device", "cpu", "--vdevice", "cpu", "--precision", "tf32", "--check", "--keep", "pooled")
    source = tamp.folder / "pooled" / "pooled.cu"
    text, waits = source.read_text(), "wait_warp<Veu::kVotes>(*awaited, awaited_phase);"
    assert text.count(waits) == 1, "await_inputs has another text; change this test"
    assert ".awaits_inputs = 1" in text, "no body of this network begins early; change this test"
    source.write_text(text.replace(waits, ""))
    tamp("run", "pooled", "--device", "cpu", "--check", code=4, says="pooled: outputs differ from the reference")


def test_a_normalisation_waits_for_a_scale_that_is_computed(tamp):
    """Scale and bias that are constants are loaded before the rows are there; others are not. A program that takes the one for the other is wrong."""
    nodes = [m.node("Conv", ["z", "w"], ["a"], "conv"), m.node("ReduceMax", ["a"], ["s"], "largest", axes=[0, 2, 3], keepdims=0),
             m.node("LayerNormalization", ["x", "s"], ["y"], "norm")]
    constants = [m.constant("w", np.random.default_rng(4).standard_normal((64, 16, 1, 1)))]
    model = m.model(nodes, [m.value("x", [40, 64]), m.value("z", [1, 16, 12, 12])], [m.value("y", [40, 64])], constants)
    (tamp.folder / "scaled.onnx").write_bytes(model.SerializeToString())
    tamp("run", "scaled.onnx", "--device", "cpu", "--vdevice", "cpu", "--precision", "fp32", "--check", "--keep", "scaled")
    source = tamp.folder / "scaled" / "scaled.cu"
    text = source.read_text()
    assert ".factors_await = 1" in text, "the normalisation has another body; change this test"
    source.write_text(text.replace(".factors_await = 1", ".factors_await = 0"))
    tamp("run", "scaled", "--device", "cpu", "--check", code=4, says="scaled: outputs differ from the reference")


def test_test_data_is_compared_with(tamp):
    model = m.model([m.node("Add", ["x", "c"], ["y"]), m.node("Cast", ["i"], ["j"], to=m.TensorProto.INT64)],
                    [m.value("x", [2, 3]), m.value("c", [3]), m.value("i", [2], m.TensorProto.INT32)], [m.value("y", [2, 3]), m.value("j", [2], m.TensorProto.INT64)])
    (tamp.folder / "sum.onnx").write_bytes(model.SerializeToString())
    x, c, i = np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([1, 2, 4]), np.int32([5, -6])
    np.save(tamp.folder / "c.npy", c)
    y, j = x + c, i.astype(np.int64)
    wrong, near = y.copy(), y + np.float32(0.0005)
    wrong[1, 2] += 1
    wrong[0, 0] += 0.5
    cases = tamp.folder / "cases"
    for number, outputs in enumerate([[y, j], [wrong, j], [y, j + [0, 1]], [y.reshape(3, 2), j], [y, i], [y], [near, j]]):
        write_set(cases / f"test_data_set_{number}", [x, c, i], outputs)
    words = ["run", "sum.onnx", "--device", "cpu", "--freeze", "c=c.npy", "--check", "--against"]
    done = tamp(*words, "cases", code=4, says="test_data_set_1: output 'y': 2 of 6 elements are wrong (rtol 0.001, atol 1e-05); the worst is [1,2]: found 9, expected 10")
    for says in ["test_data_set_2: output 'j': 1 of 2 elements are wrong", "the worst is [1]: found -6, expected -5", "test_data_set_3: output 'y' is f32[2,3], expected f32[3,2]",
                 "test_data_set_4: output 'j' is i64[2], expected i32[2]", "test_data_set_5: the model has 2 outputs, expected 1"]:
        assert says in done.stderr, f"does not say {says!r}: {done.stderr}"
    assert "check   test_data_set_0: good" in done.stdout and "check   test_data_set_6: good" in done.stdout, done.stdout
    # Integers have no tolerance, and a large one that is off by one is as wrong as another.
    i = np.int32([5001, 7])
    for name, expected, says in [("small", [5000, 7], "1 of 2 elements are wrong (rtol 0.001, atol 1e-05); the worst is [0]: found 5001, expected 5000"),
                                 ("large", [5001, 2 ** 40], f"the worst is [1]: found 7, expected {2 ** 40}")]:
        write_set(tamp.folder / name, [x, c, i], [y, np.int64(expected)])
        tamp(*words, name, code=4, says=says)
    i = np.int32([5, -6])
    tamp(*words, "cases/test_data_set_6", "--rtol", "0", "--atol", "1e-4", code=4, says="6 of 6 elements are wrong")
    # A compiled folder, one set.
    tamp("compile", "sum.onnx", "-o", "sum", "--freeze", "c=c.npy", "--vdevice", "cpu")
    write_set(tamp.folder / "less", [x, i], [y, j])
    assert "check   less: good" in tamp("run", "sum", "--device", "cpu", "--check", "--against", "less").stdout


def test_test_data_of_exact_numbers_is_met_in_tf32(tamp):
    """Sums of rounded products are further off than 1e-3 of themselves where they are small; as a whole they are as near as the precision is."""
    generator = np.random.default_rng(5)
    x, w = (generator.standard_normal(shape).astype(np.float32) for shape in ((64, 64), (64, 64)))
    model = m.model([m.node("MatMul", ["x", "w"], ["y"])], [m.value("x", [64, 64])], [m.value("y", [64, 64])], [m.constant("w", w)])
    (tamp.folder / "product.onnx").write_bytes(model.SerializeToString())
    y = (x.astype(np.float64) @ w).astype(np.float32)
    for name, expected in (("exact", y), ("wrong", np.where(np.arange(64) == 3, y * 1.05, y))):
        write_set(tamp.folder / name, [x], [expected])
    words = ["run", "product.onnx", "--device", "cpu", "--vdevice", "h200", "--check", "--against"]
    tamp(*words, "exact", "--precision", "tf32")
    tamp(*words, "exact", "--precision", "tf32", "--rtol", "1e-3", code=4, says="elements are wrong (rtol 0.001, atol 1e-05)")
    tamp(*words, "wrong", "--precision", "tf32", code=4, says="limit 5e-03 for tf32")
    tamp(*words, "exact", "--precision", "fp32")


def test_a_model_of_halves_need_not_round_as_the_reference_does(tamp):
    """Beside a mask of -65504 scores of one row are the same number in f16, where the program has them in f32: both are right."""
    mask = numpy_helper.from_array(np.full((2, 8), -65504, np.float16), "mask")
    model = m.model([m.node("Add", ["x", "mask"], ["a"]), m.node("Softmax", ["a"], ["y"], axis=-1)], [m.value("x", [2, 8], TensorProto.FLOAT16)], [m.value("y", [2, 8], TensorProto.FLOAT16)], [mask])
    (tamp.folder / "masked.onnx").write_bytes(model.SerializeToString())
    for precision in ("fp32", "tf32", "fp16"):
        tamp("run", "masked.onnx", "--device", "cpu", "--vdevice", "h200", "--precision", precision, "--check", "--keep", precision)
    source = tamp.folder / "fp16" / "masked.cu"
    text = source.read_text()
    source.write_text(text.replace(*wrong_softmax(text)))
    tamp("run", "fp16", "--device", "cpu", "--check", code=4, says="outputs differ from the reference")


def test_wrong_test_data_is_bad_input(tamp):
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    x = np.ones((1, 4), np.float32)
    write_set(tamp.folder / "empty", [], [])
    write_set(tamp.folder / "many", [x, x], [x])
    write_set(tamp.folder / "shape", [x.T], [x])
    write_set(tamp.folder / "gap", [x], [x])
    (tamp.folder / "gap" / "output_2.pb").write_bytes(b"")
    write_set(tamp.folder / "torn", [x], [x])
    (tamp.folder / "torn" / "input_0.pb").write_bytes(b"no tensor")
    np.save(tamp.folder / "x.npy", x)
    words = ["run", "relu.onnx", "--device", "cpu", "--check"]
    for folder, says in [("none", "none: cannot be read"), ("empty", "holds no test_data_set_N folder and no output_0.pb"), ("many", "has 2 files input_I.pb, the model has 1 inputs"),
                         ("shape", "holds f32[4,1], input 'x' is f32[1,4]"), ("gap", "has output_2.pb, but no output_1.pb"), ("torn", "not a tensor file")]:
        tamp(*words, "--against", folder, code=1, says=says)
    tamp(*words, "--against", "many", "--input", "x=x.npy", code=1, says="--against has its own inputs")
    tamp("run", "relu.onnx", "--device", "cpu", "--each", code=1, says="--each is of --check")
    tamp("compile", "relu.onnx", "-o", "relu", "--vdevice", "cpu")
    tamp("run", "relu", "--device", "cpu", "--check", "--each", code=1, says="--each needs the model")


def test_each_element_may_have_a_tolerance(tamp):
    (tamp.folder / "net.onnx").write_bytes(network().SerializeToString())
    good = tamp("run", "net.onnx", "--device", "cpu", "--check", "--rtol", "0.1", "--atol", "0.1").stdout
    assert re.search(r"check +'\w+': good, each element, rtol 0.1, atol 0.1; 0 of \d+ outside \(0 %\)", good), good
    words = ["run", "net.onnx", "--device", "cpu", "--vdevice", "h200", "--precision", "tf32", "--check"]
    tamp(*words)  # tf32 is not exact
    bad = tamp(*words, "--rtol", "1e-9", "--atol", "0", code=4, says="elements are wrong (rtol 1e-09, atol 0)").stdout
    assert re.search(r"check +'\w+': FAILED, each element, rtol 1e-09, atol 0; [1-9]\d* of 210 outside \([\d.e+]+ %\)", bad), bad


def with_other_operand(model, node, operand, change):
    """The model with another value of a node's constant operand, and of no other node's."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    name = made.graph.node[node].input[operand]
    values = numpy_helper.to_array(next(tensor for tensor in made.graph.initializer if tensor.name == name))
    made.graph.initializer.append(numpy_helper.from_array(change(values).astype(values.dtype), "other"))
    made.graph.node[node].input[operand] = "other"
    return made


def test_a_quantised_model_may_round_the_other_way_and_no_more(tamp):
    """Programs of other models, whose scales or zero points are a little off, are compared with this one's reference."""
    net, floats = quantised.segmenter()
    model = quantised.quantised(net, floats, "qdq s8 s8")
    (tamp.folder / "net.onnx").write_bytes(model.SerializeToString())
    np.save(tamp.folder / "x.npy", net.inputs()[0])
    words = ["run", "net.onnx", "--device", "cpu", "--vdevice", "h200", "--input", "x=x.npy", "--check", "--precision"]
    shown = tamp(*words, "fp16").stdout
    assert re.search(r"check +'y': good, \d+ of 720 elements differ, by \d steps? of [\d.]+ at most \(limit \d+, by \d steps?\); all in all .*; worst element", shown), shown
    assert "the model rounds to 8 bits in 10 places; limits are 1.5 times what" in shown, shown
    as_json = json.loads(tamp(*words, "fp16", "--json").stdout)["checks"][0]
    assert as_json["good"] and as_json["roundings"] == 10 and 0 < as_json["differ"] <= as_json["differ_limit"] < 720 and as_json["steps"] <= as_json["steps_limit"], as_json
    # Test data of ONNX Runtime.
    right = quantised.answers(model, {"x": net.inputs()[0]})[0]
    write_set(tamp.folder / "right", [net.inputs()[0]], right)
    write_set(tamp.folder / "off", [net.inputs()[0]], [right[0] * np.float32(1.01)])
    against = ["run", "net.onnx", "--device", "cpu", "--vdevice", "h200", "--precision", "fp16", "--check", "--against"]
    tamp(*against, "right")
    tamp(*against, "off", code=4, says="right ones differ by whole steps")
    tamp("compile", "net.onnx", "-o", "right_net", "--name", "net", "--vdevice", "h200", "--precision", "fp32")
    last = max(i for i, node in enumerate(model.graph.node) if node.op_type == "DequantizeLinear")
    weights = min(i for i, node in enumerate(model.graph.node) if node.op_type == "DequantizeLinear" and "quantized" in node.input[0])
    for node, operand, change in [(last, 1, lambda scale: scale * 1.01), (last, 2, lambda zero: zero + 1), (weights, 1, lambda scale: scale * 1.01)]:
        (tamp.folder / "wrong.onnx").write_bytes(with_other_operand(model, node, operand, change).SerializeToString())
        tamp("compile", "wrong.onnx", "-o", "wrong_net", "--name", "net", "--vdevice", "h200", "--precision", "fp32")
        for name in ("net.cu", "net.weights"):
            shutil.copy(tamp.folder / "wrong_net" / name, tamp.folder / "right_net" / name)
        tamp("run", "right_net", "--device", "cpu", "--check", "--model", "net.onnx", "--input", "x=x.npy", code=4, says="net: outputs differ from the reference")


def test_programs_of_a_quantised_model_count_when_it_is_tuned(tamp):
    """In fp16 they round another way than the reference."""
    net, floats = quantised.segmenter()
    (tamp.folder / "net.onnx").write_bytes(quantised.quantised(net, floats, "qdq s8 s8").SerializeToString())
    done = tamp("tune", "net.onnx", "-o", "tuned", "--device", "cpu", "--vdevice", "h200", "--precision", "fp16", "--rounds", "1", "--variants", "1")
    assert "not counted" not in done.stderr and re.search(r"^tuned ", done.stdout, re.M), done.stdout + done.stderr


def test_small_integers_may_have_a_tolerance(tamp):
    model = m.model([m.node("Cast", ["x"], ["y"], to=TensorProto.UINT8), m.node("Cast", ["x"], ["z"], to=TensorProto.INT64)], [m.value("x", [4])],
                    [m.value("y", [4], TensorProto.UINT8), m.value("z", [4], TensorProto.INT64)])
    (tamp.folder / "cast.onnx").write_bytes(model.SerializeToString())
    x = np.float32([1, 2, 3, 4])
    write_set(tamp.folder / "bytes", [x], [np.uint8([1, 2, 3, 5]), np.int64([1, 2, 3, 4])])
    write_set(tamp.folder / "wide", [x], [np.uint8([1, 2, 3, 4]), np.int64([1, 2, 3, 5])])
    words = ["run", "cast.onnx", "--device", "cpu", "--check", "--against"]
    tamp(*words, "bytes", code=4, says="output 'y': 1 of 4 elements are wrong")
    tamp(*words, "bytes", "--rtol", "0", "--atol", "1")
    tamp(*words, "wide", "--rtol", "0", "--atol", "1", code=4, says="output 'z': 1 of 4 elements are wrong")


def test_random_ids_cover_their_table(tamp):
    """Ids that only ever are 0 and 1 would read two rows of 1000."""
    table = np.arange(1000, dtype=np.float32).reshape(1000, 1)
    ids = m.model([m.node("Gather", ["table", "ids"], ["y"])], [m.value("ids", [64], TensorProto.INT64)], [m.value("y", [64, 1])], [m.constant("table", table)])
    (tamp.folder / "ids.onnx").write_bytes(ids.SerializeToString())
    shown = tamp("run", "ids.onnx", "--device", "cpu", "--check").stdout
    most = float(re.search(r"output +'y' f32\[64,1\] +min \S+ +max (\S+)", shown)[1])
    assert 900 < most < 1000, shown


def test_a_quantised_model_is_told_what_floats_take(tamp):
    weights = m.constant("w", np.full((64, 32), 3), np.int8)
    nodes = [m.node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), m.node("MatMulInteger", ["q", "w", "z"], ["i"]), m.node("Cast", ["i"], ["f"], to=1), m.node("Mul", ["f", "s"], ["y"])]
    (tamp.folder / "q.onnx").write_bytes(m.model(nodes, [m.value("x", [1, 64])], [m.value("y", [1, 32])], [weights]).SerializeToString())
    for words in (["compile", "q.onnx", "-o", "q"], ["inspect", "q.onnx"]):
        said = tamp(*words, "--vdevice", "h200").stderr
        found = re.search(r"quantised model: estimated (\S+) us; the same network in floats would take about (\S+) us; 0 of 1 products on integer tensor cores, in floats: '", said)
        assert found and float(found[2]) < float(found[1]), said
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    assert "quantised" not in tamp("compile", "relu.onnx", "-o", "relu", "--vdevice", "h200").stderr


def test_every_roperator_is_compared(tamp):
    (tamp.folder / "net.onnx").write_bytes(network().SerializeToString())
    for options in (["--policy", "sequential"], ["--execution", "graph", "--precision", "tf32", "--vdevice", "h200"]):
        shown = tamp("run", "net.onnx", "--device", "cpu", "--check", "--each", *options).stdout
        found = re.search(r"each +(\d+) rOperators, each as the reference", shown)
        assert found and int(found[1]) >= 3, shown
        assert "cannot be looked at" not in shown, shown


def test_the_roperator_that_is_wrong_is_named(tamp):
    """A body that is changed after it was written: one element of Softmax's result is stored wrong."""
    (tamp.folder / "wide.onnx").write_bytes(m.model([m.node("Sigmoid", ["x"], ["a"], "before"), m.node("Softmax", ["a"], ["b"], "soft", axis=-1), m.node("Neg", ["b"], ["y"], "after")],
                                                    [m.value("x", [8, 512])], [m.value("y", [8, 512])]).SerializeToString())
    tamp("compile", "wide.onnx", "-o", "wide", "--vdevice", "cpu")
    before, after = wrong_softmax((tamp.folder / "wide" / "wide.cu").read_text())
    done = tamp("run", "wide.onnx", "--device", "cpu", "--check", "--each", code=4, env=races.with_wrong_body(tamp, before, after, "wide.cu"))
    assert re.search(r"rOperator 'soft' \(Softmax\), rKernel .*, ONNX nodes? 'soft'[^:]*: its result '[by]' differs from the reference, .*worst element \[\d+,\d+\]: \S+, expected \S+; \d+ before it",
                     done.stderr), done.stderr


def gpt2(layers=2, hidden=64, heads=2, past=12, words=50):
    """A token of GPT-2: keys and values before it are inputs, queries, keys and values parts of one product."""
    net, size, x = Net(hidden), hidden // heads, "x"
    ports, results = [m.value("x", [1, 1, hidden])], []
    for layer in range(layers):
        parts = net.add("Split", net.linear(net.norm(x), hidden, 3 * hidden), net.ints(*[hidden] * 3), outputs=3, axis=2)
        q, k, v = (net.add("Transpose", net.add("Reshape", part, net.ints(1, 1, heads, size)), perm=[0, 2, 1, 3]) for part in parts)
        k, v = (net.add("Concat", f"past_{name}{layer}", new, axis=2) for name, new in (("k", k), ("v", v)))
        scores = net.add("Div", net.add("MatMul", q, net.add("Transpose", k, perm=[0, 1, 3, 2])), net.constant(size**0.5))
        mixed = net.add("Transpose", net.add("MatMul", net.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = net.add("Add", net.linear(net.add("Reshape", mixed, net.ints(1, 1, hidden)), hidden, hidden), x)
        x = net.add("Add", x, net.feed_forward(net.norm(x), net.gelu))
        for name, each in (("k", k), ("v", v)):
            named(net, each, f"{name}{layer}")
            ports.append(m.value(f"past_{name}{layer}", [1, heads, past, size]))
            results.append(m.value(f"{name}{layer}", [1, heads, past + 1, size]))
    named(net, net.add("MatMul", net.norm(x), net.weight(hidden, words)))
    return net.model(ports, [m.value("y", [1, 1, words]), *results])


def test_every_roperator_of_a_decoder_is_compared(tamp):
    """Among them products that make their rows themselves, and rows that are passed as words."""
    (tamp.folder / "gpt2.onnx").write_bytes(gpt2().SerializeToString())
    for precision in ("fp32", "tf32", "fp16", "bf16"):
        words = ["run", "gpt2.onnx", "--device", "cpu", "--vdevice", "h200", "--precision", precision, "--check", "--each"]
        shown = tamp(*words, "--keep", precision).stdout
        assert re.search(r"each +\d+ rOperators, each as the reference", shown) and "cannot be looked at" not in shown, shown
        rops = {rop["op"] for rop in json.loads((tamp.folder / precision / "gpt2.rprogram.json").read_text())["rops"]}
        assert {"product with a prologue", "attention of a step"} <= rops, rops


def check_planted(tamp, before, after, says):
    (tamp.folder / "gpt2.onnx").write_bytes(gpt2().SerializeToString())
    words = ["run", "gpt2.onnx", "--device", "cpu", "--vdevice", "h200", "--precision", "fp16", "--check", "--each"]
    done = tamp(*words, code=4, env=races.with_wrong_body(tamp, before, after, "gpt2.cu"))
    assert re.search(says, done.stderr), done.stderr


def test_a_wrong_row_of_a_decoder_is_found(tamp):
    word = "if (words != nullptr) publish_value(task, words + at, rounded_to<Out>(y));"  # behind it the value
    check_planted(tamp, word, word + " y *= 1.5f;", r"rOperator '\S+' \(attention of a step\), rKernel attention_step<.*: its result ")


def test_a_wrong_word_of_a_decoder_is_found(tamp):
    """One that is not what its buffer has."""
    word = "cuda_on_cpu::publish(word, word_of(value));"
    check_planted(tamp, word, word.replace("value", "1.5f * value"), r"rOperator '\S+' \([^)]+\), rKernel .*: the words of its result ")


def test_every_roperator_of_transformers_is_compared(tamp):
    """Moments, rounded rows, sums in a cluster, feed-forward parts: what only other rOperators read is compared as well."""
    cases = {"norms": (transformers.products_and_norms(True), "tf32"), "feed": (transformers.feed_forwards(96, (1, 71), 1, True, True), "fp16")}
    for name, (made, precision) in cases.items():
        (tamp.folder / f"{name}.onnx").write_bytes(made.SerializeToString())
        shown = tamp("run", f"{name}.onnx", "--device", "cpu", "--vdevice", "h200", "--precision", precision, "--check", "--each").stdout
        assert re.search(r"each +\d+ rOperators, each as the reference", shown) and "cannot be looked at" not in shown, shown


def wrong_softmax(source):
    """A line of the body of Softmax that computes its results, and one that computes others."""
    found = re.search(r"const float scale = 1\.0f / sum;", source)
    assert found, "the body of Softmax has another text; change this test"
    return found[0], found[0].replace("1.0f", "1.5f")


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
