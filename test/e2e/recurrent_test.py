#!/usr/bin/env python3
"""LSTM, GRU, and RNN on the stand-in, compared with ONNX Runtime as models_test.py does it: each model is run three times in
different orders of the vEUs, and the outputs of all three must be bitwise equal.

    recurrent_test.py TAMP [WORD...]
"""
import sys

import numpy as np
from onnx import TensorProto

import harness
import models as m
from models_test import check_compiled_for_gpu, check_model, execution_test, port, random, weight

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


class Layer:
    """A recurrent node `name` over the sequence `x`, as nodes, inputs, weights, and outputs of a model. Its operands are named
    after it and the ONNX operand: "enc_W". An operand in `ports` is an input of the model, any other one a constant."""

    def __init__(self, op, name, x, input_size, hidden, batch, steps, operands="WRB", results=("Y",), ports=(), directions=1, names=None, **attributes):
        rows = GATES[op] * hidden
        shapes = {"W": [directions, rows, input_size], "R": [directions, rows, hidden], "B": [directions, 2 * rows], "L": [batch],
                  "H": [directions, batch, hidden], "C": [directions, batch, hidden], "P": [directions, 3 * hidden]}
        results_of = {"Y": [steps, directions, batch, hidden], "Yh": [directions, batch, hidden], "Yc": [directions, batch, hidden]}
        given = names or {}  # operands that are other nodes' results
        inputs = [x] + [given.get(k, f"{name}_{k}") if k in operands or k in given else "" for k in "WRBLHCP"[:7 if op == "LSTM" else 5]]
        self.inputs = [m.value(f"{name}_{k}", shapes[k], TensorProto.INT32 if k == "L" else TensorProto.FLOAT) for k in operands if k in ports]
        self.weights = [m.constant(f"{name}_{k}", random(f"{name}_{k}", *shapes[k]) / np.sqrt(hidden)) for k in operands if k not in ports]
        self.outputs = [port(f"{name}_{k}", *results_of[k]) for k in results]
        kinds = ["Y", "Yh", "Yc"][:3 if op == "LSTM" else 2]
        self.node = m.node(op, inputs, [f"{name}_{k}" if k in results else "" for k in kinds], name, hidden_size=hidden,
                           direction=attributes.pop("direction", "bidirectional" if directions == 2 else "forward"), **attributes)


def model(layers, x, nodes=None, outputs=None, weights=()):
    """All results of all layers are outputs of the model unless others are named."""
    return m.model(nodes or [layer.node for layer in layers], [port("x", *x)] + [entry for layer in layers for entry in layer.inputs],
                   outputs or [entry for layer in layers for entry in layer.outputs], [*weights, *(entry for layer in layers for entry in layer.weights)])


def check(tamp, made, seed, *options, given=None, precision="fp32"):
    path = tamp.folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    check_model(tamp, path, *options, seed=seed, given=given, precision=precision)


def one(op, x, hidden, **arguments):
    """A model of one layer."""
    steps, batch, input_size = x
    return model([Layer(op, "n", "x", input_size, hidden, batch, steps, **arguments)], x)


def test_lstm_with_everything(tamp):
    check(tamp, one("LSTM", (5, 2, 7), 13, operands="WRBHCP", results=("Y", "Yh", "Yc"), directions=2), 1)


def test_graph_execution_has_no_gang(tamp):
    """The rTasks of a gang talk to each other while they run, which one kernel a phase cannot have: the layer runs without one."""
    check(tamp, one("LSTM", (5, 1, 64), 64), 21, "--execution", "graph")
    for execution, rkernel in [("persistent", "recurrent_gang<"), ("graph", "recurrent_direct<")]:
        tamp("compile", "model.onnx", "-o", execution, "--execution", execution)
        assert rkernel in (tamp.folder / execution / "model.rprogram.json").read_text()


