// Normalize: layer, instance, group and root mean square normalisation.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& normalize();

}  // namespace tamp::kernels
