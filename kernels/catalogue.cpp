#include "kernels/catalogue.h"

#include "compiler/support/error.h"
#include "kernels/chain/feed_forward.h"
#include "kernels/chain/gated_feed_forward.h"
#include "kernels/chain/pointwise_pair.h"
#include "kernels/chain/self_attention.h"
#include "kernels/excite/rounded_excitation.h"
#include "kernels/first/patch_conv.h"
#include "kernels/product/gemv_of_rows.h"
#include "kernels/product/rounded_head.h"
#include "kernels/product/row_feed_forward.h"
#include "kernels/product/split_k_normalize.h"
#include "kernels/reduce/quantise.h"
#include "kernels/reduce/quantised_rows.h"
#include "kernels/tile/requantised.h"

namespace tamp::kernels {

// All families: X is the function in kernels/*/X.cpp (typed_X in kernels/typed/X.cpp) that returns the family of that name. Order matters
// only between rKernels of equal estimated cost: the earlier one is taken.
#define TAMP_FAMILIES(X)                                                                                                          \
  X(gemv)            /* MatMul of a few rows: weights streamed; of means of channels, rounded or not, too */                      \
  X(staged_conv)     /* Conv and MatMul with constant weights on tensor cores, where the device copies boxes */                   \
  X(streamed_conv)   /* pointwise ones of few channels and many pixels, in 16 bits or less */                                     \
  X(implicit_gemm)   /* the same without boxes, on tensor cores or FFMA */                                                        \
  X(patch_conv)      /* Conv of few input channels, on tensor cores */                                                            \
  X(patch_strip)     /* the same in batches, where a vEU has several tiles */                                                     \
  X(depthwise)       /* Conv with one input channel per group */                                                                  \
  X(depthwise_boxes) /* the same with large filters, where the device copies boxes; with moments of its pixels, too */            \
  X(separable_conv)  /* Conv with a prologue */                                                                                   \
  X(pointwise_pair)  /* two pointwise Convs */                                                                                    \
  X(feed_forward)    /* two MatMuls with an activation between */                                                                 \
  X(direct)          /* every other Conv */                                                                                       \
  X(matmul_direct)   /* MatMul of two activations, and every other MatMul */                                                      \
  X(attention)       /* two of them with a softmax between */                                                                     \
  X(attention_step)  /* the same for a decoder's step */                                                                          \
  X(self_attention)  /* the same with the product in front and its normalisation */                                               \
  X(squeeze)         /* ChannelSqueeze: means of channels and a product with them, with a depthwise Conv in front or not */       \
  X(excite)          /* ChannelExcite: gates of channels; of quantised networks, too */                                           \
  X(channel_sums)    /* TileSums of quantised maps, with the depthwise Conv that makes them or not */                             \
  X(gated_feed_forward)                                                                                                           \
  X(row_feed_forward) /* the same of one row, without gate, too */                                                                \
  X(pool)                                                                                                                         \
  X(pool_indices) /* the second result of MaxPool */                                                                              \
  X(max_unpool)                                                                                                                   \
  X(reduce)       /* global pooling, too */                                                                                       \
  X(quantise)     /* by the range of all elements, which it finds itself */                                                       \
  X(softmax)      /* LogSoftmax, too */                                                                                           \
  X(normalize)    /* of layers, instances and groups, and by the root mean square */                                              \
  X(lrn)          /* across channels */                                                                                           \
  X(elementwise)  /* and Transpose, Reshape and Slice where they are no views */                                                  \
  X(byte_copy)    /* an output that is a constant of another type than f32 */                                                     \
  X(ended_copy)   /* Pad that ends at lengths of run time */                                                                      \
  X(indexed_copy) /* Pad and Gather with constant indices: no strides describe their source */                                    \
  X(grid_sample)                                                                                                                  \
  X(volume_sample) /* the same in 3-D */                                                                                          \
  X(resample)      /* Resize */                                                                                                   \
  X(roi_align)                                                                                                                    \
  X(max_roi_pool)                                                                                                                 \
  X(non_max_suppression)                                                                                                          \
  X(recurrent_gang)   /* recurrent cells with constant weights, each over several vEUs */                                         \
  X(recurrent_direct) /* every cell of a recurrent network */                                                                     \
  X(typed_map)        /* Elementwise; from here on: any element type, for all rOperators that the families for f32 do not take */ \
  X(typed_copy)       /* copies, Transpose, Slice, Reshape */                                                                     \
  X(typed_gather)     /* and indices that are known only at run time */                                                           \
  X(typed_reduce)                                                                                                                 \
  X(typed_matmul)                                                                                                                 \
  X(typed_conv)                                                                                                                   \
  X(typed_top_k) /* from here on: f32, too */                                                                                     \
  X(typed_cumulate)                                                                                                               \
  X(next_token)                                                                                                                   \
  X(typed_scatter)                                                                                                                \
  X(typed_non_zero)

#define TAMP_DECLARE(name) Family name();
TAMP_FAMILIES(TAMP_DECLARE)
#undef TAMP_DECLARE

const std::vector<Family>& families() {
#define TAMP_ROW(name) name(),
  static const std::vector<Family> list = {TAMP_FAMILIES(TAMP_ROW)};
#undef TAMP_ROW
  return list;
}

const Family& family(const std::string& name) {
  for (const Family& row : families()) {
    if (row.name == name) return row;
  }
  TAMP_CHECK(false, "no rKernel family '" + name + "'");
}

std::vector<FusionPattern> fusions() {
  return {dynamic_quantisations(), feed_forwards(),          normalised_feed_forwards(), gated_feed_forwards(),      self_attentions(),
          normalized_patches(),    products_with_prologue(), normalized_products(),      rounded_excitations(),      rounded_heads(),
          pointwise_pairs(),       row_feed_forwards(),      quantised_sums(),           quantised_normalizations(), quantised_softmax(),
          quantised_patches(),     looked_up_patches(),      requantised_products(),     summed_depthwise()};
}

std::vector<RKernel> candidates(const Request& request) {
  std::vector<RKernel> all;
  for (const Family& row : families()) {
    for (RKernel& rkernel : candidates_of(row, request)) all.push_back(std::move(rkernel));
  }
  return all;
}

std::optional<Estimate> estimate(const Request& request) {
  std::optional<Estimate> least;
  for (const Family& row : families()) {
    if (row.estimate == nullptr || (request.rop.epilogue.sum && !row.takes_sums)) continue;
    const std::optional<Estimate> own = row.estimate(request);
    if (own && (!least || own->us < least->us)) least = own;
  }
  return least;
}

}  // namespace tamp::kernels
