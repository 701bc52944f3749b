// Two pointwise convolutions, one behind the other, in one rTask; see pointwise_pair.cuh.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& pointwise_pair();

}  // namespace tamp::kernels
