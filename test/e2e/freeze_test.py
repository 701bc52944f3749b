#!/usr/bin/env python3
"""--freeze, --batch and --dim: what is asked of a model's inputs before it is compiled.

    freeze_test.py TAMP [WORD...]
"""
import json
import sys

import numpy as np
from onnx import numpy_helper

import harness
import models as m

INT64 = m.TensorProto.INT64


def write(tamp, model, name="model.onnx"):
    (tamp.folder / name).write_bytes(model.SerializeToString())
    return name


def save(tamp, name, values):
    np.save(tamp.folder / name, values)
    return name


def compiled(tamp, model, *options):
    """What the generated program says of its ports: name -> shape."""
    tamp("compile", write(tamp, model), "-o", "out", *options)
    made = json.loads((tamp.folder / "out" / "model.rprogram.json").read_text())
    return {port["name"]: port["shape"] for port in made["inputs"]}, {port["name"]: port["shape"] for port in made["outputs"]}, made


# --- --freeze --------------------------------------------------------------------------------------------------------

def reshape(shape_type=INT64, rows="N"):
    return m.model([m.node("Reshape", ["x", "s"], ["a"], "view"), m.node("Relu", ["a"], ["y"], "r")], [m.value("x", [rows, 6]), m.value("s", [2], shape_type)],
                   [m.value("y", [None, None])])


def test_an_input_becomes_a_constant(tamp):
    tamp("compile", write(tamp, reshape()), "-o", "out", "--dim", "N=2", code=2, says="known only at run time")
    save(tamp, "s.npy", np.array([3, 4]))
    (tamp.folder / "s.pb").write_bytes(numpy_helper.from_array(np.array([3, 4]), "anything").SerializeToString())
    for file in ("s.npy", "s.pb"):
        inputs, outputs, _ = compiled(tamp, reshape(), "--dim", "N=2", "--freeze", f"s={file}")
        assert inputs == {"x": [2, 6]} and outputs == {"y": [3, 4]}, (inputs, outputs)
        assert "supported   every node" in tamp("inspect", "model.onnx", "--dim", "N=2", "--freeze", f"s={file}").stdout


def test_a_frozen_value_says_what_its_symbols_are(tamp):
    model = m.model([m.node("Add", ["x", "c"], ["y"])], [m.value("x", ["N", 4]), m.value("c", ["N", 1])], [m.value("y", ["N", 4])])
    save(tamp, "c.npy", np.ones((3, 1), np.float32))
    inputs, _, _ = compiled(tamp, model, "--freeze", "c=c.npy")
    assert inputs == {"x": [3, 4]}, inputs
    tamp("compile", "model.onnx", "-o", "out", "--freeze", "c=c.npy", "--dim", "N=5", code=1, says="input 'c', frozen to a value of shape [3,1], makes dimension N 3, elsewhere it is 5")


def test_what_cannot_be_frozen_is_said(tamp):
    write(tamp, reshape(rows=2))
    save(tamp, "float.npy", np.ones(2, np.float32))
    save(tamp, "long.npy", np.ones(3, np.int64))
    save(tamp, "good.npy", np.array([3, 4]))
    for value, says in [("t=good.npy", "--freeze t: the model has no input of that name, its inputs are 'x', 's'"), ("s=none.npy", "none.npy: cannot be opened"),
                        ("s=float.npy", "input 's' has element type INT64, the value that it is frozen to f32"), ("s", "--freeze 's': expected NAME=VALUE"),
                        ("s=long.npy", "input 's' has shape [2], the value that it is frozen to [3]"), ("s=model.onnx", "not a kind of file that is known")]:
        tamp("compile", "model.onnx", "-o", "out", "--freeze", value, code=1, says=says)
    tamp("compile", "model.onnx", "-o", "out", "--freeze", "s=good.npy", "--freeze", "s=good.npy", code=1, says="--freeze 's' is given twice")
    weighted = m.model([m.node("Add", ["x", "w"], ["y"])], [m.value("x", [4]), m.value("w", [4])], [m.value("y", [4])], [m.constant("w", np.ones(4))])
    save(tamp, "w.npy", np.ones(4, np.float32))
    tamp("compile", write(tamp, weighted), "-o", "out", "--freeze", "w=w.npy", code=1, says="no input of that name, its inputs are 'x'")


