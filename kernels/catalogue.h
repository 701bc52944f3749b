// The list of all rKernel families (kernels/family.h).
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/fusion.h"
#include "kernels/family.h"

namespace tamp::kernels {

const std::vector<Family>& families();
const Family& family(const std::string& name);  // TAMP_CHECK if absent

// The patterns of all families, in the order in which they are tried.
std::vector<FusionPattern> fusions();

// Candidates of all families, in catalogue order.
std::vector<RKernel> candidates(const Request& request);

// The least estimate of all families.
std::optional<Estimate> estimate(const Request& request);

}  // namespace tamp::kernels
