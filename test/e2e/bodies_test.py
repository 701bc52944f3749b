#!/usr/bin/env python3
"""Whatever a pass makes of a pattern, something can compute it: networks of random sizes around the patterns that passes look for, for every vDevice and
precision. Nothing runs.

    bodies_test.py TAMP [WORD...]
"""
import json
import random
import sys

import numpy as np
from onnx import TensorProto

import harness
import models_test
from models_test import port
from transformers_test import Net, decoder_step, feed_forwards, in_type, named, pixel_blocks, shifted_windows, stem, window_blocks

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")


def plain_attention(choose):
    """Attention of heads in up to five dimensions in front of the matrices, scores with any mask or factor, values of another size."""
    net, rank = Net(), choose.randint(0, 5)
    batch = [choose.choice([1, 2, 3]) for _ in range(rank)]
    queries, keys = choose.choice([1, 2, 5, 8, 9, 33]), choose.choice([1, 7, 32, 65])
    size, values = choose.choice([4, 13, 32, 64, 96, 136]), choose.choice([8, 32, 31])
    turned = list(range(rank)) + [rank + 1, rank]
    scores = net.add("MatMul", "q", net.add("Transpose", "k", perm=turned))
    if choose.random() < 0.7:
        scores = net.add("Mul", scores, net.constant(size ** -0.5))
    if choose.random() < 0.7:
        shape = [extent if choose.random() < 0.5 else 1 for extent in [*batch, queries]] + [keys]
        shape = shape[choose.randint(0, rank):]
        mask = net.constant(np.where(np.random.default_rng(1).random(shape) < 0.3, np.finfo(np.float32).min, 0)) if choose.random() < 0.5 else "mask"
        scores = net.add("Add", scores, mask)
    named(net, net.add("MatMul", net.add("Softmax", scores, axis=-1), "v"))
    ports = [port("q", *batch, queries, size), port("k", *batch, keys, size), port("v", *batch, keys, values)]
    if any("mask" in node.input for node in net.nodes):
        ports.append(port("mask", *shape))
    return net.model(ports, [port("y", *batch, queries, values)])


def windows(choose):
    """Blocks of Swin, also with windows, heads and channels that no body takes by a table."""
    window, across, size = choose.choice([2, 3, 4, 7, 9]), choose.choice([1, 2, 3]), choose.choice([8, 16, 32, 40])
    heads = choose.choice([1, 2, 3])
    channels = size * heads + (-size * heads) % 4
    if channels != size * heads:
        return windows(choose)
    shift = choose.choice([0, window // 2]) if across > 1 else 0
    return shifted_windows(choose.choice([1, 2]), across * window, shift, channels, heads, window)


def cut_windows(choose):
    return window_blocks(choose.choice([1, 3, 8]), choose.choice([4, 20, 49, 64, 65]), choose.choice([32, 64, 96]), choose.choice([1, 2]), masked=choose.random() < 0.5)


def steps(choose):
    kv = choose.choice([1, 2])
    return decoder_step(choose.choice([3, 70, 300]), choose.choice([32, 64, 128]), kv * choose.choice([1, 2, 4]), kv, computed=choose.random() < 0.5)


def rows(choose):
    hidden, shape = choose.choice([64, 96, 192, 384]), (choose.choice([1, 2]), choose.choice([1, 19, 49, 197]))
    return feed_forwards(hidden, shape, choose.choice([1, 2]), norm=choose.random() < 0.5, residual=choose.random() < 0.5)


def pixels(choose):
    if choose.random() < 0.3:
        return stem(choose.choice([32, 96, 100]), choose.choice([1, 2]))
    return pixel_blocks(choose.choice([24, 96, 128, 130]), choose.choice([7, 14]), choose.choice([7, 9]), choose.choice([1, 2]))


def cells(choose):
    """Squeeze-and-excite, the end of a classifier, branches and depthwise convolutions."""
    return choose.choice([models_test.excited, models_test.summed, models_test.pooled, models_test.mobile, models_test.inception, models_test.attention])()


def vdevices():
    """Names of all vDevices, and the precisions of each."""
    folder, found = harness.ROOT / "compiler" / "ir" / "vdevices", {}
    for path in sorted(folder.glob("*.json")):
        fields = json.loads(path.read_text())
        if "like" in fields:
            fields = {**json.loads((folder / f"{fields['like']}.json").read_text()), **fields}
        found[path.stem] = [precision for precision in PRECISIONS if precision == "fp32" or fields[precision]]
    return found


def taken(tamp, make, count, seed):
    """Makes `count` networks and compiles each for one of the vDevices in all its precisions; the networks of all tests go over all vDevices."""
    choose, names = random.Random(seed), list(vdevices().items())
    for i in range(count):
        made = make(choose)
        if i % 5 == 4:
            with np.errstate(over="ignore"):  # f16 has no such mask
                made = in_type(made, TensorProto.FLOAT16)
        (tamp.folder / "model.onnx").write_bytes(made.SerializeToString())
        name, precisions = names[(i + seed) % len(names)]
        for precision in precisions:
            tamp("compile", "model.onnx", "-o", "made", "--policy", "wavefront", "--vdevice", name, "--precision", precision)


def test_attention_has_bodies(tamp):
    taken(tamp, plain_attention, 18, 0)


def test_windows_have_bodies(tamp):
    taken(tamp, windows, 9, 0)
    taken(tamp, cut_windows, 9, 9)


def test_steps_of_decoders_have_bodies(tamp):
    taken(tamp, steps, 9, 4)


def test_rows_have_bodies(tamp):
    taken(tamp, rows, 6, 2)
    taken(tamp, pixels, 6, 11)


def test_convolutions_have_bodies(tamp):
    taken(tamp, cells, 6, 6)


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
