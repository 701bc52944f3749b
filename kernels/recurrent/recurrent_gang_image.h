// The packed weights of a cell of a gang: per share what recurrent_gang_shape.cuh calls its image.
#pragma once

#include "compiler/ir/tensor.h"
#include "kernels/recurrent/recurrent_gang_plan.h"

namespace tamp::kernels {

// As in compiler/ir/recurrent.h; null where there is none.
struct CellWeights {
  const float *w, *r, *bias, *peepholes;
};

Bytes gang_image(const GangCell& cell, const CellWeights& weights);

}  // namespace tamp::kernels
