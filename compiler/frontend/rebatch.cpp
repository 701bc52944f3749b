#include "compiler/frontend/rebatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/ops/number.h"
#include "compiler/ops/ops.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// Some minutes of the reference on one core, in ops::work_of's steps.
constexpr int64_t kMostWork = int64_t{400'000'000'000};
// Tolerance, relative to the largest element of a tensor: sums may be in another order.
constexpr double kTolerance = 1e-3;

using Values = std::map<std::string, ops::Value>;  // by the tensors' names

// How a tensor's shape depends on the batch: not at all, or one dimension grows with the batch.
struct Axis {
  bool follows = false;
  size_t dim = 0;
};

// An input's value for element `sample` of the batch: the same in every batch.
double element(DType dtype, uint64_t input, int64_t sample, int64_t i) {
  uint64_t x = (input * 0x9e3779b97f4a7c15u) ^ (static_cast<uint64_t>(sample) << 40) ^ static_cast<uint64_t>(i);
  for (int round = 0; round < 3; ++round) x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u + 0x94d049bb133111ebu;
  const double uniform = static_cast<double>(x >> 40) * 0x1p-24;
  return is_float(dtype) ? uniform * 2 - 1 : std::floor(uniform * 2);
}

// Elements first, first + 1, .. of an endless batch.
std::vector<ops::Value> samples_from(const Graph& graph, int64_t first) {
  std::vector<ops::Value> inputs;
  for (const TensorId id : graph.inputs) {
    const Tensor& tensor = graph.tensor(id);
    const int64_t count = element_count(tensor.shape);
    const int64_t batch = tensor.shape.empty() ? 1 : std::max<int64_t>(tensor.shape[0], 1);
    const int64_t each = std::max<int64_t>(count / batch, 1);
    auto data = std::make_shared<Bytes>(static_cast<size_t>(count * bytes_of(tensor.dtype)));
    ops::with_storage(tensor.dtype, [&](auto zero) {
      using Stored = decltype(zero);
      auto* const to = reinterpret_cast<Stored*>(data->data());
      const bool has_batch = !tensor.shape.empty();
      for (int64_t i = 0; i < count; ++i)
        to[i] = ops::encode<Stored>(element(tensor.dtype, inputs.size(), has_batch ? first + i / each : 0, i % each), tensor.dtype);
    });
    inputs.push_back({tensor.dtype, tensor.shape, std::move(data)});
  }
  return inputs;
}

// All tensors that are made on the way.
Values run_all(const Graph& graph, const std::vector<ops::Value>& inputs) {
  std::vector<ops::Value> values(graph.tensors.size());
  for (size_t t = 0; t < values.size(); ++t) values[t] = {graph.tensors[t].dtype, graph.tensors[t].shape, graph.tensors[t].data};
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i].index()] = inputs[i];
  Values named;
  for (const TensorId id : graph.inputs) named[graph.tensor(id).name] = values[id.index()];
  for (const ROperator& rop : graph.rops) {
    std::vector<ops::Value> results = ops::evaluate(graph, rop, [&](TensorId id) -> const ops::Value& { return values[id.index()]; });
    for (size_t k = 0; k < results.size(); ++k) {
      named[graph.tensor(rop.outputs[k]).name] = results[k];
      values[rop.outputs[k].index()] = std::move(results[k]);
    }
  }
  for (const TensorId id : graph.outputs) named.emplace(graph.tensor(id).name, values[id.index()]);
  return named;
}

// None if the shapes at batches a and b fit neither a tensor that grows with the batch nor one that does not.
std::optional<Axis> axis_of(const Shape& at_a, int64_t a, const Shape& at_b, int64_t b) {
  if (at_a.size() != at_b.size()) return std::nullopt;
  Axis axis;
  for (size_t d = 0; d < at_a.size(); ++d) {
    if (at_a[d] == at_b[d]) continue;
    if (axis.follows || at_a[d] * b != at_b[d] * a) return std::nullopt;
    axis = {true, d};
  }
  return axis;
}

double number(const ops::Value& value, int64_t i) {
  return ops::with_storage(value.dtype,
                           [&](auto zero) { return ops::decode<double>(reinterpret_cast<const decltype(zero)*>(value.data->data())[i]); });
}

double largest(const ops::Value& value) {
  double most = 0;
  for (int64_t i = 0; i < element_count(value.shape); ++i) {
    const double x = std::abs(number(value, i));
    if (std::isfinite(x)) most = std::max(most, x);
  }
  return most;
}

bool near(double a, double b, double limit) { return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= limit; }

// Whether `some`, of batch a, equals elements from .. from + a of `all`, of batch b, along dimension `dim`. An extent may join several
// dimensions of which the batch is one; `before` is the product of those in front of the batch.
bool holds_part(const ops::Value& some, int64_t a, const ops::Value& all, int64_t b, size_t dim, int64_t before, int64_t from,
                double limit) {
  int64_t outer = before, inner = some.shape[dim] / (a * before);
  for (size_t d = 0; d < dim; ++d) outer *= some.shape[d];
  for (size_t d = dim + 1; d < some.shape.size(); ++d) inner *= some.shape[d];
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < a * inner; ++i) {
      if (!near(number(some, o * a * inner + i), number(all, (o * b + from) * inner + i), limit)) return false;
    }
  }
  return true;
}

