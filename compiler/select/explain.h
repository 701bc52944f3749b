// Explains why a rOperator has its rKernel, for people who ask (-v).
#pragma once

#include <string>

#include "compiler/select/records.h"
#include "compiler/select/select.h"

namespace tamp::select {

// "staged_conv<64x64>: 5.31 us alone on the vDevice (record), 1st of 14: staged_conv<64x32> 5.62 us, ...": the chosen rKernel and the
// fastest candidates, each with its time when it has the vDevice to itself. A policy also considers what else runs, so the chosen rKernel
// need not be the fastest. `records`: none where the model alone priced the candidates.
std::string explain(const Families& families, const kernels::Request& request, const Machine& machine, const Records* records,
                    const RKernel& chosen);

}  // namespace tamp::select
