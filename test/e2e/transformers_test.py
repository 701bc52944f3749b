#!/usr/bin/env python3
"""Small transformers as exporters write them, on the stand-in, compared with ONNX Runtime: token ids and masks, layer normalisation in one
operator and written out, f16 and bf16 models, Attention and RotaryEmbedding of ONNX, and the operators of ONNX Runtime's optimiser.

    transformers_test.py TAMP [WORD...]
"""
import json
import re
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import harness
import models as m
import models_test
from models_test import port, random

HIDDEN, HEADS, LENGTH, WORDS = 24, 2, 7, 50
SIZE = HIDDEN // HEADS
ROTARY = 16  # elements of a head that is rotated


class Net:
    """Nodes and weights in the making; each method returns the name of what it makes."""

    def __init__(self, hidden=HIDDEN):
        self.nodes, self.weights, self.hidden = [], [], hidden

    def add(self, op, *operands, outputs=1, **attributes):
        names = [f"t{len(self.nodes)}{'abcd'[k]}" for k in range(outputs)]
        self.nodes.append(m.node(op, list(operands), names, f"{op.lower()}{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, values, dtype=np.float32):
        self.weights.append(m.constant(f"w{len(self.weights)}", values, dtype))
        return self.weights[-1].name

    def weight(self, *shape, scale=None):
        values = random(f"w{len(self.weights)}", *shape) * (scale or shape[0] ** -0.5)
        return self.constant(values)

    def ints(self, *values):
        return self.constant(values, np.int64)

    def linear(self, x, rows, columns):
        return self.add("Add", self.add("MatMul", x, self.weight(rows, columns)), self.weight(columns, scale=0.1))

    def norm_factors(self):
        return self.constant(1 + 0.1 * random(f"s{len(self.weights)}", self.hidden)), self.weight(self.hidden, scale=0.1)

    def norm(self, x):
        return self.add("LayerNormalization", x, *self.norm_factors(), epsilon=1e-6)

    def norm_written_out(self, x):
        centred = self.add("Sub", x, self.add("ReduceMean", x, axes=[-1]))
        variance = self.add("ReduceMean", self.add("Pow", centred, self.constant(2.0)), axes=[-1])
        quotient = self.add("Div", centred, self.add("Sqrt", self.add("Add", variance, self.constant(1e-6))))
        scale, bias = self.norm_factors()
        return self.add("Add", self.add("Mul", quotient, scale), bias)

    def gelu(self, x):
        one = self.add("Add", self.add("Erf", self.add("Div", x, self.constant(2 ** 0.5))), self.constant(1.0))
        return self.add("Mul", self.add("Mul", x, one), self.constant(0.5))

    def heads(self, x, perm):
        return self.add("Transpose", self.add("Reshape", x, self.ints(0, 0, HEADS, self.hidden // HEADS)), perm=perm)

    def self_attention(self, x, mask=None):
        q, k, v = (self.heads(self.linear(x, self.hidden, self.hidden), perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = self.add("Div", self.add("MatMul", q, k), self.constant((self.hidden // HEADS) ** 0.5))
        if mask:
            scores = self.add("Add", scores, mask)
        mixed = self.add("Transpose", self.add("MatMul", self.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return self.linear(self.add("Reshape", mixed, self.ints(0, 0, self.hidden)), self.hidden, self.hidden)

    def feed_forward(self, x, gelu):
        return self.linear(gelu(self.linear(x, self.hidden, 2 * self.hidden)), 2 * self.hidden, self.hidden)

    def model(self, inputs, outputs, **options):
        return m.model(self.nodes, inputs, outputs, self.weights, **options)


def whole(name, *shape):
    return m.value(name, list(shape), TensorProto.INT64)


def named(net, last, name="y"):
    net.nodes.append(m.node("Identity", [last], [name], name))


def bert(written_out=False):
    """Two layers: embeddings of ids, a mask of run time, normalisation behind each part."""
    net = Net()
    norm = net.norm_written_out if written_out else net.norm
    words = net.add("Gather", net.weight(WORDS, HIDDEN), "ids")
    positions = net.add("Gather", net.weight(16, HIDDEN), net.ints(*range(LENGTH)))
    x = norm(net.add("Add", words, positions))
    axes = {"axes": [1, 2]} if written_out else {}
    kept = net.add("Unsqueeze", "mask", *([] if written_out else [net.ints(1, 2)]), **axes)
    mask = net.add("Mul", net.add("Sub", net.constant(1.0), net.add("Cast", kept, to=TensorProto.FLOAT)), net.constant(-10000.0))
    for _ in range(2):
        x = norm(net.add("Add", x, net.self_attention(x, mask)))
        x = norm(net.add("Add", x, net.feed_forward(x, net.gelu)))
    named(net, x)
    return net.model([whole("ids", 2, LENGTH), whole("mask", 2, LENGTH)], [port("y", 2, LENGTH, HIDDEN)], opset=12 if written_out else 17)


def bert_inputs():
    ids = np.random.default_rng(5).integers(0, WORDS, (2, LENGTH))
    return {"ids": ids, "mask": np.array([[1] * LENGTH, [1] * 4 + [0] * (LENGTH - 4)], np.int64)}


def vit(batch=2, hidden=HIDDEN):
    """Patches by a convolution, a class token before them, normalisation before each part."""
    net = Net(hidden)
    patches = net.add("Conv", "x", net.weight(hidden, 3, 4, 4, scale=0.15), net.weight(hidden, scale=0.1), kernel_shape=[4, 4], strides=[4, 4])
    x = net.add("Transpose", net.add("Reshape", patches, net.ints(0, hidden, -1)), perm=[0, 2, 1])
    token = net.add("Expand", net.weight(1, 1, hidden, scale=1), net.ints(batch, 1, 1))
    x = net.add("Add", net.add("Concat", token, x, axis=1), net.weight(1, 17, hidden, scale=0.3))
    x = net.add("Add", x, net.self_attention(net.norm(x)))
    x = net.add("Add", x, net.feed_forward(net.norm(x), lambda y: net.add("Gelu", y)))
    first = net.add("Gather", net.norm(x), net.constant(0, np.int64), axis=1)
    net.nodes.append(m.node("Gemm", [first, net.weight(hidden, 10), net.weight(10)], ["y"], "head"))
    return net.model([port("x", batch, 3, 16, 16)], [port("y", batch, 10)], opset=20)


def patches(bias=True):
    """Patches of two images whose last rows and columns are in none, as rows with a class token before them."""
    net = Net()
    operands = [net.weight(512, 3, 16, 16, scale=0.04)] + ([net.weight(512, scale=0.1)] if bias else [])
    x = net.add("Relu", net.add("Conv", "x", *operands, kernel_shape=[16, 16], strides=[16, 16]))
    x = net.add("Transpose", net.add("Reshape", x, net.ints(0, 512, -1)), perm=[0, 2, 1])
    named(net, net.add("Concat", net.add("Expand", net.weight(1, 1, 512, scale=1), net.ints(2, 1, 1)), x, axis=1))
    return net.model([port("x", 2, 3, 130, 69)], [port("y", 2, 33, 512)])


def sequence_first(batch):
    """Two layers as PyTorch exports nn.MultiheadAttention with batch_first=True: the attention works on [position, image, channel], and its queries, keys and
    values are parts of one product, whose images and heads are one dimension for a while."""
    net, x = Net(), "x"
    for _ in range(2):
        turned = net.add("Transpose", net.norm(x), perm=[1, 0, 2])
        packed = net.add("Reshape", net.linear(turned, HIDDEN, 3 * HIDDEN), net.ints(LENGTH, batch, 3, HIDDEN))
        packed = net.add("Transpose", net.add("Unsqueeze", packed, net.ints(0)), perm=[3, 1, 2, 0, 4])
        packed = net.add("Squeeze", packed, net.ints(3))
        parts = [net.add("Gather", packed, net.constant(i, np.int64), axis=0) for i in range(3)]
        heads = [net.add("Transpose", net.add("Reshape", part, net.ints(LENGTH, batch * HEADS, SIZE)), perm=[1, 0, 2]) for part in parts]
        q, k, v = (net.add("Reshape", head, net.ints(batch, HEADS, LENGTH, SIZE)) for head in heads)
        q, k = (net.add("Mul", part, net.constant(SIZE ** -0.25)) for part in (q, net.add("Transpose", k, perm=[0, 1, 3, 2])))
        scores = net.add("MatMul", q, k)
        mixed = net.add("Transpose", net.add("MatMul", net.add("Softmax", scores, axis=-1), v), perm=[2, 0, 1, 3])
        rows = net.add("Reshape", mixed, net.ints(LENGTH * batch, HIDDEN))
        rows = net.add("Gemm", rows, net.weight(HIDDEN, HIDDEN), net.weight(HIDDEN, scale=0.1), transB=1)
        x = net.add("Add", net.add("Transpose", net.add("Reshape", rows, net.ints(LENGTH, batch, HIDDEN)), perm=[1, 0, 2]), x)
        x = net.add("Add", x, net.feed_forward(net.norm(x), lambda y: net.add("Gelu", y)))
    named(net, x)
    return net.model([port("x", batch, LENGTH, HIDDEN)], [port("y", batch, LENGTH, HIDDEN)], opset=20)


def decoder():
    """A layer of a decoder in operators of opset 23: root mean squares, rotated positions, grouped heads with a past, a gate."""
    net = Net()
    x = net.add("RMSNormalization", "x", net.norm_factors()[0])
    angles = np.outer(np.arange(16), 10000.0 ** -(np.arange(SIZE // 2) / (SIZE / 2)))
    cosine, sine, ids = net.constant(np.cos(angles)), net.constant(np.sin(angles)), net.constant(np.arange(3, 3 + LENGTH)[None], np.int64)
    q, k, v = net.linear(x, HIDDEN, HIDDEN), net.linear(x, HIDDEN, SIZE), net.linear(x, HIDDEN, SIZE)
    q = net.add("RotaryEmbedding", q, cosine, sine, ids, num_heads=HEADS)
    k = net.add("RotaryEmbedding", k, cosine, sine, ids, num_heads=1, interleaved=1)
    y, key, value = net.add("Attention", q, k, v, "", "past_k", "past_v", outputs=3, q_num_heads=HEADS, kv_num_heads=1, is_causal=1, softcap=5.0)
    x = net.add("Add", "x", net.linear(y, HIDDEN, HIDDEN))
    gate = net.linear(x, HIDDEN, HIDDEN)
    x = net.add("Add", x, net.add("Mul", net.add("Mul", gate, net.add("Sigmoid", gate)), net.linear(x, HIDDEN, HIDDEN)))
    for name, last in (("y", x), ("k", key), ("v", value)):
        named(net, last, name)
    past = [port(name, 1, 1, 3, SIZE) for name in ("past_k", "past_v")]
    return net.model([port("x", 1, LENGTH, HIDDEN), *past], [port("y", 1, LENGTH, HIDDEN), port("k", 1, 1, 3 + LENGTH, SIZE), port("v", 1, 1, 3 + LENGTH, SIZE)], opset=23, ir=11)


def rotated_halves(net, x, heads, cosine, sine):
    """As exporters of Llama write it: x * cos + concat(-x[half:], x[:half]) * sin."""
    half = lambda begin, end: net.add("Slice", x, net.ints(begin), net.ints(end), net.ints(3), net.ints(1))
    turned = net.add("Concat", net.add("Neg", half(ROTARY // 2, 2**31)), half(0, ROTARY // 2), axis=3)
    return net.add("Add", net.add("Mul", x, cosine), net.add("Mul", turned, sine))


def rotated_pairs(net, x, heads, cosine, sine):
    """As exporters of GPT-J write it: every second element is turned with the one behind it."""
    every = lambda begin: net.add("Slice", x, net.ints(begin), net.ints(2**31), net.ints(3), net.ints(2))
    column = lambda y: net.add("Unsqueeze", y, net.ints(-1))
    pairs = net.add("Concat", column(net.add("Neg", every(1))), column(every(0)), axis=-1)
    turned = net.add("Reshape", pairs, net.ints(1, heads, -1, ROTARY))
    return net.add("Add", net.add("Mul", x, cosine), net.add("Mul", turned, sine))


def rotated_operator(interleaved):
    def rotated(net, x, heads, cosine, sine):
        angles = [net.add("Slice", angle, net.ints(0), net.ints(ROTARY // 2), net.ints(-1)) for angle in (cosine, sine)]
        return net.add("RotaryEmbedding", x, *(net.add("Squeeze", angle, net.ints(1)) for angle in angles), interleaved=interleaved)
    return rotated


def rotary(rotated, length=LENGTH, past=0, shares=2, known=False):
    """Attention of rotated queries and keys, `shares` heads of queries to each of two heads of keys, which come behind those of the past.
    `known`: the angles are constants."""
    kv, heads = 2, 2 * shares
    net = Net(heads * ROTARY)
    split = lambda x, count: net.add("Transpose", net.add("Reshape", x, net.ints(1, length, count, ROTARY)), perm=[0, 2, 1, 3])
    q = split(net.linear("x", net.hidden, net.hidden), heads)
    k, v = (split(net.linear("x", net.hidden, kv * ROTARY), kv) for _ in range(2))
    angles = [net.constant(values) for values in (random("cos", 1, 1, length, ROTARY), random("sin", 1, 1, length, ROTARY))] if known else ["cos", "sin"]
    q, k = (rotated(net, each, count, *angles) for each, count in ((q, heads), (k, kv)))
    if past:
        k, v = (net.add("Concat", name, each, axis=2) for name, each in (("past_k", k), ("past_v", v)))
    keys = length + past

    def repeated(each):
        if shares == 1:
            return each
        apart = net.add("Expand", net.add("Unsqueeze", each, net.ints(2)), net.ints(1, kv, shares, keys, ROTARY))
        return net.add("Reshape", apart, net.ints(1, heads, keys, ROTARY))

    scores = net.add("Mul", net.add("MatMul", q, net.add("Transpose", repeated(k), perm=[0, 1, 3, 2])), net.constant(ROTARY**-0.5))
    y = net.add("MatMul", net.add("Softmax", net.add("Add", scores, "mask"), axis=-1), repeated(v))
    y = net.add("Reshape", net.add("Transpose", y, perm=[0, 2, 1, 3]), net.ints(1, length, net.hidden))
    named(net, net.linear(y, net.hidden, net.hidden))
    ports = [port("x", 1, length, net.hidden), port("mask", 1, 1, length, keys)]
    if not known:
        ports += [port(name, 1, 1, length, ROTARY) for name in ("cos", "sin")]
    if past:
        ports += [port(name, 1, kv, past, ROTARY) for name in ("past_k", "past_v")]
    return net.model(ports, [port("y", 1, length, net.hidden)], opset=23, ir=11)


def decoder_step(past=70, size=64, heads=4, kv=2, computed=False):
    """Attention of one token as exporters of Llama write it: rotated queries and keys, a past, a mask; new keys and values are results, too.
    `computed`: the program makes the past itself, later than queries and new keys."""
    net = Net(heads * size)
    split = lambda x, count: net.add("Transpose", net.add("Reshape", x, net.ints(1, 1, count, size)), perm=[0, 2, 1, 3])

    def rotated(x):
        half = lambda begin, end: net.add("Slice", x, net.ints(begin), net.ints(end), net.ints(3), net.ints(1))
        turned = net.add("Concat", net.add("Neg", half(size // 2, 2**31)), half(0, size // 2), axis=3)
        return net.add("Add", net.add("Mul", x, "cos"), net.add("Mul", turned, "sin"))

    q = rotated(split(net.linear("x", net.hidden, net.hidden), heads))
    k, v = (split(net.linear("x", net.hidden, kv * size), kv) for _ in range(2))
    k = rotated(k)
    late = lambda name: net.add("Softmax", net.add("MatMul", net.add("Softmax", net.add("MatMul", name, net.weight(size, size)), axis=-1), net.weight(size, size)), axis=-1)
    before = [late(name) if computed else name for name in ("past_k", "past_v")]
    keys, values = (net.add("Concat", name, each, axis=2) for name, each in zip(before, (k, v)))
    shared = lambda x: net.add("Reshape", net.add("Expand", net.add("Unsqueeze", x, net.ints(2)), net.ints(1, kv, heads // kv, past + 1, size)), net.ints(1, heads, past + 1, size))
    scores = net.add("Mul", net.add("MatMul", q, net.add("Transpose", shared(keys), perm=[0, 1, 3, 2])), net.constant(size**-0.5))
    y = net.add("MatMul", net.add("Softmax", net.add("Add", scores, "mask"), axis=-1), shared(values))
    y = net.linear(net.add("Reshape", net.add("Transpose", y, perm=[0, 2, 1, 3]), net.ints(1, 1, net.hidden)), net.hidden, net.hidden)
    for name, last in (("y", y), ("k", k), ("v", v)):
        named(net, last, name)
    inputs = [port("x", 1, 1, net.hidden), port("mask", 1, 1, 1, past + 1), *(port(name, 1, 1, 1, size) for name in ("cos", "sin")), *(port(name, 1, kv, past, size) for name in ("past_k", "past_v"))]
    return net.model(inputs, [port("y", 1, 1, net.hidden), port("k", 1, kv, 1, size), port("v", 1, kv, 1, size)], opset=13, ir=8)


def attended(net, q, k, v, kept, size):
    """Attention with a mask as PyTorch exports it: the scale divided between queries and keys, and a softmax without keys gives zeros."""
    root = net.constant(size**-0.25)
    scores = net.add("MatMul", net.add("Mul", q, root), net.add("Mul", net.add("Transpose", k, perm=[0, 1, 3, 2]), root))
    masked = net.add("Where", kept, net.constant([0.0]), net.constant([-np.inf]))
    weights = net.add("Softmax", net.add("Add", scores, masked), axis=-1)
    return net.add("MatMul", net.add("Where", net.add("IsNaN", weights), net.constant([0.0]), weights), v)


def prompt(length=24, hidden=64, layers=2):
    """A causal mask and a mask of tokens, of which the first may be padding: then the first queries have no key."""
    net, x, size = Net(hidden), "x", hidden // HEADS
    tokens = net.add("Cast", net.add("Reshape", "mask", net.ints(1, 1, 1, length)), to=TensorProto.BOOL)
    kept = net.add("And", net.constant(np.tril(np.ones([1, 1, length, length])), np.bool_), tokens)
    for _ in range(layers):
        q, k, v = (net.heads(net.linear(x, hidden, hidden), [0, 2, 1, 3]) for _ in range(3))
        mixed = net.add("Transpose", attended(net, q, k, v, kept, size), perm=[0, 2, 1, 3])
        x = net.add("Add", x, net.linear(net.add("Reshape", mixed, net.ints(0, 0, hidden)), hidden, hidden))
    named(net, x)
    return net.model([port("x", 1, length, hidden), whole("mask", 1, length)], [port("y", 1, length, hidden)])


LEAST = np.finfo(np.float32).min


def masked_ways(length=24, hidden=64):
    """Attention of the same rows with masks of the least number, as exporters and models make them, one output each. Of some queries all keys are masked. In front are so many
    activations that are no masks that a program in 16 bits has narrow ones."""
    net, size = Net(hidden), hidden // HEADS
    x = net.linear(net.add("Relu", net.linear("x", hidden, 16 * hidden)), 16 * hidden, hidden)
    q, k, v = (net.heads(net.linear(x, hidden, hidden), perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    scores = lambda: net.add("Mul", net.add("MatMul", q, k), net.constant(size**-0.5))
    attended = lambda masked: net.add("MatMul", net.add("Softmax", masked, axis=-1), v)
    tokens = net.add("Reshape", "tokens", net.ints(-1, 1, 1, length))
    padding = net.add("Mul", net.add("Sub", net.constant(1.0), net.add("Cast", tokens, to=TensorProto.FLOAT)), net.constant(LEAST))
    causal = net.constant(np.triu(np.full((length, length), LEAST), 1))
    weights = net.add("Softmax", net.add("Add", scores(), net.add("Mul", "mask", net.constant(0.75))), axis=-1)
    ways = [net.add("Add", scores(), padding), net.add("Add", scores(), net.add("Add", causal, padding)), net.add("Where", net.add("Cast", tokens, to=TensorProto.BOOL), scores(), net.constant(LEAST)),
            net.add("Add", scores(), "mask"), net.add("Add", scores(), net.add("Mul", "mask", net.constant(0.5)))]
    results = [*(attended(way) for way in ways), weights, net.add("MatMul", weights, v)]
    for k, last in enumerate(results):
        named(net, last, f"y{k}")
    shapes = [[2, HEADS, length, length if last == weights else size] for last in results]
    return net.model([port("x", 2, length, hidden), whole("tokens", 2, length), port("mask", 2, 1, length, length)], [port(f"y{k}", *shape) for k, shape in enumerate(shapes)])


def cached_step(places=70, size=32, written_out=False):
    """A token whose keys and values are put at a place of run time into a cache of constant size. `written_out`: without the operators that
    ONNX has for it since opset 24."""
    hidden = HEADS * size
    net = Net(hidden)
    q, k, v = (net.heads(net.linear("x", hidden, hidden), [0, 2, 1, 3]) for _ in range(3))
    weight, bias = net.weight(hidden, hidden), net.weight(hidden, scale=0.1)  # here, since a weight's number makes its values
    if written_out:
        place = net.add("Expand", net.add("Reshape", "place", net.ints(1, 1, 1, 1)), net.ints(1, HEADS, 1, size))
        keys, values = (net.add("ScatterElements", cache, place, new, axis=2) for cache, new in (("cache_k", k), ("cache_v", v)))
        kept = net.add("LessOrEqual", net.constant(np.arange(places).reshape(1, 1, 1, places), np.int64), "place")
        y = attended(net, q, keys, values, kept, size)
    else:
        keys, values = (net.add("TensorScatter", cache, new, "place", axis=2) for cache, new in (("cache_k", k), ("cache_v", v)))
        y = net.add("Attention", q, keys, values, "", "", "", net.add("Add", "place", net.ints(1)))
    y = net.add("Reshape", net.add("Transpose", y, perm=[0, 2, 1, 3]), net.ints(1, 1, hidden))
    y = net.add("Add", net.add("MatMul", y, weight), bias)
    for name, last in (("y", y), ("keys", keys), ("values", values)):
        named(net, last, name)
    caches = [port(name, 1, HEADS, places, size) for name in ("cache_k", "cache_v")]
    results = [port("y", 1, 1, hidden), *(port(name, 1, HEADS, places, size) for name in ("keys", "values"))]
    return net.model([port("x", 1, 1, hidden), whole("place", 1), *caches], results, opset=18 if written_out else 24)


def one_token(hidden=96, layers=2):
    """Layers of a decoder that make one token: few rows, so that products make their rows themselves."""
    net, x, ports, results = Net(hidden), "x", [], []
    size = hidden // HEADS
    for layer in range(layers):
        n = net.add("RMSNormalization", x, net.norm_factors()[0])
        q, k, v = (net.linear(n, hidden, hidden) for _ in range(3))
        past = [f"past_k{layer}", f"past_v{layer}"]
        y, *new = net.add("Attention", q, k, v, "", *past, outputs=3, q_num_heads=HEADS, kv_num_heads=HEADS)
        x = net.add("Add", x, net.linear(y, hidden, hidden))
        n = net.add("RMSNormalization", x, net.norm_factors()[0]) if layer == 0 else net.norm(x)
        gate, up = net.linear(n, hidden, 3 * hidden), net.linear(n, hidden, 3 * hidden)
        gated = net.add("Mul", net.add("Mul", gate, net.add("Sigmoid", gate)), up)
        x = net.add("Add", x, net.linear(gated, 3 * hidden, hidden))
        ports += [port(name, 1, HEADS, 5, size) for name in past]
        for name, last in zip((f"k{layer}", f"v{layer}"), new):
            named(net, last, name)
            results.append(port(name, 1, HEADS, 6, size))
    named(net, x)
    return net.model([port("x", 1, 1, hidden), *ports], [port("y", 1, 1, hidden), *results], opset=23, ir=11)


def optimised():
    """What ONNX Runtime's optimiser makes of two layers, the second of which looks back only."""
    net = Net()
    ms = lambda op, *operands, **attributes: net.add(op, *operands, domain="com.microsoft", **attributes)
    tables = net.weight(WORDS, HIDDEN), net.weight(16, HIDDEN), net.weight(2, HIDDEN)
    x, index = ms("EmbedLayerNormalization", "ids", "segments", *tables, *net.norm_factors(), "mask", outputs=2, epsilon=1e-12)
    for layer in range(2):
        weights, bias = net.weight(HIDDEN, 3 * HIDDEN), net.weight(3 * HIDDEN, scale=0.1)
        y = ms("Attention", x, weights, bias, "mask" if layer == 0 else index, num_heads=HEADS, unidirectional=layer)
        x = ms("SkipLayerNormalization", net.add("MatMul", y, net.weight(HIDDEN, HIDDEN)), x, *net.norm_factors(), net.weight(HIDDEN), epsilon=1e-12)
        y = ms("FusedMatMul", x, net.weight(2 * HIDDEN, HIDDEN, scale=0.3), transB=1, alpha=0.5)
        y = ms("BiasGelu" if layer == 0 else "FastGelu", y, net.weight(2 * HIDDEN, scale=0.1))
        x = ms("SkipLayerNormalization", net.linear(y, 2 * HIDDEN, HIDDEN), x, *net.norm_factors(), epsilon=1e-12)
    named(net, ms("QuickGelu", ms("Gelu", x), alpha=1.5))
    named(net, index, "lengths")
    inputs = [m.value(name, [2, LENGTH], TensorProto.INT32) for name in ("ids", "segments", "mask")]
    made = net.model(inputs, [port("y", 2, LENGTH, HIDDEN), m.value("lengths", [2], TensorProto.INT32)])
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def multi_head(packs=True):
    """MultiHeadAttention of ONNX Runtime in the ways in which its operands may lie: apart, packed, keys that are made already, behind a past. Its CPU
    takes nothing packed: without `packs` they are taken apart before."""
    net = Net()
    part = lambda x, i, length: net.add("Reshape", net.add("Gather", x, net.constant(i, np.int64), axis=3), net.ints(2, length, HIDDEN))
    ms = lambda *operands, **attributes: net.add("MultiHeadAttention", *operands, domain="com.microsoft", num_heads=HEADS, **attributes)
    named(net, ms("x", "memory", "wide", net.weight(3 * HIDDEN + HEADS), "counting", "bias"), "apart")
    named(net, ms("x", "packed2") if packs else ms("x", part("packed2", 0, 4), part("packed2", 1, 4)), "keys_and_values")
    of_one = ["packed3", "", ""] if packs else [part("packed3", i, LENGTH) for i in range(3)]
    named(net, ms(*of_one, "", "padding", unidirectional=1), "all_packed")
    named(net, ms("x", "past_key", "past_value", scale=0.3), "made_already")
    behind, key, value = ms("x", "x", "x", "", "", "", "past_key", "past_value", outputs=3, unidirectional=1)
    for result, name in ((behind, "behind"), (key, "present_key"), (value, "present_value")):
        named(net, result, name)
    inputs = [port("x", 2, LENGTH, HIDDEN), port("memory", 2, 5, HIDDEN), port("wide", 2, 5, HIDDEN + HEADS), port("packed2", 2, 4, HEADS, 2, SIZE),
              port("packed3", 2, LENGTH, HEADS, 3, SIZE), port("past_key", 2, HEADS, 3, SIZE), port("past_value", 2, HEADS, 3, SIZE), port("bias", 1, HEADS, LENGTH, 5),
              m.value("counting", [2], TensorProto.INT32), m.value("padding", [2, LENGTH], TensorProto.INT32)]
    outputs = [port("apart", 2, LENGTH, HIDDEN + HEADS), *(port(name, 2, LENGTH, HIDDEN) for name in ("keys_and_values", "all_packed", "made_already", "behind")),
               port("present_key", 2, HEADS, LENGTH + 3, SIZE), port("present_value", 2, HEADS, LENGTH + 3, SIZE)]
    made = net.model(inputs, outputs)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def ms_rotary():
    """ONNX Runtime's RotaryEmbedding: heads apart or not, positions of all or the first one, a part of each head, pairs of neighbours."""
    net = Net()
    net.weights += [m.constant("cos", np.cos(angles()), np.float32), m.constant("sin", np.sin(angles()), np.float32)]
    ms = lambda *operands, **attributes: net.add("RotaryEmbedding", *operands, "cos", "sin", domain="com.microsoft", **attributes)
    calls = {"plain": ms("x", "ids"), "one_position": ms("x", "first"), "heads": ms("h", "ids", interleaved=1), "part": ms("x", "ids", num_heads=2, rotary_embedding_dim=16)}
    shapes = {name: (2, 2, LENGTH, 16) if name == "heads" else (2, LENGTH, 64) for name in calls}
    for name, result in calls.items():
        named(net, result, name)
    inputs = [port("x", 2, LENGTH, 64), port("h", 2, 2, LENGTH, 16), whole("ids", 2, LENGTH), whole("first", 1)]
    made = net.model(inputs, [port(name, *shape) for name, shape in shapes.items()])
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def group_query():
    """GroupQueryAttention: a prompt, with its keys packed; what follows it, with lengths that differ; a window; rotation; a cap."""
    net = Net()
    net.weights += [m.constant("prompt_total", LENGTH, np.int32), m.constant("total", 8, np.int32), m.constant("cos", np.cos(angles()), np.float32), m.constant("sin", np.sin(angles()), np.float32)]
    ms = lambda *operands, **attributes: net.add("GroupQueryAttention", *operands, domain="com.microsoft", num_heads=4, kv_num_heads=2, outputs=3, **attributes)
    calls = {
        "prompt": ms("q", "k", "v", "", "", "prompt_lengths", "prompt_total"),
        "rotated": ms("packed", "", "", "", "", "prompt_lengths", "prompt_total", "cos", "sin", do_rotary=1, local_window_size=3),
        "next": ms("q2", "k2", "v2", "past_key", "past_value", "lengths", "total", "cos", "sin", do_rotary=1, rotary_interleaved=1, smooth_softmax=1),
        "capped": ms("q2", "k2", "v2", "past_key", "past_value", "lengths", "total", softcap=2.0, scale=0.7, local_window_size=4),
    }
    outputs = []
    for name, results in calls.items():
        length, present = (LENGTH, LENGTH) if name in ("prompt", "rotated") else (1, 8)
        for result, what, shape in zip(results, ("", "_key", "_value"), ((2, length, 4 * 16), (2, 2, present, 16), (2, 2, present, 16))):
            named(net, result, name + what)
            outputs.append(port(name + what, *shape))
    inputs = [port("q", 2, LENGTH, 4 * 16), port("k", 2, LENGTH, 2 * 16), port("v", 2, LENGTH, 2 * 16), port("packed", 2, LENGTH, 8 * 16), port("q2", 2, 1, 4 * 16),
              port("k2", 2, 1, 2 * 16), port("v2", 2, 1, 2 * 16), port("past_key", 2, 2, 7, 16), port("past_value", 2, 2, 7, 16),
              m.value("prompt_lengths", [2], TensorProto.INT32), m.value("lengths", [2], TensorProto.INT32)]
    made = net.model(inputs, outputs)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def cached_group_query(places=40, size=32, heads=4, kv=2):
    """A token with a cache of constant size, as ONNX Runtime's generator writes models: only the run knows how many keys there are."""
    net = Net()
    net.weights += [m.constant("cos", np.cos(angles()), np.float32), m.constant("sin", np.sin(angles()), np.float32)]
    operands = ["q", "k", "v", "past_key", "past_value", "last", "total", "cos", "sin"]
    results = net.add("GroupQueryAttention", *operands, domain="com.microsoft", num_heads=heads, kv_num_heads=kv, outputs=3, do_rotary=1)
    for name, result in zip(("y", "keys", "values"), results):
        named(net, result, name)
    caches = [port(name, 1, kv, places, size) for name in ("past_key", "past_value")]
    inputs = [port("q", 1, 1, heads * size), port("k", 1, 1, kv * size), port("v", 1, 1, kv * size), *caches, m.value("last", [1], TensorProto.INT32), m.value("total", [1], TensorProto.INT32)]
    made = net.model(inputs, [port("y", 1, 1, heads * size), *(port(name, 1, kv, places, size) for name in ("keys", "values"))])
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def angles():
    return np.arange(16)[:, None] / 3.0 ** np.arange(16 // 2)


def norms():
    """Normalisations of images, one output each."""
    net = Net()
    eight = lambda: net.weight(8, scale=1)
    results = [net.add("InstanceNormalization", "x", eight(), eight()), net.add("GroupNormalization", "x", eight(), eight(), num_groups=4),
               net.add("MeanVarianceNormalization", "x"), net.add("LpNormalization", "x", axis=1), net.add("LpNormalization", "x", axis=-1, p=1),
               net.add("Einsum", "x", "x", equation="nchw,ndhw->ncd"), *net.add("LayerNormalization", "x", net.weight(5, 3), outputs=3, axis=2)]
    shapes = [(2, 8, 5, 3)] * 5 + [(2, 8, 8), (2, 8, 5, 3), (2, 8, 1, 1), (2, 8, 1, 1)]
    for k, last in enumerate(results):
        named(net, last, f"y{k}")
    return net.model([port("x", 2, 8, 5, 3)], [port(f"y{k}", *shape) for k, shape in enumerate(shapes)], opset=21, ir=10)


def in_type(made, onnx_type):
    """The model with f16 or bf16 instead of f32 everywhere: inputs, weights, casts, outputs."""
    made = onnx.ModelProto.FromString(made.SerializeToString())
    for tensor in made.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor)
            tensor.CopyFrom(helper.make_tensor(tensor.name, onnx_type, values.shape, values.ravel()))
    for entry in (*made.graph.input, *made.graph.output):
        if entry.type.tensor_type.elem_type == TensorProto.FLOAT:
            entry.type.tensor_type.elem_type = onnx_type
    for node in made.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = onnx_type
    return made


def run_checked(tamp, *options):
    """Runs model.onnx and compares its answer with tamp's own reference. On a GPU (gpu_test.py) without --races."""
    device = models_test.DEVICE
    tamp("run", "model.onnx", "--device", device, "--check", *(option for option in options if device == "cpu" or option != "--races"), env={"TAMP_SEED": "7"})


def answers(tamp, made, inputs, *options):
    """What the program answers, by output, after run_checked."""
    (tamp.folder / "model.onnx").write_bytes(made.SerializeToString())
    arguments = []
    for name, values in inputs.items():
        np.save(tamp.folder / f"{name}.npy", values)
        arguments += ["--input", f"{name}={name}.npy"]
    run_checked(tamp, "--output-dir", "out", *arguments, *options)
    files = json.loads((tamp.folder / "out" / "outputs.json").read_text())
    return {name: np.load(tamp.folder / "out" / file) for name, file in files.items()}


def compare(got, expected, limit):
    for name, values in expected.items():
        assert got[name].shape == values.shape and got[name].dtype == values.dtype, f"{name}: {got[name].dtype}{got[name].shape}, expected {values.dtype}{values.shape}"
        if values.dtype.kind != "f":
            np.testing.assert_array_equal(got[name], values, err_msg=name)
            continue
        difference = got[name].astype(np.float64) - values
        error = np.linalg.norm(difference.ravel()) / (np.linalg.norm(values.astype(np.float64).ravel()) or 1)
        assert error <= limit, f"{name}: relative L2 distance {error:.2e} from ONNX Runtime, limit {limit:.0e}"


def check(tamp, made, inputs=None, limit=1e-4, precision="fp32", same=None, *options):
    """`same`: a model with the same answers, which ONNX Runtime runs instead."""
    session = onnxruntime.InferenceSession((same or made).SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = inputs or {entry.name: random(entry.name, *entry.shape) for entry in session.get_inputs()}
    expected = dict(zip((entry.name for entry in session.get_outputs()), session.run(None, inputs)))
    compare(answers(tamp, made, inputs, "--precision", precision, *options), expected, limit)


def test_bert(tamp):
    check(tamp, bert(), bert_inputs())


def test_bert_with_written_out_normalisation(tamp):
    check(tamp, bert(written_out=True), bert_inputs())
    tamp("compile", "model.onnx", "-o", "made")
    rops = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
    assert sum(rop["op"] in ("Normalize", "product with normalised rows") for rop in rops) == 5, [rop["op"] for rop in rops]


def test_vit_in_tf32(tamp):
    check(tamp, vit(), limit=5e-3, precision="tf32")


def test_patches_become_a_product(tamp):
    """A copy and a product by boxes on a vDevice where that is faster, in all precisions that have boxes."""
    for precision, bias, limit in [("tf32", True, 5e-3), ("fp16", False, 5e-3), ("bf16", True, 4e-2)]:
        check(tamp, patches(bias), None, limit, precision, None, "--vdevice", "h200")
        tamp("compile", "model.onnx", "-o", "made", "--precision", precision, "--vdevice", "h200")
        rops = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
        product = next(rop["rkernel"] for rop in rops if rop["op"] == "Conv")
        assert product.startswith(f"staged_conv_{precision}"), product
        assert sum(".patches" in rop["name"] for rop in rops) == 1, [rop["name"] for rop in rops]


def test_vit_in_batches(tamp):
    """Heads whose rows are whole cells of 16 bytes, on a vDevice where the body whose warps have queries of their own is the fastest."""
    cpu = json.loads((harness.ROOT / "compiler/ir/vdevices/cpu.json").read_text())
    (tamp.folder / "quick.json").write_text(json.dumps({**cpu, "name": "quick", "rtask_us": 0.1, "costs": {"attention": {"rows": {"fixed_cycles": 1000}, "few": {"fixed_cycles": 10000}}}}))
    for precision, activations, expected in [("tf32", "fp32", "attention_rows<128x32>"), ("tf32", "auto", "attention_rows<128x32, 2 heads>"),
                                             ("fp16", "auto", "attention_rows<128x32, 2 heads>")]:
        options = ["--vdevice", "quick.json", "--activations", activations]
        check(tamp, vit(batch=4, hidden=64), None, 5e-3, precision, None, *options)
        tamp("compile", "model.onnx", "-o", "made", "--precision", precision, *options)
        rops = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
        chosen = [rop["rkernel"] for rop in rops if rop["op"] == "Attention"]
        assert chosen == [expected], f"{precision}, {activations}: {chosen}"


def scaled_block(scale, bias=True):
    """A normalisation whose scale is `scale`, two products and a gelu that make ordinary values of it."""
    net = Net(HIDDEN)
    factors = net.constant(scale * (1 + 0.1 * random("s", HIDDEN))), net.constant(np.zeros(HIDDEN, np.float32))
    x = net.add("LayerNormalization", "x", *factors, epsilon=1e-6)
    x = net.add("MatMul", x, net.weight(HIDDEN, 2 * HIDDEN, scale=HIDDEN ** -0.5 / scale))
    x = net.add("MatMul", net.gelu(x), net.weight(2 * HIDDEN, HIDDEN))
    named(net, net.add("Add", x, net.constant(random("b", HIDDEN))) if bias else x)
    return net.model([port("x", 24, HIDDEN)], [port("y", 24, HIDDEN)])


def test_what_fp16_cannot_hold_stays_fp32(tamp):
    """In tf32 products are made in fp16 where it is proven that they can be: a scale of 1 can, 3e4 gives values up to 3e4 * sqrt(HIDDEN), 1e-5 values that fp16 rounds to
    fewer bits. Nor can it where a gelu may make whole rows small and nothing is added to what a product makes of these. An input of any size makes no difference behind a
    normalisation."""
    for scale, bias, kinds in [(1, True, {"fp16"}), (3e4, True, {"tf32"}), (1e-5, True, {"tf32"}), (1, False, {"tf32"})]:
        for size in [1, 1e6]:
            check(tamp, scaled_block(scale, bias), {"x": size * random("x", 24, HIDDEN)}, 2e-3, "tf32", None, "--vdevice", "h200")
        tamp("compile", "model.onnx", "-o", "made", "--precision", "tf32", "--vdevice", "h200")
        rops = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
        chosen = {rop["rkernel"].split("<")[0].removeprefix("staged_conv_") for rop in rops if rop["op"] == "MatMul"}
        assert chosen == kinds, f"scale {scale}, bias {bias}: {chosen}"
        if scale == 1 and bias:  # weights that fp16 cannot hold are no weights for that program
            (tamp.folder / "model.onnx").write_bytes(scaled_block(3e4).SerializeToString())
            tamp("weights", "model.onnx", "--like", "made", "-o", "other.weights", code=1, says="does not fit made")


def test_heads_of_a_rtask(tamp):
    """Ten heads on four vEUs: of 16 bits three are a rTask, the last rTask has one. 70 keys end in the middle of a stage, and so do 33 in another. What is added to the
    scores is one number a key, one for each query and key, or nothing; of one image all keys but one are masked."""
    cpu = json.loads((harness.ROOT / "compiler/ir/vdevices/cpu.json").read_text())
    (tamp.folder / "quick.json").write_text(json.dumps({**cpu, "name": "quick", "rtask_us": 0.1, "costs": {"attention": {"rows": {"fixed_cycles": 1000}}}}))
    for precision, size, length, rows, kind in [("fp16", 64, 70, 1, "rk::kBiasOfKeys"), ("tf32", 64, 33, 1, "rk::kBiasOfKeys"), ("bf16", 32, 70, 0, "rk::kNoBias"),
                                                ("fp16", 64, 70, 70, "rk::kBiasOfScores"), ("tf32", 32, 33, 0, "rk::kNoBias")]:
        net = Net(HEADS * size)
        named(net, net.self_attention("x", "mask" if rows else None))
        inputs = {"x": random("x", 5, length, net.hidden)}
        if rows:
            inputs["mask"] = np.where(np.random.default_rng(3).random((5, 1, rows, length)) < 0.3, np.float32(-1e4), random("mask", 5, 1, rows, length))
            inputs["mask"][2, :, :, :] = -1e4
            inputs["mask"][2, :, :, 5] = 0
        made = net.model([port(name, *values.shape) for name, values in inputs.items()], [port("y", 5, length, net.hidden)])
        check(tamp, made, inputs, 4e-2 if precision == "bf16" else 5e-3, precision, None, "--vdevice", "quick.json")
        tamp("compile", "model.onnx", "-o", "made", "--precision", precision, "--vdevice", "quick.json")
        rop = next(rop for rop in json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"] if rop["op"] == "Attention")
        assert rop["rkernel"].startswith("attention_rows<") and rop["rtasks"] == (10 if precision == "tf32" else 4), f"{precision}: {rop['rkernel']}, {rop['rtasks']} rTasks"
        assert rop["phases"][0]["template"]["kBias"] == kind, rop["phases"][0]["template"]


def test_large_products(tamp):
    """Tiles of 128 x 192 where they fill the vDevice, in a program that has the registers and the rings for them; not so with few rows."""
    h200 = json.loads((harness.ROOT / "compiler/ir/vdevices/h200.json").read_text())
    (tamp.folder / "small.json").write_text(json.dumps({**h200, "name": "small", "sms": 4, "fp32_tflops": 1.7, "tf32_tflops": 6, "fp16_tflops": 18}))
    for precision, rows, limit, large in [("fp16", 384, 5e-3, True), ("tf32", 384, 5e-3, True), ("fp16", 24, 5e-3, False)]:
        net = Net()
        hidden = net.add("Gelu", net.linear("x", 256, 256))
        named(net, net.add("Add", net.linear(hidden, 256, 256), "x"), "y")
        check(tamp, net.model([port("x", rows, 256)], [port("y", rows, 256)], opset=20, ir=9), None, limit, precision, None, "--vdevice", "small.json")
        tamp("compile", "model.onnx", "-o", "made", "--precision", precision, "--vdevice", "small.json")
        made = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())
        chosen = {rop["rkernel"] for rop in made["rops"] if rop["op"] == "MatMul"}
        assert (f"staged_conv_{precision}<128x192>" in chosen) == large, chosen
        assert made["vdevice"]["threads"] == (384 if large else 320)
        source = (tamp.folder / "made" / "model.cu").read_text()
        stages = h200["input_stages_of_batches" if large else "input_stages"]
        for line in (f"kManyRegisters = {str(large).lower()};", f"__launch_bounds__({384 if large else 320}, 1)", f"kInputStages = {stages};"):
            assert line in source, line


def test_stages_of_a_fixed_number_of_steps(tamp):
    """Where one-tap products are nearly all, those of many steps have bodies for two to four steps a stage (docs/adr/0034); 11 steps of 64
    are neither. On the stand-in the stages are as long, and the loop is the one for any number."""
    for hidden, precision, limit, steps in [(640, "bf16", 4e-2, {2, 3}), (704, "fp16", 5e-3, set())]:
        net = Net(hidden)
        y = net.add("Gelu", net.linear(net.linear("x", 64, hidden), hidden, 3072))
        named(net, net.linear(y, 3072, 64))
        check(tamp, net.model([port("x", 64, 64)], [port("y", 64, 64)], opset=20, ir=9), None, limit, precision, None, "--vdevice", "h200")
        tamp("compile", "model.onnx", "-o", "made", "--precision", precision, "--vdevice", "h200")
        made = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())
        found = {int(phase["template"].get("STAGE_STEPS", 0)) for rop in made["rops"] if rop["shape"][-1] == 3072 for phase in rop["phases"]}
        assert bool(found & {2, 3, 4}) == bool(steps), f"{hidden}: {found}, {[rop['rkernel'] for rop in made['rops']]}"


def feed_forward_and_norm(pre, rows=(2, 19), hidden=128, wide=3072):
    """Two products of long sums with a normalisation behind each. `pre`: their sums are the next residual, too."""
    net, x = Net(hidden), "x"
    for _ in range(2):
        y = net.linear(net.add("Relu", net.linear(net.norm(x) if pre else x, hidden, wide)), wide, hidden)
        x = net.add("Add", x, y) if pre else net.norm(net.add("Add", x, y))
    named(net, net.norm(x) if pre else net.linear(x, hidden, hidden))
    return net.model([port("x", *rows, hidden)], [port("y", *rows, hidden)])


def test_normalisation_in_a_product(tamp):
    """The sum of a product's parts normalises the rows where that is faster, also where a later residual reads the sum. Not in fp32, whose
    products have no boxes, and not where channels lie elsewhere than in rows."""
    for pre in (False, True):
        for precision, limit in [("tf32", 5e-3), ("fp16", 5e-3)] if pre else [("fp16", 5e-3), ("bf16", 4e-2)]:
            check(tamp, feed_forward_and_norm(pre), None, limit, precision, None, "--vdevice", "h200", *["--races"] * (precision == "fp16" and pre))
            rops = rops_of(tamp, "--precision", precision, "--vdevice", "h200")
            assert (rops.count("product with normalised rows"), rops.count("Normalize")) == (2, 1 if pre else 0), f"{precision}: {rops}"
            made = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
            chosen = [rop["rkernel"] for rop in made if rop["op"] == "product with normalised rows"]
            assert all("split" in name and name.endswith("normalized>") for name in chosen), chosen
        assert "product with normalised rows" not in rops_of(tamp, "--precision", "fp32", "--vdevice", "h200")
    check(tamp, feed_forward_and_norm(True), None, 5e-3, "fp16", None, "--vdevice", "h200", "--execution", "graph")
    net = Net(128)
    turned = net.add("Transpose", net.linear("x", 1024, 128), perm=[0, 2, 1])
    named(net, net.add("LayerNormalization", turned, net.weight(19, scale=1)))
    check(tamp, net.model([port("x", 2, 19, 1024)], [port("y", 2, 128, 19)]), None, 5e-3, "fp16", None, "--vdevice", "h200")
    assert "product with normalised rows" not in rops_of(tamp, "--precision", "fp16", "--vdevice", "h200")


def products_and_norms(pre, rows=(2, 19), hidden=256, wide=1024):
    """Products with normalisations between them, too wide for a fused MLP. `pre`: their sums are the next residuals, else the normalised rows are."""
    net = Net(hidden)
    x = net.linear("x", hidden, hidden)
    x = x if pre else net.norm(x)
    for _ in range(3):
        s = net.add("Add", x, net.linear(x, hidden, hidden))
        n = net.norm(s)
        x = net.add("Add", s if pre else n, net.linear(net.add("Gelu", net.linear(n, hidden, wide)), wide, hidden))
        x = x if pre else net.norm(x)
    named(net, x)
    return net.model([port("x", *rows, hidden)], [port("y", *rows, hidden)], opset=20, ir=9)


def test_normalisation_by_moments(tamp):
    """Products behind a normalisation take its rows as they are, and what the product in front says of them. The Normalize stays where a
    residual is made of normalised rows."""
    for pre in (True, False):
        for precision, limit in [("fp16", 5e-3)] if pre else [("bf16", 4e-2), ("tf32", 5e-3)]:
            check(tamp, products_and_norms(pre), None, limit, precision, None, "--vdevice", "h200", *["--races"] * (precision == "fp16"))
            rops = rops_of(tamp, "--precision", precision, "--vdevice", "h200")
            assert rops.count("product by moments") == 6, f"{precision}: {rops}"
            assert (rops.count("Normalize") == 0) == pre, f"{precision}: {rops}"
    check(tamp, products_and_norms(True), None, 5e-3, "fp16", None, "--vdevice", "h200", "--execution", "graph")
    assert "product by moments" not in rops_of(tamp, "--precision", "fp32", "--vdevice", "h200")


def llama(hidden, length, layers=2):
    """Self-attention and a gated feed-forward part, each behind a normalisation."""
    net, x = Net(hidden), "x"
    for _ in range(layers):
        x = net.add("Add", x, net.self_attention(net.norm(x)))
        n = net.norm(x)
        gate, up = (net.add("MatMul", n, net.weight(hidden, 3 * hidden)) for _ in range(2))
        gated = net.add("Mul", net.add("Mul", gate, net.add("Sigmoid", gate)), up)
        x = net.add("Add", x, net.add("MatMul", gated, net.weight(3 * hidden, hidden)))
    named(net, x)
    return net.model([port("x", 1, length, hidden)], [port("y", 1, length, hidden)])


def test_gated_feed_forward(tamp):
    """Where a Llama's weights are few, each rTask reads them all for its rows; where they are many, products share them. Not in tf32."""
    for hidden, length, precision, limit, parts in [(64, 45, "fp16", 5e-3, 2), (64, 37, "bf16", 4e-2, 2), (64, 45, "tf32", 5e-3, 0)]:
        check(tamp, llama(hidden, length), None, limit, precision, None, "--vdevice", "h200", *["--races"] * (precision == "fp16"))
        rops = rops_of(tamp, "--precision", precision, "--vdevice", "h200")
        assert rops.count("gated feed-forward part") == parts, f"{hidden}, {precision}: {rops}"
    (tamp.folder / "model.onnx").write_bytes(llama(512, 45, 1).SerializeToString())
    assert "gated feed-forward part" not in rops_of(tamp, "--precision", "fp16", "--vdevice", "h200")


def feed_forwards(hidden, rows, blocks=1, norm=False, residual=False):
    """Feed-forward parts behind a product of long sums, since such a program's products are by wgmma. `norm`: a product behind that normalises,
    too. `residual`: what the last part makes is added to that product."""
    net = Net(hidden)
    x = net.linear("x", 1024, hidden)
    for _ in range(blocks):
        x = net.add("Add", x, net.linear(net.add("Gelu", net.linear(net.norm(x), hidden, 4 * hidden)), 4 * hidden, hidden))
    y = net.linear(net.norm(x), hidden, hidden) if norm else x
    named(net, net.add("Add", x, y) if residual else y)
    return net.model([port("x", *rows, 1024)], [port("y", *rows, hidden)], opset=20, ir=9)


def test_feed_forward_as_one_level(tamp):
    """A normalisation and the two products behind it become one body, that of a vEU alone or that of a cluster, where these are too large for
    one; in 16 bits it says moments of what it makes, and where only a normalisation reads that, it normalises it. Not in fp32, not where activations stay in fp32, and not where products are not by
    wgmma."""
    limits = {"tf32": 5e-3, "fp16": 5e-3, "bf16": 4e-2}
    for hidden, rows, blocks, norm, residual in [(96, (1, 64), 1, False, False), (96, (1, 77), 2, True, True), (192, (1, 69), 2, True, True),
                                                 (96, (1, 71), 1, True, False), (192, (1, 66), 1, True, False)]:
        for precision, limit in limits.items():
            races = ["--races"] * (norm and precision != "bf16")
            check(tamp, feed_forwards(hidden, rows, blocks, norm, residual), None, limit, precision, None, "--vdevice", "h200", "--records", "none", *races)
            tamp("compile", "model.onnx", "-o", "made", "--precision", precision, "--vdevice", "h200", "--records", "none")
            made = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
            chosen = [rop["rkernel"] for rop in made if rop["op"] == "fused MLP"]
            body = f"feed_forward_{'bf16' if precision == 'bf16' else 'fp16'}<32 rows, {hidden} x {4 * hidden} x {hidden}"
            assert len(chosen) == blocks and all(name.startswith(body) for name in chosen), f"{hidden} {precision}: {chosen}"
            assert all((", cluster" in name) == (hidden == 192) for name in chosen), chosen
            assert ("moments" in chosen[-1]) == (residual and precision != "tf32"), chosen
            assert ("normalized" in chosen[-1]) == (norm and not residual), chosen
    check(tamp, feed_forwards(96, (1, 64)), None, 5e-3, "fp16", None, "--vdevice", "h200", "--execution", "graph")
    for options in [("fp32", "--vdevice", "h200"), ("tf32", "--vdevice", "h200", "--activations", "fp32"), ("fp16", "--vdevice", "a100")]:
        assert "fused MLP" not in rops_of(tamp, "--precision", *options), options


def test_splits_of_a_product_on_a_cluster(tamp):
    """The members of a cluster share the k of a product of long sums, and add up what they have in each other's shared memory: with moments
    of the results or without, also where a tile has fewer rows than the body, and where a thread keeps two rows of a tile, so that what
    comes for the second lies where the member's own sums were, and sums over the input stages; and twice in a program, since what members count
    goes on. A program in clusters has the vEUs that clusters fill."""
    width = 768
    for rows, keeps, tile, precision in [(100, True, "64x50", "fp16"), (100, True, "64x50", "tf32"), (197, False, "64x99", "fp16")]:
        net = Net(width)
        s = "x"
        for _ in range(1 if keeps else 2):
            s = net.add("Add", s, net.linear(net.add("Gelu", net.linear(net.norm(s), width, 3072)), 3072, width))
        named(net, net.linear(net.norm(s), width, width) if keeps else s)
        made = net.model([port("x", 1, rows, width)], [port("y", 1, rows, width)], opset=20, ir=9)
        check(tamp, made, None, 5e-3, precision, None, "--vdevice", "h200", "--records", "none", "--races")
        tamp("compile", "model.onnx", "-o", "made", "--precision", precision, "--vdevice", "h200", "--records", "none")
        program = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())
        source = (tamp.folder / "made" / "model.cu").read_text()
        chosen = [rop["rkernel"] for rop in program["rops"]]
        assert sum(f"<{tile}, cluster" in (name or "") for name in chosen) == (1 if keeps else 2), chosen
        assert any("cluster, moments, rounded" in (name or "") for name in chosen) == (precision == "tf32"), chosen
        assert "__cluster_dims__(4, 1, 1)" in source and "kCluster = 4;" in source
        assert f"kProductsOverInputs = {'false' if keeps else 'true'};" in source  # 99 rows do not fit three stages
    tamp("compile", "model.onnx", "-o", "made", "--precision", "fp16", "--vdevice", "b200")
    assert "__cluster_dims__" not in (tamp.folder / "made" / "model.cu").read_text()


def test_boxes_behind_sums_over_the_input_stages(tamp):
    """Where a vEU has two rTasks of a product, boxes of the second must not come to stages in which the first one still has its sums."""
    net = Net(768)
    named(net, net.add("Add", "x", net.linear(net.add("Gelu", net.linear(net.norm("x"), 768, 9216)), 9216, 768)))
    made = net.model([port("x", 1, 197, 768)], [port("y", 1, 197, 768)], opset=20, ir=9)
    check(tamp, made, None, 5e-3, "fp16", None, "--vdevice", "h200", "--records", "none")
    tamp("compile", "model.onnx", "-o", "made", "--precision", "fp16", "--vdevice", "h200", "--records", "none")
    assert "kProductsOverInputs = true;" in (tamp.folder / "made" / "model.cu").read_text()
    rops = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
    assert any(phase["rtasks"] > 120 for rop in rops for phase in rop["phases"] if phase["body"] == "rk::staged_conv"), rops


def test_rows_of_equal_values_by_moments(tamp):
    """Rows that are all 3.3, which fp16 does not hold: normalised they are nothing but the shift."""
    net, hidden = Net(256), 256
    x = net.linear("x", hidden, hidden)
    for _ in range(3):
        same = net.add("Add", net.add("MatMul", x, net.constant(np.zeros((hidden, hidden), np.float32))), net.constant(np.full(hidden, 3.3, np.float32)))
        x = net.linear(net.add("Gelu", net.linear(net.norm(same), hidden, 1024)), 1024, hidden)
    named(net, x)
    check(tamp, net.model([port("x", 2, 19, hidden)], [port("y", 2, 19, hidden)], opset=20, ir=9), None, 5e-3, "fp16", None, "--vdevice", "h200")
    assert "product by moments" in rops_of(tamp, "--precision", "fp16", "--vdevice", "h200")
    check(tamp, pixel_blocks(96, 7, 9, same=3.3), None, 5e-3, "fp16", None, "--vdevice", "h200")
    assert "depthwise convolution with moments" in rops_of(tamp, "--precision", "fp16", "--vdevice", "h200")


def pixel_blocks(channels, height, width, images=1, same=None, taps_scale=0.2):
    """ConvNeXt's blocks: a depthwise convolution, a normalisation of each pixel and two products, with a factor for each channel. `same`: what
    each convolution makes, everywhere."""
    net = Net(channels)
    x = net.add("Conv", "x", net.weight(channels, channels, 1, 1), net.weight(channels, scale=0.1))
    for _ in range(3):
        taps = net.weight(channels, 1, 7, 7, scale=taps_scale) if same is None else net.constant(np.zeros((channels, 1, 7, 7), np.float32))
        bias = net.weight(channels, scale=0.1) if same is None else net.constant(np.full(channels, same, np.float32))
        filtered = net.add("Conv", x, taps, bias, group=channels, pads=[3, 3, 3, 3])
        rows = net.norm(net.add("Transpose", filtered, perm=[0, 2, 3, 1]))
        rows = net.linear(net.add("Gelu", net.linear(rows, channels, 4 * channels)), 4 * channels, channels)
        x = net.add("Add", x, net.add("Mul", net.add("Transpose", rows, perm=[0, 3, 1, 2]), net.constant(np.full((channels, 1, 1), 0.5, np.float32))))
    named(net, x)
    return net.model([port("x", images, channels, height, width)], [port("y", images, channels, height, width)], opset=20, ir=9)


def test_normalisation_by_moments_of_pixels(tamp):
    """A depthwise convolution in front of a normalisation says what the product behind needs; 96 channels fill one and a half boxes, and 13 x 17
    pixels no tile. In tf32 its results are not known to be bounded: they stay in fp32, and the product reads them rounded."""
    for channels, images in [(96, 1), (128, 2)]:
        made = pixel_blocks(channels, 13, 17, images)
        check(tamp, made, None, 5e-3, "fp16", None, "--vdevice", "h200", *["--races"] * (images == 1))
        rops = rops_of(tamp, "--precision", "fp16", "--vdevice", "h200")
        assert rops.count("depthwise convolution with moments") == 3 and "Normalize" not in rops, rops
        tamp("compile", "model.onnx", "-o", "made", "--precision", "fp16", "--vdevice", "h200", says="results in fp16, in fp32: none")  # moments are no activations
    check(tamp, made, None, 5e-3, "fp16", None, "--vdevice", "h200", "--execution", "graph")
    check(tamp, made, None, 4e-2, "bf16", None, "--vdevice", "h200")
    check(tamp, made, None, 5e-3, "tf32", None, "--vdevice", "h200", "--races")
    rops = rops_of(tamp, "--precision", "tf32", "--vdevice", "h200")
    assert rops.count("depthwise convolution with moments") == 3 and "Normalize" not in rops, rops
    for options in [("--precision", "tf32", "--activations", "fp32"), ("--precision", "fp32")]:
        rops = rops_of(tamp, *options, "--vdevice", "h200")
        assert "depthwise convolution with moments" not in rops and rops.count("Normalize") == 3, rops


def test_pixels_that_fp16_does_not_hold(tamp):
    """In tf32 a pixel whose values are too large for fp16, or all but equal, is read from fp32."""
    for changed in [{"taps_scale": 1e6}, {"same": 3.3}, {"taps_scale": 1e-7}]:
        check(tamp, pixel_blocks(256, 7, 9, **changed), None, 5e-3, "tf32", None, "--vdevice", "h200")
        rops = rops_of(tamp, "--precision", "tf32", "--vdevice", "h200")
        assert "depthwise convolution with moments" in rops, (changed, rops)
    check(tamp, pixel_blocks(256, 7, 9, same=3.3), None, 5e-3, "tf32", None, "--vdevice", "h200", "--execution", "graph")


def stem(channels=96, images=1, reads=False):
    """How ConvNeXt and Swin begin: a convolution of patches whose pixels are normalised. `reads`: something else reads the convolution, too."""
    net = Net(channels)
    patches = net.add("Conv", "x", net.weight(channels, 3, 4, 4), net.weight(channels, scale=0.1), strides=[4, 4])
    rows = net.norm(net.add("Transpose", patches, perm=[0, 2, 3, 1]))
    rows = net.linear(net.add("Gelu", net.linear(rows, channels, 4 * channels)), 4 * channels, channels)
    if reads:
        rows = net.add("Add", rows, net.add("Transpose", patches, perm=[0, 2, 3, 1]))
    named(net, rows)
    return net.model([port("x", images, 3, 52, 76)], [port("y", images, 13, 19, channels)], opset=20, ir=9)


def test_normalisation_behind_patches(tamp):
    """The convolution normalises its pixels itself where it alone is read by the normalisation, and on tensor cores."""
    for precision, tolerance in [("fp16", 5e-3), ("tf32", 5e-3), ("bf16", 4e-2)]:
        check(tamp, stem(), None, tolerance, precision, None, "--vdevice", "h200", "--records", "none")
        rops = rops_of(tamp, "--precision", precision, "--vdevice", "h200", "--records", "none")
        assert "convolution with normalised pixels" in rops and "Normalize" not in rops, (precision, rops)
    check(tamp, stem(images=2), None, 5e-3, "fp16", None, "--vdevice", "h200", "--execution", "graph")
    assert "convolution with normalised pixels" not in rops_of(tamp, "--precision", "fp32", "--vdevice", "h200")
    check(tamp, stem(reads=True), None, 5e-3, "fp16", None, "--vdevice", "h200")
    assert "convolution with normalised pixels" not in rops_of(tamp, "--precision", "fp16", "--vdevice", "h200")


def merged_squares(net, rows, columns):
    """Patch merging: four neighbouring pixels side by side, normalised and multiplied."""
    parts = [net.add("Slice", rows, net.ints(h, w), net.ints(10 ** 6, 10 ** 6), net.ints(1, 2), net.ints(2, 2)) for w in (0, 1) for h in (0, 1)]
    net.hidden = 4 * columns
    joined = net.norm(net.add("Concat", *parts, axis=3))
    net.hidden = 2 * columns
    return net.linear(joined, 4 * columns, 2 * columns)


def merged_stages(images=1, height=12, width=20, channels=96, mixed=False):
    """Two stages of Swin without their attention: each a feed-forward part on pixels, then squares of four pixels side by side, normalised and multiplied.
    `mixed`: the last squares are of any four pixels."""
    net = Net(channels)
    patches = net.add("Conv", "x", net.weight(channels, 3, 4, 4), net.weight(channels, scale=0.1), strides=[4, 4])
    rows = net.norm(net.add("Transpose", patches, perm=[0, 2, 3, 1]))
    for stage in range(2):
        width_in = net.hidden
        hidden = net.add("Gelu", net.linear(net.norm(rows), width_in, 4 * width_in))
        rows = net.add("Add", rows, net.linear(hidden, 4 * width_in, width_in))
        if mixed and stage == 1:
            order = np.random.default_rng(3).permutation(images * height * width // 4)
            flat = net.add("Gather", net.add("Reshape", rows, net.ints(order.size, width_in)), net.constant(order, np.int64), axis=0)
            net.hidden = 4 * width_in
            joined = net.norm(net.add("Reshape", flat, net.ints(images, height // 4, width // 4, 4 * width_in)))
            net.hidden = 2 * width_in
            rows = net.linear(joined, 4 * width_in, 2 * width_in)
        else:
            rows = merged_squares(net, rows, width_in)
    named(net, rows)
    return net.model([port("x", images, 3, 4 * height, 4 * width)], [port("y", images, height // 4, width // 4, 4 * channels)], opset=20, ir=9)


def test_rows_in_the_order_of_the_next_stage(tamp):
    """The convolution of patches stores its pixels as the squares of squares that two mergings want, and no normalisation takes rows by a table.
    Where the order is none of squares, the first normalisation takes them by a table."""
    signatures = lambda op: [rop["signature"] for rop in json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"] if rop["op"] == op]
    for precision, limit in [("fp16", 5e-3), ("tf32", 5e-3), ("bf16", 4e-2)]:
        for images in (1, 2):
            check(tamp, merged_stages(images), None, limit, precision, None, "--vdevice", "h200", "--records", "none")
        rops_of(tamp, "--precision", precision, "--vdevice", "h200", "--records", "none")
        assert all("i64" in text for text in signatures("convolution with normalised pixels")) and signatures("convolution with normalised pixels"), precision
        assert not any("i64" in text for text in signatures("Normalize")), (precision, signatures("Normalize"))
    check(tamp, merged_stages(mixed=True), None, 5e-3, "fp16", None, "--vdevice", "h200")
    rops_of(tamp, "--precision", "fp16", "--vdevice", "h200")
    assert not signatures("convolution with normalised pixels") and sum("i64" in text for text in signatures("Normalize")) == 1, signatures("Normalize")
    check(tamp, merged_stages(2), None, 1e-4, "fp32", None, "--vdevice", "h200")
    check(tamp, merged_stages(), None, 5e-3, "fp16", None, "--vdevice", "h200", "--execution", "graph")


def window_blocks(windows, rows, channels, heads, masked=False):
    """A block of Swin, without the reordering around it: attention within each window, a bias for each pair of its rows, or for each window."""
    net, size = Net(channels), channels // heads
    x = net.linear("x", channels, channels)
    parts = net.add("Transpose", net.add("Reshape", net.linear(net.norm(x), channels, 3 * channels), net.ints(windows, rows, 3, heads, size)), perm=[2, 0, 3, 1, 4])
    q, k, v = (net.add("Gather", parts, net.constant(i, np.int64), axis=0) for i in range(3))
    scores = net.add("MatMul", net.add("Mul", q, net.constant(size ** -0.5)), net.add("Transpose", k, perm=[0, 1, 3, 2]))
    bias = random(f"w{len(net.weights)}", windows if masked else 1, heads, rows, rows)
    if masked:
        bias[1:, :, : rows // 2, rows // 2:] = -100
    weights = net.add("Softmax", net.add("Add", scores, net.constant(bias)), axis=-1)
    mixed = net.add("Transpose", net.add("MatMul", weights, v), perm=[0, 2, 1, 3])
    x = net.add("Add", x, net.linear(net.add("Reshape", mixed, net.ints(windows, rows, channels)), channels, channels))
    named(net, net.add("Add", x, net.linear(net.add("Gelu", net.linear(net.norm(x), channels, 4 * channels)), 4 * channels, channels)))
    return net.model([port("x", windows, rows, channels)], [port("y", windows, rows, channels)], opset=20, ir=9)


def test_attention_in_windows(tamp):
    """A warp has 16 queries of a window and all of its keys, with or without a bias for each window; heads of 32 and of 24 elements."""
    cases = [((4, 49, 96, 3), True, "fp16", 5e-3, ["--races"]), ((3, 20, 48, 2), True, "bf16", 4e-2, []),
             ((2, 64, 64, 2), False, "tf32", 5e-3, ["--execution", "graph"])]
    for shape, masked, precision, limit, options in cases:
        check(tamp, window_blocks(*shape, masked=masked), None, limit, precision, None, "--vdevice", "h200", *options)
        tamp("compile", "model.onnx", "-o", "made", "--precision", precision, "--vdevice", "h200")
        made = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
        chosen = [rop["rkernel"] for rop in made if rop["op"] == "Attention"]
        assert len(chosen) == 1 and chosen[0].startswith("attention_few"), f"{shape} {precision}: {chosen}"
    for precision, limit in [("fp32", 1e-4), ("tf32", 5e-3)]:  # windows of four rows, for which there is a body that takes no table
        check(tamp, shifted_windows(1, 4, 0, 32, 2, 2), None, limit, precision, None, "--vdevice", "h200")


def shifted_windows(images, edge, shift, channels, heads, window=7, columns=None, merges=False):
    """Two blocks of Swin around a map: plain windows, then windows of the map rolled by `shift`, with a mask between its parts. `columns`: of the rows that
    the map is a product of. `merges`: the map is of normalised patches instead, and behind it stand patch merging and two long products."""
    net, size, across, rows = Net(channels), channels // heads, edge // window, window * window
    map_shape, grid = (images, edge, edge, channels), (images, across, window, across, window, channels)

    def rolled(x, by):
        for axis in (1, 2):
            parts = [net.add("Slice", x, net.ints(start), net.ints(end), net.ints(axis)) for start, end in ((by, edge), (0, by))]
            x = net.add("Concat", *parts, axis=axis)
        return x

    def attention(x, by):
        if by:
            x = rolled(x, by)
        cut = net.add("Transpose", net.add("Reshape", x, net.ints(*grid)), perm=[0, 1, 3, 2, 4, 5])
        windows = images * across * across
        qkv = net.linear(net.add("Reshape", cut, net.ints(windows, rows, channels)), channels, 3 * channels)
        parts = net.add("Transpose", net.add("Reshape", qkv, net.ints(windows, rows, 3, heads, size)), perm=[2, 0, 3, 1, 4])
        q, k, v = (net.add("Gather", parts, net.constant(i, np.int64), axis=0) for i in range(3))
        scores = net.add("MatMul", net.add("Mul", q, net.constant(size ** -0.5)), net.add("Transpose", k, perm=[0, 1, 3, 2]))
        bias = random(f"w{len(net.weights)}", 1, heads, rows, rows)
        if by:
            side = np.repeat([0, 1, 2], [edge - window, window - by, by])
            part = np.tile((side[:, None] * 3 + side).reshape(across, window, across, window).transpose(0, 2, 1, 3).reshape(-1, rows), (images, 1))
            bias = bias - 100 * (part[:, None, :, None] != part[:, None, None, :])
        weights = net.add("Softmax", net.add("Add", scores, net.constant(bias)), axis=-1)
        mixed = net.add("Transpose", net.add("MatMul", weights, v), perm=[0, 2, 1, 3])
        mixed = net.linear(net.add("Reshape", mixed, net.ints(windows, rows, channels)), channels, channels)
        back = net.add("Transpose", net.add("Reshape", mixed, net.ints(*(grid[i] for i in (0, 1, 3, 2, 4, 5)))), perm=[0, 1, 3, 2, 4, 5])
        back = net.add("Reshape", back, net.ints(*map_shape))
        return rolled(back, edge - by) if by else back

    if merges:
        patches = net.add("Conv", "x", net.weight(channels, 3, 4, 4), net.weight(channels, scale=0.1), strides=[4, 4])
        x = net.norm(net.add("Transpose", patches, perm=[0, 2, 3, 1]))
    else:
        x = net.linear("x", columns or channels, channels)
    for by in (0, shift):
        x = net.add("Add", x, attention(net.norm(x), by))
        x = net.add("Add", x, net.linear(net.add("Gelu", net.linear(net.norm(x), channels, 4 * channels)), 4 * channels, channels))
    if not merges:
        named(net, x)
        return net.model([port("x", images, edge, edge, columns or channels)], [port("y", *map_shape)], opset=20, ir=9)
    named(net, net.linear(net.linear(merged_squares(net, x, channels), 2 * channels, 2048), 2048, channels))
    return net.model([port("x", images, 3, 4 * edge, 4 * edge)], [port("y", images, edge // 2, edge // 2, channels)], opset=20, ir=9)


def attended_windows(shift, window, images=1):
    """The same behind a product of long sums, since such a program's products are by wgmma; heads have 32 columns."""
    return shifted_windows(images, 2 * window, shift, 64, 2, window, columns=2048)


def test_self_attention_as_one_level(tamp):
    """A normalisation, the product that makes queries, keys and values, and attention within windows become one body, by a table of the windows' rows;
    also of three images. Not in fp32, not where activations stay in fp32, and not where products are not by wgmma."""
    limits = {"tf32": 5e-3, "fp16": 5e-3, "bf16": 4e-2}
    for shift, window, images in [(3, 7, 1), (0, 6, 3)]:
        for precision, limit in limits.items():
            races = ["--races"] * (window == 7 and precision != "bf16")
            check(tamp, attended_windows(shift, window, images), None, limit, precision, None, "--vdevice", "h200", "--records", "none", *races)
            tamp("compile", "model.onnx", "-o", "made", "--precision", precision, "--vdevice", "h200", "--records", "none")
            made = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
            chosen = [rop["rkernel"] for rop in made if rop["op"] == "fused self-attention"]
            body = f"self_attention_{'bf16' if precision == 'bf16' else 'fp16'}<"
            assert len(chosen) == 2 and all(name.startswith(body) for name in chosen), f"{window} {precision}: {chosen}"
            assert all(rop["op"] != "Attention" for rop in made), f"{window} {precision}: an Attention is left"
    check(tamp, attended_windows(3, 7), None, 5e-3, "fp16", None, "--vdevice", "h200", "--execution", "graph")
    for options in [("fp32", "--vdevice", "h200"), ("tf32", "--vdevice", "h200", "--activations", "fp32"), ("fp16", "--vdevice", "a100")]:
        assert "fused self-attention" not in rops_of(tamp, "--precision", *options), options


def test_a_stage_of_swin_in_the_order_of_the_next(tamp):
    """Patches, attention within shifted windows, and patch merging, of one image and of two: tables of the windows' rows are in the other order."""
    for images, precision, limit in [(1, "fp16", 5e-3), (2, "tf32", 5e-3), (2, "fp16", 5e-3)]:
        check(tamp, shifted_windows(images, 14, 3, 64, 2, merges=True), None, limit, precision, None, "--vdevice", "h200", "--records", "none")
        tamp("compile", "model.onnx", "-o", "made", "--precision", precision, "--vdevice", "h200", "--records", "none")
        made = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
        tables = [rop["op"] for rop in made if "i64" in rop["signature"]]
        assert tables == ["convolution with normalised pixels", "fused self-attention", "fused self-attention"], f"{images} {precision}: {tables}"
        assert made[0]["rkernel"].startswith("patch_normalize<") and "ordered" in made[0]["rkernel"], made[0]["rkernel"]


def test_attention_in_shifted_windows(tamp):
    """Attention takes the rows of its windows by a table. So all else stays in the map's order: no rows are gathered, and no normalisation
    takes them by a table. Heads of 24 elements, which are less than a row of the body; two images without a shift."""
    cases = [((1, 14, 3, 64, 2), "fp16", 5e-3, ["--races"], "attention_few"), ((1, 14, 3, 64, 2), "bf16", 4e-2, [], "attention_few"),
             ((1, 14, 3, 64, 2), "tf32", 5e-3, ["--activations", "fp32"], "attention<"), ((1, 14, 3, 64, 2), "tf32", 5e-3, [], "attention"),
             ((1, 12, 2, 48, 2, 6), "fp16", 5e-3, ["--execution", "graph"], "attention_few"), ((2, 14, 0, 64, 2), "fp16", 5e-3, [], "attention_few")]
    for shape, precision, limit, options, body in cases:
        check(tamp, shifted_windows(*shape), None, limit, precision, None, "--vdevice", "h200", *options)
        tamp("compile", "model.onnx", "-o", "made", "--precision", precision, "--vdevice", "h200", *(option for option in options if option != "--races"))
        made = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
        assert all(rop["op"] != "Gather" for rop in made), f"{shape} {precision}: a Gather is left"
        assert not any(rop["op"] == "Normalize" and "i64" in rop["signature"] for rop in made), f"{shape} {precision}: a Normalize has a table"
        chosen = [rop["rkernel"] for rop in made if rop["op"] == "Attention"]
        assert len(chosen) == 2 and all(name.startswith(body) and "by a table" in name for name in chosen), f"{shape} {precision}: {chosen}"
    tamp("compile", "model.onnx", "-o", "made", "--precision", "fp32", "--vdevice", "h200")
    made = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
    assert all(rop["op"] != "Attention" for rop in made), "fp32 has no attention"


def rops_of(tamp, *options):
    tamp("compile", "model.onnx", "-o", "made", *options)
    return [rop["op"] for rop in json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]]


def attentions(tamp, *options):
    return rops_of(tamp, *options).count("Attention")


def test_attention_with_the_sequence_first(tamp):
    """No copies and no sums of their own at any batch: the order of the rows that the attention asks for and the one back cancel."""
    for precision, limit in [("fp32", 1e-4), ("tf32", 5e-3), ("fp16", 5e-3)]:
        options = ("--precision", precision, "--vdevice", "h200")
        check(tamp, sequence_first(3), limit=limit, precision=precision)
        of_three = rops_of(tamp, *options)
        (tamp.folder / "model.onnx").write_bytes(sequence_first(2).SerializeToString())
        of_two = rops_of(tamp, *options)
        assert of_three == of_two and of_three.count("Elementwise") == 0, (of_two, of_three)


def test_attention_on_tensor_cores(tamp):
    """One rOperator a layer in tf32, fp16 and bf16; in fp32, too, since there are few queries, and not on tensor cores."""
    for precision, limit in [("tf32", 5e-3), ("fp16", 5e-3), ("bf16", 4e-2)]:
        check(tamp, bert(), bert_inputs(), limit=limit, precision=precision)
        assert attentions(tamp, "--precision", precision, "--vdevice", "h200") == 2
    assert attentions(tamp, "--precision", "fp32", "--vdevice", "h200") == 2
    rops = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
    assert all(rop["rkernel"].startswith("attention_step<") for rop in rops if rop["op"] == "Attention")


def test_every_form_of_attention_in_tf32(tamp):
    """What the tests below ask in fp32."""
    tf32 = {"limit": 5e-3, "precision": "tf32"}
    check(tamp, decoder(), **tf32)
    made = multi_head()
    check(tamp, made, inputs_of(made, counting=[5, 3], padding=[[1] * LENGTH, [1] * 4 + [0] * (LENGTH - 4)]), same=multi_head(packs=False), **tf32)
    made = group_query()
    check(tamp, made, inputs_of(made, prompt_lengths=[LENGTH - 1] * 2, lengths=[7, 5]), **tf32)
    assert attentions(tamp, "--precision", "tf32", "--vdevice", "h200") == 2  # all but those of a smooth softmax and of a cap


def test_decoder(tamp):
    check(tamp, decoder())


def chains_and_copies(tamp, *options):
    """Names of the elementwise rOperators that do something, and of those that only copy. None of the first reads another one."""
    tamp("compile", "model.onnx", "-o", "made", *options)
    rops = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
    elementwise = [rop for rop in rops if rop["op"] == "Elementwise"]
    chains, copied = ([rop["name"] for rop in elementwise if ("{identity(i0)}" in rop["signature"]) == is_copy] for is_copy in (False, True))
    for rop in elementwise:
        assert not {rops[source]["name"] for source in rop["after"]} & set(chains + copied), rop["name"]
    return chains, copied


def test_rotary_position_embedding(tamp):
    """One level for queries and keys: a chain for each half, which reads the products and is read by the attention."""
    forms = {"halves": rotated_halves, "pairs": rotated_pairs, "operator": rotated_operator(0), "operator, interleaved": rotated_operator(1)}
    for name, form in forms.items():
        for precision in ("tf32", "fp16"):
            check(tamp, rotary(form, shares=1, known=precision == "tf32"), None, 5e-3, precision, None, "--vdevice", "h200")
            chains, copied = chains_and_copies(tamp, "--precision", precision, "--vdevice", "h200")
            assert len(chains) == 4 and not copied, (name, precision, chains, copied)


def test_rotary_embedding_of_onnx_runtime(tamp):
    made = ms_rotary()
    ids = np.random.default_rng(3).integers(0, 16, (2, LENGTH))
    check(tamp, made, inputs_of(made) | {"ids": ids, "first": np.array([5])})
    made.graph.node[0].attribute.append(helper.make_attribute("is_packed_batching", 1))
    (tamp.folder / "model.onnx").write_bytes(made.SerializeToString())
    tamp("compile", "model.onnx", "-o", "out", code=2, says="attribute 'is_packed_batching' is 1, supported: 0")


def test_grouped_queries_repeat_no_keys(tamp):
    """Three heads of queries to each head of keys and values. Behind a past nothing is joined in front of the attention."""
    for precision, limit in [("fp32", 1e-4), ("tf32", 5e-3), ("fp16", 5e-3)]:
        for length, past in ((LENGTH, 0), (1, 5)):
            check(tamp, rotary(rotated_halves, length, past, shares=3), None, limit, precision, None, "--vdevice", "h200")
            options = ("--precision", precision, "--vdevice", "h200")
            rops = rops_of(tamp, *options)
            assert (rops.count("Attention"), rops.count("attention of a step")) == ((0, 1) if past else (1, 0)), rops
            chains, copied = chains_and_copies(tamp, *options)
            assert len(chains) == 4 and not copied, (precision, past, chains, copied)


def words_of(tamp):
    """How many parts of the arena of the folder `made` are words, and whether its program has two more warps for them."""
    parts = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["arena"]
    source = (tamp.folder / "made" / "model.cu").read_text()
    named = len(re.findall(r"^//( +\d+){2}  words of ", source, re.MULTILINE))
    words = [part for part in parts if part["what"] == "words"]
    assert len(words) == named and all(part["tensors"] and part["made_by"] and part["needed_by"] for part in words), (named, words)
    return named, re.search(r"kWordsBytes = [1-9]\d*;", source) is not None


def test_decoder_step(tamp):
    """Keys of the past are read where the caller has them, and rows are turned by the attention; many keys are cut into shares."""
    for past, kind in [(70, "attention_step<64, turned>"), (3000, "attention_step<64, turned, ")]:
        for precision, limit in [("fp32", 1e-4), ("fp16", 5e-3)] if past < 100 else [("tf32", 5e-3), ("bf16", 4e-2)]:
            check(tamp, decoder_step(past), None, limit, precision, None, "--vdevice", "h200")
            tamp("compile", "model.onnx", "-o", "made", "--precision", precision, "--vdevice", "h200")
            rops = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
            step, = [rop for rop in rops if rop["op"] == "attention of a step"]
            assert step["rkernel"].startswith(kind) and not any(rop["name"].endswith(".copy") for rop in rops), step["rkernel"]
            assert step["phases"][0]["template"]["kEarly"] == "true"
    # What the program makes itself is not loaded before it is there.
    check(tamp, decoder_step(computed=True), None, 5e-3, "fp16", None, "--vdevice", "h200", "--races")
    tamp("compile", "model.onnx", "-o", "made", "--precision", "fp16", "--vdevice", "h200")
    rops = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
    assert [rop["phases"][0]["template"]["kEarly"] for rop in rops if rop["op"] == "attention of a step"] == ["false"]
    # A model of f16: the keys are read as they are, too.
    made = in_type(decoder_step(), TensorProto.FLOAT16)
    (tamp.folder / "model.onnx").write_bytes(made.SerializeToString())
    run_checked(tamp, "--races", "--precision", "fp16", "--vdevice", "h200")
    tamp("compile", "model.onnx", "-o", "made", "--precision", "fp16", "--vdevice", "h200")
    rops = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
    assert not any(rop["name"].endswith((".copy", ".cast")) for rop in rops), [rop["name"] for rop in rops]


def test_masks_as_pytorch_exports_them(tamp):
    """A masked softmax that gives zeros where there is no key is one rOperator with its products, and all layers share the mask. The third elementwise
    rOperator makes x narrow."""
    length = 24
    inputs = {"x": random("x", 1, length, 64), "mask": np.array([[0] * 2 + [1] * (length - 2)], np.int64)}
    for precision, limit in [("tf32", 5e-3), ("fp16", 5e-3)]:
        check(tamp, prompt(length), inputs, limit, precision, None, "--vdevice", "h200")
        rops = rops_of(tamp, "--precision", precision, "--vdevice", "h200")
        assert (rops.count("Attention"), rops.count("Softmax"), rops.count("Elementwise")) == (2, 0, 3), f"{precision}: {rops}"


def test_masks_as_large_as_floats(tamp):
    """A query whose keys are all masked by the least number, or by another beside which scores vanish, weighs all keys alike. So it is in 16 bits, which do not hold the least
    number of f32."""
    length = 24
    mask = np.where(np.random.default_rng(3).random((2, 1, length, length)) < 0.3, LEAST, random("mask", 2, 1, length, length))
    for row, of in enumerate((LEAST, -1e30, 1e30, 1e38, -65504 * 1e4)):
        mask[0, 0, row] = of
    mask[0, 0, 7], mask[0, 0, 7, 3] = LEAST, 0
    mask[0, 0, 8], mask[0, 0, 8, :5] = -1e30, -np.inf
    inputs = {"x": random("x", 2, length, 64), "tokens": np.array([[0] * 5 + [1] * (length - 5), [0] * length]), "mask": mask.astype(np.float32)}
    for precision, limit in [("fp32", 1e-4), ("tf32", 5e-3), ("fp16", 5e-3), ("bf16", 4e-2)]:
        check(tamp, masked_ways(length), inputs, limit, precision, None, "--vdevice", "h200")
        assert precision == "fp32" or attentions(tamp, "--precision", precision, "--vdevice", "h200") == 4, precision


def test_a_cache_of_constant_size(tamp):
    """Keys behind the token's place are masked; many keys are cut into shares."""
    for places, place, forms in [(70, 33, [(False, "fp32", 1e-4), (True, "tf32", 5e-3)]), (400, 399, [(False, "fp16", 5e-3)])]:
        size = 32
        inputs = {"x": random("x", 1, 1, HEADS * size), "place": np.array([place], np.int64), "cache_k": random("cache_k", 1, HEADS, places, size), "cache_v": random("cache_v", 1, HEADS, places, size)}
        for written_out, precision, limit in forms:
            check(tamp, cached_step(places, size, written_out), inputs, limit, precision, cached_step(places, size, True), "--vdevice", "h200")
            tamp("compile", "model.onnx", "-o", "made", "--precision", precision, "--vdevice", "h200")
            rops = json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]
            steps = [phase for rop in rops for phase in rop["phases"] if "attention_step" in phase["body"]]
            assert steps[0]["body"] == "rk::attention_step_placed" and not any(rop["op"] == "Attention" for rop in rops), f"{steps}, {[rop['op'] for rop in rops]}"
            # It begins before its query is made, and takes that as words.
            template = steps[0]["template"]
            assert template["kEarly"] == "true" and template["kStaged"] != "0" and template["WORDS"] != "0", template
            assert [rop["phases"][0]["template"]["Cell"] for rop in rops if rop["op"] == "Scatter"] == ["uint4"] * 2


def test_one_token(tamp):
    """Normalisations and gates are no levels of a decoder's program: its products make their rows."""
    for precision, limit in [("fp32", 1e-4), ("tf32", 5e-3), ("bf16", 4e-2)]:
        check(tamp, one_token(), None, limit, precision, None, "--vdevice", "h200", "--repeat", 4)
        rops = rops_of(tamp, "--precision", precision, "--vdevice", "h200")
        assert (rops.count("product with a prologue"), rops.count("Normalize")) == (12, 0), f"{precision}: {rops}"
        assert words_of(tamp) == (15, True), f"{precision}: {words_of(tamp)}"  # all that products and attention make but y
        source = (tamp.folder / "made" / "model.cu").read_text()
        assert ("kWeightStageBytes = 51200;" in source) == (precision != "fp32"), precision  # the ring of programs of one row
    check(tamp, one_token(), None, 5e-3, "fp16", None, "--vdevice", "h200", "--races")
    check(tamp, one_token(), None, 5e-3, "fp16", None, "--vdevice", "h200", "--execution", "graph")
    rops_of(tamp, "--precision", "fp16", "--vdevice", "h200", "--execution", "graph")
    assert words_of(tamp) == (0, False)


def test_a_row_far_from_zero_is_normalised(tamp):
    """A product of one row subtracts a value of the row instead of its mean. That costs no digits where the mean is large, nor where that value is.
    (Rows of 1000 with a deviation of 1 have four digits less in fp32 than others, by any formula: 2.7e-5 on an H200, 3e-6 on the stand-in.)"""
    fp32 = 1e-5 if models_test.DEVICE == "cpu" else 1e-4
    hidden = 96
    net = Net(hidden)
    named(net, net.linear(net.norm("x"), hidden, 40))
    made = net.model([port("x", 1, 1, hidden)], [port("y", 1, 1, 40)])
    at, x = np.arange(hidden), random("x", 1, 1, hidden)
    for row in (x + 1000, np.where(at % 32 == 0, 300, x), np.where(at == 0, -5000, x + 100)):
        for precision, limit in [("fp32", fp32), ("tf32", 1e-3)]:
            check(tamp, made, {"x": row.astype(np.float32)}, limit, precision, None, "--vdevice", "h200")
    assert rops_of(tamp, "--precision", "tf32", "--vdevice", "h200") == ["product with a prologue"]


def test_what_the_optimiser_writes(tamp):
    inputs = bert_inputs()
    inputs["segments"] = np.arange(2 * LENGTH).reshape(2, LENGTH) // 9
    check(tamp, optimised(), {name: values.astype(np.int32) for name, values in inputs.items()})


def inputs_of(made, **given):
    floats = {entry.name: random(entry.name, *(dim.dim_value for dim in entry.type.tensor_type.shape.dim)) for entry in made.graph.input
              if entry.type.tensor_type.elem_type == TensorProto.FLOAT}
    return floats | {name: np.array(values, np.int32) for name, values in given.items()}


def test_multi_head_attention(tamp):
    made = multi_head()
    check(tamp, made, inputs_of(made, counting=[5, 3], padding=[[1] * LENGTH, [1] * 4 + [0] * (LENGTH - 4)]), same=multi_head(packs=False))


def test_group_query_attention(tamp):
    """The second sequence is two keys shorter than the first."""
    made = group_query()
    check(tamp, made, inputs_of(made, prompt_lengths=[LENGTH - 1] * 2, lengths=[7, 5]))


def test_group_query_attention_with_a_cache(tamp):
    for place, precision, limit in [(0, "fp32", 1e-4), (13, "fp16", 5e-3)]:
        inputs = inputs_of(cached_group_query(), last=[place], total=[place + 1])
        for name in ("past_key", "past_value"):
            inputs[name][:, :, place:] = 0  # ONNX Runtime makes zeros of what does not count
        check(tamp, cached_group_query(), inputs, limit, precision, None, "--vdevice", "h200")
    rops = rops_of(tamp, "--precision", "fp16", "--vdevice", "h200")
    assert (rops.count("Attention"), rops.count("Scatter"), rops.count("Softmax")) == (1, 2, 0), rops


def test_group_query_attention_names_what_it_lacks(tamp):
    made = group_query()
    made.graph.node[0].attribute.append(helper.make_attribute("kv_cache_bit_width", 8))
    (tamp.folder / "model.onnx").write_bytes(made.SerializeToString())
    tamp("compile", "model.onnx", "-o", "out", code=2, says="attribute 'kv_cache_bit_width' is not 0, supported: 0")
    made = cached_group_query()
    for node in made.graph.node[:1]:
        node.input[3:5] = ["", ""]
    (tamp.folder / "model.onnx").write_bytes(made.SerializeToString())
    tamp("compile", "model.onnx", "-o", "out", code=2, says="total_sequence_length is known at run time only and past_key has 0 places, supported: a constant")


def test_normalisations(tamp):
    check(tamp, norms())


def test_f16_model(tamp):
    check(tamp, in_type(bert(), TensorProto.FLOAT16), bert_inputs(), limit=1e-2)


def test_bf16_model(tamp):
    """ONNX Runtime has no bf16 on CPUs; the f32 model's answer is as near as bf16 lets it be."""
    session = onnxruntime.InferenceSession(bert().SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, bert_inputs())[0]
    made = in_type(bert(), TensorProto.BFLOAT16)
    made.graph.node.append(m.node("Cast", ["y"], ["wide"], "widen", to=TensorProto.FLOAT))
    del made.graph.output[:]
    made.graph.output.append(port("wide", 2, LENGTH, HIDDEN))
    compare(answers(tamp, made, bert_inputs()), {"wide": expected}, 5e-2)


def test_half_precision_is_as_fast(tamp):
    """A model of f16 or bf16 has the rOperators of the same model in f32, whose ports are 16 bits besides; one of mixed types, too. In fp32 every step is rounded."""
    wide = vit()
    inputs = {"x": random("x", 2, 3, 16, 16)}
    expected = dict(zip("y", onnxruntime.InferenceSession(wide.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)))
    for precision, onnx_type, limit in [("fp16", TensorProto.FLOAT16, 1e-2), ("tf32", TensorProto.FLOAT16, 1e-2), ("bf16", TensorProto.BFLOAT16, 8e-2), ("fp16", TensorProto.BFLOAT16, 8e-2)]:
        halves = in_type(wide, onnx_type)
        if onnx_type == TensorProto.FLOAT16:
            got = answers(tamp, halves, {"x": inputs["x"].astype(np.float16)}, "--precision", precision, "--vdevice", "h200")
            assert got["y"].dtype == np.float16
            compare({"y": got["y"].astype(np.float32)}, expected, limit)
        else:
            (tamp.folder / "model.onnx").write_bytes(halves.SerializeToString())
            run_checked(tamp, "--precision", precision, "--vdevice", "h200")
        ops = rops_of(tamp, "--precision", precision, "--vdevice", "h200")
        (tamp.folder / "model.onnx").write_bytes(wide.SerializeToString())
        wanted = rops_of(tamp, "--precision", precision, "--vdevice", "h200")
        # The first convolution takes no 16 bits, so that the image is cast; where the program's type is another, the answer is as well.
        most = 1 if (precision, onnx_type) in (("fp16", TensorProto.FLOAT16), ("bf16", TensorProto.BFLOAT16)) else 2
        assert len(wanted) <= len(ops) <= len(wanted) + most, f"{precision}: {ops}, in f32 {wanted}"
    # Without --precision a vDevice with 16-bit units takes the weights' type.
    (tamp.folder / "model.onnx").write_bytes(in_type(wide, TensorProto.FLOAT16).SerializeToString())
    tamp("compile", "model.onnx", "-o", "made", "--vdevice", "h200")
    assert json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["precision"] == "fp16"


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
