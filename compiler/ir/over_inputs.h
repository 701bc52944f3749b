// The second layout of shared memory, of programs that have both boxes of input values and bodies that need much of it: such a body
// takes the room of the ring of input stages on top of its own, and the copies into the ring wait for its end (docs/adr/0009,
// kernels/vdevice/interpreter.cuh).
#pragma once

#include "compiler/ir/vdevice.h"

namespace tamp {

// The vDevice of a program that has boxes (VDevice::with_inputs), as a rOperator sees it that copies none itself.
inline VDevice over_inputs(const VDevice& vdevice) { return vdevice.with_inputs().without_inputs(); }

// Whether a body with so much work space of its own runs over the input stages of that program.
inline bool is_over_inputs(int64_t work_bytes, const VDevice& vdevice) {
  return vdevice.input_stages > 0 && work_bytes > vdevice.work_bytes();
}

}  // namespace tamp
