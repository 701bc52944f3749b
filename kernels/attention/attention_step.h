// Attention of a few queries over keys that may come in two parts: a decoder's step (attention_step.cuh).
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& attention_step();

}  // namespace tamp::kernels