def test_a_compiled_folder_is_checked_with_the_same_constants(tamp):
    save(tamp, "s.npy", np.array([3, 4]))
    save(tamp, "t.npy", np.array([4, 3]))
    compiled(tamp, reshape(), "--dim", "N=2", "--freeze", "s=s.npy", "--vdevice", "cpu")
    tamp("run", "out", "--device", "cpu", "--check", code=1, says="was compiled with --freeze s=FILE; give it again")
    tamp("run", "out", "--device", "cpu", "--check", "--freeze", "s=t.npy", code=1, says="is not the model that out was compiled from")
    assert "good, relative L2 0.00e+00" in tamp("run", "out", "--device", "cpu", "--check", "--freeze", "s=s.npy").stdout


# --- --batch ---------------------------------------------------------------------------------------------------------

def classifier(shape, batch=1):
    """Conv, a Reshape to a written shape, Gemm; exported with a fixed batch."""
    weights = [m.constant("w", np.full((4, 3, 3, 3), 0.1)), m.constant("f", np.random.default_rng(1).standard_normal((16, 5))), m.ints("s", shape)]
    nodes = [m.node("Conv", ["x", "w"], ["a"], "conv"), m.node("Reshape", ["a", "s"], ["b"], "flat"), m.node("Gemm", ["b", "f"], ["y"], "fc")]
    return m.model(nodes, [m.value("x", [batch, 3, 4, 4])], [m.value("y", [batch, 5])], weights)


def test_a_fixed_batch_is_rewritten(tamp):
    for own, shape in [(1, [-1, 16]), (1, [0, 16]), (1, [0, -1]), (1, [1, 16]), (1, [1, -1]), (4, [0, -1]), (4, [-1, 16]), (4, [4, 16])]:
        for batch in (1, 2, 4, 6):
            inputs, outputs, _ = compiled(tamp, classifier(shape, own), "--batch", batch)
            assert inputs == {"x": [batch, 3, 4, 4]} and outputs == {"y": [batch, 5]}, (own, shape, inputs, outputs)


def test_a_node_that_keeps_to_the_old_batch_is_named(tamp):
    def refused(model, says, *options, code=2, batch=3):
        tamp("compile", write(tamp, model), "-o", "out", "--batch", batch, *options, code=code, says=says)
        assert not (tamp.folder / "out").exists()

    x, y = [m.value("x", [1, 6])], [m.value("y", None)]
    keeping = m.model([m.node("Reshape", ["x", "s"], ["y"], "flat")], [m.value("x", [4, 6])], y, [m.ints("s", [3, 8])])
    refused(keeping, "--batch 6: node 'flat' (Reshape): makes [3,8] of 'x' [4,6], in which the batch of 4 has no dimension of its own or as a factor; the model was exported with batch 4 and depends on it there", batch=6)
    refused(classifier([-1]), "'fc' (Gemm", code=1)  # not with its own batch either
    # No shape is wrong in these, but their answers would be.
    mixing = [m.node("Reshape", ["x", "s"], ["a"], "flat"), m.node("Softmax", ["a"], ["y"], "soft", axis=-1)]
    refused(m.model(mixing, x, y, [m.ints("s", [-1])]), "--batch 3: node 'soft' (Softmax): normalises along dimension 0 of 'a', along which the elements of the batch lie")
    refused(m.model([m.node("Softmax", ["x"], ["y"], "soft", axis=0)], x, y), "node 'soft' (Softmax)")
    refused(m.model([m.node("Gather", ["x", "i"], ["y"], "first", axis=0)], x, y, [m.ints("i", 0)]), "node 'first' (Gather): takes elements by number from dimension 0 of 'x'")
    refused(m.model([m.node("ReduceMean", ["x"], ["y"], "mean", axes=[0])], x, y), "node 'mean'")
    two = m.model([m.node("MatMul", ["x", "z"], ["y"])], [m.value("x", [1, 6]), m.value("z", [6, 2])], y)
    refused(two, "input 'z' begins with extent 6, another one with 1: --batch needs inputs whose first extent is the batch", code=1)
    refused(m.model([m.node("RNN", ["x", "w", "r"], ["y"], "rnn", hidden_size=4)], [m.value("x", [3, 1, 5])], [m.value("y", None)],
                    [m.constant("w", np.full((1, 4, 5), 0.1)), m.constant("r", np.full((1, 4, 4), 0.1))]), "node 'rnn'", batch=6)


