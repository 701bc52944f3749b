// What passes promise: the same answers on random graphs, and what each one must and must not rewrite. How things lie in memory is
// in assign_layout_test.cpp, what rewritten graphs look like in passes_golden_test.cpp.
#include "compiler/passes/passes.h"

#include "compiler/passes/fuse/fuse_elementwise.h"
#include "compiler/passes/fuse/fuse_epilogue.h"
#include "compiler/passes/recognise/recognise_activations.h"
#include "compiler/passes/tidy/canonicalise.h"
#include "compiler/passes/tidy/fold_batch_norm.h"
#include "compiler/passes/tidy/fold_constants.h"
#include "compiler/passes/tidy/remove_identities.h"
#include "compiler/passes/tidy/slice_gathers.h"
#include "test/support/check_pass.h"
#include "test/support/random_graph.h"

using namespace tamp;
using namespace tamp::test;

TEST_CASE("every pass alone and the whole pipeline keep the answers of random graphs") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const Graph source = random_graph(seed, 4 + static_cast<int>(seed % 20));
    CAPTURE(print(source));
    if (!has_finite_answers(source)) continue;  // beyond float's range
    Graph graph = source;
    for (const passes::Pass& pass : passes::pipeline()) {
      CAPTURE(pass.name);
      const bool needs_others = pass.name == "assign_layout";  // it refuses BatchNorm
      if (!needs_others) check_pass(source, pass.run(source));
      graph = pass.run(std::move(graph));
      check_pass(source, graph);
    }
    for (const Tensor& tensor : graph.tensors) CHECK(tensor.place.buffer.valid());
    for (const ROperator& rop : graph.rops) {
      const std::string name = name_of(rop.attrs);
      CHECK((name != "BatchNorm" && name != "Reshape" && name != "Transpose" && name != "Slice" && name != "Concat"));
    }
  }
}

namespace {

struct Row {
  const char* why;
  const char* text;
  Graph (*pass)(Graph);
};

}  // namespace

