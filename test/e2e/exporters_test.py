#!/usr/bin/env python3
"""Forms of models that exporters write and that are more than one operator: sequences, transforms of signals, masks that choose places, many
dimensions. Against ONNX Runtime, on the stand-in.

    exporters_test.py TAMP [WORD...]
"""
import json
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import harness
import models as m

I64, BOOL = TensorProto.INT64, TensorProto.BOOL


def port(name, values):
    return m.value(name, list(values.shape), helper.np_dtype_to_tensor_dtype(values.dtype))


def scalar(name, value):
    return m.constant(name, value, np.int64)


def runs_like_onnxruntime(tamp, nodes, inputs, outputs, constants=(), opset=17, says="", tolerance=1e-5, **sizes):
    """The outputs of a model, which are ONNX Runtime's. `outputs`: names; `sizes`: extents that the model leaves open and the run knows."""
    (tamp.folder / "open.onnx").write_bytes(m.model(nodes, [port(*one) for one in inputs.items()], [helper.make_empty_tensor_value_info(name) for name in outputs], constants, opset=opset,
                                                    ir=10).SerializeToString())
    expected = onnxruntime.InferenceSession(tamp.folder / "open.onnx", providers=["CPUExecutionProvider"]).run(None, inputs)
    arguments = []
    for name, values in inputs.items():
        np.save(tamp.folder / f"{name}.npy", values)
        arguments += ["--input", f"{name}={name}.npy"]
    tamp("run", "open.onnx", "--device", "cpu", "--precision", "fp32", "--check", "--output-dir", "out", *arguments, says=says, error=False)
    files = json.loads((tamp.folder / "out" / "outputs.json").read_text())
    for (name, file), values in zip(files.items(), expected, strict=True):
        found = np.load(tamp.folder / "out" / file)
        assert found.dtype == values.dtype and found.shape == values.shape, f"{name} is {found.dtype}{found.shape}, expected {values.dtype}{values.shape}"
        np.testing.assert_allclose(found, values, rtol=tolerance, atol=tolerance, err_msg=name)
    return expected


def drawn(*shape):
    return np.random.default_rng(int(np.prod(shape))).standard_normal(shape).astype(np.float32)


# --- sequences ---------------------------------------------------------------------------------------------------------

def test_sequences_are_lists_at_import(tamp):
    at = lambda sequence, position, out: m.node("SequenceAt", [sequence, position], [out], out)
    constants = [scalar("two", 2), scalar("last", -1), scalar("zero", 0), scalar("one", 1), m.ints("lengths", [1, 3, 2]), scalar("five", 5)]
    body = helper.make_graph([m.node("Relu", ["e"], ["r"]), m.node("Shape", ["e"], ["s"])], "body", [m.value("e", None)], [m.value("r", None), m.value("s", None, I64)])
    grow = helper.make_graph([m.node("Identity", ["c"], ["d"]), m.node("Cast", ["i"], ["f"], "cast", to=1), m.node("Mul", ["x", "f"], ["piece"]),
                              m.node("SequenceInsert", ["list", "piece"], ["longer"])], "grow",
                             [m.value("i", [], I64), m.value("c", [], BOOL), helper.make_tensor_sequence_value_info("list", 1, None)],
                             [m.value("d", [], BOOL), helper.make_tensor_sequence_value_info("longer", 1, None)])
    nodes = [m.node("SplitToSequence", ["x", "two"], ["pairs"], "pairs", axis=1), at("pairs", "last", "p1"), at("pairs", "zero", "p0"), m.node("Add", ["p0", "p1"], ["sum"]),
             m.node("SplitToSequence", ["x", "lengths"], ["parts"], "parts", axis=-1), m.node("SequenceErase", ["parts", "zero"], ["fewer"]), m.node("SequenceErase", ["fewer"], ["middle"], "erase2"),
             m.node("ConcatFromSequence", ["middle"], ["three"], axis=1),
             m.node("SplitToSequence", ["x"], ["columns"], "columns", axis=1, keepdims=0), m.node("ConcatFromSequence", ["columns"], ["turned"], "turned", axis=0, new_axis=1),
             m.node("SplitToSequence", ["x", "five"], ["uneven"], "uneven", axis=1), m.node("SequenceLength", ["uneven"], ["count"]), at("uneven", "one", "rest"),
             m.node("SequenceConstruct", ["x", "y"], ["both"]), m.node("Identity", ["both"], ["same"]), m.node("ConcatFromSequence", ["same"], ["stacked"], "stacked", axis=-1, new_axis=1),
             m.node("SequenceEmpty", [], ["none"]), m.node("SequenceInsert", ["none", "x"], ["front"], "front"), m.node("SequenceInsert", ["front", "y", "zero"], ["swapped"], "swapped"),
             m.node("ConcatFromSequence", ["swapped"], ["yx"], "yx", axis=0),
             m.node("SequenceMap", ["parts"], ["mapped", "shapes"], "map", body=body), m.node("ConcatFromSequence", ["mapped"], ["relu"], "relu", axis=1),
             m.node("ConcatFromSequence", ["shapes"], ["widths"], "widths", axis=0, new_axis=1),
             m.node("Loop", ["two", "", "none"], ["grown"], "loop", body=grow), m.node("ConcatFromSequence", ["grown"], ["pieces"], "pieces", axis=0)]
    outputs = ["sum", "three", "turned", "count", "rest", "stacked", "yx", "relu", "widths", "pieces"]
    runs_like_onnxruntime(tamp, nodes, {"x": drawn(2, 6), "y": drawn(2, 6) + 1}, outputs, constants)


