// Programs that make tokens (docs/adr/0051): how a token is drawn, what is found out about a model, and what the verifier refuses.
#include "compiler/frontend/generation.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "compiler/ops/ops.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule/token_boundary.h"
#include "compiler/support/error.h"
#include "kernels/shared/sampling.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"

using namespace tamp;
using namespace tamp::test;

namespace {

template <class T>
ops::Value value_of(DType dtype, Shape shape, const std::vector<T>& values) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  return {dtype, std::move(shape), std::make_shared<const Bytes>(bytes, bytes + values.size() * sizeof(T))};
}

struct Draw {
  float temperature = 0, top_p = 0, penalty = 1;
  int64_t top_k = 0, seed = 0, number = 0;
  std::vector<uint8_t> seen = {};
};

int64_t drawn(const std::vector<float>& scores, Draw draw) {
  const auto words = static_cast<int64_t>(scores.size());
  draw.seen.resize(scores.size());
  const std::string n = std::to_string(words);
  const Graph graph = parse_graph("x = input f32[1," + n + "]\n a = input f32[3]\n d = input i64[3]\n s = input bool[" + n +
                                  "]\n y = NextToken(x, a, d, s) -> i64[1]\n outputs(y)");
  const auto result = ops::run(
      graph, {value_of(DType::f32, {1, words}, scores), value_of<float>(DType::f32, {3}, {draw.temperature, draw.top_p, draw.penalty}),
              value_of<int64_t>(DType::i64, {3}, {draw.top_k, draw.seed, draw.number}), value_of(DType::boolean, {words}, draw.seen)});
  int64_t token = 0;
  std::memcpy(&token, result[0].data->data(), sizeof token);
  return token;
}

// How often each word is drawn, of 4000 draws.
std::vector<double> shares(const std::vector<float>& scores, Draw draw) {
  constexpr int kDraws = 4000;
  std::vector<double> of(scores.size());
  for (draw.number = 0; draw.number < kDraws; ++draw.number) of[static_cast<size_t>(drawn(scores, draw))] += 1.0 / kDraws;
  return of;
}

// A step with a cache that stays in place and a state that does not.
const std::string kStep = R"(
  ids = input i64[1,1]
  pos = input i64[1]
  past_key_values.0.key = input f32[1,8,4]
  state_in = input f32[1,4]
  table = const f32[6,4]
  w = const f32[4,6]
  row = Gather(table, ids) {axis=0} -> f32[1,1,4]
  at = Reshape(pos) -> i64[1,1,1]
  present.0.key = Scatter(past_key_values.0.key, at, row) {axis=1} -> f32[1,8,4]
  sum = Reduce(present.0.key) {kind=sum, axes=[1], keepdims=0} -> f32[1,4]
  state_out = Elementwise(sum, state_in) {add(i0, i1)} -> f32[1,4]
  logits = MatMul(state_out, w) -> f32[1,6]
  outputs(present.0.key, state_out, logits)
)";

RProgram scheduled() {
  Graph graph = parse_graph(kStep);
  Generation generation = frontend::add_generation(graph, {});
  schedule::ScheduleOptions options;
  options.precision = Precision::fp32;
  RProgram program = schedule::schedule(passes::assign_layout(std::move(graph)), read_vdevice("cpu").without_inputs(), options);
  schedule::add_token_boundary(program, std::move(generation));
  return program;
}

std::string verdict(const RProgram& program) {
  const std::vector<std::string> violations = schedule::verify(program);
  return violations.empty() ? "" : violations[0];
}

using Request = frontend::GenerationRequest;
Request asked(const std::function<void(Request&)>& set) {
  Request request;
  set(request);
  return request;
}

