#!/usr/bin/env python3
"""Parts of networks whose copies the passes avoid, on the stand-in, compared with ONNX Runtime. Each test also asks the program whether the
pass took part: how many rOperators of which kind there are, and which rKernels they got.

    networks_test.py TAMP [WORD...]
"""
import json
import sys

import numpy as np

import harness
from models_test import port, random
from transformers_test import Net, check, named

LIMIT = {"fp32": 1e-4, "tf32": 5e-3, "fp16": 5e-3, "bf16": 4e-2}


class Maps(Net):
    """Networks of maps; `conv` and its like return the name of the result."""

    def filters(self, outputs, inputs, *kernel):
        return self.weight(outputs, inputs, *kernel, scale=(2 / (inputs * int(np.prod(kernel)))) ** 0.5)

    def conv(self, x, inputs, outputs, kernel=1, relu=True, group=1, dilation=1, pad=None):
        pad = dilation * (kernel // 2) if pad is None else pad
        operands = [self.filters(outputs, inputs // group, kernel, kernel), self.weight(outputs, scale=0.1)]
        y = self.add("Conv", x, *operands, group=group, dilations=[dilation] * 2, pads=[pad] * 4)
        return self.add("Relu", y) if relu else y

    def batch_norm(self, x, channels):
        scale, mean = (self.constant(offset + 0.3 * random(f"n{len(self.weights) + offset}", channels)) for offset in (1, 0))
        return self.add("BatchNormalization", x, scale, self.weight(channels, scale=0.5), mean, self.constant(np.linspace(0.5, 2, channels)))

    def result(self, x, shape, inputs):
        named(self, x)
        return self.model([port("x", *inputs)], [port("y", *shape)])


def run(tamp, made, precision, *options):
    """Compares the answer, and returns the rOperators."""
    options = ("--vdevice", "h200", *options)
    check(tamp, made, None, LIMIT[precision], precision, None, *options)
    tamp("compile", "model.onnx", "-o", "made", "--precision", precision, *options)
    return json.loads((tamp.folder / "made" / "model.rprogram.json").read_text())["rops"]


def of(rops, kind):
    return [rop for rop in rops if rop["op"] == kind]


def copies(rops):
    """rOperators that move data and compute nothing."""
    return [rop for rop in rops if rop["op"] in ("Transpose", "Slice", "Concat", "Gather", "Reshape") or "{identity(i0)}" in rop["signature"]]


def names(rops):
    return [rop["name"] for rop in rops]


def shuffled(batch):
    """Two blocks of ShuffleNet: half of the channels passes by, and both halves are shuffled."""
    net = Maps()
    x = net.conv("x", 12, 64)
    for _ in range(2):
        by, half = net.add("Split", x, net.ints(32, 32), outputs=2, axis=1)
        half = net.conv(net.conv(net.conv(half, 32, 32), 32, 32, 3, relu=False, group=32), 32, 32)
        both = net.add("Reshape", net.add("Concat", by, half, axis=1), net.ints(batch, 2, 32, 9, 7))
        x = net.add("Reshape", net.add("Transpose", both, perm=[0, 2, 1, 3, 4]), net.ints(batch, 64, 9, 7))
    return net.result(net.conv(x, 64, 24), (batch, 24, 9, 7), (batch, 12, 9, 7))


def test_shuffled_channels(tamp):
    """Of each shuffle only the half that passes by is copied (stack_concats)."""
    for batch, precision in [(1, "tf32"), (2, "fp16")]:
        moved = copies(run(tamp, shuffled(batch), precision))
        assert [rop["shape"] for rop in moved] == [[batch, 32, 1, 9, 7]] * 2, moved


def halved():
    """YOLO's C2f: a map is halved, one half goes through two bottlenecks, and all are joined."""
    net = Maps()
    parts = net.add("Split", net.conv("x", 24, 64), net.ints(32, 32), outputs=2, axis=1)
    for _ in range(2):
        inner = net.conv(net.conv(parts[-1], 32, 32, 3), 32, 32, 3)
        parts.append(net.add("Add", inner, parts[-1]))
    return net.result(net.conv(net.add("Concat", *parts, axis=1), 128, 40), (1, 40, 10, 11), (1, 24, 10, 11))


def test_halves_that_are_joined_again(tamp):
    """All is made where it is joined (join_slices)."""
    for precision in ("tf32", "fp16", "bf16"):
        rops = run(tamp, halved(), precision)
        assert len(rops) == len(of(rops, "Conv")) == 6, names(rops)


def windows(packs, heads=2, channels=64):
    """MaxViT: attention in windows of 4 x 4 pixels, then in grids of every second pixel, and a map between. Queries, keys and values are parts of one
    product (`packs`), or three products."""
    net = Maps(channels)
    size = channels // heads

    def attend(x):
        y = net.norm(x)
        if packs:
            parts = net.add("Split", net.linear(y, channels, 3 * channels), net.ints(*[channels] * 3), outputs=3, axis=-1)
        else:
            parts = [net.linear(y, channels, channels) for _ in range(3)]
        q, k, v = (net.add("Transpose", net.add("Reshape", part, net.ints(4, 16, heads, size)), perm=[0, 2, 1, 3]) for part in parts)
        k = net.add("Transpose", net.add("Mul", k, net.constant(size ** -0.5)), perm=[0, 1, 3, 2])
        scores = net.add("Add", net.add("MatMul", q, k), net.weight(1, heads, 16, 16, scale=0.5))
        mixed = net.add("Transpose", net.add("MatMul", net.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = net.add("Add", x, net.linear(net.add("Reshape", mixed, net.ints(4, 16, channels)), channels, channels))
        return net.add("Add", x, net.linear(net.gelu(net.linear(net.norm(x), channels, 2 * channels)), 2 * channels, channels))

    def cut(x, extents, perm):
        cut = net.add("Transpose", net.add("Reshape", x, net.ints(1, channels, *extents)), perm=perm)
        return net.add("Reshape", cut, net.ints(4, 16, channels))

    def put_back(x, extents, perm):
        back = net.add("Transpose", net.add("Reshape", x, net.ints(1, *extents, channels)), perm=perm)
        return net.add("Reshape", back, net.ints(1, channels, 8, 8))

    x = net.conv("x", 16, channels, 3)
    x = put_back(attend(cut(x, (2, 4, 2, 4), [0, 2, 4, 3, 5, 1])), (2, 2, 4, 4), [0, 5, 1, 3, 2, 4])
    x = put_back(attend(cut(x, (4, 2, 4, 2), [0, 3, 5, 2, 4, 1])), (2, 2, 4, 4), [0, 5, 3, 1, 4, 2])
    return net.result(net.conv(x, channels, 24, 3), (1, 24, 8, 8), (1, 16, 8, 8))


def test_windows_and_grids(tamp):
    """Two movements are left of the first block on: one to the windows and one to the map. The second attention takes the rows of its grid by a table
    (channels_stay_last, move_rows)."""
    for packs, precision in [(True, "tf32"), (True, "fp16"), (False, "fp16")]:
        rops = run(tamp, windows(packs), precision)
        assert len(of(rops, "Attention")) == 2, names(rops)
        assert [rop["op"] for rop in copies(rops)] == ["Elementwise", "Gather"], names(rops)
        assert [rop["op"] for rop in rops if "const i64[" in rop["signature"]] == ["Attention", "Gather"], names(rops)
        by_moments = [rop for rop in of(rops, "product by moments") if "NormalizeBy(" in rop["signature"]]  # normalise on their way (docs/adr/0035)
        # One in front of each product of normalised rows, of which the second attention has three without `packs`.
        assert len(of(rops, "Normalize")) + len(by_moments) == (4 if packs else 6), [rop["signature"] for rop in of(rops, "Normalize")]


def pyramid():
    """DeepLab: taps so far apart that they are pointwise convolutions of their own, some of them in the padding alone."""
    net = Maps()
    x = net.conv("x", 16, 128)
    branches = [net.conv(x, 128, 48, 3, dilation=dilation) for dilation in (6, 12, 18)] + [net.conv(x, 128, 48)]
    return net.result(net.conv(net.add("Concat", *branches, axis=1), 192, 20), (1, 20, 17, 19), (1, 16, 17, 19))


def test_widely_dilated_convolutions(tamp):
    """With a dilation of 18 the rows of taps above and below are in the padding; the three that are left are products by boxes, each the residual
    of the next (split_dilated)."""
    for precision in ("tf32", "fp16"):
        rops = run(tamp, pyramid(), precision)
        taps = [rop for rop in rops if rop["name"].startswith("conv6")]
        assert names(taps) == ["conv6.tap3", "conv6.tap4", "conv6"] and copies(rops) == [], names(rops)
        assert all(rop["rkernel"].startswith("staged_conv") for rop in taps) and "residual" in taps[2]["signature"], taps


def up(is_first):
    """A step of a U-Net: down, up again by a transposed convolution, joined with what was there before, in either order."""
    net = Maps()
    skip = net.conv("x", 12, 32, 3)
    low = net.conv(net.add("MaxPool", skip, kernel_shape=[2, 2], strides=[2, 2]), 32, 64, 3)
    high = net.add("ConvTranspose", low, net.filters(64, 32, 2, 2), net.weight(32, scale=0.1), strides=[2, 2])
    return net.result(net.conv(net.add("Concat", *((high, skip) if is_first else (skip, high)), axis=1), 64, 20, 3), (1, 20, 12, 14), (1, 12, 12, 14))


def test_up_again(tamp):
    """Each of the four phases stores its results where they are joined."""
    for is_first, precision in [(True, "tf32"), (True, "fp16"), (False, "fp16"), (False, "fp32")]:
        rops = run(tamp, up(is_first), precision)
        assert len(of(rops, "Conv")) == 7 and copies(rops) == [], names(rops)


def normalised_in_front(kernel):
    net = Maps()
    x = net.conv("x", 12, 32)
    y = net.add("Add", net.conv(net.batch_norm(x, 32), 32, 32, kernel), x)
    return net.result(y, (2, 32, 9, 7), (2, 12, 9, 7))


def test_batch_norm_in_front(tamp):
    """Folded into a convolution that has no padding. Where there is some, its zeros would have to become others, so the map is scaled before
    (fold_batch_norm)."""
    for kernel, precision in [(1, "tf32"), (3, "fp16"), (3, "fp32")]:
        rops = run(tamp, normalised_in_front(kernel), precision)
        scaled = ["batchnormalization2"] if kernel == 3 else []
        assert names(rops) == ["conv0", *scaled, "conv3"], names(rops)


def grouped(groups, batch=1):
    """Group normalisation of a map as exporters write it. One group is one long row."""
    net = Maps()
    x = net.conv("x", 12, 64, 3, relu=False)
    flat = net.add("InstanceNormalization", net.add("Reshape", x, net.ints(batch, groups, -1)), net.constant(np.ones(groups)), net.constant(np.zeros(groups)))
    y = net.add("Mul", net.add("Reshape", flat, net.ints(batch, 64, 20, 20)), net.weight(64, 1, 1, scale=1))
    y = net.add("Relu", net.add("Add", y, net.weight(64, 1, 1, scale=0.2)))
    return net.result(net.conv(y, 64, 24), (batch, 24, 20, 20), (batch, 12, 20, 20))


def test_group_normalisation(tamp):
    """A channels-last map stays as it is, and factors of channels are taken (regroup_normalizations). Long rows of few groups are cut into shares
    (normalize_split)."""
    for groups, batch, precision, is_split in [(1, 1, "tf32", True), (2, 1, "fp16", True), (8, 2, "bf16", False)]:
        rops = run(tamp, grouped(groups, batch), precision)
        assert names(rops) == ["conv0", "instancenormalization2", "conv7"], names(rops)
        rkernel, shape = rops[1]["rkernel"], rops[1]["shape"]
        assert rkernel.startswith("normalize<split") == is_split, rkernel
        assert shape == ([batch, 64, 20, 20] if groups == 1 else [batch, groups, 64 // groups, 20, 20]), shape


def narrow(group):
    """HRNet: maps of 18 channels, whose pixels are padded."""
    net = Maps()
    x = net.conv("x", 12, 18)
    y = net.conv(net.conv(x, 18, 18, 3, group=group), 18, 18, 3, relu=False)
    return net.result(net.conv(net.add("Add", x, y), 18, 36), (2, 36, 13, 11), (2, 12, 13, 11))


def test_padded_pixels(tamp):
    """Boxes are cut from them, and the depthwise body takes four channels at a time, the last two in the padding."""
    for group, precision in [(18, "tf32"), (18, "fp16"), (1, "fp16")]:
        rops = run(tamp, narrow(group), precision)
        chosen = [rop["rkernel"] for rop in rops]
        assert len(chosen) == 4 and all(name.startswith("staged_conv") for name in chosen[2:]), chosen
        assert chosen[1].startswith("staged_conv" if group == 1 else "depthwise<4 channels"), chosen


def scaled_keys():
    """Keys are scaled before views turn them."""
    net = Maps(64)
    q, k, v = (net.add("Reshape", net.linear("x", 64, 64), net.ints(2, 19, 2, 32)) for _ in range(3))
    k = net.add("Mul", k, net.constant(0.18))
    q, k, v = (net.add("Transpose", x, perm=perm) for x, perm in [(q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3])])
    mixed = net.add("MatMul", net.add("Softmax", net.add("MatMul", q, k), axis=-1), v)
    named(net, net.linear(net.add("Reshape", net.add("Transpose", mixed, perm=[0, 2, 1, 3]), net.ints(2, 19, 64)), 64, 40))
    return net.model([port("x", 2, 19, 64)], [port("y", 2, 19, 40)])


def test_factors_of_keys_behind_views(tamp):
    """They become the scale of the attention, or where there is none, of its first product (recognise_attention)."""
    for precision in ("fp32", "tf32", "fp16"):
        rops = run(tamp, scaled_keys(), precision)
        taking = rops[3]["signature"]
        assert "scale=0.18" in taking if precision != "fp32" else "alpha=0.18" in taking, taking
        assert len(rops) == (7 if precision == "fp32" else 5) and of(rops, "Elementwise") == [], names(rops)


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
