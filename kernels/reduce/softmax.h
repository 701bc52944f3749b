// Softmax and LogSoftmax over neighbouring dimensions.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& softmax();

}  // namespace tamp::kernels
