// A graph with another batch: each element of it gets what the graph as it was makes of that element, or the graph is refused.
#include "compiler/frontend/rebatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "compiler/ops/ops.h"
#include "compiler/support/error.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"

using namespace tamp;
using test::parse_graph;

namespace {

// Inputs begin with the batch.
struct Case {
  std::string text;
  std::string why;  // of a refusal; empty: there is none
};

// An element of an input's batch: any values, integers 0 to 2.
template <class T>
void fill(ops::Value& value, int64_t first, size_t input) {
  const int64_t batch = value.shape.empty() ? 1 : value.shape[0], each = element_count(value.shape) / batch;
  auto bytes = std::make_shared<Bytes>(static_cast<size_t>(batch * each) * sizeof(T));
  for (int64_t b = 0; b < batch; ++b) {
    std::minstd_rand random(static_cast<unsigned>(1 + (value.shape.empty() ? 0 : first + b) % 16 + 100 * static_cast<int64_t>(input)));
    random.discard(3);
    for (int64_t i = 0; i < each; ++i) {
      const auto number = static_cast<T>(std::is_integral_v<T> ? random() / 7 % 3 : static_cast<double>(random() % 2000) / 1000 - 1);
      std::memcpy(bytes->data() + static_cast<size_t>(b * each + i) * sizeof(T), &number, sizeof(T));
    }
  }
  value.data = std::move(bytes);
}

std::vector<ops::Value> inputs_from(const Graph& graph, int64_t first, int64_t wrap) {
  std::vector<ops::Value> inputs;
  for (const TensorId id : graph.inputs) {
    const Tensor& tensor = graph.tensor(id);
    ops::Value value{tensor.dtype, tensor.shape, nullptr};
    // Elements behind the last begin again with the first.
    if (tensor.dtype == DType::f32) fill<float>(value, first % wrap, inputs.size());
    if (tensor.dtype == DType::i64) fill<int64_t>(value, first % wrap, inputs.size());
    if (tensor.dtype == DType::i32) fill<int32_t>(value, first % wrap, inputs.size());
    REQUIRE(value.data);
    inputs.push_back(std::move(value));
  }
  return inputs;
}

bool equals(const ops::Value& a, size_t at, const ops::Value& b, size_t there, size_t count) {
  if (a.dtype != DType::f32) return std::memcmp(a.data->data() + at, b.data->data() + there, count) == 0;
  for (size_t i = 0; i < count; i += sizeof(float)) {
    float x = 0, y = 0;
    std::memcpy(&x, a.data->data() + at + i, sizeof x);
    std::memcpy(&y, b.data->data() + there + i, sizeof y);
    if (!(x == y || std::abs(x - y) <= 1e-5F * (1 + std::abs(y)))) return false;
  }
  return true;
}

// Whether the elements of `few` are elements first, first + 1, .. of `many`, in some order of the dimensions that the batch may be joined
// with.
bool is_part(const ops::Value& few, int64_t from, const ops::Value& many, int64_t to, int64_t first) {
  for (size_t d = 0; d < few.shape.size(); ++d) {
    if (few.shape[d] * to != many.shape[d] * from) continue;
    int64_t front = 1;
    for (size_t k = 0; k < d; ++k) front *= few.shape[k];
    for (int64_t before = 1; before <= few.shape[d] / from; ++before) {
      if (few.shape[d] / from % before != 0) continue;
      const int64_t outer = front * before, each = element_count(few.shape) / outer / from;
      const auto bytes = static_cast<size_t>(each * bytes_of(few.dtype));
      bool fits = true;
      for (int64_t o = 0; fits && o < outer; ++o) {
        for (int64_t b = 0; fits && b < from; ++b)
          fits = equals(many, static_cast<size_t>(o * to + first + b) * bytes, few, static_cast<size_t>(o * from + b) * bytes, bytes);
      }
      if (fits) return true;
    }
  }
  return false;
}

void check_elements(const Graph& graph, int64_t from, const Graph& made, int64_t to) {
  verify(made);
  ops::verify_shapes(made);
  const std::vector<ops::Value> all = ops::run(made, inputs_from(made, 0, to));
  for (int64_t first = 0; first + from <= to || first == 0; ++first) {
    if (to < from) break;
    const std::vector<ops::Value> some = ops::run(graph, inputs_from(graph, first, 16));
    for (size_t k = 0; k < some.size(); ++k) {
      INFO("output " << k << ", element " << first);
      CHECK(is_part(some[k], from, all[k], to, first));
    }
  }
  if (to >= from) return;
  const std::vector<ops::Value> some = ops::run(graph, inputs_from(graph, 0, 16));
  for (size_t k = 0; k < some.size(); ++k) CHECK(is_part(all[k], to, some[k], from, 0));
}

int64_t batch_of(const Graph& graph) {
  for (const TensorId id : graph.inputs) {
    if (!graph.tensor(id).shape.empty()) return graph.tensor(id).shape[0];
  }
  FAIL("no batch");
  return 0;
}

std::string refusal_of(const Graph& graph, int64_t to) {
  try {
    check_elements(graph, batch_of(graph), frontend::with_batch("m", graph, batch_of(graph), to, {}), to);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::unsupported);
    return error.what();
  }
  return "";
}

