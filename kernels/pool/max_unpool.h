// MaxUnpool.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& max_unpool();

}  // namespace tamp::kernels
