// How long the CPU reference takes for a rOperator, before it is run: what folding may cost is bounded by it.
#pragma once

#include "compiler/ir/graph.h"

namespace tamp::ops {

// In steps of about half a nanosecond on one core: a multiply-add of a product is one, whatever else touches an element many.
// `result`: the shape of the first result. Saturates.
int64_t work_of(const Graph& graph, const OpAttrs& attrs, const std::vector<TensorId>& inputs, const Shape& result);

// A model of a megabyte can ask for hours of folding. More than this is left to the device, or refused.
inline constexpr int64_t kFoldTotalWork = int64_t{2'000'000'000};

}  // namespace tamp::ops