def test_elements_that_are_mixed_behind_products_are_found(tamp):
    """Whatever the values: a row that happens to be the same for all elements is still a row of one of them."""
    x, y = [m.value("x", [1, 8])], [m.value("y", None)]
    weights = [m.constant("w", np.abs(np.random.default_rng(1).standard_normal((8, 8)))), m.ints("i", 0), m.ints("all", [-1]), m.constant("none", np.zeros(8))]
    product = m.node("MatMul", ["a", "w"], ["p"], "product")
    for mixing in [m.node("Softmax", ["p"], ["y"], "mixing", axis=0), m.node("Gather", ["p", "i"], ["y"], "mixing", axis=0), m.node("CumSum", ["p", "i"], ["y"], "mixing")]:
        nodes = [m.node("Relu", ["x"], ["a"]), product, mixing]
        tamp("compile", write(tamp, m.model(nodes, x, y, weights)), "-o", "out", "--batch", 3, code=2, says=f"node 'mixing' ({mixing.op_type})")
    flat = [m.node("Reshape", ["x", "all"], ["r"], "flat"), m.node("Softmax", ["r"], ["s"], "mixing"), m.node("Reshape", ["s", "rows"], ["a"], "rows"), product, m.node("Relu", ["p"], ["y"])]
    tamp("compile", write(tamp, m.model(flat, x, y, [*weights, m.ints("rows", [-1, 8])])), "-o", "out", "--batch", 3, code=2, says="node 'mixing' (Softmax)")
    transposed = [m.node("Transpose", ["x"], ["a"], perm=[1, 0]), m.node("MatMul", ["w", "a"], ["p"]), m.node("Softmax", ["p"], ["y"], "mixing", axis=1)]
    tamp("compile", write(tamp, m.model(transposed, x, y, weights)), "-o", "out", "--batch", 3, code=2, says="node 'mixing' (Softmax)")
    root = [m.node("Abs", ["x"], ["a"]), product, m.node("Sqrt", ["p"], ["y"])]
    assert compiled(tamp, m.model(root, x, y, weights), "--batch", 3)[1] == {"y": [3, 8]}
    same = [m.node("Mul", ["x", "none"], ["z"]), m.node("Exp", ["z"], ["a"]), product, m.node("Gather", ["p", "i"], ["g"], axis=0), m.node("Add", ["x", "g"], ["y"])]
    tamp("compile", write(tamp, m.model(same, x, y, weights)), "-o", "out", "--batch", 3, code=2, says="node 'gather' (Gather): takes elements by number")


def test_shapes_that_are_written_out_follow_the_batch(tamp):
    """As exporters of vision transformers and of BERT write them: time before batch and heads beside it, both in one, a class token, and a mask that is taken from by number."""
    x, y = [m.value("x", [1, 6, 8])], [m.value("y", None)]
    heads = [m.node("Transpose", ["x"], ["t"], perm=[1, 0, 2]), m.node("Reshape", ["t", "s"], ["h"], "split"), m.node("Transpose", ["h"], ["q"], perm=[1, 0, 2]), m.node("Transpose", ["h"], ["k"], perm=[1, 2, 0]),
             m.node("MatMul", ["q", "k"], ["qk"]), m.node("Softmax", ["qk"], ["a"], axis=-1), m.node("MatMul", ["a", "q"], ["o"]), m.node("Transpose", ["o"], ["u"], perm=[1, 0, 2]),
             m.node("Reshape", ["u", "flat"], ["f"], "join"), m.node("Gemm", ["f", "w"], ["g"]), m.node("Reshape", ["g", "back"], ["b"], "back"), m.node("Transpose", ["b"], ["y"], perm=[1, 0, 2])]
    written = [m.ints("s", [6, 2, 4]), m.ints("flat", [6, 8]), m.ints("back", [6, 1, 8]), m.constant("w", np.random.default_rng(1).standard_normal((8, 8)))]
    inputs, outputs, _ = compiled(tamp, m.model(heads, x, y, written), "--batch", 3)
    assert inputs == {"x": [3, 6, 8]} and outputs == {"y": [3, 6, 8]}
    token = m.model([m.node("Concat", ["token", "x"], ["y"], axis=1)], x, y, [m.constant("token", np.full((1, 1, 8), 0.5))])
    assert compiled(tamp, token, "--batch", 3)[1] == {"y": [3, 7, 8]}
    mask = m.model([m.node("Flatten", ["x"], ["f"], axis=2), m.node("Gather", ["f", "i"], ["y"], axis=0)], x, y, [m.ints("i", [[[0, 2, -1]]])])
    assert compiled(tamp, mask, "--batch", 3)[1] == {"y": [3, 1, 3, 8]}