TEST_CASE("a pass leaves alone what it does not understand or would make wrong") {
  const Row rows[] = {
      {"an output that is an input needs its copy", R"(
        x = input f32[2]
        y = Elementwise(x) {identity(i0)} -> f32[2]
        outputs(y)
      )",
       passes::remove_identities},
      {"two outputs of one value", R"(
        x = input f32[2]
        a = Elementwise(x) {relu(i0)} -> f32[2]
        b = Elementwise(a) {identity(i0)} -> f32[2]
        outputs(a, b)
      )",
       passes::remove_identities},
      {"views of the same shape that move elements", R"(
        x = input f32[2,2]
        y = Transpose(x) {perm=[1,0]} -> f32[2,2]
        z = Slice(x) {starts=[1,0], steps=[-1,1]} -> f32[2,2]
        outputs(y, z)
      )",
       passes::remove_identities},
      {"an input is not constant", R"(
        x = input f32[2]
        a = const f32[2] {1, 2}
        y = Elementwise(a, x) {add(i0, i1)} -> f32[2]
        outputs(y)
      )",
       passes::fold_constants},
      {"a constant may not grow without bound", R"(
        a = const f32[1] {1}
        y = Elementwise(a) {identity(i0)} -> f32[70000000]
        outputs(y)
      )",
       passes::fold_constants},
      {"indices that are not evenly spaced", R"(
        x = input f32[4]
        i = const i64[3] {0, 1, 3}
        j = const i64[2] {2, 2}
        y = Gather(x, i) {axis=0} -> f32[3]
        z = Gather(x, j) {axis=0} -> f32[2]
        outputs(y, z)
      )",
       passes::slice_gathers},
      {"a gelu with another constant", R"(
        x = input f32[2]
        r = const f32[] {1.5}
        one = const f32[] {1}
        h = const f32[] {0.5}
        d = Elementwise(x, r) {div(i0, i1)} -> f32[2]
        e = Elementwise(d) {erf(i0)} -> f32[2]
        p = Elementwise(e, one) {add(i0, i1)} -> f32[2]
        q = Elementwise(x, p) {mul(i0, i1)} -> f32[2]
        y = Elementwise(q, h) {mul(i0, i1)} -> f32[2]
        outputs(y)
      )",
       passes::recognise_activations},
      {"a gelu by tanh with another constant", R"(
        x = input f32[2]
        k = const f32[] {0.05}
        root = const f32[] {0.7978846}
        one = const f32[] {1}
        h = const f32[] {0.5}
        b = Elementwise(x, x) {mul(i0, i1)} -> f32[2]
        c = Elementwise(b, x) {mul(i0, i1)} -> f32[2]
        s = Elementwise(c, k) {mul(i0, i1)} -> f32[2]
        a = Elementwise(s, x) {add(i0, i1)} -> f32[2]
        r = Elementwise(a, root) {mul(i0, i1)} -> f32[2]
        t = Elementwise(r) {tanh(i0)} -> f32[2]
        p = Elementwise(t, one) {add(i0, i1)} -> f32[2]
        q = Elementwise(x, p) {mul(i0, i1)} -> f32[2]
        y = Elementwise(q, h) {mul(i0, i1)} -> f32[2]
        outputs(y)
      )",
       passes::recognise_activations},
      {"no bias, no third operand", R"(
        x = input f32[1,2,2,2]
        w = const f32[2,2,1,1] {1, 2, 3, 4}
        y = Conv(x, w) {kernel=[1,1]} -> f32[1,2,2,2]
        outputs(y)
      )",
       passes::canonicalise},
      {"two readers", R"(
        x = input f32[2,2]
        w = const f32[2,2] {1, 2, 3, 4}
        a = MatMul(x, w) -> f32[2,2]
        b = Elementwise(a) {relu(i0)} -> f32[2,2]
        c = Elementwise(a) {tanh(i0)} -> f32[2,2]
        outputs(b, c)
      )",
       passes::fuse_epilogue},
      {"a bias along the rows of a MatMul is none", R"(
        x = input f32[2,2]
        w = const f32[2,2] {1, 2, 3, 4}
        r = const f32[2,1] {1, 2}
        a = MatMul(x, w) -> f32[2,2]
        b = Elementwise(a, r) {add(i0, i1)} -> f32[2,2]
        outputs(b)
      )",
       passes::fuse_epilogue},
      {"constant minus product is no bias", R"(
        x = input f32[2,2]
        w = const f32[2,2] {1, 2, 3, 4}
        r = const f32[2] {1, 2}
        a = MatMul(x, w) -> f32[2,2]
        b = Elementwise(r, a) {sub(i0, i1)} -> f32[2,2]
        outputs(b)
      )",
       passes::fuse_epilogue},
      {"an addend that repeats the product", R"(
        x = input f32[1,2]
        w = const f32[2,2] {1, 2, 3, 4}
        z = input f32[3,2]
        a = MatMul(x, w) -> f32[1,2]
        b = Elementwise(a, z) {add(i0, i1)} -> f32[3,2]
        outputs(b)
      )",
       passes::fuse_epilogue},
      {"a producer of another shape would be computed more than once", R"(
        x = input f32[2]
        z = input f32[3,2]
        a = Elementwise(x) {exp(i0)} -> f32[2]
        b = Elementwise(a, z) {add(i0, i1)} -> f32[3,2]
        outputs(b)
      )",
       passes::fuse_elementwise},
      {"an output in the middle", R"(
        x = input f32[2]
        a = Elementwise(x) {exp(i0)} -> f32[2]
        b = Elementwise(a) {neg(i0)} -> f32[2]
        outputs(a, b)
      )",
       passes::fuse_elementwise},
      {"a cast in between rounds", R"(
        x = input f32[2]
        a = Elementwise(x) {cast(i0)} -> i32[2]
        b = Elementwise(a) {cast(i0)} -> f32[2]
        outputs(b)
      )",
       passes::fuse_elementwise},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    const Graph graph = parse_graph(row.text);
    CHECK(print(row.pass(graph)) == print(graph));
  }
}