def test_sequences_that_are_not_static_are_refused(tamp):
    constants = [scalar("seven", 7), scalar("one", 1)]
    made = lambda nodes, out="y", extra=(): m.model(nodes, [m.value("x", [2, 6]), m.value("k", [], I64)], [m.value(out, None), *extra], constants)
    construct = m.node("SequenceConstruct", ["x", "x"], ["s"])
    for name, model, code, says in [
        ("position", made([construct, m.node("SequenceAt", ["s", "k"], ["y"], "at")]), 2, "node #1 'at' (SequenceAt, opset 17): input 1 (position, tensor 'k') is known only at run time"),
        ("length", made([m.node("SplitToSequence", ["x", "k"], ["s"], "split"), m.node("SequenceAt", ["s", "one"], ["y"], "at")]), 2, "node #0 'split' (SplitToSequence, opset 17): input 1 (split"),
        ("outside", made([construct, m.node("SequenceAt", ["s", "seven"], ["y"], "at")]), 1, "input 1 (position) is 7, the sequence has 2 elements"),
        ("reader", made([construct, m.node("Relu", ["s"], ["y"], "relu")]), 2, "node #1 'relu' (Relu, opset 17): input 0 ('s') is a sequence, supported: a tensor"),
        ("output", m.model([construct], [m.value("x", [2, 6])], [helper.make_tensor_sequence_value_info("s", 1, None)]), 2, "graph output 's' is a sequence"),
        ("tensor", made([m.node("SequenceAt", ["x", "one"], ["y"], "at")]), 1, "input 0 is a tensor, expected a sequence"),
    ]:
        (tamp.folder / f"{name}.onnx").write_bytes(model.SerializeToString())
        tamp("compile", f"{name}.onnx", "-o", "out", "--vdevice", "h200", code=code, says=says)


def test_loops_of_no_iteration_keep_what_they_began_with(tamp):
    body = helper.make_graph([m.node("Add", ["s", "s"], ["t"]), m.node("Identity", ["t"], ["each"], "each"), m.node("Cast", ["i"], ["f"], to=1), m.node("Identity", ["c"], ["d"])], "body",
                             [m.value("i", [], I64), m.value("c", [], BOOL), m.value("s", [4])], [m.value("d", [], BOOL), m.value("t", [4]), m.value("each", [4]), m.value("f", [])])
    constants = [scalar("zero", 0), m.constant("no", False, np.bool_)]
    nodes = [m.node("Loop", ["zero", "", "x"], ["a", "b", "c"], "never", body=body), m.node("Loop", ["", "no", "x"], ["e", "f", "g"], "not", body=body), m.node("Relu", ["a"], ["y"])]
    runs_like_onnxruntime(tamp, nodes, {"x": drawn(4)}, ["a", "b", "c", "e", "f", "g", "y"], constants)


# --- signals -----------------------------------------------------------------------------------------------------------

