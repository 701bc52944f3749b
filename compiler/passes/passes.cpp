#include "compiler/passes/passes.h"

#include "compiler/passes/fuse/cut_patches.h"
#include "compiler/passes/fuse/defer_normalize.h"
#include "compiler/passes/fuse/fuse_depthwise.h"
#include "compiler/passes/fuse/fuse_elementwise.h"
#include "compiler/passes/fuse/fuse_epilogue.h"
#include "compiler/passes/fuse/fuse_regions.h"
#include "compiler/passes/fuse/fuse_rows.h"
#include "compiler/passes/fuse/fuse_sums.h"
#include "compiler/passes/fuse/order_rows.h"
#include "compiler/passes/fuse/pool_by_sums.h"
#include "compiler/passes/fuse/recognise_excitation.h"
#include "compiler/passes/fuse/repeat_scalars.h"
#include "compiler/passes/fuse/split_at_concats.h"
#include "compiler/passes/fuse/split_dilated.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/place/mark_ends.h"
#include "compiler/passes/recognise/group_queries.h"
#include "compiler/passes/recognise/mask_softmax.h"
#include "compiler/passes/recognise/recognise_activations.h"
#include "compiler/passes/recognise/recognise_attention.h"
#include "compiler/passes/recognise/recognise_normalizations.h"
#include "compiler/passes/recognise/recognise_rounded_attention.h"
#include "compiler/passes/recognise/recurrences/lift_recurrences.h"
#include "compiler/passes/recognise/recurrences/stack_recurrences.h"
#include "compiler/passes/recognise/regroup_normalizations.h"
#include "compiler/passes/recognise/step_attention.h"
#include "compiler/passes/tidy/canonicalise.h"
#include "compiler/passes/tidy/carry_integers.h"
#include "compiler/passes/tidy/drop_roundings.h"
#include "compiler/passes/tidy/fold_batch_norm.h"
#include "compiler/passes/tidy/fold_constants.h"
#include "compiler/passes/tidy/fold_scales.h"
#include "compiler/passes/tidy/merge_duplicates.h"
#include "compiler/passes/tidy/remove_identities.h"
#include "compiler/passes/tidy/round_before_views.h"
#include "compiler/passes/tidy/scale_products.h"
#include "compiler/passes/tidy/shrink_biases.h"
#include "compiler/passes/tidy/slice_gathers.h"
#include "compiler/passes/tidy/turn_scatters.h"
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
  const auto with = [](auto* pass, const auto&... arguments) {
    return [pass, arguments...](Graph graph) { return pass(std::move(graph), arguments...); };
  };
  const auto fusions_of = [&](FusionTime when) {
    std::vector<FusionPattern> patterns = fusions;
    std::erase_if(patterns, [when](const FusionPattern& pattern) { return pattern.when != when; });
    return patterns;
  };
  const auto fuse = [&](FusionTime when) {
    return [patterns = fusions_of(when), estimator, graph_estimator](Graph graph) {
      for (const FusionPattern& pattern : patterns) graph = fuse_regions(std::move(graph), pattern, graph_estimator, estimator);
      return graph;
    };
  };
  return {
      // tidy: fewer kinds of rOperators, and constants where there may be some.
      {"remove_identities", remove_identities},    // first: Dropout and Identity stand between what the others match
      {"fold_constants", fold_constants},          // the patterns below ask for constant operands
      {"carry_integers", carry_integers},          // before all that looks for floats
      {"round_before_views", round_before_views},  // behind it, which makes the steps that round
      {"scale_products", scale_products},          // behind both
      {"drop_roundings", drop_roundings},          // behind it, which makes of several factors one
      {"slice_gathers", slice_gathers},            // behind fold_constants, which may make its indices constant
      {"turn_scatters", turn_scatters},            // before the passes that see a cache's readers
      {"fold_batch_norm", fold_batch_norm},        // before canonicalise: it still sees the bias as an operand

      // recognise: one rOperator for what exporters write as several.
      {"recognise_activations", recognise_activations},               // before the fusions, which swallow the steps that it matches
      {"recognise_normalizations", recognise_normalizations},         // the same
      {"regroup_normalizations", regroup_normalizations},             // behind it, which may make them of single steps; before the fusions
      {"recognise_attention", with(recognise_attention, estimator)},  // before the fusions
      {"recognise_rounded_attention", with(recognise_rounded_attention, estimator)},  // the same; knows none of that one's forms
      {"mask_softmax", mask_softmax},                                                 // behind it, which takes the end of a Softmax itself
      {"group_queries", group_queries},                                               // behind it: it knows no groups
      {"step_attention", with(step_attention, estimator)},                            // behind both: it sees their views of keys
      {"lift_recurrences", lift_recurrences},                     // before canonicalise and the fusions: it matches single steps
      {"stack_recurrences", with(stack_recurrences, estimator)},  // before canonicalise: it makes MatMuls with a bias
      // Tidied once more, now that nothing is matched as the exporter wrote it.
      {"canonicalise", canonicalise},  // from here on Conv and MatMul have two operands
      {"fold_scales", fold_scales},    // before views_last: a factor is no step of an epilogue

      // views: movement of data that costs nothing, or less.
      {"channels_stay_last", channels_stay_last},        // before move_rows, which moves rows that stay whole
      {"move_rows", with(move_rows, estimator)},         // before views_last: sums come behind products again
      {"sink_transposes", with(sink_transposes, cell)},  // behind move_rows, which needs the views as they are
      {"join_slices", join_slices},                      // the same
      {"stack_concats", stack_concats},                  // the same
      {"join_views", with(join_views, cell)},            // what sink_transposes left may be nothing by now
      {"views_last", views_last},                        // before fuse_epilogue, which looks for steps right behind a product

      // fuse: one rOperator for several, where that is faster.
      {"fuse_epilogue", fuse_epilogue},  // before fuse_elementwise: a step in an epilogue is free, in a chain it is not
      {"recognise_excitation",
       with(recognise_excitation, estimator)},  // behind fuse_epilogue, which makes one rOperator of a product and its activation
      {"fuse_elementwise", fuse_elementwise},   // takes what is left
      {"merge_duplicates", merge_duplicates},   // behind it: a mask is one rOperator now, and the patterns above have been matched
      {"shrink_biases", shrink_biases},         // behind both: a bias that all layers share is made smaller once
      {"fuse_depthwise", with(fuse_depthwise, estimator)},  // takes activations that neither an epilogue nor a chain could take
      {"split_at_concats", split_at_concats},  // behind both: it wants whole chains, but not an activation that a convolution takes
      {"cut_patches", with(cut_patches, graph_estimator, cell)},  // behind all that looks for convolutions or gives them an epilogue
      {"split_dilated", with(split_dilated, graph_estimator)},    // the same
      {"fuse_chains", fuse(FusionTime::rows)},                    // before fuse_rows, which takes products apart
      {"repeat_scalars", with(repeat_scalars, graph_estimator)},  // behind it, which has a body for some of them
      {"order_rows", order_rows},                                 // behind it: chains work on rows, too
      {"fuse_rows", with(fuse_rows, fusions_of(FusionTime::products), estimator, graph_estimator,
                         rounds)},  // behind all that changes the graph, since the estimators are asked about it
      {"defer_normalize", with(defer_normalize, graph_estimator, rounds)},  // behind it, for the normalisations that are left
      {"pool_by_sums", with(pool_by_sums, estimator, graph_estimator)},     // behind both
      {"fuse_maps", fuse(FusionTime::maps)},  // behind both: a normalisation may be part of what reads it; and behind pool_by_sums, which
                                              // looks for plain convolutions
      {"fuse_sums", with(fuse_sums, graph_estimator)},  // behind all that looks for products or chains

      // place: last. Tensors keep their numbers and places from here on.
      {"mark_ends", mark_ends},  // behind all that makes tensors, and before views are places only
      {"assign_layout", with(assign_layout, cell, placed_estimator)},
  };
}

}  // namespace tamp::passes