def test_a_smaller_batch_must_be_proved_too(tamp):
    model = m.model([m.node("Softmax", ["x"], ["y"], "soft", axis=0)], [m.value("x", [4, 6])], [m.value("y", None)])
    tamp("compile", write(tamp, model), "-o", "out", "--batch", 2, code=2, says="node 'soft' (Softmax)")
    inputs, outputs, _ = compiled(tamp, m.model([m.node("Softmax", ["x"], ["y"], axis=1)], [m.value("x", [4, 6])], [m.value("y", [4, 6])]), "--batch", 2)
    assert inputs == {"x": [2, 6]} and outputs == {"y": [2, 6]}


def test_the_batch_of_an_attention_moves_through_its_views(tamp):
    """[N,S,H*D] -> [N,S,H,D] -> [N,H,S,D] -> scores -> back; and time before batch, as recurrent models have it."""
    nodes = [m.node("Reshape", ["x", "heads"], ["h"], "split"), m.node("Transpose", ["h"], ["q"], "q", perm=[0, 2, 1, 3]), m.node("Transpose", ["h"], ["k"], "k", perm=[0, 2, 3, 1]),
             m.node("MatMul", ["q", "k"], ["scores"], "qk"), m.node("Softmax", ["scores"], ["p"], "p", axis=-1), m.node("MatMul", ["p", "q"], ["v"], "pv"),
             m.node("Transpose", ["v"], ["u"], "u", perm=[2, 0, 1, 3]), m.node("Reshape", ["u", "rows"], ["y"], "rows")]
    model = m.model(nodes, [m.value("x", [2, 5, 8])], [m.value("y", [10, 8])], [m.ints("heads", [0, 0, 2, 4]), m.ints("rows", [-1, 8])])
    inputs, outputs, _ = compiled(tamp, model, "--batch", 3)
    assert inputs == {"x": [3, 5, 8]} and outputs == {"y": [15, 8]}, (inputs, outputs)


def test_a_symbolic_batch_gets_its_value(tamp):
    model = m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", ["N", "S"])], [m.value("y", ["N", "S"])])
    inputs, _, made = compiled(tamp, model, "--batch", 3, "--dim", "S=7")
    assert inputs == {"x": [3, 7]} and made["model"]["batch"] == 3
    tamp("compile", "model.onnx", "-o", "out", "--batch", 3, "--dim", "S=7", "--dim", "N=4", code=1, says="--batch 3 makes dimension N 3, elsewhere it is 4")
    for command in (["compile", "model.onnx", "-o", "new"], ["run", "model.onnx", "--device", "cpu"], ["inspect", "model.onnx"], ["tune", "model.onnx", "-o", "new", "--device", "cpu"]):
        tamp(*command, code=1, says="symbolic dimensions without a value; give --dim N=value --dim S=value")
        tamp(*command, "--batch", 2, code=1, says="symbolic dimensions without a value; give --dim S=value")
        tamp(*command, "--batch", 0, code=1, says="--batch")


def check_elements(tamp, model, batch, axes=None):
    """Against ONNX Runtime's answer for each element of the batch alone; `axes`: where an output has the batch, if not in front."""
    import onnxruntime
    random, values, options = np.random.default_rng(2), {}, []
    for port in model.graph.input:
        shape = [batch] + [dim.dim_value for dim in port.type.tensor_type.shape.dim][1:]
        values[port.name] = random.standard_normal(shape).astype(np.float32)
        options += ["--input", f"{port.name}={save(tamp, port.name + '.npy', values[port.name])}"]
    alone = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    answers = [alone.run(None, {name: value[i:i + 1] for name, value in values.items()}) for i in range(batch)]
    tamp("run", write(tamp, model), "--device", "cpu", "--batch", batch, "--check", *options, "--output-dir", "got")
    for port, parts in zip(model.graph.output, zip(*answers)):
        np.testing.assert_allclose(np.load(tamp.folder / "got" / f"{port.name}.npy"), np.concatenate(parts, (axes or {}).get(port.name, 0)), rtol=1e-4, atol=1e-5)


def test_a_network_of_another_batch_runs_right(tamp):
    check_elements(tamp, classifier([-1, 16]), 3)


