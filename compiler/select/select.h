// Which rKernels of a rOperator are worth a trial. One question answers all of it: which candidate is done first on a share
// of n vEUs while the others are busy too. On all of them that is the paper's fastest rKernel; on one vEU it is the
// resource-efficient one (least time x vEUs); on the rOperator's part of a full wave it is the one between.
#pragma once

#include <vector>

#include "compiler/select/cost.h"
#include "kernels/catalogue.h"

namespace tamp::select {

using Families = std::vector<kernels::Family>;

// Of all families, in catalogue order. The families are an argument so that a test can bring its own.
std::vector<RKernel> candidates(const Families& families, const kernels::Request& request);
// The same as a program may run them: where it has boxes and a Recurrent, bodies may also take the room of the input stages
// (compiler/ir/over_inputs.h). The vDevice of `request` is the program's.
std::vector<RKernel> candidates_in_program(const Families& families, const kernels::Request& request);
const kernels::Family& family_of(const Families& families, const RKernel& rkernel);  // TAMP_CHECK if absent

// Positions in `candidates` (at least one); the first of equals.
size_t fastest(const std::vector<RKernel>& candidates, const Machine& machine);
size_t efficient(const std::vector<RKernel>& candidates, const Machine& machine);
size_t fastest_on(const std::vector<RKernel>& candidates, const Machine& machine, int64_t share);

// Time x vEUs of the whole rOperator when all vEUs are busy.
double veu_us(const RKernel& rkernel, const Machine& machine);

}  // namespace tamp::select