void check(const Case& row) {
  INFO(row.text);
  const Graph graph = parse_graph(row.text);
  for (const int64_t to : {batch_of(graph) == 1 ? 4 : 1, 3}) {
    const std::string refusal = refusal_of(graph, to);
    if (row.why.empty()) {
      CHECK(refusal == "");
    } else {
      CHECK_THAT(refusal, Catch::Contains(fmt::format("m: --batch {}: ", to)) && Catch::Contains(row.why));
    }
  }
}

}  // namespace

TEST_CASE("rules of operators that compute rows") {
  check(GENERATE(values<Case>({
      {"x = input f32[1,3,4,4]\n w = const f32[2,3,3,3]\n b = const f32[2]\n y = Conv(x, w, b) {kernel=[3,3]} -> f32[1,2,2,2]\n outputs(y)",
       ""},
      {"x = input f32[2,3,4]\n t = Transpose(x) {perm=[1,0,2]} -> f32[3,2,4]\n w = const f32[2,2,3]\n y = Conv(t, w) {kernel=[3]} -> "
       "f32[3,2,2]\n outputs(y)",
       "(Conv): sums over dimension 1 of 't'"},
      {"x = input f32[1,3,2,2]\n w = input f32[1,3,1,1]\n y = Conv(x, w) {kernel=[1,1]} -> f32[1,1,2,2]\n outputs(y)",
       "its operand 'w' is another one"},
      {"x = input f32[2,5,4]\n w = const f32[4,3]\n b = const f32[3]\n y = MatMul(x, w, b) -> f32[2,5,3]\n outputs(y)", ""},
      {"x = input f32[2,5,4]\n z = input f32[2,4,3]\n y = MatMul(x, z) -> f32[2,5,3]\n outputs(y)", ""},
      {"x = input f32[2,5,4]\n w = const f32[2,4,3] {1,2,3,4,5,6,7,8,9,0,1,2, 1,2,3,4,5,6,7,8,9,0,1,2}\n y = MatMul(x, w) -> f32[2,5,3]\n "
       "outputs(y)",
       ""},
      {"x = input f32[2,5,4]\n w = const f32[2,4,3]\n y = MatMul(x, w) -> f32[2,5,3]\n outputs(y)", "its constant 'w' has other values"},
      {"x = input f32[1,5,4]\n w = const f32[3,4,3]\n y = MatMul(x, w) -> f32[3,5,3]\n outputs(y)",
       "(MatMul): repeats 'x' along dimension 0"},
      {"x = input f32[2,4]\n w = const f32[4,3]\n y = MatMul(x, w) -> f32[2,3]\n outputs(y)", ""},
      {"x = input f32[2,4]\n w = const f32[3,4]\n y = MatMul(w, x) {trans_b=1} -> f32[3,2]\n outputs(y)", ""},
      {"x = input f32[2,4]\n y = MatMul(x, x) {trans_b=1} -> f32[2,2]\n outputs(y)",
       "multiplies elements of the batch in 'x' with others in 'x'"},
      {"x = input f32[2,4]\n y = MatMul(x, x) {trans_a=1} -> f32[4,4]\n outputs(y)", "sums over dimension 0 of 'x'"},
      {"x = input f32[1,4]\n a = const f32[1,5]\n w = const f32[5,4]\n y = MatMul(a, w, x) -> f32[1,4]\n outputs(y)",
       "to a product that has none"},
      {"x = input f32[2,3,4]\n y = MaxPool(x) {kernel=[2]} -> f32[2,3,3]\n outputs(y)", ""},
      {"x = input f32[2,3,4]\n t = Transpose(x) {perm=[2,1,0]} -> f32[4,3,2]\n y = MaxPool(t) {kernel=[2]} -> f32[4,3,1]\n outputs(y)",
       "pools along dimension 2"},
      {"x = input f32[2,3,4]\n t = Transpose(x) {perm=[2,1,0]} -> f32[4,3,2]\n y = Reduce(t) {kind=sum, axes=[0,1], keepdims=0} -> "
       "f32[2]\n outputs(y)",
       ""},
      {"x = input f32[1,3]\n y = Reduce(x) {kind=max, axes=[0,1]} -> f32[1,1]\n outputs(y)", "(Reduce): reduces dimension 0 of 'x'"},
      {"x = input f32[2,3]\n y = Softmax(x) {axes=[1,1]} -> f32[2,3]\n outputs(y)", ""},
      {"x = input f32[2,3]\n y = Softmax(x) {axes=[0,1]} -> f32[2,3]\n outputs(y)", "normalises along dimension 0"},
      {"x = input f32[2,3,2,2]\n y = LRN(x) {size=3, alpha=0.1, beta=0.75, bias=1} -> f32[2,3,2,2]\n outputs(y)", ""},
      {"x = input f32[2,3,2,2]\n s = const f32[3]\n v = const f32[3] {1,2,3}\n y = BatchNorm(x, s, s, s, v) {epsilon=0.1} -> "
       "f32[2,3,2,2]\n outputs(y)",
       ""},
      {"x = input f32[2,3,4]\n s = const f32[4]\n z = input f32[2,1,4]\n y = Normalize(x, s, z) {axes=[2], epsilon=0.1} -> f32[2,3,4]\n "
       "outputs(y)",
       ""},
      {"x = input f32[2,3,4]\n y = Normalize(x) {axes=[0,2], epsilon=0.1} -> f32[2,3,4]\n outputs(y)", "normalises along dimension 0"},
      {"x = input f32[2,3]\n y, i = TopK(x) {axis=1, k=2} -> f32[2,2], i64[2,2]\n outputs(y, i)", ""},
      {"x = input f32[2,3]\n y, i = TopK(x) {axis=0, k=1} -> f32[1,3], i64[1,3]\n outputs(y, i)", "sorts dimension 0"},
      {"x = input f32[2,3]\n y = CumSum(x) {axis=1} -> f32[2,3]\n outputs(y)", ""},
      {"x = input f32[2,3]\n y = CumSum(x) {axis=0} -> f32[2,3]\n outputs(y)", "accumulates along dimension 0"},
      {"x = input f32[1,3]\n b = Elementwise(x) {cast(i0)} -> bool[1,3]\n f = Reshape(b) -> bool[3]\n y, c = NonZero(f) -> i64[3], "
       "i64[1]\n outputs(y)",
       "(NonZero): numbers and counts"},
  })));
}

