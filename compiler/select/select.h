// Which rKernels of a rOperator are worth a trial. All of it is one question: which candidate is done first on a share of n vEUs while the
// other vEUs are busy too? With all vEUs as the share, the answer is the paper's fastest rKernel; with one vEU it is the resource-efficient
// rKernel (least time x vEUs); with the rOperator's part of a full wave it is one between these.
#pragma once

#include <vector>

#include "compiler/select/cost.h"
#include "kernels/catalogue.h"

namespace tamp::select {

using Families = std::vector<kernels::Family>;

// Candidates of all families, in catalogue order. The families are an argument so that a test can bring its own.
std::vector<RKernel> candidates(const Families& families, const kernels::Request& request);
// The candidates as a program may run them: where the program has boxes and a Recurrent, bodies may also use the room of the input stages
// (compiler/ir/over_inputs.h). The vDevice of `request` is the program's.
std::vector<RKernel> candidates_in_program(const Families& families, const kernels::Request& request);
// The precision in which a program of precision `program` computes the rOperator: fp16 in a program of tf32 where operands or results lie
// in fp16 (passes/value_bounds.h), else the program's.
Precision precision_of(const Graph& placed, const ROperator& rop, Precision program);
const kernels::Family& family_of(const Families& families, const RKernel& rkernel);  // TAMP_CHECK if absent

// These return an index into `candidates` (at least one); the first of equals.
size_t fastest(const std::vector<RKernel>& candidates, const Machine& machine);
size_t efficient(const std::vector<RKernel>& candidates, const Machine& machine);
size_t fastest_on(const std::vector<RKernel>& candidates, const Machine& machine, int64_t share);

// Time x vEUs of the whole rOperator when all vEUs are busy.
double veu_us(const RKernel& rkernel, const Machine& machine);

}  // namespace tamp::select
