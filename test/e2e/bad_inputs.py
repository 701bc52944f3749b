#!/usr/bin/env python3
"""Feeds broken, hostile, and unusual models to `tamp compile` and checks what a user relies on: a refusal is one line that
starts with "error: ", says what is wrong, has the right exit code (1 bad input, 2 unsupported), comes within 5 seconds and
2 GB, is no signal, and leaves no output folder. Models that are merely odd must compile.

    bad_inputs.py TAMP [NAME...]        NAME: only the cases whose name contains it
"""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper

import models as m

BAD, UNSUPPORTED, ACCEPT = 1, 2, 0
MAX_SECONDS = 5.0
MAX_BYTES = 2 << 30
ACCEPT_SECONDS = 120.0


@dataclasses.dataclass
class Case:
    name: str
    code: int
    make: Callable  # (folder) -> a ModelProto, the bytes of the file, or None if it wrote model.onnx itself
    says: str = ""  # must be in the line
    lines: int = 1
    args: tuple = ()


CASES = []


def case(name, code, make, says="", **kwargs):
    CASES.append(Case(name, code, make if callable(make) else (lambda folder: make), says, **kwargs))


# --- container -------------------------------------------------------------------------------------------------------


def edit(model, change):
    change(model)
    return model


def deep_nesting(folder):
    """Subgraphs 120 levels deep: more than protobuf reads."""
    inner = m.relu().graph
    for _ in range(120):
        outer = onnx.GraphProto(name="g")
        outer.node.add(op_type="If").attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g.CopyFrom(inner)
        inner = outer
    made = m.relu()
    made.graph.CopyFrom(inner)
    return made.SerializeToString()


def field(number, payload):
    """A length-delimited field of protobuf's wire format."""
    length, varint = len(payload), b""
    while length > 127:
        varint, length = varint + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + varint + bytes([length]) + payload


def fifteen_million_nodes(folder):
    """30 MB of empty nodes, which a parser turns into 5 GB."""
    header = edit(m.relu(), lambda x: x.ClearField("graph")).SerializeToString()
    return header + field(7, m.relu().graph.SerializeToString() + field(1, b"") * (15 << 20))


