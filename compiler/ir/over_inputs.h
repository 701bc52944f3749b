// The second layout of shared memory. It is for programs that have both boxes of input values and bodies that need much shared memory. Such
// a body uses the room of the ring of input stages in addition to its own work space, and copies into the ring wait until the body has
// ended (docs/adr/0009, kernels/vdevice/interpreter.cuh). With ProgramShape::products_over_inputs products with boxes are such bodies, too
// (Phase::stores_behind_boxes).
#pragma once

#include "compiler/ir/shaped_vdevice.h"

namespace tamp {

// The vDevice of a program with boxes, as seen by a rOperator that copies none itself.
inline ShapedVDevice over_inputs(ShapedVDevice vdevice) {
  vdevice.input_stages = 0;
  return vdevice;
}

// Whether a body that needs `work_bytes` of work space runs over the input stages. `vdevice` is that of a program with boxes.
inline bool is_over_inputs(int64_t work_bytes, const ShapedVDevice& vdevice) {
  return vdevice.input_stages > 0 && work_bytes > vdevice.work_beside_inputs();
}

}  // namespace tamp
