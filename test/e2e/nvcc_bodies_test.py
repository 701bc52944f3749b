#!/usr/bin/env python3
"""Every body of the catalogue through nvcc, in both executions and for three architectures, without a warning: bodies are templates, of which g++ and the
stand-in take other branches than nvcc does. Nothing runs. run.sh calls this where nvcc is.

    nvcc_bodies_test.py TAMP [WORD...]

ROWS are networks, each in a precision and for a GPU, or for four SMs of one, or for one with other numbers: where there is much to do for each vEU, other bodies are fast. nvcc gets as
few of them as bring all bodies. A body that no row brings, and that ABSENT does not name, is a failure; so is one that ABSENT names
without need. A new body needs a row. Of the combinations that SAMPLED names nvcc gets only the rows that bring the most."""
import json
import re
import subprocess
import sys

import numpy as np
from onnx import TensorProto

import bytes_rows_test as bytes_rows
import bytes_test
import decoders
import generate_test as generate
import harness
import models as m
import models_test as nets
import networks_test as networks
import quantised_models
import races_test as races
import recurrent_test as recurrent
import transformers_test as transformers
from models_test import port, weight
from transformers_test import Net, named
from user_project_test import nvcc

GPUS = {"sm_90a": "h100", "sm_80": "a100", "sm_120": "rtx5090"}  # what takes longest is first

# Combinations of which nvcc gets eight rows, which bring half of the bodies: sources ask whether the architecture is sm_90a, at least 9.0 or at least
# 8.0. So a body has for sm_120 the lines of sm_80 and of sm_90a, and each of these three has had all bodies in one execution at least.
SAMPLED = {("sm_80", "graph"): 8, ("sm_120", "persistent"): 8}

# What has no rKernel for a GPU or in an execution: bodies that get inputs in boxes, and what only goes with products by these.
OF_BOXES = {"depthwise_boxes", "excite_of_sums", "feed_forward", "gemv_of_sums", "moment_conv", "pointwise_pair", "self_attention", "separable_conv", "separable_narrow", "split_k_normalize",
            "staged_conv", "summed_conv"}
OF_CLUSTERS = {"cluster_conv"}
OF_GANGS = {"recurrent_gang"}  # nor clusters has a graph's kernel (docs/adr/0007)
OF_LENGTHS = {"ended_copy"}  # of run time: nor those
OF_TOKENS = {"next_token", "next_token_scores"}  # whose kernel repeats itself
UNREACHED = {"normalize_of"}  # rows of a table that are no whole vectors: no network is known whose passes make it, so nvcc never had it


def absent(arch, execution):
    boxes = arch == "sm_90a"
    return (set() if boxes else OF_BOXES) | (set() if boxes and execution == "persistent" else OF_CLUSTERS) | (OF_GANGS | OF_LENGTHS | OF_TOKENS if execution == "graph" else set()) | UNREACHED


def defined():
    """The bodies in kernels/: device functions of a task that the host side can name."""
    kernels = harness.ROOT / "kernels"
    host = "".join(path.read_text() for path in kernels.rglob("*.cpp"))
    found = {name for path in kernels.rglob("*.cuh") for name in re.findall(r"RK_(?:BODY|INLINE) void (\w+)\(const Task<Veu>& \w+\)", path.read_text())}
    return {name for name in found if name.startswith("typed_") or f'"rk::{name}"' in host or f'"{name}"' in host}


def gemm(rows, k, columns):
    return m.model([m.node("Gemm", ["x", "w"], ["y"], "g", transB=1)], [port("x", rows, k)], [port("y", rows, columns)], [weight("w", columns, k)])


def normalised(rows, columns):
    net = Net(columns)
    named(net, net.norm(net.add("Relu", "x")))
    return net.model([port("x", 1, rows, columns)], [port("y", 1, rows, columns)], opset=20, ir=9)


def moved():
    """A copy of many elements that no short chain describes."""
    return m.model([m.node("Transpose", ["x"], ["y"], "t", perm=[0, 3, 2, 1, 4])], [port("x", 4, 16, 8, 16, 64)], [port("y", 4, 16, 8, 16, 64)])


