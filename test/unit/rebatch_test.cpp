// A graph with another batch: each element of it gets what the graph as it was makes of that element, or the graph is refused.
#include "compiler/frontend/rebatch.h"

#include <fmt/format.h>

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

// Whether the elements of `few` are elements first, first + 1, .. of `many`, in some order of the dimensions that the batch may be joined with.
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
      {"x = input f32[1,3,4,4]\n w = const f32[2,3,3,3]\n b = const f32[2]\n y = Conv(x, w, b) {kernel=[3,3]} -> f32[1,2,2,2]\n outputs(y)", ""},
      {"x = input f32[2,3,4]\n t = Transpose(x) {perm=[1,0,2]} -> f32[3,2,4]\n w = const f32[2,2,3]\n y = Conv(t, w) {kernel=[3]} -> f32[3,2,2]\n outputs(y)",
       "(Conv): sums over dimension 1 of 't'"},
      {"x = input f32[1,3,2,2]\n w = input f32[1,3,1,1]\n y = Conv(x, w) {kernel=[1,1]} -> f32[1,1,2,2]\n outputs(y)", "its operand 'w' is another one"},
      {"x = input f32[2,5,4]\n w = const f32[4,3]\n b = const f32[3]\n y = MatMul(x, w, b) -> f32[2,5,3]\n outputs(y)", ""},
      {"x = input f32[2,5,4]\n z = input f32[2,4,3]\n y = MatMul(x, z) -> f32[2,5,3]\n outputs(y)", ""},
      {"x = input f32[2,5,4]\n w = const f32[2,4,3] {1,2,3,4,5,6,7,8,9,0,1,2, 1,2,3,4,5,6,7,8,9,0,1,2}\n y = MatMul(x, w) -> f32[2,5,3]\n outputs(y)", ""},
      {"x = input f32[2,5,4]\n w = const f32[2,4,3]\n y = MatMul(x, w) -> f32[2,5,3]\n outputs(y)", "its constant 'w' has other values"},
      {"x = input f32[1,5,4]\n w = const f32[3,4,3]\n y = MatMul(x, w) -> f32[3,5,3]\n outputs(y)", "(MatMul): repeats 'x' along dimension 0"},
      {"x = input f32[2,4]\n w = const f32[4,3]\n y = MatMul(x, w) -> f32[2,3]\n outputs(y)", ""},
      {"x = input f32[2,4]\n w = const f32[3,4]\n y = MatMul(w, x) {trans_b=1} -> f32[3,2]\n outputs(y)", ""},
      {"x = input f32[2,4]\n y = MatMul(x, x) {trans_b=1} -> f32[2,2]\n outputs(y)", "multiplies elements of the batch in 'x' with others in 'x'"},
      {"x = input f32[2,4]\n y = MatMul(x, x) {trans_a=1} -> f32[4,4]\n outputs(y)", "sums over dimension 0 of 'x'"},
      {"x = input f32[1,4]\n a = const f32[1,5]\n w = const f32[5,4]\n y = MatMul(a, w, x) -> f32[1,4]\n outputs(y)", "to a product that has none"},
      {"x = input f32[2,3,4]\n y = MaxPool(x) {kernel=[2]} -> f32[2,3,3]\n outputs(y)", ""},
      {"x = input f32[2,3,4]\n t = Transpose(x) {perm=[2,1,0]} -> f32[4,3,2]\n y = MaxPool(t) {kernel=[2]} -> f32[4,3,1]\n outputs(y)", "pools along dimension 2"},
      {"x = input f32[2,3,4]\n t = Transpose(x) {perm=[2,1,0]} -> f32[4,3,2]\n y = Reduce(t) {kind=sum, axes=[0,1], keepdims=0} -> f32[2]\n outputs(y)", ""},
      {"x = input f32[1,3]\n y = Reduce(x) {kind=max, axes=[0,1]} -> f32[1,1]\n outputs(y)", "(Reduce): reduces dimension 0 of 'x'"},
      {"x = input f32[2,3]\n y = Softmax(x) {axes=[1,1]} -> f32[2,3]\n outputs(y)", ""},
      {"x = input f32[2,3]\n y = Softmax(x) {axes=[0,1]} -> f32[2,3]\n outputs(y)", "normalises along dimension 0"},
      {"x = input f32[2,3,2,2]\n y = LRN(x) {size=3, alpha=0.1, beta=0.75, bias=1} -> f32[2,3,2,2]\n outputs(y)", ""},
      {"x = input f32[2,3,2,2]\n s = const f32[3]\n v = const f32[3] {1,2,3}\n y = BatchNorm(x, s, s, s, v) {epsilon=0.1} -> f32[2,3,2,2]\n outputs(y)", ""},
      {"x = input f32[2,3,4]\n s = const f32[4]\n z = input f32[2,1,4]\n y = Normalize(x, s, z) {axes=[2], epsilon=0.1} -> f32[2,3,4]\n outputs(y)", ""},
      {"x = input f32[2,3,4]\n y = Normalize(x) {axes=[0,2], epsilon=0.1} -> f32[2,3,4]\n outputs(y)", "normalises along dimension 0"},
      {"x = input f32[2,3]\n y, i = TopK(x) {axis=1, k=2} -> f32[2,2], i64[2,2]\n outputs(y, i)", ""},
      {"x = input f32[2,3]\n y, i = TopK(x) {axis=0, k=1} -> f32[1,3], i64[1,3]\n outputs(y, i)", "sorts dimension 0"},
      {"x = input f32[2,3]\n y = CumSum(x) {axis=1} -> f32[2,3]\n outputs(y)", ""},
      {"x = input f32[2,3]\n y = CumSum(x) {axis=0} -> f32[2,3]\n outputs(y)", "accumulates along dimension 0"},
      {"x = input f32[1,3]\n b = Elementwise(x) {cast(i0)} -> bool[1,3]\n f = Reshape(b) -> bool[3]\n y, c = NonZero(f) -> i64[3], i64[1]\n outputs(y)",
       "(NonZero): numbers and counts"},
  })));
}