def test_heads_of_detectors_number_the_rows_of_each_element(tamp):
    """As RT-DETR and YOLO 10 choose their boxes: GatherElements by places of TopK, twice, and GatherND by arange(batch) and places."""
    nodes = [m.node("ReduceMax", ["scores"], ["best"], axes=[-1], keepdims=0), m.node("TopK", ["best", "k"], ["v", "i"], axis=-1), m.node("Unsqueeze", ["i", "last"], ["u"], "unsqueeze"),
             m.node("Tile", ["u", "four"], ["t"]), m.node("GatherElements", ["boxes", "t"], ["chosen"], "chosen", axis=1), m.node("Flatten", ["scores"], ["flat"]),
             m.node("TopK", ["flat", "k"], ["sorted", "j"], "sort", axis=1), m.node("Div", ["j", "classes"], ["row"]), m.node("Unsqueeze", ["row", "last"], ["rows"], "rows"),
             m.node("Concat", ["batch", "rows"], ["places"], axis=-1), m.node("GatherND", ["boxes", "places"], ["y"])]
    weights = [m.ints("k", [4]), m.ints("last", [-1]), m.ints("four", [1, 1, 4]), m.ints("classes", 3), m.ints("batch", np.zeros((1, 4, 1)))]
    ports = [m.value("boxes", [1, 9, 4]), m.value("scores", [1, 9, 3])], [m.value("y", [1, 4, 4]), m.value("chosen", [1, 4, 4]), m.value("sorted", [1, 4])]
    check_elements(tamp, m.model(nodes, *ports, weights), 3)


def test_constants_of_the_batch_are_repeated(tamp):
    """Initial states, the sizes of a Resize, and a shape that is written beside other names of the same tensor."""
    random = np.random.default_rng(1)
    nodes = [m.node("Transpose", ["x"], ["t"], perm=[1, 0, 2]), m.node("LSTM", ["t", "w", "r", "", "", "h", "c"], ["s", "last", ""], hidden_size=4), m.node("Squeeze", ["s", "one"], ["q"]),
             m.node("Relu", ["x"], ["a"]), m.node("Identity", ["a"], ["z"]), m.node("Reshape", ["a", "shape"], ["y"]), m.node("Unsqueeze", ["a", "one"], ["map"]), m.node("Resize", ["map", "", "", "sizes"], ["large"], mode="linear")]
    weights = [m.constant("w", random.standard_normal((1, 16, 3))), m.constant("r", random.standard_normal((1, 16, 4))), m.constant("h", np.full((1, 1, 4), 0.5)), m.constant("c", np.zeros((1, 1, 4))),
               m.ints("one", [1]), m.ints("shape", [1, 15]), m.ints("sizes", [1, 1, 10, 6])]
    outputs = [m.value("q", [5, 1, 4]), m.value("last", [1, 1, 4]), m.value("z", [1, 5, 3]), m.value("y", [1, 15]), m.value("large", [1, 1, 10, 6])]
    check_elements(tamp, m.model(nodes, [m.value("x", [1, 5, 3])], outputs, weights), 2, {"q": 1, "last": 1})