def test_transforms_of_signals(tamp):
    x, pairs, wide = drawn(2, 10, 3, 1), drawn(2, 5, 9, 2), drawn(2, 7, 2).astype(np.float64)
    constants = [scalar("one", 1), scalar("minus_three", -3), scalar("eight", 8), scalar("sixteen", 16), scalar("step", 3), m.constant("window", np.hanning(8))]
    nodes = [m.node("DFT", ["x", "", "one"], ["onesided"], "onesided", onesided=1), m.node("DFT", ["x", "eight", "minus_three"], ["shorter"], "shorter"),
             m.node("DFT", ["x", "sixteen", "one"], ["longer"], "longer"), m.node("DFT", ["pairs"], ["forward"], "forward"), m.node("DFT", ["forward"], ["there"], "back", inverse=1),
             m.node("DFT", ["wide", "", "one"], ["double"], "double"), m.node("STFT", ["signal", "step", "window"], ["frames"], "frames"),
             m.node("STFT", ["signal", "step", "", "eight"], ["all"], "all", onesided=0), m.node("HannWindow", ["eight"], ["hann"]),
             m.node("HammingWindow", ["eight"], ["hamming"], periodic=0), m.node("BlackmanWindow", ["eight"], ["blackman"], output_datatype=TensorProto.DOUBLE)]
    inputs = {"x": x, "pairs": pairs, "wide": wide, "signal": drawn(2, 50, 1)}
    outputs = ["onesided", "shorter", "longer", "forward", "there", "double", "frames", "all", "hann", "hamming", "blackman"]
    found = runs_like_onnxruntime(tamp, nodes, inputs, outputs, constants, opset=20, tolerance=2e-5)
    np.testing.assert_allclose(found[outputs.index("there")], pairs, atol=1e-5)
    nodes = [m.node("DFT", ["x"], ["y"], "both", inverse=1, onesided=1)]
    (tamp.folder / "both.onnx").write_bytes(m.model(nodes, [m.value("x", [2, 10, 2])], [m.value("y", None)], opset=20).SerializeToString())
    tamp("compile", "both.onnx", "-o", "out", code=2, says="node #0 'both' (DFT, opset 20): attributes 'inverse' and 'onesided' are both 1, supported: one of them")


# --- masks that choose places --------------------------------------------------------------------------------------------

def masked_scatter(whole_rows):
    """As torch's exporters write it: rows of an embedding (dynamo), or elements, with the mask repeated along the last dimension (TorchScript)."""
    nodes = [] if whole_rows else [m.node("Unsqueeze", ["mask", "last"], ["upright"]), m.node("Expand", ["upright", "shape"], ["wide"])]
    nodes += [m.node("NonZero", ["mask" if whole_rows else "wide"], ["found"]), m.node("Transpose", ["found"], ["places"], perm=[1, 0]), m.node("Shape", ["places"], ["extents"])]
    if whole_rows:
        nodes += [m.node("Slice", ["extents", "zero", "one"], ["count"], "first"), m.node("Slice", ["values", "zero", "count"], ["chosen"], "chosen")]
    else:
        nodes += [m.node("Gather", ["extents", "index"], ["number"]), m.node("Unsqueeze", ["number", "zero"], ["count"], "up"), m.node("Reshape", ["values", "flat"], ["all"]),
                  m.node("Slice", ["all", "zero", "count", "zero"], ["chosen"], "chosen")]
    nodes.append(m.node("ScatterND", ["x", "places", "chosen"], ["y"]))
    constants = [m.ints("zero", [0]), m.ints("one", [1]), m.ints("last", [2]), m.ints("shape", [2, 8, 4]), m.ints("flat", [-1]), scalar("index", 0)]
    return m.model(nodes, [m.value("x", [2, 8, 4]), m.value("mask", [2, 8], BOOL), m.value("values", [6, 4])], [m.value("y", [2, 8, 4])], constants)


