// A normalisation of rows, the product that makes queries, keys and values of them, and attention, in one rTask; see self_attention.cuh.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& self_attention();

}  // namespace tamp::kernels
