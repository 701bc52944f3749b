#!/usr/bin/env python3
"""Quantised normalisations, chains, attention and poolings whose activations lie in bytes, on the stand-in: chains and poolings against integers computed by
numpy, to the bit, as bytes_test.py has it; the others against ONNX Runtime, in steps of the output's quantisation.

    bytes_rows_test.py TAMP [WORD...]
"""
import fnmatch
import json
import re
import sys

import numpy as np

import bytes_test
import harness
import many
import quantised_models as q

# Of networks of several layers: a value beside a tie changes others behind it. The share of elements that may differ by a step, and steps.
SHARE, MOST_STEPS = 0.1, 2


# --- against integers --------------------------------------------------------------------------------------------------

class Chain(bytes_test.Chain):
    def windows(self, x, kernel, stride, pad, outside):
        padded = np.pad(x.values, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=outside)
        height, width = ((extent - kernel) // stride + 1 for extent in padded.shape[2:])
        return np.stack([padded[:, :, h:h + stride * height:stride, w:w + stride * width:stride][:, :, :height, :width] for h in range(kernel) for w in range(kernel)])

    def max_pool(self, kernel, stride, pad, zero):
        """With the scale of what it reads, as quantisers make it."""
        x = self.last
        name = self.add("MaxPool", x.name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
        self.last = self.quantise(name, self.windows(x, kernel, stride, pad, -1000).max(0), x.exponent, zero)
        return self.last

    def average_pool(self, kernel, stride, zero):
        """Of kernel^2 a power of two, so that the mean is exact."""
        x = self.last
        name = self.add("AveragePool", x.name, kernel_shape=[kernel] * 2, strides=[stride] * 2)
        return self.end(name, self.windows(x, kernel, stride, 0, 0).mean(0) * 2.0 ** x.exponent, zero)

    def product(self, a, b, zero):
        """Of two quantised tensors, with a number for each channel added."""
        factors = self.random.integers(-300, 300, (a.values.shape[1], 1, 1)) * 2.0 ** (a.exponent + b.exponent)
        name = self.add("Add", self.add("Mul", a.name, b.name), self.constant(factors, np.float32))
        return self.end(name, a.values * b.values * 2.0 ** (a.exponent + b.exponent) + factors, zero)


def low_of(kind):
    return 0 if kind == "u8" else -128


def pooled(kind, zero, kernel, stride, pad, images=1, size=(20, 20)):
    """Between convolutions, of any zero point: a maximum of bytes is that of their numbers."""
    c = Chain(11, [images, 16, *size], kind)
    c.conv(64)
    c.conv(64, zero=zero)
    c.max_pool(kernel, stride, pad, zero)
    c.conv(32)
    return c


def averaged(kind, kernel):
    """Its bytes begin at 0; what it makes does not lie in bytes, since a chain rounds it."""
    c = Chain(12, [1, 16, 20, 20], kind)
    c.conv(64)
    c.conv(64, relu=True, zero=low_of(kind))
    c.average_pool(kernel, 2, zero=low_of(kind))
    c.conv(32)
    return c


def chained(kind, channels, zeros, images=1):
    """The product of two tensors between convolutions. Zero points of its operands and its result."""
    c = Chain(13, [images, 16, 20, 20], kind)
    x = c.conv(32, zero=zeros[0])
    a, b = c.conv(channels, of=x, zero=zeros[0]), c.conv(channels, of=x, kernel=1, zero=zeros[1])
    c.product(a, b, zeros[2])
    c.conv(32)
    return c


def gates(kind, channels, zeros, images, size=(20, 20)):
    """The product of maps and of a number for each of their images and channels. Zero points of both and of the result."""
    c = Chain(14, [images, 16, *size], kind)
    x = c.conv(32, zero=zeros[0])
    a = c.conv(channels, zero=zeros[0])
    c.last = x
    c.max_pool(size[0], 1, 0, zeros[0])
    c.product(a, c.conv(channels, zero=zeros[1]), zeros[2])
    c.conv(32)
    return c


# Name, chain, how many products must have bytes at least, and what the bodies must be beside staged_conv's.
INTEGERS = [(f"pooled_{kind}_{zero}_{kernel}_{stride}".replace("-", "m"), lambda kind=kind, zero=zero, kernel=kernel, stride=stride, pad=pad: pooled(kind, zero, kernel, stride, pad), 1, "pool_strip")
            for kind, zero, kernel, stride, pad in (("u8", 0, 3, 2, 1), ("u8", 100, 2, 2, 0), ("s8", 0, 3, 1, 1), ("s8", -5, 3, 2, 1))]
INTEGERS += [(f"pooled_{kind}_wide", lambda kind=kind: pooled(kind, 7, 5, 3, 2), 1, "pool") for kind in ("u8", "s8")]
INTEGERS += [(f"walked_{kind}", lambda kind=kind: pooled(kind, 31, 3, 1, 1, 4, (60, 44)), 1, "pool_walk") for kind in ("u8", "s8")]
INTEGERS += [(f"averaged_{kind}_{kernel}", lambda kind=kind, kernel=kernel: averaged(kind, kernel), 1, "pool_strip" if kernel == 2 else "pool") for kind in ("u8", "s8") for kernel in (2, 4)]
INTEGERS += [(f"chained_{kind}_{channels}_{images}", lambda kind=kind, channels=channels, zeros=zeros, images=images: chained(kind, channels, zeros, images), 1, "static_chain_ahead" if images > 1 else "static_chain_bytes")
             for kind, channels, zeros, images in (("u8", 64, (0, 100, 128), 1), ("s8", 64, (0, 0, 0), 1), ("s8", 48, (3, -128, 11), 12), ("u8", 44, (128, 9, 250), 1))]


INTEGERS += [(f"gates_{kind}_{channels}_{images}", lambda kind=kind, channels=channels, zeros=zeros, images=images: gates(kind, channels, zeros, images), 1, "static_chain_blocks")
             for kind, channels, zeros, images in (("u8", 52, (0, 100, 128), 3), ("s8", 44, (0, 0, 7), 3), ("u8", 36, (128, 9, 250), 2))]
INTEGERS += [(f"gates_{kind}_{channels}_{images}", lambda kind=kind, channels=channels, zeros=zeros, images=images: gates(kind, channels, zeros, images), 1, "static_chain_ahead")
             for kind, channels, zeros, images in (("u8", 64, (0, 100, 128), 12), ("s8", 40, (0, 0, 7), 8))]


def bodies_of(tamp, name, model, vdevice):
    """What tamp says of the model, its bodies by the types of their numbers, and each rOperator's."""
    (tamp.folder / "model.onnx").write_bytes(model.SerializeToString())
    said = tamp("compile", "model.onnx", "--vdevice", vdevice, "--precision", "fp16", "-o", name).stderr
    rops = json.loads((tamp.folder / name / "model.rprogram.json").read_text())["rops"]
    made = [(phase["body"].removeprefix("rk::"), rop["dtype"], " ".join(phase["template"].values())) for rop in rops for phase in rop["phases"]]
    return said, made


def is_of_bytes(dtype, types):
    return dtype in ("whole_u8", "whole_i8") or "rk::Unsigned8" in types or "rk::Signed8" in types


def products_in_bytes(said):
    found = re.search(r"(\d+) of (\d+) products on integer tensor cores", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def test_chains_and_pools_take_bytes(tamp):
    for name, make, least, word in INTEGERS:
        said, made = bodies_of(tamp, name, make().finished()[0], bytes_test.few_sms(tamp.folder))
        assert any(body == word and is_of_bytes(dtype, types) for body, dtype, types in made), f"{name}: {made}"
        assert products_in_bytes(said)[0] >= least, f"{name}: {made}\n{said}"


# --- against ONNX Runtime ----------------------------------------------------------------------------------------------

def encoder(rows, width, heads, batch=1, masked=False, behind=True, guarded=False):
    """A layer of an encoder, normalised behind its sums as BERT's or in front, whose sums the next one reads, too; a mask of scores; torch's
    guard against NaN behind the softmax."""
    net = q.Net(21, [batch, rows, width])

    def norm(x):
        return net.add("LayerNormalization", x, net.constant(net.random.uniform(0.5, 1.5, width)), net.constant(net.random.uniform(-0.5, 0.5, width)), axis=-1)

    def split(x, perm):
        return net.add("Transpose", net.add("Reshape", x, net.constant([batch, rows, heads, width // heads], np.int64)), perm=perm)

    def gelu(h):
        half = net.add("Mul", h, net.constant(0.5))
        return net.add("Mul", half, net.add("Add", net.add("Erf", net.add("Div", h, net.constant(2 ** 0.5))), net.constant(1)))

    x = norm("x")
    n = x if behind else norm(net.add("MatMul", x, net.weight(width, width, scale=width ** -0.5)))
    query, key, value = (split(net.linear(n, width, width), perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    scores = net.add("Mul", net.add("MatMul", query, key), net.constant((width // heads) ** -0.5))
    if masked:
        scores = net.add("Add", scores, net.constant(net.random.standard_normal((batch, 1, rows, rows))))
    weights = net.add("Softmax", scores, axis=-1)
    if guarded:
        weights = net.add("Where", net.add("IsNaN", weights), net.constant(0), weights)
    mixed = net.add("Transpose", net.add("MatMul", weights, value), perm=[0, 2, 1, 3])
    made = net.linear(net.add("Reshape", mixed, net.constant([batch, rows, width], np.int64)), width, width)
    x = net.add("Add", made, x)
    if behind:
        x = norm(x)
        x = norm(net.add("Add", net.linear(gelu(net.linear(x, width, 2 * width)), 2 * width, width), x))
    else:
        x = net.add("Add", net.linear(gelu(net.linear(norm(x), width, 2 * width)), 2 * width, width), x)
    return net, net.model(net.linear(x, width, 32), [batch, rows, 32])


# Name, network, how it is quantised, how many products must have bytes, and bodies that must be there with bytes among their types.
ALL = ("normalize_rows_summed_bytes",)
ROWS = [("behind_u8", lambda: encoder(40, 128, 2), "qdq u8 s8 channel", 7, (*ALL, "attention_rounded_*")),
        ("behind_s8", lambda: encoder(33, 64, 2, 2), "qdq s8 s8 symmetric", 7, (*ALL, "attention_rounded_*")),
        ("guarded_u8", lambda: encoder(70, 64, 1, guarded=True), "qdq u8 s8 channel", 7, (*ALL, "attention_rounded_*")),
        ("guarded_s8", lambda: encoder(140, 64, 2, 6, masked=True, guarded=True), "qdq s8 s8", 7, (*ALL, "attention_rounded_rows")),
        ("front_u8", lambda: encoder(24, 96, 3, behind=False), "qdq u8 s8", 8, (*ALL, "normalize_rows_quantised", "attention_rounded_*")),
        ("front_s8", lambda: encoder(50, 64, 1, 1, masked=True, behind=False), "qdq s8 s8", 8, (*ALL, "normalize_rows_quantised", "attention_rounded_*")),
        ("elements_u8", lambda: encoder(19, 96, 1, 1, masked=True), "qdq u8 s8", 7, (*ALL, "attention_rounded")),
        ("elements_s8", lambda: encoder(21, 80, 8), "qdq s8 s8 symmetric", 7, (*ALL, "attention_rounded")),
        ("long_s8", lambda: encoder(300, 32, 1), "qdq s8 s8", 7, (*ALL, "attention_rounded_once"))]


def quantised(make, way):
    net, model = make()
    return q.quantised(net, model, way), net.inputs()[0]


def test_rows_take_bytes(tamp):
    for name, make, way, least, words in ROWS:
        said, made = bodies_of(tamp, name, quantised(make, way)[0], bytes_test.few_sms(tamp.folder))
        for word in words:
            assert any(fnmatch.fnmatch(body, word) and is_of_bytes(dtype, types) for body, dtype, types in made), f"{name}: no {word} of bytes in {made}"
        assert products_in_bytes(said)[0] >= least, f"{name}: {made}\n{said}"


def check_rows(cases, execution):
    def test(tamp):
        models = [quantised(make, way) for _, make, way, _, _ in cases]
        parts = [many.Part(case[0], model, [x]) for case, (model, x) in zip(cases, models)]
        options = many.Options(precision="fp16", vdevice=bytes_test.few_sms(tamp.folder), execution=execution, is_heavy=True)
        failed = []
        for part, found in zip(parts, many.run(tamp.program, parts, options)):
            assert not isinstance(found, many.Failure), f"{part.name}: {found.text}"
            steps = q.nearest(part.model, found, q.answers(part.model, {"x": part.inputs[0]}))
            print(f"{part.name}: {100 * steps.share:.1f} % of elements differ by a step, by {steps.most:.2f} at most", flush=True)
            if steps.share > SHARE or steps.most > MOST_STEPS + 0.5:
                failed.append(part.name)
        assert not failed, failed
    test.__name__ = "_".join(["test_rows", *dict.fromkeys(case[0].split("_")[0] for case in cases), execution])
    return test


def integers(*kinds):
    return [case for case in INTEGERS if case[0].split("_")[0] in kinds]


TESTS = [test_chains_and_pools_take_bytes, test_rows_take_bytes, bytes_test.check(integers("pooled", "averaged"), "persistent"), bytes_test.check(integers("chained", "walked"), "persistent"), bytes_test.check(integers("gates"), "persistent"),
         bytes_test.check([case for case in INTEGERS if "s8" in case[0] and "walked" not in case[0]], "graph"), check_rows(ROWS, "persistent"), check_rows(ROWS[:3], "graph")]

if __name__ == "__main__":
    sys.exit(harness.main(TESTS))