bool is_part(const ops::Value& some, int64_t a, const ops::Value& all, int64_t b, int64_t from, const Axis& axis) {
  if (some.dtype != all.dtype) return false;
  const double limit = is_float(some.dtype) ? kTolerance * largest(some) : 0;
  if (!axis.follows) {
    for (int64_t i = 0; i < element_count(some.shape); ++i) {
      if (!near(number(some, i), number(all, i), limit)) return false;
    }
    return true;
  }
  const int64_t extent = some.shape[axis.dim];
  if (extent % a != 0) return false;
  for (int64_t before = 1; before <= extent / a; ++before) {
    if (extent / a % before == 0 && holds_part(some, a, all, b, axis.dim, before, from, limit)) return true;
  }
  return false;
}

class Proof {
 public:
  Proof(const std::string& file, int64_t from, int64_t to) : file_(file), from_(from), to_(to) {}

  // `few` and `many` are the model at batches a < b.
  void require_same(const Graph& few, int64_t a, const Graph& many, int64_t b) const {
    const Values all = run_all(many, samples_from(many, 0));
    for (const int64_t first : {int64_t{0}, b - a}) {
      const Values some = run_all(few, samples_from(few, first));
      for (const ROperator& rop : many.rops) {
        for (const TensorId id : rop.outputs) check(many.tensor(id).name, node_of(rop), some, a, all, b, first);
      }
      for (const TensorId id : many.outputs) check(many.tensor(id).name, "", some, a, all, b, first);
    }
    for (const TensorId id : many.outputs) require_batch_in(few, many.tensor(id));
  }

  // Extents must be linear in the batch: the shapes at two batches predict those at a third.
  void require_shapes(const Graph& few, int64_t a, const Graph& many, int64_t b, const Graph& wanted) const {
    std::map<std::string, Shape> at_a, at_b;
    for (const Tensor& tensor : few.tensors) at_a[tensor.name] = tensor.shape;
    for (const Tensor& tensor : many.tensors) at_b[tensor.name] = tensor.shape;
    for (const ROperator& rop : wanted.rops) {
      for (const TensorId id : rop.outputs) {
        const Tensor& tensor = wanted.tensor(id);
        if (!at_a.contains(tensor.name) || !at_b.contains(tensor.name)) continue;
        const std::optional<Axis> axis = axis_of(at_a[tensor.name], a, at_b[tensor.name], b);
        Shape expected = at_a[tensor.name];
        if (axis && axis->follows) expected[axis->dim] = expected[axis->dim] / a * to_;
        if (!axis || tensor.shape != expected) {
          refuse(node_of(rop), tensor.name,
                 fmt::format("has shape {} with batch {}, {} with {} and {} with {}", shape_text(at_a[tensor.name]), a,
                             shape_text(at_b[tensor.name]), b, shape_text(tensor.shape), to_));
        }
      }
    }
  }

 private:
  static std::string node_of(const ROperator& rop) {
    return fmt::format("node '{}' ({})", printable(rop.origin.empty() ? rop.name : rop.origin.front()), name_of(rop.attrs));
  }

  void check(const std::string& name, const std::string& node, const Values& some, int64_t a, const Values& all, int64_t b,
             int64_t first) const {
    const auto few = some.find(name), many = all.find(name);
    if (few == some.end() || many == all.end()) return;  // a step that one of the two graphs does not have
    const std::optional<Axis> axis = axis_of(few->second.shape, a, many->second.shape, b);
    if (!axis) {
      refuse(node, name,
             fmt::format("has shape {} with batch {} and {} with batch {}", shape_text(few->second.shape), a,
                         shape_text(many->second.shape), b));
    }
    if (!is_part(few->second, a, many->second, b, first, *axis))
      refuse(node, name, fmt::format("is another one for the same element with batch {} than with batch {}", b, a));
  }

  void require_batch_in(const Graph& few, const Tensor& output) const {
    for (const TensorId id : few.outputs) {
      const Tensor& other = few.tensor(id);
      if (other.name == output.name && other.shape == output.shape && output.role != Role::constant && !output.shape.empty() &&
          element_count(output.shape) > 0) {
        refuse("", output.name, fmt::format("has shape {} whatever the batch", shape_text(output.shape)));
      }
    }
  }

  [[noreturn]] void refuse(const std::string& node, const std::string& tensor, const std::string& what) const {
    throw unsupported(
        fmt::format("{}: --batch {}: {}'{}' {}; the model was exported with batch {} and depends on it there; export it with the "
                    "batch wanted, or with a symbolic one",
                    file_, to_, node.empty() ? "output " : node + ": its result ", printable(tensor), what, from_));
  }

  const std::string& file_;
  int64_t from_, to_;
};

int64_t work_of(const Graph& graph) {
  int64_t work = 0;
  for (const ROperator& rop : graph.rops) {
    if (__builtin_add_overflow(work, ops::work_of(graph, rop), &work)) return INT64_MAX;
  }
  return work;
}

}  // namespace

void require_batch(const std::string& file, const Graph& original, int64_t from, const Graph& wanted, int64_t to,
                   const std::function<Graph(int64_t batch)>& read_at) {
  const Proof proof(file, from, to);
  if (work_of(original) > kMostWork / 4) {
    throw unsupported(
        fmt::format("{}: --batch {}: too large to prove that its batch of {} can be changed; export it with the batch wanted, or with a "
                    "symbolic one",
                    file, to, from));
  }
  if (to < from) {
    proof.require_same(wanted, to, original, from);
    return;
  }
  const Graph twice = read_at(2 * from);
  proof.require_same(original, from, twice, 2 * from);
  proof.require_shapes(original, from, twice, 2 * from, wanted);
}

}  // namespace tamp::frontend
