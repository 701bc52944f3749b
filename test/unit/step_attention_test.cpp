// Attention of a decoder's step: the pass that makes it of Attention behind a Concat, and the device body against the reference over the
// stand-in.
#include "compiler/passes/recognise/step_attention.h"

#include <algorithm>
#include <limits>

#include "compiler/ir/in_place.h"
#include "compiler/ops/operator.h"
#include "compiler/passes/passes.h"
#include "compiler/select/cost.h"
#include "kernels/attention/numbers.cuh"
#include "kernels/catalogue.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/hard_masks.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

Graph made_steps(const Graph& source) {
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  Graph made = passes::step_attention(
      source, [&](const Graph& graph, const ROperator& rop) { return select::estimate(graph, rop, vdevice, Precision::tf32); });
  check_pass(source, made);
  return made;
}

const std::string kTitle = "attention of a step";
// Of the last rOperator.
FusedView steps_of_last(const Graph& graph) {
  const std::optional<FusedView> steps = FusedView::of(graph.rops.back());
  REQUIRE(steps);
  return *steps;
}

}  // namespace

namespace {

// Q, K, V and keys before of `heads`, each with some rows, and factors of rows.
std::string step_inputs(const std::string& heads, int rows, const std::string& factors = "64") {
  const std::string own = "input f32[" + heads + "," + std::to_string(rows) + ",64]\n", before = "input f32[" + heads + ",9,64]\n",
                    factor = "input f32[1,1," + std::to_string(rows) + "," + factors + "]\n";
  return "q = " + own + "k = " + own + "v = " + own + "pk = " + before + "pv = " + before + "c = " + factor + "s = " + factor;
}

// xr, which is x turned by whole rows of factors. `shape`: but for the last dimension.
std::string turned_rows(const std::string& x, const std::string& shape) {
  const std::string half = "f32[" + shape + ",32]\n", row = "f32[" + shape + ",64]\n";
  return x + "a = Slice(" + x + ") {starts=[0,0,0,32]} -> " + half + x + "n = Elementwise(" + x + "a) {neg(i0)} -> " + half + x +
         "b = Slice(" + x + ") {starts=[0,0,0,0]} -> " + half + x + "h = Concat(" + x + "n, " + x + "b) {axis=3} -> " + row + x +
         "c = Elementwise(" + x + ", c) {mul(i0, i1)} -> " + row + x + "s = Elementwise(s, " + x + "h) {mul(i0, i1)} -> " + row + x +
         "r = Elementwise(" + x + "c, " + x + "s) {add(i0, i1)} -> " + row;
}

// As exporters of Llama write it: rotated queries and keys, keys and values behind those before.
std::string decoder(const std::string& outputs, const std::string& more = "") {
  return step_inputs("1,3", 1) + turned_rows("q", "1,3,1") + turned_rows("k", "1,3,1") +
         "kk = Concat(pk, kr) {axis=2} -> f32[1,3,10,64]\nvv = Concat(pv, v) {axis=2} -> f32[1,3,10,64]\n" + more +
         "y = Attention(qr, kk, vv) {scale=0.125} -> f32[1,3,1,64]\n" + outputs + "\n";
}

// As RotaryEmbedding is written, behind a normalisation of each head or not.
std::string decoder_by_halves(bool normalised) {
  std::string text = step_inputs("1,3", 1, "32") + "qg = const f32[64]\nkg = const f32[64]\n";
  const std::string half = "f32[1,3,1,32]\n";
  for (const std::string x : {"q", "k"}) {
    if (normalised) text += x + "n = Normalize(" + x + ", " + x + "g) {axes=[3], centered=0, epsilon=0.001} -> f32[1,3,1,64]\n";
    const std::string from = normalised ? x + "n" : x;
    text += x + "l = Slice(" + from + ") {starts=[0,0,0,0]} -> " + half + x + "u = Slice(" + from + ") {starts=[0,0,0,32]} -> " + half + x +
            "a = Elementwise(c, " + x + "l) {mul(i0, i1)} -> " + half + x + "b = Elementwise(s, " + x + "u) {mul(i0, i1)} -> " + half + x +
            "d = Elementwise(" + x + "a, " + x + "b) {sub(i0, i1)} -> " + half + x + "e = Elementwise(s, " + x + "l) {mul(i0, i1)} -> " +
            half + x + "f = Elementwise(c, " + x + "u) {mul(i0, i1)} -> " + half + x + "h = Elementwise(" + x + "e, " + x +
            "f) {add(i0, i1)} -> " + half + x + "r = Concat(" + x + "d, " + x + "h) {axis=3} -> f32[1,3,1,64]\n";
  }
  return text + "kk = Concat(pk, kr) {axis=2} -> f32[1,3,10,64]\nvv = Concat(pv, v) {axis=2} -> f32[1,3,10,64]\n" +
         "y = Attention(qr, kk, vv) {scale=0.125} -> f32[1,3,1,64]\noutputs(y)\n";
}

}  // namespace

TEST_CASE("a step turns rows by halves and normalises them") {
  for (const bool normalised : {false, true}) {
    const Graph made = made_steps(parse_graph(decoder_by_halves(normalised)));
    CHECK(count_rops(made, kTitle) == 1);
    CHECK(count_rops(made, "Normalize") == 0);
    CHECK(count_rops(made, "Elementwise") == 0);
    CHECK(made.rops.back().inputs.size() == (normalised ? 9 : 7));
  }
  // Two epsilons are not one, and sines in the place of cosines are another rotation.
  const std::string text = decoder_by_halves(true);
  CHECK(count_rops(
            made_steps(parse_graph(swapped(text, "kg) {axes=[3], centered=0, epsilon=0.001}", "kg) {axes=[3], centered=0, epsilon=0.01}"))),
            "Normalize") == 2);
  CHECK(count_rops(made_steps(parse_graph(swapped(text, "kf = Elementwise(c, ku)", "kf = Elementwise(s, ku)"))), "Elementwise") > 0);
}

TEST_CASE("a step turns no rows that a Transpose has moved since") {
  // Two heads and two rows: behind the Transpose a head's factors would be a row's.
  const std::string text = step_inputs("1,2", 2) + turned_rows("q", "1,2,2") + turned_rows("k", "1,2,2") +
                           "qt = Transpose(qr) {perm=[0,2,1,3]} -> f32[1,2,2,64]\nkt = Transpose(kr) {perm=[0,2,1,3]} -> f32[1,2,2,64]\n"
                           "kk = Concat(pk, kt) {axis=2} -> f32[1,2,11,64]\nvv = Concat(pv, v) {axis=2} -> f32[1,2,11,64]\n"
                           "y = Attention(qt, kk, vv) {scale=0.125} -> f32[1,2,2,64]\noutputs(y)\n";
  const Graph made = made_steps(parse_graph(text));
  CHECK(count_rops(made, kTitle) == 1);
  CHECK(count_rops(made, "Elementwise") > 0);
}

