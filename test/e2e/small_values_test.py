#!/usr/bin/env python3
"""What tf32 keeps of small values, and weights that share an initializer, on the stand-in for the h200.

    small_values_test.py TAMP [WORD...]
"""
import json
import sys

import numpy as np
import onnx

import harness
import models as m
from models_test import random

TF32 = ("--vdevice", "h200", "--precision", "tf32")


def values(name, *shape, scale=1.0):
    return m.constant(name, random(name, *shape) * scale)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normalised(x, epsilon):
    """In f64: ONNX Runtime's own has no digits left of what is so small."""
    x = x.astype(np.float64)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


def between_norms(act, *nodes_of_act, bias=-18.0, hidden=128):
    """LayerNormalization, MatMul, an activation, MatMul, LayerNormalization: what the activation makes small, the second normalisation makes large again."""
    nodes = [m.node("LayerNormalization", ["x", "s"], [f"{act}n"], axis=-1), m.node("MatMul", [f"{act}n", f"{act}w1"], [f"{act}a"]),
             m.node("Add", [f"{act}a", f"{act}b"], [f"{act}z"]), *nodes_of_act, m.node("MatMul", [f"{act}h", f"{act}w2"], [f"{act}p"]),
             m.node("LayerNormalization", [f"{act}p", "s"], [act], axis=-1, epsilon=1e-20)]
    return nodes, [m.constant(f"{act}b", np.full(hidden, bias)), values(f"{act}w1", 64, hidden, scale=0.1), values(f"{act}w2", hidden, 64, scale=0.1)]


def test_small_values_that_are_made_large(tamp):
    """sigmoids and SiLUs of -18 stay as exact as tf32 makes them. Behind relu, hidden rows lie in fp16, and what lies there is compared with its bound."""
    parts = {"sigmoid": between_norms("sigmoid", m.node("Sigmoid", ["sigmoidz"], ["sigmoidh"])),
             "silu": between_norms("silu", m.node("Sigmoid", ["siluz"], ["silug"]), m.node("Mul", ["siluz", "silug"], ["siluh"])),
             "relu": between_norms("relu", m.node("Relu", ["reluz"], ["reluh"]), bias=0.0, hidden=1024)}
    made = m.model([node for nodes, _ in parts.values() for node in nodes], [m.value("x", [1, 64, 64])], [m.value(name, [1, 64, 64]) for name in parts],
                   [m.constant("s", np.ones(64))] + [weight for _, weights in parts.values() for weight in weights])
    for number, node in enumerate(made.graph.node):
        node.name = f"n{number}"
    (tamp.folder / "model.onnx").write_bytes(made.SerializeToString())
    x = random("x", 1, 64, 64)
    np.save(tamp.folder / "x.npy", x)
    done = tamp("run", "model.onnx", "--device", "cpu", "--check", "--output-dir", "out", "--input", "x=x.npy", *TF32)
    assert "in fp16, their values within what is proven" in done.stdout, done.stdout
    files = json.loads((tamp.folder / "out" / "outputs.json").read_text())
    acts = {"sigmoid": sigmoid, "silu": lambda z: z * sigmoid(z), "relu": lambda z: np.maximum(z, 0)}
    for name, act in acts.items():
        bias, first, second = (onnx.numpy_helper.to_array(weight).astype(np.float64) for weight in parts[name][1])
        expected = normalised(act(normalised(x, 1e-5) @ first + bias) @ second, 1e-20)
        distance = np.linalg.norm(np.load(tamp.folder / "out" / files[name]) - expected) / np.linalg.norm(expected)
        assert distance <= 5e-3, f"{name}: relative L2 {distance:.2e}"


def test_operands_that_a_normalisation_lacks(tamp):
    """A normalisation with a scale alone, in front of a product: its rOperator has no operand behind the scale."""
    nodes = [m.node("MatMul", ["x", "w1"], ["a"]), m.node("Add", ["a", "r"], ["z"]), m.node("SimplifiedLayerNormalization", ["z", "s"], ["n"], axis=-1, epsilon=1e-5),
             m.node("MatMul", ["n", "w2"], ["y"])]
    made = m.model(nodes, [m.value("x", [1, 16, 256]), m.value("r", [1, 16, 256])], [m.value("y", [1, 16, 256])],
                   [values("w1", 256, 256, scale=0.06), m.constant("s", np.ones(256)), values("w2", 256, 256, scale=0.06)])
    (tamp.folder / "model.onnx").write_bytes(made.SerializeToString())
    tamp("compile", "model.onnx", "-o", "made", *TF32)