def in_front_of_a_product(first, shape, inner, **attributes):
    """A convolution on a batch, pooled or not, and one of a single tap."""
    batch, channels, height, width = shape
    pools = [m.node("MaxPool", ["r"], ["p"], "p", kernel_shape=[3, 3], pads=[1] * 4)] if first == 1 else []
    nodes = [m.node("Conv", ["x", "w"], ["a"], "c", **attributes), m.node("Relu", ["a"], ["r"], "r"), *pools, m.node("Conv", ["p" if pools else "r", "v"], ["y"], "d")]
    stride = attributes.get("strides", [1])[0]
    return m.model(nodes, [port("x", *shape)], [port("y", batch, 8, height // stride, width // stride)], [weight("w", inner, channels, first, first), weight("v", 8, inner, 1, 1)])


def attended(mask_rows):
    net = Net(2 * 64)
    named(net, net.self_attention("x", "mask"))
    return net.model([port("x", 5, 70, 128), port("mask", 5, 1, mask_rows, 70)], [port("y", 5, 70, 128)])


def long_products():
    """Products of 16-bit rows and little else, which clusters share."""
    net = Net(640)
    y = net.add("Gelu", net.linear(net.linear("x", 64, 640), 640, 3072))
    named(net, net.linear(y, 3072, 64))
    return net.model([port("x", 64, 64)], [port("y", 64, 64)], opset=20, ir=9)


def elements():
    """What the families of any type have further bodies for: many elements, rows of a Gather in pieces, sums of scattered elements, all elements in order."""
    nodes = [m.node("Add", ["i", "j"], ["sum"], "add"), m.node("Gather", ["rows", "places"], ["taken"], "take", axis=1),
             m.node("ScatterElements", ["i", "at", "few"], ["put"], "put", axis=1, reduction="add"), m.node("TopK", ["short", "five"], ["order", "order_at"], "sort")]
    i64, f16 = TensorProto.INT64, TensorProto.FLOAT16
    inputs = [m.value("i", [3, 80, 41], i64), m.value("j", [3, 80, 41], i64), m.value("rows", [2, 20, 96], f16), m.value("places", [7, 31], i64), m.value("at", [3, 4, 41], i64), m.value("few", [3, 4, 41], i64), port("short", 2, 5)]
    outputs = [m.value("sum", [3, 80, 41], i64), m.value("taken", [2, 7, 31, 96], f16), m.value("put", [3, 80, 41], i64), port("order", 2, 5), m.value("order_at", [2, 5], i64)]
    return m.model(nodes, inputs, outputs, [m.constant("five", np.array([5]), np.int64)], opset=18)


def meant():
    """A convolution on a batch of maps and their means."""
    nodes = [m.node("Conv", ["x", "w"], ["a"], "c"), m.node("Relu", ["a"], ["r"], "r"), m.node("GlobalAveragePool", ["r"], ["y"], "p")]
    return m.model(nodes, [port("x", 16, 16, 14, 14)], [port("y", 16, 256, 1, 1)], [weight("w", 256, 16, 1, 1)])


def cached_step():
    """A token whose attention reads a cache beside the Scatter that its row goes by."""
    return decoders.standard("llama")


def masked_step():
    """A token whose attention reads the places of a cache that its mask leaves."""
    return decoders.genai("llama")


def dynamic_rows():
    """Many rows, quantised by their own range."""
    nodes = [m.node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "range"), m.node("MatMulInteger", ["q", "w", "z"], ["i"], "p"), m.node("Cast", ["i"], ["f"], "cast", to=TensorProto.FLOAT), m.node("Mul", ["f", "s"], ["y"], "scale")]
    return m.model(nodes, [port("x", 2048, 512)], [port("y", 2048, 64)], [m.constant("w", np.arange(512 * 64).reshape(512, 64) % 255 - 127, np.int8)])


# Where hand-overs are slow and the parts of a row's feed-forward part cost nothing, small networks have them, too.
EAGER_ROWS = {"edge_us": 3, "costs": {"row_feed_forward": {"stream_share": 1e-6, "sum_us": 1e-6, "cells_us": 1e-6}}}
# The same where few bits are worth it in small networks.
SLOW_MEMORY = {**EAGER_ROWS, "l2_bytes": 1, "dram_gb_per_s": 10}
ROWS = [
    (races.element_types, "fp32", None), (races.order, "fp32", None), (races.pixels, "fp32", None), (races.bounded, "fp32", None), (races.gated, "fp16", None),
    (races.biased, "fp32", None), (nets.reductions, "fp32", None), (nets.excited, "fp16", None), (nets.summed, "fp16", None), (nets.pooled, "tf32", None), (nets.attention, "fp32", None),
    (races.long_rows, "fp16", None), (races.turns, "fp16", 4), (races.stem_of_a_batch, "fp16", 4), (races.bottlenecks, "fp16", None), (races.large_filters, "fp16", None),
    (races.separable_behind_stem, "tf32", None), (races.separable_residual, "fp16", None), (transformers.one_token, "fp16", None), (lambda: transformers.decoder_step(3000), "fp16", None),
    (transformers.vit, "fp16", None), (transformers.bert, "tf32", None), (lambda: transformers.attended_windows(3, 7), "fp16", None), (lambda: transformers.feed_forwards(96, (1, 77)), "fp16", None),
    (transformers.stem, "fp16", None), (transformers.merged_stages, "fp16", None), (lambda: transformers.pixel_blocks(256, 7, 9), "tf32", None),
    (races.gang, "fp32", None), (lambda: recurrent.one("GRU", (2, 2, 5), 3), "fp32", 4), (nets.conv_odd, "fp32", None), (nets.inception, "fp16", None),
    (lambda: gemm(4, 20000, 16), "fp32", None), (lambda: gemm(64, 4096, 256), "tf32", None), (lambda: normalised(2000, 128), "fp16", 4), (moved, "fp32", 4), (meant, "fp16", 4),
    (lambda: gemm(512, 8192, 64), "fp32", 8), (races.turns, "fp16", None), (lambda: in_front_of_a_product(1, (16, 16, 56, 56), 64), "fp16", None),
    (lambda: in_front_of_a_product(7, (8, 3, 112, 112), 64, pads=[3] * 4, strides=[2, 2]), "fp16", 16), (elements, "fp32", 4), (nets.attention, "tf32", None), (networks.scaled_keys, "fp16", None), (lambda: attended(1), "fp16", None),
    (lambda: attended(70), "fp16", 4), (lambda: transformers.shifted_windows(1, 14, 3, 64, 2, merges=True), "fp32", None), (long_products, "fp16", None), (elements, "fp32", None),
    (lambda: transformers.llama(64, 45), "fp16", None), (races.open_rows, "tf32", None), (generate.decoder, "fp32", None),
    (cached_step, "fp16", None), (masked_step, "fp16", None), (lambda: transformers.one_token(256, 1), "bf16", EAGER_ROWS),
    *((lambda bits=bits, zeros=zeros: quantised_models.in_few_bits(transformers.one_token(256, 1), bits, zeros=zeros), "fp16", {**SLOW_MEMORY, "sms": 24, "sms_in_clusters": 24}) for bits in (4, 8) for zeros in (False, True)),
    *((lambda make=make: make().finished()[0], "fp16", 12) for name, make, *_ in bytes_test.CASES if name.startswith(("residual_u8_3", "residual_s8_3", "depthwise", "wide", "pixels", "again_u8_6", "inverted_s8_3", "inverted_u8_12", "excited_u8_1_96", "excited_s8_2_80", "excited_u8_1_72", "excited_s8_1_72_1", "image_u8_3_2", "image_s8_3_2", "head_u8_1_7_1152", "head_s8_3_28_40", "head_u8_3_7_8", "head_s8_1_28_24_floats"))),
    *((lambda make=make: make().finished()[0], "fp16", 12) for name, make, *_ in bytes_rows.INTEGERS if name.startswith(("pooled_u8_100", "pooled_u8_wide", "walked_u8", "averaged_u8_2", "chained_u8_64", "gates_u8"))),
    *((lambda make=make, way=way: bytes_rows.quantised(make, way)[0], "fp16", 12 if name.startswith("guarded") else None) for name, make, way, *_ in bytes_rows.ROWS if name in ("guarded_s8", "front_s8", "elements_u8", "long_s8")),
    (lambda: quantised_models.quantised(*quantised_models.blocks(48), "qdq u8 s8 channel"), "fp16", None),
    (races.quantised_blocks, "fp16", None), (dynamic_rows, "fp16", None), *((lambda name=name, way=way: quantised_models.quantised(*getattr(quantised_models, name)(), way), "fp16", None) for name in ("classifier", "transformer") for way in ("dynamic s8", "qdq s8 s8 channel")),
    (lambda: quantised_models.quantised(*quantised_models.transformer(), "qdq s8 s8"), "fp32", None), (lambda: quantised_models.quantised(*quantised_models.transformer(), "qdq s8 s8"), "bf16", None), (lambda: quantised_models.quantised(*quantised_models.transformer(19, 96, 1), "qdq u8 s8"), "fp16", None),
    (lambda: quantised_models.quantised(*quantised_models.transformer(), "qdq s8 s8 products"), "fp16", None),
]
# What of template arguments is as good as a body of its own.
FORMS = ("rk::kCell", "rk::kWhole", "rk::kLarge", "rk::kStrip", "rk::Signed8", "rk::Unsigned8", "rk::kHead")
# What a row is compiled with in one persistent kernel; and in graphs.
OPTIONS = {races.open_rows: (["--dim", "rows=2:40"], ["--dim", "rows=40"]), generate.decoder: (["--generate"], []), cached_step: (["--dim", "seq=1"],) * 2, masked_step: (["--dim", "seq=1", "--dim", "total=160"],) * 2}


def compiled(tamp, number, arch, execution):
    """The row's folder and bodies, with those of their template arguments that say in which form numbers lie."""
    make, precision, other = ROWS[number]
    device = GPUS[arch]
    if other:
        own = json.loads((harness.ROOT / f"compiler/ir/vdevices/{device}.json").read_text())
        if isinstance(other, dict):
            own.update({field: value for field, value in other.items() if field in own}, costs={**own.get("costs", {}), **other["costs"]})
        else:
            own.update(sms=other, **({"sms_in_clusters": other} if "sms_in_clusters" in own else {}))
        device = f"{device}_row{number}.json"
        (tamp.folder / device).write_text(json.dumps({key: value for key, value in {**own, "name": "own"}.items() if key != "gpus"}))
    path = tamp.folder / f"row{number}.onnx"
    path.write_bytes(make().SerializeToString())
    folder = tamp.folder / f"row{number}"
    tamp("compile", path, "-q", "-o", folder, "--vdevice", device, "--precision", precision, "--execution", execution, "--records", "none",
         *OPTIONS.get(make, ([], []))[execution == "graph"])
    rops = json.loads((folder / f"row{number}.rprogram.json").read_text())["rops"]
    form_of = lambda phase: tuple(value for value in phase["template"].values() if value.startswith(FORMS))
    return folder, {(phase["body"].removeprefix("rk::"), form_of(phase)) for rop in rops for phase in rop["phases"]}


def built(folder, number, arch, bodies):
    """nvcc takes the row's program: for sm_90a as far as machine code, since only ptxas knows what wgmma may do."""
    kind = "cubin" if arch == "sm_90a" else "ptx"
    command = [nvcc(), "-std=c++20", f"-arch={arch}", "-Werror", "all-warnings", f"-{kind}", "--keep", "--keep-dir", folder, "-o", folder / f"program.{kind}", folder / f"row{number}.cu"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}, with {sorted(bodies)}:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    ptx = max(folder.glob("*.ptx"), key=lambda path: path.stat().st_size).read_text()
    assert not (empty := without_stores(ptx, bodies)), f"row {number} for {arch}: nvcc left out what these bodies store: {empty}"


def without_stores(ptx, bodies):
    """Bodies that store nothing to memory that others see. nvcc may take something for impossible, and then leaves out all that follows without a word."""
    found = set()
    for head, function in re.findall(r"^\.func ([^;{]*)\{(.*?)^\}", ptx, re.M | re.S):
        if not re.search(r"\b(st|red|atom)\.(?!shared|local|param)", function):
            found |= {name for name in bodies if f"{len(name)}{name}I" in head}
    return sorted(found)


def few_that_bring_all(forms):
    """Numbers of rows that together have what all of `forms` have, those that bring the most first."""
    chosen, missing = [], set().union(*forms)
    while missing:
        chosen.append(max(range(len(forms)), key=lambda number: (len(forms[number] & missing), -number)))
        missing -= forms[chosen[-1]]
    for number in list(chosen):  # the later ones may bring all that one brought
        others = [forms[other] for other in chosen if other != number]
        if forms[number] <= set().union(*others):
            chosen.remove(number)
    return chosen


def bodies_test(arch, execution):
    def test(tamp):
        folders, forms = zip(*(compiled(tamp, number, arch, execution) for number in range(len(ROWS))))
        seen = {body for row in forms for body, _ in row}
        left_out = absent(arch, execution)
        assert seen == defined() - left_out, f"no row has {sorted(defined() - left_out - seen)}; not expected: {sorted(seen & left_out)}; unknown: {sorted(seen - defined())}"
        for number in few_that_bring_all(forms)[:SAMPLED.get((arch, execution))]:
            built(folders[number], number, arch, {body for body, _ in forms[number]})
    test.__name__ = f"test_bodies_{arch}_{execution}"
    return test


def all_tests():
    known = subprocess.run([nvcc(), "--list-gpu-arch"], capture_output=True, text=True, check=True).stdout.replace("compute_", "sm_").split()
    for arch in GPUS:
        if arch.removesuffix("a") not in known:  # left out, not passed
            print(f"this nvcc does not know {arch}: nothing is compiled for it")
    return [bodies_test(arch, execution) for arch in GPUS if arch.removesuffix("a") in known for execution in ("persistent", "graph")]


if __name__ == "__main__":
    sys.exit(harness.main(all_tests()))