TEST_CASE("rules of operators that combine tensors") {
  check(GENERATE(values<Case>({
      {"x = input f32[2,3]\n z = input f32[2,3]\n s = input f32[]\n a = Elementwise(x, z) {mul(i0, i1)} -> f32[2,3]\n y = Elementwise(a, "
       "s) {add(i0, i1)} -> f32[2,3]\n outputs(y)",
       ""},
      {"x = input f32[1,3]\n c = const f32[2,3]\n y = Elementwise(x, c) {add(i0, i1)} -> f32[2,3]\n outputs(y)",
       "(Elementwise): repeats 'x' along dimension 0"},
      {"x = input f32[1,3]\n y = Elementwise(x) {identity(i0)} -> f32[2,3]\n outputs(y)",
       "repeats 'x' along dimension 0, along which the elements of the batch lie, to 2"},
      {"x = input f32[1,1,3]\n y = Elementwise(x) {identity(i0)} -> f32[1,2,3]\n outputs(y)", ""},
      {"x = input f32[2,1,3]\n y = Elementwise(x) {identity(i0)} -> f32[4,2,2,3]\n outputs(y)", ""},
      {"x = input f32[2,2]\n t = Transpose(x) {perm=[1,0]} -> f32[2,2]\n y = Elementwise(x, t) {sub(i0, i1)} -> f32[2,2]\n outputs(y)",
       "combines elements of the batch in 'x' with others in 't'"},
      {"x = input f32[1,3]\n c = const f32[1,2]\n y = Concat(x, c, x) {axis=1} -> f32[1,8]\n outputs(y)", ""},
      {"x = input f32[2,3]\n z = input f32[2,3]\n c = Concat(x, z) {axis=0} -> f32[4,3]\n b = Slice(c) {starts=[2,0]} -> f32[2,3]\n y = "
       "Elementwise(b, x) {sub(i0, i1)} -> f32[2,3]\n outputs(y, c)",
       ""},
      {"x = input f32[1,3]\n c = const f32[1,3]\n y = Concat(x, c) {axis=0} -> f32[2,3]\n outputs(y)",
       "joins other rows with those of dimension 0"},
      {"x = input f32[1,3]\n z = input f32[1,2]\n a = Reshape(x) -> f32[3]\n b = Reshape(z) -> f32[2]\n c = const f32[2]\n y = Concat(a, "
       "b, c) {axis=0} -> f32[7]\n outputs(y)",
       ""},
      {"x = input f32[2,3]\n y = Slice(x) {starts=[0,1]} -> f32[2,2]\n outputs(y)", ""},
      {"x = input f32[2,3]\n y = Slice(x) {starts=[0,0]} -> f32[1,3]\n outputs(y)", "(Slice): takes a part of dimension 0"},
      {"x = input f32[2,3]\n y = Slice(x) {starts=[1,0], steps=[-1,1]} -> f32[2,3]\n outputs(y)", "takes a part of dimension 0"},
      {"x = input f32[2,3]\n y = Pad(x) {before=[0,1], after=[0,2]} -> f32[2,6]\n outputs(y)", ""},
      {"x = input f32[2,3]\n y = Pad(x) {before=[1,0], after=[0,0]} -> f32[3,3]\n outputs(y)", "pads dimension 0"},
      {"x = input f32[1,3,2,2]\n g = const f32[1,2,2,2]\n y = GridSample(x, g) -> f32[1,3,2,2]\n outputs(y)", ""},
      {"g = input f32[1,2,2,2]\n x = const f32[1,3,2,2]\n y = GridSample(x, g) -> f32[1,3,2,2]\n outputs(y)", ""},
      {"x = input f32[2,3]\n i = const i64[4,1] {0,1,1,2}\n w = const f32[4,1]\n y = Resample(x, i, w) {axes=[1]} -> f32[2,4]\n outputs(y)",
       ""},
      {"x = input f32[2,3]\n i = const i64[4,1] {0,1,1,0}\n w = const f32[4,1]\n y = Resample(x, i, w) {axes=[0]} -> f32[4,3]\n outputs(y)",
       "resizes dimension 0"},
      {"b = input f32[1,5,4]\n s = input f32[1,2,5]\n y = NonMaxSuppression(b, s) {most=3, overlap=0.5} -> i64[1,2,3]\n outputs(y)", ""},
      {"r = input f32[1,4]\n x = const f32[1,2,5,5]\n b = const f32[1] {0}\n y = RoiAlign(x, r, b) {height=2, width=2} -> f32[1,2,2,2]\n "
       "outputs(y)",
       ""},
      {"x = input f32[1,2,5,5]\n r = const f32[1,4]\n b = const f32[1] {0}\n y = RoiAlign(x, r, b) {height=2, width=2} -> f32[1,2,2,2]\n "
       "outputs(y)",
       "takes regions by the numbers of their images"},
      {"x = input f32[1,2,4,4]\n p = MaxPool(x) {kernel=[2,2], strides=[2,2]} -> f32[1,2,2,2]\n i = PoolIndices(x) {kernel=[2,2], "
       "strides=[2,2]} -> i64[1,2,2,2]\n y = MaxUnpool(p, i) -> f32[1,2,4,4]\n outputs(y, i)",
       ""},
      {"i = input i64[1,1,2,2]\n p = const f32[1,1,2,2]\n y = MaxUnpool(p, i) -> f32[1,1,4,4]\n outputs(y)", ""},
  })));
}

