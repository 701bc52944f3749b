#include "compiler/cli/index_limits.h"

#include <algorithm>
#include <limits>

namespace tamp::cli {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// The extent of the table that operand `i` of `rop` holds indices of, or 0 if it holds none.
int64_t table_of(const Graph& graph, const ROperator& rop, size_t i) {
  if (i != 1) return 0;
  const auto extent = [&](int64_t axis) { return graph.tensor(rop.inputs[0]).shape.at(static_cast<size_t>(axis)); };
  if (const auto* gather = std::get_if<Gather>(&rop.attrs)) return extent(gather->axis);
  if (const auto* scatter = std::get_if<Scatter>(&rop.attrs)) return extent(scatter->axis);
  return 0;
}

// Whether all elements of the result are elements of the first operand, as integers.
bool keeps_integers(const Graph& graph, const ROperator& rop) {
  if (!is_integer(graph.tensor(rop.outputs[0]).dtype)) return false;
  if (const auto* chain = std::get_if<Elementwise>(&rop.attrs)) {
    return std::all_of(chain->steps.begin(), chain->steps.end(),
                       [](const ElementwiseStep& step) { return step.op == ElementwiseOp::identity || step.op == ElementwiseOp::cast; });
  }
  return std::holds_alternative<Reshape>(rop.attrs) || std::holds_alternative<Transpose>(rop.attrs) ||
         std::holds_alternative<Slice>(rop.attrs) || std::holds_alternative<Gather>(rop.attrs);
}

class Limits {
 public:
  explicit Limits(const Graph& graph) : graph_(graph), uses_(uses_of(graph)), leads_to_index_(graph.tensors.size(), false) {
    for (auto rop = graph.rops.rbegin(); rop != graph.rops.rend(); ++rop) {
      const bool leads = std::any_of(rop->outputs.begin(), rop->outputs.end(), [&](TensorId id) { return leads_to_index_[id.index()]; });
      for (size_t i = 0; i < rop->inputs.size(); ++i) {
        if (rop->inputs[i].valid() && (leads || table_of(graph, *rop, i) > 0)) leads_to_index_[rop->inputs[i].index()] = true;
      }
    }
  }

  // kNone: its elements are no index as they are; 0: none is sure.
  int64_t limit_of(TensorId id) const {
    int64_t limit = kNone;
    for (const ROperatorId reader : uses_.consumers[id.index()]) {
      const ROperator& rop = graph_.rops[reader.index()];
      for (size_t i = 0; i < rop.inputs.size(); ++i) {
        if (rop.inputs[i] == id) limit = std::min(limit, limit_at(rop, i));
      }
    }
    return limit;
  }

 private:
  int64_t limit_at(const ROperator& rop, size_t i) const {
    if (const int64_t extent = table_of(graph_, rop, i); extent > 0) return extent;
    if (i == 0 && keeps_integers(graph_, rop)) return limit_of(rop.outputs[0]);
    const bool is_computed_with =
        std::any_of(rop.outputs.begin(), rop.outputs.end(), [&](TensorId out) { return leads_to_index_[out.index()]; });
    return is_computed_with ? 0 : kNone;
  }

  const Graph& graph_;
  Uses uses_;
  std::vector<bool> leads_to_index_;  // per tensor: an index is computed from it
};

}  // namespace

std::vector<int64_t> index_limits(const Graph& graph) {
  const Limits limits(graph);
  std::vector<int64_t> found;
  for (const TensorId input : graph.inputs) {
    const int64_t limit = is_integer(graph.tensor(input).dtype) ? limits.limit_of(input) : kNone;
    found.push_back(limit == kNone ? 0 : limit);
  }
  return found;
}

}  // namespace tamp::cli
