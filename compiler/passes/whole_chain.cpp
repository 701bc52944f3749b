#include "compiler/passes/whole_chain.h"

#include <algorithm>
#include <cmath>

#include "compiler/ops/ops.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

constexpr int64_t kMostNumbers = 256;

// scale * x + number + row
struct Affine {
  double scale = 0, number = 0;
  std::vector<double> row;  // empty: zeros
  bool is_number() const { return scale == 0 && row.empty(); }
};

Affine times(Affine value, double by) {
  value.scale *= by;
  value.number *= by;
  for (double& one : value.row) one *= by;
  return value;
}
Affine plus(Affine a, const Affine& b) {
  a.scale += b.scale;
  a.number += b.number;
  if (a.row.empty())
    a.row = b.row;
  else
    for (size_t i = 0; i < b.row.size(); ++i) a.row[i] += b.row[i];
  return a;
}

// A step of values that are affine, if that is, too.
std::optional<Affine> combined(ElementwiseOp op, const std::vector<Affine>& of) {
  switch (op) {
    case ElementwiseOp::identity: return of[0];
    case ElementwiseOp::add: return plus(of[0], of[1]);
    case ElementwiseOp::sub: return plus(of[0], times(of[1], -1));
    case ElementwiseOp::mul:
      if (of[1].is_number()) return times(of[0], of[1].number);
      if (of[0].is_number()) return times(of[1], of[0].number);
      return std::nullopt;
    case ElementwiseOp::div:
      if (of[1].is_number() && of[1].number != 0) return times(of[0], 1 / of[1].number);
      return std::nullopt;
    default: return std::nullopt;
  }
}

bool is_whole(float x) { return std::rint(x) == x && std::abs(x) < 1 << 20; }
bool has_few_numbers(float low, float high) { return is_whole(low) && is_whole(high) && low <= high && high - low < kMostNumbers; }

class Reader {
 public:
  Reader(const Graph& graph, const ROperator& chain, TensorId x, size_t axis)
      : graph_(graph), chain_(chain), steps_(std::get<Elementwise>(chain.attrs).steps), x_(x) {
    for (const TensorId id : chain.inputs) {
      Affine value;
      if (id == x) {
        value.scale = 1;
      } else if (const std::optional<float> number = scalar_value(graph, id)) {
        value.number = *number;
      } else {
        const auto row = is_f32_constant(graph, id) ? values_along(graph.tensor(id), graph.tensor(chain.outputs[0]).shape, axis)
                                                    : std::optional<std::vector<float>>();
        if (!row) return;
        value.row.assign(row->begin(), row->end());
        has_rows_ = true;
      }
      inputs_.push_back(std::move(value));
    }
    is_good_ = true;
  }

