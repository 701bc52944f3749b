#include "compiler/select/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/support/text.h"

namespace tamp::select {
namespace {

constexpr size_t kShown = 5;

std::string ordinal(size_t n) {
  const char* const suffix = n % 100 / 10 == 1 ? "th" : n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : n % 10 == 3 ? "rd" : "th";
  return fmt::format("{}{}", n, suffix);
}

}  // namespace

std::string explain(const Families& families, const kernels::Request& request, const Machine& machine, const Records* records,
                    const RKernel& chosen) {
  std::vector<RKernel> found = candidates_in_program(families, request);
  if (records != nullptr) records->correct(found, request.graph, request.rop, machine, /*alone=*/true);
  struct Priced {
    double us = 0;
    const RKernel* rkernel = nullptr;
  };
  std::vector<Priced> priced;
  for (const RKernel& rkernel : found) priced.push_back({completion_us(rkernel, machine, machine.vdevice.veus(), /*active=*/1), &rkernel});
  std::stable_sort(priced.begin(), priced.end(), [](const Priced& a, const Priced& b) { return a.us < b.us; });
  const auto is_chosen = [id = identity(chosen)](const Priced& p) { return identity(*p.rkernel) == id; };
  const auto at = std::find_if(priced.begin(), priced.end(), is_chosen);
  if (at == priced.end()) return fmt::format("{}: the only way", chosen.name);  // a view, or an rKernel of the policy's own
  std::vector<std::string> others;
  for (const Priced& p : priced) {
    if (is_chosen(p) || others.size() >= kShown) continue;
    others.push_back(fmt::format("{} {:.2f} us", p.rkernel->name, p.us));
  }
  const size_t place = static_cast<size_t>(at - priced.begin()) + 1;
  return fmt::format("{}: {:.2f} us alone on the vDevice ({}), {} of {}{}{}", chosen.name, at->us,
                     at->rkernel->measured ? "record" : "model", ordinal(place), priced.size(),
                     others.empty() ? "" : "; others: ", join(others, ", "));
}

}  // namespace tamp::select
