// Local response normalisation across channels.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& lrn();

}  // namespace tamp::kernels