class Chain:
    """Random operators, one behind the other, that compute each element of [1,..] by itself."""

    def __init__(self, seed):
        self.random, self.nodes, self.weights, self.name, self.shape = np.random.default_rng(seed), [], [], "x", [1, 4, 6]

    def number(self, values):
        self.weights.append(m.constant(f"w{len(self.weights)}", values, np.asarray(values).dtype))
        return self.weights[-1].name

    def weight(self, *shape):
        return self.number(self.random.standard_normal(shape).astype(np.float32) / 2)

    def add(self, op, *inputs, shape=None, **attributes):
        self.nodes.append(m.node(op, [self.name, *inputs], [f"t{len(self.nodes)}"], f"n{len(self.nodes)}", **attributes))
        self.name, self.shape = self.nodes[-1].output[0], list(shape or self.shape)

    def step(self):
        a, b = self.shape[1:]
        axis = int(self.random.integers(1, 3))
        half = [1, a, b]
        half[axis] -= half[axis] // 2
        whole = np.array
        [lambda: self.add("Tanh"),
         lambda: self.add("Add", self.weight(1, a, b)),
         lambda: self.add("MatMul", self.weight(b, 5), shape=[1, a, 5]),
         lambda: self.add("Softmax", axis=axis),
         lambda: self.add("Transpose", perm=[0, 2, 1], shape=[1, b, a]),
         lambda: self.add("Concat", self.weight(1, a, 2), axis=2, shape=[1, a, b + 2]),
         lambda: self.add("Slice", self.number(whole([0])), self.number(whole([half[axis]])), self.number(whole([axis])), shape=half),
         lambda: self.add("CumSum", self.number(whole(axis))),
         lambda: self.add("LayerNormalization", self.weight(b)),
         lambda: (self.add("Reshape", self.number(whole([a, b])), shape=[1, a, b]), self.add("MatMul", self.weight(b, b)), self.add("Reshape", self.number(whole([1, a, b])))),
         lambda: (self.add("Transpose", perm=[1, 0, 2]), self.add("Reshape", self.number(whole([a, b]))), self.add("Gather", self.number(whole([[0, a - 1]])), axis=0, shape=[1, 2, b])) if a > 1 else None,
         lambda: self.add("Resize", "", "", self.number(whole([1, a, 2 * b])), mode="linear", shape=[1, a, 2 * b]) if b < 20 else None][self.random.integers(12)]()

    def mix(self):
        a, b = self.shape[1:]
        self.add("Concat", self.weight(1, 2, b), axis=1, shape=[1, a + 2, b])  # so that one dimension alone can be the batch
        [lambda: self.add("ReduceMax", axes=[0]), lambda: self.add("Softmax", axis=0), lambda: self.add("ReduceMean", keepdims=0), lambda: self.add("CumSum", self.number(np.array(0))),
         lambda: (self.add("Reshape", self.number(np.array([-1]))), self.add("Softmax", axis=-1))][self.random.integers(5)]()

    def model(self):
        return m.model(self.nodes, [m.value("x", [1, 4, 6])], [m.value(self.name, None)], self.weights)


def test_random_chains_of_operators(tamp):
    for seed in range(12):
        chain = Chain(seed)
        for _ in range(10):
            chain.step()
        if seed < 3:
            check_elements(tamp, chain.model(), 3)
        else:
            compiled(tamp, chain.model(), "--batch", 3, "--policy", "sequential")
        chain.mix()
        tamp("compile", write(tamp, chain.model()), "-o", "out", "--batch", 3, code=2, says=f"--batch 3: node '{chain.nodes[-1].name}'")


def test_what_random_numbers_do_not_tell(tamp):
    """Elements change each other's results only where a value is beyond a threshold, or by little."""
    weights = [m.constant("w", np.random.default_rng(1).standard_normal((8, 8)) / 8), m.constant("high", 30.0), m.ints("all", [0, 1]), m.ints("first", [0]), m.ints("three", [3, 8])]
    product = m.node("MatMul", ["x", "w"], ["p"])
    for says, *nodes in [
            ("node 'largest' (ReduceMax): reduces dimension 0 of 'a'", m.node("Abs", ["x"], ["a"]), m.node("ReduceMax", ["a"], ["b"], "largest"), m.node("Div", ["x", "b"], ["y"])),
            ("node 'count' (ReduceSum): reduces dimension 0 of 'c'", product, m.node("Greater", ["p", "high"], ["g"]), m.node("Cast", ["g"], ["c"], to=m.FLOAT),
             m.node("ReduceSum", ["c", "all"], ["n"], "count", keepdims=0), m.node("Mul", ["p", "n"], ["y"])),
            ("node 'sum' (ReduceSum): reduces dimension 0 of 'c'", product, m.node("Sub", ["p", "high"], ["d"]), m.node("Relu", ["d"], ["c"]), m.node("ReduceSum", ["c", "first"], ["n"], "sum"), m.node("Add", ["p", "n"], ["y"])),
            ("node 'rows' (Expand): repeats 'x' along dimension 0", m.node("Expand", ["x", "three"], ["e"], "rows"), m.node("ReduceSum", ["e", "first"], ["y"])),
            ("node 'range' (DynamicQuantizeLinear): reduces dimension 0", m.node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "range"), m.node("DequantizeLinear", ["q", "s", "z"], ["y"]))]:
        tamp("compile", write(tamp, m.model(nodes, [m.value("x", [1, 8])], [m.value("y", None)], weights)), "-o", "out", "--batch", 3, code=2, says="--batch 3: " + says)
    unread = [m.node("ReduceMax", ["x"], ["nobody"]), m.node("Relu", ["x"], ["y"])]
    assert compiled(tamp, m.model(unread, [m.value("x", [1, 8])], [m.value("y", [1, 8])]), "--batch", 3)[1] == {"y": [3, 8]}


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
