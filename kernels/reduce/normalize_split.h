// The two phases of a Normalize of few long rows, normalize_split.cuh.
#pragma once

#include <optional>

#include "kernels/family.h"
#include "kernels/reduce/rows.h"

namespace tamp::kernels {

// The nests of a Normalize have four operands, in this order.
enum NormalizeOperand : size_t { kNormalizeIn, kNormalizeOut, kNormalizeScale, kNormalizeBias };

// None where there are rows enough for the vEUs, or these are too short. `rows` are laid over no threads.
std::optional<RKernel> split_normalize(const Request& request, const Rows& rows);

bool is_split_normalize(const RKernel& rkernel);
// What a rTask of it reads and writes, scale and bias left out.
void split_normalize_accesses(const Graph& graph, const ROperator& rop, const Rows& rows, const RKernel& rkernel, int phase, int64_t index,
                              Accesses& out);

}  // namespace tamp::kernels
