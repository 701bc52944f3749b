// Local response normalisation across channels.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& lrn();

}  // namespace tamp::kernels