TEST_CASE("rules of operators that combine tensors") {
  check(GENERATE(values<Case>({
      {"x = input f32[2,3]\n z = input f32[2,3]\n s = input f32[]\n a = Elementwise(x, z) {mul(i0, i1)} -> f32[2,3]\n y = Elementwise(a, s) {add(i0, i1)} -> f32[2,3]\n outputs(y)", ""},
      {"x = input f32[1,3]\n c = const f32[2,3]\n y = Elementwise(x, c) {add(i0, i1)} -> f32[2,3]\n outputs(y)", "(Elementwise): repeats 'x' along dimension 0"},
      {"x = input f32[1,3]\n y = Elementwise(x) {identity(i0)} -> f32[2,3]\n outputs(y)", "repeats 'x' along dimension 0, along which the elements of the batch lie, to 2"},
      {"x = input f32[1,1,3]\n y = Elementwise(x) {identity(i0)} -> f32[1,2,3]\n outputs(y)", ""},
      {"x = input f32[2,1,3]\n y = Elementwise(x) {identity(i0)} -> f32[4,2,2,3]\n outputs(y)", ""},
      {"x = input f32[2,2]\n t = Transpose(x) {perm=[1,0]} -> f32[2,2]\n y = Elementwise(x, t) {sub(i0, i1)} -> f32[2,2]\n outputs(y)", "combines elements of the batch in 'x' with others in 't'"},
      {"x = input f32[1,3]\n c = const f32[1,2]\n y = Concat(x, c, x) {axis=1} -> f32[1,8]\n outputs(y)", ""},
      {"x = input f32[2,3]\n z = input f32[2,3]\n c = Concat(x, z) {axis=0} -> f32[4,3]\n b = Slice(c) {starts=[2,0]} -> f32[2,3]\n y = Elementwise(b, x) {sub(i0, i1)} -> f32[2,3]\n outputs(y, c)", ""},
      {"x = input f32[1,3]\n c = const f32[1,3]\n y = Concat(x, c) {axis=0} -> f32[2,3]\n outputs(y)", "joins other rows with those of dimension 0"},
      {"x = input f32[1,3]\n z = input f32[1,2]\n a = Reshape(x) -> f32[3]\n b = Reshape(z) -> f32[2]\n c = const f32[2]\n y = Concat(a, b, c) {axis=0} -> f32[7]\n outputs(y)", ""},
      {"x = input f32[2,3]\n y = Slice(x) {starts=[0,1]} -> f32[2,2]\n outputs(y)", ""},
      {"x = input f32[2,3]\n y = Slice(x) {starts=[0,0]} -> f32[1,3]\n outputs(y)", "(Slice): takes a part of dimension 0"},
      {"x = input f32[2,3]\n y = Slice(x) {starts=[1,0], steps=[-1,1]} -> f32[2,3]\n outputs(y)", "takes a part of dimension 0"},
      {"x = input f32[2,3]\n y = Pad(x) {before=[0,1], after=[0,2]} -> f32[2,6]\n outputs(y)", ""},
      {"x = input f32[2,3]\n y = Pad(x) {before=[1,0], after=[0,0]} -> f32[3,3]\n outputs(y)", "pads dimension 0"},
      {"x = input f32[1,3,2,2]\n g = const f32[1,2,2,2]\n y = GridSample(x, g) -> f32[1,3,2,2]\n outputs(y)", ""},
      {"g = input f32[1,2,2,2]\n x = const f32[1,3,2,2]\n y = GridSample(x, g) -> f32[1,3,2,2]\n outputs(y)", ""},
      {"x = input f32[2,3]\n i = const i64[4,1] {0,1,1,2}\n w = const f32[4,1]\n y = Resample(x, i, w) {axes=[1]} -> f32[2,4]\n outputs(y)", ""},
      {"x = input f32[2,3]\n i = const i64[4,1] {0,1,1,0}\n w = const f32[4,1]\n y = Resample(x, i, w) {axes=[0]} -> f32[4,3]\n outputs(y)", "resizes dimension 0"},
      {"b = input f32[1,5,4]\n s = input f32[1,2,5]\n y = NonMaxSuppression(b, s) {most=3, overlap=0.5} -> i64[1,2,3]\n outputs(y)", ""},
      {"r = input f32[1,4]\n x = const f32[1,2,5,5]\n b = const f32[1] {0}\n y = RoiAlign(x, r, b) {height=2, width=2} -> f32[1,2,2,2]\n outputs(y)", ""},
      {"x = input f32[1,2,5,5]\n r = const f32[1,4]\n b = const f32[1] {0}\n y = RoiAlign(x, r, b) {height=2, width=2} -> f32[1,2,2,2]\n outputs(y)", "takes regions by the numbers of their images"},
      {"x = input f32[1,2,4,4]\n p = MaxPool(x) {kernel=[2,2], strides=[2,2]} -> f32[1,2,2,2]\n i = PoolIndices(x) {kernel=[2,2], strides=[2,2]} -> i64[1,2,2,2]\n y = MaxUnpool(p, i) -> f32[1,2,4,4]\n outputs(y, i)", ""},
  })));
}

