// Reductions over any axes; global pooling is one of them.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& reduce();

}  // namespace tamp::kernels
