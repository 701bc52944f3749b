#!/usr/bin/env python3
"""Results of which nobody knows before the run how large they are, on the stand-in: padded, with an output that counts what is valid, against
numpy and ONNX Runtime.

    padded_test.py TAMP [WORD...]
"""
import json
import sys

import numpy as np
import onnx
import onnx.compose
import onnxruntime
from onnx import TensorProto, helper

import harness
import models as m
import models_test
import races_test as races
from check_test import write_set

I64 = TensorProto.INT64


def saved(tamp, made, inputs):
    (tamp.folder / "model.onnx").write_bytes(made.SerializeToString())
    arguments = []
    for name, values in inputs.items():
        np.save(tamp.folder / f"{name}.npy", values)
        arguments += ["--input", f"{name}={name}.npy"]
    return arguments


def valid_outputs(tamp, made, inputs, *options):
    """Output name -> its valid entries; behind them must be what `tamp inspect` calls padding."""
    arguments = saved(tamp, made, inputs)
    tamp("run", "model.onnx", "--device", models_test.DEVICE, "--precision", "fp32", "--check", "--output-dir", "out", "--keep", "kept", *arguments, *options)
    files = json.loads((tamp.folder / "out" / "outputs.json").read_text())
    arrays = {name: np.load(tamp.folder / "out" / file) for name, file in files.items()}
    ports = json.loads((tamp.folder / "kept" / "model.rprogram.json").read_text())["outputs"]
    found = {}
    for port in ports[:len(made.graph.output)]:
        values = arrays[port["name"]]
        if "count" in port:
            counter = ports[port["count"]]["name"]
            assert counter == port["name"] + ".count", counter
            values = values.take(range(arrays[counter][0]), port["count_axis"])
        found[port["name"]] = values
    return found


def test_non_zero(tamp):
    rng = np.random.default_rng(1)
    x = (rng.integers(0, 4, [3, 5, 70]) * rng.integers(0, 2, [3, 5, 70])).astype(np.float32)
    x.flat[3] = np.nan
    cases = {"x": x, "b": rng.integers(0, 2, 600).astype(np.bool_), "i": np.zeros([4, 3], np.int64), "one": np.ones([1, 1], np.uint8)}
    nodes = [m.node("NonZero", [name], [f"{name}_at"], f"nz_{name}") for name in cases] + [m.node("Transpose", ["x_at"], ["rows"], "rows", perm=[1, 0])]
    nodes.append(m.node("GatherND", ["x", "rows"], ["kept"], "kept"))
    ports = [m.value(name, list(values.shape), helper.np_dtype_to_tensor_dtype(values.dtype)) for name, values in cases.items()]
    outputs = [m.value(f"{name}_at", [values.ndim, f"n_{name}"], I64) for name, values in cases.items()] + [m.value("rows", ["n_x", 3], I64), m.value("kept", ["n_x"])]
    made = m.model(nodes, ports, outputs)
    for options in ([], ["--execution", "graph"]):
        found = valid_outputs(tamp, made, cases, *options)
        for name, values in cases.items():
            np.testing.assert_array_equal(found[f"{name}_at"], np.array(np.nonzero(values)), err_msg=name)
        np.testing.assert_array_equal(found["rows"], np.argwhere(x))
        np.testing.assert_array_equal(found["kept"], x[np.nonzero(x)])


def suppression(batch, boxes, classes, most, overlap=None, score=None, **attributes):
    constants = [m.constant("most", np.array([most]), np.int64)]
    names = ["boxes", "scores", "most"]
    for name, value in (("overlap", overlap), ("score", score)):
        names.append(name if value is not None else "")
        if value is not None:
            constants.append(m.constant(name, np.array([value]), np.float32))
    node = m.node("NonMaxSuppression", names, ["chosen"], "nms", **attributes)
    return m.model([node], [m.value("boxes", [batch, boxes, 4]), m.value("scores", [batch, classes, boxes])], [m.value("chosen", ["n", 3], I64)], constants)


