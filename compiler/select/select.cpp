#include "compiler/select/select.h"

#include <algorithm>
#include <variant>

#include "compiler/ir/over_inputs.h"
#include "compiler/select/records.h"
#include "compiler/support/error.h"

namespace tamp::select {
namespace {

size_t least(const std::vector<RKernel>& candidates, auto time_us) {
  TAMP_CHECK(!candidates.empty(), "no candidates to choose from");
  size_t best = 0;
  double best_us = time_us(candidates[0]);
  for (size_t i = 1; i < candidates.size(); ++i) {
    const double us = time_us(candidates[i]);
    if (us < best_us) best = i, best_us = us;
  }
  return best;
}

}  // namespace

std::vector<RKernel> candidates(const Families& families, const kernels::Request& request) {
  std::vector<RKernel> all;
  for (const kernels::Family& family : families) {
    for (RKernel& rkernel : kernels::candidates_of(family, request)) all.push_back(std::move(rkernel));
  }
  return all;
}

std::vector<RKernel> candidates_in_program(const Families& families, const kernels::Request& request) {
  const ShapedVDevice& d = request.vdevice;
  const auto is_recurrent = [](const ROperator& rop) { return std::holds_alternative<Recurrent>(rop.attrs); };
  const bool has_recurrent = std::any_of(request.graph.rops.begin(), request.graph.rops.end(), is_recurrent);
  if (d.input_stages == 0 || !has_recurrent) return candidates(families, request);
  const ShapedVDevice over = over_inputs(d);
  std::vector<RKernel> large = candidates(families, {request.graph, request.rop, over, request.precision});
  if (is_recurrent(request.rop)) return large;
  std::erase_if(large, [&](const RKernel& rkernel) {
    return std::none_of(rkernel.phases.begin(), rkernel.phases.end(), [&](const Phase& p) { return is_over_inputs(p.work_bytes, d); });
  });
  std::vector<RKernel> all = candidates(families, request);
  for (RKernel& rkernel : large) {
    std::erase_if(all, [id = identity(rkernel)](const RKernel& other) { return identity(other) == id; });
    all.push_back(std::move(rkernel));
  }
  return all;
}

Precision precision_of(const Graph& placed, const ROperator& rop, Precision program) {
  return program == Precision::tf32 && kernels::touches_narrowed(placed, rop) ? Precision::fp16 : program;
}

const kernels::Family& family_of(const Families& families, const RKernel& rkernel) {
  for (const kernels::Family& family : families) {
    if (rkernel.family == family.name) return family;
  }
  TAMP_CHECK(false, "rKernel '" + rkernel.name + "' is of unknown family '" + rkernel.family + "'");
}

size_t fastest(const std::vector<RKernel>& candidates, const Machine& machine) {
  const int64_t all = machine.vdevice.veus();
  return least(candidates, [&](const RKernel& r) { return completion_us(r, machine, all, /*active=*/1); });
}

size_t efficient(const std::vector<RKernel>& candidates, const Machine& machine) {
  return least(candidates, [&](const RKernel& r) { return veu_us(r, machine); });
}

size_t fastest_on(const std::vector<RKernel>& candidates, const Machine& machine, int64_t share) {
  const int64_t all = machine.vdevice.veus();
  return least(candidates, [&](const RKernel& r) { return completion_us(r, machine, share, /*active=*/all); });
}

double veu_us(const RKernel& rkernel, const Machine& machine) {
  const int64_t all = machine.vdevice.veus();
  if (rkernel.gang) return static_cast<double>(rkernel.rtasks()) * completion_us(rkernel, machine, /*share=*/all, /*active=*/all);
  return completion_us(rkernel, machine, /*share=*/1, /*active=*/all);
}

}  // namespace tamp::select