TEST_CASE("a reshape joins the batch with other dimensions and takes it apart again") {
  check(GENERATE(values<Case>({
      {"x = input f32[1,3,4]\n y = Reshape(x) -> f32[1,12]\n outputs(y)", ""},
      {"x = input f32[2,3,4]\n r = Reshape(x) -> f32[6,4]\n w = const f32[4,5]\n m = MatMul(r, w) -> f32[6,5]\n y = Reshape(m) -> "
       "f32[2,3,5]\n outputs(y, m)",
       ""},
      {"x = input f32[4,6]\n y = Reshape(x) -> f32[3,8]\n outputs(y)", "makes [3,8] of 'x' [4,6]"},
      {"x = input f32[1,6]\n r = Reshape(x) -> f32[6]\n y = Softmax(r) {axes=[0,0]} -> f32[6]\n outputs(y)",
       "(Softmax): normalises along dimension 0 of 'r'"},
      {"x = input f32[1,6]\n r = Reshape(x) -> f32[6]\n c = const f32[6]\n s = Elementwise(r, c) {add(i0, i1)} -> f32[6]\n y = Reshape(s) "
       "-> f32[1,6]\n outputs(y)",
       ""},
      // Time before batch, heads beside it, and both in one.
      {R"(x = input f32[1,6,8]
          t = Transpose(x) {perm=[1,0,2]} -> f32[6,1,8]
          h = Reshape(t) -> f32[6,2,4]
          q = Transpose(h) {perm=[1,0,2]} -> f32[2,6,4]
          s = MatMul(q, q) {trans_b=1} -> f32[2,6,6]
          a = Softmax(s) {axes=[2,2]} -> f32[2,6,6]
          v = MatMul(a, q) -> f32[2,6,4]
          u = Transpose(v) {perm=[1,0,2]} -> f32[6,2,4]
          f = Reshape(u) -> f32[6,8]
          w = const f32[8,8]
          g = MatMul(f, w) -> f32[6,8]
          b = Reshape(g) -> f32[6,1,8]
          y = Transpose(b) {perm=[1,0,2]} -> f32[1,6,8]
          outputs(y))",
       ""},
      {"x = input f32[1]\n r = Reshape(x) -> f32[1,1]\n c = const f32[1,1]\n s = Elementwise(r, c) {add(i0, i1)} -> f32[1,1]\n d = const "
       "f32[5,1]\n y = Elementwise(s, d) {mul(i0, i1)} -> f32[5,1]\n outputs(y)",
       ""},
      // Which 1 of [1,1,3] is the batch is open, until the constant says it; the other one is taken where the first does not do.
      {"x = input f32[1,3]\n r = Reshape(x) -> f32[1,1,3]\n c = const f32[5,1,3]\n y = Elementwise(r, c) {add(i0, i1)} -> f32[5,1,3]\n "
       "outputs(y)",
       ""},
      {"x = input f32[1,3]\n r = Reshape(x) -> f32[1,1,3]\n c = const f32[1,5,3]\n y = Elementwise(r, c) {add(i0, i1)} -> f32[1,5,3]\n "
       "outputs(y)",
       ""},
      {"x = input f32[1,3]\n r = Reshape(x) -> f32[1,1,3]\n c = const f32[5,5,3]\n y = Elementwise(r, c) {add(i0, i1)} -> f32[5,5,3]\n "
       "outputs(y)",
       "repeats 'r' along dimension 0"},
  })));
}

