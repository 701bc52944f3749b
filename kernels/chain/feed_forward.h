// Two products of rows with an activation between them in one rTask, with the rows' normalisation or without; see feed_forward.cuh.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& feed_forward();

}  // namespace tamp::kernels
