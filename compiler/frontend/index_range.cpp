#include "compiler/frontend/index_range.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace tamp::frontend {
namespace {

constexpr int kDeep = 12;  // rOperators looked through; a sum of sums is looked at again and again

class ValueRanges {
 public:
  ValueRanges(const Graph& graph, const Makers& makers) : graph_(graph), makers_(makers) {}

  std::optional<NumberRange> of(TensorId id, int depth) const {
    const Tensor& tensor = graph_.tensor(id);
    if (tensor.dtype != DType::i64 && tensor.dtype != DType::i32) return std::nullopt;
    if (tensor.data) return of_constant(tensor);
    const auto maker = makers_.find(id);
    if (maker == makers_.end() || depth == 0) return std::nullopt;
    const ROperator& rop = graph_.rops[maker->second];
    if (const auto* top = std::get_if<TopK>(&rop.attrs); top && rop.outputs.size() > 1 && rop.outputs[1] == id)
      return NumberRange{0, graph_.tensor(rop.inputs[0]).shape[static_cast<size_t>(top->axis)] - 1};
    if (const auto* elementwise = std::get_if<Elementwise>(&rop.attrs)) return of(*elementwise, rop, depth);
    if (std::holds_alternative<Reshape>(rop.attrs) || std::holds_alternative<Transpose>(rop.attrs) ||
        std::holds_alternative<Slice>(rop.attrs))
      return of(rop.inputs[0], depth - 1);
    return std::nullopt;
  }

 private:
  static std::optional<NumberRange> of_constant(const Tensor& tensor) {
    const std::vector<int64_t> values = whole_numbers(tensor);
    if (values.empty()) return std::nullopt;
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return NumberRange{*least, *most};
  }

  std::optional<NumberRange> of(const Elementwise& op, const ROperator& rop, int depth) const {
    if (op.steps.size() != 1) return std::nullopt;
    std::vector<std::optional<NumberRange>> known;
    for (const int32_t operand : op.steps[0].operands) known.push_back(of(rop.inputs[static_cast<size_t>(operand)], depth - 1));
    constexpr int64_t kLarge = int64_t{1} << 31;  // sums and products of such stay in 64 bits; those of 32 bits may wrap around
    const bool is_wide = graph_.tensor(rop.outputs[0]).dtype == DType::i64;
    const auto is_small = [&](const std::optional<NumberRange>& range) { return range && range->least > -kLarge && range->most < kLarge; };
    const auto both = [&] { return is_wide && is_small(known[0]) && is_small(known[1]); };
    switch (op.steps[0].op) {
      case ElementwiseOp::identity:
      case ElementwiseOp::cast: return is_small(known[0]) ? known[0] : std::nullopt;
      case ElementwiseOp::add:
        return both() ? std::optional(NumberRange{known[0]->least + known[1]->least, known[0]->most + known[1]->most}) : std::nullopt;
      case ElementwiseOp::mul:
        if (!both() || known[0]->least < 0 || known[1]->least < 0) return std::nullopt;
        return NumberRange{known[0]->least * known[1]->least, known[0]->most * known[1]->most};
      case ElementwiseOp::where:
        if (!known[1] || !known[2]) return std::nullopt;
        return NumberRange{std::min(known[1]->least, known[2]->least), std::max(known[1]->most, known[2]->most)};
      case ElementwiseOp::max: return chosen(known, [](int64_t a, int64_t b) { return std::max(a, b); });
      case ElementwiseOp::min: return chosen(known, [](int64_t a, int64_t b) { return std::min(a, b); });
      default: return std::nullopt;
    }
  }

  // Of the smaller or larger of two numbers, of which one may be any.
  static NumberRange chosen(const std::vector<std::optional<NumberRange>>& known, auto&& choose) {
    const NumberRange any{std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
    const NumberRange a = known[0].value_or(any), b = known[1].value_or(any);
    return {choose(a.least, b.least), choose(a.most, b.most)};
  }

  const Graph& graph_;
  const Makers& makers_;
};

}  // namespace

std::optional<NumberRange> range_of(const Graph& graph, const Makers& makers, TensorId id) {
  return ValueRanges(graph, makers).of(id, kDeep);
}

std::vector<int64_t> whole_numbers(const Tensor& tensor) {
  std::vector<int64_t> values(static_cast<size_t>(element_count(tensor.shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    int32_t narrow = 0;
    if (tensor.dtype == DType::i32) std::memcpy(&narrow, tensor.data->data() + i * sizeof narrow, sizeof narrow);
    values[i] = narrow;
    if (tensor.dtype == DType::i64) std::memcpy(&values[i], tensor.data->data() + i * sizeof values[i], sizeof values[i]);
  }
  return values;
}

}  // namespace tamp::frontend
