#include "compiler/frontend/rebatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compiler/ops/number.h"
#include "compiler/ops/ops.h"
#include "compiler/support/error.h"
#include "compiler/support/parallel.h"
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

// A graph that is run step by step, and those of its values that are still to be compared with another graph's.
class Run {
 public:
  // `compared`: the names of the tensors that both graphs have.
  Run(const Graph& graph, int64_t first_sample, const std::set<std::string>& compared)
      : graph_(graph), compared_(compared), inputs_(samples_from(graph, first_sample)), walk_(graph, inputs_) {
    for (size_t i = 0; i < inputs_.size(); ++i) keep(graph.inputs[i], inputs_[i]);
    for (const TensorId id : graph.outputs) {
      if (graph.tensor(id).role == Role::constant) keep(id, walk_.value(id));
    }
  }

  bool is_done() const { return walk_.is_done(); }
  void step() {
    if (walk_.is_done()) return;
    const ROperator& rop = graph_.rops[next_++];
    const std::vector<ops::Value> results = walk_.step();
    for (size_t k = 0; k < results.size(); ++k) keep(rop.outputs[k], results[k]);
  }
  Values values;  // made and not yet compared

 private:
  void keep(TensorId id, const ops::Value& value) {
    if (compared_.contains(graph_.tensor(id).name)) values[graph_.tensor(id).name] = value;
  }

  const Graph& graph_;
  const std::set<std::string>& compared_;
  std::vector<ops::Value> inputs_;
  ops::Walk walk_;
  size_t next_ = 0;
};

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

// Calls f with the two values' elements as C++ arrays. They have the same type.
template <class F>
auto with_elements(const ops::Value& a, const ops::Value& b, F&& f) {
  return ops::with_storage(a.dtype, [&](auto zero) {
    using Stored = decltype(zero);
    return f(reinterpret_cast<const Stored*>(a.data->data()), reinterpret_cast<const Stored*>(b.data->data()));
  });
}

double largest(const ops::Value& value) {
  return with_elements(value, value, [&](const auto* elements, const auto*) {
    double most = 0;
    const int64_t count = element_count(value.shape);
    for (int64_t i = 0; i < count; ++i) {
      const double x = std::abs(ops::decode<double>(elements[i]));
      if (x > most && x <= std::numeric_limits<double>::max()) most = x;  // false for infinities and for what is no number
    }
    return most;
  });
}

bool near(double a, double b, double limit) { return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= limit; }

template <class Stored>
bool all_near(const Stored* a, const Stored* b, int64_t count, double limit) {
  for (int64_t i = 0; i < count; ++i) {
    if (!near(ops::decode<double>(a[i]), ops::decode<double>(b[i]), limit)) return false;
  }
  return true;
}

// Whether `some`, of batch a, equals elements from .. from + a of `all`, of batch b, along dimension `dim`. An extent may join several
// dimensions of which the batch is one; `before` is the product of those in front of the batch.
bool holds_part(const ops::Value& some, int64_t a, const ops::Value& all, int64_t b, size_t dim, int64_t before, int64_t from,
                double limit) {
  int64_t outer = before, inner = some.shape[dim] / (a * before);
  for (size_t d = 0; d < dim; ++d) outer *= some.shape[d];
  for (size_t d = dim + 1; d < some.shape.size(); ++d) inner *= some.shape[d];
  return with_elements(some, all, [&](const auto* of_some, const auto* of_all) {
    for (int64_t o = 0; o < outer; ++o) {
      if (!all_near(of_some + o * a * inner, of_all + (o * b + from) * inner, a * inner, limit)) return false;
    }
    return true;
  });
}

bool is_part(const ops::Value& some, int64_t a, const ops::Value& all, int64_t b, int64_t from, const Axis& axis) {
  if (some.dtype != all.dtype) return false;
  const double limit = is_float(some.dtype) ? kTolerance * largest(some) : 0;
  if (!axis.follows) {
    return with_elements(
        some, all, [&](const auto* of_some, const auto* of_all) { return all_near(of_some, of_all, element_count(some.shape), limit); });
  }
  const int64_t extent = some.shape[axis.dim];
  if (extent % a != 0) return false;
  for (int64_t before = 1; before <= extent / a; ++before) {
    if (extent / a % before == 0 && holds_part(some, a, all, b, axis.dim, before, from, limit)) return true;
  }
  return false;
}

// The names of all tensors that a graph's rOperators make or that it ends or begins with, and the rOperator that makes each.
std::map<std::string, const ROperator*> makers_of(const Graph& graph) {
  std::map<std::string, const ROperator*> makers;
  for (const TensorId id : graph.inputs) makers.emplace(graph.tensor(id).name, nullptr);
  for (const TensorId id : graph.outputs) makers.emplace(graph.tensor(id).name, nullptr);
  for (const ROperator& rop : graph.rops) {
    for (const TensorId id : rop.outputs) makers[graph.tensor(id).name] = &rop;
  }
  return makers;
}

class Proof {
 public:
  Proof(const std::string& file, int64_t from, int64_t to) : file_(file), from_(from), to_(to) {}

  // `few` and `many` are the model at batches a < b. `many` runs its b elements, `few` the first a of them and the last a. All three run in
  // step, at the same time where there are processors, so that few values are in memory at once.
  void require_same(const Graph& few, int64_t a, const Graph& many, int64_t b) const {
    const std::map<std::string, const ROperator*> of_few = makers_of(few), of_many = makers_of(many);
    std::set<std::string> compared;  // not: the steps that one of the two graphs does not have
    for (const auto& [name, maker] : of_many) {
      if (of_few.contains(name)) compared.insert(name);
    }
    std::array runs{Run(many, 0, compared), Run(few, 0, compared), Run(few, b - a, compared)};
    auto& [all, first, last] = runs;
    while (true) {
      for (auto value = all.values.begin(); value != all.values.end();) {
        const auto in_first = first.values.find(value->first), in_last = last.values.find(value->first);
        if (in_first == first.values.end() || in_last == last.values.end()) {
          ++value;
          continue;
        }
        const ROperator* maker = of_many.at(value->first);
        const std::string node = maker ? node_of(*maker) : "";
        check(value->first, node, in_first->second, a, value->second, b, 0);
        check(value->first, node, in_last->second, a, value->second, b, b - a);
        first.values.erase(in_first);
        last.values.erase(in_last);
        value = all.values.erase(value);
      }
      if (all.is_done() && first.is_done()) break;  // `last` has the steps of `first`
      in_parallel(runs.size(), processor_count(), [&](size_t i) { runs[i].step(); });
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

  // `some` and `all` are the tensor's values at batches a and b; `some` begins with element `first` of `all`.
  void check(const std::string& name, const std::string& node, const ops::Value& some, int64_t a, const ops::Value& all, int64_t b,
             int64_t first) const {
    const std::optional<Axis> axis = axis_of(some.shape, a, all.shape, b);
    if (!axis) {
      refuse(node, name,
             fmt::format("has shape {} with batch {} and {} with batch {}", shape_text(some.shape), a, shape_text(all.shape), b));
    }
    if (!is_part(some, a, all, b, first, *axis))
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
