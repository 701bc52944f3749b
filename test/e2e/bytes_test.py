#!/usr/bin/env python3
"""Quantised convolutions whose activations lie in bytes, on the stand-in, against integers computed by numpy. Scales are powers of two, so nothing but the
quantisations rounds, ties are common, and answers must be equal to the bit. The vDevice is an H200 with few multiprocessors, which small maps fill.

    bytes_test.py TAMP [WORD...]
"""
import json
import re
import sys
from dataclasses import dataclass

import numpy as np
from onnx import helper

import harness
import many
import models as m

TYPES = {"u8": (np.uint8, 0, 255), "s8": (np.int8, -128, 127)}


@dataclass
class Quantised:
    """A tensor in integers: its name, values less the zero point, the exponent of its scale, and what is behind it in the model."""
    name: str
    values: np.ndarray
    exponent: int


class Chain:
    """A model of QuantizeLinear, DequantizeLinear, Conv, Relu and Add, and what it gives for one input."""

    def __init__(self, seed, shape, kind="u8"):
        self.random, self.nodes, self.constants, self.kind = np.random.default_rng(seed), [], [], kind
        self.x = (self.random.integers(-100, 100, shape) / 16).astype(np.float32)
        self.last = self.quantise("x", self.x * 16, -4, 128 if kind == "u8" else 0)

    def constant(self, values, dtype):
        name = f"c{len(self.constants)}"
        self.constants.append(m.constant(name, np.asarray(values, dtype), dtype))
        return name

    def add(self, op, *operands, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(m.node(op, list(operands), [name], f"{op.lower()}{len(self.nodes)}", **attributes))
        return name

    def quantise(self, name, steps, exponent, zero):
        """`steps`: the values of the float tensor `name`, in steps of 2^exponent."""
        dtype, low, high = TYPES[self.kind]
        scale, point = self.constant(2.0 ** exponent, np.float32), self.constant(zero, dtype)
        values = np.clip(np.rint(steps) + zero, low, high) - zero
        return Quantised(self.add("DequantizeLinear", self.add("QuantizeLinear", name, scale, point), scale, point), values, exponent)

    def weights(self, shape):
        """s8 with a scale for each channel. -> name, values, exponents"""
        values, exponents = self.random.integers(-127, 128, shape), self.random.integers(-9, -6, shape[0])
        scales, zeros = self.constant(2.0 ** exponents, np.float32), self.constant(np.zeros(shape[0]), np.int8)
        return self.add("DequantizeLinear", self.constant(values, np.int8), scales, zeros, axis=0), values, exponents

    def conv(self, channels, kernel=1, stride=1, pad=0, group=1, zero=0, relu=False, of=None, quantised=True):
        x = of or self.last
        images, width = x.values.shape[0], x.values.shape[1]
        weight, values, exponents = self.weights((channels, width // group, kernel, kernel))
        bias = self.random.integers(-2000, 2000, channels)
        name = self.add("Conv", x.name, weight, self.constant(bias * 2.0 ** (exponents + x.exponent), np.float32), kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4,
                        group=group)
        padded = np.pad(x.values, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        height = (padded.shape[2] - kernel) // stride + 1
        columns = (padded.shape[3] - kernel) // stride + 1
        sums = np.zeros((images, channels, height, columns))
        for g in range(group):
            of_group, out = slice(g * width // group, (g + 1) * width // group), slice(g * channels // group, (g + 1) * channels // group)
            for h in range(kernel):
                for w in range(kernel):
                    taken = padded[:, of_group, h:h + stride * height:stride, w:w + stride * columns:stride][:, :, :height, :columns]
                    sums[:, out] += np.einsum("nchw,oc->nohw", taken, values[out, :, h, w])
        real = (sums + bias[:, None, None]) * 2.0 ** (exponents[:, None, None] + x.exponent)
        if relu:
            name, real = self.add("Relu", name), np.maximum(real, 0)
        return self.end(name, real, zero)

    def end(self, name, real, zero):
        exponent = int(np.ceil(np.log2(np.abs(real).max() / 150)))
        self.last = self.quantise(name, real * 2.0 ** -exponent, exponent, zero)
        return self.last

    def sum(self, a, b, zero=0, relu=True):
        name = self.add("Add", a.name, b.name)
        real = a.values * 2.0 ** a.exponent + b.values * 2.0 ** b.exponent
        if relu:
            name, real = self.add("Relu", name), np.maximum(real, 0)
        return self.end(name, real, zero)

    def biased(self, zero):
        """A bias that is added behind a quantisation, as exporters write products of rows."""
        x = self.last
        bias = self.random.integers(-150, 150, x.values.shape[1])[:, None, None]
        real = (x.values + bias / 4) * 2.0 ** x.exponent
        return self.end(self.add("Add", x.name, self.constant(bias * 2.0 ** (x.exponent - 2), np.float32)), real, zero)

    def activated(self, op, function, zero, **attributes):
        """An activation between two quantisations."""
        x = self.last
        return self.end(self.add(op, x.name, **attributes), function(x.values * 2.0 ** x.exponent), zero)

    def gated(self, zero):
        """x * sigmoid(x), with a quantisation in between, as of a silu in steps."""
        x = self.last
        real = x.values * 2.0 ** x.exponent
        gate = self.quantise(self.add("Sigmoid", x.name), 128 / (1 + np.exp(-np.clip(real, -80, 80))), -7, 0 if self.kind == "u8" else -128)
        return self.end(self.add("Mul", x.name, gate.name), real * gate.values * 2.0 ** gate.exponent, zero)

    def excited(self, hidden, zero, silu=True):
        """Squeeze-and-excite: the mean of each channel, two products, and the gates' product with the map, each of them quantised."""
        x = self.last
        self.end(self.add("GlobalAveragePool", x.name), x.values.mean((2, 3), keepdims=True) * 2.0 ** x.exponent, zero)
        self.conv(hidden, relu=not silu, zero=zero if silu else 0 if self.kind == "u8" else -128)
        if silu:
            self.gated(zero)
        self.conv(x.values.shape[1], zero=zero)
        gate = self.activated("HardSigmoid", lambda v: np.clip(v / 4 + 0.5, 0, 1), zero=0 if self.kind == "u8" else -128, alpha=0.25, beta=0.5)
        return self.end(self.add("Mul", x.name, gate.name), x.values * gate.values * 2.0 ** (x.exponent + gate.exponent), zero)

    def pooled(self, zero, flat):
        """The mean of each channel, quantised; as a row, if it is flat."""
        x = self.last
        real = x.values.mean((2, 3), keepdims=True) * 2.0 ** x.exponent
        pooled = self.end(self.add("GlobalAveragePool", x.name), real, zero)
        if flat:
            self.last = Quantised(self.add("Flatten", pooled.name), pooled.values[:, :, 0, 0], pooled.exponent)
        return self.last

    def linear(self, columns, zero, quantised=True):
        x = self.last
        weight, values, exponents = self.weights((columns, x.values.shape[1]))
        bias = self.random.integers(-2000, 2000, columns)
        name = self.add("Gemm", x.name, weight, self.constant(bias * 2.0 ** (exponents + x.exponent), np.float32), transB=1)
        real = (x.values @ values.T + bias) * 2.0 ** (exponents + x.exponent)
        if not quantised:
            self.last = Quantised(name, real, 0)
            return self.last
        return self.end(name, real, zero)

    def side_by_side(self, a, b, zero):
        """A Concat, quantised anew. Scales of its operands differ."""
        values = np.concatenate([v.values * 2.0 ** v.exponent for v in (a, b)], 1)
        return self.end(self.add("Concat", a.name, b.name, axis=1), values, zero)

    def finished(self):
        self.nodes[-1].output[0] = "y"
        right = (self.last.values * 2.0 ** self.last.exponent).astype(np.float32)
        return m.model(self.nodes, [m.value("x", self.x.shape)], [m.value("y", right.shape)], self.constants, 17), right


# An H200 of 12 multiprocessors: maps need not be large for the tiles, strips and sums that a whole one has for batches.
FEW = {"like": "h200", "name": "few_sms", "sms": 12, "sms_in_clusters": 12}


def pointwise(kind, zero):
    """Every zero point, since nothing is read outside. (Of small maps two pointwise convolutions are one rOperator, on halves.)"""
    c = Chain(1, [2, 32, 30, 31], kind)
    for channels in (64, 48, 160, 32):
        c.conv(channels, zero=zero)
    return c


def padded(kind, stride, size):
    c = Chain(2, [1, 32, *size], kind)
    low = 0 if kind == "u8" else -128
    c.conv(64, relu=True, zero=low)
    c.conv(64, kernel=3, stride=stride, pad=1, relu=True, zero=low)
    c.conv(128)
    c.conv(48, kernel=5, pad=2)
    return c


def residual(kind, images, zero):
    """Sums of two quantised tensors, one of which begins at another number than 0."""
    c = Chain(3, [images, 64, 20, 20], kind)
    low = 0 if kind == "u8" else -128
    x = c.conv(64, kernel=3, pad=1, relu=True, zero=low)
    beside = c.conv(64, of=x, zero=zero)
    narrow = c.conv(32, kernel=3, pad=1, of=x, relu=True, zero=low)
    first = c.sum(c.conv(64, of=narrow, zero=zero), beside, zero=low)
    narrow = c.conv(32, kernel=3, pad=1, relu=True, zero=low)
    c.sum(c.conv(64, of=narrow, zero=zero), first, zero=zero, relu=False)
    c.conv(32, kernel=3)
    return c


def depthwise(kind, images, stride):
    """Few images: a row of the result an item; several: strips."""
    c = Chain(4, [images, 16, 20, 20], kind)
    low = 0 if kind == "u8" else -128
    c.conv(64, relu=True, zero=low)
    c.conv(64, kernel=3, stride=stride, pad=1, group=64, relu=True, zero=low)
    c.conv(32, zero=7 if kind == "u8" else -7)
    c.conv(48)
    return c


def wide(kind):
    """Tiles of 128 channels and more, k in several boxes, channels that are no multiple of 16 at the end."""
    c = Chain(5, [8, 160, 24, 25], kind)
    x = c.conv(272, relu=True, zero=0 if kind == "u8" else -128)
    c.conv(144, zero=3)
    c.sum(c.conv(272, zero=5), x, zero=3, relu=False)
    c.conv(20)
    return c


def grouped(kind):
    c = Chain(6, [1, 64, 20, 20], kind)
    low = 0 if kind == "u8" else -128
    c.conv(128, relu=True, zero=low)
    c.conv(128, kernel=3, pad=1, group=4, relu=True, zero=low)
    c.conv(64)
    return c


def pixels(kind):
    """The first convolution quantises what it reads, in strips."""
    c = Chain(7, [12, 3, 64, 64], kind)
    c.conv(32, kernel=3, stride=2, pad=1, relu=True, zero=0 if kind == "u8" else -128)
    c.conv(32, kernel=3, stride=1, pad=1, group=32, relu=True, zero=0 if kind == "u8" else -128)
    c.conv(16)
    return c


def image(kind, kernel, stride, size, silu):
    """The same of few images, with a table behind the rounding or not."""
    c = Chain(13, [2, 3, *size], kind)
    low = 0 if kind == "u8" else -128
    c.conv(40, kernel=kernel, stride=stride, pad=kernel // 2, relu=not silu, zero=(77 if kind == "u8" else -11) if silu else low)
    if silu:
        c.gated(zero=31 if kind == "u8" else -90)
    c.conv(48, zero=5)
    return c


def again(kind, images):
    """Results that are rounded once more: with a row, by a table, by both; in front of products, and of what reads no bytes."""
    c = Chain(8, [images, 32, 20, 21], kind)
    c.conv(64, zero=3)
    c.biased(zero=5)
    c.conv(48, kernel=3, pad=1, zero=-7 if kind == "s8" else 100)
    c.activated("LeakyRelu", lambda v: np.where(v < 0, v / 4, v), zero=9, alpha=0.25)
    c.conv(144)
    c.biased(zero=-60 if kind == "s8" else 60)
    c.activated("Abs", np.abs, zero=-128 if kind == "s8" else 0)
    c.conv(20, zero=11)
    c.gated(zero=20)
    c.conv(40, kernel=3, zero=1)
    c.activated("HardSigmoid", lambda v: np.clip(v / 4 + 0.5, 0, 1), zero=0, alpha=0.25, beta=0.5)
    return c


def inverted(kind, images, stride):
    """An inverted residual block with x * sigmoid(x): a depthwise convolution between tables, whose bytes begin at other numbers than 0; and
    sums of 24 channels, in accesses of 8."""
    c = Chain(10, [images, 16, 20, 20], kind)
    x = c.conv(24, zero=4)
    c.conv(64, zero=100 if kind == "u8" else -30)
    c.gated(zero=20)
    c.conv(64, kernel=3, stride=stride, pad=1, group=64, zero=110 if kind == "u8" else 3)
    c.gated(zero=17 if kind == "u8" else -100)
    y = c.conv(24, zero=9)
    if stride == 1:
        c.sum(y, x, zero=5, relu=False)
    c.conv(40, zero=90 if kind == "u8" else 7)
    c.activated("LeakyRelu", lambda v: np.where(v < 0, v / 4, v), zero=9, alpha=0.25)
    c.conv(32, kernel=5, pad=2, group=1)
    return c


def parted(kind, kernel, stride):
    """One image: threads share an item, and some of them have no row of the filter. Bytes begin at another number than 0."""
    c = Chain(11, [1, 16, 14, 14], kind)
    c.conv(144, zero=100 if kind == "u8" else -30)
    c.gated(zero=20)
    c.conv(144, kernel=kernel, stride=stride, pad=kernel // 2, group=144, zero=110 if kind == "u8" else 3)
    c.gated(zero=17 if kind == "u8" else -100)
    c.conv(40, zero=9)
    return c


def excited(kind, images, size, channels, kernel, stride, silu):
    """Gates of channels, of a depthwise convolution (kernel > 1) or of another one. (Sizes are powers of two, so that means are exact.)"""
    c = Chain(12, [images, 16, *size], kind)
    low = 0 if kind == "u8" else -128
    c.conv(channels, zero=100 if kind == "u8" and silu else low, relu=not silu)
    if silu:
        c.gated(zero=20)
    if kernel > 1:
        c.conv(channels, kernel=kernel, stride=stride, pad=kernel // 2, group=channels, zero=110 if kind == "u8" and silu else low, relu=not silu)
        if silu:
            c.gated(zero=17 if kind == "u8" else -100)
    c.excited(8 if channels > 1024 else max(channels // 12, 3), zero=60 if kind == "u8" else 9, silu=silu)
    c.conv(40, zero=9)
    return c


def head(kind, images, size, channels, columns, ends):
    """The end of a network: means, a product, and behind it nothing, a quantisation, or an activation between two. `ends`: rows, unless it says pixels."""
    c = Chain(15, [images, 16, *size], kind)
    c.conv(channels, zero=100 if kind == "u8" else -30)
    c.gated(zero=20)
    c.pooled(zero=50 if kind == "u8" else -6, flat="pixels" not in ends)
    if "pixels" in ends:
        c.conv(columns, zero=70 if kind == "u8" else -9)
    else:
        c.linear(columns, zero=70 if kind == "u8" else -9, quantised="floats" not in ends)
    if "table" in ends:
        c.activated("HardSigmoid", lambda v: np.clip(v / 4 + 0.5, 0, 1), zero=0 if kind == "u8" else -128, alpha=0.25, beta=0.5)
        c.conv(12) if "pixels" in ends else c.linear(12, zero=3)
    return c


def concat(kind, channels=(32, 64), kernel=1):
    """Parts of a pixel that are no whole sixteens have neighbours right behind them, which nobody may overwrite. A convolution with padding takes halves,
    since the bytes would begin at another number than 0."""
    c = Chain(9, [2, 32, 24, 20], kind)
    x = c.conv(64, relu=True, zero=-128 if kind == "s8" else 0)
    a, b = c.conv(channels[0], of=x, zero=4), c.conv(channels[1], kernel=3, pad=1, of=x, zero=-3 if kind == "s8" else 90)
    c.side_by_side(a, b, zero=-20 if kind == "s8" else 20)
    c.conv(48, kernel=kernel, pad=kernel // 2)
    return c


# Name, chain, how many products must have bytes at least, and a word in the name of an rKernel.
CASES = [(f"pointwise_{kind}_{zero}".replace("-", "m"), lambda kind=kind, zero=zero: pointwise(kind, zero), 2, "whole")
         for kind, zero in (("u8", 0), ("u8", 1), ("u8", 128), ("u8", 250), ("s8", 0), ("s8", -128), ("s8", 5), ("s8", -37))]
CASES += [(f"padded_{kind}_{stride}_{size[0]}", lambda kind=kind, stride=stride, size=size: padded(kind, stride, size), 2, "whole")
          for kind in TYPES for stride, size in ((1, (14, 14)), (2, (15, 17)))]
CASES += [(f"residual_{kind}_{images}_{zero}".replace("-", "m"), lambda kind=kind, images=images, zero=zero: residual(kind, images, zero), 4, "whole")
          for kind, images, zero in (("u8", 1, 100), ("s8", 1, 3), ("u8", 3, 77), ("s8", 3, 0))]
CASES += [(f"depthwise_{kind}_{images}_{stride}", lambda kind=kind, images=images, stride=stride: depthwise(kind, images, stride), 2, body)
          for kind in TYPES for images, stride, body in ((3, 1, "depthwise<"), (12, 1, "depthwise_strips"), (6, 2, "depthwise<"), (24, 2, "depthwise_strips"))]
CASES += [(f"wide_{kind}", lambda kind=kind: wide(kind), 3, "staged_conv_fp16<128") for kind in TYPES] + [(f"grouped_{kind}", lambda kind=kind: grouped(kind), 1, "whole") for kind in TYPES]
CASES += [(f"pixels_{kind}", lambda kind=kind: pixels(kind), 1, "quantises, rounded") for kind in TYPES]
CASES += [(f"image_{kind}_{kernel}_{stride}_{silu}", lambda made=(kind, kernel, stride, size, silu): image(*made), 1, "patch_quantised")
          for kind, kernel, stride, size, silu in (("u8", 3, 2, (33, 30), True), ("s8", 3, 2, (32, 36), False), ("s8", 7, 2, (31, 29), True), ("u8", 3, 1, (20, 20), False))]

CASES += [(f"again_{kind}_{images}", lambda kind=kind, images=images: again(kind, images), least, "again") for kind in TYPES for images, least in ((1, 2), (6, 2))]
CASES += [(f"inverted_{kind}_{images}_{stride}", lambda kind=kind, images=images, stride=stride: inverted(kind, images, stride), 2, "again") for kind in TYPES for images, stride in ((3, 2), (12, 1))]
CASES += [(f"parted_{kind}_{kernel}_{stride}", lambda kind=kind, kernel=kernel, stride=stride: parted(kind, kernel, stride), 1, "pixels by 8") for kind, kernel, stride in (("u8", 5, 1), ("u8", 7, 2))]
CASES += [(f"concat_{kind}", lambda kind=kind: concat(kind), 1, "again") for kind in TYPES]
CASES += [(f"concat_{kind}_in_eights_{kernel}", lambda kind=kind, kernel=kernel: concat(kind, (24, 40), kernel), least, "again") for kind, kernel, least in (("u8", 1, 1), ("s8", 3, 0))]
# Kind, images, size, channels, kernel, stride, whether activations are silu (else relu); and a word of an rKernel: gates of sums, or of products by parts.
EXCITED = [("u8", 1, (16, 16), 96, 3, 1, True, "excite_rounded_of_sums"), ("s8", 1, (16, 32), 72, 3, 2, False, ", squeezes"), ("u8", 2, (16, 16), 40, 5, 2, False, ", squeezes"),
           ("s8", 2, (8, 16), 80, 5, 1, True, ", squeezes"), ("u8", 1, (16, 16), 64, 7, 1, True, "excite_rounded_of_sums"), ("u8", 1, (16, 8), 72, 1, 1, True, ", squeezes"),
           ("s8", 3, (8, 8), 48, 1, 1, False, "channel_sums"), ("s8", 1, (64, 32), 72, 1, 1, True, "excite_rounded_of_sums"),
           ("s8", 3, (32, 32), 40, 1, 1, True, "channel_sums"), ("u8", 12, (32, 32), 64, 1, 1, True, ", squeezes")]
CASES += [(f"excited_{kind}_{images}_{channels}_{kernel}_{stride}", lambda made=made: excited(*made), 1, body) for *made, body in EXCITED for kind, images, _, channels, kernel, stride, _ in [made]]

# Kind, images, size, channels, columns, what follows the product.
HEADS = [("u8", 1, (7, 7), 1152, 100, "scale"), ("s8", 3, (28, 20), 40, 17, "scale"), ("s8", 1, (28, 20), 24, 33, "table"), ("u8", 3, (7, 7), 8, 10, "table"),
         ("u8", 1, (1, 1), 24, 9, "scale"), ("s8", 1, (28, 20), 24, 20, "floats"), ("u8", 1, (16, 9), 40, 12, "pixels"), ("s8", 3, (5, 3), 24, 40, "pixels_table"),
         ("u8", 2, (7, 9), 40, 64, "scale")]
CASES += [(f"head_{kind}_{images}_{size[0]}_{channels}_{ends}", lambda made=(kind, images, size, channels, columns, ends): head(*made), 0, "rounded_head")
          for kind, images, size, channels, columns, ends in HEADS]

# More channels than the threads of a vEU add up at once, on the many multiprocessors for which the gates are made so.
MANY_CHANNELS = [("excited_u8_1152", lambda: excited("u8", 1, (16, 16), 1152, 1, 1, True), 2, "excite_rounded_of_sums")]


def few_sms(folder):
    path = folder / "few_sms.json"
    path.write_text(json.dumps(FEW))
    return str(path)


def check(cases, execution, vdevice=None):
    """All of them in one program."""
    chains = [make() for _, make, _, _ in cases]
    finished = [chain.finished() for chain in chains]

    def test(tamp):
        parts = [many.Part(name, model, [chain.x]) for (name, _, _, _), (model, _), chain in zip(cases, finished, chains)]
        options = many.Options(precision="fp16", vdevice=vdevice or few_sms(tamp.folder), execution=execution, is_heavy=True)
        for part, found, (_, right) in zip(parts, many.run(tamp.program, parts, options), finished):
            assert not isinstance(found, many.Failure), f"{part.name}: {found.text}"
            wrong = np.argwhere(found[0] != right)
            assert found[0].shape == right.shape and wrong.size == 0, f"{part.name}: {len(wrong)} of {right.size} differ, first at {wrong[0]}: {found[0][tuple(wrong[0])]}, not {right[tuple(wrong[0])]}"
    test.__name__ = "_".join(["test", *dict.fromkeys(name.split("_")[0] for name, *_ in cases), vdevice or "few", execution])
    return test


def test_products_are_on_integer_tensor_cores(tamp):
    """In the precision that tamp takes for such models."""
    for name, make, least, word in CASES + MANY_CHANNELS:
        (tamp.folder / "model.onnx").write_bytes(make().finished()[0].SerializeToString())
        vdevice = few_sms(tamp.folder) if (name, make, least, word) in CASES else "h200"
        said = tamp("compile", "model.onnx", "--vdevice", vdevice, "-o", name).stderr
        found = re.search(r"(\d+) of (\d+) products on integer tensor cores", said)
        rkernels = [phase["rkernel"] for phase in json.loads((tamp.folder / name / "model.rprogram.json").read_text())["rops"]]
        assert found and int(found[1]) >= least and any(word in rkernel for rkernel in rkernels), f"{name}: {rkernels}\n{said}"


def of(*kinds):
    return [case for case in CASES if case[0].split("_")[0] in kinds]


TESTS = [test_products_are_on_integer_tensor_cores, check(of("pointwise"), "persistent"), check(of("residual", "padded"), "persistent"),
         check(of("depthwise", "pixels"), "persistent"), check(of("wide", "grouped"), "persistent"), check(of("image"), "persistent"), check(of("again", "concat", "inverted"), "persistent"),
         check(of("excited"), "persistent"), check(of("head"), "persistent"), check(of("head"), "graph"), check(MANY_CHANNELS, "persistent", "h200"),
         *[check([case], "persistent") for case in of("parted")],  # each alone: beside others fewer threads share an item
         check([case for case in of("padded", "residual", "depthwise", "grouped", "pixels", "image", "again", "inverted", "excited") if "u8" in case[0]], "graph")]

if __name__ == "__main__":
    sys.exit(harness.main(TESTS))
