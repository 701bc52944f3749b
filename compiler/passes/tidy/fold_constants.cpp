#include "compiler/passes/tidy/fold_constants.h"

#include <algorithm>
#include <map>

#include "compiler/ops/ops.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

constexpr int64_t kTensorBudgetBytes = int64_t{64} << 20;
constexpr int64_t kTotalBudgetBytes = int64_t{1} << 30;

int64_t result_bytes(const Graph& graph, const ROperator& rop) {
  int64_t bytes = 0;
  for (const TensorId id : rop.outputs) bytes += element_count(graph.tensor(id).shape) * bytes_of(graph.tensor(id).dtype);
  return bytes;
}

bool reads_constants_only(const Graph& graph, const ROperator& rop) {
  const std::vector<TensorId> reads = reads_of(rop);
  return !ends_at_length(rop.attrs) && !is_of_loop(rop.attrs) &&
         std::all_of(reads.begin(), reads.end(), [&](TensorId id) { return is_constant(graph, id); });
}

void fold(Graph& graph, const ROperator& rop) {
  std::map<TensorId, ops::Value> operands;
  for (const TensorId id : reads_of(rop)) operands[id] = {graph.tensor(id).dtype, graph.tensor(id).shape, graph.tensor(id).data};
  const std::vector<ops::Value> results = ops::evaluate(graph, rop, [&](TensorId id) -> const ops::Value& { return operands.at(id); });
  for (size_t i = 0; i < results.size(); ++i) {
    Tensor& tensor = graph.tensor(rop.outputs[i]);
    tensor.role = Role::constant;
    tensor.data = results[i].data;
  }
}

}  // namespace

Graph fold_constants(Graph graph) {
  std::vector<bool> dead(graph.rops.size(), false);
  int64_t left = kTotalBudgetBytes, work_left = ops::kFoldTotalWork;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (!reads_constants_only(graph, graph.rops[i])) continue;
    const int64_t bytes = result_bytes(graph, graph.rops[i]);
    const int64_t work = ops::work_of(graph, graph.rops[i]);
    if (bytes > kTensorBudgetBytes || bytes > left || work > work_left) continue;
    fold(graph, graph.rops[i]);
    left -= bytes;
    work_left -= work;
    dead[i] = true;
  }
  return remove_dead(erase_rops(std::move(graph), dead));
}

}  // namespace tamp::passes