def boxes_and_scores(seed, batch, boxes, classes, corners=True):
    rng = np.random.default_rng(seed)
    middle, size = rng.uniform(0, 10, [batch, boxes, 2]), rng.uniform(0.5, 3, [batch, boxes, 2])
    first, last = (middle - size / 2, middle + size / 2) if corners else (middle, size)
    scores = np.round(rng.uniform(0, 1, [batch, classes, boxes]), 2)  # some are equal
    return {"boxes": np.concatenate([first, last], -1).astype(np.float32), "scores": scores.astype(np.float32)}


def expected_of(made, inputs):
    return onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)


def together(models):
    """One model of several: model i with the prefix m<i>_ before all names."""
    merged = onnx.compose.add_prefix(models[0], "m0_")
    for i, made in enumerate(models[1:], 1):
        merged = onnx.compose.merge_models(merged, onnx.compose.add_prefix(made, f"m{i}_"), io_map=[])
    return merged


def test_non_max_suppression(tamp):
    """Against ONNX Runtime, whose order of equal scores is the same."""
    cases = [(suppression(2, 300, 3, 20, 0.4, 0.3), boxes_and_scores(1, 2, 300, 3)), (suppression(1, 7, 1, 100, 0.2), boxes_and_scores(2, 1, 7, 1)),
             (suppression(1, 90, 2, 90, 0.5, 0.1, center_point_box=1), boxes_and_scores(3, 1, 90, 2, corners=False)),
             (suppression(2, 40, 2, 40, 0.5, 2.0), boxes_and_scores(4, 2, 40, 2))]  # the last keeps none
    made = together([made for made, _ in cases])
    inputs = {f"m{i}_{name}": values for i, (_, inputs) in enumerate(cases) for name, values in inputs.items()}
    found = valid_outputs(tamp, made, inputs)
    for i, (one, inputs) in enumerate(cases):
        np.testing.assert_array_equal(found[f"m{i}_chosen"], *expected_of(one, inputs))
    races.check_races(tamp, made)


def test_boxes_that_are_none(tamp):
    """Without an area, turned round, and NaN; NaN scores never count."""
    made = suppression(1, 6, 1, 6, 0.5, 0.0)
    boxes = np.array([[[0, 0, 1, 1], [1, 1, 0, 0], [2, 2, 2, 2], [2, 2, 2, 2], [0, np.nan, 1, 1], [5, 5, 6, 6]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.7, 0.6, 0.5, np.nan]]], np.float32)
    found = valid_outputs(tamp, made, {"boxes": boxes, "scores": scores})["chosen"]
    np.testing.assert_array_equal(found[:, 2], [0, 2, 3, 4])


def test_what_follows_takes_each_entry_by_itself(tamp):
    """The boxes that were chosen, as detection networks take them; what would count the padding is refused by name."""
    made = suppression(1, 50, 2, 10, 0.3, 0.2)
    made.graph.node.extend([m.node("Gather", ["chosen", "two"], ["which"], "which", axis=1), m.node("Squeeze", ["which", "one"], ["flat"], "flat"),
                            m.node("Gather", ["boxes", "flat"], ["kept"], "kept", axis=1), m.node("Cast", ["flat"], ["number"], "number", to=TensorProto.FLOAT),
                            m.node("Mul", ["number", "half"], ["halved"], "halved")])
    made.graph.initializer.extend([m.constant("two", np.array([2]), np.int64), m.constant("one", np.array([1]), np.int64), m.constant("half", np.array([0.5]))])
    made.graph.output.extend([m.value("kept", [1, "n", 4]), m.value("halved", ["n"])])
    inputs = boxes_and_scores(6, 1, 50, 2)
    found, expected = valid_outputs(tamp, made, inputs), expected_of(made, inputs)
    for name, values in zip(("chosen", "kept", "halved"), expected):
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    said = tamp("inspect", "kept").stdout
    assert "output      'kept' f32[1,20,4], padded: valid along dimension 1 are as many as 'kept.count' says" in said, said
    made.graph.node.append(m.node("ReduceMax", ["halved"], ["most_of"], "sum_up"))
    made.graph.output.append(m.value("most_of", [1]))
    saved(tamp, made, {})
    tamp("compile", "model.onnx", "-o", "out2", code=2, says="'sum_up' (ReduceMax, opset 17): how many entries input 0 ('halved') has is known only at run time (at most 20)")


