#include "compiler/passes/passes.h"

#include "compiler/passes/fuse/cut_patches.h"
#include "compiler/passes/fuse/defer_normalize.h"
#include "compiler/passes/fuse/fuse_depthwise.h"
#include "compiler/passes/fuse/fuse_elementwise.h"
#include "compiler/passes/fuse/fuse_epilogue.h"
#include "compiler/passes/fuse/fuse_regions.h"
#include "compiler/passes/fuse/fuse_rows.h"
#include "compiler/passes/fuse/order_rows.h"
#include "compiler/passes/fuse/pool_by_sums.h"
#include "compiler/passes/fuse/recognise_excitation.h"
#include "compiler/passes/fuse/split_at_concats.h"
#include "compiler/passes/fuse/split_dilated.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/recognise/group_queries.h"
#include "compiler/passes/recognise/recognise_activations.h"
#include "compiler/passes/recognise/recognise_attention.h"
#include "compiler/passes/recognise/recognise_normalizations.h"
#include "compiler/passes/recognise/recurrences/lift_recurrences.h"
#include "compiler/passes/recognise/recurrences/stack_recurrences.h"
#include "compiler/passes/recognise/regroup_normalizations.h"
#include "compiler/passes/recognise/step_attention.h"
#include "compiler/passes/tidy/canonicalise.h"
#include "compiler/passes/tidy/fold_batch_norm.h"
#include "compiler/passes/tidy/fold_constants.h"
#include "compiler/passes/tidy/fold_scales.h"
#include "compiler/passes/tidy/merge_duplicates.h"
#include "compiler/passes/tidy/remove_identities.h"
#include "compiler/passes/tidy/shrink_biases.h"
#include "compiler/passes/tidy/slice_gathers.h"
#include "compiler/passes/tidy/widen_halves.h"
#include "compiler/passes/views/channels_stay_last.h"
#include "compiler/passes/views/join_slices.h"
#include "compiler/passes/views/join_views.h"
#include "compiler/passes/views/move_rows.h"
#include "compiler/passes/views/sink_transposes.h"
#include "compiler/passes/views/stack_concats.h"
#include "compiler/passes/views/views_last.h"