def test_a_gang_compiled_for_h200(tamp):
    path = tamp.folder / "model.onnx"
    path.write_bytes(one("LSTM", (3, 1, 256), 256, results=("Y", "Yc")).SerializeToString())
    check_compiled_for_gpu(tamp, path, "h200", ["132 vEUs", "recurrent_gang<"])


def test_lstm_with_weights_that_come_at_run_time(tamp):
    check(tamp, one("LSTM", (4, 3, 8), 12, operands="WRBHC", ports="WRBHC", results=("Y", "Yh", "Yc"), direction="reverse"), 2)


def test_lstm_lengths(tamp):
    """Forward and backward over sequences that end before the last step; one has no step, so its last states are zeros."""
    made = one("LSTM", (6, 3, 5), 9, operands="WRBLHC", ports="LHC", results=("Y", "Yh", "Yc"), directions=2)
    check(tamp, made, 3, given={"n_L": np.array([4, 6, 0], np.int32)})


def test_lstm_input_and_forget_gate_coupled(tamp):
    check(tamp, one("LSTM", (4, 1, 16), 16, input_forget=1, results=("Yh",)), 4)


def test_lstm_clip(tamp):
    check(tamp, one("LSTM", (4, 2, 6), 10, operands="WRBHCP", results=("Y", "Yc"), clip=0.3), 16)


def test_lstm_with_weights_of_16_bits(tamp):
    """Wide enough that some weights are in registers, some in shared memory."""
    check(tamp, one("LSTM", (5, 2, 40), 72, results=("Y", "Yc")), 17, precision="fp16")


def test_gru_with_weights_of_16_bits(tamp):
    check(tamp, one("GRU", (4, 1, 33), 21, linear_before_reset=1), 18, precision="bf16")


# --- beside convolutions: two layouts of shared memory ---------------------------------------------------------------

def convs(count, x, channels):
    """`count` convolutions of 3 x 3 one after another, from `x` to the tensor r`count`."""
    nodes, last = [], x
    for i in range(count):
        nodes += [m.node("Conv", [last, f"k{i}"], [f"c{i}"], f"conv{i}", pads=[1, 1, 1, 1]), m.node("Relu", [f"c{i}"], [f"r{i + 1}"], f"relu{i}")]
        last = f"r{i + 1}"
    return nodes, [weight(f"k{i}", channels, channels, 3, 3) for i in range(count)]


def lstm_beside_convs():
    """They share nothing but the vEUs: the LSTM needs the bytes in which the convolutions' inputs come. It begins a wave later than they
    do, so that some are ready to run before it ends."""
    nodes, weights = convs(4, "p", 32)
    lstm = Layer("LSTM", "n", "t", 128, 128, 1, 8)
    return m.model([*nodes, m.node("Tanh", ["s"], ["t"], "tanh"), lstm.node], [port("p", 1, 32, 10, 10), port("s", 8, 1, 128)], [port("r4", 1, 32, 10, 10), *lstm.outputs],
                   [*weights, *lstm.weights])


def gru_behind_convs():
    """Columns of a picture, read one after another; of one size for which no gang is worth while, so that both executions have the same bodies."""
    nodes, weights = convs(2, "p", 16)
    gru = Layer("GRU", "n", "q", 96, 24, 1, 7)
    nodes += [m.node("Transpose", ["r2"], ["t"], "turn", perm=[3, 0, 1, 2]), m.node("Reshape", ["t", "columns"], ["q"], "columns"), gru.node]
    return m.model(nodes, [port("p", 1, 16, 6, 7)], gru.outputs, [*weights, *gru.weights, m.ints("columns", [7, 1, 96])])


test_gru_behind_convs_in_both_executions = execution_test(gru_behind_convs, "tf32", "wavefront")


def test_lstm_beside_convs_tf32(tamp):
    check(tamp, lstm_beside_convs(), 19, precision="tf32")


def test_lstm_beside_convs_fp16(tamp):
    check(tamp, lstm_beside_convs(), 20, precision="fp16")


def test_lstm_of_one_element(tamp):
    check(tamp, one("LSTM", (1, 1, 1), 1, operands="WR", results=("Y", "Yc")), 5)