TEST_CASE("numbers of elements count the rows of their element of the batch") {
  check(GENERATE(values<Case>({
      {"i = input i64[2,3]\n x = const f32[3,4]\n y = Gather(x, i) {axis=0} -> f32[2,3,4]\n outputs(y)", ""},
      {"x = input f32[2,3,4]\n i = const i64[2] {2,-3}\n y = Gather(x, i) {axis=1} -> f32[2,2,4]\n outputs(y)", ""},
      {"x = input f32[2,4]\n i = const i64[1] {0}\n y = Gather(x, i) {axis=0} -> f32[1,4]\n outputs(y)",
       "takes elements by number from dimension 0"},
      {"x = input f32[1,4]\n i = input i64[1]\n y = Gather(x, i) {axis=0} -> f32[1,4]\n outputs(y)",
       "takes elements by number from dimension 0"},
      {"x = input f32[1,4]\n i = input i64[1]\n y = Gather(x, i) {axis=1} -> f32[1,1]\n outputs(y)",
       "names for one element of the batch from 'x' for all of them"},
      {"x = input f32[1,3,4]\n r = Reshape(x) -> f32[3,4]\n i = const i64[1,1,3] {0,2,-1}\n y = Gather(r, i) {axis=0} -> f32[1,1,3,4]\n "
       "outputs(y)",
       ""},
      {"x = input f32[1,3,4]\n r = Reshape(x) -> f32[3,4]\n i = const i64[2] {2,0}\n y = Gather(r, i) {axis=0} -> f32[2,4]\n outputs(y)",
       ""},
      {"x = input f32[2,3,4]\n r = Reshape(x) -> f32[6,4]\n i = const i64[2,2] {2,0,5,3}\n y = Gather(r, i) {axis=0} -> f32[2,2,4]\n "
       "outputs(y)",
       ""},
      {"x = input f32[2,3,4]\n r = Reshape(x) -> f32[6,4]\n i = const i64[2,2] {2,0,2,3}\n y = Gather(r, i) {axis=0} -> f32[2,2,4]\n "
       "outputs(y)",
       "takes elements by number from dimension 0 of 'r'"},
      // Those that count from the end count from the end of their own element.
      {"x = input f32[1,3]\n i = input i64[1,2]\n m = const i64[] {3}\n j = Elementwise(i, m) {sub(i0, i1)} -> i64[1,2]\n r = Reshape(x) "
       "-> f32[3]\n y = Gather(r, j) {axis=0} -> f32[1,2]\n outputs(y)",
       ""},
      {"x = input f32[1,3]\n v, i = TopK(x) {axis=1, k=2} -> f32[1,2], i64[1,2]\n r = Reshape(x) -> f32[3]\n y = Gather(r, i) {axis=0} -> "
       "f32[1,2]\n outputs(y)",
       ""},
      {"x = input f32[1,3,4]\n i = input i64[1,2]\n t = Transpose(x) {perm=[1,0,2]} -> f32[3,1,4]\n r = Reshape(t) -> f32[3,4]\n y = "
       "Gather(r, i) {axis=0} -> f32[1,2,4]\n outputs(y)",
       ""},
      {"x = input f32[1,2,3]\n i = input i64[1,2]\n t = Transpose(x) {perm=[1,0,2]} -> f32[2,1,3]\n r = Reshape(t) -> f32[6]\n y = "
       "Gather(r, i) {axis=0} -> f32[1,2]\n outputs(y)",
       ""},
      // As GatherElements writes it for a batch of 2.
      {"x = input f32[2,3]\n v, i = TopK(x) {axis=1, k=2} -> f32[2,2], i64[2,2]\n b = const i64[2,1] {0,3}\n n = Elementwise(b, i) "
       "{add(i0, i1)} -> i64[2,2]\n r = Reshape(x) -> f32[6]\n y = Gather(r, n) {axis=0} -> f32[2,2]\n outputs(y)",
       ""},
      {"x = input f32[2,3]\n v, i = TopK(x) {axis=1, k=2} -> f32[2,2], i64[2,2]\n b = const i64[2,1] {0,2}\n n = Elementwise(b, i) "
       "{add(i0, i1)} -> i64[2,2]\n r = Reshape(x) -> f32[6]\n y = Gather(r, n) {axis=0} -> f32[2,2]\n outputs(y)",
       "'n' is not known to keep to each element"},
      {"x = input f32[2,3]\n i = input i64[2,2]\n b = const i64[2,1] {0,3}\n n = Elementwise(b, i) {add(i0, i1)} -> i64[2,2]\n r = "
       "Reshape(x) -> f32[6]\n y = Gather(r, n) {axis=0} -> f32[2,2]\n outputs(y)",
       "'n' is not known to keep to each element"},
      {"i = input i64[2,2]\n b = const i64[2,1] {0,3}\n n = Elementwise(b, i) {add(i0, i1)} -> i64[2,2]\n outputs(n)",
       "output 'n' numbers the elements"},
      {"i = input i64[2,2]\n b = const i64[2,1] {0,3}\n n = Elementwise(b, i) {add(i0, i1)} -> i64[2,2]\n y = Elementwise(n, n) {mul(i0, "
       "i1)} -> i64[2,2]\n outputs(y)",
       "(Elementwise): computes with 'n', which numbers"},
      {"x = input f32[1,3,2]\n i = input i64[1,2,2]\n u = input f32[1,2,2]\n y = Scatter(x, i, u) {axis=1, kind=add} -> f32[1,3,2]\n "
       "outputs(y)",
       ""},
      {"u = input f32[1,2,2]\n i = input i64[1,2,2]\n x = const f32[1,3,2]\n y = Scatter(x, i, u) {axis=1, kind=add} -> f32[1,3,2]\n "
       "outputs(y)",
       ""},
      {"x = input f32[1,3,2]\n i = input i64[1,2]\n u = const f32[2,2]\n r = Reshape(x) -> f32[3,2]\n j = Reshape(i) -> i64[2,1]\n y = "
       "Scatter(r, j, u) {axis=0, kind=add} -> f32[3,2]\n outputs(y)",
       ""},
      {"x = input f32[1,2]\n i = const i64[1,1] {0}\n u = const f32[1,2]\n y = Scatter(x, i, u) {axis=0} -> f32[1,2]\n outputs(y)",
       "writes by number to dimension 0"},
  })));
}

