// Normalize: layer, instance, group and root mean square normalisation.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& normalize();

}  // namespace tamp::kernels
