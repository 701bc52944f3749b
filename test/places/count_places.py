#!/usr/bin/env python3
"""How many existing files a new operator with a body, a new rKernel, a new fused pattern, and a new elementwise function touch.

    count_places.py [--build [--keep FOLDER]]

Applies each of the additions in `ADDITIONS` to a copy of the tree, as docs/adding-an-op.md and docs/adding-a-kernel.md say, and counts the files that were there before
and had to be edited. Exits with 1 if there are more than the documents promise. With --build the copy is built with all of them, and a model of the new operator is
run on the stand-in against the reference (many minutes; for use by hand and by night)."""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ("CMakeLists.txt", "CMakePresets.json", "cmake", "codegen", "compiler", "kernels", "runtime_stub", "test")

# y = scale * x + 1, with a body of its own.
OPERATOR = {
    "promised": 3,
    "edits": [
        ("compiler/ir/ops.h", "// The list of operators;", """struct Dummy {
  float scale = 1;
  bool operator==(const Dummy&) const = default;

  static constexpr const char* kName = "Dummy";
  template <class Self, class F>
  static void fields(Self& op, F&& f) {
    f("scale", op.scale, 1.0F);
  }
};

"""),
        ("compiler/ir/ops.h", "  X(Recurrent)", "  X(Dummy) \\\n"),
        ("compiler/frontend/op_table.cpp", "\nnamespace {", "void import_dummy(NodeImport& n);\n"),
        ("compiler/frontend/op_table.cpp", '      {"Expand", ', '      {"Dummy", {1}, import_dummy, ""},\n'),
        ("kernels/catalogue.cpp", "  X(elementwise)", "  X(dummy) \\\n"),
    ],
    "files": {
        "compiler/ops/dummy.cpp": """#include "compiler/ops/operator.h"

namespace tamp::ops {

TensorTypes infer(const Dummy&, const Given& given) {
  given.expect(1);
  return {given.type(0)};
}
std::vector<Value> evaluate(const Dummy& op, const Call& call) {
  const Numbers<double> x(call.input(0));
  std::vector<double> y(x.data(), x.data() + element_count(call.output().shape));
  for (double& v : y) v = op.scale * v + 1;
  return {output_from(call, y)};
}
Traits traits_of(const Dummy&) { return {Layout::row_major, InF32::all}; }
int64_t own_work(const Dummy&, const Given&, const TensorTypes&) { return 0; }

}  // namespace tamp::ops
""",
        "compiler/frontend/import_dummy.cpp": """#include "compiler/frontend/node_import.h"

namespace tamp::frontend {

void import_dummy(NodeImport& n) {
  n.expect_inputs(1, 1);
  n.expect_outputs(1);
  n.expect_float({n.in(0)});
  n.result(0, n.add(Dummy{n.attr_float("scale", 1)}, {n.in(0)}));
}

}  // namespace tamp::frontend
""",
        "kernels/dummy/dummy.cuh": """#pragma once
#include "kernels/vdevice/task.cuh"
namespace rk {
struct DummyArgs {
  TensorRef in, out;
  uint32_t elements;
  float scale;
};
template <class Veu>
RK_BODY void dummy(const Task<Veu>& task) {
  const DummyArgs& args = task.template arguments<DummyArgs>();
  for (uint32_t i = threadIdx.x; i < args.elements; i += Veu::kComputeThreads)
    store1(task.address(args.out) + i, args.scale * load1(task.address(args.in) + i) + 1.0f);
}
}  // namespace rk
""",
        "kernels/dummy/dummy.cpp": """#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"

namespace tamp::kernels {
namespace {

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<Dummy>(rop.attrs) || has_epilogue(rop) || !all_plain_f32(request.graph, rop)) return {};
  const Tensor &in = request.graph.tensor(rop.inputs[0]), &out = request.graph.tensor(rop.outputs[0]);
  if (!is_row_major(in) || !is_row_major(out)) return {};
  Phase phase = body_phase("kernels/dummy/dummy.cuh", "rk::dummy", "rk::DummyArgs");
  phase.args = {{"in", arg(TensorArg{rop.inputs[0]})},
                {"out", arg(TensorArg{rop.outputs[0]})},
                {"elements", arg(element_count(out.shape))},
                {"scale", float_arg(std::get<Dummy>(rop.attrs).scale)}};
  phase.rtasks = 1;
  return {one_phase("dummy", {}, phase)};
}
void accesses(const Graph& graph, const ROperator& rop, const RKernel&, int, int64_t, Accesses& out) {
  append_whole(graph, rop.outputs[0], out.writes);
  append_whole(graph, rop.inputs[0], out.reads);
}

}  // namespace

Family dummy() { return {"dummy", offers, no_pack, accesses}; }

}  // namespace tamp::kernels
""",
    },
}

