// How a rKernel of staged_conv cuts its work: the tile of the output that a rTask has, and the chunks in which its input and its weights
// come. The other fields of `c` are chosen before.
#pragma once

#include "kernels/product/staged_conv_plan.h"

namespace tamp::kernels::staged {

// Chooses the tile: of those with at most as many pixels as the shape has, the one for which the least input is copied. False if no box
// fits a stage. Where the body is to multiply by wgmma, only tiles count whose pixels lie 8 by 8 (eight_rows).
bool choose_tile(const ShapedVDevice& vdevice, const Product& p, Config& c);

// The tile that `sums` are of, if the shape has a body for it.
bool take_tile(const ShapedVDevice& vdevice, const TileSums& sums, const Product& p, Config& c);

// Chooses the chunks of inputs and of weights with which a rTask's loop ends soonest. Large chunks are whole batches and need few changes
// from stage to stage; small chunks of inputs let the first batch begin early.
void choose_chunks(const ShapedVDevice& vdevice, const Product& p, Config& c);

}  // namespace tamp::kernels::staged