TEST_CASE("recurrent cells have a state for each element of the batch") {
  const std::string cell = "w = const f32[16,3]\n r = const f32[16,4]\n ";
  const Case row = GENERATE(values<Case>({
      {"x = input f32[1,5,3]\n t = Transpose(x) {perm=[1,0,2]} -> f32[5,1,3]\n h = const f32[1,4]\n y, c = Recurrent(t, w, r, h, h) "
       "{batch=1, "
       "cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 h0=3 c0=4 y=0 y_c=1]} -> f32[5,1,4], f32[1,4]\n outputs(y, c)",
       ""},
      {"h = input f32[1,4]\n x = const f32[5,1,3]\n n = input i32[1]\n y = Recurrent(x, w, r, n, h) {batch=1, cell=[kind=LSTM steps=5 "
       "hidden=4 x=0 w=1 r=2 lengths=3 h0=4 y=0]} -> f32[5,1,4]\n outputs(y)",
       ""},
      {"x = input f32[5,1,3]\n y = Recurrent(x, w, r) {batch=1, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,1,4]\n "
       "outputs(y)",
       "(Recurrent): takes the steps of a sequence from dimension 0"},
  }));
  check({cell + row.text, row.why});
}

TEST_CASE("an output has the batch, and what no output needs is not looked at") {
  check({"x = input f32[1,3]\n c = const f32[2]\n y = Elementwise(c) {exp(i0)} -> f32[2]\n outputs(y)",
         "output 'y' has shape [2] whatever the batch"});
  check(
      {"x = input f32[1,3]\n s = input f32[]\n y = Elementwise(x, s) {mul(i0, i1)} -> f32[1,3]\n z = Elementwise(s) {exp(i0)} -> f32[]\n "
       "outputs(y)",
       ""});
}

