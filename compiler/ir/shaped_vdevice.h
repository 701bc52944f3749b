// A vDevice as the rKernels of one program see it: what its file says, and what is chosen for the program (compiler/shape).
#pragma once

#include <cstdint>

#include "compiler/ir/vdevice.h"

namespace tamp {

struct ProgramShape {
  int64_t sms = 0;  // of the vDevice's, those that the launch has
  // The rings in shared memory of a vEU (VDevice). No input stages: the program copies no boxes.
  int64_t weight_stages = 0, weight_stage_bytes = 0, input_stages = 0, input_stage_bytes = 0;
  bool wide_products = false;  // one-tap products by wgmma where tiles allow it (staged_conv_plan.h, is_wide)
  bool more_tiles = false;     // tiles that only programs of large products have (staged_conv_plan.h, is_of_large_products)
  // Products have bodies for a fixed number of steps in a stage (staged_conv_tiles.cpp). Only where they are nearly all that the program
  // computes: elsewhere a further body costs more than it gains.
  bool even_stages = false;
  bool voting_waits = false;  // the lanes of a warp vote on each try of an mbarrier (kernels/vdevice/sync.cuh)
  int64_t cluster_veus = 1;   // vEUs of so many blocks of the launch form a cluster (Phase::cluster); 1: no clusters
  // Products store their sums over the input stages, so that there may be more of these (docs/adr/0039). All bodies may use the stages'
  // room then.
  bool products_over_inputs = false;
};

struct ShapedVDevice : VDevice, ProgramShape {
  ShapedVDevice() = default;
  ShapedVDevice(const VDevice& vdevice, const ProgramShape& shape) : VDevice(vdevice), ProgramShape(shape) {}

  // The shape's, where the file has a number for each kind of program.
  using ProgramShape::sms, ProgramShape::weight_stages, ProgramShape::weight_stage_bytes, ProgramShape::input_stages,
      ProgramShape::input_stage_bytes;

  int64_t veus() const { return sms * veus_per_sm; }
  // Shared memory left for a body: smem_bytes less the rings and the control block. With products_over_inputs the input stages are a part
  // of it, and the second number is what lies behind them.
  int64_t work_bytes() const { return work_beside_inputs() + (products_over_inputs ? input_stages * input_stage_bytes : 0); }
  int64_t work_beside_inputs() const {
    return smem_bytes - kControlBytes - weight_stages * weight_stage_bytes - input_stages * input_stage_bytes;
  }
  // Of a program in clusters, the shape with products over the input stages; the device must have input_stages_in_clusters.
  ShapedVDevice with_products_over_inputs() const;
  ShapedVDevice for_estimates() const;  // with estimated_edge_us for edge_us
};

}  // namespace tamp