TEST_CASE("attention over a Concat of keys reads both parts where they lie, and turns rows itself") {
  const Graph made = made_steps(parse_graph(decoder("outputs(y)")));
  CHECK(count_rops(made, kTitle) == 1);
  CHECK(count_rops(made, "Concat") == 0);
  CHECK(count_rops(made, "Elementwise") == 0);
  CHECK(made.rops.back().inputs.size() == 7);
  // What a decoder returns is made besides.
  const Graph returned = made_steps(parse_graph(decoder("outputs(y, kk, vv, kr)")));
  CHECK(count_rops(returned, kTitle) == 1);
  CHECK(count_rops(returned, "Concat") == 3);
  CHECK(tensor_named(returned, "k").name == "k");
  CHECK(returned.rop(uses_of(returned).producer[returned.outputs[0].index()]).inputs.size() == 7);
}

TEST_CASE("heads that share keys may be rows of one matrix, turned before they were put together") {
  // As PyTorch exports grouped heads: six of queries, two of keys.
  const auto grouped = [](const std::string& factors) {
    std::string text =
        "q = input f32[1,6,1,64]\nk = input f32[1,2,1,64]\nv = input f32[1,2,1,64]\npk = input f32[1,2,9,64]\npv = input f32[1,2,9,64]\n" +
        factors;
    for (const auto& [x, heads] : {std::pair{std::string("q"), "6"}, std::pair{std::string("k"), "2"}}) {
      const std::string half = "f32[1," + std::string(heads) + ",1,32]\n", whole = "f32[1," + std::string(heads) + ",1,64]\n";
      text += x + "a = Slice(" + x + ") {starts=[0,0,0,32]} -> " + half + x + "n = Elementwise(" + x + "a) {neg(i0)} -> " + half + x +
              "b = Slice(" + x + ") {starts=[0,0,0,0]} -> " + half + x + "h = Concat(" + x + "n, " + x + "b) {axis=3} -> " + whole + x +
              "c = Elementwise(" + x + ", c) {mul(i0, i1)} -> " + whole + x + "s = Elementwise(" + x + "h, s) {mul(i0, i1)} -> " + whole +
              x + "r = Elementwise(" + x + "c, " + x + "s) {add(i0, i1)} -> " + whole;
    }
    return text +
           "g = Reshape(qr) -> f32[1,2,3,64]\nkk = Concat(pk, kr) {axis=2} -> f32[1,2,10,64]\nvv = Concat(pv, v) {axis=2} -> "
           "f32[1,2,10,64]\n"
           "y = Attention(g, kk, vv) {scale=0.125, weightless=zero} -> f32[1,2,3,64]\noutputs(y)\n";
  };
  const Graph made = made_steps(parse_graph(grouped("c = const f32[1,1,1,64]\ns = const f32[1,1,1,64]\n")));
  REQUIRE(count_rops(made, kTitle) == 1);
  CHECK(count_rops(made, "Elementwise") == 0);
  CHECK(made.rops.back().inputs.size() == 7);
  CHECK(steps_of_last(made).as<Attention>(12)->weightless == Weightless::zero);
}