class Blocks:
    """Blocks of ConvNeXt, whose vectors are equal now and then; so are two of the matrices."""

    def __init__(self, seed, factor=0.5):
        self.random, self.factor = np.random.default_rng(seed), factor
        self.nodes, self.weights, self.pool = [], {}, {}

    def add(self, op, *operands, **attributes):
        self.nodes.append(m.node(op, list(operands), [f"t{len(self.nodes)}"], f"n{len(self.nodes)}", **attributes))
        return self.nodes[-1].output[0]

    def weight(self, array):
        self.weights[f"w{len(self.weights)}"] = array.astype(np.float32)
        return list(self.weights)[-1]

    def vector(self, count, mean=0.0):
        known = self.pool.setdefault(count, [np.zeros(count), np.ones(count)])
        if self.random.random() < 0.4:
            known.append(mean + 0.1 * self.random.normal(size=count))
        return self.weight(known[self.random.integers(len(known))])

    def norm(self, x, channels):
        rows = self.add("Transpose", x, perm=[0, 2, 3, 1])
        return self.add("LayerNormalization", rows, self.vector(channels, 1), self.vector(channels), axis=-1, epsilon=1e-6)

    def linear(self, x, k, columns, weights=None):
        matrix = self.random.normal(size=(k, columns)) / k ** 0.5 if weights is None else weights
        product = self.add("MatMul", x, self.weight(matrix))
        return self.add("Add", product, self.vector(columns))

    def block(self, x, channels, weights=None):
        taps = self.weight(self.random.normal(size=(channels, 1, 7, 7)) / 7)
        y = self.add("Conv", x, taps, self.vector(channels), kernel_shape=[7, 7], pads=[3, 3, 3, 3], group=channels)
        y = self.add("Gelu", self.linear(self.norm(y, channels), channels, 4 * channels))
        y = self.add("Transpose", self.linear(y, 4 * channels, channels, weights), perm=[0, 3, 1, 2])
        return self.add("Add", self.add("Mul", y, self.weight(np.full((channels, 1, 1), self.factor))), x)

    def network(self):
        x = self.add("Conv", "x", self.weight(self.random.normal(size=(96, 3, 4, 4)) / 7), self.vector(96), kernel_shape=[4, 4], strides=[4, 4])
        x = self.block(self.add("Transpose", self.norm(x, 96), perm=[0, 3, 1, 2]), 96)
        y = self.add("Transpose", self.norm(x, 96), perm=[0, 3, 1, 2])
        y = self.add("Conv", y, self.weight(self.random.normal(size=(384, 96, 2, 2)) / 20), self.vector(384), kernel_shape=[2, 2], strides=[2, 2])
        tied = self.random.normal(size=(1536, 384)) / 39
        self.block(self.block(y, 384, tied), 384, tied)

    def model(self, shared):
        """Equal weights are one initializer behind Identity nodes, as torch's exporter writes them, or each its own."""
        first, given, identities = {}, [], []
        for name, array in self.weights.items():
            same = first.setdefault((array.shape, array.tobytes()), name)
            if shared and same != name:
                identities.append(m.node("Identity", [same], [name], f"shared_{name}"))
            else:
                given.append(m.constant(name, array))
        last = self.nodes[-1].output[0]
        return m.model(identities + self.nodes, [m.value("x", [1, 3, 64, 64])], [onnx.ValueInfoProto(name=last)], given, opset=20, ir=9)


def plan(tamp, model):
    (tamp.folder / "model.onnx").write_bytes(model.SerializeToString())
    tamp("compile", "model.onnx", "-o", "made", *TF32)
    made = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())
    return made["estimated_us"], [(rop["op"], rop["rkernel"]) for rop in made["rops"]]


def test_shared_weights_change_nothing(tamp):
    for seed in range(2):
        blocks = Blocks(seed)
        blocks.network()
        own, shared = plan(tamp, blocks.model(False)), plan(tamp, blocks.model(True))
        assert own == shared, f"seed {seed}: {own}, shared {shared}"


def test_small_factors_of_residuals_change_nothing(tamp):
    """A factor of 1e-6, as ConvNeXt begins to learn with, makes weights that fp16 does not hold. They are nothing beside the residual."""
    plans = []
    for factor in (0.5, 1e-6):
        blocks = Blocks(0, factor)
        blocks.network()
        plans.append([op for op, _ in plan(tamp, blocks.model(False))[1]])
    assert plans[0] == plans[1], plans
    assert "fused MLP" in plans[0], plans[0]


def test_infinite_weights_of_one_row(tamp):
    """A product of one row takes its numbers in two parts of 16 bits; an infinity by either of them is the product's."""
    width = 96
    w, x = random("w", width, 40).astype(np.float32), random("x", 1, width).astype(np.float32)
    w[3, 5], w[7, 6], w[1, 7] = np.inf, -np.inf, np.nan
    w[2, 8], w[4, 8] = np.inf * np.sign(x[0, 2]), -np.inf * np.sign(x[0, 4])
    made = m.model([m.node("MatMul", ["x", "w"], ["y"], "product")], [m.value("x", [1, width])], [m.value("y", [1, 40])], [m.constant("w", w)])
    (tamp.folder / "model.onnx").write_bytes(made.SerializeToString())
    for sign in (1, -1):
        np.save(tamp.folder / "x.npy", sign * x)
        with np.errstate(invalid="ignore"):
            expected = (sign * x.astype(np.float64)) @ w
        for precision in ("fp32", "tf32", "fp16", "bf16"):
            tamp("run", "model.onnx", "--device", "cpu", "--output-dir", "out", "--input", "x=x.npy", "--vdevice", "h200", "--precision", precision)
            got = np.load(tamp.folder / "out" / json.loads((tamp.folder / "out" / "outputs.json").read_text())["y"])
            finite = np.isfinite(expected)
            assert np.array_equal(got[~finite], expected[~finite], equal_nan=True), f"{precision}, {sign}: {got[~finite]}, expected {expected[~finite]}"
            distance = np.linalg.norm(got[finite] - expected[finite]) / np.linalg.norm(expected[finite])
            assert distance < 5e-3, f"{precision}: {distance:.1e}"


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