  std::optional<WholeChain> read(WholeRange range) const {
    if (!is_good_) return std::nullopt;
    WholeChain found;
    if (!has_rows_) {
      const auto place = std::find(chain_.inputs.begin(), chain_.inputs.end(), x_) - chain_.inputs.begin();
      return with_table(std::move(found), 0, static_cast<int32_t>(place), range);
    }
    std::vector<std::optional<Affine>> made;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const std::optional<std::vector<Affine>> of = operands_of(steps_[i], made);
      const bool rounds = steps_[i].op == ElementwiseOp::rounded;
      if (rounds && of && !(*of)[0].row.empty() && (*of)[0].scale != 0) {
        found.scale = static_cast<float>((*of)[0].scale);
        found.low = steps_[i].a;
        found.high = steps_[i].b;
        if (!has_few_numbers(found.low, found.high)) return std::nullopt;
        for (const double value : (*of)[0].row) found.row.push_back(static_cast<float>(value + (*of)[0].number));
        if (i + 1 == steps_.size()) return found;
        return with_table(std::move(found), i + 1, -1 - static_cast<int32_t>(i),
                          {static_cast<int64_t>(found.low), static_cast<int64_t>(found.high)});
      }
      made.push_back(of ? combined(steps_[i].op, *of) : std::nullopt);
    }
    return std::nullopt;
  }

 private:
  std::optional<std::vector<Affine>> operands_of(const ElementwiseStep& step, const std::vector<std::optional<Affine>>& made) const {
    std::vector<Affine> all;
    for (const int32_t v : step.operands) {
      if (v < 0 && !made[static_cast<size_t>(-1 - v)]) return std::nullopt;
      all.push_back(v >= 0 ? inputs_[static_cast<size_t>(v)] : *made[static_cast<size_t>(-1 - v)]);
    }
    return all;
  }

  // The results of steps from number `first` on, of whole numbers that are operand `from` of theirs.
  std::optional<WholeChain> with_table(WholeChain found, size_t first, int32_t from, WholeRange range) const {
    const int64_t count = range.high - range.low + 1;
    if (count > kMostNumbers || count < 1) return std::nullopt;
    const ElementwiseStep& last = steps_.back();
    if (last.op != ElementwiseOp::rounded || !has_few_numbers(last.a, last.b)) return std::nullopt;
    Graph alone;
    std::vector<float> numbers;
    for (int64_t n = range.low; n <= range.high; ++n) numbers.push_back(static_cast<float>(n));
    std::vector<TensorId> inputs = {add_f32_constant(alone, "x", {count}, numbers)};
    std::vector<ElementwiseStep> steps(steps_.begin() + static_cast<std::ptrdiff_t>(first), steps_.end());
    for (ElementwiseStep& step : steps) {
      for (int32_t& v : step.operands) {
        if (v == from) {
          v = 0;
        } else if (v >= 0) {
          const Affine& input = inputs_[static_cast<size_t>(v)];
          if (!input.is_number()) return std::nullopt;  // x itself, or a row, behind the first rounding
          inputs.push_back(add_f32_constant(alone, "number", {}, {static_cast<float>(input.number)}));
          v = static_cast<int32_t>(inputs.size()) - 1;
        } else {
          const auto step_of = static_cast<size_t>(-1 - v);
          if (step_of < first) return std::nullopt;
          v = -1 - static_cast<int32_t>(step_of - first);
        }
      }
    }
    const TensorId out = add_like(alone, inputs[0], "y", {count});
    const ROperator rop = make_elementwise("y", steps, inputs, out);
    std::vector<ops::Value> values;
    for (const Tensor& tensor : alone.tensors) values.push_back({tensor.dtype, tensor.shape, tensor.data});
    const std::vector<ops::Value> results = ops::evaluate(alone, rop, [&](TensorId id) -> const ops::Value& { return values[id.index()]; });
    found.table = ops::raw_numbers<float>(results[0]);
    if (!std::all_of(found.table.begin(), found.table.end(), is_whole)) return std::nullopt;  // NaN, as of a root of negative numbers
    found.table_low = range.low;
    return found;
  }

  const Graph& graph_;
  const ROperator& chain_;
  const std::vector<ElementwiseStep>& steps_;
  TensorId x_;
  std::vector<Affine> inputs_;
  bool has_rows_ = false, is_good_ = false;
};

}  // namespace

std::optional<WholeChain> whole_chain_of(const Graph& graph, const ROperator& chain, TensorId x, WholeRange range, size_t axis) {
  const auto* const op = std::get_if<Elementwise>(&chain.attrs);
  const Tensor& out = graph.tensor(chain.outputs[0]);
  if (!op || op->steps.empty() || op->may_change_type() || out.dtype != DType::f32 || graph.tensor(x).shape != out.shape)
    return std::nullopt;
  if (chain.epilogue.activation != Activation::none || chain.epilogue.residual.valid()) return std::nullopt;
  if (std::find(chain.inputs.begin(), chain.inputs.end(), x) == chain.inputs.end()) return std::nullopt;
  return Reader(graph, chain, x, axis).read(range);
}

}  // namespace tamp::passes