namespace {

// A random network that computes each element of a batch of 1 by itself, by operators that move the batch about.
class RandomElements {
 public:
  explicit RandomElements(unsigned seed) : random_(seed) {
    tensors_.push_back({"x", {1, 2 + below(3), 2 + below(3)}, 0});
    text_ = fmt::format("x = input f32{}\n", list(tensors_[0].shape));
  }

  void steps(int count) {
    for (int i = 0; i < count; ++i)
      step(tensors_[below(3) == 0 ? static_cast<size_t>(below(static_cast<int64_t>(tensors_.size()))) : tensors_.size() - 1]);
  }

  // Lets the elements of a batch change each other's results. Of a tensor with another extent of 1 it is open which of them is the batch.
  void mix() {
    const auto is_plain = [](const Given& t) { return std::count(t.shape.begin(), t.shape.end(), 1) == 1; };
    const Given t = *std::find_if(tensors_.rbegin(), tensors_.rend(), is_plain);
    const auto [n, d] = std::pair(t.name, t.batch);
    switch (below(6)) {
      case 0: return put(fmt::format("Reduce({}) {{kind=max, axes=[{}]}}", n, d), t.shape, d);
      case 1: return put(fmt::format("Softmax({}) {{axes=[{},{}]}}", n, d, d), t.shape, d);
      case 2: return put(fmt::format("CumSum({}) {{axis={}}}", n, d), t.shape, d);
      case 3: return put(fmt::format("Gather({}, {}) {{axis={}}}", n, constant("i64[1] {0}"), d), t.shape, d);
      case 4: {
        const std::string flat = line(fmt::format("Reshape({})", n), {count(t.shape)});
        const std::string soft = line(fmt::format("Softmax({}) {{axes=[0,0]}}", flat), {count(t.shape)});
        return put(fmt::format("Reshape({})", soft), t.shape, d);
      }
      default: {
        const std::string all = line(fmt::format("Reduce({}) {{kind=sum, axes=[{}], keepdims=0}}", n, fmt::join(all_axes(t), ",")), {});
        return put(fmt::format("Elementwise({}, {}) {{mul(i0, i1)}}", n, all), t.shape, d);
      }
    }
  }

  std::string text() const { return text_ + fmt::format("outputs({})\n", tensors_.back().name); }

 private:
  struct Given {
    std::string name;
    Shape shape;
    size_t batch = 0;  // its dimension
  };

  int64_t below(int64_t count) { return static_cast<int64_t>(random_() / 5) % count; }
  static std::string list(const Shape& values) { return fmt::format("[{}]", fmt::join(values, ",")); }
  static int64_t count(const Shape& shape) { return element_count(shape); }
  static std::vector<size_t> all_axes(const Given& t) {
    std::vector<size_t> axes(t.shape.size());
    for (size_t d = 0; d < axes.size(); ++d) axes[d] = d;
    return axes;
  }
  std::string constant(const std::string& type) {
    text_ += fmt::format("c{} = const {}\n", ++made_, type);
    return fmt::format("c{}", made_);
  }
  std::string line(const std::string& made, const Shape& shape) {
    text_ += fmt::format("t{} = {} -> f32{}\n", ++made_, made, list(shape));
    return fmt::format("t{}", made_);
  }
  void put(const std::string& made, const Shape& shape, size_t batch) { tensors_.push_back({line(made, shape), shape, batch}); }

