#include "compiler/frontend/rebatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
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

// Value i of a tensor for element `sample` of the batch: the same in every batch.
double element(DType dtype, uint64_t tensor, int64_t sample, int64_t i) {
  uint64_t x = (tensor * 0x9e3779b97f4a7c15u) ^ (static_cast<uint64_t>(sample) << 40) ^ static_cast<uint64_t>(i);
  for (int round = 0; round < 3; ++round) x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u + 0x94d049bb133111ebu;
  const double uniform = static_cast<double>(x >> 40) * 0x1p-24;
  return is_float(dtype) ? uniform * 2 - 1 : std::floor(uniform * 2);
}

// How the elements of a batch lie in a tensor: along one dimension, whose extent may join several of which the batch is one; `before` is
// the product of those in front of it. Example: of 197 tokens by 2 elements of a batch, joined to 394 rows, dim 0 and before 197.
struct Stack {
  size_t dim = 0;
  int64_t before = 1;
};
using Stacks = std::map<std::string, Stack>;  // by the tensors' names

// Values of elements first, first + 1, .. of an endless batch, as a tensor of shape `shape`. `outer`, `batch` and `inner` are the products
// of the extents in front of the batch, of the batch itself and behind it.
ops::Value values_of(DType dtype, const Shape& shape, uint64_t tensor, int64_t first, int64_t outer, int64_t batch, int64_t inner) {
  auto data = std::make_shared<Bytes>(static_cast<size_t>(outer * batch * inner * bytes_of(dtype)));
  ops::with_storage(dtype, [&](auto zero) {
    using Stored = decltype(zero);
    auto* to = reinterpret_cast<Stored*>(data->data());
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t sample = 0; sample < batch; ++sample) {
        for (int64_t i = 0; i < inner; ++i) *to++ = ops::encode<Stored>(element(dtype, tensor, first + sample, o * inner + i), dtype);
      }
    }
  });
  return {dtype, shape, std::move(data)};
}

std::vector<ops::Value> samples_from(const Graph& graph, int64_t first) {
  std::vector<ops::Value> inputs;
  for (const TensorId id : graph.inputs) {
    const Tensor& tensor = graph.tensor(id);
    const int64_t count = element_count(tensor.shape);
    const int64_t batch = tensor.shape.empty() ? 1 : std::max<int64_t>(tensor.shape[0], 1);
    const bool is_whole = count > 0 && !tensor.shape.empty();
    inputs.push_back(values_of(tensor.dtype, tensor.shape, inputs.size(), is_whole ? first : 0, 1, is_whole ? batch : 1,
                               is_whole ? count / batch : count));
  }
  return inputs;
}

// A product's result that nobody computes, of a batch whose first element is `first`: any values, the same for an element in every batch.
ops::Value made_up(const Tensor& tensor, const Stack& stack, int64_t batch, int64_t first) {
  int64_t outer = stack.before, inner = tensor.shape[stack.dim] / (batch * stack.before);
  for (size_t d = 0; d < tensor.shape.size(); ++d) (d < stack.dim ? outer : inner) *= d == stack.dim ? 1 : tensor.shape[d];
  return values_of(tensor.dtype, tensor.shape, std::hash<std::string>{}(tensor.name), first, outer, batch, inner);
}

// A graph that is run step by step at a batch, and those of its values that are still to be compared with another graph's.
class Run {
 public:
  // `compared`: the names of the tensors that both graphs have.
  Run(const Graph& graph, int64_t batch, int64_t first_sample, const std::set<std::string>& compared)
      : graph_(graph),
        compared_(compared),
        batch_(batch),
        first_sample_(first_sample),
        inputs_(samples_from(graph, first_sample)),
        walk_(graph, inputs_) {
    for (size_t i = 0; i < inputs_.size(); ++i) keep(graph.inputs[i], inputs_[i]);
    for (const TensorId id : graph.outputs) {
      if (graph.tensor(id).role == Role::constant) keep(id, walk_.value(id));
    }
  }

  bool is_done() const { return walk_.is_done(); }
  const Graph& graph() const { return graph_; }
  const ROperator* next() const { return is_done() ? nullptr : &graph_.rops[next_]; }
  // Runs the next rOperator; a result that `given` names is made up instead of computed.
  void step(const Stacks& given) {
    if (walk_.is_done()) return;
    const ROperator& rop = graph_.rops[next_++];
    const auto stack = given.find(graph_.tensor(rop.outputs[0]).name);
    std::vector<ops::Value> results;
    if (stack == given.end()) {
      results = walk_.step();
    } else {
      results = {made_up(graph_.tensor(rop.outputs[0]), stack->second, batch_, first_sample_)};
      walk_.step(results);
    }
    for (size_t k = 0; k < results.size(); ++k) keep(rop.outputs[k], results[k]);
  }
  Values values;  // made and not yet compared

