// Max and average pooling.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& pool();

}  // namespace tamp::kernels
