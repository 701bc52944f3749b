#include "compiler/ops/work.h"

#include <algorithm>
#include <limits>

namespace tamp::ops {
namespace {

// Of the reference as it is: measured on elementwise chains, copies and windows of millions of elements.
constexpr int64_t kPerElement = 35, kPerStepOfChain = 15, kPerWindowElement = 8;
constexpr int64_t kPerGate = 100, kPerTimeStep = 2000;  // of a recurrent cell

int64_t times(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}
int64_t plus(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

int64_t volume(const std::vector<int64_t>& kernel) {
  int64_t elements = 1;
  for (const int64_t extent : kernel) elements = times(elements, extent);
  return elements;
}

int64_t cells_of(const Graph& graph, const Recurrent& recurrent, const std::vector<TensorId>& inputs) {
  const auto weights = [&](int32_t place) { return place < 0 ? 0 : element_count(graph.tensor(inputs[static_cast<size_t>(place)]).shape); };
  int64_t sum = 0;
  for (const RecurrentCell& cell : recurrent.cells) {
    const int64_t per_row = weights(cell.r) + weights(cell.w) + kPerGate * gates_of(cell.kind) * cell.hidden;
    sum = plus(sum, times(cell.steps, plus(times(recurrent.batch, per_row), kPerTimeStep)));
  }
  return sum;
}

int64_t own_work(const Graph& graph, const OpAttrs& attrs, const std::vector<TensorId>& inputs, int64_t results) {
  if (const auto* recurrent = std::get_if<Recurrent>(&attrs)) return cells_of(graph, *recurrent, inputs);
  if (const auto* conv = std::get_if<Conv>(&attrs)) return times(results, times(volume(conv->kernel), graph.tensor(inputs[1]).shape[1]));
  if (const auto* pool = std::get_if<Pool>(&attrs)) return times(results, times(kPerWindowElement, volume(pool->kernel)));
  if (const auto* lrn = std::get_if<Lrn>(&attrs)) return times(results, times(kPerWindowElement, lrn->size));
  if (const auto* chain = std::get_if<Elementwise>(&attrs))
    return times(results, kPerStepOfChain * static_cast<int64_t>(chain->steps.size()));
  if (const auto* matmul = std::get_if<MatMul>(&attrs)) {
    const Shape& a = graph.tensor(inputs[0]).shape;
    return times(results, matmul->trans_a ? a[a.size() - 2] : a.back());
  }
  return 0;
}

}  // namespace

int64_t work_of(const Graph& graph, const OpAttrs& attrs, const std::vector<TensorId>& inputs, const Shape& result) {
  const int64_t results = element_count(result);
  // A reduction reads its operand in a loop of its own; everything else walks its results.
  const int64_t per_read = std::holds_alternative<Reduce>(attrs) || std::holds_alternative<Softmax>(attrs) ? kPerWindowElement : 1;
  int64_t work = own_work(graph, attrs, inputs, results);
  for (const TensorId id : inputs) {
    if (id.valid()) work = plus(work, times(per_read, element_count(graph.tensor(id).shape)));
  }
  return plus(work, times(kPerElement, results));
}

}  // namespace tamp::ops