def three_layers():
    layers = [Layer("LSTM", f"l{i}", "x" if i == 0 else f"s{i - 1}", 8 if i == 0 else 24, 24, 1, 10) for i in range(3)]
    nodes = []
    for i, layer in enumerate(layers):
        nodes += [layer.node, m.node("Squeeze", [f"l{i}_Y", "one"], [f"s{i}"], f"squeeze{i}")]
    nodes.append(m.node("MatMul", ["s2", "out"], ["y"], "product"))
    return model(layers, (10, 1, 8), nodes, [port("y", 10, 1, 5)], [m.ints("one", [1]), m.constant("out", random("out", 24, 5))])


def test_lstm_of_three_layers(tamp):
    """Layers that can run as one wave, and a product at the end; in graph execution one after another."""
    check(tamp, three_layers(), 6)
    check(tamp, three_layers(), 22, "--execution", "graph")


def encoder_and_decoder():
    encoder = Layer("LSTM", "enc", "x", 6, 10, 2, 7, results=("Yh", "Yc"))
    decoder = Layer("LSTM", "dec", "start", 6, 10, 2, 4, results=("Y",), names={"H": "enc_Yh", "C": "enc_Yc"})
    return model([encoder, decoder], (7, 2, 6), outputs=decoder.outputs, weights=[m.constant("start", random("start", 4, 2, 6))])


def test_encoder_and_decoder(tamp):
    """The final states of one network are the initial states of another."""
    check(tamp, encoder_and_decoder(), 7)
    check(tamp, encoder_and_decoder(), 23, "--execution", "graph")


def test_gru(tamp):
    check(tamp, one("GRU", (5, 2, 7), 13, operands="WRBH", results=("Y", "Yh"), directions=2), 8)


def test_gru_linear_before_reset(tamp):
    """As PyTorch has it; run-time weights."""
    check(tamp, one("GRU", (5, 1, 8), 20, operands="WRBH", ports="WR", results=("Y", "Yh"), directions=2, linear_before_reset=1), 9)


def test_gru_lengths_and_clip(tamp):
    for linear in (0, 1):
        made = one("GRU", (5, 3, 4), 6, operands="WRBLH", ports="L", results=("Y", "Yh"), directions=2, linear_before_reset=linear, clip=0.5)
        check(tamp, made, 10 + linear, given={"n_L": np.array([5, 0, 3], np.int32)})


def test_rnn(tamp):
    check(tamp, one("RNN", (6, 2, 3), 11, operands="WRBH", results=("Y", "Yh"), directions=2, activations=["Relu", "Tanh"]), 12)


def test_rnn_lengths(tamp):
    made = one("RNN", (6, 3, 3), 8, operands="WRLH", ports="L", results=("Y", "Yh"), direction="reverse")
    check(tamp, made, 13, given={"n_L": np.array([6, 1, 0], np.int32)})


def test_activations_with_attributes(tamp):
    made = one("LSTM", (4, 2, 5), 7, results=("Y", "Yh", "Yc"), activations=["HardSigmoid", "ScaledTanh", "Softsign"], activation_alpha=[0.3, 0.8],
               activation_beta=[0.45, 1.2])
    check(tamp, made, 14)


def test_batch_comes_first(tamp):
    """layout=1, which ONNX Runtime lacks: the same network between Transposes."""
    plain = Layer("LSTM", "n", "t", 5, 6, 3, 4, results=("Y", "Yh"), directions=2)
    nodes = [m.node("Transpose", ["x"], ["t"], "in", perm=[1, 0, 2]), plain.node, m.node("Transpose", ["n_Y"], ["y"], "out", perm=[2, 0, 1, 3]),
             m.node("Transpose", ["n_Yh"], ["yh"], "last", perm=[1, 0, 2])]
    check(tamp, model([plain], (3, 4, 5), nodes, [port("y", 3, 4, 2, 6), port("yh", 3, 2, 6)]), 15)


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