good = m.relu().SerializeToString()
case("empty_file", BAD, b"", "empty")
case("truncated_half", BAD, good[: len(good) // 2], "not an ONNX model")
case("truncated_by_one", BAD, good[:-1], "not an ONNX model")
case("garbage", BAD, bytes((i * 131 + 7) % 256 for i in range(4096)), "not an ONNX model")
case("text", BAD, b"this is no model, it is a line of text\n" * 10, "not an ONNX model")
case("tensor_as_model", BAD, m.constant("w", [1, 2, 3]).SerializeToString(), "not an ONNX model")
case("deep_nesting", BAD, deep_nesting, "not an ONNX model")
case("no_graph", BAD, lambda f: edit(m.relu(), lambda x: x.ClearField("graph")), "no graph")
case("fifteen_million_nodes", BAD, fifteen_million_nodes, "more than")
case("model_is_a_folder", BAD, lambda f: (f / "model.onnx").mkdir(), "not a regular file")
case("model_is_a_fifo", BAD, lambda f: os.mkfifo(f / "model.onnx"), "not a regular file")
case("model_is_missing", BAD, lambda f: None, "cannot open")

# --- weights of few bits -----------------------------------------------------------------------------------------------


def packed(name, data_type, dims, raw):
    return TensorProto(name=name, data_type=data_type, dims=dims, raw_data=bytes(raw))


def blocked(block, scales, opset=21, raw=64):
    """y = x @ DequantizeLinear(w), int4 weights [4,32]."""
    nodes = [m.node("DequantizeLinear", ["w", "s"], ["f"], axis=1, block_size=block), m.node("MatMul", ["x", "f"], ["y"])]
    weights = [packed("w", TensorProto.INT4, [4, 32], range(raw)), m.constant("s", np.ones(scales))]
    return m.model(nodes, outputs=[m.value("y", [1, 32])], initializers=weights, opset=opset)


def n_bits(b=(8, 1, 16), scales=(8, 1), operands=("x", "b", "s"), **attributes):
    node = m.node("MatMulNBits", list(operands), ["y"], domain="com.microsoft", **{"K": 4, "N": 8, "bits": 4, "block_size": 32, **attributes})
    weights = [m.constant("b", np.ones(b), np.uint8), m.constant("s", np.ones(scales)), m.constant("g", [0, 0, 7, 0], np.int32)]
    return m.model([node], outputs=[m.value("y", [1, 8])], initializers=weights)


case("blocks_fit", ACCEPT, blocked(16, [4, 2]))
case("blocks_with_a_short_end", ACCEPT, blocked(12, [4, 3]))
case("block_does_not_divide", BAD, blocked(12, [4, 2]), "x_scale has shape [4,2], expected [4,3]: one for each 12 elements")
case("block_negative", BAD, blocked(-8, [4, 4]), "attribute 'block_size' is -8")
case("block_huge", BAD, blocked(2**62, [4, 2]), "expected [4,1]")
case("block_before_opset_21", BAD, blocked(16, [4, 2], opset=19), "x_scale has 8 elements in 2 dimensions, expected one, or one for each of 32")
case("int4_too_short", BAD, blocked(16, [4, 2], raw=63), "holds 63 bytes, its shape and type need 64")
case("n_bits_fit", ACCEPT, n_bits())
case("n_bits_wrong_b", BAD, n_bits(b=(8, 2, 8)), "input 1 (B) has shape [8,2,8], expected [8,1,16]")
case("n_bits_wrong_scales", BAD, n_bits(scales=(8, 2)), "input 2 (scales) has shape [8,2], expected [8,1]")
case("n_bits_block_of_24", BAD, n_bits(block_size=24), "attribute 'block_size' is 24, expected a power of 2")
case("n_bits_of_3", UNSUPPORTED, n_bits(bits=3), "attribute 'bits' is 3, supported: 2, 4, 8")
case("n_bits_huge", BAD, n_bits(N=2**31 - 1, K=4), "input 1 (B) has shape")
case("n_bits_wrong_group", BAD, n_bits(operands=("x", "b", "s", "", "g")), "input g_idx holds 7, expected 0 to 0")

# --- versions --------------------------------------------------------------------------------------------------------

case("no_opset_import", BAD, m.relu(opset=None), "no opset")
case("opset_0", BAD, m.relu(opset=0), "opset 0")
case("opset_negative", BAD, m.relu(opset=-3), "opset -3")
case("opset_9999", UNSUPPORTED, m.relu(opset=9999), "opset 9999 is newer")
case("opset_twice", BAD, lambda f: edit(m.relu(), lambda x: x.opset_import.add(domain="ai.onnx", version=13)), "twice")
case("ir_missing", BAD, lambda f: edit(m.relu(), lambda x: x.ClearField("ir_version")), "ir_version")
case("ir_99", UNSUPPORTED, m.relu(ir=99), "IR version 99")
case("op_newer_than_opset", UNSUPPORTED, m.model([m.node("Gelu", ["x"], ["y"])], opset=13), "came with opset 20")

# --- operators -------------------------------------------------------------------------------------------------------

INJECTION = "Relu */ int main(){} /*\n#error\x1b[31m"
case("unknown_op", UNSUPPORTED, m.model([m.node("Frobnicate", ["x"], ["y"], "f")]), "node #0 'f' (Frobnicate, opset 17)")
case("unknown_domain", UNSUPPORTED, m.model([m.node("Relu", ["x"], ["y"], domain="com.example")]), "com.example.Relu")
case("empty_op_type", UNSUPPORTED, m.model([m.node("", ["x"], ["y"])]), "names no operator")
case("op_type_injection", UNSUPPORTED, m.model([m.node(INJECTION, ["x"], ["y"])]), "not supported")
case(
    "all_unsupported_at_once",
    UNSUPPORTED,
    m.model([m.node("A", ["x"], ["t"]), m.node("Relu", ["t"], ["u"]), m.node("B", ["u"], ["v"]), m.node("C", ["v"], ["y"])]),
    "(A, opset 17)",
    lines=3,
)


def local_function(attributes):
    """A call of a function of the model's own."""
    made = m.model([m.node("Twice", ["x"], ["y"], domain="my", **attributes)])
    body = [m.node("Add", ["a", "a"], ["b"])]
    made.functions.append(helper.make_function("my", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    return made


case("accept_local_function", ACCEPT, local_function({}))
case("local_function_with_unknown_attribute", BAD, local_function({"alpha": 1.0}), "(my.Twice): unknown attribute 'alpha'")


def function_bomb(folder):
    """Thirty functions, each calling the one before twice: 2^30 nodes if somebody inlines them."""
    made = m.model([m.node("F30", ["x"], ["y"], domain="my")])
    made.functions.append(helper.make_function("my", "F0", ["a"], ["b"], [m.node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)]))
    for i in range(1, 31):
        body = [m.node(f"F{i - 1}", ["a"], ["t"], domain="my"), m.node(f"F{i - 1}", ["t"], ["b"], domain="my")]
        made.functions.append(helper.make_function("my", f"F{i}", ["a"], ["b"], body, [helper.make_opsetid("my", 1)]))
    return made


def function_recursion(folder):
    made = m.model([m.node("R", ["x"], ["y"], domain="my")])
    made.functions.append(
        helper.make_function("my", "R", ["a"], ["b"], [m.node("R", ["a"], ["b"], domain="my")], [helper.make_opsetid("my", 1)])
    )
    return made


case("function_bomb", UNSUPPORTED, function_bomb, "the bodies of functions come to more than 100000 nodes")
case("function_recursion", UNSUPPORTED, function_recursion, "calls itself (my.R -> my.R)")

# --- graph -----------------------------------------------------------------------------------------------------------


def chain(length, broken=False):
    names = ["x"] + [f"t{i}" for i in range(length - 1)] + ["y"]
    nodes = [m.node("Relu", [a], [b], "same name") for a, b in zip(names, names[1:])]
    if broken:
        nodes[0].input[0] = names[-2]
    return m.model(nodes)


case("no_nodes_undefined_output", BAD, m.model([]), "'y'")
case("no_outputs", BAD, m.model([m.node("Relu", ["x"], ["y"])], outputs=[]), "no outputs")
case(
    "cycle", BAD, m.model([m.node("Add", ["x", "b"], ["a"], "p"), m.node("Relu", ["a"], ["b"], "q"), m.node("Relu", ["b"], ["y"])]), "cycle"
)
case("self_loop", BAD, m.model([m.node("Add", ["x", "y"], ["y"], "p")]), "cycle")
case("cycle_of_20000", BAD, lambda f: chain(20000, broken=True), "cycle")
case("missing_input", BAD, m.model([m.node("Add", ["x", "nowhere"], ["y"], "p")]), "'nowhere'")
case("duplicate_output", BAD, m.model([m.node("Relu", ["x"], ["y"]), m.node("Tanh", ["x"], ["y"])]), "makes 'y'")
case("output_shadows_input", BAD, m.model([m.node("Relu", ["x"], ["x"]), m.node("Tanh", ["x"], ["y"])]), "makes 'x'")
case("duplicate_input", BAD, m.model([m.node("Relu", ["x"], ["y"])], inputs=[m.value("x", [1, 4])] * 2), "two graph inputs")
case(
    "duplicate_initializer", BAD, m.model([m.node("Add", ["x", "w"], ["y"])], initializers=[m.constant("w", [1.0])] * 2), "two initializers"
)
case("required_input_left_out", BAD, m.model([m.node("Add", ["x", ""], ["y"])]), "Add")

case("accept_smallest", ACCEPT, m.relu())
case("accept_unsorted", ACCEPT, m.model([m.node("Relu", ["t"], ["y"]), m.node("Tanh", ["x"], ["t"])]))
case("accept_same_node_names", ACCEPT, chain(50))
case("accept_dead_nodes", ACCEPT, m.model([m.node("Relu", ["x"], ["y"]), m.node("Tanh", ["x"], ["unused"])]))
case(
    "accept_domain_alias",
    ACCEPT,
    lambda f: edit(m.model([m.node("Relu", ["x"], ["y"], domain="ai.onnx")]), lambda x: setattr(x.opset_import[0], "domain", "ai.onnx")),
)
case(
    "accept_initializer_as_input",
    ACCEPT,
    m.model(
        [m.node("Add", ["x", "w"], ["y"])],
        inputs=[m.value("x", [1, 4]), m.value("w", [4])],
        initializers=[m.constant("w", [1.0, 2, 3, 4])],
        ir=3,
    ),
)
case("accept_trailing_optional", ACCEPT, m.model([m.node("Clip", ["x", "", ""], ["y"])]))
case(
    "accept_several_outputs",
    ACCEPT,
    m.model([m.node("Relu", ["x"], ["y"]), m.node("Identity", ["y"], ["z"])], outputs=[m.value("y", [1, 4]), m.value("z", [1, 4])]),
)

# --- names -----------------------------------------------------------------------------------------------------------

ODD = ["*/ int main(){} /*", "a.b", "a_b", "", "1234", "operator", "line\nbreak", 'quote"\\', "\u00fc\u4e2d", "??/", "n" * 5000]


def odd_names(folder):
    nodes = []
    last = "x"
    for i, name in enumerate(ODD):
        out = "y" if i == len(ODD) - 1 else f"t{i} {name}"
        made = m.node("Tanh", [last], [out])
        made.name = name
        nodes.append(made)
        last = out
    return m.model(nodes)


case("accept_odd_names", ACCEPT, odd_names)
case(
    "name_in_a_refusal",
    BAD,
    m.model([m.node("MatMul", ["x", "w"], ["y"], INJECTION)], initializers=[m.constant("w", np.ones((3, 4)))]),
    "inner extents 4 and 3",
)
case("empty_input_name", BAD, m.model([m.node("Relu", ["x"], ["y"])], inputs=[m.value("x", [1, 4]), m.value("", [1])]), "no name")

# --- initializers ----------------------------------------------------------------------------------------------------


def with_initializer(dims=(4,), dtype=TensorProto.FLOAT, raw=None, **fields):
    tensor = TensorProto(name="w", dims=dims, data_type=dtype)
    if raw is not None:
        tensor.raw_data = raw
    for field, values in fields.items():
        getattr(tensor, field).extend(values)
    return m.model([m.node("Add", ["x", "w"], ["y"])], initializers=[tensor])


case("raw_short", BAD, with_initializer(raw=bytes(15)), "initializer 'w'")
case("raw_long", BAD, with_initializer(raw=bytes(17)), "initializer 'w'")
case("no_data", BAD, with_initializer(), "0 values")
case("typed_short", BAD, with_initializer(float_data=[1, 2, 3]), "3 values")
case("raw_and_typed", BAD, with_initializer(raw=bytes(16), float_data=[1, 2, 3, 4]), "both raw")
case("mixed_types", BAD, with_initializer(float_data=[1, 2, 3, 4], int64_data=[1]), "field that does not belong")
case("dims_negative", BAD, with_initializer(dims=(-4,), raw=bytes(16)), "impossible shape")
case("dims_two_negatives", BAD, with_initializer(dims=(-1, -4), raw=bytes(16)), "impossible shape")
case("dims_wrap_to_zero", BAD, with_initializer(dims=(1 << 32, 1 << 32), raw=b""), "impossible shape")
case("dims_overflow", BAD, with_initializer(dims=(1 << 62, 6), raw=bytes(16)), "impossible shape")
case("dims_huge", UNSUPPORTED, with_initializer(dims=(1 << 40,), raw=bytes(16)), "elements")
case("type_0", BAD, with_initializer(dtype=0, raw=bytes(16)), "UNDEFINED")
case("type_99", BAD, with_initializer(dtype=99, raw=bytes(16)), "99")
case("type_string", UNSUPPORTED, with_initializer(dtype=TensorProto.STRING, string_data=[b"a"] * 4), "STRING")
case("half_does_not_fit", BAD, with_initializer(dtype=TensorProto.FLOAT16, int32_data=[1, 2, 70000, 4]), "70000")
case("bool_not_0_or_1", BAD, with_initializer(dtype=TensorProto.BOOL, raw=b"\x00\x01\x02\x01"), "bool value 2")
case("operand_types_differ", BAD, with_initializer(dtype=TensorProto.INT64, int64_data=[1, 2, 3, 4]), "different types")


def sparse(folder):
    made = m.relu()
    made.graph.sparse_initializer.add().values.CopyFrom(m.constant("s", [1.0]))
    return made


case("sparse_initializer", UNSUPPORTED, sparse, "sparse")

# --- shapes and types ------------------------------------------------------------------------------------------------


def symbolic(shape):
    return m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", shape)], [m.value("y", None)])


case("input_negative_dim", BAD, symbolic([1, -4]), "negative extent")
case("input_without_type", BAD, lambda f: edit(m.relu(), lambda x: x.graph.input[0].ClearField("type")), "no type")
case("input_without_shape", BAD, m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", None)]), "no shape")
case("input_type_77", BAD, m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", [1, 4], 77)]), "77")
case("input_complex", UNSUPPORTED, m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", [1, 4], TensorProto.COMPLEX64)]), "COMPLEX64")
case("grid_sample_f64", UNSUPPORTED, m.model([m.node("GridSample", ["x", "g"], ["y"])], [m.value("x", [1, 1, 2, 2], TensorProto.DOUBLE), m.value("g", [1, 1, 1, 2])]), "GridSample of f64")
case("input_2_to_80", BAD, symbolic([1 << 40, 1 << 40]), "impossible shape")
case("input_8g_elements", UNSUPPORTED, symbolic([1 << 33]), "elements")
case(
    "sequence_input",
    UNSUPPORTED,
    m.model([m.node("Relu", ["x"], ["y"])], [helper.make_tensor_sequence_value_info("x", 1, [1, 4])]),
    "sequence",
)
case("symbols_unbound", BAD, symbolic(["N", 4, "T", "N"]), "--dim N=value --dim T=value")
case("anonymous_dim_unbound", BAD, symbolic([None, 4]), "--dim x.0=value")
case("unknown_dim_given", BAD, symbolic(["N", 4]), "symbolic dimensions: N", args=("--dim", "N=2", "--dim", "M=3"))
case("output_shape_lies", BAD, m.model([m.node("Relu", ["x"], ["y"])], outputs=[m.value("y", [1, 5])]), "[1,5]")
case("output_type_lies", BAD, m.model([m.node("Relu", ["x"], ["y"])], outputs=[m.value("y", [1, 4], TensorProto.DOUBLE)]), "DOUBLE")
case("accept_int_known_at_run_time_only", ACCEPT, m.model([m.node("Cast", ["x"], ["t"], to=TensorProto.INT64), m.node("Cast", ["t"], ["y"], to=1)]))
case("accept_symbols_bound", ACCEPT, symbolic(["N", 4, "N"]), args=("--dim", "N=3"))
case("accept_anonymous_dim_bound", ACCEPT, symbolic([None, 4]), args=("--dim", "x.0=3"))

# --- attributes ------------------------------------------------------------------------------------------------------

case("concat_without_axis", BAD, m.model([m.node("Concat", ["x", "x"], ["y"])]), "'axis' is missing")
case("attribute_of_wrong_type", BAD, m.conv(strides=[1.0, 1.0]), "expected ints")
case("attribute_unknown", BAD, m.model([m.node("Relu", ["x"], ["y"], alpha=1.0)]), "unknown attribute 'alpha'")
case(
    "attribute_twice",
    BAD,
    lambda f: edit(m.conv(strides=[1, 1]), lambda x: x.graph.node[0].attribute.append(helper.make_attribute("strides", [1, 1]))),
    "twice",
)
case("attribute_of_newer_version", BAD, m.pool("AveragePool", dilations=[1, 1]), "unknown attribute 'dilations'")
case("axis_out_of_range", BAD, m.unary("Softmax", [1, 4], [1, 4], axis=2), "'axis' is 2")
case("axis_int_min", BAD, m.unary("Softmax", [1, 4], [1, 4], axis=-(1 << 63)), "axis")
case("perm_duplicate", BAD, m.unary("Transpose", [2, 3], [2, 3], perm=[0, 0]), "perm")
case("perm_out_of_range", BAD, m.unary("Transpose", [2, 3], [2, 3], perm=[0, 7]), "perm")
case("stride_0", BAD, m.pool(strides=[0, 2]), "'strides'")
case("dilation_0", BAD, m.conv(dilations=[0, 1]), "'dilations'")
case("kernel_huge", BAD, m.pool(kernel_shape=[1 << 29, 1 << 29]), "window")
case("pads_negative", BAD, m.conv(pads=[-1, 0, 0, 0]), "'pads'")
case("pads_too_few", BAD, m.conv(pads=[1, 1]), "'pads' has 2 values")
case("auto_pad_bogus", BAD, m.conv(auto_pad="SAME_SIDEWAYS"), "SAME_SIDEWAYS")
case("conv_group_0", BAD, m.conv(group=0), "'group' is 0")
case("conv_group_does_not_divide", BAD, m.conv(group=3), "'group' is 3")
case("conv_channels", BAD, m.conv(w=(6, 5, 3, 3)), "channels")
case("conv_kernel_against_w", BAD, m.conv(kernel_shape=[5, 5]), "'kernel_shape' is [5,5]")
case("conv_bias_length", BAD, m.conv(bias=5), "B has shape [5]")
case("conv_4d", UNSUPPORTED, m.conv(x=(1, 4, 8, 8, 8, 8), w=(6, 4, 3, 3, 3, 3), y=(1, 6, 6, 6, 6, 6)), "4-D convolution")
case(
    "batch_norm_scale_length",
    BAD,
    m.unary("BatchNormalization", [1, 3, 4], [1, 3, 4], [m.constant(n, np.ones(3 + (n == "s"))) for n in "sbmv"], "sbmv"),
    "scale",
)
case("matmul_inner_extent", BAD, m.unary("MatMul", [1, 4], [1, 3], [m.constant("w", np.ones((5, 3)))], "w"), "inner extents 4 and 5")
case("broadcast_impossible", BAD, m.unary("Add", [1, 4], [1, 4], [m.constant("w", [1.0, 2, 3])], "w"), "broadcast")
case("resize_scale_0", BAD, m.unary("Resize", [1, 4], None, [m.constant("s", [1.0, 0.0])], ["", "s"]), "scale 1 is 0")
case("resize_scale_nan", BAD, m.unary("Resize", [1, 4], None, [m.constant("s", [1.0, np.nan])], ["", "s"]), "scale 1 is nan")
case("resize_scale_huge", BAD, m.unary("Resize", [1, 4], None, [m.constant("s", [1.0, 1e30])], ["", "s"]), "which makes")
case("resize_sizes_huge", BAD, m.unary("Resize", [1, 4], None, [m.ints("s", [1, 2**30])], ["", "", "s"]), "would make a constant")
case("resize_sizes_overflow", BAD, m.unary("Resize", [1, 4], None, [m.ints("s", [1, 2**62])], ["", "", "s"]), "sizes are")
case("conv_transpose_pads", BAD, m.unary("ConvTranspose", [1, 2, 4], None, [m.constant("w", np.ones((2, 3, 3)))], ["w"], pads=[3, 3]), "would have 0 elements")
case("conv_transpose_output_shape_huge", BAD, m.unary("ConvTranspose", [1, 2, 4], None, [m.constant("w", np.ones((2, 3, 3)))], ["w"], output_shape=[2**62]), "would have")
case("conv_transpose_output_shape_negative", BAD, m.unary("ConvTranspose", [1, 2, 4], None, [m.constant("w", np.ones((2, 3, 3)))], ["w"], output_shape=[-(2**62)]), "would have")
case("col2im_huge_image", BAD, m.unary("Col2Im", [1, 4, 4], None, [m.ints("i", [2**62, 5]), m.ints("b", [2, 2])], ["i", "b"], opset=18), "does not fit")
case("center_crop_pad_negative", BAD, m.unary("CenterCropPad", [1, 4], None, [m.ints("s", [1, -4])], ["s"], opset=18), "input shape is")
case("max_unpool_huge", BAD, m.model([m.node("MaxUnpool", ["x", "i", "s"], ["y"], "u", kernel_shape=[2])], [m.value("x", [1, 1, 4]), m.value("i", [1, 1, 4], m.TensorProto.INT64)],
                                     [m.value("y", None)], [m.ints("s", [1, 1, 2**62])]), "output_shape")

# --- operands --------------------------------------------------------------------------------------------------------


def shape_operand(op, x, wanted, **kwargs):
    return m.unary(op, x, None, [m.ints("s", wanted)], "s", **kwargs)


def fold(op, a, b, dtype=np.int64):
    """y = x + f32(op(a, b)), where the operands are constants."""
    return m.model(
        [m.node(op, ["a", "b"], ["c"], "folded"), m.node("Cast", ["c"], ["d"], to=1), m.node("Add", ["x", "d"], ["y"])],
        initializers=[m.constant("a", a, dtype), m.constant("b", b, dtype)],
    )


def sliced(start, end, step, y):
    return m.unary("Slice", [1, 8], y, [m.ints("s", [start]), m.ints("e", [end]), m.ints("a", [1]), m.ints("p", [step])], "seap")


INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
case("reshape_two_free", BAD, shape_operand("Reshape", [2, 6], [-1, -1]), "more than one -1")
case("reshape_count", BAD, shape_operand("Reshape", [2, 6], [5, 2]), "do not fit")
case("reshape_minus_2", BAD, shape_operand("Reshape", [2, 6], [-2, 6]), "-2")
case("reshape_overflow", BAD, shape_operand("Reshape", [2, 6], [1 << 30, 1 << 30, 1 << 30]), "do not fit")
case(
    "reshape_run_time_shape",
    UNSUPPORTED,
    m.model([m.node("Reshape", ["x", "s"], ["y"], "r")], [m.value("x", [1, 4]), m.value("s", [2], TensorProto.INT64)]),
    "known only at run time",
)
case("slice_step_0", BAD, sliced(0, 8, 0, [1, 8]), "step 0")
case(
    "split_sum",
    BAD,
    lambda f: m.model([m.node("Split", ["x", "s"], ["y", "z"], axis=1)], initializers=[m.ints("s", [1, 2])]),
    "add up to 4",
)
case(
    "split_negative",
    BAD,
    lambda f: m.model([m.node("Split", ["x", "s"], ["y", "z"], axis=1)], initializers=[m.ints("s", [5, -1])]),
    "split [5,-1]",
)
case("gather_out_of_range", BAD, m.unary("Gather", [4, 3], [1, 3], [m.ints("i", [4])], "i"), "index 4")
case(
    "accept_gather_run_time_indices",
    ACCEPT,
    m.model(
        [m.node("Gather", ["w", "x"], ["y"])], [m.value("x", [2], TensorProto.INT64)], [m.value("y", [2])], [m.constant("w", [1.0, 2, 3])]
    ),
)
case("expand_does_not_fit", BAD, shape_operand("Expand", [1, 4], [2, 3]), "broadcast")
case("tile_negative", BAD, shape_operand("Tile", [1, 4], [1, -2]), "negative")
case(
    "constant_of_shape_negative",
    BAD,
    lambda f: m.model([m.node("ConstantOfShape", ["s"], ["t"]), m.node("Add", ["x", "t"], ["y"])], initializers=[m.ints("s", [-1])]),
    "negative",
)
case(
    "range_delta_0",
    BAD,
    lambda f: m.model(
        [m.node("Range", ["a", "b", "d"], ["t"]), m.node("Add", ["x", "t"], ["y"])],
        initializers=[m.constant(n, v) for n, v in zip("abd", (0, 4, 0))],
    ),
    "delta is 0",
)
case("pad_removes_too_much", BAD, m.unary("Pad", [1, 4], None, [m.ints("p", [0, -3, 0, -2])], "p"), "remove more")
case("pad_reflects_too_far", BAD, m.unary("Pad", [1, 4], None, [m.ints("p", [0, 4, 0, 0])], "p", mode="reflect"), "pads 4 and 0")
case("squeeze_not_1", BAD, m.unary("Squeeze", [1, 4], None, [m.ints("a", [1])], "a"), "extent 4")
case("unsqueeze_duplicate", BAD, m.unary("Unsqueeze", [1, 4], None, [m.ints("a", [0, 0])], "a"), "twice")
case("flatten_axis", BAD, m.unary("Flatten", [1, 4], None, axis=5), "'axis' is 5")
case("accept_divide_by_0_folded", ACCEPT, fold("Div", [1], [0]))  # the value that the device would compute
case("accept_divide_overflow_folded", ACCEPT, fold("Div", [INT_MIN], [-1]))
case("accept_slice_extremes", ACCEPT, sliced(INT_MAX, INT_MIN, -1, [1, 8]))
case("accept_mod_overflow_folded", ACCEPT, fold("Mod", [INT_MIN], [-1]))

# --- bombs -----------------------------------------------------------------------------------------------------------


def bomb(op, dtype):
    """A few bytes of constants that ask for terabytes of result."""
    return m.model(
        [
            m.node(op, ["a", "s"] if op == "Expand" else ["s"], ["t"]),
            m.node("Shape", ["t"], ["u"]),
            m.node("ReduceSum", ["t"], ["v"]),
            m.node("Cast", ["v"], ["w"], to=1),
            m.node("Add", ["x", "w"], ["y"]),
        ],
        initializers=[m.constant("a", [1], dtype), m.ints("s", [1 << 20, 1 << 20])],
    )


case("expand_bomb", UNSUPPORTED, bomb("Expand", np.int64), "elements")
case(
    "expand_bomb_2g",
    BAD,
    lambda f: m.model(
        [
            m.node("Expand", ["a", "s"], ["t"]),
            m.node("ReduceSum", ["t"], ["u"]),
            m.node("Cast", ["u"], ["v"], to=1),
            m.node("Add", ["x", "v"], ["y"]),
        ],
        initializers=[m.ints("a", [1]), m.ints("s", [1 << 28])],
    ),
    "folded",
)
case("constant_of_shape_bomb", UNSUPPORTED, bomb("ConstantOfShape", np.float32), "elements")
case(
    "range_bomb",
    BAD,
    lambda f: m.model(
        [
            m.node("Range", ["a", "b", "d"], ["t"]),
            m.node("ReduceSum", ["t"], ["u"]),
            m.node("Cast", ["u"], ["v"], to=1),
            m.node("Add", ["x", "v"], ["y"]),
        ],
        initializers=[m.ints(n, v) for n, v in zip("abd", (0, INT_MAX, 1))],
    ),
    "Range",
)


def many_bombs(folder):
    """Each below the limit of one tensor, together far above the limit of all."""
    nodes = [m.node("Expand", ["a", "s"], [f"t{i}"], f"e{i}") for i in range(400)]
    nodes.append(m.node("Sum", ["x"] + ["x"], ["y"]))
    return m.model(nodes, initializers=[m.ints("a", [1]), m.ints("s", [1 << 22])])


case("many_small_bombs", BAD, many_bombs, "folded")

# --- zero size -------------------------------------------------------------------------------------------------------

case("accept_zero_size_input", ACCEPT, m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", [0, 4])], [m.value("y", [0, 4])]))
case("accept_scalar_io", ACCEPT, m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", [])], [m.value("y", [])]))


def ports(count):
    """The sum of `count` - 1 inputs is the output."""
    names = [f"x{i}" for i in range(count - 1)]
    return m.model([m.node("Sum", names, ["y"])], [m.value(name, [1, 4]) for name in names])


case("accept_400_ports", ACCEPT, ports(400))
case("401_ports", UNSUPPORTED, ports(401), "401 inputs and outputs; supported: up to 400")
case("accept_matmul_k_0", ACCEPT, m.unary("MatMul", [2, 0], [2, 3], [m.constant("w", np.ones((0, 3)))], "w"))

# --- external data ---------------------------------------------------------------------------------------------------


def ext(location="w.bin", offset=None, length=None, data=bytes(16), extra=(), prepare=None, change=None):
    """A model whose w f32[4] lies in a file; `prepare` may put something else in that file's place."""

    def make(folder):
        (folder.parent / "secret.bin").write_bytes(bytes(16))
        if prepare:
            prepare(folder)
        elif data is not None:
            (folder / "w.bin").write_bytes(data)
        tensor = m.external("w", [4], location, offset, length, extra)
        if change:
            change(tensor)
        return m.model([m.node("Add", ["x", "w"], ["y"])], initializers=[tensor])

    return make


def linked(folder):
    (folder / "w.bin").symlink_to(folder.parent / "secret.bin")


def linked_inside(folder):
    (folder / "real.bin").write_bytes(bytes(16))
    (folder / "w.bin").symlink_to("real.bin")


def linked_folder(folder):
    (folder / "d").symlink_to(folder.parent)


def hard_linked(folder):
    (folder / "w.bin").hardlink_to(folder.parent / "secret.bin")


case("ext_dotdot", BAD, ext("../secret.bin"), "leaves the model's folder")
case("ext_dotdot_in_the_middle", BAD, ext("d/../../secret.bin"), "leaves the model's folder")
case("ext_absolute", BAD, ext("/etc/passwd"), "absolute")
case("ext_symlink", BAD, ext(prepare=linked), "symbolic link")
case("ext_symlink_inside", BAD, ext(prepare=linked_inside), "symbolic link")
case("ext_symlink_folder", BAD, ext("d/secret.bin", prepare=linked_folder), "symbolic link")
case("ext_symlink_loop", BAD, ext(prepare=lambda f: (f / "w.bin").symlink_to("w.bin")), "symbolic link")
case("ext_hard_link", BAD, ext(prepare=hard_linked), "hard links")
case("ext_fifo", BAD, ext(prepare=lambda f: os.mkfifo(f / "w.bin")), "not a regular file")
case("ext_folder", BAD, ext(prepare=lambda f: (f / "w.bin").mkdir()), "not a regular file")
case("ext_missing", BAD, ext(data=None), "No such file")
case("ext_no_location", BAD, ext(None), "location")
case("ext_empty_location", BAD, ext(""), "empty")
case("ext_nul", BAD, ext("w.bin\0.txt"), "NUL")
case("ext_backslash", BAD, ext("..\\secret.bin"), "backslash")
case("ext_short", BAD, ext(data=bytes(15), length=16), "15 bytes")
case("ext_length_too_big", BAD, ext(length=1 << 40), "bytes")
case("ext_length_mismatch", BAD, ext(length=12), "need 16")
case("ext_offset_negative", BAD, ext(offset=-16, length=16), "offset")
case("ext_length_negative", BAD, ext(length=-16), "length")
case("ext_offset_no_number", BAD, ext(offset="4x", length=16), "offset")
case("ext_offset_2_to_64", BAD, ext(offset=1 << 64, length=16), "offset")
case("ext_offset_plus_length_wraps", BAD, ext(offset=(1 << 63) - 8, length=16), "offset")
case("ext_unknown_key", BAD, ext(extra=[("exec", "rm")]), "unknown key 'exec'")
case("ext_and_raw", BAD, ext(change=lambda t: setattr(t, "raw_data", bytes(16))), "inside the model and in an external file")
case("accept_ext", ACCEPT, ext(offset=4, length=16, data=bytes(20)))
case("accept_ext_dots_in_name", ACCEPT, ext("..w..bin", prepare=lambda f: (f / "..w..bin").write_bytes(bytes(16))))


# --- recurrent operators ---------------------------------------------------------------------------------------------


def lstm(op="LSTM", x=(3, 1, 4), w=(1, 8, 4), r=(1, 8, 2), more=(), run_time=False, opset=17, **attributes):
    """X, W, R and `more` operands (numpy arrays, None = left out) -> Y; hidden size 2."""
    names, initializers = ["x", "w", "r"], [] if run_time else [m.constant("w", np.full(w, 0.1)), m.constant("r", np.full(r, 0.1))]
    inputs = [m.value("x", list(x))] + ([m.value("w", list(w)), m.value("r", list(r))] if run_time else [])
    for i, operand in enumerate(more):
        names.append("" if operand is None else f"o{i}")
        if operand is not None:
            initializers.append(m.constant(f"o{i}", operand, operand.dtype))
    return m.model([m.node(op, names, ["y"], "n", **attributes)], inputs, [m.value("y", None)], initializers, opset=opset)


def lens(*values, dtype=np.int32):
    return [None, np.array(values, dtype)]


def f32(*shape):
    return np.ones(shape, np.float32)


case("lstm_x_is_a_matrix", BAD, lstm(x=(3, 4)), "input X has shape [3,4]")
case("lstm_x_is_empty", UNSUPPORTED, lstm(x=(0, 1, 4)), "at least one element")
case("lstm_w_of_other_input_size", BAD, lstm(w=(1, 8, 5)), "input W has shape [1,8,5], expected [1,8,4]")
case("lstm_w_of_three_gates", BAD, lstm(w=(1, 6, 4)), "input W has shape [1,6,4], expected [1,8,4]")
case("lstm_r_is_a_matrix", BAD, lstm(r=(8, 2)), "input R has shape [8,2]")
case("lstm_r_of_no_hidden", BAD, lstm(w=(1, 0, 4), r=(1, 0, 0)), "input R has shape [1,0,0]")
case("lstm_r_not_square", BAD, lstm(r=(1, 8, 3)), "input R has shape [1,8,3], expected [1,12,3]")
case("lstm_one_direction_of_two", BAD, lstm(direction="bidirectional"), "input R has shape [1,8,2], expected [2,8,2]")
case("lstm_w_missing", BAD, m.model([m.node("LSTM", ["x", "", "x"], ["y"])]), "input 1 is missing")
case("lstm_bias_of_half", BAD, lstm(more=[f32(1, 8)]), "input B has shape [1,8], expected [1,16]")
case("lstm_nine_inputs", BAD, lstm(more=[None] * 5 + [f32(1)]), "has 9 inputs, expected 3 to 8")
case("gru_with_a_cell_state", BAD, lstm("GRU", more=[None, None, None, f32(1, 1, 2)]), "has 7 inputs, expected 3 to 6")
case("rnn_three_outputs", BAD, m.model([m.node("RNN", ["x"] * 3, ["y", "b", "c"])]), "has 3 outputs, expected at most 2")
case("lstm_initial_h_of_other_batch", BAD, lstm(more=[None, None, f32(1, 2, 2)]), "input initial_h has shape [1,2,2], expected [1,1,2]")
case("lstm_initial_c_batch_first", BAD, lstm(x=(2, 3, 4), more=[None, None, None, f32(1, 2, 2)], layout=1), "expected [2,1,2]")
case("lstm_peepholes_of_four", BAD, lstm(more=[None] * 4 + [f32(1, 8)]), "input P has shape [1,8], expected [1,6]")
case("lstm_lengths_i64", BAD, lstm(more=lens(3, dtype=np.int64)), "sequence_lens is i64, expected i32")
case("lstm_lengths_f32", BAD, lstm(more=lens(3, dtype=np.float32)), "sequence_lens is f32, expected i32")
case("lstm_length_too_long", BAD, lstm(more=lens(4)), "sequence_lens has the value 4, expected 0 to 3")
case("lstm_length_negative", BAD, lstm(more=lens(-(1 << 31))), "sequence_lens has the value -2147483648, expected 0 to 3")
case("lstm_lengths_of_two", BAD, lstm(more=lens(3, 3)), "sequence_lens has shape [2], expected [1]")
case("lstm_weights_f64", BAD, lstm(more=[np.ones((1, 16), np.float64)]), "operands of different types: f32 and f64")
case("lstm_hidden_size_lies", BAD, lstm(hidden_size=3), "attribute 'hidden_size' is 3")
case("lstm_hidden_size_huge", BAD, lstm(hidden_size=1 << 62), "attribute 'hidden_size' is 4611686018427387904")
case("lstm_clip_zero", BAD, lstm(clip=0.0), "attribute 'clip' is 0")
case("lstm_clip_nan", BAD, lstm(clip=float("nan")), "attribute 'clip' is nan")
case("lstm_direction_unknown", BAD, lstm(direction="both"), "attribute 'direction' is 'both', expected forward")
case("lstm_activation_unknown", BAD, lstm(activations=["Sigmoid", "Tanh", "Gelu"]), "names 'Gelu', known: Sigmoid")
case("lstm_activations_too_few", BAD, lstm(activations=["Sigmoid", "Tanh"]), "has 2 names, expected 3")
case("lstm_activations_no_strings", BAD, lstm(activations=[1, 2, 3]), "attribute 'activations' is of kind ints, expected strings")
case("lstm_alpha_too_many", BAD, lstm(activation_alpha=[0.1] * 4), "attribute 'activation_alpha' has 4 values for 3 activations")
case("lstm_layout_2", BAD, lstm(layout=2), "attribute 'layout' is 2")
case("lstm_layout_before_14", BAD, lstm(layout=1, opset=13), "unknown attribute 'layout'")
case("lstm_steps_beyond_2_to_31", UNSUPPORTED, lstm(x=(1 << 31, 1, 4)), "input 'x'")
case("lstm_result_beyond_2_to_31", UNSUPPORTED, lstm(x=(1 << 30, 1, 1), w=(1, 8, 1), run_time=True), "the result")
case("lstm_run_time_weights_beyond_2_to_31", UNSUPPORTED, lstm(w=(1, 4 << 20, 4), r=(1, 4 << 20, 1 << 20), run_time=True), "input 'r'")

# --- control flow ----------------------------------------------------------------------------------------------------


def body(nodes, inputs, outputs, initializers=()):
    return helper.make_graph(list(nodes), "body", inputs, [m.value(name, None) for name in outputs], initializer=list(initializers))


def plain_body(extra=(), outputs=("c", "h2"), inputs=3):
    """h2 = tanh(h), for as long as the condition holds."""
    types = [m.value("i", [], TensorProto.INT64), m.value("c", [], TensorProto.BOOL), m.value("h", [1, 4])][:inputs]
    return body([m.node("Tanh", ["h"], ["h2"], "t"), *extra], types, outputs)


def loop(graph=None, trips=3, condition=True, node_inputs=("trips", "go", "x"), outputs=("y",), **kwargs):
    initializers = [m.constant("trips", trips, np.int64), m.constant("go", condition, np.bool_)]
    return m.model([m.node("Loop", node_inputs, outputs, "l", body=graph or plain_body())], initializers=initializers, **kwargs)


def scan(graph=None, states=(), x=(3, 4), **attributes):
    graph = graph or body([m.node("Relu", ["e"], ["r"])], [m.value("e", [4])], ["r"])
    attributes.setdefault("num_scan_inputs", 1)
    nodes = [m.node("Scan", [*states, "x"], ["y"], "s", body=graph, **attributes)]
    return m.model(nodes, [m.value("x", list(x))], [m.value("y", None)])


def choice(condition, then_branch, else_branch=None, name="c", **kwargs):
    branches = {"then_branch": then_branch, **({"else_branch": else_branch} if else_branch else {})}
    return m.model([m.node("If", [name], ["y"], "i", **branches)], initializers=[m.constant("c", condition, np.bool_)], **kwargs)


def nested_loops(folder):
    """Ten loops of ten iterations, one in the other: 10^10 nodes."""
    graph = plain_body()
    for _ in range(9):
        types = [m.value("i", [], TensorProto.INT64), m.value("c", [], TensorProto.BOOL), m.value("h", [1, 4])]
        graph = body([m.node("Loop", ["trips", "go", "h"], ["h2"], body=graph)], types, ["c", "h2"])
    return loop(graph, trips=10)


def nested_branches(folder):
    graph = body([m.node("Relu", ["x"], ["t"])], [], ["t"])
    for _ in range(13):
        graph = body([m.node("If", ["c"], ["t"], then_branch=graph, else_branch=graph)], [], ["t"])
    return choice(True, graph, graph)


def doubling(folder):
    """A state that doubles with every iteration."""
    types = [m.value("i", [], TensorProto.INT64), m.value("c", [], TensorProto.BOOL), m.value("h", None)]
    return loop(body([m.node("Concat", ["h", "h"], ["h2"], axis=0)], types, ["c", "h2"]), trips=1000, outputs=("y",))


relu_branch = body([m.node("Relu", ["x"], ["t"])], [], ["t"])
case("if_at_run_time", BAD, choice(True, relu_branch, relu_branch, name="x"), "the condition is f32[1,4], expected one bool")
case(
    "accept_if_of_a_comparison",
    ACCEPT,
    m.model(
        [
            m.node("ReduceMax", ["x"], ["s"], keepdims=0),
            m.node("Greater", ["s", "s"], ["c"]),
            m.node("If", ["c"], ["y"], "i", then_branch=relu_branch, else_branch=relu_branch),
        ]
    ),
)
case("if_of_two_conditions", BAD, choice([True, False], relu_branch, relu_branch), "the condition is bool[2], expected one bool")
case("if_without_else", BAD, choice(True, relu_branch), "attribute 'else_branch' is missing")
case("if_branch_with_inputs", BAD, choice(True, m.relu().graph, relu_branch), "has 1 inputs, expected 0")
case("if_branch_without_outputs", BAD, choice(True, body([], [], []), relu_branch), "has 1 outputs, the branch gives 0")
case("if_branch_is_no_graph", BAD, choice(True, 3, relu_branch), "attribute 'then_branch' is of kind int, expected graph")
unknown_branch = body([m.node("Frob", ["x"], ["t"])], [], ["t"])
case("if_branch_unknown_op", UNSUPPORTED, choice(True, unknown_branch, relu_branch), "then_branch: node #0")
case("accept_if_with_unknown_op_in_the_other_branch", ACCEPT, choice(False, unknown_branch, relu_branch))
case("if_branch_reads_nothing_there_is", BAD, choice(True, body([m.node("Relu", ["u"], ["t"])], [], ["t"]), relu_branch), "reads 'u'")
case("if_branch_makes_nothing", BAD, choice(False, body([], [], ["t"]), relu_branch), "reads 't'")
case("if_reads_itself", BAD, choice(True, body([m.node("Relu", ["y"], ["t"])], [], ["t"]), relu_branch), "cycle")
case("accept_if_in_ten_thousand_branches", ACCEPT, nested_branches)
case("loop_without_body", BAD, m.model([m.node("Loop", ["", "", "x"], ["y"], "l")]), "attribute 'body' is missing")
case("loop_for_ever", UNSUPPORTED, loop(node_inputs=("", "", "x")), "unrolls to more than 100000 nodes")
case("loop_while_true", UNSUPPORTED, loop(node_inputs=("", "go", "x")), "unrolls to more than 100000 nodes")
case("accept_loop_of_2_to_62_trips", ACCEPT, loop(trips=1 << 62))
case("loop_of_trips_that_are_a_row", BAD, loop(node_inputs=("x", "go", "x")), "M is f32[1,4], expected one i64")
case("loop_of_three_trip_counts", BAD, loop(trips=[1, 2, 3]), "input 0 (M) has shape [3], expected one element")
case("loop_nested_to_10_to_10", UNSUPPORTED, nested_loops, "unrolls to more than 100000 nodes")
case("loop_that_doubles", UNSUPPORTED, doubling, "the result")
case("loop_body_of_two_inputs", BAD, loop(body([], [m.value("i", []), m.value("c", [])], ["c", "c"])), "has 2 inputs, expected 3")
case("loop_body_of_one_output", BAD, loop(plain_body(outputs=["c"])), "attribute 'body' has 0 outputs, expected at least 1")
case("loop_body_without_outputs", BAD, loop(plain_body(outputs=[])), "attribute 'body' has no outputs")
case("loop_body_makes_a_name_twice", BAD, loop(plain_body([m.node("Relu", ["h"], ["h2"])])), "makes 'h2', which node #0 makes too")
case("loop_body_cycle", BAD, loop(plain_body([m.node("Relu", ["q"], ["p"]), m.node("Relu", ["p"], ["q"])])), "cycle")
case("loop_body_unknown_op", UNSUPPORTED, loop(plain_body([m.node("Frob", ["h"], ["p"])])), "body, iteration 0: node #1 'frob' (Frob")
case("scan_opset_8", UNSUPPORTED, edit(scan(), lambda x: setattr(x.opset_import[0], "version", 8)), "Scan of opset 8")
case("scan_without_a_number", BAD, edit(scan(), lambda x: x.graph.node[0].attribute.pop()), "attribute 'num_scan_inputs' is 0")
case("scan_more_inputs_than_there_are", BAD, scan(num_scan_inputs=2), "attribute 'num_scan_inputs' is 2, expected 1 to 1")
case("scan_number_huge", BAD, scan(num_scan_inputs=1 << 62), "attribute 'num_scan_inputs' is 4611686018427387904")
case("scan_axis_out_of_range", BAD, scan(scan_input_axes=[2]), "attribute 'scan_input_axes' is 2, expected -2 to 1")
case("scan_direction_2", BAD, scan(scan_input_directions=[2]), "has the value 2, expected 0 or 1")
case("scan_two_output_axes", BAD, scan(scan_output_axes=[0, 0]), "has 2 values, expected 1")
case("scan_output_axis_out_of_range", BAD, scan(scan_output_axes=[2]), "is 2, expected -2 to 1")
case("scan_of_a_scalar", BAD, scan(x=()), "expected 0 to -1")
case("accept_scan_of_a_million_steps", ACCEPT, scan(x=(1 << 20, 4)))


def sparse_file(folder, tensors, nodes, size=100 << 20):
    """Initializers of 100 MB over one range of a file that holds nothing."""
    with open(folder / "sparse.bin", "wb") as file:
        file.truncate(size)
    initializers = [m.external(f"w{i}", [size // 4], "sparse.bin") for i in range(tensors)]
    return m.model(nodes, initializers=initializers)


case("unused_initializers_are_not_read", ACCEPT, lambda f: sparse_file(f, 24, [m.node("Relu", ["x"], ["y"])]))
case(
    "a_range_of_a_file_is_read_once",
    UNSUPPORTED,
    lambda f: sparse_file(f, 24, [m.node("Frobnicate", ["x", *(f"w{i}" for i in range(24))], ["y"])]),
    "Frobnicate",
)


# --- running ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Result:
    code: int
    lines: list
    seconds: float
    peak_bytes: int


def run(tamp, path, out, args, limit):
    """Runs the compiler and waits for it alone, for its own peak of memory."""
    with tempfile.TemporaryFile() as errors:
        begin = time.monotonic()
        process = subprocess.Popen(
            [tamp, "compile", str(path), "-o", str(out), "--vdevice", "h200", "-q", *args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        )
        pid = 0
        while pid == 0 and time.monotonic() - begin < limit:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid == 0:
                time.sleep(0.002)
        seconds = time.monotonic() - begin
        if pid == 0:
            process.kill()
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen does not wait again
        errors.seek(0)
        lines = errors.read().decode(errors="replace").splitlines()
    return Result(process.returncode, lines, seconds, usage.ru_maxrss * 1024)


def complaints(c, result, out):
    """What is wrong with a result, in words."""
    limit = ACCEPT_SECONDS if c.code == ACCEPT else MAX_SECONDS
    if result.seconds >= limit:
        yield f"took {result.seconds:.1f} s"
    if result.code < 0:
        yield f"killed by signal {-result.code}"
    elif result.code != c.code:
        yield f"exit code {result.code}, expected {c.code}"
    if result.peak_bytes > MAX_BYTES:
        yield f"used {result.peak_bytes >> 20} MB"
    if c.code == ACCEPT:
        return
    if len(result.lines) != c.lines:
        yield f"{len(result.lines)} lines on stderr, expected {c.lines}"
    if result.lines and not result.lines[0].startswith("error: "):
        yield "does not start with 'error: '"
    text = "\n".join(result.lines)
    if c.says not in text:
        yield f"does not say {c.says!r}"
    if any(ord(character) < 32 and character != "\n" for character in text):
        yield "has control characters"
    if out.exists():
        yield "left an output folder"


def run_case(tamp, c):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "models"
        folder.mkdir()
        path, out = folder / "model.onnx", pathlib.Path(name) / "out"
        made = c.make(folder)
        if made is not None:
            path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
        result = run(tamp, path, out, c.args, ACCEPT_SECONDS if c.code == ACCEPT else MAX_SECONDS)
        found = list(complaints(c, result, out))
        if found:
            print(f"FAILED {c.name}: {'; '.join(found)}\n    " + "\n    ".join(line[:300] for line in result.lines[:5]))
        return not found


def main():
    tamp, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:]
    chosen = [c for c in CASES if not wanted or any(word in c.name for word in wanted)]
    passed = sum(run_case(tamp, c) for c in chosen)
    print(f"{passed} passed, {len(chosen) - passed} failed")
    return 0 if passed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