def test_a_mask_says_where_values_go(tamp):
    x, values = drawn(2, 8, 4), drawn(6, 4)
    np.save(tamp.folder / "x.npy", x)
    np.save(tamp.folder / "values.npy", values)
    masks = {"none": [], "few": [1, 2, 9], "first_and_last": [0, 15], "all_rows_of_values": [0, 3, 4, 7, 14, 15]}
    for whole_rows in (True, False):
        made = masked_scatter(whole_rows).SerializeToString()
        (tamp.folder / "masked.onnx").write_bytes(made)
        tamp("compile", "masked.onnx", "-o", "masked", "--vdevice", "cpu", "--precision", "fp32")
        session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
        for name, places in masks.items():
            mask = np.zeros(16, np.bool_)
            mask[places] = True
            np.save(tamp.folder / "mask.npy", mask.reshape(2, 8))
            tamp("run", "masked", "--device", "cpu", "--check", "--output-dir", "out", *(f"--input={port}={port}.npy" for port in ("x", "mask", "values")))
            expected, = session.run(None, {"x": x, "mask": mask.reshape(2, 8), "values": values})
            assert np.array_equal(np.load(tamp.folder / "out" / "y.npy"), expected), name


def test_a_condition_chooses_entries_at_run_time(tamp):
    x = drawn(5, 4)
    made = m.model([m.node("Compress", ["x", "rows"], ["some"], "rows", axis=0), m.node("Compress", ["x", "elements"], ["flat"], "elements"), m.node("Relu", ["some"], ["y"])],
                   [port("x", x), m.value("rows", [4], BOOL), m.value("elements", [20], BOOL)], [m.value("some", ["n", 4]), m.value("flat", ["k"]), m.value("y", ["n", 4])])
    (tamp.folder / "chosen.onnx").write_bytes(made.SerializeToString())
    tamp("compile", "chosen.onnx", "-o", "chosen", "--vdevice", "cpu", "--precision", "fp32")
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for seed, share in ((1, 0.5), (2, 0), (3, 1)):
        rng = np.random.default_rng(seed)
        inputs = {"x": x, "rows": rng.random(4) < share, "elements": rng.random(20) < share}
        for name, values in inputs.items():
            np.save(tamp.folder / f"{name}.npy", values)
        tamp("run", "chosen", "--device", "cpu", "--check", "--output-dir", "out", *(f"--input={name}={name}.npy" for name in inputs))
        files = json.loads((tamp.folder / "out" / "outputs.json").read_text())
        for name, expected in zip(["some", "flat", "y"], session.run(None, inputs)):
            found, count = (np.load(tamp.folder / "out" / files[port]) for port in (name, f"{name}.count"))
            assert count[0] == len(expected) and np.array_equal(found[:count[0]], expected), name


def test_updates_of_another_count_are_refused(tamp):
    made = masked_scatter(True)
    for name, change, says in [("whole", lambda node: node.input.__setitem__(2, "values"), "as many updates as indices, cut to the same count"),
                               ("data", lambda node: node.input.__setitem__(0, "places"), "")]:
        model = type(made)()
        model.CopyFrom(made)
        change(model.graph.node[-1])
        (tamp.folder / f"{name}.onnx").write_bytes(model.SerializeToString())
        tamp("compile", f"{name}.onnx", "-o", "out", code=2 if says else 1, says=says or "different types")


# --- many dimensions -----------------------------------------------------------------------------------------------------