namespace tamp::passes {

std::vector<Pass> pipeline(const Estimator& estimator, int64_t cell, const GraphEstimator& graph_estimator,
                           const PlacedEstimator& placed_estimator, bool rounds, const std::vector<FusionPattern>& fusions) {
  const auto stack = [estimator](Graph graph) { return stack_recurrences(std::move(graph), estimator); };
  const auto prologue = [estimator](Graph graph) { return fuse_depthwise(std::move(graph), estimator); };
  const auto attend = [estimator](Graph graph) { return recognise_attention(std::move(graph), estimator); };
  const auto move = [estimator](Graph graph) { return move_rows(std::move(graph), estimator); };
  const auto step = [estimator](Graph graph) { return step_attention(std::move(graph), estimator); };
  const auto cut = [graph_estimator, cell](Graph graph) { return cut_patches(std::move(graph), graph_estimator, cell); };
  const auto dilated = [graph_estimator](Graph graph) { return split_dilated(std::move(graph), graph_estimator); };
  const auto fusions_of = [&](FusionTime when) {
    std::vector<FusionPattern> patterns = fusions;
    std::erase_if(patterns, [when](const FusionPattern& pattern) { return pattern.when != when; });
    return patterns;
  };
  const auto rows = [products = fusions_of(FusionTime::products), estimator, graph_estimator, rounds](const Graph& graph) {
    return fuse_rows(graph, products, estimator, graph_estimator, rounds);
  };
  const auto defer = [graph_estimator, rounds](Graph graph) { return defer_normalize(std::move(graph), graph_estimator, rounds); };
  const auto fuse = [&](FusionTime when) {
    return [patterns = fusions_of(when), estimator, graph_estimator](Graph graph) {
      for (const FusionPattern& pattern : patterns) graph = fuse_regions(std::move(graph), pattern, graph_estimator, estimator);
      return graph;
    };
  };
  const auto pool = [estimator, graph_estimator](Graph graph) { return pool_by_sums(std::move(graph), estimator, graph_estimator); };
  const auto place = [cell, placed_estimator](Graph graph) { return assign_layout(std::move(graph), cell, placed_estimator); };
  const auto sink = [cell](Graph graph) { return sink_transposes(std::move(graph), cell); };
  const auto join = [cell](Graph graph) { return join_views(std::move(graph), cell); };
  const auto excite = [estimator](Graph graph) { return recognise_excitation(std::move(graph), estimator); };
  return {
      // tidy: fewer kinds of rOperators, and constants where there may be some.
      {"remove_identities", remove_identities},  // first: Dropout and Identity stand between what the others match
      {"fold_constants", fold_constants},        // the patterns below ask for constant operands
      {"slice_gathers", slice_gathers},          // behind fold_constants, which may make its indices constant
      {"fold_batch_norm", fold_batch_norm},      // before canonicalise: it still sees the bias as an operand

      // recognise: one rOperator for what exporters write as several.
      {"recognise_activations", recognise_activations},        // before the fusions, which swallow the steps that it matches
      {"recognise_normalizations", recognise_normalizations},  // the same
      {"regroup_normalizations", regroup_normalizations},      // behind it, which may make them of single steps; before the fusions
      {"recognise_attention", attend},                         // before the fusions
      {"group_queries", group_queries},                        // behind it: it knows no groups
      {"step_attention", step},                                // behind both: it sees their views of keys
      {"lift_recurrences", lift_recurrences},                  // before canonicalise and the fusions: it matches single steps
      {"stack_recurrences", stack},                            // before canonicalise: it makes MatMuls with a bias
      // Tidied once more, now that nothing is matched as the exporter wrote it.
      {"canonicalise", canonicalise},  // from here on Conv and MatMul have two operands
      {"fold_scales", fold_scales},    // before views_last: a factor is no step of an epilogue

      // views: movement of data that costs nothing, or less.
      {"channels_stay_last", channels_stay_last},  // before move_rows, which moves rows that stay whole
      {"move_rows", move},                         // before views_last: sums come behind products again
      {"sink_transposes", sink},                   // behind move_rows, which needs the views as they are
      {"join_slices", join_slices},                // the same
      {"stack_concats", stack_concats},            // the same
      {"join_views", join},                        // what sink_transposes left may be nothing by now
      {"views_last", views_last},                  // before fuse_epilogue, which looks for steps right behind a product

      // fuse: one rOperator for several, where that is faster.
      {"fuse_epilogue", fuse_epilogue},         // before fuse_elementwise: a step in an epilogue is free, in a chain it is not
      {"recognise_excitation", excite},         // behind fuse_epilogue, which makes one rOperator of a product and its activation
      {"fuse_elementwise", fuse_elementwise},   // takes what is left
      {"merge_duplicates", merge_duplicates},   // behind it: a mask is one rOperator now, and the patterns above have been matched
      {"shrink_biases", shrink_biases},         // behind both: a bias that all layers share is made smaller once
      {"fuse_depthwise", prologue},             // takes activations that neither an epilogue nor a chain could take
      {"split_at_concats", split_at_concats},   // behind both: it wants whole chains, but not an activation that a convolution takes
      {"cut_patches", cut},                     // behind all that looks for convolutions or gives them an epilogue
      {"split_dilated", dilated},               // the same
      {"fuse_chains", fuse(FusionTime::rows)},  // before fuse_rows, which takes products apart
      {"order_rows", order_rows},               // behind it: chains work on rows, too
      {"fuse_rows", rows},                      // behind all that changes the graph, since the estimators are asked about it
      {"defer_normalize", defer},               // behind it, for the normalisations that are left
      {"pool_by_sums", pool},                   // behind both
      {"fuse_maps", fuse(FusionTime::maps)},    // behind both: a normalisation may be part of what reads it; and behind pool_by_sums, which
                                                // looks for plain convolutions

      // place: last. Tensors keep their numbers and places from here on.
      {"assign_layout", place},
  };
}

}  // namespace tamp::passes
