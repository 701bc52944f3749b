// NonMaxSuppression.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& non_max_suppression();

}  // namespace tamp::kernels
