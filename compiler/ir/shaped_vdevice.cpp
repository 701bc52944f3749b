#include "compiler/ir/shaped_vdevice.h"

#include <algorithm>

#include "compiler/support/error.h"

namespace tamp {

ShapedVDevice VDevice::without_inputs() const {
  return {*this,
          {.sms = sms, .weight_stages = weight_stages, .weight_stage_bytes = weight_stage_bytes, .input_stage_bytes = input_stage_bytes}};
}

ShapedVDevice VDevice::with_rows() const {
  ShapedVDevice d = without_inputs();
  if (weight_stages_of_rows == 0) return d;
  d.weight_stages = weight_stages_of_rows;
  d.weight_stage_bytes = weight_stage_bytes_of_rows;
  return d;
}

ShapedVDevice VDevice::with_inputs() const {
  ShapedVDevice d = without_inputs();
  if (input_stages == 0) return d;
  d.weight_stages = weight_stages_beside_inputs;
  d.weight_stage_bytes = weight_stage_bytes_beside_inputs;
  d.input_stages = input_stages;
  return d;
}

ShapedVDevice VDevice::with_batches() const {
  ShapedVDevice d = with_inputs();
  if (input_stages == 0 || input_stages_of_batches == 0) return d;
  d.weight_stages = weight_stages_of_batches;
  d.weight_stage_bytes = weight_stage_bytes_of_batches;
  d.input_stages = input_stages_of_batches;
  d.input_stage_bytes = input_stage_bytes_of_batches;
  return d;
}

ShapedVDevice VDevice::with_long_batches() const {
  ShapedVDevice d = with_batches();
  if (input_stages == 0 || input_stages_of_batches <= 2) return d;
  --d.input_stages;
  d.input_stage_bytes = input_stage_bytes;
  ++d.weight_stages;
  return d;
}

ShapedVDevice VDevice::with_clusters() const {
  ShapedVDevice d = with_inputs();
  TAMP_CHECK(sms_in_clusters > 0, "vDevice '" + name + "' has no clusters");
  d.sms = std::min(sms_in_clusters, std::max<int64_t>(sms / 4, 1) * 4);  // a file may say that fewer SMs are to be used
  d.cluster_veus = 4;
  d.weight_stage_bytes = weight_stage_bytes_in_clusters;
  return d;
}

ShapedVDevice ShapedVDevice::with_products_over_inputs() const {
  ShapedVDevice d = *this;
  TAMP_CHECK(cluster_veus > 1 && input_stages_in_clusters > 0, "products of '" + name + "' have no stages to lie over");
  d.input_stages = input_stages_in_clusters;
  d.input_stage_bytes = input_stage_bytes_in_clusters;
  d.products_over_inputs = true;
  return d;
}

ShapedVDevice ShapedVDevice::for_estimates() const {
  ShapedVDevice d = *this;
  d.edge_us = estimated_edge_us.value_or(edge_us);
  return d;
}

}  // namespace tamp
