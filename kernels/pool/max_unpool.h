// MaxUnpool.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& max_unpool();

}  // namespace tamp::kernels
