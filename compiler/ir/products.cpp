#include "compiler/ir/products.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "compiler/ir/fused.h"

namespace tamp {
namespace {

template <class... Ops>
bool is_one_of(const ROperator& rop) {
  return (std::holds_alternative<Ops>(rop.attrs) || ...);
}

PlainProduct product_of(const Shape& result, bool is_map, int64_t channels, int64_t taps = 1, int64_t groups = 1) {
  const int64_t outputs = element_count(result), made = is_map ? result[1] : result.back();
  return {channels, taps, groups, outputs, outputs / std::max<int64_t>(1, made), is_map};
}

// How many of a Fused's steps are one of these operators; none of other rOperators.
template <class... Ops>
int64_t count_steps(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  return steps ? std::count_if(steps->body().rops.begin(), steps->body().rops.end(), is_one_of<Ops...>) : 0;
}

}  // namespace

const ElementwiseStep* single_step(const ROperator& rop) {
  const auto* op = std::get_if<Elementwise>(&rop.attrs);
  if (!op || op->steps.size() != 1 || op->steps[0].operands.size() != rop.inputs.size()) return nullptr;
  for (size_t i = 0; i < rop.inputs.size(); ++i) {
    if (op->steps[0].operands[i] != static_cast<int32_t>(i)) return nullptr;
  }
  return &op->steps[0];
}

std::vector<PlainProduct> products_of(const Graph& graph, const ROperator& rop) {
  const auto shape = [&](size_t input) -> const Shape& { return graph.tensor(rop.inputs[input]).shape; };
  const Shape& y = graph.tensor(rop.outputs[0]).shape;
  const auto convolved = [&](const Shape& kernel, int64_t groups) {
    return std::vector{product_of(y, true, shape(0)[1] / groups, element_count(kernel), groups)};
  };
  if (std::holds_alternative<Fused>(rop.attrs)) {
    std::vector<PlainProduct> all;
    for_each_step(graph, rop, [&](const Graph& steps, const ROperator& step) {
      for (const PlainProduct& product : products_of(steps, step)) all.push_back(product);
    });
    return all;
  }
  if (const auto* conv = std::get_if<Conv>(&rop.attrs)) return convolved(conv->kernel, conv->group);
  const auto* matmul = std::get_if<MatMul>(&rop.attrs);
  if (!matmul || graph.tensor(rop.inputs[1]).role != Role::constant) return {};
  return {product_of(y, false, shape(0)[shape(0).size() - (matmul->trans_a ? 2 : 1)])};
}

namespace {

bool is_whole_number(double x) { return x == std::rint(x); }

bool rounds(const ElementwiseStep& step) {
  return step.op == ElementwiseOp::round || (step.op == ElementwiseOp::rounded && is_whole_number(step.a) && is_whole_number(step.b));
}
// Whether it makes whole numbers of whole numbers.
bool keeps_whole(const ElementwiseStep& step) {
  switch (step.op) {
    case ElementwiseOp::identity:
    case ElementwiseOp::add:
    case ElementwiseOp::sub:
    case ElementwiseOp::max:
    case ElementwiseOp::min:
    case ElementwiseOp::relu: return true;
    case ElementwiseOp::clip: return is_whole_number(step.a) && is_whole_number(step.b);
    default: return false;
  }
}

std::optional<WholeRange> taken_range(const Graph& graph, const ROperator& rop);

// Whether its result are whole numbers; `whole` says of an operand whether it holds such.
bool makes_whole_numbers(const Graph& graph, const ROperator& rop, const std::function<bool(TensorId)>& whole) {
  if (rop.epilogue.sum) return rop.epilogue.sum->rounds;
  if (rop.epilogue.activation == Activation::rounded) return !rop.epilogue.residual_after_activation || !rop.epilogue.residual.valid();
  if (const auto* chain = std::get_if<Elementwise>(&rop.attrs)) {
    std::vector<bool> made;
    for (const ElementwiseStep& step : chain->steps) {
      const auto is_whole = [&](int32_t v) {
        return v >= 0 ? whole(rop.inputs[static_cast<size_t>(v)]) : made[static_cast<size_t>(-1 - v)];
      };
      made.push_back(rounds(step) || (keeps_whole(step) && std::all_of(step.operands.begin(), step.operands.end(), is_whole)));
    }
    return made.back();
  }
  if (taken_range(graph, rop)) return true;
  if (const auto* const attention = std::get_if<Attention>(&rop.attrs)) return attention->rounding && attention->rounding->results.rounds();
  const auto* const pool = std::get_if<Pool>(&rop.attrs);
  const bool moves = std::holds_alternative<Reshape>(rop.attrs) || std::holds_alternative<Transpose>(rop.attrs) ||
                     std::holds_alternative<Slice>(rop.attrs) || std::holds_alternative<Concat>(rop.attrs) ||
                     (pool && pool->kind == PoolKind::max);
  return moves && std::all_of(rop.inputs.begin(), rop.inputs.end(), whole);
}

bool holds_whole_numbers(const Graph& graph, TensorId id, int depth);

// Whether the first result of a Fused does, by its own steps.
bool steps_make_whole_numbers(const Graph& graph, const ROperator& rop, int depth) {
  if (!std::holds_alternative<Fused>(rop.attrs)) return false;
  const Graph steps = steps_of(graph, rop);
  return holds_whole_numbers(steps, steps.outputs[0], depth);
}

bool holds_whole_numbers(const Graph& graph, TensorId id, int depth) {
  constexpr int kMostMoves = 4;
  const Tensor& tensor = graph.tensor(id);
  if (depth > kMostMoves) return false;
  if (tensor.role == Role::constant) {
    const std::optional<float> number =
        element_count(tensor.shape) == 1 && tensor.dtype == DType::f32 && tensor.data ? std::optional(*f32_data(tensor)) : std::nullopt;
    return number && is_whole_number(*number);
  }
  if (tensor.role != Role::activation) return is_integer(tensor.dtype);
  const BufferId buffer = tensor.place.buffer;
  const std::function<bool(TensorId)> whole = [&](TensorId operand) { return holds_whole_numbers(graph, operand, depth + 1); };
  bool made = false;
  for (const ROperator& rop : graph.rops) {
    for (size_t k = 0; k < rop.outputs.size(); ++k) {
      const TensorId out = rop.outputs[k];
      const bool writes = out == id || (buffer.valid() && graph.tensor(out).place.buffer == buffer);
      if (!writes) continue;
      if (k > 0 || !(makes_whole_numbers(graph, rop, whole) || steps_make_whole_numbers(graph, rop, depth + 1))) return false;
      made = true;
    }
  }
  return made;
}

}  // namespace

bool holds_whole_numbers(const Graph& graph, TensorId id) { return holds_whole_numbers(graph, id, 0); }

namespace {

std::optional<WholeRange> bounds_of(double low, double high) {
  constexpr double kMost = 1 << 20;
  const bool are_whole = is_whole_number(low) && is_whole_number(high) && low <= high && low >= -kMost && high <= kMost;
  return are_whole ? std::optional(WholeRange{static_cast<int64_t>(low), static_cast<int64_t>(high)}) : std::nullopt;
}

std::optional<WholeRange> range_of(const Graph& graph, TensorId id, int depth);

std::optional<WholeRange> chain_range(const Elementwise& chain) {
  const ElementwiseStep& last = chain.steps.back();
  return last.op == ElementwiseOp::rounded ? bounds_of(last.a, last.b) : std::nullopt;
}

// Of a Gather of constants.
std::optional<WholeRange> taken_range(const Graph& graph, const ROperator& rop) {
  constexpr int64_t kMostNumbers = 256;
  if (!is_one_of<Gather>(rop) || !is_f32_constant(graph, rop.inputs[0])) return std::nullopt;
  const Tensor& table = graph.tensor(rop.inputs[0]);
  const int64_t count = element_count(table.shape);
  if (count == 0 || count > kMostNumbers || !std::all_of(f32_data(table), f32_data(table) + count, is_whole_number)) return std::nullopt;
  const auto [low, high] = std::minmax_element(f32_data(table), f32_data(table) + count);
  return bounds_of(*low, *high);
}

// Of result `k` of an rOperator.
std::optional<WholeRange> made_range(const Graph& graph, const ROperator& rop, size_t k, int depth) {
  if (std::holds_alternative<Fused>(rop.attrs) && !has_epilogue(rop)) {
    const Graph steps = steps_of(graph, rop);
    return range_of(steps, steps.outputs[k], depth);
  }
  if (k > 0) return std::nullopt;
  if (const std::optional<ScaledSum>& sum = rop.epilogue.sum) return sum->rounds ? bounds_of(sum->low, sum->high) : std::nullopt;
  if (rop.epilogue.activation == Activation::rounded) {
    if (rop.epilogue.residual_after_activation && rop.epilogue.residual.valid()) return std::nullopt;
    return bounds_of(rop.epilogue.a, rop.epilogue.b);
  }
  if (const auto* chain = std::get_if<Elementwise>(&rop.attrs)) return chain_range(*chain);
  if (const auto* attention = std::get_if<Attention>(&rop.attrs)) {
    if (!attention->rounding || !attention->rounding->results.rounds()) return std::nullopt;
    return bounds_of(attention->rounding->results.low, attention->rounding->results.high);
  }
  if (const std::optional<WholeRange> all = taken_range(graph, rop)) return all;
  const auto* const pool = std::get_if<Pool>(&rop.attrs);
  const bool moves = is_one_of<Reshape, Transpose, Slice, Concat>(rop) || (pool && pool->kind == PoolKind::max);
  if (!moves || rop.inputs.empty()) return std::nullopt;
  std::optional<WholeRange> all;
  for (const TensorId operand : rop.inputs) {
    const std::optional<WholeRange> one = range_of(graph, operand, depth);
    if (!one) return std::nullopt;
    all = all ? WholeRange{std::min(all->low, one->low), std::max(all->high, one->high)} : *one;
  }
  return all;
}

std::optional<WholeRange> range_of(const Graph& graph, TensorId id, int depth) {
  constexpr int kMostMoves = 6;
  const Tensor& tensor = graph.tensor(id);
  if (depth > kMostMoves || tensor.role != Role::activation) return std::nullopt;
  const BufferId buffer = tensor.place.buffer;
  std::optional<WholeRange> all;
  for (const ROperator& rop : graph.rops) {
    for (size_t k = 0; k < rop.outputs.size(); ++k) {
      const TensorId out = rop.outputs[k];
      if (out != id && !(buffer.valid() && graph.tensor(out).place.buffer == buffer)) continue;
      const std::optional<WholeRange> one = made_range(graph, rop, k, depth + 1);
      if (!one) return std::nullopt;
      all = all ? WholeRange{std::min(all->low, one->low), std::max(all->high, one->high)} : *one;
    }
  }
  return all;
}

}  // namespace

std::optional<WholeRange> whole_range(const Graph& graph, TensorId id) { return range_of(graph, id, 0); }

bool convolves(const ROperator& rop) { return is_one_of<Conv>(rop) || count_steps<Conv>(rop) > 0; }
bool keeps_rows_of_16_bits(const ROperator& rop) {
  if (count_steps<MatMul, Attention>(rop) <= 1) return false;
  const Graph& body = FusedView::of(rop)->body();
  return std::any_of(body.rops.begin(), body.rops.end(), [&](const ROperator& step) {
    const Shape& made = body.tensor(step.outputs[0]).shape;
    return std::holds_alternative<Attention>(step.attrs) || made.empty() || element_count(made) != made.back();
  });
}
bool normalizes_in_sums(const ROperator& rop) {
  return count_steps<MatMul>(rop) == 1 && std::holds_alternative<Normalize>(FusedView::of(rop)->body().rops.back().attrs);
}
bool is_by_moments(const ROperator& rop) { return count_steps<MatMul>(rop) == 1 && count_steps<Moments, NormalizeBy>(rop) > 0; }
std::vector<bool> normalized_by_moments(const Graph& placed) {
  std::vector<bool> by_moments(placed.buffers.size(), false);
  const auto mark = [&](TensorId rows) { by_moments[placed.tensor(rows).place.buffer.index()] = true; };
  for (const ROperator& rop : placed.rops) {
    const std::optional<FusedView> steps = FusedView::of(rop);
    for (size_t i = 0; steps && i < steps->count(); ++i) {
      if (steps->as<NormalizeBy>(i)) mark(steps->input(i, 0));
    }
  }
  return by_moments;
}
bool result_is_numbers(const ROperator& rop, size_t k) {
  if (count_steps<Moments, TileSums>(rop) > 0) {
    const std::optional<FusedView> steps = FusedView::of(rop);
    return std::any_of(steps->body().rops.begin(), steps->body().rops.end(), [&](const ROperator& step) {
      return is_one_of<Moments, TileSums>(step) && step.outputs[0] == steps->body().outputs[k];
    });
  }
  return false;
}

}  // namespace tamp