# Another family for what others do as well: a copy of lrn under another name.
RKERNEL = {
    "promised": 1,
    "edits": [
        ("kernels/catalogue.cpp", "  X(lrn)", "  X(other) \\\n"),
    ],
    "copies": {
        "kernels/other/other.cpp": ("kernels/reduce/lrn.cpp", [("reduce/lrn.", "other/other."), ("Family lrn()", "Family other()"), ('{"lrn"', '{"other"'),
                                                             ("rk::lrn", "rk::other"), ("rk::LrnArgs", "rk::OtherArgs")]),
        "kernels/other/other.cuh": ("kernels/reduce/lrn.cuh", [("LrnArgs", "OtherArgs"), ("lrn_squares", "other_squares"), 
                                                             ("RK_BODY void lrn", "RK_BODY void other")]),
    },
}

# A pattern of steps with a body for them: a copy of the two pointwise convolutions under another name.
PATTERN_NAMES = [("pointwise_pair", "other_pair"), ("PointwisePair", "OtherPair"), ("PairedLane", "OtherLane"), ("PairRun", "OtherRun")]
PATTERN = {
    "promised": 2,
    "edits": [
        ("kernels/catalogue.cpp", '#include "kernels/chain/pointwise_pair.h"', '#include "kernels/chain/other_pair.h"\n'),
        ("kernels/catalogue.cpp", "  X(pointwise_pair)", "  X(other_pair) \\\n"),
        ("kernels/catalogue.cpp", "pointwise_pairs()", "other_pairs(), "),
    ],
    "copies": {f"kernels/chain/other_pair{end}": (f"kernels/chain/pointwise_pair{end}", PATTERN_NAMES) for end in (".h", ".cpp", ".cuh", "_fusion.cpp")},
}

# y = x + x.
FUNCTION = {
    "promised": 1,
    "edits": [("kernels/shared/functions.h", "  ROW(abs, ", '  ROW(dummy_function, 1, (), numbers, same, little, 14, ("DummyFunction", {1}), x + x) \\\n')],
}

ADDITIONS = {"a function": FUNCTION, "an operator with a body": OPERATOR, "a rKernel": RKERNEL,
             "a fused pattern": PATTERN}

MODEL = """
import json, sys, numpy as np, onnx
from onnx import TensorProto, helper
nodes = [helper.make_node("DummyFunction", ["x"], ["t"]), helper.make_node("Dummy", ["t"], ["y"], scale=2.5)]
value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 7])
graph = helper.make_graph(nodes, "g", [value("x")], [value("y")])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sys.argv[1])
"""


def insert(path, anchor, text):
    """Puts `text` in front of the first line with `anchor`."""
    old = path.read_text()
    at = old.find(anchor)
    if at < 0:
        sys.exit(f"{path}: has no '{anchor}'; the addition must be written anew")
    path.write_text(old[:at] + text + old[at:])


def write_new(path, text):
    if path.exists():
        sys.exit(f"{path}: is there already")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def apply(tree, addition):
    """The existing files that were edited."""
    for name, text in addition.get("files", {}).items():
        write_new(tree / name, text)
    for name, (source, changes) in addition.get("copies", {}).items():
        text = (tree / source).read_text()
        for old, new in changes:
            text = text.replace(old, new)
        write_new(tree / name, text)
    for name, anchor, text in addition["edits"]:
        insert(tree / name, anchor, text)
    return sorted({name for name, _, _ in addition["edits"]})


def build_and_run(tree):
    subprocess.run(["cmake", "-S", tree, "-B", tree / "build", "-DCMAKE_BUILD_TYPE=Release", "-DTAMP_TESTS=OFF"], check=True)
    subprocess.run(["cmake", "--build", tree / "build", "--target", "tamp", "-j2"], check=True)
    model = tree / "dummy.onnx"
    subprocess.run([sys.executable, "-c", MODEL, model], check=True)
    subprocess.run([tree / "build" / "bin" / "tamp", "run", model, "--device", "cpu", "--check"], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the copy, which then stays")
    options = parser.parse_args()
    too_many = 0
    with tempfile.TemporaryDirectory() as scratch:
        tree = options.keep or pathlib.Path(scratch) / "tamp"
        tree.mkdir(parents=True, exist_ok=True)
        for name in SOURCES:
            source = ROOT / name
            shutil.copytree(source, tree / name) if source.is_dir() else shutil.copy(source, tree / name)
        for what, addition in ADDITIONS.items():
            edited = apply(tree, addition)
            print(f"{what}: {len(edited)} existing files (promised: {addition['promised']}): {', '.join(edited)}")
            too_many |= len(edited) > addition["promised"]
        if options.build:
            build_and_run(tree)
    print(f"{len(ADDITIONS) - too_many} passed, {too_many} failed")
    sys.exit(1 if too_many else 0)


if __name__ == "__main__":
    main()