TEST_CASE("a reshape joins the batch with other dimensions and takes it apart again") {
  check(GENERATE(values<Case>({
      {"x = input f32[1,3,4]\n y = Reshape(x) -> f32[1,12]\n outputs(y)", ""},
      {"x = input f32[2,3,4]\n r = Reshape(x) -> f32[6,4]\n w = const f32[4,5]\n m = MatMul(r, w) -> f32[6,5]\n y = Reshape(m) -> f32[2,3,5]\n outputs(y, m)", ""},
      {"x = input f32[4,6]\n y = Reshape(x) -> f32[3,8]\n outputs(y)", "makes [3,8] of 'x' [4,6]"},
      {"x = input f32[1,6]\n r = Reshape(x) -> f32[6]\n y = Softmax(r) {axes=[0,0]} -> f32[6]\n outputs(y)", "(Softmax): normalises along dimension 0 of 'r'"},
      {"x = input f32[1,6]\n r = Reshape(x) -> f32[6]\n c = const f32[6]\n s = Elementwise(r, c) {add(i0, i1)} -> f32[6]\n y = Reshape(s) -> f32[1,6]\n outputs(y)", ""},
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
          outputs(y))", ""},
      // Which 1 of [1,1,3] is the batch is open, until the constant says it; the other one is taken where the first does not do.
      {"x = input f32[1,3]\n r = Reshape(x) -> f32[1,1,3]\n c = const f32[5,1,3]\n y = Elementwise(r, c) {add(i0, i1)} -> f32[5,1,3]\n outputs(y)", ""},
      {"x = input f32[1,3]\n r = Reshape(x) -> f32[1,1,3]\n c = const f32[1,5,3]\n y = Elementwise(r, c) {add(i0, i1)} -> f32[1,5,3]\n outputs(y)", ""},
      {"x = input f32[1,3]\n r = Reshape(x) -> f32[1,1,3]\n c = const f32[5,5,3]\n y = Elementwise(r, c) {add(i0, i1)} -> f32[5,5,3]\n outputs(y)", "repeats 'r' along dimension 0"},
  })));
}

