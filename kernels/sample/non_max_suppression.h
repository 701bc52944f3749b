// NonMaxSuppression.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& non_max_suppression();

}  // namespace tamp::kernels
