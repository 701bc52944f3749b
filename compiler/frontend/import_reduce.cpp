// The ten reductions. Their axes are an attribute at first and an operand later (ReduceSum from version 13, the others
// from 18); no axes means all of them, unless noop_with_empty_axes says none.

#include "compiler/frontend/importers.h"

namespace tamp::frontend {

void import_reduce(NodeImport& n, ReduceKind kind, int axes_input_since) {
  const bool by_input = n.version() >= axes_input_since;
  n.expect_counts(1, by_input ? 2 : 1);
  const TensorId x = n.in(0);
  const int64_t rank = n.rank(x);
  const bool keepdims = n.attr_flag("keepdims", true);
  const bool noop = by_input && n.attr_flag("noop_with_empty_axes", false);
  const Ints given = (by_input ? n.optional_ints(1, "axes") : n.find_ints("axes")).value_or(Ints());

  Reduce reduce{kind, n.axes(given, rank), keepdims};
  if (given.empty() && !noop) reduce.axes = range(0, rank);
  n.result(0, n.add(reduce, {x}));
}

}  // namespace tamp::frontend