TEST_CASE("numbers of elements count the rows of their element of the batch") {
  check(GENERATE(values<Case>({
      {"i = input i64[2,3]\n x = const f32[3,4]\n y = Gather(x, i) {axis=0} -> f32[2,3,4]\n outputs(y)", ""},
      {"x = input f32[2,3,4]\n i = const i64[2] {2,-3}\n y = Gather(x, i) {axis=1} -> f32[2,2,4]\n outputs(y)", ""},
      {"x = input f32[2,4]\n i = const i64[1] {0}\n y = Gather(x, i) {axis=0} -> f32[1,4]\n outputs(y)", "takes elements by number from dimension 0"},
      {"x = input f32[1,4]\n i = input i64[1]\n y = Gather(x, i) {axis=0} -> f32[1,4]\n outputs(y)", "takes elements by number from dimension 0"},
      {"x = input f32[1,4]\n i = input i64[1]\n y = Gather(x, i) {axis=1} -> f32[1,1]\n outputs(y)", "names for one element of the batch from 'x' for all of them"},
      {"x = input f32[1,3,4]\n r = Reshape(x) -> f32[3,4]\n i = const i64[1,1,3] {0,2,-1}\n y = Gather(r, i) {axis=0} -> f32[1,1,3,4]\n outputs(y)", ""},
      {"x = input f32[1,3,4]\n r = Reshape(x) -> f32[3,4]\n i = const i64[2] {2,0}\n y = Gather(r, i) {axis=0} -> f32[2,4]\n outputs(y)", ""},
      {"x = input f32[2,3,4]\n r = Reshape(x) -> f32[6,4]\n i = const i64[2,2] {2,0,5,3}\n y = Gather(r, i) {axis=0} -> f32[2,2,4]\n outputs(y)", ""},
      {"x = input f32[2,3,4]\n r = Reshape(x) -> f32[6,4]\n i = const i64[2,2] {2,0,2,3}\n y = Gather(r, i) {axis=0} -> f32[2,2,4]\n outputs(y)", "takes elements by number from dimension 0 of 'r'"},
      // Those that count from the end count from the end of their own element.
      {"x = input f32[1,3]\n i = input i64[1,2]\n m = const i64[] {3}\n j = Elementwise(i, m) {sub(i0, i1)} -> i64[1,2]\n r = Reshape(x) -> f32[3]\n y = Gather(r, j) {axis=0} -> f32[1,2]\n outputs(y)", ""},
      {"x = input f32[1,3]\n v, i = TopK(x) {axis=1, k=2} -> f32[1,2], i64[1,2]\n r = Reshape(x) -> f32[3]\n y = Gather(r, i) {axis=0} -> f32[1,2]\n outputs(y)", ""},
      {"x = input f32[1,3,4]\n i = input i64[1,2]\n t = Transpose(x) {perm=[1,0,2]} -> f32[3,1,4]\n r = Reshape(t) -> f32[3,4]\n y = Gather(r, i) {axis=0} -> f32[1,2,4]\n outputs(y)", ""},
      {"x = input f32[1,2,3]\n i = input i64[1,2]\n t = Transpose(x) {perm=[1,0,2]} -> f32[2,1,3]\n r = Reshape(t) -> f32[6]\n y = Gather(r, i) {axis=0} -> f32[1,2]\n outputs(y)", ""},
      {"x = input f32[1,3,2]\n i = input i64[1,2,2]\n u = input f32[1,2,2]\n y = Scatter(x, i, u) {axis=1, kind=add} -> f32[1,3,2]\n outputs(y)", ""},
      {"u = input f32[1,2,2]\n i = input i64[1,2,2]\n x = const f32[1,3,2]\n y = Scatter(x, i, u) {axis=1, kind=add} -> f32[1,3,2]\n outputs(y)", ""},
      {"x = input f32[1,3,2]\n i = input i64[1,2]\n u = const f32[2,2]\n r = Reshape(x) -> f32[3,2]\n j = Reshape(i) -> i64[2,1]\n y = Scatter(r, j, u) {axis=0, kind=add} -> f32[3,2]\n outputs(y)", ""},
      {"x = input f32[1,2]\n i = const i64[1,1] {0}\n u = const f32[1,2]\n y = Scatter(x, i, u) {axis=0} -> f32[1,2]\n outputs(y)", "writes by number to dimension 0"},
  })));
}

TEST_CASE("recurrent cells have a state for each element of the batch") {
  const std::string cell = "w = const f32[16,3]\n r = const f32[16,4]\n ";
  const Case row = GENERATE(values<Case>({
      {"x = input f32[1,5,3]\n t = Transpose(x) {perm=[1,0,2]} -> f32[5,1,3]\n h = const f32[1,4]\n y, c = Recurrent(t, w, r, h, h) {batch=1, "
       "cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 h0=3 c0=4 y=0 y_c=1]} -> f32[5,1,4], f32[1,4]\n outputs(y, c)", ""},
      {"h = input f32[1,4]\n x = const f32[5,1,3]\n n = input i32[1]\n y = Recurrent(x, w, r, n, h) {batch=1, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 lengths=3 h0=4 y=0]} -> f32[5,1,4]\n outputs(y)", ""},
      {"x = input f32[5,1,3]\n y = Recurrent(x, w, r) {batch=1, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,1,4]\n outputs(y)",
       "(Recurrent): takes the steps of a sequence from dimension 0"},
  }));
  check({cell + row.text, row.why});
}

TEST_CASE("an output has the batch, and what no output needs is not looked at") {
  check({"x = input f32[1,3]\n c = const f32[2]\n y = Elementwise(c) {exp(i0)} -> f32[2]\n outputs(y)", "output 'y' has shape [2] whatever the batch"});
  check({"x = input f32[1,3]\n s = input f32[]\n y = Elementwise(x, s) {mul(i0, i1)} -> f32[1,3]\n z = Elementwise(s) {exp(i0)} -> f32[]\n outputs(y)", ""});
}
