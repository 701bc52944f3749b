// Families for elements of any type: simple bodies for all rOperators that the fast families for f32 do not take.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& typed_map();     // Elementwise
const Family& typed_copy();    // copies, Transpose, Slice, Reshape
const Family& typed_gather();  // Gather with indices of run time
const Family& typed_reduce();
const Family& typed_matmul();
const Family& typed_conv();
const Family& typed_top_k();
const Family& typed_cumulate();
const Family& typed_scatter();
const Family& typed_non_zero();

}  // namespace tamp::kernels