 private:
  void keep(TensorId id, const ops::Value& value) {
    if (compared_.contains(graph_.tensor(id).name)) values[graph_.tensor(id).name] = value;
  }

  const Graph& graph_;
  const std::set<std::string>& compared_;
  int64_t batch_, first_sample_;
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

// The values of Stack::before with which `some` is a part of `all`, for a tensor that grows with the batch; {1} for one that does not and
// is the same in both; none where they differ.
std::vector<int64_t> fitting(const ops::Value& some, int64_t a, const ops::Value& all, int64_t b, int64_t from, const Axis& axis) {
  if (some.dtype != all.dtype) return {};
  const double limit = is_float(some.dtype) ? kTolerance * largest(some) : 0;
  if (!axis.follows) {
    const bool same = with_elements(
        some, all, [&](const auto* of_some, const auto* of_all) { return all_near(of_some, of_all, element_count(some.shape), limit); });
    return same ? std::vector<int64_t>{1} : std::vector<int64_t>{};
  }
  std::vector<int64_t> fit;
  const int64_t extent = some.shape[axis.dim];
  if (extent % a != 0) return fit;
  for (int64_t before = 1; before <= extent / a; ++before) {
    if (extent / a % before == 0 && holds_part(some, a, all, b, axis.dim, before, from, limit)) fit.push_back(before);
  }
  return fit;
}

bool has_nan(const ops::Value& value) {
  if (!is_float(value.dtype)) return false;
  return with_elements(value, value, [&](const auto* elements, const auto*) {
    const int64_t count = element_count(value.shape);
    return std::any_of(elements, elements + count, [](auto element) { return std::isnan(ops::decode<double>(element)); });
  });
}

// Whether two rOperators that make the same tensor are one product with constants, of which each row (MatMul) or image (Conv) of the result
// needs that of the first operand alone, where `stack` says how the batch lies in the first operand. Then the result is stacked in the same
// way.
bool keeps_apart(const Graph& few, const ROperator& x, const Graph& many, const ROperator& y, const Stack& stack) {
  const auto* conv = std::get_if<Conv>(&x.attrs);
  const auto* matmul = std::get_if<MatMul>(&x.attrs);
  const auto* other_conv = std::get_if<Conv>(&y.attrs);
  const auto* other_matmul = std::get_if<MatMul>(&y.attrs);
  const bool same_conv = conv && other_conv && *conv == *other_conv, same_matmul = matmul && other_matmul && *matmul == *other_matmul;
  if ((!same_conv && !same_matmul) || x.inputs.size() != y.inputs.size() || x.outputs.size() != 1) return false;
  if (x.epilogue.bias.valid() || x.epilogue.residual.valid() || y.epilogue.bias.valid() || y.epilogue.residual.valid()) return false;
  for (size_t i = 1; i < x.inputs.size(); ++i) {
    if (x.inputs[i].valid() != y.inputs[i].valid()) return false;
    if (!x.inputs[i].valid()) continue;
    const Tensor &a = few.tensor(x.inputs[i]), &b = many.tensor(y.inputs[i]);
    if (a.role != Role::constant || b.role != Role::constant || a.dtype != b.dtype || a.shape != b.shape) return false;
    if (a.data != b.data && *a.data != *b.data) return false;
  }
  const Tensor &from = few.tensor(x.inputs[0]), &result = few.tensor(x.outputs[0]);
  if (!is_float(result.dtype) || result.dtype != many.tensor(y.outputs[0]).dtype) return false;
  if (conv) return stack.dim == 0;
  const bool adds_rows = x.inputs.size() > 2 && x.inputs[2].valid() && element_count(few.tensor(x.inputs[2]).shape) != result.shape.back();
  return !matmul->trans_a && few.tensor(x.inputs[1]).shape.size() == 2 && result.shape.size() == from.shape.size() &&
         stack.dim + 1 < from.shape.size() && !adds_rows;
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

  // `few` and `many` are the model at batches a < b. Most of the time would go into products with weights, of which it is known that they
  // keep the elements of a batch apart. So their results are made up first: any values do for what stands behind them. A model that is not
  // proven by that, because it is refused or because the values make no numbers (a root of what is never negative), is looked at with all
  // of it computed.
  void require_same(const Graph& few, int64_t a, const Graph& many, int64_t b) const {
    try {
      if (compare(few, a, many, b, /*makes_up=*/true)) return;
    } catch (const Error&) {
    }
    compare(few, a, many, b, /*makes_up=*/false);
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
  // `many` runs its b elements, `few` the first a of them and the last a. All three run in step, at the same time where there are
  // processors, so that few values are in memory at once. Returns whether all values were numbers, if some were made up.
  bool compare(const Graph& few, int64_t a, const Graph& many, int64_t b, bool makes_up) const {
    const std::map<std::string, const ROperator*> of_few = makers_of(few), of_many = makers_of(many);
    std::set<std::string> compared;  // not: the steps that one of the two graphs does not have
    for (const auto& [name, maker] : of_many) {
      if (of_few.contains(name)) compared.insert(name);
    }
    std::array runs{Run(many, b, 0, compared), Run(few, a, 0, compared), Run(few, a, b - a, compared)};
    auto& [all, first, last] = runs;
    Stacks stacks, given;            // of values that were compared; of results that are made up
    std::set<std::string> computed;  // results that are not
    bool all_numbers = true;
    while (true) {
      for (auto value = all.values.begin(); value != all.values.end();) {
        const auto in_first = first.values.find(value->first), in_last = last.values.find(value->first);
        if (in_first == first.values.end() || in_last == last.values.end()) {
          ++value;
          continue;
        }
        const ROperator* maker = of_many.at(value->first);
        const std::string node = maker ? node_of(*maker) : "";
        const std::vector<int64_t> one = check(value->first, node, in_first->second, a, value->second, b, 0);
        const std::vector<int64_t> other = check(value->first, node, in_last->second, a, value->second, b, b - a);
        if (makes_up) {
          // Where elements do not differ, or their order is open, nothing is made up: what is the same for all of them may be used as such.
          const std::optional<Axis> axis = axis_of(in_first->second.shape, a, value->second.shape, b);
          if (axis->follows && one.size() == 1 && one == other && *in_first->second.data != *in_last->second.data)
            stacks[value->first] = {axis->dim, one[0]};
          all_numbers = all_numbers && !has_nan(value->second);
        }
        first.values.erase(in_first);
        last.values.erase(in_last);
        value = all.values.erase(value);
      }
      if (all.is_done() && first.is_done()) break;  // `last` has the steps of `first`
      for (const Run* run : {&all, &first}) {
        if (!makes_up || run->is_done()) continue;
        const std::string& name = run->graph().tensor(run->next()->outputs[0]).name;
        if (!compared.contains(name) || given.contains(name) || !computed.insert(name).second) continue;
        if (of_few.at(name) == nullptr || of_many.at(name) == nullptr) continue;
        const ROperator &x = *of_few.at(name), &y = *of_many.at(name);
        if (x.inputs.empty() || y.inputs.empty() || !x.inputs[0].valid() || !y.inputs[0].valid()) continue;
        const std::string& from = few.tensor(x.inputs[0]).name;
        const auto stack = stacks.find(from);
        if (stack != stacks.end() && many.tensor(y.inputs[0]).name == from && keeps_apart(few, x, many, y, stack->second))
          given[name] = stack->second;
      }
      in_parallel(runs.size(), processor_count(), [&](size_t i) { runs[i].step(given); });
    }
    for (const TensorId id : many.outputs) require_batch_in(few, many.tensor(id));
    return all_numbers || given.empty();
  }

  static std::string node_of(const ROperator& rop) {
    return fmt::format("node '{}' ({})", printable(rop.origin.empty() ? rop.name : rop.origin.front()), name_of(rop.attrs));
  }

  // `some` and `all` are the tensor's values at batches a and b; `some` begins with element `first` of `all`. Returns what `fitting` finds.
  std::vector<int64_t> check(const std::string& name, const std::string& node, const ops::Value& some, int64_t a, const ops::Value& all,
                             int64_t b, int64_t first) const {
    const std::optional<Axis> axis = axis_of(some.shape, a, all.shape, b);
    if (!axis) {
      refuse(node, name,
             fmt::format("has shape {} with batch {} and {} with batch {}", shape_text(some.shape), a, shape_text(all.shape), b));
    }
    std::vector<int64_t> fit = fitting(some, a, all, b, first, *axis);
    if (fit.empty()) refuse(node, name, fmt::format("is another one for the same element with batch {} than with batch {}", b, a));
    return fit;
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