def test_bodies_do_not_take_padding_for_entries(tamp):
    """What a Loop collects of such a result would be of the largest size. Shape says the valid one."""
    body = helper.make_graph([m.node("Identity", ["go"], ["again"]), m.node("NonZero", ["x"], ["places"], "inner")], "body",
                             [m.value("i", [], I64), m.value("go", [], TensorProto.BOOL)], [m.value("again", [], TensorProto.BOOL), m.value("places", [2, "n"], I64)])
    loop = m.model([m.node("Loop", ["trips", "yes"], ["all"], "loop", body=body)], [m.value("x", [3, 4])], [m.value("all", [2, 2, "n"], I64)],
                   [m.constant("trips", np.array(2), np.int64), m.constant("yes", np.array(True), np.bool_)])
    shape = m.model([m.node("NonZero", ["x"], ["at"], "nz"), m.node("Shape", ["at"], ["s"], "shape")], [m.value("x", [3, 4])], [m.value("s", [2], I64)])
    x = np.float32([[0, 1, 0, 0], [2, 0, 0, 3], [0, 0, 0, 0]])
    assert valid_outputs(tamp, shape, {"x": x})["s"].tolist() == [2, 3]
    reshaped = m.model([*shape.graph.node, m.node("Expand", ["one", "s"], ["y"], "expand")], [m.value("x", [3, 4])], [m.value("y", None)], [m.constant("one", 1.0)])
    for made, says in ((loop, "'loop' (Loop, opset 17): how many entries 'places"), (reshaped, "'expand' (Expand, opset 17): input 1 (shape, tensor 's') is known only at run time")):
        saved(tamp, made, {})
        tamp("compile", "model.onnx", "-o", "out", code=2, says=says)


def test_test_data_have_only_what_is_valid(tamp):
    made = suppression(1, 30, 1, 30, 0.3, 0.5)
    inputs = boxes_and_scores(7, 1, 30, 1)
    saved(tamp, made, {})
    expected, = expected_of(made, inputs)
    assert 0 < len(expected) < 30
    write_set(tamp.folder / "good", inputs.values(), [expected])
    write_set(tamp.folder / "short", inputs.values(), [expected[:-1]])
    changed = expected.copy()
    changed[-1, 2] += 1
    write_set(tamp.folder / "changed", inputs.values(), [changed])
    words = ["run", "model.onnx", "--device", "cpu", "--check", "--against"]
    tamp(*words, "good")
    tamp(*words, "short", code=4, says=f"output 'chosen' is i64[{len(expected)},3], expected i64[{len(expected) - 1},3]")
    tamp(*words, "changed", code=4, says=f"output 'chosen': 1 of {expected.size} elements are wrong")


def test_operands_that_must_be_known(tamp):
    made = suppression(1, 5, 1, 5, 0.3)
    del made.graph.initializer[0]
    made.graph.input.append(m.value("most", [1], I64))
    saved(tamp, made, {})
    tamp("compile", "model.onnx", "-o", "out", code=2, says="max_output_boxes_per_class")
    made = suppression(1, 5, 1, 5, 1.5)
    saved(tamp, made, {})
    tamp("compile", "model.onnx", "-o", "out", code=1, says="input 3 (iou_threshold) is 1.5, expected 0 to 1")


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