def test_more_dimensions_than_a_body_walks(tamp):
    """Nine and more, of which no two neighbours lie one behind the other."""
    turn = [0, 2, 4, 6, 8, 1, 3, 5, 7]
    every_other = np.random.default_rng(3).standard_normal([2, 1] * 4 + [2]).astype(np.float32)
    constants = [m.ints("narrow", [2, 1] * 5), m.ints("expanded_to", [2] * 10), m.ints("starts", [1] * 9), m.ints("ends", [-9] * 9), m.ints("axes", list(range(9))),
                 m.ints("steps", [-1] * 9), m.ints("twice", [1, 2] * 4 + [1]), m.ints("pads", [1, 0] * 9), m.constant("fill", 7.0), m.constant("z", 0.0), m.constant("w", every_other),
                 m.constant("b", np.random.default_rng(4).standard_normal([2, 1] * 3 + [2, 2, 2]))]
    nodes = [m.node("Transpose", ["x"], ["turned"], "turn", perm=turn), m.node("Slice", ["x", "starts", "ends", "axes", "steps"], ["sliced"]), m.node("Tile", ["x", "twice"], ["tiled"]),
             m.node("Reshape", ["u", "narrow"], ["x10"], "narrow"), m.node("Expand", ["x10", "expanded_to"], ["expanded"]), m.node("Pad", ["x", "pads", "fill"], ["padded"]),
             m.node("Greater", ["x", "z"], ["positive"]), m.node("Where", ["positive", "x", "w"], ["chosen"]), m.node("MatMul", ["x", "b"], ["product"]),
             m.node("Add", ["turned", "x"], ["sum"]), m.node("Transpose", ["positive"], ["truths"], "truths", perm=turn), m.node("Neg", ["turned"], ["last"])]
    inputs = {"x": np.random.default_rng(5).standard_normal([2] * 9).astype(np.float32), "u": drawn(32)}
    runs_like_onnxruntime(tamp, nodes, inputs, ["turned", "sliced", "tiled", "expanded", "padded", "chosen", "product", "sum", "truths", "last"],
                          constants)
    shape = [2] * 9
    scatter = m.model([m.node("Transpose", ["x"], ["t"], "turn", perm=turn), m.node("ScatterElements", ["t", "i", "x"], ["y"], "scatter", axis=4)], [m.value("x", shape), m.value("i", shape, I64)],
                      [m.value("y", shape)])
    (tamp.folder / "scatter.onnx").write_bytes(scatter.SerializeToString())
    done = tamp("compile", "scatter.onnx", "-o", "out", code=2, says="no rKernel for node 'scatter' (Scatter): ")
    assert "; supported: up to 8 dimensions, or more whose neighbours lie one behind the other" in done.stderr, done.stderr


# --- what is declared --------------------------------------------------------------------------------------------------

def test_what_is_declared_of_inner_tensors_is_a_hint(tamp):
    made = m.model([m.node("Relu", ["x"], ["a"]), m.node("Neg", ["a"], ["b"]), m.node("Abs", ["b"], ["y"])], [m.value("x", [2, 3])], [m.value("y", [2, 3])])
    made.graph.value_info.extend([m.value("a", [1, 3]), m.value("b", [2, 3], I64)])
    (tamp.folder / "stale.onnx").write_bytes(made.SerializeToString())
    done = tamp("run", "stale.onnx", "--device", "cpu", "--check")
    assert "warning: stale.onnx: value_info declares 'a' to be of shape [1,3], it is [2,3] (2 are wrong); what is declared of inner tensors is ignored" in done.stderr, done.stderr


def test_an_output_may_be_listed_twice(tamp):
    made = m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", [3])], [m.value("y", [3]), m.value("x", [3]), m.value("y", [3]), m.value("y", [3])])
    (tamp.folder / "twice.onnx").write_bytes(made.SerializeToString())
    x = np.float32([-1, 2, 3])
    np.save(tamp.folder / "x.npy", x)
    tamp("run", "twice.onnx", "--device", "cpu", "--check", "--output-dir", "out", "--input", "x=x.npy")
    files = json.loads((tamp.folder / "out" / "outputs.json").read_text())
    assert list(files) == ["y", "x", "y:2", "y:3"], files
    for file, values in zip(files.values(), [np.maximum(x, 0), x, np.maximum(x, 0), np.maximum(x, 0)]):
        assert np.array_equal(np.load(tamp.folder / "out" / file), values)


def test_a_circular_cache_takes_any_place(tamp):
    past, update = drawn(3, 4, 2), drawn(3, 2, 2)
    nodes = [m.node("TensorScatter", ["past", "update", "places"], ["y"], axis=1, mode="circular")]
    made = m.model(nodes, [port("past", past), port("update", update)], [m.value("y", [3, 4, 2])], [m.ints("places", [0, 7, 3])], opset=24, ir=10)
    (tamp.folder / "cache.onnx").write_bytes(made.SerializeToString())
    for name, values in (("past", past), ("update", update)):
        np.save(tamp.folder / f"{name}.npy", values)
    tamp("run", "cache.onnx", "--device", "cpu", "--check", "--output-dir", "out", "--input", "past=past.npy", "--input", "update=update.npy")
    for batch, place in enumerate([0, 7, 3]):
        for i in range(2):
            past[batch, (place + i) % 4] = update[batch, i]
    assert np.array_equal(np.load(tamp.folder / "out" / "y.npy"), past)


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