TEST_CASE("the parts of keys are seen through views, and heads may share them") {
  const Graph made = made_steps(parse_graph(R"(
    q = input f32[1,2,3,1,8]
    k = input f32[1,1,2,8]
    v = input f32[1,2,1,8]
    pk = input f32[1,9,2,8]
    pv = input f32[1,2,9,8]
    kk = Concat(pk, k) {axis=1} -> f32[1,10,2,8]
    kt = Transpose(kk) {perm=[0,2,1,3]} -> f32[1,2,10,8]
    kr = Reshape(kt) -> f32[1,2,1,10,8]
    vv = Concat(pv, v) {axis=2} -> f32[1,2,10,8]
    vr = Reshape(vv) -> f32[1,2,1,10,8]
    y = Attention(q, kr, vr) {} -> f32[1,2,3,1,8]
    outputs(y)
  )"));
  REQUIRE(count_rops(made, kTitle) == 1);
  CHECK(count_rops(made, "Concat") == 0);
  const std::vector<TensorId>& inputs = made.rops.back().inputs;
  CHECK(made.tensor(inputs[3]).shape == Shape{1, 2, 1, 9, 8});
  CHECK(made.tensor(inputs[1]).shape == Shape{1, 2, 1, 1, 8});
}

TEST_CASE("what is no step of a decoder stays as it is") {
  const auto stays = [](const std::string& text) {
    const Graph source = parse_graph(text);
    return print(made_steps(source)) == print(source);
  };
  const auto keys = [](const std::string& k, const std::string& concat, const std::string& queries) {
    return "q = input f32[2," + queries + ",8]\nk = input f32[" + k + "]\nv = input f32[2,6,8]\npk = input f32[2,5,8]\n" + concat +
           "y = Attention(q, kk, v) {} -> f32[2," + queries + ",8]\noutputs(y)\n";
  };
  CHECK(stays(keys("2,1,8", "kk = Concat(pk, k) {axis=1} -> f32[2,6,8]\n", "1")));  // values in one part
  CHECK(stays(keys("2,6,8", "kk = Elementwise(k) {exp(i0)} -> f32[2,6,8]\n", "1")));
  // Many queries: bodies with tiles of queries are better.
  std::string many = decoder("outputs(y)");
  for (size_t at = many.find("f32[1,3,1,"); at != std::string::npos; at = many.find("f32[1,3,1,")) many.replace(at, 10, "f32[1,3,9,");
  for (size_t at = many.find("f32[1,3,10,"); at != std::string::npos; at = many.find("f32[1,3,10,")) many.replace(at, 11, "f32[1,3,18,");
  CHECK(stays(many));
  // Not a rotation by half a row.
  std::string other = decoder("outputs(y)");
  other.replace(other.find("starts=[0,0,0,0]"), 16, "starts=[0,0,0,8]");
  const Graph made = made_steps(parse_graph(other));
  CHECK(count_rops(made, kTitle) == 1);
  CHECK(made.rops.back().inputs.size() == 5);
}

namespace {

// A step with a cache of nine places: rows of keys and values are put where `place` (and for values `place_v`, if it is another) says, and
// `mask` makes b. `index` makes at and at_v of both.
struct CacheStep {
  std::string index =
      "p = Reshape(place) -> i64[1,1,1,1]\npz = Elementwise(p, zero) {add(i0, i1)} -> i64[1,1,1,1]\n"
      "po = Elementwise(pz, nil) {less(i0, i1)} -> bool[1,1,1,1]\nat = Elementwise(po, nine, pz) {where(i0, i1, i2)} -> i64[1,1,1,1]\n"
      "r = Reshape(place) -> i64[1,1,1,1]\nrz = Elementwise(zero, r) {add(i0, i1)} -> i64[1,1,1,1]\n"
      "ro = Elementwise(rz, nil) {less(i0, i1)} -> bool[1,1,1,1]\nat_v = Elementwise(ro, nine, rz) {where(i0, i1, i2)} -> i64[1,1,1,1]\n";
  std::string mask =
      "l = Reshape(length) -> i64[1,1,1,1]\nkept = Elementwise(keys, l) {less(i0, i1)} -> bool[1,1,1,9]\n"
      "b = Elementwise(kept, kept0, least) {where(i0, i1, i2)} -> f32[1,1,1,9]\n";
  std::string attention = "y = Attention(qr, kk, vv, b) {scale=0.125, weightless=zero_if_masked} -> f32[1,3,1,64]\n";
  std::string least = "-inf";
  std::string numbers = "place = input i64[1]\nlength = input i64[1]\n";

  std::string text() const {
    return step_inputs("1,3", 1) + numbers +
           "zero = const i64[1,1,1,1] {0}\nnil = const i64[] {0}\none = const i64[] {1}\nnine = const i64[] {9}\n"
           "keys = const i64[1,1,1,9] {0, 1, 2, 3, 4, 5, 6, 7, 8}\nkept0 = const f32[] {0}\nleast = const f32[] {" +
           least + "}\n" + index + mask + turned_rows("q", "1,3,1") + turned_rows("k", "1,3,1") +
           "kk = Scatter(pk, at, kr) {axis=2} -> f32[1,3,9,64]\nvv = Scatter(pv, at_v, v) {axis=2} -> f32[1,3,9,64]\n" + attention +
           "outputs(y, kk, vv)\n";
  }
};
// As PyTorch's StaticCache does: index_copy_ at cache_position, and a mask of it.
CacheStep torch_step() {
  CacheStep step;
  step.index =
      "p = Reshape(place) -> i64[]\npp = Reshape(p) -> i64[1,1,1,1]\nat = Transpose(pp) {perm=[1,2,0,3]} -> i64[1,1,1,1]\n"
      "at_v = Reshape(p) -> i64[1,1,1,1]\n";
  step.mask =
      "m = Reshape(p) -> i64[1,1]\nkept = Elementwise(keys, m) {less_equal(i0, i1)} -> bool[1,1,1,9]\n"
      "b = Elementwise(kept, kept0, least) {where(i0, i1, i2)} -> f32[1,1,1,9]\n";
  step.least = "-3.4028235e+38";
  step.numbers = "place = input i64[1]\n";
  return step;
}

// Values for the inputs: floats as always, and `place` and `length`.
std::vector<ops::Value> inputs_at(const Graph& graph, int64_t place, int64_t length) {
  std::vector<ops::Value> inputs = random_inputs(graph);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& tensor = graph.tensor(graph.inputs[i]);
    if (is_float(tensor.dtype)) continue;
    const int64_t value = tensor.name == "place" ? place : length;
    const Bytes bytes =
        tensor.dtype == DType::i32 ? packed_bytes(std::vector{static_cast<int32_t>(value)}) : packed_bytes(std::vector{value});
    inputs[i] = {tensor.dtype, tensor.shape, std::make_shared<const Bytes>(bytes)};
  }
  return inputs;
}

// Of a graph with such inputs: the pass keeps the answers, wherever the row goes and however many keys count.
Graph made_beside(const Graph& source) {
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  const Graph made = passes::step_attention(
      source, [&](const Graph& graph, const ROperator& rop) { return select::estimate(graph, rop, vdevice, Precision::tf32); });
  CHECK_NOTHROW(verify(made));
  CHECK_NOTHROW(ops::verify_shapes(made));
  CHECK(print(parse_graph(print(made))) == print(made));
  for (const int64_t place : {-10, -9, -1, 0, 4, 8, 9}) {
    for (const int64_t length : {-1, 0, 1, 4, 5, 9, 12}) {
      const std::vector<ops::Value> inputs = inputs_at(source, place, length);
      CHECK(distance(ops::run(source, inputs), run_any(made, inputs)) < 1e-5);
    }
  }
  return made;
}

Graph placed(Graph graph) {
  for (const passes::Pass& pass : passes::pipeline()) graph = pass.run(std::move(graph));
  return graph;
}
const ROperator& rop_called(const Graph& graph, const std::string& title) {
  const auto found = std::find_if(graph.rops.begin(), graph.rops.end(), [&](const ROperator& rop) { return title_of(rop) == title; });
  REQUIRE(found != graph.rops.end());
  return *found;
}
// The first phase of the step's first rKernel.
Phase phase_of_step(const Graph& graph) {
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  const kernels::Request request{graph, rop_called(graph, kTitle), vdevice, Precision::fp32};
  const std::vector<RKernel> rkernels = kernels::candidates_of(kernels::family("attention_step"), request);
  REQUIRE(!rkernels.empty());
  return rkernels[0].phases[0];
}
ArgValue argument(const Phase& phase, const std::string& name) {
  const auto found = std::find_if(phase.args.begin(), phase.args.end(), [&](const Arg& arg) { return arg.name == name; });
  REQUIRE(found != phase.args.end());
  return found->value;
}
std::vector<int64_t> numbers_of(const Graph& made) {
  const Phase phase = phase_of_step(placed(made));
  CHECK(phase.body == "rk::attention_step_placed");
  std::vector<int64_t> numbers;
  for (const char* name : {"length_plus", "none_keeps", "place_wraps"}) numbers.push_back(std::get<int64_t>(argument(phase, name).value));
  return numbers;
}

}  // namespace

TEST_CASE("attention beside a cache of constant size reads the cache as it was, and turns the own row itself") {
  const Graph made = made_beside(parse_graph(CacheStep().text()));
  REQUIRE(count_rops(made, kTitle) == 1);
  CHECK(count_rops(made, "Scatter") == 2);  // the outputs
  const ROperator& step = rop_called(made, kTitle);
  const auto is_operand = [&](const std::string& name) {
    return std::any_of(step.inputs.begin(), step.inputs.end(), [&](TensorId id) { return made.tensor(id).name == name; });
  };
  for (const char* name : {"q", "k", "v", "pk", "pv", "place", "length"}) CHECK(is_operand(name));
  CHECK(numbers_of(made) == std::vector<int64_t>{0, 0, 0});
  const Graph torch = made_beside(parse_graph(torch_step().text()));
  REQUIRE(count_rops(torch, kTitle) == 1);
  CHECK(numbers_of(torch) == std::vector<int64_t>{1, 9, 1});
}

