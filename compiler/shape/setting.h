// Facts of a compilation that do not depend on its graph.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "compiler/ir/graph.h"
#include "compiler/ir/vdevice.h"
#include "compiler/passes/place/value_bounds.h"
#include "compiler/passes/place/wide_values.h"

namespace tamp::shape {

struct Setting {
  VDevice vdevice;  // as its file says
  Precision precision = Precision::fp32;
  bool narrow_activations = true;  // CompileOptions'
  bool of_bytes = false;           // is_of_bytes
  bool gangs = true;               // whether there may be any: their rTasks must all run at the same time, and in graph execution do not
  std::shared_ptr<passes::WeightNormsCache> norms = std::make_shared<passes::WeightNormsCache>();  // of the source's weights
  std::shared_ptr<passes::MagnitudeCache> magnitudes = std::make_shared<passes::MagnitudeCache>();
};

// The precision of that name, none for an empty one. Error if it is not known, or unsupported on the vDevice.
std::optional<Precision> asked_precision(const std::string& name, const VDevice& vdevice);
// Whether most products of the model multiply activations that were quantised to 8 bits: fp16 holds those exactly, and bytes do in its
// programs.
bool is_of_bytes(const Graph& model);
// The precision of a model in f16 or bf16, on a vDevice that has it, and fp16 of one whose activations are quantised to 8 bits; else the
// vDevice's own.
Precision own_precision(const Graph& model, const VDevice& vdevice);

}  // namespace tamp::shape
