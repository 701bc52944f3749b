// The one list of rKernel families. Order matters only between rKernels of equal estimated cost: the earlier one is taken.
#include "kernels/catalogue.h"

#include "compiler/support/error.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_step.h"
#include "kernels/chain/feed_forward.h"
#include "kernels/chain/gated_feed_forward.h"
#include "kernels/chain/pointwise_pair.h"
#include "kernels/chain/self_attention.h"
#include "kernels/depthwise/depthwise.h"
#include "kernels/depthwise/depthwise_boxes.h"
#include "kernels/depthwise/separable_conv.h"
#include "kernels/elementwise/byte_copy.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/indexed_copy.h"
#include "kernels/excite/excite.h"
#include "kernels/excite/squeeze.h"
#include "kernels/first/patch_conv.h"
#include "kernels/first/patch_strip.h"
#include "kernels/pool/max_unpool.h"
#include "kernels/pool/pool.h"
#include "kernels/pool/pool_indices.h"
#include "kernels/product/direct.h"
#include "kernels/product/gemv.h"
#include "kernels/product/gemv_of_rows.h"
#include "kernels/product/implicit_gemm.h"
#include "kernels/product/matmul_direct.h"
#include "kernels/product/split_k_normalize.h"
#include "kernels/product/staged_conv.h"
#include "kernels/recurrent/recurrent_direct.h"
#include "kernels/recurrent/recurrent_gang.h"
#include "kernels/reduce/lrn.h"
#include "kernels/reduce/normalize.h"
#include "kernels/reduce/reduce.h"
#include "kernels/reduce/softmax.h"
#include "kernels/sample/grid_sample.h"
#include "kernels/sample/max_roi_pool.h"
#include "kernels/sample/non_max_suppression.h"
#include "kernels/sample/resample.h"
#include "kernels/sample/roi_align.h"
#include "kernels/sample/volume_sample.h"
#include "kernels/typed/typed.h"

namespace tamp::kernels {

const std::vector<Family>& families() {
  static const std::vector<Family> list = {
      gemv(),             // MatMul of a few rows: weights streamed
      staged_conv(),      // Conv and MatMul with constant weights on tensor cores, where the device copies boxes
      implicit_gemm(),    // the same without boxes, on tensor cores or FFMA
      patch_conv(),       // Conv of few input channels, on tensor cores
      patch_strip(),      // the same in batches
      depthwise(),        // Conv with one input channel per group
      depthwise_boxes(),  // the same with large filters, where the device copies boxes; with moments of its pixels, too
      separable_conv(),   // Conv with a prologue
      pointwise_pair(),   // two pointwise Convs
      feed_forward(),     // two MatMuls with an activation between
      direct(),           // every other Conv
      matmul_direct(),    // MatMul of two activations
      attention(),        // two of them with a softmax between
      attention_step(),   // the same for a decoder's step
      self_attention(),   // the same with the product in front and its normalisation
      squeeze(),          // means of channels and a product with them, with a depthwise Conv in front or not
      excite(),           // gates of channels
      gated_feed_forward(),
      pool(),
      pool_indices(),
      max_unpool(),
      reduce(),
      softmax(),
      normalize(),
      lrn(),
      elementwise(),
      byte_copy(),     // an output that is a constant of another type than f32
      indexed_copy(),  // Pad and Gather
      grid_sample(),
      volume_sample(),  // the same in 3-D
      resample(),       // Resize
      roi_align(),
      max_roi_pool(),
      non_max_suppression(),
      recurrent_gang(),    // recurrent cells with constant weights, each over several vEUs
      recurrent_direct(),  // every cell of a recurrent network
      typed_map(),         // from here on: operands of other types than f32
      typed_copy(),
      typed_gather(),  // and indices that are known only at run time
      typed_reduce(),
      typed_matmul(),
      typed_conv(),
      typed_top_k(),  // from here on: f32, too
      typed_cumulate(),
      typed_scatter(),
      typed_non_zero(),
  };
  return list;
}

const Family& family(const std::string& name) {
  for (const Family& row : families()) {
    if (row.name == name) return row;
  }
  TAMP_CHECK(false, "no rKernel family '" + name + "'");
}

std::vector<FusionPattern> fusions() {
  return {feed_forwards(),      normalised_feed_forwards(), gated_feed_forwards(), self_attentions(),
          normalized_patches(), products_with_prologue(),   normalized_products(), pointwise_pairs()};
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
    if (row.estimate == nullptr) continue;
    const std::optional<Estimate> own = row.estimate(request);
    if (own && (!least || own->us < least->us)) least = own;
  }
  return least;
}

}  // namespace tamp::kernels
