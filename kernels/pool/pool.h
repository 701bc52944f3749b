// Max and average pooling.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& pool();

}  // namespace tamp::kernels