  void step(const Given& given) {
    const Given t = given;
    const size_t rank = t.shape.size(), last = rank - 1;
    const size_t other = t.batch == 0 ? 1 + static_cast<size_t>(below(static_cast<int64_t>(rank) - 1))
                                      : static_cast<size_t>(below(static_cast<int64_t>(t.batch)));
    Shape shape = t.shape;
    switch (below(13)) {
      case 0: return put(fmt::format("Elementwise({}) {{tanh(i0)}}", t.name), shape, t.batch);
      case 1: return put(fmt::format("Elementwise({}, {}) {{add(i0, i1)}}", t.name, constant("f32" + list(shape))), shape, t.batch);
      case 2: {
        for (const Given& one : tensors_) {
          if (one.name != t.name && one.shape == shape && one.batch == t.batch)
            return put(fmt::format("Elementwise({}, {}) {{mul(i0, i1)}}", t.name, one.name), shape, t.batch);
        }
        return;
      }
      case 3: {
        if (t.batch == last) return;
        shape[last] = 3;
        return put(fmt::format("MatMul({}, {})", t.name, constant(fmt::format("f32[{},3]", t.shape[last]))), shape, t.batch);
      }
      case 4: {
        std::vector<size_t> perm = all_axes(t);
        std::shuffle(perm.begin(), perm.end(), random_);
        size_t batch = 0;
        for (size_t d = 0; d < rank; ++d) {
          shape[d] = t.shape[perm[d]];
          if (perm[d] == t.batch) batch = d;
        }
        return put(fmt::format("Transpose({}) {{perm=[{}]}}", t.name, fmt::join(perm, ",")), shape, batch);
      }
      case 5: return put(fmt::format("Softmax({}) {{axes=[{},{}]}}", t.name, other, other), shape, t.batch);
      case 6: {
        shape[other] = 1;
        return put(fmt::format("Reduce({}) {{kind=mean, axes=[{}]}}", t.name, other), shape, t.batch);
      }
      case 7: {
        if (count(shape) > 200) return;
        Shape more = shape;
        more[other] = 2;
        const int64_t extent = shape[other];
        shape[other] += 2 + extent;
        return put(fmt::format("Concat({}, {}, {}) {{axis={}}}", t.name, constant("f32" + list(more)), t.name, other), shape, t.batch);
      }
      case 8: {
        if (shape[other] < 2) return;
        Shape starts(rank, 0);
        starts[other] = 1;
        --shape[other];
        return put(fmt::format("Slice({}) {{starts={}}}", t.name, list(starts)), shape, t.batch);
      }
      case 9: {
        if (t.batch != 0 || rank > 4) return;  // rows of all elements through weights, and apart again
        const std::string rows = line(fmt::format("Reshape({})", t.name), {count(shape) / shape[last], shape[last]});
        const std::string made = line(fmt::format("MatMul({}, {})", rows, constant(fmt::format("f32[{},{}]", shape[last], shape[last]))),
                                      {count(shape) / shape[last], shape[last]});
        return put(fmt::format("Reshape({})", made), shape, 0);
      }
      case 10: {
        if (t.batch != 0) return;
        return put(fmt::format("Reshape({})", t.name), {1, shape[last], count(shape) / shape[last]}, 0);
      }
      case 11: {
        text_ += fmt::format("v{0}, i{0} = TopK({1}) {{axis={2}, k=1}} -> f32{3}, i64{3}\n", made_ + 1, t.name, other,
                             list(with(shape, other, 1)));
        ++made_;
        tensors_.push_back({fmt::format("v{}", made_), with(shape, other, 1), t.batch});
        if (t.batch != 0 || rank != 2) return;
        const std::string place = fmt::format("i{}", made_), flat = line(fmt::format("Reshape({})", t.name), {shape[1]});
        return put(fmt::format("Gather({}, {}) {{axis=0}}", flat, place), {1, 1}, 0);
      }
      default: {
        const std::string at = constant("i64[3]");
        if (shape[other] < 2) return;
        shape[other] = 3;
        return put(fmt::format("Gather({}, {}) {{axis={}}}", t.name, at, other), shape, t.batch);
      }
    }
  }

  static Shape with(Shape shape, size_t d, int64_t extent) {
    shape[d] = extent;
    return shape;
  }

  std::mt19937 random_;
  std::string text_;
  std::vector<Given> tensors_;
  int made_ = 0;
};

}  // namespace

TEST_CASE("random networks of elements get any batch, and none that mix them") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    RandomElements network(seed);
    network.steps(16);
    INFO("seed " << seed << "\n" << network.text());
    CHECK(refusal_of(parse_graph(network.text()), 3) == "");
    network.mix();
    const std::string mixed = network.text();
    INFO(mixed);
    const Graph graph = remove_dead(parse_graph(mixed));
    CHECK_THROWS_WITH(frontend::with_batch("m", graph, 1, 3, {}), Catch::StartsWith("m: --batch 3: node '"));
  }
}