TEST_CASE("of two MatMuls that are added the one further from the inputs takes the other as residual") {
  for (const char* order : {"a, b", "b, a"}) {
    const Graph graph = passes::fuse_epilogue(parse_graph(std::string(R"(
      x = input f32[1,4]
      h = input f32[1,4]
      w = const f32[4,4]
      t = Elementwise(h) {tanh(i0)} -> f32[1,4]
      b = MatMul(t, w) -> f32[1,4]
      a = MatMul(x, w) -> f32[1,4]
      y = Elementwise()") + order + R"() {add(i0, i1)} -> f32[1,4]
      outputs(y)
    )"));
    CHECK(graph.rops.size() == 3);
    CHECK(graph.rops.back().name == "b");
    CHECK(graph.tensor(graph.rops.back().epilogue.residual).name == "a");
  }
}

TEST_CASE("what is read twice by one reader is read twice") {
  const std::string product = "x = input f32[1,2,2,2]\n w = const f32[2,2,1,1]\n t = Conv(x, w) {kernel=[1,1]} -> f32[1,2,2,2]\n";
  const std::string matrix = "x = input f32[2,2]\n w = const f32[2,2]\n t = MatMul(x, w) -> f32[2,2]\n";
  const char* const readers[] = {
      "y = Elementwise(t, t) {add(i0, i1)} -> f32[",
      "y = Elementwise(t, t) {sub(i0, i1)} -> f32[",
      "y = Elementwise(t, t) {mul(i0, i1)} -> f32[",
      "r = Elementwise(t) {relu(i0)} -> f32[#]\n y = Elementwise(r, r) {add(i0, i1)} -> f32[",
      "s = Elementwise(t) {sigmoid(i0)} -> f32[#]\n y = Elementwise(s, s) {mul(i0, i1)} -> f32[",
      "s = Elementwise(t) {hard_sigmoid(i0; 0.16666667, 0.5)} -> f32[#]\n y = Elementwise(s, s) {mul(i0, i1)} -> f32[",
      "a = Elementwise(t, t) {add(i0, i1)} -> f32[#]\n y = Elementwise(a, a) {mul(i0, i1)} -> f32[",
  };
  for (const bool conv : {true, false}) {
    const std::string shape = conv ? "1,2,2,2" : "2,2";
    for (std::string reader : readers) {
      while (reader.find('#') != std::string::npos) reader.replace(reader.find('#'), 1, shape);
      const Graph source = parse_graph((conv ? product : matrix) + reader + shape + "]\n outputs(y)");
      CAPTURE(print(source));
      Graph graph = source;
      for (const passes::Pass& pass : passes::pipeline()) {
        CAPTURE(pass.name);
        REQUIRE_NOTHROW(graph = pass.run(std::move(graph)));
        check_pass(source, graph);
      }
      CHECK(graph.rops.size() == 2);
    }
  }
}

TEST_CASE("folding ends where its work does") {
  const Graph graph = passes::fold_constants(parse_graph(R"(
    w = const f32[900,900]
    a = MatMul(w, w) -> f32[900,900]
    b = MatMul(a, w) -> f32[900,900]
    c = MatMul(b, w) -> f32[900,900]
    d = MatMul(c, w) -> f32[900,900]
    n = Elementwise(w) {neg(i0)} -> f32[900,900]
    outputs(d, n)
  )"));
  CHECK(count_rops(graph, "MatMul") == 2);
  CHECK(count_rops(graph, "Elementwise") == 0);  // small enough for what is left
}

TEST_CASE("a chain longer than the device's bodies hold becomes several") {
  std::string text = "x0 = input f32[3]\n";
  for (int i = 1; i <= 40; ++i) text += "x" + std::to_string(i) + " = Elementwise(x" + std::to_string(i - 1) + ") {neg(i0)} -> f32[3]\n";
  const Graph graph = passes::fuse_elementwise(parse_graph(text + "outputs(x40)"));
  CHECK(graph.rops.size() == 3);
  for (const ROperator& rop : graph.rops) CHECK(std::get<Elementwise>(rop.attrs).steps.size() <= 16);

  std::string wide, sum;
  for (int i = 0; i < 12; ++i) wide += "x" + std::to_string(i) + " = input f32[3]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = i == 1 ? "x0" : "s" + std::to_string(i - 1);
    sum += "s" + std::to_string(i) + " = Elementwise(" + last + ", x" + std::to_string(i) + ") {add(i0, i1)} -> f32[3]\n";
  }
  const Graph joined = passes::fuse_elementwise(parse_graph(wide + sum + "outputs(s11)"));
  CHECK(joined.rops.size() == 2);
  for (const ROperator& rop : joined.rops) CHECK(rop.inputs.size() <= 8);
}