TEST_CASE("the keys before a length are said in several ways") {
  const auto numbers = [](const std::string& mask, const std::string& least = "-inf") {
    CacheStep step;
    step.mask = mask;
    step.least = least;
    const Graph made = made_beside(parse_graph(step.text()));
    REQUIRE(count_rops(made, kTitle) == 1);
    return numbers_of(made);
  };
  using Numbers = std::vector<int64_t>;
  const std::string kept = "b = Elementwise(kept, kept0, least) {where(i0, i1, i2)} -> f32[1,1,1,9]\n",
                    masked = "b = Elementwise(masked, least, kept0) {where(i0, i1, i2)} -> f32[1,1,1,9]\n";
  CHECK(numbers("kept = Elementwise(length, keys) {greater(i0, i1)} -> bool[1,1,1,9]\n" + kept) == Numbers{0, 0, 0});
  CHECK(numbers("kept = Elementwise(length, keys) {greater_equal(i0, i1)} -> bool[1,1,1,9]\n" + kept) == Numbers{1, 0, 0});
  CHECK(numbers("masked = Elementwise(keys, length) {greater(i0, i1)} -> bool[1,1,1,9]\n" + masked) == Numbers{1, 0, 0});
  CHECK(numbers("masked = Elementwise(length, keys) {less_equal(i0, i1)} -> bool[1,1,1,9]\n" + masked, "-1e38") == Numbers{0, 9, 0});
  CHECK(numbers("masked = Elementwise(keys, length) {greater_equal(i0, i1)} -> bool[1,1,1,9]\n"
                "kept = Elementwise(masked) {logical_not(i0)} -> bool[1,1,1,9]\n" +
                kept) == Numbers{0, 0, 0});
  // is_causal of one query: its position is the last one.
  CHECK(numbers("first = Elementwise(length, one) {sub(i0, i1)} -> i64[1]\nlast = Elementwise(nil, first) {add(i0, i1)} -> i64[1]\n"
                "valid = Elementwise(keys, length) {less(i0, i1)} -> bool[1,1,1,9]\n"
                "before = Elementwise(keys, last) {less_equal(i0, i1)} -> bool[1,1,1,9]\n"
                "kept = Elementwise(valid, before) {logical_and(i0, i1)} -> bool[1,1,1,9]\n" +
                kept) == Numbers{0, 0, 0});
  // No mask: all keys count.
  CacheStep all;
  all.mask = "";
  all.attention = "y = Attention(qr, kk, vv) {scale=0.125} -> f32[1,3,1,64]\n";
  const Graph made = made_beside(parse_graph(all.text()));
  REQUIRE(count_rops(made, kTitle) == 1);
  CHECK(numbers_of(made) == Numbers{0, 0, 0});
  CHECK(std::holds_alternative<NoTensorArg>(argument(phase_of_step(placed(made)), "length").value));
}

TEST_CASE("a length or place of 32 bits is cast outside of the step") {
  CacheStep step;
  step.numbers = "place = input i32[1]\nlength32 = input i32[1]\n";
  step.index =
      "wide = Elementwise(place) {cast(i0)} -> i64[1]\np = Reshape(wide) -> i64[1,1,1,1]\nat = Reshape(wide) -> i64[1,1,1,1]\n"
      "at_v = Reshape(wide) -> i64[1,1,1,1]\nlength = Elementwise(length32) {cast(i0)} -> i64[1]\n";
  // Each Scatter may have a cast of its own.
  CacheStep apart = step;
  apart.index = swapped(apart.index, "at_v = Reshape(wide)", "wide_v = Elementwise(place) {cast(i0)} -> i64[1]\nat_v = Reshape(wide_v)");
  CHECK(count_rops(made_beside(parse_graph(apart.text())), kTitle) == 1);
  const Graph made = made_beside(parse_graph(step.text()));
  REQUIRE(count_rops(made, kTitle) == 1);
  CHECK(count_rops(made, "Elementwise") == 2 + 4);  // the casts, and the own key that is put into the cache
  const Phase phase = phase_of_step(placed(made));
  const auto early =
      std::find_if(phase.template_args.begin(), phase.template_args.end(), [](const auto& arg) { return arg.first == "kEarly"; });
  CHECK(early->second == "false");
}