std::string refusal(const std::string& text, const frontend::GenerationRequest& request = {}) {
  Graph graph = parse_graph(text);
  try {
    frontend::add_generation(graph, request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("random numbers are Philox's") {
  // The known answers of Random123 for a counter and a key of zeros.
  CHECK(rk::sampling::random_bits(0, 0) == 0xe169c58d6627e8d5);
  CHECK(rk::sampling::share_of(~uint64_t{0}, 1000) == 999);
  CHECK(rk::sampling::share_of(uint64_t{1} << 63, (uint64_t{1} << 57) + 5) == (uint64_t{1} << 56) + 2);
}

TEST_CASE("masses are exponentials") {
  CHECK(rk::sampling::mass(0) == uint64_t{1} << 40);
  CHECK(rk::sampling::mass(rk::sampling::kTooFar) == 0);
  for (const double x : {0.001, 0.3, 1.0, 5.5, 12.0}) {
    const auto mass = static_cast<double>(rk::sampling::mass(static_cast<uint32_t>(x * 16777216)));
    CHECK(std::abs(mass / (std::exp(-x) * 1099511627776.0) - 1) < 1e-5);
  }
  CHECK(rk::sampling::distance(-INFINITY, 0) == rk::sampling::kTooFar);
  CHECK(rk::sampling::distance(NAN, 0) == rk::sampling::kTooFar);
}

TEST_CASE("without a temperature the first of the best words is taken") {
  CHECK(drawn({1, 3, 3, 2}, {}) == 1);
  CHECK(drawn({NAN, -2, -1, NAN}, {}) == 2);
  CHECK(drawn({1, 3, 2.5F, 2}, {.penalty = 1.5F, .seen = {0, 1, 0, 0}}) == 2);
  CHECK(drawn({-4, -3, -3.5F, -9}, {.penalty = 2, .seen = {0, 1, 1, 0}}) == 0);
}

TEST_CASE("words are drawn by their probability, and only those that are kept") {
  const std::vector<float> scores = {0, 2, 1, -90, 1, NAN};
  const double all = 1 + std::exp(2.0) + 2 * std::exp(1.0);
  const std::vector<double> of_all = shares(scores, {.temperature = 1, .seed = 1});
  CHECK(std::abs(of_all[0] - 1 / all) < 0.02);
  CHECK(std::abs(of_all[1] - std::exp(2.0) / all) < 0.03);
  CHECK((of_all[3] == 0 && of_all[5] == 0));
  const std::vector<double> colder = shares(scores, {.temperature = 0.5F, .seed = 1});
  CHECK(std::abs(colder[1] - 1 / (1 + std::exp(-4.0) + 2 * std::exp(-2.0))) < 0.03);
  const std::vector<double> two = shares(scores, {.temperature = 1, .top_k = 2, .seed = 2});
  CHECK((two[0] == 0 && two[2] > 0 && two[4] > 0));  // equal scores are kept together
  const std::vector<double> one = shares(scores, {.temperature = 1, .top_p = 0.5F, .seed = 2});
  CHECK(one[1] > 0.999);
  const std::vector<double> most = shares(scores, {.temperature = 1, .top_p = 0.6F, .seed = 2});
  CHECK((most[0] == 0 && most[2] > 0));
  CHECK(drawn({NAN, NAN}, {.temperature = 1}) == 0);
}

TEST_CASE("the parts of inputs and outputs are found") {
  Graph graph = parse_graph(kStep);
  const Generation generation = frontend::add_generation(graph, asked([](Request& r) { r.stops = {5}; }));
  const std::vector<Advanced> expected = {
      {0, Advance::token}, {1, Advance::position}, {5, Advance::position, 2, 0, false, true}, {6, Advance::mark_token}};
  CHECK(generation.inputs == expected);
  CHECK(generation.feeds == std::vector<Feed>{{0, 2}, {1, 3}});
  CHECK((generation.scores == 2 && generation.token == 3 && generation.words == 6 && generation.places == 8));
  CHECK(graph.tensor(graph.outputs[3]).name == "tamp.token");
}

// A run of five tokens.
const std::string kRows = R"(
  ids = input i64[1,5]
  pos = input i64[5]
  write_indices = input i64[1]
  nonpad_kv_seqlen = input i64[1]
  start = input i64[1]
  attention_mask = input bool[1,8]
  table = const f32[6,4]
  w = const f32[4,6]
  bias = const f32[6]
  row = Gather(table, ids) {axis=0} -> f32[1,5,4]
  product = MatMul(row, w) -> f32[1,5,6]
  biased = Elementwise(product, bias) {add(i0, i1)} -> f32[1,5,6]
  logits = Elementwise(biased) {tanh(i0)} -> f32[1,5,6]
  outputs(logits)
)";

TEST_CASE("a run of several tokens has an element for each, or one of the first or the last") {
  Graph graph = parse_graph(kRows);
  const Generation generation = frontend::add_generation(graph, asked([](Request& r) { r.positions = {{"start", 0}}; }));
  const std::vector<Advanced> expected = {{0, Advance::token, 0, 0, true},
                                          {1, Advance::position, 0, 0, true},
                                          {4, Advance::position, 0, 0},
                                          {2, Advance::position, 0, 0},
                                          {3, Advance::position, 0, 1, false, true},
                                          {5, Advance::mark_position},
                                          {7, Advance::position, 2, 0, false, true},
                                          {8, Advance::mark_token}};
  CHECK(generation.inputs == expected);
  CHECK((generation.rows == 5 && !generation.is_step()));
  // Only the last row goes through what follows rows one by one.
  CHECK(graph.rops[1].name == "tamp.last_row");
  CHECK(std::get<Slice>(graph.rops[1].attrs).starts == Shape{0, 4, 0});
  CHECK(graph.tensor(graph.outputs[0]).shape == Shape{1, 1, 6});
  verify(graph);
  ops::verify_shapes(graph);
  CHECK_THAT(refusal(kRows, asked([](Request& r) {
                       r.positions = {{"start", 1}};
                     })),
             Catch::Contains("input 'start': is one integer for several tokens of a run, the position +1"));
  CHECK(refusal(kRows, asked([](Request& r) { r.ends = {{"start", 1}}; })).empty());
}

TEST_CASE("what has no part, or one that does not fit, is refused by name") {
  using Catch::Contains;
  const auto with = [](std::string text, const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
    return text;
  };
  CHECK_THAT(refusal(with(kStep, "state_in", "mystery")), Contains("input 'mystery': has no part in making tokens"));
  CHECK(refusal(with(kStep, "state_in", "mystery"), asked([](Request& r) { r.feeds = {{"state_out", "mystery"}}; })).empty());
  CHECK(refusal(with(kStep, "state_in", "mystery"), asked([](Request& r) { r.held = {"mystery"}; })).empty());
  CHECK_THAT(refusal(kStep, asked([](Request& r) {
                       r.feeds = {{"logits", "state_in"}};
                     })),
             Contains("output 'logits' [1,6] becomes input 'state_in' [1,4]"));
  CHECK_THAT(refusal(kStep, asked([](Request& r) { r.token = "state_in"; })), Contains("is the token, supported: the number of one"));
  CHECK_THAT(refusal(kStep, asked([](Request& r) { r.positions = {{"nowhere", 0}}; })), Contains("the model has no input 'nowhere'"));
  CHECK_THAT(refusal(kStep, asked([](Request& r) { r.masks = r.held = {"pos"}; })), Contains("two parts"));
  CHECK_THAT(refusal(kStep, asked([](Request& r) { r.stops = {6}; })), Contains("token 6 that ends the text is not below the 6 words"));
  CHECK_THAT(refusal(kStep, asked([](Request& r) { r.places = 9; })), Contains("9 places, the caches and masks have 8"));
  CHECK_THAT(refusal(with(kStep, "logits = MatMul(state_out, w) -> f32[1,6]", "logits = MatMul(present.0.key, w) -> f32[1,8,6]")),
             Contains("are the scores, supported: those of one token"));
}

TEST_CASE("a boundary that a lane leaves out, or passes early, is found") {
  const RProgram good = scheduled();
  CHECK(verdict(good) == "");
  const auto said = [&](const std::function<void(RProgram&, std::vector<Instruction>&)>& change) {
    RProgram program = good;
    change(program, program.lanes[0]);
    return verdict(program);
  };
  const auto at_end = Catch::Contains("may run beside the run of the token before");
  CHECK_THAT(said([](RProgram& program, auto& lane) {
               lane.pop_back();
               --program.events.back().count;
             }),
             at_end);
  CHECK_THAT(said([](auto&, auto& lane) { std::rotate(lane.begin(), lane.end() - 1, lane.end()); }), at_end);
  CHECK_THAT(said([](auto&, auto& lane) { lane.pop_back(); }), Catch::Contains("counts"));
  CHECK_THAT(said([](RProgram& program, auto& lane) { lane[0].waits = {program.boundary}; }), at_end);
  CHECK_THAT(said([](RProgram& program, auto&) { program.boundary = {}; }), Catch::Contains("there is no boundary"));
  CHECK_THAT(said([](RProgram& program, auto&) { program.generation->feeds[0].input = 3; }), Catch::Contains("of another type"));
  CHECK_THAT(said([](RProgram& program, auto&) { program.generation->feeds[1] = program.generation->feeds[0]; }),
             Catch::Contains("has another part"));
  CHECK_THAT(said([](RProgram& program, auto&) { program.generation->inputs[1].element = 1; }), Catch::Contains("outside of itself"));
  CHECK_THAT(said([](RProgram& program, auto&) { program.generation->inputs[1].input = 2; }), Catch::Contains("or twice"));
  CHECK_THAT(said([](RProgram& program, auto&) { program.generation->rows = 2; }), Catch::Contains("parts of a prompt repeats its run"));
  CHECK_THAT(said([](RProgram& program, auto&) {
               program.graph.lengths = {{"seq", 1, 1}};
               program.graph.input_axes.resize(program.graph.inputs.size());
               program.graph.input_axes[2] = {{1, {0}}};
             }),
             Catch::Contains("is as long as a run says"));
  CHECK_THAT(said([](RProgram& program, auto&) { program.generation->token = 2; }), Catch::Contains("is no token that is drawn"));
}
