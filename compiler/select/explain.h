// Why a rOperator has the rKernel that it has, for people who ask (-v).
#pragma once

#include <string>

#include "compiler/select/records.h"
#include "compiler/select/select.h"

namespace tamp::select {

// "staged_conv<64x64>: 5.31 us alone on the vDevice (record), 1st of 14: staged_conv<64x32> 5.62 us, ...": the chosen one, and the
// candidates that are fastest, each by what it takes with the vDevice to itself. A policy chooses by what else runs, so it need not be the
// first. `records`: none where the model alone priced them.
std::string explain(const Families& families, const kernels::Request& request, const Machine& machine, const Records* records,
                    const RKernel& chosen);

}  // namespace tamp::select