TEST_CASE("a cache is seen through views, and heads may share it") {
  const Graph made = made_beside(parse_graph(R"(
    q = input f32[1,2,3,1,8]
    k = input f32[1,1,2,8]
    v = input f32[1,2,1,8]
    pk = input f32[1,9,2,8]
    pv = input f32[1,2,9,8]
    place = input i64[1]
    at = Reshape(place) -> i64[1,1,1,1]
    keys = const i64[1,1,1,9] {0, 1, 2, 3, 4, 5, 6, 7, 8}
    kept0 = const f32[] {0}
    least = const f32[] {-1.5e+38}
    kept = Elementwise(keys, at) {less_equal(i0, i1)} -> bool[1,1,1,9]
    b = Elementwise(kept, kept0, least) {where(i0, i1, i2)} -> f32[1,1,1,9]
    br = Reshape(b) -> f32[1,1,1,1,9]
    kk = Scatter(pk, at, k) {axis=1} -> f32[1,9,2,8]
    kt = Transpose(kk) {perm=[0,2,1,3]} -> f32[1,2,9,8]
    kr = Reshape(kt) -> f32[1,2,1,9,8]
    vv = Scatter(pv, at, v) {axis=2} -> f32[1,2,9,8]
    vr = Reshape(vv) -> f32[1,2,1,9,8]
    y = Attention(q, kr, vr, br) {} -> f32[1,2,3,1,8]
    outputs(y, kk, vv)
  )"));
  REQUIRE(count_rops(made, kTitle) == 1);
  CHECK(numbers_of(made) == std::vector<int64_t>{1, 9, 1});
  const Graph graph = placed(made);
  CHECK(inputs_for_outputs(graph) == std::vector<int64_t>{-1, 3, 4});
  CHECK(distance(ops::run(made, inputs_at(made, 4, 5)), placed_run(graph, inputs_at(made, 4, 5))) < 1e-5);
}

TEST_CASE("what is no step beside its cache stays as it is") {
  const auto stays = [](const std::string& text) { return count_rops(made_beside(parse_graph(text)), kTitle) == 0; };
  const std::string text = CacheStep().text();
  REQUIRE(!stays(text));
  CacheStep two_places;
  two_places.numbers += "place_v = input i64[1]\n";
  two_places.index = swapped(two_places.index, "r = Reshape(place)", "r = Reshape(place_v)");
  CHECK(stays(two_places.text()));
  CacheStep one_wraps;
  one_wraps.index = "at = Reshape(place) -> i64[1,1,1,1]\n" + CacheStep().index.substr(CacheStep().index.find("r = "));
  CHECK(stays(one_wraps.text()));
  // A place or a length that the program computes, or one of them behind another number.
  CHECK(stays(swapped(text, "p = Reshape(place)", "p0 = Elementwise(place, place) {mul(i0, i1)} -> i64[1]\np = Reshape(p0)")));
  CHECK(stays(swapped(text, "l = Reshape(length)", "l0 = Elementwise(length, place) {max(i0, i1)} -> i64[1]\nl = Reshape(l0)")));
  CHECK(stays(swapped(text, "zero = const i64[1,1,1,1] {0}", "zero = const i64[1,1,1,1] {1}")));
  // A window, keys that do not count from 0, a mask that leaves weights, and one of what it should keep.
  CHECK(stays(swapped(text, "b = Elementwise(kept,",
                      "late = Elementwise(keys, one) {greater(i0, i1)} -> bool[1,1,1,9]\n"
                      "both = Elementwise(kept, late) {logical_and(i0, i1)} -> bool[1,1,1,9]\nb = Elementwise(both,")));
  CHECK(stays(swapped(text, "b = Elementwise(kept,",
                      "end = Slice(kept) {starts=[0,0,0,8], steps=[1,1,1,-1]} -> bool[1,1,1,9]\nb = Elementwise(end,")));
  CHECK(stays(swapped(text, "{0, 1, 2, 3, 4, 5, 6, 7, 8}", "{1, 2, 3, 4, 5, 6, 7, 8, 9}")));
  CHECK(stays(swapped(text, "least = const f32[] {-inf}", "least = const f32[] {-1e4}")));
  CHECK(stays(swapped(text, "kept0 = const f32[] {0}", "kept0 = const f32[] {1}")));
  CHECK(stays(swapped(text, "Elementwise(kept, kept0, least)", "Elementwise(kept, least, kept0)")));
  // Another kind of Scatter.
  CHECK(stays(swapped(text, "kk = Scatter(pk, at, kr) {axis=2}", "kk = Scatter(pk, at, kr) {axis=2, kind=add}")));
}

TEST_CASE("a cache that is repeated for more heads is no step beside it") {
  const std::string text =
      "q = input f32[1,3,1,8]\nk = input f32[1,1,1,8]\nv = input f32[1,1,1,8]\npk = input f32[1,1,9,8]\npv = input f32[1,1,9,8]\n"
      "place = input i64[1]\nat = Reshape(place) -> i64[1,1,1,1]\nkk = Scatter(pk, at, k) {axis=2} -> f32[1,1,9,8]\n"
      "vv = Scatter(pv, at, v) {axis=2} -> f32[1,1,9,8]\nke = Elementwise(kk) {identity(i0)} -> f32[1,3,9,8]\n"
      "y = Attention(q, ke, vv) {} -> f32[1,3,1,8]\noutputs(y, kk, vv)\n";
  CHECK(count_rops(made_beside(parse_graph(text)), kTitle) == 0);
  CHECK(count_rops(made_beside(parse_graph(swapped(text, "Attention(q, ke, vv)", "Attention(q, kk, vv)"))), kTitle) == 1);
}

TEST_CASE("two rows of a step are no step beside its cache") {
  const std::string text =
      "q = input f32[3,2,64]\nk = input f32[3,2,64]\nv = input f32[3,2,64]\npk = input f32[3,9,64]\npv = input f32[3,9,64]\n"
      "place = input i64[1]\ntwo = const i64[1,2,1] {0, 1}\np = Reshape(place) -> i64[1,1,1]\n"
      "at = Elementwise(p, two) {add(i0, i1)} -> i64[1,2,1]\nkk = Scatter(pk, at, k) {axis=1} -> f32[3,9,64]\n"
      "vv = Scatter(pv, at, v) {axis=1} -> f32[3,9,64]\ny = Attention(q, kk, vv) {} -> f32[3,2,64]\noutputs(y, kk, vv)\n";
  CHECK(count_rops(made_beside(parse_graph(text)), kTitle) == 0);
}

TEST_CASE("a cache stays in place beside a step that does not use what is replaced") {
  const auto kept = [](const std::string& text) { return inputs_for_outputs(placed(made_beside(parse_graph(text)))); };
  using Inputs = std::vector<int64_t>;
  const std::string text = CacheStep().text();
  CHECK(kept(text) == Inputs{-1, 3, 4});
  CHECK(kept(torch_step().text()) == Inputs{-1, 3, 4});
  // Somebody else reads the cache as it was.
  CHECK(kept(swapped(text, "outputs(y, kk, vv)", "e = Elementwise(pk) {exp(i0)} -> f32[1,3,9,64]\noutputs(y, kk, vv, e)")) ==
        Inputs{-1, -1, 4, -1});
  // Another row is put into it than the step leaves out: elsewhere, or counted from the end.
  const auto besides = [&](const std::string& at) {
    return swapped(text, "outputs(y, kk, vv)", at + "ww = Scatter(pk, at_w, kr) {axis=2} -> f32[1,3,9,64]\noutputs(y, ww, vv)");
  };
  CHECK(kept(besides("at_w = Reshape(length) -> i64[1,1,1,1]\n")) == Inputs{-1, -1, 4});
  CHECK(kept(besides("at_w = Reshape(place) -> i64[1,1,1,1]\n")) == Inputs{-1, -1, 4});
  CHECK(kept(besides("at_w = Reshape(at_v) -> i64[1,1,1,1]\n")) == Inputs{-1, 3, 4});
  // Two new caches of one.
  CHECK(kept(swapped(besides("at_w = Reshape(at_v) -> i64[1,1,1,1]\n"), "outputs(y, ww, vv)", "outputs(y, ww, vv, kk)")) ==
        Inputs{-1, -1, 4, -1});
}

TEST_CASE("few rTasks put a row into a cache that may stay in place") {
  const auto rtasks = [](const std::string& outputs) {
    const Graph graph =
        placed(parse_graph("x = input f32[1,8,4096,128]\nrow = input f32[1,8,1,128]\nplace = input i64[1]\n"
                           "at = Reshape(place) -> i64[1,1,1,1]\ny = Scatter(x, at, row) {axis=2} -> f32[1,8,4096,128]\n" +
                           outputs));
    const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
    const kernels::Request request{graph, rop_called(graph, "Scatter"), vdevice, Precision::fp32};
    const std::vector<RKernel> rkernels = kernels::candidates_of(kernels::family("typed_scatter"), request);
    REQUIRE(rkernels.size() == 1);
    return rkernels[0].phases[0].rtasks;
  };
  CHECK(rtasks("outputs(y)\n") == 8);
  CHECK(rtasks("e = Elementwise(x) {exp(i0)} -> f32[1,8,4096,128]\noutputs(y, e)\n") > 100);
}

namespace {

struct StepExtents {
  Shape batch;
  int64_t queries, own, past, size, values;
};

Shape rows(Shape batch, int64_t count, int64_t columns) {
  batch.insert(batch.end(), {count, columns});
  return batch;
}

struct StepTensors {
  TensorId q, k, v, bias, past_k, past_v, cos, sin, q_scale, k_scale;
  bool by_halves = false;
  // Of a step beside its cache: keys n <= length count, others have the bias `masked`.
  TensorId place{}, length{};
  bool wraps = true;
  float masked = -kInfinite;
};

// `own`: the shapes of Q, K and V; `past`: of how many keys before.
Case finish_step(CaseMaker& maker, const Attention& op, const StepTensors& t, const std::array<Shape, 3>& own, int64_t past, TensorId y) {
  const auto rank = static_cast<int64_t>(own[0].size());
  std::vector<ROperator> steps;
  const auto add = [&](OpAttrs attrs, const std::vector<TensorId>& inputs, const Shape& shape) {
    const TensorId made = maker.between(shape);
    steps.push_back({"step", std::move(attrs), {}, inputs, {made}, {}});
    return made;
  };
  const auto turned = [&](TensorId x, const Shape& shape, TensorId scale) {
    if (scale.valid()) x = add(Normalize{{rank - 1}, false, 1e-3F}, {x, scale}, shape);
    if (!t.cos.valid()) return x;
    Slice half = whole_slice(shape);
    half.extents.back() /= 2;
    const TensorId low = add(half, {x}, half.extents);
    half.starts.back() = half.extents.back();
    if (t.by_halves) {
      const TensorId high = add(half, {x}, half.extents);
      const auto chain = [&](ElementwiseOp last, TensorId first, TensorId second) {
        return add(Elementwise{{{ElementwiseOp::mul, {0, 1}}, {ElementwiseOp::mul, {2, 3}}, {last, {-1, -2}}}}, {low, first, high, second},
                   half.extents);
      };
      const TensorId lower = chain(ElementwiseOp::sub, t.cos, t.sin), upper = chain(ElementwiseOp::add, t.sin, t.cos);
      return add(Concat{rank - 1}, {lower, upper}, shape);
    }
    const TensorId high = add(half, {x}, half.extents), minus = add(Elementwise{{{ElementwiseOp::neg, {0}}}}, {high}, half.extents);
    const TensorId crossed = add(Concat{rank - 1}, {minus, low}, shape);
    return add(Elementwise{{{ElementwiseOp::mul, {0, 1}}, {ElementwiseOp::mul, {2, 3}}, {ElementwiseOp::add, {-1, -2}}}},
               {x, t.cos, crossed, t.sin}, shape);
  };
  const auto whole = [&](OpAttrs attrs, const std::vector<TensorId>& inputs, const Shape& shape, DType dtype) {
    const TensorId made = maker.between(shape, dtype);
    steps.push_back({"step", std::move(attrs), {}, inputs, {made}, {}});
    return made;
  };
  const auto single = [](ElementwiseOp op, size_t operands) {
    return Elementwise{{{op, operands == 2 ? std::vector<int32_t>{0, 1} : std::vector<int32_t>{0, 1, 2}}}};
  };
  const Shape one(static_cast<size_t>(rank), 1), row_of_keys = {past};
  TensorId index, bias = t.bias;
  if (t.place.valid()) {
    index = whole(Reshape{one}, {t.place}, one, DType::i64);
    if (!t.wraps) {
      const TensorId is_outside = whole(single(ElementwiseOp::less, 2), {index, maker.indices({}, {0})}, one, DType::boolean);
      index = whole(single(ElementwiseOp::where, 3), {is_outside, maker.indices({}, {past}), index}, one, DType::i64);
    }
  }
  if (t.length.valid()) {
    const TensorId counts = maker.indices(row_of_keys, range(0, past));
    const TensorId kept = whole(single(ElementwiseOp::less_equal, 2), {counts, t.length}, row_of_keys, DType::boolean);
    bias = whole(single(ElementwiseOp::where, 3), {kept, maker.constant({}, Lay::rows, {0.0F}), maker.constant({}, Lay::rows, {t.masked})},
                 row_of_keys, DType::f32);
  }
  const auto keys = [&](TensorId before, TensorId x, Shape shape) {
    shape[shape.size() - 2] = past + (index.valid() ? 0 : shape[shape.size() - 2]);
    return index.valid() ? add(Scatter{rank - 2}, {before, index, x}, shape) : add(Concat{rank - 2}, {before, x}, shape);
  };
  const TensorId q = turned(t.q, own[0], t.q_scale), k = keys(t.past_k, turned(t.k, own[1], t.k_scale), own[1]),
                 v = keys(t.past_v, t.v, own[2]);
  steps.push_back({"attention", op, {}, without_last_none({q, k, v, bias}), {y}, {}});
  Case c = maker.finish_steps(steps, {y});
  const std::string name = c.graph.rops[0].name;
  c.graph.rops[0] = fuse(c.graph, name, steps, {y}, {t.q, t.k, t.v, t.bias, t.past_k, t.past_v, t.cos, t.sin});
  c.graph.rops[0].name = name;
  return c;
}

// `made`: bits of how rows are made (kernels/attention/numbers.cuh).
Case step_case(const std::string& name, const StepExtents& e, int made = 0, const Shape& bias = {}, Lay lay = Lay::rows) {
  CaseMaker maker(name);
  const std::array<Shape, 3> own = {rows(e.batch, e.queries, e.size), rows(e.batch, e.own, e.size), rows(e.batch, e.own, e.values)};
  StepTensors t;
  t.q = maker.input(own[0], lay);
  t.k = maker.input(own[1], lay);
  t.v = maker.input(own[2], lay);
  t.past_k = maker.input(rows(e.batch, e.past, e.size), lay);
  t.past_v = maker.input(rows(e.batch, e.past, e.values), lay);
  if (!bias.empty()) t.bias = maker.input(bias);
  t.by_halves = (made & rk::kStepTurnedHalves) != 0;
  const Shape factors = {e.queries, t.by_halves ? e.size / 2 : e.size};
  if ((made & (rk::kStepTurned | rk::kStepTurnedHalves)) != 0) t.cos = maker.input(factors), t.sin = maker.input(factors);
  if ((made & rk::kStepNormalised) != 0) t.q_scale = maker.constant({e.size}), t.k_scale = maker.constant({e.size});
  return finish_step(maker, {0.3F}, t, own, e.past, maker.output(rows(e.batch, e.queries, e.values), lay));
}

// Beside a cache of `e.past` places.
struct CacheNumbers {
  int64_t place = 0, last = 0;
  bool wraps = true;
  float masked = -kInfinite;
};
Case cache_case(const StepExtents& e, const CacheNumbers& numbers, int made = 0, bool has_mask = true, bool is_given = false) {
  CaseMaker maker("a cache of " + std::to_string(e.past) + ", a row at " + std::to_string(numbers.place) + ", keys to " +
                  std::to_string(numbers.last) + (numbers.wraps ? "" : ", no place from the end") +
                  (std::isinf(numbers.masked) ? "" : ", masked by a number") + (has_mask ? "" : ", no mask") + (is_given ? ", given" : ""));
  const std::array<Shape, 3> own = {rows(e.batch, e.queries, e.size), rows(e.batch, 1, e.size), rows(e.batch, 1, e.values)};
  StepTensors t;
  t.q = maker.input(own[0]);
  t.k = maker.input(own[1]);
  t.v = maker.input(own[2]);
  t.past_k = maker.input(rows(e.batch, e.past, e.size));
  t.past_v = maker.input(rows(e.batch, e.past, e.values));
  t.by_halves = (made & rk::kStepTurnedHalves) != 0;
  const Shape factors = {e.queries, t.by_halves ? e.size / 2 : e.size};
  if ((made & (rk::kStepTurned | rk::kStepTurnedHalves)) != 0) t.cos = maker.input(factors), t.sin = maker.input(factors);
  if ((made & rk::kStepNormalised) != 0) t.q_scale = maker.constant({e.size}), t.k_scale = maker.constant({e.size});
  t.place = maker.number(numbers.place);
  if (has_mask) t.length = maker.number(numbers.last);
  t.wraps = numbers.wraps;
  t.masked = numbers.masked;
  Case c = finish_step(maker, {0.3F, Weightless::zero_if_masked}, t, own, e.past, maker.output(rows(e.batch, e.queries, e.values)));
  if (!is_given) return c;
  for (const TensorId id : {t.past_k, t.past_v, t.place, t.length, t.cos, t.sin}) {
    if (id.valid()) c.graph.buffers[c.graph.tensor(id).place.buffer.index()].kind = BufferKind::input;
  }
  return c;
}

std::vector<Case> cache_cases() {
  std::vector<Case> cases;
  const StepExtents small{{2}, 1, 1, 40, 32, 32}, large{{1, 1}, 1, 1, 300, 64, 64}, odd{{3}, 1, 1, 67, 20, 44};
  for (const StepExtents& e : {small, large, odd}) {
    for (const int64_t place : {int64_t{0}, e.past / 2, e.past - 1}) {
      cases.push_back(cache_case(e, {place, place}));       // a token, as decoders make it
      cases.push_back(cache_case(e, {place, e.past / 3}));  // in front of the last key, or behind it
    }
    cases.push_back(cache_case(e, {-1, e.past - 1}));
    cases.push_back(cache_case(e, {-1, e.past - 1, false}));
    cases.push_back(cache_case(e, {e.past, e.past + 3}));
    cases.push_back(cache_case(e, {2, -1}));
    cases.push_back(cache_case(e, {7, 0}, 0, false));
  }
  const int all = rk::kStepTurnedHalves | rk::kStepNormalised;
  for (const bool is_given : {false, true}) {
    cases.push_back(cache_case(large, {70, 70}, all, true, is_given));
    cases.push_back(cache_case(large, {70, 70}, rk::kStepTurned, true, is_given));
    cases.push_back(cache_case({{1, 2}, 1, 1, 500, 128, 128}, {499, 499, false}, all, true, is_given));
    cases.push_back(cache_case({{2}, 1, 1, 33, 128, 128}, {5, 31}, all, false, is_given));
  }
  return cases;
}

std::vector<Case> step_cases() {
  std::vector<Case> cases = {
      step_case("one of everything", {{}, 1, 1, 1, 4, 4}),
      step_case("a head of GPT-2", {{1, 2}, 1, 1, 127, 64, 64}),
      step_case("whole turns of keys", {{1, 1}, 1, 1, 128, 64, 64}),
      step_case("shares, the last of which is short", {{1, 1}, 1, 1, 300, 64, 64}),
      step_case("rows of 128, shares", {{2}, 1, 1, 200, 128, 128}),
      step_case("rows of 96", {{3}, 1, 1, 67, 96, 96}),
      step_case("rows of 20, values of 44", {{2}, 1, 1, 33, 20, 44}),
      step_case("several queries", {{2}, 4, 4, 31, 32, 32}),
      step_case("more own keys than keys before", {{2}, 2, 50, 1, 32, 32}),
      step_case("heads side by side", {{2, 3}, 1, 1, 40, 32, 32}, 0, {}, Lay::channels_last),
      step_case("turned", {{1, 3}, 1, 1, 40, 64, 64}, rk::kStepTurned),
      step_case("turned by halves", {{1, 3}, 1, 1, 40, 64, 64}, rk::kStepTurnedHalves),
      step_case("turned by halves, several queries, rows of 128", {{2}, 3, 3, 70, 128, 128}, rk::kStepTurnedHalves | rk::kStepNormalised),
      step_case("normalised, rows of 20", {{2}, 2, 3, 33, 20, 44}, rk::kStepNormalised),
      step_case("normalised and turned, shares", {{1, 1}, 1, 1, 300, 64, 64}, rk::kStepTurned | rk::kStepNormalised),
      step_case("turned, several queries, rows of 128", {{2}, 3, 3, 70, 128, 128}, rk::kStepTurned),
      step_case("a mask of keys", {{2, 3}, 1, 1, 37, 32, 32}, 0, {2, 1, 1, 38}),
      step_case("a bias of all scores", {{2}, 3, 3, 150, 64, 64}, rk::kStepTurned, {2, 3, 153}),
  };
  CaseMaker masked("keys that are masked");
  std::vector<float> mask(20, 0.0F);
  for (const size_t n : {0U, 5U, 18U}) mask[n] = -kInfinite;
  const auto matrices = [&](int64_t count) { return masked.input({2, count, 32}); };
  const Shape one = {2, 1, 32};
  const StepTensors of_mask{matrices(1), matrices(1), matrices(1), masked.input({1, 20}, Lay::rows, mask), matrices(19), matrices(19), {},
                            {},          {},          {}};
  cases.push_back(finish_step(masked, {1}, of_mask, {one, one, one}, 19, masked.output(one)));

  // Query 1 has no key; a score of query 2 is NaN. With 300 keys before, in shares.
  for (const Weightless weightless : {Weightless::nan, Weightless::zero_if_masked, Weightless::zero}) {
    for (const int64_t past : {19, 300}) {
      CaseMaker maker("no numbers " + std::to_string(static_cast<int>(weightless)) + " " + std::to_string(past));
      const auto count = static_cast<size_t>(past) + 1;
      std::vector<float> queries(3 * 32, 0.5F), bias(3 * count, 0.0F);
      for (size_t n = 0; n < count; ++n) bias[count + n] = -kInfinite;
      queries[2 * 32 + 3] = std::numeric_limits<float>::quiet_NaN();
      const TensorId query = maker.input({1, 3, 32}, Lay::rows, queries);
      const Shape own = {1, 1, 32}, before = {1, past, 32};
      const StepTensors t{query,
                          maker.input(own),
                          maker.input(own),
                          maker.input({3, past + 1}, Lay::rows, bias),
                          maker.input(before),
                          maker.input(before),
                          {},
                          {},
                          {},
                          {}};
      cases.push_back(finish_step(maker, {1, weightless}, t, {Shape{1, 3, 32}, own, own}, past, maker.output({1, 3, 32})));
    }
  }

  for (const int64_t past : {19, 300}) {
    CaseMaker maker("queries whose keys are masked " + std::to_string(past));
    const auto count = static_cast<int64_t>(kHardMasks);
    const TensorId bias = maker.input({count, 1, past + 1}, Lay::rows, hard_masks(kHardMasks, static_cast<size_t>(past) + 1));
    const auto of_rows = [&](int64_t rows_of) { return maker.input({count, rows_of, 32}); };
    const TensorId q = of_rows(1), k = of_rows(1), v = of_rows(1), past_k = of_rows(past), past_v = of_rows(past);
    const Shape own = {count, 1, 32};
    cases.push_back(finish_step(maker, {0.3F}, {q, k, v, bias, past_k, past_v, {}, {}, {}, {}}, {own, own, own}, past, maker.output(own)));
  }

  CaseMaker shared("heads that share keys and values");
  const TensorId q = shared.input({2, 3, 1, 32});
  const auto keys = [&](int64_t count) { return shared.input({2, 1, count, 32}); };
  const Shape queries = {2, 3, 1, 32}, own = {2, 1, 1, 32};
  cases.push_back(finish_step(shared, {0.2F}, {q, keys(1), keys(1), {}, keys(40), keys(40), {}, {}, {}, {}}, {queries, own, own}, 40,
                              shared.output(queries)));

  for (const int64_t count : {20, 70, 400}) {
    CaseMaker plain("an Attention of few queries, " + std::to_string(count) + " keys");
    const auto rows = [&](int64_t count_of_rows) { return plain.input({2, count_of_rows, 48}); };
    const std::vector<TensorId> operands = {rows(3), rows(count), rows(count), plain.input({1, count})};
    cases.push_back(plain.finish(Attention{0.2F}, operands, plain.output({2, 3, 48})));
  }
  return cases;
}

std::vector<std::string> problems_of(const std::vector<Case>& cases, Precision precision, double bound) {
  ShapedVDevice vdevice = read_vdevice("h200").without_inputs();
  vdevice.sms = 6;
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_step_attention");
  return run_heavy_cases(cases, {kernels::family("attention_step")}, {vdevice, precision, bound}, root, folder.path());
}

}  // namespace

TEST_CASE("more dimensions of batches than the body loops over have no estimate") {
  CaseMaker maker("five dimensions of batches, a bias for three of them");
  const TensorId q = maker.input({2, 2, 2, 2, 2, 1, 8}), k = maker.input({2, 2, 2, 2, 2, 5, 8}), v = maker.input({2, 2, 2, 2, 2, 5, 8}),
                 bias = maker.input({2, 1, 2, 1, 2, 1, 5});
  const Case c = maker.finish(Attention{1}, {q, k, v, bias}, maker.output({2, 2, 2, 2, 2, 1, 8}));
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  const kernels::Request request{c.graph, c.graph.rops[0], vdevice, Precision::fp32};
  CHECK(kernels::candidates_of(kernels::family("attention_step"), request).empty());
  CHECK(!kernels::family("attention_step").estimate(request));
}

TEST_CASE("the body of a step agrees with the reference") {
  for (const std::string& problem : problems_of(step_cases(), Precision::fp32, 1e-5)) FAIL_CHECK(problem);
}

TEST_CASE("the body of a step beside its cache agrees with the reference") {
  for (const std::string& problem : problems_of(cache_cases(), Precision::fp32, 1e-5)) FAIL_CHECK(problem);
}

TEST_CASE("all keys of a cache weigh alike where a number masks each of them") {
  std::vector<Case> cases;
  for (const StepExtents& e : {StepExtents{{2}, 1, 1, 40, 32, 32}, StepExtents{{1, 1}, 1, 1, 300, 64, 64}}) {
    for (const int64_t place : {int64_t{0}, e.past / 2, e.past}) cases.push_back(cache_case(e, {place, -1, true, -3.4e38F}));
  }
  for (const std::string& problem : problems_of(cases, Precision::fp32, 1e-5)) FAIL_CHECK(problem);
}

TEST_CASE("operands and results of a step may be of 16 bits") {
  std::vector<Case> cases;
  const auto add = [&](const Case& c, const std::vector<size_t>& which, bool out, DType dtype) {
    std::vector<TensorId> ids;
    for (const size_t i : which) ids.push_back(c.graph.rops[0].inputs[i]);
    if (out) ids.push_back(c.graph.rops[0].outputs[0]);
    cases.push_back(narrowed(c, ids, dtype));
  };
  for (const Case& c : {step_case("a head of GPT-2", {{1, 2}, 1, 1, 127, 64, 64}), step_case("shares", {{1, 1}, 1, 1, 300, 64, 64}, true),
                        step_case("rows of 20", {{2}, 2, 2, 33, 20, 20})}) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      add(c, {0, 1, 2}, true, dtype);
      add(c, {0, 1, 2, 3, 4}, true, dtype);  // keys and values before, too
      add(c, {3, 4}, false, dtype);
    }
  }
  const Case all = step_case("turned, with a bias", {{1, 2}, 1, 1, 40, 64, 64}, rk::kStepTurned, {2, 1, 41});
  add(all, {6, 7}, false, DType::f16);  // cos and sin
  add(all, {3}, false, DType::bf16);    // the bias
  add(all, {0, 1, 2, 3, 4, 5, 6, 7}, true, DType::f16);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    add(cache_case({{1, 1}, 1, 1, 300, 64, 64}, {70, 70}, rk::kStepTurned), {3, 4}, false, dtype);  // the cache
    add(cache_case({{1, 1}, 1, 1, 300, 64, 64}, {70, 70}, rk::kStepTurned), {0, 1, 2, 3, 4}, true, dtype);
  }
  for (const std::string& problem : problems_of(cases, Precision::fp16, 4e-3)) FAIL_CHECK(problem);
}

}  // namespace tamp::test
